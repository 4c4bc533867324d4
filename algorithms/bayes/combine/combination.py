"""Input and output of combiners: the shards' draws, a combination of them, and its refusal."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ....errors import StradaskError


class CombinationRefused(StradaskError):
    """No combination of the shards' draws can be trusted; the message lists reasons and remedies."""


class CombinationWarning(UserWarning):
    """A combination that was requested by name has poor figures."""


@dataclass(frozen=True)
class Subposteriors:
    """Draws (M, T, d) of M shards, the gradients of log p_m at shard m's own draws, and the sum over shards.

    ``log_density(points)`` returns the sum of log p_m at points (K, d), (K,); ``value_and_grad(points)`` the
    same and its gradients (K, d).
    """

    draws: np.ndarray
    gradients: np.ndarray | None = None
    log_density: Callable | None = None
    value_and_grad: Callable | None = None


@dataclass(frozen=True)
class Combination:
    """Draws (n, d) of the posterior, with normalised `log_weights` where they do not count alike.

    `figures` are what the method measures of itself: acceptance, kernel_width, k_hat, importance_ess,
    half_disagreement, populations_apart, skew_shift, excess_moments. A method without weights that is asked
    for by name, with log_density, is compared with the posterior: shift of the means in standard deviations,
    spread (how many times too wide or too narrow), shift_limit and spread_limit, and check_k_hat and
    check_ess of the weights behind them. `seen` lists in words what was tried before. `n_chains` is 1 where
    the draws are a chain, each near the one before.
    """

    draws: np.ndarray
    method: str
    log_weights: np.ndarray | None = None
    figures: dict[str, float] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    n_chains: int | None = None


def taken(draws, n, rng):
    """Take n draws: each once in their order, or each as often as there is need for more."""
    if n == len(draws):
        return draws
    order = np.concatenate([rng.permutation(len(draws)) for _ in range(-(-n // len(draws)))])
    return draws[order[:n]]
