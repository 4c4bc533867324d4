"""Newton's method: with the Hessian of all rows and its Cholesky factor, or with conjugate gradients.

Both go along ``d = -H^(-1) g``. Half of ``-g.d``, the Newton decrement, estimates how far the objective is
above its minimum, whatever the scales of the parameters; once it is at most ``tol_decrease * |f|``, that step
is still taken and is the last: near the minimum a step squares the error.
"""

import numpy as np
from scipy.optimize import OptimizeResult

from .conjugate_gradients import conjugate_gradients
from .line_search import Trial, backtrack, strong_wolfe
from .preconditioner import Diagonal, Factors
from .sparse_quadratic import minimise_quadratic

_LEAST_PRODUCTS, _MOST_PRODUCTS = 200, 2000  # limits of those for one system; between them twice its rank
ROUNDING = 1e-15  # of the constant, and its square of the objective at the start: what is lost in rounding
_DOUBT = 0.1  # of a decrement: what a system that is singular to working precision may leave of it
_LEAST_ROUND, _NEARLY = 0.01, 10.0  # of a model with l1: how far it is solved, and when it is to the end
STALLED = 2  # steps in a row that lower nothing
_RIDGE = 1e-10  # of the diagonal: columns that repeat each other


def minimize_newton(objective, x0, *, max_iter=100, tol_decrease=1e-6, callback=None):
    """Minimise with the Hessian of all rows.

    `objective`: see `LinearObjective`. ``callback(result)`` after each step, with `x`, `fun`, `nit` and
    `decrement` (before the step); True ends it. Returns an OptimizeResult with `x`, `fun`, `jac`, `nit`,
    `nfev`, `decrement`, `success`, `status` (0: converged; 1: `max_iter`; 2: rounding allows no further
    decrease; 3: callback), `message`.
    """

    factors = Factors(objective)

    def direction(x, g):
        factor = factors.at(x)
        d = -factor.solve(g)
        if factor.jitter == 0:
            return d, True
        left = factor.transposed(objective.hessian_product(x, d) + g)
        return d, float(left @ left) <= _DOUBT * abs(float(g @ d))

    return _descend(objective, x0, direction, max_iter, tol_decrease, callback)


def minimize_newton_cg(
    objective, x0, *, scaling=None, forcing=0.1, max_iter=100, tol_decrease=1e-6, callback=None
):
    """Minimise with products of the Hessian and vectors: conjugate gradients solve for the step.

    A system is solved until its residual is a share ``min(forcing, sqrt(|g| / |g_0|))`` of |g|; for a
    quadratic objective, whose systems are all the same, `forcing` is at most 1e-4 or so. ``scaling(x)`` makes
    the preconditioner of a step, by default the diagonal of the Hessian. Others: see `minimize_newton`.
    """
    first: list[float] = []
    ridge = objective.ridge
    most = max(_LEAST_PRODUCTS, 2 * min(objective.n_rows, len(x0)))

    def direction(x, g):
        P = scaling(x) if scaling is not None else Diagonal(objective.hessian_diagonal(x))
        right = -P.transposed(g)
        size = float(np.linalg.norm(right))
        first.append(size)
        stop = min(forcing, np.sqrt(size / first[0])) * size if size > 0 else 0.0

        def product(v):
            return P.transposed(objective.hessian_product(x, P.direct(v))) + ridge * v

        return P.direct(conjugate_gradients(product, right, stop, min(most, _MOST_PRODUCTS))), True

    return _descend(objective, x0, direction, max_iter, tol_decrease, callback)


def minimize_proximal_newton(objective, x0, l1, *, max_iter=100, tol_decrease=1e-6, callback=None):
    """Minimise ``f(x) + sum_j l1_j |x_j|``, with the Hessian of all rows.

    The quadratic model of f plus the penalty is minimised by `sparse_quadratic`, and the step to its minimum
    is shortened until the objective falls by a share of what the model promises, the decrement. `l1`: float64
    (p,), 0 for an intercept. Others: see `minimize_newton`; `fun` has the penalty in it.
    """
    smooth, g = objective.value_and_gradient(x0, curvature=True)
    state, factors = _State(x0, smooth + l1 @ np.abs(x0), g), Factors(objective)
    for _ in range(max_iter):
        x, f, g = state.x, state.fun, state.jac
        H, means = factors.hessian(x)
        H.flat[:: len(x) + 1] *= 1 + _RIDGE
        model = H, g, x, l1
        if means is not None:  # of columns less their means, whose intercept is another
            inner = np.append(g[:-1] - g[-1] * means, g[-1]), np.append(x[:-1], x[-1] + means @ x[:-1])
            model = H, *inner, l1
        target, state.decrement = minimise_quadratic(*model, least=_LEAST_ROUND)
        if state.decrement <= _NEARLY * tol_decrease * abs(f):
            target, state.decrement = minimise_quadratic(*model, start=target)
        if means is not None:
            target[-1] -= means @ target[:-1]
        promised = g @ (target - x) + l1 @ (np.abs(target) - np.abs(x))
        near = state.decrement <= tol_decrease * abs(f)
        if not promised < 0:
            return state.result(0)

        def phi(t, x=x, target=target, promised=promised, near=near):
            there = (1 - t) * x + t * target
            value, gradient = objective.value_and_gradient(there, curvature=not near)
            state.nfev += 1
            return Trial(t, value + l1 @ np.abs(there), t * promised, (there, gradient))

        trial = backtrack(phi, f)
        if trial is None:
            return state.result(0 if near else 2)
        state.take(trial)
        if callback is not None and callback(state.result(1)) is True:
            return state.result(3)
        if near:
            return state.result(0)
    return state.result(1)


def _descend(objective, x0, direction, max_iter, tol_decrease, callback):
    """Line searches along directions; ``direction(x, g)`` also returns whether its system was solved."""
    state = _State(x0, *objective.value_and_gradient(x0, curvature=True))
    rounding = ROUNDING * abs(objective.constant) + ROUNDING**2 * abs(state.fun)
    stalled = 0
    for _ in range(max_iter):
        x, f = state.x, state.fun
        d, solved = direction(x, state.jac)
        slope = float(state.jac @ d)
        state.decrement = -0.5 * slope
        near = solved and state.decrement <= max(tol_decrease * abs(f), rounding)
        if not slope < 0:
            return state.result(0 if slope == 0 else 2)

        def phi(t, x=x, d=d, near=near):
            there = x + t * d
            value, gradient = objective.value_and_gradient(there, curvature=not near)
            state.nfev += 1
            slope = float(gradient @ d) if np.isfinite(value) else np.inf
            return Trial(t, value, slope, (there, gradient))

        trial = strong_wolfe(phi, f, slope)
        if trial is None:
            return state.result(0 if near else 2)
        stalled = stalled + 1 if trial.value >= f * (1 - ROUNDING) else 0
        state.take(trial)
        if callback is not None and callback(state.result(1)) is True:
            return state.result(3)
        if near or stalled == STALLED:
            return state.result(0 if near else 2)
    return state.result(1)


class _State:
    """Where a minimisation is."""

    def __init__(self, x, fun, jac):
        self.x, self.fun, self.jac = x, fun, jac
        self.nit, self.nfev, self.decrement = 0, 1, np.inf

    def take(self, trial):
        """Go to a point that was found."""
        self.fun, (self.x, self.jac) = trial.value, trial.state
        self.nit += 1

    def result(self, status):
        """Make scipy's result."""
        return result_of(status, **vars(self))


def result_of(status, **figures):
    """Make scipy's result of figures and of a status: see `minimize_newton`."""
    return OptimizeResult(figures, success=status == 0, status=status, message=_MESSAGES[status])


_MESSAGES = (
    "the estimated excess of the objective is small enough",
    "max_iter steps were taken",
    "rounding errors allow no further decrease",
    "the callback ended it",
)
