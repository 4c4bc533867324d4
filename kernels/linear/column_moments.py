"""Sums and sums of squares, of the columns of a dense or CSC matrix (see `linear_columns`) or of a vector."""

import numba as nb

from ..indexing import at, span
from ..options import KERNEL

_IN_ANY_ORDER = {"reassoc", "contract", "nsz"}  # of sums; that all is finite is not taken for granted


@nb.njit(**KERNEL)
def dense_moments(XT, weights, sums, squares):
    """Fill `sums` and `squares` (float64) with ``sum_i w_i x_ij`` and ``sum_i w_i x_ij^2``."""
    for j in range(len(XT)):
        first = second = 0.0
        for i in range(XT.shape[1]):
            part = weights[i] * XT[j, i]
            first += part
            second += part * XT[j, i]
        sums[j], squares[j] = first, second


@nb.njit(**KERNEL)
def csc_moments(data, indices, indptr, weights, sums, squares):
    """The same for CSC."""
    for j in range(len(indptr) - 1):
        first = second = 0.0
        for e in span(indptr, j):
            part = weights[at(indices[e])] * data[e]
            first += part
            second += part * data[e]
        sums[j], squares[j] = first, second


@nb.njit(**KERNEL, fastmath=_IN_ANY_ORDER)
def sum_of_squares(values):
    """Sum the squares of a vector in its own type: not finite where an entry is not, or where that overflows.

    Quarters are read in step: a core reads memory faster in several streams than in one.
    """
    n = len(values) // 4
    a, b, c, d = values[:n], values[n : 2 * n], values[2 * n : 3 * n], values[3 * n : 4 * n]
    zero = values.dtype.type(0)
    first, second, third, fourth = zero, zero, zero, zero
    for i in range(n):
        first += a[i] * a[i]
        second += b[i] * b[i]
        third += c[i] * c[i]
        fourth += d[i] * d[i]
    for i in range(4 * n, len(values)):
        first += values[i] * values[i]
    return (first + second) + (third + fourth)
