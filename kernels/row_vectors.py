"""Conjugate gradients in the space of the rows: all that a step does beside its product with X X^T.

A vector is a float64 array (2, n), numbers a of the rows beside ``X X^T a``, or (2, n + 1) with an intercept
at the end of both halves; see `algorithms.optimize.row_newton`.
"""

from typing import Any

import numba as nb

from .linear_columns import FAST

_SUMS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": FAST - {"afn"},
}


@nb.njit(**_SUMS)
def bend(curvatures, vector, out):
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

    Parameters
    ----------
    bent : vector
        The matrix times `step`.
    square : float64
        Of the residual.
    d, residual, step : vectors
        Changed; `d` grows by a multiple of `step`, and `step` becomes the next one.

    Returns
    -------
    gain : float64
        What the quadratic falls by; 0, and nothing is changed, unless `step` has curvature above 0.
    square : float64
        Of the new residual.
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
