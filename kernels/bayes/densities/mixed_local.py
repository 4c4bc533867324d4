"""Log density of a mixed model whose effects of one factor are integrated out, those of the others in q.

Any family. Given all else groups are independent, so that the density is a product of integrals over the few
effects of a group each: see ``mixed_lattice``. The effects of crossed factors are parameters, as in
``mixed``.

``meta`` and ``data`` are those of ``mixed``, with the integrated term after those in q; rows are sorted by
its groups, and ``meta[ROWS_AT]`` of the term is where the first rows of the groups begin, and where the last
ends.

Where an integral needs more nodes than its table holds, as at standard deviations of e^24, the density is
said to be zero. A shard whose own draws have such a place is refused (`MixedModel.reduced`), so that the
second round leaves out only places where no chain was.
"""

import math

import numba as nb
import numpy as np

from ... import one_form
from ..address import INTEGERS, MATRIX, VECTOR
from ..streams import CALLED, OPTIONS
from .mixed import (
    FAMILY,
    L_AT,
    N_FREE,
    N_GROUPS,
    N_OWN,
    N_ROWS,
    N_TERMS,
    NORMAL,
    OWN,
    ROWS_AT,
    SD_AT,
    TERM,
    TERMS_AT,
    WIDTH,
    Y_AT,
    Z_AT,
    add_constant_slope,
    begin_rows,
    constant,
    end_rows,
    n_effects,
    pull_root,
    root,
)
from .mixed_lattice import MOST_NODES, draw_group, integral, table_size


@nb.njit(**CALLED)
def _term(data, meta):
    """Place in meta of the integrated term, its columns, groups and values."""
    at, n = meta[TERMS_AT] + meta[N_TERMS] * TERM, meta[N_ROWS]
    k = meta[at + WIDTH]
    return at, k, meta[at + N_GROUPS], data[meta[at + Z_AT] : meta[at + Z_AT] + n * k].reshape(n, k)


@nb.njit(**CALLED)
def _table(family, k):
    """Places of nodes; normal noise, whose integrals are in closed form for any k, has none."""
    return np.zeros(1 if family == NORMAL else table_size(k), np.int32)


@nb.njit(**CALLED)
def mixed_local(q, g, data, meta):
    """Log posterior density, and its gradient."""
    n_values, n, family = meta[1], meta[N_ROWS], meta[FAMILY]
    work, U = np.empty(4 * n_values + meta[N_FREE]), np.empty(n_effects(meta))
    f, qg, logp = begin_rows(q, work, U, data, meta)
    theta, slope = work[:n_values], work[2 * n_values : 3 * n_values]
    own, by_own = (
        theta[meta[OWN] : meta[OWN] + meta[N_OWN]],
        slope[meta[OWN] : meta[OWN] + meta[N_OWN]],
    )
    y, weights = data[meta[Y_AT] : meta[Y_AT] + n], data[meta[Y_AT] + n : meta[Y_AT] + 2 * n]
    at, k, G, Z = _term(data, meta)
    T, by_T, slopes = np.empty((k, k)), np.zeros((k, k)), np.empty(n)
    root(k, meta[at + SD_AT], meta[at + L_AT], theta, T)
    queue, table = np.empty(MOST_NODES, np.int64), _table(family, k)
    for j in range(G):
        first, end = meta[meta[at + ROWS_AT] + j], meta[meta[at + ROWS_AT] + j + 1]
        logp += integral(
            family, f[first:end], y[first:end], weights[first:end], own, Z[first:end], T, queue, table,
            slopes[first:end], by_own, by_T,
        )  # fmt: skip
    total = weights.sum()
    logp += total * constant(family, own)
    add_constant_slope(family, own, total, by_own)
    pull_root(k, meta[at + SD_AT], meta[at + L_AT], theta, by_T, slope)
    logp += end_rows(q, qg, g, slopes, work, data, meta)
    if not math.isfinite(logp):
        for i in range(len(g)):
            g[i] = 0.0
        return -math.inf
    return logp


@one_form.njit(MATRIX(MATRIX, nb.uint32[::1], VECTOR, INTEGERS), **OPTIONS)
def draw_effects(Q, name, data, meta):
    """Draw the effects of the integrated term at points Q (K, d); returns (K, G k).

    Random numbers: row r has the stream `name` with its draw number raised by r.
    """
    n, n_values, family = meta[N_ROWS], meta[1], meta[FAMILY]
    at, k, G, Z = _term(data, meta)
    work, U = np.empty(4 * n_values + meta[N_FREE]), np.empty(n_effects(meta))
    y, weights = data[meta[Y_AT] : meta[Y_AT] + n], data[meta[Y_AT] + n : meta[Y_AT] + 2 * n]
    T, stream = np.empty((k, k)), name.copy()
    queue, table = np.empty(MOST_NODES, np.int64), _table(family, k)
    heights = np.empty(MOST_NODES)
    out = np.empty((len(Q), G * k))
    for r in range(len(Q)):
        f, _, _ = begin_rows(Q[r], work, U, data, meta)
        theta = work[:n_values]
        own = theta[meta[OWN] : meta[OWN] + meta[N_OWN]]
        root(k, meta[at + SD_AT], meta[at + L_AT], theta, T)
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + r)
        for j in range(G):
            first, end = meta[meta[at + ROWS_AT] + j], meta[meta[at + ROWS_AT] + j + 1]
            draw_group(
                family, f[first:end], y[first:end], weights[first:end], own, Z[first:end], T, queue, table,
                heights, stream, out[r, j * k : (j + 1) * k],
            )  # fmt: skip
    return out
