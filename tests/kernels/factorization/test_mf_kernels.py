"""Kernels of matrix factorization, against dense linear algebra; ranges may be cut anywhere."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from stradask.kernels.factorization.als import conjugate_rows, row_losses, solve_rows, turn_rows
from stradask.kernels.factorization.ccd import catch_up_rows, refit_rows
from stradask.kernels.factorization.sgd import deal, descend_block, shuffle
from stradask.kernels.factorization.top import best_columns

M, N, D = 23, 600, 5  # rows longer than a chunk of 512 ratings are among them
WIDTH = 16


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
        self.bias_ridge = (1 + 3 * self.ridge[::-1]).astype(dtype)
        self.start = rng.standard_normal((M, D)).astype(dtype)
        self.start[4] = 0  # such a row, without ratings, is left as it is

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


def padded(a, width=WIDTH):
    return np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, width - a.shape[-1])])


def solved(p, base, *, bias=False, sweeps=0, cuts=(0, M), implicit=False, single=False, width=WIDTH, **more):
    """Factors, biases and losses of `solve_rows`."""
    dtype = p.values.dtype.type
    out, biases, losses = (
        padded(np.abs(p.start) if sweeps else p.start, width),
        np.zeros(M, dtype),
        np.empty(M),
    )
    noise = more.get("noise", np.empty((0, width), dtype))
    arrays = (
        p.signed if implicit else p.values, p.weights[:1] if single else p.weights, p.offsets, implicit,
        padded(p.others, width), np.ascontiguousarray(base), more.get("shares", np.ones(1, dtype)),
        np.atleast_2d(more.get("pull", np.zeros(width, dtype))), more.get("bias_pull", np.zeros(1, dtype)),
        dtype(more.get("precision", 1)), p.ridge, p.bias_ridge, bias, sweeps, noise, out, biases, losses,
        (0,) * (width // 16),
    )  # fmt: skip
    in_parts(solve_rows, cuts, p.indptr, p.indices, *arrays)
    assert not out[:, D:].any()
    return out[:, :D].astype(np.float64), biases.astype(np.float64), losses


def normal_equations(p, u, base, bias=False, single=False):
    """Matrix, right side and constant of a row's objective, over its factors and, last, its bias."""
    part, Q, offsets = p.row(u)
    w = p.weights[part].astype(np.float64) if not single else np.full(len(Q), np.float64(p.weights[0]))
    t = p.values[part].astype(np.float64) - offsets
    X = np.column_stack([Q, np.ones(len(Q))]) if bias else Q
    A = X.T @ (w[:, None] * X) + p.ridge[u].astype(np.float64) * np.eye(X.shape[1])
    A[:D, :D] += base[:D, :D]
    if bias:
        A[-1, -1] += np.float64(p.bias_ridge[u]) - p.ridge[u]
    return A, X.T @ (w * t), (w * t**2).sum()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("width", [16, pytest.param(32, marks=pytest.mark.slow)])
def test_rows_are_the_solutions_of_their_normal_equations(problem, bias, single, width):
    p = problem
    base = padded(padded(p.others.T @ p.others / N, width).T, width)
    out, biases, losses = solved(p, base, bias=bias, single=single, width=width)
    for u in range(M):
        A, b, squares = normal_equations(p, u, base, bias, single)
        expected = np.zeros(len(A)) if u == 4 else np.linalg.solve(A, b)
        found = np.append(out[u], biases[u])[: len(A)]
        np.testing.assert_allclose(found, expected, **close(p))
        np.testing.assert_allclose(losses[u], squares - b @ expected, rtol=1e-3, atol=1e-3)
        if p.values.dtype == np.float64:
            np.testing.assert_allclose(losses[u], squares - b @ expected, rtol=1e-9, atol=1e-9)


def test_many_factors_are_solved_for_by_panels():
    """Sizes of several tiles, against a solver for dense matrices."""
    rng = np.random.default_rng(0)
    for d in (32, 64):
        others, values = rng.standard_normal((150, d)), rng.standard_normal(150)
        x, bias, loss = np.zeros((1, d)), np.empty(1), np.empty(1)
        solve_rows(
            0, 1, np.array([0, 150]), np.arange(150, dtype=np.int32), values, np.ones(1),
            np.zeros(150), False, others, np.zeros((d, d)), np.ones(1), np.zeros((1, d)), np.zeros(1), 1.0,
            np.full(1, 0.3), np.ones(1), False, 0, np.empty((0, d)), x, bias, loss, (0,) * (d // 16),
        )  # fmt: skip
        expected = np.linalg.solve(others.T @ others + 0.3 * np.eye(d), others.T @ values)
        np.testing.assert_allclose(x[0], expected, rtol=1e-10)


@pytest.mark.parametrize("implicit", [False, True])
def test_rows_are_drawn_to_means_of_their_own(implicit):
    """A pull of ridge times a mean is a penalty about it; a row without ratings stays."""
    p = Problem(np.float64)
    p.start[4] = 7
    rng = np.random.default_rng(2)
    means, shifts = rng.standard_normal((M, D)), rng.standard_normal(M)
    base = padded(p.others).T @ padded(p.others) if implicit else np.zeros((WIDTH, WIDTH))
    pull = padded(p.ridge[:, None] * means)
    bias = not implicit
    out, biases, losses = solved(
        p, base, bias=bias, implicit=implicit, pull=pull, bias_pull=p.bias_ridge * shifts
    )
    for u in set(range(M)) - {4}:
        if implicit:
            A, b, constant = implicit_equations(p, u)
            b = b + p.ridge[u] * means[u]
        else:
            A, b, constant = normal_equations(p, u, base, bias)
            b = b + np.append(p.ridge[u] * means[u], p.bias_ridge[u] * shifts[u])
        expected = np.linalg.solve(A, b)
        np.testing.assert_allclose(np.append(out[u], biases[u])[: len(A)], expected, rtol=1e-8)
        assert losses[u] == pytest.approx(constant - b @ expected)
    np.testing.assert_array_equal(out[4], p.start[4])
    if implicit:
        found, found_losses = by_gradients(p, 3 * D, pull=pull)
        np.testing.assert_allclose(found[:, :D], out, rtol=1e-6)
        np.testing.assert_allclose(np.delete(found_losses, 4), np.delete(losses, 4), rtol=1e-8)


def test_a_range_may_be_cut_anywhere(problem):
    base = np.zeros((WIDTH, WIDTH), problem.values.dtype)
    for bias in (False, True):
        whole = solved(problem, base, bias=bias)
        for one, other in zip(whole, solved(problem, base, bias=bias, cuts=(0, 1, 9, 10, M)), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bias", [False, True])
def test_non_negative_rows_meet_the_conditions_of_optimality(bias):
    p = Problem(np.float64)
    base = np.zeros((WIDTH, WIDTH))
    out, biases, losses = solved(p, base, bias=bias, sweeps=800)
    bound = 0
    for u in range(M):
        A, b, squares = normal_equations(p, u, base, bias)
        x = np.append(out[u], biases[u])[: len(A)]
        slope = A @ x - b if u != 4 else np.zeros(len(A))
        assert (x[:D] >= 0).all()
        at_bound = (x == 0) & (np.arange(len(x)) < D)
        bound += at_bound.sum()
        np.testing.assert_allclose(slope[~at_bound], 0, atol=1e-8)
        assert (slope[at_bound] >= -1e-8).all()
        np.testing.assert_allclose(losses[u], squares - 2 * b @ x + x @ A @ x, atol=1e-9)
    assert bound > 5


@pytest.mark.parametrize("bias", [False, True])
def test_draws_have_the_mean_and_covariance_of_the_posterior(bias):
    """Noise z moves a row by U^-1 z: its outer products over unit vectors sum to the inverse matrix.

    With a bias that of the matrix of factors and bias together.
    """
    p = Problem(np.float64)
    rng = np.random.default_rng(1)
    base = padded(padded(p.others.T @ p.others / N + np.eye(D)).T)
    base[range(D, WIDTH), range(D, WIDTH)] = 1
    pull = padded(rng.standard_normal(D))
    options = {"precision": 2.5, "pull": pull, "shares": 0.5 + rng.random(M), "bias": bias}

    def drawn(noise):
        return np.column_stack(solved(p, base, noise=noise, **options)[: 1 + bias])

    still, moves = drawn(np.zeros((M, WIDTH + bias))), []
    for k in [*range(D), WIDTH][: D + bias]:
        noise = np.zeros((M, WIDTH + bias))
        noise[:, k] = 1
        moves.append(drawn(noise) - still)
    for u in range(M):
        part, Q, offsets = p.row(u)
        w = p.weights[part]
        prior = np.diag([0.0] * D + [p.bias_ridge[u]] * bias)
        prior[:D, :D] = options["shares"][u] * base[:D, :D] + p.ridge[u] * np.eye(D)
        Q = np.hstack([Q, np.ones((len(Q), int(bias)))])
        A = 2.5 * Q.T @ (w[:, None] * Q) + prior
        b = 2.5 * Q.T @ (w * (p.values[part] - offsets)) + np.append(pull[:D], [0.0] * bias)
        np.testing.assert_allclose(still[u], np.linalg.solve(A, b), rtol=1e-9)
        covariance = sum(np.outer(move[u], move[u]) for move in moves)
        np.testing.assert_allclose(covariance, np.linalg.inv(A), rtol=1e-7, atol=1e-12)


def test_a_singular_system_stays_finite():
    p = Problem(np.float32)
    p.others[:, 1] = p.others[:, 0]
    p.ridge[:] = 1e-30
    assert np.isfinite(solved(p, np.zeros((WIDTH, WIDTH), np.float32))[0]).all()


def implicit_equations(p, u):
    part, Q, _ = p.row(u)
    c = np.abs(p.signed[part]).astype(np.float64)
    A = p.others.T.astype(np.float64) @ p.others + Q.T @ ((c - 1)[:, None] * Q) + p.ridge[u] * np.eye(D)
    liked = c * (p.signed[part] > 0)
    return A, Q.T @ liked, liked.sum()


def by_gradients(p, steps, *, width=WIDTH, pull=None, cuts=(0, M)):
    """Factors, turned back, and losses of `conjugate_rows`, which works in the axes of the Gram matrix."""
    dtype = p.values.dtype
    axes, spectrum = np.eye(width, dtype=dtype), np.zeros(width, dtype)
    spectrum[:D], axes[:D, :D] = np.linalg.eigh(p.others.T @ p.others)
    pull = np.zeros((1, width), dtype) if pull is None else pull.astype(dtype)
    out, losses = padded(p.start, width) @ axes, np.empty(M)
    in_parts(
        conjugate_rows, cuts, p.indptr, p.indices, p.signed, padded(p.others, width) @ axes, spectrum,
        pull @ axes, p.ridge, steps, out, losses, (0,) * (width // 16),
    )  # fmt: skip
    return out @ axes.T, losses


@pytest.mark.parametrize("width", [16, 32])
def test_as_many_conjugate_gradients_as_factors_solve_exactly(problem, width):
    p = problem
    (out, losses), (parts, _) = (
        by_gradients(p, 3 * D, width=width, cuts=cuts) for cuts in [(0, M), (0, 3, 11, M)]
    )
    np.testing.assert_array_equal(out, parts)
    assert not out[:, D:].any()
    others = padded(p.others, width)
    exact = solved(p, others.T @ others, implicit=True, width=width)
    for u in range(M):
        A, b, constant = implicit_equations(p, u)
        expected = np.zeros(D) if u == 4 else np.linalg.solve(A, b)
        np.testing.assert_allclose(out[u, :D], expected, **close(p))
        np.testing.assert_allclose(exact[0][u], expected, **close(p))
        for loss in (losses[u], exact[2][u]):
            np.testing.assert_allclose(loss, constant - b @ expected, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_loss_of_a_few_conjugate_gradients_is_that_of_where_they_end(steps):
    p = Problem(np.float64)
    pull = padded(np.random.default_rng(3).standard_normal((M, D)))
    x, losses = by_gradients(p, steps, pull=pull)
    for u in set(range(M)) - {4}:
        A, b, constant = implicit_equations(p, u)
        b = b + pull[u, :D]
        here = x[u, :D]
        assert losses[u] == pytest.approx(constant - 2 * b @ here + here @ A @ here)
        assert losses[u] < constant - 2 * b @ p.start[u] + p.start[u] @ A @ p.start[u]


def test_a_row_of_two_cells_takes_three_steps():
    """Preconditioned by all but its own cells, its matrix is the identity and a matrix of rank two."""
    p = Problem(np.float64)
    assert np.diff(p.indptr)[0] == 2
    A, b, _ = implicit_equations(p, 0)
    expected = np.linalg.solve(A, b)
    np.testing.assert_allclose(by_gradients(p, 3)[0][0, :D], expected, rtol=1e-9)
    assert np.abs(by_gradients(p, 2)[0][0, :D] - expected).max() > 1e-6


@pytest.mark.parametrize("single", [False, True])
def test_losses_are_those_of_dense_tables(problem, single):
    p = problem
    losses, biases = np.empty(M), p.start[:, 1].copy()
    weights = p.weights[:1] if single else p.weights
    sides = (p.offsets, padded(p.others), padded(p.start), biases)
    row_losses(0, M, p.indptr, p.indices, p.values, weights, *sides, losses, (0,))
    for u in range(M):
        part, Q, offsets = p.row(u)
        miss = p.values[part] - offsets - biases[u] - Q @ p.start[u]
        expected = ((weights[0] if single else weights[part]) * miss**2).sum()
        np.testing.assert_allclose(losses[u], expected, **close(p))


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
@pytest.mark.parametrize("single", [False, True])
def test_a_step_of_gradient_descent_is_that_of_the_formulas(bias, single):
    rng = np.random.default_rng(7)
    P, Q = rng.standard_normal((3, D)), rng.standard_normal((4, D))
    own = []
    for n in (3, 4):
        begun = 0.1 * rng.standard_normal(n) * bias, 1 + rng.random(n), rng.random(n), 1.0 + np.arange(n)
        own.append(np.column_stack(begun))
    rows, columns = np.array([2, 0, 2], np.int32), np.array([1, 1, 3], np.int32)
    weights, targets = np.array([2.0]) if single else np.array([1.0, 0.5, 2.0]), np.array([0.3, -1.0, 2.0])
    state = [padded(P), padded(Q), own[0].copy(), own[1].copy()]
    total = descend_block(
        0, 3, rows, columns, weights, targets, *state, 0.1, 0.7, 0.6, 0.9, 1 / D, bias, (0,)
    )
    expected = 0.0
    (b, g, a, n), (c, h, e, m) = (part.T for part in own)
    for u, j, w, t in zip(rows, columns, np.broadcast_to(weights, 3), targets, strict=True):
        miss = t - b[u] - c[j] - P[u] @ Q[j]
        expected += w * miss**2
        miss /= 1 if single else 1 + 0.2 * max(w - 1, 0)
        slope_p, slope_q = w * miss * Q[j] - 0.7 * a[u] * P[u], w * miss * P[u] - 0.7 * e[j] * Q[j]
        rate_p, rate_q = 0.1 / np.sqrt(g[u]), 0.1 / np.sqrt(h[j])
        g[u] += slope_p @ slope_p / D
        h[j] += slope_q @ slope_q / D
        P[u] += rate_p * slope_p
        Q[j] += rate_q * slope_q
        if bias:
            b[u] += rate_p * (w * miss - 0.6 / n[u] * b[u])
            c[j] += rate_q * (w * miss - 0.9 / m[j] * c[j])
    assert total == pytest.approx(expected)
    for found, wanted in zip(state, (padded(P), padded(Q), *own), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("weighted", [False, True])
def test_ratings_are_dealt_to_their_blocks_and_mixed_there(problem, weighted):
    p = problem
    rng = np.random.default_rng(2)
    user_block, item_block = rng.integers(0, 3, M).astype(np.int32), rng.integers(0, 4, N).astype(np.int32)
    user_place, item_place = rng.permutation(M).astype(np.int32), rng.permutation(N).astype(np.int32)
    n, dtype = len(p.values), p.values.dtype.type
    of_row = np.repeat(np.arange(M), np.diff(p.indptr))
    block = 4 * user_block[of_row] + item_block[p.indices]
    cuts = np.append(0, np.cumsum(np.bincount(block, minlength=12)))
    rows, columns, targets = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, p.values.dtype)
    weights = p.weights if weighted else p.weights[:1]
    dealt, coming = np.empty_like(weights), cuts[:-1].copy()
    deal(
        p.indptr, p.indices, p.values, weights, dtype(0.5), dtype(2), 4 * user_block, user_place, item_block,
        item_place, coming, rows, columns, dealt, targets,
    )  # fmt: skip
    np.testing.assert_array_equal(coming, cuts[1:])
    given = np.column_stack([user_place[of_row], item_place[p.indices], 2 * (p.values - dtype(0.5))])
    for number, (a, b) in enumerate(itertools.pairwise(cuts)):
        before = rows[a:b].copy()
        shuffle(a, b, rows, columns, dealt, targets, 99)
        assert b - a < 20 or not np.array_equal(before, rows[a:b])
        expected = given[block == number]
        found = np.column_stack([rows, columns, targets])[a:b]
        orders = [np.lexsort(part.T) for part in (expected, found)]
        np.testing.assert_array_equal(found[orders[1]], expected[orders[0]])
        if weighted:
            np.testing.assert_array_equal(dealt[a:b][orders[1]], p.weights[block == number][orders[0]])


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


def test_where_an_array_lies_in_memory_changes_no_bit():
    p = Problem(np.float32)
    spectrum, axes = np.linalg.eigh(padded(p.others).T @ padded(p.others))
    found = []
    for shift in (0, 4, 16, 60):
        room = np.empty(padded(p.others).nbytes + 128, np.uint8)
        first = -room.ctypes.data % 64 + shift
        others = room[first : first + padded(p.others).nbytes].view(np.float32).reshape(-1, WIDTH)
        others[:] = padded(p.others) @ axes
        out, losses = padded(p.start) @ axes, np.empty(M)
        conjugate_rows(
            0, M, p.indptr, p.indices, p.signed, others, np.maximum(spectrum, 0),
            np.zeros((1, WIDTH), np.float32), p.ridge, 3, out, losses, (0,) * (WIDTH // 16),
        )  # fmt: skip
        found.append((out, losses))
    for out, losses in found[1:]:
        np.testing.assert_array_equal(out, found[0][0])
        np.testing.assert_array_equal(losses, found[0][1])


@pytest.mark.parametrize(
    ("n", "width", "dtype", "error"), [(103, 48, np.float32, 1e-4), (5, 16, np.float64, 1e-12)]
)
def test_turned_rows_are_the_product_of_matrices_and_the_same_wherever_they_are_cut(n, width, dtype, error):
    rng = np.random.default_rng(n)
    rows, matrix = (rng.standard_normal((k, width)).astype(dtype) for k in (n, width))
    out, parts, vectors = np.empty_like(rows), np.empty_like(rows), (0,) * (width // 16)
    turn_rows(rows, matrix, out, vectors)
    np.testing.assert_allclose(out, rows.astype(float) @ matrix, rtol=error, atol=error)
    cut = n // 3
    turn_rows(rows[:cut], matrix, parts[:cut], vectors)
    turn_rows(rows[cut:], matrix, parts[cut:], vectors)
    np.testing.assert_array_equal(parts, out)
