"""One pool of threads for the whole process, for kernels that release the GIL."""

import functools
import os
import sys
import threading
import warnings
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from numbers import Integral

from ..errors import DataError, shortened

_MOST = 4096  # threads: work is cut into as many parts
_lock = threading.Lock()
_pool = None
_blas_users, _blas_limit = 0, None  # who holds BLAS to one thread, and what it had before


def effective_n_jobs(n_jobs):
    """Turn the parameter `n_jobs` into a number of threads, as scikit-learn and joblib do.

    None is 1, -1 all cores that this process may use (its affinity mask and the CPU limit of its container),
    -2 all but one, and so on, but at least 1 and at most 4096. Raises DataError for 0 and for other types.

    Examples
    --------
    >>> from stradask.scheduler.threads import effective_n_jobs
    >>> effective_n_jobs(None), effective_n_jobs(3)
    (1, 3)
    """
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise DataError(
            f"n_jobs must be None or an integer other than 0, got {shortened(n_jobs)}; -1 takes all cores"
        )
    n_jobs = int(n_jobs)
    if n_jobs > 0:
        return min(n_jobs, _MOST)
    from joblib import cpu_count

    return max(1, cpu_count() + 1 + n_jobs)


def run_tasks(tasks, n_jobs):
    """Run tasks, callables or (callable, args) pairs, on at most `n_jobs` threads; results in their order.

    The caller is one of the threads, so a task may itself call `run_tasks`, and many threads may call it at
    once. If tasks fail, no further one is started, those that run are waited for, and the failure of the
    first of them, in the order of the tasks, is raised.

    Examples
    --------
    >>> from stradask.scheduler.threads import run_tasks
    >>> run_tasks([(pow, (2, n)) for n in range(5)], n_jobs=2)
    [1, 2, 4, 8, 16]
    """
    tasks = [task if isinstance(task, tuple) else (task, ()) for task in tasks]
    n_jobs = min(effective_n_jobs(n_jobs), len(tasks))
    if n_jobs <= 1:
        return [function(*args) for function, args in tasks]
    waiting = deque(enumerate(tasks))
    results = [None] * len(tasks)
    failures = {}

    def work():
        while True:
            try:
                i, (function, args) = waiting.popleft()
            except IndexError:
                return
            try:
                results[i] = function(*args)
            except BaseException as error:  # raised in the caller, below
                failures[i] = error
                waiting.clear()

    pool = _get_pool()
    helpers: list[Future] = []
    try:
        while len(helpers) < n_jobs - 1:
            helpers.append(pool.submit(work))
        work()
    finally:
        waiting.clear()  # for when a signal handler raised between two tasks
        wait([helper for helper in helpers if not helper.cancel()])
    if failures:
        raise failures[min(failures)]
    return results


def _get_pool():
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(16, os.cpu_count() or 1), thread_name_prefix="stradask")
        return _pool


def _forget_pool():
    """In a forked child, forget the pool, whose threads are gone, and its lock, which may be held."""
    global _pool, _lock
    _pool = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


@contextmanager
def single_threaded_blas():
    """Limit the linear algebra libraries of this process to one thread while any such block runs.

    Their own threads would compete with those of `run_tasks`, and their number would change the last bits of
    products. Blocks may overlap in several threads: the last one to end lifts the limit.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.threads import single_threaded_blas
    >>> with single_threaded_blas():
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """
    global _blas_users, _blas_limit
    with _lock:
        if not _blas_users:
            _blas_limit = [(library, library.num_threads) for library in _blas_libraries()]
            _set_threads((library, 1) for library, before in _blas_limit if before != 1)
        _blas_users += 1
    try:
        yield
    finally:
        with _lock:
            _blas_users -= 1
            if not _blas_users:
                _set_threads((library, before) for library, before in _blas_limit if before != 1)


@functools.cache
def _blas_libraries():
    """Find the BLAS libraries of this process, which takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_threads(numbers):
    for library, number in numbers:
        library.set_num_threads(number)


def own_threads():
    """Return the threads of the Dask worker in whose task this runs; None outside of tasks."""
    if "distributed" not in sys.modules:
        return None
    import distributed

    try:
        return distributed.get_worker().state.nthreads
    except ValueError:
        return None


def warn_in_task(engine, n_threads, *, stacklevel):
    """Warn that a fit inside a Dask task uses this one worker only."""
    warnings.warn(
        f"engine={shortened(engine)} inside a Dask task: the fit runs on this one worker alone, on "
        f"{n_threads} of its "
        "threads, whatever other workers there are; call it outside of tasks to use them all. engine='local' "
        "does the same without this warning",
        stacklevel=stacklevel + 1,
    )


def computed_here(*lazy):
    """Compute Dask collections on threads of this process; returns a tuple.

    The scheduler is given as a function: for its name Dask 2024 warns if there is a client.
    """
    import dask.threaded

    return dask.compute(*lazy, scheduler=dask.threaded.get)
