"""Descent on a quadratic model plus a penalty: blocks in turn, or all coefficients by proximal gradients."""

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ....kernels.linear.blocks import sweeps

_MOST_SWEEPS = 20_000
_KEPT = 5  # iterates of an extrapolation
_BETWEEN = 10  # sweeps between them


def block_descent(H, Q, B, starts, lam, l1, low, high, gamma, kind, tol, *, convex, most=_MOST_SWEEPS):
    """Minimise ``<B, H B> / 2 + <Q, B>`` plus the penalty of blocks, in place; Anderson steps if convex."""
    if not len(B):
        return
    steps = _steps(H, starts)
    arguments = (starts, steps, lam, l1, low, high, gamma, kind)
    G = H @ B + Q
    kept = [B.copy()]
    for _ in range(most // _BETWEEN):
        if sweeps(H, G, B, *arguments, _BETWEEN, tol) <= tol:
            return
        G = H @ B + Q  # whose rounding would add up
        if not convex:
            continue
        kept.append(B.copy())
        if len(kept) > _KEPT:
            better = _extrapolated(kept)
            if better is not None:
                better = np.clip(
                    better,
                    np.repeat(low, np.diff(starts))[:, None],
                    np.repeat(high, np.diff(starts))[:, None],
                )
                after = H @ better + Q
                if _model(better, after, Q, *arguments) < _model(B, G, Q, *arguments):
                    B[:], G = better, after
            kept = [B.copy()]


def _steps(H, starts):
    sizes = np.diff(starts)
    most = np.zeros(len(sizes))
    single = sizes == 1
    most[single] = np.diag(H)[starts[:-1][single]]
    for g in np.flatnonzero(~single).tolist():
        most[g] = np.linalg.eigvalsh(H[starts[g] : starts[g + 1], starts[g] : starts[g + 1]])[-1]
    return np.where(most > 0, 1 / np.where(most > 0, most, 1), 0.0)


def _model(B, G, Q, starts, steps, lam, l1, low, high, gamma, kind):
    sizes = np.sqrt(np.add.reduceat((B**2).sum(axis=1), starts[:-1]))
    sums = np.add.reduceat(np.abs(B).sum(axis=1), starts[:-1])
    return 0.5 * float(np.sum(B * (G + Q))) + float(lam @ sizes) + float(l1 @ sums)


def _extrapolated(kept):
    """Anderson's combination of iterates, or None."""
    points = np.array([point.ravel() for point in kept])
    steps = np.diff(points, axis=0)
    products = steps @ steps.T
    try:
        weights = np.linalg.solve(
            products + 1e-12 * np.trace(products) * np.eye(len(steps)), np.ones(len(steps))
        )
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(weights).all() or abs(weights.sum()) < 1e-300:
        return None
    return (weights / weights.sum() @ points[1:]).reshape(kept[0].shape)


def proximal_gradients(H, Q, B, prox, tol, *, convex, most=_MOST_SWEEPS):
    """Minimise ``<b, H b> / 2 + Q b`` plus a penalty from the single column B, in place.

    Accelerated, with a restart where the momentum points uphill; plain steps if the penalty is not convex.
    """
    bound = largest_eigenvalue(H.__matmul__, len(H), float(np.trace(H))) if len(B) else 0.0
    if bound <= 0:
        return
    q, b, t = Q[:, 0], B[:, 0].copy(), 1.0
    point = b
    for _ in range(most):
        new = prox(point - (H @ point + q) / bound, 1 / bound)
        done = np.max(np.abs(new - point)) * bound <= tol
        if not convex or (point - new) @ (new - b) > 0:
            t = 1.0
        later = (1 + np.sqrt(1 + 4 * t * t)) / 2
        point = new + ((t - 1) / later) * (new - b)
        b, t = new, later if convex else 1.0
        if done:
            break
    B[:, 0] = b


def largest_eigenvalue(times, n, trace):
    """The largest eigenvalue, and 1 % more, of a positive semidefinite matrix known by its products."""
    start = np.random.default_rng(0).standard_normal(n)
    if n < 3 or not np.any(times(start)):  # too few for Lanczos, or zero
        return trace
    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    try:
        found = eigsh(operator, 1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False)[0]
    except ArpackNoConvergence:  # all eigenvalues together are a bound
        return trace
    return min(1.01 * float(found), trace)
