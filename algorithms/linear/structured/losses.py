"""Losses of the generic solver: the protocol for one of your own, and the built-in ones.

A loss is a function of a target and a linear predictor. A class with `value`, `gradient` and `curvature` is
enough; with `conjugate` the fit stops at a duality gap, without it at the violation of the optimality
conditions.
"""

from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax, xlogy

from ...._typing import Array
from ....errors import DataError
from .mean_loss import MeanLoss

_FAR = 30.0  # of a logarithm below that of y: losses are then as far above their least as they are large
_LEAST_SHARE = float(np.finfo(np.float64).eps)  # of a class at the start: one may have no weight


class Loss:
    """Base of losses ``loss(y_i, f_i)`` of a target and a linear predictor; subclass it for one of your own.

    Methods take and return arrays of one entry a row. Weights, offsets and the sum over rows are the
    solver's.

    Attributes
    ----------
    conjugate : callable or None
        ``conjugate(y, u)``, the supremum over f of ``u f - loss(y, f)``: infinite where there is none.
    quadratic : bool
        True if the curvature is constant: products of columns are then made once.
    convex : bool
        Whether the loss is convex in f.
    flat : float
        The largest curvature, where it may be 0 although the slope is not; else 0.
    positive_mean : bool
        True if predictions are ``exp(f)``, so that an exposure makes sense.
    several : bool
        True if y and f are matrices of a column each for the classes.

    Examples
    --------
    The logarithm of the hyperbolic cosine:

    >>> import numpy as np
    >>> import stradask as sd
    >>> class LogCosh(sd.Loss):
    ...     def value(self, y, f):
    ...         return np.logaddexp(f - y, y - f) - np.log(2)
    ...     def gradient(self, y, f):
    ...         return np.tanh(f - y)
    ...     def curvature(self, y, f):
    ...         return 1 - np.tanh(f - y) ** 2
    >>> X, y = np.eye(4), np.array([3.0, 0, 0, 0])
    >>> model = sd.SparseGLM(LogCosh(), alpha=0.1, fit_intercept=False).fit(X, y)
    >>> model.coef_.round(2), model.stopped_by_
    (array([2.58, 0.  , 0.  , 0.  ]), 'kkt violation')
    """

    conjugate: Any = None
    quadratic = False
    convex = True
    positive_mean = False
    several = False
    flat: Any = 0.0

    def check(self, y: Array, name: str) -> None:
        """Refuse targets that the loss cannot take: raise a ValueError. Rows of weight 0 are NaN."""

    def value(self, y: Array, f: Array) -> Array:
        """The loss of each row."""
        raise NotImplementedError(f"{type(self).__name__} must define value(y, f)")

    def gradient(self, y: Array, f: Array) -> Array:
        """Its derivative by f."""
        raise NotImplementedError(f"{type(self).__name__} must define gradient(y, f)")

    def curvature(self, y: Array, f: Array) -> Array:
        """Its second derivative by f, or a bound of it; not negative."""
        raise NotImplementedError(f"{type(self).__name__} must define curvature(y, f)")

    def fitted_to(self, y: Array, weights: Array) -> "Loss":
        """The loss with what it takes from targets and weights (of sum 1); most take nothing."""
        return self

    def over_rows(self, y: Array, weights: Array, offset: Any) -> MeanLoss:
        """The loss of all rows (y of shape (n_samples, n_outputs), weights of sum 1): their mean."""
        return MeanLoss(self, y, weights, offset)

    def least(self, y: Array) -> Array:
        """The least value of each row, of a model that knows y: it sets the scale of `tol`."""
        return np.zeros(y.shape)

    def excess(self, y: Array, f: Array) -> Array:
        """The loss of each row above its least: half the deviance."""
        return self.value(y, f) - self.least(y)

    def start(self, mean: float) -> float:
        """An intercept to begin with, from the mean of y."""
        return 0.0

    def mean(self, f: Array) -> Array:
        """The prediction that belongs to a linear predictor."""
        return f


class Squared(Loss):
    """``(y - f)^2 / 2``; also of several targets."""

    code = 0  # as `kernels.linear.newton` knows it

    quadratic = True

    def value(self, y, f):
        """See `Loss`."""
        return (f - y) ** 2 / 2

    def gradient(self, y, f):
        """See `Loss`."""
        return f - y

    def curvature(self, y, f):
        """See `Loss`."""
        return np.ones(len(f))

    def conjugate(self, y, u):
        """See `Loss`."""
        return u * (u / 2 + y)

    def start(self, mean):
        """See `Loss`."""
        return mean


class Logistic(Loss):
    """``log(1 + exp(f)) - y f`` of y from 0 to 1."""

    code = 1  # as `kernels.linear.newton` knows it

    def check(self, y, name):
        """See `Loss`."""
        wrong = np.flatnonzero((y < 0) | (y > 1))
        if len(wrong):
            raise DataError(
                f"y holds {y[wrong[0]]:g} in row {wrong[0]}: targets of the logistic loss are 0, 1 or "
                "shares between; GroupLogisticRegression takes labels"
            )

    def value(self, y, f):
        """See `Loss`."""
        return np.logaddexp(0, f) - y * f

    def gradient(self, y, f):
        """See `Loss`."""
        return expit(f) - y

    def curvature(self, y, f):
        """See `Loss`."""
        return expit(f) * expit(-f)

    def conjugate(self, y, u):
        """See `Loss`."""
        p = np.clip(u + y, 0, 1)
        return xlogy(p, p) + xlogy(1 - p, 1 - p)

    def least(self, y):
        """See `Loss`."""
        return -xlogy(y, y) - xlogy(1 - y, 1 - y)

    def start(self, mean):
        """See `Loss`."""
        mean = np.clip(mean, _LEAST_SHARE, 1 - _LEAST_SHARE)
        return np.log(mean / (1 - mean))

    def mean(self, f):
        """See `Loss`."""
        return expit(f)


class _Log(Loss):
    """A loss with a logarithmic link."""

    positive_mean = True
    allows_zero = True

    def check(self, y, name):
        """See `Loss`."""
        wrong = np.flatnonzero(y < 0 if self.allows_zero else y <= 0)
        if len(wrong):
            least = "0 or above" if self.allows_zero else "above 0"
            raise DataError(f"y holds {y[wrong[0]]:g} in row {wrong[0]}: the targets of {name} are {least}")
        if not np.nansum(y):
            raise DataError(f"y is 0 in every row: {name} needs at least one target above 0")

    def start(self, mean):
        """See `Loss`."""
        return np.log(mean) if mean > 0 else 0.0

    def mean(self, f):
        """See `Loss`."""
        return np.exp(f)


class Multinomial(Loss):
    """``log(sum_k exp(f_k)) - sum_k y_k f_k`` of shares y of the classes, a column each.

    Every class has coefficients and an intercept. The Hessian of a row is ``diag(p) - p p^T``; the curvature
    is a bound of its largest eigenvalue, so that steps of the solver always descend.
    """

    code = 5  # as `kernels.linear.class_newton` knows it

    several = True

    def check(self, y, name):
        """See `Loss`."""
        if y.ndim != 2 or y.shape[1] < 2:
            raise DataError(
                f"y has the shape {y.shape}: targets of the multinomial loss are a column a class, of 0, 1 "
                "or shares; GroupLogisticRegression takes labels"
            )
        wrong = np.flatnonzero((y < 0).any(axis=1) | (np.abs(y.sum(axis=1) - 1) > 1e-9))
        if len(wrong):
            raise DataError(
                f"y holds {y[wrong[0]].tolist()} in row {wrong[0]}: the shares of a row are 0 or above and "
                "sum to 1"
            )
        empty = np.flatnonzero(np.nansum(y, axis=0) == 0)
        if len(empty):
            raise DataError(f"y has no row with weight of the class in column {empty[0]}: leave it out")

    def value(self, y, f):
        """See `Loss`; the sum over the columns is the loss."""
        return y * (logsumexp(f, axis=1, keepdims=True) - f)

    def gradient(self, y, f):
        """See `Loss`."""
        return softmax(f, axis=1) - y

    def curvature(self, y, f):
        """See `Loss`: the least of Gershgorin's bound and the largest probability."""
        p = softmax(f, axis=1)
        return np.minimum((2 * p * (1 - p)).max(axis=1), p.max(axis=1))

    def conjugate(self, y, u):
        """See `Loss`."""
        p = np.clip(u + y, 0, 1)
        return xlogy(p, p)

    def balanced(self, y, u):
        """Slopes of sum zero over rows, where `y` and `u` have been multiplied by the weights.

        What a class has too much goes, row by row, to those that have too little: shares stay shares.
        """
        shares = np.maximum(u + y, 0)
        excess = shares.sum(axis=0) - y.sum(axis=0)
        over, under = excess > 0, excess < 0
        if not (over.any() and under.any()):
            return u
        taken = shares[:, over] * (excess[over] / shares[:, over].sum(axis=0))
        shares[:, over] -= taken
        shares[:, under] += np.outer(taken.sum(axis=1), excess[under] / excess[under].sum())
        return shares - y

    def least(self, y):
        """See `Loss`."""
        return -xlogy(y, y)

    def start(self, mean):
        """See `Loss`."""
        return np.log(max(mean, _LEAST_SHARE))

    def mean(self, f):
        """See `Loss`."""
        return softmax(f, axis=1)


class Poisson(_Log):
    """``exp(f) - y f`` of counts, or other numbers that are not negative."""

    code = 2  # as `kernels.linear.newton` knows it

    def value(self, y, f):
        """See `Loss`."""
        return np.exp(f) - y * f

    def gradient(self, y, f):
        """See `Loss`."""
        return np.exp(f) - y

    def curvature(self, y, f):
        """See `Loss`."""
        return np.exp(f)

    def conjugate(self, y, u):
        """See `Loss`."""
        mean = np.maximum(u + y, 0)
        return xlogy(mean, mean) - mean

    def least(self, y):
        """See `Loss`."""
        return y - xlogy(y, y)

    def excess(self, y, f):
        """See `Loss`; without the difference of large numbers."""
        u = f - np.log(np.where(y > 0, y, 1.0))
        return np.where(y > 0, y * (np.expm1(u) - u), np.exp(f))


class Gamma(_Log):
    """``y exp(-f) + f`` of targets above 0: half the gamma deviance, but for a constant."""

    code = 3  # as `kernels.linear.newton` knows it

    allows_zero = False

    def value(self, y, f):
        """See `Loss`."""
        return y * np.exp(-f) + f

    def gradient(self, y, f):
        """See `Loss`."""
        return 1 - y * np.exp(-f)

    def curvature(self, y, f):
        """See `Loss`."""
        return y * np.exp(-f)

    def conjugate(self, y, u):
        """See `Loss`."""
        rest = 1 - u
        return np.where(rest > 0, -rest * (np.log(y) + 1) + xlogy(rest, np.maximum(rest, 0)), np.inf)

    def least(self, y):
        """See `Loss`."""
        return 1 + np.log(y)

    def excess(self, y, f):
        """See `Loss`; without the difference of large numbers."""
        u = np.log(y) - f
        return np.expm1(u) - u


class Tweedie(_Log):
    """Half the Tweedie deviance of a power between 1 and 2, with a logarithmic link; y of 0 and above."""

    def __init__(self, power=1.5):
        if not 1 < power < 2:
            raise DataError(
                f"power={power} of the Tweedie loss must lie between 1 and 2; take loss='poisson' for 1, "
                "'gamma' for 2"
            )
        self.power = float(power)

    def value(self, y, f):
        """See `Loss`."""
        p = self.power
        return np.exp((2 - p) * f) / (2 - p) - _times_power(y, (1 - p) * f) / (1 - p)

    def gradient(self, y, f):
        """See `Loss`."""
        return np.exp((2 - self.power) * f) - _times_power(y, (1 - self.power) * f)

    def curvature(self, y, f):
        """See `Loss`."""
        p = self.power
        return (2 - p) * np.exp((2 - p) * f) - (1 - p) * _times_power(y, (1 - p) * f)

    def least(self, y):
        """See `Loss`."""
        return y ** (2 - self.power) * (1 / (2 - self.power) - 1 / (1 - self.power))


def _times_power(y, exponent):
    """``y exp(exponent)``: 0 where y is, also if the other overflows."""
    return y * np.exp(np.where(y == 0, 0.0, exponent))


class NegativeBinomial(_Log):
    """Counts that vary more than Poisson's: variance ``m + overdispersion m^2`` at the mean m; log link.

    ``(y + 1/a) log(1 + a exp(f)) - y f`` with a = `overdispersion`.
    """

    def __init__(self, overdispersion=1.0):
        if not 0 < overdispersion < np.inf:
            raise DataError(
                f"overdispersion={overdispersion} of the negative binomial loss must be finite and above 0; "
                "take loss='poisson' for 0"
            )
        self.overdispersion = float(overdispersion)

    def value(self, y, f):
        """See `Loss`."""
        a = self.overdispersion
        return (y + 1 / a) * np.logaddexp(0, f + np.log(a)) - y * f

    def gradient(self, y, f):
        """See `Loss`."""
        z = f + np.log(self.overdispersion)
        return expit(z) / self.overdispersion - y * expit(-z)

    def curvature(self, y, f):
        """See `Loss`."""
        z = f + np.log(self.overdispersion)
        return (y + 1 / self.overdispersion) * expit(z) * expit(-z)

    def conjugate(self, y, u):
        """See `Loss`."""
        a = self.overdispersion
        share = (u + y) / (y + 1 / a)
        inside = np.clip(share, 0, 1)
        entropy = xlogy(inside, inside) + xlogy(1 - inside, 1 - inside)
        value = (y + 1 / a) * entropy - (u + y) * np.log(a)
        return np.where((share >= -1e-12) & (share <= 1 + 1e-12), value, np.inf)

    def least(self, y):
        """See `Loss`."""
        a = self.overdispersion
        return (y + 1 / a) * np.log1p(a * y) - xlogy(y, y)

    def excess(self, y, f):
        """See `Loss`; without the difference of large numbers."""
        a = self.overdispersion
        u, share = f - np.log(np.where(y > 0, y, 1.0)), a * y / (1 + a * y)
        near = np.maximum(u, -_FAR)
        by_size = (y + 1 / a) * np.log1p(share * np.expm1(near)) - y * near
        by_count = near / a + (y + 1 / a) * np.log1p(np.expm1(-near) / (1 + a * y))
        return np.where(
            (y > 0) & (u >= -_FAR), np.where(share < 0.5, by_size, by_count), super().excess(y, f)
        )


class Huber(Loss):
    """Half the square of a residual up to `delta`, linear beyond: outliers count less."""

    code = 4  # as `kernels.linear.newton` knows it

    flat = 1.0

    def __init__(self, delta=1.35):
        if not 0 < delta < np.inf:
            raise DataError(f"delta={delta} of the Huber loss must be finite and above 0")
        self.delta = float(delta)

    def value(self, y, f):
        """See `Loss`."""
        inside = np.clip(f - y, -self.delta, self.delta)
        return inside * (f - y) - inside**2 / 2

    def gradient(self, y, f):
        """See `Loss`."""
        return np.clip(f - y, -self.delta, self.delta)

    def curvature(self, y, f):
        """See `Loss`."""
        return (np.abs(f - y) <= self.delta).astype(np.float64)

    def conjugate(self, y, u):
        """See `Loss`."""
        return np.where(np.abs(u) <= self.delta * (1 + 1e-12), u * (u / 2 + y), np.inf)

    def start(self, mean):
        """See `Loss`."""
        return mean
