"""Ridge regression by one system of equations, or by iterations where these cost less; checked on the rows.

With Z the rows less their weighted mean, S their shares of the weight and t the centred targets,

    (Z^T S Z + l2) b = Z^T S t,     or, of fewer rows than columns,    b = R^T a, (R R^T + l2) a = S^(1/2) t

with ``R = S^(1/2) Z``. Either matrix is factored once for all targets of equal penalty. Before that
conjugate gradients on the first system may take as many steps as the factor costs: they are given up where
the rate so far says that they will not do. What is left of the equations at a solution is computed from the
rows themselves. With the gradient g the objective may still fall by ``g H^(-1) g / 2``, at most ``|g|^2 / (2
l2)``; with v left of the dual by at most ``|v|^2 / 2``. Further solutions correct rounding. Where that is not
enough, nothing is returned.

References: Saunders, Gammerman, Vovk, "Ridge regression learning algorithm in dual variables", ICML 1998.
"""

import itertools
import math
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ...optimize.methods.conjugate_gradients import conjugate_gradient_steps
from .. import rules
from ..sparse.moments import moments_of, shift_of
from .rows import DenseRows, SparseRows

_CORRECTIONS = 3  # solutions of a system: a later one corrects the rounding of those before
_BLOCK = 1 << 17  # entries of a block of columns: 1 MiB
_SOONEST, _FIRST_LOOK = 6, 2  # steps for which iterations are begun; after which their rate is looked at
_SHORT = 3e8  # nanoseconds that iterations may take, as they cannot be watched


def applies(rows, n_targets, quick):
    """Whether rows are here and a system is small enough; with `quick` iterations may be short enough."""
    n, p = rows.shape
    if type(rows) not in (DenseRows, SparseRows):
        return False
    if n < p and n <= rules.DUAL_ROWS:
        return True
    return _by_columns(rows, n_targets) or (quick and _steps_for(rows, n_targets) >= _SOONEST)


def solve_ridge(rows, Y, weights, l2s, *, fit_intercept, tol, max_iter, quick=True, scales=1.0):
    """Minimise ``mean_i w_i (y_i - x_i b - c)^2 / 2 + l2 |d b|^2 / 2`` for each target; None where it fails.

    `rows`: DenseRows or SparseRows. `Y`: float64 (n_rows, n_targets). `weights`: None or float64 (n_rows,),
    of mean 1. `l2s`: float, one a target. `quick`: try conjugate gradients where steps are cheap. `scales`:
    d, 1 or float64 (p,). Returns coefficients (n_targets, p), intercepts, objectives, the steps of each, and
    the method's name.
    """
    centred = _CentredRows(rows, Y, weights, fit_intercept, scales)
    if quick and min(l2s) > 0 and (most := min(_steps_for(rows, len(l2s)), max_iter)) >= _SOONEST:
        solutions = [_iterate(centred, k, l2, tol, most) for k, l2 in enumerate(l2s)]
        if None not in solutions:
            return *centred.models(solutions), "newton-cg"
    n, p = rows.shape
    system: Any = None
    if _by_columns(rows, len(l2s)) and (n >= p or type(rows) is SparseRows):
        system = _ColumnSystem(centred, Y, weights, fit_intercept)
    elif n < p and n <= rules.DUAL_ROWS and min(l2s) > 0:
        system = _RowSystem(centred)
    solutions, factors = [], {}
    for k, l2 in enumerate(l2s if system else ()):
        if l2 not in factors:
            factors[l2] = _factor(system.gram, l2, system.least_pivot)
        solution = None if factors[l2] is None else _solve(system, factors[l2], k, l2, tol, max_iter)
        if solution is None:
            return None
        solutions.append(solution)
    return (*centred.models(solutions), "newton") if solutions else None


def _by_columns(rows, n_targets):
    """Whether normal equations are small."""
    n, p = rows.shape
    if type(rows) is SparseRows:
        return rules.SMALL_SPARSE_RIDGE.hold(n, p, rows.n_entries)
    most = rules.SMALL_RIDGE
    return p <= most.columns and float(n) * (p + n_targets) ** 2 <= most.products


def _steps_for(rows, n_targets):
    """Steps of conjugate gradients that cost as much as a system and its factor, by `rules.RIDGE_COSTS`."""
    (n, p), entries, cost = rows.shape, rows.n_entries, rules.RIDGE_COSTS
    least = min(n, p)
    if type(rows) is SparseRows:
        a_pass, products = cost.sparse_entry * entries, cost.sparse_product * entries * entries / max(n, p)
    elif rows.dtype == np.float64:
        a_pass = entries * (cost.entry if entries <= rules.CACHED else cost.far_entry)
        products = entries * (cost.copied + cost.product * least)
    else:  # float32 would be copied in every pass
        return 0
    factor = products + cost.product * least**3 / 3
    if least > rules.DUAL_ROWS:
        factor = _SHORT
    return int(min(factor, _SHORT) / n_targets / (cost.call + 2 * a_pass))


class _CentredRows:
    """Rows less their mean, over `scales`, and targets less theirs; `shares` are the weights, of sum 1."""

    def __init__(self, rows, Y, weights, fit_intercept, scales):
        (n, p), self.rows = rows.shape, rows
        self.scales = np.broadcast_to(scales, p)
        self.shares = np.full(n, 1 / n) if weights is None else weights / n
        self.x_mean, self.y_means = np.zeros(p), np.zeros(Y.shape[1])
        self.far = fit_intercept
        if fit_intercept:
            near = Y.mean(axis=0)  # that of equal targets is exact
            self.x_mean, self.y_means = self.transposed(self.shares), near + self.shares @ (Y - near)
        self.Y = Y - self.y_means

    def transposed(self, r):
        """``X^T r``."""
        out = r @ self.rows.X if type(self.rows) is DenseRows else self.rows.transposed(r)[:-1]
        return out / self.scales

    def images(self, b):
        """``Z b``."""
        if type(self.rows) is DenseRows:
            out = self.rows.X @ (b / self.scales)
        else:
            out = np.empty(len(self.Y))
            self.rows.images(b / self.scales, out)
        return out - self.x_mean @ b if self.far else out

    def pull(self, r):
        """``Z^T r``."""
        out = self.transposed(r)
        return out - r.sum() * self.x_mean if self.far else out

    def downhill(self, b, k, l2):
        """The objective at b, and minus its gradient."""
        left = self.Y[:, k] - self.images(b)
        shared = self.shares * left
        return 0.5 * float(shared @ left) + 0.5 * l2 * float(b @ b), self.pull(shared) - l2 * b

    def models(self, solutions):
        """Coefficients, intercepts, objectives and steps."""
        b, objectives, steps = zip(*solutions, strict=True)
        coefs = np.array(b)
        return coefs / self.scales, self.y_means - coefs @ self.x_mean, objectives, list(steps)


def _iterate(centred, k, l2, tol, most):
    """Conjugate gradients: solution, objective and steps; None where they are not worth it or fail."""

    def product(v):
        return centred.pull(centred.shares * centred.images(v)) + l2 * v

    shared = centred.shares * centred.Y[:, k]
    first, right = 0.5 * float(shared @ centred.Y[:, k]), centred.pull(shared)
    squares = []
    for steps, state in enumerate(conjugate_gradient_steps(product, right)):
        squares.append(state.square)
        allowed = 2 * l2 * tol * (first - state.fell)
        if state.square <= allowed:
            objective, g = centred.downhill(state.x, k, l2)
            fine = float(g @ g) <= 2 * l2 * tol * objective
            return (state.x, objective, max(steps, 1)) if fine and np.isfinite(objective) else None
        if steps == most or not allowed > 0:
            break
        # The first steps are the fast ones where a few directions have most of X: judge by the last two.
        if steps >= max(_FIRST_LOOK, most // 8):
            ahead, behind = math.log(state.square / allowed), math.log(squares[-3] / state.square)
            if ahead > (most - steps) * behind:
                break
    return None


def _solve(system, factor, k, l2, tol, max_iter):
    """Solve with a factor: solution, objective and steps; None where rounding leaves too much."""
    solutions = itertools.islice(system.solutions(factor, k, l2), min(_CORRECTIONS, max_iter))
    for steps, (b, objective, excess) in enumerate(solutions, 1):
        if excess <= tol * objective:
            return (b, objective, steps) if np.isfinite(objective) else None
    return None


class _ColumnSystem:
    """The normal equations ``(Z^T S Z + l2) b = Z^T S t``."""

    least_pivot = 1e-10  # of its diagonal: below, columns repeat each other

    def __init__(self, centred, Y, weights, fit_intercept):
        self._centred = centred
        rows, (n, p), mean = centred.rows, centred.rows.shape, centred.x_mean * centred.scales
        if type(rows) is DenseRows:
            shift = shift_of(rows.X, Y, fit_intercept)
            total = moments_of(rows.X, Y, weights, shift)
            total /= n
            gap = mean - shift.columns
            gram = total[:p, :p]
            if fit_intercept:
                gram -= np.outer(gap, gap)
            products = total[:p, p:-1] - np.outer(gap, centred.y_means - shift.targets) * fit_intercept
            self._products = products / centred.scales[:, None]
        else:
            total = np.zeros((p + 1, p + 1))
            rows.add_hessian(centred.shares, total)
            gram = total[:p, :p]
            gram -= np.outer(mean, mean)
            self._products = np.column_stack([centred.pull(centred.shares * y) for y in centred.Y.T])
        if (centred.scales != 1).any():
            gram /= np.outer(centred.scales, centred.scales)
        self.gram = gram

    def solutions(self, factor, k, l2):
        """Yield coefficients, the objective, and what it may still fall by: ever less."""
        step, b = cho_solve(factor, self._products[:, k], check_finite=False), 0.0
        while True:
            b = b + step
            objective, g = self._centred.downhill(b, k, l2)
            step = cho_solve(factor, g, check_finite=False)
            yield b, objective, 0.5 * float(g @ step)


class _RowSystem:
    """The dual ``(R R^T + l2) a = S^(1/2) t`` of fewer rows than columns: ``b = R^T a``."""

    least_pivot = 0.0  # directions that are lost in rounding have no part in b

    def __init__(self, centred):
        self._centred, self._roots = centred, np.sqrt(centred.shares)
        rows, mean, n = centred.rows, centred.x_mean, len(centred.Y)
        if type(rows) is SparseRows:
            X = rows.X.astype(np.float64)
            X.data /= centred.scales[X.indices]
            K, across = (X @ X.T).toarray(), X @ mean
            K += mean @ mean - across - across[:, None]
        else:
            K, step = np.zeros((n, n)), max(256, _BLOCK // n)
            for j in range(0, len(mean), step):  # differences first: columns far from zero keep their digits
                block = slice(j, j + step)
                Z = (rows.X[:, block] - (mean * centred.scales)[block]) / centred.scales[block]
                K += Z @ Z.T
        self.gram = K * self._roots * self._roots[:, None]

    def solutions(self, factor, k, l2):
        """See `_ColumnSystem`. With v left of the equations ``R^T v`` is left of the gradient."""
        t = left = self._roots * self._centred.Y[:, k]
        a = np.zeros(len(t))
        while True:
            a = a + cho_solve(factor, left, check_finite=False)
            b = self._centred.pull(self._roots * a)
            r = t - self._roots * self._centred.images(b)
            left = r - l2 * a
            yield b, 0.5 * float(r @ r) + 0.5 * l2 * float(b @ b), 0.5 * float(left @ left)


def _factor(H, l2, least_pivot):
    """Cholesky factor of ``H + l2 I``; None where a squared pivot is below this share of its diagonal."""
    H = H.copy()
    H.flat[:: len(H) + 1] += l2
    try:
        factor = cho_factor(H, lower=True, check_finite=False)
    except LinAlgError:
        return None
    return factor if (np.diagonal(factor[0]) ** 2 > least_pivot * np.diagonal(H)).all() else None
