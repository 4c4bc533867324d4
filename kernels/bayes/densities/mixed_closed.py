"""The integral over the effects of one group with normal noise, and draws of them, in closed form.

See ``mixed_lattice`` for the notation; there may be any number of effects.
"""

import math

import numba as nb
import numpy as np

from ..streams import CALLED, fill_normal
from ..triangles import factor, solve_lower, solve_upper


@nb.njit(**CALLED)
def columns_of(Z, T):
    """A (k, n) with ``A' = Z T``."""
    n_rows, k = Z.shape
    A = np.zeros((k, n_rows))
    for j in range(k):
        for a in range(j, k):
            for i in range(n_rows):
                A[j, i] += Z[i, a] * T[a, j]
    return A


@nb.njit(**CALLED)
def _normal_posterior(f, y, weights, sigma, A, mode, C):
    """Fill mean and factor C of the precision C C' of z in a group with normal noise."""
    k, n = A.shape
    precision = 1.0 / (sigma * sigma)
    for a in range(k):
        mode[a] = 0.0
        for i in range(n):
            mode[a] += precision * weights[i] * A[a, i] * (y[i] - f[i])
        for b in range(a + 1):
            total = 1.0 if a == b else 0.0
            for i in range(n):
                total += precision * weights[i] * A[a, i] * A[b, i]
            C[a, b] = total
    factor(C)
    solve_lower(C, mode)
    solve_upper(C, mode)


@nb.njit(**CALLED)
def normal_integral(f, y, weights, sigma, Z, T, by_f, by_own, by_T):
    """See ``mixed_lattice.integral``."""
    n, k = Z.shape
    A, mode, C, inverse = columns_of(Z, T), np.empty(k), np.zeros((k, k)), np.zeros((k, k))
    _normal_posterior(f, y, weights, sigma, A, mode, C)
    value, squares, trace = 0.0, 0.0, 0.0
    for a in range(k):  # rows of C^-1, then of (C C')^-1
        inverse[a, a] = 1.0
        for b in range(a + 1):
            for m in range(b, a):
                inverse[a, b] -= C[a, m] * inverse[m, b]
            inverse[a, b] /= C[a, a]
    for b in range(k):
        solve_upper(C, inverse[:, b])
        trace += inverse[b, b]
        value -= math.log(C[b, b]) + 0.5 * mode[b] * mode[b]
    for i in range(n):
        gap = y[i] - f[i]
        for a in range(k):
            gap -= A[a, i] * mode[a]
        by_f[i] = weights[i] * gap / (sigma * sigma)
        squares += weights[i] * gap * gap
    by_own[0] += squares / (sigma * sigma * sigma) + (k - trace) / sigma
    for i in range(n):
        for b in range(k):
            spread = 0.0
            for a in range(k):
                spread += A[a, i] * inverse[a, b]
            part = by_f[i] * mode[b] - weights[i] / (sigma * sigma) * spread
            for a in range(b, k):
                by_T[a, b] += Z[i, a] * part
    return value - 0.5 * squares / (sigma * sigma)


@nb.njit(**CALLED)
def draw_normal(f, y, weights, sigma, Z, T, stream, u):
    """See ``mixed_lattice.draw_group``."""
    k = len(u)
    mode, z, C = np.empty(k), np.empty(k), np.zeros((k, k))
    _normal_posterior(f, y, weights, sigma, columns_of(Z, T), mode, C)
    fill_normal(stream, z)
    solve_upper(C, z)
    for a in range(k):
        u[a] = 0.0
        for b in range(a + 1):
            u[a] += T[a, b] * (mode[b] + z[b])
