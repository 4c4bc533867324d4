"""Seconds of a graph of operations on several places: one placement, or a sample of many."""

import numba as nb
import numpy as np

from .options import KERNEL


@nb.njit(**KERNEL)
def makespan(order, where, cost, first, source, seconds, free, end):
    """Run operations in an order, each on its place; return when the last one ends.

    Parameters: `order` int64, topological; `where` int64, the place of each; `cost` float64 (n, n_places);
    edges into operation i are ``first[i]:first[i + 1]`` of `source` (int64) and `seconds` (float64, if the
    places differ). `free` and `end` are float64 for places and operations, written.
    """
    free[:] = 0.0
    last = 0.0
    for i in order:
        here = where[i]
        start = free[here]
        for k in range(first[i], first[i + 1]):
            ready = end[source[k]] + (seconds[k] if where[source[k]] != here else 0.0)
            start = max(start, ready)
        end[i] = start + cost[i, here]
        free[here] = end[i]
        last = max(last, end[i])
    return last


@nb.njit(**KERNEL)
def earliest_finish(order, cost, first, source, seconds, where):
    """Put each operation, in an order, where it ends first (the first such place); return the end."""
    n_places = cost.shape[1]
    free, end = np.zeros(n_places), np.zeros(len(order))
    for i in order:
        best = np.inf
        for p in range(n_places):
            start = free[p]
            for k in range(first[i], first[i + 1]):
                start = max(start, end[source[k]] + (seconds[k] if where[source[k]] != p else 0.0))
            if start + cost[i, p] < best:
                best = start + cost[i, p]
                where[i] = p
        end[i] = best
        free[where[i]] = best
    return end.max()


@nb.njit(**KERNEL)
def sample_places(odds, uniforms, order, cost, first, source, seconds, where, found):
    """Draw a place for each operation, for each row of `uniforms` (n_samples, n); store places and seconds.

    `odds` float64 (n, n_places) has cumulated probabilities; `where` int64 (n_samples, n), `found`
    (n_samples,).
    """
    n_places = odds.shape[1]
    free, end = np.zeros(n_places), np.zeros(len(order))
    for s in range(len(uniforms)):
        for i in range(len(order)):
            p = 0
            while p < n_places - 1 and uniforms[s, i] >= odds[i, p]:
                p += 1
            where[s, i] = p
        found[s] = makespan(order, where[s], cost, first, source, seconds, free, end)
