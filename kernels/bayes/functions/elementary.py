"""Exponentials and logarithms of numbers as plain arithmetic without branches, over all of float64.

Within 1.1 units in the last place (`log1p_exp` 1.5, `logistic` 2.1), subnormal numbers included; infinities,
NaN and signs of zeros as numpy's. A loop over them runs in vectors, where a call of the C library's function
keeps it scalar. Each has options of its own: it stays exact in a caller that may reorder sums. Polynomials
are minimax (Remez). The logarithm is by ``s = f / (2 + f)``: Tang, *Table-driven implementation of the
logarithm function*, ACM TOMS 1990; the rounding error of 1 + x is kept (Dekker, Numerische Mathematik
1971).
"""

from typing import Any

import numba as nb
import numpy as np

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "forceinline": True,
}

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # k * high is exact for |k| < 2^20
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves a rounded integer in the lowest bits
_ROOT_HALF = 4604544271217802189  # bits of sqrt(1/2)
_ONE = 4607182418800017408  # bits of 1, 1023 << 52
_LIFT = 4503599627370496.0  # 2^52, whose lowest bits are an integer


@nb.njit(**_OPTIONS)
def _bits(x):
    return np.float64(x).view(np.int64)


@nb.njit(**_OPTIONS)
def _number(bits):
    return np.int64(bits).view(np.float64)


@nb.njit(**_OPTIONS)
def exp(x):
    """Return e to the power of a number.

    ``exp x = 2^k (1 + r + r^2 q(r))`` with ``r = x - k ln 2``; 2^k in two factors, so that subnormal results
    are rounded once.
    """
    z = np.float64(x)
    z = 710.0 if z > 710.0 else z  # infinite from 709.78
    z = -746.0 if z < -746.0 else z  # zero below -745.13
    shifted = z * _LOG2_E + _ROUND
    k = shifted - _ROUND
    r = (z - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (0.5000000000000013 + r * 0.166666666666667) + r2 * (0.04166666666651432 + r * 0.008333333333307014)
    middle = (0.0013888888947331311 + r * 0.00019841269917802597) + r2 * (
        2.4801489590435635e-05 + r * 2.7557215923092006e-06
    )
    q = low + r4 * (middle + r4 * (2.763141384957217e-07 + r * 2.5117981712278966e-08))
    half = k * 0.5 + _ROUND
    rest = (k - (half - _ROUND)) + _ROUND
    return ((1.0 + (r + r2 * q)) * _number((_bits(half) << 52) + _ONE)) * _number((_bits(rest) << 52) + _ONE)


@nb.njit(**_OPTIONS)
def _exponent(u):
    """1023 + k of ``u = 2^k m``, m from sqrt(1/2) to sqrt(2); u is positive, finite and normal."""
    return ((_bits(u) - _ROOT_HALF + _ONE) >> 52) & 0x7FF


@nb.njit(**_OPTIONS)
def _log(u, exponent, more):
    """Logarithm of u (1 + more / m), for a `more` below the last place of m."""
    k = _number(exponent | _bits(_LIFT)) - (_LIFT + 1023.0)
    f = (_number(_bits(u) - ((exponent - 1023) << 52)) - 1.0) + more
    s = f / (2.0 + f)
    z = s * s
    z2 = z * z
    p = (0.6666666666666735 + z * 0.3999999999941109) + z2 * (0.28571428743262967 + z * 0.2222219847595885)
    p += (z2 * z2) * ((0.18183569741120048 + z * 0.1531390321569902) + z2 * 0.1479750799557229)
    h = 0.5 * f * f
    return k * _LN2_HIGH - ((h - (s * (h + z * p) + k * _LN2_LOW)) - f)


@nb.njit(**_OPTIONS)
def log(x):
    """Return the natural logarithm of a number: -inf of 0, NaN of negative ones."""
    z = np.float64(x)
    small = z < 2.2250738585072014e-308
    u = z * 18014398509481984.0 if small else z  # times 2^54
    value = _log(u, _exponent(u), 0.0)
    value -= 37.42994775023705 if small else 0.0
    value = value if z > 0.0 else np.nan
    value = -np.inf if z == 0.0 else value
    return z if z == np.inf else value


@nb.njit(**_OPTIONS)
def log1p(x):
    """Return the logarithm of 1 + x, precise for small x too: -inf of -1, NaN below."""
    z = np.float64(x)
    u = 1.0 + z
    back = u - 1.0
    c = (1.0 - (u - back)) + (z - back)  # 1 + z = u + c without error
    exponent = _exponent(u)
    value = _log(u, exponent, c * _number((2046 - min(exponent, 2045)) << 52))  # c / 2^k
    value = value if z > -1.0 else np.nan
    value = -np.inf if z == -1.0 else value
    return z if (z == np.inf or z == 0.0) else value  # -0 stays -0


@nb.njit(**_OPTIONS)
def log1p_exp(x):
    """Return ``log(1 + exp x)``, softplus, without overflow; ``-log1p_exp(-x)`` is the log of `logistic`."""
    z = np.float64(x)
    return (z if z > 0.0 else 0.0) + log1p(exp(-abs(z)))


@nb.njit(**_OPTIONS)
def logistic(x):
    """Return ``1 / (1 + exp(-x))``, the inverse of the logit (scipy's ``expit``)."""
    z = np.float64(x)
    e = exp(-abs(z))
    return (e if z < 0.0 else 1.0) / (1.0 + e)
