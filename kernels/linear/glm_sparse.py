"""Generalised linear losses of sparse rows (CSR): value and gradient in one pass, and their Hessian.

As `glm_dense`, with the same meaning of all arrays; rows are taken in blocks, whose entries are still in the
cache when the gradient is added. All sums are in float64.

`indptr` has one entry a row and one more, and its values count from the beginning of `data` and `indices`, so
that the rows of a part are a slice of `indptr`, and nothing is copied.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import INNER, KERNEL
from .columns import FAST
from .glm_losses import tile_losses

_SUMS: dict[str, Any] = {
    **KERNEL,
    "fastmath": FAST - {"afn"},
}
_BLOCK = 512  # rows


@nb.njit(**_SUMS, **INNER)
def _predict(data, indices, indptr, start, n, coef, intercept, z):
    for i in range(n):
        a = 0.0
        for e in span(indptr, start + i):
            a += data[e] * coef[at(indices[e])]
        z[i] = a + intercept


@nb.njit(**_SUMS, **INNER)
def _add_rows(data, indices, indptr, start, n, r, out):
    total = 0.0
    for i in range(n):
        slope = r[i]
        total += slope
        for e in span(indptr, start + i):
            out[at(indices[e])] += data[e] * slope
    out[len(out) - 1] += total


@nb.njit(**_SUMS)
def csr_gradient(loss, data, indices, indptr, y, weights, coef, intercept, offset, gradient, curvature):
    """Add the gradient of these rows; return their loss.

    `data`, `indices`, `indptr`: arrays of CSR; `data` float32 or float64. `y`: array (n,) of the type of
    data. `weights`: array (n,) or (0,) of the type of data; empty for weights of 1. `coef`: float64 array
    (d,). `offset`: float64 array (n,) or (0,); added to the predictors. `gradient`: float64 array (d + 1,);
    added to. `curvature`: float64 array (n,) or (0,); filled with ``s l''``, unless it is empty.
    """
    n = len(y)
    z, values, slopes, curves = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    total = 0.0
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        _predict(data, indices, indptr, start, stop - start, coef, intercept, z)
        for i in range(start, min(stop, len(offset))):
            z[i - start] += offset[i]
        total += tile_losses(
            loss, z, y[start:stop], weights[start:stop], stop - start, values, slopes, curves
        )
        if len(curvature) > 0:
            for i in range(stop - start):
                curvature[start + i] = curves[i]
        _add_rows(data, indices, indptr, start, stop - start, slopes, gradient)
    return total


@nb.njit(**_SUMS)
def csr_product(data, indices, indptr, curvature, v, v_intercept, out):
    """Add the Hessian times a vector, ``X^T (curvature * (X v + v_intercept))``; `v` is float64."""
    n = len(curvature)
    z = np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        _predict(data, indices, indptr, start, stop - start, v, v_intercept, z)
        for i in range(stop - start):
            z[i] *= curvature[start + i]
        _add_rows(data, indices, indptr, start, stop - start, z, out)


@nb.njit(**_SUMS)
def csr_diagonal(data, indices, indptr, curvature, out):
    """Add the diagonal of the Hessian, ``sum_i curvature_i x_ij^2``, to a float64 array (d + 1,)."""
    total = 0.0
    for i in range(len(curvature)):
        c = curvature[i]
        total += c
        for e in span(indptr, i):
            value = np.float64(data[e])
            out[at(indices[e])] += c * (value * value)
    out[len(out) - 1] += total


@nb.njit(**_SUMS)
def csr_squared_norms(data, indptr, out):
    """Fill a float64 array (n,) with the squared norms of the rows."""
    for i in range(len(out)):
        total = 0.0
        for e in span(indptr, i):
            total += np.float64(data[e]) * data[e]
        out[i] = total


@nb.njit(**_SUMS)
def csr_outer(data, indices, indptr, curvature, out):
    """Add the upper triangle of the Hessian to a float64 array (d + 1, d + 1).

    Columns rise within each row.
    """
    d = at(out.shape[0] - 1)
    for i in range(len(curvature)):
        c = curvature[i]
        out[d, d] += c
        last = at(indptr[i + 1])
        for e in span(indptr, i):
            value = c * data[e]
            line = out[at(indices[e])]
            line[d] += value
            for k in range(e, last):
                line[at(indices[k])] += value * data[k]


@nb.njit(**_SUMS)
def csr_scaled(data, indices, indptr, curvature, out):
    """Fill ``out = sqrt(curvature) [X, 1]``, (n, d + 1): the Hessian of these rows is ``out^T out``."""
    last = out.shape[1] - 1
    for i in range(len(curvature)):
        root, to = np.sqrt(curvature[i]), out[i]
        to[:] = 0
        to[last] = root
        for e in span(indptr, i):
            to[at(indices[e])] = data[e] * root


@nb.njit(**_SUMS)
def csr_counts(indices, indptr, counts):
    """Count the entries of the columns, into an int64 array (d,) of zeros."""
    for e in range(at(indptr[0]), at(indptr[-1])):
        counts[at(indices[e])] += 1


@nb.njit(**_SUMS)
def csr_rows_in(indices, indptr, columns, found):
    """Mark in a bool array (n,) the rows with an entry in the columns that a bool array (d,) marks."""
    for i in range(len(found)):
        has = False
        for e in span(indptr, i):
            has |= columns[at(indices[e])]
        found[i] = has


@nb.njit(**_SUMS)
def csr_transposed(data, indices, indptr, r, out):
    """Add ``X^T r`` and the sum of r to a float64 array (d + 1,); r is one of (n,)."""
    _add_rows(data, indices, indptr, 0, len(r), r, out)


@nb.njit(**_SUMS)
def csr_images(data, indices, indptr, v, out):
    """Fill ``out = X v``; both are float64 arrays, (d,) and (n,)."""
    _predict(data, indices, indptr, 0, len(out), v, 0.0, out)
