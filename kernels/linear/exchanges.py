"""Exchanges of one coefficient for another in a quadratic model with a penalty of each: see `blocks`."""

import numba as nb
import numpy as np

from ..indexing import copy
from ..options import INNER, KERNEL
from .blocks import _cost, minimise_columns, phi, single
from .descent import subtract
from .newton import STEPS, violation_of, visited

TRIED, _MOST_SWEEPS = 5, 50  # exchanges at a point, and sweeps after each
_MOST, _SWEEPS = 100, 20_000  # exchanges from a point, and sweeps of a descent: caps
FALL = 1e-5  # of the objective, for an exchange to be kept: what descent leaves is less
_ALIKE = 1e-6  # of objectives, between starts that led to one point


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


@nb.njit(**KERNEL, **INNER)
def _rise(b, G, start, slopes, P, gamma, kind):
    """How far model and penalty rise from a start to b; `slopes`, `G`: of the model at these."""
    rise = 0.0
    for j in range(len(b)):
        if b[j] != start[j]:
            rise += 0.5 * (b[j] - start[j]) * (slopes[j] + G[j])
            rise += _cost(b[j], P[0, j], P[1, j], gamma, kind)
            rise -= _cost(start[j], P[0, j], P[1, j], gamma, kind)
    return rise


@nb.njit(**KERNEL)
def lowest_point(H, slopes, b, steps, P, path, value, most_chosen, gamma, kind, tol):
    """Minimise model and penalty from three starts, exchange columns from each, and keep the lowest point.

    The first goes along falling strengths, the last of them 1. In the second columns get coefficients by and
    by, those first that break the conditions most. The third is the minimum of the norm. No columns of a
    point with more than `most_chosen` are exchanged.

    `P`: float64 (5, m), lam, l1, ridge (which H has), low and high. `path`: float64 (2, n), strengths and
    tolerances. `slopes`, `value`: of the model and the objective at b, which is changed. Others: see
    `blocks.minimise_columns`.
    """
    m, sweeps, most = len(b), np.int64(_SWEEPS), np.int64(_MOST)  # constants would be compiled anew
    lam, l1, low, high = P[0], P[1], P[3], P[4]
    weak, weak_l1, some, wrong = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    points, ends, values, rows = np.empty((3, m)), np.empty((3, m)), np.empty(3), np.empty(m, np.int64)
    for way in range(3):
        point, G = points[way], ends[way]
        copy(b, point)
        copy(slopes, G)
        for stage in range(path.shape[1] if way == 0 else STEPS if way == 1 else 2):
            strength, enough = (path[0, stage], path[1, stage]) if way == 0 else (1.0, tol)
            is_norm = way == 2 and stage == 0
            worst = 0.0
            for j in range(m):
                weak[j], weak_l1[j], some[j] = strength * lam[j], strength * l1[j], steps[j]
                wrong[j] = violation_of(point[j], -G[j], lam[j], l1[j], low[j], high[j], gamma, kind)
                worst = max(worst, wrong[j])
            if way == 1:
                if worst <= tol:
                    break
                k = visited(point, wrong, P, True, rows)
                for j in range(m):
                    some[j] = 0.0
                for i in range(k):
                    some[rows[i]] = steps[rows[i]]
            form = 0 if is_norm else kind
            minimise_columns(H, G, point, some, weak, weak_l1, low, high, gamma, form, enough, sweeps, m)
        values[way] = value + _rise(point, G, b, slopes, P, gamma, kind)
    best, last, start = np.inf, np.inf, np.empty(m)
    copy(b, start)
    for _ in range(3):
        way = np.argmin(values)
        point, G, end = points[way], ends[way], values[way]
        values[way] = np.inf
        n_chosen = 0
        for j in range(m):
            n_chosen += point[j] != 0.0
        if n_chosen <= most_chosen and abs(end - last) > _ALIKE * abs(end):
            fall = FALL * abs(end)
            while exchange_columns(H, G, point, steps, lam, l1, low, high, gamma, kind, tol, fall, most, 0):
                minimise_columns(H, G, point, steps, lam, l1, low, high, gamma, kind, tol, sweeps, m)
        last = end
        end = value + _rise(point, G, start, slopes, P, gamma, kind)
        if end < best:
            best = end
            copy(point, b)
