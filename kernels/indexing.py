"""Indices known not to be negative, and copies of vectors.

A signed index may count from the end. numba tests for that at every access, which keeps loops over the
entries of a sparse column from being vectorised: a sweep over one takes 2.5 times as long.
"""

import numba as nb
from numpy import uint64

from .options import BORROWS, INNER, KERNEL


@nb.njit(inline="always")
def at(index):
    """Return the index as an unsigned integer."""
    return uint64(index)


@nb.njit(inline="always")
def span(indptr, j):
    """Return the range of the entries of column j."""
    return range(uint64(indptr[j]), uint64(indptr[j + 1]))


@nb.njit(**{**KERNEL, **INNER, **BORROWS})
def copy(source, target):
    """Copy a vector. A slice assignment compiles the text of its error, too: 2.7 s of a first fit."""
    for i in range(len(source)):
        target[i] = source[i]
