"""Regressions with correlated columns, in many forms, and the documented objective in plain numpy."""

import numpy as np
from scipy import sparse


def problem(n=60, p=30, *, seed=0, density=1.0, n_informative=5, noise=1.0):
    """A regression with correlated columns of different scales and means."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.7 * rng.standard_normal((n, 1))
    X *= rng.uniform(0.5, 2.0, p)
    if density < 1:
        X[rng.random((n, p)) > density] = 0
    else:
        X += rng.uniform(-2, 2, p)
    b = np.zeros(p)
    b[rng.choice(p, min(n_informative, p), replace=False)] = rng.uniform(1, 3, min(n_informative, p))
    return X, X @ b + noise * rng.standard_normal(n) + 5.0


def centred(X, y, weights, fit_intercept):
    w = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    if fit_intercept:
        X, y = X - w @ X / w.sum(), y - w @ y / w.sum()
    return X, y, w / w.sum()


def primal(X, y, b, *, alpha, l1_ratio=1.0, factor=1.0, weights=None, fit_intercept=True):
    """The documented objective at the best intercept."""
    X, y, w = centred(X, y, weights, fit_intercept)
    penalty = l1_ratio * np.abs(b) + (1 - l1_ratio) / 2 * b**2
    return w @ (y - X @ b) ** 2 / 2 + alpha * (factor * penalty).sum()


def gap(X, y, b, *, alpha, l1_ratio=1.0, factor=1.0, weights=None, fit_intercept=True, positive=False):
    """Objective minus dual objective at the scaled residual: it bounds the distance to the minimum."""
    Xc, yc, w = centred(X, y, weights, fit_intercept)
    r = yc - Xc @ b
    l2 = alpha * (1 - l1_ratio) * factor * np.ones(len(b))
    g = Xc.T @ (w * r) - l2 * b
    size = np.maximum(g, 0) if positive else np.abs(g)
    room = np.divide(
        alpha * l1_ratio * factor * np.ones(len(b)), size, out=np.full(len(b), np.inf), where=size > 0
    )
    square = w @ r**2 + l2 @ b**2
    s = min((w * yc) @ r / square, room.min()) if square > 0 else 0.0
    P = primal(
        X, y, b, alpha=alpha, l1_ratio=l1_ratio, factor=factor, weights=weights, fit_intercept=fit_intercept
    )
    return P - (s * (w * yc) @ r - s**2 * square / 2)


FORMS = {
    "fortran": np.asfortranarray,
    "c": np.ascontiguousarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "csr_matrix": sparse.csr_matrix,
    "coo": sparse.coo_array,
}
