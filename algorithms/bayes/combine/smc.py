"""Annealed populations of the product of shards: see ``chains.annealing``.

The reference is Student's t with the mean and covariance of all shards' draws together. Points move along
differences of others (ter Braak's differential evolution), as shards return densities alone. Costly (hundreds
of evaluations a point) and for cases that one Gaussian cannot cover: separate modes, curved ridges.
"""

import math

import numpy as np

from ..chains.annealing import Annealing
from .exact import FREEDOM, evaluated, gaussian_proposals
from .gaussian import Gaussian

MOST_PARAMETERS = 20  # the most that is tried; beyond, the population would have to grow
_MOVES = 12  # of every point at every temperature


def tempered(shards, n, rng):
    """Draw n >= 8 points from the posterior, half of them by each of two tempered populations.

    The figures are ``populations_apart``, the largest difference of the two means in standard deviations or
    of the logarithms of the standard deviations, and ``temperatures``.
    """
    flat = shards.draws.reshape(-1, shards.draws.shape[2])
    start = Gaussian(flat.mean(axis=0), np.atleast_2d(np.cov(flat.T)))
    x, log_q, start_density = gaussian_proposals(start, n, rng, FREEDOM)
    columns = {"x": x, "log_p": evaluated(shards.log_density, x), "log_q": log_q}
    annealing = Annealing(columns, 2, rng)

    def move(columns, t):
        for own in annealing.populations:
            x, log_p, log_q = (columns[name][own] for name in ("x", "log_p", "log_q"))
            for _ in range(_MOVES):
                x, log_p, log_q = _moved(x, log_p, log_q, t, shards.log_density, start_density, rng)
            columns["x"][own], columns["log_p"][own], columns["log_q"][own] = x, log_p, log_q
        return columns

    while not annealing.step(move):
        pass
    one, two = annealing.population(0), annealing.population(1)
    deviations = np.stack([one.std(axis=0), two.std(axis=0)])
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(one.mean(axis=0) - two.mean(axis=0)) / deviations.mean(axis=0)
        widths = np.abs(np.log(deviations[0] / deviations[1]))
    draws = rng.permutation(np.concatenate([one, two]))
    figures = {"populations_apart": float(np.maximum(apart, widths).max()), "temperatures": annealing.n_steps}
    return draws, figures


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
