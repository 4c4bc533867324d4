"""Fits whose loop runs in a task on the cluster: the same model, and the client needs the scheduler alone."""

import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.algorithms._base import _FitMethod
from stradask.algorithms.inputs import reduced
from stradask.errors import DataError
from stradask.scheduler import coordinator

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 8))
Y = X[:, 0] + rng.normal(size=300)
RATINGS = sd.datasets.make_ratings(60, 40, 3, density=0.3, random_state=0)[0]
CORPUS = sd.datasets.make_lda_corpus(80, 60, 3, random_state=0)[0]


@pytest.fixture
def client(address):
    with distributed.Client(address) as client:
        yield client


@pytest.fixture
def on_cluster():
    with dask.config.set({"stradask.coordinator": "cluster"}):
        yield


def topics(**options):
    return sd.LatentDirichletAllocation(3, **({"max_iter": 9, "random_state": 0} | options))


FITS = {
    "ridge": lambda **o: sd.Ridge(**o).fit(X, Y).coef_,
    "lasso": lambda **o: sd.Lasso(0.01, **o).fit(X, Y).coef_,
    "logistic": lambda **o: sd.LogisticRegression(**o).fit(X, Y > 0).coef_,
    "factors": lambda **o: sd.MatrixFactorization(3, random_state=0, **o).fit(RATINGS).user_factors_,
    "topics": lambda **o: (
        sd.LatentDirichletAllocation(3, max_iter=9, random_state=0, **o).fit(CORPUS).components_
    ),
    "network": lambda **o: sd.MLPRegressor((4,), tol=1e-1, random_state=0, **o).fit(X, Y).coefs_[0],
}


def slow(name, *slow_ones):
    return pytest.param(name, marks=pytest.mark.slow if name in slow_ones else ())


@pytest.mark.parametrize("name", [slow(name, "topics", "network") for name in FITS])
def test_the_model_is_that_of_a_fit_from_here(client, name):
    with dask.config.set({"stradask.coordinator": "client"}):
        here = FITS[name](engine="dask")
    with dask.config.set({"stradask.coordinator": "cluster"}):
        np.testing.assert_array_equal(FITS[name](engine="dask"), here)
    assert client.list_datasets() == ()


def loss(portion, w):
    rest = portion @ w - portion[:, 0]
    return 0.5 * rest @ rest + 0.5 * w @ w, portion.T @ rest + w


def density(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum(), np.array([(x - q[0]).sum()])


def in_parts(model, matrix):
    for part in (matrix[:50], matrix[50:]):
        model.partial_fit(part)
    return model


CALLS = {
    "minimize": lambda e: sd.minimize(loss, np.zeros(8), [X[:100], X[100:]], engine=e).x,
    "sample": lambda e: (
        sd.sample(density, None, Y, [0.0], n_samples=50, n_warmup=50, engine=e, random_state=0).draws
    ),
    "topics": lambda e: in_parts(topics(engine=e), CORPUS).components_,
    "factors": lambda e: in_parts(sd.MatrixFactorization(3, random_state=0, engine=e), RATINGS).user_factors_,
}


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize("name", [slow(name, "sample") for name in CALLS])
def test_other_calls_run_there_with_the_same_result(client, monkeypatch, name):
    with dask.config.set({"stradask.coordinator": "client"}):
        here = CALLS[name]("dask")
    calls, run_there = [], coordinator._run_there
    monkeypatch.setattr(coordinator, "_run_there", lambda *args: calls.append(args) or run_there(*args))
    with dask.config.set({"stradask.coordinator": "cluster"}):
        there = CALLS[name]("dask")
    np.testing.assert_array_equal(there, here)
    assert calls
    assert client.list_datasets() == ()


def test_a_callback_of_minimize_runs_there_and_ends_it(client, on_cluster):
    result = sd.minimize(loss, np.ones(8), [X], engine="dask", callback=lambda state: state.nit == 2)
    assert (result.nit, result.status) == (2, 3)


def test_parameters_that_would_stay_on_workers_are_refused_there(client, on_cluster):
    with pytest.raises(DataError, match="'client', or shard_from, now 4"):
        sd.minimize(loss, np.zeros(8), [X], engine="dask", shard_from=4)


def test_parameters_stay_as_they_are(client, on_cluster, address):
    model = sd.LogisticRegression(engine=address, verbose=0).fit(X, Y > 0)
    assert model.fit(X, Y > 0) is model
    assert model.get_params() == sd.LogisticRegression(engine=address).get_params()
    assert model.classes_.tolist() == [False, True]


def test_persisted_data_are_sent_as_references(client, on_cluster):
    lazy, y = da.from_array(X, (50, 8)).persist(), da.from_array(Y, 50).persist()
    np.testing.assert_allclose(sd.Ridge().fit(lazy, y).coef_, sd.Ridge().fit(X, Y).coef_, rtol=1e-10)


def test_every_fit_with_an_engine_may_run_there():
    public = [getattr(sd, name) for name in dir(sd)]
    estimators = [one for one in public if inspect.isclass(one) and hasattr(one, "fit")]
    engines = [one for one in estimators if "engine" in inspect.signature(one).parameters]
    assert {sd.SLIM, sd.GroupLasso, sd.BayesianLinearRegression, sd.LassoCV} <= set(engines)
    for name in ("fit", "partial_fit"):
        methods = [inspect.getattr_static(one, name) for one in engines if hasattr(one, name)]
        assert methods
        assert all(isinstance(method, _FitMethod) for method in methods)


def test_files_of_ratings_are_read_there(client, on_cluster, tmp_path):
    cells = RATINGS.tocoo()
    path = tmp_path / "ratings.csv"
    np.savetxt(path, np.column_stack([cells.row, cells.col, cells.data]), "%.9g", delimiter=",")
    with dask.config.set({"stradask.coordinator-name": "ratings"}):
        model = sd.MatrixFactorization(3, random_state=0).fit(str(path))
    assert client.get_events("stradask-fit-ratings")
    here = sd.MatrixFactorization(3, random_state=0).fit(RATINGS)
    np.testing.assert_allclose(model.user_factors_, here.user_factors_, rtol=1e-4, atol=1e-5)
    assert here.score(str(path)) == pytest.approx(here.score(RATINGS), rel=1e-5)


def test_ratings_for_a_model_of_this_process_come_through_the_scheduler(client, on_cluster, monkeypatch):
    monkeypatch.setattr(reduced, "open_workers", None)  # which connects to workers
    cells = abs(RATINGS).tocoo()
    table = da.from_array(np.column_stack([cells.row, cells.col, cells.data]), (100, 3))
    found, here = (sd.EASE(5.0).fit(R).item_weights_ for R in (table, abs(RATINGS)))
    np.testing.assert_array_equal(found, here)


def test_a_local_fit_to_data_of_this_process_stays_here(client, on_cluster, monkeypatch):
    monkeypatch.setattr(client, "submit", None)
    sd.Ridge().fit(X, Y)


def test_a_client_that_reaches_workers_coordinates_itself(client, monkeypatch):
    monkeypatch.setattr(client, "publish_dataset", None)
    sd.Ridge(engine="dask").fit(X, Y)


def test_a_fit_in_a_task_stays_in_its_task(client, on_cluster):
    def fit():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sd.Ridge(engine="dask").fit(X, Y).coef_

    np.testing.assert_allclose(client.submit(fit).result(60), sd.Ridge().fit(X, Y).coef_, rtol=1e-10)


def test_errors_and_warnings_come_here(client, on_cluster):
    model = sd.Ridge(engine="dask")
    with pytest.raises(DataError, match="y has 3 rows, but X has 300"):
        model.fit(X, Y[:3])
    assert not hasattr(model, "coef_")
    assert client.list_datasets() == ()
    with pytest.warns(ConvergenceWarning, match="stopped short") as caught:
        sd.LogisticRegression(solver="lbfgs", engine="dask", max_iter=1, tol=1e-12).fit(X, Y > 0)
    assert caught[0].filename == __file__


def test_a_callback_runs_there_and_ends_the_fit(client, on_cluster):
    model = sd.MatrixFactorization(3, solver="als", engine="dask", random_state=0)
    assert model.fit(RATINGS, callback=lambda info: info.round == 4).n_iter_ == 4


def test_progress_is_shown_here(client, on_cluster, capsys):
    sd.MatrixFactorization(3, engine="dask", random_state=0, verbose=1).fit(RATINGS)
    said = capsys.readouterr().err
    assert "MatrixFactorization: the fit runs on the cluster as" in said
    assert "MatrixFactorization: 15/15" in said


def test_names_and_settings_that_cannot_be(client, on_cluster):
    client.publish_dataset(1, name="stradask-fit-taken")
    with (
        dask.config.set({"stradask.coordinator-name": "taken"}),
        pytest.raises(DataError, match="a fit 'taken' on"),
    ):
        sd.Ridge(engine="dask").fit(X, Y)
    with pytest.raises(DataError, match=r"no fit 'other' on this cluster; it has \['taken'\]"):
        sd.attach("other")
    with (
        dask.config.set({"stradask.coordinator": "worker"}),
        pytest.raises(DataError, match="must be one of"),
    ):
        sd.Ridge(engine="dask").fit(X, Y)


def test_attach_needs_a_client():
    with pytest.raises(DataError, match="attach needs a Dask client"):
        sd.attach("x")


# Other processes -------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, threading, time, warnings
import dask, distributed
from distributed.comm import tcp
import numpy as np
import stradask as sd

address, port = sys.argv[1], int(sys.argv[1].rpartition(":")[2])
connect = tcp.BaseTCPConnector.connect
refused = []

async def filtered(self, target, *args, **given):
    if int(target.rpartition(":")[2]) != port:
        refused.append(target)
        raise OSError("only the scheduler can be reached")
    return await connect(self, target, *args, **given)

tcp.BaseTCPConnector.connect = filtered
R = sd.datasets.make_ratings(60, 40, 3, density=0.3, random_state=0)[0]
client = distributed.Client(address)
"""


def run_script(address, text, **options):
    command = [sys.executable, "-c", SCRIPT + text, address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture(scope="module")
def processes():
    """The address of a cluster of two processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster.scheduler_address


@pytest.mark.cluster
def test_a_client_that_reaches_the_scheduler_alone_fits_on_the_cluster(processes):
    text = """
model = sd.MatrixFactorization(3, engine="dask", random_state=0).fit(R)
import dask.array as da
X = da.random.default_rng(0).normal(size=(3000, 5), chunks=(500, 5))
ridge = sd.Ridge().fit(X, X[:, 0] + 1)
print(len(refused), float(abs(model.user_factors_).sum()), ridge.coef_.round(2).tolist())
"""
    with run_script(processes, text) as script:
        said, trouble = script.communicate(timeout=120)
    assert script.returncode == 0, trouble
    n_refused, total, coef = said.split(maxsplit=2)
    assert int(n_refused) > 0
    here = sd.MatrixFactorization(3, random_state=0).fit(RATINGS)
    assert float(total) == float(abs(here.user_factors_).sum())
    np.testing.assert_allclose(json.loads(coef), [1.0, 0, 0, 0, 0], atol=0.02)


@pytest.mark.slow
@pytest.mark.cluster
def test_ctrl_c_ends_the_fit_there_with_the_model_so_far(processes):
    text = """
dask.config.set({"stradask.coordinator-name": "stopped"})

def press():
    while len(client.get_events("stradask-fit-stopped")) < 2:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = sd.MatrixFactorization(
        3, solver="als", engine="dask", tol=0.0, max_iter=10**8, random_state=0
    ).fit(R)
print(1 < model.n_iter_ < 10**8, [str(one.message) for one in caught if "interrupted" in str(one.message)])
print(client.list_datasets())
"""
    with run_script(processes, text) as script:
        said, trouble = script.communicate(timeout=120)
    assert script.returncode == 0, trouble
    assert said.splitlines()[-2:] == [
        "True ['MatrixFactorization was interrupted; the model so far is kept']",
        "()",
    ]


@pytest.mark.slow
@pytest.mark.cluster
def test_a_client_may_go_and_another_process_fetches_the_model(processes):
    text = """
dask.config.set({"stradask.coordinator-name": "left"})
corpus = sd.datasets.make_lda_corpus(80, 60, 3, random_state=0)[0]
sd.LatentDirichletAllocation(3, engine="dask", max_iter=4000, random_state=0).fit(corpus)
"""
    with run_script(processes, text) as script, distributed.Client(processes) as client:
        end = time.monotonic() + 100
        while not client.get_events("stradask-fit-left"):
            assert time.monotonic() < end, script.stderr.read()
            time.sleep(0.1)
        os.kill(script.pid, signal.SIGKILL)
        script.wait(60)
        model = sd.attach("left", verbose=0)
        assert client.list_datasets() == ()
    here = sd.LatentDirichletAllocation(3, max_iter=4000, random_state=0).fit(CORPUS)
    np.testing.assert_array_equal(model.components_, here.components_)
    assert (model.engine, model.n_iter_) == ("dask", 4000)


def test_what_cannot_be_sent_is_named(client, on_cluster):
    lock = threading.Lock()
    with pytest.raises(
        DataError, match=r"minimize runs on the cluster.*callback=.*cannot be sent there: cannot"
    ):
        sd.minimize(loss, np.zeros(8), [X], engine="dask", callback=lambda result: lock.locked())
    with pytest.raises(DataError, match=r"LatentDirichletAllocation runs.*callback=.*cannot be sent there"):
        topics(engine="dask").fit(CORPUS, callback=lambda result: lock.locked())
