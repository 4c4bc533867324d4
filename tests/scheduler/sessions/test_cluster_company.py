"""Sessions on a cluster that others use too, and shards whose data Dask holds."""

import asyncio
import logging
import threading
import time

import numpy as np
import pytest

from stradask.errors import DataError, StradaskError
from stradask.scheduler import Program, StaticSchedule, run
from stradask.scheduler.sessions import placement
from stradask.scheduler.sessions.placement import ShardData, future_of
from stradask.scheduler.workers import open_session


@pytest.fixture
def distant(processes):
    """A session on two processes."""
    session = open_session(processes.scheduler_address)
    yield session
    session.close()


# Together with other users of the cluster ---------------------------------------------------------------


def worker_sessions(client):
    def count(dask_worker):
        plugin = dask_worker.plugins.get("stradask-sessions")
        return len(plugin.worker_sessions) if plugin else 0

    return sum(client.run(count).values())


@pytest.mark.cluster
def test_a_fit_leaves_nothing_behind_and_the_client_open(processes, fit):
    from distributed import Client

    with Client(processes) as client:
        found = []
        got, _ = fit(
            "dask", callback=lambda info: found.append((worker_sessions(client), len(client.who_has())))
        )
        assert got == fit("local")[0]
        assert [n for n, _ in found] == [2] * 6
        assert worker_sessions(client) == 0
        assert client.submit(sum, [1, 2]).result(60) == 3
        tasks = client.run_on_scheduler(
            lambda dask_scheduler: [k for k in dask_scheduler.tasks if "stradask" in k]
        )
        assert tasks == []


def test_a_fit_leaves_no_threads_behind(one_process, fit):
    fit(one_process.scheduler_address)
    for _ in range(1200):
        left = [t.name for t in threading.enumerate() if t.name.startswith("stradask-session")]
        if not left:
            return
        time.sleep(0.05)
    raise AssertionError(left)


@pytest.mark.cluster
def test_the_scheduler_sees_that_workers_are_busy(distant, make_rotation):
    from distributed import Client

    distant.open(make_rotation())
    with Client(distant.workers.client.scheduler.address, set_as_default=False) as client:

        def processing(dask_scheduler):
            return [sorted(str(ts.key) for ts in ws.processing) for ws in dask_scheduler.workers.values()]

        shown = client.run_on_scheduler(processing)
        assert [len(keys) for keys in shown] == [1, 1]
        assert all(keys[0].startswith("stradask-keep-alive") for keys in shown)
        # It takes no slot: other tasks run on these workers of one thread.
        assert client.gather(client.map(abs, range(-4, 0), pure=False)) == [4, 3, 2, 1]
        time.sleep(0.2)  # until they are forgotten, which must not end the session
        assert len(distant.measure([])) == 4


@pytest.mark.cluster
def test_fits_at_the_same_time_do_not_meet(processes, fit):
    want = {n: fit("local", n_shards=n)[0] for n in (2, 3, 4)}
    got = {}

    def work(n):
        got[n] = fit(processes.scheduler_address, n_shards=n)[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert got == want


@pytest.mark.cluster
def test_a_fit_inside_a_running_event_loop(processes, fit):
    async def notebook():
        return fit(processes.scheduler_address)[0]

    assert asyncio.run(notebook()) == fit("local")[0]


@pytest.mark.cluster
def test_a_grid_search_on_dask_fits_on_the_workers_own_threads(processes):
    import joblib
    from distributed import Client
    from sklearn.base import BaseEstimator
    from sklearn.model_selection import GridSearchCV

    class Shifted(BaseEstimator):
        """Learns the mean of y on any engine, and keeps the warnings that it was given."""

        def __init__(self, shift=0.0, engine="local"):
            self.shift, self.engine = shift, engine

        def fit(self, X, y):
            import warnings

            import numpy as np

            from stradask.scheduler import Program

            class Mean(Program):
                shards = tuple(np.array_split(y, 3))

                def update(self, state, task):
                    return state.sum()

                def aggregate(self, tasks, partials):
                    self.mean = sum(partials) / len(y)

            program = Mean()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run(program, StaticSchedule(1, n_shards=3), max_rounds=2, engine=self.engine)
            self.mean_, self.warnings_ = program.mean, [str(w.message) for w in caught]
            return self

        def score(self, X, y):
            told = len(self.warnings_) == 1 and "inside a Dask task" in self.warnings_[0]
            return -abs(self.mean_ + self.shift - np.mean(y)) if told else np.nan

    y = np.repeat([1.0, 2.0], 10)
    search = GridSearchCV(Shifted(engine="dask"), {"shift": [0.0, 1.0]}, cv=2, refit=False)
    with Client(processes), joblib.parallel_config("dask"):
        search.fit(np.zeros((20, 1)), y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], [-1.0, -1.0])


# Data that Dask holds -----------------------------------------------------------------------------------


@pytest.fixture
def client(processes):
    from distributed import Client

    with Client(processes) as client:
        yield client


@pytest.fixture(scope="session")
def make_summing():
    def make(shards):
        class Summing(Program):
            def __init__(self):
                self.shards = shards

            def load(self, data):
                return data

            def update(self, state, task):
                return state[0].sum() * state[1]["factor"]

        return Summing()

    return make


@pytest.mark.cluster
@pytest.mark.parametrize("by_address", [False, True])
@pytest.mark.parametrize("persisted", [False, True])
def test_shards_of_dask_are_used_where_they_lie(client, make_summing, by_address, persisted):
    import dask.array as da

    first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
    far = [
        client.submit(np.full, 1000, 2.0, workers=[second]),
        client.submit(np.full, 1000, 3.0, workers=[first]),
    ]
    blocks = da.ones(30, chunks=10)
    if persisted:
        blocks = blocks.persist()
    lazy = [(blocks.blocks[i], {"factor": i}) for i in range(3)]
    session = open_session(client.scheduler.address if by_address else "dask")
    session.open(make_summing([(future, {"factor": 1}) for future in far] + lazy))
    assert session.shard_at[:2] == [second, first]
    assert session.run(0, 0, [[(s, 0) for s in range(5)]], []) == [2000, 3000, 0, 10, 20]
    session.close()
    assert client.submit(np.sum, far[0]).result(60) == 2000  # still the caller's


@pytest.mark.cluster
def test_blocks_that_dask_holds_are_lent_without_a_task(client, make_summing, monkeypatch):
    import dask
    import dask.array as da

    first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
    future = client.submit(np.full, 1000, 2.0, workers=[first])
    held = client.persist(da.ones(30, chunks=10), workers=[second])
    value = client.persist(dask.delayed(np.full)(5, 3.0), workers=[second])
    joined = da.concatenate([da.from_delayed(future, (1000,), float), held])
    entries = [future, joined.blocks[0], joined.rechunk(joined.chunks).blocks[0], held.blocks[1]]
    entries += [joined.blocks[2], value]
    assert all(future_of(entry) is not None for entry in entries)
    for lazy in (da.ones(3), held + 1, joined, held.rechunk(15).blocks[0], dask.delayed(sum)([1])):
        assert future_of(lazy) is None

    def bring(*arguments):
        raise AssertionError("a task was made")

    monkeypatch.setattr(ShardData, "deliver_values", bring)
    session = open_session("dask")
    session.open(make_summing([(entry, {"factor": 1}) for entry in entries]))
    assert session.shard_at == [first] * 3 + [second] * 3
    assert session.run(0, 0, [[(s, 0) for s in range(6)]], []) == [2000, 2000, 2000, 10, 10, 15]
    session.close()


def test_data_that_went_with_a_worker_are_waited_for(make_summing, monkeypatch):
    """While Dask makes them again; what nobody can make again is named."""
    import distributed

    def make():
        distributed.Event("gate").wait(60)
        return np.full(1000, 2.0)

    settled = placement._settled

    async def open_the_gate(futures):
        opening = threading.Timer(0.05, gate.set)
        opening.start()
        await settled(futures)
        await asyncio.to_thread(opening.join)

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        gate = distributed.Event("gate")
        gate.set()
        future = client.submit(make, pure=False)
        distributed.wait(future)
        gate.clear()
        [holder] = client.who_has(future)[future.key]
        cluster.sync(next(w for w in cluster.workers.values() if w.address == holder).close)
        while future.status == "finished":
            time.sleep(0.001)
        session = open_session("dask")
        with monkeypatch.context() as patch:
            patch.setattr(placement, "_settled", open_the_gate)
            session.open(make_summing([(future, {"factor": 1})]))
        assert session.run(0, 0, [[(0, 0)]], []) == [2000]
        session.close()
        client.cancel(future)
        with pytest.raises(StradaskError, match=r"Dask lost the data .* cannot compute them again"):
            session.open(make_summing([(future, {"factor": 1})]))
        session.close()


@pytest.mark.cluster
def test_data_that_dask_cannot_make_are_an_error_with_the_cause(client, make_summing):
    import dask

    @dask.delayed
    def unreadable():
        raise OSError("the disk is gone")

    session = open_session("dask")
    with pytest.raises(OSError, match="the disk is gone"):
        session.open(make_summing([(unreadable(), {"factor": 1})]))
    session.close()


@pytest.mark.cluster
def test_shards_on_another_cluster_are_refused(client, one_process, make_summing):
    session = open_session(one_process.scheduler_address)
    with pytest.raises(DataError, match=r"the shards lie on the cluster of tcp.*engine is inproc"):
        session.open(make_summing([(client.submit(np.ones, 3), {"factor": 1})]))
    session.close()
