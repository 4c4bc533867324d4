"""`HuberRegressor` is scikit-learn's: its parameters, its objective, its coefficients."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import HuberRegressor as Peer

import stradask as sd


def problem(n=300, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = X @ [1.0, 2.0, 3.0] + noise * rng.standard_normal(n)
    y[: n // 10] += 30 * rng.standard_exponential(n // 10)
    return X, y, rng.integers(0, 4, n).astype(float)


def objective(model, X, y, weights):
    """scikit-learn's, written anew."""
    z, e = np.abs(y - X @ model.coef_ - model.intercept_) / model.scale_, model.epsilon
    each = model.scale_ * (1 + np.where(z <= e, z**2, 2 * e * z - e**2))
    return weights @ each + model.alpha * model.coef_ @ model.coef_


def test_the_model_of_the_defaults_is_the_peers():
    X, y, _ = problem()
    ours, theirs = sd.HuberRegressor().fit(X, y), Peer(max_iter=1000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.coef_, [1, 2, 3], atol=0.15)


@pytest.mark.parametrize("epsilon", [1.2, 1.35, 3.0])
@pytest.mark.parametrize("alpha", [1e-4, 50.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_minimum_is_the_peers(epsilon, alpha, intercept):
    X, y, weights = problem()
    options = {"epsilon": epsilon, "alpha": alpha, "fit_intercept": intercept}
    ours = sd.HuberRegressor(tol=1e-7, **options).fit(X, y, weights)
    theirs = Peer(tol=1e-8, max_iter=10_000, **options).fit(X, y, weights)
    assert objective(ours, X, y, weights) <= objective(theirs, X, y, weights) * (1 + 1e-12)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    assert ours.scale_ == pytest.approx(theirs.scale_, rel=1e-3)
    assert ours.objective_ * weights.sum() == pytest.approx(objective(ours, X, y, weights), rel=1e-12)
    rng, least, near = np.random.default_rng(1), objective(ours, X, y, weights), sd.HuberRegressor(**options)
    for _ in range(20):  # a minimum, by its neighbours
        near.coef_, near.scale_ = (
            ours.coef_ + 1e-3 * rng.standard_normal(3),
            ours.scale_ * rng.uniform(0.99, 1.01),
        )
        near.intercept_ = ours.intercept_ + intercept * 1e-3 * rng.standard_normal()
        assert objective(near, X, y, weights) > least


def test_sparse_rows_penalties_and_signs():
    X, y, weights = problem(120)
    ours = sd.HuberRegressor(alpha=5.0, tol=1e-8).fit(X, y, weights)
    far = sd.HuberRegressor(alpha=5.0, tol=1e-8).fit(sparse.csr_array(X), y, weights)
    np.testing.assert_allclose(far.coef_, ours.coef_, atol=1e-6)
    assert ours.outliers_.shape == (120,)
    assert ours.outliers_[:12].mean() > 0.5 > ours.outliers_[12:].mean()
    zeros = sd.HuberRegressor(alpha=1e3, l1_ratio=1.0).fit(X, y)
    assert (zeros.coef_ == 0).all()
    assert sd.HuberRegressor(positive=True).fit(X, -y).coef_.min() == 0


def test_rows_that_fit_perfectly_leave_a_scale():
    X = np.arange(10.0)[:, None]
    y = 2 * X[:, 0] + 1
    y[3] = 100
    model = sd.HuberRegressor(alpha=0.0).fit(X, y)
    assert model.coef_[0] == pytest.approx(2, abs=1e-4)
    assert model.outliers_.nonzero()[0].tolist() == [3]
    assert 0 < model.scale_ < 1e-4


@pytest.mark.parametrize(("alpha", "l1_ratio"), [(0.1, 1.0), (0.1, 0.5), (0.2, 0.0)])
def test_delta_is_the_objective_of_version_two_for_now(alpha, l1_ratio):
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((200, 12)), rng.uniform(0, 2, 200)
    y = 2 * X[:, 0] + rng.standard_t(2, 200)
    with pytest.warns(FutureWarning, match="version 0.4: take SparseGLM"):
        old = sd.HuberRegressor(delta=0.7, alpha=alpha, l1_ratio=l1_ratio, tol=1e-9).fit(X, y, w)

    def slopes(b):  # of the mean over the weights
        return (
            -X.T @ (w * np.clip(y - X @ b - old.intercept_, -0.7, 0.7)) / w.sum() + alpha * (1 - l1_ratio) * b
        )

    v = slopes(old.coef_)
    limit = alpha * l1_ratio
    assert np.abs(v[old.coef_ == 0]).max(initial=0) <= limit + 1e-5
    chosen = old.coef_ != 0
    np.testing.assert_allclose(v[chosen], -limit * np.sign(old.coef_[chosen]), atol=1e-4)
