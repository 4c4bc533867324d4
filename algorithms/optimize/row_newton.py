"""Newton's method in the space of the rows, for one predictor, sparse data of few rows and a squared penalty.

From zero on, gradients and steps are combinations of the rows: a vector of coefficients ``w = X^T a`` is held
as a, a number a row, beside its *image* ``X w = X X^T a``, and

    <w_1, w_2> = <a_1, X w_2>,    F = scale loss(z) + l2 / 2 <a, X w>,    gradient: r + l2 a

with the predictors ``z = X w + c`` and ``r = scale loss'(z)``; the Hessian times a vector v is
``D (X v + v_c) + l2 v``, D being the curvatures of the rows. So a vector has 2 n numbers however many columns
there are, points along a direction cost no pass, and a pass, ``X (X^T r)``, reads the rows twice, which is
what a gradient costs. The intercept is a number of its own at the end of both halves.

Systems are solved by conjugate gradients. These lack at most ``|r|^2 / (2 l2)`` of the decrement, r being the
residual, so that the last system proves how far the end is above the minimum.
"""

import numpy as np
from scipy.optimize import OptimizeResult

from ...kernels.glm_losses import tile_losses
from ...kernels.row_vectors import advance, assemble, bend, product
from .line_search import Trial, strong_wolfe
from .newton import MESSAGES
from .preconditioner import has_long_rows
from .row_space import Step, of_one_scale
from .rows import SQUARED, SparseRows

_FORCING, _POWER = 0.5, 0.5  # a system is solved to min(_FORCING, (|g| / |g_0|)^_POWER) of the gradient
_PRODUCTS = 400  # of a run


def applies(objective, x0):
    """Tell whether `minimize_by_row_newton` takes this objective.

    It takes sparse rows of this process, fewer than the columns, none far longer than the others and no
    column either; no squared loss, whose one system has better solvers.

    Parameters
    ----------
    objective : LinearObjective
    x0 : float64 ndarray
        Its coefficients must be zero.
    """
    if (
        not isinstance(objective.rows, SparseRows)
        or objective.loss == SQUARED
        or objective.n_rows >= objective.n_columns
        or not objective.l2 > 0
        or x0[: objective.n_penalised].any()
        or has_long_rows(objective.rows)
    ):
        return False
    return of_one_scale(objective.rows)


def minimize_by_row_newton(objective, x0, *, max_iter=1000, tol_decrease=1e-6, callback=None):
    """Minimise; see the module.

    Parameters
    ----------
    objective : LinearObjective
        One that `applies`.
    x0, max_iter, tol_decrease, callback
        See `minimize_newton`.

    Returns
    -------
    OptimizeResult
        See `minimize_newton`; status 1 also where products with the Hessian became too many.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from stradask.algorithms.optimize.objective import LinearObjective
    >>> from stradask.algorithms.optimize.row_newton import minimize_by_row_newton
    >>> from stradask.algorithms.optimize.rows import LOGISTIC, make_rows
    >>> X, y = sparse.eye_array(3, 7, format="csr"), np.array([-1.0, 1.0, 1.0])
    >>> objective = LinearObjective(make_rows(X, y), LOGISTIC, l2=1.0, fit_intercept=False)
    >>> minimize_by_row_newton(objective, np.zeros(7), tol_decrease=1e-12).x.round(3)[:4]
    array([-0.401,  0.401,  0.401,  0.   ])
    """
    problem = _Problem(objective)
    point = problem.start(x0)
    vector, value = point.vector, point.value
    first, products, nit, status = problem.norm(point.gradient), 0, 0, 1
    while nit < max_iter and products < _PRODUCTS:
        allowed = max(tol_decrease, objective.precision) * abs(point.value)
        forcing = min(_FORCING, (problem.norm(point.gradient) / first) ** _POWER) if first > 0 else 0.0
        d, proved, used = problem.direction(point, forcing, allowed, _PRODUCTS - products)
        products += used
        slope = problem.dot(point.gradient, d)
        if not slope < 0:
            status = 0 if proved else 2
            break
        found = strong_wolfe(problem.along(vector, d), value, slope)
        if found is None:
            status = 0 if proved else 2
            break
        value, vector, nit = found.value, found.state[0], nit + 1
        step = Step(nit, value, vector, problem, -0.5 * slope)
        if callback is not None and callback(step) is True:
            status = 3
            break
        if proved:
            status = 0
            break
        point = problem.point(value, *found.state)
    result = OptimizeResult()
    result.update(x=problem.of_columns(vector), fun=value, nit=nit, nfev=nit + 1 + products)
    result.update(success=status == 0, status=status, message=MESSAGES[status])
    return result


class _Point:
    """Where the minimisation is: a vector, F, its gradient, and the curvatures of the rows."""

    def __init__(self, vector, value, gradient, curvatures):
        self.vector, self.value, self.gradient, self.curvatures = vector, value, gradient, curvatures


class _Problem:
    """A `LinearObjective` in the space of its rows; vectors are arrays (2, n) or (2, n + 1)."""

    def __init__(self, objective):
        self._objective, self._n, self._l2 = objective, objective.n_rows, objective.l2
        self._free = bool(objective.fit_intercept)

    def of_columns(self, vector):
        """The coefficients of the columns and the intercept, as one vector."""
        coef = self._objective.transposed(vector[0, : self._n])
        return np.append(coef, vector[0, self._n :])

    def dot(self, v, w):
        """Scalar product."""
        return product(v, w)

    def norm(self, v):
        """The length of a vector."""
        return np.sqrt(max(self.dot(v, v), 0.0))

    def start(self, x0):
        """The point whose coefficients are zero."""
        vector = np.zeros((2, self._n + self._free))
        vector[:, self._n :] = x0[self._objective.n_columns :]
        loss, slopes, curvatures = self._losses(vector[1])
        return self.point(self._value(loss, vector), vector, slopes, curvatures)

    def point(self, value, vector, slopes, curvatures):
        """A point where the losses are known: one pass makes its gradient."""
        return _Point(vector, value, self._assembled(slopes, vector), curvatures)

    def along(self, vector, d):
        """The function phi of a line search, no pass."""

        def phi(t):
            there = vector + t * d
            loss, slopes, curvatures = self._losses(there[1])
            value = self._value(loss, there)
            slope = slopes @ d[1, : self._n] + self._l2 * (there[0, : self._n] @ d[1, : self._n])
            if self._free:
                slope += slopes.sum() * d[0, -1]
            return Trial(
                t, value, float(slope) if np.isfinite(value) else np.inf, (there, slopes, curvatures)
            )

        return phi

    def direction(self, point, forcing, allowed, most):
        """Solve for the Newton step by conjugate gradients.

        Returns
        -------
        d : vector
        proved : bool
            Whether F is at most `allowed` above its minimum, as far as a quadratic tells.
        products : int
        """
        residual = -point.gradient
        d, step, square, found = np.zeros_like(residual), residual.copy(), self.dot(residual, residual), 0.0
        enough, r, bent = forcing**2 * square, np.empty(self._n), np.empty_like(residual)
        for k in range(most):
            if square <= enough and (found > allowed or found + self._bound(residual) <= allowed):
                return d, found <= allowed, k
            bend(point.curvatures, step, r)
            assemble(r, self._gram(r), self._l2, step, bent)
            gain, square = advance(bent, square, d, residual, step)
            if not gain > 0:
                return d, False, k + 1
            found += gain
        return d, False, most

    def _bound(self, residual):
        """``|r|^2 / (2 l2)``; infinite with an intercept that is not at its best."""
        free = float(residual[0, self._n :] @ residual[1, self._n :])
        penalised = float(residual[0, : self._n] @ residual[1, : self._n])
        return np.inf if free > penalised else (penalised + free) / (2 * self._l2)

    def _predicted(self, image):
        return image[:-1] + image[-1] if self._free else image

    def _losses(self, image):
        """The weighted sum of losses, their slopes and curvatures, scaled."""
        rows, n, scale = self._objective.rows, self._n, self._objective.scale
        values, slopes, curvatures = np.empty((3, n))
        loss = tile_losses(
            self._objective.loss, self._predicted(image), rows.y, rows.weights, n, values, slopes, curvatures
        )
        slopes *= scale
        curvatures *= scale
        return loss, slopes, curvatures

    def _value(self, loss, vector):
        norm = float(vector[0, : self._n] @ vector[1, : self._n])
        return self._objective.scale * loss + 0.5 * self._l2 * norm + self._objective.constant

    def _assembled(self, r, vector):
        """The vector ``X^T r + l2 w``, the intercept's entry being the sum of r."""
        out = np.empty_like(vector)
        assemble(r, self._gram(r), self._l2, vector, out)
        return out

    def _gram(self, r):
        """``X X^T r``: the pass over the data."""
        return self._objective.images(self._objective.transposed(r))
