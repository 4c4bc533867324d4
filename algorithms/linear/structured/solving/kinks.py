r"""Losses with a kink, which are smoothed, and the proximal point method that makes them sharp.

Such a loss is ``max_v <v, r>`` of residuals r, over slopes v of some range. With a width w and a centre c it
is replaced by

.. math:: \max_v \langle v, r\rangle - \frac{w}{2} |v - c|^2

which is smooth, with a curvature of at most ``1 / w``. Where the smooth problem is solved, its slopes v are
the next centre (`sharpened`): the slopes of the rows on the kink are found although w does not vanish.
`objective` and `conjugate` are of the loss itself, so that the duality gap is that of the exact problem.
Where that is a linear or quadratic program, `interior` solves it, and smoothing only what that leaves.

Rockafellar, "Augmented Lagrangians and applications of the proximal point algorithm in convex programming",
Mathematics of Operations Research 1976.
"""

import numpy as np

from .....errors import DataError
from ..losses import Loss
from ..mean_loss import MeanLoss

_SHARE = 0.1  # of the step of the slopes: what the smooth problem may lack when the centre moves
_STUCK = 8  # centres without a smaller gap: what is left is rounding
_LEAST_WIDTH = 1e-3  # of the first one: below, Newton steps lose digits and gain little


def sharpened(solver, penalty, unit, first, *, tol, max_rounds, report=None):
    """Solve with one centre after the other until the exact gap is small enough.

    Where no gap is known: until what the smoothing hides is as small. The loss keeps its last centre.
    """
    rows, loss, rounds, least, stuck = solver.loss, solver.loss.loss, 0, np.inf, 0
    by_gap = rows.has_conjugate and penalty.has_dual
    while True:
        options = {"tol": tol, "max_rounds": max_rounds - rounds, "report": report}
        fit = solver.solve(penalty, unit, first, **options)
        rounds += fit.rounds
        fit.rounds = rounds
        hidden = fit.gap if by_gap else rows.hidden(solver.f)
        if hidden <= tol * unit or fit.reason == "stopped":
            return fit
        stuck = 0 if hidden < 0.9 * least else stuck + 1
        least = min(least, hidden)
        if rounds >= max_rounds or stuck > _STUCK:
            fit.reason = "max_rounds" if rounds >= max_rounds else "stalled"
            return fit
        loss.centre = rows.slopes_of_rows(solver.f)
        loss.width = min(loss.width, max(loss.width / loss.narrower, _LEAST_WIDTH * loss.first_width))
        solver.forget_slopes()


def resume(solver, penalty, smoothing):
    """Take up the width and centre with which another fit ended, unless the gap here is larger with them."""
    if smoothing is None or not isinstance(solver.loss, KinkedRows):
        return
    loss, (width, centre) = solver.loss.loss, smoothing
    if np.shape(centre) not in ((), solver.loss.y.shape):
        return
    fresh, own = solver.gap(penalty, *solver.slopes(), solver.objective(penalty)), (loss.width, loss.centre)
    loss.width, loss.centre = width, centre
    solver.forget_slopes()
    if solver.gap(penalty, *solver.slopes(), solver.objective(penalty)) > fresh:
        loss.width, loss.centre = own
        solver.forget_slopes()


class KinkedRows(MeanLoss):
    """The mean over rows of a loss with a kink; `loss` has its width and centre."""

    linear = True  # the loss itself is linear beside its kink

    def smoothing_now(self):
        """Width and centre: see `resume`."""
        return self.loss.width, self.loss.centre

    def slopes_of_rows(self, f):
        """Slopes v of the smooth loss, without the weights."""
        return self.loss.gradient(self.y, f)

    def residuals(self, f):
        """How far predictors are from the kink."""
        return f - self.loss.kink(self.y)

    def hidden(self, f):
        """How far the slopes are from being subgradients of the loss itself, in units of it."""
        linear = self.slopes_of_rows(f) * self.residuals(f)
        return self.objective(f) - float(np.sum(self.weights[:, None] * linear))

    def smoothing(self, f):
        """The gap that an exact solution of the smooth problem has, and how much more is precise enough."""
        if self.loss.width == np.inf:  # slopes of an interior point
            return 0.0, 0.0
        moved = self.slopes_of_rows(f) - self.loss.centre
        proximity = 0.5 * self.loss.width * float(np.sum(self.weights[:, None] * moved**2))
        return self.hidden(f), _SHARE * proximity


class KinkedLoss(Loss):
    """``max(low r, high r)`` of the residual ``r = f - kink(y)``: slopes are from low to high."""

    width, first_width, centre = 1.0, 1.0, 0.0
    narrower = 4.0  # by which the width falls with each centre

    def kink(self, y):
        """The predictor at the kink of each row."""
        raise NotImplementedError

    def range(self, y):
        """The least and the largest slope of each row."""
        raise NotImplementedError

    @property
    def flat(self):
        """See `Loss`."""
        return 1 / self.width

    def over_rows(self, y, weights, offset):
        """See `Loss`."""
        return KinkedRows(self, y, weights, offset)

    def gradient(self, y, f):
        """See `Loss`."""
        return np.clip(self.centre + (f - self.kink(y)) / self.width, *self.range(y))

    def value(self, y, f):
        """See `Loss`: of the smooth loss."""
        v = self.gradient(y, f)
        return v * (f - self.kink(y)) - self.width / 2 * (v - self.centre) ** 2

    def curvature(self, y, f):
        """See `Loss`."""
        v, (low, high) = self.centre + (f - self.kink(y)) / self.width, self.range(y)
        return ((v >= low) & (v <= high)) / self.width

    def exact(self, y, f):
        """The loss without smoothing."""
        r, (low, high) = f - self.kink(y), self.range(y)
        return np.maximum(low * r, high * r)

    def conjugate(self, y, u):
        """See `Loss`."""
        low, high = self.range(y)
        return np.where((u >= low - 1e-12) & (u <= high + 1e-12), u * self.kink(y), np.inf)


class Pinball(KinkedLoss):
    """The loss of a quantile."""

    def __init__(self, quantile=0.5, width=1.0):
        if not 0 < quantile < 1:
            raise DataError(f"quantile={quantile} must lie between 0 and 1, both excluded")
        self.quantile = float(quantile)
        self.width = self.first_width = width

    def kink(self, y):
        """See `KinkedLoss`."""
        return y

    def range(self, y):
        """See `KinkedLoss`."""
        return -self.quantile, 1 - self.quantile

    def fitted_to(self, y, weights):
        """See `Loss`; the width is the mean distance of the targets from their mean."""
        return Pinball(self.quantile, float(weights @ np.abs(y - weights @ y)) or 1.0)

    def start(self, mean):
        """See `Loss`."""
        return mean


class Hinge(KinkedLoss):
    """``max(0, 1 - f)`` of rows with y = 1, ``max(0, 1 + f)`` of those with 0: a support vector machine."""

    def __init__(self, width=1.0):
        self.width = self.first_width = width

    def fitted_to(self, y, weights):
        """See `Loss`: a copy, which has a centre of its own."""
        return Hinge(self.first_width)

    def check(self, y, name):
        """See `Loss`."""
        wrong = np.flatnonzero((y != 0) & (y != 1) & ~np.isnan(y))
        if len(wrong):
            raise DataError(
                f"y holds {y[wrong[0]]:g} in row {wrong[0]}: targets of the hinge loss are 0 and 1; pass "
                "(y == label).astype(float) for a label"
            )

    def kink(self, y):
        """See `KinkedLoss`."""
        return 2 * y - 1

    def range(self, y):
        """See `KinkedLoss`."""
        return -y, 1 - y

    def start(self, mean):
        """See `Loss`."""
        return 1.0 if mean > 0.5 else -1.0

    def mean(self, f):
        """See `Loss`; 1 where the predictor is above 0, else 0."""
        return (f > 0).astype(np.float64)


class RootMeanSquare(Loss):
    """The root of the mean square of the residuals, of the square-root lasso: no mean of losses of rows.

    The best strength of a penalty then does not depend on the size of the noise.
    """

    centre = 0.0
    narrower = 1.3  # slowly: where the residuals vanish, narrow problems are nearly singular

    def __init__(self, width=1.0):
        self.width = self.first_width = width

    def fitted_to(self, y, weights):
        """See `Loss`; the width is a share of the standard deviation of the targets."""
        return RootMeanSquare(5e-2 * float(np.sqrt(weights @ (y - weights @ y) ** 2)) or 1.0)

    def over_rows(self, y, weights, offset):
        """See `Loss`."""
        return RootOfRows(self, y, weights, offset)

    def start(self, mean):
        """See `Loss`."""
        return mean


class RootOfRows(KinkedRows):
    r"""``s = |r|`` with ``|r|^2 = \sum_i w_i r_i^2``; its kink is where all residuals are 0.

    Slopes v have a size of at most 1. With ``z = c + r / width`` and ``t = max(1, |z|)`` they are ``z / t``.
    The Hessian is ``W / (t width)``, less ``u u^T / (t width)`` with ``u = W v`` where ``|z| > 1``.
    """

    by_rows = linear = False

    def __init__(self, loss, y, weights, offset=None):
        super().__init__(loss, y, weights, offset)
        self.has_conjugate = True

    def _size(self, v):
        return float(np.sqrt(self.weights @ (v**2)[:, 0]))

    def _stretch(self, f):
        """The slopes v, and the size of z, at least 1."""
        z = self.loss.centre + (f - self.y) / self.loss.width
        t = max(1.0, self._size(z))
        return z / t, t

    def slopes_of_rows(self, f):
        """See `KinkedRows`."""
        return self._stretch(f)[0]

    def residuals(self, f):
        """See `KinkedRows`."""
        return f - self.y

    def value(self, f):
        """See `MeanLoss`."""
        v = self.slopes_of_rows(f)
        total = float(np.sum(self.weights[:, None] * v * (f - self.y)))
        total -= self.loss.width / 2 * self._size(v - self.loss.centre) ** 2
        return total if np.isfinite(total) else np.inf

    def objective(self, f):
        """See `MeanLoss`."""
        return self._size(f - self.y)

    def gradient(self, f):
        """See `MeanLoss`."""
        return self.weights[:, None] * self.slopes_of_rows(f)

    def steepness(self, f):
        """See `MeanLoss`."""
        return self.weights / (self._stretch(f)[1] * self.loss.width)

    def gram(self, f, columns, part, intercept, floor=0.0):
        """See `MeanLoss`."""
        v, t = self._stretch(f)
        scale = t * self.loss.width
        u = self.weights[:, None] * v if t > 1 else np.zeros_like(v)
        slopes = columns.slopes(part, u)
        H = columns.gram(part, self.weights / scale) - slopes @ slopes.T / scale
        if not intercept:
            return H, None, 0.0
        excess = float(u.sum())
        ones = columns.slopes(part, self.weights) / scale - slopes[:, 0] * (excess / scale)
        return H, ones, (float(self.weights.sum()) - excess**2) / scale

    def balanced(self, u):
        """See `MeanLoss`: the nearest slopes of sum 0, whose size is no larger."""
        return u - self.weights[:, None] * (u.sum() / self.weights.sum())

    def conjugate(self, u, scale, f):
        """See `MeanLoss`."""
        there = self.weights > 0
        u = scale * u[:, 0]
        if u[there] @ (u[there] / self.weights[there]) > 1 + 1e-12:
            return np.inf
        y = self.y[:, 0] if self.offset is None else self.y[:, 0] - self.offset[:, 0]
        return float(u @ y)

    def least(self):
        """See `MeanLoss`."""
        return 0.0
