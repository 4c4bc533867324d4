"""An infinite penalty factor excludes a column: the model is that of the other columns."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.errors import DataError

P = 30
OUT = np.array([0, 1, 7, 29])
KEPT = np.setdiff1d(np.arange(P), OUT)
FORMS = {"dense": np.asfortranarray, "csc": sparse.csc_array}


def problem(n=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, P)) + 1
    z = 3 * X[:, 0] + 2 * X[:, 1] - 2 * X[:, 3] + X[:, 8]  # the best columns are excluded
    return X, z + rng.normal(size=n), (z + rng.logistic(size=n) > z.mean()).astype(int)


def factors(others):
    out = np.full(P, np.inf)
    out[KEPT] = others
    return out


def cases():
    tight = {"tol": 1e-12}
    yield "lasso", sd.Lasso(0.05, **tight), 1
    yield "net", sd.ElasticNet(0.1, l1_ratio=0.3, **tight), 1
    yield "ridge", sd.ElasticNet(0.1, l1_ratio=0.0, **tight), 1
    yield "positive", sd.Lasso(0.05, positive=True, fit_intercept=False, **tight), 1
    yield "scaled", sd.Lasso(0.05, standardize=True, **tight), 1
    yield "dynamic", sd.Lasso(0.05, schedule="dynamic", random_state=0, tol=1e-9), 1
    yield "classes", sd.SparseLogisticRegression(0.01, **tight), 2
    yield "classes net", sd.SparseLogisticRegression(0.01, l1_ratio=0.5, standardize=True, **tight), 2
    yield "lasso cv", sd.LassoCV(alphas=6, eps=0.05, cv=3, **tight), 1
    yield "net cv", sd.ElasticNetCV(l1_ratio=0.3, alphas=5, eps=0.1, cv=3, **tight), 1
    yield "classes cv", sd.SparseLogisticRegressionCV(alphas=5, eps=0.1, cv=3, **tight), 2


CASES = [pytest.param(model, which, id=name) for name, model, which in cases()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("model", "which"), CASES)
def test_the_model_is_that_of_the_other_columns(form, model, which):
    data = problem()
    X, y, weights = data[0], data[which], np.arange(120) % 4 / 2
    own = np.random.default_rng(1).choice([0.5, 1.0, 2.0, 0.0], len(KEPT), p=[0.3, 0.3, 0.3, 0.1])
    if getattr(model, "schedule", "") == "dynamic":
        own += 0.5
    whole = model.set_params(penalty_factor=factors(own)).fit(FORMS[form](X), y, weights)
    coef, gap, intercept = whole.coef_.copy(), whole.dual_gap_, np.copy(whole.intercept_)
    alpha, largest = getattr(whole, "alpha_", None), whole.alpha_max(FORMS[form](X), y, weights)
    part = model.set_params(penalty_factor=own).fit(FORMS[form](X[:, KEPT]), y, weights)
    assert (np.atleast_2d(coef)[:, OUT] == 0).all()
    np.testing.assert_allclose(np.atleast_2d(coef)[:, KEPT], np.atleast_2d(part.coef_), atol=1e-4)
    np.testing.assert_allclose(intercept, part.intercept_, atol=1e-4)
    assert gap <= 1e-7
    if alpha is not None:
        assert alpha == pytest.approx(part.alpha_, rel=1e-9)
    expected = part.alpha_max(FORMS[form](X[:, KEPT]), y, weights)
    np.testing.assert_allclose(largest, expected, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_paths(form):
    X, y, _ = problem()
    options = {"n_alphas": 5, "eps": 0.01, "tol": 1e-12, "fit_intercept": True}
    start = np.ones(P)
    found = sd.lasso_path(FORMS[form](X), y, penalty_factor=factors(1.0), coef_init=start, **options)
    expected = sd.lasso_path(FORMS[form](X[:, KEPT]), y, **options)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    assert (found[1][OUT] == 0).all()
    np.testing.assert_allclose(found[1][KEPT], expected[1], atol=1e-5)
    assert found[2].max() < 1e-9


@pytest.mark.parametrize("by_rows", [True, False])
def test_blocks_of_dask(by_rows):
    da = pytest.importorskip("dask.array")
    X, y, labels = problem()
    blocks = da.from_array(X, chunks=(40, P) if by_rows else (120, 10))
    for model, target in ((sd.Lasso(0.05, tol=1e-12), y), (sd.SparseLogisticRegression(tol=1e-12), labels)):
        model.set_params(penalty_factor=factors(1.0))
        here = model.fit(X, target).coef_.copy()
        there = model.fit(blocks, target)
        np.testing.assert_allclose(there.coef_, here, atol=1e-6)
        assert model.alpha_max(blocks, target) == pytest.approx(model.alpha_max(X, target), rel=1e-9)
        assert (np.atleast_2d(there.coef_)[:, OUT] == 0).all()


@pytest.mark.filterwarnings("ignore:alpha=0")
def test_not_even_without_a_penalty_nor_from_an_earlier_model():
    X, y, _ = problem()
    free = sd.Lasso(0.0, penalty_factor=factors(1.0), tol=1e-12).fit(X, y)
    A = np.column_stack([X[:, KEPT], np.ones(len(X))])
    np.testing.assert_allclose(free.coef_[KEPT], np.linalg.lstsq(A, y)[0][:-1], atol=1e-8)
    assert (free.coef_[OUT] == 0).all()
    warm = sd.Lasso(0.05, warm_start=True, tol=1e-12).fit(X, y)
    assert warm.coef_[0] != 0
    again = warm.set_params(penalty_factor=factors(1.0)).fit(X, y)
    assert (again.coef_[OUT] == 0).all()


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_if_all_columns_are_excluded_the_intercept_is_left(alpha, tmp_path):
    X, y, labels = problem()
    none = np.full(P, np.inf)
    model = sd.Lasso(alpha, penalty_factor=none).fit(X, y)
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(y.mean(), rel=1e-14)
    assert model.dual_gap_ <= 1e-12
    assert model.alpha_max(X, y) == 0
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(sd.load(tmp_path / "model").penalty_factor, none)
    logistic = sd.SparseLogisticRegression(alpha, penalty_factor=none).fit(X, labels)
    assert not logistic.coef_.any()
    assert logistic.intercept_[0] == pytest.approx(np.log(labels.mean() / (1 - labels.mean())), rel=1e-8)
    assert not sd.LassoCV(alphas=3, cv=3, penalty_factor=none).fit(X, y).coef_.any()
    with pytest.raises(DataError, match="inf for every column"):
        sd.Lasso(alpha, penalty_factor=none, schedule="dynamic").fit(X, y)
