"""Schedules made of schedules: phases of a program, and passes that follow each other."""

import numpy as np

from ..parameters import check_count
from .schedule import Schedule


class PassesSchedule(Schedule):
    """All shards work on the same block at the same time, block after block, `repeats` times a round.

    For programs of passes that must not overlap: all shards end one before any begins the next.

    Examples
    --------
    >>> from stradask.scheduler.schedules.switching import PassesSchedule
    >>> PassesSchedule(2, 2).plan(0, {})
    [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    """

    def __init__(self, n_shards, n_blocks, *, repeats=1):
        self.n_shards = check_count("n_shards", n_shards)
        self.n_blocks = check_count("n_blocks", n_blocks)
        self.repeats = check_count("repeats", repeats)

    def plan(self, round, state):
        """List the passes of a round, each for all shards."""
        passes = [[(shard, block) for shard in range(self.n_shards)] for block in range(self.n_blocks)]
        return passes * self.repeats


class SwitchSchedule(Schedule):
    """Schedules one after the other: a positive priority of the program starts the next.

    The schedules have no state of their own. Each may name fewer blocks than the program has: a phase of its
    own.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler import RotationSchedule
    >>> from stradask.scheduler.schedules.switching import PassesSchedule, SwitchSchedule
    >>> schedule = SwitchSchedule(PassesSchedule(2, 1), RotationSchedule(2))
    >>> state = schedule.start()
    >>> schedule.plan(0, state)
    [[(0, 0), (1, 0)]]
    >>> schedule.observe(state, 0, [0], np.ones(1))
    >>> schedule.plan(1, state)
    [[(0, 0), (1, 1)], [(0, 1), (1, 0)]]
    """

    def __init__(self, *schedules):
        self.schedules = schedules

    def bound(self, n_shards, n_blocks):
        """Bind each schedule; one that has its own number of blocks keeps it."""
        return SwitchSchedule(*(s.bound(n_shards, s.n_blocks or n_blocks) for s in self.schedules))

    def start(self):
        """Begin with the first."""
        return {"phase": np.zeros(1, np.int64)}

    def plan(self, round, state):
        """Return the plan of the present phase's schedule."""
        return self.schedules[int(state["phase"][0])].plan(round, {})

    def observe(self, state, round, blocks, priorities):
        """Go on to the next phase if the program says so."""
        if np.any(priorities > 0):
            state["phase"][0] = min(state["phase"][0] + 1, len(self.schedules) - 1)
