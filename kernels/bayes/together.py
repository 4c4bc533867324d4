"""Several chains in step: each asks for the density at a point, and all points are evaluated together.

Where the density reads much data, one reading serves all chains. Each chain has its own random numbers,
metric and step size, and its draws are the same, bit for bit, as alone; so they do not depend on which chains
go together. A chain that has all its draws leaves, and the others go on.
"""

import numba as nb
import numpy as np
from numba import types

from .. import one_form
from ..indexing import copy
from .address import ADDRESS, INTEGERS, MATRIX, VECTOR, call_begin, call_go_on, call_together
from .chain import N_STATISTICS, adapt_size, keep
from .nuts import LOGP
from .streams import OPTIONS

_CUBE = nb.float64[:, :, ::1]


_RESULT = types.Tuple((_CUBE, _CUBE, _CUBE, MATRIX, MATRIX, VECTOR))
_PAIR = types.UniTuple(ADDRESS, 2)  # of addresses, or of numbers
_CHAINS = (MATRIX, MATRIX, VECTOR, MATRIX, _CUBE, MATRIX, MATRIX, nb.boolean)  # Z, GZ ... adapt


@one_form.njit(
    _RESULT(ADDRESS, _PAIR, *_CHAINS, nb.uint32[:, ::1], nb.int64, _PAIR, VECTOR, INTEGERS), **OPTIONS
)
def run(density, sampler, Z, GZ, logps, MU, A, tuning, averaging, adapt, names, n, scratch, data, meta):
    """Make `n` transitions of each chain; arguments and results of ``chain.run``, one row a chain.

    `sampler` has the addresses of `begin` and `go_on`, see ``nuts``, and `scratch` how many rows and numbers
    they need; A (chains, 1, d) or (chains, d, d).
    """
    n_chains, d = Z.shape
    begin, go_on = sampler
    draws, gradients = np.empty((n_chains, n, d)), np.empty((n_chains, n, d))
    statistics = np.empty((n_chains, n, N_STATISTICS))
    works, numbers = np.empty((n_chains, scratch[0], d)), np.empty((n_chains, scratch[1]))
    Q, G, values, streams = np.empty((n_chains, d)), np.empty((n_chains, d)), np.empty(n_chains), names.copy()
    Z, GZ, logps = Z.copy(), GZ.copy(), logps.copy()
    active, made = np.empty(n_chains, np.int64), np.empty(n_chains, np.int64)
    n_active, first = n_chains, True
    for c in range(n_chains):
        active[c], made[c] = c, 0
    while n_active:
        if not first:
            call_together(density, n_active, Q, G, values, data, meta)
        asking = 0
        for k in range(n_active):
            c = active[k]
            t, z, gz, mu, metric, tuned = made[c], Z[c], GZ[c], MU[c], A[c], tuning[c]
            q, stream, work, own = Q[k], streams[c], works[c], numbers[c]
            asks = False
            if not first:
                info, size = statistics[c, t, 1:], tuned[0]
                asks = call_go_on(
                    go_on, z, gz, values[k], q, G[k], mu, metric, tuned, stream, work, own, info
                )
                if not asks:
                    statistics[c, t, 6], logps[c] = size, own[LOGP]
                    if adapt:
                        adapt_size(tuned, averaging[c], info[0])
                    keep(z, gz, logps[c], mu, metric, draws[c, t], gradients[c, t], statistics[c, t])
                    t += 1
                    made[c] = t
            if not asks and t < n:
                copy(names[c], stream)
                stream[0], stream[1] = np.uint32(0), np.uint32(names[c, 1] + t)
                call_begin(begin, z, gz, logps[c], q, mu, metric, tuned, stream, work, own)
                asks = True
            if asks:  # it moves up where others have left
                active[asking] = c
                copy(q, Q[asking])
                asking += 1
        n_active, first = asking, False
    return draws, gradients, statistics, Z, GZ, logps
