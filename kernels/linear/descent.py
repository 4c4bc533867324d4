"""Coordinate descent for least squares with an absolute and a square penalty on each coefficient::

    min_b |rho|^2 / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2,      rho = y - A b

A visit moves one coefficient to its best value and keeps rho. A sweep visits every column and then, some
times over, those that have a coefficient: most of a working set ends at zero.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at
from ..options import INNER, KERNEL
from .columns import FAST

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
_INLINE: dict[str, Any] = {**KERNEL, "inline": "always"}


@nb.njit(**_SUMS, **INNER)
def subtract(slopes, step, row, m):
    """Subtract ``step * row`` from the first m slopes."""
    for k in range(m):
        slopes[k] -= step * row[k]


@nb.njit(**_SUMS, **INNER)
def dot(x, y, m):
    """Multiply the first m entries of two vectors."""
    total = 0.0
    for k in range(m):
        total += x[k] * y[k]
    return total


@nb.njit(**_INLINE, **INNER)
def _best(slope, norm, l1, l2, positive):
    """Minimiser of norm b^2 / 2 - slope b + l1 |b| + l2 b^2 / 2."""
    if slope > l1:
        return (slope - l1) / (norm + l2)
    if slope < -l1 and not positive:
        return (slope + l1) / (norm + l2)
    return 0.0


@nb.njit(**_SUMS)
def dense_sweeps(AT, columns, norms, slopes, change, coef, l1, l2, positive, support_sweeps):
    """Sweep once over some dense columns, then `support_sweeps` times over those with a coefficient.

    What is moved is kept as a change from an anchor, so that float32 limits the step and not the solution:
    ``rho = rho_at_the_anchor + change``, and ``slopes`` are exact products with the first of them.

    `AT`: float32 array (m, n). `columns`: int64 array; which are visited; the others keep their coefficient.
    `norms`: float64 array (m,); squared norms; columns of norm 0 keep their coefficient. `slopes`: float64
    array (m,); ``A^T rho`` at the anchor. `change`: float32 array (n,); of rho since then; kept. `coef`,
    `l1`, `l2`: float64 arrays (m,). Returns coordinates visited.
    """
    n, m = len(change), len(columns)
    active = np.empty(m, np.int64)
    visits = n_active = 0
    for inner in range(support_sweeps + 1):
        count = m if inner == 0 else n_active
        for c in range(count):
            j = columns[c] if inner == 0 else active[c]
            norm = norms[j]
            if norm == 0.0:
                continue
            a, old = AT[j], coef[j]
            total = change[0] * 0
            for row in range(n):
                total += a[row] * change[row]
            new = _best(slopes[j] + total + norm * old, norm, l1[j], l2[j], positive)
            if inner == 0 and new != 0.0:
                active[n_active] = j
                n_active += 1
            if new != old:
                coef[j] = new
                step = np.float32(new - old)
                for row in range(n):
                    change[row] -= step * a[row]
        visits += count
    return visits


@nb.njit(**KERNEL)
def gather_lower(G, positions, out):
    """Lower triangle of ``G[positions][:, positions]`` into the Fortran-ordered `out`."""
    m = len(positions)
    for j in range(m):
        row = G[positions[j]]
        for i in range(j, m):
            out[i, j] = row[at(positions[i])]


@nb.njit(**KERNEL)
def gram_sweeps(gram, slopes, coef, l1, l2, positive, sweeps, inner):
    """Sweep over all coordinates, then up to `inner` times over those that are not zero; `sweeps` times.

    Minimises ``b G b / 2 - c b + sum_j l1_j |b_j| + l2_j b_j^2 / 2`` where ``slopes = c - G b`` is kept.

    `gram`: float64 (m, m), symmetric. `slopes`, `coef`: float64 (m,), changed. `l1`, `l2`: float64 (m,).
    Returns coordinates visited.
    """
    m = len(coef)
    support = np.empty(m, np.int64)
    visits = 0
    for _ in range(sweeps):
        for j in range(m):
            _visit(j, gram, slopes, coef, l1, l2, positive)
        visits += m
        n_support = 0
        for j in range(m):
            if coef[j] != 0.0:
                support[n_support] = j
                n_support += 1
        for _ in range(inner):
            moved = 0.0
            for k in range(n_support):
                moved = max(moved, _visit(support[k], gram, slopes, coef, l1, l2, positive))
            visits += n_support
            if moved == 0.0:
                break
    return visits


@nb.njit(**KERNEL, **INNER)
def _visit(j, gram, slopes, coef, l1, l2, positive):
    """Minimise over coordinate j; return how far the fit moved."""
    norm, old = gram[j, j], coef[j]
    if norm + l2[j] <= 0.0:
        return 0.0
    new = _best(slopes[j] + norm * old, norm, l1[j], l2[j], positive)
    if new == old:
        return 0.0
    coef[j] = new
    subtract(slopes, new - old, gram[j], len(coef))
    return abs(new - old) * np.sqrt(norm)
