"""Moves of points by a density between a reference q and the density p: ``q^(1 - t) p^t``.

The reference is a mixture of K Student t's. Its arrays are logarithms of shares with the constants of the
components (K,), and without (K,), degrees of freedom (K,), middles (K, d), lower triangles A_k (K, d, d) with
the scale matrix ``A_k A_k'``, and their inverses.

A trajectory of Hamiltonian Monte Carlo takes the metric of a component that is drawn by its responsibility
``r_k(x)`` for the point; accepting by ``r_k(new) / r_k(old)`` as well makes this a step of Gibbs sampling of
point and component. So modes of different widths have steps of their own. A proposal from the reference,
accepted by the power t of ``p / q``, takes points from one mode to another.

References: Neal, "MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo, 2011. Tierney,
"Markov chains for exploring posterior distributions", Annals of Statistics 1994 (independence chains).
"""

import math

import numba as nb
import numpy as np

from .. import one_form
from ..indexing import copy
from .address import ADDRESS, INTEGERS, MATRIX, VECTOR, call
from .hmc import MAX_ERROR, dot
from .streams import INNER, OPTIONS, fill_normal, uniform

_CUBE, _STREAM = nb.float64[:, :, ::1], nb.uint32[::1]
POINTS = nb.types.Tuple((MATRIX, VECTOR, VECTOR, MATRIX))
REFERENCE = nb.types.Tuple((VECTOR, VECTOR, VECTOR, MATRIX, _CUBE, _CUBE))
_MOST_FREEDOM = 16  # a whole number of squares is added up


@nb.njit(**OPTIONS)
def reference(q, heights, logs, freedom, middles, inverses, g):
    """Log density of the reference at q; fills the heights (K,) of its components, and the gradient g."""
    K, d = middles.shape
    z, highest = np.empty(d), -np.inf
    g[:] = 0.0
    for k in range(K):
        total = 0.0
        for i in range(d):
            z[i] = 0.0
            for j in range(i + 1):
                z[i] += inverses[k, i, j] * (q[j] - middles[k, j])
            total += z[i] * z[i]
        heights[k] = logs[k] - 0.5 * (freedom[k] + d) * math.log1p(total / freedom[k])
        new = max(highest, heights[k])
        if new > highest:  # what was added before, in parts of the highest
            shrink = math.exp(highest - new)
            for i in range(d):
                g[i] *= shrink
            highest = new
        part = math.exp(heights[k] - highest) * (freedom[k] + d) / (freedom[k] + total)
        for i in range(d):
            for j in range(i + 1):
                g[j] -= part * inverses[k, i, j] * z[i]
    total = 0.0
    for k in range(K):
        total += math.exp(heights[k] - highest)
    for i in range(d):
        g[i] /= total
    return highest + math.log(total)


@nb.njit(**OPTIONS)
def _chosen(u, heights, total):
    """Number of a component, by the share of its height."""
    left = u
    for k in range(len(heights) - 1):
        left -= math.exp(heights[k] - total)
        if left < 0.0:
            return k
    return len(heights) - 1


@nb.njit(**OPTIONS)
def propose(x, logs_of_shares, freedom, middles, roots, z, stream):
    """Fill x with a draw from the reference; `logs_of_shares` (K,) are without the constants."""
    d = len(x)
    k = _chosen(uniform(stream), logs_of_shares, 0.0)
    squares = np.empty(_MOST_FREEDOM)
    fill_normal(stream, squares)
    shrink, n = 0.0, int(freedom[k])
    for i in range(n):
        shrink += squares[i] * squares[i]
    fill_normal(stream, z)
    scale = 1.0 / math.sqrt(shrink / n)
    for i in range(d):
        x[i] = middles[k, i]
        for j in range(i + 1):
            x[i] += scale * roots[k, i, j] * z[j]


@nb.njit(**OPTIONS)
def _slope(t, g, gq, out):
    for i in range(len(g)):
        out[i] = t * g[i] + (1.0 - t) * gq[i]


@nb.njit(**INNER)
def _finite(log_p):
    """A density without a limit, in which a point would stay for ever, counts as none."""
    return log_p if log_p < math.inf else math.nan


@one_form.njit(
    nb.int64(ADDRESS, nb.float64, POINTS, VECTOR, nb.int64, _STREAM, REFERENCE, MATRIX, VECTOR, INTEGERS),
    **OPTIONS,
)
def move(density, t, points, sizes, limit, name, about, tally, data, meta):
    """Move every point once by each of the two steps, in place; returns the evaluations.

    `points` are X (n, d), log p and log q (n,) there, and gradients G (n, d) of log p; `about` are the arrays
    of the reference. `sizes` (K,) are step sizes in the coordinates of the components, `limit` the most
    leapfrog steps. `name` is the stream of the first point. `tally` (K, 2) adds up the acceptance and the
    number of the trajectories of each component.
    """
    X, log_p, log_q, G = points
    logs, logs_of_shares, freedom, middles, roots, inverses = about
    n, d = X.shape
    stream, heights, there = name.copy(), np.empty(len(sizes)), np.empty(len(sizes))
    x, g, gq, slope, p, z = np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    n_evaluations = 0
    for i in range(n):
        copy(name, stream)
        stream[0], stream[2] = np.uint32(0), np.uint32(name[2] + i)
        # A proposal from the reference.
        propose(x, logs_of_shares, freedom, middles, roots, z, stream)
        new_q = reference(x, heights, logs, freedom, middles, inverses, gq)
        new_p = _finite(call(density, x, g, data, meta))
        n_evaluations += 1
        gain = t * ((new_p - new_q) - (log_p[i] - log_q[i]))
        if uniform(stream) < math.exp(min(gain, 0.0)):  # false for NaN
            copy(x, X[i])
            copy(g, G[i])
            log_p[i], log_q[i] = new_p, new_q
        # A trajectory.
        copy(X[i], x)
        total = reference(x, heights, logs, freedom, middles, inverses, gq)
        k = _chosen(uniform(stream), heights, total)
        fill_normal(stream, p)
        energy = 0.5 * dot(p, p) - t * log_p[i] - (1.0 - t) * log_q[i] - (heights[k] - total)
        n_steps, half = 1 + int(uniform(stream) * limit), 0.5 * sizes[k]
        new_p, new_q = log_p[i], log_q[i]
        _slope(t, G[i], gq, slope)
        for _ in range(n_steps):
            for a in range(d):
                for b in range(a, d):
                    p[a] += half * roots[k, b, a] * slope[b]
            for a in range(d):
                for b in range(a + 1):
                    x[a] += sizes[k] * roots[k, a, b] * p[b]
            new_q = reference(x, there, logs, freedom, middles, inverses, gq)
            new_p = _finite(call(density, x, g, data, meta))
            n_evaluations += 1
            if not energy + t * new_p + (1.0 - t) * new_q > -MAX_ERROR:  # it diverges
                break
            _slope(t, g, gq, slope)
            for a in range(d):
                for b in range(a, d):
                    p[a] += half * roots[k, b, a] * slope[b]
        gain = energy - 0.5 * dot(p, p) + t * new_p + (1.0 - t) * new_q + (there[k] - new_q)
        accepted = math.exp(min(gain, 0.0)) if gain > -MAX_ERROR else 0.0
        if uniform(stream) < accepted:
            copy(x, X[i])
            copy(g, G[i])
            log_p[i], log_q[i] = new_p, new_q
        tally[k, 0] += accepted
        tally[k, 1] += 1.0
    return n_evaluations


@one_form.njit(nb.void(MATRIX, VECTOR, REFERENCE), **OPTIONS)
def reference_all(X, out, about):
    """Fill log densities (n,) of the reference at points X (n, d)."""
    logs, _, freedom, middles, _, inverses = about
    heights, g = np.empty(len(logs)), np.empty(X.shape[1])
    for i in range(len(X)):
        out[i] = reference(X[i], heights, logs, freedom, middles, inverses, g)
