"""float32 data: gaps and intercepts are those of the coefficients that are returned."""

import numpy as np
import pytest
from lasso_problems import gap as gap_of
from logistic_problems import Reference
from scipy import sparse

import stradask as sd
from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.benchmarks.gaps import logistic_gap

FORMS = {"dense": np.asfortranarray, "csc": sparse.csc_array}
TOL = 1e-10


def problem(n=200, p=50):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, p)) + 3).astype(np.float32)
    return X, X[:, 0] - 2.0 * X[:, 3] + 100 + rng.normal(size=n), rng.integers(0, 4, n).astype(float)


def assert_own_gap(X, y, coef, intercept, gap, **options):
    """Against the gap of the coefficients alone, and the mean of their residual, in float64."""
    X, coef = X.astype(float), np.asarray(coef, float)
    true = gap_of(X, y, coef, **options)
    np.testing.assert_allclose(gap, true, rtol=1e-3, atol=1e-12)
    if intercept is not None:
        residual = y - X @ coef - intercept
        assert abs(np.average(residual, weights=options.get("weights"))) < 1e-11
    return true


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gap_is_that_of_the_coefficients(form, l1_ratio, fit_intercept, weighted):
    X, y, w = problem()
    weights = w if weighted else None
    model = sd.ElasticNet(0.1, l1_ratio=l1_ratio, tol=TOL, fit_intercept=fit_intercept)
    model.fit(FORMS[form](X), y, weights)
    assert model.coef_.dtype == np.float32
    assert model.predict(X).dtype == np.float32
    own = {"alpha": 0.1, "l1_ratio": l1_ratio, "weights": weights, "fit_intercept": fit_intercept}
    intercept = model.intercept_ if fit_intercept else None
    true = assert_own_gap(X, y, model.coef_, intercept, model.dual_gap_, **own)
    assert true > 1e-10  # of what was rounded: the solver's own was below


def test_several_targets_and_the_dynamic_schedule():
    X, y, _ = problem()
    both = sd.Lasso(0.1, tol=TOL).fit(X, np.column_stack([y, -y + X[:, 7]]))
    assert both.predict(X).dtype == np.float32
    for k, target in enumerate((y, -y + X[:, 7])):
        assert_own_gap(X, target, both.coef_[k], both.intercept_[k], both.dual_gap_[k], alpha=0.1)
    drawn = sd.Lasso(0.1, tol=1e-8, schedule="dynamic", random_state=0, max_iter=5000).fit(X, y)
    assert_own_gap(X, y, drawn.coef_, drawn.intercept_, drawn.dual_gap_, alpha=0.1)


def test_every_model_of_a_path():
    X, y, _ = problem()
    alphas, coefs, gaps, intercepts = sd.lasso_path(X, y, n_alphas=6, tol=TOL, fit_intercept=True)
    for alpha, coef, gap, intercept in zip(alphas, coefs.T, gaps, intercepts, strict=True):
        assert_own_gap(X, y, coef, intercept, gap, alpha=alpha)


def test_the_model_of_a_cross_validation():
    X, y, _ = problem()
    model = sd.LassoCV(alphas=8, eps=0.01, cv=3, tol=TOL).fit(X, y)
    assert_own_gap(X, y, model.coef_, model.intercept_, model.dual_gap_, alpha=model.alpha_)


@pytest.mark.parametrize("by_rows", [True, False])
def test_blocks_of_dask(by_rows):
    da = pytest.importorskip("dask.array")
    X, y, w = problem(200, 50)
    X = X if by_rows else X[:40]
    y, w = y[: len(X)], w[: len(X)]
    blocks = da.from_array(X, chunks=(len(X) // 4, 50) if by_rows else (len(X), 20))
    model = sd.Lasso(0.1, tol=TOL).fit(blocks, y, w)
    assert_own_gap(X, y, model.coef_, model.intercept_, model.dual_gap_, alpha=0.1, weights=w)


@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_unpenalised_columns(factor):
    X, y, _ = problem()
    factors = np.ones(50)
    factors[:3] = factor
    model = sd.Lasso(0.1, tol=TOL, penalty_factor=factors).fit(X, y)
    exact = sd.Lasso(0.1, tol=1e-13, penalty_factor=factors).fit(X.astype(float), y)
    residual = y - X.astype(float) @ model.coef_.astype(float) - model.intercept_
    assert abs(residual.mean()) < 1e-11

    def objective(m):
        r = y - X.astype(float) @ m.coef_.astype(float) - m.intercept_
        return r @ r / 400 + 0.1 * factors @ np.abs(m.coef_.astype(float))

    assert objective(model) - objective(exact) - 1e-13 <= model.dual_gap_ < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_two_classes_with_an_intercept(form):
    X, *_ = problem()
    labels = (X[:, 0] - X[:, 3] + np.random.default_rng(1).logistic(size=len(X)) > 0).astype(int)
    model = sd.SparseLogisticRegression(0.01, tol=TOL).fit(FORMS[form](X), labels)
    counts = np.bincount(labels) / len(X)
    unit = -(counts @ np.log(counts))  # the mean loss of the intercept alone
    own = model.coef_[0].astype(float), 0.01, float(model.intercept_[0])
    true = unit * logistic_gap(X.astype(float), np.where(labels > 0, 1.0, -1.0), *own)[0]
    assert true > 1e-10
    np.testing.assert_allclose(model.dual_gap_, true, rtol=0.02)
    cross = sd.SparseLogisticRegressionCV(alphas=6, eps=0.1, cv=3, tol=TOL).fit(FORMS[form](X), labels)
    own = cross.coef_[0].astype(float), cross.alpha_, float(cross.intercept_[0])
    true = unit * logistic_gap(X.astype(float), np.where(labels > 0, 1.0, -1.0), *own)[0]
    np.testing.assert_allclose(cross.dual_gap_, true, rtol=0.02, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_without_an_intercept(n_classes):
    X, _, _ = problem()
    X = X - np.float32(3)
    labels = np.digitize(X[:, 0] - X[:, 3], [0.0] if n_classes == 2 else [-1.0, 1.0])
    model = sd.SparseLogisticRegression(0.01, tol=TOL, fit_intercept=False).fit(X, labels)
    reference = Reference(X, labels, L1L2(0.01 * len(X)), fit_intercept=False)
    true = reference.gap(model.coef_.T.astype(float), np.zeros(reference.K)) / len(X)
    assert true > 1e-10
    np.testing.assert_allclose(model.dual_gap_, true, rtol=0.02)


def test_unpenalised_columns_held_at_or_above_zero_have_a_gap_that_means_something():
    X, y, _ = problem()
    options = {"positive": True, "penalty_factor": np.r_[0.0, np.ones(49)]}
    model = sd.Lasso(0.1, tol=TOL, **options).fit(X, y)
    exact = sd.Lasso(0.1, tol=TOL, **options).fit(X.astype(float), y)
    assert model.dual_gap_ < 1e-6
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-4)
    assert abs((y - X.astype(float) @ model.coef_.astype(float) - model.intercept_).mean()) < 1e-11
