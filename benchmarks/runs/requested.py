"""Workers that answer calls: started for the first call, or earlier, several of them side by side."""

import contextlib
import select
import tempfile
import time
from pathlib import Path

import numpy as np

from ...errors import StradaskError
from .process import OverTime, WorkerProcess

START_SECONDS = 900.0  # importing, compiling, reading the data, perhaps while others run
WALL = 10  # times the CPU seconds of a call, after which it must hang


class SolverWorker:
    """A worker that answers calls; one that has ended is started anew for the next call.

    It leaves its files in `folder`, which is removed with it. `about` is what it last said of itself:
    versions, seconds of its warm-up, range of its tolerances.
    """

    def __init__(self, turn):
        self._turn, self.solver = turn, turn.solver
        self._limit = turn.plan.time_limit or START_SECONDS
        self._place = contextlib.ExitStack()
        self._worker = contextlib.ExitStack()
        self._running: WorkerProcess | None = None
        self._failed: StradaskError | None = None
        self._ready, self._begun = False, 0.0
        self.folder = Path()
        self.about: dict = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._worker.close()
        self._place.close()

    def begin(self):
        """Start the worker, and do not wait for it."""
        if self.folder == Path():
            folder = tempfile.TemporaryDirectory(prefix="stradask-bench-")
            self.folder = Path(self._place.enter_context(folder))
        self._running = self._worker.enter_context(self._turn.worker(self.folder))
        self._ready, self._begun = False, time.monotonic()

    def start(self):
        """Start the worker unless it runs, wait until it is ready, and return its first message.

        Why it did not come to be ready is raised once, and the next call starts another.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        if self._running is None:
            self.begin()
        assert self._running is not None
        if not self._ready:
            try:
                self.about = self._running.answer(max(0.0, self._left()))
            except OverTime as error:
                self._end()
                raise OverTime(f"not ready; stopped after {self._limit:.0f} s") from error
            except StradaskError:
                self._end()
                raise
            self._ready = True
        return self.about

    def _left(self):
        """Seconds that the worker still has to become ready."""
        return self._begun + self._limit - time.monotonic()

    def fileno(self):
        """Where the worker answers, for `select`."""
        assert self._running is not None
        return self._running.fileno()

    def settled(self):
        """Return whether the worker is ready or has failed; the next `start` raises the error."""
        assert self._running is not None
        answered = select.select([self], [], [], 0)[0]
        if not (answered or self._running.ended() or self._left() <= 0):
            return False
        try:
            self.start()
        except StradaskError as error:
            self._failed = error
        return True

    def ask(self, request, seconds, *, meanwhile=lambda: None):
        """Send a request and return the answer, which must come within some seconds; see `process`."""
        self.start()
        assert self._running is not None
        try:
            self._running.ask(request)
            return self._running.answer(seconds, meanwhile=meanwhile)
        except StradaskError:
            self._end()
            raise

    def call(self, name, arguments, limit, *, max_calls, budget):
        """Return the figures and the arrays of a call of the solver.

        Beyond `limit` CPU seconds it is stopped (`OverTime`). It is timed again until `max_calls`, or
        `budget` seconds, are spent.
        """
        request = {"call": name, "arguments": arguments, "max_calls": max_calls, "budget": budget}
        figures = self.ask(request | {"limit": limit}, WALL * limit)
        with np.load(self.folder / "solution.npz", allow_pickle=False) as arrays:
            return figures, dict(arrays)

    def memory_of_children(self):
        """Return the resident memory in MB of the processes that the worker has started."""
        return 0.0 if self._running is None else self._running.memory_of_children()

    def _end(self):
        self._worker.close()
        self._running = None


class SideBySide:
    """Workers that import and compile at the same time, one on each of some cores.

    Two of one solver do so one after the other: what the first compiled, the second finds in the cache.
    Nothing may be timed before `wait` has returned: from then on they wait to be asked, one after another.
    """

    def __init__(self, places):
        self._places = places
        self._waiting: list[SolverWorker] = []
        self._working: list[SolverWorker] = []
        self._begun = time.monotonic()

    def add(self, worker):
        """Take a worker, which begins as soon as there is a place."""
        self._waiting.append(worker)
        self._fill()

    def wait(self):
        """Wait until all of them are ready or have failed; return the seconds since the first began."""
        while self._working:
            select.select(self._working, [], [], 0.2)
            self._fill()
        return time.monotonic() - self._begun

    def _fill(self):
        self._working = [worker for worker in self._working if not worker.settled()]
        for worker in list(self._waiting):
            if len(self._working) == self._places:
                break
            if worker.solver not in [other.solver for other in self._working]:
                self._waiting.remove(worker)
                worker.begin()
                self._working.append(worker)
