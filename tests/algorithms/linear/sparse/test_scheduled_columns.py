"""Lasso and elastic net on columns that shards own: the minimum of the whole problem, a true gap, lost
workers."""

import itertools
import os
import signal

import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.algorithms.linear.lasso import Lasso
from stradask.algorithms.linear.sparse import distributed as sparse_distributed
from stradask.algorithms.linear.sparse.column_store import MOST_ENTRIES, Images
from stradask.algorithms.linear.sparse.columns import columns_of
from stradask.algorithms.linear.structured.losses import Squared
from stradask.algorithms.linear.structured.mean_loss import MeanLoss
from stradask.algorithms.linear.structured.solving.blocks import single_columns
from stradask.algorithms.linear.structured.solving.owned_blocks import OwnedBlocks
from stradask.algorithms.linear.structured.solving.shard import BlockTerms
from stradask.errors import DataError
from stradask.scheduler import run

N, P = 120, 240


def problem(kind="dense", dtype=np.float64, seed=0, mean=1.0):
    """Columns in pairs of correlation 0.95, one of each in either half: shards concern each other."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((N, P // 2)) + mean
    X = np.hstack([half, half + 0.3 * rng.standard_normal((N, P // 2))])
    if kind == "sparse":
        X *= rng.random((N, P)) < 0.3
    X = X.astype(dtype)
    y = X[:, :6] @ [3.0, -2, 1, 1, 2, -1] + 0.5 * rng.standard_normal(N) + 4
    return (sparse.csc_array(X) if kind == "sparse" else np.asfortranarray(X)), y


def dense_of(X):
    return (X.toarray() if sparse.issparse(X) else X).astype(np.float64)


def gap_outside(X, y, coef, intercept, l1, l2, weights, positive, centre):
    """Objective and duality gap by plain numpy: weights and squares are rows."""
    X = dense_of(X)
    means = (weights @ X / weights.sum(), weights @ y / weights.sum()) if centre else (0.0, 0.0)
    A = np.vstack([np.sqrt(weights)[:, None] * (X - means[0]), np.diag(np.sqrt(l2))])
    target = np.concatenate([np.sqrt(weights) * (y - means[1]), np.zeros(X.shape[1])])
    r = target - A @ coef
    kept = np.isfinite(l1)
    slopes = (A.T @ r)[kept]
    worst = (np.maximum(slopes, 0) if positive else np.abs(slopes)) / l1[kept]
    theta = r * np.clip(target @ r / (r @ r), 0, 1 / max(worst.max(), 1e-300))
    primal = 0.5 * weights @ (y - X @ coef - intercept) ** 2
    primal += l1[kept] @ np.abs(coef[kept]) + 0.5 * l2 @ coef**2
    return primal, primal - (target @ theta - theta @ theta / 2)


def solved(X, y, l1, l2=0.0, n_shards=3, n_jobs=1, n_pieces=6, **options):
    """Run the program; l1 and l2 are for the sum over rows."""
    p = X.shape[1]
    edges = [p * k // n_pieces for k in range(n_pieces + 1)]
    pieces = [X[:, a:b] for a, b in itertools.pairwise(edges)]
    options = {"dtype": X.dtype, "is_sparse": sparse.issparse(X), "tol": 1e-9, **options}
    weights, factors = options.pop("weights", np.ones(len(y))), options.pop("factors", np.ones(p))
    low = np.full(p, 0.0 if options.pop("positive", False) else -np.inf)
    ridge = np.where(np.isfinite(factors), factors, 0.0) * l2 / len(y)
    terms = BlockTerms(factors * l1 / len(y), np.zeros(p), ridge, low, np.full(p, np.inf))
    loss = MeanLoss(Squared(), y[:, None], weights / weights.sum())
    program = OwnedBlocks(pieces, edges, loss, single_columns(p), terms, n_shards=n_shards, **options)
    return program, run(program, program.schedule, max_rounds=5000, n_jobs=n_jobs)


@pytest.mark.parametrize(
    ("kind", "share", "options"),
    [
        ("dense", 0.2, {}),
        ("sparse", 0.05, {}),
        ("dense", 0.05, {"fit_intercept": False, "l1_ratio": 0.5}),
        ("sparse", 0.2, {"positive": True, "weighted": True}),
        ("sparse", 0.1, {"factors": True, "weighted": True, "l1_ratio": 0.7}),
        pytest.param("dense", 0.05, {"positive": True, "weighted": True}, marks=pytest.mark.slow),
        pytest.param("dense", 0.02, {"factors": True}, marks=pytest.mark.slow),
    ],
)
def test_it_comes_to_the_minimum_of_the_whole_problem(kind, share, options):
    X, y = problem(kind)
    given = {"fit_intercept": True, "l1_ratio": 1.0, "positive": False} | options
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, N).astype(float) if given.pop("weighted", False) else np.ones(N)
    weights *= N / weights.sum()
    factors = rng.uniform(0.5, 2, P) if given.pop("factors", False) else np.ones(P)
    factors[5] = np.inf if "factors" in options else 1.0
    centre, ratio, positive = given["fit_intercept"], given["l1_ratio"], given["positive"]
    dense = dense_of(X)
    centred = dense - (weights @ dense / N if centre else 0), y - (weights @ y / N if centre else 0)
    alpha = share * np.abs(centred[0].T @ (weights * centred[1])).max() / N
    program, result = solved(
        X, y, N * alpha * ratio, N * alpha * (1 - ratio),
        weights=weights, factors=factors,
        fit_intercept=centre, positive=positive, tol=5e-9,
    )  # fmt: skip
    assert result.reason == "gap"
    found = program.solution()
    coef = found.B[:, 0]
    l1, l2 = N * alpha * ratio * factors, N * alpha * (1 - ratio) * np.where(np.isinf(factors), 0, factors)
    primal, gap = gap_outside(X, y, coef, found.intercept[0], l1, l2, weights, positive, centre)
    scale = 0.5 * weights @ centred[1] ** 2
    if "factors" in options:  # with squares this dual point is not the best one; without, see further down
        assert gap <= 1.01e-8 * scale
    assert found.gap * N <= 1.01e-8 * scale
    assert found.objective * N == pytest.approx(primal, rel=1e-10)
    assert coef[5] == 0 or "factors" not in options
    if "factors" not in options:
        peer = linear_model.ElasticNet(
            alpha, l1_ratio=ratio, fit_intercept=centre, positive=positive, tol=1e-10, max_iter=100_000
        )
        peer.fit(dense, y, sample_weight=weights)
        ones = N * alpha * ratio * np.ones(P), N * alpha * (1 - ratio) * np.ones(P)
        least, _ = gap_outside(X, y, peer.coef_, peer.intercept_, *ones, weights, positive, centre)
        assert primal - found.gap * N <= least + 1e-12 * scale
        np.testing.assert_allclose(dense @ coef + found.intercept[0], peer.predict(dense), atol=2e-3)


def test_standardized_columns_are_those_of_a_local_fit(monkeypatch):
    X, y = problem()
    X = X * np.geomspace(0.1, 10, P)
    lazy = da.from_array(X, chunks=(N, 60))
    model = sd.ElasticNet(alpha=0.05, l1_ratio=0.8, standardize=True, tol=1e-8, schedule="dynamic", n_jobs=2)
    without_client(monkeypatch)
    found = model.fit(lazy, y)
    theirs = sd.ElasticNet(**{**model.get_params(), "schedule": "auto"}).fit(X, y)
    assert found.schedule_ == "columns"
    np.testing.assert_allclose(found.predict(X), theirs.predict(X), atol=1e-4)
    assert found.dual_gap_ <= 1e-8 * y.var() / 2


def test_rounded_coefficients_have_the_gap_that_is_said():
    X, y = problem(dtype=np.float32)
    program, _ = solved(X, y, 20.0, tol=1e-12)
    found = program.solution()
    coef = found.B[:, 0]
    np.testing.assert_array_equal(coef, coef.astype(np.float32))
    l1, l2, ones = np.full(P, 20.0), np.zeros(P), np.ones(N)
    _, gap = gap_outside(X, y, coef, found.intercept[0], l1, l2, ones, False, True)
    assert 0 < gap <= 1.001 * found.gap * N  # of the best multiple of the slopes, of a feasible one
    assert program.gap > 1e-12


def test_threads_change_no_bit_and_the_start_shortens():
    X, y = problem()
    one, result = solved(X, y, 10.0, n_jobs=1, tol=1e-8)
    two, _ = solved(X, y, 10.0, n_jobs=2, tol=1e-8)
    np.testing.assert_array_equal(one.coef, two.coef)
    assert one.gap == two.gap
    warm, again = solved(X, y, 10.0, start=(one.places, one.coef), tol=2e-8)
    assert again.n_rounds == 2 < result.n_rounds
    np.testing.assert_array_equal(warm.coef, one.coef)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_small_tolerance_ends_near_the_rounding_errors(seed):
    """Late steps are nearly parallel: combining many moved the residual away from the coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((500, 800))
    y = X[:, :10].sum(axis=1) + rng.standard_normal(500)
    program, _ = solved(X, y, 0.1 * 500, n_shards=2, n_pieces=2, tol=1e-12)
    assert program.gap < 2e-8  # of the objective without columns; it had been up to 1e-4
    coef = program.solution().B[:, 0]
    np.testing.assert_allclose(coef, Lasso(0.1, tol=1e-13).fit(X, y).coef_, atol=1e-7)


def test_max_rounds_ends_it(monkeypatch):
    X, y = problem()
    program, _ = solved(X, y, 10.0, max_rounds=3)
    assert (program.reason, program.passes) == ("max_rounds", 3)
    model = sd.Lasso(alpha=0.01, max_iter=2, schedule="dynamic", n_jobs=2)
    without_client(monkeypatch)
    with pytest.warns(ConvergenceWarning, match=r"Lasso stopped at a relative duality gap of .*max_iter=2"):
        model.fit(da.from_array(X, chunks=(N, 60)), y)


# Its parts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_rows", [100, 3000])
def test_images_are_about_correlations(kind, n_rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 8)) + 2
    X[:, 4:] = X[:, :4] + np.array([0.1, 0.5, 1, 2]) * rng.standard_normal((n_rows, 4))
    X[:, 3] *= 1e200
    if kind == "sparse":
        X = sparse.csc_array(X)
    weights = rng.integers(0, 3, n_rows).astype(float)
    expected = dense_of(X)
    expected[:, 3] /= 1e200
    expected = np.cov(expected.T, aweights=weights, ddof=0)
    expected /= np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    images = Images.of(weights, True)(columns_of(np.asfortranarray(X) if kind == "dense" else X))
    error = 1e-5 if n_rows <= MOST_ENTRIES else 5 / np.sqrt(MOST_ENTRIES)  # five standard deviations
    np.testing.assert_allclose(images @ images.T, expected, atol=error)


# On a cluster -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    """Two processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def chunked(X, folder=None, width=60):
    """Chunks of columns that workers make, and note if they do."""

    def read(block):
        import tempfile

        if folder is not None:
            tempfile.mkstemp(dir=folder)
        return block

    return da.from_array(X, chunks=(N, width)).map_blocks(read, dtype=X.dtype, meta=np.empty((0, 0)))


def without_client(monkeypatch):
    def no_client():
        raise ValueError("none")

    monkeypatch.setattr(distributed, "default_client", no_client)


@pytest.mark.cluster
@pytest.mark.parametrize("again", [pytest.param(False, marks=pytest.mark.slow), True])
def test_blocks_are_read_once_or_for_each_pass_where_memory_is_short(client, tmp_path, monkeypatch, again):
    if again:
        monkeypatch.setattr(sparse_distributed, "_MOST_MEMORY", 1e-9)
    X, y = problem()
    model = sd.Lasso(alpha=0.1, tol=1e-6, schedule="dynamic").fit(chunked(X, tmp_path), y)
    n_reads = len(list(tmp_path.iterdir()))
    if again:  # as "auto" does where memory is short
        auto = sd.Lasso(alpha=0.1, tol=1e-6).fit(chunked(X), y)
        assert auto.schedule_ == "columns"
        np.testing.assert_array_equal(auto.coef_, model.coef_)
        free = np.append(0.0, np.ones(P - 1))
        assert sd.Lasso(alpha=0.1, penalty_factor=free).fit(chunked(X), y).schedule_ == "working-set"
    assert n_reads == 4 if not again else 4 < n_reads <= 4 * model.n_iter_
    local = sd.Lasso(alpha=0.1, tol=1e-6, schedule="dynamic", n_jobs=2)
    without_client(monkeypatch)
    local.fit(da.from_array(X, chunks=(N, 60)), y)
    np.testing.assert_array_equal(model.coef_, local.coef_)
    assert model.dual_gap_ == local.dual_gap_


@pytest.mark.cluster
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_worker_costs_its_columns(tmp_path, monkeypatch, again):
    if again:
        monkeypatch.setattr(sparse_distributed, "_MOST_MEMORY", 1e-9)
    X, y = problem()
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        victim = next(iter(cluster.workers.values())).process.pid
        reads = []

        def kill(info):
            reads.append(len(list(tmp_path.iterdir())))
            if info.round == 5:
                os.kill(victim, signal.SIGKILL)

        model = sd.Lasso(alpha=0.1, tol=1e-8, schedule="dynamic")
        model.fit(chunked(X, tmp_path), y, callback=kill)
    assert len(reads) > 8
    if not again:
        assert reads[4] == 4
        assert reads[-1] == 6  # the two blocks of the lost worker
    ones = np.ones(N)
    l1, l2 = np.full(P, N * 0.1), np.zeros(P)
    _, gap = gap_outside(X, y, model.coef_, model.intercept_, l1, l2, ones, False, True)
    assert gap <= 1.01e-8 * N * y.var() / 2


@pytest.mark.cluster
def test_a_matrix_of_this_process_is_cut_by_columns_whatever_its_shape(client):
    X, y = problem()
    X = X[:, :20]
    model = sd.Lasso(0.1, tol=1e-9, schedule="dynamic", engine=client).fit(X, y)
    assert model.schedule_ == "columns"
    peer = linear_model.Lasso(0.1, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-4)


@pytest.mark.cluster
def test_what_cannot_be_used_is_named(client, monkeypatch):
    X, y = problem()
    lasso = sd.Lasso(alpha=0.1, schedule="dynamic")
    with pytest.raises(DataError, match=r"cut by rows: call X\.rechunk"):
        lasso.fit(da.from_array(X[:, :20], chunks=(20, 20)), y)
    factors = np.ones(P)
    factors[7] = 0
    with pytest.raises(DataError, match=r"penalty_factor\[7\] is 0: take schedule='auto'"):
        sd.Lasso(alpha=0.1, schedule="dynamic", penalty_factor=factors).fit(chunked(X), y)
    with pytest.raises(DataError, match="alpha or l1_ratio is 0"):
        sd.ElasticNet(alpha=0.1, l1_ratio=0, schedule="dynamic").fit(chunked(X), y)
    bad = X.copy()
    bad[3, 200] = np.nan
    for share in (0.5, 1e-9):
        monkeypatch.setattr(sparse_distributed, "_MOST_MEMORY", share)
        with pytest.raises(DataError, match=r"in the columns of X from 180 on: .*NaN in row 3, column 20"):
            lasso.fit(chunked(bad), y)
