"""Cholesky factors of small matrices, and solutions with them, in place."""

import math

import numba as nb

from .streams import CALLED


@nb.njit(**CALLED)
def factor(V):
    """Replace the lower triangle of a positive definite matrix by its Cholesky factor."""
    for i in range(len(V)):
        for j in range(i + 1):
            total = V[i, j]
            for m in range(j):
                total -= V[i, m] * V[j, m]
            V[i, j] = math.sqrt(total) if i == j else total / V[j, j]


@nb.njit(**CALLED)
def solve_lower(L, x):
    """Replace x by L^-1 x."""
    for i in range(len(x)):
        total = x[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]


@nb.njit(**CALLED)
def solve_upper(L, x):
    """Replace x by L^-T x."""
    for i in range(len(x) - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, len(x)):
            total -= L[j, i] * x[j]
        x[i] = total / L[i, i]
