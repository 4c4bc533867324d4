"""Convergence of chains: R-hat, effective sample sizes, errors of means, energies.

R-hat and the effective sample sizes are those of Vehtari et al. (2021), for all parameters at once. They
decide whether draws are returned at all, so they are computed here and not by a package that may be missing
or of another version: the same draws meet the same verdict everywhere.
"""

import functools
import math

import numpy as np
from scipy import special

from ....errors import DataError, shortened
from ....kernels.bayes.autocovariances import autocovariances

_TAILS = (0.05, 0.95)  # the quantiles of the tail ESS of Vehtari et al. 2021
_NEAR = (32, 256)  # lags that are tried before all of them


def _chains(x):
    """Check draws (chains, draws) or (chains, draws, d); return (d, chains, draws), contiguous."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim not in (2, 3) or x.shape[1] < 4 or not x.size:
        raise DataError(f"draws must have the shape (chains, at least 4 draws[, d]), got {x.shape}")
    if not np.isfinite(x).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise DataError(f"draws hold {x[place]} at (chain, draw[, parameter]) {place}: mend the density")
    return np.ascontiguousarray(np.moveaxis(x if x.ndim == 3 else x[:, :, None], 2, 0))


def _split(x):
    """Cut every chain into its two halves; of an odd number of draws the middle one is left out."""
    half = x.shape[2] // 2
    return np.concatenate([x[:, :, :half], x[:, :, -half:]], axis=1)


def _normal_scores(x):
    """Replace draws by normal quantiles of their ranks among all chains (Blom)."""
    columns = x.reshape(len(x), -1)
    order = np.argsort(columns, axis=1)
    scores = np.empty_like(columns)
    np.put_along_axis(scores, order, _ranked_scores(np.take_along_axis(columns, order, axis=1)), axis=1)
    return scores.reshape(x.shape)


def _ranked_scores(ascending):
    """Scores of columns (d, n) that ascend; equal draws have that of their mean rank."""
    d, n = ascending.shape
    scores = np.tile(_scores_of_ranks(n), (d, 1))
    first = np.ones((d, n), bool)  # of a run of equal draws
    np.not_equal(ascending[:, 1:], ascending[:, :-1], out=first[:, 1:])
    if not first.all():
        starts = np.flatnonzero(first)
        lengths = np.diff(starts, append=first.size)
        runs = lengths > 1
        means = _score(starts[runs] % n + (lengths[runs] + 1) / 2, n)
        scores.ravel()[np.repeat(runs, lengths)] = np.repeat(means, lengths[runs])
    return scores


@functools.lru_cache(maxsize=8)
def _scores_of_ranks(n):
    return _score(np.arange(1, n + 1), n)


def _score(ranks, n):
    return special.ndtri((ranks - 0.375) / (n + 0.25))


def _scale_reduction(x):
    n = x.shape[2]
    between = x.mean(axis=2).var(axis=1, ddof=1)
    within = x.var(axis=2, ddof=1).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(between / within + (n - 1) / n)


def split_rhat(draws):
    """Rank-normalised split R-hat of draws (chains, draws[, d]): do chains, and their halves, agree?

    The larger R-hat of the bulk and of the folded draws (tails): 1 for chains that agree, NaN where nothing
    moves. At least 4 draws; one chain will do.

    Reference: Vehtari, Gelman, Simpson, Carpenter, Bürkner, "Rank-normalization, folding, and localization:
    an improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2), 2021.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.posterior.convergence import ess, split_rhat
    >>> x = np.random.default_rng(0).standard_normal((4, 1000))
    >>> bool(split_rhat(x) < 1.01), bool(split_rhat(x + [[0], [0], [0], [2]]) > 1.2)
    (True, True)
    """
    halves = _split(_chains(draws))
    return _as_given(draws, _rhat(halves, _normal_scores(halves)))


def _rhat(halves, scores):
    """The larger of two R-hat: of normal scores of the halves of chains, and of the folded halves'."""
    ascending = np.sort(halves.reshape(len(halves), -1), axis=1)  # in less time than numpy's median
    n = ascending.shape[1]
    middle = (ascending[:, (n - 1) // 2] + ascending[:, n // 2]) / 2
    folded = np.abs(halves - middle[:, None, None])
    return np.fmax(_scale_reduction(scores), _scale_reduction(_normal_scores(folded)))


def ess(draws, kind="bulk"):
    """Effective sample size of draws (chains, draws[, d]); at most ``n log10 n``, NaN where nothing moves.

    Kind "bulk" is that of normal scores of the ranks, "tail" the smaller one of the 5 % and 95 % quantiles,
    "mean" that of the values as they are.

    References: Vehtari et al. (2021), see `split_rhat`; Geyer's initial monotone sequence (1992).
    """
    x = _chains(draws)
    if kind == "bulk":
        sizes = _geyer(_normal_scores(_split(x)))
    elif kind == "tail":
        sizes = _tail(x)
    elif kind == "mean":
        sizes = _geyer(_split(x))
    else:
        raise DataError(f"kind must be 'bulk', 'tail' or 'mean', got {shortened(kind)}")
    return _as_given(draws, sizes)


def _tail(x):
    """The smaller effective size of the indicators of two quantiles."""
    ascending = np.sort(x.reshape(len(x), -1), axis=1)
    places = np.array(_TAILS) * (ascending.shape[1] - 1)
    low = places.astype(int)
    cuts = ascending[:, low] + (places - low) * (ascending[:, low + 1] - ascending[:, low])
    below = np.concatenate([x <= cut[:, None, None] for cut in cuts.T], dtype=np.float64)
    return np.fmin(*np.split(_geyer(_split(below)), 2))


def convergence(draws):
    """R-hat, bulk and tail effective sizes (d,) of chains (chains, draws, d), from one ranking."""
    x = _chains(draws)
    halves = _split(x)
    scores = _normal_scores(halves)
    return _rhat(halves, scores), _geyer(scores), _tail(x)


def _geyer(x):
    """Effective sizes of chains (d, c, n): autocorrelations summed in pairs while these are positive.

    NaN where all are equal.
    """
    _, c, n = x.shape
    means = x.mean(axis=2)
    centred = x - means[:, :, None]
    found, left = np.full(len(x), np.nan), np.flatnonzero(np.ptp(x, axis=(1, 2)) > 0)
    for n_lags in (*(near for near in _NEAR if 2 * near <= n), n):
        time, ended = _time(autocovariances(centred[left], n_lags), means[left], n)
        found[left[ended]] = c * n / np.maximum(time[ended], 1 / math.log10(c * n))
        left = left[~ended]
        if not len(left):
            break
    return found


def _time(covariances, means, n):
    """Autocorrelation times (d,) from covariances (d, lags), and which of their sums have ended."""
    within = covariances[:, 0] * n / (n - 1)
    total = covariances[:, 0] + (means.var(axis=1, ddof=1) if means.shape[1] > 1 else 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = 1 - (within[:, None] - covariances) / total[:, None]
    correlations[:, 0] = 1
    n_lags = covariances.shape[1]
    pairs = correlations[:, 0 : n_lags - n_lags % 2 : 2] + correlations[:, 1::2]
    last = max(math.ceil((n - 2) / 2) - 1, 0)
    stops = ~(pairs[:, : last + 1] > 0)
    if n_lags == n:
        stops[:, -1] = True
    end = stops.argmax(axis=1)  # the first pair that no longer counts in full
    most = max(int(end.max(initial=0)), 1)
    sums = np.cumsum(np.minimum.accumulate(pairs[:, :most], axis=1), axis=1)
    columns = np.arange(len(pairs))
    whole = np.where(end > 0, sums[columns, end - 1], 0)
    even = correlations[columns, 2 * end]
    time = 2 * whole - 1 + np.where(pairs[columns, end] >= 0, even, np.maximum(even, 0))
    return time, stops[columns, end]


def _as_given(draws, values):
    return float(values[0]) if np.ndim(draws) == 2 else values


def e_bfmi(energy):
    """Measure how well momenta explore the energy: ``mean((E_t - E_{t-1})^2) / var(E)`` of every chain.

    For energies (chains, draws) of a Hamiltonian sampler. Below about 0.3 the tails are reached too slowly.

    Reference: Betancourt, "Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo", 2016.
    """
    energy = _chains(energy)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.diff(energy, axis=1) ** 2).mean(axis=1) / energy.var(axis=1, ddof=1)
