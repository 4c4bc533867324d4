"""Paths and searches of rows on workers, by one pass over them, against those of an array in this process."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import ShuffleSplit

import stradask as sd
from stradask.scheduler.sums.cluster_passes import ClusterPasses

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.cluster
rng = np.random.default_rng(0)
N, P = 240, 24
X = np.sort(rng.standard_normal((N, P)) + rng.uniform(0, 20, P), axis=0)[:, rng.permutation(P)]
X[:, 1:] = rng.permuted(X[:, 1:], axis=0)  # column 0 stays sorted: its first block is far from the mean
X[:, 5] = 3.0
Y = X[:, :4] @ [2.0, -1, 1, 0.5] + rng.standard_normal(N)
WEIGHTS = rng.uniform(0.5, 2, N) * (rng.random(N) < 0.9)
TIGHT = {"alphas": 20, "eps": 0.01, "tol": 1e-10}


@pytest.fixture(scope="module", autouse=True)
def client():
    """Two workers in this process."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def passes(monkeypatch):
    """Names of the passes over the rows."""
    names, run = [], ClusterPasses.run

    def noted(self, request):
        names.append(request[0])
        return run(self, request)

    monkeypatch.setattr(ClusterPasses, "run", noted)
    return names


def rows(matrix):
    """A Dask array of five blocks of rows."""
    if not sparse.issparse(matrix):
        return da.from_array(matrix, chunks=(50, P))
    blocks = [matrix[k : k + 50] for k in range(0, N, 50)]
    return da.concatenate(
        [
            da.from_delayed(_delayed(block), block.shape, block.dtype, meta=sparse.csr_array((0, 0)))
            for block in blocks
        ]
    )


def _delayed(block):
    import dask

    return dask.delayed(lambda: block)()


@pytest.mark.parametrize("options", [{}, {"positive": True}, {"fit_intercept": False}, {"standardize": True}])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_search_is_one_pass(passes, options, weights):
    ours = sd.LassoCV(cv=4, **TIGHT, **options).fit(rows(X), Y, weights)
    wanted = sd.LassoCV(cv=4, **TIGHT, **options).fit(X, Y, weights)
    for name in ("alphas_", "mse_path_", "coef_", "intercept_", "alpha_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(wanted, name), rtol=1e-7, atol=1e-9)
    assert ours.dual_gap_ <= 1e-10 * np.var(Y) * N
    assert passes.count("moments") <= 2  # the second one about the means, which block 0 does not tell
    assert set(passes) <= {"first_means", "moments", "ranges"}


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
def test_folds_that_overlap_and_other_types(passes, form):
    matrix = form(X)
    local = sparse.csc_array(matrix) if sparse.issparse(matrix) else np.asfortranarray(matrix)
    options = {"cv": ShuffleSplit(3, random_state=0), "l1_ratio": [0.5, 1.0], **TIGHT}
    ours = sd.ElasticNetCV(**options).fit(rows(matrix), Y)
    wanted = sd.ElasticNetCV(**options).fit(local, Y)
    tol = 1e-4 if matrix.dtype == np.float32 else 1e-7
    for name in ("alphas_", "mse_path_", "coef_", "intercept_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(wanted, name), rtol=tol, atol=tol)
    assert ours.coef_.dtype == matrix.dtype
    assert len(passes) <= 10  # training rows that are not the rest of all have passes of their own


def test_a_path_is_one_pass(passes):
    options = {"fit_intercept": True, "alphas": 30, "tol": 1e-7}
    ours = sd.lasso_path(rows(X), da.from_array(Y, chunks=50), engine="dask", **options)
    squares = sd.lasso_path(da.from_array(X, chunks=(50, 10)), Y, **options)
    assert len(passes) <= 10
    assert passes.count("moments") == 2
    passes.clear()
    sent = sd.lasso_path(X, Y, engine="dask", **options)
    assert set(passes) == {"weighted_sums", "slopes_at", "sums"}
    assert passes.count("weighted_sums") <= 2  # of the largest strength, and of the path
    assert passes.count("slopes_at") <= 60  # about one for each strength
    for paths in zip(ours, squares, sent, sd.lasso_path(X, Y, **options), strict=True):
        for found in paths[:3]:
            np.testing.assert_allclose(found, paths[3], rtol=1e-7, atol=1e-3)  # a gap of 1e-7: its root


def test_other_scores_and_wide_rows_have_x_in_a_task(passes):
    ours = sd.LassoCV(cv=3, scoring="r2", **TIGHT).fit(rows(X), Y)
    wanted = sd.LassoCV(cv=3, scoring="r2", **TIGHT).fit(X, Y)
    np.testing.assert_allclose(ours.scores_, wanted.scores_, atol=1e-7)
    passes.clear()
    few = da.from_array(X[:20], chunks=(5, P))
    assert (
        sd.LassoCV(cv=2, **TIGHT).fit(few, Y[:20]).alpha_
        == sd.LassoCV(cv=2, **TIGHT).fit(X[:20], Y[:20]).alpha_
    )
    assert not passes
