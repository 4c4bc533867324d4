"""Has a chain converged, do the shards agree, can the combination be trusted: the figures and their limits.

R-hat and the effective sample sizes are those of Vehtari et al. (2021), for all parameters at once. They
decide whether draws are returned at all, so they are computed here and not by a package that may be missing
or of another version: the same draws meet the same verdict everywhere.
"""

import functools
import math

import numpy as np
from scipy import special, stats

from ...errors import DataError
from ...kernels.autocovariances import autocovariances
from .combine_gaussian import moment_parameters, score_parameters
from .tables import Table

RHAT_LIMIT = 1.1  # of a shard; above it its draws are refused
_RHAT_GOOD = 1.01  # of draws that are themselves the result
_ESS_GOOD, _ESS_SHARD = 400, 100
_BFMI_LIMIT = 0.3
MOST_DIVERGENT = 0.01  # part of the draws
MOST_SHIFT = 0.5  # of a combination's means by the posterior itself, in standard deviations
MOST_SPREAD = 1.25  # of its standard deviations to those by the posterior itself, or of these to them
LEAST_ACCEPTANCE = 0.05
MOST_WIDTH = 0.5  # of kernels, in standard deviations of the posterior: draws 12 % too wide
MOST_APART = 0.2  # in standard deviations: of halves, whose whole errs by about half of it; of populations
_TAILS = (0.05, 0.95)
_NEAR = (32, 256)  # lags that are tried before all of them
_P_LIMIT = 0.001  # of the tests whether shards agree
_WORDS = ("good", "care", "bad")
_VERDICTS = (
    "The draws can be trusted.",
    "Use the draws with care: see the lines marked care.",
    "Do not use these draws: see the lines marked bad.",
)


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
    """Measure whether chains, and their halves, tell of the same distribution: rank-normalised split R-hat.

    Parameters
    ----------
    draws : array-like of shape (chains, draws) or (chains, draws, d)
        At least 4 draws; one chain will do.

    Returns
    -------
    float or ndarray of shape (d,)
        The larger of the bulk's and the folded (tails') R-hat: 1 for chains that agree; NaN where nothing
        moves.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Bürkner, "Rank-normalization, folding, and localization: an improved
    R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2), 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.diagnostics import ess, split_rhat
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
    """Estimate the number of independent draws that chains are worth.

    Parameters
    ----------
    draws : array-like of shape (chains, draws) or (chains, draws, d)
    kind : {"bulk", "tail", "mean"}, default="bulk"
        Of normal scores of the ranks; the smaller one of the 5 % and 95 % quantiles; of the values as they
        are.

    Returns
    -------
    float or ndarray of shape (d,)
        At most ``n log10 n`` for n draws; NaN where nothing moves.

    References
    ----------
    Vehtari et al. (2021), see `split_rhat`; Geyer's initial monotone sequence (1992).
    """
    x = _chains(draws)
    if kind == "bulk":
        found = _geyer(_normal_scores(_split(x)))
    elif kind == "tail":
        found = _tail(x)
    elif kind == "mean":
        found = _geyer(_split(x))
    else:
        raise DataError(f"kind must be 'bulk', 'tail' or 'mean', got {kind!r}")
    return _as_given(draws, found)


def _tail(x):
    """The smaller effective size of the indicators of two quantiles."""
    ascending = np.sort(x.reshape(len(x), -1), axis=1)
    places = np.array(_TAILS) * (ascending.shape[1] - 1)
    low = places.astype(int)
    cuts = ascending[:, low] + (places - low) * (ascending[:, low + 1] - ascending[:, low])
    below = np.concatenate([x <= cut[:, None, None] for cut in cuts.T], dtype=np.float64)
    return np.fmin(*np.split(_geyer(_split(below)), 2))


def convergence(draws):
    """Compute R-hat, bulk and tail effective sizes of chains at once, for the ranks are the dearest of it.

    Parameters
    ----------
    draws : ndarray of shape (chains, draws, d)

    Returns
    -------
    rhat, bulk, tail : ndarray of shape (d,)
        As `split_rhat` and `ess` give them.
    """
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


def mcse_mean(draws):
    """Standard error of the mean of chains: standard deviation over the root of the effective size.

    Parameters
    ----------
    draws : array-like of shape (chains, draws) or (chains, draws, d)

    Returns
    -------
    float or ndarray of shape (d,)
    """
    x = _chains(draws)
    return _as_given(draws, x.std(axis=(1, 2), ddof=1) / np.sqrt(ess(draws, "mean")))


def e_bfmi(energy):
    """Measure how well momenta explore the energy: ``mean((E_t - E_{t-1})^2) / var(E)`` of every chain.

    Parameters
    ----------
    energy : array-like of shape (chains, draws)
        Of a Hamiltonian sampler.

    Returns
    -------
    ndarray of shape (chains,)
        Below about 0.3 the tails are reached too slowly.

    References
    ----------
    Betancourt, "Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo", 2016.
    """
    energy = _chains(energy)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.diff(energy, axis=1) ** 2).mean(axis=1) / energy.var(axis=1, ddof=1)


def largest_skewness(draws):
    """Return the largest absolute skewness of a parameter in any shard, for draws (M, T, d)."""
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(stats.skew(draws, axis=1))))


def cochran_q(draws):
    """Ask whether the shards' means differ by more than their posteriors allow.

    ``Q_j = sum_m (mean_mj - mean_j)^2 / var_mj``, with the mean over shards weighted by ``1 / var_mj``, is
    chi-square with M - 1 degrees of freedom where shards are random parts of data that fit the model.

    Parameters
    ----------
    draws : ndarray of shape (M, T, d)

    Returns
    -------
    q : ndarray of shape (d,)
    p : float
        Probability of so large a largest Q, times d (Bonferroni), at most 1.
    """
    means, weights = draws.mean(axis=1), 1 / draws.var(axis=1, ddof=1)
    centre = (weights * means).sum(axis=0) / weights.sum(axis=0)
    q = (weights * (means - centre) ** 2).sum(axis=0)
    if len(draws) == 1:
        return q, 1.0
    return q, min(float(len(q) * stats.chi2.sf(q.max(), len(draws) - 1)), 1.0)


def leave_one_out_distances(draws, gradients=None):
    r"""Measure how far each shard lies from the product of the others.

    .. math:: D_m^2 = (\mu_m - \mu_{-m})^T (S_m + S_{-m})^{-1} (\mu_m - \mu_{-m}),

    which is chi-square with d degrees of freedom where shards are random parts of the data.

    Parameters
    ----------
    draws : ndarray of shape (M, T, d)
    gradients : ndarray of shape (M, T, d), optional
        With them the Gaussians of the shards are score-matched, without by moments (T > d + 2).

    Returns
    -------
    distances : ndarray of shape (M,)
        :math:`D_m`; zeros for one shard.
    p : float
        Probability of so large a largest one, times M, at most 1.
    """
    M, _, d = draws.shape
    if M == 1:
        return np.zeros(1), 1.0
    precisions, shifts = (
        moment_parameters(draws) if gradients is None else score_parameters(draws, gradients, spd=True)
    )
    squares = np.empty(M)
    for m in range(M):
        own = np.linalg.inv(precisions[m])
        others = np.linalg.inv(precisions.sum(axis=0) - precisions[m])
        apart = own @ shifts[m] - others @ (shifts.sum(axis=0) - shifts[m])
        squares[m] = apart @ np.linalg.solve(own + others, apart)
    p = min(float(M * stats.chi2.sf(squares.max(), d)), 1.0)
    return np.sqrt(np.maximum(squares, 0)), p


class Diagnostics(Table):
    """The table of diagnostics: a line a figure, with its limit and what that means.

    Attributes
    ----------
    verdict : str
        The worst line, in a sentence; stands below the table.
    level : int
        0 for good, 1 for care, 2 for bad.
    """

    def __init__(self, lines):
        lines = [tuple(line) for line in lines]
        names, values, limits, levels, words = zip(*lines, strict=True) if lines else ((),) * 5
        self.lines = lines
        self.level = max(levels, default=0)
        self.verdict = _VERDICTS[self.level] if lines else "Nothing is known of these draws."
        columns = {
            "value": np.array(values, float),
            "limit": np.array(limits, str),
            "verdict": np.array([_WORDS[level] for level in levels], str),
            "in words": np.array(words, str),
        }
        super().__init__(names, columns, self.verdict)


def diagnose(chains, *, gradients=None, energy=None, divergences=None, figures=None, names=None):
    """Judge shards, their agreement and their combination.

    Parameters
    ----------
    chains : array-like of shape (M, chains, T, d), or None
        Draws of the shards, in the space in which they are combined.
    gradients : array-like, as chains, optional
    energy : array-like of shape (M, chains, T), optional
        Of a Hamiltonian sampler.
    divergences : array-like of M ints, optional
    figures : dict, optional
        `Combination.figures`.
    names : sequence of d str, optional
        Of the parameters.

    Returns
    -------
    Diagnostics
    """
    figures = figures or {}
    lines, ends = [], list(_combination_lines(figures))
    if chains is not None:
        chains = np.asarray(chains, dtype=np.float64)
        if chains.ndim != 4:
            raise DataError(f"chains must have the shape (M, chains, T, d), got {chains.shape}")
        names = [f"parameter {j}" for j in range(chains.shape[3])] if names is None else list(names)
        lines += _chain_lines(chains, names, weighed="k_hat" in figures)
        if divergences is not None:
            line = _divergence_line(np.asarray(divergences), chains.shape[1] * chains.shape[2])
            # A second round that is good has put right what the shards missed.
            excused = "k_hat" in figures and not any(level for _, _, _, level, _ in ends)
            lines.append((*line[:3], min(line[3], 1) if excused else line[3], line[4]))
        if figures.get("undefined"):
            words = "evaluations were NaN, taken for a density of zero: mend it, or return -inf there"
            lines.append(("undefined", figures["undefined"], "0", 1, words))
        if energy is not None:
            lines.append(_energy_line(np.stack([e_bfmi(shard) for shard in np.asarray(energy)])))
        if len(chains) > 1:
            lines += _agreement_lines(chains, gradients)
    if figures.get("n_searches"):
        several = figures["n_modes"] > 1
        words = f"{figures['n_searches']} searches from scattered points end in "
        words += "other modes, which draws may have missed" if several else "one mode"
        lines.append(("modes", figures["n_modes"], "1", int(several), words))
    return Diagnostics([*lines, *ends])


def _chain_lines(chains, names, weighed):
    """R-hat and effective sizes of the worst shard; weighed draws only propose, and may be rougher."""
    rhat, *sizes = (np.stack(part) for part in zip(*map(convergence, chains), strict=True))
    where = np.unravel_index(np.where(np.isnan(rhat), np.inf, rhat).argmax(), rhat.shape)
    worst, place = rhat[where], f"shard {where[0]}, {names[where[1]]}"
    good = RHAT_LIMIT if weighed else _RHAT_GOOD
    level = 2 if not worst <= RHAT_LIMIT else int(worst > good)
    words = f"did not converge: {place}" if level == 2 else f"largest in {place}"
    yield "R-hat", worst, f"< {good}", level, words
    least = _ESS_GOOD if len(chains) == 1 else _ESS_SHARD
    for kind, found in zip(("bulk", "tail"), sizes, strict=True):
        where = np.unravel_index(np.where(np.isnan(found), -np.inf, found).argmin(), found.shape)
        few = not found[where] >= least and not weighed
        yield (
            f"{kind} ESS",
            found[where],
            f"> {least}",
            int(few),
            f"{'too few: longer chains; ' * few}smallest in shard {where[0]}, {names[where[1]]}",
        )


def _divergence_line(counts, n_draws):
    worst = int(counts.argmax())
    total = int(counts.sum())
    words = f"most in shard {worst} ({counts[worst]}): a larger target_accept, or another form"
    level = 2 if counts[worst] > MOST_DIVERGENT * n_draws else int(total > 0)
    return "divergences", total, "0", level, words if total else "none"


def _energy_line(figures):
    worst = np.unravel_index(figures.argmin(), figures.shape)
    poor = not figures[worst] >= _BFMI_LIMIT
    words = f"{'heavy tails, slowly reached; ' * poor}smallest in shard {worst[0]}, chain {worst[1]}"
    return "E-BFMI", figures[worst], f"> {_BFMI_LIMIT}", int(poor), words


def _agreement_lines(chains, gradients):
    M, C, T, d = chains.shape
    draws = chains.reshape(M, C * T, d)
    yield "skewness", largest_skewness(draws), "", 0, "largest of a parameter in a shard"
    q, p = cochran_q(draws)
    apart = p < _P_LIMIT
    words = "shards disagree: were the rows dealt at random?" if apart else f"shards agree (p = {p:.2g})"
    yield "Cochran's Q", q.max(), f"p > {_P_LIMIT}", int(apart), words
    if d + 2 < C * T:
        gradients = None if gradients is None else np.asarray(gradients, float).reshape(draws.shape)
        distances, p = leave_one_out_distances(draws, gradients)
        apart = p < _P_LIMIT
        place = "apart" if apart else "farthest"
        words = f"shard {distances.argmax()} lies {place} from the others (p = {p:.2g})"
        yield "leave-one-out", distances.max(), f"p > {_P_LIMIT}", int(apart), words


def _combination_lines(figures):
    """Judge what a combination tells of itself; figures without a limit are not shown."""
    k_limit, least = figures.get("k_hat_limit", 0.7), figures.get("importance_ess_limit", 100)
    check_limit = figures.get("check_k_hat_limit", 0.7)
    judged = (
        ("half_disagreement", "halves apart", MOST_APART, False, "in sd, of shards' first and second halves"),
        ("kernel_width", "kernel width", MOST_WIDTH, False, "in sd of the posterior: the smoothing"),
        ("acceptance", "acceptance", LEAST_ACCEPTANCE, True, "of choices; frozen below the limit"),
        (
            "populations_apart",
            "populations apart",
            MOST_APART,
            False,
            "in sd, of two independent populations",
        ),
        ("k_hat", "k-hat", k_limit, False, "of the weights' tail"),
        ("importance_ess", "importance ESS", least, True, "draws that the weighted ones are worth"),
        ("mean_ess", "ESS of means", 100, True, "the same for a mean, of the worst parameter"),
        ("check_k_hat", "k-hat of the check", check_limit, False, "of exact weights of a t about the draws"),
        ("shift", "shift of means", MOST_SHIFT, False, "in sd, by the same weights"),
        (
            "spread",
            "spread",
            MOST_SPREAD,
            False,
            "how many times too wide or too narrow, by the same weights",
        ),
    )
    for key, name, limit, at_least, words in judged:
        if key in figures:
            value = figures[key]
            fine = value >= limit if at_least else value <= limit
            yield name, value, f"{'>' if at_least else '<'} {limit:.3g}", 0 if fine else 2, words
