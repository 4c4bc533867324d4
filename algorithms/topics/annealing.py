"""Smoother topics in the first sweeps: the prior over words begins high and comes down to what was asked for.

With a small beta, topics specialise on what the first random assignments happened to bring together, and
later sweeps mend that slowly. A larger beta keeps them broad while the coarse structure is found. It is a
better start and no other model: once the sweeps of annealing are over, the chain is that of the prior asked
for. Measured on four corpora, a held-out perplexity is reached after half to a third of the sweeps.
"""

import numpy as np

FIRST_BETA = 0.1  # of each word; a prior that is as large is not annealed
_PASSES = 150  # of warp, of which each does about a quarter of what a Gibbs sweep does
_GIBBS_SWEEPS = 40
_HELD = 0.6  # part of the sweeps at FIRST_BETA; then down in equal ratios


def annealed_sweeps(max_sweeps, passes=None):
    """How many sweeps of a fit are annealed: at most half of them.

    Parameters
    ----------
    max_sweeps : int
    passes : int, optional
        Pairs of passes a sweep of warp; None for the other samplers.

    Returns
    -------
    int
    """
    enough = _GIBBS_SWEEPS if passes is None else -(-_PASSES // passes)
    return min(enough, max_sweeps // 2)


def annealed_prior(beta, sweep, n_sweeps):
    """The topic-word prior of one sweep.

    Parameters
    ----------
    beta : float64 array of shape (n_words,)
        The prior asked for.
    sweep : int
        From 0.
    n_sweeps : int
        Sweeps of annealing.

    Returns
    -------
    float64 array of shape (n_words,)
        ``max(beta, 0.1)`` at first, falling to `beta`, which it is from ``sweep == n_sweeps`` on.
    """
    if sweep >= n_sweeps:
        return beta
    held = _HELD * n_sweeps
    share = max(sweep - held, 0.0) / (n_sweeps - held)
    return beta * np.maximum(FIRST_BETA / beta, 1.0) ** (1 - share)
