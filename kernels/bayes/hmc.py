"""Hamiltonian Monte Carlo: coordinates, leapfrog steps, and trajectories of a given length.

All samplers of this family work in coordinates z, with ``q = mu + A z``. The metric lies in A, a row of
scales (shape (1, d)) or a lower triangle (d, d), so that momenta are standard normal everywhere. A log
density is a compiled function

    ``logp = density(q, g, data, meta)``

with q and g float64 (d,), data float64, meta int64; it fills g with the gradient. Its
address is an argument, so that one compiled sampler serves all models.

A step has one form for all samplers:

    ``logp = step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta)``

It moves z and its gradient gz in place, takes the chain's random numbers from `stream`, scratch rows from
`work`, ``tuning = (step size, limit)``, and fills ``info = (acceptance, gradients, depth, divergent,
energy)``.

References: Duane, Kennedy, Pendleton, Roweth, "Hybrid Monte Carlo", Physics Letters B 1987. Neal, "MCMC using
Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo, 2011. Roberts, Tweedie, "Exponential convergence
of Langevin distributions", Bernoulli 1996.
"""

import math

import numba as nb
import numpy as np

from ..indexing import copy
from .address import call
from .streams import CALLED, OPTIONS, fill_normal, uniform

MAX_ERROR = 1000.0  # of the energy: beyond it a trajectory has diverged


@nb.njit(**CALLED)
def dot(a, b):
    """Inner product."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@nb.njit(**CALLED)
def place_row(Z, row, q, mu, A):
    """Fill ``q = mu + A z`` for a row of Z; making a view of the row would take longer than this."""
    d = len(q)
    if A.shape[0] != d:
        for i in range(d):
            q[i] = mu[i] + A[0, i] * Z[row, i]
        return
    for i in range(d):
        total = mu[i]
        for j in range(i + 1):
            total += A[i, j] * Z[row, j]
        q[i] = total


@nb.njit(**CALLED)
def place(z, q, mu, A):
    """Fill ``q = mu + A z``."""
    place_row(z.reshape(1, len(z)), 0, q, mu, A)


@nb.njit(**CALLED)
def gradient_of_place(gz, g, A):
    """Solve ``A' g = gz`` for the gradient in q."""
    d = len(gz)
    if A.shape[0] != d:
        for i in range(d):
            g[i] = gz[i] / A[0, i]
        return
    for i in range(d - 1, -1, -1):
        total = gz[i]
        for j in range(i + 1, d):
            total -= A[j, i] * g[j]
        g[i] = total / A[i, i]


@nb.njit(**CALLED)
def gradient_in_row(g, GZ, row, A):
    """Fill a row of GZ with ``A' g``."""
    d = len(g)
    if A.shape[0] != d:
        for i in range(d):
            GZ[row, i] = A[0, i] * g[i]
        return
    for i in range(d):
        GZ[row, i] = 0.0
    for i in range(d):
        for j in range(i + 1):
            GZ[row, j] += A[i, j] * g[i]


@nb.njit(**OPTIONS)
def evaluate(density, z, gz, q, g, mu, A, data, meta):
    """Return the log density at z and fill its gradient in z; q and g are scratch."""
    place(z, q, mu, A)
    logp = call(density, q, g, data, meta)
    gradient_in_row(g, gz.reshape(1, len(gz)), 0, A)
    return logp


@nb.njit(**OPTIONS)
def leapfrog(density, z, p, gz, q, g, mu, A, size, data, meta):
    """One leapfrog step in place; returns the log density at its end."""
    d = len(z)
    half = 0.5 * size
    for i in range(d):
        p[i] += half * gz[i]
        z[i] += size * p[i]
    logp = evaluate(density, z, gz, q, g, mu, A, data, meta)
    for i in range(d):
        p[i] += half * gz[i]
    return logp


@nb.njit(**CALLED)
def acceptance(gain):
    """``min(1, exp(gain))``, and 0 for NaN and a diverged trajectory."""
    if not gain > -MAX_ERROR:
        return 0.0
    return 1.0 if gain >= 0.0 else math.exp(gain)


@nb.njit(**CALLED)
def decide(z, gz, logp, new_z, new_gz, new_logp, gain, stream):
    """Go to the proposal with its probability; returns the log density where the chain then is."""
    if not uniform(stream) < acceptance(gain):
        return logp
    copy(new_z, z)
    copy(new_gz, gz)
    return new_logp


@nb.njit(**CALLED)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One trajectory of 1 to `limit` leapfrog steps, their number drawn uniformly; a limit of 1 is MALA."""
    size, limit = tuning[0], tuning[1]
    q, g, p, new_z, new_gz = work[0], work[1], work[2], work[3], work[4]
    fill_normal(stream, p)
    n_steps = 1 + int(uniform(stream) * limit)
    energy = 0.5 * dot(p, p) - logp
    copy(z, new_z)
    copy(gz, new_gz)
    new_logp, taken = logp, 0
    for _ in range(n_steps):
        new_logp = leapfrog(density, new_z, p, new_gz, q, g, mu, A, size, data, meta)
        taken += 1
        if not new_logp > -np.inf:  # it cannot come back, and NaN would spread
            break
    gain = energy + new_logp - 0.5 * dot(p, p)
    info[0], info[1], info[2] = acceptance(gain), taken, 0.0
    info[3], info[4] = 0.0 if gain > -MAX_ERROR else 1.0, energy
    return decide(z, gz, logp, new_z, new_gz, new_logp, gain, stream)
