"""Coordinate descent on products of columns with a penalty whose proximal operator is given.

The operator is a first-class function of numba, called through its address: these kernels are compiled once,
and kept, for any penalty.
"""

from typing import Any

import numpy as np
from numba import types

from .. import one_form

PROX = types.FunctionType(types.float64(types.float64, types.float64, types.float64, types.float64))

_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@one_form.njit(
    types.int64(_MATRIX, _VECTOR, _VECTOR, _VECTOR, _VECTOR, _VECTOR, types.float64, PROX), **_OPTIONS
)
def descend_prox(gram, slopes, coef, units, steps, strengths, shape, prox):
    """Visit every coordinate once, keeping ``slopes = c - G coef``.

    A coefficient of the problem as it was given is ``coef * units``; there, the loss curves by ``1 / steps``.

    `gram`: float64 array (>= m, >= m), symmetric. `slopes`, `coef`: float64 arrays (m,), changed. `units`,
    `steps`, `strengths`: float64 arrays (m,). `prox`: first-class function. Returns coordinates visited.
    """
    m = len(coef)
    for j in range(m):
        own = gram[j, j]
        if own <= 0.0:
            continue
        target = (coef[j] + slopes[j] / own) * units[j]
        new = prox(target, steps[j], strengths[j], shape) / units[j]
        change = new - coef[j]
        if change != 0.0:
            coef[j] = new
            for k in range(m):
                slopes[k] -= change * gram[j, k]
    return m


@one_form.njit(types.void(_VECTOR, _VECTOR, _VECTOR, _VECTOR, types.float64, PROX, _VECTOR), **_OPTIONS)
def violations(slopes, coef, steps, strengths, shape, prox, out):
    """How far each coefficient is from stationary, as a slope: ``|b - prox(b + step slope)| / step``.

    All in the units of the problem as it was given; 0 where a step is not positive (a constant column).
    """
    for j in range(len(coef)):
        out[j] = 0.0
        if steps[j] > 0.0:
            moved = prox(coef[j] + steps[j] * slopes[j], steps[j], strengths[j], shape)
            out[j] = np.abs(coef[j] - moved) / steps[j]
