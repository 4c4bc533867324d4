"""Vector operations of a step in the space of the rows, all but its product with X X^T.

A vector is a float64 array (2, n), numbers a of the rows and ``X X^T a``, or (2, n + 1) with an intercept
at the end of both halves; see `algorithms.optimize.row_newton`.
"""

from typing import Any

import numba as nb
import numpy as np

from ..options import INNER, KERNEL
from .columns import FAST
from .glm_losses import tile_losses

_SUMS: dict[str, Any] = {
    **KERNEL,
    "fastmath": FAST - {"afn"},
}


@nb.njit(**_SUMS)
def step_to(loss, vector, t, d, y, weights, offset, scale, l2, there, slopes, curvatures):
    """Fill ``there = vector + t d``, and the slopes and curvatures of the rows there, times `scale`.

    `y`, `weights`: arrays (n,) of one type; `weights` may be (0,). `offset`: float64 array (n,) or (0,).
    `slopes`, `curvatures`: float64 arrays (n,). Returns `value`, `slope`: float64; of ``scale loss + l2 / 2
    <there, there>``, and its derivative by t.
    """
    n, with_free = len(y), vector.shape[1] > len(y)
    for half in range(2):
        for i in range(vector.shape[1]):
            there[half, i] = vector[half, i] + t * d[half, i]
    free = there[1, n] if with_free else 0.0
    z, values = np.empty(n), np.empty(n)
    for i in range(n):
        z[i] = there[1, i] + free
    for i in range(len(offset)):
        z[i] += offset[i]
    total = tile_losses(loss, z, y, weights, n, values, slopes, curvatures)
    square, slope, total_slope = 0.0, 0.0, 0.0
    for i in range(n):
        slopes[i] *= scale
        curvatures[i] *= scale
        square += there[0, i] * there[1, i]
        slope += (slopes[i] + l2 * there[0, i]) * d[1, i]
        total_slope += slopes[i]
    if with_free:
        slope += total_slope * d[0, n]
    return scale * total + 0.5 * l2 * square, slope


@nb.njit(**_SUMS)
def curvature_product(curvatures, vector, out):
    """Fill ``out = curvatures * (X v + v_c)``, (n,), v being a vector."""
    n = len(out)
    free = vector[1, n] if vector.shape[1] > n else 0.0
    for i in range(n):
        out[i] = curvatures[i] * (vector[1, i] + free)


@nb.njit(**_SUMS)
def assemble(r, gram, l2, vector, out):
    """Fill in the vector ``X^T r + l2 v``; `gram` is ``X X^T r``, the intercept's entry the sum of r."""
    n, total = len(r), 0.0
    for i in range(n):
        total += r[i]
        out[0, i] = r[i] + l2 * vector[0, i]
        out[1, i] = gram[i] + l2 * vector[1, i]
    if out.shape[1] > n:
        out[0, n] = out[1, n] = total


@nb.njit(**_SUMS)
def product(v, w):
    """The scalar product of two vectors."""
    total = 0.0
    for i in range(v.shape[1]):
        total += v[0, i] * w[1, i]
    return total


@nb.njit(**_SUMS)
def advance(bent, square, d, residual, step):
    """Take a step of conjugate gradients.

    `bent`: the matrix times `step`. `square`: float64; of the residual. `d`, `residual`, `step`: changed; `d`
    grows by a multiple of `step`, and `step` becomes the next one. Returns `gain`: float64; what the
    quadratic falls by; 0, and nothing is changed, unless `step` has curvature above 0. `square`: float64; of
    the new residual.
    """
    curvature = product(bent, step)
    if not curvature > 0:
        return 0.0, square
    length = square / curvature
    for half in range(2):
        for i in range(d.shape[1]):
            d[half, i] += length * step[half, i]
            residual[half, i] -= length * bent[half, i]
    after = product(residual, residual)
    for half in range(2):
        for i in range(d.shape[1]):
            step[half, i] = residual[half, i] + (after / square) * step[half, i]
    return 0.5 * length * square, after


@nb.njit(**_SUMS)
def keep_pair(steps, changes, numbers, n_pairs, step, change, least):
    """Replace the oldest pair, unless the new one has too little curvature; return whether it was kept.

    `steps`, `changes`: arrays (m, 2, n) of vectors. `numbers`: float64 array (2, m); of each pair ``s.y`` and
    ``y.y``. `n_pairs`: pairs that were kept so far; the next one's place is this modulo m. `step`, `change`:
    s and y. `least`: float64; A pair is kept if ``s.y`` is more than this part of ``|s| |y|``.
    """
    between, of_step, of_change = product(step, change), product(step, step), product(change, change)
    if not (of_step > 0 and of_change > 0 and between > least * np.sqrt(of_step) * np.sqrt(of_change)):
        return False
    if not (np.isfinite(between / of_change) and np.isfinite(of_step / between)):
        return False
    place = n_pairs % len(steps)
    for half in range(2):
        for i in range(step.shape[1]):
            steps[place, half, i] = step[half, i]
            changes[place, half, i] = change[half, i]
    numbers[0, place], numbers[1, place] = between, of_change
    return True


@nb.njit(**_SUMS)
def lbfgs_direction(steps, changes, numbers, n_pairs, d):
    """Turn minus a gradient, d, into the direction of L-BFGS by Nocedal's two loops; see `keep_pair`."""
    size = len(steps)
    first, shares = max(0, n_pairs - size), np.empty(size)
    for k in range(n_pairs - 1, first - 1, -1):
        place = k % size
        shares[place] = product(steps[place], d) / numbers[0, place]
        _add(-shares[place], changes[place], d)
    last = (n_pairs - 1) % size
    ratio = numbers[0, last] / numbers[1, last]
    for half in range(2):
        for i in range(d.shape[1]):
            d[half, i] *= ratio
    for k in range(first, n_pairs):
        place = k % size
        _add(shares[place] - product(changes[place], d) / numbers[0, place], steps[place], d)


@nb.njit(**_SUMS, **INNER)
def _add(a, v, out):
    for half in range(2):
        for i in range(v.shape[1]):
            out[half, i] += a * v[half, i]
