"""The interface of schedules: state and event in, plan out."""

import copy
from typing import Any, Self

import numpy as np

from ..._typing import Array
from ...errors import DataError, shortened


class Schedule:
    """Chooses the blocks that meet the shards in each round.

    A schedule is pure: it holds its parameters only. What it learns during a run is in a state, a dict of
    arrays that the engine keeps and puts into checkpoints. It knows no algorithm, only indices and
    priorities.

    Attributes
    ----------
    lookahead : int, default=0
        The plan of round r is made from the events of rounds up to ``r - 1 - lookahead``; with 1 it is made
        while round r - 1 runs. Part of the promise of the same plan for the same seed.
    n_shards, n_blocks : int or None, default=None
        Numbers that the plans are made for; None until the program is known. A schedule that sets them is
        refused for a program of other numbers.
    """

    lookahead: int = 0
    n_shards: Any = None
    n_blocks: Any = None

    def bound(self, n_shards: int, n_blocks: int) -> Self:
        """Return a copy for a program's numbers of shards and blocks; itself if it has both.

        DataError if the schedule was made for other numbers.
        """
        name, found = type(self).__name__, {"n_shards": n_shards, "n_blocks": n_blocks}
        for key, number in found.items():
            own = getattr(self, key)
            if own is not None and own != number:
                raise DataError(
                    f"the {name} was made for {key}={own}, but the program has {number} {key[2:]}: parts of "
                    f"the {'data' if key == 'n_shards' else 'model'} would be left out; leave {key} out of "
                    "the schedule, and it is that of the program"
                )
        if self.n_shards is not None and self.n_blocks is not None:
            return self
        other = copy.copy(self)
        other.n_shards, other.n_blocks = n_shards, n_blocks
        other._prepare()
        return other

    def _prepare(self):
        """Compute what needs the numbers of shards and blocks."""

    def start(self) -> dict[str, Array]:
        """Return the state before round 0, a dict of arrays."""
        return {}

    def plan(self, round: int, state: Any) -> Any:
        """Plan a round, counted from 0; `state` is not changed.

        Returns
        -------
        list of list of (int, int or ndarray of int64)
            Steps in order; each holds (shard, blocks), which may run at the same time. Blocks are integers in
            all plans of a schedule, or arrays in all.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what is planned")

    def observe(self, state: Any, round: int, blocks: Any, priorities: Any) -> None:
        """Update the state with the results of a round.

        `blocks` (int64) were updated; `priorities` (float64, not negative) are how much each of them changed.
        """

    def prioritise(self, state: Any, blocks: Any, priorities: Any) -> None:
        """Take in the priorities of blocks that were not updated, neighbours of those that were.

        Arrays as in `observe`; no block is there twice. A schedule that has no priorities ignores them.
        """


def check_plan(plan, program, schedule):
    """Refuse a plan that names shards or blocks which the program does not have."""
    n_shards, n_blocks, last = len(program.shards), program.n_blocks, None
    for shard, blocks in (pair for step in plan for pair in step):
        if blocks is last:  # one set for all shards
            inside = True
        elif isinstance(blocks, np.ndarray):
            if program.travels:
                raise DataError(
                    f"{type(schedule).__name__} plans sets of blocks, but those of {type(program).__name__} "
                    "travel one at a time: take RotationSchedule, or leave travels False"
                )
            inside = not blocks.size or 0 <= blocks.min() <= blocks.max() < n_blocks
        else:
            inside = 0 <= blocks < n_blocks
        if not (inside and 0 <= shard < n_shards):
            raise DataError(
                f"{type(schedule).__name__} plans blocks {blocks} on shard {shard}, but the program has "
                f"{n_shards} shards and {n_blocks} blocks, numbered from 0: make the schedule for these"
            )
        last = blocks


def plan_as_json(plan):
    """Turn a plan, or None, into a value for JSON."""
    if plan is None:
        return None
    return [
        [[int(s), blocks.tolist() if np.ndim(blocks) else int(blocks)] for s, blocks in step] for step in plan
    ]


def plan_from_json(plan, program, schedule):
    """Make a plan of a value of JSON, with all checks: kernels read where it points."""
    if plan is None:
        return None
    if not isinstance(plan, list) or not plan or not all(plan):
        raise ValueError(f"a plan of {shortened(plan)} does nothing")
    n_dims = {np.ndim(blocks) for step in schedule.plan(0, schedule.start()) for _, blocks in step}
    for s, blocks in (pair for step in plan for pair in step):
        here = np.asarray(blocks)
        if here.dtype.kind not in "iu" or here.ndim not in n_dims or type(s) is not int:
            raise ValueError("the numbers of shards and blocks are no integers of its schedule's form")
        inside = not here.size or 0 <= here.min() <= here.max() < program.n_blocks
        if not (inside and 0 <= s < len(program.shards)):
            raise ValueError(f"shard {s} with blocks {blocks} is none of this fit")
    return [
        [(s, np.array(blocks, np.int64) if isinstance(blocks, list) else blocks) for s, blocks in step]
        for step in plan
    ]


def blocks_of(tasks):
    """Return the blocks that a segment updated: one set for all shards, or each task's own."""
    sets = [np.atleast_1d(task.blocks) for task in tasks] or [np.zeros(0, np.int64)]
    if all(np.array_equal(sets[0], other) for other in sets[1:]):
        return sets[0]
    return np.concatenate(sets)


def events_of(program, blocks, priorities):
    """Split `Outcome.priorities`: the updated blocks, theirs, and the others' ids and values, or None."""
    if not (isinstance(priorities, tuple) and len(priorities) == 2 and np.ndim(priorities[0])):
        return blocks, np.asarray(priorities, np.float64), None
    ids, values = np.asarray(priorities[0]), np.asarray(priorities[1], np.float64)
    name = type(program).__name__
    if ids.ndim != 1 or ids.shape != values.shape or (ids.size and ids.dtype.kind not in "iu"):
        raise DataError(
            f"{name} gives priorities as (ids, values): there must be a value for each id, an integer, but "
            f"the shapes are {ids.shape} and {values.shape}, and the ids are {ids.dtype}"
        )
    ids = ids.astype(np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < program.n_blocks:
        raise DataError(
            f"{name} gives priorities of blocks {ids.min()} to {ids.max()}, but has blocks 0 to "
            f"{program.n_blocks - 1}"
        )
    order = np.argsort(ids, kind="stable")
    ids, values = ids[order], values[order]
    if (twice := np.flatnonzero(ids[1:] == ids[:-1])).size:
        raise DataError(
            f"{name} gives two priorities of block {ids[twice[0]]}; give the last one, or their sum"
        )
    blocks = np.unique(blocks)
    own, other = np.zeros(len(blocks)), ~np.isin(ids, blocks)
    own[np.searchsorted(blocks, ids[~other])] = values[~other]
    return blocks, own, (ids[other], values[other])
