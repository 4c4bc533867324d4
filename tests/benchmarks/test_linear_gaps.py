"""The outside judge of l1-penalised models, held against closed forms, a second formula and weak duality."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from sklearn.linear_model import Lasso, LogisticRegression

from stradask.benchmarks.gaps import lasso_gap, logistic_gap

ROUNDING = 1e-14  # a gap is a difference of two sums of tens of numbers, relative to their size


def regression(seed, n=30, p=12, intercept=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + rng.standard_normal(p)
    y = X[:, :3] @ [2.0, -1.0, 0.5] + rng.standard_normal(n) + intercept
    return X, y


def soft(values, threshold):
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0)


def test_the_closed_form_of_orthogonal_columns_has_no_gap():
    rng = np.random.default_rng(0)
    X, _ = np.linalg.qr(rng.standard_normal((20, 5)))
    y = rng.standard_normal(20)
    alpha = 0.3 * np.abs(X.T @ y).max() / 20
    coef = soft(X.T @ y, 20 * alpha)
    gap, objective = lasso_gap(X, y, coef, alpha)
    assert abs(gap) < 1e-14
    assert objective == pytest.approx(np.sum((y - X @ coef) ** 2) / 40 + alpha * np.abs(coef).sum())
    # And to first order it is the distance from the minimum, which a hundredth of change makes visible.
    assert lasso_gap(X, y, 1.01 * coef, alpha)[0] > 1e-6
    assert lasso_gap(X, y, coef, 1.01 * alpha)[0] > 1e-6


@pytest.mark.parametrize("intercept", [False, True])
def test_a_tight_fit_of_scikit_learn_has_a_gap_of_rounding_size(intercept):
    X, y = regression(1, intercept=5.0)
    model = Lasso(0.1, fit_intercept=intercept, tol=1e-14, max_iter=100_000).fit(X, y)
    own = model.intercept_ if intercept else None
    gap, _ = lasso_gap(X, y, model.coef_, 0.1, own)
    assert -ROUNDING <= gap < 1e-12
    assert lasso_gap(sparse.csc_matrix(X), y, model.coef_, 0.1, own)[0] == pytest.approx(gap, abs=1e-14)


def test_a_wrong_intercept_is_seen():
    X, y = regression(2, intercept=5.0)
    model = Lasso(0.1, tol=1e-14, max_iter=100_000).fit(X, y)
    right, _ = lasso_gap(X, y, model.coef_, 0.1, model.intercept_)
    wrong, _ = lasso_gap(X, y, model.coef_, 0.1, model.intercept_ + 0.1)
    loss = 0.5 * len(y) * 0.1**2 / (0.5 * np.sum((y - y.mean()) ** 2))
    assert wrong - right == pytest.approx(loss, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), scale=st.floats(1e-3, 10), intercept=st.booleans(), share=st.floats(0.01, 1)
)
def test_the_gap_of_any_lasso_bounds_its_distance_from_the_minimum(seed, scale, intercept, share):
    X, y = regression(seed)
    alpha = share * np.abs(X.T @ (y - y.mean() * intercept)).max() / len(y)
    rng = np.random.default_rng(seed)
    coef = scale * rng.standard_normal(12) * (rng.random(12) < 0.5)
    best = Lasso(alpha, fit_intercept=intercept, tol=1e-12, max_iter=100_000).fit(X, y)
    b0 = rng.standard_normal() if intercept else None
    gap, objective = lasso_gap(X, y, coef, alpha, b0)
    _, least = lasso_gap(X, y, best.coef_, alpha, best.intercept_ if intercept else None)
    at_zero = 0.5 * np.mean((y - y.mean() * intercept) ** 2)
    assert gap >= (objective - least) / at_zero - 1e-9


def labels(seed, n=40, p=6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = np.where(X[:, 0] - 0.5 * X[:, 1] + rng.standard_normal(n) + 0.7 > 0, 1.0, -1.0)
    return X, y


def least_logistic(X, y, alpha, intercept):
    """Minimise by L-BFGS-B over positive and negative parts: a way that shares nothing with the judge."""
    n, p = X.shape

    def objective(parts):
        coef, b0 = parts[:p] - parts[p : 2 * p], parts[-1]
        margin = y * (X @ coef + b0)
        slope = -y / (1 + np.exp(margin)) / n
        gradient = X.T @ slope
        value = np.mean(np.log1p(np.exp(-margin))) + alpha * parts[: 2 * p].sum()
        return value, np.concatenate([gradient + alpha, alpha - gradient, [slope.sum() * intercept]])

    bounds = [(0, None)] * (2 * p) + [(None, None)]
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    found = optimize.minimize(objective, np.zeros(2 * p + 1), jac=True, bounds=bounds, options=options)
    return found.x[:p] - found.x[p : 2 * p], found.x[-1], found.fun


@pytest.mark.parametrize("intercept", [False, True])
def test_the_minimum_of_a_second_method_has_a_small_logistic_gap(intercept):
    X, y = labels(3)
    coef, b0, least = least_logistic(X, y, 0.03, intercept)
    gap, objective = logistic_gap(X, y, coef, 0.03, b0 if intercept else None)
    assert objective == pytest.approx(least, rel=1e-12)
    assert -1e-12 < gap < 1e-6
    assert logistic_gap(X, y, 1.05 * coef, 0.03, b0 if intercept else None)[0] > 1e-5


def test_a_wrong_intercept_costs_what_it_adds_to_the_logistic_objective():
    X, y = labels(3)
    coef, b0, least = least_logistic(X, y, 0.03, True)
    right, _ = logistic_gap(X, y, coef, 0.03, b0)
    wrong, objective = logistic_gap(X, y, coef, 0.03, b0 + 0.5)
    share = (y > 0).mean()
    at_zero = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert objective > least + 1e-3
    assert wrong - right == pytest.approx((objective - least) / at_zero, rel=1e-6)


def test_liblinear_at_a_tight_tolerance_has_a_small_gap():
    X, y = labels(4)
    model = LogisticRegression(
        C=1 / (0.05 * len(y)),
        l1_ratio=1.0,
        solver="liblinear",
        fit_intercept=False,
        tol=1e-10,
        max_iter=10_000,
    )
    if model.get_params().get("penalty") == "l2":  # older versions want the name of the penalty
        model.set_params(penalty="l1", l1_ratio=None)
    model.fit(X, y)
    assert -ROUNDING <= logistic_gap(X, y, model.coef_.ravel(), 0.05)[0] < 1e-8


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-3, 30), intercept=st.booleans())
def test_the_gap_of_any_logistic_model_bounds_its_distance_from_the_minimum(seed, scale, intercept):
    X, y = labels(seed)
    _, _, least = least_logistic(X, y, 0.05, intercept)
    rng = np.random.default_rng(seed)
    coef, b0 = scale * rng.standard_normal(6), rng.standard_normal()
    gap, objective = logistic_gap(X, y, coef, 0.05, b0 if intercept else None)
    share = (y > 0).mean()
    at_zero = -share * np.log(share) - (1 - share) * np.log(1 - share) if intercept else np.log(2)
    assert gap >= (objective - least) / at_zero - 1e-9


def test_the_logistic_gap_survives_decisions_that_overflow_an_exponential():
    X, y = labels(5)
    gap, objective = logistic_gap(X, y, np.full(6, 1e5), 0.05, 0.0)
    assert np.isfinite(gap)
    assert np.isfinite(objective)
    assert gap > 1


def test_above_the_largest_penalty_the_zero_model_is_best():
    X, y = regression(6)
    alpha = np.abs(X.T @ y).max() / len(y)
    assert lasso_gap(X, y, np.zeros(12), alpha)[0] == pytest.approx(0, abs=1e-14)
    assert lasso_gap(X, y, np.zeros(12), 0.9 * alpha)[0] == pytest.approx(0.01, abs=1e-12)
    X, y = labels(7)
    alpha = np.abs(X.T @ y).max() / 2 / len(y)
    assert logistic_gap(X, y, np.zeros(6), alpha)[0] == pytest.approx(0, abs=1e-14)
    assert logistic_gap(X, y, np.zeros(6), 0.9 * alpha)[0] > 1e-3
