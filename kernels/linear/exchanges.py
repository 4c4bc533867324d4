"""Exchanges of one coefficient for another in a quadratic model with a penalty of each: see `blocks`."""

import numba as nb
import numpy as np

from ..options import KERNEL
from .blocks import phi, single


@nb.njit(**KERNEL)
def exchanges(H, g, b, lam, lam1, low, high, gamma, kind):
    """For each coefficient that is not zero, and may be, the column that best takes its place.

    `H` (m, m), `g` (m,): curvatures and slopes of the model at `b`. Returns places of the coefficients, of
    the columns, their values, and how far model and penalty rise. What nothing replaces is left out.
    """
    m = len(b)
    given, taken = np.empty(m, np.int64), np.empty(m, np.int64)
    values, rises = np.empty(m), np.empty(m)
    n = 0
    for i in range(m):
        if b[i] == 0.0 or (lam[i] == 0.0 and lam1[i] == 0.0):
            continue
        best, at, value = np.inf, -1, 0.0
        for j in range(m):
            curvature = H[j, j]
            if b[j] != 0.0 or curvature <= 0.0:
                continue
            slope = g[j] - H[i, j] * b[i]
            v = single(0.0, slope, 1 / curvature, lam[j], lam1[j], low[j], high[j], gamma, kind)
            rise = v * (slope + 0.5 * curvature * v) + phi(abs(v), lam[j], gamma, kind) + lam1[j] * abs(v)
            if v != 0.0 and rise < best:
                best, at, value = rise, j, v
        if at < 0:
            continue
        given[n], taken[n], values[n] = i, at, value
        rises[n] = best + b[i] * (0.5 * H[i, i] * b[i] - g[i])
        rises[n] -= phi(abs(b[i]), lam[i], gamma, kind) + lam1[i] * abs(b[i])
        n += 1
    return given[:n], taken[:n], values[:n], rises[:n]
