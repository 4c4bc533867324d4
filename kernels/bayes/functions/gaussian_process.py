"""Covariances, Cholesky factors and normal densities of Gaussian processes, with derivatives."""

import math

import numba as nb
import numpy as np

from ..streams import OPTIONS


@nb.njit(**OPTIONS)
def squared_exponential(x, sd, length):
    """Return the covariance matrix ``K_ij = sd^2 exp(-|x_i - x_j|^2 / (2 length^2))``.

    Parameters
    ----------
    x : array of shape (n,) or (n, p)
    sd, length : float

    Returns
    -------
    array of shape (n, n)
    """
    n = len(x)
    K = np.empty((n, n))
    for i in range(n):
        K[i, i] = sd * sd
        for j in range(i):
            K[i, j] = sd * sd * math.exp(-0.5 * _square(x, i, j) / (length * length))
            K[j, i] = K[i, j]
    return K


@nb.njit(**OPTIONS)
def squared_exponential_gradient(x, sd, length, by_K):
    """Return the derivatives in (sd, length) of a function with the derivatives `by_K` (n, n) in all K_ij."""
    by_sd, by_length = 0.0, 0.0
    for i in range(len(x)):
        by_sd += by_K[i, i] * 2.0 * sd
        for j in range(i):
            square = _square(x, i, j) / (length * length)
            slope = (by_K[i, j] + by_K[j, i]) * sd * math.exp(-0.5 * square)
            by_sd += 2.0 * slope
            by_length += slope * sd * square / length
    return by_sd, by_length


@nb.njit(**OPTIONS)
def _square(x, i, j):
    return ((x[i] - x[j]) ** 2).sum() if x.ndim == 2 else (x[i] - x[j]) ** 2


@nb.njit(**OPTIONS)
def multivariate_normal(y, K, by_y=None, by_K=None):
    """Return the log density of ``y ~ N(0, K)``, constants included; n^3 / 3 operations, and n^3 for `by_K`.

    Parameters
    ----------
    y : array of shape (n,)
        Observations, less their mean.
    K : array of shape (n, n)
        Covariance matrix.
    by_y, by_K : arrays of the same shapes, optional
        Derivatives are added to those that are given, in all entries of K as if they were free.

    Returns
    -------
    float

    Raises
    ------
    LinAlgError
        If K is not positive definite, which `sample` takes for a density of zero.
    """
    n = len(y)
    L = np.linalg.cholesky(K)
    solved = _solve_back(L, _solve(L, y))
    logp = -0.5 * n * math.log(2.0 * math.pi)
    for i in range(n):
        logp -= 0.5 * y[i] * solved[i] + math.log(L[i, i])
    if by_y is not None:
        by_y -= solved
    if by_K is not None:
        inverse = np.linalg.inv(K)
        for i in range(n):
            for j in range(n):
                by_K[i, j] += 0.5 * (solved[i] * solved[j] - 0.5 * (inverse[i, j] + inverse[j, i]))
    return logp


@nb.njit(**OPTIONS)
def _solve(L, y):
    x = np.empty(len(y))  # of counts a copy would hold no fractions
    for i in range(len(x)):
        x[i] = y[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] /= L[i, i]
    return x


@nb.njit(**OPTIONS)
def _solve_back(L, y):
    x = y.copy()
    for i in range(len(x) - 1, -1, -1):
        x[i] /= L[i, i]
        for j in range(i):
            x[j] -= L[i, j] * x[i]
    return x


@nb.njit(**OPTIONS)
def cholesky_gradient(L, by_L):
    """Return the derivatives in all entries of K of a function of its lower Cholesky factor L.

    For latent processes ``f = L z`` with standard normal z: ``by_L = np.outer(by_f, z)``. Column by column
    from the last one, n^3 / 3 operations (Murray, "Differentiation of the Cholesky decomposition", 2016).

    Parameters
    ----------
    L : array of shape (n, n)
        ``np.linalg.cholesky(K)``.
    by_L : array of shape (n, n)
        Derivatives in L; those above the diagonal do not count.

    Returns
    -------
    array of shape (n, n)
        Half of each derivative on either side of the diagonal.
    """
    n = len(L)
    by = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            by[i, j] = by_L[i, j]
    for j in range(n - 1, -1, -1):
        for i in range(n - 1, j, -1):
            by[i, j] /= L[j, j]
            by[j, j] -= by[i, j] * L[i, j]
            for k in range(j):
                by[i, k] -= by[i, j] * L[j, k]
                by[j, k] -= by[i, j] * L[i, k]
        by[j, j] *= 0.5 / L[j, j]
        for k in range(j):
            by[j, k] -= 2.0 * by[j, j] * L[j, k]
    for i in range(n):
        for j in range(i):
            by[i, j] *= 0.5
            by[j, i] = by[i, j]
    return by
