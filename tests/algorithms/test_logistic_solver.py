"""The logistic and multinomial problems on a working set, against plain numpy, scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression

from stradask.algorithms.linear import free_columns, proximal_newton
from stradask.algorithms.linear.columns import columns_of
from stradask.algorithms.linear.logistic import Logistic, LogisticLoss
from stradask.algorithms.linear.multinomial import Multinomial, MultinomialLoss
from stradask.algorithms.linear.penalties import ElasticNet, Penalty
from stradask.algorithms.linear.program import SparseLinearProgram, solve
from stradask.algorithms.linear.working_set import WorkingSet
from stradask.errors import DataError

DENSE, CSC = np.asfortranarray, sparse.csc_array


def fit(X, subproblem, penalties, **options):
    """Solve for penalties by the working set; the working set itself is returned."""
    working_set = WorkingSet(
        subproblem, penalties, n_features=X.shape[1], is_sparse=sparse.issparse(X), **options
    )
    solve(SparseLinearProgram(working_set, columns_of(X)))
    return working_set


def full(solution, n_features):
    """Coefficients of all features, (n_features, n_outputs), and intercepts of a solution."""
    out = np.zeros((n_features, np.size(solution.intercept)))
    out[solution.features] = solution.coef.reshape(-1, out.shape[1])
    return out, np.atleast_1d(solution.intercept)


class Reference:
    """The same problem in plain numpy; classes of two have one output."""

    def __init__(self, X, labels, penalty, *, weights=None, offset=None, fit_intercept=True):
        self.X = X.toarray().astype(float) if sparse.issparse(X) else np.asarray(X, float)
        self.n, self.p = X.shape
        self.K = int(labels.max()) + 1 if labels.max() > 1 else 1
        self.labels, self.penalty, self.fit_intercept = labels, penalty, fit_intercept
        self.weights = np.ones(self.n) if weights is None else weights
        self.offset = np.zeros((self.n, self.K)) if offset is None else offset.reshape(self.n, self.K)
        features = np.arange(self.p)
        self.l1, self.l2 = penalty.thresholds(features), penalty.ridges(features)

    def loss(self, F):
        """Loss and its gradient in F."""
        if self.K == 1:
            F2 = np.column_stack([np.zeros(self.n), F[:, 0]])
        else:
            F2 = F
        rows = np.arange(self.n)
        value = self.weights @ (logsumexp(F2, axis=1) - F2[rows, self.labels])
        slope = softmax(F2, axis=1)
        slope[rows, self.labels] -= 1
        slope *= self.weights[:, None]
        return value, slope[:, -self.K :]

    def objective(self, coef, intercept):
        smooth = self.loss(self.offset + self.X @ coef + intercept)[0]
        return smooth + (self.l1 @ np.abs(coef) + 0.5 * self.l2 @ coef**2).sum()

    def minimum(self):
        """Least objective by L-BFGS-B over coefficients split into two parts that are not negative."""
        p, K = self.p, self.K
        sides = 1 if self.penalty.positive else 2

        def unpack(z):
            parts = z[: sides * p * K].reshape(sides, p, K)
            coef = parts[0] - (parts[1] if sides == 2 else 0)
            return parts, coef, z[sides * p * K :] if self.fit_intercept else np.zeros(K)

        def value_and_slope(z):
            parts, coef, intercept = unpack(z)
            value, slope = self.loss(self.offset + self.X @ coef + intercept)
            by_coef = self.X.T @ slope + self.l2[:, None] * coef
            value += (self.l1 @ parts.sum(axis=0)).sum() + (0.5 * self.l2 @ coef**2).sum()
            slopes = [self.l1[:, None] + by_coef, self.l1[:, None] - by_coef][:sides]
            ends = [slope.sum(axis=0)] if self.fit_intercept else []
            return value, np.concatenate([s.ravel() for s in slopes] + ends)

        n_intercepts = K if self.fit_intercept else 0
        bounds = [(0, None)] * (sides * p * K) + [(None, None)] * n_intercepts
        options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
        start = np.zeros(len(bounds))
        return optimize.minimize(
            value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).fun

    def zero(self):
        """Objective of the model without columns."""
        if not self.fit_intercept:
            return self.loss(self.offset)[0]
        start = np.zeros(self.K)
        return optimize.minimize(lambda c: self.loss(self.offset + c)[0], start, method="BFGS").fun

    def gap(self, coef, intercept):
        """Duality gap with the residual as dual point: for no intercept and a pure l1 penalty."""
        assert not self.fit_intercept
        assert not self.l2.any()
        _, slope = self.loss(self.offset + self.X @ coef + intercept)
        slopes = -self.X.T @ slope
        if self.penalty.positive:
            slopes = np.maximum(slopes, 0)
        s = min(1.0, (self.l1[:, None] / np.maximum(np.abs(slopes), 1e-300)).min())
        indicator = np.eye(max(self.K, 2))[self.labels]
        P = indicator.copy()
        P[:, -self.K :] += s * slope / self.weights[:, None]
        if self.K == 1:
            P[:, 0] = 1 - P[:, 1]
        entropy = -np.where(P > 0, P * np.log(np.maximum(P, 1e-300)), 0).sum(axis=1)
        dual = self.weights @ entropy + s * (slope * self.offset).sum()
        return self.objective(coef, intercept) - dual


def make(n, p, K, seed, *, informative=3, density=None):
    """Columns, some correlated, and labels drawn from a sparse model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 1::2] += 0.7 * X[:, : p - p % 2 : 2][:, : X[:, 1::2].shape[1]]
    if density is not None:
        X[rng.random((n, p)) > density] = 0
    coef = np.zeros((p, K))
    informative = min(informative, p)
    coef[rng.choice(p, informative, replace=False)] = 2 * rng.standard_normal((informative, K))
    F = X @ coef + rng.gumbel(size=(n, K))
    labels = F.argmax(axis=1) if K > 1 else (F[:, 0] > 0).astype(np.int64)
    labels[:2] = 0
    labels[2 : 2 + max(K, 2)] = np.arange(max(K, 2))
    return X, labels.astype(np.int64)


def subproblem(labels, K, **options):
    return Logistic(labels, **options) if K == 1 else Multinomial(labels, K, **options)


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
    penalty = ElasticNet(
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
    penalty = ElasticNet(strength * l1_ratio, strength * (1 - l1_ratio))
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
    penalty = ElasticNet(1.5, l1_factors=factors, positive=positive)
    sub = subproblem(labels, K, weights=weights, fit_intercept=False)
    for tol in (1e-2, 1e-5, 1e-8):
        solution = fit(X, sub, [penalty], tol=tol).solutions[0]
        reference = Reference(X, labels, penalty, weights=weights, fit_intercept=False)
        coef, c = full(solution, 120)
        assert reference.gap(coef, c) == pytest.approx(solution.gap_absolute, rel=1e-6, abs=1e-12 * 50)
        assert solution.gap <= tol


@pytest.mark.parametrize("intercept", [False, True])
def test_equals_liblinear_and_saga(intercept):
    """liblinear penalises the intercept and saga does not."""
    X, y = make_classification(200, 12, random_state=0, flip_y=0.2)
    options = {"C": 0.2, "l1_ratio": 1.0, "fit_intercept": intercept, "tol": 1e-10, "max_iter": 20_000}
    options["solver"] = "saga" if intercept else "liblinear"
    peer = LogisticRegression(random_state=0, **options).fit(X, y)
    solution = fit(DENSE(X), Logistic(y, fit_intercept=intercept), [ElasticNet(5.0)], tol=1e-12).solutions[0]
    coef, c = full(solution, 12)
    assert 1 <= np.count_nonzero(coef) < 12
    np.testing.assert_allclose(coef[:, 0], peer.coef_[0], atol=1e-5)
    np.testing.assert_allclose(c, peer.intercept_, atol=1e-5)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_multinomial_equals_saga(l1_ratio):
    X, y = load_iris(return_X_y=True)
    X = DENSE((X - X.mean(axis=0)) / X.std(axis=0))
    C = 2.0
    penalty = ElasticNet(l1_ratio / C, (1 - l1_ratio) / C)
    solution = fit(X, Multinomial(y, 3), [penalty], tol=1e-12).solutions[0]
    coef, c = full(solution, 4)
    options = {"C": C, "l1_ratio": l1_ratio, "tol": 1e-11, "max_iter": 100_000, "random_state": 0}
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


# Sequences, starts, ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("form", [DENSE, CSC])
def test_path_equals_single_fits(K, form):
    X, labels = make(80, 100, K, 7, density=0.5)
    X = form(X)
    penalties = [ElasticNet(strength) for strength in (8.0, 4.0, 2.0, 1.0)]
    path = fit(X, subproblem(labels, K), penalties, tol=1e-10).solutions
    for penalty, point in zip(penalties, path, strict=True):
        alone = fit(X, subproblem(labels, K), [penalty], tol=1e-10).solutions[0]
        assert point.objective == pytest.approx(alone.objective, rel=1e-9)
        np.testing.assert_allclose(full(point, 100)[0], full(alone, 100)[0], atol=1e-4)
        np.testing.assert_allclose(point.intercept, alone.intercept, atol=1e-4)


@pytest.mark.parametrize("K", [1, 3])
def test_start_from_the_solution_needs_one_or_two_rounds(K):
    X, labels = make(80, 100, K, 7)
    X = DENSE(X)
    penalty = ElasticNet(1.0)
    solution = fit(X, subproblem(labels, K), [penalty], tol=1e-10).solutions[0]
    again = fit(
        X, subproblem(labels, K), [penalty], tol=1e-8, start=(solution.features, solution.coef)
    ).solutions[0]
    assert again.rounds <= 3 < solution.rounds
    np.testing.assert_allclose(full(again, 100)[0], full(solution, 100)[0], atol=1e-4)


def test_strong_penalty_leaves_the_intercept():
    X, labels = make(60, 10, 1, 0)
    solution = fit(DENSE(X), Logistic(labels), [ElasticNet(1e6)]).solutions[0]
    assert len(solution.features) == 0
    assert solution.intercept == pytest.approx(np.log(labels.mean() / (1 - labels.mean())), abs=1e-7)


def test_unpenalised_features_have_no_slope():
    X, labels = make(100, 30, 1, 4)
    factors = np.ones(30)
    factors[[3, 11, 12]] = 0
    X = DENSE(X)
    X[:, 12] = X[:, 11]  # and one of them twice
    penalty = ElasticNet(4.0, l1_factors=factors)
    working_set = fit(X, Logistic(labels), [penalty], tol=1e-10)
    coef, c = full(working_set.solutions[0], 30)
    probability = 1 / (1 + np.exp(-(X @ coef[:, 0] + c)))
    slopes = X.T @ (labels - probability)
    assert np.abs(slopes[[3, 11, 12]]).max() < 1e-3
    v = working_set.sub.vectors()[0]  # the dual point is orthogonal to them far beyond that
    assert np.abs(X[:, [3, 11, 12]].T @ v).max() < 1e-11
    assert abs(v.sum()) < 1e-11


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("form", [DENSE, CSC])
def test_many_unpenalised_features_go_without_a_matrix(K, form, monkeypatch):
    X, labels = make(150, 12, K, 4)
    factors = np.ones(12)
    factors[2:7] = 0
    penalty = ElasticNet(3.0, l1_factors=factors)
    plain = fit(form(X), subproblem(labels, K), [penalty], tol=1e-10).solutions[0]
    monkeypatch.setattr(free_columns, "_MOST_DENSE", 2)
    other = fit(form(X), subproblem(labels, K), [penalty], tol=1e-10).solutions[0]
    assert other.reason == "gap"
    np.testing.assert_allclose(full(other, 12)[0], full(plain, 12)[0], atol=1e-4)
    if K > 1:
        np.testing.assert_allclose(full(plain, 12)[0][2:7].sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize("K", [1, 3])
def test_separable_rows_with_a_tiny_penalty(K):
    rng = np.random.default_rng(0)
    X = DENSE(rng.standard_normal((40, 100)))
    labels = (X[:, 0] > 0).astype(np.int64) if K == 1 else X[:, :3].argmax(axis=1)
    penalty = ElasticNet(1e-7 * 40)
    solution = fit(X, subproblem(labels, K), [penalty], tol=1e-6).solutions[0]
    assert solution.reason == "gap"
    assert np.isfinite(solution.coef).all()
    assert solution.objective < 1e-3


@pytest.mark.parametrize("form", [DENSE, CSC])
@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1e40, 1e200])
@pytest.mark.parametrize("K", [1, 3])
def test_scale_of_columns_is_no_matter(form, scale, K):
    X, labels = make(50, 60, K, 9)
    plain = fit(form(X), subproblem(labels, K), [ElasticNet(2.0)], tol=1e-9).solutions[0]
    scaled = fit(form(scale * X), subproblem(labels, K), [ElasticNet(2.0 * scale)], tol=1e-9).solutions[0]
    assert scaled.reason == "gap"
    np.testing.assert_allclose(full(scaled, 60)[0] * scale, full(plain, 60)[0], atol=1e-5)


def test_constant_zero_and_duplicate_columns():
    X, labels = make(60, 20, 1, 1)
    X[:, 0], X[:, 1] = 0.0, 7.0
    X[:, 3] = X[:, 2]
    penalty = ElasticNet(0.5)
    solution = fit(DENSE(X), Logistic(labels), [penalty], tol=1e-10).solutions[0]
    coef, c = full(solution, 20)
    reference = Reference(X, labels, penalty)
    assert coef[0] == 0
    assert abs(coef[1]) < 1e-10  # the intercept does it for nothing
    assert reference.objective(coef, c) <= reference.minimum() + 1e-8


def test_weights_count_rows():
    X, labels = make(40, 30, 1, 3)
    counts = np.random.default_rng(0).integers(0, 4, 40)
    weights = counts.astype(float)
    weighted = fit(DENSE(X), Logistic(labels, weights), [ElasticNet(1.0)], tol=1e-11).solutions[0]
    rows = np.repeat(np.arange(40), counts)
    repeated = fit(DENSE(X[rows]), Logistic(labels[rows]), [ElasticNet(1.0)], tol=1e-11).solutions[0]
    np.testing.assert_allclose(full(weighted, 30)[0], full(repeated, 30)[0], atol=1e-5)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)


@pytest.mark.parametrize("K", [1, 3])
def test_gap_holds_though_the_intercept_is_far_off(K, monkeypatch):
    """The residual is then no dual point, nor is its projection: the gap must not take it for one."""
    monkeypatch.setattr(proximal_newton, "_FREE_STEPS", 1)
    monkeypatch.setattr(proximal_newton, "_FARTHEST", 1e-3)
    _, labels = make(60, 4, K, 2)
    offset = 8.0 * np.random.default_rng(0).standard_normal((60, K)) ** 2
    sub = subproblem(labels, K, offset=offset[:, 0] if K == 1 else offset)
    penalty = ElasticNet(1.0)
    objective, gap = sub.gap(penalty, 0.0)
    least = Reference(np.zeros((60, 1)), labels, penalty, offset=offset).zero()
    assert objective > least + 0.5
    assert objective - gap <= least


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("shift", [50.0, -1e4])
def test_intercept_takes_up_a_constant_offset(K, shift):
    X, labels = make(60, 40, K, 2)
    plain = fit(DENSE(X), subproblem(labels, K), [ElasticNet(1.0)], tol=1e-10).solutions[0]
    offset = np.zeros((60, K))
    offset[:, 0] = shift
    sub = subproblem(labels, K, offset=offset[:, 0] if K == 1 else offset)
    shifted = fit(DENSE(X), sub, [ElasticNet(1.0)], tol=1e-10).solutions[0]
    assert shifted.reason == "gap"
    np.testing.assert_allclose(full(shifted, 40)[0], full(plain, 40)[0], atol=1e-4)
    change = np.atleast_1d(shifted.intercept) - np.atleast_1d(plain.intercept)
    expected = offset[0].mean() - offset[0] if K > 1 else -offset[0]
    np.testing.assert_allclose(change, expected, atol=1e-4)


def test_two_classes_as_multinomial():
    """The classes' coefficients are b / 2 and -b / 2: together the same penalty as that of b."""
    X, labels = make(70, 40, 1, 6)
    one = fit(DENSE(X), Logistic(labels), [ElasticNet(1.0)], tol=1e-11).solutions[0]
    two = fit(DENSE(X), Multinomial(labels, 2), [ElasticNet(1.0)], tol=1e-11).solutions[0]
    coef = full(two, 40)[0]
    np.testing.assert_allclose(coef[:, 1] - coef[:, 0], full(one, 40)[0][:, 0], atol=1e-5)
    assert two.objective == pytest.approx(one.objective, rel=1e-9)


def test_no_penalty_is_maximum_likelihood():
    X, labels = make(200, 5, 1, 8)
    solution = fit(DENSE(X), Logistic(labels), [ElasticNet(0.0)], tol=1e-12).solutions[0]
    peer = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(X, labels)
    np.testing.assert_allclose(full(solution, 5)[0][:, 0], peer.coef_[0], atol=1e-5)


def test_ridge_alone():
    X, labels = make_classification(80, 30, random_state=0)
    solution = fit(DENSE(X), Logistic(labels), [ElasticNet(0.0, 2.0)], tol=1e-12).solutions[0]
    peer = LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000).fit(X, labels)
    np.testing.assert_allclose(full(solution, 30)[0][:, 0], peer.coef_[0], atol=1e-5)


def test_unpenalised_feature_that_separates():
    """There is no minimum, but an infimum: the fit ends near it, and every figure stays finite."""
    X, labels = make(50, 10, 1, 3)
    X[:, 0] = np.where(labels > 0, 1.0, -1.0) * (1 + np.random.default_rng(0).random(50))
    factors = np.ones(10)
    factors[0] = 0
    solution = fit(DENSE(X), Logistic(labels), [ElasticNet(1.0, l1_factors=factors)], tol=1e-8).solutions[0]
    assert solution.reason == "gap"
    assert solution.features.tolist() == [0]
    assert 0 <= solution.objective < 1e-6
    assert np.isfinite(solution.coef).all()


def test_other_penalties_are_refused():
    X, labels = make(20, 5, 1, 0)

    class Other(Penalty):
        strength = 1.0

    with pytest.raises(DataError, match="ElasticNet, got Other"):
        fit(DENSE(X), Logistic(labels), [Other()])
