"""Logarithms of words' probabilities over slices of time, with a Gaussian chain as their prior.

For each word the function of its logarithms eta_1 ... eta_T ::

    sum_t [ (n_t + g) eta_t - u_t exp(eta_t) ]  -  h / 2  sum_t (eta_t - eta_(t-1))^2

with counts n, a pseudo-count g, rates u and the chain's precision h. It is concave, and its negative Hessian
is tridiagonal: a step of Newton costs O(T).
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ...options import BORROWS, INNER, KERNEL

_CHAINS: dict[str, Any] = {**KERNEL, **BORROWS}
_LONGEST = 2.0  # of a step in any slice


@nb.njit(**_CHAINS, **INNER)
def _factor(eta, rates, precision, diagonal, ratio):
    """Factor the negative Hessian: pivots, and the factors by which a slice follows the one before it."""
    n = len(eta)
    for t in range(n):
        tension = precision * ((t > 0) + (t < n - 1))
        diagonal[t] = rates[t] * math.exp(eta[t]) + tension
        if t:
            ratio[t] = precision / diagonal[t - 1]
            diagonal[t] -= precision * ratio[t]


@nb.njit(**_CHAINS)
def climb_chains(counts, pseudo, rates, precision, most_steps, tol, eta, scratch):
    """Take `eta` (words x slices) to the mode given `counts` and `rates`, in place.

    A word's steps end when one is below `tol` everywhere. `scratch` is of size 3 x slices or more.
    """
    n = eta.shape[1]
    diagonal, ratio, step = scratch[0], scratch[1], scratch[2]
    for w in range(len(eta)):
        own = eta[w]
        for _ in range(most_steps):
            _factor(own, rates, precision, diagonal, ratio)
            for t in range(n):
                step[t] = counts[w, t] + pseudo - rates[t] * math.exp(own[t])
                if t:
                    step[t] -= precision * (own[t] - own[t - 1])
                if t < n - 1:
                    step[t] -= precision * (own[t] - own[t + 1])
                if t:
                    step[t] += ratio[t] * step[t - 1]
            longest = 0.0
            for t in range(n - 1, -1, -1):
                step[t] /= diagonal[t]
                if t < n - 1:
                    step[t] += ratio[t + 1] * step[t + 1]
                longest = max(longest, abs(step[t]))
            part = min(1.0, _LONGEST / longest) if longest > 0 else 0.0
            for t in range(n):
                own[t] += part * step[t]
            if longest < tol:
                break


@nb.njit(**_CHAINS)
def spreads(eta, rates, precision, scratch, moves, variances):
    """Expected squared moves of each word along its chain (summed), and variances of its logarithms.

    Both by the normal distribution about the mode. `moves` is a vector, `variances` words x slices, or x 0
    where they are not asked for.
    """
    n = eta.shape[1]
    diagonal, ratio = scratch[0], scratch[1]
    for w in range(len(eta)):
        _factor(eta[w], rates, precision, diagonal, ratio)
        total, variance = 0.0, 1 / diagonal[n - 1]
        if variances.shape[1]:
            variances[w, n - 1] = variance
        for t in range(n - 1, 0, -1):
            # The inverse of a tridiagonal matrix by its factors, from the last slice to the first.
            covariance = ratio[t] * variance
            earlier = 1 / diagonal[t - 1] + ratio[t] * covariance
            total += (eta[w, t] - eta[w, t - 1]) ** 2 + variance + earlier - 2 * covariance
            variance = earlier
            if variances.shape[1]:
                variances[w, t - 1] = variance
        moves[w] = total


@nb.njit(**_CHAINS)
def add_probabilities(words, rank, eta, level, slice_, scale, topic, rows):
    """Add ``scale * exp(eta - level)`` of a topic's words to the rows that `rank` gives them; -1 is none."""
    for p in range(len(words)):
        row = rank[words[p]]
        if row >= 0:
            rows[row, topic] += np.int32(scale * math.exp(eta[p, slice_] - level))
