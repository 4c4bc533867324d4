"""The solver of the squared loss: each of its ways, refusals and parts."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression
from squared_problems import dense, fit, problem, reference_gap, strength_max

from stradask.algorithms.linear.sparse import classes
from stradask.algorithms.linear.sparse.columns import columns_of
from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.algorithms.linear.structured.solving import column_descent, solver
from stradask.algorithms.linear.subproblems import gram as gram_module
from stradask.algorithms.linear.subproblems.gram import KeptFactor
from stradask.errors import DataError

# --- each way to the solution of a subproblem -------------------------------------------------------------


@pytest.mark.parametrize("way", ["descent", "products", "newton", "iterated"])
@pytest.mark.parametrize("positive", [False, True])
def test_every_way_leads_there(monkeypatch, way, positive):
    X, y = problem(60, 150, correlation=2.0, positive=positive)
    seconds = np.inf if way == "descent" else 0.0
    monkeypatch.setattr(column_descent._Descent, "_products_cost", lambda *_: seconds)
    monkeypatch.setattr(solver, "_MOST_COMPILED", 0)
    monkeypatch.setattr(classes, "MOST_ENTRIES", 0)
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
    monkeypatch.setattr(column_descent, "MOST_COLUMNS", 10)
    monkeypatch.setattr(solver, "_MOST_COMPILED", 0)
    monkeypatch.setattr(classes, "MOST_ENTRIES", 0)
    X, y = problem(60, 150)
    penalty = L1L2(0.02 * strength_max(X, y))
    (solution,) = fit(X, y, [penalty], tol=1e-9)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 150), penalty) < 2e-9


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
        (lambda: L1L2(np.nan), "strength must be finite"),
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


# --- parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
def test_a_strength_lost_in_rounding_is_least_squares(density):
    X, y = problem(60, 20, density=density, shift=1.0)
    (solution,) = fit(X, y, [L1L2(1e-20)], intercept=True, tol=1e-8)
    theirs = LinearRegression().fit(X.toarray() if density else X, y)
    assert solution.reason == "gap"
    np.testing.assert_allclose(dense(solution, 20), theirs.coef_, atol=1e-6)


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


def test_a_gap_that_rounding_forbids_is_given_up(monkeypatch):
    """It took all 2,000 sweeps, with solutions of the signs between: paths with tol=0 took hours."""
    A, y = problem(60, 30)
    c, y_y = A.T @ y, y @ y
    penalty = (np.full(30, 8.0), np.zeros(30), False)
    tests, measured = [], gram_module.gram_gap
    monkeypatch.setattr(gram_module, "gram_gap", lambda *args: tests.append(1) or measured(*args))
    b, _ = gram_module.GramProblem(A.T @ A).minimise(np.zeros(30), c, y_y, penalty, 1e-30 * y_y)
    assert len(tests) < 150
    assert reference_gap(A, y, b, L1L2(8.0)) < 1e-12


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
