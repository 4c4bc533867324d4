"""Sparse linear models on Dask: the model of a local fit, data where they lie, workers that die."""

import os
import signal
import threading
import time

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.linear.sparse.distributed import lay_out
from stradask.errors import DataError

pytestmark = pytest.mark.cluster
N, P = 90, 400


@pytest.fixture(scope="module")
def client():
    """Two processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((N, P)) + 0.5)
    return X, X[:, :6] @ [3.0, -2, 1, 1, 2, -1] + rng.standard_normal(N) + 4


@pytest.fixture(scope="module")
def tall():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((P, 25)) * np.geomspace(0.5, 4, 25) + 0.5
    return X, X[:, :6] @ [3.0, -2, 1, 1, 2, -1] + rng.standard_normal(P) + 4


def close(a, b, atol=1e-9):
    np.testing.assert_allclose(a.coef_, b.coef_, atol=atol)
    np.testing.assert_array_equal(a.coef_ == 0, b.coef_ == 0)
    assert a.intercept_ == pytest.approx(b.intercept_, abs=10 * atol)
    # The working set is solved by another method where workers have the columns: a round more or less.
    assert abs(len(a.history_["round"]) - len(b.history_["round"])) <= 1


def same(a, b):
    np.testing.assert_array_equal(a.coef_, b.coef_)
    assert a.intercept_ == b.intercept_
    assert a.dual_gap_ == b.dual_gap_
    assert len(a.history_["round"]) == len(b.history_["round"])
    np.testing.assert_array_equal(a.history_["objective"], b.history_["objective"])


@pytest.mark.parametrize("kind", ["dense", "float32", "csc", "csr"])
@pytest.mark.parametrize("options", [{}, {"standardize": True, "positive": True}, {"fit_intercept": False}])
def test_a_wide_fit_takes_the_rounds_of_a_local_one(client, wide, kind, options, monkeypatch):
    monkeypatch.setattr(
        "stradask.algorithms.linear.sparse.classes.MOST_ENTRIES", 0
    )  # else another solver is taken
    X, y = wide
    if kind in ("csc", "csr"):
        X = (sparse.csc_array if kind == "csc" else sparse.csr_array)(np.where(X > 1, X, 0))
    elif kind == "float32":
        X = X.astype(np.float32)
    model = sd.Lasso(alpha=0.1, tol=1e-5 if kind == "float32" else 1e-9, **options)
    if "standardize" in options:  # the scales are summed in another order there
        model.set_params(standardize=False, penalty_factor=np.linspace(0.5, 2, P))
    local = model.fit(X, y)
    distant = sd.Lasso(**model.get_params()).set_params(engine="dask").fit(X, y)
    close(local, distant, 1e-4 if kind == "float32" else 1e-8)
    assert (distant.history_["bytes_sent"] > 0).all()
    assert (local.history_["bytes_sent"] == 0).all()


def test_bytes_are_those_of_the_formula(client, wide):
    """Down to each worker the residual, and up a slope a column; columns that join go up once."""
    X, y = wide
    sent = sd.Lasso(alpha=0.1, tol=1e-9, engine="dask").fit(X, y).history_["bytes_sent"]
    assert len(sent) <= 12
    assert (sent >= 16 * N + 8 * P).all()
    assert sent.sum() <= len(sent) * (16 * N + 8 * P) + 8 * N * P


@pytest.mark.parametrize("chunks", [(N, 150), (40, P), (40, 150)])
@pytest.mark.parametrize("weighted", [False, True])
def test_dask_arrays_however_they_are_chunked(client, wide, chunks, weighted):
    X, y = wide
    weights = np.linspace(0.5, 2, N) if weighted else None
    local = sd.Lasso(alpha=0.1, tol=1e-11).fit(X, y, weights)
    lazily = da.from_array(weights, chunks=chunks[0]) if weighted else None
    distant = sd.Lasso(alpha=0.1, tol=1e-11, engine="dask")
    distant.fit(da.from_array(X, chunks=chunks), da.from_array(y, chunks=30), lazily)
    np.testing.assert_allclose(distant.coef_, local.coef_, atol=1e-6)
    assert distant.intercept_ == pytest.approx(local.intercept_, abs=1e-6)
    assert distant.dual_gap_ <= 1e-11 * y.var()


def test_blocks_of_columns_stay_where_they_lie(client, wide, monkeypatch):
    monkeypatch.setattr("stradask.algorithms.linear.sparse.classes.MOST_ENTRIES", 0)
    X, y = wide
    X = da.from_array(X, chunks=(N, 200)).persist()
    distributed.wait(X)
    model = sd.Lasso(alpha=0.1, tol=1e-9).fit(X, y)  # a Dask array goes to the current client
    assert model.history_["bytes_sent"].sum() > 0
    close(model, sd.Lasso(alpha=0.1, tol=1e-9).fit(wide[0], y))
    otherwise = sd.Lasso(alpha=0.1, tol=1e-9).fit(da.from_array(wide[0], chunks=(N, 57)), y)
    same(model, otherwise)


def counted(X, chunks, folder):
    """A lazy array that leaves a file for every block that is computed."""

    def note(block):
        import tempfile

        tempfile.mkstemp(dir=folder)
        return block

    return da.from_array(X, chunks=chunks).map_blocks(note, dtype=X.dtype, meta=np.empty((0, 0)))


@pytest.mark.parametrize("engine", ["dask", "local"])
@pytest.mark.parametrize(("chunks", "n_blocks"), [((N, 150), 3), ((40, P), 3), ((40, 150), 9)])
@pytest.mark.parametrize("use", ["fit", "alpha_max"])
def test_a_lazy_array_is_computed_once(client, wide, tmp_path, engine, chunks, n_blocks, use, monkeypatch):
    if engine == "local":  # a Dask array goes to a client that there is

        def no_client():
            raise ValueError("none")

        monkeypatch.setattr(distributed, "default_client", no_client)
    X, y = wide
    Y = np.column_stack([y, y**2])
    model = sd.Lasso(alpha=0.1, standardize=True, engine=engine, tol=1e-9)
    found = getattr(model, use)(counted(X, chunks, tmp_path), Y)
    assert len(list(tmp_path.iterdir())) == n_blocks
    theirs = getattr(sd.Lasso(alpha=0.1, standardize=True, tol=1e-9), use)(X, Y)
    if use == "fit":
        np.testing.assert_allclose(found.coef_, theirs.coef_, atol=1e-5)
    else:
        np.testing.assert_allclose(found, theirs, rtol=1e-9)


def test_a_lazy_array_of_a_logistic_model_is_computed_once(client, wide, tmp_path):
    X, y = wide
    model = sd.SparseLogisticRegression(alpha=0.03, standardize=True, tol=1e-8)
    distant = model.fit(counted(X, (40, P), tmp_path), y > 4).coef_
    assert len(list(tmp_path.iterdir())) == 3
    np.testing.assert_allclose(distant, model.fit(X, y > 4).coef_, atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse", "local"])
@pytest.mark.parametrize(
    "options", [{}, {"l1_ratio": 0.3, "standardize": True}, {"positive": True, "fit_intercept": False}]
)
def test_tall_data_are_fitted_by_rows(client, tall, kind, options):
    X, y = tall
    if kind == "sparse":
        X = np.where(X > 0.8, X, 0)
    local = sd.ElasticNet(**{"alpha": 0.05, "tol": 1e-11, "l1_ratio": 1.0, **options}).fit(X, y)
    given = X
    if kind != "local":
        given = da.from_array(X, chunks=(150, 25))
        given = given.map_blocks(sparse.csr_matrix) if kind == "sparse" else given
    distant = sd.ElasticNet(**local.get_params()).set_params(engine="dask").fit(given, y)
    np.testing.assert_allclose(distant.coef_, local.coef_, atol=1e-6)
    assert distant.intercept_ == pytest.approx(local.intercept_, abs=1e-6)
    # No n-vector is sent: the first pass has slopes alone, others also products of 25 columns in 3 blocks.
    sent = distant.history_["bytes_sent"]
    assert sent[0] < 8 * P
    assert (sent[1:] < 3 * 8 * 25 * 27 + 8 * P).all()


@pytest.mark.parametrize("chunks", [(N, 150), (40, P)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_logistic_models(client, wide, chunks, n_classes):
    X, y = wide
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    local = sd.SparseLogisticRegression(alpha=0.03, tol=1e-8).fit(X, labels)
    distant = sd.SparseLogisticRegression(alpha=0.03, tol=1e-8, engine="dask")
    distant.fit(da.from_array(X, chunks=chunks), da.from_array(labels, chunks=30))
    np.testing.assert_allclose(distant.coef_, local.coef_, atol=1e-7)
    np.testing.assert_allclose(distant.intercept_, local.intercept_, atol=1e-7)


def test_predictions_of_arrays_that_are_cut_by_columns(client, wide):
    X, y = wide
    lazy = da.from_array(X, chunks=(40, 150))
    lasso = sd.Lasso(alpha=0.1).fit(X, y)
    np.testing.assert_allclose(lasso.predict(lazy).compute(), lasso.predict(X))
    with pytest.raises(DataError, match="399 columns, but the model was fitted to 400"):
        lasso.predict(lazy[:, 1:])


@pytest.mark.parametrize("kind", ["local", pytest.param("lazy", marks=pytest.mark.slow)])
@pytest.mark.parametrize("by", ["columns", "rows"])
def test_a_killed_worker_changes_no_bit(wide, by, kind):
    X, y = wide
    if by == "rows":  # more columns than join at once, and more rows
        X = np.random.default_rng(2).standard_normal((900, P)) + np.linspace(-3, 3, 900)[:, None]
        y = X[:, :150].sum(axis=1) + np.sin(np.arange(900))
    if kind == "lazy":  # and kept on the workers, for the scales and the fit
        X = da.from_array(X, chunks=(N, P // 3) if by == "columns" else (300, P)).map_blocks(np.sin)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        model = sd.Lasso(alpha=0.02 if kind == "local" else 0.01, tol=1e-10, engine="dask")
        model.set_params(standardize=kind == "lazy")
        calm = sd.Lasso(**model.get_params()).fit(X, y)
        assert len(calm.history_["round"]) > 3
        victims = [worker.process.pid for worker in cluster.workers.values()]

        def kill(info):
            if info.round == 2:
                os.kill(victims[0], signal.SIGKILL)

        model.fit(X, y, callback=kill)
        same(model, calm)


def test_inside_a_task_a_fit_stays_on_the_workers_threads(client, wide, monkeypatch):
    monkeypatch.setattr("stradask.algorithms.linear.sparse.classes.MOST_ENTRIES", 0)
    X, y = wide
    local = sd.Lasso(alpha=0.1).fit(X, y)

    def fit(X, y):
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = sd.Lasso(alpha=0.1, engine="dask").fit(X, y)
        return model.coef_, [str(warning.message) for warning in caught]

    coef, said = client.submit(fit, X, y).result(timeout=300)
    np.testing.assert_array_equal(coef, local.coef_)
    assert len(said) == 1
    assert "inside a Dask task" in said[0]


def test_what_cannot_be_used_is_named(client, wide):
    X, y = wide
    bad = X.copy()
    bad[3, 333] = np.nan
    for chunks in ((N, 150), (40, P)):
        with pytest.raises(Exception, match=r"NaN in row 3, column \d") as caught:
            sd.Lasso(engine="dask").fit(da.from_array(bad, chunks=chunks), y)
        assert isinstance(caught.value, DataError)
        with pytest.raises(DataError, match=r"in the (rows of X from 0|columns of X from 300) on: .*column"):
            sd.Lasso(engine="dask", standardize=True).fit(da.from_array(bad, chunks=chunks), y)
    unknown = da.from_array(X, chunks=(40, P))[da.from_array(y, chunks=40) > 4]
    with pytest.raises(DataError, match="compute_chunk_sizes"):
        sd.Lasso(engine="dask").fit(unknown, y)
    with pytest.raises(DataError, match=r"90 rows.*89"):
        sd.Lasso(engine="dask").fit(da.from_array(X), da.from_array(y[1:]))
    with pytest.raises(DataError, match="type complex128"):
        sd.Lasso(engine="dask").fit(da.from_array(X) * 1j, y)
    with pytest.raises(DataError, match="Bag"):
        sd.Lasso(engine="dask").fit(__import__("dask.bag").bag.from_sequence([1]), y)


def test_without_a_client(wide):
    X, y = wide
    threads = threading.active_count()
    quickly = dask.config.set({"stradask.scheduler-timeout": "1s"})
    with quickly, pytest.raises(DataError, match="no Dask scheduler answers"):
        sd.Lasso(engine="tcp://127.0.0.1:9").fit(X, y)
    end = time.monotonic() + 60
    while threading.active_count() > threads + 8:  # those of other clients come and go
        assert time.monotonic() < end
        time.sleep(0.05)


def test_empty_chunks_are_left_out(wide):
    X, _ = wide
    layout = lay_out(
        da.concatenate([da.from_array(X, chunks=(N, 200)), da.zeros((N, 0))], axis=1), "dask", allow_rows=True
    )
    assert (layout.by_rows, layout.edges, len(layout.pieces)) == (False, [0, 200, 400], 2)
