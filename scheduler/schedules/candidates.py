"""Candidates: blocks that shards propose, taken by priority where they do not depend on one another."""

from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import DataError, ModelFileError
from ..parameters import check_count, known_numbers
from .schedule import Schedule


class CandidateSchedule(Schedule):
    """Blocks have owners, the shards, which propose some of theirs with priorities.

    For models with so many blocks that no list of all priorities should be kept. `Outcome.priorities` as
    ``(ids, values)`` are the proposals for the next round. Those that were made before are void. A round goes
    through them by falling priority (ties: the lower number first) and keeps a block if it depends on none
    that was kept for *another* shard: a shard knows of the updates of its own blocks, and can make them one
    after the other.

    Parameters
    ----------
    first : array-like of shape (n_shards + 1,)
        Shard k owns the blocks ``first[k]`` to ``first[k + 1] - 1``.
    conflicts : callable, optional
        As for `DynamicSchedule`: ``conflicts(left, right)`` returns a boolean array of shape
        (len(left), len(right)). None tests nothing.
    size : int, optional
        The most blocks a round; None has no limit.

    Raises
    ------
    DataError
        If `first` does not rise from 0, or `size` is below 1.

    Notes
    -----
    A round of m proposals of which k are kept calls `conflicts` once, for all m: O(m^2) answers, and takes
    O(m k) steps.

    References
    ----------
    Lee, Kim, Zheng, Ho, Gibson, Xing, "On model parallelization and scheduling strategies for distributed
    machine learning", NIPS 2014.

    Examples
    --------
    Two shards of three blocks. Blocks whose numbers differ by 3 depend on each other.

    >>> import numpy as np
    >>> from stradask.scheduler.schedules.candidates import CandidateSchedule
    >>> apart = lambda left, right: abs(left[:, None] - right) == 3
    >>> schedule = CandidateSchedule([0, 3, 6], conflicts=apart)
    >>> state = schedule.start()
    >>> schedule.prioritise(state, np.array([0, 1, 3]), np.array([1.0, 5.0, 2.0]))
    >>> [(shard, blocks.tolist()) for shard, blocks in schedule.plan(0, state)[0]]
    [(0, [1]), (1, [3])]
    """

    def __init__(self, first: Any, *, conflicts: Any = None, size: int | None = None) -> None:
        self.first = np.asarray(first)
        rises = self.first.ndim == 1 and len(self.first) > 1 and self.first.dtype.kind in "iu"
        if not (rises and self.first[0] == 0 and (np.diff(self.first) > 0).all()):
            raise DataError(
                f"first must be integers that rise from 0, the first block of each shard and the end of the "
                f"last; got {self.first}"
            )
        self.n_shards, self.n_blocks = len(self.first) - 1, int(self.first[-1])
        self.size = None if size is None else check_count("size", size)
        self.conflicts = conflicts

    def start(self) -> dict[str, Array]:
        """Return the state without proposals: ``blocks`` and their ``priority``."""
        return {"blocks": np.empty(0, np.int64), "priority": np.empty(0)}

    def plan(self, round: int, state: Any) -> Any:
        """Give every shard those of its proposals that are kept, in rising order; perhaps none."""
        known_numbers(self)
        blocks, priority = state.get("blocks"), state.get("priority")
        if blocks is None or priority is None or np.shape(blocks) != np.shape(priority):
            raise ModelFileError("the state of the schedule must hold blocks and a priority for each")
        kept = self._kept(blocks[np.lexsort((blocks, -priority))])
        owner = self._owner(kept)
        return [[(shard, kept[owner == shard]) for shard in range(self.n_shards)]]

    def _kept(self, blocks):
        """Go through blocks by falling priority; return those that are kept, rising."""
        most = len(blocks) if self.size is None else self.size
        if self.conflicts is None or not len(blocks):
            return np.sort(blocks[:most])
        from ...kernels import scheduling

        owner = self._owner(blocks)
        depend = np.asarray(self.conflicts(blocks, blocks)) & (owner[:, None] != owner)
        return np.sort(blocks[scheduling.independent(depend, most)])

    def _owner(self, blocks):
        return np.searchsorted(self.first, blocks, side="right") - 1

    def observe(self, state: Any, round: int, blocks: Any, priorities: Any) -> None:
        """Void the proposals."""
        state.update(self.start())

    def prioritise(self, state: Any, blocks: Any, priorities: Any) -> None:
        """Take the proposals for the next round."""
        values = np.asarray(priorities, np.float64)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise DataError("priorities must be finite and not negative")
        state["blocks"], state["priority"] = np.asarray(blocks, np.int64), values
