"""Conjugate gradients for a quadratic objective, until its excess over the minimum is small enough.

After k steps the objective has fallen by a sum that rises to its whole excess. What is still lacking is at
most ``|r|^2 / (2 l2)`` with the residual r, and ``r^T P P^T r / (2 smallest eigenvalue of P^T H P)``, see
`excess`. The second is believed where the smallest eigenvalue that is known stands still, and the last steps
have lowered the objective by little.
"""

from scipy.optimize import OptimizeResult

from .excess import Ritz
from .newton import MESSAGES, ROUNDING

_LAST, _SETTLED = 5, 0.3  # steps that may lower the objective by this share of what is allowed
_SAME = 0.5  # of the smallest eigenvalue of half of the steps: no flatter direction has been found since


def minimize_quadratic(objective, x0, *, scaling, max_iter=1000, tol_decrease=1e-6, callback=None):
    """Minimise a quadratic objective; one product with its Hessian a step.

    `scaling`: a preconditioner, see `preconditioner`. `tol_decrease`: excess over the minimum, relative to
    the objective. Returns as `minimize_newton`.
    """
    first, g = objective.value_and_gradient(x0)
    rounding = ROUNDING * abs(objective.constant) + ROUNDING**2 * abs(first)
    tol = max(tol_decrease, objective.precision)
    x, residual, sums, ritz, status = x0.copy(), -g, [0.0], Ritz(), 1
    turned = scaling.direct(scaling.transposed(residual))
    step, square, k = turned, float(residual @ turned), 0

    def lacking(r, square, allowed):
        penalised, free = objective.squared_norms(r)
        if objective.l2 > 0 and free <= penalised and penalised + free <= 2 * objective.l2 * allowed:
            return True
        if k <= _LAST or square > 2 * allowed or sums[k] - sums[k - _LAST] > _SETTLED * allowed:
            return not square > 0
        least = ritz.least(k)
        return square <= 2 * least * allowed and least >= _SAME * ritz.least(k // 2)

    while True:
        value = first - sums[-1]
        allowed = max(tol * abs(value), rounding)
        if lacking(residual, square, allowed):
            status = 0
            break
        if k == max_iter:
            break
        bent = objective.hessian_product(x0, step)  # the same everywhere
        curvature = float(step @ bent)
        if not curvature > 0:
            status = 2
            break
        length = square / curvature
        x, residual, k = x + length * step, residual - length * bent, k + 1
        sums.append(sums[-1] + 0.5 * length * square)
        turned = scaling.direct(scaling.transposed(residual))
        before, square = square, float(residual @ turned)
        ritz.add(length, square / before)
        step = turned + (square / before) * step
        if callback is not None and callback(_result(x, first - sums[-1], -residual, k, 1)) is True:
            status = 3
            break
    value, g = objective.value_and_gradient(x) if k else (first, g)
    turned = scaling.direct(scaling.transposed(g))
    if status == 0 and k and not lacking(g, float(g @ turned), max(tol * abs(value), rounding)):
        status = 2  # what was added up has drifted from the gradient
    return _result(x, value, g, k, status)


def _result(x, fun, jac, nit, status):
    result = OptimizeResult()
    result.update(x=x, fun=fun, jac=jac, nit=nit, nfev=2, status=status, success=status == 0)
    result.update(message=MESSAGES[status])
    return result
