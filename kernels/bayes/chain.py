"""The one loop of all single-chain samplers: transitions, adaptation of the step size, and what is kept.

Compiled once, for every model and sampler: the density and the step of the sampler are addresses. `run` is a
pure function of its arguments (a chunk of a chain done twice gives the same bits), and since each draw has
random numbers of its own, 2 x 100 draws are 200 draws bit for bit.

Reference for dual averaging: Hoffman, Gelman, JMLR 2014, section 3.2.
"""

import math

import numba as nb
import numpy as np
from numba import types

from .. import one_form
from . import hmc
from .address import ADDRESS, INTEGERS, MATRIX, VECTOR, call, call_step
from .streams import CALLED, OPTIONS

N_STATISTICS = 7  # log density, acceptance, gradients, depth, divergent, energy, step size
N_AVERAGING = 7  # numbers of the state of dual averaging
_T0, _KAPPA = 10.0, 0.75  # dual averaging: Hoffman and Gelman 2014


@nb.njit(**CALLED)
def adapt_size(tuning, averaging, accepted):
    """Dual averaging, by smaller changes the larger gamma is.

    `averaging` is (mean of log size, error, centre, count, target, largest log size, gamma).
    """
    averaging[3] += 1.0
    weight = 1.0 / (averaging[3] + _T0)
    averaging[1] = (1.0 - weight) * averaging[1] + weight * (averaging[4] - accepted)
    size = min(averaging[2] - math.sqrt(averaging[3]) / averaging[6] * averaging[1], averaging[5])
    decay = averaging[3] ** -_KAPPA
    averaging[0] = decay * size + (1.0 - decay) * averaging[0]
    tuning[0] = math.exp(size)


@nb.njit(**CALLED)
def keep(z, gz, logp, mu, A, draw, gradient, statistic):
    """Put the state of the chain into the rows of its results."""
    hmc.place(z, draw, mu, A)
    hmc.gradient_of_place(gz, gradient, A)
    statistic[0] = logp


_RESULT = types.Tuple((MATRIX, MATRIX, MATRIX, VECTOR, VECTOR, nb.float64))


# z, gz, logp, mu, A, tuning, averaging, adapt
_CHAIN = (VECTOR, VECTOR, nb.float64, VECTOR, MATRIX, VECTOR, VECTOR, nb.boolean)


@one_form.njit(
    _RESULT(ADDRESS, ADDRESS, *_CHAIN, nb.uint32[::1], nb.int64, nb.int64, VECTOR, INTEGERS), **OPTIONS
)
def run(density, step, z, gz, logp, mu, A, tuning, averaging, adapt, name, n, rows, data, meta):
    """Make n transitions; returns draws, gradients (n, d) in q, statistics (n, 7), and the last z, gz, logp.

    `density` and `step` are addresses. The chain is at z with the gradient gz and the log
    density logp, which stay as they are. For mu and A see ``hmc``. `tuning` is (step size, limit). With
    `adapt` the step size and the state of dual averaging (7,) change in place. `name` is the stream of the
    first draw, see ``streams``; `rows` counts the scratch rows that the sampler needs.
    """
    d = len(z)
    draws, gradients, statistics = np.empty((n, d)), np.empty((n, d)), np.empty((n, N_STATISTICS))
    work = np.empty((rows, d))
    z, gz, stream = z.copy(), gz.copy(), name.copy()
    for t in range(n):
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + t)
        info, statistics[t, 6] = statistics[t, 1:], tuning[0]
        logp = call_step(step, density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta)
        if adapt:
            adapt_size(tuning, averaging, info[0])
        keep(z, gz, logp, mu, A, draws[t], gradients[t], statistics[t])
    return draws, gradients, statistics, z, gz, logp


@one_form.njit(types.Tuple((VECTOR, MATRIX))(ADDRESS, MATRIX, VECTOR, INTEGERS), **OPTIONS)
def evaluate_all(density, Q, data, meta):
    """Return log densities (K,) and gradients (K, d) at K points q."""
    logps, gradients = np.empty(len(Q)), np.empty_like(Q)
    for k in range(len(Q)):
        logps[k] = call(density, Q[k], gradients[k], data, meta)
    return logps, gradients
