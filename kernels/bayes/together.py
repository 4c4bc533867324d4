"""Several chains in step: each asks for the density at a point, and all points are evaluated together.

Where the density reads much data, one reading serves all chains. Each chain has its own random numbers,
metric and step size, and its draws are the same, bit for bit, as alone; so they do not depend on which chains
go together. A chain that has all its draws leaves, and the others go on.
"""

import numba as nb
import numpy as np
from numba import types

from .. import one_form
from . import hmc, nuts, split_hmc
from .address import ADDRESS, INTEGERS, MATRIX, VECTOR, call_together
from .chain import N_STATISTICS, NUTS, adapt_size, keep
from .streams import OPTIONS

_CUBE = nb.float64[:, :, ::1]

_begin_tree, _go_on_tree = nuts.begin, nuts.go_on
_begin_split, _go_on_split = split_hmc.begin, split_hmc.go_on


@nb.njit(**OPTIONS)
def _begin(sampler, c, t, Z, GZ, logp, q, MU, A, tuning, names, streams, works, numbers):
    """Begin draw t of chain c: fill q."""
    hmc.copy(names[c], streams[c])
    streams[c, 0], streams[c, 1] = np.uint32(0), np.uint32(names[c, 1] + t)
    if sampler == NUTS:
        _begin_tree(Z[c], GZ[c], logp, q, MU[c], A[c], tuning[c], streams[c], works[c], numbers[c])
    else:
        _begin_split(Z[c], GZ[c], logp, q, MU[c], A[c], tuning[c], streams[c], works[c], numbers[c])


@nb.njit(**OPTIONS)
def _go_on(sampler, c, Z, GZ, logp, q, g, MU, A, tuning, streams, works, numbers, info):
    """Go on with chain c; whether it asks for another density, at q."""
    if sampler == NUTS:
        return _go_on_tree(
            Z[c], GZ[c], logp, q, g, MU[c], A[c], tuning[c], streams[c], works[c], numbers[c], info
        )
    return _go_on_split(
        Z[c], GZ[c], logp, q, g, MU[c], A[c], tuning[c], streams[c], works[c], numbers[c], info
    )


@one_form.njit(
    types.Tuple((_CUBE, _CUBE, _CUBE, MATRIX, MATRIX, VECTOR))(
        ADDRESS,
        nb.int64,
        MATRIX,
        MATRIX,
        VECTOR,
        MATRIX,
        _CUBE,
        MATRIX,
        MATRIX,
        nb.boolean,
        nb.uint32[:, ::1],
        nb.int64,
        nb.int64,
        VECTOR,
        INTEGERS,
    ),
    **OPTIONS,
)
def run(density, sampler, Z, GZ, logps, MU, A, tuning, averaging, adapt, names, n, rows, data, meta):
    """Make `n` transitions of each chain; arguments and results of ``chain.run``, one row a chain.

    `sampler` is NUTS or split HMC; A (chains, 1, d) or (chains, d, d).
    """
    n_chains, d = Z.shape
    draws, gradients = np.empty((n_chains, n, d)), np.empty((n_chains, n, d))
    statistics = np.empty((n_chains, n, N_STATISTICS))
    works, streams = np.empty((n_chains, rows, d)), np.empty_like(names)
    numbers = np.empty((n_chains, nuts.n_numbers(int(tuning[:, 1].max()))))
    Q, G, values = np.empty((n_chains, d)), np.empty((n_chains, d)), np.empty(n_chains)
    Z, GZ, logps = Z.copy(), GZ.copy(), logps.copy()
    active, made, n_active = np.arange(n_chains), np.zeros(n_chains, np.int64), n_chains
    for c in range(n_chains):
        _begin(sampler, c, 0, Z, GZ, logps[c], Q[c], MU, A, tuning, names, streams, works, numbers)
    while n_active:
        call_together(density, n_active, Q, G, values, data, meta)
        asking = 0
        for k in range(n_active):
            c = active[k]
            t = made[c]
            info, statistics[c, t, 6] = statistics[c, t, 1:], tuning[c, 0]
            asks = _go_on(
                sampler, c, Z, GZ, values[k], Q[k], G[k], MU, A, tuning, streams, works, numbers, info
            )
            if not asks:
                logps[c] = numbers[c, nuts.LOGP]
                if adapt:
                    adapt_size(tuning[c], averaging[c], info[0])
                keep(Z[c], GZ[c], logps[c], MU[c], A[c], draws[c, t], gradients[c, t], statistics[c, t])
                made[c] = t + 1
                asks = t + 1 < n
                if asks:
                    _begin(
                        sampler,
                        c,
                        t + 1,
                        Z,
                        GZ,
                        logps[c],
                        Q[k],
                        MU,
                        A,
                        tuning,
                        names,
                        streams,
                        works,
                        numbers,
                    )
            if asks:  # it moves up where others have left
                active[asking] = c
                hmc.copy(Q[k], Q[asking])
                asking += 1
        n_active = asking
    return draws, gradients, statistics, Z, GZ, logps
