"""Newton's method, or L-BFGS, in the space of the rows: one predictor, few sparse rows, a squared penalty.

From zero on, gradients and steps are combinations of the rows: a vector of coefficients ``w = X^T a`` is held
as a, a number a row, together with its *image* ``X w = X X^T a``, and

    <w_1, w_2> = <a_1, X w_2>,    F = scale loss(z) + l2 / 2 <a, X w>,    gradient: r + l2 a

with the predictors ``z = X w + c`` and ``r = scale loss'(z)``; the Hessian times a vector v is
``D (X v + v_c) + l2 v``, D being the curvatures of the rows. So a vector has 2 n numbers however many columns
there are, points along a direction cost no pass, and a pass, ``X (X^T r)``, reads the rows twice, which is
what a gradient costs. The intercept is a number of its own at the end of both halves.

Newton's systems are solved by conjugate gradients. These lack at most ``|r|^2 / (2 l2)`` of the decrement, r
being the residual, so that the last system proves how far the end is above the minimum.

For classes, where some rows are far longer than others (counts of words), L-BFGS needs half the products. Its
steps come first there, and Newton's where they promise less than is allowed, or have been many.
"""

import math

import numpy as np

from ....kernels.linear.row_vectors import (
    advance,
    assemble,
    curvature_product,
    keep_pair,
    lbfgs_direction,
    product,
    step_to,
)
from ...optimize.methods.line_search import Trial, strong_wolfe
from ...optimize.methods.memory import CURVED
from ...optimize.methods.newton import result_of
from ...optimize.stages import LBFGS_SHARE
from .row_space import Step, of_one_scale
from .rows import LOGISTIC, SQUARED, SparseRows

_PRODUCTS = 400  # of a run's systems
_UNLIKE = 4.0  # largest |x_i|^2 over their mean, from which on L-BFGS begins
_STEPS, _PAIRS = 200, 10  # of L-BFGS: at most, and those that it remembers
_LESS = 0.25  # of what was promised, before the excess is asked for again
_FORCING, _POWER = 0.5, 0.5  # a system is solved to min(_FORCING, (|g| / |g_0|)^_POWER) of the gradient


def applies(objective, x0):
    """Whether `minimize_by_row_newton` takes this objective.

    It takes sparse rows of this process, fewer than the columns, no column being far larger than the others;
    no squared loss, whose one system has better solvers.

    `x0`: float64 ndarray; its coefficients must be zero.
    """
    if (
        not isinstance(objective.rows, SparseRows)
        or objective.loss == SQUARED
        or objective.n_rows >= objective.n_columns
        or not objective.l2 > 0
        or x0[: objective.n_penalised].any()
    ):
        return False
    return of_one_scale(objective)


def minimize_by_row_newton(objective, x0, *, max_iter=1000, tol_decrease=1e-6, callback=None):
    """Minimise; see the module.

    `objective`: LinearObjective; one that `applies`. `x0`, `max_iter`, `tol_decrease`, `callback`: see
    `minimize_newton`. Returns OptimizeResult; see `minimize_newton`; status 1 also where products with the
    Hessian became too many. `method` is what came first, "newton-cg" or "lbfgs".
    """
    problem = _Problem(objective)
    point = problem.start(x0)
    vector, value = point.vector, point.value
    largest, mean = objective.rows.longest
    by_lbfgs = objective.loss == LOGISTIC and largest > _UNLIKE * mean
    directions = _Directions(problem, point, _STEPS if by_lbfgs else 0)
    products, nit, status = 0, 0, 1
    while nit < max_iter and products < _PRODUCTS:
        allowed = max(tol_decrease, objective.precision) * abs(value)
        d, proved, used = directions.next(point, allowed, _PRODUCTS - products)
        products += used
        slope = problem.dot(point.gradient, d)
        trial = strong_wolfe(problem.along(vector, d), value, slope) if slope < 0 else None
        if trial is None and not proved and directions.forget():
            continue
        if trial is None:
            status = 0 if proved else 2
            break
        value, vector, nit = trial.value, trial.state[0], nit + 1
        step = Step(nit, value, vector, problem, -0.5 * slope)
        if callback is not None and callback(step) is True:
            status = 3
            break
        if proved:
            status = 0
            break
        before, point = point, problem.point(value, *trial.state)
        directions.learn(trial.t * d, point.gradient - before.gradient)
    figures = {"x": problem.of_columns(vector), "fun": value, "nit": nit, "nfev": nit + 1 + products}
    return result_of(status, method="lbfgs" if by_lbfgs else "newton-cg", **figures)


class _Directions:
    """Those of L-BFGS for so many steps, while they promise enough; else Newton's."""

    def __init__(self, problem, start, steps):
        self._problem, self._first = problem, problem.norm(start.gradient)
        shape = _PAIRS, *start.vector.shape
        self._pairs, self._n_pairs = (np.zeros(shape), np.zeros(shape), np.zeros((2, _PAIRS))), 0
        self._left, self._share = steps, LBFGS_SHARE

    def next(self, point, allowed, most):
        """A direction, whether it leads within `allowed` of the minimum, and the products that it took."""
        if not self._left:
            part = self._problem.norm(point.gradient) / self._first if self._first > 0 else 0.0
            return self._problem.newton_step(point, min(_FORCING, part**_POWER), allowed, most)
        d = -point.gradient
        if self._n_pairs:
            lbfgs_direction(*self._pairs, self._n_pairs, d)
        if -0.5 * self._problem.dot(point.gradient, d) > self._share * allowed:
            return d, False, 0
        self._share *= _LESS
        return self._problem.newton_step(point, 1.0, allowed, most)

    def learn(self, step, change):
        """Record a step, and the change of the gradient."""
        if self._left:
            self._left -= 1
            self._n_pairs += keep_pair(*self._pairs, self._n_pairs, step, change, CURVED)

    def forget(self):
        """Drop all steps; return whether there were any."""
        had, self._n_pairs = self._n_pairs > 0, 0
        return had


class _Point:
    """Where the minimisation is: a vector, F, its gradient, and the curvatures of the rows."""

    def __init__(self, vector, value, gradient, curvatures):
        self.vector, self.value, self.gradient, self.curvatures = vector, value, gradient, curvatures


class _Problem:
    """A `LinearObjective` in the space of its rows; vectors are arrays (2, n) or (2, n + 1)."""

    def __init__(self, objective):
        self._objective, self._n, self._l2 = objective, objective.n_rows, objective.l2
        self._free = bool(objective.fit_intercept)
        self._squares = objective.of_columns(objective.scales**2)

    def of_columns(self, vector):
        """The coefficients of the columns and the intercept, as one vector."""
        coef = self._objective.transposed(vector[0, : self._n])
        return np.append(coef / self._squares, vector[0, self._n :])

    def dot(self, v, w):
        """Scalar product."""
        return product(v, w)

    def norm(self, v):
        """The length of a vector."""
        return math.sqrt(max(self.dot(v, v), 0.0))

    def start(self, x0):
        """The point whose coefficients are zero."""
        vector = np.zeros((2, self._n + self._free))
        vector[:, self._n :] = x0[self._objective.n_columns :]
        begun = self.along(vector, np.zeros_like(vector))(0.0)
        return self.point(begun.value, *begun.state)

    def point(self, value, vector, slopes, curvatures):
        """A point where the losses are known: one pass makes its gradient."""
        return _Point(vector, value, self._assembled(slopes, vector), curvatures)

    def along(self, vector, d):
        """The function phi of a line search, no pass."""

        objective, rows = self._objective, self._objective.rows
        common = d, rows.y, rows.weights, rows.offset, objective.scale, self._l2

        def phi(t):
            state = np.empty_like(vector), np.empty(self._n), np.empty(self._n)
            value, slope = step_to(objective.loss, vector, t, *common, *state)
            value += objective.constant
            return Trial(t, value, slope if math.isfinite(value) else math.inf, state)

        return phi

    def newton_step(self, point, forcing, allowed, most):
        """Solve for the Newton step to a part of the gradient, and until it bounds the excess.

        Returns `proved`: whether F is within `allowed` of it, as far as a quadratic tells.
        """
        residual = -point.gradient
        d, step, square, gained = np.zeros_like(residual), residual.copy(), self.dot(residual, residual), 0.0
        enough, r, bent = forcing**2 * square, np.empty(self._n), np.empty_like(residual)
        for k in range(most):
            if square <= enough and (gained > allowed or gained + self._bound(residual) <= allowed):
                return d, gained <= allowed, k
            curvature_product(point.curvatures, step, r)
            assemble(r, self._gram(r), self._l2, step, bent)
            gain, square = advance(bent, square, d, residual, step)
            if not gain > 0:
                return d, False, k + 1
            gained += gain
        return d, False, most

    def _bound(self, residual):
        """``|r|^2 / (2 l2)``; infinite with an intercept that is not at its best."""
        free = float(residual[0, self._n :] @ residual[1, self._n :])
        penalised = float(residual[0, : self._n] @ residual[1, : self._n])
        return np.inf if free > penalised else (penalised + free) / (2 * self._l2)

    def _assembled(self, r, vector):
        """The vector ``X^T r + l2 w``, the intercept's entry being the sum of r."""
        out = np.empty_like(vector)
        assemble(r, self._gram(r), self._l2, vector, out)
        return out

    def _gram(self, r):
        """``X d^(-2) X^T r``: the pass over the data."""
        return self._objective.images(self._objective.transposed(r) / self._squares)
