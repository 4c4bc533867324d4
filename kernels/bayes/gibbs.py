"""Gibbs sampling of linear regression with normal noise: coefficients, then the noise, each exactly.

With the precision ``t = 1 / sigma^2``, prior power p, weights of n rows in all, the residual sum of squares
S(b) and a half-Cauchy prior of the scale s for sigma:

    ``b | t ~ N(P^-1 t R'R b0, P^-1)``, ``P = t R'R + p diag(1 / s_j^2)``,
    ``u | t ~ Gamma(p, t + 1 / s^2)``,  ``t | b, u ~ Gamma((n + p) / 2, S(b) / 2 + u)``,

where u makes ``(t + 1 / s^2)^-p`` a mixture of exponentials. With a flat prior of sigma u is 0 and the shape
``(n - p) / 2``. The density is `glm.linear`, its data are read in place; parameters are b and log
sigma.

References: Gelfand, Smith, "Sampling-based approaches to calculating marginal densities", JASA 1990.
Marsaglia, Tsang, "A simple method for generating gamma variables", ACM Transactions on Mathematical Software
2000.
"""

import math

import numba as nb
import numpy as np

from ..indexing import copy
from .densities.glm import linear
from .densities.priors import CONSTANT, HEAD, N_COEFS, OWN_SCALE, POWER, START, WEIGHT
from .streams import CALLED, OPTIONS, fill_normal, uniform
from .triangles import factor, solve_lower, solve_upper


@nb.njit(**OPTIONS)
def gamma(stream, shape):
    """One Gamma(shape, 1) number."""
    boost = 1.0
    if shape < 1.0:
        boost = uniform(stream) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    x = np.empty(1)
    while True:
        fill_normal(stream, x)
        v = (1.0 + c * x[0]) ** 3
        if v > 0.0 and math.log(uniform(stream)) < 0.5 * x[0] * x[0] + d - d * v + d * math.log(v):
            return boost * d * v


@nb.njit(**CALLED)
def _coefficients(stream, precision, center, squares, ridge, b):
    """Draw b given the precision of the noise."""
    d = len(b)
    L = np.empty((d, d))
    for i in range(d):
        for j in range(i + 1):
            L[i, j] = precision * squares[i, j]
        L[i, i] += ridge[i]
    factor(L)
    noise, half = np.empty(d), np.empty(d)
    fill_normal(stream, noise)
    for i in range(d):  # L half = t R'R b0
        half[i] = 0.0
        for j in range(d):
            half[i] += precision * squares[i, j] * center[j]
    solve_lower(L, half)
    for i in range(d):  # L' b = half + noise
        b[i] = half[i] + noise[i]
    solve_upper(L, b)


@nb.njit(**CALLED)
def _noise(stream, precision, residual, data):
    """Draw the precision of the noise given the residual sum of squares."""
    inverse, power = data[OWN_SCALE], data[POWER]
    shape, rate = 0.5 * (data[WEIGHT] - power), 0.5 * residual
    if inverse > 0.0:
        shape += power
        rate += gamma(stream, power) / (precision + inverse * inverse)
    return gamma(stream, shape) / rate


@nb.njit(**OPTIONS)
def run(q, name, n, data, meta):
    """Make `n` draws from q on; returns what `chain.run` does."""
    d, at = meta[N_COEFS], meta[START]
    center = data[at : at + d]
    R = data[at + d : at + d + d * d].reshape(d, d)
    squares, ridge = np.zeros((d, d)), np.empty(d)
    for i in range(d):
        ridge[i] = data[POWER] * data[HEAD + i] ** 2
        for j in range(d):
            for k in range(d):
                squares[i, j] += R[k, i] * R[k, j]
    draws, gradients, statistics = np.empty((n, d + 1)), np.empty((n, d + 1)), np.zeros((n, 7))
    q, stream, logp = q.copy(), name.copy(), 0.0
    for t in range(n):
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + t)
        precision = math.exp(-2.0 * q[d])
        _coefficients(stream, precision, center, squares, ridge, q[:d])
        residual = data[CONSTANT]
        for i in range(d):
            total = 0.0
            for j in range(i, d):
                total += R[i, j] * (q[j] - center[j])
            residual += total * total
        q[d] = -0.5 * math.log(_noise(stream, precision, residual, data))
        logp = linear(q, gradients[t], data, meta)
        copy(q, draws[t])
        statistics[t, 0], statistics[t, 1], statistics[t, 2], statistics[t, 5] = logp, 1.0, 1.0, -logp
        statistics[t, 6] = 1.0
    return draws, gradients, statistics, q, gradients[n - 1].copy(), logp
