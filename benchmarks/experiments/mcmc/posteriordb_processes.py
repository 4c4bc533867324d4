"""Gaussian processes, differential equations and others of posteriordb, written from their Stan programs."""

from typing import Any

import numba as nb
import numpy as np

import stradask as sd

pr, fn = sd.priors, sd.functions


@nb.njit
def observed_process(p, data, g):
    """y ~ N(0, K + sigma I), K the squared exponential covariance of x."""
    x, y = data
    K, by = fn.squared_exponential(x, p.alpha, p.rho), np.zeros((len(x), len(x)))
    for i in range(len(x)):
        K[i, i] += p.sigma
    total = fn.multivariate_normal(y, K, None, by)
    by_alpha, by_rho = fn.squared_exponential_gradient(x, p.alpha, p.rho, by)
    g.alpha[0] += by_alpha
    g.rho[0] += by_rho
    g.sigma[0] += np.trace(by)
    return total


@nb.njit
def process_root(x, alpha, rho):
    """Cholesky factor of the covariance, with 1e-10 on its diagonal."""
    K = fn.squared_exponential(x, alpha, rho)
    for i in range(len(x)):
        K[i, i] += 1e-10
    return np.linalg.cholesky(K)


@nb.njit
def latent_process(p, data, g):
    """k ~ Poisson(exp(f)), f = L z with the Cholesky factor L of the covariance."""
    x, k = data
    L = process_root(x, p.alpha, p.rho)
    f = L @ p.z
    rest = k - np.exp(f)
    g.z[:] += L.T @ rest
    by = fn.cholesky_gradient(L, np.outer(rest, p.z))
    by_alpha, by_rho = fn.squared_exponential_gradient(x, p.alpha, p.rho, by)
    g.alpha[0] += by_alpha
    g.rho[0] += by_rho
    return (k * f - np.exp(f)).sum()


@nb.njit
def two_processes(p, data, g):
    """y ~ N(f, exp(h)); both are sums of basis functions with the spectral density of a Gaussian process."""
    y, X, roots, Z, roots_sigma = data
    one = p.sdgp_1 * (2 * np.pi) ** 0.25 * np.sqrt(p.lscale_1) * np.exp(-0.25 * (p.lscale_1 * roots) ** 2)
    two = p.sdgp_sigma_1 * (2 * np.pi) ** 0.25 * np.sqrt(p.lscale_sigma_1)
    two = two * np.exp(-0.25 * (p.lscale_sigma_1 * roots_sigma) ** 2)
    h = p.Intercept_sigma + Z @ (two * p.zgp_sigma_1)
    r = (y - p.Intercept - X @ (one * p.zgp_1)) * np.exp(-h)
    by_f, by_h = r * np.exp(-h), r * r - 1
    g.Intercept[0] += by_f.sum()
    g.Intercept_sigma[0] += by_h.sum()
    by, by_sigma = X.T @ by_f, Z.T @ by_h
    g.zgp_1[:] += by * one
    g.zgp_sigma_1[:] += by_sigma * two
    by, by_sigma = by * one * p.zgp_1, by_sigma * two * p.zgp_sigma_1
    g.sdgp_1[0] += by.sum() / p.sdgp_1
    g.sdgp_sigma_1[0] += by_sigma.sum() / p.sdgp_sigma_1
    g.lscale_1[0] += (by * (0.5 / p.lscale_1 - 0.5 * p.lscale_1 * roots**2)).sum()
    g.lscale_sigma_1[0] += (
        by_sigma * (0.5 / p.lscale_sigma_1 - 0.5 * p.lscale_sigma_1 * roots_sigma**2)
    ).sum()
    return -h.sum() - 0.5 * (r * r).sum()


@nb.njit
def hares(t, z, theta, dz):
    """Prey and predators."""
    dz[0] = (theta[0] - theta[1] * z[1]) * z[0]
    dz[1] = (theta[3] * z[0] - theta[2]) * z[1]


@nb.njit
def lotka_volterra(p, data, g):
    """Logarithms of both populations are normal about those of the solution."""
    times, y, first = data
    z, by_start, by_theta = fn.solve_ode_gradient(hares, p.z_init, 0.0, times, p.theta)
    total = 0.0
    for k in range(2):
        r = np.log(first[k] / p.z_init[k]) / p.sigma[k]
        total -= np.log(p.sigma[k]) + 0.5 * r * r
        g.z_init[k] += r / p.sigma[k] / p.z_init[k]
        g.sigma[k] += (r * r - 1) / p.sigma[k]
        for t in range(len(times)):
            r = np.log(y[t, k] / z[t, k]) / p.sigma[k]
            total -= np.log(p.sigma[k]) + 0.5 * r * r
            slope = r / p.sigma[k] / z[t, k]
            g.z_init[:] += slope * by_start[t, k]
            g.theta[:] += slope * by_theta[t, k]
            g.sigma[k] += (r * r - 1) / p.sigma[k]
    return total


@nb.njit
def concentration(t, c, theta, dc):
    """Absorption of a dose at the rate k_a, Michaelis-Menten elimination; theta ends with dose, volume."""
    k_a, K_m, V_m, dose, volume = theta
    dc[0] = np.exp(-k_a * t) * dose * k_a / volume - V_m / volume * c[0] / (K_m + c[0])


@nb.njit
def elimination(p, data, g):
    """Logarithms of measured concentrations are normal about those of the solution."""
    times, measured, known = data
    theta = np.array([p.k_a, p.K_m, p.V_m, known[1], known[2]])
    c, _, by_theta = fn.solve_ode_gradient(concentration, np.zeros(1), known[0], times, theta)
    total = -len(times) * np.log(p.sigma)
    for t in range(len(times)):
        r = np.log(measured[t] / c[t, 0]) / p.sigma
        slope = r / p.sigma / c[t, 0]
        g.k_a[0] += slope * by_theta[t, 0, 0]
        g.K_m[0] += slope * by_theta[t, 0, 1]
        g.V_m[0] += slope * by_theta[t, 0, 2]
        g.sigma[0] += (r * r - 1) / p.sigma
        total -= 0.5 * r * r
    return total


@nb.njit
def centred(p, data, g):
    """y ~ N(Intercept + X b, sigma)."""
    X, y = data
    r = (y - p.Intercept - X @ p.b) / p.sigma
    g.b[:] += X.T @ r / p.sigma
    g.Intercept[0] += r.sum() / p.sigma
    g.sigma[0] += ((r * r).sum() - len(y)) / p.sigma
    return -len(y) * np.log(p.sigma) - 0.5 * (r * r).sum()


@nb.njit
def effects(p, data, g):
    """y_j ~ N(theta_j, sigma_j)."""
    y, sigma = data
    r = (y - p.theta) / sigma
    g.theta[:] += r / sigma
    return -0.5 * (r * r).sum()


def _arrays(d, *names):
    return tuple(np.ascontiguousarray(d[name], dtype=float) for name in names)


def _observed(d):
    parameters = {"rho": sd.positive(), "alpha": sd.positive(), "sigma": sd.positive()}
    priors = {"rho": pr.gamma(25, 4), "alpha": pr.half_normal(2), "sigma": pr.half_normal(1)}
    return observed_process, _arrays(d, "x", "y"), parameters, priors, None


def _latent(d):
    data = _arrays(d, "x", "k")
    parameters = {"rho": sd.positive(), "alpha": sd.positive(), "z": sd.real(d["N"])}
    priors = {"rho": pr.gamma(25, 4), "alpha": pr.half_normal(2), "z": pr.normal(0, 1)}
    return (
        latent_process,
        data,
        parameters,
        priors,
        lambda p: ({"f": process_root(data[0], p.alpha, p.rho) @ p.z}),
    )


def _accelerations(d):
    y, X, Z = _arrays(d, "Y", "Xgp_1", "Xgp_sigma_1")
    roots, roots_sigma = (np.ravel(x) for x in _arrays(d, "slambda_1", "slambda_sigma_1"))
    parameters: dict[str, Any] = {}
    priors: dict[str, Any] = {}
    for end, columns, intercept in (("", len(roots), (-13, 36)), ("_sigma", len(roots_sigma), (0, 10))):
        parameters |= {f"Intercept{end}": sd.real(), f"sdgp{end}_1": sd.positive()}
        parameters |= {f"lscale{end}_1": sd.positive(), f"zgp{end}_1": sd.real(columns)}
        priors |= {f"Intercept{end}": pr.student_t(3, *intercept), f"sdgp{end}_1": pr.student_t(3, 0, 36)}
        priors |= {f"lscale{end}_1": pr.inverse_gamma(1.124909, 0.0177), f"zgp{end}_1": pr.normal(0, 1)}
    return two_processes, (y, X, roots, Z, roots_sigma), parameters, priors, None


def _hares(d):
    parameters = {"theta": sd.positive(4), "z_init": sd.positive(2), "sigma": sd.positive(2)}
    priors = {"theta": pr.normal([1, 0.05, 1, 0.05], [0.5, 0.05, 0.5, 0.05])}
    priors |= {"z_init": pr.lognormal(np.log(10), 1), "sigma": pr.lognormal(-1, 1)}
    return lotka_volterra, _arrays(d, "ts", "y", "y_init"), parameters, priors, None


def _elimination(d):
    known = np.array([d["t0"], d["D"], d["V"]], float)
    parameters = {name: sd.positive() for name in ("k_a", "K_m", "V_m", "sigma")}
    priors = {name: pr.half_cauchy(1) for name in parameters}
    return elimination, (*_arrays(d, "times", "C_hat"), known), parameters, priors, None


def _diamonds(d):
    X, y = _arrays(d, "X", "Y")
    X = np.ascontiguousarray(X[:, 1:] - X[:, 1:].mean(axis=0))
    parameters = {"b": sd.real(X.shape[1]), "Intercept": sd.real(), "sigma": sd.positive()}
    priors = {"b": pr.normal(0, 1), "Intercept": pr.student_t(3, 8, 10), "sigma": pr.student_t(3, 0, 10)}
    return centred, (X, y), parameters, priors, None


def _effects(d):
    parameters = {"theta": sd.real(d["J"]), "mu": sd.real(), "tau": sd.positive()}
    priors = {"theta": pr.normal("mu", "tau"), "mu": pr.normal(0, 5), "tau": pr.half_cauchy(5)}
    return effects, _arrays(d, "y", "sigma"), parameters, priors, None


PROCESSES = {
    "gp_pois_regr-gp_regr": _observed,
    "gp_pois_regr-gp_pois_regr": _latent,
    "mcycle_gp-accel_gp": _accelerations,
    "hudson_lynx_hare-lotka_volterra": _hares,
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": _elimination,
    "diamonds-diamonds": _diamonds,
    "eight_schools-eight_schools_centered": _effects,
}
