"""OWL-QN: L-BFGS for f(x) + sum_j l1_j abs(x_j).

In each step the objective is smooth on one orthant, that of x (where x_j = 0: that into which the
pseudo-gradient pg leads down). The direction comes from the pairs of the smooth part and pg; what does not
go down is zeroed, every trial point is projected on the orthant, and of 1, 1/2, 1/4 ... (without pairs 1,
1/5 ...) the first step is taken with F(x+) <= F(x) + 1e-4 pg.(x+ - x).

Reference: Andrew, Gao, "Scalable training of L1-regularized log-linear models", ICML 2007.
"""

import math

import numpy as np

from ....errors import DataError
from ..space import as_numbers
from .line_search import Trial, backtrack
from .steps import Identity, Point, Smooth

_TRUST = 10.0  # an end by the promised decrease wants the last real one below this many times the tolerance


class Orthant(Smooth):
    """The steps of OWL-QN; as `Smooth`.

    `fun_and_grad`, `space`, `preconditioner`: see `Smooth`; the preconditioner is diagonal. `l1`: float or
    array (n,); not negative. `like`: any vector of the space.
    """

    def __init__(self, fun_and_grad, space, preconditioner, l1, like):
        super().__init__(fun_and_grad, space, preconditioner)
        values = as_numbers("l1", l1)
        if values.ndim and values.shape != (len(like),):
            raise DataError(f"l1 must be a number or {len(like)} weights, got the shape {values.shape}")
        if not (values.min() >= 0 and values.max() < math.inf):
            raise DataError("l1 must be finite and not negative: a number, or one weight a coordinate")
        self.l1 = space.weights(float(values) if values.ndim == 0 else values, like)
        self.q = None
        if not isinstance(preconditioner, Identity):
            self.q = preconditioner.direct(np.ones(len(like)))
            if not ((self.q > 0) & np.isfinite(self.q)).all() or not np.allclose(
                self.q, preconditioner.transposed(np.ones(len(like)))
            ):
                raise DataError("with l1 the preconditioner must be diagonal, positive and finite")

    def point(self, x):
        """See `Smooth.point`."""
        evaluated = self.evaluate(x)
        if evaluated is None:
            return None
        return self.made(x, evaluated[0] + self.space.penalty(x, self.l1), evaluated[1])

    def made(self, x, value, gradient):
        """Make a point of the whole objective's value and the smooth part's gradient."""
        pg = self.space.pseudo_gradient(x, gradient, self.l1)
        return Point(x, value, gradient, pg, self.preconditioner.transposed(pg))

    def direction(self, memory, point):
        """Return the direction in u, zeroed where it does not go down, and its slope."""
        d = self.space.aligned(memory.direction(point.scaled), point.uphill)
        return d, float(self.space.dots([(point.scaled, d)])[0])

    def search(self, point, d, slope, first, fresh):
        """Search along the path that is projected on the orthant."""
        dx = self.preconditioner.direct(d)

        def phi(t):
            x = self.space.orthant_step(point.x, t, dx, point.uphill, self.l1)
            evaluated = self.evaluate(x)
            if evaluated is None:
                return Trial(t, math.inf, math.inf)
            value, gradient = evaluated
            step = self.space.axpy(-1.0, point.x, x)
            promised, size = self.space.dots([(point.uphill, step), (gradient, gradient)])
            if not math.isfinite(size):
                self.trouble = "the gradient is not finite"
                return Trial(t, math.inf, math.inf)
            total = value + self.space.penalty(x, self.l1)
            return Trial(t, total, promised, (x, total, gradient))

        trial = backtrack(phi, point.value, first, 0.2 if fresh else 0.5)
        return None if trial is None else trial._replace(state=self.made(*trial.state))

    def remember(self, memory, before, trial, d):
        """Give the memory the step that was taken, in u, with the change of the smooth gradient."""
        after = trial.state
        s = self.space.axpy(-1.0, before.x, after.x)
        y = self.space.axpy(-1.0, before.gradient, after.gradient)
        if self.q is not None:
            s, y = s / self.q, y * self.q
        memory.add(s, y, after.scaled)

    def trusted(self, fell, promised):
        """Zeroing may leave a direction that promises nothing: the last step must have been small as well."""
        return fell <= _TRUST * promised
