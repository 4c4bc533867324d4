"""Compiled paths and Newton steps against the enumeration of all signs."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from stradask.kernels.linear import gram_path, small_smooth


def best_of_signs(G, c, l1, l2, positive):
    """Minimise ``b G b / 2 - c b + l1 |b| + l2 b^2 / 2`` over all patterns of signs."""
    p, best, found = len(c), 0.0, np.zeros(len(c))
    for signs in itertools.product((0, 1) if positive else (-1, 0, 1), repeat=p):
        S = np.flatnonzero(signs)
        if not len(S):
            continue
        s = np.array(signs)[S]
        b = np.linalg.solve(G[np.ix_(S, S)] + np.diag(l2[S]), c[S] - l1[S] * s)
        if (b * s <= 0).any():
            continue
        value = -0.5 * (b @ (c[S] - l1[S] * s))
        if value < best:
            best, found = value, np.zeros(p)
            found[S] = b
    return best, found


def solved(G, c, y_y, f, q, strengths, ridges, positive, eps, start=None):
    n, p = len(strengths), len(c)
    coefs, figures = np.empty((n, p)), np.empty((n, 4))
    b = np.zeros(p) if start is None else start.copy()
    done = gram_path.solve_path(G, c, y_y, f, q, strengths, ridges, positive, eps, 100, b, coefs, figures)
    return done, coefs, figures


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_paths_are_those_of_all_signs(positive, ratio):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((12, 5)) @ np.diag(10 ** rng.uniform(-1, 1, 5))
        A[:, 1] = A[:, 0] + 0.05 * rng.standard_normal(12)
        y = A @ rng.standard_normal(5) + rng.standard_normal(12)
        G, c, y_y = A.T @ A, A.T @ y, y @ y
        f, q = rng.uniform(0.5, 2, 5), rng.uniform(0.5, 2, 5)
        alphas = np.abs(c / f).max() * np.geomspace(1, 1e-4, 9)
        strengths, ridges = alphas * ratio, alphas * (1 - ratio)
        done, coefs, figures = solved(G, c, y_y, f, q, strengths, ridges, positive, 1e-11 * y_y)
        assert done == len(alphas)
        for k in range(len(alphas)):
            value, b = best_of_signs(G, c, strengths[k] * f, ridges[k] * q, positive)
            assert figures[k, 0] == pytest.approx(0.5 * y_y + value, rel=1e-10)
            assert figures[k, 1] <= 1e-11 * y_y
            np.testing.assert_allclose(A @ coefs[k], A @ b, atol=1e-4 * np.sqrt(y_y))


def test_a_gap_is_not_below_the_excess():
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((30, 6)), rng.standard_normal(30)
    G, c, y_y, ones = A.T @ A, A.T @ y, y @ y, np.ones(6)
    for eps in (1e-1, 1e-3, 1e-6):
        strengths = np.abs(c).max() * np.array([0.3, 0.1])
        _, _, figures = solved(G, c, y_y, ones, ones, strengths, np.zeros(2), False, eps * y_y)
        for k in range(2):
            best = 0.5 * y_y + best_of_signs(G, c, strengths[k] * ones, np.zeros(6), False)[0]
            excess = figures[k, 0] - best
            assert -1e-12 * y_y <= excess <= figures[k, 1] + 1e-12 * y_y
            assert figures[k, 1] <= eps * y_y


def test_columns_that_repeat_each_other_are_solved():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((10, 4))
    A, y = np.hstack([A, A, A @ rng.standard_normal((4, 12))]), rng.standard_normal(10)
    G, c, y_y, ones = np.ascontiguousarray(A.T @ A), A.T @ y, y @ y, np.ones(20)
    done, _, figures = solved(
        G, c, y_y, ones, ones, np.abs(c).max() * np.geomspace(1, 1e-3, 20), np.zeros(20), False, 1e-10 * y_y
    )
    assert done == 20
    assert (figures[:, 1] <= 1e-10 * y_y).all()


def test_what_cannot_be_reached_is_said():
    rng = np.random.default_rng(2)
    A, y = rng.standard_normal((30, 6)), rng.standard_normal(30)
    G, c, y_y, ones = A.T @ A, A.T @ y, y @ y, np.ones(6)
    assert solved(G, c, y_y, ones, ones, np.array([0.5 * np.abs(c).max()]), np.zeros(1), False, -1.0)[0] == 0


def test_a_start_at_the_solution_is_not_moved():
    rng = np.random.default_rng(3)
    A, y = rng.standard_normal((30, 6)), rng.standard_normal(30)
    G, c, y_y, ones = A.T @ A, A.T @ y, y @ y, np.ones(6)
    strength = np.array([0.2 * np.abs(c).max()])
    _, coefs, _ = solved(G, c, y_y, ones, ones, strength, np.zeros(1), False, 1e-12 * y_y)
    _, again, figures = solved(G, c, y_y, ones, ones, strength, np.zeros(1), False, 1e-11 * y_y, coefs[0])
    np.testing.assert_array_equal(coefs, again)
    assert figures[0, 2] == figures[0, 3] == 0


# Newton steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [1, 2])
@pytest.mark.parametrize("strength", [0.0, 0.05])
def test_newton_steps_end_at_the_minimum(loss, strength):
    rng = np.random.default_rng(loss)
    X, w = rng.standard_normal((40, 3)), rng.uniform(0.5, 1.5, 40)
    f = X @ [1.0, -0.5, 0.0]
    y = (
        np.where(f + rng.logistic(size=40) > 0, 1.0, -1.0)
        if loss == 1
        else rng.poisson(np.exp(f)).astype(float)
    )
    XT = np.ascontiguousarray(np.vstack([X.T, np.ones(40)]))
    l1, l2 = np.array([strength] * 3 + [0.0]), np.array([0.01] * 3 + [0.0])

    def smooth(b):
        z = XT.T @ b
        value = np.logaddexp(0, -y * z) if loss == 1 else np.exp(z) - y * z
        return w @ value / 40 + 0.5 * l2 @ b**2

    def whole(parts):  # b as a difference of two parts that are not negative
        return smooth(parts[:4] - parts[4:]) + l1 @ (parts[:4] + parts[4:])

    x, figures, codes = np.zeros(4), np.empty(3), []
    work = [np.empty((4, 4)), np.empty((4, 4)), np.empty((5, 4)), np.empty((6, 40)), np.empty(4, np.int64)]
    for _ in range(50):
        codes.append(small_smooth.newton_step(loss, XT, y, w, l1, l2, 0.25, 1e-13, x, *work, figures))
        if codes[-1] != small_smooth.GOES_ON:
            break
    assert codes[-1] == small_smooth.CONVERGED
    best = minimize(
        whole,
        np.full(8, 0.1),
        bounds=[(0, None)] * 8,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000},
    )
    assert figures[0] == pytest.approx(smooth(x) + l1 @ np.abs(x) + 0.25)
    assert figures[0] - 0.25 == pytest.approx(best.fun, abs=1e-9)
    assert figures[0] - 0.25 <= best.fun + 1e-12
