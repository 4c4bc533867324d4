"""Smooth losses of few rows and columns: Newton's method with compiled steps, with and without l1.

What surrounds a step elsewhere (portions, threads, factors, extrapolations) takes longer than the step here.
"""

import numpy as np

from ....kernels.linear.small_smooth import CONVERGED, GOES_ON, STUCK, newton_step
from ...optimize.methods.newton import ROUNDING, STALLED, result_of
from .. import rules
from .objective import LinearObjective
from .rows import SQUARED, DenseRows


def applies(objective):
    """Whether an objective is small, of dense rows here without offset, and not the squared loss."""
    if not isinstance(objective, LinearObjective) or type(objective.rows) is not DenseRows:
        return False
    small = rules.SMALL_SMOOTH.hold(objective.n_rows, objective.n_parameters)
    return small and objective.loss != SQUARED and not len(objective.rows.offset)


def minimize_small(objective, x0, *, l1=None, max_iter=100, tol_decrease=1e-6, callback=None):
    """Minimise ``F(x) + sum_j l1_j |x_j|``, the intercept without penalty; see `minimize_newton`.

    Where the quadratic model has no single minimum to working precision, or nothing is gained along its
    step, it ends with status 2, at the best point so far: the caller goes on in another way.
    """
    rows, intercept, p = objective.rows, objective.fit_intercept, objective.n_parameters
    X = rows.X.astype(np.float64)
    means = X.mean(axis=0) if intercept else np.zeros(X.shape[1])
    XT = np.ones((p, len(X)))
    np.subtract(X.T, means[:, None], out=XT[: X.shape[1]])
    factor = objective.scale * len(X)  # the kernel takes means of the rows
    penalties = np.zeros((2, p))
    penalties[0] = 0.0 if l1 is None else l1 / factor
    penalties[1, : X.shape[1]] = objective.l2_weights / factor
    constant = objective.constant / factor
    y, weights = (np.ascontiguousarray(part, np.float64) for part in (rows.y, rows.weights))
    x = shifted(x0, means, intercept)
    work = [
        np.empty((p, p)),
        np.empty((p, p)),
        np.empty((5, p)),
        np.empty((6, len(X))),
        np.empty(p, np.int64),
    ]
    figures, nit, stalled, ended, status = np.full(3, np.inf), 0, 0, False, STUCK
    rounding = np.nan
    while nit < max_iter and stalled < STALLED:
        before = figures[0]
        status = newton_step(
            objective.loss, XT, y, weights, *penalties, constant, tol_decrease, x, *work, figures
        )
        if status == STUCK or not figures[2]:
            break
        nit += 1
        if nit == 1:
            rounding = ROUNDING * abs(constant) + ROUNDING**2 * abs(figures[0])
        elif status == GOES_ON and figures[1] <= rounding:
            status = CONVERGED
        stalled = stalled + 1 if figures[0] >= before * (1 - ROUNDING) else 0
        result = _result(x, figures, nit, 1, factor, means, intercept)
        ended = callback is not None and callback(result) is True
        if status == CONVERGED or ended:
            break
    code = 3 if ended else 0 if status == CONVERGED else 2 if status == STUCK or stalled == STALLED else 1
    return _result(x, figures, nit, code, factor, means, intercept)


def shifted(x, means, intercept, sign=1.0):
    """Coefficients, intercepts last, with those of columns less their means; or back, with ``sign=-1``."""
    x = np.array(x, np.float64)
    if intercept:
        x[-1] += sign * (means @ x[:-1])
    return x


def _result(x, figures, nit, status, factor, means, intercept):
    """Make scipy's result."""
    value, decrement = map(float, factor * figures[:2])
    x = shifted(x, means, intercept, -1.0)
    return result_of(status, x=x, fun=value, jac=None, nit=nit, nfev=nit, decrement=decrement)
