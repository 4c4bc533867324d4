"""CCD++ for matrix factorization: one factor of a range of rows at a time, on the residuals.

The residuals ``t - prediction`` are kept in both orders, by row and by column. While the rows of one order
are worked on, what the other side has changed since is still missing from its residuals; it is brought in
here on the way, row by row, when they are in the cache. Rows are independent of each other.

Reference: Yu, Hsieh, Si, Dhillon, "Scalable coordinate descent approaches to parallel matrix factorization
for recommender systems", ICDM 2012.
"""

from typing import Any

import numba as nb

from ..indexing import at, span
from ..linear.columns import FAST

_SUMS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": FAST - {"afn"}}


@nb.njit(**_SUMS)
def catch_up_rows(start, stop, indptr, indices, residuals, x, change):
    """Bring a change of the other side's factor into the residuals: r -= x_u change_j."""
    for u in range(start, stop):
        value = x[u]
        for e in span(indptr, u):
            residuals[e] -= value * change[at(indices[e])]


@nb.njit(**_SUMS)
def refit_rows(
    start, stop, indptr, indices, weights, residuals, x, y, change, ridge, non_negative, own_change
):
    """Move ``x[start:stop]`` to the minimum of ``sum w (r + (old x - x) y)^2 + ridge x^2``.

    Parameters
    ----------
    start, stop : int
    indptr : int64 array; indices : int32 array
    weights : array
        One entry a rating, or a single one for all.
    residuals : array, one entry a rating
        They are kept up to date, for the change of both sides.
    x, ridge : arrays, one entry a row
    y, change : arrays, one entry a column
        The other side's factor, and what of it the residuals do not contain yet.
    non_negative : bool
    own_change : array, one entry a row
        Filled with what was added to `x`.
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
