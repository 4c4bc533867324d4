"""Diagnostics: did chains converge, do shards agree, can the combination be trusted; figures and limits.

The figures of chains are in `convergence`; here are those of shards and combinations, and what they mean.
"""

import math

import numpy as np
from scipy import stats

from ....errors import DataError
from ..._table import Table
from ..combine.gaussian import moment_parameters, score_parameters
from .convergence import convergence, e_bfmi
from .tails import TAILS

RHAT_LIMIT = 1.1  # of a shard; above it its draws are refused
_RHAT_GOOD = 1.01  # of draws that are themselves the result
_ESS_GOOD, _ESS_SHARD = 400, 100  # 400: Vehtari et al. 2021, 100 a chain
MIXED = 0.1  # part of the draws that chains are worth which mix well: of 4,000 draws the 400
_MORE = "take more draws"  # said in the table alone
_RHAT_MOST = 1.05  # where chains are short
_BFMI_LIMIT, _BFMI_FINE = 0.3, 0.5  # Stan warns below the first; few divergences do no harm above the other
MOST_DIVERGENT = 0.01  # part of the draws
# Limits of shift and spread: docs/mcmc.md, "What auto does".
# Of a combination's means by the posterior itself, in standard deviations; and of its standard deviations to
# those by the posterior, or of these to them. In between the limit is what chance does.
LEAST_SHIFT, MOST_SHIFT = 0.15, 0.3
LEAST_SPREAD, MOST_SPREAD = 1.1, 1.3  # widths over those of the reference: 1.1 passes, 1.3 fails
LEAST_ACCEPTANCE = 0.05  # a chain that hardly moves repeats its draws
MOST_WIDTH = 0.5  # of kernels, in standard deviations of the posterior: draws 12 % too wide
MOST_APART = 0.2  # in standard deviations: of halves, whose whole errs by about half of it; of populations
MOST_ROWS_APART = 0.1  # standard deviation of a logarithm: moves a mean by at most so many of its own
MOST_MISSED = 0.05  # of the posterior, about a mode that was found
_EVIDENCE_GOOD = 0.5  # an error of the log evidence with which models can be compared
_ANCESTORS_GOOD, _ANCESTORS = 100, 20  # as the effective sizes of shards' draws; of few nothing is known
LEAST_MOVED = 0.2  # acceptance of a population's trajectories, which are tuned to far more
LOG_EVIDENCE, EVIDENCE_ERROR = "log evidence", "its error"  # lines that `Posterior.log_evidence` reads
_MOST_MOVED = 0.3  # standard deviations; the limit of the reference, 0.05 of a distance, stands for it
_P_LIMIT = 0.001  # of the tests whether shards agree
_ALOUD = ("R-hat", "bulk ESS", "tail ESS", "E-BFMI", "modes", "k-hat of the mode", "k-hat", "importance ESS")
_WORDS = ("good", "care", "bad")
_VERDICTS = (
    "The draws can be trusted.",
    "Use the draws with care: see the lines marked care.",
    "Do not use these draws: see the lines marked bad.",
)


def largest_skewness(draws):
    """Return the largest absolute skewness of a parameter in any shard, for draws (M, T, d)."""
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(stats.skew(draws, axis=1))))


def cochran_q(draws):
    """Test whether the means of shards (M, T, d) differ by more than their posteriors allow: Q (d,) and p.

    ``Q_j = sum_m (mean_mj - mean_j)^2 / var_mj``, with the mean over shards weighted by ``1 / var_mj``, is
    chi-square with M - 1 degrees of freedom where shards are random parts of data that fit the model. p is
    the probability of so large a largest Q, times d (Bonferroni), at most 1.
    """
    means, weights = draws.mean(axis=1), 1 / draws.var(axis=1, ddof=1)
    centre = (weights * means).sum(axis=0) / weights.sum(axis=0)
    q = (weights * (means - centre) ** 2).sum(axis=0)
    if len(draws) == 1:
        return q, 1.0
    return q, min(float(len(q) * stats.chi2.sf(q.max(), len(draws) - 1)), 1.0)


def leave_one_out_distances(draws, gradients=None):
    r"""Measure how far each shard lies from the product of the others: D (M,), and p of the largest.

    .. math:: D_m^2 = (\mu_m - \mu_{-m})^T (S_m + S_{-m})^{-1} (\mu_m - \mu_{-m}),

    which is chi-square with d degrees of freedom where shards are random parts of the data. p is
    Bonferroni's. With gradients the Gaussians of the shards are score-matched, without by moments (T > d +
    2).
    """
    M, _, d = draws.shape
    if M == 1:
        return np.zeros(1), 1.0
    precisions, shifts = (
        moment_parameters(draws) if gradients is None else score_parameters(draws, gradients, spd=True)
    )
    squares = np.empty(M)
    for m in range(M):
        try:
            own = np.linalg.inv(precisions[m])
            others = np.linalg.inv(precisions.sum(axis=0) - precisions[m])
            apart = own @ shifts[m] - others @ (shifts.sum(axis=0) - shifts[m])
            squares[m] = apart @ np.linalg.solve(own + others, apart)
        except np.linalg.LinAlgError:  # to working precision one shard says all: the others are far from it
            squares[m] = np.inf
    p = min(float(M * stats.chi2.sf(squares.max(), d)), 1.0)
    return np.sqrt(np.maximum(squares, 0)), p


class Diagnostics(Table):
    """The table of diagnostics: a line for each figure, with its limit and meaning.

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


def checked_line(name, value, limit, level, words):
    """Return a line that was read from a file, or raise a ValueError."""
    if not (
        isinstance(name, str) and isinstance(limit, str) and isinstance(words, str) and level in (0, 1, 2)
    ):
        raise ValueError("a line of the diagnostics is damaged")
    return name, float(value), limit, int(level), words


def diagnose(
    chains,
    *,
    gradients=None,
    energy=None,
    divergences=None,
    figures=None,
    names=None,
    failure="",
    dealt=False,
    watched=None,
    spread=(),
):
    """Judge shards, their agreement and their combination.

    Draws and gradients are (M, chains, T, d), in the space in which shards are combined; `energy` (M, chains,
    T) is that of a Hamiltonian sampler, `divergences` has M counts. `figures` are those of a `Combination`.
    `failure` is the first error of the evaluations that ``figures["failed"]`` counts. `dealt` says that rows
    were dealt to the shards at random, so that chance is no reason for shards to disagree. `spread` are the
    lines of `tails`.
    """
    figures = figures or {}
    lines, ends = [], list(_combination_lines(figures))
    if chains is not None:
        chains = np.asarray(chains, dtype=np.float64)
        if chains.ndim != 4:
            raise DataError(f"chains must have the shape (M, chains, T, d), got {chains.shape}")
        names = [f"parameter {j}" for j in range(chains.shape[3])] if names is None else list(names)
        every, of_every = chains, names
        if watched is not None:
            every, of_every = np.concatenate([chains, watched[0]], axis=3), [*names, *watched[1]]
        lines += _chain_lines(every, of_every, weighed="k_hat" in figures)
        if divergences is not None:
            n_draws = chains.shape[1] * chains.shape[2]
            line = _divergence_line(np.asarray(divergences), n_draws, _mixes_well(lines, n_draws, energy))
            # A second round that is good has put right what the shards missed.
            excused = "k_hat" in figures and not any(level for _, _, _, level, _ in ends)
            lines.append((*line[:3], min(line[3], 1) if excused else line[3], line[4]))
        if energy is not None:
            lines.append(_energy_line(np.stack([e_bfmi(shard) for shard in np.asarray(energy)])))
        if len(chains) > 1:
            lines += _agreement_lines(chains, gradients, dealt)
    lines += spread
    if figures.get("undefined"):
        words = "evaluations were NaN, taken for a density of zero: mend it, or return -inf there"
        lines.append(("undefined", figures["undefined"], "0", 1, words))
    if figures.get("failed"):
        words = f"evaluations raised an error, taken for a density of zero; the first: {failure}"
        lines.append(("failed", figures["failed"], "0", 1, words))
    if figures.get("n_searches"):
        several, seen = figures["n_modes"] > 1, figures.get("modes_seen")
        words = f"{figures['n_searches']} searches from scattered points end in "
        apart = "several modes, near which draws lie" if seen else "other modes, which draws may have missed"
        words += apart if several else "one mode"
        words += "; a much narrower one may be missed" * (not several)
        complete = figures.get("modes_complete", True)
        words += "" if complete else "; there seem to be more modes, which draws may have missed"
        lines.append(("modes", figures["n_modes"], "1", int(several and not (seen and complete)), words))
    lines += _missed_lines(figures)
    return Diagnostics([*lines, *_population_lines(figures), *ends])


def _missed_lines(figures):
    """Judge what draws may have missed; see ``chains.outside``."""
    k_hat = figures.get("k_hat_mode", np.nan)
    about_mode, missed, spread = figures.get("missed") or (0.0, 0.0, 1.0)
    if about_mode > MOST_MISSED:
        words = "of the posterior lie about a mode where hardly any draws are, by the normal density there"
        yield "missed mode", about_mode, f"< {MOST_MISSED}", 2, words
    if missed:
        words = f"of the posterior lie outside of all draws, and make an sd {spread:.2g} times as wide"
        yield "missed mass", missed, "0", 2, words
    if not np.isnan(k_hat):
        level, words = 0, "of importance sampling about the mode"
        if k_hat >= 0.7 and not missed and figures["k_hat_mode_refuted"]:
            words += ", which fails; points far from the draws find no mass that these miss"
        elif k_hat >= 0.7:
            level, words = 1, f"{words}, which fails: chains may never leave it; take nuts"
        yield "k-hat of the mode", k_hat, "< 0.7", level, words


def _population_lines(figures):
    """Judge annealed populations; see ``chains.tempering``."""
    if "log_evidence" not in figures:
        return
    n, share = figures["ancestors"], figures["move_acceptance"]
    level = 0 if n >= _ANCESTORS_GOOD else 1 if n >= _ANCESTORS else 2
    words = "first points that the draws come from: more draws, if few"
    yield "ancestors", n, f"> {_ANCESTORS_GOOD}", level, words
    level = 0 if share >= LEAST_MOVED else 2
    yield "acceptance", share, f"> {LEAST_MOVED}", level, "of moves; frozen below the limit"
    yield "temperatures", figures["n_temperatures"], "", 0, "from the reference to the posterior"
    value, error = figures["log_evidence"]
    yield LOG_EVIDENCE, value, "", 0, "logarithm of the integral of the density"
    words = "standard error of that, by populations and weights"
    yield EVIDENCE_ERROR, error, f"< {_EVIDENCE_GOOD}", int(not error < _EVIDENCE_GOOD), words


def _chain_lines(chains, names, weighed):
    """R-hat and effective sizes of the worst shard; weighed draws only propose, and may be rougher."""
    rhat, bulk, tail = (np.stack(part) for part in zip(*map(convergence, chains), strict=True))
    sizes = bulk, np.where(np.isnan(tail), bulk, tail)  # NaN of a rare event, which no quantile shows
    by_chance = np.clip(_rhat_by_chance(chains, np.fmin(*sizes)), _RHAT_GOOD, _RHAT_MOST)
    limits = np.full_like(rhat, RHAT_LIMIT) if weighed else by_chance
    where = np.unravel_index(np.where(np.isnan(rhat), np.inf, rhat - limits).argmax(), rhat.shape)
    worst, good, place = rhat[where], limits[where], f"shard {where[0]}, {names[where[1]]}"
    level = 2 if not worst <= RHAT_LIMIT else int(worst > good)
    words = f"did not converge: {place}" if level == 2 else f"largest in {place}"
    yield "R-hat", worst, f"< {good:.3g}", level, words
    n_draws = chains.shape[1] * chains.shape[2]
    alone = len(chains) == 1
    least = _ESS_GOOD if alone else _ESS_SHARD
    for kind, found in zip(("bulk", "tail"), sizes, strict=True):
        where = np.unravel_index(np.where(np.isnan(found), -np.inf, found).argmin(), found.shape)
        size, words = found[where], ""
        level = 0 if weighed or size >= least else 1
        if level and size >= max(MIXED * n_draws, _ESS_SHARD):
            words = f"of {n_draws} draws, a standard error of {1 / np.sqrt(size):.2g} sd: {_MORE}; "
        elif level:
            words = "too few: longer chains; "
            level = 2 if alone and not size >= min(_ESS_SHARD, n_draws / 4) else 1
        words += f"smallest in shard {where[0]}, {names[where[1]]}"
        yield f"{kind} ESS", size, f"> {least}", level, words


def _rhat_by_chance(chains, sizes):
    """R-hat that the worst parameter exceeds once in a thousand times where all is well.

    Draws count as independent ones as many as the effective sizes (M, d) say, at least `MIXED` of them.
    """
    M, C, T, d = chains.shape
    free = 2 * C - 1  # chains are cut into halves
    ratio = stats.chi2.isf(_P_LIMIT / (2 * M * d), free) / free
    worth = np.clip(np.nan_to_num(sizes / (C * T)), MIXED, 1)
    return np.sqrt(1 + max(ratio - 1, 0) / np.maximum(T / 2 * worth, 1))


def lines_of_warning(found, alone=True):
    """Lines of diagnostics that a user is warned of: all that are bad, or those of draws that may be wrong.

    Empty where draws are worth 100 and few were taken: the table says so. Draws that were combined, not
    `alone`, have passed other checks: chains that mix badly only proposed them.
    """
    if found.level == 2:
        return [line for line in found.lines if line[3] == 2]
    aloud = (*TAILS, *(_ALOUD if alone else ()))
    poor = any(line[3] and line[0] in aloud and _MORE not in line[4] for line in found.lines)
    return [line for line in found.lines if line[3]] if poor else []


def _mixes_well(lines, n_draws, energy):
    """Whether chains of one density are far from any trouble, by R-hat, effective sizes and energies.

    A few steps that are too long diverge in any chain. Near the neck of a funnel chains get stuck as well.
    """
    sizes = [value for name, value, *_ in lines if name.endswith("ESS")]
    mixing = not any(level for _, _, _, level, _ in lines) and min(sizes) >= MIXED * n_draws
    return mixing and energy is not None and len(energy) == 1 and bool(e_bfmi(energy[0]).min() >= _BFMI_FINE)


def _divergence_line(counts, n_draws, mixes_well):
    worst = int(counts.argmax())
    total = int(counts.sum())
    if mixes_well and 0 < total <= MOST_DIVERGENT * n_draws:
        return "divergences", total, f"< {MOST_DIVERGENT:.0%}", 0, "few, where chains mix well"
    words = f"most in shard {worst} ({counts[worst]}): a larger target_accept, or another form"
    level = 2 if counts[worst] > MOST_DIVERGENT * n_draws else int(total > 0)
    return "divergences", total, "0", level, words if total else "none"


def _energy_line(figures):
    worst = np.unravel_index(figures.argmin(), figures.shape)
    poor = not figures[worst] >= _BFMI_LIMIT
    words = f"{'heavy tails, slowly reached; ' * poor}smallest in shard {worst[0]}, chain {worst[1]}"
    return "E-BFMI", figures[worst], f"> {_BFMI_LIMIT}", int(poor), words


def _agreement_lines(chains, gradients, dealt):
    M, C, T, d = chains.shape
    draws = chains.reshape(M, C * T, d)
    yield "skewness", largest_skewness(draws), "", 0, "largest of a parameter in a shard"
    q, p = cochran_q(draws)
    apart = p < _P_LIMIT
    why = (
        "the model may not fit (overdispersion, dependent rows)"
        if dealt
        else "were the rows dealt at random?"
    )
    words = f"shards disagree: {why}" if apart else f"shards agree (p = {p:.2g})"
    yield "Cochran's Q", q.max(), f"p > {_P_LIMIT}", int(apart), words
    if d + 2 < C * T:
        gradients = None if gradients is None else np.asarray(gradients, float).reshape(draws.shape)
        distances, p = leave_one_out_distances(draws, gradients)
        apart = p < _P_LIMIT
        place = "apart" if apart else "farthest"
        words = f"shard {distances.argmax()} lies {place} from the others (p = {p:.2g})"
        yield "leave-one-out", distances.max(), f"p > {_P_LIMIT}", int(apart), words


def _combination_lines(figures):
    """Judge the figures of a combination; those without a limit are not shown.

    A figure within its limit, but beyond that of ``figures["..._good"]``, asks for care.
    """
    k_limit, least = figures.get("k_hat_limit", 0.7), figures.get("importance_ess_limit", 100)
    check_limit = figures.get("check_k_hat_limit", 0.7)
    gap = "sd of log_likelihood less its sum over shards: no sum over rows, or rounding errors"
    times = "how many times too wide or too narrow, by the same weights"
    shift, spread = figures.get("shift_limit", LEAST_SHIFT), figures.get("spread_limit", LEAST_SPREAD)
    judged = (
        ("rows_apart", "sum over rows", MOST_ROWS_APART, gap),
        ("half_disagreement", "halves apart", MOST_APART, "in sd, of shards' first and second halves"),
        ("kernel_width", "kernel width", MOST_WIDTH, "in sd of the posterior: the smoothing"),
        ("acceptance", "acceptance", LEAST_ACCEPTANCE, "of choices; frozen below the limit"),
        ("populations_apart", "populations apart", MOST_APART, "in sd, of two independent populations"),
        ("k_hat", "k-hat", k_limit, "of the weights' tail"),
        ("importance_ess", "importance ESS", least, "draws that the weighted ones are worth"),
        ("mean_ess", "ESS of means", 100, "the same for a mean, of the worst parameter"),
        ("check_k_hat", "k-hat of the check", check_limit, "of exact weights of a t about the draws"),
        ("check_ess", "ESS of the check", 100, "draws that those weights are worth"),
        ("shift", "shift of means", shift, "in sd, by the same weights"),
        ("spread", "spread", spread, times),
    )
    for key, name, limit, words in judged:
        if key in figures:
            at_least = key in ("acceptance", "importance_ess", "mean_ess", "check_ess")
            value = figures[key]
            good = figures.get(f"{key}_good", limit)
            fine, surely = (value >= limit, value >= good) if at_least else (value <= limit, value <= good)
            level = (0 if surely else 1) if fine else 2
            yield name, value, f"{'>' if at_least else '<'} {good if fine else limit:.3g}", level, words


def add_prior_line(posterior, values, names, log_prior):
    r"""Add the line "prior" to the diagnostics: what doubling the power of the prior changes most.

    `values` (n, k) are parameters under the posterior's draws, `log_prior` (n,) is the log density of their
    prior; of a flat one there is no line. Under the prior to the power a, :math:`p(b)^a`, the mean of f(b)
    has the derivative :math:`\mathrm{cov}(f(b), \log p(b))` in log a, at a = 1. The figure is the largest
    change of a mean, in standard deviations, or of a standard deviation, in parts of it, times log 2.

    Reference: Kallioinen, Paananen, Buerkner, Vehtari, "Detecting and diagnosing prior and likelihood
    sensitivity with power-scaling", Statistics and Computing 34, 2024.
    """
    if not np.ptp(log_prior) > 0:
        return
    weights = posterior.weights
    z = values - weights @ values
    sizes = np.sqrt(weights @ z**2)
    z /= np.where(sizes > 0, sizes, 1.0)
    slope = weights * (log_prior - weights @ log_prior)
    moved = math.log(2) * np.maximum(np.abs(slope @ z), np.abs(slope @ z**2) / 2)
    worst = int(moved.argmax())
    level = int(moved[worst] > _MOST_MOVED)
    words = "the prior dominates: with twice its power" if level else "with twice the power of the prior"
    words += f" {names[worst]} changes by so many sd"
    line = ("prior", float(moved[worst]), f"< {_MOST_MOVED}", level, words)
    posterior.diagnostics = Diagnostics([*posterior.diagnostics.lines, line])
