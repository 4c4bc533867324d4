"""Steps in the space of the rows: the trial point, and the recursion of L-BFGS against its textbook form."""

import numpy as np
import pytest

from stradask.kernels.linear.glm_losses import LOGISTIC
from stradask.kernels.linear.row_vectors import keep_pair, lbfgs_direction, step_to

N, D = 7, 12


def vectors(count, X, seed=0):
    """Coefficients of the columns, and the same as numbers of the rows beside their images."""
    numbers = np.random.default_rng(seed).standard_normal((count, N))
    return numbers @ X, np.stack([numbers, numbers @ X @ X.T], axis=1)


def two_loops(steps, changes, g):
    """The recursion as Nocedal and Wright print it, in the space of the columns."""
    q, shares = g.copy(), []
    for s, y in zip(reversed(steps), reversed(changes), strict=True):
        shares.append(s @ q / (s @ y))
        q -= shares[-1] * y
    q *= steps[-1] @ changes[-1] / (changes[-1] @ changes[-1])
    for s, y, share in zip(steps, changes, reversed(shares), strict=True):
        q += (share - y @ q / (s @ y)) * s
    return -q


@pytest.mark.parametrize("n_pairs", [1, 2, 3, 5, 7])
def test_the_direction_is_that_of_the_columns(n_pairs):
    """Also when old pairs have been replaced."""
    X, size = np.random.default_rng(1).standard_normal((N, D)), 3
    kept = np.zeros((size, 2, N)), np.zeros((size, 2, N)), np.zeros((2, size))
    steps, of_rows = vectors(n_pairs, X)
    changes, changes_of_rows = vectors(n_pairs, X, seed=2)
    changes, changes_of_rows = changes + 9 * steps, changes_of_rows + 9 * of_rows  # curved
    for k in range(n_pairs):
        assert keep_pair(*kept, k, of_rows[k], changes_of_rows[k], 1e-10)
    (g,), (d,) = vectors(1, X, seed=3)
    lbfgs_direction(*kept, n_pairs, np.negative(d, out=d))
    expected = two_loops(steps[-size:], changes[-size:], g)
    np.testing.assert_allclose(d[0] @ X, expected, rtol=1e-9)
    np.testing.assert_allclose(d[1], X @ expected, rtol=1e-9)


def test_pairs_without_curvature_leave_all_as_it_was():
    kept = np.ones((2, 2, 2)), np.ones((2, 2, 2)), np.ones((2, 2))
    s = np.array([[1.0, 0.0], [1.0, 0.0]])
    for change in (-s, 0 * s, s[:, ::-1], np.full_like(s, np.inf), np.full_like(s, np.nan), s * 1e-320):
        assert not keep_pair(*kept, 0, s, np.ascontiguousarray(change), 1e-10)
    assert all((array == 1).all() for array in kept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_trial_point_has_value_slopes_and_derivative(weighted, free, dtype):
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((N, D)), rng.choice([-1.0, 1.0], N).astype(dtype)
    weights = rng.uniform(0.5, 2, N if weighted else 0).astype(dtype)
    _, (v, d) = vectors(2, X)
    v, d = (np.hstack([u, np.full((2, free), c)]) for u, c in ((v, 0.3), (d, -0.7)))

    def value(t):
        u = v + t * d
        losses = np.logaddexp(0, -y * (u[1, :N] + u[1, N:].sum())) * (weights if weighted else 1)
        return 0.25 * losses.sum() + 0.5 * 0.1 * u[0, :N] @ u[1, :N]

    there, slopes, curvatures = np.empty_like(v), np.empty(N), np.empty(N)
    found, slope = step_to(LOGISTIC, v, 0.6, d, y, weights, np.empty(0), 0.25, 0.1, there, slopes, curvatures)
    assert found == pytest.approx(value(0.6), rel=1e-12)
    assert slope == pytest.approx((value(0.6 + 1e-6) - value(0.6 - 1e-6)) / 2e-6, rel=1e-6)
    np.testing.assert_allclose(there, v + 0.6 * d)
    margins = y * (there[1, :N] + there[1, N:].sum())
    p, rest = 1 / (1 + np.exp(margins)), 1 / (1 + np.exp(-margins))
    share = 0.25 * (weights if weighted else np.ones(N))
    np.testing.assert_allclose(slopes, -share * y * p, rtol=1e-12)
    np.testing.assert_allclose(curvatures, share * p * rest, rtol=1e-12)
