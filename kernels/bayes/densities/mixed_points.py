"""Log likelihoods of the rows of a group at many predictors at once, as vector instructions.

Sums over the nodes of ``mixed_lattice`` need the rows of a group at hundreds of effects. The rows at up to
`POINTS` nodes are evaluated together, node after node in one array: exponentials and logarithms are
polynomials that compilers turn into vector instructions, and what depends on no predictor is found once a
group. The values are those of `mixed.row`, which targets with Student's, normal or ordered noise call.
"""

import math

import numba as nb
import numpy as np

from ...linear.glm_losses import fast_exp, fast_log1p
from ..streams import CALLED, OPTIONS
from .mixed import BERNOULLI, GAMMA, NEGATIVE_BINOMIAL, POISSON, logistic, row

POINTS = 16
_HIGHEST = 709.7  # whose exponential is a number


@nb.njit(inline="always", **OPTIONS)
def _exp(x):
    return math.inf if x > _HIGHEST else fast_exp(min(x, _HIGHEST) if x == x else x)


@nb.njit(**CALLED)
def prepare(family, y, weights, own):
    """Return the table of `rows_at` (4, POINTS n): targets, weights, and what depends on no predictor.

    The latter are a part of the log likelihood of each row, and of its derivative in ``own[0]``.
    """
    n, table, by_own = len(y), np.zeros((4, POINTS * len(y))), np.zeros(max(len(own), 1))
    for i in range(n):
        table[0, i], table[1, i] = y[i], weights[i]
        if family == GAMMA:
            table[2, i] = table[3, i] = math.log(y[i])
        elif family == NEGATIVE_BINOMIAL:
            gap, r = math.log(own[0]), 1.0 / own[0]
            total = max(gap, 0.0) + math.log1p(math.exp(-abs(gap)))
            by_own[:] = 0.0
            table[2, i] = row(family, 0.0, y[i], own, 1.0, by_own)[0] + (y[i] + r) * total
            table[3, i] = by_own[0] - r * r * total + (y[i] + r) * logistic(gap) * r
    for j in range(4):
        for i in range(n, POINTS * n):
            table[j, i] = table[j, i - n]
    return table


@nb.njit(**CALLED)
def _bernoulli(n, f, table, values, slopes):
    y, weights = table[0], table[1]
    for i in range(n):
        at = f[i]
        e = fast_exp(-abs(at))
        share = (1.0 if at >= 0.0 else e) / (1.0 + e)
        values[i] = weights[i] * (y[i] * at - max(at, 0.0) - fast_log1p(e))
        slopes[i] = weights[i] * (y[i] - share)


@nb.njit(**CALLED)
def _poisson(n, f, table, values, slopes):
    y, weights = table[0], table[1]
    for i in range(n):
        mean = _exp(f[i])
        values[i] = weights[i] * (y[i] * f[i] - mean)
        slopes[i] = weights[i] * (y[i] - mean)


@nb.njit(**CALLED)
def _gamma(n, shape, f, table, values, slopes, by_own):
    y, weights, log_y = table[0], table[1], table[2]
    for i in range(n):
        ratio = y[i] * _exp(-f[i])
        part = log_y[i] - f[i] - ratio
        values[i] = weights[i] * (shape * part - log_y[i])
        slopes[i] = weights[i] * shape * (ratio - 1.0)
        by_own[i] = weights[i] * part


@nb.njit(**CALLED)
def _negative_binomial(n, a, f, table, values, slopes, by_own):
    y, weights, fixed, by_a = table[0], table[1], table[2], table[3]
    r, shift = 1.0 / a, math.log(a)
    for i in range(n):
        gap = f[i] + shift
        e = fast_exp(-abs(gap))
        total = max(gap, 0.0) + fast_log1p(e)
        share = (1.0 if gap >= 0.0 else e) / (1.0 + e)
        values[i] = weights[i] * (fixed[i] + y[i] * f[i] - (y[i] + r) * total)
        slopes[i] = weights[i] * (y[i] - (y[i] + r) * share)
        by_own[i] = weights[i] * (by_a[i] + r * r * total - (y[i] + r) * share * r)


@nb.njit(**CALLED)
def rows_at(family, m, n, f, own, table, work, slopes, heights, by_own):
    """Add up the log likelihoods of n rows at m nodes, whose predictors are in f (m n), node after node.

    Adds them to heights (m,), with weights; fills derivatives in the predictors in slopes (m n), and sums of
    those in own in by_own (m, len(own)). `work` has two rows of POINTS n numbers.
    """
    values, parts = work[0], work[1]
    by_own[:m] = 0.0
    if family == BERNOULLI:
        _bernoulli(m * n, f, table, values, slopes)
    elif family == POISSON:
        _poisson(m * n, f, table, values, slopes)
    elif family in (GAMMA, NEGATIVE_BINOMIAL):
        if family == GAMMA:
            _gamma(m * n, own[0], f, table, values, slopes, parts)
        else:
            _negative_binomial(m * n, own[0], f, table, values, slopes, parts)
        for p in range(m):
            for i in range(p * n, (p + 1) * n):
                by_own[p, 0] += parts[i]
    else:
        for p in range(m):
            for i in range(p * n, (p + 1) * n):
                value, slope = row(family, f[i], table[0, i], own, table[1, i], by_own[p])
                values[i], slopes[i] = table[1, i] * value, table[1, i] * slope
    for p in range(m):
        total = 0.0
        for i in range(p * n, (p + 1) * n):
            total += values[i]
        heights[p] += total
