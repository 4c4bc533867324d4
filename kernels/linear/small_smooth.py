"""Newton's method for a smooth loss of few rows and columns, with weighted absolute values: a step a call.

::

    F(b) = mean_i w_i l(y_i, x_i b) + l2 / 2 sum_j b_j^2 + sum_j l1_j |b_j|,     the intercept not in l2

Columns are rows of `XT`, the last of them ones if there is an intercept. A step minimises the quadratic
model of the loss plus the penalties, by descent and steps on present signs (`gram_path`); without l1 that is
one system.
"""

from typing import Any

import numba as nb
import numpy as np
from numba import types

from .. import one_form
from ..indexing import copy
from ..options import INNER, KERNEL
from .columns import FAST
from .descent import dot
from .glm_losses import tile_losses
from .gram_path import step_on_signs, sweep

_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
# Line search: the share of the promised decrease, rounding, a cap.
ARMIJO, SLACK, HALVINGS = 1e-4, 1e-13, 40
_SWEEPS, _BETWEEN = 1000, 8  # of a model; between steps on signs
_EXACT = 1e-10  # of what a model promises, that another sweep may gain
CONVERGED, GOES_ON, STUCK = 0, 1, 2  # of a step


@nb.njit(**_SUMS, **INNER)
def _images(XT, b, z):
    """Fill ``z = X b``."""
    z[:] = 0.0
    for j in range(len(b)):
        step, x = b[j], XT[j]
        if step != 0.0:
            for i in range(len(z)):
                z[i] += step * x[i]


@nb.njit(**_SUMS, **INNER)
def _products(XT, h, H, hx):
    """Fill the lower triangle of ``H = X^T diag(h) X / n``, two columns at a time, and mirror it."""
    p, n = XT.shape
    for a in range(p):
        x = XT[a]
        for i in range(n):
            hx[i] = h[i] * x[i]
        for c in range(0, a + 1, 2):
            other = min(c + 1, a)
            u, v, first, second = XT[c], XT[other], 0.0, 0.0
            for i in range(n):
                first += hx[i] * u[i]
                second += hx[i] * v[i]
            H[a, c] = H[c, a] = first / n
            H[a, other] = H[other, a] = second / n


@nb.njit(**KERNEL, **INNER)
def _penalty(b, l1, l2):
    total = 0.0
    for j in range(len(b)):
        total += l1[j] * abs(b[j]) + 0.5 * l2[j] * b[j] * b[j]
    return total


@nb.njit(**KERNEL, **INNER)
def _minimise_model(H, g, x, l1, zeros, b, slopes, c, support, L, z):
    """Minimise ``g (b - x) + (b - x) H (b - x) / 2 + sum_j l1_j |b_j|``; False where it is singular."""
    m = len(b)
    copy(x, b)
    penalised = False
    for j in range(m):
        slopes[j] = -g[j]
        c[j] = -g[j] + dot(H[j], x, m)
        penalised = penalised or l1[j] > 0.0
    if not penalised:
        return step_on_signs(H, slopes, c, b, l1, zeros, m, support, L, z, 0.0)
    regular = True
    for t in range(_SWEEPS):
        sweep(H, slopes, b, l1, zeros, False, m)
        if t % _BETWEEN == _BETWEEN - 1 and regular:
            regular = step_on_signs(H, slopes, c, b, l1, zeros, m, support, L, z, 0.0)
        gain = fell = 0.0
        for j in range(m):
            rise = abs(slopes[j]) - l1[j]
            if b[j] != 0.0:
                rise = slopes[j] - (l1[j] if b[j] > 0.0 else -l1[j])
            if rise > 0.0 or b[j] != 0.0:
                gain += rise * rise / (2.0 * H[j, j])
            fell += 0.5 * (slopes[j] - g[j]) * (b[j] - x[j]) - l1[j] * (abs(b[j]) - abs(x[j]))
        if gain <= _EXACT * fell or (gain == 0.0 and fell == 0.0):
            break
    return True


@one_form.njit(
    types.int64(
        types.int64, _MATRIX, _VECTOR, _VECTOR, _VECTOR, _VECTOR, types.float64, types.float64, _VECTOR,
        _MATRIX, _MATRIX, _MATRIX, _MATRIX, types.int64[::1], _VECTOR,
    ),
    **KERNEL,
)  # fmt: skip
def newton_step(loss, XT, y, weights, l1, l2, constant, tol, x, L, H, columns, rows, support, figures):
    """Take one step; return CONVERGED (after it), GOES_ON or STUCK (without it).

    `loss`: see `glm_losses`. `XT`: float64 (p, n). `y`: float64 (n,). `weights`: float64 (n,) or (0,). `l1`,
    `l2`: float64 (p,). `constant`: is added to F. `tol`: of the promised decrease, relative to F, for the
    last step. `x`: float64 (p,), changed. `L`, `H`: float64 (p, p), `columns`: float64 (5, p), `rows`:
    float64 (6, n), `support`: int64 (p,), work space. `figures`: float64 (3,): F at x, the promised decrease
    of the step, its length.
    """
    p, n = XT.shape
    z, values, slopes, curvatures, moved, trial = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    g, b, q, c, d = columns[0], columns[1], columns[2], columns[3], columns[4]
    _images(XT, x, z)
    F = tile_losses(loss, z, y, weights, n, values, slopes, curvatures) / n + _penalty(x, l1, l2) + constant
    figures[0] = F
    _products(XT, curvatures, H, values)
    for j in range(p):
        g[j] = dot(XT[j], slopes, n) / n + l2[j] * x[j]
        H[j, j] += l2[j]
        if not H[j, j] > 0.0 and l1[j] == 0.0:
            return STUCK
    q[:] = 0.0
    if not np.isfinite(F) or not _minimise_model(H, g, x, l1, np.zeros(p), b, q, c, support, L, d):
        return STUCK
    promised = 0.0
    for j in range(p):
        d[j] = b[j] - x[j]
        promised += g[j] * d[j] + l1[j] * (abs(b[j]) - abs(x[j]))
    bent = 0.0
    for j in range(p):
        bent += d[j] * dot(H[j], d, p)
    figures[1] = -promised - 0.5 * bent
    if not promised < 0.0:
        figures[1] = figures[2] = 0.0
        return CONVERGED if promised == 0.0 else STUCK
    near = figures[1] <= tol * abs(F)
    _images(XT, d, moved)
    t = 1.0
    for _ in range(HALVINGS):
        for j in range(p):
            b[j] = x[j] + t * d[j]
        for i in range(n):
            trial[i] = z[i] + t * moved[i]
        there = tile_losses(loss, trial, y, weights, n, values, slopes, curvatures) / n
        there += _penalty(b, l1, l2) + constant
        if there <= F + ARMIJO * t * promised + SLACK * abs(F):
            copy(b, x)
            figures[0], figures[2] = there, t
            return CONVERGED if near else GOES_ON
        t *= 0.5
    return STUCK
