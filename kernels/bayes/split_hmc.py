"""Split Hamiltonian Monte Carlo about the mode: one gradient a draw.

In coordinates z about the mode, A A' being the inverse of the negative Hessian there, the log density is
``-z.z / 2`` and a remainder. The Gaussian part moves exactly, by a rotation of (z, p) through an angle e;
only the gradient of the remainder kicks, before and after, by ``tan(e / 2)`` and not ``e / 2``. That makes
the step exact for any shifted Gaussian at any angle below pi, so that a whole trajectory is one step, and its
error depends on what of the density is not Gaussian. The angle is uniform on [0.63, 1] times ``tuning[0]``,
so that no period repeats. Coordinates and arguments: see ``hmc``; `begin` and `go_on`: see ``nuts``.

Reference: Shahbaba, Lan, Johnson, Neal, "Split Hamiltonian Monte Carlo", Statistics and Computing 2014.
"""

import math

import numba as nb
import numpy as np

from .address import call
from .hmc import MAX_ERROR, acceptance, decide, dot, gradient_in_row, place_row
from .streams import CALLED, INNER, fill_normal, uniform

LEAST = 0.63  # the smallest angle, in parts of the largest
_P, _NEW_Z, _NEW_GZ = 2, 3, 4  # rows of scratch, after the point and the gradient there
_LOGP, _ENERGY, _KICK, NUMBERS = range(4)


@nb.njit(**INNER)
def begin(z, gz, logp, q, mu, A, tuning, stream, work, numbers):
    """Draw momenta, kick and rotate: fill q, where the density is needed."""
    p = work[_P]
    fill_normal(stream, p)
    angle = tuning[0] * (LEAST + (1.0 - LEAST) * uniform(stream))
    kick, cosine, sine = math.tan(0.5 * angle), math.cos(angle), math.sin(angle)
    numbers[_LOGP], numbers[_ENERGY], numbers[_KICK] = logp, 0.5 * dot(p, p) - logp, kick
    for i in range(len(z)):
        kicked = p[i] + kick * (gz[i] + z[i])
        work[_NEW_Z, i] = z[i] * cosine + kicked * sine
        p[i] = kicked * cosine - z[i] * sine
    place_row(work, _NEW_Z, q, mu, A)


@nb.njit(**INNER)
def go_on(z, gz, logp, q, g, mu, A, tuning, stream, work, numbers, info):
    """Kick and decide with the density at q; False, as this is the end of it."""
    p, new_z, new_gz, kick = work[_P], work[_NEW_Z], work[_NEW_GZ], numbers[_KICK]
    gradient_in_row(g, work, _NEW_GZ, A)
    for i in range(len(z)):
        p[i] += kick * (new_gz[i] + new_z[i])
    gain = numbers[_ENERGY] + logp - 0.5 * dot(p, p)
    info[0], info[1], info[2] = acceptance(gain), 1.0, 0.0
    info[3], info[4] = 0.0 if gain > -MAX_ERROR else 1.0, numbers[_ENERGY]
    numbers[_LOGP] = decide(z, gz, numbers[_LOGP], new_z, new_gz, logp, gain, stream)
    return False


@nb.njit(**CALLED)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One kick, rotation, kick, and the decision; returns the log density where the chain then is."""
    q, g, numbers = work[0], work[1], np.empty(NUMBERS)
    begin(z, gz, logp, q, mu, A, tuning, stream, work, numbers)
    go_on(z, gz, call(density, q, g, data, meta), q, g, mu, A, tuning, stream, work, numbers, info)
    return numbers[_LOGP]
