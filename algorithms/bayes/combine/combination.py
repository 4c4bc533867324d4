"""What combiners take and give: the shards' draws, a combination of them, and its refusal."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ....errors import StradaskError


class CombinationRefused(StradaskError):
    """No combination of the shards' draws can be trusted; the message lists what was seen and what to do."""


class CombinationWarning(UserWarning):
    """A combination that was asked for by name, and whose own figures speak against it."""


@dataclass(frozen=True)
class Subposteriors:
    """What is known of the shards.

    Attributes
    ----------
    draws : ndarray of shape (M, T, d)
    gradients : ndarray of shape (M, T, d) or None
        Of log p_m at its own draws.
    log_density : callable or None
        ``log_density(points)``: for points (K, d) the sum over shards of log p_m, (K,).
    """

    draws: np.ndarray
    gradients: np.ndarray | None = None
    log_density: Callable | None = None


@dataclass(frozen=True)
class Combination:
    """Draws of the posterior.

    Attributes
    ----------
    draws : ndarray of shape (n, d)
    method : str
    log_weights : ndarray of shape (n,) or None
        Normalised; None where all draws count alike.
    figures : dict of str to float
        What the method tells of itself: acceptance, kernel_width, k_hat, importance_ess, half_disagreement,
        populations_apart, skew_shift, excess_moments. What the posterior tells of a method without weights
        that was asked for by name, given log_density: shift of the means in standard deviations, spread (how
        many times too wide or too narrow), their shift_limit and spread_limit, and check_k_hat and check_ess
        of the weights that say so.
    seen : tuple of str
        In words, what was tried before.
    n_chains : int or None
        1 where the draws are a chain, each near the one before; None where they are independent.
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
