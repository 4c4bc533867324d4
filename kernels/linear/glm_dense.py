"""Generalised linear losses of dense rows (C order): value and gradient in one pass, and their Hessian.

``f = sum_i s_i l(y_i, z_i)`` with ``z_i = x_i w + c``, gradient ``X^T (s l')`` and Hessian
``X^T diag(s l'') X``; the last entry of every vector and matrix of sums is the intercept's, as if `X` had a
column of ones.

A core reads memory faster in several streams than in one, since its prefetchers follow each page for itself.
So the rows are cut into quarters that are read in step, a tile of some rows of each at a time. A tile is
touched a second time, in the cache, for the gradient: long rows together with the first touch of the next,
so that memory does not stand still meanwhile. Sums within a few tiles are in the type of `X`, all others in
float64.
"""

from typing import Any

import numba as nb
import numpy as np

from ..options import INNER, KERNEL
from .columns import FAST
from .glm_losses import sum_of, tile_losses

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST - {"afn"}}
_INNER: dict[str, Any] = {**_SUMS, **INNER}
_STREAMS = 4  # of rows that are read at once
_TILE = 131_072  # bytes
_VECTOR = 4  # rows of a stream; with those of the others losses are computed at once
_LONG_ROW = 512  # bytes: loops over shorter ones are too short for two touches at once
_MOST_SUMS = 256  # rows whose sums are in the type of X, about


@nb.njit(**_INNER)
def _tile_rows(row_bytes):
    """Rows of each stream in a tile: whole vectors of losses, if they are that many."""
    rows = _TILE // (_STREAMS * row_bytes)
    return rows // _VECTOR * _VECTOR if rows >= _VECTOR else max(1, rows)


@nb.njit(**_INNER)
def _streams(X, apart, start, rows):
    """So many rows of each stream."""
    second, third, fourth = start + apart, start + 2 * apart, start + 3 * apart
    return (
        X[start : start + rows],
        X[second : second + rows],
        X[third : third + rows],
        X[fourth : fourth + rows],
    )


@nb.njit(**_INNER)
def _touch_first(rows, coef, intercept, z):
    """``z = X coef + intercept`` for the rows of four streams, one stream after the other in z."""
    A, B, C, D = rows
    n, d = A.shape
    zero = coef.dtype.type(0)
    for i in range(n):
        a, b, c, e = A[i], B[i], C[i], D[i]
        z0, z1, z2, z3 = zero, zero, zero, zero
        for j in range(d):
            w = coef[j]
            z0 += a[j] * w
            z1 += b[j] * w
            z2 += c[j] * w
            z3 += e[j] * w
        z[i], z[n + i] = np.float64(z0) + intercept, np.float64(z1) + intercept
        z[2 * n + i], z[3 * n + i] = np.float64(z2) + intercept, np.float64(z3) + intercept


@nb.njit(**_INNER)
def _touch_again(rows, skip, r, sums):
    """``sums += X^T r`` for the rows of four streams but the first `skip` of each."""
    A, B, C, D = rows
    n, d = A.shape
    kind = sums.dtype.type
    for i in range(skip, n):
        a, b, c, e = A[i], B[i], C[i], D[i]
        r0, r1, r2, r3 = kind(r[i]), kind(r[n + i]), kind(r[2 * n + i]), kind(r[3 * n + i])
        for j in range(d):
            sums[j] += (a[j] * r0 + b[j] * r1) + (c[j] * r2 + e[j] * r3)


@nb.njit(**_INNER)
def _touch_both(rows, coef, intercept, z, before, r, sums):
    """`_touch_first` of a tile and `_touch_again` of the one before, which has at least as many rows."""
    (A, B, C, D), (P, Q, R, S) = rows, before
    n, d = A.shape
    m = len(P)
    kind = sums.dtype.type
    zero = kind(0)
    for i in range(n):
        a, b, c, e = A[i], B[i], C[i], D[i]
        p, q, s, t = P[i], Q[i], R[i], S[i]
        r0, r1, r2, r3 = kind(r[i]), kind(r[m + i]), kind(r[2 * m + i]), kind(r[3 * m + i])
        z0, z1, z2, z3 = zero, zero, zero, zero
        for j in range(d):
            w = coef[j]
            z0 += a[j] * w
            z1 += b[j] * w
            z2 += c[j] * w
            z3 += e[j] * w
            sums[j] += (p[j] * r0 + q[j] * r1) + (s[j] * r2 + t[j] * r3)
        z[i], z[n + i] = np.float64(z0) + intercept, np.float64(z1) + intercept
        z[2 * n + i], z[3 * n + i] = np.float64(z2) + intercept, np.float64(z3) + intercept
    _touch_again(before, n, r, sums)


@nb.njit(**_INNER)
def _predict(X, coef, intercept, z):
    """``z_i = x_i coef + intercept`` for rows that are too few for streams."""
    n, d = X.shape
    for i in range(n):
        x = X[i]
        a = coef.dtype.type(0)
        for j in range(d):
            a += x[j] * coef[j]
        z[i] = np.float64(a) + intercept


@nb.njit(**_INNER)
def _add_rows(X, r, sums):
    n, d = X.shape
    for i in range(n):
        x, c = X[i], sums.dtype.type(r[i])
        for j in range(d):
            sums[j] += x[j] * c


@nb.njit(**_INNER)
def _flush(sums, out):
    for j in range(len(sums)):
        out[j] += sums[j]
        sums[j] = 0


@nb.njit(**_INNER)
def _add(r, n, z):
    for i in range(n):
        z[i] += r[i]


@nb.njit(**_INNER)
def _gather(source, apart, start, m, out):
    """Numbers of the m rows of each stream, in the order of their predictors."""
    for stream in range(_STREAMS):
        a, b = stream * apart + start, stream * m
        for i in range(m):
            out[b + i] = source[a + i]


@nb.njit(**_INNER)
def _scatter(tile, apart, start, m, out):
    for stream in range(_STREAMS):
        a, b = stream * apart + start, stream * m
        for i in range(m):
            out[a + i] = tile[b + i]


@nb.njit(**_SUMS)
def dense_gradient(loss, X, y, weights, coef, intercept, offset, gradient, curvature):
    """Add the gradient of these rows; return their loss.

    `X`: float32 or float64 array (n, d), C-ordered. `y`: array (n,) of the type of X. `weights`: array (n,)
    or (0,) of the type of X; empty for weights of 1. `coef`: array (d,) of the type of X. `offset`: float64
    array (n,) or (0,); added to the predictors. `gradient`: float64 array (d + 1,); added to. `curvature`:
    float64 array (n,) or (0,); filled with ``s l''``, unless it is empty.
    """
    n, d = X.shape
    apart = n // _STREAMS
    most, late = _tile_rows(X.itemsize * d), X.itemsize * d >= _LONG_ROW
    size = _STREAMS * most
    z, values, slopes, curves = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    targets, counts = np.empty(size, y.dtype), np.empty(size if len(weights) > 0 else 0, y.dtype)
    sums = np.zeros(d, X.dtype)
    total, total_slope = 0.0, 0.0
    tiles = max(1, _MOST_SUMS // size)
    before = _streams(X, 0, 0, 0)
    for tile in range((apart + most - 1) // most):
        start = tile * most
        rows = _streams(X, apart, start, min(most, apart - start))
        m = len(rows[0])
        if late and tile > 0:
            _touch_both(rows, coef, intercept, z, before, slopes, sums)
        else:
            _touch_first(rows, coef, intercept, z)
        if len(offset) > 0:
            _gather(offset, apart, start, m, values)
            _add(values, _STREAMS * m, z)
        _gather(y, apart, start, m, targets)
        if len(weights) > 0:
            _gather(weights, apart, start, m, counts)
        total += tile_losses(loss, z, targets, counts, _STREAMS * m, values, slopes, curves)
        if len(curvature) > 0:
            _scatter(curves, apart, start, m, curvature)
        if not late:
            _touch_again(rows, 0, slopes, sums)
        total_slope += sum_of(slopes, _STREAMS * m)
        before = rows
        if (tile + 1) % tiles == 0:
            _flush(sums, gradient)
    if late:
        _touch_again(before, 0, slopes, sums)
    rest = _STREAMS * apart
    _predict(X[rest:], coef, intercept, z)
    if len(offset) > 0:
        _add(offset[rest:], n - rest, z)
    curves = curvature[rest:] if len(curvature) > 0 else curves
    total += tile_losses(loss, z, y[rest:], weights[rest:], n - rest, values, slopes, curves)
    _add_rows(X[rest:], slopes, sums)
    _flush(sums, gradient)
    gradient[d] += total_slope + sum_of(slopes, n - rest)
    return total


@nb.njit(**_SUMS)
def dense_product(X, curvature, v, v_intercept, out):
    """Add the Hessian times a vector, ``X^T (curvature * (X v + v_intercept))``.

    `X`: float32 or float64 array (n, d), C-ordered. `curvature`: float64 array (n,). `v`: array (d,) of the
    type of X. `out`: float64 array (d + 1,); added to.
    """
    n, d = X.shape
    apart = n // _STREAMS
    most, late = _tile_rows(X.itemsize * d), X.itemsize * d >= _LONG_ROW
    z, r = np.empty(_STREAMS * most), np.empty(_STREAMS * most)
    sums = np.zeros(d, X.dtype)
    total = 0.0
    tiles = max(1, _MOST_SUMS // (_STREAMS * most))
    before = _streams(X, 0, 0, 0)
    for tile in range((apart + most - 1) // most):
        start = tile * most
        rows = _streams(X, apart, start, min(most, apart - start))
        m = len(rows[0])
        if late and tile > 0:
            _touch_both(rows, v, v_intercept, z, before, r, sums)
        else:
            _touch_first(rows, v, v_intercept, z)
        for stream in range(_STREAMS):
            a = stream * apart + start
            for i in range(m):
                r[stream * m + i] = z[stream * m + i] * curvature[a + i]
        if not late:
            _touch_again(rows, 0, r, sums)
        total += sum_of(r, _STREAMS * m)
        before = rows
        if (tile + 1) % tiles == 0:
            _flush(sums, out)
    if late:
        _touch_again(before, 0, r, sums)
    rest = _STREAMS * apart
    _predict(X[rest:], v, v_intercept, z)
    for i in range(n - rest):
        r[i] = z[i] * curvature[rest + i]
    _add_rows(X[rest:], r, sums)
    _flush(sums, out)
    out[d] += total + sum_of(r, n - rest)


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
    out[d] += sum_of(curvature, n)


@nb.njit(**_SUMS)
def dense_scaled(X, curvature, out):
    """Fill ``out = sqrt(curvature) [X, 1]``: the Hessian of these rows is ``out^T out``.

    `X`: float32 or float64 array (n, d), C-ordered. `curvature`: float64 array (n,). `out`: array (n, d + 1)
    of the type of X.
    """
    n, d = X.shape
    kind = X.dtype.type
    for i in range(n):
        x, to, root = X[i], out[i], kind(np.sqrt(curvature[i]))
        for j in range(d):
            to[j] = x[j] * root
        to[d] = root
