"""Indices known not to be negative.

A signed index may count from the end. numba tests for that at every access, which keeps loops over the
entries of a sparse column from being vectorised: a sweep over one takes 2.5 times as long.
"""

import numba as nb
from numpy import uint64


@nb.njit(inline="always")
def at(index):
    """Return the index as an unsigned integer."""
    return uint64(index)


@nb.njit(inline="always")
def span(indptr, j):
    """Return the range of the entries of column j."""
    return range(uint64(indptr[j]), uint64(indptr[j + 1]))
