"""Densities that the table of errors has in another form: with derivatives, centred, or as loops.

Loops make no arrays on the way, which for a few rows takes longer than the arithmetic.
"""

import numba as nb
import numpy as np

import stradask as sd

from .posteriordb import MODELS

pr = sd.priors


@nb.njit
def radon(p, data, g):
    """y ~ N(alpha_county + X beta, sigma_y), alpha ~ N(mu_alpha, sigma_alpha)."""
    X, county, y = data
    total = -len(y) * np.log(p.sigma_y) - len(p.alpha) * np.log(p.sigma_alpha)
    g.sigma_y[0] -= len(y) / p.sigma_y
    g.sigma_alpha[0] -= len(p.alpha) / p.sigma_alpha
    for i in range(len(y)):
        c = county[i]
        r = (y[i] - p.alpha[c] - X[i, 0] * p.beta[0] - X[i, 1] * p.beta[1]) / p.sigma_y
        slope = r / p.sigma_y
        g.alpha[c] += slope
        g.beta[0] += slope * X[i, 0]
        g.beta[1] += slope * X[i, 1]
        g.sigma_y[0] += r * slope
        total -= 0.5 * r * r
    for c in range(len(p.alpha)):
        r = (p.alpha[c] - p.mu_alpha) / p.sigma_alpha
        slope = r / p.sigma_alpha
        g.alpha[c] -= slope
        g.mu_alpha[0] += slope
        g.sigma_alpha[0] += r * slope
        total -= 0.5 * r * r
    return total


def centred(d):
    """Density, data, parameters, priors and derived values, as in `posteriordb.MODELS`."""
    _, data, _, _, _ = MODELS["radon_mn-radon_hierarchical_intercept_noncentered"](d)
    parameters = {"alpha": sd.real(d["J"]), "beta": sd.real(2), "mu_alpha": sd.real()}
    parameters |= {"sigma_alpha": sd.positive(), "sigma_y": sd.positive()}
    priors = {"beta": pr.normal(0, 10), "mu_alpha": pr.normal(0, 10)}
    priors |= {"sigma_alpha": pr.half_normal(1), "sigma_y": pr.half_normal(1)}
    return radon, data, parameters, priors, None


@nb.njit
def mixture(p, data, g):
    """Two normals of one dimension, with the share of each at every row."""
    total = len(data) * np.log(p.theta / p.sigma[0])
    odds = np.log((1 - p.theta) * p.sigma[0] / (p.theta * p.sigma[1]))
    ones = 0.0
    for x in data:
        one, two = (x - p.mu[0]) / p.sigma[0], (x - p.mu[1]) / p.sigma[1]
        log_odds = odds - 0.5 * (two * two - one * one)  # of the second
        less = np.exp(-abs(log_odds))
        total += max(log_odds, 0.0) + np.log1p(less) - 0.5 * one * one
        second = (1.0 if log_odds > 0 else less) / (1 + less)
        first = 1 - second
        ones += first
        g.mu[0] += first * one / p.sigma[0]
        g.mu[1] += second * two / p.sigma[1]
        g.sigma[0] += first * (one * one - 1) / p.sigma[0]
        g.sigma[1] += second * (two * two - 1) / p.sigma[1]
    g.theta[0] += ones / p.theta - (len(data) - ones) / (1 - p.theta)
    return total


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


_SCHOOLS, _SEEDS, _MIXTURE = (
    "eight_schools-eight_schools_noncentered",
    "seeds_data-seeds_model",
    "low_dim_gauss_mix-low_dim_gauss_mix",
)
MADE = MODELS | {
    _SCHOOLS: _looped(schools, _SCHOOLS),
    _SEEDS: _looped(seeds, _SEEDS),
    _MIXTURE: _looped(mixture, _MIXTURE),
    "radon_mn-radon_hierarchical_intercept_centered": centred,
}
