"""Kernels of the logistic losses and of their quadratic model, against scipy and numpy."""

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import entr, expit, log_expit, logsumexp, softmax

from stradask.kernels.linear.logistic import (
    binary_entropy,
    binary_shares,
    multinomial_entropy,
    multinomial_shares,
)
from stradask.kernels.linear.weighted_descent import (
    csc_descent,
    csc_weighted_gram,
    dense_descent,
    gram_descent,
)

PREDICTORS = np.array([0.0, 1.0, -3.0, 40.0, -40.0, 800.0, -800.0, 1e-300, 1e200, -1e200])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_binary_shares_equal_scipy(sign):
    rng = np.random.default_rng(0)
    f, weights = np.concatenate([PREDICTORS, 5 * rng.standard_normal(50)]), rng.random(60)
    signs, shares = np.full(60, sign), np.empty(60)
    loss = binary_shares(signs, weights, f, shares)
    np.testing.assert_allclose(shares, expit(-sign * f), rtol=1e-14)
    assert loss == pytest.approx(-weights @ log_expit(sign * f), rel=1e-13)


def test_small_losses_keep_their_digits():
    shares = np.empty(1)
    loss = binary_shares(np.ones(1), np.ones(1), np.array([50.0]), shares)
    assert loss == pytest.approx(np.exp(-50), rel=1e-12)
    assert shares[0] == pytest.approx(np.exp(-50), rel=1e-12)


def test_multinomial_shares_equal_scipy():
    rng = np.random.default_rng(1)
    F = 10 * rng.standard_normal((5, 40))
    F[:, 0], F[2, 1], F[3, 2] = 1e200, 1e200, -1e200
    labels, weights, P = rng.integers(0, 5, 40), rng.random(40), np.empty((5, 40))
    loss = multinomial_shares(labels, weights, F, P)
    np.testing.assert_allclose(P, softmax(F, axis=0), rtol=1e-13, atol=1e-300)
    expected = weights @ (logsumexp(F, axis=0) - F[labels, np.arange(40)])
    assert loss == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("s", [0.0, 0.2, 1.0])
def test_entropies(s):
    rng = np.random.default_rng(2)
    shares, weights = np.append(rng.random(20), [0.0, 1.0]), rng.random(22)
    expected = weights @ (entr(s * shares) + entr(1 - s * shares))
    assert binary_entropy(weights, shares, s) == pytest.approx(expected, rel=1e-13)
    labels = (np.arange(22) % 2).astype(np.int64)
    P = np.where(labels == 1, [shares, 1 - shares], [1 - shares, shares])  # the share is the other class's
    assert multinomial_entropy(labels, weights, P, s) == pytest.approx(expected, rel=1e-13)


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


@pytest.mark.parametrize("form", ["float64", "float32", "csc", "csc with int64", "gram"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_descent_finds_the_minimum_of_the_model(form, seed):
    A, D, g, b0, l1, l2, positive = problem(seed)
    if form == "float32":
        A = A.astype(np.float32).astype(float)
    b, h, columns = b0.copy(), np.full(len(b0), -1.0), np.arange(len(b0))
    rest = (l1, l2, positive)
    if form == "gram":
        C = sparse.csc_array(A)
        G = csc_weighted_gram(C.data, C.indices, C.indptr, columns, D, np.inf)
        gram_descent(G, g.copy(), b, *rest, 20_000, 1e-24)
    elif form.startswith("csc"):
        C = sparse.csc_array(A)
        kind = np.int64 if form.endswith("int64") else np.int32
        arrays = (C.data, C.indices.astype(kind), C.indptr.astype(kind))
        csc_descent(*arrays, columns, g, h, b, np.zeros(len(D)), D, *rest, 20_000, 5, 0.0, 1e-24)
    else:
        kind = np.dtype(form)
        copy, q = np.asfortranarray(A, dtype=kind), np.zeros(len(D), kind)
        dense_descent(copy.T, columns, g, h, b, q, D.astype(kind), *rest, 20_000, 5, 0.0, 1e-24)
    least = minimum(A, D, g, b0, l1, l2, positive)
    assert value(b, A, D, g, b0, l1, l2) == pytest.approx(least, abs=1e-4 if form == "float32" else 1e-8)
    assert (b[positive] >= 0).all()


def test_descent_keeps_q_and_moves_given_columns_only():
    A, D, g, b0, l1, l2, positive = problem(5)
    columns = np.array([1, 4, 9, 20])
    b, h, q = b0.copy(), np.full(len(b0), -1.0), np.zeros(len(D))
    first, last, visits = dense_descent(
        np.asfortranarray(A).T, columns, g, h, b, q, D, l1, l2, positive, 3, 4, 1e-6, 0.0
    )
    np.testing.assert_allclose(q, D * (A @ (b - b0)), atol=1e-12)
    others = np.setdiff1d(np.arange(len(b0)), columns)
    np.testing.assert_array_equal(b[others], b0[others])
    known = h >= 0
    np.testing.assert_allclose(h[known], (A**2 * D[:, None]).sum(axis=0)[known])
    assert first > last >= 0
    assert 3 * 4 <= visits <= 3 * 4 * 5


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_weighted_gram_equals_numpy(kind):
    A, D, *_ = problem(3)
    C = sparse.csc_array(A)
    columns = np.array([7, 2, 2, 19])
    arrays = (C.data, C.indices.astype(kind), C.indptr.astype(kind))
    G = csc_weighted_gram(*arrays, columns, D, np.inf)
    np.testing.assert_allclose(G, A[:, columns].T @ (D[:, None] * A[:, columns]), atol=1e-13)
    assert csc_weighted_gram(*arrays, columns, D, 0.1).shape == (0, 0)


def test_columns_of_zeros_stay():
    A = np.zeros((6, 2), order="F")
    b, h = np.array([0.0, 1.5]), np.full(2, -1.0)
    rest = (np.zeros(2), np.zeros(2), np.zeros(2, bool))
    dense_descent(A.T, np.arange(2), np.ones(2), h, b, np.zeros(6), np.ones(6), *rest, 5, 2, 1e-6, 0.0)
    gram_descent(np.zeros((2, 2)), np.ones(2), b, *rest, 5, 1e-6)
    np.testing.assert_array_equal(b, [0.0, 1.5])


@pytest.mark.parametrize("dense", [True, False])
def test_without_curvature_a_threshold_alone_decides(dense):
    """Of four columns that only saturated rows have, the second is held at zero; the third has l1 = 0."""
    A = np.ones((5, 4), order="F")
    g, b, l1 = np.array([2.0, 0.3, 0.3, -0.3]), np.full(4, 1.5), np.array([1.0, 1.0, 0.0, 1.0])
    rest = (l1, np.zeros(4), np.array([False, False, False, True]))
    if dense:
        h, q, D = np.full(4, -1.0), np.zeros(5), np.full(5, 1e-16)
        dense_descent(A.T, np.arange(4), g, h, b, q, D, *rest, 1, 0, 1e-6, 0.0)
    else:
        gram_descent(5e-16 * np.ones((4, 4)), g.copy(), b, *rest, 1, 1e-6)
    np.testing.assert_array_equal(b, [1.5, 0.0, 1.5, 0.0])
