"""Routes: which worker does what in a round, where blocks travel, and who joins values with whom."""

from typing import Any, NamedTuple


class Assignment(NamedTuple):
    """One task of a call, for the worker that does it.

    Attributes
    ----------
    position : int
        Among all tasks of the call, on all workers: in the order of steps.
    step, shard, blocks
        See `Task`.
    stamp : int
        Transfers of the travelling block so far; -1 where blocks do not travel.
    to : str
        Worker that the block goes on to; "" if it stays.
    """

    position: int
    step: int
    shard: int
    blocks: Any
    stamp: int = -1
    to: str = ""


def plan_routes(first, steps, shard_at, block_at, stamps, later=()):
    """Turn steps of (shard, block) pairs into the assignments of each worker, and the transfers of blocks.

    `first` is the number of the first step. `shard_at` and `block_at` name the worker of each shard and block
    (`block_at` is empty if blocks do not travel), `stamps` count how often each block was used or moved.
    `later` are steps that are known to follow: a block goes on to where it is needed then, as soon as it is
    free.

    Returns
    -------
    plans : dict of str to list of Assignment
        By worker, in the order of steps.
    moves : dict of str to list of (int, int, str)
        By worker, the blocks that it sends off first: number, stamp, and to whom.
    block_at, stamps : list
        After these steps.

    Examples
    --------
    >>> from stradask.scheduler.sessions.routes import plan_routes
    >>> plans, moves, block_at, stamps = plan_routes(0, [[(0, 0)], [(1, 0)]], ["a", "b"], ["b"], [0])
    >>> moves
    {'b': [(0, 0, 'a')]}
    >>> plans["a"][0].to, block_at, stamps
    ('b', ['b'], [3])
    """
    tasks = [(number, *pair) for number, step in enumerate(steps, first) for pair in step]
    plans: dict[str, list] = {}
    moves: dict[str, list] = {}
    block_at, stamps = list(block_at), list(stamps)
    if not block_at:
        for position, task in enumerate(tasks):
            plans.setdefault(shard_at[task[1]], []).append(Assignment(position, *task))
        return plans, moves, block_at, stamps
    users: dict[int, list] = {}
    for shard, block in reversed([pair for step in (*steps, *later) for pair in step]):
        users.setdefault(block, []).append(shard_at[shard])  # the first user is last
    for block in sorted({block for _, _, block in tasks}):
        queue = users[block]
        if block_at[block] != queue[-1]:
            moves.setdefault(block_at[block], []).append((block, stamps[block], queue[-1]))
            stamps[block] += 1
    for position, (step, shard, block) in enumerate(tasks):
        here = users[block].pop()
        to = users[block][-1] if users[block] and users[block][-1] != here else ""
        plans.setdefault(here, []).append(Assignment(position, step, shard, block, stamps[block], to))
        stamps[block] += 1
        block_at[block] = to or here
    return plans, moves, block_at, stamps


class Barriers(NamedTuple):
    """The barriers of a call, for one of the workers that take part in it.

    Attributes
    ----------
    firsts : list of int
        The first step of each part of the call; there is a barrier after each part.
    workers : list of str
        All that have shards.
    rank : int
        The place of this one among them.
    """

    firsts: list
    workers: list
    rank: int


def partners(rank, n):
    """List whom a worker exchanges with, one after the other: ("both" | "to" | "from", rank).

    The largest power of two of workers exchange in pairs at distances 1, 2, 4...: each then has the joined
    values of all (Rabenseifner 2004, recursive doubling). Each of the others gives its value to one of them
    first, and is given the result: in all a worker waits for others log2(n) times, or twice more.

    Examples
    --------
    >>> from stradask.scheduler.sessions.routes import partners
    >>> partners(0, 3), partners(1, 3), partners(2, 3)
    ([('from', 2), ('both', 1), ('to', 2)], [('both', 0)], [('to', 0), ('from', 0)])
    """
    size = 1 << (n.bit_length() - 1)
    if rank >= size:
        return [("to", rank - size), ("from", rank - size)]
    pairs = [("both", rank ^ (1 << stage)) for stage in range(size.bit_length() - 1)]
    other = rank + size
    return pairs if other >= n else [("from", other), *pairs, ("to", other)]


def joined_by_all(join, value, barriers, give, take) -> Any:
    """Join the value of a worker with those of all, by `partners`.

    ``give(to, value)`` sends the value to another worker, once to each, ``take(of)`` waits for that of one.
    Of a pair the value of the lower rank comes first, so that all workers have the same bits.
    """
    rank = barriers.rank
    for kind, other in partners(rank, len(barriers.workers)):
        if kind != "from":
            give(other, value)
        if kind == "to":
            continue
        there = take(other)
        if kind == "from" and rank > other:  # the result
            value = there
        else:
            value = joined_of(join, (value, there) if rank < other else (there, value))
    return value


def joined_of(join, values):
    """Join two values of which each may be None."""
    known = [one for one in values if one is not None]
    return join(known) if len(known) > 1 else next(iter(known), None)
