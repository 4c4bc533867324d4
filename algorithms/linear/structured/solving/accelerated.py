"""Accelerated proximal gradients on a quadratic model plus a penalty of all coefficients."""

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

_MOST_SWEEPS = 20_000  # a cap; the tolerance ends it


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
