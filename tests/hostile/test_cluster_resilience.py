"""Fits on a cluster whose workers pause, die or have other work, and whose disk is full."""

import asyncio
import errno
import os
import signal
import threading
import time

import numpy as np
import pytest

import stradask as sd
from stradask.errors import StradaskError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RATINGS = sd.datasets.make_ratings(150, 80, 3, density=0.3, random_state=0)[0]
OPTIONS = {"n_components": 4, "solver": "als", "tol": 0.0, "random_state": 0}


def factors(**options):
    return sd.MatrixFactorization(**(OPTIONS | {"max_iter": 12} | options))


def equal(found, expected):
    np.testing.assert_array_equal(found.user_factors_, expected.user_factors_)
    np.testing.assert_array_equal(found.history_["objective"], expected.history_["objective"])


@pytest.fixture
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


def set_status(client, address, name):
    """Pause a worker, as Dask does when its memory is nearly full, or let it go on."""

    def change(dask_worker):
        dask_worker.monitor.update()
        dask_worker.memory_manager.memory_pause_fraction = False  # or it would be undone
        dask_worker.status = distributed.core.Status[name]

    client.run(change, workers=[address])
    end = time.monotonic() + 30
    while client.scheduler_info(n_workers=-1)["workers"][address]["status"] != name:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_paused_worker_takes_no_part_and_a_fit_ends_without_it(client):
    expected = factors().fit(RATINGS)
    paused, other = client.scheduler_info(n_workers=-1)["workers"]
    set_status(client, paused, "paused")
    busy = []

    def look(info):
        if info.round == 2:
            sessions = client.run(lambda dask_worker: len(_sessions(dask_worker)))
            busy.append({address: n > 0 for address, n in sessions.items()})

    def _sessions(dask_worker):
        plugin = dask_worker.plugins.get("stradask-sessions")
        return plugin.worker_sessions if plugin else ()

    equal(factors(engine="dask").fit(RATINGS, callback=look), expected)
    assert busy == [{paused: False, other: True}]
    set_status(client, other, "paused")
    with (
        dask.config.set({"stradask.timeout": "200ms"}),
        pytest.raises(StradaskError, match=r"has answered for 0.2 s .*: 2 of them are paused, as tcp://"),
    ):
        factors(engine="dask").fit(RATINGS)
    set_status(client, other, "running")
    set_status(client, paused, "running")
    equal(factors(engine="dask").fit(RATINGS), expected)


def test_a_worker_paused_in_mid_fit_ends_its_rounds(client):
    address = next(iter(client.scheduler_info(n_workers=-1)["workers"]))

    def pause(info):
        if info.round == 2:
            set_status(client, address, "paused")

    equal(factors(engine="dask").fit(RATINGS, callback=pause), factors().fit(RATINGS))


def test_a_full_disk_ends_a_fit_that_goes_on_from_the_state_before(client, tmp_path, monkeypatch):
    from stradask.scheduler.stores import store

    write, written = store.write_npz, []

    def full(*args, **options):
        if len(written) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))
        written.append(args[0])
        return write(*args, **options)

    monkeypatch.setattr(store, "write_npz", full)
    model = factors(engine="dask", checkpoint=tmp_path / "state", max_iter=20)
    with pytest.raises(OSError, match="No space left") as caught:
        model.fit(RATINGS)
    assert caught.value.errno == errno.ENOSPC
    assert written
    assert not hasattr(model, "user_factors_")
    monkeypatch.undo()
    rounds = []
    model.fit(RATINGS, callback=lambda info: rounds.append(info.round))
    assert 1 < rounds[0] <= 11  # it began from the state that was whole
    np.testing.assert_array_equal(model.user_factors_, factors(max_iter=20).fit(RATINGS).user_factors_)


def test_tasks_of_others_run_beside_a_fit(client):
    def work(k):
        time.sleep(0.02)
        return k * k

    futures = client.map(work, range(100), pure=False)
    equal(factors(engine="dask", max_iter=30).fit(RATINGS), factors(max_iter=30).fit(RATINGS))
    assert client.gather(futures) == [k * k for k in range(100)]


def test_a_client_that_restarts_the_workers_in_mid_fit(client):
    before = set(client.run(os.getpid).values())

    def restart(info):
        if info.round == 3:
            client.restart(timeout=60)

    equal(factors(engine="dask").fit(RATINGS, callback=restart), factors().fit(RATINGS))
    assert not before & set(client.run(os.getpid).values())


def test_a_client_that_connects_again_in_mid_fit_ends_with_the_same_bits(client):
    cut = []

    def break_off(info):
        if info.round == 3:
            cut.append(client.scheduler_comm)
            client.loop.add_callback(client.scheduler_comm.comm.abort)

    equal(
        factors(engine="dask", max_iter=30).fit(RATINGS, callback=break_off),
        factors(max_iter=30).fit(RATINGS),
    )
    end = time.monotonic() + 60
    while client.status != "running" and time.monotonic() < end:
        time.sleep(0.05)
    assert client.scheduler_comm is not cut[0]
    equal(factors(engine="dask").fit(RATINGS), factors().fit(RATINGS))


def test_the_worker_with_the_loop_dies_and_dask_begins_the_fit_anew(cluster, client):
    expected = factors(max_iter=1000).fit(RATINGS)

    def kill():
        while not client.get_events("stradask-fit-anew"):
            time.sleep(0.05)
        running = [address for address, keys in client.processing().items() if any("anew" in k for k in keys)]
        pids = client.run(os.getpid, workers=running)
        os.kill(pids[running[0]], signal.SIGKILL)
        killed.append(running[0])

    killed: list = []
    thread = threading.Thread(target=kill)
    thread.start()
    with dask.config.set({"stradask.coordinator": "cluster", "stradask.coordinator-name": "anew"}):
        found = factors(engine="dask", max_iter=1000).fit(RATINGS)
    thread.join(60)
    assert killed
    equal(found, expected)


def test_files_are_read_again_where_a_worker_is_lost(cluster, client, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    for k in range(4):
        frame = pd.DataFrame({"city": rng.choice(["Rome", "Oslo"], 500), "age": rng.normal(size=500)})
        frame["left"] = frame.age + rng.normal(size=500) > 0
        frame.to_parquet(tmp_path / f"{k}.parquet", row_group_size=100)
    expected = sd.LogisticRegression(solver="lbfgs", tol=1e-12).fit(tmp_path, y="left")
    victims = list(client.run(os.getpid).values())

    def kill(info):
        if info.round == 2:
            os.kill(victims[0], signal.SIGKILL)

    found = sd.LogisticRegression(solver="lbfgs", tol=1e-12).fit(tmp_path, y="left", callback=kill)
    assert victims[0] not in client.run(os.getpid).values()
    np.testing.assert_array_equal(found.coef_, expected.coef_)


@pytest.mark.parametrize("phase", ["_assemble", "_put", "_run", "_measure_blocks"])
def test_ctrl_c_in_each_phase_ends_a_fit_and_leaves_the_cluster_for_the_next(client, phase, monkeypatch):
    """While workers get their states, load, sweep, and while the model is gathered."""
    from stradask.errors import InterruptedFitWarning
    from stradask.scheduler.sessions.cluster import ClusterSession

    corpus = sd.datasets.make_lda_corpus(100, n_features=60, n_components=3, random_state=0)[0]
    method, calls = getattr(ClusterSession, phase), []

    async def pressed(self, *args, **options):
        calls.append(phase)
        if len(calls) == (3 if phase == "_run" else 1):
            os.kill(os.getpid(), signal.SIGINT)  # the main thread waits for this coroutine
            await asyncio.sleep(0.3)
        return await method(self, *args, **options)

    def fitted(engine="dask"):
        options = {"n_groups": 4, "max_iter": 12, "random_state": 0, "sampler": "gibbs"}
        return sd.LatentDirichletAllocation(3, engine=engine, **options).fit(corpus)

    with monkeypatch.context() as patched:
        patched.setattr(ClusterSession, phase, pressed)
        if phase == "_run":  # the model of the rounds so far
            with pytest.warns(InterruptedFitWarning, match="interrupted"):
                assert fitted().n_iter_ < 12
        else:
            with pytest.raises(KeyboardInterrupt):
                fitted()
    assert calls
    np.testing.assert_array_equal(fitted().components_, fitted("local").components_)
