"""Bayesian personalised ranking over one block: chosen items should score above others.

Reference: Rendle, Freudenthaler, Gantner, Schmidt-Thieme, "BPR: Bayesian personalized ranking from implicit
feedback", UAI 2009.
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
_PURPOSE = np.uint32(61)


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
def rank_block(
    start, stop, rows, columns, P, Q, p_own, q_own, rate, inverse, bias, seed, round_, block, vectors
):
    """Take as many steps as a block has cells; return the sum of their -log(sigmoid(x)).

    A step draws a cell (u, i), and an item j of the block that the user has not chosen, in three tries (else
    it is skipped). With x = b_i - b_j + p.(q_i - q_j) it moves u and i, and then u and j, along the gradient
    of ``-log(sigmoid(x))`` and of half their penalties.

    `rows` and `columns` are int32, sorted by row and column. `P`, `Q`, `p_own`, `q_own`, `rate`, `inverse`
    and `vectors` are those of `sgd.descend_block`; an item of no cells is not drawn. `bias`: whether items
    have biases. `seed`, `round_` and `block` name the random stream.
    """
    zero, one, half = P.dtype.type(0), P.dtype.type(1), P.dtype.type(0.5)
    n_cells, n_items = np.uint64(stop - start), np.uint64(len(Q))
    low, high = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
    total = 0.0
    for step in range(stop - start):
        draws = philox4x32(np.uint32(step), np.uint32(block), np.uint32(round_), _PURPOSE, low, high)
        e = start + np.int64((np.uint64(draws[0]) * n_cells) >> np.uint64(32))
        u, i = at(rows[e]), at(columns[e])
        found = False
        for draw in (np.uint32(draws[1]), np.uint32(draws[2]), np.uint32(draws[3])):
            j = (np.uint64(draw) * n_items) >> np.uint64(32)
            if q_own[j, COUNT] > 0 and not is_stored(start, stop, rows, columns, rows[e], np.int32(j)):
                found = True
                break
        if not found:
            continue
        liked, other = row_products(P, u, Q, i, vectors), row_products(P, u, Q, j, vectors)
        x = q_own[i, BIAS] - q_own[j, BIAS] + liked[0] - other[0]
        total += max(0.0, -np.float64(x)) + np.log1p(np.exp(-abs(np.float64(x))))
        z = one / (one + np.exp(x))
        hold = half * q_own[i, RIDGE]
        step_rows(P, u, Q, i, p_own, q_own, z, liked, rate, half, zero, hold, inverse, False, bias, vectors)
        other = row_products(P, u, Q, j, vectors)
        hold = half * q_own[j, RIDGE]
        step_rows(P, u, Q, j, p_own, q_own, -z, other, rate, half, zero, hold, inverse, False, bias, vectors)
    return total
