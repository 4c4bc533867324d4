"""Conjugate gradients for a quadratic objective, until its excess over the minimum is small enough.

After k steps the objective has fallen by a sum that rises to its whole excess. What is still lacking is at
most ``|r|^2 / (2 l2)`` with the residual r, and ``r^T P P^T r / (2 smallest eigenvalue of P^T H P)``, see
`excess`. The second is believed where the smallest eigenvalue that is known stands still, and the last steps
have lowered the objective by little.
"""

from .conjugate_gradients import conjugate_gradient_steps
from .excess import Ritz
from .newton import ROUNDING, result_of

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
    sums, ritz, status, k = [0.0], Ritz(), 2, 0

    def lacking(r, square, allowed):
        penalised, free = objective.squared_norms(r)
        if objective.l2 > 0 and free <= penalised and penalised + free <= 2 * objective.l2 * allowed:
            return True
        if k <= _LAST or square > 2 * allowed or sums[k] - sums[k - _LAST] > _SETTLED * allowed:
            return not square > 0
        least = ritz.least(k)
        return square <= 2 * least * allowed and least >= _SAME * ritz.least(k // 2)

    def product(v):
        return objective.hessian_product(x0, v)  # the same everywhere

    def scaled(v):
        return scaling.direct(scaling.transposed(v))

    for k, state in enumerate(conjugate_gradient_steps(product, -g, scaled)):
        x, value = x0 + state.x, first - state.fell
        if k:
            sums.append(state.fell)
            ritz.add(state.length, state.ratio)
            now = result_of(1, x=x, fun=value, jac=-state.residual, nit=k, nfev=2)
            if callback is not None and callback(now) is True:
                status = 3
                break
        if lacking(state.residual, state.square, max(tol * abs(value), rounding)):
            status = 0
            break
        if k == max_iter:
            status = 1
            break
    value, g = objective.value_and_gradient(x) if k else (first, g)
    if status == 0 and k and not lacking(g, float(g @ scaled(g)), max(tol * abs(value), rounding)):
        status = 2  # what was added up has drifted from the gradient
    return result_of(status, x=x, fun=value, jac=g, nit=k, nfev=2)
