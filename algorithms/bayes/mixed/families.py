"""Families of `BayesianGLM`, given linear predictors: densities, slopes, means and new observations.

`aux` maps the family's auxiliary parameters to arrays that broadcast with f (of cuts, whose last axis counts
them, all but that). A gamma family has the mean exp(f); an ordered one has logistic noise.
"""

import numpy as np
from scipy import special, stats

FAMILIES = ("normal", "student_t", "logistic", "binomial", "poisson", "negative_binomial", "gamma", "ordered")


def log_density(family, f, y, aux):
    """Log density of targets y, which broadcast with f."""
    if family == "normal":
        return stats.norm.logpdf(y, f, aux["sigma"])
    if family == "student_t":
        return stats.t.logpdf(y, aux["freedom"], f, aux["sigma"])
    if family == "logistic":
        return -np.logaddexp(0, np.where(y > 0, -f, f))
    if family == "binomial":
        return y * f - np.logaddexp(0, f)
    if family == "poisson":
        return y * f - np.exp(f) - special.gammaln(y + 1)
    if family == "negative_binomial":
        r = 1 / aux["overdispersion"]
        gap = f - np.log(r)
        share = np.logaddexp(0, gap)
        ways = -special.betaln(r, y + 1) - np.log(r + y)  # gamma functions would cancel
        return ways - r * share + y * (gap - share)
    if family == "gamma":
        shape = aux["shape"]
        ratio = np.log(y) - f
        return shape * (np.log(shape) + ratio - np.exp(ratio)) - special.gammaln(shape) - np.log(y)
    low, high = _gaps(f, y, aux["cut"])
    with np.errstate(invalid="ignore"):
        width = np.where(np.isfinite(high - low), np.log(-np.expm1(low - high)), 0.0)
    return special.log_expit(high) + special.log_expit(-low) + width


def log_constant(family, design):
    """What the kernels' densities of all rows leave out, which depends on the targets alone."""
    if family in ("poisson", "negative_binomial"):
        return -design.weights @ special.gammaln(design.y + 1)
    return 0.0 if design.trials is None else ways(design).sum()


def ways(design):
    """Logarithms of binomial coefficients, times the weights of the rows."""
    n, k = design.trials, design.observed
    return design.weights / n * (-special.betaln(k + 1, n - k + 1) - np.log(n + 1))


def _gaps(f, y, cut):
    """Distances of f from the cuts below and above each target, infinite at the ends."""
    padded = np.concatenate(
        [np.full((*cut.shape[:-1], 1), -np.inf), cut, np.full((*cut.shape[:-1], 1), np.inf)], -1
    )
    y = np.asarray(y, dtype=np.int64)
    if padded.ndim == 1:
        return padded[y] - f, padded[y + 1] - f
    padded = padded.reshape(-1, padded.shape[-1])
    return padded[:, y.ravel()].T - f, padded[:, y.ravel() + 1].T - f


def slopes(family, f, y, aux):
    """Derivative of the log density in f, and about minus the second one, both above zero on average."""
    if family in ("normal", "student_t"):
        precision = 1 / aux["sigma"] ** 2
        if family == "normal":
            return (y - f) * precision, np.full_like(f, precision)
        freedom = aux["freedom"]
        z2 = (y - f) ** 2 * precision
        return (freedom + 1) / (freedom + z2) * (y - f) * precision, np.full_like(
            f, (freedom + 1) / (freedom + 3) * precision
        )
    if family in ("logistic", "binomial"):
        p = special.expit(f)
        return y - p, p * (1 - p)
    if family == "ordered":
        low, high = (special.expit(gap) for gap in _gaps(f, y, aux["cut"]))
        return low - (1 - high), low * (1 - low) + high * (1 - high)
    mean = np.exp(np.clip(f, -500, 500))
    if family == "gamma":
        return aux["shape"] * (y / mean - 1), np.full_like(f, aux["shape"])
    spread = 1 + aux["overdispersion"] * mean if family == "negative_binomial" else 1.0
    return (y - mean) / spread, mean / spread


def mean(family, f, aux):
    """Mean of an observation; of an ordered family the probabilities of all levels, on a new last axis."""
    if family in ("normal", "student_t"):
        return f
    if family in ("logistic", "binomial"):
        return special.expit(f)
    if family == "ordered":
        below = special.expit(aux["cut"] - f[..., None])
        ends = (*below.shape[:-1], 1)
        return np.diff(np.concatenate([np.zeros(ends), below, np.ones(ends)], -1), axis=-1)
    return np.exp(f)


def variance(family, mean, aux, trials=1.0):
    """Variance of observations of a mean; arrays broadcast."""
    if family == "normal":
        return aux["sigma"] ** 2
    if family == "student_t":
        freedom = aux["freedom"]
        with np.errstate(divide="ignore"):
            heavy = np.where(freedom > 2, freedom / np.abs(freedom - 2), np.inf)
        return aux["sigma"] ** 2 * heavy
    if family in ("logistic", "binomial"):
        return mean * (1 - mean / trials)
    if family == "poisson":
        return mean
    return mean + aux["overdispersion"] * mean**2 if family == "negative_binomial" else mean**2 / aux["shape"]


def new_observations(family, f, aux, rng, trials=1):
    """Draw an observation for each predictor; of a binomial family a count of `trials`."""
    if family == "normal":
        return f + aux["sigma"] * rng.standard_normal(f.shape)
    if family == "student_t":
        return f + aux["sigma"] * rng.standard_t(np.broadcast_to(aux["freedom"], f.shape))
    if family == "binomial":
        return rng.binomial(np.broadcast_to(trials, f.shape).astype(np.int64), special.expit(f))
    if family == "logistic":
        return (rng.random(f.shape) < special.expit(f)).astype(np.int64)
    if family == "ordered":
        noise = special.logit(rng.random(f.shape))
        return (aux["cut"] < (f + noise)[..., None]).sum(axis=-1)
    mean_of = np.exp(np.minimum(f, 40.0))  # beyond, counts have no 64 bits
    if family == "gamma":
        return rng.gamma(np.broadcast_to(aux["shape"], f.shape)) * (mean_of / aux["shape"])
    if family == "negative_binomial":
        a = np.broadcast_to(aux["overdispersion"], f.shape)
        mean_of = mean_of * rng.gamma(1 / a) * a
    return rng.poisson(mean_of)
