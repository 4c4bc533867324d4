"""A loss over the rows of a fit: values, slopes, curvature and conjugate of the weighted mean."""

import numpy as np

from ....kernels.linear import class_newton
from ....kernels.linear import newton as kernels

_LEAST_WEIGHT = 1e-300
_NULL_STEPS, _NULL_CHANGE = 200, 1e-12  # of the intercept of the model without columns: a cap; relative


class MeanLoss:
    """A loss over the rows of a fit: the weighted mean, at a predictor that includes the offset.

    `y`: (n_samples, n_outputs). `weights`: (n_samples,), of sum 1. Predictors and slopes have the form of y.
    """

    by_rows = True  # the curvature is one number a row

    def __init__(self, loss, y, weights, offset=None):
        self.loss, self.y, self.weights, self.offset = loss, y, weights, offset
        self.quadratic, self.convex, self.n_outputs = loss.quadratic, loss.convex, y.shape[1]
        self.flat = bool(loss.flat)
        self.has_conjugate = loss.convex and loss.conjugate is not None
        # Its number in the kernels: of the class itself, since another may change what it inherits.
        code = vars(type(loss)).get("code") if type(self) is MeanLoss else None
        self.code = code if (code == class_newton.MULTINOMIAL) == (self.n_outputs > 1) else None
        self.shares = np.ascontiguousarray(y.T, np.float64) if self.code == class_newton.MULTINOMIAL else None
        self.delta = float(getattr(loss, "delta", 0.0))
        self._last: tuple = (None, None)

    def _rows(self, f):
        """Loss, slopes and curvatures at a predictor; those of the last one are kept."""
        if self._last[0] is not f and self.quadratic:
            rest = f - self.y
            u = self.weights[:, None] * rest
            self._last = f, (0.5 * float(u[:, 0] @ rest[:, 0]), u, self.weights)
        elif self._last[0] is not f and self.shares is not None:
            p, u, F = np.empty(f.shape[::-1]), np.empty(f.shape[::-1]), np.ascontiguousarray(f.T)
            self._last = f, (class_newton.class_losses(self.shares, self.weights, F, p, u), u.T, None)
        elif self._last[0] is not f:
            u, h = np.empty((len(f), 1)), np.empty(len(f))
            arrays = self.y[:, 0], self.weights, np.ascontiguousarray(f[:, 0]), u[:, 0], h
            self._last = f, (kernels.row_losses(self.code, self.delta, *arrays), u, h)
        return self._last[1]

    def at(self, f):
        """Loss, slopes (n_samples,) and curvatures at a predictor, which the caller may change."""
        value, u, h = self._rows(f)
        return value, u[:, 0].copy(), h.copy()

    def value(self, f):
        """The mean loss; infinite where it overflows."""
        if self.code is not None:
            return value if np.isfinite(value := self._rows(f)[0]) else np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(self.weights @ self.loss.value(self.y, f).sum(axis=1))
        return total if np.isfinite(total) else np.inf

    def rise(self, f, d):
        """How far the mean loss rises by a change d of f: not the difference of two means, which rounds."""
        if self.quadratic:
            return float(self.weights @ (d * (self.loss.gradient(self.y, f) + d / 2)).sum(axis=1))
        with np.errstate(over="ignore", invalid="ignore"):
            each = self.loss.value(self.y, f + d) - self.loss.value(self.y, f)
            total = float(self.weights @ each.sum(axis=1))
        return total if np.isfinite(total) else np.inf

    def objective(self, f):
        """The mean loss that is reported: without smoothing."""
        exact = getattr(self.loss, "exact", None)
        return self.value(f) if exact is None else float(self.weights @ exact(self.y, f).sum(axis=1))

    def gradient(self, f):
        """Its derivative by f."""
        if self.code is not None:
            return self._rows(f)[1]
        return self.loss.gradient(self.y, f) * self.weights[:, None]

    def curvature(self, f, floor=0.0):
        """Second derivative of the mean loss by the predictor of each row.

        `floor`: the least curvature of a row, as a share of the largest.
        """
        if self.code is not None and self.shares is None:
            h = self._rows(f)[2]
            return np.maximum(h, floor * self.loss.flat * self.weights) if floor else h
        curvature = self.loss.curvature(self.y, f)
        curvature = curvature if curvature.ndim == 1 else curvature[:, 0]
        if floor:
            curvature = np.maximum(curvature, floor * self.loss.flat)
        return self.weights * curvature

    def gram(self, f, columns, part, intercept, floor=0.0):
        """Products of columns, of columns and the intercept, and of the intercept: the second-order model."""
        h = self.curvature(f, floor)
        ones = columns.slopes(part, h) if intercept else None
        return columns.gram(part, h), ones, float(h.sum())

    def steepness(self, f):
        """For each row a bound of the curvature of the mean loss, that of the steepest row at a predictor."""
        return self.weights * (float(self.loss.curvature(self.y, f).max()) or 1.0)

    def balanced(self, u):
        """Slopes that sum to zero over the rows, made of those at a predictor: feasible with intercepts."""
        if self.loss.several:
            return self.loss.balanced(self.weights[:, None] * self.y, u)
        return balanced(u)

    def conjugate(self, u, scale, f):
        """Conjugate of the mean loss at a share of its slopes u, those at f."""
        if self.code is not None:
            if self.shares is not None:
                total = class_newton.class_conjugate(
                    self.shares, self.weights, np.ascontiguousarray(u.T), scale
                )
            elif self.quadratic:
                v = u / np.maximum(self.weights, _LEAST_WEIGHT)[:, None]  # of rows without weight u is 0
                total = scale * float(np.sum(u * (0.5 * scale * v + self.y)))
            else:
                rows = self.code, self.delta, self.y[:, 0], self.weights, np.ascontiguousarray(u[:, 0]), scale
                total = kernels.conjugate(*rows)
            return total if self.offset is None else total - scale * float(np.sum(u * self.offset))
        u = scale * u
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            there = self.weights > 0
            each = self.loss.conjugate(self.y[there], u[there] / self.weights[there, None]).sum(axis=1)
        total = float(self.weights[there] @ each)
        return total if self.offset is None else total - float(np.sum(u * self.offset))

    def least(self):
        """The mean loss of a model that knows y."""
        return float(self.weights @ self.loss.least(self.y).sum(axis=1))

    def start(self):
        """Intercepts to begin with: with an offset those of the model without columns."""
        loss, means = self.loss, self.weights @ self.y
        c = np.array([loss.start(mean) for mean in means], dtype=np.float64)
        if self.offset is None:
            return c
        c -= self.weights @ self.offset
        if self.n_outputs == 1 and self.convex and self.by_rows:
            c[0] = null_intercept(self.gradient, self.curvature, self.offset, c[0])
        return c


def null_intercept(gradient, curvature, offset, start):
    """Minimise a convex loss over the intercept alone: Newton's steps within a bracket, or to find one.

    ``gradient(f)``, ``curvature(f)``: of all rows, weighted. `start`: a guess; may be far off.
    """
    c, low, high, reach, last = float(start), -np.inf, np.inf, 1.0, np.inf
    for _ in range(_NULL_STEPS):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            slope = float(gradient(offset + c).sum())
            step = float(np.float64(-slope) / float(curvature(offset + c).sum()))
        if slope == 0 or np.isnan(slope):
            break
        low, high = (low, c) if slope > 0 else (c, high)
        if np.isfinite(low) and np.isfinite(high):
            if not low < c + step < high or abs(step) > 0.5 * abs(last):
                step = 0.5 * (low + high) - c
        elif not abs(step) <= reach:
            step, reach = -np.copysign(reach, slope), 2 * reach
        c, last = c + step, step
        if abs(step) <= _NULL_CHANGE * max(abs(c), 1.0):
            break
    return c


def balanced(u):
    """Slopes of sum zero, dual feasible with an intercept. They only shrink, and stay in the domain."""
    total, size = u.sum(axis=0), np.abs(u).sum(axis=0)
    above, below = 0.5 * (size + total), 0.5 * (size - total)
    least = np.minimum(above, below)
    scale = [np.divide(least, size, out=np.ones(len(size)), where=size > least) for size in (above, below)]
    return u * np.where(u > 0, *scale)


def mean_loss(design, loss, y, offset=None):
    """The mean of a loss over the rows of a `Design`."""
    n = design.X.shape[0]
    weights = (np.ones(n) if design.weights is None else design.weights) / n
    offset = None if offset is None else np.reshape(offset, (n, -1))
    return MeanLoss(loss, y.reshape(n, -1).astype(np.float64), weights, offset)
