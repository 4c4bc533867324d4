"""Losses of generalised linear models: value, slope and curvature for a tile of rows.

With the linear predictor z and the target y of a row

    SQUARED    l = (z - y)^2 / 2,                    l' = z - y,         l'' = 1
    LOGISTIC   l = log(1 + exp(-y z)),  y = 1, -1,   l' = -y p,          l'' = p (1 - p)
    POISSON    l = exp(z) - y z,                     l' = exp(z) - y,    l'' = exp(z)

and p = 1 / (1 + exp(y z)).

`exp` and `log1p` are plain arithmetic, so that a compiler runs these loops in vectors of whatever width the
machine has; they are within 2 and 4 units in the last place. All of it is in float64, also for float32 data:
compared with the row that was read to get z it costs next to nothing.
"""

from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..options import BORROWS, INNER, KERNEL
from .columns import FAST

SQUARED, LOGISTIC, POISSON = 0, 1, 2  # as compiled code knows them

_EXACT: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}
_INNER: dict[str, Any] = {**_OPTIONS, **INNER}
_SUMS: dict[str, Any] = {**_INNER, "fastmath": FAST - {"afn"}}

_LOG2_E = 1.4426950408889634  # log2(e)
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2 = high + low; k * high is exact
_LOWEST, _HIGHEST = -708.0, 709.7  # beyond: no normal number, infinity


@intrinsic
def _float_of_bits(typingctx, bits):
    """The float64 whose bits are those of an int64."""

    def codegen(context, b, signature, args):
        return b.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@nb.njit(inline="always", **_EXACT)
def fast_exp(x):
    """exp(x) for x up to 709.7, and exp(-708) below that.

    ``exp x = 2^k exp r`` with ``r = x - k ln 2``, at most ln(2) / 2 in size, and a Taylor sum of 14 terms.
    """
    x = max(x, _LOWEST) if x == x else x
    k = np.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1 / 39916800 + r * (1 / 479001600 + r * (1 / 6227020800))
    p = 1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * p))
    p = 1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * p))
    p = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * p))))
    return p * _float_of_bits((np.int64(k) + 1023) << 52)


@nb.njit(inline="always", **_EXACT)
def fast_log1p(u):
    """log(1 + u) for u from 0 to 1: ``2 artanh t = 2 (t + t^3/3 + ...)`` with ``t = u / (2 + u)``."""
    t = u / (2.0 + u)
    q = t * t
    p = 1 / 25 + q * (1 / 27 + q * (1 / 29 + q * (1 / 31 + q * (1 / 33))))
    p = 1 / 15 + q * (1 / 17 + q * (1 / 19 + q * (1 / 21 + q * (1 / 23 + q * p))))
    p = 1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * p))))
    return 2.0 * t * (1.0 + q * (1 / 3 + q * p))


@nb.njit(**_INNER)
def _logistic(z, y, n, values, slopes, curvatures):
    for i in range(n):
        margin = y[i] * z[i]
        size = abs(margin)
        e = fast_exp(-size)
        q = 1.0 / (1.0 + e)
        values[i] = 0.5 * (size - margin) + fast_log1p(e)
        slopes[i] = -y[i] * ((e if margin >= 0 else 1.0) * q)
        curvatures[i] = e * q * q


@nb.njit(**_INNER)
def _poisson(z, y, n, values, slopes, curvatures):
    for i in range(n):
        e = fast_exp(min(z[i], _HIGHEST) if z[i] == z[i] else z[i])
        mean = np.inf if z[i] > _HIGHEST else e
        values[i] = mean - y[i] * z[i]
        slopes[i] = mean - y[i]
        curvatures[i] = mean


@nb.njit(**_INNER)
def _squared(z, y, n, values, slopes, curvatures):
    for i in range(n):
        error = z[i] - y[i]
        values[i] = 0.5 * error * error
        slopes[i] = error
        curvatures[i] = 1.0


@nb.njit(**_SUMS)
def sum_of(values, n):
    """Sum of the first `n` values."""
    total = 0.0
    for i in range(n):
        total += values[i]
    return total


@nb.njit(**_OPTIONS)
def tile_losses(loss, z, y, weights, n, values, slopes, curvatures):
    """Fill slopes and curvatures of the first `n` rows, times their weights; return the weighted loss.

    `z`: float64 array (>= n,). `y`: float32 or float64 array (n,). `weights`: float32 or float64 array (n,)
    or (0,); empty for weights of 1. `values`, `slopes`, `curvatures`: float64 arrays (>= n,); overwritten.
    """
    if loss == LOGISTIC:
        _logistic(z, y, n, values, slopes, curvatures)
    elif loss == POISSON:
        _poisson(z, y, n, values, slopes, curvatures)
    else:
        _squared(z, y, n, values, slopes, curvatures)
    if len(weights) > 0:
        for i in range(n):  # a row without weight counts for nothing, even where its loss overflows
            weight, counts = np.float64(weights[i]), weights[i] > 0
            values[i] = weight * values[i] if counts else 0.0
            slopes[i] = weight * slopes[i] if counts else 0.0
            curvatures[i] = weight * curvatures[i] if counts else 0.0
    return sum_of(values, n)
