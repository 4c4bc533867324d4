"""Stochastic gradient descent over one block of ratings of a matrix factorization.

Two blocks that share no row and no column may run at the same time. A row carries one scalar of Adagrad: the
sum of the mean squares of its gradients; the step is the learning rate over its root.

Reference: Chin, Zhuang, Juan, Lin, "A learning-rate schedule for stochastic gradient methods to matrix
factorization", PAKDD 2015.
"""

from typing import Any

import numba as nb
import numpy as np

from .indexing import at
from .linear_columns import FAST

_SUMS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": FAST - {"afn"}}


@nb.njit(**_SUMS)
def descend_block(
    start, stop, rows, columns, weights, targets, P, Q, p_bias, q_bias, p_squares, q_squares,
    p_ridge, q_ridge, p_bias_ridge, q_bias_ridge, rate, bias,
):  # fmt: skip
    """Go once over the ratings from `start` to `stop`; return the weighted sum of squares met on the way.

    A rating adds ``w (t - b_u - b_j - p.q)^2 + ridge_u |p|^2 + ridge_j |q|^2`` and the like for the biases
    to the objective, of which a step takes half the gradient.

    Parameters
    ----------
    start, stop : int
    rows, columns : int32 arrays; weights, targets : arrays
        One entry a rating.
    P, Q : arrays (m, d) and (n, d)
    p_bias, q_bias, p_squares, q_squares : arrays (m,) and (n,)
        Biases, and the scalars of Adagrad, which begin with 1.
    p_ridge, q_ridge, p_bias_ridge, q_bias_ridge : arrays (m,) and (n,)
        Share of a row's penalty that falls on one of its ratings.
    rate : float of the arrays' type
    bias : bool
        Whether biases are fitted.
    """
    d = at(P.shape[1])
    zero, one, two, inverse = P.dtype.type(0), P.dtype.type(1), P.dtype.type(2), P.dtype.type(1.0 / d)
    total = 0.0
    for e in range(np.uint64(start), np.uint64(stop)):
        u, j = at(rows[e]), at(columns[e])
        pq, pp, qq = zero, zero, zero
        for k in range(d):
            p, q = P[u, k], Q[j, k]
            pq += p * q
            pp += p * p
            qq += q * q
        miss = targets[e] - p_bias[u] - q_bias[j] - pq
        total += np.float64(weights[e] * miss * miss)
        z = weights[e] * miss
        a, c = p_ridge[u], q_ridge[j]
        p_rate, q_rate = rate / np.sqrt(p_squares[u]), rate / np.sqrt(q_squares[j])
        p_squares[u] += (z * z * qq - two * a * z * pq + a * a * pp) * inverse
        q_squares[j] += (z * z * pp - two * c * z * pq + c * c * qq) * inverse
        if bias:
            p_bias[u] += p_rate * (z - p_bias_ridge[u] * p_bias[u])
            q_bias[j] += q_rate * (z - q_bias_ridge[j] * q_bias[j])
        p_keep, p_move = one - p_rate * a, p_rate * z
        q_keep, q_move = one - q_rate * c, q_rate * z
        for k in range(d):
            p, q = P[u, k], Q[j, k]
            P[u, k] = p_keep * p + p_move * q
            Q[j, k] = q_keep * q + q_move * p
    return total
