"""The logistic and multinomial problems on a working set, against plain numpy, scipy and scikit-learn."""

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from logistic_problems import CSC, DENSE, Reference, class_problem, fit, full, make
from scipy import optimize
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version

from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.algorithms.linear.structured.losses import Logistic, Multinomial
from stradask.algorithms.linear.structured.mean_loss import MeanLoss


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
    sub = class_problem(labels, K, weights=weights, offset=given_offset, fit_intercept=intercept)
    found = fit(X, sub, [penalty], tol=1e-9)
    solution = found.solutions[0]
    reference = Reference(X, labels, penalty, weights=weights, offset=offset, fit_intercept=intercept)
    coef, c = full(solution, p)
    ours, least, zero = reference.objective(coef, c), reference.minimum(), reference.zero()
    assert solution.reason == "gap"
    assert found.unit == pytest.approx(zero, rel=1e-6)
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
        fit(X, class_problem(labels, K, fit_intercept=intercept), [penalty], tol=tol)
        for tol in (0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-11)
    ]
    unit = runs[0].unit
    least = min(reference.minimum(), runs[-1].solutions[0].objective)
    rounds = [round_ for run in runs for round_ in run.rounds]
    for objective, gap in rounds:
        assert gap >= 0
        assert objective - least <= gap * unit + 1e-12 * unit
    assert len({gap for _, gap in rounds}) >= 5
    assert rounds[-1][1] <= 1e-11


@pytest.mark.parametrize("K", [1, 4])
@pytest.mark.parametrize("form", [DENSE, CSC])
@pytest.mark.parametrize("positive", [False, True])
def test_gap_equals_plain_numpy(K, form, positive):
    X, labels = make(50, 120, K, 2)
    X = form(X)
    weights = np.random.default_rng(0).random(50) + 0.1
    factors = np.random.default_rng(1).random(120) + 0.5
    penalty = L1L2(1.5, l1_factors=factors, positive=positive)
    sub = class_problem(labels, K, weights=weights, fit_intercept=False)
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
    loss = class_problem(y, 1, fit_intercept=intercept)
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
    solution = fit(X, class_problem(y, 3), [penalty], tol=1e-12).solutions[0]
    coef, c = full(solution, 4)
    options = {"C": C, "tol": 1e-11, "max_iter": 100_000, "random_state": 0} | mixed(l1_ratio)
    peer = LogisticRegression(solver="saga", **options).fit(X, y)
    np.testing.assert_allclose(coef.T, peer.coef_, atol=2e-5)
    np.testing.assert_allclose(c, peer.intercept_ - peer.intercept_.mean(), atol=2e-5)
    assert abs(c.sum()) < 1e-12


# The losses ------------------------------------------------------------------------------------------
def losses():
    rng = np.random.default_rng(3)
    weights = (rng.random(6) + 0.2) * [1, 1, 0, 1, 1, 1]
    labels = np.array([0, 1, 1, 0, 1, 0])
    yield MeanLoss(Logistic(), labels[:, None].astype(float), weights), rng.standard_normal((6, 1))
    y = (np.array([0, 1, 2, 3, 1, 0])[:, None] == np.arange(4)).astype(float)
    yield MeanLoss(Multinomial(), y, weights), 2 * rng.standard_normal((6, 4))


@pytest.mark.parametrize(("loss", "F"), list(losses()), ids=["binary", "multinomial"])
class TestLosses:
    def test_values_and_slopes_are_those_of_plain_numpy(self, loss, F):
        plain = loss.loss
        assert loss.code is not None
        assert loss.value(F) == pytest.approx(loss.weights @ plain.value(loss.y, F).sum(axis=1), rel=1e-13)
        expected = plain.gradient(loss.y, F) * loss.weights[:, None]
        np.testing.assert_allclose(loss.gradient(F), expected, atol=1e-15)
        slope = optimize.approx_fprime(F.ravel(), lambda f: loss.value(f.reshape(F.shape)), 1e-7)
        np.testing.assert_allclose(loss.gradient(F).ravel(), slope, atol=1e-6)

    @pytest.mark.parametrize("s", [0.3, 0.9, 1.0])
    def test_the_conjugate_is_the_largest_value(self, loss, F, s):
        u = loss.gradient(F)

        def below(f):
            return loss.value(f.reshape(F.shape)) - s * float(np.sum(u * f.reshape(F.shape)))

        least = optimize.minimize(below, np.zeros(F.size), method="BFGS", options={"gtol": 1e-9}).fun
        assert loss.conjugate(u, s, F) == pytest.approx(-least, rel=1e-8)

    def test_extreme_predictors(self, loss, F):
        f = 1e150 * F
        assert np.isfinite(loss.value(f))
        shares = loss.gradient(f)[loss.weights > 0] / loss.weights[loss.weights > 0, None]
        np.testing.assert_allclose(shares, np.round(shares), rtol=0, atol=1e-300)
        assert np.isfinite(loss.conjugate(loss.gradient(f), 0.5, f))
