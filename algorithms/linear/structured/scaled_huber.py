r"""Huber's loss with the scale of the residuals: the least over the scale, convex in the predictors.

.. math:: L(f) = \min_s \sum_i w_i \left(s + s H((y_i - f_i) / s)\right),\qquad w_i \ge 0 \text{ of sum } 1

The best scale solves ``s^2 (1 - epsilon^2 W_out) = sum of w r^2`` over the rows within ``epsilon s``, W_out
being the weight of the others. The slopes of L are those at that scale, and its Hessian is that at that scale
less a matrix of rank one: how the scale follows the residuals.
"""

from typing import Any

import numpy as np

from ....errors import DataError
from .losses import Loss
from .mean_loss import MeanLoss
from .solving.solver import Solver

_STEPS, _HALVINGS = 50, 30  # of Newton's method, and of a step
_LEAST_SCALE = 1e-6  # of the mean distance of y from its mean: half of the rows may fit perfectly


class ScaledHuber(Loss):
    """The loss of `HuberRegressor`: no mean of losses of rows."""

    flat = 1.0

    def __init__(self, epsilon=1.35, least=1e-300):
        if not 1 <= epsilon < np.inf:
            raise DataError(f"epsilon={epsilon} of Huber's loss must be finite and at least 1")
        self.epsilon, self.least_scale = float(epsilon), least

    def fitted_to(self, y, weights):
        """See `Loss`; what the scale is at least, is of the size of y."""
        return ScaledHuber(self.epsilon, _LEAST_SCALE * float(weights @ np.abs(y - weights @ y)) or 1e-300)

    def over_rows(self, y, weights, offset):
        """See `Loss`."""
        return HuberOfRows(self, y, weights, offset)

    def start(self, mean):
        """See `Loss`."""
        return mean


class HuberOfRows(MeanLoss):
    """L of all rows; see the module."""

    by_rows = False

    def __init__(self, loss, y, weights, offset=None):
        super().__init__(loss, y, weights, offset)
        self.has_conjugate, self.last = False, None
        self._state_of: Any = None

    def _scale(self, r):
        """The best scale of residuals."""
        sizes = np.abs(r)
        order = np.argsort(sizes)
        sizes, w = sizes[order], self.weights[order]
        inside, squares = np.cumsum(w), np.cumsum(w * sizes**2)
        left = 1 - self.loss.epsilon**2 * np.maximum(inside[-1] - inside, 0.0)
        # With the first k rows inside, the derivative by s at s = |r_k| / epsilon is left - squares / s^2.
        rises = left * sizes**2 > self.loss.epsilon**2 * squares
        k = len(sizes) - 1 if not rises.any() else max(int(np.argmax(rises)) - 1, 0)
        return max(float(np.sqrt(squares[k] / left[k])) if left[k] > 0 else 0.0, self.loss.least_scale)

    def state(self, f):
        """Residuals, their scale, and which are within."""
        if self._state_of is None or self._state_of[0] is not f:
            r = (self.y - f)[:, 0]
            s = self._scale(r)
            self._state_of = f, (r, s, np.abs(r) <= self.loss.epsilon * s)
        return self._state_of[1]

    def value(self, f):
        """See `MeanLoss`."""
        r, s, within = self.state(f)
        e = self.loss.epsilon
        with np.errstate(over="ignore", invalid="ignore"):
            total = s + float(self.weights @ np.where(within, r * r / s, 2 * e * np.abs(r) - e * e * s))
        return total if np.isfinite(total) else np.inf

    def rise(self, f, d):
        """See `MeanLoss`."""
        return self.value(f + d) - self.value(f)

    def objective(self, f):
        """See `MeanLoss`."""
        self.last = f
        return self.value(f)

    def at_last(self):
        """The scale where the objective was asked for last, and which rows are beyond epsilon of it."""
        _, s, within = self.state(self.last)
        return s, ~within

    def gradient(self, f):
        """See `MeanLoss`."""
        r, s, _ = self.state(f)
        e = self.loss.epsilon
        return (-2 * self.weights * np.clip(r / s, -e, e))[:, None]

    def curvature(self, f, floor=0.0):
        """See `MeanLoss`: a bound, of the scale as it is."""
        _, s, within = self.state(f)
        return self.weights * np.maximum(within, floor) * (2 / s)

    def steepness(self, f):
        """See `MeanLoss`."""
        return self.weights * (2 / self.state(f)[1])

    def gram(self, f, columns, part, intercept, floor=0.0):
        """See `MeanLoss`."""
        r, s, within = self.state(f)
        h = self.curvature(f, floor)
        u = self.weights * r * within
        square = float(u @ r)
        bend = 2 / (s * square) if square > 0 and s > self.loss.least_scale else 0.0
        slopes = columns.slopes(part, u[:, None])
        H = columns.gram(part, h) - bend * (slopes @ slopes.T)
        if not intercept:
            return H, None, 0.0
        ones = columns.slopes(part, h) - slopes[:, 0] * (bend * float(u.sum()))
        return H, ones, float(h.sum()) - bend * float(u.sum()) ** 2

    def least(self):
        """See `MeanLoss`."""
        return 0.0


class HuberSolver(Solver):
    """A `Solver` that takes Newton's steps of the scaled loss at once, where no column has a kink."""

    def _newton(self, penalty, tol, *, few=False):
        """See `Solver`."""
        loss, m = self.loss, len(self.places)
        if self.columns.is_sparse or m + self.fit_intercept == 0 or not penalty.free[self.inside].all():
            return super()._newton(penalty, tol, few=few)
        A = np.hstack([self.part, np.ones((len(self.f), 1))]) if self.fit_intercept else self.part
        b, f, e = np.append(self.B[self.places, 0], self.c[: self.fit_intercept]), self.f, loss.loss.epsilon
        ridge = np.zeros(len(b))
        if penalty.ridge is not None:
            ridge[:m] = penalty.ridge[self.places]
        value, floor, resting = loss.value(f) + 0.5 * ridge @ b**2, 1e-2, 0
        for _ in range(_STEPS):
            r, s, within = loss.state(f)
            u = loss.weights * np.clip(r / s, -e, e)
            g = ridge * b - 2 * (A.T @ u)
            if np.abs(g).max() <= tol or resting > 8:
                break
            h = loss.weights * np.maximum(within, floor) * (2 / s)
            H = (A * h[:, None]).T @ A + np.diag(ridge)
            inside = u * s * within
            if (square := float(inside @ r)) > 0 and s > loss.loss.least_scale:
                slopes = A.T @ inside
                H -= np.outer(slopes, slopes) * (2 / (s * square))
            step = np.linalg.lstsq(H, -g, rcond=1e-14)[0]
            moved, t = A @ step, 1.0
            for _ in range(_HALVINGS):
                after = loss.value(f + t * moved[:, None]) + 0.5 * ridge @ (b + t * step) ** 2
                if after <= value + 1e-14 * abs(value):
                    break
                t /= 2
            b, f = b + t * step, f + t * moved[:, None]
            floor = max(floor / 4, 1e-9) if t == 1 else min(10 * floor, 1.0)
            resting, value = resting + 1 if after >= value else 0, min(after, value)
        self.B[self.places, 0], self.f = b[:m], f
        self.c = b[m:] if self.fit_intercept else self.c
        return True
