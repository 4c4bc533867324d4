"""A whole path of elastic nets from products of columns: one call for all penalties.

For strengths l and r of a path, from the first to the last, each solution starting the next::

    min_b  y_y / 2 - c b + b G b / 2 + sum_j l f_j |b_j| + r q_j b_j^2 / 2

The slopes ``c - G b`` of all columns are known at every test of the duality gap. Descent visits the columns
that the sequential strong rule keeps, and those that break the optimality conditions afterwards. Where
descent is slow a step goes to the solution of the present signs, as far as no sign changes.

References
----------
Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS B 2012.
Lee, Battle, Raina, Ng, "Efficient sparse coding algorithms", NIPS 2006 (steps on present signs).
"""

import numba as nb
import numpy as np
from numba import types

from .. import one_form
from ..indexing import copy
from ..options import INNER, KERNEL
from .descent import _best, dot, subtract

_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
_INNER = 0.5  # the problem on some columns is solved to this part of what is asked of all
_MOST_SWEEPS = 500  # a round
_FLAT = 1e-12  # a pivot below this part of its diagonal: the columns are dependent
_HELD = 1e-6  # of the diagonal, where columns are dependent
_STUCK = 4  # rounds without progress after which it gives up


@nb.njit(**KERNEL, **INNER)
def _gap(b, slopes, c, y_y, l1, l2, positive, m):
    """Objective and duality gap; see ``algorithms.linear.sparse.duality``."""
    c_b = b_slopes = absolute = squares = 0.0
    limit = np.inf
    for j in range(m):
        size = slopes[j]
        if b[j] != 0.0:
            c_b += c[j] * b[j]
            b_slopes += b[j] * slopes[j]
            absolute += l1[j] * abs(b[j])
            squares += l2[j] * b[j] * b[j]
            size -= l2[j] * b[j]
        if not positive:
            size = abs(size)
        if size > 0.0 and size * limit > l1[j]:
            limit = l1[j] / size
    y_r, r_r = y_y - c_b, max(y_y - c_b - b_slopes, 0.0)
    objective, total = 0.5 * (r_r + squares) + absolute, r_r + squares
    s = y_r / total if total > 0.0 else 0.0
    s = min(max(s, 0.0), limit)
    return objective, max(objective - (s * y_r - 0.5 * s * s * total), 0.0)


@nb.njit(**KERNEL)
def sweep(G, slopes, b, l1, l2, positive, m):
    """Visit m coordinates once, keeping their slopes."""
    for j in range(m):
        norm, old = G[j, j], b[j]
        new = _best(slopes[j] + norm * old, norm, l1[j], l2[j], positive)
        if new != old:
            b[j] = new
            subtract(slopes, new - old, G[j], m)


@nb.njit(**KERNEL)
def step_on_signs(G, slopes, c, b, l1, l2, m, support, H, z, held):
    """Go to the solution of the present signs, or until a coefficient is zero; False if it is not unique.

    Coefficients whose l1 is 0 have no sign to keep. `held`: curvature that is added, as a part of each
    diagonal, around the present point: with it there is one solution.
    """
    k = 0
    for j in range(m):
        if b[j] != 0.0 or l1[j] == 0.0:
            support[k] = j
            k += 1
    for i in range(k):  # Cholesky factor, by rows
        own, row = support[i], H[i]
        for j in range(i + 1):
            row[j] = G[own, support[j]]
        hold = held * row[i]
        row[i] += l2[own] + hold
        least = _FLAT * row[i]
        for j in range(i):
            row[j] = (row[j] - dot(row, H[j], j)) / H[j, j]
        pivot = row[i] - dot(row, row, i)
        if not pivot > least:
            return False
        row[i] = np.sqrt(pivot)
        z[i] = c[own] - (l1[own] if b[own] > 0.0 else -l1[own]) + hold * b[own]
        z[i] = (z[i] - dot(row, z, i)) / row[i]
    for i in range(k - 1, -1, -1):
        z[i] /= H[i, i]
        subtract(z, z[i], H[i], i)
    length, first = 1.0, -1
    for i in range(k):
        old = b[support[i]]
        if l1[support[i]] > 0.0 and z[i] * old <= 0.0:
            to_zero = old / (old - z[i])
            if to_zero < length:
                length, first = to_zero, i
    for i in range(k):
        j = support[i]
        new = 0.0 if i == first else b[j] + length * (z[i] - b[j])
        subtract(slopes, new - b[j], G[j], m)
        b[j] = new
    return True


@one_form.njit(
    types.int64(
        _MATRIX, _VECTOR, types.float64, _VECTOR, _VECTOR, _VECTOR, _VECTOR, types.boolean, types.float64,
        types.int64, _VECTOR, _MATRIX, _MATRIX,
    ),
    **KERNEL,
)  # fmt: skip
def solve_path(
    G, c, y_y, l1_factors, l2_factors, strengths, ridges, positive, eps, most_rounds, b, coefs, figures
):
    """Solve for a sequence of penalties; return how many were solved before one was not.

    `G`: float64 (p, p), symmetric, of positive diagonal. `c`: float64 (p,). `l1_factors`, `l2_factors`:
    float64 (p,); f above 0, and q. `strengths`, `ridges`: float64 (n,). `eps`: gap of each solution.
    `most_rounds`: for each. `b`: float64 (p,); to begin with; changed. `coefs`: float64 (n, p), filled.
    `figures`: float64 (n, 4), filled with objective, gap, rounds and coordinates visited.
    """
    p = len(c)
    slopes, l1, l2 = np.empty(p), np.empty(p), np.empty(p)
    members, is_member, gathered = np.empty(p, np.int64), np.zeros(p, np.bool_), -1
    Gs, H = np.empty((p, p)), np.empty((p, p))
    bs, cs, qs, l1s, l2s, z = np.empty(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    support = np.empty(p, np.int64)
    copy(c, slopes)
    for j in range(p):
        if b[j] != 0.0:
            subtract(slopes, b[j], G[j], p)
    before = 0.0
    for j in range(p):
        before = max(before, abs(slopes[j]) / l1_factors[j])
    for a in range(len(strengths)):
        for j in range(p):
            l1[j], l2[j] = strengths[a] * l1_factors[j], ridges[a] * l2_factors[j]
        kept = max(2.0 * strengths[a] - before, 0.0) if before >= strengths[a] else strengths[a]
        before = strengths[a]
        best, stuck, visits, rounds, regular = np.inf, 0, 0, 0, True
        while True:
            objective, gap = _gap(b, slopes, c, y_y, l1, l2, positive, p)
            if gap <= eps:
                break
            stuck = 0 if gap < 0.9 * best else stuck + 1
            best = min(best, gap)
            if stuck == _STUCK or rounds == most_rounds:
                return a
            rounds += 1
            m = 0
            same = True
            for j in range(p):
                size = slopes[j] - l2[j] * b[j]
                if not positive:
                    size = abs(size)
                wanted = b[j] != 0.0 or size > (kept * l1_factors[j] if rounds == 1 else l1[j])
                wanted = wanted or (rounds > 1 and is_member[j])
                same = same and wanted == is_member[j]
                is_member[j] = wanted
                if wanted:
                    members[m] = j
                    m += 1
            if not same or gathered != m:
                for i in range(m):
                    row = G[members[i]]
                    for j in range(m):
                        Gs[i, j] = row[members[j]]
                gathered = m
            for i in range(m):
                j = members[i]
                bs[i], cs[i], qs[i], l1s[i], l2s[i] = b[j], c[j], slopes[j], l1[j], l2[j]
            last, wait, held = gap, 2, 0.0
            for _sweeps in range(_MOST_SWEEPS):
                sweep(Gs, qs, bs, l1s, l2s, positive, m)
                visits += m
                inner = _gap(bs, qs, cs, y_y, l1s, l2s, positive, m)[1]
                if inner <= _INNER * eps:
                    break
                wait -= 1
                if wait <= 0 and regular:
                    k = 0
                    for i in range(m):
                        k += bs[i] != 0.0
                    need = np.log(inner / (_INNER * eps)) / np.log(max(last / inner, 1.0 + 1e-9))
                    if need > 4.0 + k * k / (6.0 * m):
                        if not step_on_signs(Gs, qs, cs, bs, l1s, l2s, m, support, H, z, held):
                            regular, held = held == 0.0, _HELD
                        wait = 2
                last = inner
            for i in range(m):
                b[members[i]] = bs[i]
            copy(c, slopes)
            for j in range(p):
                if b[j] != 0.0:
                    subtract(slopes, b[j], G[j], p)
        copy(b, coefs[a])
        figures[a, 0], figures[a, 1], figures[a, 2], figures[a, 3] = objective, gap, rounds, visits
    return len(strengths)
