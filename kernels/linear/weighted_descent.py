"""Coordinate descent for the quadratic model of a smooth loss with an absolute and a square penalty::

    min_b  -g.(b - b0) + (b - b0)^T A^T D A (b - b0) / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2

with D a diagonal of weights (the loss's curvature in each row). A visit moves one coefficient to its best
value and keeps ``q = D A (b - b0)``, or what else the caller begins with. The diagonal ``h_j = a_j^T D a_j``
is computed when a coefficient first moves: most columns are looked at and left at zero.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import KERNEL
from .columns import FAST
from .descent import _best

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
FLAT = 1e-13  # curvature, relative to which the rounding of slopes is no longer small
_SMALL = 0.05  # part of the last full sweep's largest change (squared) at which sweeps over the support end


@nb.njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _target(slope, h, old, l1, l2, positive):
    """Where a coefficient goes; without curvature to zero, if its threshold holds it there, or nowhere."""
    if h + l2 > FLAT:
        return _best(slope + h * old, h, l1, l2, positive)
    return 0.0 if abs(slope) < l1 or (positive and slope < l1) else old


@nb.njit(**_SUMS)
def dense_descent(AT, columns, g, h, b, q, D, l1, l2, positive, sweeps, support_sweeps, tol, bar):
    """Sweep over dense columns, and between two such sweeps over those with a coefficient.

    `AT`: float32 or float64 array (m, n). `columns`: int64 array; which columns may move. `g`, `h`, `b`,
    `l1`, `l2`: float64 arrays (m,); `h` holds -1 where it is not known yet; `h` and `b` are changed in place.
    `q`, `D`: arrays (n,) of the type of A; `q` is changed in place. `positive`: bool array (m,); which
    coefficients are held at or above zero. `sweeps`, `support_sweeps`: most full sweeps; most sweeps over the
    support after each. `tol`, `bar`: end when the largest ``change^2 h_j`` of a full sweep is at most `bar`,
    or, if that is 0, at most `tol` times what it was in the first sweep. Returns `first`, `last`: largest
    ``change^2 h_j`` of the first and of the last full sweep.
    """
    n = AT.shape[1]
    active = np.empty(len(columns), np.int64)
    visits, first, last = 0, 0.0, 0.0
    for sweep in range(sweeps):
        n_active = 0
        for inner in range(support_sweeps + 1):
            count = len(columns) if inner == 0 else n_active
            largest = 0.0
            for c in range(count):
                j = columns[c] if inner == 0 else active[c]
                a, old = AT[j], b[j]
                total = q[0] * 0
                for row in range(n):
                    total += a[row] * q[row]
                slope = g[j] - total
                if old == 0.0 and (slope <= l1[j] if positive[j] else abs(slope) <= l1[j]):
                    continue
                if h[j] < 0.0:
                    square = q[0] * 0
                    for row in range(n):
                        square += a[row] * a[row] * D[row]
                    h[j] = square
                new = _target(slope, h[j], old, l1[j], l2[j], positive[j])
                if inner == 0 and new != 0.0:
                    active[n_active] = j
                    n_active += 1
                if new != old:
                    b[j] = new
                    change = q.dtype.type(new - old)
                    for row in range(n):
                        q[row] += change * (D[row] * a[row])
                    largest = max(largest, (new - old) ** 2 * h[j])
            visits += count
            if inner == 0:
                last = largest
                if sweep == 0:
                    first = largest
                    bar = bar if bar > 0.0 else tol * first
                if last <= bar:
                    break
            elif largest <= _SMALL * last:
                break
        if last <= bar:
            break
    return first, last, visits


@nb.njit(**_SUMS)
def csc_descent(
    data, indices, indptr, columns, g, h, b, q, D, l1, l2, positive, sweeps, support_sweeps, tol, bar
):
    """The same for columns of a CSC matrix; all in float64."""
    active = np.empty(len(columns), np.int64)
    visits, first, last = 0, 0.0, 0.0
    for sweep in range(sweeps):
        n_active = 0
        for inner in range(support_sweeps + 1):
            count = len(columns) if inner == 0 else n_active
            largest = 0.0
            for c in range(count):
                j = columns[c] if inner == 0 else active[c]
                entries, old = span(indptr, j), b[j]
                total = 0.0
                for e in entries:
                    total += data[e] * q[at(indices[e])]
                slope = g[j] - total
                if old == 0.0 and (slope <= l1[j] if positive[j] else abs(slope) <= l1[j]):
                    continue
                if h[j] < 0.0:
                    square = 0.0
                    for e in entries:
                        square += data[e] * data[e] * D[at(indices[e])]
                    h[j] = square
                new = _target(slope, h[j], old, l1[j], l2[j], positive[j])
                if inner == 0 and new != 0.0:
                    active[n_active] = j
                    n_active += 1
                if new != old:
                    b[j] = new
                    change = new - old
                    for e in entries:
                        q[at(indices[e])] += change * (D[at(indices[e])] * data[e])
                    largest = max(largest, change * change * h[j])
            visits += count
            if inner == 0:
                last = largest
                if sweep == 0:
                    first = largest
                    bar = bar if bar > 0.0 else tol * first
                if last <= bar:
                    break
            elif largest <= _SMALL * last:
                break
        if last <= bar:
            break
    return first, last, visits


@nb.njit(**_SUMS)
def csc_weighted_gram(data, indices, indptr, columns, D, most):
    """``A^T D A`` of some columns of a CSC matrix, row by row.

    Takes 12 bytes an entry of these columns, and 16 a row, for the time of the call.

    `data`, `indices`, `indptr`: as in scipy. `columns`: int64 array (m,). `D`: float64 array (n,). `most`:
    multiplications an entry that it may cost. Returns float64 array (m, m); or (0, 0) if it would cost more.
    """
    m, n = len(columns), len(D)
    starts = np.zeros(n + 1, np.int64)
    for c in range(m):
        for e in span(indptr, columns[c]):
            starts[indices[e] + 1] += 1
    work = 0.0
    for row in range(n):
        work += 0.5 * starts[row + 1] * starts[row + 1]
        starts[row + 1] += starts[row]
    entries = starts[n]
    if work > most * entries:
        return np.zeros((0, 0))
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
    """The same problem when ``G = A^T D A`` is known.

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
