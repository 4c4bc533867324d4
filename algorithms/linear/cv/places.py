"""Where the tasks of a search run: threads of this process, or the workers of a Dask cluster.

Tasks know nothing of one another, so on Dask they are plain tasks and need no session. All share one matrix,
which goes to the cluster once, and from worker to worker when a task there needs it.
"""

import contextlib
import threading
from concurrent.futures import CancelledError
from typing import Any

from ....errors import WorkerLost
from ....scheduler.threads import effective_n_jobs, own_threads, run_tasks, single_threaded_blas, warn_in_task
from ...inputs.dask_arrays import is_dask

_SENDINGS = 3  # of X, after the first


def place_of(X, engine, n_jobs):
    """Choose where tasks run.

    Parameters
    ----------
    X : ndarray, CSC array or Dask array
        Given to every task as its first argument; of a Dask array the whole, on the worker.
    engine : str
        ``"local"``; ``"dask"``, the current client; or the address of a Dask scheduler. A Dask array goes
        to the current client if there is one.
    n_jobs : int or None
        Threads, where tasks run in this process; results do not depend on it.

    Returns
    -------
    Here or There
        A context manager.
    """
    if engine == "local" and not is_dask(X):
        return Here(X, n_jobs)
    from ...inputs.dask_arrays import engine_for

    threads = own_threads()
    if threads is not None:
        if engine != "local":
            n_jobs = threads if n_jobs is None else n_jobs
            warn_in_task(engine, effective_n_jobs(n_jobs), stacklevel=4)
        return Here(_whole(X), n_jobs)
    engine = engine_for(X, engine)
    return Here(_whole(X), n_jobs) if engine == "local" else There(X, engine, n_jobs)


def _whole(X):
    """Compute a Dask array and lay it by columns; pass anything else on."""
    from ..sparse.distributed import _by_columns

    return _by_columns(X) if is_dask(X) else X


class Here:
    """Runs tasks on threads of this process; see `place_of`."""

    def __init__(self, X, n_jobs):
        self.X, self.n_jobs = X, n_jobs

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def one(self, function, *args):
        """Run one task, which may use all threads, given as its last argument."""
        return function(self.X, *args, self.n_jobs)

    def map(self, function, tasks, tell):
        """Run a task for each tuple of arguments; ``tell()`` after each; the results in their order."""
        told = threading.Lock()

        def task(*args):
            result = function(self.X, *args)
            with told:
                tell()
            return result

        with single_threaded_blas():
            return run_tasks([(task, args) for args in tasks], self.n_jobs)


class There:
    """Runs tasks on the workers of a Dask cluster; see `place_of`.

    X lies in one worker at first. If it is lost with it, X is sent again, at most three times, and tasks
    that had not ended begin anew.
    """

    def __init__(self, X, engine, n_jobs):
        self.X, self.engine, self.n_jobs = X, engine, n_jobs
        self._sent: Any = None
        self._futures: list = []
        self._losses = 0

    def __enter__(self):
        from ....scheduler.sessions.clients import scheduler_named
        from ....scheduler.sessions.task_workers import task_workers

        with contextlib.ExitStack() as stack:
            self._workers = task_workers(self.engine)
            self._client = self._workers.open()
            stack.callback(self._workers.close)
            stack.enter_context(scheduler_named(self._client))
            stack.callback(self._forget)
            self._send()
            self._leave = stack.pop_all()
        return self

    def __exit__(self, *exc_info):
        return self._leave.__exit__(*exc_info)

    def one(self, function, *args):
        """Run one task, which may use `n_jobs` threads of its worker, given as its last argument."""
        (result,) = self.map(function, [(*args, self.n_jobs)], lambda: None)
        return result

    def map(self, function, tasks, tell):
        """Run a task for each tuple of arguments; ``tell()`` after each; the results in their order."""
        results: dict[int, Any] = {}
        while len(results) < len(tasks):
            try:
                self._run(function, tasks, results, tell)
            except CancelledError as error:
                self._count(error)
                self._forget()
                self._send()
        return [results[task] for task in range(len(tasks))]

    def _run(self, function, tasks, results, tell):
        """Run the tasks that have no result; the first failure is raised at once."""
        import distributed

        started = {}
        for number, args in enumerate(tasks):
            if number not in results:
                future = self._workers.submit(function, self._sent, *args)
                started[future] = number
                self._futures.append(future)
        for future in distributed.as_completed(started, loop=self._client.loop):
            (results[started[future]],) = self._workers.gather([future])
            tell()

    def _count(self, error):
        """Count a loss of X; too many of them are raised."""
        self._losses += 1
        if self._losses > _SENDINGS:
            raise WorkerLost(
                f"X was lost {self._losses} times with workers that held it ({error}); do they have room for "
                "it, and are tasks on them cancelled by others?"
            ) from error

    def _send(self):
        if is_dask(self.X):
            import dask

            where = self._workers.where()
            assembled = self._client.compute(dask.delayed(_assembled)(self.X), **where)
            self._sent = self._workers.watch(assembled, where)
        while self._sent is None:
            try:
                where = self._workers.where()  # workers may be about to come
                self._sent = self._workers.scatter(self.X, workers=where["workers"], hash=False)
            except (OSError, CancelledError) as error:  # the worker that was to have it, or the scheduler
                self._count(error)

    def _forget(self):
        """Let go of all tasks and of X on the cluster."""
        self._workers.cancel(self._futures)
        self._futures.clear()
        self._sent = None


def _assembled(X):
    """Check the matrix that came out of a Dask array, and lay it by columns."""
    from ..sparse.distributed import _by_columns

    return _by_columns(X)
