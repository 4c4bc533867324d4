"""Conjugate gradients for a system whose matrix is known by its products with vectors."""

import numpy as np


def conjugate_gradients(product, right, stop, most):
    """Solve until the residual is at most `stop`, by at most `most` products."""
    z, residual, step = np.zeros_like(right), right.copy(), right.copy()
    square = residual @ residual
    for _ in range(most):
        if not square > stop**2:
            break
        bent = product(step)
        curvature = step @ bent
        if not curvature > 0:  # rounding: the Hessian is positive definite
            break
        length = square / curvature
        z += length * step
        residual -= length * bent
        before, square = square, residual @ residual
        step = residual + (square / before) * step
    return z if z.any() else right
