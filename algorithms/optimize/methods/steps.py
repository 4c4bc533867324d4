"""The steps of L-BFGS on a smooth objective: a point, a direction from it, and a search along that."""

import math
from dataclasses import dataclass
from typing import Any

from ....scheduler.sums.summed import NonFiniteObjective
from .line_search import CURVATURE, Trial, strong_wolfe

_ENDLESS = 1e15  # times the first step


@dataclass(eq=False)
class Point:
    """Where the minimiser is.

    Attributes: `value`: the objective, penalty included. `gradient`: of the smooth part. `uphill`: the
    gradient, or with l1 the pseudo-gradient. `scaled`: P^T uphill.
    """

    x: Any
    value: float
    gradient: Any
    uphill: Any
    scaled: Any


class Identity:
    """No preconditioner."""

    def direct(self, v):
        """Return v."""
        return v

    transposed = direct


class Smooth:
    """The steps of L-BFGS on a smooth objective."""

    natural = False  # whether a direction has the length of a step even without pairs

    def __init__(self, fun_and_grad, space, preconditioner):
        self.fun_and_grad, self.space, self.preconditioner = fun_and_grad, space, preconditioner
        self.passes, self.trouble, self.endless = 0, None, False

    def evaluate(self, x):
        """One pass; None, and a word in `trouble`, where the objective is not finite."""
        self.passes += 1
        try:
            value, gradient = self.fun_and_grad(x)
        except NonFiniteObjective as error:
            self.trouble = str(error)
            return None
        value = float(value)
        if not math.isfinite(value):
            self.trouble = f"the objective is {value}"
            return None
        return value, gradient

    def point(self, x):
        """Evaluate the objective at x; None where it is not finite."""
        evaluated = self.evaluate(x)
        return None if evaluated is None else self.made(x, *evaluated)

    def made(self, x, value, gradient):
        """Make a point of its value and gradient."""
        return Point(x, value, gradient, gradient, self.preconditioner.transposed(gradient))

    def direction(self, memory, point):
        """Return the direction in u, and how much the objective falls along it per unit step."""
        d = memory.direction(point.scaled)
        return d, float(self.space.dots([(point.scaled, d)])[0])

    def search(self, point, d, slope, first, fresh):
        """Search along d for a `Trial` whose state is a `Point`."""
        dx = self.preconditioner.direct(d)

        def phi(t):
            x = self.space.axpy(t, dx, point.x)
            evaluated = self.evaluate(x)
            if evaluated is None:
                return Trial(t, math.inf, math.inf)
            there = float(self.space.dots([(evaluated[1], dx)])[0])
            if not math.isfinite(there):
                self.trouble = "the gradient is not finite"
            return Trial(t, evaluated[0], there, (x, *evaluated))

        trial = strong_wolfe(phi, point.value, slope, first)
        # As steep there as here, and no end in sight.
        self.endless = trial is not None and trial.t > _ENDLESS * first and trial.slope < CURVATURE * slope
        return None if trial is None else trial._replace(state=self.made(*trial.state))

    def is_inside(self, x, reach):
        """Which coordinates are further than `reach` from a bound."""
        return True

    def trusted(self, fell, promised):
        """Whether a small promised decrease ends the run, after a step that lowered f by `fell`."""
        return True

    def remember(self, memory, before, trial, d):
        """Give the memory the step that was taken."""
        after = trial.state
        y = self.space.axpy(-1.0, before.scaled, after.scaled)
        memory.add(self.space.scale(trial.t, d), y, after.scaled, trial.t)
