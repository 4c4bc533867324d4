"""Coordinate descent on a Gram matrix: the data are not touched."""

from typing import Any

import numba as nb
import numpy as np

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@nb.njit(**_OPTIONS)
def descend(gram, slopes, coef, l1, l2, positive, sweeps, inner):
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
            for at in range(n_support):
                moved = max(moved, _visit(support[at], gram, slopes, coef, l1, l2, positive))
            visits += n_support
            if moved == 0.0:
                break
    return visits


@nb.njit(**_OPTIONS)
def _visit(j, gram, slopes, coef, l1, l2, positive):
    """Minimise over coordinate j; return how far the fit moved."""
    own = gram[j, j] + l2[j]
    if own <= 0.0:
        return 0.0
    old = coef[j]
    z = slopes[j] + gram[j, j] * old
    new = 0.0
    if z > l1[j]:
        new = (z - l1[j]) / own
    elif z < -l1[j] and not positive:
        new = (z + l1[j]) / own
    change = new - old
    if change == 0.0:
        return 0.0
    coef[j] = new
    for k in range(len(coef)):
        slopes[k] -= change * gram[j, k]
    return abs(change) * np.sqrt(gram[j, j])
