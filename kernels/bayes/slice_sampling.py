"""Slice sampling, one coordinate z_i after the other: step out, then shrink.

Under the density at the present point a level is drawn uniformly. An interval of the width ``tuning[0]``,
laid at random about the point, grows by its width, at most ``tuning[1]`` times in all, while its ends lie
above the level; points drawn uniformly in it are rejected, and shrink it, until one lies above the level.
There is nothing to tune that matters much, and no rejection. Coordinates and arguments: see ``hmc``.

Reference: Neal, "Slice sampling", Annals of Statistics 2003, figures 3 and 5.
"""

import math

import numba as nb

from ..indexing import copy
from .hmc import evaluate
from .streams import CALLED, uniform

_MOST_SHRINKS = 200  # the interval is then 1e-60 of its width: the density has no slice there


@nb.njit(**CALLED)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One sweep over the coordinates; returns the log density at its end."""
    width, limit = tuning[0], int(tuning[1])
    q, g, point, gradient = work[0], work[1], work[2], work[3]
    energy, evaluations, stuck = -logp, 0, 0.0
    for i in range(len(z)):
        level = logp + math.log(uniform(stream))
        copy(z, point)
        low = z[i] - width * uniform(stream)
        high = low + width
        left = int(uniform(stream) * limit)
        for side in range(2):
            for _ in range(left if side == 0 else limit - 1 - left):
                point[i] = low if side == 0 else high
                evaluations += 1
                if not evaluate(density, point, gradient, q, g, mu, A, data, meta) > level:
                    break
                low, high = (low - width, high) if side == 0 else (low, high + width)
        moved = False
        for _ in range(_MOST_SHRINKS):
            point[i] = low + (high - low) * uniform(stream)
            evaluations += 1
            new_logp = evaluate(density, point, gradient, q, g, mu, A, data, meta)
            if new_logp > level:
                z[i], logp, moved = point[i], new_logp, True
                copy(gradient, gz)
                break
            if point[i] < z[i]:
                low = point[i]
            else:
                high = point[i]
        if not moved:
            stuck = 1.0
    info[0], info[1], info[2], info[3], info[4] = 1.0, evaluations, 0.0, stuck, energy
    return logp
