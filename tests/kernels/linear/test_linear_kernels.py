"""Kernels of the sparse linear models against plain numpy."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from stradask.algorithms.linear.sparse.columns import columns_of
from stradask.kernels.linear import column_moments
from stradask.kernels.linear import columns as linear_columns
from stradask.kernels.linear import descent as linear_descent

RNG = np.random.default_rng(0)
DENSE = np.asfortranarray(RNG.standard_normal((37, 11)) + 2)
SPARSE = sparse.csc_array(DENSE * (RNG.random(DENSE.shape) < 0.4))
V = RNG.standard_normal((2, 37))
CHOSEN = np.array([7, 0, 3, 10, 9, 2])
WEIGHTS = RNG.random(37) + 0.1


def parts(X):
    return X.data, X.indices, X.indptr


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_with_columns(dtype):
    X, out = DENSE.astype(dtype), np.empty((2, 6))
    linear_columns.dense_dot(X.T, CHOSEN, V, out)
    np.testing.assert_allclose(out, V @ X[:, CHOSEN].astype(float), rtol=1e-12)
    linear_columns.csc_dot(*parts(SPARSE.astype(dtype)), CHOSEN, V, out)
    np.testing.assert_allclose(out, V @ SPARSE.astype(dtype).toarray()[:, CHOSEN].astype(float), rtol=1e-12)


def test_a_product_has_the_same_bits_in_any_company():
    whole = np.empty((2, 11))
    linear_columns.dense_dot(DENSE.T, np.arange(11), V, whole)
    for company in ([4], [4, 5], [1, 4, 2], [9, 8, 7, 6, 4], [4, 3, 2, 1, 0, 5, 6, 7, 8]):
        out = np.empty((2, len(company)))
        linear_columns.dense_dot(DENSE.T, np.array(company), V, out)
        np.testing.assert_array_equal(out, whole[:, company])
    alone = np.empty((2, 1))  # of a matrix of one column, which is C-ordered as well
    linear_columns.dense_dot(np.asfortranarray(DENSE[:, [4]]).T, np.array([0]), V, alone)
    np.testing.assert_array_equal(alone, whole[:, [4]])


def test_a_shard_of_a_single_column_gives_the_same_bits():
    """In Fortran order it is in C order too: to numba another type, compiled to another order of sums."""
    products = columns_of(DENSE).dot(np.arange(11), V[:1])[0]
    for j in range(11):
        assert columns_of(DENSE[:, j : j + 1]).dot(np.arange(1), V[:1])[0, 0] == products[j]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_columns_have_the_same_bits_in_parts(dtype):
    columns, coef = np.arange(11), RNG.standard_normal(11).astype(dtype)
    X, whole = DENSE.astype(dtype), V[0].astype(dtype)
    linear_columns.dense_add(X.T, columns, coef, whole)
    for bounds in ([0, 2, 11], [0, 1, 4, 9, 11], [0, 6, 7, 11]):
        out = V[0].astype(dtype)
        for a, b in itertools.pairwise(bounds):
            linear_columns.dense_add(X.T, columns[a:b], coef[a:b], out)
        np.testing.assert_array_equal(out, whole)


def test_sums_of_columns():
    coef = RNG.standard_normal(6)
    out = V[0].copy()
    linear_columns.dense_add(DENSE.T, CHOSEN, coef, out)
    np.testing.assert_allclose(out, V[0] + DENSE[:, CHOSEN] @ coef, rtol=1e-10)


def test_lower_triangle():
    G = RNG.standard_normal((5, 5))
    G += G.T
    out = np.zeros((3, 3), order="F")
    linear_descent.gather_lower(G, np.array([4, 0, 2]), out)
    np.testing.assert_array_equal(out, np.tril(G[np.ix_([4, 0, 2], [4, 0, 2])]))


def coordinate_minimiser(A, rho, b, j, l1, l2, positive):
    """By a grid around the exact answer's neighbourhood: golden section would do as well."""
    grid = np.linspace(0 if positive else -3, 3, 60001)
    r = rho + A[:, j] * b[j]
    values = (r @ r - 2 * grid * (A[:, j] @ r) + grid**2 * (A[:, j] @ A[:, j])) / 2
    return grid[np.argmin(values + l1 * abs(grid) + l2 * grid**2 / 2)]


@pytest.mark.parametrize("positive", [False, True])
def test_a_sweep_moves_each_coordinate_to_its_minimum(positive):
    l1, l2 = np.linspace(0, 20, 11), np.linspace(3, 0, 11)
    rho, start = V[0].copy(), RNG.standard_normal(11) * 0.1
    start = abs(start) if positive else start
    expected, residual = start.copy(), rho.copy()
    for j in range(11):
        new = coordinate_minimiser(DENSE, residual, expected, j, l1[j], l2[j], positive)
        residual -= DENSE[:, j] * (new - expected[j])
        expected[j] = new
    norms = (DENSE**2).sum(axis=0)
    A, slopes = DENSE.astype(np.float32), DENSE.T @ rho
    b, change = start.copy(), np.zeros(37, np.float32)
    assert (
        linear_descent.dense_sweeps(A.T, np.arange(11), norms, slopes, change, b, l1, l2, positive, 0) == 11
    )
    np.testing.assert_allclose(b, expected, atol=2e-3)
    np.testing.assert_allclose(rho + change, rho - DENSE @ (b - start), atol=1e-4)
    G, b, kept = DENSE.T @ DENSE, start.copy(), slopes.copy()
    linear_descent.gram_sweeps(G, kept, b, l1, l2, positive, 1, 0)
    np.testing.assert_allclose(b, expected, atol=2e-3)
    np.testing.assert_allclose(kept, slopes - G @ (b - start), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_of_squares_misses_no_entry(dtype):
    for n in range(12):
        values = np.arange(1, n + 1).astype(dtype)
        assert column_moments.sum_of_squares(values) == n * (n + 1) * (2 * n + 1) // 6
        for i, what in itertools.product(
            range(n), (np.nan, np.inf, -np.inf, np.sqrt(np.finfo(dtype).max) * 1.1)
        ):
            wrong = values.copy()
            wrong[i] = what
            assert not np.isfinite(dtype(column_moments.sum_of_squares(wrong)))
