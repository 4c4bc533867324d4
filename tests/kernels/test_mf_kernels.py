"""Kernels of matrix factorization, against dense linear algebra; ranges may be cut anywhere."""

import itertools

import numba as nb
import numpy as np
import pytest
from scipy import sparse

from stradask.kernels.mf_als import conjugate_rows, implicit_losses, row_losses, solve_rows
from stradask.kernels.mf_ccd import catch_up_rows, refit_rows
from stradask.kernels.mf_lanes import add_products
from stradask.kernels.mf_sgd import descend_block
from stradask.kernels.mf_top import best_columns

M, N, D = 23, 600, 5  # rows longer than a chunk of 256 ratings are among them


class Problem:
    def __init__(self, dtype):
        rng = np.random.default_rng(3)
        given = rng.random((M, N)) < np.linspace(0.002, 0.9, M)[:, None]
        given[4] = False
        table = sparse.csr_array(given)
        self.given, self.indptr, self.indices = given, table.indptr.astype(np.int64), table.indices
        n = len(self.indices)
        self.values, self.weights = (rng.random(n).astype(dtype) for _ in range(2))
        self.signed = (4 * self.values - 1).astype(dtype)
        self.others = rng.standard_normal((N, D)).astype(dtype)
        self.offsets = rng.standard_normal(N).astype(dtype)
        self.ridge = (0.5 + rng.random(M)).astype(dtype)
        self.start = rng.standard_normal((M, D)).astype(dtype)

    def row(self, u):
        part = slice(self.indptr[u], self.indptr[u + 1])
        columns = self.indices[part]
        return part, self.others[columns].astype(np.float64), self.offsets[columns].astype(np.float64)


@pytest.fixture(params=[np.float32, np.float64])
def problem(request):
    return Problem(request.param)


def close(problem):
    return (
        {"rtol": 2e-3, "atol": 2e-4} if problem.values.dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-11}
    )


def in_parts(kernel, cuts, *arrays):
    for a, b in itertools.pairwise(cuts):
        kernel(a, b, *arrays)


def solved(p, base, n_bounded=0, sweeps=0, cuts=(0, M)):
    out = p.start.copy()
    out = np.abs(out) if n_bounded else out
    arrays = (p.weights, p.weights * p.values, p.offsets, p.others, base, p.ridge, n_bounded, sweeps, out)
    in_parts(solve_rows, cuts, p.indptr, p.indices, *arrays)
    return out


def normal_equations(p, u, base):
    part, Q, offsets = p.row(u)
    w = p.weights[part].astype(np.float64)
    A = Q.T @ (w[:, None] * Q) + base + p.ridge[u] * np.eye(D)
    return A, Q.T @ (w * (p.values[part] - offsets))


def test_rows_are_the_solutions_of_their_normal_equations(problem):
    p = problem
    base = (p.others.T @ p.others) / N
    out = solved(p, base)
    for u in range(M):
        A, b = normal_equations(p, u, base)
        expected = np.zeros(D) if u == 4 else np.linalg.solve(A, b)
        np.testing.assert_allclose(out[u], expected, **close(p))


def test_a_range_may_be_cut_anywhere(problem):
    base = np.zeros((D, D), problem.values.dtype)
    whole = solved(problem, base)
    np.testing.assert_array_equal(whole, solved(problem, base, cuts=(0, 1, 9, 10, M)))


def test_non_negative_rows_meet_the_conditions_of_optimality():
    p = Problem(np.float64)
    base = np.zeros((D, D))
    out = solved(p, base, n_bounded=D - 1, sweeps=400)
    bound = 0
    for u in range(M):
        A, b = normal_equations(p, u, base)
        slope = A @ out[u] - b if u != 4 else np.zeros(D)
        assert (out[u, : D - 1] >= 0).all()
        at_bound = (out[u] == 0) & (np.arange(D) < D - 1)
        bound += at_bound.sum()
        np.testing.assert_allclose(slope[~at_bound], 0, atol=1e-8)
        assert (slope[at_bound] >= -1e-8).all()
    assert bound > 5
    assert (out[:, D - 1] < 0).any()


def test_a_singular_system_stays_finite():
    p = Problem(np.float32)
    p.others[:, 1] = p.others[:, 0]
    p.ridge[:] = 1e-30
    assert np.isfinite(solved(p, np.zeros((D, D), np.float32))).all()


@pytest.mark.parametrize("width", [16, 48])
def test_as_many_conjugate_gradients_as_factors_solve_exactly(problem, width):
    p = problem
    start, others = (np.pad(a, [(0, 0), (0, width - D)]) for a in (p.start, p.others))
    weights, pulls = abs(p.signed) - 1, np.maximum(p.signed, 0)
    arrays = (p.indptr, p.indices, weights, pulls, others, others.T @ others, p.ridge, 3 * D)
    found = []
    for cuts in [(0, M), (0, 3, 11, M)]:
        found.append(start.copy())
        in_parts(conjugate_rows, cuts, *arrays, found[-1], (0,) * (width // 16))
    out, parts = found
    np.testing.assert_array_equal(out, parts)
    assert not out[:, D:].any()
    for u in range(M):
        part, Q, _ = p.row(u)
        c = np.abs(p.signed[part]).astype(np.float64)
        A = p.others.T.astype(np.float64) @ p.others + Q.T @ ((c - 1)[:, None] * Q) + p.ridge[u] * np.eye(D)
        b = Q.T @ (c * (p.signed[part] > 0))
        expected = np.zeros(D) if u == 4 else np.linalg.solve(A, b)
        np.testing.assert_allclose(out[u, :D], expected, **close(p))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [16, 64])
def test_products_in_registers_are_those_of_dense_algebra(dtype, width):
    rng = np.random.default_rng(0)
    others, s, out = (rng.standard_normal(shape).astype(dtype) for shape in [(9, width), width, width])
    indices, weights = rng.integers(0, 9, 20).astype(np.int32), rng.standard_normal(20).astype(dtype)

    @nb.njit
    def add(first, last, out, vectors):
        add_products(others, indices, weights, first, last, s, out, vectors)

    for first, last in [(3, 17), (5, 5), (7, 8)]:
        found = out.copy()
        add(first, last, found, (0,) * (width // 16))
        Q = others[indices[first:last]].astype(np.float64)
        expected = out + (weights[first:last] * (Q @ s)) @ Q
        np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-5)


def test_losses_are_those_of_dense_tables(problem):
    p = problem
    losses, implicit = np.empty(M), np.empty(M)
    row_losses(0, M, p.indptr, p.indices, p.weights, p.values, p.offsets, p.others, p.start, losses)
    implicit_losses(0, M, p.indptr, p.indices, p.signed, p.others, p.start, implicit)
    for u in range(M):
        part, Q, offsets = p.row(u)
        x = Q @ p.start[u]
        expected = (p.weights[part] * (p.values[part] - offsets - x) ** 2).sum()
        np.testing.assert_allclose(losses[u], expected, **close(p))
        expected = (np.abs(p.signed[part]) * ((p.signed[part] > 0) - x) ** 2 - x**2).sum()
        np.testing.assert_allclose(implicit[u], expected, **close(p))


@pytest.mark.parametrize("non_negative", [False, True])
def test_refitting_a_factor_is_the_minimum_over_it(problem, non_negative):
    p = problem
    rng = np.random.default_rng(5)
    x = rng.standard_normal(M).astype(p.values.dtype)
    y, pending = (rng.standard_normal(N).astype(p.values.dtype) for _ in range(2))
    residuals, own, old = p.values.copy(), np.empty_like(x), x.copy()
    arrays = (p.weights, residuals, x, y, pending, p.ridge, non_negative, own)
    in_parts(refit_rows, (0, 2, 15, M), p.indptr, p.indices, *arrays)
    for u in range(M):
        part = p.row(u)[0]
        columns = p.indices[part]
        target = p.values[part] - old[u] * pending[columns] + old[u] * y[columns]
        w = p.weights[part]
        best = (w * target * y[columns]).sum() / ((w * y[columns] ** 2).sum() + p.ridge[u])
        best = max(best, 0) if non_negative else best
        np.testing.assert_allclose(x[u], best, **close(p))
        np.testing.assert_allclose(residuals[part], target - x[u] * y[columns], **close(p))
    np.testing.assert_allclose(own, x - old, **close(p))


def test_catching_up_takes_a_change_into_the_residuals(problem):
    p = problem
    x, residuals = p.start[:, 0].copy(), p.values.copy()
    catch_up_rows(0, M, p.indptr, p.indices, residuals, x, p.offsets)
    dense = np.outer(x, p.offsets)[p.given]
    np.testing.assert_allclose(residuals, p.values - dense, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_a_step_of_gradient_descent_is_that_of_the_formulas(bias):
    rng = np.random.default_rng(7)
    P, Q = rng.standard_normal((3, D)), rng.standard_normal((4, D))
    b, c = (0.1 * rng.standard_normal(n) * bias for n in (3, 4))
    g, h = (1 + rng.random(n) for n in (3, 4))
    ridges = [rng.random(n) for n in (3, 4, 3, 4)]
    rows, columns = np.array([2, 0, 2], np.int32), np.array([1, 1, 3], np.int32)
    weights, targets = np.array([1.0, 0.5, 2.0]), np.array([0.3, -1.0, 2.0])
    state = [a.copy() for a in (P, Q, b, c, g, h)]
    total = descend_block(0, 3, rows, columns, weights, targets, *state, *ridges, 0.1, bias)
    expected = 0.0
    for u, j, w, t in zip(rows, columns, weights, targets, strict=True):
        miss = t - b[u] - c[j] - P[u] @ Q[j]
        expected += w * miss**2
        slope_p, slope_q = w * miss * Q[j] - ridges[0][u] * P[u], w * miss * P[u] - ridges[1][j] * Q[j]
        rate_p, rate_q = 0.1 / np.sqrt(g[u]), 0.1 / np.sqrt(h[j])
        g[u] += slope_p @ slope_p / D
        h[j] += slope_q @ slope_q / D
        P[u] += rate_p * slope_p
        Q[j] += rate_q * slope_q
        if bias:
            b[u] += rate_p * (w * miss - ridges[2][u] * b[u])
            c[j] += rate_q * (w * miss - ridges[3][j] * c[j])
    assert total == pytest.approx(expected)
    for found, wanted in zip(state, (P, Q, b, c, g, h), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_best_columns_are_those_of_a_stable_sort(dtype):
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 6, (50, 9)).astype(dtype)  # with many ties
    scores[rng.random(scores.shape) < 0.3] = -np.inf
    scores[11] = -np.inf
    for k in (1, 4, 9, 12):
        columns, values = np.empty((50, k), np.int64), np.empty((50, k), dtype)
        best_columns(scores, columns, values)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        expected = np.full((50, k), -np.inf)
        expected[:, : order.shape[1]] = np.take_along_axis(scores, order, axis=1)
        np.testing.assert_array_equal(values, expected)
        shown = columns[:, : order.shape[1]]
        np.testing.assert_array_equal(shown, np.where(np.isneginf(values[:, : order.shape[1]]), -1, order))
        assert (columns[:, order.shape[1] :] == -1).all()
