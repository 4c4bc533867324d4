"""How far an objective is above its minimum: the Newton decrement, as proof of what L-BFGS promises.

L-BFGS knows curvature along its last steps only, and its ``-g.d/2`` misses what lies in flat directions that
it has not gone along. Before a run is called converged the decrement ``g^T H^(-1) g / 2`` is found, by the
cheapest of: strong convexity, which bounds it; the factor of the Hessian; conjugate gradients, whose partial
sums rise to it.
"""

import numpy as np

from .preconditioner import Factors
from .space import LocalSpace

_LEAST_PRODUCTS, _MOST_PRODUCTS = 6, 200
_SETTLED = 0.1  # of what is allowed: what the second half of the products may add


class Excess:
    """Tells how many times the allowed excess a point is above the minimum.

    Parameters
    ----------
    objective : LinearObjective or MultinomialObjective
    tol : float
        Allowed excess relative to the objective; at least its precision is taken.
    preconditioner : object
        For conjugate gradients.
    by_factor : bool
        Whether a Hessian and its factor are cheap.
    space : Space, default=None
        Where vectors lie; numpy arrays of this process when None.
    """

    def __init__(self, objective, tol, preconditioner, by_factor, space=None):
        self._objective, self._tol = objective, max(tol, objective.precision)
        self._preconditioner, self._by_factor = preconditioner, by_factor
        self._space = LocalSpace() if space is None else space

    def __call__(self, x, value, g):
        """The estimated excess at x over the allowed one; at most 1 where that is proved."""
        allowed = self._tol * abs(value)
        if not allowed > 0:
            return 1.0 if not self._square(g) > 0 else np.inf
        if self._bound(g) <= allowed:
            return 1.0
        if self._by_factor:
            return 0.5 * float(g @ Factors(self._objective).at(x).solve(g)) / allowed
        return self._by_products(x, g, allowed) / allowed

    def _bound(self, g):
        """``|g|^2 / (2 l2)``; infinite with an intercept that is not at its best."""
        penalised, free = self._objective.squared_norms(g)
        if not self._objective.l2 > 0 or free > penalised:
            return np.inf
        return (penalised + free) / (2 * self._objective.l2)

    def _by_products(self, x, g, allowed):
        """Partial sums of conjugate gradients, until they pass what is allowed or rise no more."""
        P, space = self._preconditioner, self._space
        residual = space.scale(-1.0, P.transposed(g))
        step, square = residual, self._square(residual)
        sums = [0.0]
        for k in range(1, _MOST_PRODUCTS + 1):
            bent = P.transposed(self._objective.hessian_product(x, P.direct(step)))
            curvature = float(space.dots([(bent, step)])[0])
            if not curvature > 0:
                break
            length = square / curvature
            sums.append(sums[-1] + 0.5 * length * square)
            if sums[-1] > allowed:
                break
            if k >= _LEAST_PRODUCTS and sums[-1] - sums[k // 2] <= _SETTLED * allowed:
                break
            residual = space.axpy(-length, bent, residual)
            before, square = square, self._square(residual)
            if not square > 0:
                break
            step = space.axpy(square / before, step, residual)
        return sums[-1]

    def _square(self, v):
        return float(self._space.dots([(v, v)])[0])
