"""Conjugate gradients for a system whose matrix is known by its products with vectors."""

from typing import Any, NamedTuple


class ConjugateStep(NamedTuple):
    """Where the solution is: ``x``, ``residual = right - A x``, and how it came there.

    `square`: ``residual M residual`` with the preconditioner M. `fell`: what ``x A x / 2 - right x`` has
    fallen by since 0. `length`, `ratio`: of the step; the tridiagonal matrix of Lanczos follows from them.
    """

    x: Any
    residual: Any
    square: float
    fell: float = 0.0
    length: float = 0.0
    ratio: float = 0.0


def conjugate_gradient_steps(product, right, preconditioner=None):
    """Yield the start and every step; ends where a direction has no curvature above 0."""
    at_once = preconditioner is None
    x, residual = 0.0 * right, right
    step = right if at_once else preconditioner(right)
    square, fell = float(right @ step), 0.0
    yield ConjugateStep(x, residual, square)
    while True:
        bent = product(step)
        curvature = float(step @ bent)
        if not curvature > 0:  # rounding: the matrix is positive definite
            return
        length = square / curvature
        x, residual = x + length * step, residual - length * bent
        turned = residual if at_once else preconditioner(residual)
        fell += 0.5 * length * square
        before, square = square, float(residual @ turned)
        yield ConjugateStep(x, residual, square, fell, length, square / before)
        step = turned + (square / before) * step


def conjugate_gradients(product, right, stop, most):
    """Solve until the residual is at most `stop`, by at most `most` products."""
    for count, state in enumerate(conjugate_gradient_steps(product, right)):
        if count == most or not state.square > stop**2:
            break
    return state.x if state.x.any() else right
