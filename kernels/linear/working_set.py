"""Steps of fits of small dense problems with penalties of single coefficients: see `solving.small`.

Each is compiled alone, for the compiler optimises a function again in all that call it.
"""

import numba as nb

from ..options import BORROWS, KERNEL
from .columns import FAST


@nb.njit(**{**KERNEL, **BORROWS, "fastmath": FAST})
def centre(XT, weights, new, A, shift):
    """Copy columns behind the others of `A` (>= m, n), less their means, and these behind those of `shift`.

    `new`: int64 (k,). `weights`: float64 (n,), of sum 1; empty for columns as they are. `shift`: float64
    (m + k,).
    """
    n, m = XT.shape[1], len(shift) - len(new)
    for k in range(len(new)):
        x, a, mean, rest = XT[new[k]], A[m + k], 0.0, 0.0
        first = x[0] if len(weights) > 0 else 0.0  # a column far from zero keeps its digits
        for i in range(len(weights)):
            mean += weights[i] * (x[i] - first)
        mean += first
        for i in range(n):
            a[i] = x[i] - mean
        for i in range(len(weights)):
            rest += weights[i] * a[i]
        for i in range(n):
            a[i] -= rest
        shift[m + k] = mean + rest


@nb.njit(**{**KERNEL, **BORROWS})
def balance(u):
    """Return the sum of slopes, and shrink them so that it is zero: dual feasible with an intercept."""
    above = below = 0.0
    for i in range(len(u)):
        if u[i] > 0.0:
            above += u[i]
        else:
            below -= u[i]
    for i in range(len(u)):
        if above > below and u[i] > 0.0:
            u[i] *= below / above
        elif below > above and u[i] < 0.0:
            u[i] *= above / below
    return abs(above - below)


@nb.njit(**{**KERNEL, **BORROWS, "fastmath": FAST})
def slopes(XT, u, V):
    """Fill ``V = -X^T u``, four columns at a time: BLAS takes three times as long where rows are few."""
    p, n = XT.shape
    for j in range(0, p, 4):
        k, q, m = min(j + 1, p - 1), min(j + 2, p - 1), min(j + 3, p - 1)
        a, b, c, d = XT[j], XT[k], XT[q], XT[m]
        first = second = third = fourth = 0.0
        for i in range(n):
            first += a[i] * u[i]
            second += b[i] * u[i]
            third += c[i] * u[i]
            fourth += d[i] * u[i]
        V[j], V[k], V[q], V[m] = -first, -second, -third, -fourth
