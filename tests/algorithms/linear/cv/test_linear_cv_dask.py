"""Searches on a Dask cluster: folds as tasks, the bits of a local search."""

import contextlib
import logging
import os
import signal
import subprocess
import sys

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.errors import DataError, WorkerLost
from stradask.scheduler.cluster_tasks import ClusterTasks

pytestmark = pytest.mark.cluster
rng = np.random.default_rng(0)
X = rng.standard_normal((60, 90)) * (rng.random((60, 90)) < 0.5)
Y = X[:, :4] @ [2.0, -1, 1, 0.5] + rng.standard_normal(60)
OPTIONS = {"alphas": 6, "eps": 0.1, "cv": 3}


@pytest.fixture(scope="module")
def client():
    """Two processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def assert_same_bits(distant, local, names):
    for name in names:
        np.testing.assert_array_equal(getattr(distant, name), getattr(local, name))


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_folds_are_tasks(client, form):
    local = sd.ElasticNetCV(l1_ratio=[0.5, 1.0], **OPTIONS).fit(form(X), Y)
    for engine in ("dask", client.scheduler.address):
        distant = sd.ElasticNetCV(l1_ratio=[0.5, 1.0], engine=engine, **OPTIONS).fit(form(X), Y)
        assert_same_bits(distant, local, ("alphas_", "mse_path_", "scores_", "coef_", "intercept_"))
    assert client.status == "running"


def test_logistic_folds_are_tasks(client):
    y = np.array(["ant", "bee"])[(Y > 0).astype(int)]
    options = {"scoring": "roc_auc", "class_weight": "balanced", **OPTIONS}
    local = sd.SparseLogisticRegressionCV(**options).fit(X, y, offset=Y / 9)
    distant = sd.SparseLogisticRegressionCV(engine="dask", **options).fit(X, y, offset=Y / 9)
    assert_same_bits(distant, local, ("alphas_", "scores_", "coef_", "intercept_"))


@pytest.mark.parametrize("chunks", [(20, 90), (60, 30)])
def test_a_dask_array_stays_on_the_cluster(client, chunks):
    local = sd.LassoCV(**OPTIONS).fit(np.asfortranarray(X), Y)
    distant = sd.LassoCV(**OPTIONS).fit(da.from_array(X, chunks=chunks), da.from_array(Y, chunks=20))
    assert_same_bits(distant, local, ("alphas_", "mse_path_", "coef_", "intercept_"))
    assert distant.n_features_in_ == 90


def test_an_error_of_a_worker_arrives(client):
    wrong = X.copy()
    wrong[3, 4] = np.nan
    with pytest.raises(DataError, match="NaN"):
        sd.LassoCV(**OPTIONS).fit(da.from_array(wrong, chunks=(20, 90)), Y)
    with pytest.raises(DataError, match="cannot judge this model"):
        sd.LassoCV(scoring="roc_auc", engine="dask", **OPTIONS).fit(X, Y)


def test_nothing_is_left_behind(client):
    sd.LassoCV(engine="dask", **OPTIONS).fit(X, Y)
    with pytest.raises(DataError, match="cannot judge this model") as kept:
        sd.LassoCV(scoring="roc_auc", engine="dask", **OPTIONS).fit(X, Y)

    def idle():
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0

    for _ in range(1200):
        if idle():
            break
        client.sync(_nap)
    else:
        raise AssertionError("tasks are left on the cluster")
    assert kept.traceback  # which held the data


async def _nap():
    import asyncio

    await asyncio.sleep(0.05)


def test_inside_a_task_the_search_runs_there_and_says_so(client):
    def search():
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = sd.LassoCV(engine="dask", alphas=6, eps=0.1, cv=3).fit(X, Y)
        return model.mse_path_, [str(warning.message) for warning in caught]

    found, messages = client.submit(search).result(timeout=300)
    np.testing.assert_array_equal(found, sd.LassoCV(**OPTIONS).fit(X, Y).mse_path_)
    assert len(messages) == 1
    assert "inside a Dask task" in messages[0]


def deadly(folder, times):
    """Make a score whose first calls end the worker's process."""

    def score(model, X, y):
        for number in range(times):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(folder / str(number), os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return -np.mean((y - model.predict(X)) ** 2)

    return score


@pytest.fixture
def mortal():
    """One worker, which holds X alone; it is started again when it dies."""
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize("form", [np.asfortranarray, lambda X: da.from_array(X, chunks=(20, 90))])
def test_x_is_sent_again_when_its_holder_dies(mortal, tmp_path, form, monkeypatch):
    sent, send = [], ClusterTasks._make_inputs
    monkeypatch.setattr(ClusterTasks, "_make_inputs", lambda self: sent.append(self) or send(self))
    distant = sd.LassoCV(engine=mortal, scoring=deadly(tmp_path, 1), **OPTIONS).fit(form(X), Y)
    assert len(os.listdir(tmp_path)) == 1
    assert len(sent) == 2  # Dask alone would make X again only on the worker that is gone
    local = sd.LassoCV(scoring=deadly(tmp_path, 1), **OPTIONS).fit(X, Y)  # the worker has died already
    assert_same_bits(distant, local, ("alphas_", "scores_", "coef_", "intercept_"))


@pytest.mark.slow
def test_x_is_not_sent_for_ever(mortal, tmp_path):
    with pytest.raises(WorkerLost, match="X was lost 5 times"):
        sd.LassoCV(engine=mortal, scoring=deadly(tmp_path, 9), **OPTIONS).fit(X, Y)
    # A fifth loss needs no fifth death: on a starved machine the worker that the nanny has just started was
    # seen to go again within a fifth of a second to three seconds, before a scorer ran.
    assert len(os.listdir(tmp_path)) in (4, 5)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("spark", "engine='spark' is unknown"),
        ("gpu://somewhere:1", "engine='gpu://somewhere:1': no Dask scheduler answers there"),
        ("tcp://127.0.0.1", "missing port number"),
        ("tcp://127.0.0.1:9", "no Dask scheduler answers there"),
    ],
)
def test_engines_that_are_not_there(engine, message):
    with dask.config.set({"stradask.scheduler-timeout": "1s"}), pytest.raises(DataError, match=message):
        sd.LassoCV(engine=engine, **OPTIONS).fit(X, Y)


@pytest.mark.parametrize("engine", ["gpu://x:1", pytest.param("tls://127.0.0.1:9", marks=pytest.mark.slow)])
def test_a_wrong_engine_leaves_no_client_that_holds_up_the_end(engine):
    code = (
        "import numpy as np, stradask as sd\n"
        f"try: sd.LassoCV(engine={engine!r}).fit(np.eye(9), np.arange(9.0))\n"
        "except sd.errors.DataError: print('refused')\n"
    )
    options = {"capture_output": True, "text": True, "timeout": 50}
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert (done.stdout, done.stderr) == ("refused\n", "")


def test_a_client_of_ours_is_closed_when_x_cannot_be_sent(client, monkeypatch):
    clients = []

    def fail(self):
        clients.append(self._workers.client)
        raise OSError("broken")

    monkeypatch.setattr(ClusterTasks, "_make_inputs", fail)
    for engine in ("dask", client.scheduler.address):
        with pytest.raises(OSError, match="broken"):
            sd.LassoCV(engine=engine, **OPTIONS).fit(X, Y)
    assert clients[0] is client
    assert [lent.status for lent in clients] == ["running", "closed"]
