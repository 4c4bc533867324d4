"""Log densities of Bayesian regression: normal, Student-t, Poisson, negative binomial, weighted logistic.

A row has the linear predictor ``f = x b + o``, with an offset o. Where a family has a scale of its own (the
standard deviation of normal and Student-t noise, the overdispersion a = 1/r of the negative binomial), its
logarithm is the last parameter. Layout of coefficients and priors: see ``priors``.

From ``data[meta[START]:]`` on: X (n, d), targets (n,), weights (n,), offsets (n,); for the negative binomial
the different counts (v,) and the sums of their weights (v,), so that the gamma functions cost nothing by row.
`linear` needs none of it but sufficient statistics: ``b0`` (d,) that solves the normal equations and the
triangle R (d, d) with ``R'R = X'WX``; the residual sum of squares at b0 is ``data[CONSTANT]`` and the sum of
weights ``data[WEIGHT]``, so that the squares add up without cancellation.
"""

import math

import numba as nb
import numpy as np

from ..streams import CALLED, INNER, OPTIONS
from . import priors

STUDENT_NOISE, POISSON, NEGATIVE_BINOMIAL, BERNOULLI = range(4)
_FAST = {**CALLED, "fastmath": {"nsz", "arcp", "contract", "reassoc"}}
_SMALL_COUNT = 200.0  # up to which logarithms are summed one by one
_SHIFT = 10.0  # from here on the asymptotic series of the digamma function holds 1e-15


@nb.njit(**OPTIONS)
def digamma(x):
    """Derivative of ``lgamma`` at x > 0."""
    below = 0.0
    while x < _SHIFT:
        below += 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (
        1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * (691 / 32760 - y / 12)))))
    )
    return math.log(x) - 0.5 / x - series - below


@nb.njit(**_FAST)
def predictor(X, i, b):
    """Inner product of a row with the coefficients."""
    total = 0.0
    for j in range(len(b)):
        total += X[i, j] * b[j]
    return total


@nb.njit(**CALLED)
def row_likelihood(family, f, y, log_scale, scale, freedom):
    """Log likelihood of one row, its derivative in f, and its derivative in the logarithm of the scale."""
    if family == POISSON:
        mean = math.exp(f)
        return y * f - mean, y - mean, 0.0
    if family == NEGATIVE_BINOMIAL:  # scale a = 1/r: (y + r) log(1 + a mean), the rest is added by value
        r = 1.0 / scale
        gap = f + log_scale
        e = math.exp(-abs(gap))
        total = max(gap, 0.0) + math.log1p(e)
        share = (1.0 if gap >= 0.0 else e) / (1.0 + e)
        # With respect to log a: r falls as it grows, dr = -r dlog a.
        return y * f - (y + r) * total, y - (y + r) * share, r * total - (y + r) * share
    if family == BERNOULLI:  # y is 1 or -1
        gap = y * f
        e = math.exp(-abs(gap))
        return -math.log1p(e) + min(gap, 0.0), y * ((e if gap >= 0.0 else 1.0) / (1.0 + e)), 0.0
    z = (y - f) / scale
    square = z * z
    weight = (freedom + 1.0) / (freedom + square)
    logp = -0.5 * (freedom + 1.0) * math.log1p(square / freedom) - log_scale
    return logp, weight * z / scale, weight * square - 1.0


@nb.njit(**_FAST)
def add_row(X, i, slope, gb):
    """Add a multiple of a row."""
    for j in range(len(gb)):
        gb[j] += slope * X[i, j]


@nb.njit(**CALLED)
def count_values(counts, weights, scale):
    """``sum_k w_k log(Gamma(y_k + r) / (Gamma(r) r^y_k))`` over rising counts, and its derivative in log a.

    For small counts ``sum_{i < y} log(1 + i a)``: the gamma functions of a large r would cancel.
    """
    r, logp, slope = 1.0 / scale, 0.0, 0.0
    reached, small, small_slope = 0.0, 0.0, 0.0
    for k in range(len(counts)):
        y = counts[k]
        if y <= _SMALL_COUNT:
            while reached < y:
                small += math.log1p(reached * scale)
                small_slope += reached / (reached + r)
                reached += 1.0
            logp += weights[k] * small
            slope += weights[k] * small_slope
        else:
            logp += weights[k] * (math.lgamma(y + r) - math.lgamma(r) - y * math.log(r))
            slope += weights[k] * (y - r * (digamma(y + r) - digamma(r)))
    return logp, slope


@nb.njit(**CALLED)
def add_own_scale(log_scale, slope, g, data):
    """Add the prior of the scale to its gradient; returns its log density."""
    value, prior_slope = priors.half_cauchy(log_scale, data[priors.OWN_SCALE])
    g[len(g) - 1] = slope + data[priors.POWER] * prior_slope
    return data[priors.POWER] * value


@nb.njit(**CALLED)
def glm(q, g, data, meta):
    """Log posterior density of any family, row by row."""
    n, d, family, at = meta[priors.N_ROWS], meta[priors.N_COEFS], meta[priors.FAMILY], meta[priors.START]
    X = data[at : at + n * d].reshape(n, d)
    at += n * d
    y, weights, offsets = data[at : at + n], data[at + n : at + 2 * n], data[at + 2 * n : at + 3 * n]
    b, gb = np.empty(d), np.zeros(d)
    priors.coefficients(q, b, data, meta)
    scaled = family in (STUDENT_NOISE, NEGATIVE_BINOMIAL)
    log_scale = q[len(q) - 1] if scaled else 0.0
    scale = math.exp(log_scale)
    logp, slope_scale = 0.0, 0.0
    for i in range(n):
        f = predictor(X, i, b) + offsets[i]
        value, slope, by_scale = row_likelihood(family, f, y[i], log_scale, scale, data[priors.NOISE_FREEDOM])
        logp += weights[i] * value
        slope_scale += weights[i] * by_scale
        add_row(X, i, weights[i] * slope, gb)
    if family == NEGATIVE_BINOMIAL:
        at, v = at + 3 * n, meta[priors.N_VALUES]
        value, by_scale = count_values(data[at : at + v], data[at + v : at + 2 * v], scale)
        logp += value
        slope_scale += by_scale
    logp += priors.add_prior(q, b, gb, g, data, meta)
    if scaled:
        logp += add_own_scale(log_scale, slope_scale, g, data)
    return logp


@nb.njit(**INNER)
def add_squares(b, center, R, precision, gb, data):
    """Sum of squares of normal noise, from sufficient statistics; adds its slopes to gb."""
    d, squares = len(b), data[priors.CONSTANT]
    for i in range(d):
        total = 0.0
        for j in range(i, d):
            total += R[i, j] * (b[j] - center[j])
        squares += total * total
        for j in range(i, d):
            gb[j] -= precision * total * R[i, j]
    return squares


@nb.njit(**CALLED)
def linear(q, g, data, meta):
    """Log posterior density with normal noise, from sufficient statistics: no cost by row."""
    d, at = meta[priors.N_COEFS], meta[priors.START]
    center, R = data[at : at + d], data[at + d : at + d + d * d].reshape(d, d)
    b, gb = np.empty(d), np.zeros(d)
    priors.coefficients(q, b, data, meta)
    log_scale = q[len(q) - 1]
    precision = math.exp(-2.0 * log_scale)
    squares = add_squares(b, center, R, precision, gb, data)
    logp = -data[priors.WEIGHT] * log_scale - 0.5 * precision * squares
    logp += priors.add_prior(q, b, gb, g, data, meta)
    return logp + add_own_scale(log_scale, precision * squares - data[priors.WEIGHT], g, data)
