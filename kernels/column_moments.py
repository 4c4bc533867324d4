"""Weighted sums and sums of squares of the columns of a dense or CSC matrix; see `linear_columns`."""

from typing import Any

import numba as nb

from .indexing import at, span

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@nb.njit(**_OPTIONS)
def dense_moments(XT, weights, sums, squares):
    """Fill `sums` and `squares` (float64) with ``sum_i w_i x_ij`` and ``sum_i w_i x_ij^2``."""
    for j in range(len(XT)):
        first = second = 0.0
        for i in range(XT.shape[1]):
            part = weights[i] * XT[j, i]
            first += part
            second += part * XT[j, i]
        sums[j], squares[j] = first, second


@nb.njit(**_OPTIONS)
def csc_moments(data, indices, indptr, weights, sums, squares):
    """The same for CSC."""
    for j in range(len(indptr) - 1):
        first = second = 0.0
        for e in span(indptr, j):
            part = weights[at(indices[e])] * data[e]
            first += part
            second += part * data[e]
        sums[j], squares[j] = first, second
