"""Losses of choices against other items over one block: BPR, WARP, and logistic.

References: Rendle, Freudenthaler, Gantner, Schmidt-Thieme, "BPR: Bayesian personalized ranking from implicit
feedback", UAI 2009. Weston, Bengio, Usunier, "WSABIE: scaling up to large vocabulary image annotation", IJCAI
2011 (WARP). Johnson, "Logistic matrix factorization for implicit feedback data", NIPS workshop 2014, with
other items drawn as in Mikolov, Sutskever, Chen, Corrado, Dean, "Distributed representations of words and
phrases and their compositionality", NIPS 2013.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at
from ..options import KERNEL
from ..random import philox4x32
from .lanes import row_products
from .sgd import BIAS, COUNT, RIDGE, step_rows

_SAME: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}
_PURPOSE, _MORE = np.uint32(61), np.uint32(62)  # of random numbers: of a step, and of further tries of WARP
BPR, WARP, LOGISTIC = 0, 1, 2
_TRIES = 3  # to draw an item that the user has not chosen
_WARP_TRIES = 32  # to find one that violates the margin


@nb.njit(**_SAME)
def is_stored(start, stop, rows, columns, u, j):
    """Whether (u, j) is among cells sorted by row and column."""
    end = stop
    while start < stop:
        middle = (start + stop) // 2
        if rows[middle] < u or (rows[middle] == u and columns[middle] < j):
            start = middle + 1
        else:
            stop = middle
    return start < end and rows[start] == u and columns[start] == j


@nb.njit(**_SAME)
def draw_other(start, stop, rows, columns, Q, q_own, u, draw):
    """The item of a random number, -1 if it has no cells or user u has chosen it."""
    j = np.int64((np.uint64(draw) * np.uint64(len(Q))) >> np.uint64(32))
    free = q_own[at(j), COUNT] > 0 and not is_stored(start, stop, rows, columns, u, np.int32(j))
    return j if free else np.int64(-1)


@nb.njit(**_SAME)
def word_of(draws, k):
    """One of four random numbers, whose types differ."""
    if k == 0:
        return np.uint32(draws[0])
    if k == 1:
        return np.uint32(draws[1])
    return np.uint32(draws[2]) if k == 2 else np.uint32(draws[3])


@nb.njit(**_SAME)
def rank_weight(n_others, n_drawn):
    """Sum of 1 / k up to the rank of a chosen item, as the tries until a violation estimate it."""
    total = 0.0
    for k in range(1, max(n_others // n_drawn, 1) + 1):
        total += 1 / k
    return total


@nb.njit(**_SAME)
def rank_block(
    start, stop, rows, columns, P, Q, p_own, q_own, rate, inverse, bias, loss, n_items, seed, round_, block,
    vectors,
):  # fmt: skip
    """Take as many steps as a block has cells; return the sum of their losses.

    A step draws a cell (u, i) and an item j of the block that the user has not chosen; where no such item is
    found it is skipped. With x_uj = b_j + p_u.q_j (and b_u for `LOGISTIC`) it moves u and i, and then u and
    j, along the gradient of half the penalties and of

    - `BPR`: -log(sigmoid(x_ui - x_uj)), j drawn in three tries;
    - `WARP`: L (1 - x_ui + x_uj), j the first of at most 32 tries with a term above 0. L is 1 + 1/2 + ... up
      to the rank of i, estimated as the number of items that the user has not chosen (of all `n_items`) over
      that of the tries that drew such an item;
    - `LOGISTIC`: -log(sigmoid(x_ui)) - log(sigmoid(-x_uj)), j as for `BPR`.

    `rows` and `columns` are int32, sorted by row and column. `P`, `Q`, `p_own`, `q_own`, `rate`, `inverse`
    and `vectors` are those of `sgd.descend_block`; an item of no cells is not drawn. `bias`: whether there
    are biases. `seed`, `round_` and `block` name the random stream.
    """
    zero, one, half = P.dtype.type(0), P.dtype.type(1), P.dtype.type(0.5)
    user_bias, n_cells = bias and loss == LOGISTIC, np.uint64(stop - start)
    low, high = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
    block_, time = np.uint32(block), np.uint32(round_)
    total = 0.0
    for step in range(stop - start):
        draws = philox4x32(np.uint32(step), block_, time, _PURPOSE, low, high)
        e = start + np.int64((np.uint64(draws[0]) * n_cells) >> np.uint64(32))
        u, i = at(rows[e]), at(columns[e])
        liked = row_products(P, u, Q, i, vectors)
        other = liked
        x_i, x_j = p_own[u, BIAS] + q_own[i, BIAS] + liked[0], zero
        j, n_drawn = np.int64(-1), 0
        if loss == WARP:
            for k in range(_WARP_TRIES):
                if k % 4 == 0:
                    purpose = _MORE + np.uint32(k // 4)
                    draws = philox4x32(
                        np.uint32(step), np.uint32(block), np.uint32(round_), purpose, low, high
                    )
                j = draw_other(start, stop, rows, columns, Q, q_own, rows[e], word_of(draws, k % 4))
                if j < 0:
                    continue
                n_drawn += 1
                other = row_products(P, u, Q, at(j), vectors)
                x_j = p_own[u, BIAS] + q_own[at(j), BIAS] + other[0]
                if one - x_i + x_j > zero:
                    break
                j = np.int64(-1)
        else:
            for k in range(_TRIES):
                j = draw_other(start, stop, rows, columns, Q, q_own, rows[e], word_of(draws, 1 + k))
                if j >= 0:
                    other = row_products(P, u, Q, at(j), vectors)
                    x_j = p_own[u, BIAS] + q_own[at(j), BIAS] + other[0]
                    break
        if j < 0:
            continue
        other_item = at(j)
        if loss == WARP:
            weight = rank_weight(n_items - np.int64(p_own[u, COUNT]), n_drawn)
            total += weight * np.float64(one - x_i + x_j)
            pull = P.dtype.type(weight)
            push = -pull
        elif loss == LOGISTIC:
            total += softplus(-np.float64(x_i)) + softplus(np.float64(x_j))
            pull, push = one / (one + np.exp(x_i)), -one / (one + np.exp(-x_j))
        else:
            x = x_i - x_j
            total += softplus(-np.float64(x))
            pull = one / (one + np.exp(x))
            push = -pull
        p_hold = half * p_own[u, RIDGE]
        hold = half * q_own[i, RIDGE]
        step_rows(
            P, u, Q, i, p_own, q_own, pull, liked, rate, half, p_hold, hold, inverse, user_bias, bias,
            vectors,
        )  # fmt: skip
        other = row_products(P, u, Q, other_item, vectors)
        hold = half * q_own[other_item, RIDGE]
        step_rows(
            P, u, Q, other_item, p_own, q_own, push, other, rate, half, p_hold, hold, inverse, user_bias,
            bias, vectors,
        )  # fmt: skip
    return total


@nb.njit(**_SAME)
def softplus(x):
    """Compute log(1 + exp(x)) without overflow."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))
