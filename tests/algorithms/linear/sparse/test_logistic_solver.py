"""The logistic and multinomial problems on a working set, against plain numpy, scipy and scikit-learn."""

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from logistic_problems import CSC, DENSE, Reference, fit, full, make, subproblem
from scipy import optimize
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version

from stradask.algorithms.linear.sparse.class_losses import (
    LogisticLoss,
    LogisticSubproblem,
    MultinomialLoss,
    MultinomialSubproblem,
)
from stradask.algorithms.linear.sparse.penalties import L1L2


# Against independent solvers ------------------------------------------------------------------------
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(8, 60),
    p=st.integers(1, 40),
    K=st.sampled_from([1, 1, 3, 4]),
    sparse_X=st.booleans(),
    wide_indices=st.booleans(),
    single=st.booleans(),
    intercept=st.booleans(),
    weighted=st.booleans(),
    shifted=st.booleans(),
    factors=st.sampled_from(["one", "some", "zero"]),
    positive=st.booleans(),
    l1_ratio=st.sampled_from([1.0, 1.0, 0.9, 0.3]),
    share=st.sampled_from([0.5, 0.1, 0.02]),
)
def test_objective_is_the_minimum(
    seed,
    n,
    p,
    K,
    sparse_X,
    wide_indices,
    single,
    intercept,
    weighted,
    shifted,
    factors,
    positive,
    l1_ratio,
    share,
):
    X, labels = make(n, p, K, seed, density=0.3 if sparse_X else None)
    rng = np.random.default_rng(seed + 1)
    X = X.astype(np.float32 if single else np.float64)
    X = CSC(X) if sparse_X else DENSE(X)
    if sparse_X and wide_indices:
        X = CSC((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    weights = rng.integers(1, 6, n) / 2.0 if weighted else None
    offset = rng.standard_normal((n, K)) if shifted else None
    l1_factors = None if factors == "one" else rng.integers(1, 4, p) / 2.0
    if factors == "zero":
        l1_factors[0] = 0.0
    strength = share * np.abs(X.T @ rng.choice([-0.5, 0.5], n)).max() + 0.1
    penalty = L1L2(
        strength * l1_ratio,
        strength * (1 - l1_ratio),
        l1_factors=l1_factors,
        l2_factors=l1_factors,
        positive=positive,
    )
    given_offset = offset[:, 0] if shifted and K == 1 else offset
    sub = subproblem(labels, K, weights=weights, offset=given_offset, fit_intercept=intercept)
    working_set = fit(X, sub, [penalty], tol=1e-9)
    solution = working_set.solutions[0]
    reference = Reference(X, labels, penalty, weights=weights, offset=offset, fit_intercept=intercept)
    coef, c = full(solution, p)
    ours, least, zero = reference.objective(coef, c), reference.minimum(), reference.zero()
    assert solution.reason == "gap"
    assert sub.unit(penalty) == pytest.approx(zero, rel=1e-6)
    assert solution.objective == pytest.approx(ours, rel=1e-9, abs=1e-9 * zero)
    assert ours <= least + 1e-8 * zero
    if positive:
        assert coef.min(initial=0.0) >= 0


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5, 0.999])
@pytest.mark.parametrize("intercept", [False, True])
def test_gap_bounds_the_distance_to_the_minimum_in_every_round(K, l1_ratio, intercept):
    X, labels = make(60, 80, K, 5)
    X = DENSE(X)
    strength = 3.0
    penalty = L1L2(strength * l1_ratio, strength * (1 - l1_ratio))
    reference = Reference(X, labels, penalty, fit_intercept=intercept)
    runs = [
        fit(X, subproblem(labels, K, fit_intercept=intercept), [penalty], tol=tol)
        for tol in (0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-11)
    ]
    unit = runs[0].sub.unit(penalty)
    least = min(reference.minimum(), runs[-1].solutions[0].objective)
    reports = [report for run in runs for report in run.reports]
    for report in reports:
        assert report.gap >= 0
        assert report.objective - least <= report.gap * unit + 1e-12 * unit
    assert len({report.gap for report in reports}) >= 5
    assert reports[-1].gap <= 1e-11


@pytest.mark.parametrize("K", [1, 4])
@pytest.mark.parametrize("form", [DENSE, CSC])
@pytest.mark.parametrize("positive", [False, True])
def test_gap_equals_plain_numpy(K, form, positive):
    X, labels = make(50, 120, K, 2)
    X = form(X)
    weights = np.random.default_rng(0).random(50) + 0.1
    factors = np.random.default_rng(1).random(120) + 0.5
    penalty = L1L2(1.5, l1_factors=factors, positive=positive)
    sub = subproblem(labels, K, weights=weights, fit_intercept=False)
    for tol in (1e-2, 1e-5, 1e-8):
        solution = fit(X, sub, [penalty], tol=tol).solutions[0]
        reference = Reference(X, labels, penalty, weights=weights, fit_intercept=False)
        coef, c = full(solution, 120)
        assert reference.gap(coef, c) == pytest.approx(solution.gap_absolute, rel=1e-6, abs=1e-12 * 50)
        assert solution.gap <= tol


def mixed(l1_ratio):
    """Scikit-learn's name of a mixed penalty, which was another one before 1.8."""
    if parse_version(sklearn.__version__) >= parse_version("1.8"):
        return {"l1_ratio": l1_ratio}
    return {"penalty": "l1"} if l1_ratio == 1 else {"penalty": "elasticnet", "l1_ratio": l1_ratio}


@pytest.mark.parametrize("intercept", [False, True])
def test_equals_liblinear_and_saga(intercept):
    """liblinear penalises the intercept and saga does not."""
    X, y = make_classification(200, 12, random_state=0, flip_y=0.2)
    options = {"C": 0.2, "fit_intercept": intercept, "tol": 1e-10, "max_iter": 20_000} | mixed(1.0)
    options["solver"] = "saga" if intercept else "liblinear"
    peer = LogisticRegression(random_state=0, **options).fit(X, y)
    loss = LogisticSubproblem(y, fit_intercept=intercept)
    solution = fit(DENSE(X), loss, [L1L2(5.0)], tol=1e-12).solutions[0]
    coef, c = full(solution, 12)
    assert 1 <= np.count_nonzero(coef) < 12
    np.testing.assert_allclose(coef[:, 0], peer.coef_[0], atol=1e-5)
    np.testing.assert_allclose(c, peer.intercept_, atol=1e-5)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_multinomial_equals_saga(l1_ratio):
    X, y = load_iris(return_X_y=True)
    X = DENSE((X - X.mean(axis=0)) / X.std(axis=0))
    C = 2.0
    penalty = L1L2(l1_ratio / C, (1 - l1_ratio) / C)
    solution = fit(X, MultinomialSubproblem(y, 3), [penalty], tol=1e-12).solutions[0]
    coef, c = full(solution, 4)
    options = {"C": C, "tol": 1e-11, "max_iter": 100_000, "random_state": 0} | mixed(l1_ratio)
    peer = LogisticRegression(solver="saga", **options).fit(X, y)
    np.testing.assert_allclose(coef.T, peer.coef_, atol=2e-5)
    np.testing.assert_allclose(c, peer.intercept_ - peer.intercept_.mean(), atol=2e-5)
    assert abs(c.sum()) < 1e-12


# The loss objects ------------------------------------------------------------------------------------
def losses():
    rng = np.random.default_rng(3)
    weights = rng.random(6) + 0.2
    labels = np.array([0, 1, 1, 0, 1, 0])
    yield LogisticLoss(labels, weights), rng.standard_normal((1, 6))
    yield MultinomialLoss(np.array([0, 1, 2, 3, 1, 0]), 4, weights), 2 * rng.standard_normal((4, 6))


@pytest.mark.parametrize(("loss", "F"), list(losses()), ids=["binary", "multinomial"])
class TestLosses:
    def test_residual_is_minus_the_gradient(self, loss, F):
        slope = optimize.approx_fprime(F.ravel(), lambda f: loss.shares(f.reshape(F.shape))[0], 1e-7)
        residual = loss.residual(loss.shares(F)[1])
        np.testing.assert_allclose(residual.ravel(), -slope, atol=1e-6)

    def test_hessian_is_the_derivative_of_the_gradient(self, loss, F):
        V = np.random.default_rng(0).standard_normal(F.shape)
        shares = loss.shares(F)[1]
        ends = [loss.residual(loss.shares(F + t * V)[1]) for t in (-1e-5, 1e-5)]
        for k in range(len(F)):
            np.testing.assert_allclose(loss.hessian(shares, V, k), (ends[0] - ends[1])[k] / 2e-5, atol=1e-7)
            unit = np.zeros(F.shape)
            unit[k] = 1
            np.testing.assert_allclose(loss.curvature(shares, k), loss.hessian(shares, unit, k))

    def test_tilt_subtracts_the_hessian_and_leaves_probabilities(self, loss, F):
        V = np.random.default_rng(0).uniform(-0.5, 0.5, F.shape)
        shares = loss.shares(F)[1]
        tilted = loss.tilt(shares, V)
        expected = loss.residual(shares) - np.array([loss.hessian(shares, V, k) for k in range(len(F))])
        np.testing.assert_allclose(loss.residual(tilted), expected, atol=1e-14)
        assert tilted.min() >= 0
        assert tilted.max() <= 1
        if len(F) > 1:
            np.testing.assert_allclose(tilted.sum(axis=0), 1)

    @pytest.mark.parametrize("s", [0.3, 0.9, 1.0])
    def test_dual_is_the_least_value_of_the_lagrangian(self, loss, F, s):
        shares = loss.shares(F)[1]
        V = s * loss.residual(shares)

        def lagrangian(f):
            return loss.shares(f.reshape(F.shape))[0] + (V.ravel() @ f)

        least = optimize.minimize(lagrangian, np.zeros(F.size), method="BFGS", options={"gtol": 1e-9}).fun
        assert loss.dual(shares, s) == pytest.approx(least, rel=1e-8)

    def test_dual_of_zero_is_zero(self, loss, F):
        assert loss.dual(loss.shares(F)[1], 0.0) == 0

    def test_extreme_predictors(self, loss, F):
        value, shares = loss.shares(1e150 * F)
        assert np.isfinite(value)
        assert np.isin(shares, [0.0, 1.0]).all()
        assert np.isfinite(loss.dual(shares, 0.5))
        assert loss.dual(shares, 1.0) == 0
