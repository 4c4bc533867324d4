"""CCD++ for matrix factorization: one factor of a range of rows at a time, on the residuals.

The residuals ``t - prediction`` are kept in both orders, by row and by column. Those of one order lack the
last changes of the other side until its rows are visited; then they are added row by row, in the cache. Rows
are independent of each other.

Reference: Yu, Hsieh, Si, Dhillon, "Scalable coordinate descent approaches to parallel matrix factorization
for recommender systems", ICDM 2012.
"""

from typing import Any

import numba as nb

from ..indexing import at, span
from ..linear.columns import FAST
from ..options import KERNEL

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST - {"afn"}}


@nb.njit(**_SUMS)
def catch_up_rows(start, stop, indptr, indices, residuals, x, change):
    """Apply a change of the other side's factor to the residuals: r -= x_u change_j."""
    for u in range(start, stop):
        value = x[u]
        for e in span(indptr, u):
            residuals[e] -= value * change[at(indices[e])]


@nb.njit(**_SUMS)
def refit_rows(
    start, stop, indptr, indices, weights, residuals, x, y, change, ridge, non_negative, own_change
):
    """Move ``x[start:stop]`` to the minimum of ``sum w (r + (old x - x) y)^2 + ridge x^2``.

    `weights` has one entry a rating, or one for all; `residuals`, one a rating, are updated for the changes
    of both sides; `y` and `change`, one a column, are the other side's factor and its change that the
    residuals lack yet; `own_change`, one a row, is filled with the change of `x`.
    """
    zero, each = x.dtype.type(0), at(len(weights) > 1)
    for u in range(start, stop):
        old = x[u]
        slope, curvature = -ridge[u] * old, ridge[u]
        for e in span(indptr, u):
            j = at(indices[e])
            r = residuals[e] - old * change[j]
            residuals[e] = r
            scaled = weights[e * each] * y[j]
            slope += scaled * r
            curvature += scaled * y[j]
        new = old + slope / curvature if indptr[u] < indptr[u + 1] else zero
        if non_negative:
            new = max(new, zero)
        step = new - old
        x[u] = new
        own_change[u] = step
        for e in span(indptr, u):
            residuals[e] -= step * y[at(indices[e])]
