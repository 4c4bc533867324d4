"""Steps of Newton's method for the multinomial loss of K classes: see `solving.class_steps`.

A is a tuple of data, indices and indptr of a CSC matrix, or an array of columns as rows, perhaps float32; its
type is that of V and its mean then, which are float64 else. The intercept of a class is behind its columns.
"""

from typing import Any

import numba as nb
import numpy as np

from ..exponentials import fast_exp
from ..options import INNER, KERNEL
from .newton import _log_times, _total, violation_of
from .sparse_newton import _add, _dot, _moments, _sweep

MULTINOMIAL = 5  # as `newton` numbers its losses
_IN_ORDER: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}  # as `fast_exp` needs it
_NEAR = 0.9  # columns at zero take part in a model from this part of their threshold on
_SUPPORT_SWEEPS, _SMALL = 4, 0.2  # after each full sweep; part of its largest change at which they end
_BOUND = 0.5  # the largest curvature of a class, which damps where probabilities of 0 or 1 leave none
_TILE = 512  # rows


@nb.njit(**_IN_ORDER)
def class_losses(y, weights, f, p, u):
    """Return the weighted loss at predictors f (K, n); fill p with the probabilities, u with the slopes.

    `y`: float64 (K, n), shares of the classes. A row without weight counts for nothing.
    """
    K, n = f.shape
    top, norm = np.empty(_TILE), np.empty(_TILE)
    total = 0.0
    for first in range(0, n, _TILE):
        size = min(_TILE, n - first)
        for i in range(size):
            top[i], norm[i] = f[0, first + i], 0.0
        for k in range(1, K):
            for i in range(size):
                top[i] = max(top[i], f[k, first + i])
        for k in range(K):
            for i in range(size):
                e = fast_exp(f[k, first + i] - top[i])
                p[k, first + i] = e
                norm[i] += e
        for i in range(size):
            if weights[first + i] > 0.0:
                total += weights[first + i] * np.log(norm[i])
        for k in range(K):
            for i in range(size):
                j = first + i
                p[k, j] /= norm[i]
                u[k, j] = 0.0
                if weights[j] > 0.0:
                    u[k, j] = weights[j] * (p[k, j] - y[k, j])
                    if y[k, j] > 0.0:
                        total += weights[j] * y[k, j] * (top[i] - f[k, j])
    return total


@nb.njit(**KERNEL)
def class_conjugate(y, weights, u, scale):
    """Conjugate of the weighted loss at a share `scale` of slopes u (K, n)."""
    total = 0.0
    for k in range(len(u)):
        for i in range(len(weights)):
            if weights[i] > 0.0:
                total += weights[i] * _log_times(min(max(scale * u[k, i] / weights[i] + y[k, i], 0.0), 1.0))
    return total


@nb.njit(**KERNEL)
def begin_model(X, ids, u, p, weights, b, P, damping, fit_intercept, tol, g, near, model, totals):
    """Begin the second-order model at coefficients b (K, m); return how much the conditions are broken there.

    Fills, where that is more than `tol`: g (K, m + 1), the slopes with those of the intercepts eliminated;
    near (K, m), which columns take part; model (K, 4, m), their products with the intercept, these over its
    curvature, one over their own curvature, and what is added to that; totals (K, 2), the curvature of the
    intercept, and what was added to it. The weights have the sum 1.
    """
    K, m = b.shape
    h, violation = np.empty(len(weights)), 0.0
    for k in range(K):
        g[k, m] = _total(u[k]) if fit_intercept else 0.0
        violation = max(violation, abs(g[k, m]))
        for j in range(m):
            g[k, j] = slope = _dot(X, ids[j], u[k]) + P[2, j] * b[k, j]
            wrong = violation_of(b[k, j], -slope, P[0, j], P[1, j], P[3, j], P[4, j], None, 0)
            violation = max(violation, wrong)
            bar = P[0, j] + P[1, j]
            close = abs(slope) >= _NEAR * bar and P[3, j] < 0.0 < P[4, j]
            near[k, j] = b[k, j] != 0.0 or bar == 0.0 or wrong > 0.0 or close
    if violation <= tol:
        return violation
    for k in range(K):
        for i in range(len(weights)):
            h[i] = weights[i] * p[k, i] * (1.0 - p[k, i])
        total = _total(h) if fit_intercept else 0.0
        totals[k, 1] = damping * max(total, _BOUND * _total(weights)) if fit_intercept else 0.0
        totals[k, 0] = total + totals[k, 1]
        for j in range(m):
            if near[k, j]:
                s, square = _moments(X, ids[j], h)
                share = s / totals[k, 0] if totals[k, 0] > 0.0 else 0.0
                bend = square - share * s
                bend = bend if bend > 1e-14 * square else 0.0
                extra = P[2, j]
                if damping > 0.0:
                    s_all, most = _moments(X, ids[j], weights)
                    most -= s_all * s_all if fit_intercept else 0.0
                    extra += damping * (max(bend, _BOUND * most) + P[2, j])
                model[k, 0, j], model[k, 1, j], model[k, 3, j] = s, share, extra
                model[k, 2, j] = 1.0 / (bend + extra) if bend + extra > 0.0 else 0.0
                g[k, j] -= share * g[k, m]
    return violation


@nb.njit(**KERNEL, **INNER)
def _change_residual(p, weights, V, mean, out):
    """Fill `out` with the change of a class's slopes by changes V of its predictors; return its sum."""
    for i in range(len(V)):
        out[i] = weights[i] * p[i] * (V[i] - mean[i])
    return _total(out[: len(V)])


@nb.njit(**KERNEL, **INNER)
def _change_predictor(A, ids, z, p, V, mean):
    """Add the change by coefficients z (m + 1,) to V, and to the mean of the classes."""
    change = np.empty(len(V), V.dtype)
    for i in range(len(V)):
        change[i] = z[len(ids)]
    for j in range(len(ids)):
        if z[j] != 0.0:
            _add(A, ids[j], z[j], change)
    for i in range(len(V)):
        V[i] += change[i]
        mean[i] += p[i] * change[i]


@nb.njit(**KERNEL)
def change_predictors(A, ids, z, p, V, mean):
    """Add the changes by coefficients z (K, m + 1) to V (K, n), and the means of the classes to `mean`."""
    for k in range(len(z)):
        _change_predictor(A, ids, z[k], p[k], V[k], mean)


@nb.njit(**KERNEL)
def curved_slopes(A, ids, p, weights, V, mean, on, out):
    """Fill `out` (K, m + 1) with what changes V of the predictors add to slopes of coefficients `on`."""
    K, n, m = len(p), len(weights), len(ids)
    q = np.empty(n, V.dtype)
    for k in range(K):
        out[k, m] = _change_residual(p[k], weights, V[k], mean, q)
        for j in range(m):
            out[k, j] = _dot(A, ids[j], q) if on[k, j] else 0.0


@nb.njit(**KERNEL)
def descend(A, ids, p, weights, g, model, totals, P, b, d, V, mean, near):
    """Sweep over the columns of each class; return the largest change in units of slopes.

    `b`, `d`, `V`, `mean`: coefficients and their changes, those of the predictors. Changed.
    """
    K, n, m = len(p), len(weights), len(ids)
    q, h, before, largest = np.empty(n + 1, V.dtype), np.empty(n, V.dtype), np.empty(m + 1), 0.0
    chosen = np.empty(m, np.int64)
    for k in range(K):
        q[n] = _change_residual(p[k], weights, V[k], mean, q) + totals[k, 1] * d[k, m]
        if totals[k, 0] > 0.0:
            largest = max(largest, abs(g[k, m] + q[n]))
        for i in range(n):
            h[i] = weights[i] * p[k, i] * (1.0 - p[k, i])
        count, most = 0, 0.0
        for j in range(m):
            before[j] = b[k, j]
            if near[k, j]:
                chosen[count] = j
                count += 1
        rows = chosen[:count]
        for sweep in range(1 + _SUPPORT_SWEEPS):
            moved, inside = _sweep(A, ids, g[k], h, model[k], P, d[k], b[k], q, rows)
            if sweep == 0:
                most, rows = moved, inside
                largest = max(largest, most)
            if moved <= (_SMALL * most if sweep else 0.0):
                break
        for j in range(m):
            before[j] = b[k, j] - before[j]
        before[m] = -(g[k, m] + q[n]) / totals[k, 0] if totals[k, 0] > 0.0 else 0.0
        d[k, m] += before[m]
        _change_predictor(A, ids, before, p[k], V[k], mean)
    return largest
