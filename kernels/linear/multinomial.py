"""Multinomial logistic loss of K classes: value, gradient and products of its Hessian, each in one pass.

``f = sum_i s_i (log sum_k exp z_ik - z_i,y_i)`` with ``z_i = x_i W + c``, gradient ``X^T (s (P - Y))``.

`W` and the gradient are arrays (d + 1, Q), the last row being the intercepts, and Q >= K the number of
classes rounded up to full vectors: an entry of `X` meets one contiguous line of each. Columns from K on are
zero.
"""

from typing import Any

import numba as nb
import numpy as np

from ..exponentials import fast_exp
from ..indexing import at, span
from ..options import INNER, KERNEL
from .columns import FAST

_SUMS: dict[str, Any] = {
    **KERNEL,
    "fastmath": FAST - {"afn"},
}


@nb.njit(**_SUMS, **INNER)
def _shares(z, n_classes):
    """Turn predictors into ``exp(z - max)``; return their sum and the maximum."""
    top = z[0]
    for k in range(1, n_classes):
        top = max(top, z[k])
    for k in range(n_classes):
        z[k] = fast_exp(np.float64(z[k] - top))
    total = 0.0
    for k in range(n_classes):
        total += z[k]
    return total, top


@nb.njit(**_SUMS, **INNER)
def _residual(z, label, weight, n_classes):
    """Turn predictors into ``weight * (p - e_label)``; return the weighted loss."""
    own = np.float64(z[label])
    total, top = _shares(z, n_classes)
    scale = weight / total
    for k in range(n_classes):
        z[k] *= scale
    for k in range(n_classes, len(z)):
        z[k] = 0
    z[label] -= weight
    return weight * (np.log(total) + (np.float64(top) - own))


@nb.njit(**_SUMS)
def csr_multinomial(data, indices, indptr, labels, weights, offset, W, n_classes, gradient):
    """Add the gradient of these rows; return their loss.

    `data`, `indices`, `indptr`: arrays of CSR; as in `glm_sparse`. `labels`: int64 array (n,). `weights`:
    array (n,) or (0,) of the type of data; empty for weights of 1. `offset`: float64 array (n, K) or (0, 0);
    added to the predictors. `W`: array (d + 1, Q) of the type of data. `gradient`: float64 array (d + 1, Q);
    added to.
    """
    last, width = W.shape[0] - 1, W.shape[1]
    z, slopes = np.empty(width, W.dtype), np.empty(width)
    total = 0.0
    for i in range(len(labels)):
        for k in range(width):
            z[k] = W[last, k]
        for e in span(indptr, i):
            value, line = data[e], W[at(indices[e])]
            for k in range(width):
                z[k] += value * line[k]
        if len(offset) > 0:
            for k in range(n_classes):
                z[k] += offset[i, k]
        total += _residual(z, labels[i], 1.0 if len(weights) == 0 else np.float64(weights[i]), n_classes)
        for k in range(width):
            slopes[k] = z[k]
            gradient[last, k] += slopes[k]
        for e in span(indptr, i):
            value, line = np.float64(data[e]), gradient[at(indices[e])]
            for k in range(width):
                line[k] += value * slopes[k]
    return total


@nb.njit(**_SUMS)
def multinomial_residuals(Z, labels, weights, n_classes):
    """Turn predictors (n, Q) into ``s (P - Y)`` in place; return the weighted loss."""
    total = 0.0
    for i in range(len(labels)):
        weight = 1.0 if len(weights) == 0 else np.float64(weights[i])
        total += _residual(Z[i], labels[i], weight, n_classes)
    return total


@nb.njit(**_SUMS, **INNER)
def _residual_change(z, v, weight, n_classes):
    """Turn the change v of the predictors z into that of the residual, ``weight (p v - p (p . v))``.

    Of z the exponentials are left.
    """
    total, _ = _shares(z, n_classes)
    mean = 0.0
    for k in range(n_classes):
        mean += np.float64(z[k]) * v[k]
    mean /= total
    scale = weight / total
    for k in range(n_classes):
        v[k] = scale * z[k] * (v[k] - mean)
    for k in range(n_classes, len(v)):
        v[k] = 0


@nb.njit(**_SUMS)
def csr_multinomial_product(data, indices, indptr, weights, offset, W, V, n_classes, out):
    """Add the Hessian of these rows at W times V.

    `data`, `indices`, `indptr`, `weights`, `offset`, `W`, `n_classes`: see `csr_multinomial`. `V`: array
    (d + 1, Q) of the type of data. `out`: float64 array (d + 1, Q); added to.
    """
    last, width = W.shape[0] - 1, W.shape[1]
    z, v = np.empty(width, W.dtype), np.empty(width)
    for i in range(len(indptr) - 1):
        for k in range(width):
            z[k], v[k] = W[last, k], V[last, k]
        for e in span(indptr, i):
            value, here, along = data[e], W[at(indices[e])], V[at(indices[e])]
            for k in range(width):
                z[k] += value * here[k]
                v[k] += value * along[k]
        if len(offset) > 0:
            for k in range(n_classes):
                z[k] += offset[i, k]
        _residual_change(z, v, 1.0 if len(weights) == 0 else np.float64(weights[i]), n_classes)
        for k in range(width):
            out[last, k] += v[k]
        for e in span(indptr, i):
            value, line = np.float64(data[e]), out[at(indices[e])]
            for k in range(width):
                line[k] += value * v[k]


@nb.njit(**_SUMS, **INNER)
def _curve(z, weight, n_classes):
    """Turn predictors into ``weight p (1 - p)``."""
    total, _ = _shares(z, n_classes)
    for k in range(n_classes):
        p = z[k] / total
        z[k] = weight * p * (1 - p)
    for k in range(n_classes, len(z)):
        z[k] = 0


@nb.njit(**_SUMS)
def csr_multinomial_diagonal(data, indices, indptr, weights, offset, W, n_classes, out):
    """Add the diagonal of the Hessian of these rows at W, laid out as W.

    `data`, `indices`, `indptr`, `weights`, `offset`, `W`, `n_classes`: see `csr_multinomial`. `out`: float64
    array (d + 1, Q); added to.
    """
    last, width = W.shape[0] - 1, W.shape[1]
    z = np.empty(width)
    for i in range(len(indptr) - 1):
        for k in range(width):
            z[k] = W[last, k]
        for e in span(indptr, i):
            value, line = np.float64(data[e]), W[at(indices[e])]
            for k in range(width):
                z[k] += value * line[k]
        if len(offset) > 0:
            for k in range(n_classes):
                z[k] += offset[i, k]
        _curve(z, 1.0 if len(weights) == 0 else np.float64(weights[i]), n_classes)
        for k in range(width):
            out[last, k] += z[k]
        for e in span(indptr, i):
            value, line = np.float64(data[e]) * data[e], out[at(indices[e])]
            for k in range(width):
                line[k] += value * z[k]


@nb.njit(**_SUMS)
def multinomial_curves(Z, weights, n_classes):
    """Turn predictors (n, Q) into the diagonal of the loss's curvature, ``s p (1 - p)``, in place."""
    for i in range(len(Z)):
        _curve(Z[i], 1.0 if len(weights) == 0 else np.float64(weights[i]), n_classes)


@nb.njit(**_SUMS)
def residual_changes(Z, V, weights, n_classes):
    """Turn changes V of predictors Z, both (n, Q), into those of the residuals in place; Z is spent."""
    for i in range(len(Z)):
        _residual_change(Z[i], V[i], 1.0 if len(weights) == 0 else np.float64(weights[i]), n_classes)


@nb.njit(**_SUMS)
def csc_gram(data, indices, indptr, R, out):
    """Add ``X X^T R`` to `out`, column by column.

    `data`, `indices`, `indptr`: arrays of CSC; `indptr` may be a slice of the matrix's, for some of its
    columns. `R`: float64 array (n, Q). `out`: float64 array (n, Q); added to.
    """
    width = R.shape[1]
    sums = np.empty(width)
    for j in range(len(indptr) - 1):
        for k in range(width):
            sums[k] = 0.0
        for e in span(indptr, j):
            value, line = np.float64(data[e]), R[at(indices[e])]
            for k in range(width):
                sums[k] += value * line[k]
        for e in span(indptr, j):
            value, line = np.float64(data[e]), out[at(indices[e])]
            for k in range(width):
                line[k] += value * sums[k]
