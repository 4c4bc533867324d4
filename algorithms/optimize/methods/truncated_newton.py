"""Newton's method with products of the Hessian and vectors: conjugate gradients, cut short, solve for a step.

A system H d = -g is solved until its residual is a share min(1/2, sqrt(|g| / |g_0|)) of |g|, so that products
far from the minimum are few and convergence near it is superlinear. Where the curvature along a direction is
not positive, the solver stops with what it has, so that f need not be convex.

Reference: Nocedal, Wright, "Numerical optimization", 2nd edition, algorithm 7.1.
"""

import math

from ....scheduler.sums.summed import NonFiniteObjective
from .conjugate_gradients import conjugate_gradients
from .steps import Identity, Smooth

_FORCING = 0.5  # Eisenstat and Walker: the most that is left of a residual
_MOST_PRODUCTS = 200  # for one step


class TruncatedNewton(Smooth):
    """The steps of Newton's method; as `Smooth`, for numpy vectors. ``product(x, v)`` returns H(x) v."""

    natural = True

    def __init__(self, fun_and_grad, space, product):
        super().__init__(fun_and_grad, space, Identity())
        self.product, self.first = product, None

    def direction(self, memory, point):
        """Return the direction, and how much the objective falls along it per unit step."""
        size = math.sqrt(float(point.uphill @ point.uphill))
        self.first = size if self.first is None else self.first

        def product(v):
            self.passes += 1
            return self.product(point.x, v)

        stop = min(_FORCING, math.sqrt(size / self.first)) * size
        try:
            d = conjugate_gradients(product, -point.uphill, stop, min(_MOST_PRODUCTS, 10 * len(point.x)))
        except NonFiniteObjective as error:
            self.trouble = str(error)
            return point.uphill, math.nan
        return d, float(point.uphill @ d)

    def remember(self, memory, before, trial, d):
        """Nothing: the Hessian is new in each step."""
