"""Families of generalised linear models: what a likelihood needs beyond its loss.

The deviance and its derivatives by the linear predictor are those of the losses of `structured.losses`.
"""

from typing import Any

import numpy as np
from scipy.special import betaln, gammaln, log_wright_bessel, logit

from ..structured.losses import Gamma, Logistic, NegativeBinomial, Poisson, Squared, Tweedie

_NEAR = 1e-3  # of the targets: losses less far above their least are computed without differences


class Family:
    """A distribution of targets with its usual link.

    Attributes
    ----------
    loss : Loss
        Minus the log-likelihood of a row, but for constants, as a function of the linear predictor.
    known_dispersion : bool
        Whether the dispersion is 1; else it is estimated.
    counts : bool
        Whether targets should be whole numbers.
    canonical : bool
        Whether the curvature of the loss does not depend on the target: it is its own expectation.
    bounded : bool
        Whether the likelihood may rise without end along a direction, because predictors can leave for
        infinity.
    """

    link = "log"
    loss: Any
    spec: tuple[str, float, float]
    known_dispersion = True
    counts = False
    canonical = False
    bounded = False

    def variance(self, mean):
        """The variance function: the variance of a target at dispersion 1."""
        raise NotImplementedError

    def slope(self, mean):
        """The derivative of the mean by the linear predictor."""
        return mean

    def predictor(self, mean):
        """The linear predictor of a mean."""
        return {"identity": np.asarray, "logit": logit, "log": np.log}[self.link](mean)

    def information(self, f):
        """The expected curvature of the loss of each row."""
        mean = self.loss.mean(f)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = self.slope(mean) ** 2 / self.variance(mean)
        return np.where(mean > 0, each, 0.0)

    def terms(self, y, f, log_y):
        """Half the deviance of each row, and slope and curvature of the loss; `log_y` of targets above 0."""
        return self.loss.excess(y, f), self.loss.gradient(y, f), self.loss.curvature(y, f)

    def pearson(self, y, f):
        """The squared residual of each row over its variance."""
        mean = self.loss.mean(f)
        return np.where(y == mean, 0.0, (y - mean) ** 2 / self.variance(mean))  # 0 / 0 of a perfect fit

    def log_likelihood(self, y, f, weights, dispersion):
        """The log-likelihood of each row, of positive weight."""
        raise NotImplementedError


class _Normal(Family):
    link, loss, known_dispersion, canonical, bounded = "identity", Squared(), False, True, True

    def variance(self, mean):
        return np.ones(len(mean))

    def information(self, f):
        return np.ones(len(f))

    def log_likelihood(self, y, f, weights, dispersion):
        return -0.5 * (weights * (y - f) ** 2 / dispersion - np.log(weights / (2 * np.pi * dispersion)))


class _Binomial(Family):
    link, loss, canonical = "logit", Logistic(), True

    def variance(self, mean):
        return mean * (1 - mean)

    def information(self, f):
        return self.loss.curvature(None, f)

    def terms(self, y, f, log_y):
        e = np.exp(-np.abs(f))
        q = 1 / (1 + e)
        slope, curvature = np.where(f >= 0, q, e * q) - y, e * q * q
        excess = np.maximum(f, 0.0) + np.log1p(e) - y * f
        if ((y > 0) & (y < 1)).any():
            excess -= self.loss.least(y)
        return excess, slope, curvature

    def log_likelihood(self, y, f, weights, dispersion):
        return -weights * self.loss.value(y, f)


class _Poisson(Family):
    loss, counts, canonical = Poisson(), True, True

    def variance(self, mean):
        return mean

    def terms(self, y, f, log_y):
        mean = np.exp(f)
        error = mean - y
        excess = error - y * (f - log_y)
        if excess.sum() < _NEAR * y.sum():  # differences of large numbers
            excess = self.loss.excess(y, f)
        return excess, error, mean

    def log_likelihood(self, y, f, weights, dispersion):
        return -weights * (self.loss.value(y, f) + _log_factorials(y))


def _log_factorials(y):
    """Logarithms of y!; of counts from a table."""
    counts = y.astype(np.int64)
    if (counts != y).any() or counts.max() > len(y):
        return gammaln(y + 1)
    return gammaln(np.arange(1.0, counts.max() + 2))[counts]


class _Gamma(Family):
    loss, known_dispersion, bounded = Gamma(), False, True

    def variance(self, mean):
        return mean**2

    def information(self, f):
        return np.ones(len(f))

    def terms(self, y, f, log_y):
        ratio = np.exp(log_y - f)
        error = ratio - 1
        excess = error - (log_y - f)
        if excess.sum() < _NEAR * len(y):  # differences of large numbers
            excess = self.loss.excess(y, f)
        return excess, -error, ratio

    def pearson(self, y, f):
        return (y * np.exp(-f) - 1) ** 2

    def log_likelihood(self, y, f, weights, dispersion):
        shape = weights / dispersion
        ratio = y * np.exp(-f)
        return shape * (np.log(shape * ratio) - ratio) - gammaln(shape) - np.log(y)


class _Tweedie(Family):
    known_dispersion = False

    def __init__(self, power):
        self.loss = Tweedie(power)

    def variance(self, mean):
        return mean**self.loss.power

    def log_likelihood(self, y, f, weights, dispersion):
        """Of a Poisson number of gamma variables; see Dunn and Smyth, Statistics and Computing 2005."""
        phi, p = dispersion / weights, self.loss.power
        a, there = (2 - p) / (p - 1), y > 0
        x = (y[there] / ((p - 1) * phi[there])) ** a / ((2 - p) * phi[there])
        log_density = -self.loss.value(y, f) / phi
        log_density[there] += log_wright_bessel(a, 0, x) - np.log(y[there])
        return log_density


class _NegativeBinomial(Family):
    counts = True

    def __init__(self, overdispersion):
        self.loss = NegativeBinomial(overdispersion)

    def variance(self, mean):
        return mean * (1 + self.loss.overdispersion * mean)

    def information(self, f):
        mean = self.loss.mean(f)
        return mean / (1 + self.loss.overdispersion * mean)

    def log_likelihood(self, y, f, weights, dispersion):
        size, counted = 1 / self.loss.overdispersion, np.maximum(y, 1e-300)  # a count of 0 adds nothing here
        each = -self.loss.excess(y, f) - y * np.log1p(size / counted) - size * np.log1p(y / size)
        return weights * (each - np.where(y > 0, betaln(counted, size) + np.log(counted), 0.0))


FAMILIES = ("normal", "binomial", "poisson", "gamma", "tweedie", "negative-binomial")


def family_of(name, power=1.5, overdispersion=1.0):
    """Make a family from its name; its `spec` are these arguments, which travel to workers."""
    if name == "tweedie":
        family: Family = _Tweedie(power)
    elif name == "negative-binomial":
        family = _NegativeBinomial(overdispersion)
    else:
        family = {"normal": _Normal, "binomial": _Binomial, "poisson": _Poisson, "gamma": _Gamma}[name]()
    family.spec = (name, float(power), float(overdispersion))
    return family
