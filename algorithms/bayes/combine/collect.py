"""From draws of one density, or of its shards, to a `Posterior` with its diagnostics.

Weighted draws are resampled once, so that all draws of a posterior count alike; the diagnostics keep the
effective size of the weights. If these say not to use the draws, there is a warning.
"""

import warnings

import numpy as np

from ....errors import PosteriorWarning
from ....scheduler.threads import single_threaded_blas
from ..chains.chain import STATISTICS
from ..chains.modes import look_for_modes
from ..chains.outside import Missed, missed_mass
from ..chains.sampling import K_HAT_WEIGHTS
from ..models.failures import COUNTS, first_failure
from ..posterior.diagnostics import diagnose, lines_of_warning
from ..posterior.draws import Posterior
from ..posterior.psis import importance_ess, khat_limit, resample
from ..posterior.tables import column_names
from ..posterior.tails import spread_lines
from .combination import taken
from .combiners import combine
from .exact import LEAST_ESS

_HAMILTONIAN = ("nuts", "split_hmc", "hmc", "mala")
_LEAST = 4  # draws of a chain that tell of convergence
_LEAST_PART = 0.5  # of few weighted draws, that they must be worth
# Of weighted draws that are trusted: with a k-hat of .43 to .7, and worth a fifth of their number, means of
# curved densities are off by half a standard deviation.
_GOOD_PART = 0.5
# Draws at which the density of all rows is compared with the shards': of the result, and of all shards.
_COMPARED, _OF_SHARDS = 50, 200
_WEIGHING = ("auto", "exact")  # with proposals in a second round
_RESAMPLING, _OUTSIDE = 1, 2  # with the seed, names of random streams
# Evaluations that look for mass outside of the draws: part of those that the draws took, and limits.
_WORTH, _WORTH_OF_FEW, _FEW, _MANY = 0.1, 0.25, 1000, 20_000


def from_sample(model, sample, densities, seed, local=None):
    """Make the posterior of a density that was sampled in one piece; warn if its diagnostics are bad.

    `densities` say how it is shown, see `Densities`. `seed` is that of the resampling of weighted draws.
    ``local(points)`` are columns that belong to the density alone.
    """
    names, variables, derived = densities.names(model), densities.variables(model), densities.derived
    draws, log_weights = sample.stacked(), sample.chains[0].log_weights
    n_chains, T, d = draws.shape
    points = _alike(draws.reshape(-1, d), log_weights, seed, n_chains * T)
    values, diagnostics, statistics = model.values(points), None, None
    first = 0 if densities.judges_values else values.shape[1]
    values, variables = _with_derived(values, variables, derived)
    in_chains = values.reshape(n_chains, T, -1)
    spread = _spread(in_chains, variables)
    watched = _watched(model, in_chains[None], variables, first)
    if log_weights is not None:
        diagnostics, n_chains = _judge_weights(model, sample, points, seed, spread), None
    elif sample.evidence is not None:
        diagnostics = _judge_populations(model, sample, names, seed, spread, watched)
    else:
        columns = [sample.stacked("log_densities"), *map(sample.statistic, STATISTICS)]
        statistics = np.stack(columns, axis=-1).reshape(n_chains * T, -1)
        if T >= _LEAST:
            by_name = not sample.found.n_searches
            sample = look_for_modes(model, sample, seed)
            diagnostics = _judge_chains(model, sample, names, by_name, seed, spread, watched)
    _warn(diagnostics)
    return Posterior(
        _with_local(values, points, local),
        variables,
        n_chains=n_chains,
        statistics=statistics,
        diagnostics=diagnostics,
        method=f"{sample.sampler}: {sample.reason}",
        log_likelihood=densities.log_likelihood,
    )


def _searched(found):
    """Figures of the search for modes."""
    return {"n_modes": len(found.modes), "n_searches": found.n_searches, "modes_complete": found.complete}


def _judge_weights(model, sample, points, seed, spread):
    """Diagnostics of importance sampling; `points` are its draws, resampled."""
    log_weights, T = sample.chains[0].log_weights, len(points)
    figures = {
        "k_hat": sample.k_hat,
        "k_hat_limit": khat_limit(T) if T > 1 else 0.0,
        "k_hat_good": min(K_HAT_WEIGHTS, khat_limit(T)) if T > 1 else 0.0,
        "importance_ess": importance_ess(log_weights),
        "importance_ess_limit": min(LEAST_ESS, _LEAST_PART * T),  # few were asked for: no fault of theirs
        "importance_ess_good": _GOOD_PART * T,
        **_searched(sample.found),
    }
    figures |= _counted(sample.chains)
    logps = _alike(sample.stacked("log_densities").ravel(), log_weights, seed, T)
    modes = sample.found.modes if len(sample.found.modes) > 1 else ()
    figures["missed"] = _missed(model, modes, points[None], logps[None], T, seed)
    figures["modes_seen"] = modes and sample.mode is None  # by proposals about all of them
    return diagnose(None, figures=figures, failure=sample.chains[0].failure, spread=spread)


def _missed(model, modes, draws, logps, n_taken, seed, walled=False):
    """The mass `Missed` by draws (chains, T, d), which took n evaluations; None where it is unknown."""
    is_smooth, worth = model.concave or model.regular, _WORTH_OF_FEW if walled else _WORTH
    n = max(worth * n_taken, min(_WORTH_OF_FEW * n_taken, _FEW), len(draws))  # counts of files may be wrong
    n = 0 if is_smooth else int(min(n, _MANY))
    rng = np.random.Generator(np.random.Philox([seed, _OUTSIDE]))
    with single_threaded_blas():
        missed = missed_mass(model, modes, draws, logps, n, rng, walled)
    return Missed() if missed is None and is_smooth else missed


def _judge_chains(model, sample, names, by_name, seed, spread, watched):
    """Diagnostics of chains, after the search for modes; `by_name` says that there was none before."""
    draws, logps = sample.stacked(), sample.stacked("log_densities")
    n_taken = sample.statistic("n_gradients").sum()
    walled = sample.sampler == "slice"  # beyond walls no gradient leads
    missed = _missed(model, sample.found.modes, draws, logps, n_taken, seed, walled)
    figures = _counted(sample.chains) | {
        **_searched(sample.found),
        "missed": missed,
        "modes_seen": by_name and not (missed and missed.about_mode),
        "k_hat_mode": sample.k_hat,
        "k_hat_mode_refuted": missed is not None and sample.sampler != "split_hmc",
    }
    return diagnose(
        draws[None],
        energy=sample.statistic("energy")[None] if sample.sampler in _HAMILTONIAN else None,
        divergences=[int(sample.statistic("divergent").sum())],
        figures=figures,
        names=names,
        failure=next((chain.failure for chain in sample.chains if chain.failure), ""),
        watched=watched,
        spread=spread,
    )


def _judge_populations(model, sample, names, seed, spread, watched):
    """Diagnostics of annealed populations: whether they agree, and of how many ancestors they are."""
    draws, found = sample.stacked(), sample.evidence
    figures = _counted(sample.chains) | {
        **_searched(sample.found),
        "modes_seen": True,  # by points about all of them
        "missed": _missed(model, (), draws, sample.stacked("log_densities"), draws[..., 0].size, seed),
        "ancestors": found.ancestors,
        "move_acceptance": found.acceptance,
        "n_temperatures": found.n_steps,
        "log_evidence": (float(found.log_evidence + model.log_constant), float(found.error)),
    }
    T = draws.shape[1]
    return diagnose(
        draws[None] if T >= _LEAST else None,
        figures=figures,
        names=names,
        failure=sample.chains[0].failure,
        watched=watched,
        spread=spread,
    )


def from_shards(model, arrays, log_density, densities, settings, local=None):
    """Combine the draws of all shards into the posterior; warn if its diagnostics are bad.

    `model` is that of any shard. `arrays` (M, chains, T, ...) are ``draws``, ``gradients``, ``divergent``,
    ``undefined``, ``failed`` and ``failure``. ``log_density(points)`` is the sum over shards, (K,), and its
    ``value_and_grad(points)`` that and the gradients (K, d); its ``failed`` and ``failure`` count the
    evaluations that raised an error, and describe the first; `noise` is the standard error of log densities
    that were found from some of the rows. A second round has `n_proposals` points, and never fewer than
    draws. For the rest see `from_sample`, `Densities` and `SamplingSettings`.
    """
    names, variables, derived = densities.names(model), densities.variables(model), densities.derived
    method, seed, n_draws = settings.combine, settings.seed, settings.n_samples * settings.n_chains
    draws, gradients = arrays["draws"], arrays["gradients"]
    with single_threaded_blas():
        whole = combine(
            draws,
            gradients=gradients,
            log_density=log_density,
            value_and_grad=log_density.value_and_grad,
            method=method,
            n_draws=max(n_draws, settings.n_proposals) if method in _WEIGHING else n_draws,
            random_state=seed % 2**32,
            names=names,
        )
    draws_of_all = _alike(whole.draws, whole.log_weights, seed, n_draws)
    values_drawn, diagnostics = model.values(draws_of_all), None
    first = 0 if densities.judges_values else values_drawn.shape[1]
    of_shards = model.values(draws.reshape(-1, draws.shape[3])).reshape((*draws.shape[:3], -1))
    values, variables = _with_derived(values_drawn, variables, derived)
    if draws.shape[2] >= _LEAST:
        divergences = arrays["divergent"].sum(axis=(1, 2)).astype(np.int64)
        figures = whole.figures | {name: int(arrays[name].sum()) for name in COUNTS}
        figures["failed"] += log_density.failed
        if densities.rows_gap is not None:
            figures["rows_apart"] = _rows_apart(densities.rows_gap, draws_of_all[:_COMPARED], draws)
        diagnostics = diagnose(
            draws,
            gradients=gradients,
            divergences=divergences,
            figures=figures,
            names=names,
            dealt=densities.dealt,
            failure=first_failure(arrays["failure"]) or log_density.failure,
            watched=_watched(model, of_shards, variables, first),
            spread=_spread(values[None], variables),
        )
    _warn(diagnostics, alone=False)
    return Posterior(
        _with_local(values, draws_of_all, local),
        variables,
        n_chains=whole.n_chains,
        shard_draws=of_shards,
        diagnostics=diagnostics,
        method=f"{whole.method} of {len(draws)} shards{_by_subsets(log_density.noise)}",
        log_likelihood=densities.log_likelihood,
    )


def _rows_apart(rows_gap, draws, of_shards):
    """Standard deviation of the gap at draws, also with those of shards, which may lie where these do not."""
    evenly = np.linspace(0, of_shards[0, ..., 0].size - 1, max(1, _OF_SHARDS // len(of_shards))).astype(int)
    points = of_shards.reshape(len(of_shards), -1, draws.shape[1])[:, evenly].reshape(-1, draws.shape[1])
    of_draws, of_points = rows_gap(draws), rows_gap(points)
    gaps = np.append(of_draws, of_points[~np.isnan(of_points)])  # a shard may forbid what another allows
    return float(max(of_draws.std(), gaps.std())) if np.isfinite(gaps).all() else np.inf


def _by_subsets(noise):
    return f", by subsets of rows with an error of {noise:.1g} of a log density" if noise else ""


def _with_derived(values, variables, derived):
    """Values of draws and their variables, with those that a user derives from them."""
    return (values, variables) if derived is None else (derived.added_to(values), variables | derived.shapes)


def _watched(model, values, variables, first):
    """Values (M, chains, T, columns) that mix several parameters, or from the `first` column on; their names.

    Those that move: others say nothing of chains.
    """
    moves = (np.ptp(values, axis=(1, 2)) > 0).all(axis=0)
    moves[:first] &= np.isin(np.arange(first), model.watched)
    names = column_names(variables)[: len(moves)]
    return values[..., moves], [name for name, is_moved in zip(names, moves, strict=True) if is_moved]


def _counted(chains):
    return {name: int(sum(chain.statistics[name].sum() for chain in chains)) for name in COUNTS}


def _spread(values, variables):
    """Lines of what draws say of standard deviations, by values (chains, T, columns) on the user's scale."""
    return spread_lines(values, column_names(variables)) if values.shape[1] >= _LEAST else ()


def _with_local(values, draws, local):
    """Values of draws, and the draws that `local` adds to them."""
    return values if local is None else np.concatenate([values, local(draws)], axis=1)


def _alike(draws, log_weights, seed, n):
    """Take n draws that count alike."""
    rng = np.random.Generator(np.random.Philox([seed, _RESAMPLING]))
    if log_weights is None:
        return taken(draws, n, rng)
    return draws[resample(log_weights, n, rng)]


def _warn(diagnostics, alone=True):
    """Warn of draws that should not be used, or that may be wrong: see `lines_of_warning`."""
    if diagnostics is None:
        return
    lines = "; ".join(
        f"{name} {value:.3g} (limit {limit}): {words}"
        for name, value, limit, _, words in lines_of_warning(diagnostics, alone)
    )
    if lines:
        warnings.warn(f"{diagnostics.verdict} {lines}", PosteriorWarning, stacklevel=5)
