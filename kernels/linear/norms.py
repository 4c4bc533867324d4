"""Means and norms of the columns of a dense or CSC matrix, safe from overflow; see `linear_columns`."""

from typing import Any

import numba as nb
import numpy as np

from .columns import FAST

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
_SUMS: dict[str, Any] = {**_OPTIONS, "fastmath": FAST}
_SAFE = (1e-200, 1e200)  # sums of squares that have neither overflowed nor lost digits


@nb.njit(**_SUMS)
def _plain_moments(x, n):
    """Mean of the values `x` and of zeros, `n` in all, and sum of squares about it; overflow is not met."""
    total, squares = 0.0, 0.0
    for e in range(len(x)):
        total += np.float64(x[e])
    mean = total / n
    for e in range(len(x)):
        squares += (np.float64(x[e]) - mean) ** 2
    return mean, squares + (n - len(x)) * mean**2


@nb.njit(**_OPTIONS)
def dense_norms(XT, means, norms):
    """Fill in the mean of each column, and the norm of the column less its mean."""
    n = XT.shape[1]
    for j in range(len(XT)):
        x = XT[j]
        mean, squares = _plain_moments(x, n)
        if _SAFE[0] < squares < _SAFE[1]:
            means[j], norms[j] = mean, np.sqrt(squares)
            continue
        largest = 0.0
        for row in range(n):
            largest = max(largest, abs(np.float64(x[row])))
        means[j] = norms[j] = 0.0
        if largest == 0.0:
            continue
        total = 0.0
        for row in range(n):
            total += x[row] / largest
        mean = total / n
        squares = 0.0
        for row in range(n):
            squares += (x[row] / largest - mean) ** 2
        means[j] = mean * largest
        norms[j] = np.sqrt(squares) * largest


@nb.njit(**_OPTIONS)
def csc_norms(data, indptr, n, means, norms):
    """Fill in the mean of each column, and the norm of the column less its mean; `n` rows."""
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        mean, squares = _plain_moments(data[first:last], n)
        if _SAFE[0] < squares < _SAFE[1]:
            means[j], norms[j] = mean, np.sqrt(squares)
            continue
        largest = 0.0
        for e in range(first, last):
            largest = max(largest, abs(np.float64(data[e])))
        means[j] = norms[j] = 0.0
        if largest == 0.0:
            continue
        total = 0.0
        for e in range(first, last):
            total += data[e] / largest
        mean = total / n
        squares = (n - (last - first)) * mean**2
        for e in range(first, last):
            squares += (data[e] / largest - mean) ** 2
        means[j] = mean * largest
        norms[j] = np.sqrt(squares) * largest
