"""Alternating least squares: the factors of a range of rows, given those of the other side.

The rows of the other side stand in `others` (n, d), C-contiguous; the ratings of row u are the entries
``indptr[u]`` to ``indptr[u + 1]`` of a CSR table. Every row is solved on its own, so that a range may be cut
anywhere without changing a bit. All arrays of numbers are of one type, float32 or float64.
"""

from typing import Any

import numba as nb
import numpy as np

from .indexing import at, span
from .linear_columns import FAST
from .mf_lanes import add_products

_SUMS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": FAST - {"afn"}}
_CHUNK = 256  # ratings whose factors are brought together for one matrix product


@nb.njit(**_SUMS)
def _normal_equations(entries, indices, weights, pulls, offsets, others, rows, scaled, product, A, b):
    """Add the ratings of a row to its normal equations: A += sum w q q', b += sum (pull - w offset) q."""
    d = at(others.shape[1])
    first, last = entries
    for start in range(first, last, _CHUNK):
        stop = min(last, start + _CHUNK)
        for i in range(stop - start):
            e = at(start + i)
            j = at(indices[e])
            w = weights[e]
            pull = pulls[e] - w * offsets[j]
            for k in range(d):
                q = others[j, k]
                rows[i, k] = q
                scaled[i, k] = w * q
                b[k] += pull * q
        np.dot(rows[: stop - start].T, scaled[: stop - start], product)
        for k in range(d):
            for m in range(d):
                A[k, m] += product[k, m]


@nb.njit(**_SUMS)
def _cholesky_solve(A, x):
    """Solve A x = b in place for a symmetric positive definite A, of which the upper half is read."""
    d = len(x)
    one = A.dtype.type(1)
    most = A[0, 0]
    for k in range(1, d):
        most = max(most, A[k, k])
    least = most * np.finfo(A.dtype).eps  # a smaller pivot is rounding alone
    for j in range(d):
        scale = one / np.sqrt(max(A[j, j], least))
        for k in range(j, d):
            A[j, k] *= scale
        A[j, j] = scale
        for i in range(j + 1, d):
            factor = A[j, i]
            for k in range(i, d):
                A[i, k] -= factor * A[j, k]
    for j in range(d):
        value = x[j] * A[j, j]
        x[j] = value
        for k in range(j + 1, d):
            x[k] -= value * A[j, k]
    for j in range(d - 1, -1, -1):
        value = x[j]
        for k in range(j + 1, d):
            value -= A[j, k] * x[k]
        x[j] = value * A[j, j]


@nb.njit(**_SUMS)
def _descend(A, b, x, n_bounded, sweeps):
    """Minimise x'Ax / 2 - b'x by coordinate descent from x, the first entries being 0 or above."""
    d = len(x)
    zero = x.dtype.type(0)
    for _ in range(sweeps):
        for k in range(d):
            slope = b[k]
            for m in range(d):
                slope -= A[k, m] * x[m]
            value = x[k] + slope / A[k, k]
            x[k] = max(value, zero) if k < n_bounded else value


@nb.njit(**_SUMS)
def solve_rows(
    start, stop, indptr, indices, weights, pulls, offsets, others, base, ridge, n_bounded, sweeps, factors
):
    """Put the minimum over each row's factors, given all others, into ``factors[start:stop]``.

    The objective of row u is ``sum_e w_e (x.q_j)^2 - 2 (pull_e - w_e offset_j) x.q_j + x' base x + ridge_u
    |x|^2``, which is that of weighted least squares if a pull is the weight times the target. A row without
    ratings becomes 0, which is its minimum.

    Parameters
    ----------
    start, stop : int
    indptr : int64 array; indices : int32 array
    weights, pulls : arrays, one entry a rating
    offsets : array (n,)
    others : array (n, d)
    base : array (d, d)
    ridge : array, one entry a row; above 0
    n_bounded : int
        How many leading factors must not be negative. If any, `sweeps` of coordinate descent begin from the
        factors as they are, instead of the exact solution.
    sweeps : int
    factors : array of d columns
        Written in the rows of the range alone.
    """
    d = at(others.shape[1])
    zero = others.dtype.type(0)
    rows, scaled = np.empty((_CHUNK, d), others.dtype), np.empty((_CHUNK, d), others.dtype)
    product, A = np.empty((d, d), others.dtype), np.empty((d, d), others.dtype)
    b = np.empty(d, others.dtype)
    for u in range(start, stop):
        entries = (indptr[u], indptr[u + 1])
        if entries[0] == entries[1]:
            for k in range(d):
                factors[u, k] = zero
            continue
        for k in range(d):
            b[k] = zero
            for m in range(d):
                A[k, m] = base[k, m]
        _normal_equations(entries, indices, weights, pulls, offsets, others, rows, scaled, product, A, b)
        for k in range(d):
            A[k, k] += ridge[u]
        if n_bounded > 0:
            _descend(A, b, factors[u], n_bounded, sweeps)
        else:
            _cholesky_solve(A, b)
            for k in range(d):
                factors[u, k] = b[k]


@nb.njit(**_SUMS)
def _apply(first, last, indices, weights, others, gram, ridge, s, out, vectors):
    """Fill out with gram s + ridge s + sum over the ratings of w (q.s) q."""
    np.dot(gram, s, out)
    for k in range(at(len(s))):
        out[k] += ridge * s[k]
    add_products(others, indices, weights, first, last, s, out, vectors)


@nb.njit(**_SUMS)
def conjugate_rows(
    start, stop, indptr, indices, weights, pulls, others, gram, ridge, steps, factors, vectors
):
    """Take steps of conjugate gradients from ``factors[start:stop]``, for implicit feedback.

    The objective of row u is that of `solve_rows` with `gram` for the base and offsets of 0; its matrix is
    applied without being formed.

    Parameters
    ----------
    start, stop : int
    indptr : int64 array; indices : int32 array
    weights, pulls : arrays, one entry a rating
    others : array (n, d)
    gram : array (d, d)
    ridge : array, one entry a row
    steps : int
    factors : array of d columns
        Written in the rows of the range alone.
    vectors : tuple of int
        One for every 16 columns; d is a multiple of 16.
    """
    d = at(others.shape[1])
    residual, direction = np.empty(d, others.dtype), np.empty(d, others.dtype)
    image = np.empty(d, others.dtype)
    zero, eps = others.dtype.type(0), np.finfo(others.dtype).eps
    for u in range(start, stop):
        first, last = indptr[u], indptr[u + 1]
        if first == last:
            for k in range(d):
                factors[u, k] = zero
            continue
        x = factors[u]
        for k in range(d):
            residual[k] = zero
        for e in span(indptr, u):
            j = at(indices[e])
            for k in range(d):
                residual[k] += pulls[e] * others[j, k]
        size = np.dot(residual, residual)  # of the gradient at 0: what is small is judged by it
        _apply(first, last, indices, weights, others, gram, ridge[u], x, image, vectors)
        for k in range(d):
            residual[k] -= image[k]
            direction[k] = residual[k]
        square = np.dot(residual, residual)
        for _ in range(steps):
            if square <= size * eps * eps:
                break
            _apply(first, last, indices, weights, others, gram, ridge[u], direction, image, vectors)
            length = square / np.dot(direction, image)
            for k in range(d):
                x[k] += length * direction[k]
                residual[k] -= length * image[k]
            before, square = square, np.dot(residual, residual)
            kept = square / before
            for k in range(d):
                direction[k] = residual[k] + kept * direction[k]


@nb.njit(**_SUMS)
def row_losses(start, stop, indptr, indices, weights, targets, offsets, others, factors, losses):
    """Fill ``losses[start:stop]`` (float64) with the weighted squares of each row's residuals."""
    d = at(others.shape[1])
    for u in range(start, stop):
        total = 0.0
        for e in span(indptr, u):
            j = at(indices[e])
            product = targets[e] - offsets[j]
            for k in range(d):
                product -= factors[u, k] * others[j, k]
            total += np.float64(weights[e] * product * product)
        losses[u] = total


@nb.njit(**_SUMS)
def implicit_losses(start, stop, indptr, indices, confidences, others, factors, losses):
    """Fill ``losses[start:stop]`` (float64) with each row's ``sum c (t - x)^2 - x^2`` over its entries.

    With the squares of all products, ``sum((P'P) * (Q'Q))``, that is the loss over all cells.
    """
    d = at(others.shape[1])
    one, zero = others.dtype.type(1), others.dtype.type(0)
    for u in range(start, stop):
        total = 0.0
        for e in span(indptr, u):
            j = at(indices[e])
            product = zero
            for k in range(d):
                product += factors[u, k] * others[j, k]
            miss = (one if confidences[e] > zero else zero) - product
            total += np.float64(abs(confidences[e]) * miss * miss - product * product)
        losses[u] = total
