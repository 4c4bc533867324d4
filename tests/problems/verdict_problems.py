"""Posteriors that samplers find hard, with their means and standard deviations: closed or by quadrature."""

import math
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
from scipy import special

INF = math.inf


@dataclass(frozen=True)
class Hard:
    """A log density with its gradient, its mean and standard deviation in every parameter, and a start.

    With `measure` these are the moments of ``measure(draws)``: bounded, where the parameters have none.
    `refused` says that there is no posterior, or that it cannot be cut into shards.
    """

    density: Any
    mean: np.ndarray
    sd: np.ndarray
    start: np.ndarray
    log_prior: Any = None
    data: Any = None
    measure: Any = None
    refused: bool = False


def _hard(density, mean, sd, d, start=None, **further):
    mean, sd = np.broadcast_to(mean, d).astype(float), np.broadcast_to(sd, d).astype(float)
    return Hard(density, mean, sd, np.full(d, 0.1) if start is None else np.asarray(start, float), **further)


def _mixture(parts, middles, widths, d):
    """Normal densities with equal widths in all directions, the middles along the diagonal."""
    parts, middles, widths = map(np.array, (parts, middles, widths))

    def density(q, x):
        rest = (q - middles[:, None]) / widths[:, None]
        logps = np.log(parts) - d * np.log(widths) - 0.5 * (rest**2).sum(axis=1)
        total = special.logsumexp(logps)
        return total, -np.exp(logps - total) @ (rest / widths[:, None])

    mean = parts @ middles
    sd = math.sqrt(parts @ (widths**2 + middles**2) - mean**2)
    return _hard(density, mean, sd, d)


def funnel(d=5):
    """Neal's: v ~ N(0, 3^2), the others N(0, e^v)."""

    def density(q, x):
        v, z = q[0], q[1:]
        s = z @ z * np.exp(-v)
        return (-(v**2) / 18 - 0.5 * s - 0.5 * (d - 1) * v), np.append(
            -v / 9 + 0.5 * s - 0.5 * (d - 1), -z * np.exp(-v)
        )

    return _hard(density, 0, [3.0] + [math.exp(9 / 4)] * (d - 1), d)


def banana():
    """q0 ~ N(0, 2^2), q1 ~ N(q0^2, .3^2)."""

    def density(q, x):
        rest = (q[1] - q[0] ** 2) / 0.09
        logp = -(q[0] ** 2) / 8 - 0.5 * rest**2 * 0.09
        return logp, np.array([-q[0] / 4 + 2 * q[0] * rest, -rest])

    return _hard(density, [0, 4], [2, math.sqrt(2 * 16 + 0.09)], 2)


def normal(d, sds):
    scales = np.broadcast_to(sds, d).astype(float)
    return _hard(lambda q, x: (-0.5 * ((q / scales) ** 2).sum(), -q / scales**2), 0, scales, d)


def ridge():
    """Two parameters with a correlation of .999."""
    precision = np.linalg.inv([[1, 0.999], [0.999, 1]])
    return _hard(lambda q, x: (-0.5 * q @ precision @ q, -precision @ q), 0, 1, 2)


def student(freedom, sd):
    def density(q, x):
        return -(freedom + 1) / 2 * np.log1p(q[0] ** 2 / freedom), -(freedom + 1) * q / (freedom + q**2)

    return _hard(density, 0, sd, 1)


def laplace():
    return _hard(lambda q, x: (-np.abs(q).sum(), -np.sign(q)), 0, math.sqrt(2), 2, [0.3, 0.2])


def jump():
    """Normal, and five times as high on the right of zero: a density with a step."""

    def density(q, x):
        return -0.5 * q[0] ** 2 + math.log(5) * (q[0] > 0), -q

    mean = math.sqrt(2 / math.pi) * 4 / 6
    return _hard(density, mean, math.sqrt(1 - mean**2), 1)


def half_normal():
    def density(q, x):
        return (-0.5 * q[0] ** 2 if q[0] > 0 else -INF), -q

    return _hard(density, math.sqrt(2 / math.pi), math.sqrt(1 - 2 / math.pi), 1, [0.7])


def ring():
    """A radius of N(5, .2^2), about, in the plane: the density of (x, y) is that of the radius."""

    def density(q, x):
        r = math.sqrt(q @ q)
        return -0.5 * ((r - 5) / 0.2) ** 2, -(r - 5) / 0.04 * q / r

    return _hard(density, 0, math.sqrt((5**2 + 3 * 0.2**2) / 2), 2, [4.0, 2.0])


def switching():
    """Two labels: means (3, -3) or (-3, 3), of a width of .5 each."""

    def density(q, x):
        rest = np.stack([q - [3, -3], q - [-3, 3]]) / 0.5
        logps = -0.5 * (rest**2).sum(axis=1)
        total = special.logsumexp(logps)
        return total, -np.exp(logps - total) @ rest / 0.5

    return _hard(density, 0, math.sqrt(9.25), 2, [0.5, 0.1])


def gamma():
    """The logarithm of a Gamma(2): skewed."""
    mean, sd = special.digamma(2), math.sqrt(special.polygamma(1, 2))
    return _hard(lambda q, x: (2 * q[0] - np.exp(q[0]), 2 - np.exp(q)), mean, sd, 1)


def uniform_box(low, high):
    def density(q, x):
        return (0.0 if ((q > low) & (q < high)).all() else -INF), np.zeros(len(q))

    middle = (low + high) / 2
    return _hard(density, middle, (high - low) * math.sqrt(1 / 12), 3, [middle] * 3)


def heavy(freedom):
    """Student's t without a variance, in the probability of a smaller number: uniform."""

    def density(q, x):
        return -(freedom + 1) / 2 * np.log1p(q[0] ** 2 / freedom), -(freedom + 1) * q / (freedom + q**2)

    return _hard(
        density, 0.5, math.sqrt(1 / 12), 1, measure=lambda draws: special.stdtr(float(freedom), draws)
    )


def slanted_ridge():
    def density(q, x):
        rest = q[0] + 3 * q[1] - 1
        return -0.5 * rest**2, -rest * np.array([1.0, 3.0])

    return _hard(density, 0, 1, 2, refused=True)


def constant_direction():
    return _hard(lambda q, x: (-0.5 * q[0] ** 2, np.array([-q[0], 0.0])), 0, 1, 2, refused=True)


# Posteriors of data, which can be cut into shards -------------------------------------------------------


def _prior(scale):
    return lambda q: (-0.5 * q @ q / scale**2, -q / scale**2)


def _by_quadrature(logp, low, high, n=20_001):
    """Mean and standard deviation of a density of one parameter."""
    grid = np.linspace(low, high, n)
    logps = logp(grid)
    weights = np.exp(logps - logps.max())
    assert max(weights[0], weights[-1]) < 1e-6
    weights /= weights.sum()
    mean = weights @ grid
    return mean, math.sqrt(weights @ (grid - mean) ** 2)


def _counts(q, y):
    return (y * q[0]).sum() - len(y) * np.exp(q[0]), np.array([y.sum() - len(y) * np.exp(q[0])])


def unequal_shards():
    """Counts with the logarithm of their rate, in four shards of very different sizes."""
    y = np.random.default_rng(0).poisson(0.3, 1530).astype(float)
    mean, sd = _by_quadrature(lambda q: y.sum() * q - len(y) * np.exp(q) - 0.5 * (q / 3) ** 2, -3.0, 1.0)
    shards = [dask.delayed(part) for part in np.split(y, [30, 80, 330])]
    return _hard(_counts, mean, sd, 1, log_prior=_prior(3.0), data=shards)


def _logistic(q, rows):
    signs, X = rows[:, 0], rows[:, 1:]
    margins = signs * (X @ q)
    return special.log_expit(margins).sum(), X.T @ (signs * special.expit(-margins))


def _signed(X, q, seed):
    y = np.random.default_rng(seed).random(len(X)) < special.expit(X @ np.asarray(q))
    return np.column_stack([np.where(y, 1.0, -1.0), X])


def one_class_shards():
    """Logistic, an intercept and a slope: two shards have one class, two the other. Moments: a grid."""
    X = np.column_stack([np.ones(400), np.random.default_rng(1).standard_normal(400)])
    rows = _signed(X, [0.3, 0.8], 2)
    first, second = rows[rows[:, 0] > 0], rows[rows[:, 0] < 0]
    shards = [dask.delayed(part) for part in (first[::2], first[1::2], second[::2], second[1::2])]
    a, b = np.meshgrid(np.linspace(-0.7, 1.3, 161), np.linspace(-0.4, 2.0, 161), indexing="ij")
    grid = np.column_stack([a.ravel(), b.ravel()])
    logps = (
        special.log_expit(grid @ (rows[:, 1:] * rows[:, :1]).T).sum(axis=1) - 0.5 * (grid**2).sum(axis=1) / 4
    )
    weights = np.exp(logps - logps.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    return _hard(_logistic, mean, sd, 2, log_prior=_prior(2.0), data=shards)


def rare_events():
    """An intercept alone: 12 of 2,000."""
    rows = np.ones((2000, 2))
    rows[12:, 0] = -1
    mean, sd = _by_quadrature(
        lambda q: 12 * special.log_expit(q) + 1988 * special.log_expit(-q) - 0.5 * (q / 5) ** 2, -9.0, -2.0
    )
    return _hard(_logistic, mean, sd, 1, log_prior=_prior(5.0), data=rows)


def separated():
    """No posterior: a flat prior, and a plane between the classes."""
    x = np.random.default_rng(3).standard_normal(200)
    return _hard(_logistic, 0, 1, 1, data=np.column_stack([np.sign(x), x]), refused=True)


def collinear():
    """A column twice: the likelihood knows the sum of the coefficients, the prior alone their difference."""
    x = np.random.default_rng(4).standard_normal(300)
    rows = _signed(np.column_stack([x, x]), [0.5, 0.5], 5)
    mean, sd = _by_quadrature(
        lambda u: special.log_expit(np.outer(u * math.sqrt(2), rows[:, 0] * x)).sum(axis=1) - 0.5 * u**2,
        -1.0,
        3.0,
        2001,
    )
    return _hard(
        _logistic, mean / math.sqrt(2), math.sqrt((sd**2 + 1) / 2), 2, log_prior=_prior(1.0), data=rows
    )


def fewer_rows_than_columns():
    """Normal noise of .5, twelve rows and twenty coefficients."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((12, 20))
    rows = np.column_stack([X @ rng.standard_normal(20) + 0.5 * rng.standard_normal(12), X])
    covariance = np.linalg.inv(X.T @ X / 0.25 + np.eye(20))
    mean = covariance @ X.T @ rows[:, 0] / 0.25

    def density(q, rows):
        rest = (rows[:, 0] - rows[:, 1:] @ q) / 0.25
        return -0.5 * rest @ rest * 0.25, rows[:, 1:].T @ rest

    return _hard(density, mean, np.sqrt(np.diag(covariance)), 20, log_prior=_prior(1.0), data=rows)


def _no_sum(density):
    return _hard(density, 0, 1, 1, data=np.random.default_rng(7).normal(1, 1, 400), refused=True)


def prior_inside():
    return _no_sum(
        lambda q, x: (
            -0.5 * ((x - q[0]) ** 2).sum() - 50 * q[0] ** 2,
            np.array([(x - q[0]).sum() - 100 * q[0]]),
        )
    )


def mean_over_rows():
    return _no_sum(lambda q, x: (-0.5 * ((x - q[0]) ** 2).mean(), np.array([(x - q[0]).mean()])))


def dependent_rows():
    """Each row depends on the one before."""

    def density(q, x):
        rest = x[1:] - q[0] * x[:-1]
        return -0.5 * rest @ rest, np.array([rest @ x[:-1]])

    return _no_sum(density)


PROBLEMS = {
    "normal, 100 parameters": normal(100, 1.0),
    "normal, scales from .001 to 1000": normal(5, 10.0 ** np.array([-3, -1, 0, 1, 3])),
    "narrow ridge": ridge(),
    "log Gamma(2)": gamma(),
    "Laplace": laplace(),
    "step": jump(),
    "Student's t, 3 degrees": student(3, math.sqrt(3)),
    "funnel": funnel(),
    "banana": banana(),
    "ring": ring(),
    "two modes, 3 apart": _mixture([0.5, 0.5], [0, 3], [1, 1], 1),
    "two modes, 6 apart": _mixture([0.3, 0.7], [0, 6], [1, 1], 1),
    "two modes, 40 apart, five parameters": _mixture([0.3, 0.7], [0, 18], [1, 1], 5),
    "one mode in another, five parameters": _mixture([0.5, 0.5], [0, 0], [0.01, 1], 5),
    "one mode in another, one parameter": _mixture([0.5, 0.5], [0, 0], [0.01, 1], 1),
    "two labels": switching(),
    "half normal": half_normal(),
    "uniform on a box": uniform_box(-2, 3),
    "uniform on a box of .02": uniform_box(2.99, 3.01),
    "Cauchy": heavy(1),
    "Student's t, 2 degrees": heavy(2),
    "separated classes, flat prior": separated(),
    "improper along (3, -1)": slanted_ridge(),
    "constant along an axis": constant_direction(),
}
SHARDED = {
    "shards of 30 to 1,200 rows": unequal_shards(),
    "shards of one class": one_class_shards(),
    "12 events in 2,000 rows": rare_events(),
    "a column twice": collinear(),
    "12 rows, 20 columns": fewer_rows_than_columns(),
    "separated classes, flat prior": separated(),
    "prior inside the likelihood": prior_inside(),
    "mean over rows": mean_over_rows(),
    "dependent rows": dependent_rows(),
}
