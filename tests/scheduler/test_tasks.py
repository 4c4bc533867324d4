"""Independent tasks: equal results on threads and on a cluster, inputs made when needed, losses."""

import asyncio
import threading
import time
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest

from stradask.errors import DataError, StradaskError, WorkerLost
from stradask.scheduler.tasks import Chain, Load
from stradask.scheduler.workers import ClusterWorkers, LocalWorkers, open_workers


def add(data, last, number):
    return data + (last or 0) + number


CHAINS = [Chain(1, [(1,), (2,)]), Chain(0, [(3,)]), Chain(1, [(4,)], 100), Chain(0, [])]
EXPECTED = [[21, 43], [13], [124], []]
INPUTS = [10, Load(sum, ([5, 15],))]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_chains_on_threads(n_jobs):
    numbers = []
    with open_workers("local", n_jobs).tasks(INPUTS) as tasks:
        assert tasks.chains(add, CHAINS, numbers.append) == EXPECTED
        assert tasks.map(pow, [(0, 2), (1, 1)]) == [100, 20]
    assert sorted(numbers) == [0, 0, 1, 2]


@pytest.mark.parametrize(("n_held", "expected"), [(None, "abab"), (1, "aabb")])
def test_order_of_chains(n_held, expected):
    """A chain of each input begins first; or all of an input while it is held."""
    order, loaded = [], []
    inputs = [Load(lambda name: loaded.append(name) or name, (name,)) for name in "ab"]
    with LocalWorkers(1).tasks(inputs, n_held=n_held) as tasks:
        tasks.chains(lambda name, last: order.append(name), [Chain(k, [()]) for k in (0, 0, 1, 1)])
    assert "".join(order) == expected
    assert loaded == ["a", "b"]


def test_what_was_used_longest_ago_is_loaded_again():
    loaded = []
    inputs = [Load(lambda name: loaded.append(name) or name, (name,)) for name in "abc"]
    with LocalWorkers(1).tasks(inputs, n_held=2) as tasks:
        for number in (0, 1, 0, 2, 0, 1):
            tasks.map(str, [(number,)])
    assert loaded == ["a", "b", "c", "b"]


def test_the_first_failure_ends_the_work():
    with LocalWorkers(2).tasks([0]) as tasks, pytest.raises(ZeroDivisionError):
        tasks.map(lambda zero, number: number // zero, [(0, 1), (0, 2)])


class Workers:
    """Stands for `TaskWorkers`; an attempt is what a test says."""

    n_orphaned = 0

    client = SimpleNamespace(status="running")

    def open(self):
        pass

    def scatter(self, value):
        return value

    def submit(self, function, *args, only=()):
        return function(*args)

    def cancel(self, futures):
        list(futures)

    def keep_busy(self):
        pass

    def close(self):
        pass


@pytest.fixture
def attempted(monkeypatch):
    """Tasks on workers of whose attempts each ends with one more result and a loss."""
    pytest.importorskip("distributed")
    from stradask.scheduler import workers as facade
    from stradask.scheduler.cluster_tasks import ClusterTasks

    runs, workers = [], Workers()

    def attempt(self, function, chains, order, results, done):
        runs.append([number for number in order if not results[number]])
        for number in runs[-1][: attempt.results]:
            results[number][0] = chains[number].tasks[0][0]
            done(number)
        if len(runs[-1]) > attempt.results:
            workers.n_orphaned += attempt.orphans
            error = CancelledError()
            error.reason = attempt.reason
            raise error

    attempt.results, attempt.orphans, attempt.reason = 1, 1, "unknown"
    monkeypatch.setattr(ClusterTasks, "_attempt", attempt)
    monkeypatch.setattr(facade.ClusterWorkers, "task_workers", lambda self: workers)
    return attempt, runs


@pytest.mark.parametrize("source", ["sent", Load(str)])
def test_only_what_is_unfinished_runs_again(attempted, source):
    """Results that have arrived before a loss are kept, and reported once."""
    _, runs = attempted
    numbers = []
    with ClusterWorkers("tcp://x:1").tasks([source]) as tasks:
        assert tasks.map(None, [(0, name) for name in "abc"], numbers.append) == ["a", "b", "c"]
    assert (runs, numbers) == ([[0, 1, 2], [1, 2], [2]], [0, 1, 2])


@pytest.mark.parametrize(
    ("source", "words"),
    [("sent", "X was lost 5 times"), (Load(str), "a fold's workers died again and again")],
)
def test_losses_are_counted_in_the_same_way(attempted, source, words):
    attempt, runs = attempted
    attempt.results = 0
    with (
        ClusterWorkers("tcp://x:1").tasks([source], name="X") as tasks,
        pytest.raises(WorkerLost, match=words),
    ):
        tasks.map(None, [(0, 1)], unit="fold")
    assert len(runs) == 5


def test_tasks_that_others_cancelled_are_not_begun_again(attempted):
    attempt, runs = attempted
    attempt.results = attempt.orphans = 0
    with (
        ClusterWorkers("tcp://x:1").tasks([Load(str)]) as tasks,
        pytest.raises(StradaskError, match="took the fit's tasks away"),
    ):
        tasks.map(None, [(0, 1)])
    assert len(runs) == 1


@pytest.mark.parametrize("reason", ["scheduler-restart", "scheduler-connection-lost", "lost dependencies"])
def test_tasks_that_dask_cancelled_are_begun_again(attempted, reason):
    """A client restarts the workers, or has connected again before its tasks are looked at."""
    attempt, runs = attempted
    attempt.orphans, attempt.reason = 0, reason
    with ClusterWorkers("tcp://x:1").tasks([Load(str)]) as tasks:
        assert tasks.map(None, [(0, name) for name in "abc"]) == ["a", "b", "c"]
    assert len(runs) == 3


def test_a_cluster_gives_the_same(start_cluster):
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")

    def add(data, last, number):
        return data + (last or 0) + number

    def total(array):
        assert type(array).__name__ == "ndarray"
        return int(array.sum())

    numbers = []
    with start_cluster(2, client=True, processes=False) as (cluster, client):
        for engine in ("dask", cluster.scheduler_address):
            inputs = [10, Load(total, (da.ones(20, chunks=5),))]
            with open_workers(engine).tasks(inputs) as tasks:
                assert tasks.chains(add, CHAINS, numbers.append) == EXPECTED
        assert sorted(numbers) == [0, 0, 0, 0, 1, 1, 2, 2]
        lock = threading.Lock()
        with (
            open_workers("dask").tasks([0]) as tasks,
            pytest.raises(DataError, match="step cannot be shipped"),
        ):
            tasks.check_ships("step", lambda: lock)
        assert client.status == "running"
        assert distributed.default_client() is client


def test_an_idle_scheduler_does_not_stop_between_tasks(start_cluster):
    pytest.importorskip("dask")
    with start_cluster(1, processes=False) as cluster:
        scheduler = cluster.scheduler

        async def look():
            for _ in range(3):  # idle at all, for so long, and the end
                scheduler.check_idle()
                await asyncio.sleep(0)

        def wait(number):
            scheduler.idle_timeout = 1e-9
            cluster.sync(look)
            assert scheduler.status.name == "running"
            assert [key.startswith("stradask-keep-alive-") for key in running(scheduler)] == [True]

        with open_workers(cluster.scheduler_address).tasks([5]) as tasks:
            assert tasks.map(pow, [(0, 2)], wait) == [25]
            (worker,) = cluster.workers.values()
            assert worker.state.executing_count == 0  # it takes no thread
            waiting = worker.plugins["stradask-sessions"].waiting
            assert len(waiting) == 1
        end = time.monotonic() + 60
        while scheduler.status.name == "running":  # the keep-alive ended with the tasks
            assert time.monotonic() < end
            cluster.sync(look)
        assert not waiting


def running(scheduler):
    """Keys of the tasks that workers have."""
    return [task.key for worker in scheduler.workers.values() for task in worker.processing]


@pytest.mark.cluster
@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_named(start_cluster):
    def die(data):
        import os

        os._exit(1)

    words = r"a fold's workers died again and again.*take larger workers"
    with (
        start_cluster(2, client=True),
        open_workers("dask").tasks([Load(str)]) as tasks,
        pytest.raises(WorkerLost, match=words),
    ):
        tasks.map(die, [(0,)], unit="fold")


@pytest.mark.cluster
def test_data_go_to_the_workers_that_are_left(start_cluster):
    """Of a worker that dies, the scheduler knows before the tasks do: it must not get data by then."""
    gone = "tcp://127.0.0.1:9"
    with start_cluster(1, client=True):
        workers = open_workers("dask").task_workers()
        workers.open()
        try:
            workers.accepted.add(gone)
            future = workers.scatter([1, 2])
            assert workers.gather([future]) == [[1, 2]]
            assert gone not in workers.where()["workers"]
        finally:
            workers.close()
