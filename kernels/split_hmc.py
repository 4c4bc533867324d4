"""Split Hamiltonian Monte Carlo about the mode: one gradient a draw.

In coordinates z about the mode, A A' being the inverse of the negative Hessian there, the log density is
``-z.z / 2`` and a remainder. The Gaussian part moves exactly, by a rotation of (z, p) through an angle e;
only the gradient of the remainder kicks, before and after, by ``tan(e / 2)`` and not ``e / 2``. That makes
the step exact for any shifted Gaussian at any angle below pi, so that a whole trajectory is one step, and its
error depends on what of the density is not Gaussian. The angle is uniform on [0.63, 1] times ``tuning[0]``,
so that no period repeats. Coordinates and arguments: see ``hmc``.

Reference: Shahbaba, Lan, Johnson, Neal, "Split Hamiltonian Monte Carlo", Statistics and Computing 2014.
"""

import math

import numba as nb

from .bayes_streams import OPTIONS, fill_normal, uniform
from .hmc import MAX_ERROR, acceptance, decide, dot, evaluate

LEAST = 0.63  # the smallest angle, in parts of the largest


@nb.njit(**OPTIONS)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One kick, rotation, kick, and the decision; returns the log density where the chain then is."""
    d = len(z)
    q, g, p, new_z, new_gz = work[0], work[1], work[2], work[3], work[4]
    fill_normal(stream, p)
    energy = 0.5 * dot(p, p) - logp
    angle = tuning[0] * (LEAST + (1.0 - LEAST) * uniform(stream))
    kick, cosine, sine = math.tan(0.5 * angle), math.cos(angle), math.sin(angle)
    for i in range(d):
        kicked = p[i] + kick * (gz[i] + z[i])
        new_z[i] = z[i] * cosine + kicked * sine
        p[i] = kicked * cosine - z[i] * sine
    new_logp = evaluate(density, new_z, new_gz, q, g, mu, A, data, meta)
    for i in range(d):
        p[i] += kick * (new_gz[i] + new_z[i])
    gain = energy + new_logp - 0.5 * dot(p, p)
    info[0], info[1], info[2] = acceptance(gain), 1.0, 0.0
    info[3], info[4] = 0.0 if gain > -MAX_ERROR else 1.0, energy
    return decide(z, gz, logp, new_z, new_gz, new_logp, gain, stream)
