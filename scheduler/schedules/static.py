"""Static scheduling: sets of blocks in an order that is known before the first round."""

from typing import Any

import numpy as np

from ..._typing import RandomState
from ...errors import DataError, shortened
from ..parameters import PERMUTATION, check_count, check_weights, known_numbers, seed_from, stream
from .schedule import Schedule

_ORDERS = ("cyclic", "permutation", "size", "balanced")


class StaticSchedule(Schedule):
    """Every block once an epoch, `size` of them a round, in an order that does not look at the model.

    A round gives the same set of blocks to every shard. An epoch has ``ceil(n_blocks / size)``
    rounds and meets each block once; sets do not reach over its end.

    Parameters
    ----------
    n_blocks : int, optional
        Parts of the model; those of the program that is run when None.
    size : int, default=1
        Blocks a round: the updates in flight, all made from the same state.
    n_shards : int, optional
        Parts of the data; those of the program that is run when None.
    order : {"cyclic", "permutation", "size", "balanced"}, default="cyclic"
        - ``"cyclic"``: from first to last;
        - ``"permutation"``: a new random permutation each epoch;
        - ``"size"``: the heaviest first, so that blocks of like weight stand in one set and a
          giant does not come last;
        - ``"balanced"``: dealt out by weight, to and fro, so that the sets weigh nearly the same.
    weights : array-like of shape (n_blocks,), optional
        Work that a block makes, for instance the non-zeros of a column; needed for the two orders by weight.
    random_state : int, RandomState or None, default=None
        For permutations; the same seed gives the same plans.

    Notes
    -----
    The order of the current epoch is remembered (8 bytes a block), so that it is made once an epoch.

    Examples
    --------
    >>> from stradask.scheduler import StaticSchedule
    >>> schedule = StaticSchedule(5, size=2)
    >>> [schedule.plan(r, {})[0][0][1].tolist() for r in range(4)]
    [[0, 1], [2, 3], [4], [0, 1]]
    >>> schedule = StaticSchedule(5, size=2, order="size", weights=[1, 9, 2, 7, 4])
    >>> [schedule.plan(r, {})[0][0][1].tolist() for r in range(3)]
    [[1, 3], [4, 2], [0]]
    """

    def __init__(
        self,
        n_blocks: int | None = None,
        *,
        size: int = 1,
        n_shards: int | None = None,
        order: str = "cyclic",
        weights: Any = None,
        random_state: RandomState | None = None,
    ) -> None:
        self.n_blocks = None if n_blocks is None else check_count("n_blocks", n_blocks)
        self.size = check_count("size", size)
        self.n_shards = None if n_shards is None else check_count("n_shards", n_shards)
        if order not in _ORDERS:
            raise DataError(f"order must be one of {', '.join(_ORDERS)}, got {shortened(order)}")
        if order in ("size", "balanced"):
            if weights is None:
                raise DataError(f"order={shortened(order)} needs weights, one for each block")
        else:
            weights = None
        self.order = order
        self._weights = weights
        self._seed = seed_from(random_state)
        self._prepare()

    def _prepare(self):
        if self._weights is not None and self.n_blocks is not None:
            self._weights = check_weights("weights", self._weights, self.n_blocks)
        self._laid_out = (-1, np.empty((0, 0), np.int64))  # an epoch and its sets

    def plan(self, round: int, state: Any) -> Any:
        """Give the round's set to every shard."""
        n_shards, n_blocks = known_numbers(self)
        epoch, place = divmod(round, -(-n_blocks // self.size))
        row = self._sets(epoch)[place]
        blocks = row[row >= 0]
        return [[(shard, blocks) for shard in range(n_shards)]]

    def _sets(self, epoch):
        """Return the sets of an epoch, one a row; -1 fills places that are left over."""
        if self.order != "permutation":
            epoch = 0
        known, sets = self._laid_out
        if known != epoch:
            sets = self._lay_out(epoch)
            self._laid_out = (epoch, sets)
        return sets

    def _lay_out(self, epoch):
        if self.order == "cyclic":
            order = np.arange(self.n_blocks)
        elif self.order == "permutation":
            order = stream(self._seed, PERMUTATION, epoch).permutation(self.n_blocks)
        else:
            order = np.argsort(-self._weights, kind="stable")
        n_sets = -(-self.n_blocks // self.size)
        order = np.append(order, np.full(n_sets * self.size - self.n_blocks, -1))
        if self.order != "balanced":
            return order.reshape(n_sets, self.size)
        dealt = order.reshape(self.size, n_sets)
        dealt[1::2] = dealt[1::2, ::-1]
        return np.ascontiguousarray(dealt.T)
