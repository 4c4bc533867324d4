"""Losses with a kink, which are smoothed within a width that the solver lets fall.

`value` is that of the smooth loss, `exact` that of the loss itself. `conjugate` is of the exact loss, so that
the duality gap is that of the exact problem.
"""

import numpy as np

from ....errors import DataError
from .losses import Loss
from .mean_loss import MeanLoss


class Pinball(Loss):
    """The loss of a quantile, smooth within `width` of a kink: the solver lets the width fall.

    Its value is that of the smooth loss; `exact` is that of the quantile. `conjugate` is of the exact loss,
    so that the gap is that of the exact problem.
    """

    @property
    def flat(self):
        """See `Loss`."""
        return 1 / self.width

    def __init__(self, quantile=0.5, width=1.0):
        if not 0 < quantile < 1:
            raise DataError(f"quantile={quantile} must lie between 0 and 1, both excluded")
        self.quantile, self.width = float(quantile), width

    def gradient(self, y, f):
        """See `Loss`."""
        return np.clip((f - y) / self.width, -self.quantile, 1 - self.quantile)

    def value(self, y, f):
        """See `Loss`."""
        u = self.gradient(y, f)
        return u * (f - y) - self.width * u * u / 2

    def curvature(self, y, f):
        """See `Loss`."""
        r = (f - y) / self.width
        return ((r >= -self.quantile) & (r <= 1 - self.quantile)) / self.width

    def fitted_to(self, y, weights):
        """See `Loss`; the width is the mean distance of the targets from their mean."""
        return Pinball(self.quantile, float(weights @ np.abs(y - weights @ y)) or 1.0)

    def exact(self, y, f):
        """The loss without smoothing."""
        return np.maximum(self.quantile * (y - f), (self.quantile - 1) * (y - f))

    def conjugate(self, y, u):
        """See `Loss`."""
        inside = (u >= -self.quantile - 1e-12) & (u <= 1 - self.quantile + 1e-12)
        return np.where(inside, u * y, np.inf)

    def start(self, mean):
        """See `Loss`."""
        return mean


class Hinge(Loss):
    """``max(0, 1 - f)`` of rows with y = 1, ``max(0, 1 + f)`` of those with 0: a support vector machine."""

    def __init__(self, width=1.0):
        self.width = width

    @property
    def flat(self):
        """See `Loss`."""
        return 1 / self.width

    def check(self, y, name):
        """See `Loss`."""
        wrong = np.flatnonzero((y != 0) & (y != 1))
        if len(wrong):
            raise DataError(
                f"y holds {y[wrong[0]]:g} in row {wrong[0]}: targets of the hinge loss are 0 and 1; pass "
                "(y == label).astype(float) for a label"
            )

    def _slope(self, y, f):
        """Derivative by the margin ``f`` or ``-f``, from -1 to 0."""
        return np.clip(((2 * y - 1) * f - 1) / self.width, -1, 0)

    def value(self, y, f):
        """See `Loss`."""
        u = self._slope(y, f)
        return u * ((2 * y - 1) * f - 1) - self.width * u * u / 2

    def gradient(self, y, f):
        """See `Loss`."""
        return (2 * y - 1) * self._slope(y, f)

    def curvature(self, y, f):
        """See `Loss`."""
        r = ((2 * y - 1) * f - 1) / self.width
        return ((r >= -1) & (r <= 0)) / self.width

    def exact(self, y, f):
        """The loss without smoothing."""
        return np.maximum(0, 1 - (2 * y - 1) * f)

    def conjugate(self, y, u):
        """See `Loss`."""
        v = (2 * y - 1) * u
        return np.where((v >= -1 - 1e-12) & (v <= 1e-12), v, np.inf)

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

    def __init__(self, width=1.0):
        self.width = width

    def fitted_to(self, y, weights):
        """See `Loss`; the width is a share of the standard deviation of the targets."""
        return RootMeanSquare(1e-2 * float(np.sqrt(weights @ (y - weights @ y) ** 2)) or 1.0)

    def over_rows(self, y, weights, offset):
        """See `Loss`."""
        return RootOfRows(self, y, weights, offset)

    def start(self, mean):
        """See `Loss`."""
        return mean


class RootOfRows(MeanLoss):
    r"""``s = \sqrt{\sum_i w_i r_i^2}``, smooth as ``t = \sqrt{s^2 + width^2}``.

    The slopes are ``u = W r / t``, the Hessian is ``(W - u u^T) / t``, and the conjugate of the exact loss is
    ``u y`` where ``u^T W^{-1} u <= 1``.
    """

    by_rows = False

    def __init__(self, loss, y, weights, offset=None):
        super().__init__(loss, y, weights, offset)
        self.has_conjugate = True

    def _square(self, f):
        return float(self.weights @ ((f - self.y) ** 2)[:, 0])

    def value(self, f):
        """See `MeanLoss`."""
        total = float(np.sqrt(self._square(f) + self.loss.width**2))
        return total if np.isfinite(total) else np.inf

    def objective(self, f):
        """See `MeanLoss`."""
        return float(np.sqrt(self._square(f)))

    def gradient(self, f):
        """See `MeanLoss`."""
        return (f - self.y) * (self.weights / self.value(f))[:, None]

    def steepness(self, f):
        """See `MeanLoss`."""
        return self.weights / self.value(f)

    def gram(self, f, columns, part, intercept, floor=0.0):
        """See `MeanLoss`."""
        t, u = self.value(f), self.gradient(f)
        slopes = columns.slopes(part, u)
        H = columns.gram(part, self.weights / t) - slopes @ slopes.T / t
        if not intercept:
            return H, None, 0.0
        excess = float(u.sum())
        ones = columns.slopes(part, self.weights) / t - slopes[:, 0] * (excess / t)
        return H, ones, (float(self.weights.sum()) - excess**2) / t

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
