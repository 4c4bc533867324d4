"""Weighted products of CSC columns and descent by them, against scipy and numpy."""

import numpy as np
import pytest
from scipy import optimize, sparse

from stradask.kernels.linear.weighted_descent import csc_weighted_gram, gram_descent


def problem(seed, n=40, m=25, density=0.4):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, m))
    A[rng.random((n, m)) > density] = 0
    D = rng.random(n)
    D[:3] = 0
    b0 = rng.standard_normal(m) * (rng.random(m) < 0.4)
    l1, l2 = rng.random(m) * 1.5, rng.random(m) * (rng.random(m) < 0.5)
    l1[0] = l2[0] = 0.0
    positive = rng.random(m) < 0.3
    b0[positive] = np.abs(b0[positive])
    return A, D, rng.standard_normal(m) * 3, b0, l1, l2, positive


def value(b, A, D, g, b0, l1, l2):
    d = A @ (b - b0)
    return -g @ (b - b0) + 0.5 * D @ d**2 + l1 @ np.abs(b) + 0.5 * l2 @ b**2


def minimum(A, D, g, b0, l1, l2, positive):
    """By L-BFGS-B over b split into two parts that are not negative."""
    m = len(b0)

    def both(z):
        b = z[:m] - z[m:]
        slope = -g + A.T @ (D * (A @ (b - b0))) + l2 * b
        smooth = value(b, A, D, g, b0, 0 * l1, l2) + l1 @ (z[:m] + z[m:])
        return smooth, np.concatenate([slope + l1, l1 - slope])

    bounds = [(0, None)] * m + [(0, 0) if held else (0, None) for held in positive]
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-10}
    start = np.zeros(2 * m)
    return optimize.minimize(both, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_descent_finds_the_minimum_of_the_model(seed):
    A, D, g, b0, l1, l2, positive = problem(seed)
    b, columns = b0.copy(), np.arange(len(b0))
    C = sparse.csc_array(A)
    G = csc_weighted_gram(C.data, C.indices, C.indptr, columns, D)
    gram_descent(G, g.copy(), b, l1, l2, positive, 20_000, 1e-24)
    least = minimum(A, D, g, b0, l1, l2, positive)
    assert value(b, A, D, g, b0, l1, l2) == pytest.approx(least, abs=1e-8)
    assert (b[positive] >= 0).all()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_weighted_gram_equals_numpy(kind):
    A, D, *_ = problem(3)
    C = sparse.csc_array(A)
    columns = np.array([7, 2, 2, 19])
    arrays = (C.data, C.indices.astype(kind), C.indptr.astype(kind))
    G = csc_weighted_gram(*arrays, columns, D)
    np.testing.assert_allclose(G, A[:, columns].T @ (D[:, None] * A[:, columns]), atol=1e-13)


def test_columns_of_zeros_stay():
    b, rest = np.array([0.0, 1.5]), (np.zeros(2), np.zeros(2), np.zeros(2, bool))
    gram_descent(np.zeros((2, 2)), np.ones(2), b, *rest, 5, 1e-6)
    np.testing.assert_array_equal(b, [0.0, 1.5])


def test_without_curvature_a_threshold_alone_decides():
    """Of four columns that only saturated rows have, the second is held at zero; the third has l1 = 0."""
    g, b, l1 = np.array([2.0, 0.3, 0.3, -0.3]), np.full(4, 1.5), np.array([1.0, 1.0, 0.0, 1.0])
    rest = (l1, np.zeros(4), np.array([False, False, False, True]))
    gram_descent(5e-16 * np.ones((4, 4)), g.copy(), b, *rest, 1, 1e-6)
    np.testing.assert_array_equal(b, [1.5, 0.0, 1.5, 0.0])
