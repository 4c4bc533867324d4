"""The one entry to parallel work: threads of this process, or the workers of a Dask cluster."""

import contextlib
import contextvars
import inspect
import math
import sys

from ..errors import DataError, shortened
from .sessions.local import LocalSession
from .tasks import LocalTasks
from .threads import effective_n_jobs, own_threads, warn_in_task

_SMALL_LIMIT = 500e6  # bytes of a worker that may have ended because imports and compiled loops take more

# Connections of the present fit, each a `sessions.workers.Workers`.
_connections: contextvars.ContextVar[list | None] = contextvars.ContextVar("connections", default=None)


@contextlib.contextmanager
def connected_once():
    """Have all that connects to a scheduler within the block share one connection.

    It is made by the first that connects, and ends with the block. A block in another one shares its.
    """
    if _connections.get() is not None:
        yield
        return
    connections: list = []
    token = _connections.set(connections)
    try:
        yield
    finally:
        _connections.reset(token)
        for workers in connections:
            workers.close()


def workers_of(scheduler):
    """Return the `Workers` of an address or client that the present fit shares; outside of one, new ones."""
    from .sessions.workers import Workers

    connections = _connections.get()
    if connections is None:
        return Workers(scheduler)
    for workers in connections:
        if workers.scheduler == scheduler and not workers.is_lost():
            return workers
    connections.append(Workers(scheduler, shared=True))
    return connections[-1]


def is_client(engine):
    """Whether this is a Dask client; nothing is imported."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(engine, distributed.Client)


def address_of(engine):
    """Return a client's address, "dask" for one that was closed; any other engine as it is."""
    if not is_client(engine):
        return engine
    return "dask" if engine.scheduler is None else engine.scheduler.address


def check_engine(engine):
    """Refuse what is neither "local" nor "dask" nor an address nor an open client."""
    if is_client(engine):
        if engine.status in ("closing", "closed"):
            raise DataError("engine is a Dask client that was closed: make a new one")
    elif not isinstance(engine, str) or (engine not in ("local", "dask") and "://" not in engine):
        raise DataError(
            f"engine={shortened(engine)} is unknown: take 'local', 'dask', an address such as "
            "'tcp://host:8786', or a dask.distributed.Client"
        )


def open_workers(engine, n_jobs=None):
    """Return the workers that an estimator's parameter `engine` names; nothing is connected yet.

    Parameters
    ----------
    engine : str or distributed.Client
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; the address of a Dask
        scheduler; or a client. Inside a Dask task they are threads, with a warning.
    n_jobs : int or None, default=None
        Threads, on each worker where there are workers.

    Returns
    -------
    LocalWorkers or ClusterWorkers

    Examples
    --------
    >>> from stradask.scheduler.workers import open_workers
    >>> with open_workers("local", n_jobs=2).tasks([10, 20]) as tasks:
    ...     tasks.map(pow, [(0, 2), (1, 2), (1, 3)])
    [100, 400, 8000]
    """
    check_engine(engine)
    if engine == "local":
        return LocalWorkers(n_jobs)
    threads = own_threads()
    if threads is not None:
        n_jobs = threads if n_jobs is None else n_jobs
        warn_in_task(engine, effective_n_jobs(n_jobs), stacklevel=3)
        return LocalWorkers(n_jobs)
    return ClusterWorkers(current_client(engine), n_jobs)


def open_session(engine, n_jobs=None):
    """Return the session of an estimator's parameter `engine`, not opened; a session as it is."""
    return engine if hasattr(engine, "snapshot") else open_workers(engine, n_jobs).session()


def current_client(engine):
    """Return the current client for "dask"; a client or an address as it is."""
    if engine != "dask":
        return engine
    import distributed

    try:
        return distributed.default_client()
    except ValueError as error:
        raise DataError(
            "engine='dask' is the current Dask client, and there is none: make one with "
            "dask.distributed.Client(...) before the fit, or give the scheduler's address as engine"
        ) from error


class LocalWorkers:
    """Threads of this process.

    Every kind of parallel work has its method, here and in `ClusterWorkers`: `tasks` for independent work,
    `sum` for passes over portions of the data, `session` for scheduled programs, `table` for replicas that
    share parameters.
    """

    remote = False

    def __init__(self, n_jobs=None):
        self.n_jobs = n_jobs

    def n_threads(self):
        """Count the threads that work at once."""
        return effective_n_jobs(self.n_jobs)

    def size(self):
        """Count the threads that work at once, and the bytes that they may hold: no limit is known."""
        return self.n_threads(), math.inf

    def memory_a_thread(self, prepare):
        """Return the bytes that each thread may still take, or None: no limit is known."""
        return None

    def session(self):
        """Return a `LocalSession` or `ClusterSession`, not opened yet."""
        return LocalSession(self.n_jobs)

    def sum(self, program, *, ordered=False):
        """Load the portions of a `Summed` program; return what runs passes over them."""
        from .sums.passes import open_passes

        return open_passes(self.session(), program, ordered=ordered)

    def tasks(self, inputs, *, name="data", advice="larger workers", n_held=None):
        """Return a context manager that maps functions over inputs; see `stradask.scheduler.tasks.Tasks`."""
        return LocalTasks(self.n_jobs, inputs, n_held)

    def table(self):
        """Return what holds the shards of a parameter table and runs its replicas."""
        from .table.places import LocalTable

        return LocalTable()


class ClusterWorkers:
    """The workers of a Dask cluster; see `LocalWorkers`. `scheduler` is an address or the caller's client."""

    remote = True

    def __init__(self, scheduler, n_jobs=None):
        self.scheduler, self.n_jobs = scheduler, n_jobs

    def n_threads(self):
        """Count the threads of all workers; at least 1."""
        threads = effective_n_jobs(self.n_jobs) if (self.n_jobs or 0) > 0 else 0
        with self.client() as client:
            return max(sum(threads or of_worker for of_worker in client.nthreads().values()), 1)

    def size(self):
        """Count the threads of all workers, and the bytes that they may hold together; perhaps infinite."""
        return self.n_threads(), sum(worker.limit for worker in self.memory())

    def memory(self):
        """List of each worker a `WorkerMemory`, as the scheduler last heard of it."""
        return list(self._memory().values())

    def _memory(self):
        from .allocation import WorkerMemory

        with self.client() as client:
            asked = inspect.signature(client.scheduler_info).parameters
            info = client.scheduler_info(**({"n_workers": -1} if "n_workers" in asked else {}))
        return {
            address: WorkerMemory(
                worker["memory_limit"] or math.inf,
                worker.get("metrics", {}).get("memory", 0),
                worker["nthreads"] if self.n_jobs is None else effective_n_jobs(self.n_jobs),
                bool(worker.get("nanny")),
            )
            for address, worker in info["workers"].items()
        }

    @contextlib.contextmanager
    def client(self):
        """Give a client, which answers questions without the subscriptions and plugins of a session."""
        from .sessions.clients import scheduler_named

        workers = workers_of(self.scheduler)
        try:
            with scheduler_named(workers.task_client):
                yield workers.task_client
        finally:
            workers.leave()

    def memory_a_thread(self, prepare):
        """Return the bytes that a thread of the fullest worker may still take, or None without a limit.

        Workers call `prepare` first, which imports and compiles what stays in their memory.
        """
        from .allocation import free_memory

        found = self._asked(free_memory, prepare)
        return min((free for free in found if free is not None), default=None)

    def memory_after(self, prepare):
        """List of each worker a `WorkerMemory`, when it has called `prepare`."""
        from .allocation import worker_memory

        return [
            found._replace(n_threads=self.n_jobs or found.n_threads)
            for found in self._asked(worker_memory, prepare)
        ]

    def _asked(self, function, prepare):
        """Call a function on each worker that can be reached, outside of its tasks; list the answers."""
        with self.task_workers() as workers:
            names, memory = workers.where()["workers"], self._memory()
            answers = workers.client.run(function, prepare, workers=names, on_error="return")
        for name, answer in answers.items():
            limit = memory[name].limit
            if isinstance(answer, OSError) and limit < _SMALL_LIMIT:
                raise DataError(
                    f"the worker {name} ended while it imported and compiled what the fit needs: its memory "
                    f"limit of {limit / 1e6:,.0f} MB is too low for the programs alone, which take some 350 "
                    "MB: give workers more"
                ) from answer
        return [answer for answer in answers.values() if not isinstance(answer, Exception)]

    def session(self):
        """Return a `LocalSession` or `ClusterSession`, not opened yet."""
        from .sessions.cluster import ClusterSession

        return ClusterSession(workers_of(self.scheduler), self.n_jobs)

    def sum(self, program, *, ordered=False):
        """As `LocalWorkers.sum`; with `ordered` the sums have the same bits, whichever worker computes."""
        from .sums.passes import open_passes

        return open_passes(self.session(), program, ordered=ordered)

    def tasks(self, inputs, *, name="data", advice="larger workers", n_held=None):
        """As `LocalWorkers.tasks`."""
        from .cluster_tasks import ClusterTasks

        return ClusterTasks(self.task_workers(), self.n_jobs, inputs, name, advice)

    def task_workers(self):
        """Return what submits single Dask tasks to the workers of this version, not opened yet."""
        from .sessions.task_workers import TaskWorkers

        return TaskWorkers(workers_of(self.scheduler))

    def table(self):
        """As `LocalWorkers.table`."""
        from .table.cluster import ClusterTable

        return ClusterTable(workers_of(self.scheduler))
