"""Exponential and logarithm as plain arithmetic, in float64.

A compiler runs loops over them in vectors of whatever width the machine has. They are within 2 (`fast_exp`)
and 4 units in the last place. Functions that use them allow the contraction of a product and a sum at most:
a compiler that may reorder sums would undo the reduction of the argument.
"""

from typing import Any

import numba as nb
import numpy as np

_EXACT: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}

_LOG2_E = 1.4426950408889634  # log2(e)
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2 = high + low; k * high is exact
_LOWEST = -708.0  # below: no normal number


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
    return p * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@nb.njit(inline="always", **_EXACT)
def fast_log1p(u):
    """log(1 + u) for u from 0 to 1: ``2 artanh t = 2 (t + t^3/3 + ...)`` with ``t = u / (2 + u)``."""
    t = u / (2.0 + u)
    q = t * t
    p = 1 / 25 + q * (1 / 27 + q * (1 / 29 + q * (1 / 31 + q * (1 / 33))))
    p = 1 / 15 + q * (1 / 17 + q * (1 / 19 + q * (1 / 21 + q * (1 / 23 + q * p))))
    p = 1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * p))))
    return 2.0 * t * (1.0 + q * (1 / 3 + q * p))
