"""Logistic and multinomial loss of a linear predictor, row by row, without overflow.

Two classes, with signs y of 1 and -1 and predictor f: the loss of a row is ``log(1 + exp(-y f))``, and its
*share* ``u = 1 / (1 + exp(y f))`` is the probability of the other class. K classes: the shares are the
probabilities ``P = softmax(F)``. Entropies are the dual objective; arrays of several outputs have the shape
(K, n_rows).
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ..exponentials import fast_exp, fast_log1p
from ..options import KERNEL
from .columns import FAST
from .glm_losses import sum_of

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
_IN_ORDER: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}  # as `fast_exp` needs it
_TILE = 1024  # rows
_NOTHING = 708.0  # a predictor beyond which the smaller probability is 0


@nb.njit(**_IN_ORDER)
def binary_shares(signs, weights, f, shares):
    """Fill the shares of two classes; return the weighted loss.

    `signs`: float64 array (n,); 1 or -1. `weights`, `f`, `shares`: float64 arrays (n,).
    """
    values, total = np.empty(_TILE), 0.0
    for first in range(0, len(f), _TILE):
        m = min(_TILE, len(f) - first)
        for k in range(m):
            i = first + k
            z = signs[i] * f[i]
            size = abs(z)
            e = 0.0 if size > _NOTHING else fast_exp(-size)
            shares[i] = (e if z >= 0 else 1.0) / (1.0 + e)
            values[k] = weights[i] * (0.5 * (size - z) + fast_log1p(e))
        total += sum_of(values, m)
    return total


@nb.njit(**_SUMS)
def binary_entropy(weights, shares, s):
    """Weighted sum of the entropies of the probabilities ``s * shares``, for 0 <= s <= 1."""
    total = 0.0
    for i in range(len(shares)):
        v = s * shares[i]
        if 0.0 < v < 1.0:
            total -= weights[i] * (v * math.log(v) + (1.0 - v) * math.log1p(-v))
    return total


@nb.njit(**_SUMS)
def multinomial_shares(labels, weights, F, P):
    """Fill ``P = softmax(F)`` over classes; return the loss ``sum_i w_i (log sum_k exp F_ki - F_li)``.

    `labels`: int64 array (n,); the class of each row. `weights`: float64 array (n,). `F`, `P`: float64 arrays
    (n_classes, n).
    """
    n_classes, n = F.shape
    top, norm = F[0].copy(), np.zeros(n)
    for k in range(1, n_classes):
        for i in range(n):
            top[i] = max(top[i], F[k, i])
    for k in range(n_classes):
        for i in range(n):
            e = math.exp(F[k, i] - top[i])
            P[k, i] = e
            norm[i] += e
    total = 0.0
    for i in range(n):
        total += weights[i] * (math.log(norm[i]) + (top[i] - F[labels[i], i]))
    for k in range(n_classes):
        for i in range(n):
            P[k, i] /= norm[i]
    return total


@nb.njit(**_SUMS)
def multinomial_entropy(labels, weights, P, s):
    """Weighted sum of the entropies of ``(1 - s) Y + s P``, Y being 1 at the label and 0 elsewhere."""
    n_classes, n = P.shape
    total = 0.0
    for i in range(n):
        others, entropy = 0.0, 0.0
        for k in range(n_classes):
            if k != labels[i]:
                v = s * P[k, i]
                others += v
                if v > 0.0:
                    entropy -= v * math.log(v)
        if others < 1.0:  # the label's own probability is what the others leave
            entropy -= (1.0 - others) * math.log1p(-others)
        total += weights[i] * entropy
    return total
