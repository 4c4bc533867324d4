"""From draws of one density, or of its shards, to a `Posterior` with its diagnostics."""

import numpy as np

from ...scheduler.threads import single_threaded_blas
from .combine import combine
from .diagnostics import diagnose
from .posterior import Posterior
from .psis import importance_ess, khat_limit

_HAMILTONIAN = ("nuts", "split_hmc", "hmc", "mala")
_LEAST = 4  # draws of a chain that tell of convergence


def from_sample(model, sample, variables):
    """Make the posterior of a density that was sampled in one piece.

    Parameters
    ----------
    model : Model
    sample : Sample
    variables : dict of str to tuple of int
        Names and shapes of the columns of ``model.values``.

    Returns
    -------
    Posterior
    """
    draws = sample.stacked()
    chains, T, d = draws.shape
    log_weights, found = sample.chains[0].log_weights, None
    if log_weights is not None:
        limit = khat_limit(T) if T > 1 else 0.0
        figures = {"k_hat": sample.k_hat, "k_hat_limit": limit, "importance_ess": importance_ess(log_weights)}
        found = diagnose(None, figures=figures)
    elif T >= _LEAST:
        energy = sample.statistic("energy")[None] if sample.sampler in _HAMILTONIAN else None
        divergences = [int(sample.statistic("divergent").sum())]
        found = diagnose(draws[None], energy=energy, divergences=divergences, names=model.names)
    return Posterior(
        model.values(draws.reshape(-1, d)),
        variables,
        log_weights=log_weights,
        n_chains=chains if log_weights is None else None,
        diagnostics=found,
        method=f"{sample.sampler}: {sample.reason}",
    )


def from_shards(model, arrays, log_density, variables, *, method, n_draws, seed):
    """Combine the draws of all shards into the posterior.

    Parameters
    ----------
    model : Model
        Of any shard.
    arrays : dict of str to ndarray of shape (M, chains, T, ...)
        ``draws``, ``gradients`` and ``divergent``.
    log_density : callable
        ``log_density(points)`` returns the sum over shards, (K,).
    variables : dict of str to tuple of int
        See `from_sample`.
    method : str
        See `combine`.
    n_draws, seed : int

    Returns
    -------
    Posterior
    """
    draws, gradients = arrays["draws"], arrays["gradients"]
    with single_threaded_blas():
        whole = combine(
            draws,
            gradients=gradients,
            log_density=log_density,
            method=method,
            n_draws=n_draws,
            random_state=seed % 2**32,
        )
    found = None
    if draws.shape[2] >= _LEAST:
        divergences = arrays["divergent"].sum(axis=(1, 2)).astype(np.int64)
        found = diagnose(
            draws, gradients=gradients, divergences=divergences, figures=whole.figures, names=model.names
        )
    return Posterior(
        model.values(whole.draws),
        variables,
        log_weights=whole.log_weights,
        n_chains=whole.n_chains,
        shard_draws=model.values(draws.reshape(-1, draws.shape[3])).reshape(draws.shape),
        diagnostics=found,
        method=f"{whole.method} of {len(draws)} shards",
    )
