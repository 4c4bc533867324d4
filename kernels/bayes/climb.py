"""A climb to the mode of a log density: quasi-Newton steps (BFGS), compiled once for all models.

Coordinates are z, with ``q = origin + S z``. A step goes along ``H g``, where g is the gradient in z and H
the estimate so far of the inverse of the negative Hessian. Its length is bisected, or doubled, until the
density has risen and its slope has fallen enough (the weak conditions of Wolfe): so H stays definite, also
where the density is not concave or has kinks, and a point where it is not a number is only a step too far.

Reference: Lewis, Overton, "Nonsmooth optimization via quasi-Newton methods", Mathematical Programming 2013.
"""

import math

import numba as nb
import numpy as np

from .. import one_form
from ..indexing import copy
from .address import ADDRESS, INTEGERS, MATRIX, VECTOR, call
from .hmc import dot
from .streams import CALLED, OPTIONS

_RISE, _SLOPE = 1e-4, 0.9  # Nocedal and Wright 2006, for quasi-Newton directions
_TRIALS = 40  # lengths of one step
_LEAST_RISE, _LEAST_GRADIENT = 1e-13, 1e-8  # of the log density, in parts of it (of 1, if that is more); of g


@nb.njit(**CALLED)
def _evaluate(density, origin, S, z, gz, q, g, data, meta):
    """Fill the gradient in z; the log density there, or -inf where either is not a number."""
    d = len(z)
    for i in range(d):
        q[i] = origin[i] + dot(S[i], z)
    logp = call(density, q, g, data, meta)
    finite = math.isfinite(logp)
    for i in range(d):
        gz[i] = 0.0
    for i in range(d):
        finite = finite and math.isfinite(g[i])
        for j in range(d):
            gz[j] += S[i, j] * g[i]
    return logp if finite else -np.inf


@nb.njit(**CALLED)
def _learn(H, step, change, Hc, first):
    """Update H by a step and the fall of the gradient along it."""
    d, curvature = len(step), dot(step, change)
    if not curvature > 0.0:  # rounding
        return
    if first:  # the one scale that is known so far
        for i in range(d):
            H[i, i] = curvature / dot(change, change)
    for i in range(d):
        Hc[i] = dot(H[i], change)
    part = (1.0 + dot(change, Hc) / curvature) / curvature
    for i in range(d):
        for j in range(d):
            H[i, j] += part * step[i] * step[j] - (Hc[i] * step[j] + step[i] * Hc[j]) / curvature


@one_form.njit(
    nb.types.Tuple((nb.float64, nb.boolean, nb.int64))(
        ADDRESS, VECTOR, MATRIX, VECTOR, VECTOR, MATRIX, nb.float64, nb.int64, nb.int64, VECTOR, INTEGERS
    ),
    **OPTIONS,
)
def climb(density, origin, S, z, gz, H, logp, first, n, data, meta):
    """Make up to n steps, in place; returns the log density, whether the climb goes on, and the evaluations.

    `density` is an address, and ``q = origin + S z``. The climb is at z, with the gradient gz and the log
    density logp; H (d, d) is the curvature learnt so far. `first` is the number of the first step: with
    number 0 all but `origin` and `S` is set anew. The log density is -inf if it, or its gradient, is no
    number at the start.
    """
    d, n_evaluations = len(z), 0
    q, g, way, new_z, new_g = np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    if first == 0:
        for i in range(d):
            z[i] = 0.0
            for j in range(d):
                H[i, j] = 1.0 if i == j else 0.0
        logp = _evaluate(density, origin, S, z, gz, q, g, data, meta)
        n_evaluations += 1
    for k in range(first, first + n):
        largest = 0.0
        for i in range(d):
            largest = max(largest, abs(gz[i]))
            way[i] = dot(H[i], gz)
        slope, length = dot(way, gz), 1.0 if k else min(1.0, 1.0 / math.sqrt(dot(gz, gz)))
        if not (math.isfinite(logp) and largest > _LEAST_GRADIENT and slope > 0.0):
            return logp, False, n_evaluations
        low, high, new_logp, found = 0.0, np.inf, logp, False
        for _ in range(_TRIALS):
            for i in range(d):
                new_z[i] = z[i] + length * way[i]
            new_logp = _evaluate(density, origin, S, new_z, new_g, q, g, data, meta)
            n_evaluations += 1
            if not new_logp >= logp + _RISE * length * slope:
                high = length
            elif dot(new_g, way) > _SLOPE * slope:
                low = length
            else:
                found = True
                break
            length = 0.5 * (low + high) if high < np.inf else 2.0 * low
        if not found:
            return logp, False, n_evaluations
        for i in range(d):
            way[i], g[i] = new_z[i] - z[i], gz[i] - new_g[i]
        _learn(H, way, g, q, k == 0)
        copy(new_z, z)
        copy(new_g, gz)
        rise, logp = new_logp - logp, new_logp
        if rise <= _LEAST_RISE * max(abs(logp), 1.0):
            return logp, False, n_evaluations
    return logp, True, n_evaluations
