"""The Newton decrement: a test that L-BFGS has converged.

L-BFGS knows curvature along its last steps only, and its ``-g.d/2`` misses flat directions that
it has not gone along. Before a run is called converged the decrement ``g^T H^(-1) g / 2`` is found, by the
cheapest of: strong convexity, which bounds it; the factor of the Hessian; conjugate gradients.

The partial sums of conjugate gradients rise to the decrement, and may stand still for a while before a flat
direction is found. What they still lack is ``r^T H^(-1) r / 2`` with the residual r, at most

    |r|^2 / (2 l2),   and   r^T P P^T r / (2 smallest eigenvalue of P^T H P),

of which the first is a bound and the second has the smallest eigenvalue that conjugate gradients know of (of
their tridiagonal matrix, a Ritz value). A sum is believed with the first of them, or where it stands still
with the second, once that eigenvalue stands still, too.
"""

import math

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from ..space import LocalSpace
from .preconditioner import Factors

_LEAST_PRODUCTS, _MOST_PRODUCTS = 6, 200  # with the Hessian, of a proof
_SETTLED = 0.1  # of what is allowed: what the second half of the products may add, and what may be lacking
_TINY = float(np.finfo(np.float64).tiny)
_SOLVED = 1e-12  # of the square of the first residual, where nothing is lacking
_LENGTH = 1e-7  # of a difference, relative to x and to the last steps; and of curvature what it resolves
_SAME = 0.5  # of the smallest Ritz value of half of the products: no flatter direction has been found since


class Excess:
    """Estimates the excess of a point over the minimum, in units of the allowed excess.

    `tol`: allowed excess relative to the objective, at least its precision. ``scaling(x)`` makes the
    preconditioner of conjugate gradients at x. `by_factor`: whether a Hessian and its factor are cheap.
    """

    def __init__(self, objective, tol, scaling, by_factor, space=None):
        self._objective, self._tol = objective, max(tol, objective.precision)
        self._scaling, self._by_factor = scaling, by_factor
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
        return self.by_products(x, g, allowed) / allowed

    def _bound(self, g):
        """``|g|^2 / (2 l2)``; infinite with an intercept that is not at its best."""
        penalised, free = self._objective.squared_norms(g)
        if not self._objective.l2 > 0 or free > penalised:
            return np.inf
        return (penalised + free) / (2 * self._objective.l2)

    def by_products(self, x, g, allowed):
        """Partial sums of conjugate gradients, until they exceed the allowed excess or are complete.

        The systems are those of x itself, P P^T turning residuals, so that |r| is that of a gradient.
        """
        space, P = self._space, self._scaling(x)
        residual = space.scale(-1.0, g)
        turned = P.direct(P.transposed(residual))
        step, square = turned, self._dot(residual, turned)
        solved = _SOLVED * square
        sums, ritz, lacking = [0.0], Ritz(), np.inf
        for k in range(1, _MOST_PRODUCTS + 1):
            bent = self._objective.hessian_product(x, step)
            curvature = self._dot(bent, step)
            if not curvature > 0:
                break
            length = square / curvature
            sums.append(sums[-1] + 0.5 * length * square)
            residual = space.axpy(-length, bent, residual)
            turned = P.direct(P.transposed(residual))
            before, square = square, self._dot(residual, turned)
            lacking = self._bound(residual)
            if sums[-1] > allowed or sums[-1] + lacking <= allowed or not square > solved:
                return sums[-1]
            ritz.add(length, square / before)
            if k >= _LEAST_PRODUCTS and sums[-1] - sums[k // 2] <= _SETTLED * allowed:
                least = ritz.least(k)
                lacking = min(lacking, 0.5 * square / least)
                if lacking <= _SETTLED * allowed and least >= _SAME * ritz.least(k // 2):
                    break
            step = space.axpy(square / before, step, turned)
        return sums[-1] + lacking

    def _square(self, v):
        return self._dot(v, v)

    def _dot(self, v, w):
        return float(self._space.dots([(v, w)])[0])


class Differences:
    """An objective known by its gradients, near a point of L-BFGS, for `Excess`.

    A product with the Hessian is a difference of gradients; the pairs of the last steps precondition.
    Coordinates that bounds or l1 hold are left out.
    """

    precision = l2 = 0.0

    def __init__(self, steps, memory, point):
        self._steps, self._memory, self._point = steps, memory, point
        pairs, m = memory.products, memory.size
        self._steepest = max((pairs[m + k, m + k] / pairs[k, m + k] for k in memory.order), default=0.0)
        squares = [self._dot(point.x, point.x), *(pairs[k, k] for k in memory.order)]
        self._length = _LENGTH * (math.sqrt(max(squares)) or 1.0)
        self._free = None
        if isinstance(point.x, np.ndarray):
            self._free = (point.uphill != 0) & steps.is_inside(point.x, self._length)

    def excess(self, allowed):
        """The estimated excess over the minimum, complete where it is at most `allowed`."""
        space = self._steps.space
        return Excess(self, 0.0, lambda x: self, False, space).by_products(
            self._point.x, self._within(self._point.uphill), allowed
        )

    def squared_norms(self, g):
        """Nothing is known of a penalty."""
        return 0.0, 0.0

    def hessian_product(self, x, v):
        """The product; where rounding hides the curvature, f counts as falling for a length of x."""
        space, norm = self._steps.space, math.sqrt(self._dot(v, v))
        if self._steps.natural:
            self._steps.passes += 1
            return self._within(self._steps.product(x, v))
        bent = self._difference(x, v, self._length / norm)
        self._steepest = max(self._steepest, math.sqrt(self._dot(bent, bent)) / norm)
        curvature = self._dot(bent, v)
        if curvature < _LENGTH * self._steepest * norm**2:
            other = self._dot(self._difference(x, v, -self._length / norm), v)
            if not abs(curvature - other) <= 0.5 * abs(curvature + other):
                slope = abs(self._dot(self._point.uphill, v)) / norm
                return space.scale(0.5 * slope * _LENGTH / self._length, v)
        return bent

    def _difference(self, x, v, t):
        evaluated = self._steps.evaluate(self._steps.space.axpy(t, v, x))
        if evaluated is None:
            return self._steps.space.scale(math.nan, v)
        change = self._steps.space.axpy(-1.0, self._point.gradient, evaluated[1])
        return self._within(self._steps.space.scale(1 / t, change))

    def direct(self, v):
        """The inverse Hessian that the pairs make, times v."""
        if self._free is None or self._free.all():
            return self._steps.space.scale(-1.0, self._memory.direction(v))
        return -self._memory.direction_within(v, self._free)

    def transposed(self, v):
        """`direct` applies both factors."""
        return v

    def _within(self, v):
        return v if self._free is None else np.where(self._free, v, 0.0)

    def _dot(self, v, w):
        return float(self._steps.space.dots([(v, w)])[0])


class Ritz:
    """The tridiagonal matrix that conjugate gradients make of ``P^T H P``: ``Q^T P^T H P Q``, Q^T Q = 1."""

    def __init__(self):
        self._diagonal: list[float] = []
        self._off_diagonal: list[float] = []
        self._next = 0.0

    def add(self, length, ratio):
        """Take in a step's length, and the square of the residual after it over that before."""
        self._diagonal.append(1 / length + self._next)
        self._off_diagonal.append(np.sqrt(ratio) / length)
        self._next = ratio / length

    def least(self, k):
        """The smallest eigenvalue after k steps."""
        eigenvalues = eigvalsh_tridiagonal(
            np.array(self._diagonal[:k]),
            np.array(self._off_diagonal[: k - 1]),
            select="i",
            select_range=(0, 0),
        )
        return max(float(eigenvalues[0]), _TINY)
