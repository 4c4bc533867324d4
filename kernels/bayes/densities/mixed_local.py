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
from . import mixed
from .mixed_lattice import MOST_NODES, draw_group, integral, table_size


@nb.njit(**CALLED)
def _term(data, meta):
    """Place in meta of the integrated term, its columns, groups and values."""
    at, n = meta[mixed.TERMS_AT] + meta[mixed.N_TERMS] * mixed.TERM, meta[mixed.N_ROWS]
    k = meta[at + mixed.WIDTH]
    Z_at = meta[at + mixed.Z_AT]
    return at, k, meta[at + mixed.N_GROUPS], data[Z_at : Z_at + n * k].reshape(n, k)


@nb.njit(**CALLED)
def _table(family, k):
    """Places of nodes; normal noise, whose integrals are in closed form for any k, has none."""
    return np.zeros(1 if family == mixed.NORMAL else table_size(k), np.int32)


@nb.njit(**CALLED)
def mixed_local(q, g, data, meta):
    """Log posterior density, and its gradient."""
    n_values, n, family = meta[1], meta[mixed.N_ROWS], meta[mixed.FAMILY]
    work, U = np.empty(4 * n_values + meta[mixed.N_FREE]), np.empty(mixed.n_effects(meta))
    f, qg, logp = mixed.begin_rows(q, work, U, data, meta)
    theta, slope = work[:n_values], work[2 * n_values : 3 * n_values]
    first, last = meta[mixed.OWN], meta[mixed.OWN] + meta[mixed.N_OWN]
    own, by_own = theta[first:last], slope[first:last]
    y, weights = mixed.targets(data, meta)
    at, k, G, Z = _term(data, meta)
    T, by_T, slopes = np.empty((k, k)), np.zeros((k, k)), np.empty(n)
    mixed.root(k, meta[at + mixed.SD_AT], meta[at + mixed.L_AT], theta, T)
    queue, table = np.empty(MOST_NODES, np.int64), _table(family, k)
    for j in range(G):
        first, end = meta[meta[at + mixed.ROWS_AT] + j], meta[meta[at + mixed.ROWS_AT] + j + 1]
        logp += integral(
            family, f[first:end], y[first:end], weights[first:end], own, Z[first:end], T, queue, table,
            slopes[first:end], by_own, by_T,
        )  # fmt: skip
    total = weights.sum()
    logp += total * mixed.constant(family, own)
    mixed.add_constant_slope(family, own, total, by_own)
    mixed.pull_root(k, meta[at + mixed.SD_AT], meta[at + mixed.L_AT], theta, by_T, slope)
    logp += mixed.end_rows(q, qg, g, slopes, work, data, meta)
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
    n_values, family = meta[1], meta[mixed.FAMILY]
    at, k, G, Z = _term(data, meta)
    work, U = np.empty(4 * n_values + meta[mixed.N_FREE]), np.empty(mixed.n_effects(meta))
    y, weights = mixed.targets(data, meta)
    T, stream = np.empty((k, k)), name.copy()
    queue, table = np.empty(MOST_NODES, np.int64), _table(family, k)
    heights = np.empty(MOST_NODES)
    out = np.empty((len(Q), G * k))
    for r in range(len(Q)):
        f, _, _ = mixed.begin_rows(Q[r], work, U, data, meta)
        theta = work[:n_values]
        own = theta[meta[mixed.OWN] : meta[mixed.OWN] + meta[mixed.N_OWN]]
        mixed.root(k, meta[at + mixed.SD_AT], meta[at + mixed.L_AT], theta, T)
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + r)
        for j in range(G):
            first, end = meta[meta[at + mixed.ROWS_AT] + j], meta[meta[at + mixed.ROWS_AT] + j + 1]
            draw_group(
                family, f[first:end], y[first:end], weights[first:end], own, Z[first:end], T, queue, table,
                heights, stream, out[r, j * k : (j + 1) * k],
            )  # fmt: skip
    return out
