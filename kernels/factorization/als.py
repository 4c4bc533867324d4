"""Alternating least squares: the factors of a range of rows, given those of the other side.

`others` (n, d) holds the factors of the other side, with d a multiple of 16; the ratings of row u are the
entries ``indptr[u]`` to ``indptr[u + 1]`` of a CSR table (int64 `indptr`, int32 `indices`). Each row is
solved on its own, so that a range may be cut anywhere without changing a bit. All arrays of numbers are of
one type, float32 or float64. `vectors` is a tuple of one int for every 16 columns.

The matrix of the normal equations is summed in tiles of 16 x 16, which stay in registers, over as many
ratings as keep their factors in the first-level cache; the Cholesky factorization U'U takes four rows at a
time.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at
from ..options import INNER, KERNEL
from .lanes import LANES, add_image, add_rows, add_slopes, add_tile, row_product, sum_squares
from .small_matrices import add_row, scale_row, subtract_rows, tail_product, turn_tile

_SAME: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}
_LINE = 16  # numbers of a cache line of 64 bytes, at most
_CHUNK = 8192  # numbers of factors that are read again for every tile
_ROWS = 96  # that are turned before the next panel of the matrix
_TILE = 6  # rows that are turned at once: their sums fit the 16 registers of AVX2


@nb.njit(**_SAME, **INNER)
def _scratch(start, stop, indptr, values):
    """Make two arrays, as long as the most ratings of a row of the range."""
    longest = 0
    for u in range(start, stop):
        longest = max(longest, indptr[u + 1] - indptr[u])
    return np.empty(longest, values.dtype), np.empty(longest, values.dtype)


@nb.njit(**_SAME, **INNER)
def _whole_lines(rows, d, values):
    """Make an array (rows, d) that begins with a cache line, as its rows then do."""
    raw = np.empty(rows * d + _LINE, values.dtype)
    first = (-raw.ctypes.data) % 64 // values.itemsize
    return raw[first : first + rows * d].reshape(rows, d)


@nb.njit(**_SAME, **INNER)
def _terms(first, n, indices, values, weights, offsets, implicit, precision, pulls, scaled):
    """Fill weights and pulls of a row's ratings; return their sums and that of the weighted squared targets.

    For implicit feedback the Gram matrix contains the unobserved cells, of confidence 1, already.
    """
    one, zero = values.dtype.type(1), values.dtype.type(0)
    each = at(len(weights) > 1)
    total, pulled, squares = 0.0, 0.0, 0.0
    for i in range(n):
        e = at(first + i)
        if implicit:
            weight, pull = precision * (abs(values[e]) - one), precision * max(values[e], zero)
            square = np.float64(pull)
        else:
            weight = precision * weights[e * each]
            target = values[e] - offsets[at(indices[e])]
            pull = weight * target
            square = np.float64(pull) * np.float64(target)
        scaled[i], pulls[i] = weight, pull
        total += np.float64(weight)
        pulled += np.float64(pull)
        squares += square
    return total, pulled, squares


@nb.njit(**_SAME, **INNER)
def _gram(A, others, indices, first, scaled, n, vectors):
    """Add ``sum w q q'`` to the upper tiles of A."""
    d = len(vectors) * LANES
    chunk = max(32, _CHUNK // d)
    for begin in range(0, n, chunk):
        end = min(n, begin + chunk)
        for i in range(0, d, LANES):
            for j in range(i, d, LANES):
                add_tile(A, others, indices, first, scaled, begin, end, i, j, vectors)


@nb.njit(**_SAME, **INNER)
def _factorize(A, inverse, vectors):
    """Overwrite the upper half of A by U with U'U = A, and `inverse` by one over its diagonal.

    Tiles on the diagonal get zeros below it.
    """
    d = len(vectors) * LANES
    one, zero = A.dtype.type(1), A.dtype.type(0)
    most = A[0, 0]
    for k in range(1, d):
        most = max(most, A[k, k])
    least = most * np.finfo(A.dtype).eps  # a smaller pivot is rounding alone
    for panel in range(0, d, 4):
        tile = panel - panel % LANES
        for j in range(panel, panel + 4):
            factor = one / np.sqrt(max(A[j, j], least))
            inverse[j] = factor
            A[j, tile:j] = zero
            scale_row(A, j, factor, tile, vectors)
            subtract_rows(A, j + 1, panel + 4, j, (0,), tile, vectors)
        for start in range(tile, d, LANES):
            subtract_rows(A, max(start, panel + 4), start + LANES, panel, (0, 0, 0, 0), start, vectors)


@nb.njit(**_SAME, **INNER)
def _solve(A, inverse, x, noise, vectors):
    """Put ``U^-1 (U'^-1 x + noise)`` in place of x."""
    d, zero = len(vectors) * LANES, x.dtype.type(0)
    for j in range(d):
        value = x[j] * inverse[j]
        add_row(x, A, j, -value, j - j % LANES, vectors)
        x[j] = value
    for k in range(len(noise)):
        x[k] += noise[k]
    for j in range(d - 1, -1, -1):
        value, x[j] = x[j], zero
        x[j] = (value - tail_product(A, j, x, j - j % LANES, vectors)) * inverse[j]


@nb.njit(**_SAME, **INNER)
def _descend(A, b, x, sweeps):
    """Minimise x'Ax / 2 - b'x over x of 0 and above by coordinate descent from x; return twice that."""
    d = len(x)
    zero = x.dtype.type(0)
    for k in range(d):
        for m in range(k):
            A[k, m] = A[m, k]
    for _ in range(sweeps):
        for k in range(d):
            slope = b[k]
            for m in range(d):
                slope -= A[k, m] * x[m]
            x[k] = max(x[k] + slope / A[k, k], zero)
    total = 0.0
    for k in range(d):
        slope = -b[k] - b[k]
        for m in range(d):
            slope += A[k, m] * x[m]
        total += np.float64(slope * x[k])
    return total


@nb.njit(**_SAME)
def solve_rows(
    start, stop, indptr, indices, values, weights, offsets, implicit, others, base, shares, pull, bias_pull,
    precision, ridge, bias_ridge, bias, sweeps, noise, factors, biases, losses, vectors,
):  # fmt: skip
    """Minimise each row's objective over its factors and bias, given the other side; rows start to stop.

    The objective of row u is, with targets t = value - offset::

        precision sum_e w_e (t_e - c - q.x)^2 + share_u x' base x + ridge_u |x|^2
            + bias_ridge_u c^2 - 2 pull_u.x - 2 bias_pull_u c

    and c = 0 without `bias`. For implicit feedback a value is a confidence, w =
    |value| - 1, `weights` is not read, and the first sum is ``sum_e w_e (q.x)^2 - 2 max(value_e, 0) q.x +
    max(value_e, 0)``.

    `weights` has one entry a rating or one for all; `shares`, `pull` (., d) and `bias_pull` one a row or one
    for all; `ridge` (above 0, unless `base` (d, d) is positive definite) and `bias_ridge` (0 or above) one a
    row.

    With `sweeps` above 0 factors (not the bias) are kept at 0 or above, by so many sweeps of coordinate
    descent from their values, instead of the exact solution. `noise`, standard normal, (rows, d), with `bias`
    (rows, d + 1), or (0, d): with noise rows and biases become joint draws, the objective being twice a
    negative log density; without it a row that has no ratings is left as it is.

    Writes `factors` (rows, d), `biases` and `losses` (float64, each row's objective) in the rows of the range
    alone.
    """
    d = len(vectors) * LANES
    pulls, scaled = _scratch(start, stop, indptr, values)
    A, b, inverse = np.empty((d, d), values.dtype), np.empty(d, values.dtype), np.empty(d, values.dtype)
    sums, none, zero = np.empty(d, values.dtype), np.empty(0, values.dtype), values.dtype.type(0)
    for u in range(start, stop):
        first = indptr[u]
        n = indptr[u + 1] - first
        losses[u] = 0.0
        if n == 0 and len(noise) == 0:
            continue
        x = factors[u]
        total, pulled, squares = _terms(
            first, n, indices, values, weights, offsets, implicit, precision, pulls, scaled
        )
        share, drawn = shares[u if len(shares) > 1 else 0], pull[u if len(pull) > 1 else 0]
        pulled += np.float64(bias_pull[u if len(bias_pull) > 1 else 0])
        for k in range(d):
            for m in range(d):
                A[k, m] = share * base[k, m]
            A[k, k] += ridge[u]
            b[k], sums[k] = drawn[k], zero
        _gram(A, others, indices, first, scaled, n, vectors)
        add_rows(others, indices, first, pulls, scaled, n, b, sums, vectors)
        if bias:  # eliminated: given the factors it is (pulled - sums.x) / (total + bias_ridge)
            least = total + np.float64(bias_ridge[u])
            scale, ratio = values.dtype.type(1 / least), values.dtype.type(pulled / least)
            squares -= pulled * pulled / least
            for k in range(d):
                factor = sums[k] * scale
                b[k] -= ratio * sums[k]
                for m in range(d):
                    A[k, m] -= factor * sums[m]
        if sweeps > 0:
            losses[u] = squares + _descend(A, b, x, sweeps)
        else:
            _factorize(A, inverse, vectors)
            for k in range(d):
                x[k] = b[k]
            _solve(A, inverse, x, noise[u, :d] if len(noise) > 0 else none, vectors)
            gain = 0.0
            for k in range(d):
                gain += np.float64(b[k]) * np.float64(x[k])
            losses[u] = squares - gain
        if bias:
            shift = 0.0
            for k in range(d):
                shift += np.float64(sums[k]) * np.float64(x[k])
            centre = (pulled - shift) / least
            if len(noise) > 0:
                centre += np.float64(noise[u, d]) / np.sqrt(least)
            biases[u] = values.dtype.type(centre)


@nb.njit(**_SAME)
def conjugate_rows(
    start, stop, indptr, indices, values, others, spectrum, pull, ridge, steps, factors, losses, vectors
):
    """Take `steps` of conjugate gradients from ``factors[start:stop]``, for implicit feedback.

    The objective of row u is that of `solve_rows`, in coordinates in which the Gram matrix over all of the
    other side is the diagonal matrix of `spectrum` (d,), 0 or above: with it and `ridge_u` the steps are
    preconditioned. `pull` is (rows, d) or (1, d), `ridge` one entry a row. Writes `factors` and `losses`
    (float64, each row's objective) in the rows of the range alone.
    """
    d = len(vectors) * LANES
    pulls, scaled = _scratch(start, stop, indptr, values)
    diagonal, nearer = np.empty(d, values.dtype), np.empty(d, values.dtype)
    residual, image, direction = _whole_lines(3, d, values)
    one, zero = values.dtype.type(1), values.dtype.type(0)
    eps = np.finfo(values.dtype).eps
    for u in range(start, stop):
        first = indptr[u]
        n = indptr[u + 1] - first
        losses[u] = 0.0
        if n == 0:
            continue
        x, drawn = factors[u], pull[u if len(pull) > 1 else 0]
        objective = 0.0
        for i in range(n):
            value = values[at(first + i)]
            pulls[i], scaled[i] = max(value, zero), abs(value) - one
            objective += np.float64(pulls[i])
        for k in range(d):
            diagonal[k] = spectrum[k] + ridge[u]
            residual[k] = drawn[k] - diagonal[k] * x[k]
        objective -= add_slopes(others, indices, first, pulls, scaled, n, x, residual, vectors)
        for k in range(d):  # x'Ax - 2 b'x = -x'(b + residual)
            objective -= np.float64(x[k]) * np.float64(drawn[k] + residual[k])
            nearer[k] = residual[k] / diagonal[k]
            direction[k] = nearer[k]
        square = row_product(residual, 0, nearer, 0, vectors)
        least = square * eps * eps
        for step in range(steps):
            if square <= least:
                break
            for k in range(d):
                image[k] = diagonal[k] * direction[k]
            last = step + 1 == steps  # of it the curvature is needed alone
            if last:
                bent = sum_squares(others, indices, first, scaled, n, direction, vectors)
            else:
                add_image(others, indices, first, scaled, n, direction, image, vectors)
                bent = 0.0
            curvature = row_product(direction, 0, image, 0, vectors) + values.dtype.type(bent)
            if not curvature > zero:
                break
            length = square / curvature
            objective -= np.float64(length) * np.float64(square)
            for k in range(d):
                x[k] += length * direction[k]
            if last:
                break
            for k in range(d):
                residual[k] -= length * image[k]
                nearer[k] = residual[k] / diagonal[k]
            after = row_product(residual, 0, nearer, 0, vectors)
            kept = after / square
            square = after
            for k in range(d):
                direction[k] = nearer[k] + kept * direction[k]
        losses[u] = objective


@nb.njit(**_SAME)
def turn_rows(rows, matrix, out, vectors):
    """Put ``rows @ matrix`` in `out`; `rows` and `out` are (n, d), `matrix` is (d, d).

    Each row's sums go in the same order wherever the rows are cut. The matrix is copied to panels of 16
    columns. One of them stays in the first-level cache while some rows go by, which stay in the second. Twice
    as fast with AVX-512 as OpenBLAS with the kernels that it takes for some processors.
    """
    n, d = len(rows), len(vectors) * LANES
    panels = _whole_lines(len(vectors) * d, LANES, rows)
    for place in range(0, d, LANES):
        for k in range(d):
            for m in range(LANES):
                panels[(place // LANES) * d + k, m] = matrix[k, place + m]
    for begin in range(0, n, _ROWS):
        end = min(n, begin + _ROWS)
        whole = end - (end - begin) % _TILE
        for place in range(0, d, LANES):
            panel = panels[(place // LANES) * d : (place // LANES + 1) * d]
            for u in range(begin, whole, _TILE):
                turn_tile(rows, u, (0, 0, 0, 0, 0, 0), panel, out, place, vectors)
            for u in range(whole, end):
                turn_tile(rows, u, (0,), panel, out, place, vectors)


@nb.njit(**_SAME)
def row_losses(
    start, stop, indptr, indices, values, weights, offsets, others, factors, biases, losses, vectors
):
    """Fill ``losses[start:stop]`` (float64) with each row's weighted sum of squared residuals.

    `weights` has one entry a rating, or one for all.
    """
    each = at(len(weights) > 1)
    for u in range(start, stop):
        total = 0.0
        for i in range(indptr[u], indptr[u + 1]):
            e = at(i)
            j = indices[e]
            miss = values[e] - offsets[at(j)] - biases[u] - row_product(factors, u, others, j, vectors)
            total += np.float64(weights[e * each]) * np.float64(miss) ** 2
        losses[u] = total
