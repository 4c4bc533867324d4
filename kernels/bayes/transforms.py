"""Named parameters: from unconstrained numbers q to the user's values, and derivatives back.

`meta[at]` counts the parameters and `meta[at + 1]` the priors; then come rows of `WIDTH` integers, one a
parameter, and rows of priors (see ``parameter_priors``). A parameter has `COUNT` copies of a scalar or of a
vector or triangle of `SIZE`; its numbers begin at `Q` in q and at `THETA` in the values; `REAL` is the place
of its own constants in `data`.

============  ==============================================================  =============================
kind          values                                                          log of the Jacobian
============  ==============================================================  =============================
FREE          q                                                               0
SHIFTED       a + s exp(q), s = 1 or -1                                       q
BETWEEN       a + (b - a) / (1 + exp(-q))                                     log(b - a) + log p + log(1 - p)
SIMPLEX       softmax(V q), V (k, k - 1) orthonormal, columns of sum 0        sum log w + log(k) / 2
ORDERED       q_1, then steps of exp(q_j)                                     q_2 + ... + q_k
              above a bound: a + exp(q_1), then the same                      q_1 + ... + q_k
TRIANGLE      L with L L' a correlation matrix R, by partial correlations     of the entries of R below the
              tanh q                                                          diagonal
============  ==============================================================  =============================

There are also natural coordinates u, exact where values are rounded to 0 or 1: q of SHIFTED and
BETWEEN, log w of a simplex, log of the distance from the bound of ordered numbers, log L_ii of a triangle (at
its place). Derivatives come as those in values and
those in u, which add up.

References: Egozcue et al., "Isometric logratio transformations", Mathematical Geology 2003. Lewandowski,
Kurowicka, Joe, "Generating random correlation matrices based on vines and extended onion method", Journal of
Multivariate Analysis 2009.
"""

import math

import numba as nb
import numpy as np

from .. import one_form
from .address import INTEGERS, MATRIX, VECTOR
from .streams import INNER, OPTIONS

FREE, SHIFTED, BETWEEN, SIMPLEX, ORDERED, TRIANGLE = range(6)
KIND, Q, THETA, COUNT, SIZE, REAL = range(6)
WIDTH = 6
ROWS = 2  # from `at` to the first row


@nb.njit(**INNER)
def log_logistic(q):
    """Logarithm of 1 / (1 + exp(-q))."""
    return min(q, 0.0) - math.log1p(math.exp(-abs(q)))


@nb.njit(**INNER)
def _log_sech(q):
    return math.log(2.0) - abs(q) - math.log1p(math.exp(-2.0 * abs(q)))


@nb.njit(**INNER)
def transform(q, theta, natural, data, meta, at):
    """Fill values `theta` and their natural coordinates; return the log of the Jacobian."""
    total = 0.0
    for j in range(meta[at]):
        row = at + ROWS + j * WIDTH
        kind, count, k = meta[row + KIND], meta[row + COUNT], meta[row + SIZE]
        i, t, real = meta[row + Q], meta[row + THETA], meta[row + REAL]
        if kind == FREE:
            for e in range(count):
                theta[t + e] = q[i + e]
        elif kind == SHIFTED:
            for e in range(count):
                natural[t + e] = q[i + e]
                theta[t + e] = data[real] + data[real + 1] * math.exp(q[i + e])
                total += q[i + e]
        elif kind == BETWEEN:
            low, width = data[real], data[real + 1] - data[real]
            total += count * math.log(width)
            for e in range(count):
                x = q[i + e]
                natural[t + e] = x
                # From the nearer end, so that values near either one are exact.
                tail = width / (1.0 + math.exp(abs(x)))
                theta[t + e] = low + tail if x < 0.0 else data[real + 1] - tail
                total += log_logistic(x) + log_logistic(-x)
        elif kind == SIMPLEX:
            for e in range(count):
                total += _simplex(q, theta, natural, i + e * (k - 1), t + e * k, k)
        elif kind == ORDERED:
            for e in range(count):
                total += _ordered(q, theta, natural, data[real], i + e * k, t + e * k, k)
        else:
            for e in range(count):
                total += _triangle(q, theta, natural, i + e * (k * (k - 1) // 2), t + e * k * k, k)
    return total


@nb.njit(**INNER)
def _simplex(q, theta, natural, i, t, k):
    """Softmax of V q; column j of V is (1, ..., 1, -j, 0, ...) / sqrt(j (j + 1))."""
    rest, highest = 0.0, -math.inf
    for j in range(k - 1, -1, -1):  # entry j takes part in columns j, j + 1, ..., counted from 1
        x = rest
        if j:
            step = q[i + j - 1] / math.sqrt(j * (j + 1.0))
            x -= j * step
            rest += step
        natural[t + j] = x
        highest = max(highest, x)
    total = 0.0
    for j in range(k):
        total += math.exp(natural[t + j] - highest)
    highest += math.log(total)
    total = 0.5 * math.log(float(k))
    for j in range(k):
        natural[t + j] -= highest
        theta[t + j] = math.exp(natural[t + j])
        total += natural[t + j]
    return total


@nb.njit(**INNER)
def _ordered(q, theta, natural, low, i, t, k):
    bounded = low > -math.inf
    theta[t] = low + math.exp(q[i]) if bounded else q[i]
    natural[t] = q[i]
    total = q[i] if bounded else 0.0
    for j in range(1, k):
        theta[t + j] = theta[t + j - 1] + math.exp(q[i + j])
        if bounded:  # log(exp(u) + exp(q))
            u, x = natural[t + j - 1], q[i + j]
            natural[t + j] = max(u, x) + math.log1p(math.exp(-abs(u - x)))
        total += q[i + j]
    return total


@nb.njit(**INNER)
def _triangle(q, theta, natural, i, t, k):
    total = 0.0
    for row in range(k):
        left = 0.0  # logarithm of the root of what the entries before leave of 1
        for j in range(row):
            own = _log_sech(q[i + j])
            theta[t + row * k + j] = math.tanh(q[i + j]) * math.exp(left)
            left += own
            total += (k - j) * own  # (1 - tanh^2)^(1 + (k - 2 - j) / 2), j from 0
        theta[t + row * k + row], natural[t + row * k + row] = math.exp(left), left
        for j in range(row + 1, k):
            theta[t + row * k + j] = 0.0
        i += row
    return total


@nb.njit(**INNER)
def pull_back(q, theta, natural, slope, own, power, g, data, meta, at):
    """Add to g (d,) the derivatives in q, of a function and of `power` times the log of the Jacobian.

    Those of the function are `slope` in the values and `own` in natural coordinates.
    """
    for j in range(meta[at]):
        row = at + ROWS + j * WIDTH
        kind, count, k = meta[row + KIND], meta[row + COUNT], meta[row + SIZE]
        i, t, real = meta[row + Q], meta[row + THETA], meta[row + REAL]
        if kind == FREE:
            for e in range(count):
                g[i + e] += slope[t + e]
        elif kind == SHIFTED:
            for e in range(count):
                step = data[real + 1] * math.exp(q[i + e])
                # A slope of zero counts as such where the value has overflowed.
                part = slope[t + e] * step if slope[t + e] != 0.0 else 0.0
                g[i + e] += part + own[t + e] + power
        elif kind == BETWEEN:
            width = data[real + 1] - data[real]
            for e in range(count):
                p, rest = 1.0 / (1.0 + math.exp(-q[i + e])), 1.0 / (1.0 + math.exp(q[i + e]))
                g[i + e] += slope[t + e] * width * p * rest + own[t + e] + power * (rest - p)
        elif kind == SIMPLEX:
            for e in range(count):
                _pull_simplex(theta, slope, own, power, g, i + e * (k - 1), t + e * k, k)
        elif kind == ORDERED:
            for e in range(count):
                _pull_ordered(q, natural, slope, own, data[real], power, g, i + e * k, t + e * k, k)
        else:
            for e in range(count):
                first, place = i + e * (k * (k - 1) // 2), t + e * k * k
                _pull_triangle(q, theta, natural, slope, own, power, g, first, place, k)


@nb.njit(**INNER)
def _pull_simplex(theta, slope, own, power, g, i, t, k):
    mean, total = 0.0, 0.0
    for j in range(k):
        mean += theta[t + j] * slope[t + j]
        total += own[t + j] + power
    before = 0.0
    for j in range(k):
        w = theta[t + j]
        x = w * (slope[t + j] - mean) + own[t + j] + power - w * total
        if j:
            g[i + j - 1] += (before - j * x) / math.sqrt(j * (j + 1.0))
        before += x


@nb.njit(**INNER)
def _pull_ordered(q, natural, slope, own, low, power, g, i, t, k):
    later = 0.0  # a step moves all values from its own on
    weight = 0.0  # derivative in the natural coordinate
    bounded = low > -math.inf
    for j in range(k - 1, 0, -1):
        later += slope[t + j]
        g[i + j] += (later * math.exp(q[i + j]) if later != 0.0 else 0.0) + power
        if bounded:
            weight += own[t + j]
            g[i + j] += weight * math.exp(q[i + j] - natural[t + j])
            weight *= math.exp(natural[t + j - 1] - natural[t + j])
    later += slope[t]
    if bounded:
        g[i] += (later * math.exp(q[i]) if later != 0.0 else 0.0) + weight + own[t] + power
    else:
        g[i] += later


@nb.njit(**INNER)
def _pull_triangle(q, theta, natural, slope, own, power, g, i, t, k):
    for row in range(k):
        place = t + row * k
        later, left = slope[place + row] * theta[place + row] + own[place + row], natural[place + row]
        for j in range(row - 1, -1, -1):
            z, sech, entry = math.tanh(q[i + j]), _log_sech(q[i + j]), slope[place + j]
            left -= sech
            g[i + j] += entry * math.exp(2.0 * sech + left) - z * (later + power * (k - j))
            later += entry * theta[place + j]
        i += row


@one_form.njit(MATRIX(MATRIX, nb.int64, VECTOR, INTEGERS, nb.int64), **OPTIONS)
def transform_all(Q, n_values, data, meta, at):
    """Values (K, n_values) of points Q (K, d)."""
    values, natural = np.zeros((len(Q), n_values)), np.zeros(n_values)
    for i in range(len(Q)):
        transform(Q[i], values[i], natural, data, meta, at)
    return values
