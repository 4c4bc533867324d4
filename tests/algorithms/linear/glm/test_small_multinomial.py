"""Newton's method for several classes: optimality conditions from the data, and the ways out."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import stradask as sd
from stradask.algorithms.linear.glm import choose, small_multinomial


def data(seed, n=120, p=5, n_classes=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * 10 ** rng.uniform(-1, 1, p) + rng.uniform(-30, 30, p)
    X[:, 1] = X[:, 0] + 0.1 * rng.standard_normal(n)
    F = (X - X.mean(0)) @ rng.standard_normal((p, n_classes)) / X.std(0).max() + rng.gumbel(
        size=(n, n_classes)
    )
    return X, F.argmax(axis=1), rng.uniform(0.1, 2, n) * (rng.random(n) < 0.9)


def gradient(model, X, y, w, C):
    F = X @ model.coef_.T + model.intercept_
    P = np.exp(F - F.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    P[np.arange(len(y)), np.searchsorted(model.classes_, y)] -= 1
    residual = C * w[:, None] * P
    return residual.T @ X + model.coef_, residual.sum(axis=0)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("weighted", [True, False])
def test_gradients_vanish(intercept, C, weighted):
    X, y, w = data(0)
    model = sd.LogisticRegression(C=C, fit_intercept=intercept, tol=1e-14)
    model.fit(X, y, w if weighted else None)
    assert model.solver_ == "newton"
    g, sums = gradient(model, X, y, w if weighted else np.ones(len(y)), C)
    assert abs(g).max() <= 1e-6 * C * abs(X).sum(axis=0).max()
    assert abs(model.coef_.sum(axis=0)).max() < 1e-9
    if intercept:
        assert abs(sums).max() <= 1e-8 * C * len(y)
    objective = model.history_["objective"]
    assert len(objective) == model.n_iter_
    assert (np.diff(objective) <= 1e-9 * abs(objective[:-1])).all()


def test_models_are_those_of_l_bfgs_and_of_scikit_learn():
    X, y = load_iris(return_X_y=True)
    model = sd.LogisticRegression(tol=1e-12).fit(X, y)
    other = sd.LogisticRegression(solver="lbfgs", tol=1e-12).fit(X, y)
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=1000).fit(X, y)
    assert (model.solver_, other.solver_) == ("newton", "lbfgs")
    for one in (other, theirs):
        np.testing.assert_allclose(model.coef_, one.coef_, atol=1e-5)
    single = sd.LogisticRegression().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, model.coef_, atol=2e-3)


def test_a_callback_sees_models_and_ends_the_fit():
    X, y, _ = data(1)
    seen = []

    def callback(info):
        seen.append(info.snapshot().score(X, y))
        return len(seen) == 2

    model = sd.LogisticRegression().fit(X, y, callback=callback)
    assert len(seen) == model.n_iter_ == 2
    assert seen[-1] == model.score(X, y)


def test_what_is_not_small_or_not_penalised_goes_another_way(monkeypatch):
    X, y, _ = data(2)
    assert sd.LogisticRegression(C=np.inf, tol=1e-4).fit(X, y).solver_ == "lbfgs"
    wide, labels = np.random.default_rng(0).standard_normal((60, 40)), np.arange(60) % 3
    assert sd.LogisticRegression().fit(wide, labels).solver_ == "lbfgs"
    best = sd.LogisticRegression(tol=1e-10).fit(X, y)
    monkeypatch.setattr(small_multinomial, "dposv", lambda H, b, lower: (H, b, 1))
    model = sd.LogisticRegression(tol=1e-10).fit(X, y)
    assert model.solver_ == "lbfgs"
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-3)
    assert choose.minimize_small_multinomial is small_multinomial.minimize_small_multinomial
