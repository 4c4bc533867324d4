"""Losses of generalised linear models: value, slope and curvature for a tile of rows.

With the linear predictor z and the target y of a row

    SQUARED    l = (z - y)^2 / 2,                    l' = z - y,         l'' = 1
    LOGISTIC   l = log(1 + exp(-y z)),  y = 1, -1,   l' = -y p,          l'' = p (1 - p)
    POISSON    l = exp(z) - y z,                     l' = exp(z) - y,    l'' = exp(z)

and p = 1 / (1 + exp(y z)).

All of it is in float64, also for float32 data:
compared with the row that was read to get z it costs next to nothing.
"""

from typing import Any

import numba as nb
import numpy as np

from ..exponentials import fast_exp, fast_log1p
from ..options import BORROWS, INNER, KERNEL
from .columns import FAST

SQUARED, LOGISTIC, POISSON = 0, 1, 2  # as compiled code knows them

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}
_INNER: dict[str, Any] = {**_OPTIONS, **INNER}
_SUMS: dict[str, Any] = {**_INNER, "fastmath": FAST - {"afn"}}
_HIGHEST = 709.7  # beyond, the exponential is infinite


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
