"""Joining: workers put together what their shards receive at a barrier, without the coordinator."""

from typing import Any, NamedTuple


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
    >>> from stradask.scheduler.sessions.joining import partners
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
            both = (value, there) if rank < other else (there, value)
            known = [one for one in both if one is not None]
            value = join(known) if len(known) > 1 else next(iter(known), None)
    return value
