"""Duality gaps, in one place.

Squared loss, with unit weights and no intercept (weights and centring are in A and y by then)::

    P(b) = |y - A b|^2 / 2 + sum_j l1_j |b_j| + sum_j l2_j b_j^2 / 2
    D(s) = s y.r - s^2 R / 2,      r = y - A b,   g = A^T r - l2 b,   R = |r|^2 + sum_j l2_j b_j^2

for any s >= 0 with ``s |g_j| <= l1_j`` for every j: the residual, scaled, is the dual point, the squares of
the penalty being rows of A. The best s is y.r / R, cut to what is allowed. A feature with l1_j = 0 and
l2_j > 0 has no constraint in the dual: its term is ``-(s A_j.r)^2 / (2 l2_j)``, and R takes
``(A_j.r)^2 / l2_j`` in place of ``l2_j b_j^2``. A feature with neither must have g_j = 0: see `free_columns`.
"""

import numpy as np


def squared_gap(y_r, r_r, terms, limit):
    """Objective and duality gap of the squared loss.

    `y_r`, `r_r`: ``y . r`` and ``|r|^2``. `terms`: tuple of float; sum of ``l1_j |b_j|``; sum of ``l2_j
    b_j^2``; sum of the squares that belong into R (see the module). `limit`: largest s that is allowed: the
    least ``l1_j / |g_j|``. Returns `objective`, `gap`: the gap is not negative.
    """
    absolute, squares, dual_squares = terms
    objective = 0.5 * (r_r + squares) + absolute
    total = r_r + dual_squares
    s = y_r / total if total > 0 else 0.0
    s = min(max(s, 0.0), limit)
    return objective, max(objective - (s * y_r - 0.5 * s * s * total), 0.0)


def column_gap(b, slopes, l1, l2, positive, y_r, r_r, outside):
    """Objective and gap from coefficients and slopes of columns, and a limit from those outside."""
    squares = l2 * b * b
    dual_squares = squares
    ridge = (l1 == 0) & (l2 > 0)
    if ridge.any():
        dual_squares = squares.copy()
        pulls = np.maximum(slopes, 0.0) if positive else slopes
        dual_squares[ridge] = pulls[ridge] ** 2 / l2[ridge]
    inside = slopes - l2 * b
    inside = np.maximum(inside, 0.0) if positive else np.abs(inside)
    inside[l1 == 0] = 0.0
    terms = (float(l1 @ np.abs(b)), float(squares.sum()), float(dual_squares.sum()))
    return squared_gap(float(y_r), max(float(r_r), 0.0), terms, min(outside, limit(l1, inside)))


def limit(thresholds, slopes):
    """Largest s with ``s |slope_j| <= threshold_j`` for all j; infinity if every slope is 0."""
    slopes = np.abs(slopes)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(slopes > 0, thresholds / slopes, np.inf)
    return float(ratios.min(initial=np.inf))
