"""The link between two workers, measured: a block goes to and fro, as blocks of pipelines do."""

import time
from typing import Any

import numpy as np

from ..._typing import Engine
from ..program import Outcome, Program
from ..schedules.schedule import Schedule
from .costs import Link

_SIZES = 1_000, 4_000_000  # bytes
_TRIPS, _FIRST = 10, 2  # there and back; those that are not counted


class _Trips(Program):
    """Two shards that note when a block comes."""

    travels = True
    measure_every = 0
    shards = (0, 1)
    n_blocks = len(_SIZES)

    def __init__(self):
        self.seen: Any = []

    def load(self, data):
        """Have seen nothing."""
        return []

    def block(self, block):
        """Make so many bytes."""
        return np.zeros(_SIZES[block], np.uint8)

    def update(self, state, task):
        """Note the time, and that of the processor."""
        state.append((task.blocks, time.perf_counter(), time.process_time()))

    def aggregate(self, tasks, partials):
        """Have no objective."""
        return Outcome()

    def restore(self, arrays):
        """Do nothing: if a worker is lost, the trips are made again."""

    def hold(self, state):
        """Return what was noted."""
        return np.array(state)

    def collect(self, ask):
        """Take what the first shard has seen."""
        self.seen = ask(lambda session, messages: session.measure(messages, "hold"))[0]


class _ToAndFro(Schedule):
    def plan(self, round, state):
        return [[(k % 2, block)] for block in range(len(_SIZES)) for k in range(2 * _TRIPS)]


def measure_link(engine: Engine = "dask") -> Link:
    """Measure the way between two places: a block of 1 kB, and one of 4 MB, go to and fro ten times.

    Parameters
    ----------
    engine : str or distributed.Client, default="dask"
        ``"dask"``, a client, the address of a scheduler, or ``"local"``.

    Returns
    -------
    Link
        Latency, bandwidth and processor time of a message: medians.

    Examples
    --------
    >>> from stradask.scheduler.planning import measure_link
    >>> measure_link("local").latency < 1
    True
    """
    from ..engine import run

    program = _Trips()
    run(program, _ToAndFro(), max_rounds=1, engine=engine)
    delays, works = [], []
    for block in range(len(_SIZES)):
        seen = program.seen[program.seen[:, 0] == block]
        seconds, work = np.median(np.diff(seen[:, 1:], axis=0)[_FIRST:], axis=0) / 2
        delays.append(float(seconds))
        works.append(float(work))
    slope = max((delays[1] - delays[0]) / (_SIZES[1] - _SIZES[0]), 1e-12)
    return Link(delays[0], 1 / slope, cpu=min(works[0], delays[0]))
