"""Slopes of small dense problems with penalties of single coefficients: see `solving.small`."""

import numba as nb

from ..options import BORROWS, KERNEL
from .columns import FAST


@nb.njit(**{**KERNEL, **BORROWS, "fastmath": FAST})
def slopes(XT, u, V, balances):
    """Fill ``V = -X^T u``; return by how much slopes u differ from a sum of zero, to which they shrink first.

    Then they are dual feasible with an intercept; only if it `balances`. Four columns go at a time: BLAS
    takes three times as long where rows are few.
    """
    p, n, above, below = *XT.shape, 0.0, 0.0
    for i in range(n if balances else 0):
        if u[i] > 0.0:
            above += u[i]
        else:
            below -= u[i]
    for i in range(n if above != below else 0):
        if above > below and u[i] > 0.0:
            u[i] *= below / above
        elif below > above and u[i] < 0.0:
            u[i] *= above / below
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
    return abs(above - below)
