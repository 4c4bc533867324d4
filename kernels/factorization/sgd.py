"""Stochastic gradient descent over one block of ratings of a matrix factorization.

Two blocks that share no row and no column may run at the same time. A row carries one scalar of Adagrad: the
sum of the mean squares of its gradients; the step is the learning rate over its root. With |grad p|^2 = z^2
|q|^2 - 2 a z (p.q) + a^2 |p|^2 a step reads both rows once.

Reference: Chin, Zhuang, Juan, Lin, "A learning-rate schedule for stochastic gradient methods to matrix
factorization", PAKDD 2015.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at
from ..options import KERNEL
from .lanes import move_rows, row_products

# No reassociation: the same bits wherever the kernel runs.
_SAME: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}
BIAS, SQUARES, RIDGE, COUNT = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)  # after its factors


@nb.njit(**_SAME)
def shuffle(start, stop, rows, columns, weights, targets, seed):
    """Shuffle the ratings from `start` to `stop`; `weights` may be of length 1, for all ratings.

    The generator is splitmix64 (Steele, Lea, Flood 2014).
    """
    state = np.uint64(seed)
    for e in range(stop - 1, start, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        other = start + np.int64(z % np.uint64(e - start + 1))
        rows[e], rows[other] = rows[other], rows[e]
        columns[e], columns[other] = columns[other], columns[e]
        targets[e], targets[other] = targets[other], targets[e]
        if len(weights) > 1:
            weights[e], weights[other] = weights[other], weights[e]


@nb.njit(**_SAME, inline="always")
def step_rows(
    P, u, Q, j, p_own, q_own, z, products, rate, shrink, p_hold, q_hold, inverse, user_bias, item_bias,
    vectors,
):  # fmt: skip
    """Move two rows along their gradients; -z is the derivative in the prediction.

    Penalties of factors are scaled by `shrink`; those of biases are `p_hold` and `q_hold`. A step whose
    penalty alone would carry a row past 0 ends at 0, so that no penalty lets rows diverge.
    """
    zero, one, two = P.dtype.type(0), P.dtype.type(1), P.dtype.type(2)
    pq, pp, qq = products
    p_squares, q_squares = p_own[u, SQUARES], q_own[j, SQUARES]
    p_ridge, q_ridge = p_own[u, RIDGE], q_own[j, RIDGE]
    p_rate, q_rate = rate / np.sqrt(p_squares), rate / np.sqrt(q_squares)
    a, c, zz = shrink * p_ridge, shrink * q_ridge, z * z
    p_own[u, SQUARES] = p_squares + (zz * qq - two * a * z * pq + a * a * pp) * inverse
    q_own[j, SQUARES] = q_squares + (zz * pp - two * c * z * pq + c * c * qq) * inverse
    if user_bias:
        p_bias = p_own[u, BIAS]
        p_own[u, BIAS] = p_bias + p_rate * (z - min(p_hold, one / p_rate) * p_bias)
    if item_bias:
        q_bias = q_own[j, BIAS]
        q_own[j, BIAS] = q_bias + q_rate * (z - min(q_hold, one / q_rate) * q_bias)
    p_kept, q_kept = max(one - p_rate * a, zero), max(one - q_rate * c, zero)
    move_rows(P, u, Q, j, p_kept, p_rate * z, q_kept, q_rate * z, vectors)


@nb.njit(**_SAME)
def descend_block(
    start, stop, rows, columns, weights, targets, P, Q, p_own, q_own, rate, shrink, p_hold, q_hold, inverse,
    bias, vectors,
):  # fmt: skip
    """One pass over the ratings from `start` to `stop`; return the weighted sum of squared errors on the way.

    A rating adds ``w (t - b_u - b_j - p.q)^2 + shrink (ridge_u |p|^2 + ridge_j |q|^2) + p_hold / n_u b_u^2 +
    q_hold / n_j b_j^2`` to the objective; a step takes half the gradient. Steps of weights w above 1 are
    shortened by 1 + 2 rate (w - 1), as implicit ones are: they do not leap over the rating.

    `rows` and `columns` (int32) and `targets` have one entry a rating, `weights` one a rating or one for all.
    `P` (m, d) and `Q` (n, d) have a multiple of 16 columns, where columns of zeros stay so. `p_own` (m, 4)
    and `q_own` (n, 4) hold a row's bias, scalar of Adagrad (1 at first), share of the factors' penalty for
    one rating, and number of ratings. `inverse` is 1 / the number of factors, without columns of zeros;
    `bias`: whether biases are fitted; `vectors` is a tuple of one int for every 16 columns.
    """
    each = at(len(weights) > 1)
    zero, one, two = P.dtype.type(0), P.dtype.type(1), P.dtype.type(2)
    total = 0.0
    for e in range(at(start), at(stop)):
        u, j, weight = at(rows[e]), at(columns[e]), weights[e * each]
        products = row_products(P, u, Q, j, vectors)
        miss = targets[e] - p_own[u, BIAS] - q_own[j, BIAS] - products[0]
        z = weight * miss
        total += np.float64(z * miss)
        if each:
            z /= one + two * rate * max(weight - one, zero)
        a, c = p_hold / p_own[u, COUNT], q_hold / q_own[j, COUNT]
        step_rows(P, u, Q, j, p_own, q_own, z, products, rate, shrink, a, c, inverse, bias, bias, vectors)
    return total


@nb.njit(**_SAME)
def deal(
    indptr, indices, values, weights, mean, inverse, user_cell, user_place, item_cell, item_place, coming,
    rows, columns, dealt, targets,
):  # fmt: skip
    """Sort ratings by row (CSR) into blocks, as ``(value - mean) inverse``.

    The rating of user u and item j goes to block ``user_cell[u] + item_cell[j]``, where they have the row
    ``user_place[u]`` and the column ``item_place[j]``. `coming` (int64) is where each block begins, and
    afterwards where it ends. Fills `rows`, `columns`, `targets`, and `dealt` if `weights` has one entry a
    rating.
    """
    each = len(weights) > 1
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            j = at(indices[e])
            block = at(user_cell[u] + item_cell[j])
            place = coming[block]
            coming[block] = place + 1
            rows[place], columns[place] = user_place[u], item_place[j]
            targets[place] = (values[e] - mean) * inverse
            if each:
                dealt[place] = weights[e]
