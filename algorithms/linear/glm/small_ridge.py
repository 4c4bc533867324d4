"""Ridge regression of few columns by its normal equations, checked on the rows.

The products of centred columns (`sparse.moments`) are factored once for all targets of equal penalty. The
gradient at the solution is then computed from the rows themselves: half of ``g H^(-1) g`` is what the
objective may still fall by, and one more step corrects what rounding left. Where that is not enough, nothing
is returned.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .. import rules
from ..sparse.moments import moments_of, shift_of
from .rows import DenseRows

_STEPS = 2  # the second corrects the rounding of the first
_FLAT = 1e-10  # a pivot below this part of its diagonal: columns repeat each other


def applies(rows, n_targets):
    """Whether rows are dense, and few enough."""
    n, p = rows.shape
    most = rules.SMALL_RIDGE
    few = p <= most.columns and float(n) * (p + n_targets) ** 2 <= most.products
    return type(rows) is DenseRows and few


def solve_ridge(X, Y, weights, l2s, *, fit_intercept, tol, max_iter):
    """Minimise ``mean_i w_i (y_i - x_i b - c)^2 / 2 + l2 |b|^2 / 2`` for each target; None where it fails.

    `X`: ndarray. `Y`: float64 (n_rows, n_targets). `weights`: None or float64 (n_rows,), of mean 1. `l2s`:
    float, one a target. Returns coefficients (n_targets, p), intercepts, objectives, and the steps of each.
    """
    p, n = X.shape[1], len(Y)
    shift = shift_of(X, Y, fit_intercept)
    total = moments_of(X, Y, weights, shift) / n
    mean = total[:p, -1] if fit_intercept else np.zeros(p)
    H, products = total[:p, :p] - np.outer(mean, mean), total[:p, p:-1] - np.outer(mean, total[-1, p:-1])
    if not fit_intercept:
        products = total[:p, p:-1]
    x_mean, y_means = shift.columns + mean, shift.targets + (total[-1, p:-1] if fit_intercept else 0.0)
    found, factors = [], {}
    for k, l2 in enumerate(l2s):
        if l2 not in factors:
            factors[l2] = _factor(H, l2)
        if factors[l2] is None:
            return None
        b, best = np.zeros(p), None
        step = cho_solve(factors[l2], products[:, k], check_finite=False)
        for number in range(1, min(_STEPS, max_iter) + 1):
            b = b + step
            c = y_means[k] - x_mean @ b if fit_intercept else 0.0
            r = Y[:, k] - X @ b - c
            pull = r if weights is None else weights * r
            objective = 0.5 * float(pull @ r) / n + 0.5 * l2 * float(b @ b)
            g = X.T @ pull / n - x_mean * (pull.mean() if fit_intercept else 0.0) - l2 * b
            step = cho_solve(factors[l2], g, check_finite=False)
            if 0.5 * float(g @ step) <= tol * objective:
                best = b, c, objective, number
                break
        if best is None or not np.isfinite(objective):
            return None
        found.append(best)
    coefs, intercepts, objectives, steps = zip(*found, strict=True)
    return np.array(coefs), np.array(intercepts), objectives, list(steps)


def _factor(H, l2):
    """Cholesky factor of ``H + l2 I``; None where columns depend on each other, or nearly."""
    H = H.copy()
    H.flat[:: len(H) + 1] += l2
    try:
        factor = cho_factor(H, lower=True, check_finite=False)
    except LinAlgError:
        return None
    return factor if (np.diagonal(factor[0]) ** 2 > _FLAT * np.diagonal(H)).all() else None
