"""Lasso and elastic net in use: threads, memory, forms of input, model files, searches, paths."""

import tracemalloc

import numpy as np
import pytest
import scipy
from lasso_problems import FORMS, gap, problem
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path as their_enet_path

import stradask as sd


# --- threads, memory, input -------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["fortran", "csc"])
def test_the_same_bits_on_any_number_of_threads(form):
    X, y = problem(150, 3000, density=0.1 if form == "csc" else 1.0)
    fits = [sd.Lasso(0.02, tol=1e-8, n_jobs=n).fit(FORMS[form](X), y) for n in (1, 2, 4, -1)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].coef_, other.coef_)
        assert fits[0].intercept_ == other.intercept_
        assert fits[0].dual_gap_ == other.dual_gap_
        np.testing.assert_array_equal(fits[0].history_["objective"], other.history_["objective"])


def frozen(X):
    for part in ("data", "indices", "indptr") if sparse.issparse(X) else ():
        getattr(X, part).flags.writeable = False
    if not sparse.issparse(X):
        X.flags.writeable = False
    return X


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        *[(form, np.float64) for form in ("fortran", "c", "csr", "csc")],
        *[(form, np.float32) for form in ("c", "csr")],  # no kernels more are compiled for these
    ],
)
def test_read_only_input_stays_as_it_is(form, dtype):
    X, y = problem(density=0.4)
    given = frozen(FORMS[form](X.astype(dtype)))
    y.flags.writeable = False
    weights = frozen(np.arange(60.0))
    model = sd.ElasticNet(0.1, copy_X=False, standardize=True).fit(given, y, weights)
    kept = given.toarray() if sparse.issparse(given) else given
    np.testing.assert_array_equal(kept, X.astype(dtype))
    assert model.coef_.dtype == dtype
    assert model.predict(given).dtype == dtype


def test_memory_mapped_input(tmp_path):
    X, y = problem()
    for order in "FC":
        file = np.memmap(tmp_path / f"X{order}", dtype=np.float64, mode="w+", shape=X.shape, order=order)
        file[:] = X
        file.flush()
        mapped = np.memmap(tmp_path / f"X{order}", dtype=np.float64, mode="r", shape=X.shape, order=order)
        model = sd.Lasso(0.1).fit(mapped, y)
        np.testing.assert_array_equal(model.coef_, sd.Lasso(0.1).fit(np.array(X, order=order), y).coef_)


@pytest.mark.parametrize(("form", "copies"), [("fortran", 0), ("csc", 0), ("c", 1), ("csr", 1)])
@pytest.mark.parametrize("standardize", [pytest.param(False, marks=pytest.mark.slow), True])
def test_x_is_copied_at_most_once(form, copies, standardize):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 5000))
    if form in ("csr", "csc"):
        X[X < 0.8] = 0
    y = rng.standard_normal(len(X))
    X = FORMS[form](X)
    size = X.nbytes if form in ("fortran", "c") else X.data.nbytes + X.indices.nbytes
    model = sd.Lasso(0.1, standardize=standardize)
    model.set_params(alpha=0.5 * model.fit(X[:, :50], y).alpha_max(X, y))
    model.fit(X, y)  # loads modules and compiled code
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # scipy copies the indices, a third, while it turns rows into columns, but not from 1.17 on.
    old = tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 17)
    assert peak <= (copies + 0.3 + (form == "csr" and old) / 3) * size


def test_int64_indices():
    X, y = problem(density=0.3)
    wide = sparse.csc_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    reference = sd.Lasso(0.1).fit(sparse.csc_array(X), y)
    np.testing.assert_allclose(sd.Lasso(0.1).fit(wide, y).coef_, reference.coef_, rtol=1e-10)
    rows = sparse.csr_array(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    np.testing.assert_allclose(sd.Lasso(0.1).fit(rows, y).coef_, reference.coef_, rtol=1e-10)
    np.testing.assert_allclose(reference.predict(wide), reference.predict(X), rtol=1e-12)


def test_sparse_coefficients_are_the_coefficients():
    X, y = problem()
    model = sd.Lasso(0.5).fit(X, np.column_stack([y, -y]))
    assert model.sparse_coef_.format == "csr"
    np.testing.assert_array_equal(model.sparse_coef_.toarray(), model.coef_)
    assert model.sparse_coef_.nnz == (model.coef_ != 0).sum()


# --- paths ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("l1_ratio", [0.4, 1.0])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("form", ["fortran", "csr"])
def test_paths_are_scikit_learns(form, positive, l1_ratio):
    X, y = problem(density=0.5 if form == "csr" else 1.0)
    options = {"l1_ratio": l1_ratio, "positive": positive, "eps": 1e-2}
    alphas, coefs, gaps, n_iters = sd.enet_path(
        FORMS[form](X), y, n_alphas=12, tol=1e-10, return_n_iter=True, **options
    )
    theirs = their_enet_path(X, y, alphas=alphas, tol=1e-12, max_iter=100_000, **options)
    np.testing.assert_allclose(coefs, theirs[1], atol=1e-5)
    assert alphas[0] * l1_ratio == pytest.approx((X.T @ y if positive else np.abs(X.T @ y)).max() / 60)
    np.testing.assert_allclose(alphas[1:] / alphas[:-1], 100 ** (-1 / 11))
    assert (gaps >= 0).all()
    assert len(n_iters) == 12
    for k in (0, 6, 11):
        measured = gap(
            X, y, coefs[:, k], alpha=alphas[k], l1_ratio=l1_ratio, positive=positive, fit_intercept=False
        )
        assert measured <= gaps[k] + 1e-12 * (y @ y)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
def test_paths_are_single_fits_point_by_point(fit_intercept, standardize):
    X, y = problem(50, 120)
    factor = np.random.default_rng(4).uniform(0.5, 2, 120)
    factor[5] = 0
    weights = np.random.default_rng(5).uniform(0, 2, 50)
    options = {
        "penalty_factor": factor,
        "standardize": standardize,
        "fit_intercept": fit_intercept,
        "tol": 1e-11,
    }
    alphas, coefs, gaps, *intercepts = sd.lasso_path(
        X, y, n_alphas=8, eps=0.02, sample_weight=weights, **options
    )
    assert len(intercepts) == fit_intercept
    for k, alpha in enumerate(alphas):
        model = sd.Lasso(alpha, **options).fit(X, y, weights)
        np.testing.assert_allclose(coefs[:, k], model.coef_, atol=1e-5)
        if fit_intercept:
            assert intercepts[0][k] == pytest.approx(model.intercept_, abs=1e-5)
    penalised = np.delete(np.arange(120), 5)
    assert (coefs[penalised, 0] == 0).all()
    assert (
        gaps <= 1e-11 * np.average((y - fit_intercept * np.average(y, weights=weights)) ** 2, weights=weights)
    ).all()


def test_paths_take_alphas_in_any_order_and_by_number():
    X, y = problem()
    alphas, coefs, _ = sd.lasso_path(X, y, alphas=[0.1, 10, 1], tol=1e-8)
    assert alphas.tolist() == [10, 1, 0.1]
    np.testing.assert_allclose(
        coefs[:, 2], sd.Lasso(0.1, fit_intercept=False, tol=1e-8).fit(X, y).coef_, atol=1e-3
    )
    by_number = sd.lasso_path(X, y, alphas=7)[0]
    np.testing.assert_array_equal(by_number, sd.lasso_path(X, y, n_alphas=7)[0])
    assert sd.lasso_path(X, y)[1].shape == (30, 100)


def test_a_path_of_sparse_coefficients_takes_little():
    rng = np.random.default_rng(0)
    X = sparse.random_array((50, 200_000), density=1e-3, format="csc", rng=rng)
    y = X @ np.r_[np.ones(50), np.zeros(199_950)] + rng.standard_normal(50)
    _, coefs, _ = sd.lasso_path(X, y, n_alphas=20, sparse_coefs=True)
    assert coefs.format == "csc"
    assert coefs.shape == (200_000, 20)
    assert coefs.nnz < 2000
    dense = sd.lasso_path(X, y, n_alphas=20)[1]
    np.testing.assert_array_equal(coefs.toarray(), dense)


def test_a_path_from_given_coefficients():
    X, y = problem(60, 300)
    alpha = 0.02
    start = sd.Lasso(alpha, fit_intercept=False, tol=1e-9).fit(X, y)
    _, cold, _, cold_rounds = sd.lasso_path(X, y, alphas=[alpha], tol=1e-8, return_n_iter=True)
    _, warm, _, warm_rounds = sd.lasso_path(
        X, y, alphas=[alpha], tol=1e-8, return_n_iter=True, coef_init=start.coef_
    )
    assert warm_rounds[0] < cold_rounds[0]
    np.testing.assert_allclose(warm, cold, atol=1e-3)


def test_a_path_that_falls_short_warns_once():
    X, y = problem(60, 200)
    with pytest.warns(
        ConvergenceWarning, match=r"lasso_path at alpha=.* \(the worst of \d+ of 10\)"
    ) as caught:
        sd.lasso_path(X, y, n_alphas=10, max_iter=1, tol=1e-12)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="alpha=0"):
        sd.lasso_path(X[:, :5], y, alphas=[1, 0])


def test_estimators_have_their_paths():
    X, y = problem()
    np.testing.assert_array_equal(sd.Lasso.path(X, y, n_alphas=3)[1], sd.lasso_path(X, y, n_alphas=3)[1])
    np.testing.assert_array_equal(
        sd.ElasticNet.path(X, y, l1_ratio=0.3, n_alphas=3)[1], sd.enet_path(X, y, l1_ratio=0.3, n_alphas=3)[1]
    )
