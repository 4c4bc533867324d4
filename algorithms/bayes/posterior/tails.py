"""Heavy tails: do draws determine the standard deviations that a summary shows?

R-hat and the effective sizes of the bulk and of tail quantiles are those of ranks, and pass for a Cauchy
distribution. A standard deviation is a mean of squares: a few draws may be most of it, or it may be infinite.
"""

import math

import numpy as np

from .convergence import ess
from .psis import fit_pareto, quartile

TAILS = ("error of sd", "k-hat of tails")
_MOST_ERROR = 0.15  # of a standard deviation: one that is a fifth too large has it
_FEW = 3.0  # times the error of normal draws, where these are few
_HEAVY = 0.4  # a standard error of k-hat below 1/2, where the variance is infinite
_NO_MEAN = 0.7  # k-hat above which a mean has not settled either
_MOST_FITTED = 20  # columns of which tails are fitted: those with the largest errors
_LEAST_TAIL = 60  # draws, those of 400: of fewer, k-hat says little and is drawn towards 1/2


def spread_lines(draws, names):
    """Lines of the diagnostics: the largest error of a standard deviation, and the heaviest tail.

    Draws are those of chains (chains, T, d), on the user's scale.
    """
    errors = errors_of_sd(draws)
    if np.isnan(errors).all():
        return []
    at = int(np.nanargmax(errors))
    limit = max(_MOST_ERROR, _FEW / math.sqrt(2 * draws.shape[0] * draws.shape[1]))
    level = int(errors[at] > limit)
    words = "a few draws are most of it: report quantiles; " * level + f"largest: {names[at]}"
    lines = [(TAILS[0], float(errors[at]), f"< {limit:.3g}", level, words)]
    k_hat, at = heaviest_tail(draws, errors)
    if math.isfinite(k_hat):
        level = int(k_hat >= _HEAVY)
        what = "the mean and the sd" if k_hat >= _NO_MEAN else "the sd"
        words = f"draws do not determine {what}, which may be infinite: report quantiles; " * level
        lines.append((TAILS[1], k_hat, f"< {_HEAVY}", level, f"{words}heaviest: {names[at]}"))
    return lines


def errors_of_sd(draws):
    """Standard errors of standard deviations of chains (chains, T, d), relative to these, (d,).

    ``sqrt(var(s) / ess(s)) / (2 mean(s))`` for the squared deviations ``s = (x - mean)^2``; NaN where nothing
    moves. One draw that is three tenths of the sum of squares makes it 0.15, and the standard deviation a
    fifth larger than the others do.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        units = np.ptp(draws, axis=(0, 1))  # of which squares cannot overflow
        scaled = np.where(units > 0, draws / np.where(units > 0, units, 1.0), 0.0)
        squares = (scaled - scaled.mean(axis=(0, 1))) ** 2
        return squares.std(axis=(0, 1)) / np.sqrt(ess(squares, "mean")) / (2 * squares.mean(axis=(0, 1)))


def heaviest_tail(draws, errors):
    r"""The heaviest tail: its k-hat and the column, of the 20 columns with the largest `errors`.

    A tail :math:`P(|x| > t) \sim t^{-1/k}` has no variance for :math:`k \ge 1/2`, and no mean for
    :math:`k \ge 1`. k-hat is the shape of a generalised Pareto distribution fitted to the largest, and to the
    smallest, draws: to ``min(n / 5, 3 sqrt(n / r))`` where n draws are worth r n. It is ``-inf`` where none
    can be fitted.

    Reference: Vehtari, Simpson, Gelman, Yao, Gabry, "Pareto smoothed importance sampling", JMLR 25(72), 2024,
    which applies k-hat to draws of Markov chains as well.
    """
    worst = -math.inf, 0
    for column in np.argsort(-np.where(np.isnan(errors), -np.inf, errors))[:_MOST_FITTED]:
        if errors[column] > 0:
            x = draws[:, :, column]
            unit = float(np.ptp(x))
            worth = ess(((x - np.median(x)) / unit) ** 2, "mean")
            worst = max(worst, (max(_shape(x.ravel(), worth), _shape(-x.ravel(), worth)), int(column)))
    return worst


def _shape(x, worth):
    """k-hat of the upper tail of n numbers that are worth so many independent ones."""
    n = len(x)
    length = int(min(0.2 * n, 3 * math.sqrt(n * n / max(min(worth, n), 1.0)))) if worth > 0 else 0
    if length < _LEAST_TAIL:
        return -math.inf
    top = np.sort(np.partition(x, n - length - 1)[n - length - 1 :])
    excess = top[1:] - top[0]
    if not excess[quartile(length)] > 0:  # many draws are equal
        return -math.inf
    k, sigma = fit_pareto(excess / excess[-1])
    return k if math.isfinite(k) and sigma > 0 else -math.inf
