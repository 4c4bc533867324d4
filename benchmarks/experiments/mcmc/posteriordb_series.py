"""Time series and hidden Markov models of posteriordb, written from their Stan programs."""

import numba as nb
import numpy as np

import stradask as sd

pr = sd.priors
hidden_markov = sd.functions.hidden_markov


@nb.njit
def arma(p, y, g):
    """Errors e_t = y_t - mu - phi y_(t-1) - theta e_(t-1), of normal distribution; y_0 = mu and e_0 = 0."""
    total, last, e = -len(y) * np.log(p.sigma), p.mu, 0.0
    by_mu, by_phi, by_theta = -1.0 - p.phi, -p.mu, 0.0  # of e
    for t in range(len(y)):
        if t > 0:
            by_mu = -1.0 - p.theta * by_mu
            by_phi = -last - p.theta * by_phi
            by_theta = -e - p.theta * by_theta
        e = y[t] - p.mu - p.phi * last - p.theta * e
        slope = -e / p.sigma**2
        g.mu[0] += slope * by_mu
        g.phi[0] += slope * by_phi
        g.theta[0] += slope * by_theta
        g.sigma[0] += (e * e / p.sigma**2 - 1) / p.sigma
        total -= 0.5 * e * e / p.sigma**2
        last = y[t]
    return total


@nb.njit
def garch(p, data, g):
    """y_t ~ N(mu, v_t), v_t = alpha0 + w_0 (y_(t-1) - mu)^2 + w_1 v_(t-1); w_0 + w_1 < 1."""
    y, first = data
    v, total = first[0] ** 2, 0.0
    by_mu, by_alpha, by_w0, by_w1 = 0.0, 0.0, 0.0, 0.0  # of v
    for t in range(len(y)):
        if t > 0:
            r = y[t - 1] - p.mu
            by_mu = -2.0 * p.w[0] * r + p.w[1] * by_mu
            by_alpha = 1.0 + p.w[1] * by_alpha
            by_w0 = r * r + p.w[1] * by_w0
            by_w1 = v + p.w[1] * by_w1
            v = p.alpha0 + p.w[0] * r * r + p.w[1] * v
        r = y[t] - p.mu
        slope = 0.5 * (r * r / v - 1) / v
        g.mu[0] += slope * by_mu + r / v
        g.alpha0[0] += slope * by_alpha
        g.w[0] += slope * by_w0
        g.w[1] += slope * by_w1
        total -= 0.5 * (np.log(v) + r * r / v)
    return total


@nb.njit
def normal_states(p, data, g):
    """Hidden Markov model; y of each column is normal about the mean of the state, with a known sd."""
    y, sd_ = data
    emissions, by = np.zeros((len(y), 2)), np.zeros((len(y), 2))
    for t in range(len(y)):
        for k in range(2):
            for c in range(len(sd_)):
                emissions[t, k] -= 0.5 * ((y[t, c] - p.mean[c, k]) / sd_[c]) ** 2
    total = hidden_markov(np.ones(2), p.theta, emissions, None, g.theta, by)
    for t in range(len(y)):
        for k in range(2):
            for c in range(len(sd_)):
                g.mean[c, k] += by[t, k] * (y[t, c] - p.mean[c, k]) / sd_[c] ** 2
    return total


@nb.njit
def exponential_states(p, y, g):
    """Hidden Markov model; y of each column is exponential with the rate of the state."""
    emissions, by = np.zeros((len(y), 2)), np.zeros((len(y), 2))
    for t in range(len(y)):
        for k in range(2):
            for c in range(2):
                emissions[t, k] += np.log(p.rate[c, k]) - p.rate[c, k] * y[t, c]
    total = hidden_markov(np.ones(2), p.theta, emissions, None, g.theta, by)
    for t in range(len(y)):
        for k in range(2):
            for c in range(2):
                g.rate[c, k] += by[t, k] * (1 / p.rate[c, k] - y[t, c])
    return total


def _arma(d):
    parameters = {"mu": sd.real(), "phi": sd.real(), "theta": sd.real(), "sigma": sd.positive()}
    priors = {"mu": pr.normal(0, 10), "phi": pr.normal(0, 2), "theta": pr.normal(0, 2)}
    priors |= {"sigma": pr.half_cauchy(2.5)}
    return arma, np.asarray(d["y"], float), parameters, priors, None


def _garch(d):
    """A flat simplex is the flat density of two positive numbers of a sum below 1."""
    data = (np.asarray(d["y"], float), np.array([float(d["sigma1"])]))
    parameters = {"mu": sd.real(), "alpha0": sd.positive(), "w": sd.simplex(3)}
    return garch, data, parameters, {}, lambda p: {"alpha1": p.w[0], "beta1": p.w[1]}


def _rows(p):
    return {"theta1": p.theta[0], "theta2": p.theta[1]}


def _example(d):
    y = np.asarray(d["y"], float)[:, None]
    parameters = {"theta": sd.simplex(2, 2), "mean": sd.ordered(2, 1, low=0)}
    priors = {"mean": pr.normal([[3, 10]], 1)}
    return normal_states, (y, np.ones(1)), parameters, priors, lambda p: _rows(p) | {"mu": p.mean[0]}


def _drive(d):
    return np.ascontiguousarray(np.column_stack([np.asarray(d[name], float) for name in "uv"]))


def _drive_0(d):
    parameters = {"theta": sd.simplex(2, 2), "rate": sd.ordered(2, 2, low=0)}
    priors = {"theta": pr.dirichlet(d["alpha"]), "rate": pr.normal([[0, 3], [0, 3]], 1)}
    return (
        exponential_states,
        _drive(d),
        parameters,
        priors,
        lambda p: _rows(p) | {"phi": p.rate[0], "lambda": p.rate[1]},
    )


def _drive_1(d):
    parameters = {"theta": sd.simplex(2, 2), "mean": sd.ordered(2, 2)}
    priors = {"theta": pr.dirichlet(d["alpha"]), "mean": pr.normal([[0, 3], [0, 3]], 1)}
    data = (_drive(d), np.array([d["tau"], d["rho"]], float))
    return (
        normal_states,
        data,
        parameters,
        priors,
        lambda p: _rows(p) | {"phi": p.mean[0], "lambda": p.mean[1]},
    )


SERIES = {
    "arma-arma11": _arma,
    "garch-garch11": _garch,
    "hmm_example-hmm_example": _example,
    "bball_drive_event_0-hmm_drive_0": _drive_0,
    "bball_drive_event_1-hmm_drive_1": _drive_1,
}
