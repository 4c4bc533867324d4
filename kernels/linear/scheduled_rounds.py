"""Rounds of scheduled coordinate descent for weighted least squares with absolute and square penalties::

    min_b sum_i w_i (y_i - (x_i - m) b)^2 / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2

A round draws coefficients in proportion to their weights in a tree (`stradask.kernels.scheduling`), takes
those whose columns are not correlated with any that it took before, and steps to the minimum along each, all
from one residual. The steps D together move the fit by d. The part t of them is taken that is best for the
bound::

    P(b + t D) <= P(b) + t (pen(b + D) - pen(b)) - t d.v + t^2 |d|^2 / 2,      0 <= t <= 1

so that no round raises P, whatever the columns are to each other. t is 1 where they are orthogonal. The
weight of a coefficient becomes how far it moved, in units of the fit.

``v = w (y - (X - m) b)`` is kept; it sums to zero where columns are centred, so that ``x_j.v`` needs no mean.
All is done in one thread, by random numbers that depend on seed and round alone.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import INNER, KERNEL
from ..random import philox4x32
from ..scheduling import change_one, draw_one
from .columns import FAST

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
_PURPOSE = np.uint32(71)


@nb.njit(**KERNEL, **INNER)
def _choose(tree, images, rho, seed, round_, share, tries, drawn, kept, others, products):
    """Draw `tries` times into `kept`, which are not correlated with one another; return their number.

    `drawn` (int64, p) remembers the round in which a coefficient was drawn last, so that repeats cost little.
    `others` (float32, entries of an image x size) and `products` (float32, size) are overwritten.
    """
    n_kept = 0
    k0, k1 = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
    low, high = np.uint32(round_ & 0xFFFFFFFF), np.uint32(round_ >> 32)
    for k in range(tries):
        if n_kept == len(kept):
            break
        r0, r1, r2, r3 = philox4x32(np.uint32(k), low, high, _PURPOSE, k0, k1)
        coin, uniform = _double(r0, r1), _double(r2, r3)
        j = draw_one(tree, coin, uniform, share)
        if drawn[j] == round_:
            continue
        drawn[j] = round_
        if _is_free(images[j], others, products, n_kept, rho):
            kept[n_kept] = j
            for i in range(images.shape[1]):
                others[i, n_kept] = images[j, i]
            n_kept += 1
    return n_kept


@nb.njit(**KERNEL, **INNER)
def _double(high, low):
    """A number on [0, 1) of 53 random bits."""
    bits = (np.uint64(high) >> np.uint64(5)) * np.uint64(1 << 26) + (np.uint64(low) >> np.uint64(6))
    return np.float64(bits) * 2.0**-53


@nb.njit(**_SUMS)
def _is_free(image, others, products, n_kept, rho):
    """Whether an image has products below rho with the first `n_kept` columns of `others`, all at a time."""
    products[:] = 0
    for k in range(len(image)):
        entry = image[k]
        for i in range(len(products)):
            products[i] += entry * others[k, i]
    largest = np.float32(0)
    for i in range(n_kept):
        largest = max(largest, abs(products[i]))
    return largest < rho


@nb.njit(**KERNEL, **INNER)
def _minimum(slope, curvature, old, l1, l2, positive):
    """Coefficient at the minimum along one coordinate; 0 for a column that does not vary."""
    if curvature <= 0.0:
        return 0.0
    z = slope + curvature * old
    if z > l1:
        return (z - l1) / (curvature + l2)
    if z < -l1 and not positive:
        return (z + l1) / (curvature + l2)
    return 0.0


@nb.njit(**KERNEL, **INNER)
def _rise(old, new, l1, l2):
    """How far the penalty of a coefficient rises."""
    return l1 * (abs(new) - abs(old)) + 0.5 * l2 * (new - old) * (new + old)


@nb.njit(**KERNEL, **INNER)
def _part(pull, cost, square):
    """The t of the bound: `pull` is d.v, `cost` the rise of the penalty, `square` is |d|^2."""
    return 1.0 if pull - cost >= square else max((pull - cost) / square, 0.0)


@nb.njit(**KERNEL, **INNER)
def _commit(kept, n_kept, new, part, coef, curvature, tree):
    for i in range(n_kept):
        j = kept[i]
        to = new[i] if part == 1.0 else coef[j] + part * (new[i] - coef[j])
        change_one(tree, j, abs(to - coef[j]) * np.sqrt(curvature[j]))
        coef[j] = to


@nb.njit(**_SUMS)
def dense_rounds(
    XT, means, curvature, v, weights, coef, l1, l2, positive, images, rho, tree, seed, first, n_rounds, size,
    tries, share,
):  # fmt: skip
    """Do rounds `first` to ``first + n_rounds - 1`` on dense columns; return the coordinates visited.

    `XT`: float (p, n). `means` (0 where nothing is centred), `curvature` (``sum_i w_i (x_ij - m_j)^2``; 0 for
    columns that do not vary), `coef`, `l1`, `l2`: float64 (p,). `v`, `weights`: float64 (n,). `images`:
    float32 (p, m), whose products are about the correlations. `tree`: float64 (2 p,). `coef`, `v` and `tree`
    change. `size`: coordinates a round, at most, of `tries` that are drawn. `share`: of draws that do not
    look at weights.
    """
    n, visits, drawn = XT.shape[1], 0, np.full(len(coef), -1)
    kept, new, d = np.empty(size, np.int64), np.empty(size), np.empty(n)
    others, products = np.zeros((images.shape[1], size), np.float32), np.empty(size, np.float32)
    for round_ in range(first, first + n_rounds):
        n_kept = _choose(tree, images, rho, seed, round_, share, tries, drawn, kept, others, products)
        pull = cost = shift = 0.0
        d[:] = 0.0
        for i in range(n_kept):
            j = kept[i]
            x, old, slope = XT[j], coef[j], 0.0
            for row in range(n):
                slope += x[row] * v[row]
            new[i] = _minimum(slope, curvature[j], old, l1[j], l2[j], positive)
            change = new[i] - old
            if change != 0.0:
                pull += change * slope
                cost += _rise(old, new[i], l1[j], l2[j])
                shift += change * means[j]
                for row in range(n):
                    d[row] += change * x[row]
        visits += n_kept
        square = 0.0
        for row in range(n):
            d[row] -= shift
            square += weights[row] * d[row] * d[row]
        part = _part(pull, cost, square)
        for row in range(n):
            v[row] -= part * weights[row] * d[row]
        _commit(kept, n_kept, new, part, coef, curvature, tree)
    return visits


@nb.njit(**_SUMS)
def csc_rounds(
    data, indices, indptr, means, curvature, v, weights, total, coef, l1, l2, positive, images, rho, tree,
    seed, first, n_rounds, size, tries, share,
):  # fmt: skip
    """As `dense_rounds`, on sparse columns: a round touches only their rows.

    `total`: sum of the weights. Between rounds ``v`` lacks ``carried * weights``, which is added at the end.
    """
    visits, carried, drawn = 0, 0.0, np.full(len(coef), -1)
    kept, new = np.empty(size, np.int64), np.empty(size)
    others, products = np.zeros((images.shape[1], size), np.float32), np.empty(size, np.float32)
    d, touched, rows = np.zeros(len(v)), np.zeros(len(v), np.bool_), np.empty(len(v), np.int64)
    for round_ in range(first, first + n_rounds):
        n_kept = _choose(tree, images, rho, seed, round_, share, tries, drawn, kept, others, products)
        pull = cost = shift = 0.0
        n_rows = 0
        for i in range(n_kept):
            j = kept[i]
            entries, old, slope = span(indptr, j), coef[j], carried * total * means[j]
            for e in entries:
                slope += data[e] * v[at(indices[e])]
            new[i] = _minimum(slope, curvature[j], old, l1[j], l2[j], positive)
            change = new[i] - old
            if change != 0.0:
                pull += change * slope
                cost += _rise(old, new[i], l1[j], l2[j])
                shift += change * means[j]
                for e in entries:
                    row = at(indices[e])
                    if not touched[row]:
                        touched[row] = True
                        rows[n_rows] = row
                        n_rows += 1
                    d[row] += change * data[e]
        visits += n_kept
        square = -shift * shift * total
        for k in range(n_rows):
            square += weights[rows[k]] * d[rows[k]] ** 2
        part = _part(pull, cost, square)
        for k in range(n_rows):
            row = rows[k]
            v[row] -= part * weights[row] * d[row]
            d[row], touched[row] = 0.0, False
        carried += part * shift
        _commit(kept, n_kept, new, part, coef, curvature, tree)
    for row in range(len(v)):
        v[row] += carried * weights[row]
    return visits
