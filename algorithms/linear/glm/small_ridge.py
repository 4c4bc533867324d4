"""Ridge regression of few columns, or few rows, by one system of equations, checked on the rows.

The products of centred columns (`sparse.moments`), or of the rows where these are fewer (see `dual_ridge`),
are factored once for all targets of equal penalty. The gradient at the solution is then computed from the
rows themselves: half of ``g H^(-1) g`` is what the objective may still fall by, and one more step corrects
what rounding left. Where that is not enough, nothing is returned.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .. import rules
from ..sparse.moments import moments_of, shift_of
from .rows import DenseRows, SparseRows

_STEPS = 2  # the second corrects the rounding of the first
_FLAT = 1e-10  # a pivot below this part of its diagonal: columns repeat each other


def applies(rows, n_targets):
    """Whether rows are here and the system is small."""
    n, p = rows.shape
    if type(rows) is SparseRows:
        return rules.SMALL_SPARSE_RIDGE.hold(n, p, rows.n_entries)
    most, width = rules.SMALL_RIDGE, min(n, p)
    few = width <= most.columns and float(max(n, p)) * (width + n_targets) ** 2 <= most.products
    return type(rows) is DenseRows and few


def solve_ridge(rows, Y, weights, l2s, *, fit_intercept, tol, max_iter):
    """Minimise ``mean_i w_i (y_i - x_i b - c)^2 / 2 + l2 |b|^2 / 2`` for each target; None where it fails.

    `rows`: DenseRows or SparseRows. `Y`: float64 (n_rows, n_targets). `weights`: None or float64 (n_rows,),
    of mean 1. `l2s`: float, one a target. Returns coefficients (n_targets, p), intercepts, objectives, and
    the steps of each.
    """
    n, p = rows.shape
    few_rows = type(rows) is DenseRows and n < p
    system = (_RowSystem if few_rows else _ColumnSystem)(rows, Y, weights, fit_intercept)
    x_mean, y_means = system.x_mean, system.y_means
    found, factors = [], {}
    for k, l2 in enumerate(l2s):
        if l2 not in factors:
            factors[l2] = system.factor(l2)
        if factors[l2] is None:
            return None
        b, best = np.zeros(p), None
        step = system.first(factors[l2], k)
        for number in range(1, min(_STEPS, max_iter) + 1):
            b = b + step
            c = y_means[k] - x_mean @ b if fit_intercept else 0.0
            r = Y[:, k] - _images(rows, b) - c
            pull = r if weights is None else weights * r
            objective = 0.5 * float(pull @ r) / n + 0.5 * l2 * float(b @ b)
            g = _transposed(rows, pull) / n - x_mean * (pull.mean() if fit_intercept else 0.0) - l2 * b
            step = system.solve(factors[l2], g, l2)
            if 0.5 * float(g @ step) <= tol * objective:
                best = b, c, objective, number
                break
        if best is None or not np.isfinite(objective):
            return None
        found.append(best)
    coefs, intercepts, objectives, steps = zip(*found, strict=True)
    return np.array(coefs), np.array(intercepts), objectives, list(steps)


class _ColumnSystem:
    """The normal equations ``(H + l2) b = q`` of centred columns."""

    def __init__(self, rows, Y, weights, fit_intercept):
        (n, p), zero = rows.shape, np.zeros(Y.shape[1])
        if type(rows) is DenseRows:
            shift = shift_of(rows.X, Y, fit_intercept)
            total = moments_of(rows.X, Y, weights, shift) / n
            gram, mean, products, y_mean = total[:p, :p], total[:p, -1], total[:p, p:-1], total[-1, p:-1]
            x_shift, y_shift = shift.columns, shift.targets
        else:
            shares = np.full(n, 1 / n) if weights is None else weights / n
            total = np.zeros((p + 1, p + 1))
            rows.add_hessian(shares, total)
            gram, mean, y_mean, y_shift = total[:p, :p], total[:p, -1], shares @ Y, zero
            products, x_shift = np.column_stack([rows.transposed(shares * y)[:p] for y in Y.T]), np.zeros(p)
        if not fit_intercept:
            mean, y_mean = np.zeros(p), zero
        self.x_mean, self.y_means = x_shift + mean, y_shift + y_mean
        self._gram = gram - np.outer(mean, mean) if mean.any() else gram
        self._products = products - np.outer(mean, y_mean)

    def factor(self, l2):
        return _factor(self._gram, l2)

    def first(self, factor, k):
        return cho_solve(factor, self._products[:, k], check_finite=False)

    def solve(self, factor, g, l2):
        return cho_solve(factor, g, check_finite=False)


class _RowSystem:
    """The dual ``(Z Z^T + l2) a = t`` of fewer rows than columns: ``b = Z^T a``."""

    def __init__(self, rows, Y, weights, fit_intercept):
        n = len(Y)
        shares = np.full(n, 1 / n) if weights is None else weights / n
        mass = shares if fit_intercept else np.zeros(n)
        self.x_mean, self.y_means = mass @ rows.X, mass @ Y
        roots = np.sqrt(shares)[:, None]
        self._Z, self._t = roots * (rows.X - self.x_mean), roots * (Y - self.y_means)
        self._gram = self._Z @ self._Z.T

    def factor(self, l2):
        return _factor(self._gram, l2) if l2 > 0 else None

    def first(self, factor, k):
        return cho_solve(factor, self._t[:, k], check_finite=False) @ self._Z

    def solve(self, factor, g, l2):
        return (g - cho_solve(factor, self._Z @ g, check_finite=False) @ self._Z) / l2


def _images(rows, b):
    """``X b``."""
    if type(rows) is DenseRows:
        return rows.X @ b
    out = np.empty(rows.shape[0])
    rows.images(b, out)
    return out


def _transposed(rows, v):
    """``X^T v``."""
    return rows.X.T @ v if type(rows) is DenseRows else rows.transposed(v)[:-1]


def _factor(H, l2):
    """Cholesky factor of ``H + l2 I``; None where columns depend on each other, or nearly."""
    H = H.copy()
    H.flat[:: len(H) + 1] += l2
    try:
        factor = cho_factor(H, lower=True, check_finite=False)
    except LinAlgError:
        return None
    return factor if (np.diagonal(factor[0]) ** 2 > _FLAT * np.diagonal(H)).all() else None
