"""Routes: which worker does what in a round, and where the blocks travel."""

from .call_tasks import Assignment


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
