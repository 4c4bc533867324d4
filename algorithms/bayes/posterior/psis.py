"""Pareto-smoothed importance sampling: weights that can be trusted, and a figure that says whether they can.

The largest raw weights ``exp(log p - log q)`` are replaced by the expected order statistics of a generalised
Pareto distribution fitted to them. Its shape, k-hat, tells how many moments the weights have: above about
0.7 no number of draws of practical size will do.
"""

import math

import numpy as np

from ....errors import DataError

_LEAST_TAIL = 5  # draws below which no tail is fitted


def psis(log_weights):
    """Smooth and normalise importance weights; returns logarithms (n,) and k-hat, the shape of the tail.

    Log weights are up to one constant; ``-inf`` is a weight of zero. A DataError refuses weights that are NaN
    or ``inf``, none at all, and zeros alone. For k-hat see `khat_limit`. It is ``-inf`` where all weights are
    equal, ``inf`` where the tail is so heavy (or so many weights are zero) that none can be fitted, and NaN
    for fewer than 25 weights, of which a tail says nothing. Weights of the last two kinds are not smoothed.

    The tail is the ``min(n / 5, 3 sqrt(n))`` largest weights. Zhang and Stephens' estimate is the mean of a
    profile posterior over a grid; the shape is then drawn towards 0.5 with the weight of ten observations.

    References: Vehtari, Simpson, Gelman, Yao, Gabry, "Pareto smoothed importance sampling", JMLR 25(72),
    2024. Zhang, Stephens, "A new and efficient estimation method for the generalized Pareto distribution",
    Technometrics 51(3), 2009.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.posterior.psis import importance_ess, psis
    >>> x = np.random.default_rng(0).standard_normal(4000)  # proposal N(0, 1), target N(0.5, 1)
    >>> smoothed, k_hat = psis(-((x - 0.5) ** 2) / 2 + x**2 / 2)
    >>> bool(k_hat < 0.5), round(float(np.exp(smoothed) @ x), 1), round(importance_ess(smoothed), -2)
    (True, 0.5, 3100.0)
    """
    log_weights = _checked(log_weights)
    smoothed = log_weights - log_weights.max()
    n_tail = int(min(0.2 * len(smoothed), 3 * math.sqrt(len(smoothed))))
    k_hat = math.nan
    if n_tail >= _LEAST_TAIL:
        order = np.argsort(smoothed, kind="stable")
        tail = order[-n_tail:]
        cutoff = math.exp(smoothed[order[-n_tail - 1]])
        fitted, k_hat = _smoothed_tail(np.exp(smoothed[tail]) - cutoff)
        if fitted is not None:
            smoothed[tail] = np.minimum(np.log(fitted + cutoff), 0.0)
    return smoothed - math.log(np.exp(smoothed).sum()), k_hat  # the largest is about 0


def _checked(log_weights):
    weights = np.asarray(log_weights, dtype=np.float64)
    if weights.ndim != 1 or not len(weights):
        raise DataError(f"log_weights must be a vector of at least one number, got the shape {weights.shape}")
    wrong = np.flatnonzero(np.isnan(weights) | (weights == np.inf))
    if len(wrong):
        raise DataError(
            f"log_weights holds {weights[wrong[0]]} at position {wrong[0]}: the target's or the proposal's "
            "log density is not a number there; mend the density, or give -inf where the target is zero"
        )
    if weights.max() == -np.inf:
        raise DataError(
            "all log_weights are -inf: all proposals are where the target has no mass; take a wider proposal"
        )
    return weights


def _smoothed_tail(excess):
    """Fit excesses over the cutoff, ascending; return their expected order statistics (or None) and k-hat."""
    if excess[-1] <= 1e-9:  # relative to the largest weight, 1: all are equal, but for rounding
        return None, -math.inf
    if excess[quartile(len(excess))] <= 0:  # more than 700 nats below the largest
        return None, math.inf
    k_hat, sigma = fit_pareto(excess)
    if not (math.isfinite(k_hat) and sigma > 0):
        return None, math.inf
    rest = np.log1p(-(np.arange(len(excess)) + 0.5) / len(excess))
    with np.errstate(over="ignore"):  # bounded by the largest weight afterwards
        return (sigma * np.expm1(-k_hat * rest) / k_hat if k_hat else -sigma * rest), k_hat


def fit_pareto(excess):
    """Fit a generalised Pareto distribution, ``P(X > x) = (1 + k x / sigma)^(-1/k)``; returns k and sigma.

    `excess` (n,) ascends and is positive from the lower quartile on. k is drawn towards 0.5 with the weight
    of ten observations.
    """
    n = len(excess)
    n_grid = 30 + int(math.sqrt(n))
    b = 1 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    b = b / (3 * excess[quartile(n)]) + 1 / excess[-1]
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_profile = n * (np.log(-b / k) - k - 1)
    profile = np.exp(log_profile - log_profile.max())
    mean = b @ profile / profile.sum()
    k_mean = np.log1p(-mean * excess).mean()
    return float((n * k_mean + 10 * 0.5) / (n + 10)), float(-k_mean / mean)


def quartile(n):
    """The place of the lower quartile of n numbers that ascend."""
    return max(int(n / 4 + 0.5) - 1, 0)


def importance_ess(log_weights):
    """Count the independent draws that normalised weights are worth, ``1 / sum_i w_i^2``: between 1 and n."""
    return float(1 / np.exp(2 * log_weights).sum())


def khat_limit(n):
    """Return the k-hat above which a mean of n >= 2 draws has not settled, ``min(1 - 1 / log10 n, 0.7)``."""
    return min(1 - 1 / math.log10(n), 0.7)


def resample(log_weights, n, rng):
    """Choose n draws by their weights, systematically: each is taken floor or ceil of ``n w`` times.

    Returns positions in random order, with repetitions where weights are uneven.
    """
    sums = np.cumsum(np.exp(log_weights))
    places = (rng.permutation(n) + rng.random()) / n * sums[-1]  # one number for all: equal weights are kept
    return np.searchsorted(sums, places, side="right").clip(0, len(sums) - 1)
