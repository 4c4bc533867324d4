"""L-BFGS for f(x) with low_j <= x_j <= high_j, by projection.

In each step the coordinates at a bound, or within a hair of it, from which the gradient leads out stay there;
the direction in the others is L-BFGS's, made of the pairs' parts in them. Every trial point is projected on
the box, so that f is never computed outside of it, and of 1, 1/2, 1/4 ... the first step is taken with
f(x+) <= f(x) + 1e-4 g.(x+ - x). Its end is the smallness of the projected gradient: g without the coordinates
whose bound holds them.

References: Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM J.
Control and Optimization 1982; Kim, Sra, Dhillon, "Tackling box-constrained optimization via a new projected
quasi-Newton approach", SIAM J. Scientific Computing 2010.
"""

import math

import numpy as np

from .line_search import Trial, backtrack
from .steps import Identity, Point, Smooth

_TRUST = 10.0  # an end by the promised decrease wants the last real one below this many times the tolerance
_HAIR = 1e-12  # of a bound's size: nearer than this a coordinate counts as being there


class Box(Smooth):
    """The steps of L-BFGS within bounds; as `Smooth`, for numpy vectors.

    `low`, `high`: vectors, infinite where there is no bound. `linear`: a vector, for a further term linear.x
    of the objective, or None.
    """

    def __init__(self, fun_and_grad, space, low, high, linear=None):
        super().__init__(fun_and_grad, space, Identity())
        self.low, self.high = low, high
        self.linear = np.zeros(len(low)) if linear is None else linear
        with np.errstate(invalid="ignore"):
            self.near_low = low + _HAIR * np.maximum(1.0, np.abs(low))
            self.near_high = high - _HAIR * np.maximum(1.0, np.abs(high))

    def point(self, x):
        """See `Smooth.point`."""
        evaluated = self.evaluate(x)
        if evaluated is None:
            return None
        return self.made(x, evaluated[0] + float(self.linear @ x), evaluated[1])

    def made(self, x, value, gradient):
        """Make a point of the whole objective's value and the smooth part's gradient."""
        uphill = gradient + self.linear
        uphill[self._held(x, uphill)] = 0.0
        return Point(x, value, gradient, uphill, uphill)

    def _held(self, x, g):
        """The coordinates that their bound holds."""
        return ((x <= self.near_low) & (g > 0)) | ((x >= self.near_high) & (g < 0)) | (self.low == self.high)

    def direction(self, memory, point):
        """Return the direction, and how much the objective falls along it per unit step."""
        held = self._held(point.x, point.gradient + self.linear)
        d = memory.direction_within(point.scaled, ~held) if held.any() else memory.direction(point.scaled)
        return d, float(point.scaled @ d)

    def search(self, point, d, slope, first, fresh):
        """Search along the path that is projected on the box."""
        g = point.gradient + self.linear
        start = np.where(self._held(point.x, g), np.where(g > 0, self.low, self.high), point.x)

        def phi(t):
            x = np.clip(start + t * d, self.low, self.high)
            evaluated = self.evaluate(x)
            if evaluated is None:
                return Trial(t, math.inf, math.inf)
            value, gradient = evaluated
            if not math.isfinite(float(gradient @ gradient)):
                self.trouble = "the gradient is not finite"
                return Trial(t, math.inf, math.inf)
            total = value + float(self.linear @ x)
            return Trial(t, total, float(g @ (x - point.x)), (x, total, gradient))

        trial = backtrack(phi, point.value, first, 0.2 if fresh else 0.5)
        return None if trial is None else trial._replace(state=self.made(*trial.state))

    def remember(self, memory, before, trial, d):
        """Give the memory the step that was taken."""
        after = trial.state
        memory.add(after.x - before.x, after.gradient - before.gradient, after.scaled)

    def is_inside(self, x, reach):
        """See `Smooth.is_inside`."""
        return (x - self.low > reach) & (self.high - x > reach)

    def trusted(self, fell, promised):
        """Not where the step was cut by a bound: the next direction may promise more."""
        return fell <= _TRUST * promised
