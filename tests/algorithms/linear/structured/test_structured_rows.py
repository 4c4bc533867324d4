"""Rows on workers and in files for any loss and penalty: the fit of arrays, its gap, paths, a lost worker."""

import logging

import dask
import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.linear.glm import row_places
from stradask.errors import DataError
from stradask.scheduler.read_ahead import ReadAhead

RNG = np.random.default_rng(0)
N, D, CHUNK = 600, 12, 100
DENSE = RNG.standard_normal((N, D)) + 1
SPARSE = sparse.csr_array(np.where(RNG.random((N, D)) < 0.4, DENSE, 0.0))
SIGNAL = DENSE[:, :6] @ np.array([1.0, -1, 0.5, 0, 0, 0])
NUMBERS = SIGNAL + RNG.standard_normal(N)
LABELS = (NUMBERS > 0.5).astype(int)
COUNTS = RNG.poisson(np.exp(0.2 * SIGNAL)).astype(float)
SEVERAL = np.column_stack([NUMBERS, NUMBERS[::-1]])

MODELS = {
    "group": (sd.GroupLasso(3, alpha=0.1), NUMBERS),
    "sparse-group": (sd.GroupLasso(3, alpha=0.1, l1_ratio=0.5, loss="poisson"), COUNTS),
    "huber": (sd.GroupLasso(3, alpha=0.05, loss="huber"), NUMBERS),
    "classes": (sd.GroupLogisticRegression(2, alpha=0.02), np.digitize(NUMBERS, [-1, 1])),
    "logistic": (sd.GroupLogisticRegression(alpha=0.02, class_weight="balanced"), LABELS),
    "free": (sd.SparseGLM("poisson", alpha=0.02, penalty_factor=[0.0, *[1.0] * (D - 1)]), COUNTS),
    "mcp": (sd.SparseGLM(penalty="mcp", alpha=0.1), NUMBERS),
    "lq": (sd.SparseGLM(penalty="lq", alpha=0.05), NUMBERS),
    "slope": (sd.SparseGLM("logistic", "slope", alpha=0.01), LABELS),
    "quantile": (sd.SparseGLM("quantile", alpha=0.02), NUMBERS),
    "square-root": (sd.SparseGLM("square-root", alpha=0.1), NUMBERS),
    "several": (sd.SparseGLM(alpha=0.1), SEVERAL),
    "overlap": (
        sd.SparseGLM(penalty="group", alpha=0.05, groups=[[0, 1, 2], [2, *range(3, D)]], overlap=True),
        NUMBERS,
    ),
}
FEW = ("group-dense", "group-sparse", "mcp-dense")
CASES = [
    pytest.param(name, kind, marks=() if f"{name}-{kind}" in FEW else pytest.mark.slow)
    for name in MODELS
    for kind in ("dense", "sparse")
]


@pytest.fixture(scope="module")
def cluster():
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": False}
    quiet |= {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}
    # Workers are threads here, and the memory of the whole test run is not theirs: they must not pause.
    memory = {f"distributed.worker.memory.{at}": False for at in ("target", "spill", "pause", "terminate")}
    with dask.config.set(memory), LocalCluster(**quiet) as made, Client(made) as client:
        yield client


@pytest.fixture
def asked(monkeypatch):
    """Let X be too large for the workers, of which none keeps a block; count what is asked for."""
    monkeypatch.setattr(row_places, "bytes_to_keep", lambda X, engine, prepare: 0)
    numbers, get = [], ReadAhead.get

    def getting(self, number):
        numbers.append(number)
        return get(self, number)

    monkeypatch.setattr(ReadAhead, "get", getting)
    return numbers


def lazy(X):
    """A Dask array whose blocks are to be computed, in chunks of rows."""
    import dask.array as da

    meta = sparse.csr_array((0, 0)) if sparse.issparse(X) else np.empty((0,) * X.ndim)
    blocks = [
        da.from_delayed(dask.delayed(_copied)(X[a : a + CHUNK]), X[a : a + CHUNK].shape, X.dtype, meta=meta)
        for a in range(0, N, CHUNK)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _copied(block):
    return block.copy()


def fits_files(tmp_path, schedule):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(DENSE, columns=[f"x{k}" for k in range(D)]).assign(y=COUNTS, label=LABELS)
    for k, half in enumerate((slice(0, 250), slice(250, N))):
        frame[half].to_parquet(tmp_path / f"{k}.parquet", row_group_size=100)
        np.save(tmp_path / f"X{k}.npy", DENSE[half])
    table = sd.datasets.ParquetTable(str(tmp_path), columns=[f"x{k}" for k in range(D)])
    model = sd.GroupLasso(3, alpha=0.05, loss="poisson", tol=1e-10)
    here = sd.GroupLasso(3, alpha=0.05, loss="poisson", tol=1e-10).fit(DENSE, COUNTS)
    np.testing.assert_allclose(model.fit(table, "y").coef_, here.coef_, atol=1e-6)
    assert model.schedule_ == schedule
    assert model.score(table, "y") == pytest.approx(here.score(DENSE, COUNTS))
    np.testing.assert_allclose(model.predict(frame), here.predict(DENSE), rtol=1e-5)
    model.fit(f"{tmp_path}/X*.npy", COUNTS)
    np.testing.assert_allclose(model.coef_, here.coef_, atol=1e-6)
    labels = sd.GroupLogisticRegression(3, alpha=0.02).fit(table, "label")
    assert labels.score(table, "label") == np.mean(labels.predict(DENSE) == LABELS)
    counts = sd.SparsePoissonRegressor(0.05, tol=1e-10).fit(table, "y").coef_
    np.testing.assert_allclose(
        counts, sd.SparsePoissonRegressor(0.05, tol=1e-10).fit(DENSE, COUNTS).coef_, atol=1e-6
    )
    with pytest.raises(DataError, match=r"X names a file, .* GroupLasso"):
        sd.CoxRegression().fit(f"{tmp_path}/*.parquet", "y")


def test_files_are_read_into_this_process_where_there_is_no_client(tmp_path):
    fits_files(tmp_path, "working-set")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_rows_that_are_read_in_each_pass_give_the_model_of_the_array(cluster, asked, name, kind):
    model, y = MODELS[name]
    X = {"dense": DENSE, "sparse": SPARSE}[kind]
    model.set_params(engine="local", tol=1e-10, max_iter=1000)
    here = model.fit(X, y)
    coef, intercept, objective = np.array(here.coef_), np.array(here.intercept_), here.objective_
    there = model.fit(lazy(X), y)  # by the client, which computes Dask arrays
    assert there.schedule_ == "rows"
    assert coef.any()
    assert len(asked) >= 2 * (N // CHUNK)
    np.testing.assert_allclose(there.coef_, coef, atol=2e-5)
    np.testing.assert_allclose(there.intercept_, intercept, atol=2e-5)
    assert there.objective_ == pytest.approx(objective, rel=1e-9)
    if there.stopped_by_ == "duality gap":
        assert there.dual_gap_ <= 1e-9
    np.testing.assert_allclose(there.predict(lazy(X)).compute(), there.predict(X))


def test_paths_and_the_largest_alpha_are_those_of_the_array(cluster, asked):
    model = sd.GroupLasso(3, alpha=0.1, tol=1e-10)
    assert model.alpha_max(lazy(DENSE), NUMBERS) == pytest.approx(model.alpha_max(DENSE, NUMBERS))
    there, here = (model.path(X, NUMBERS, alphas=[0.3, 0.1]) for X in (lazy(DENSE), DENSE))
    np.testing.assert_allclose(there[1], here[1], atol=1e-6)
    assert asked


def test_penalties_that_owned_columns_do_not_take_leave_rows_where_they_are(cluster):
    X = lazy(DENSE)
    assert sd.SparseGLM(alpha=0.1).fit(X, NUMBERS).schedule_ == "columns"
    there = sd.SparseGLM(penalty="mcp", alpha=0.1, tol=1e-10).fit(X, NUMBERS)
    assert there.schedule_ == "rows"
    np.testing.assert_allclose(
        there.coef_, sd.SparseGLM(penalty="mcp", alpha=0.1, tol=1e-10).fit(DENSE, NUMBERS).coef_, atol=1e-6
    )
    with pytest.raises(DataError, match="a Dask array of blocks of rows"):
        sd.SparseGLM(penalty="mcp", alpha=0.1).fit(X.rechunk((N, 3)), NUMBERS)


@pytest.mark.slow
def test_workers_read_files_in_each_pass(cluster, asked, tmp_path):
    fits_files(tmp_path, "rows")
