"""Compiled Newton steps of small problems: optimality conditions from the data, and the ways out."""

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn import linear_model
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.algorithms.linear.glm import choose, small

BREAST = load_breast_cancer(return_X_y=True)


def data(seed, n=80, p=6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * 10 ** rng.uniform(-2, 2, p) + rng.uniform(-3, 3, p)
    X[:, 1] = X[:, 0] + 0.1 * rng.standard_normal(n)
    y = (X - X.mean(0)) @ (rng.standard_normal(p) / X.std(0)) + rng.standard_normal(n) > 0.3
    return X, y.astype(int), rng.uniform(0.1, 2, n) * (rng.random(n) < 0.9)


def violation(model, X, y, w, C, ratio):
    """How far subgradients are from containing zero, relative to the penalty or the gradient at zero."""
    signs = np.where(y == model.classes_[1], 1.0, -1.0)
    f = X @ model.coef_[0].astype(float) + model.intercept_[0]
    residual = C * w * signs / (1 + np.exp(signs * f))
    slopes = X.T @ residual - (1 - ratio) * model.coef_[0]
    b = model.coef_[0]
    apart = np.where(b != 0, np.abs(slopes - ratio * np.sign(b)), np.maximum(np.abs(slopes) - ratio, 0))
    sizes = np.sqrt(C * w @ (X - X.mean(0)) ** 2) + 1
    return max((apart / sizes).max(), abs(residual.sum()) / (C * w.sum()) if model.fit_intercept else 0.0)


@pytest.fixture
def only_small(monkeypatch):
    """Fail where another minimiser is asked."""

    def refuse(*args, **options):
        raise AssertionError("another minimiser was asked")

    for name in ("minimize_newton", "minimize_proximal_newton", "method_for"):
        monkeypatch.setattr(choose, name, refuse)


@pytest.mark.usefixtures("only_small")
@pytest.mark.parametrize("ratio", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
def test_optimality_conditions_hold(ratio, intercept, C):
    for seed in range(3):
        X, y, w = data(seed)
        for weights in (None, w):
            model = sd.LogisticRegression(C=C, l1_ratio=ratio, fit_intercept=intercept, tol=1e-12)
            model.fit(X, y, weights)
            assert model.solver_ == ("newton" if ratio == 0 else "proximal-newton")
            assert violation(model, X, y, np.ones(80) if weights is None else weights, C, ratio) < 1e-7
            objective = model.history_["objective"]
            assert len(objective) == model.n_iter_
            assert (np.diff(objective) <= 1e-9 * abs(objective[:-1])).all()


@pytest.mark.usefixtures("only_small")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_real_data_meet_the_tolerance(dtype):
    X, y = BREAST
    X = X.astype(dtype)
    signs = 2.0 * y - 1

    def objective(coef, intercept):
        f = X.astype(float) @ coef + intercept
        return np.logaddexp(0, -signs * f).sum() + 0.5 * (coef**2).sum()

    model = sd.LogisticRegression().fit(X, y)
    found = objective(model.coef_[0].astype(float), float(model.intercept_[0]))
    start = np.append(model.coef_[0], model.intercept_).astype(float)
    best = optimize.minimize(
        lambda v: objective(v[:-1], v[-1]), start, method="Nelder-Mead", options={"maxiter": 3000}
    )
    assert found <= best.fun * (1 + (1e-6 if dtype == np.float64 else 1e-4))
    theirs = linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=1000).fit(
        BREAST[0], y
    )
    assert found <= objective(theirs.coef_[0], theirs.intercept_[0]) * (
        1 + (1e-6 if dtype == np.float64 else 1e-4)
    )


@pytest.mark.usefixtures("only_small")
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_constant_columns_single_columns_and_few_rows(ratio):
    X, y, _ = data(4)
    X[:, 2], X[:, 3] = 5.0, 0.0
    model = sd.LogisticRegression(l1_ratio=ratio, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_[0, [2, 3]], 0, atol=1e-12)
    other = sd.LogisticRegression(l1_ratio=ratio, tol=1e-10).fit(np.delete(X, [2, 3], axis=1), y)
    np.testing.assert_allclose(
        model.predict_proba(X), other.predict_proba(np.delete(X, [2, 3], axis=1)), atol=1e-5
    )
    single = sd.LogisticRegression(l1_ratio=ratio, tol=1e-12).fit(X[:, :1], y)
    assert violation(single, X[:, :1], y, np.ones(80), 1.0, ratio) < 1e-7
    two = sd.LogisticRegression(l1_ratio=ratio, tol=1e-12).fit([[-1.0], [1.0]], [0, 1])
    # sum of log(1 + exp(-b)) twice, plus the penalty of b
    b = optimize.brentq(lambda b: 2 / (1 + np.exp(b)) - (b if ratio == 0 else 1), 0, 5)
    assert two.coef_[0, 0] == pytest.approx(b, abs=1e-5)


@pytest.mark.usefixtures("only_small")
def test_poisson_regression_has_scikit_learns_minimum():
    X, _, w = data(5)
    X = (X - X.mean(0)) / X.std(0)
    y = np.random.default_rng(0).poisson(np.exp(0.5 * X[:, 0] + 1))
    for alpha in (0.01, 1.0):
        ours = sd.PoissonRegressor(alpha=alpha, tol=1e-12).fit(X, y, w)
        theirs = linear_model.PoissonRegressor(alpha=alpha, tol=1e-12, max_iter=10_000).fit(X, y, w)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
        assert ours.history_["objective"][-1] >= 0


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_columns_that_repeat_each_other_go_another_way_without_a_penalty(ratio):
    X, y, _ = data(6)
    X = np.column_stack([X, X[:, :2]])
    y = y ^ (np.random.default_rng(0).random(80) < 0.2)
    model = sd.LogisticRegression(C=np.inf if ratio == 0 else 1e6, l1_ratio=ratio, tol=1e-10).fit(X, y)
    other = sd.LogisticRegression(C=np.inf if ratio == 0 else 1e6, l1_ratio=ratio, tol=1e-10).fit(X[:, :6], y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X[:, :6]), atol=1e-3)


def test_separated_classes_without_a_penalty_warn():
    X = np.linspace(-1, 1, 20)[:, None]
    with pytest.warns(ConvergenceWarning, match="separates"):
        sd.LogisticRegression(C=np.inf).fit(X, X[:, 0] > 0)


def test_steps_are_seen_limited_and_continued():
    X, y = BREAST
    seen = []

    def callback(info):
        seen.append((info.round, info.snapshot().coef_.copy()))
        return info.round == 3

    model = sd.LogisticRegression(tol=1e-10).fit(X, y, callback=callback)
    assert [number for number, _ in seen] == [1, 2, 3]
    assert model.n_iter_ == 3
    np.testing.assert_array_equal(model.coef_, seen[-1][1])
    with pytest.warns(ConvergenceWarning, match="stopped short"):
        short = sd.LogisticRegression(tol=1e-10, max_iter=3).fit(X, y)
    np.testing.assert_array_equal(short.coef_, model.coef_)
    whole = sd.LogisticRegression(tol=1e-10, warm_start=True).fit(X, y)
    assert whole.fit(X, y).n_iter_ <= 2


def test_what_is_not_small_or_not_dense_goes_the_other_way(monkeypatch):
    calls, inner = [], small.minimize_small
    monkeypatch.setattr(
        choose, "minimize_small", lambda *args, **more: calls.append(1) or inner(*args, **more)
    )
    X, y, _ = data(7)
    sd.LogisticRegression().fit(sparse.csr_array(X * (np.random.default_rng(0).random(X.shape) < 0.2)), y)
    sd.LogisticRegression(solver="sandblaster").fit(X, y)
    sd.LogisticRegression().fit(np.random.default_rng(0).standard_normal((80, 150)), y)
    sd.LogisticRegression().fit(X, np.arange(80) % 3)
    assert not calls
    sd.LogisticRegression().fit(X, y)
    assert calls
