"""Densities that the table of errors has in another form: with derivatives, centred, or as loops.

Loops make no arrays on the way, which for a few rows takes longer than the arithmetic.
"""

import numba as nb
import numpy as np

import stradask as sd

from .posteriordb import MODELS

pr = sd.priors


@nb.njit
def counties(intercepts, p, data, g, by_county):
    """y ~ N(intercept_county + X beta, sigma); adds the derivatives in the intercepts to `by_county`."""
    X, county, y = data
    inverse, squares, one, two = 1 / p.sigma**2, 0.0, 0.0, 0.0
    first, second = p.beta
    for i in range(len(y)):
        c = county[i]
        r = y[i] - intercepts[c] - X[i, 0] * first - X[i, 1] * second
        by_county[c] += r * inverse
        one += r * X[i, 0]
        two += r * X[i, 1]
        squares += r * r
    g.beta[0] += one * inverse
    g.beta[1] += two * inverse
    g.sigma[0] += (squares * inverse - len(y)) / p.sigma
    return -len(y) * np.log(p.sigma) - 0.5 * squares * inverse


@nb.njit
def radon(p, data, g):
    """Intercepts mu + spread z, with z ~ N(0, 1) by name."""
    n = len(p.z)
    intercepts, slopes = np.empty(n), np.zeros(n)
    for c in range(n):
        intercepts[c] = p.mu + p.spread * p.z[c]
    total = counties(intercepts, p, data, g, slopes)
    for c in range(n):
        g.mu[0] += slopes[c]
        g.spread[0] += slopes[c] * p.z[c]
        g.z[c] += slopes[c] * p.spread
    return total


@nb.njit
def radon_centred(p, data, g):
    """Intercepts alpha ~ N(mu_alpha, sigma_alpha), by name."""
    return counties(p.alpha, p, data, g, g.alpha)


def centred(d):
    """Density, data, parameters, priors and derived values, as in `posteriordb.MODELS`."""
    _, data, _, _, _ = MODELS[_RADON](d)
    parameters = {"alpha": sd.real(d["J"]), "beta": sd.real(2), "mu_alpha": sd.real()}
    parameters |= {"sigma_alpha": sd.positive(), "sigma": sd.positive()}
    priors = {"alpha": pr.normal("mu_alpha", "sigma_alpha"), "beta": pr.normal(0, 10)}
    priors |= {"mu_alpha": pr.normal(0, 10), "sigma_alpha": pr.half_normal(1), "sigma": pr.half_normal(1)}
    return radon_centred, data, parameters, priors, lambda p: {"sigma_y": p.sigma}


@nb.njit
def mixture(p, data, g):
    """Two normals of one dimension, with the share of each at every row."""
    inverses = 1 / p.sigma[0], 1 / p.sigma[1]
    odds = np.log((1 - p.theta) * p.sigma[0] / (p.theta * p.sigma[1]))
    total, product, n = 0.0, 1.0, len(data)
    sums = np.zeros(4)  # of the scaled distance to each, and its square, by shares
    ones = 0.0
    for i in range(n):
        one, two = (data[i] - p.mu[0]) * inverses[0], (data[i] - p.mu[1]) * inverses[1]
        log_odds = odds - 0.5 * (two * two - one * one)  # of the second
        less = np.exp(-abs(log_odds))
        second = (1.0 if log_odds > 0 else less) / (1 + less)
        first = 1 - second
        total += max(log_odds, 0.0) - 0.5 * one * one
        product *= 1 + less  # at most 2: one logarithm for 500 rows
        if i % 500 == 499:
            total += np.log(product)
            product = 1.0
        ones += first
        sums[0] += first * one
        sums[1] += second * two
        sums[2] += first * one * one
        sums[3] += second * two * two
    for k, count in enumerate((ones, n - ones)):
        g.mu[k] += sums[k] * inverses[k]
        g.sigma[k] += (sums[2 + k] - count) * inverses[k]
    g.theta[0] += ones / p.theta - (n - ones) / (1 - p.theta)
    return total + np.log(product) + n * np.log(p.theta / p.sigma[0])


@nb.njit
def schools(p, data, g):
    """y_j ~ N(mu + tau z_j, sigma_j)."""
    y, sigma = data
    total = by_mu = by_tau = 0.0
    for j in range(len(y)):
        r = (y[j] - p.mu - p.tau * p.z[j]) / sigma[j]
        slope = r / sigma[j]
        by_mu += slope
        by_tau += slope * p.z[j]
        g.z[j] += slope * p.tau
        total -= 0.5 * r * r
    g.mu[0] += by_mu
    g.tau[0] += by_tau
    return total


@nb.njit
def seeds(p, data, g):
    """n_i ~ Binomial(N_i, expit(X beta + z_i / sqrt(tau)))."""
    X, n, N = data
    sd, total, by_sd = p.tau**-0.5, 0.0, 0.0
    for i in range(len(n)):
        f = sd * p.z[i]
        for j in range(X.shape[1]):
            f += X[i, j] * p.beta[j]
        less = np.exp(-abs(f))
        share = (1.0 if f > 0 else less) / (1 + less)
        total += n[i] * f - N[i] * (max(f, 0.0) + np.log1p(less))
        rest = n[i] - N[i] * share
        for j in range(X.shape[1]):
            g.beta[j] += rest * X[i, j]
        g.z[i] += rest * sd
        by_sd += rest * p.z[i]
    g.tau[0] -= 0.5 * by_sd * sd / p.tau
    return total


def _looped(density, name):
    """A model of `MODELS` with another form of its density."""
    return lambda d: (density, *MODELS[name](d)[1:])


_RADON, _SCHOOLS, _SEEDS, _MIXTURE = (
    "radon_mn-radon_hierarchical_intercept_noncentered",
    "eight_schools-eight_schools_noncentered",
    "seeds_data-seeds_model",
    "low_dim_gauss_mix-low_dim_gauss_mix",
)
MADE = MODELS | {
    _RADON: _looped(radon, _RADON),
    _SCHOOLS: _looped(schools, _SCHOOLS),
    _SEEDS: _looped(seeds, _SEEDS),
    _MIXTURE: _looped(mixture, _MIXTURE),
    "radon_mn-radon_hierarchical_intercept_centered": centred,
}
