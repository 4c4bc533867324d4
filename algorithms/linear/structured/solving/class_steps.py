"""Newton's method for the multinomial loss of K classes and convex penalties of single coefficients.

The second-order model has the exact Hessian, which couples the classes of a row: it takes a change V of their
predictors to ``w (P V - P (P . V))``. Coordinate descent goes through the classes in turn, each with its
intercept eliminated. Where that takes many turns, a few steps of conjugate gradients on the coefficients that
are not zero, of all classes, come between two of them.

The model may be of less precision than the loss: slopes at the beginning of a step are exact, and so is the
change of the predictors that it leads to.
"""

import numpy as np

from .....kernels.linear import class_newton as kernels
from .....kernels.linear.newton import HALVINGS, STEPS, judge_step

_TURNS, _CONJUGATE_TURN = 10, 4  # through the classes, for a model; after which conjugate gradients come
_CONJUGATE_STEPS, _CONJUGATE_TOL = 10, 0.3
_LEAST_CURVATURE = 1e-9  # directions of less, relative to that of their coordinates, are not followed
_MODEL_TOL = 0.2  # of the violation at the beginning of a step


def minimise_classes(columns, y, weights, f, b, c, P, fit_intercept, tol):
    """Minimise until the conditions are broken by at most `tol`.

    `columns`: see `Solver._entries_of_columns`. `y`, `f`: (K, n), shares of the classes, and predictors with
    offsets. `b`: (K, m). `c`: (K,). `P`: (5, m), lam, l1, ridge, low and high. `f`, `b` and `c` are changed.
    """
    X, A, ids, kind = columns
    (K, m), n = b.shape, len(weights)
    p, u, g, d = np.empty((K, n)), np.empty((K, n)), np.empty((K, m + 1)), np.empty((K, m + 1))
    near, model, totals = np.empty((K, m), np.bool_), np.zeros((K, 4, m)), np.zeros((K, 2))

    def charge():
        size = np.abs(b)
        return float((size * (P[0] + P[1] + 0.5 * P[2] * size)).sum())

    value, damping = kernels.class_losses(y, weights, f, p, u) + charge(), 0.0
    for _ in range(STEPS):
        filled = g, near, model, totals
        violation = kernels.begin_model(X, ids, u, p, weights, b, P, damping, fit_intercept, tol, *filled)
        if violation <= tol:
            break
        d[:] = 0.0
        old_b, V, mean = b.copy(), np.zeros((K, n), kind), np.zeros(n, kind)
        terms = A, ids, p, weights, g, model, totals, P, b, d, V, mean
        for turn in range(_TURNS):
            if kernels.descend(*terms, near) <= max(_MODEL_TOL * violation, 0.3 * tol):
                break
            if turn == _CONJUGATE_TURN:
                _conjugate_gradients(*terms)
        d[:, :m] = b - old_b
        df, old_f, old_c, t = np.zeros((K, n)), f.copy(), c.copy(), 1.0
        kernels.change_predictors(X, ids, d, p, df, np.zeros(n))
        moved = ends = False
        for _halving in range(HALVINGS):
            f[:], c[:] = old_f + t * df, old_c + t * d[:, m]
            if t < 1.0:
                b[:] = old_b + t * d[:, :m]
            now = kernels.class_losses(y, weights, f, p, u) + charge()
            moved, ends, damping = judge_step(now, value, t, damping, False, d.any())
            if moved:
                value = min(now, value)
                break
            t /= 2
        if not moved:
            f[:], b[:], c[:] = old_f, old_b, old_c
            kernels.class_losses(y, weights, f, p, u)
            moved, ends, damping = judge_step(value, value, 0.0, damping, False, True)
        if ends:
            break


def _conjugate_gradients(A, ids, p, weights, g, model, totals, P, b, d, V, mean):
    """Minimise a model, about, over intercepts and coefficients that are not zero, with their signs."""
    K, m = b.shape
    on = (b != 0) & (model[:, 2] > 0)
    added = np.concatenate([model[:, 3], totals[:, 1:]], axis=1)
    curvatures = np.divide(1.0, model[:, 2], out=np.zeros((K, m)), where=on)
    curvatures = np.concatenate([curvatures, totals[:, :1]], axis=1)
    scale = np.divide(1.0, curvatures, out=np.zeros(curvatures.shape), where=curvatures > 0)

    def image(z):
        T, middle, out = np.zeros_like(V), np.zeros_like(mean), np.empty((K, m + 1))
        kernels.change_predictors(A, ids, z, p, T, middle)
        kernels.curved_slopes(A, ids, p, weights, T, middle, on, out)
        return (out + added * z) * (scale > 0), T, middle

    slopes = np.empty((K, m + 1))
    kernels.curved_slopes(A, ids, p, weights, V, mean, on, slopes)
    slopes += g + added * d
    slopes[:, :m] += model[:, 1] * g[:, m:] + np.sign(b) * (P[0] + P[1])
    right = rest = np.where(scale > 0, -slopes, 0.0)
    z, direction = np.zeros((K, m + 1)), rest * scale
    size = first = float((rest * direction).sum())
    for _ in range(_CONJUGATE_STEPS):
        if size <= _CONJUGATE_TOL**2 * first:
            break
        product, *_ = image(direction)
        curvature = float((direction * product).sum())
        if not curvature > _LEAST_CURVATURE * float((direction**2 * curvatures).sum()):
            break
        length, before = size / curvature, size
        z, rest = z + length * direction, rest - length * product
        size = float((rest * rest * scale).sum())
        direction = rest * scale + (size / before) * direction
    new = b + z[:, :m]
    new = np.clip(np.where((new * b < 0) & (P[0] + P[1] > 0), 0.0, new), P[3], P[4])
    cut = bool((new != b + z[:, :m]).any())
    z[:, :m] = new - b
    product, T, middle = image(z)
    length = 1.0
    if cut:
        curvature = float((z * product).sum())
        length = min(1.0, float((right * z).sum()) / curvature) if curvature > 0 else 0.0
    if length > 0:
        b += length * z[:, :m]
        d += length * z
        V += V.dtype.type(length) * T
        mean += mean.dtype.type(length) * middle
