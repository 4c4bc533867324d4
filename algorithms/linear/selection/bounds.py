"""Bounds of the number of columns that stability selection chooses by chance.

With subsamples of half the rows, q of p columns chosen by each on average, and a threshold pi, the expected
number of chosen columns that a subsample chooses with probability at most q / p is at most

- Meinshausen and Bühlmann 2010: ``q^2 / ((2 pi - 1) p)``;
- Shah and Samworth 2013, for B complementary pairs: less, if the distribution of the share of subsamples that
  choose such a column is unimodal, and still less if it is r-concave.
"""

import numpy as np
from scipy.optimize import brentq, minimize_scalar

_NARROWEST, _WIDEST = 1e-12, 1e7  # parameters of an r-concave law: all mass at 0, and uniform


def error_bounds(q, p, threshold, n_pairs):
    """The three bounds, by name; none is above p, or above ``q / threshold``, which is Markov's."""
    found = {"meinshausen_buhlmann": q**2 / ((2 * threshold - 1) * p)}
    found["unimodal"] = unimodal_factor(q / p, threshold, n_pairs) * q**2 / p
    at = int(np.ceil(np.round(2 * n_pairs * threshold, 9)))
    found["r_concave"] = p * min(
        r_concave_tail((q / p) ** 2, at - n_pairs, n_pairs, -1 / 2),
        r_concave_tail(q / p, at, 2 * n_pairs, -1 / 4),
    )
    return {name: float(min(value, q / threshold, p)) for name, value in found.items()}


def unimodal_factor(share, threshold, n_pairs):
    """The factor of ``q^2 / p`` in theorem 2 of Shah and Samworth; infinite where it says nothing."""
    half = 1 / (2 * n_pairs)
    if not min(0.5 + share**2, 0.5 + half + 0.75 * share**2) < threshold <= 1:
        return np.inf
    if threshold <= 0.75:
        return 1 / (2 * (2 * threshold - 1 - half))
    return 4 * (1 - threshold + half) / (1 + 2 * half)


def r_concave_tail(mean, at, n, r):
    """The largest probability of ``n X >= at`` of X on 0, 1 / n, ..., 1 with that mean and an r-concave law.

    The extreme laws have masses proportional to ``(a + i)^(1 / r)`` up to some k, and less at k + 1.
    """
    target = mean * n
    if at <= target:
        return 1.0
    if target <= 0:
        return 0.0
    least = max(int(np.ceil(2 * target)), 1)  # uniform laws on 0..k have a mean above `target` from there
    if least >= n:
        return 1.0

    def weights(a, k):
        return (a + np.arange(k + 1)) ** (1 / r)

    def excess(log_a, k):
        w = weights(np.exp(log_a), k)
        return np.arange(k + 1) @ w / w.sum() - target

    ends = {}
    for k in range(least, n + 1):
        low, high = np.log(_NARROWEST), np.log(_WIDEST)
        if excess(high, k) <= 0 or excess(low, k) >= 0:
            ends[k] = high if excess(high, k) <= 0 else low
        else:
            ends[k] = brentq(excess, low, high, args=(k,), xtol=1e-12)
    best = 0.0
    for k in range(max(least, at - 1), n):  # the last mass is at k + 1

        def below(log_a, k=k):
            w = weights(np.exp(log_a), k)
            return (k + 1 - target) * w[:at].sum() / ((k + 1 - np.arange(k + 1)) @ w)

        low, high = ends[k + 1], ends[k]
        found = minimize_scalar(below, bounds=(min(low, high), max(low, high)), method="bounded")
        best = max(best, 1 - min(found.fun, below(low), below(high)))
    return float(min(best, 1.0))
