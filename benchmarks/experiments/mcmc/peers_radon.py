"""The centred form of posteriordb's radon model, which the table of errors has in the other form only."""

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
