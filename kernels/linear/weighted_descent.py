"""Weighted products of CSC columns, and coordinate descent for a quadratic model by such products::

min_b  -g.(b - b0) + (b - b0)^T G (b - b0) / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2,      G = A^T D A
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import KERNEL
from .columns import FAST
from .descent import _best

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
_FLAT = 1e-13  # curvature, relative to which the rounding of slopes is no longer small


@nb.njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _target(slope, h, old, l1, l2, positive):
    """Where a coefficient goes; without curvature to zero, if its threshold holds it there, or nowhere."""
    if h + l2 > _FLAT:
        return _best(slope + h * old, h, l1, l2, positive)
    return 0.0 if abs(slope) < l1 or (positive and slope < l1) else old


@nb.njit(**_SUMS)
def csc_weighted_gram(data, indices, indptr, columns, D):
    """``A^T D A`` of some columns of a CSC matrix, row by row.

    Takes 12 bytes an entry of these columns, and 16 a row, for the time of the call.

    `data`, `indices`, `indptr`: as in scipy. `columns`: int64 array (m,). `D`: float64 array (n,). Returns
    float64 array (m, m).
    """
    m, n = len(columns), len(D)
    starts = np.zeros(n + 1, np.int64)
    for c in range(m):
        for e in span(indptr, columns[c]):
            starts[indices[e] + 1] += 1
    for row in range(n):
        starts[row + 1] += starts[row]
    entries = starts[n]
    places, values, ends = np.empty(entries, np.int32), np.empty(entries), starts[:-1].copy()
    for c in range(m):
        for e in span(indptr, columns[c]):
            row = at(indices[e])
            to = at(ends[row])
            places[to] = c
            values[to] = data[e]
            ends[row] += 1
    G = np.zeros((m, m))
    for row in range(n):
        for a in range(starts[row], starts[row + 1]):
            value, line = D[row] * values[a], G[places[a]]
            for b in range(at(starts[row]), at(a + 1)):
                line[at(places[b])] += value * values[b]
    for i in range(m):
        for j in range(i):
            G[j, i] = G[i, j]
    return G


@nb.njit(**_SUMS)
def gram_descent(G, slopes, b, l1, l2, positive, sweeps, tol):
    """Sweep over the coefficients; see the module.

    `G`: float64 array (m, m). `slopes`, `b`, `l1`, `l2`: float64 arrays (m,); `slopes` are minus those of the
    quadratic part at b; `slopes` and `b` are changed in place. `positive`: bool array (m,). `sweeps`: at
    most. `tol`: end when the largest ``change^2 h_j`` of a sweep is at most `tol` times that of the first
    one. Returns `first`: largest ``change^2 h_j`` of the first sweep.
    """
    m = len(b)
    first = 0.0
    for sweep in range(sweeps):
        largest = 0.0
        for j in range(m):
            h = G[j, j]
            new = _target(slopes[j], h, b[j], l1[j], l2[j], positive[j])
            change = new - b[j]
            if change != 0.0:
                b[j] = new
                for i in range(m):
                    slopes[i] -= change * G[j, i]
                largest = max(largest, change * change * h)
        if sweep == 0:
            first = largest
        if largest <= tol * first:
            return first, (sweep + 1) * m
    return first, sweeps * m
