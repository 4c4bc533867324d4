"""Rotation: blocks that travel from shard to shard, no two shards on the same one."""

import heapq
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import DataError
from ..parameters import check_count, known_numbers, numbers_of
from .schedule import Schedule


class RotationSchedule(Schedule):
    """Every shard meets every block once a round, and no two meet the same one at a time.

    With ``m = max(n_shards, n_blocks)`` and ``k = max(n_blocks // n_shards, 1)`` a round has m steps; in
    step s shard i works on block ``(k i + s) mod m`` (a number beyond the last block is a pause). A block
    that shard i has done is needed by shard i - 1 after k steps: with two blocks a shard or more it
    travels while both work on others. The plan depends on nothing but the numbers.

    How even the steps are depends on the cut: `balance` makes shards and blocks of equal weight.

    Parameters
    ----------
    n_shards : int, optional
        Parts of the data; those of the program that is run when None.
    n_blocks : int, optional
        Parts of the model; those of the program that is run when None, and without one as many as shards.
        Where blocks travel between machines, a program should have at least twice as many as shards.
    rotate : bool, default=False
        Begin round r with step ``r mod m``, so that no block is always the first of its round.

    Examples
    --------
    >>> from stradask.scheduler import RotationSchedule
    >>> for step in RotationSchedule(2, 4).plan(0, {}):
    ...     print(step)
    [(0, 0), (1, 2)]
    [(0, 1), (1, 3)]
    [(0, 2), (1, 0)]
    [(0, 3), (1, 1)]
    """

    def __init__(
        self, n_shards: int | None = None, n_blocks: int | None = None, *, rotate: bool = False
    ) -> None:
        self.n_shards = None if n_shards is None else check_count("n_shards", n_shards)
        self.n_blocks = None if n_blocks is None else check_count("n_blocks", n_blocks)
        self.rotate = rotate

    def plan(self, round: int, state: Any) -> Any:
        """Pair shards with blocks, step by step."""
        if self.n_blocks is None and self.n_shards is not None:
            n_shards = n_blocks = self.n_shards
        else:
            n_shards, n_blocks = known_numbers(self)
        m = max(n_shards, n_blocks)
        first = round % m if self.rotate else 0
        return [self._step((first + s) % m, m, n_shards, n_blocks) for s in range(m)]

    def _step(self, s, m, n_shards, n_blocks):
        stride = max(n_blocks // n_shards, 1)
        pairs = ((shard, (stride * shard + s) % m) for shard in range(n_shards))
        return [(shard, block) for shard, block in pairs if block < n_blocks]


def balance(weights: Any, n_groups: int, shares: Any = None) -> Array:
    """Spread items over groups so that the groups' weights are nearly equal.

    The heaviest items go one by one to the lightest group (Graham's longest processing time first).
    The many light ones after them go in slices of nearly equal items: each slice is cut so that it
    lifts the groups to one level. No group ends above the mean by more than the heaviest item.
    A million items take a fraction of a second; ties are broken by position, so the
    answer depends on the arguments alone.

    Parameters
    ----------
    weights : array-like of shape (n_items,)
        Not negative.
    n_groups : int
    shares : array-like of shape (n_groups,), optional
        What each group is to weigh, where they are not to be equal; in the units of `weights`.

    Returns
    -------
    group : ndarray of int32, shape (n_items,)
        The group of each item.

    References
    ----------
    R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied
    Mathematics 17 (1969).

    Examples
    --------
    >>> from stradask.scheduler import balance
    >>> balance([5, 1, 1, 1, 4, 2], 2)
    array([0, 0, 0, 1, 1, 1], dtype=int32)
    """
    weights = numbers_of("weights", weights)
    if n_groups < 1:
        raise DataError(f"n_groups must be at least 1, got {n_groups}")
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise DataError("weights must be a vector of finite numbers that are not negative")
    group = np.zeros(len(weights), dtype=np.int32)
    shares = np.zeros(n_groups) if shares is None else numbers_of("shares", shares)
    if shares.shape != (n_groups,) or not np.isfinite(shares).all():
        raise DataError(f"shares must be finite numbers, one for each of {n_groups} groups")
    loads = shares.max() - shares  # a group that is to weigh less begins with what it is to lack
    order = np.argsort(-weights, kind="stable")
    n_heavy = max(4096, 16 * n_groups)
    loads = _one_by_one(weights, order[:n_heavy], group, loads)
    light = order[n_heavy:]
    for items in np.array_split(light, min(256, 1 + len(light) // (4 * n_groups))):
        _in_one_cut(weights[items], items, group, loads)
    return group


def _one_by_one(weights, items, group, loads):
    """Give each item to the lightest group; return the groups' weights."""
    heap = [(load, k) for k, load in enumerate(loads.tolist())]
    heapq.heapify(heap)
    for item, weight in zip(items.tolist(), weights[items].tolist(), strict=True):
        load, k = heap[0]
        group[item] = k
        heapq.heapreplace(heap, (load + weight, k))
    return np.array([load for load, _ in sorted(heap, key=lambda entry: entry[1])])


def _in_one_cut(weights, items, group, loads):
    """Cut a slice of light items so that it brings the lightest groups to one level, if it can."""
    amount = weights.sum()
    if amount == 0:
        group[items] = items % len(loads)
        return
    room = _rooms(loads, amount)
    open_groups = np.flatnonzero(room)
    ends = np.cumsum(room[open_groups])
    middle = np.cumsum(weights) - weights / 2
    cut = np.minimum(np.searchsorted(ends, middle), len(open_groups) - 1)
    group[items] = open_groups[cut]
    loads += np.bincount(group[items], weights=weights, minlength=len(loads))


def _rooms(loads, amount):
    """Return how much each group takes if `amount` fills them to one level, like water."""
    ascending = np.sort(loads)
    # The level, were only the k + 1 lightest groups under water.
    levels = (amount + np.cumsum(ascending)) / np.arange(1, len(loads) + 1)
    wet = np.flatnonzero(levels > ascending)
    level = levels[wet[-1]] if len(wet) else ascending[0]
    return np.maximum(level - loads, 0)
