"""Generalised linear losses of dense rows (C order): value and gradient in one pass, and their Hessian.

``f = sum_i s_i l(y_i, z_i)`` with ``z_i = x_i w + c``, gradient ``X^T (s l')`` and Hessian
``X^T diag(s l'') X``; the last entry of every vector and matrix of sums is the intercept's, as if `X` had a
column of ones.

Rows are taken in tiles that stay in the cache. A tile is read from memory as one linear stream, row by row
(several rows at once break the prefetcher of the hardware), and touched a second time in the cache, four rows
at once, for the gradient. Sums within a few tiles are in the type of `X`, all others in float64.
"""

from typing import Any

import numba as nb
import numpy as np

from .glm_losses import tile_losses
from .linear_columns import FAST

_SUMS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": FAST - {"afn"},
}
_LONG_ROW = 256  # bytes: tiles of such rows are large, as the change between the passes stops the stream
_TILE, _LARGE_TILE = 8192, 131_072  # bytes
_VECTORS = 16  # rows whose losses are computed in whole vectors
_MOST_SUMS = 256  # rows whose sums are in the type of X, about


@nb.njit(**_SUMS)
def _tile_rows(row_bytes):
    rows = (_TILE if row_bytes < _LONG_ROW else _LARGE_TILE) // row_bytes
    return rows // _VECTORS * _VECTORS if rows >= _VECTORS else max(4, rows // 4 * 4)


@nb.njit(**_SUMS)
def _predict(X, coef, intercept, z):
    """``z_i = x_i coef + intercept``, one row after the other."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        x = X[i]
        a = coef.dtype.type(0)
        for j in range(d):
            a += x[j] * coef[j]
        z[i] = np.float64(a) + intercept


@nb.njit(**_SUMS)
def _add_rows(X, r, sums):
    """``sums += X^T r``, four rows at once."""
    n, d = X.shape
    four = n // 4 * 4
    kind = X.dtype.type
    for i in range(0, four, 4):
        x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
        r0, r1, r2, r3 = kind(r[i]), kind(r[i + 1]), kind(r[i + 2]), kind(r[i + 3])
        for j in range(d):
            sums[j] += (x0[j] * r0 + x1[j] * r1) + (x2[j] * r2 + x3[j] * r3)
    for i in range(four, n):
        x0, r0 = X[i], kind(r[i])
        for j in range(d):
            sums[j] += x0[j] * r0


@nb.njit(**_SUMS)
def _flush(sums, out):
    for j in range(len(sums)):
        out[j] += sums[j]
        sums[j] = 0


@nb.njit(**_SUMS)
def _add_up(r, n):
    total = 0.0
    for i in range(n):
        total += r[i]
    return total


@nb.njit(**_SUMS)
def dense_gradient(loss, X, y, weights, coef, intercept, gradient, curvature):
    """Add the gradient of these rows; return their loss.

    Parameters
    ----------
    loss : int
        See `glm_losses`.
    X : float32 or float64 array (n, d), C-ordered
    y : array (n,) of the type of X
    weights : array (n,) or (0,) of the type of X
        Empty for weights of 1.
    coef : array (d,) of the type of X
    intercept : float64
    gradient : float64 array (d + 1,)
        Added to.
    curvature : float64 array (n,) or (0,)
        Filled with ``s l''``, unless it is empty.
    """
    n, d = X.shape
    rows = _tile_rows(X.itemsize * d)
    z, values, slopes, curves = np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows)
    sums = np.zeros(d, X.dtype)
    total, total_slope = 0.0, 0.0
    tiles = max(1, _MOST_SUMS // rows)
    for tile in range(-(-n // rows)):
        start = tile * rows
        stop = min(n, start + rows)
        part = X[start:stop]
        _predict(part, coef, intercept, z)
        total += tile_losses(
            loss, z, y[start:stop], weights[start:stop], stop - start, values, slopes, curves
        )
        if len(curvature) > 0:
            curvature[start:stop] = curves[: stop - start]
        _add_rows(part, slopes, sums)
        total_slope += _add_up(slopes, stop - start)
        if (tile + 1) % tiles == 0:
            _flush(sums, gradient)
    _flush(sums, gradient)
    gradient[d] += total_slope
    return total


@nb.njit(**_SUMS)
def dense_product(X, curvature, v, v_intercept, out):
    """Add the Hessian times a vector, ``X^T (curvature * (X v + v_intercept))``.

    Parameters
    ----------
    X : float32 or float64 array (n, d), C-ordered
    curvature : float64 array (n,)
    v : array (d,) of the type of X
    v_intercept : float64
    out : float64 array (d + 1,)
        Added to.
    """
    n, d = X.shape
    rows = _tile_rows(X.itemsize * d)
    z = np.empty(rows)
    sums = np.zeros(d, X.dtype)
    total = 0.0
    tiles = max(1, _MOST_SUMS // rows)
    for tile in range(-(-n // rows)):
        start = tile * rows
        stop = min(n, start + rows)
        part = X[start:stop]
        _predict(part, v, v_intercept, z)
        for i in range(stop - start):
            z[i] *= curvature[start + i]
        _add_rows(part, z, sums)
        total += _add_up(z, stop - start)
        if (tile + 1) % tiles == 0:
            _flush(sums, out)
    _flush(sums, out)
    out[d] += total


@nb.njit(**_SUMS)
def dense_diagonal(X, curvature, out):
    """Add the diagonal of the Hessian, ``sum_i curvature_i x_ij^2``, to a float64 array (d + 1,)."""
    n, d = X.shape
    kind = X.dtype.type
    sums = np.zeros(d, X.dtype)
    for i in range(n):
        x, c = X[i], kind(curvature[i])
        for j in range(d):
            sums[j] += c * (x[j] * x[j])
        if i % 64 == 63:
            _flush(sums, out)
    _flush(sums, out)
    out[d] += _add_up(curvature, n)


@nb.njit(**_SUMS)
def dense_scaled(X, curvature, out):
    """Fill ``out = sqrt(curvature) [X, 1]``: the Hessian of these rows is ``out^T out``.

    Parameters
    ----------
    X : float32 or float64 array (n, d), C-ordered
    curvature : float64 array (n,)
    out : array (n, d + 1) of the type of X
    """
    n, d = X.shape
    kind = X.dtype.type
    for i in range(n):
        x, to, root = X[i], out[i], kind(np.sqrt(curvature[i]))
        for j in range(d):
            to[j] = x[j] * root
        to[d] = root
