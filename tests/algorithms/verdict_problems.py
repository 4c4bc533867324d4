"""Posteriors that samplers find hard, with their means and standard deviations in closed form."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

INF = math.inf


@dataclass(frozen=True)
class Hard:
    """A log density with its gradient, its mean and standard deviation in every parameter, and a start."""

    density: Any
    mean: np.ndarray
    sd: np.ndarray
    start: np.ndarray


def _hard(density, mean, sd, d, start=None):
    mean, sd = np.broadcast_to(mean, d).astype(float), np.broadcast_to(sd, d).astype(float)
    return Hard(density, mean, sd, np.full(d, 0.1) if start is None else np.asarray(start, float))


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
}
