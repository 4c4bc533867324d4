"""From draws of one density, or of its shards, to a `Posterior` with its diagnostics.

Weighted draws are resampled once, so that every posterior that is handed out has draws that count alike; what
the weights were worth stays in the diagnostics. Where these say not to use the draws, there is a warning.
"""

import warnings

import numpy as np

from ....errors import PosteriorWarning
from ....scheduler.threads import single_threaded_blas
from ..chains.chain import STATISTICS
from ..chains.laplace import missed_share
from ..chains.unseen import look_for_modes
from ..models.failures import COUNTS, first_failure
from ..posterior.diagnostics import diagnose, told_aloud
from ..posterior.draws import Posterior
from ..posterior.psis import importance_ess, khat_limit, resample
from .combination import taken
from .combiners import combine
from .exact import LEAST_ESS

_HAMILTONIAN = ("nuts", "split_hmc", "hmc", "mala")
_LEAST = 4  # draws of a chain that tell of convergence
_LEAST_PART = 0.5  # of few weighted draws, that they must be worth
_COMPARED = 50  # draws at which the density of all rows is compared with the shards'
_WEIGHING = ("auto", "exact")  # with proposals in a second round
_RESAMPLING = 1  # beside the seed: a stream of its own


def from_sample(model, sample, variables, seed, local=None, names=None):
    """Make the posterior of a density that was sampled in one piece.

    Parameters
    ----------
    model : Model
    sample : Sample
    variables : dict of str to tuple of int
        Names and shapes of the columns of ``model.values``.
    seed : int
        Of the resampling of weighted draws.
    local : callable, optional
        ``local(points)`` draws further columns given those of ``model.values``; see `draw_posterior`.
    names : sequence of str, optional
        Of the parameters in the diagnostics; the model's by default.

    Returns
    -------
    Posterior

    Warns
    -----
    PosteriorWarning
        If the diagnostics say not to use the draws.
    """
    draws = sample.stacked()
    chains, T, d = draws.shape
    log_weights, found = sample.chains[0].log_weights, None
    if log_weights is not None:
        limit = khat_limit(T) if T > 1 else 0.0
        figures = {
            "k_hat": sample.k_hat,
            "k_hat_limit": limit,
            "importance_ess": importance_ess(log_weights),
            "importance_ess_limit": min(LEAST_ESS, _LEAST_PART * T),  # few were asked for: no fault of theirs
            "n_modes": sample.n_modes,
            "n_searches": sample.n_searches,
        }
        figures |= _counted(sample.chains)
        if len(sample.modes) > 1:
            points = _alike(draws.reshape(-1, d), log_weights, seed, T)
            logps = _alike(sample.stacked("log_densities").ravel(), log_weights, seed, T)
            figures["missed_share"] = missed_share(model, sample.modes, points, logps)
        found = diagnose(None, figures=figures, failure=sample.chains[0].failure)
    elif T >= _LEAST:
        by_name = not sample.n_searches
        sample = look_for_modes(model, sample, seed)
        share = missed_share(
            model, sample.modes, draws.reshape(-1, d), sample.stacked("log_densities").ravel()
        )
        energy = sample.statistic("energy")[None] if sample.sampler in _HAMILTONIAN else None
        divergences = [int(sample.statistic("divergent").sum())]
        found = diagnose(
            draws[None],
            energy=energy,
            divergences=divergences,
            figures=_counted(sample.chains)
            | {
                "n_modes": sample.n_modes,
                "n_searches": sample.n_searches,
                "missed_share": share,
                "modes_seen": by_name and not share,
                "k_hat_mode": sample.k_hat if sample.sampler == "split_hmc" else np.nan,
            },
            names=model.names if names is None else names,
            failure=next((chain.failure for chain in sample.chains if chain.failure), ""),
        )
    _warn(found, alone=log_weights is None)
    statistics = None
    if log_weights is None:
        columns = [sample.stacked("log_densities"), *map(sample.statistic, STATISTICS)]
        statistics = np.stack(columns, axis=-1).reshape(chains * T, -1)
    return Posterior(
        _values(model, _alike(draws.reshape(-1, d), log_weights, seed, chains * T), local),
        variables,
        n_chains=chains if log_weights is None else None,
        statistics=statistics,
        diagnostics=found,
        method=f"{sample.sampler}: {sample.reason}",
    )


def from_shards(
    model,
    arrays,
    log_density,
    variables,
    *,
    method,
    n_draws,
    n_proposals=0,
    seed,
    local=None,
    names=None,
    dealt=False,
    rows_gap=None,
):
    """Combine the draws of all shards into the posterior.

    Parameters
    ----------
    model : Model
        Of any shard.
    arrays : dict of str to ndarray of shape (M, chains, T, ...)
        ``draws``, ``gradients``, ``divergent``, ``undefined``, ``failed`` and ``failure``.
    log_density : callable
        ``log_density(points)`` returns the sum over shards, (K,); its ``failed`` and ``failure`` count the
        evaluations that raised an error, and tell the first.
    variables : dict of str to tuple of int
        See `from_sample`.
    method : str
        See `combine`.
    n_draws, seed : int
    n_proposals : int, default=0
        Of a second round, at least; there are never fewer than draws.
    local : callable, optional
        See `from_sample`.
    names : sequence of str, optional
        See `from_sample`.
    dealt : bool, default=False
        Whether the rows were dealt to the shards here, at random.
    rows_gap : callable, optional
        ``rows_gap(points)`` returns the log density of all rows less the sum over shards, (K,), which should
        be constant.

    Returns
    -------
    Posterior

    Warns
    -----
    PosteriorWarning
        If the diagnostics say not to use the draws.
    """
    draws, gradients = arrays["draws"], arrays["gradients"]
    with single_threaded_blas():
        whole = combine(
            draws,
            gradients=gradients,
            log_density=log_density,
            method=method,
            n_draws=max(n_draws, n_proposals) if method in _WEIGHING else n_draws,
            random_state=seed % 2**32,
            names=model.names if names is None else names,
        )
    draws_of_all = _alike(whole.draws, whole.log_weights, seed, n_draws)
    found = None
    if draws.shape[2] >= _LEAST:
        divergences = arrays["divergent"].sum(axis=(1, 2)).astype(np.int64)
        figures = whole.figures | {name: int(arrays[name].sum()) for name in COUNTS}
        figures["failed"] += log_density.failed
        if rows_gap is not None:
            apart = rows_gap(draws_of_all[:_COMPARED])
            figures["rows_apart"] = float(apart.std()) if np.isfinite(apart).all() else np.inf
        found = diagnose(
            draws,
            gradients=gradients,
            divergences=divergences,
            figures=figures,
            names=model.names if names is None else names,
            dealt=dealt,
            failure=first_failure(arrays["failure"]) or log_density.failure,
        )
    _warn(found)
    return Posterior(
        _values(model, draws_of_all, local),
        variables,
        n_chains=whole.n_chains,
        shard_draws=model.values(draws.reshape(-1, draws.shape[3])).reshape((*draws.shape[:3], -1)),
        diagnostics=found,
        method=f"{whole.method} of {len(draws)} shards",
    )


def _counted(chains):
    return {name: int(sum(chain.statistics[name].sum() for chain in chains)) for name in COUNTS}


def _values(model, draws, local):
    """What people ask for of draws, and what is drawn given them."""
    values = model.values(draws)
    return values if local is None else np.concatenate([values, local(draws)], axis=1)


def _alike(draws, log_weights, seed, n):
    """Take n draws that count alike."""
    rng = np.random.Generator(np.random.Philox([seed, _RESAMPLING]))
    if log_weights is None:
        return taken(draws, n, rng)
    return draws[resample(log_weights, n, rng)]


def _warn(found, alone=False):
    """Say aloud that draws are not to be used, or that chains which are themselves the result mix badly."""
    if found is None or (found.level < 2 and not alone):
        return
    lines = "; ".join(
        f"{name} {value:.3g} (limit {limit}): {words}" for name, value, limit, _, words in told_aloud(found)
    )
    if lines:
        warnings.warn(f"{found.verdict} {lines}", PosteriorWarning, stacklevel=4)
