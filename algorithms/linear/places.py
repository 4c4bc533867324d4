"""Where the tasks of a search run: threads of this process, or the workers of a Dask cluster.

Tasks know nothing of one another, so on Dask they are plain tasks and need no session. All share one matrix,
which goes to the cluster once, and from worker to worker when a task there needs it.
"""

import threading
import warnings

from ...errors import DataError
from ...scheduler.session import own_threads
from ...scheduler.threads import run_tasks, single_threaded_blas
from .dask_input import is_dask


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
    from .distributed import place

    if own_threads() is not None:
        if engine != "local":
            warnings.warn(
                f"engine={engine!r} inside a Dask task: the search runs on this worker alone; engine='local' "
                "does so without this warning",
                stacklevel=4,
            )
        return Here(_whole(X), n_jobs)
    engine = place(X, engine)
    return Here(_whole(X), n_jobs) if engine == "local" else There(X, engine, n_jobs)


def _whole(X):
    """Compute a Dask array and lay it by columns; pass anything else on."""
    from .distributed import _by_columns

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
    """Runs tasks on the workers of a Dask cluster; see `place_of`."""

    def __init__(self, X, engine, n_jobs):
        self.X, self.engine, self.n_jobs = X, engine, n_jobs
        self._futures: list = []

    def __enter__(self):
        import distributed

        if self.engine == "dask":
            try:
                self._client, self._owned = distributed.default_client(), False
            except ValueError as error:
                raise DataError(
                    "engine='dask' is the current Dask client, and there is none: make one with "
                    "dask.distributed.Client(...) before the fit, or give the scheduler's address as engine"
                ) from error
        elif "://" in self.engine:
            self._client, self._owned = distributed.Client(self.engine, set_as_default=False), True
        else:
            raise DataError(f"engine must be 'local', 'dask' or a scheduler's address, got {self.engine!r}")
        self.X = self._sent(self.X)
        return self

    def __exit__(self, *exc_info):
        self._client.cancel(self._futures)
        self._futures.clear()
        self.X = None
        if self._owned:
            self._client.close()

    def _sent(self, X):
        if not is_dask(X):
            return self._client.scatter(X, hash=False)
        import dask

        return self._client.compute(dask.delayed(_assembled)(X))

    def one(self, function, *args):
        """Run one task, which may use `n_jobs` threads of its worker, given as its last argument."""
        return self._start(function, (*args, self.n_jobs)).result()

    def map(self, function, tasks, tell):
        """Run a task for each tuple of arguments; ``tell()`` after each; the results in their order."""
        import distributed

        futures = [self._start(function, args) for args in tasks]
        for future in distributed.as_completed(futures):
            future.result()  # the first failure is raised at once
            tell()
        return self._client.gather(futures)

    def _start(self, function, args):
        future = self._client.submit(function, self.X, *args, pure=False)
        self._futures.append(future)
        return future


def _assembled(X):
    """Check the matrix that came out of a Dask array, and lay it by columns."""
    from .distributed import _by_columns

    return _by_columns(X)
