"""Priors of coefficients and scales, and the layout of the data of regression densities.

``meta[:HEAD]`` holds the numbers named below and ``data[:HEAD]`` the reals; then ``data[HEAD:HEAD + d]``
holds the inverse prior scale of each coefficient (0 is a flat prior), padded to a whole number of cache
lines, and then come the numbers of the likelihood. A prior enters with the power `POWER` = 1/M of a
subposterior, and so does the Jacobian of every transformed parameter, which belongs to it.

Parameters q: the coefficients; with the horseshoe, for its first h coefficients ``b_j = z_j s_j r(l_j + t)``,
then the h logarithms l_j of local scales and the logarithm t of the global one, each half-Cauchy; then, where
the likelihood has one, the logarithm of its own scale, half-Cauchy (an inverse scale of 0 is flat). The
horseshoe is the regularised one: ``r(x) = (1 + exp(-2 x))^(-1/2)`` is a scale ``exp(x)`` where that is small
and 1 where it is large, so that a coefficient that matters is normal with the scale s_j.

References: Neiswanger, Wang, Xing, "Asymptotically exact, embarrassingly parallel MCMC", UAI 2014. Carvalho,
Polson, Scott, "The horseshoe estimator for sparse signals", Biometrika 2010. Piironen, Vehtari, "Sparsity
information and regularization in the horseshoe and other shrinkage priors", Electronic Journal of Statistics
2017.
"""

import math

import numba as nb

from ..streams import CALLED, OPTIONS

HEAD = 8  # numbers before the scales
# Of meta.
N_COEFS, PRIOR, N_SHRUNK, N_ROWS, N_TILES, START, FAMILY, N_VALUES = range(8)
# Of data.
POWER, FREEDOM, GLOBAL, OWN_SCALE, PADDING, NOISE_FREEDOM, WEIGHT, CONSTANT = range(8)
NORMAL, STUDENT_T, LAPLACE, HORSESHOE = range(4)


@nb.njit(**CALLED)
def coefficients(q, b, data, meta):
    """Fill the coefficients b (d,) that the parameters q stand for."""
    d, h = meta[N_COEFS], meta[N_SHRUNK]
    for j in range(d):
        b[j] = q[j]
    if meta[PRIOR] == HORSESHOE:
        for j in range(h):
            b[j] *= _slab(q[d + j] + q[d + h]) / data[HEAD + j]


@nb.njit(**CALLED)
def _slab(x):
    return 1.0 / math.sqrt(1.0 + math.exp(-2.0 * x))


@nb.njit(**OPTIONS)
def half_cauchy(log_scale, inverse):
    """Log density of the logarithm of a half-Cauchy scale with its Jacobian, and its derivative."""
    ratio = math.exp(log_scale) * inverse
    square = ratio * ratio
    # At a ratio beyond the range of squares the quotient is 1.
    share = 1.0 if square == math.inf else square / (1.0 + square)
    logp = log_scale - (2.0 * math.log(ratio) if square == math.inf else math.log1p(square))
    return logp, 1.0 - 2.0 * share


@nb.njit(**CALLED)
def _one(kind, x, freedom):
    """Log density of a standardised coefficient and its derivative, constants left out."""
    if kind == STUDENT_T:
        return -0.5 * (freedom + 1.0) * math.log1p(x * x / freedom), -(freedom + 1.0) * x / (freedom + x * x)
    if kind == LAPLACE:
        return -abs(x), (1.0 if x < 0.0 else -1.0 if x > 0.0 else 0.0)
    return -0.5 * x * x, -x


@nb.njit(**CALLED)
def add_prior(q, b, gb, g, data, meta):
    """Turn the gradient `gb` of the likelihood in b into `g` in q, the prior added; returns the log prior."""
    d, h, kind, power = meta[N_COEFS], meta[N_SHRUNK], meta[PRIOR], data[POWER]
    shrunk = h if kind == HORSESHOE else 0
    logp = 0.0
    for j in range(shrunk, d):
        inverse = data[HEAD + j]
        value, slope = _one(NORMAL if shrunk else kind, q[j] * inverse, data[FREEDOM])
        logp += value
        g[j] = gb[j] + power * slope * inverse
    if shrunk:
        value, slope = half_cauchy(q[d + h], data[GLOBAL])
        logp += value
        g[d + h] = power * slope
        for j in range(h):
            value, slope = half_cauchy(q[d + j], 1.0)
            logp += value - 0.5 * q[j] * q[j]
            part = _slab(q[d + j] + q[d + h])
            by_scale = gb[j] * b[j] * (1.0 - part * part)
            g[j] = gb[j] * part / data[HEAD + j] - power * q[j]
            g[d + j] = power * slope + by_scale
            g[d + h] += by_scale
    return power * logp
