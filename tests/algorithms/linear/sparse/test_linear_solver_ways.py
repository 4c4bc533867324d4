"""The solver of the squared loss: each of its ways, penalties from outside, refusals and parts."""

import numba
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression
from squared_problems import dense, fit, problem, reference_gap, strength_max

from stradask.algorithms.linear.sparse import squared as squared_module
from stradask.algorithms.linear.sparse.columns import columns_of
from stradask.algorithms.linear.sparse.penalties import L1L2, Separable
from stradask.algorithms.linear.sparse.squared import Squared
from stradask.algorithms.linear.sparse.working_set import WorkingSet
from stradask.algorithms.linear.subproblems import gram as gram_module
from stradask.algorithms.linear.subproblems.copies import copies_of
from stradask.algorithms.linear.subproblems.gram import KeptFactor
from stradask.errors import DataError

# --- each way to the solution of a subproblem -------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.2])
@pytest.mark.parametrize("way", ["descent", "products", "newton", "iterated"])
@pytest.mark.parametrize("positive", [False, True])
def test_every_way_leads_there(monkeypatch, density, way, positive):
    X, y = problem(60, 150, density=density, correlation=2.0, positive=positive)
    seconds = np.inf if way == "descent" else 0.0
    monkeypatch.setattr(Squared, "_products_cost", lambda *_: seconds)
    newton = -1.0 if way in ("newton", "iterated") else np.inf
    monkeypatch.setattr(gram_module.GramProblem, "_newton_cost", lambda *_: newton)
    if way == "iterated":
        monkeypatch.setattr(gram_module, "_LEAST_ITERATED", 2)
    steps = []
    newton_method = gram_module.proximal_newton

    def watched(*args, **kwargs):
        result = newton_method(*args, **kwargs)
        steps.append(result[-1])
        return result

    monkeypatch.setattr(gram_module, "proximal_newton", watched)
    weights = np.random.default_rng(0).random(60) + 0.5
    penalty = L1L2(0.02 * strength_max(X, y, weights, True, positive), ridge=0.1, positive=positive)
    (solution,) = fit(X, y, [penalty], weights=weights, intercept=True, tol=1e-9)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 150), penalty, weights, True) < 2e-9
    assert (sum(steps) > 0) == (way in ("newton", "iterated"))


def test_too_many_columns_for_products(monkeypatch):
    monkeypatch.setattr(squared_module, "MOST_COLUMNS", 10)
    X, y = problem(60, 150)
    penalty = L1L2(0.02 * strength_max(X, y))
    (solution,) = fit(X, y, [penalty], tol=1e-9)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 150), penalty) < 2e-9


def test_weights_of_zero_leave_rows_out():
    X, y = problem(60, 40)
    weights = np.ones(60)
    weights[20:] = 0
    penalty = L1L2(3.0)
    (weighted,) = fit(X, y, [penalty], weights=weights, intercept=True)
    (fewer,) = fit(np.asfortranarray(X[:20]), y[:20], [penalty], intercept=True)
    np.testing.assert_allclose(dense(weighted, 40), dense(fewer, 40), atol=1e-5)
    assert weighted.intercept == pytest.approx(fewer.intercept, abs=1e-5)


# --- penalties from outside -------------------------------------------------------------------------------


@numba.njit("float64(float64, float64, float64, float64)")
def mcp_prox(z, step, strength, gamma):
    size = abs(z)
    if size <= step * strength:
        return 0.0
    if size > gamma * strength:
        return z
    return np.sign(z) * (size - step * strength) / (1.0 - step / gamma)


class MCP(Separable):
    prox = staticmethod(mcp_prox)

    def value(self, coef, features):
        strengths, size = self.thresholds(features), np.abs(coef)
        inside = strengths * size - size**2 / (2 * self.shape)
        return np.where(size <= self.shape * strengths, inside, self.shape * strengths**2 / 2).sum()


@pytest.fixture(scope="module")
def outside():
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((100, 300)))
    truth = np.zeros(300)
    truth[:5] = [3, -2, 2, 4, -3]
    y = X @ truth + 0.1 * rng.standard_normal(100)
    penalties = [MCP(strength, shape=0.1) for strength in (40.0, 20.0, 10.0)]
    return {"MCP": MCP, "truth": truth, "solution": fit(X, y, penalties, intercept=True, tol=1e-8)[-1]}


def mcp_slope(b, strength, gamma):
    return np.sign(b) * np.maximum(strength - abs(b) / gamma, 0)


def test_a_penalty_from_outside_finds_the_five_features(outside):
    solution = outside["solution"]
    np.testing.assert_array_equal(solution.features, np.arange(5))
    np.testing.assert_allclose(solution.coef, outside["truth"][:5], atol=0.05)
    assert solution.reason == "gap"


@pytest.mark.parametrize("density", [None, 0.3])
def test_mcp_from_outside_meets_its_optimality_conditions(outside, density):
    X, y = problem(80, 120, density=density, shift=1.0)
    weights = np.random.default_rng(0).random(80) + 0.5
    f = np.random.default_rng(1).random(120) + 0.5
    f[7] = 0
    penalties = [outside["MCP"](strength, 0.2, l1_factors=f) for strength in (60.0, 30.0, 15.0)]
    solutions = fit(X, y, penalties, weights=weights, intercept=True, tol=1e-8)
    A = X.toarray() if density else X
    for penalty, solution in zip(penalties, solutions, strict=True):
        coef = dense(solution, 120)
        residual = y - A @ coef - solution.intercept
        slopes = A.T @ (weights * residual)
        thresholds = penalty.strength * f
        violation = np.where(
            coef != 0, abs(slopes - mcp_slope(coef, thresholds, 0.2)), np.maximum(abs(slopes) - thresholds, 0)
        )
        assert violation.max() <= 2e-8 * penalty.strength
        assert abs(weights @ residual) < 1e-8
        assert 7 in solution.features
        objective = weights @ residual**2 / 2 + penalty.value(solution.coef, solution.features)
        assert solution.objective == pytest.approx(objective, rel=1e-10)


def test_mcp_in_one_dimension_is_the_minimum_of_a_grid(outside):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((30, 1))
    for size in (0.1, 0.6, 2.0):
        y = size * x[:, 0] + 0.1 * rng.standard_normal(30)
        penalty = outside["MCP"](10.0, 0.1)
        (solution,) = fit(np.asfortranarray(x), y, [penalty], tol=1e-10)
        grid = np.linspace(-3, 3, 6001)
        values = ((y[:, None] - x * grid) ** 2).sum(axis=0) / 2
        values += [penalty.value(np.array([b]), np.array([0])) for b in grid]
        assert dense(solution, 1)[0] == pytest.approx(grid[np.argmin(values)], abs=1e-3)


@numba.njit("float64(float64, float64, float64, float64)")
def _soft(z, step, strength, shape):
    return np.sign(z) * max(abs(z) - step * strength, 0.0)


class Absolute(Separable):
    prox = staticmethod(_soft)

    def value(self, coef, features):
        return self.thresholds(features) @ abs(coef)


@pytest.mark.parametrize("density", [None, 0.3])
def test_the_absolute_value_from_outside_is_the_lasso(density):
    X, y = problem(60, 100, density=density, shift=1.0)
    strength = 0.1 * strength_max(X, y, intercept=True)
    (lasso,) = fit(X, y * 1e5, [L1L2(strength * 1e5)], intercept=True, tol=1e-13)
    (mine,) = fit(X, y * 1e5, [Absolute(strength * 1e5, 0.0)], intercept=True, tol=1e-9)
    np.testing.assert_allclose(dense(mine, 100), dense(lasso, 100), atol=1e-3)
    assert mine.objective == pytest.approx(lasso.objective, rel=1e-9)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: L1L2(-1.0), "strength must be finite and not negative, got -1.0"),
        (lambda: L1L2(1.0, np.inf), "ridge must be finite"),
        (lambda: L1L2(1.0, l1_factors=[1, -2]), "l1_factors.*got -2.0 for feature 1"),
        (
            lambda: L1L2(1.0, l2_factors=[[1]]),
            "l2_factors must hold one number for each feature",
        ),
        (lambda: Absolute(np.nan, 0.0), "strength must be finite"),
        (lambda: columns_of(np.ones((3, 2))), "not in Fortran order.*asfortranarray"),
        (
            lambda: columns_of(np.ones((3, 2), int, order="F")),
            "X has type int64; convert it to float32 or float64",
        ),
        (lambda: columns_of(sparse.csr_array(np.eye(3))), "csr format; convert it with X.tocsc"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(DataError, match=words):
        make()


def test_no_penalties_are_refused():
    with pytest.raises(DataError, match="penalties is empty"):
        WorkingSet(Squared(np.ones(3)), [], n_features=2, is_sparse=False)


# --- parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
def test_a_strength_lost_in_rounding_is_least_squares(density):
    X, y = problem(60, 20, density=density, shift=1.0)
    (solution,) = fit(X, y, [L1L2(1e-20)], intercept=True, tol=1e-8)
    theirs = LinearRegression().fit(X.toarray() if density else X, y)
    assert solution.reason == "gap"
    np.testing.assert_allclose(dense(solution, 20), theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_with_copies_are_those_of_the_centred_columns(form, weighted):
    X, _ = problem(30, 8, shift=2.0)
    X[[3, 20], 1], X[::2, 6] = 0.0, 0.0  # columns complete, nearly so, and half empty
    w = np.random.default_rng(0).random(30) + 0.1 if weighted else np.ones(30)
    copies = copies_of(form is sparse.csc_array, 30, np.sqrt(w) if weighted else np.empty(0), centre=True)
    columns, chosen = columns_of(form(X)), np.array([4, 1, 6])
    copies.admit(columns, chosen[:2])
    copies.admit(columns, chosen[2:])
    A = X[:, chosen] - np.average(X[:, chosen], axis=0, weights=w)
    A = A * np.sqrt(w)[:, None] * copies.scales
    v, at = np.random.default_rng(1).standard_normal(30), np.array([2, 0])
    np.testing.assert_allclose(copies.dot(v), A.T @ v, atol=1e-12)
    np.testing.assert_allclose(copies.dot(v, at), A[:, at].T @ v, atol=1e-12)
    np.testing.assert_allclose(copies.gram(at), A[:, at].T @ A[:, at], atol=1e-12)
    np.testing.assert_allclose(copies.products(at[:1], at[:1]), A[:, at[:1]].T @ A[:, at[:1]], atol=1e-12)
    np.testing.assert_allclose(copies.products(at[1:], at), A[:, at[1:]].T @ A[:, at], atol=1e-12)
    np.testing.assert_allclose(copies.norms, (A**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(copies.means, np.average(X[:, chosen] * copies.scales, axis=0, weights=w))
    if copies.is_sparse:
        assert np.diff(copies.indptr).tolist() == [30, 30, 15]
        assert copies.shifts[:2].tolist() == [0, 0]
        assert copies.shifts[2] == copies.means[2]
    out = v.copy()
    copies.add(at, np.array([2.0, -1.0]), out)
    np.testing.assert_allclose(out, v + A[:, at] @ [2.0, -1.0], atol=1e-12)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_copy_of_a_constant_column_is_zero(form, weighted):
    roots = np.sqrt(np.random.default_rng(0).random(30)) if weighted else np.empty(0)
    copies = copies_of(form is sparse.csc_array, 30, roots, centre=True)
    copies.admit(columns_of(form(np.full((30, 2), [0.1, 1e6 / 3]))), np.arange(2))
    assert copies.norms.tolist() == [0, 0]


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_a_column_that_is_constant_where_it_counts_is_zero(form):
    """A row of weight 0 holds something else."""
    X = np.full((30, 1), 0.3)
    X[0] = 1e6
    copies = copies_of(form is sparse.csc_array, 30, np.append(0.0, np.ones(29)), centre=True)
    copies.admit(columns_of(form(X)), np.arange(1))
    assert copies.norms.tolist() == [0]


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("least", [2, 1000])
def test_newton_alone_reaches_the_solution(monkeypatch, positive, least):
    monkeypatch.setattr(gram_module, "_LEAST_ITERATED", least)
    A, y = problem(60, 150, correlation=2.0, positive=positive)
    c, y_y = A.T @ y, y @ y
    penalty = (np.full(150, 0.02 * abs(c).max()), np.full(150, 0.1), positive)
    gram = gram_module.GramProblem(A.T @ A)

    def gap_at(b, slopes):
        return gram_module.gram_gap(b, slopes, c, y_y, penalty)

    b, slopes, gap, _, steps = gram_module.proximal_newton(
        gram, np.zeros(150), c, y_y, penalty, gap_at, 1e-9 * y_y
    )
    assert gap <= 1e-9 * y_y
    assert 0 < steps < 80
    np.testing.assert_allclose(slopes, c - A.T @ (A @ b), atol=1e-8)
    mine = L1L2(0.02 * abs(c).max(), 0.1, positive=positive)
    assert reference_gap(A, y, b, mine) < 3e-9


def test_polishing_solves_for_the_signs_and_drops_what_would_change_its_own():
    A, y = problem(60, 30)
    c, y_y, l1 = A.T @ y, y @ y, np.full(30, 8.0)
    penalty = (l1, np.zeros(30), False)
    (solution,) = fit(A, y, [L1L2(8.0)], tol=1e-13)
    exact = dense(solution, 30)
    idle = np.flatnonzero(exact == 0)[0]
    start = exact * 1.01
    start[idle] = 1e-6
    gram = gram_module.GramProblem(A.T @ A)

    def gap_at(b, slopes):
        return gram_module.gram_gap(b, slopes, c, y_y, penalty)

    slopes = c - A.T @ (A @ start)
    b, rest, gap = gram._polish(start, slopes, c, gap_at(start, slopes), penalty, gap_at)
    assert gap <= 1e-11 * y_y < gap_at(start, slopes)
    assert b[idle] == 0
    np.testing.assert_allclose(b, exact, atol=1e-6)
    np.testing.assert_allclose(rest, c - A.T @ (A @ b), atol=1e-9)


def test_systems_near_the_last_one_use_its_factor():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 120))
    G, kept = A.T @ A, KeptFactor()
    first = np.arange(100)
    for S, scale in ((first, 1.0), (np.setdiff1d(np.arange(102), [5]), 5.0), (np.arange(60, 120), 1.0)):
        right, diagonal = rng.standard_normal(len(S)), scale * (1 + rng.random(len(S)))
        z = kept.solve(G, S, right, diagonal)
        expected = np.linalg.solve(G[np.ix_(S, S)] + np.diag(diagonal), right)
        np.testing.assert_allclose(z, expected, rtol=1e-6, atol=1e-9)
        assert len(kept._columns) == (60 if len(S) == 60 else 100)
    assert kept.solve(np.zeros((120, 120)), first, np.ones(100), np.zeros(100)) is None
