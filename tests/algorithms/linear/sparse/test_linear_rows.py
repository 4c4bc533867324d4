"""The lasso on blocks of rows, against scikit-learn and against the same rows in one piece."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet as Reference
from squared_problems import dense, fit, rows_of

from stradask.algorithms.linear.sparse.fitting import Design
from stradask.algorithms.linear.sparse.least_squares import largest_alpha
from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.algorithms.linear.sparse.rows import RowLeastSquares
from stradask.algorithms.linear.structured.solving.rows_on_workers import RowsOnWorkers
from stradask.errors import DataError


def _problem(n=120, p=30, seed=0, correlated=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 1.5
    if correlated:
        X = X @ (np.eye(p) + 0.9 * np.tri(p, k=-1)) / 3
    y = X[:, :4] @ [2.0, -1.0, 0.5, 3.0] + rng.standard_normal(n) + 7
    return X, y, rng.uniform(0.2, 2, n)


def _fit(X, y, penalties, *, weights=None, fit_intercept=True, tol=1e-12, shards=3, **options):
    options |= {"weights": weights, "intercept": fit_intercept, "tol": tol, "shards": shards}
    return fit(X, y, penalties, **options)


@pytest.mark.parametrize(
    ("kind", "weighted", "fit_intercept", "l1_ratio", "positive"),
    [  # each pair of levels
        ("dense", False, False, 0.4, False),
        ("dense", True, True, 1.0, True),
        ("float32", False, True, 1.0, False),
        ("float32", True, False, 0.4, True),
        ("csr", False, True, 0.4, True),
        ("csr", True, False, 1.0, False),
    ],
)
def test_it_is_scikit_learns_solution(kind, weighted, fit_intercept, l1_ratio, positive):
    X, y, weights = _problem()
    given = {"dense": X, "float32": X.astype(np.float32), "csr": sparse.csr_array(np.where(X > 1.5, X, 0))}[
        kind
    ]
    weights = weights if weighted else None
    total, alpha = (len(y) if weights is None else weights.sum()), 0.05
    penalty = L1L2(total * alpha * l1_ratio, total * alpha * (1 - l1_ratio), positive=positive)
    (solution,) = _fit(given, y, [penalty], weights=weights, fit_intercept=fit_intercept)
    plain = given.toarray() if sparse.issparse(given) else given.astype(np.float64)
    reference = Reference(
        alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept, positive=positive, tol=1e-13, max_iter=100_000
    ).fit(plain, y, sample_weight=weights)
    assert solution.reason == "gap"
    np.testing.assert_allclose(dense(solution, 30), reference.coef_, atol=2e-6 if kind == "float32" else 1e-6)
    assert solution.intercept == pytest.approx(reference.intercept_, abs=1e-5)


@pytest.mark.parametrize("correlated", [False, True])
def test_a_path_agrees_with_single_fits_and_gaps_are_true(correlated):
    X, y, weights = _problem(correlated=correlated)
    strengths = [300.0, 100.0, 30.0, 3.0, 0.3]
    solutions = _fit(X, y, [L1L2(s) for s in strengths], weights=weights, tol=1e-9)
    w = weights / weights.sum()
    root = np.sqrt(weights)
    A, b = root[:, None] * (X - w @ X), root * (y - w @ y)
    for strength, solution in zip(strengths, solutions, strict=True):
        (alone,) = _fit(X, y, [L1L2(strength)], weights=weights, tol=1e-9, shards=1)
        np.testing.assert_allclose(dense(solution, 30), dense(alone, 30), atol=2e-4)
        r = b - A @ dense(solution, 30)
        s = min(max(b @ r / (r @ r), 0), strength / np.abs(A.T @ r).max())
        primal = r @ r / 2 + strength * np.abs(solution.coef).sum()
        gap = primal - (s * (b @ r) - s * s * (r @ r) / 2)
        assert gap <= 1.1e-9 * (b @ b) / 2 + 1e-11 * (b @ b)
        assert solution.objective == pytest.approx(primal)


def test_factors_of_zero_are_never_penalised():
    X, y, _ = _problem()
    factors = np.ones(30)
    factors[[0, 5]] = 0
    (solution,) = _fit(X, y, [L1L2(1e9, l1_factors=factors)])
    design = np.column_stack([np.ones(len(y)), X[:, [0, 5]]])
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    assert solution.features.tolist() == [0, 5]
    np.testing.assert_allclose([solution.intercept, *solution.coef], expected, rtol=1e-9)


def test_a_free_feature_may_be_held_above_zero():
    X, y, _ = _problem()
    factors = np.ones(30)
    factors[[0, 1]] = 0  # the slope of the second is negative
    (solution,) = _fit(X, y, [L1L2(1e9, l1_factors=factors, positive=True)], tol=1e-8)
    assert solution.reason == "gap"
    assert solution.features.tolist() == [0]
    slope, intercept = np.polyfit(X[:, 0], y, 1)
    np.testing.assert_allclose([solution.coef[0], solution.intercept], [slope, intercept], rtol=1e-6)


def test_constant_columns_get_no_coefficient():
    X, y, _ = _problem()
    X[:, 3] = 1e6
    (solution,) = _fit(X, y, [L1L2(1e-3)], tol=1e-8)
    assert solution.reason == "gap"
    assert 3 not in solution.features


def test_it_starts_from_given_coefficients_and_takes_fewer_rounds():
    X, y, _ = _problem(correlated=True)
    (cold,) = _fit(X, y, [L1L2(1.0)])
    (warm,) = _fit(X, y, [L1L2(1.0)], start=(cold.features, cold.coef))
    assert warm.rounds < cold.rounds
    np.testing.assert_allclose(dense(warm, 30), dense(cold, 30), atol=1e-6)


def test_the_largest_alpha_is_that_of_the_slopes():
    X, y, weights = _problem()
    design = Design(X, weights / weights.mean(), None, None, True, False, rows_of(X, 3))
    w = weights / weights.sum()
    expected = np.abs((X - w @ X).T @ (w * (y - w @ y))).max()
    assert largest_alpha(design, y, 0.5) == pytest.approx(2 * expected, rel=1e-12)


def test_messages_are_as_small_as_the_module_says(monkeypatch):
    X, y, _ = _problem()
    passes: list[str] = []
    slopes_at, sums = RowsOnWorkers.slopes_at, RowsOnWorkers.sums

    def watched_slopes(self, features, coef, shift, centres):
        passes.append("slopes")
        assert len(features) == len(coef) == np.count_nonzero(coef)
        out = slopes_at(self, features, coef, shift, centres)
        assert out.shape == (31,)
        return out

    def watched_sums(self, new, old, centres):
        passes.append("sums")
        out = sums(self, new, old, centres)
        assert out.shape == (len(new), len(old) + len(new) + 2)
        return out

    monkeypatch.setattr(RowsOnWorkers, "slopes_at", watched_slopes)
    monkeypatch.setattr(RowsOnWorkers, "sums", watched_sums)
    (solution,) = fit(X, y, [L1L2(20.0)], intercept=True, tol=1e-6, shards=2)
    assert solution.reason == "gap"
    assert set(passes[::2]) == {"slopes"}
    assert set(passes[1::2]) == {"sums"}


def test_a_shard_of_the_wrong_shape_is_named():
    X, y, _ = _problem()
    cut = rows_of(X, 2)
    cut.pieces[0] = X[:59]
    problem = RowLeastSquares(Design(X, None, None, None, True, False, cut), y)
    with pytest.raises(DataError, match=r"rows of X from 0 on: there are 59 where 60 were announced"):
        problem.solve([L1L2(20.0)], tol=1e-6, max_iter=9, label="test")


@pytest.mark.parametrize("far", [1e3, 1e6, 1e8])
def test_columns_far_from_zero_get_the_coefficients_of_the_same_columns_near_it(far):
    X, y, weights = _problem()
    X = X + far
    X[:60, 1] += 30  # blocks whose means differ
    (near,) = _fit(X - far, y, [L1L2(3.0)], weights=weights, tol=1e-9)
    (solution,) = _fit(X, y, [L1L2(3.0)], weights=weights, tol=1e-9)
    assert solution.reason == "gap"
    # The slopes of a pass are off by rounding errors of the far columns.
    np.testing.assert_allclose(dense(solution, 30), dense(near, 30), atol=1e-6 + 1e-15 * far)
    if far >= 1e6:  # products of sparse blocks, which are not centred, keep too few digits
        (solution,) = _fit(sparse.csr_array(X), y, [L1L2(3.0)], weights=weights, tol=1e-9)
        assert solution.reason == "stalled"
        assert solution.gap > 1e-9
