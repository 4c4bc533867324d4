"""Independent work as plain Dask tasks, which survive the loss of workers."""

import contextlib
from concurrent.futures import CancelledError
from typing import Any

import dask
import distributed

from ..errors import WorkerLost
from .parameters import ATTEMPTS
from .sessions.clients import scheduler_named
from .sessions.payloads import not_imported
from .tasks import Load, Tasks, check_ships

# Reasons that Dask gives for tasks that it cancelled itself: the connection to the scheduler broke, workers
# were restarted, or the results that a task needs were lost in one of these ways.
_BY_DASK = {"scheduler-connection-lost", "scheduler-restart", "lost dependencies"}


class ClusterTasks(Tasks):
    """Tasks on the workers of a cluster that have this version; see `Tasks`.

    An input that is sent lies in one worker at first, and goes to others when tasks there need it. If it is
    lost, all inputs are made again, and tasks without a result begin anew. A chain goes on from the last
    result that has arrived.

    Parameters
    ----------
    workers : TaskWorkers
        Not opened yet.
    n_jobs : int or None
    inputs : sequence
    name, advice : str
        In errors: of the inputs, and what helps if tasks take more memory than there is.
    """

    remote = True

    def __init__(self, workers, n_jobs, inputs, name, advice):
        self._workers, self.n_jobs, self._sources = workers, n_jobs, list(inputs)
        self._name, self._advice = name, advice
        self._sends = any(not isinstance(source, Load) for source in self._sources)
        self._inputs: list[Any] = []
        self._losses = 0

    def open(self):
        """Find workers, and send or make the inputs."""
        self._workers.open()
        try:
            with scheduler_named(self._workers.client):
                self._make_inputs()
        except BaseException:
            self.close()
            raise

    def check_ships(self, name, function):
        """Refuse a function that cannot be shipped to workers."""
        check_ships(name, function)

    def close(self):
        """Let go of the inputs; a client that was the caller's stays open."""
        self._inputs = []
        self._workers.close()

    def _make_inputs(self):
        self._workers.keep_busy()
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):  # they are data
            self._inputs = [
                self._workers.submit(source.function, *source.args, only=source.workers)
                if isinstance(source, Load)
                else self._sent(source)
                for source in self._sources
            ]

    def _sent(self, value):
        while True:
            try:
                return self._workers.scatter(value)
            except (OSError, CancelledError) as error:  # the worker that was to have it, or the scheduler
                self._count_loss(error)

    def _count_loss(self, error):
        self._losses += 1
        if self._losses < ATTEMPTS:
            return
        if self._sends:
            raise WorkerLost(
                f"{self._name} was lost {self._losses} times with workers that held it ({error}); do they "
                "have memory for it, and does another program cancel tasks on them?"
            ) from error
        raise self._deadly() from error

    def _deadly(self):
        return WorkerLost(
            f"a {self.unit}'s workers died again and again: it may need more memory than they have; take "
            f"{self._advice}"
        )

    def _run(self, function, chains, order, done):
        results: list[dict[int, Any]] = [{} for _ in chains]  # by number in the chain
        self._losses, n_orphaned = 0, self._workers.n_orphaned
        with scheduler_named(self._workers.client), _imports_named():
            while any(len(there) < len(chain.tasks) for there, chain in zip(results, chains, strict=True)):
                try:
                    self._attempt(function, chains, order, results, done)
                except CancelledError as error:
                    if failed := [made for made in self._inputs if getattr(made, "status", "") == "error"]:
                        raise failed[0].exception() from error  # which cancelled the tasks
                    orphaned = self._workers.n_orphaned > n_orphaned
                    # What was sent is lost with a worker, also while others are left; a broken connection
                    # may come back. Otherwise another program cancelled the tasks.
                    gone = self._workers.client.status != "running"
                    gone = gone or getattr(error, "reason", "") in _BY_DASK
                    if not (self._sends or orphaned or gone):
                        raise
                    n_orphaned = self._workers.n_orphaned
                    self._count_loss(error)
                    self._workers.cancel(
                        future
                        for future, source in zip(self._inputs, self._sources, strict=True)
                        if isinstance(source, Load)
                    )
                    self._make_inputs()
        return [[there[k] for k in range(len(there))] for there in results]

    def _attempt(self, function, chains, order, results, done):
        """Run what has no result; the first failure is raised at once, and ends the others."""
        started: dict[Any, tuple[int, int]] = {}
        try:
            for number in order:
                chain, there = chains[number], results[number]
                first = next(k for k in range(len(chain.tasks) + 1) if k not in there)
                last = there[first - 1] if first else chain.first
                data, source = self._inputs[chain.input], self._sources[chain.input]
                only = source.workers if isinstance(source, Load) else ()
                for k in range(first, len(chain.tasks)):
                    last = self._workers.submit(function, data, last, *chain.tasks[k], only=only)
                    started[last] = number, k
            for batch in distributed.as_completed(started, loop=self._workers.client.loop).batches():
                finished = [future for future in batch if future.status == "finished"]
                failed = [[future] for future in batch if future.status != "finished"]
                for futures in filter(None, [finished, *failed]):  # what has arrived is kept
                    for future, result in zip(futures, self._workers.gather(futures), strict=True):
                        number, k = started[future]
                        if k not in results[number]:  # it may be there of a chain that lost its beginning
                            results[number][k] = result
                            done(number)
        except distributed.KilledWorker as error:
            raise self._deadly() from error
        finally:
            self._workers.cancel(started)


@contextlib.contextmanager
def _imports_named():
    """Turn Dask's error of a scheduler that cannot unpickle a task into ours."""
    try:
        yield
    except RuntimeError as error:
        if "deserialization of the task graph" in str(error):
            raise not_imported(error) from error
        raise
