r"""Tempered sequential Monte Carlo: from a density that covers every shard to the posterior, in small steps.

.. math:: \log p_t = (1 - t) \log q + t \sum_m \log p_m, \qquad 0 = t_0 < t_1 < \dots = 1.

q is Student's t with the mean and covariance of all shards' draws together. Points are weighed, resampled and
moved at every temperature. Two populations that know nothing of each other are run; what they disagree about
is the error. Costly (hundreds of evaluations a point) and for cases that one Gaussian cannot cover: separate
modes, curved ridges.
"""

import math

import numpy as np
from scipy.special import logsumexp

from ..posterior.psis import importance_ess, resample
from .exact import FREEDOM, evaluated, gaussian_proposals
from .gaussian import Gaussian

MOST_PARAMETERS = 20  # the most that is tried; beyond, the population would have to grow
_KEPT = 0.5  # part of the points that a step of the temperature may cost
_MOVES = 12  # of every point at every temperature
_MOST_STEPS = 60  # of tempering; a cap


def tempered(shards, n, rng):
    """Draw n >= 8 points from the posterior, half of them by each of two tempered populations.

    The figures are ``populations_apart``, the largest difference of the two means in standard deviations or
    of the logarithms of the standard deviations, and ``temperatures``.
    """
    flat = shards.draws.reshape(-1, shards.draws.shape[2])
    start = Gaussian(flat.mean(axis=0), np.atleast_2d(np.cov(flat.T)))
    sizes = (n - n // 2, n // 2)
    populations = [_population(shards.log_density, start, size, rng) for size in sizes]
    (one, steps), (two, more) = populations
    deviations = np.stack([one.std(axis=0), two.std(axis=0)])
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(one.mean(axis=0) - two.mean(axis=0)) / deviations.mean(axis=0)
        widths = np.abs(np.log(deviations[0] / deviations[1]))
    draws = rng.permutation(np.concatenate([one, two]))
    figures = {"populations_apart": float(np.maximum(apart, widths).max()), "temperatures": max(steps, more)}
    return draws, figures


def _population(log_density, start, n, rng):
    """Carry n points from the start to the posterior; return them and the number of temperatures."""
    x, log_q, start_density = gaussian_proposals(start, n, rng, FREEDOM)
    log_p = evaluated(log_density, x)
    t = 0.0
    for step in range(1, _MOST_STEPS + 1):
        last = step == _MOST_STEPS  # whatever is left is then done in one step, and the populations differ
        t_next = 1.0 if last else t + largest_power(log_p - log_q, _KEPT * n, 1 - t)
        weights = (t_next - t) * (log_p - log_q)
        kept = resample(weights - logsumexp(weights), n, rng)
        x, log_p, log_q, t = x[kept], log_p[kept], log_q[kept], t_next
        for _ in range(_MOVES):
            x, log_p, log_q = _moved(x, log_p, log_q, t, log_density, start_density, rng)
        if t >= 1.0:
            return x, step
    raise AssertionError("the last step ends at 1")


def largest_power(log_weights, least, most=1.0):
    """Find the largest power of weights, up to `most`, at which they are worth `least` draws."""

    def worth(power):
        return importance_ess(power * log_weights - logsumexp(power * log_weights))

    if worth(most) >= least:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle) >= least else (low, middle)
    return high


def _moved(x, log_p, log_q, t, log_density, start_density, rng):
    """Move each half of the points along differences of the other half (ter Braak's differential evolution).

    Differences have the shape of the posterior whatever its scales, and those between two modes are jumps
    from one to the other.
    """
    n, d = x.shape
    x, log_p, log_q = x.copy(), log_p.copy(), log_q.copy()
    middle = n // 2
    for own, other in ((slice(0, middle), (middle, n)), (slice(middle, n), (0, middle))):
        size = len(x[own])
        a, b = rng.integers(*other, size=(2, size))
        # Several lengths, for modes of several widths; one in ten is a whole difference, a jump.
        length = 2.38 / math.sqrt(2 * d) * 2.0 ** -rng.integers(0, 4, size=size)
        length[rng.random(size) < 0.1] = 1.0
        noise = 1e-4 * rng.standard_normal((size, d)) * x.std(axis=0)
        proposed = x[own] + length[:, None] * (x[a] - x[b]) + noise
        there_p, there_q = evaluated(log_density, proposed), start_density(proposed)
        gain = t * (there_p - log_p[own]) + (1 - t) * (there_q - log_q[own])
        taken = np.log(rng.random(size)) < gain
        x[own][taken] = proposed[taken]
        log_p[own][taken] = there_p[taken]
        log_q[own][taken] = there_q[taken]
    return x, log_p, log_q
