"""Every family of models while workers leave, join, pause and restart, others work, and a client is cut off.

One cluster for all: each test first brings it back to two workers that run.
"""

import contextlib
import errno
import logging
import os
import signal
import time
import warnings

import numpy as np
import pytest
from scipy import sparse

import stradask as sd

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

N, D = 1200, 30
_RNG = np.random.default_rng(0)
COUNTS = sparse.csr_array(_RNG.poisson(0.4, (N, D)))
X = _RNG.standard_normal((N, D))
Y = X @ np.linspace(-1, 1, D) + _RNG.standard_normal(N)


def smooth(engine, callback=None):
    return sd.LogisticRegression(solver="lbfgs", tol=1e-12, engine=engine).fit(X, Y > 0, callback=callback)


def sparse_rows(engine, callback=None):
    return sd.Lasso(0.001, tol=1e-12, engine=engine).fit(X, Y, callback=callback)


def owned_columns(engine, callback=None):
    model = sd.GroupLasso(groups=3, alpha=0.001, tol=1e-10, engine=engine)
    return model.fit(X, Y, callback=callback)


def topics(engine, callback=None, **more):
    options = {"max_iter": 12, "n_groups": 4, "sampler": "gibbs", "random_state": 0} | more
    return sd.LatentDirichletAllocation(4, engine=engine, **options).fit(COUNTS, callback=callback)


def ratings(engine, callback=None, **more):
    options = {"solver": "sgd", "max_iter": 12, "tol": 0.0, "random_state": 0} | more
    model = sd.MatrixFactorization(4, engine=engine, **options)
    return model.fit(COUNTS.astype(float), callback=callback)


def alternating(engine, callback=None, **more):
    return ratings(engine, callback, solver="als", **more)


def draws(engine, callback=None, **more):
    options = {"n_samples": 300, "n_warmup": 300, "n_chains": 2, "n_shards": 2, "random_state": 0} | more
    model = sd.BayesianLogisticRegression(engine=engine, **options)
    return model.fit(X[:, :4], Y > 0, callback=callback)


FITS = {
    "smooth": (smooth, "coef_", 1e-10),  # sums over other portions differ in the last bits
    "sparse": (sparse_rows, "coef_", 1e-10),
    "owned columns": (owned_columns, "coef_", 1e-4),  # within the tolerance where a worker is lost
    "topics": (topics, "components_", 0.0),
    "ratings": (ratings, "item_factors_", 0.0),
    "ratings, als": (alternating, "item_factors_", 0.0),
    "mcmc": (draws, "coef_", 0.0),
}


def wait_until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pair():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield cluster, client


@pytest.fixture
def two(pair):
    """A cluster of two workers that run, and its client."""
    cluster, client = pair
    if len(addresses(client)) != 2:
        cluster.scale(0)  # it takes retired workers for its own
        wait_until(lambda: not addresses(client))
        cluster.scale(2)
    wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2)
    return cluster, client


def addresses(client):
    return list(client.scheduler_info(n_workers=-1)["workers"])


def retire(cluster, client):
    client.retire_workers(addresses(client)[:1])


def restart(cluster, client):
    client.restart(timeout=60)


def join(cluster, client):
    cluster.scale(3)
    wait_until(lambda: len(addresses(client)) == 3)


def cut_off(cluster, client):
    old = client.scheduler_comm
    client.loop.add_callback(old.comm.abort)
    wait_until(lambda: client.status == "running" and client.scheduler_comm not in (old, None))


def pause(cluster, client):
    def change(dask_worker):
        dask_worker.memory_manager.memory_pause_fraction = False  # or it would be undone
        dask_worker.status = distributed.core.Status.paused

    client.run(change, workers=addresses(client)[:1])


def adapt(cluster, client):
    cluster.adapt(minimum=1, maximum=3, interval="100ms", wait_count=1)
    time.sleep(0.5)


def share(cluster, client):
    def work(k):
        time.sleep(0.02)
        return k * k

    share.futures = client.map(work, range(60), pure=False)


DISTURBANCES = {act.__name__: act for act in (retire, restart, join, cut_off, pause, adapt, share)}


def alike(model, expected, name):
    _, attribute, tolerance = FITS[name]
    found = getattr(model, attribute)
    np.testing.assert_allclose(found, getattr(expected, attribute), rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("how", DISTURBANCES)
@pytest.mark.parametrize("name", FITS)
def test_a_fit_ends_with_its_model_whatever_happens_around_it(two, name, how):
    cluster, client = two
    fit = FITS[name][0]
    done = []

    def disturb(info):
        if not done:
            done.append(how)
            DISTURBANCES[how](cluster, client)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        expected = fit("dask")
        try:
            found = fit("dask", disturb)
        finally:
            if how == "adapt":
                cluster._adaptive.stop()
            if how == "pause":
                client.restart(timeout=60)
    assert done == [how]
    alike(found, expected, name)
    if how == "share":
        assert client.gather(share.futures) == [k * k for k in range(60)]


@pytest.mark.parametrize("name", FITS)
def test_ctrl_c_leaves_the_cluster_to_the_next_fit(two, name):
    fit = FITS[name][0]
    pressed = []

    def press(info):
        if not pressed:
            pressed.append(info)
            os.kill(os.getpid(), signal.SIGINT)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model so far
        expected = fit("dask")
        with contextlib.suppress(KeyboardInterrupt):  # or the model so far
            fit("dask", press)
        assert pressed
        alike(fit("dask"), expected, name)


@pytest.mark.parametrize("name", FITS)
def test_a_scheduler_that_ends_when_idle_does_not_end_under_a_fit(name):
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        dask.config.set(
            {
                "distributed.scheduler.idle-timeout": "1s",
                "distributed.comm.timeouts.connect": "2s",  # or closing the cluster takes 30 s
            }
        ),
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        slept = []

        def think(info):
            if len(slept) < 3:  # draws are plain tasks, and the cluster is idle in between
                slept.append(time.sleep(0.8 if name != "mcmc" else 0.1))

        FITS[name][0](cluster.scheduler_address, think)
        assert slept
        assert cluster.scheduler.status.name == "running"
        wait_until(lambda: cluster.scheduler.status.name == "closed")


@pytest.mark.parametrize("name", ["topics", "ratings", "ratings, als", "mcmc"])
def test_a_full_disk_ends_a_fit_on_a_cluster_and_the_next_one_goes_on(two, name, tmp_path, monkeypatch):
    """Of the families that write checkpoints."""
    from stradask.scheduler.stores import store

    client, fit, kept = two[1], FITS[name][0], {"checkpoint": tmp_path / "state"}
    write, written = store.write_npz, []

    def full(*args, **options):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))
        written.append(args[0])
        return write(*args, **options)

    def fill(dask_worker, full):
        """Let the second chunk of a chain, which a worker writes, fail or be written again."""
        import errno
        import os

        from stradask.algorithms.bayes.shards import chunks
        from stradask.scheduler.stores import store

        def failing(path, *args, **options):
            if "chunk-0" not in str(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            store.write_npz(path, *args, **options)

        chunks.write_npz = failing if full else store.write_npz

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = fit("dask")
        with monkeypatch.context() as patched:
            patched.setattr(store, "write_npz", full)
            client.run(fill, full=True)
            with pytest.raises(OSError, match="No space left"):
                fit("dask", **kept)
        client.run(fill, full=False)
        assert written or name == "mcmc"
        alike(fit("dask", **kept), expected, name)
