"""Exchanges of one coefficient for another in a quadratic model with a penalty of each: see `blocks`."""

import numba as nb
import numpy as np

from ..indexing import copy
from ..options import KERNEL
from .blocks import _cost, minimise_columns, phi, single
from .descent import subtract

TRIED, _MOST_SWEEPS = 5, 50  # exchanges at a point, and sweeps after each


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


@nb.njit(**KERNEL)
def exchange_columns(H, G, b, steps, lam, lam1, low, high, gamma, kind, tol, fall, most, first):
    """Exchange columns, each time with descent to `tol`, while model and penalty fall by more than `fall`.

    At each point those of the least rise are tried, but for the `first` ones. Changes b and the slopes G at
    it; returns how many were kept, at most `most`. Others: see `blocks.minimise_columns`.
    """
    m, n_kept, sweeps = len(b), 0, np.int64(_MOST_SWEEPS)  # a constant would be compiled anew
    before, slopes = np.empty(m), np.empty(m)
    while n_kept < most:
        given, taken, values, rises = exchanges(H, G, b, lam, lam1, low, high, gamma, kind)
        copy(b, before)
        copy(G, slopes)
        rise = 0.0
        for trial in range(min(TRIED, len(rises))):
            k = np.argmin(rises)
            rises[k] = np.inf
            if trial < first:
                continue
            i, j = given[k], taken[k]
            subtract(G, b[i], H[i], m)
            subtract(G, -values[k], H[j], m)
            b[i], b[j] = 0.0, values[k]
            minimise_columns(H, G, b, steps, lam, lam1, low, high, gamma, kind, tol, sweeps, m)
            rise = 0.0  # <g, d> + <d, H d> / 2, with H d the change of the slopes
            for e in range(m):
                if b[e] != before[e]:
                    rise += 0.5 * (b[e] - before[e]) * (slopes[e] + G[e])
                    rise += _cost(b[e], lam[e], lam1[e], gamma, kind)
                    rise -= _cost(before[e], lam[e], lam1[e], gamma, kind)
            if rise < -fall:
                break
            copy(before, b)
            copy(slopes, G)
        if not rise < -fall:
            break
        n_kept += 1
    return n_kept
