"""A whole fit of a small dense problem with penalties of single coefficients, in one call: see `newton`.

A round computes the slopes of all columns, ends at the duality gap or the violation of the optimality
conditions, and lets the columns that break them most join the working set, on which `newton.minimise` solves
the problem.
"""

from typing import Any

import numba as nb
import numpy as np
from numba import types

from .. import one_form
from ..options import INNER, KERNEL
from .columns import FAST
from .newton import HUBER, SQUARED, conjugate, judge_columns, minimise, products, row_losses

RUNS, GAP, CONDITIONS, STALLED, LARGE = 0, 1, 2, 3, 4  # why a call ended

_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
_STATE = types.Tuple((_MATRIX, _MATRIX, types.int64[::1], _VECTOR, _VECTOR))
_SUMS: dict[str, Any] = {**KERNEL, **INNER, "fastmath": FAST}
_FEW = 10  # columns that join at least
_PASS = 4  # columns of X, for each pair of columns of the working set, whose slopes cost as much
_ROUND = 1e6  # multiplications in products of columns that a round may cost
# Multiplications in products, of columns with coefficients and of all of a working set, beyond which
# descent by rows or other solvers are faster.
_MOST_THERE, _MOST = 2e7, 4e8
_FALL = 1e-12  # of an objective: what falls less is rounding
_LEAST = 1e-14  # violations below this, in units of the first slopes, are rounding


@nb.njit(**_SUMS)
def _slopes(XT, u, V):
    """Fill ``V = -X^T u``, four columns at a time."""
    p, n = XT.shape
    for j in range(0, p, 4):
        a, b, c, d = XT[j], XT[min(j + 1, p - 1)], XT[min(j + 2, p - 1)], XT[min(j + 3, p - 1)]
        first = second = third = fourth = 0.0
        for i in range(n):
            first += a[i] * u[i]
            second += b[i] * u[i]
            third += c[i] * u[i]
            fourth += d[i] * u[i]
        V[min(j + 3, p - 1)], V[min(j + 2, p - 1)] = -fourth, -third
        V[min(j + 1, p - 1)], V[j] = -second, -first


@nb.njit(**_SUMS)
def _slopes_of_centred(A, ids, u, V):
    for k in range(len(ids)):
        total, a = 0.0, A[k]
        for i in range(len(u)):
            total += a[i] * u[i]
        V[ids[k]] = -total


@nb.njit(**_SUMS)
def _centre(x, weights, centre, a):
    """Copy a column, less its mean if `centre`; return what was subtracted."""
    n, first, mean, rest = len(x), x[0], 0.0, 0.0
    if not centre:
        for i in range(n):
            a[i] = x[i]
        return 0.0
    for i in range(n):  # a column far from zero keeps its digits
        mean += weights[i] * (x[i] - first)
    mean += first
    for i in range(n):
        a[i] = x[i] - mean
        rest += weights[i] * a[i]
    for i in range(n):
        a[i] -= rest
    return mean + rest


@nb.njit(**KERNEL, **INNER)
def _join(XT, weights, centre, new, squared, state):
    """Let columns join the working set; arrays have room for more than there are."""
    A, H, ids, shift, f = state
    m, more, n = len(ids), len(new), XT.shape[1]
    if m + more > len(A):
        room = min(m + more + (m + more) // 2, max(m + more, XT.shape[0]))
        wider, larger = np.empty((room, n)), np.empty((room, room) if squared else (0, 0))
        for k in range(m):
            for i in range(n):
                wider[k, i] = A[k, i]
            if squared:
                for i in range(m):
                    larger[k, i] = H[k, i]
        A, H = wider, larger
    all_ids, all_shift = np.empty(m + more, np.int64), np.empty(m + more)
    for k in range(m + more):
        if k < m:
            all_ids[k], all_shift[k] = ids[k], shift[k]
        else:
            all_ids[k] = new[k - m]
            all_shift[k] = _centre(XT[new[k - m]], weights, centre, A[k])
    if squared:
        sides = products(A, np.arange(m + more), m, weights)
        for k in range(m + more):
            for i in range(more):
                H[k, m + i] = H[m + i, k] = sides[k, i]
    return A, H, all_ids, all_shift, f


@nb.njit(**KERNEL, **INNER)
def _joining(scores, most):
    """Columns of the largest scores above zero, at most so many, by number; ties go to lower numbers."""
    values, count = np.empty(len(scores)), 0
    for j in range(len(scores)):
        if scores[j] > 0.0:
            values[count] = scores[j]
            count += 1
    least, ties = 0.0, count
    if count > most:
        first, last, k = 0, count - 1, most - 1
        while first < last:  # quickselect
            pivot, i, j = values[(first + last) // 2], first, last
            while i <= j:
                while values[i] > pivot:
                    i += 1
                while values[j] < pivot:
                    j -= 1
                if i <= j:
                    values[i], values[j] = values[j], values[i]
                    i, j = i + 1, j - 1
            if k <= j:
                last = j
            elif k >= i:
                first = i
            else:
                break
        least, ties = values[k], most
        for j in range(len(scores)):
            ties -= scores[j] > least
    out, count = np.empty(min(count, most), np.int64), 0
    for j in range(len(scores)):
        if scores[j] > least or (scores[j] == least and least > 0.0 and ties > 0):
            ties -= scores[j] == least
            out[count] = j
            count += 1
    return out


@nb.njit(**KERNEL, **INNER)
def _balance(u):
    """Return the sum of slopes, and shrink them so that it is zero: dual feasible with an intercept."""
    above = below = 0.0
    for value in u:
        above += max(value, 0.0)
        below -= min(value, 0.0)
    for i in range(len(u)):
        if above > below and u[i] > 0.0:
            u[i] *= below / above
        elif below > above and u[i] < 0.0:
            u[i] *= above / below
    return abs(above - below)


@one_form.njit(
    types.Tuple((_STATE, types.int64, types.int64))(
        _MATRIX, _VECTOR, _VECTOR, _VECTOR, types.int64, types.float64, _MATRIX, types.float64, types.int64,
        types.boolean, types.boolean, types.float64, _VECTOR, _VECTOR, _VECTOR,
        _STATE, _VECTOR, types.int64, types.boolean, _MATRIX,
    ),
    **KERNEL,
)  # fmt: skip
def solve(
    XT, y, weights, offset, loss, delta, P, gamma, kind, fit_intercept, convex, tol, scales, B, c, state,
    memory, n_rounds, ends, figures,
):  # fmt: skip
    """Minimise from B and c; return the state of the working set, the rounds made and why it ended.

    Parameters
    ----------
    XT : float64 ndarray (p, n)
    y, weights, offset : float64 ndarray (n,), (n,), (n,) or (0,)
        Weights have the sum 1.
    loss, delta, P, gamma, kind, fit_intercept
        See `newton.minimise`; P is of all columns.
    convex : bool
        Whether a duality gap ends it.
    tol : float
    scales : float64 ndarray (3,)
        Units of gaps and violations, NaN until the model without penalised columns is known; the least loss.
    B, c : float64 ndarray (p,), (1,)
        Coefficients; intercept of centred columns. Changed.
    state : tuple
        Columns, products, numbers and shifts of the working set; predictors, NaN where they are to be made.
    memory : float64 ndarray (6,)
        Of the rounds before: aim, least gap, objective, rounds without progress, damping, columns that
        joined.
    n_rounds : int
        At most; with 0 the units are found, and B and c are of the model without penalised columns.
    ends : bool
        Whether the last of them only measures.
    figures : float64 ndarray (n_rounds, 3)
        Filled with objective, gap and violation of each round.
    """
    p, n, squared = XT.shape[0], XT.shape[1], loss == SQUARED
    f, u, h, V, scores = state[4], np.empty(n), np.empty(n), np.empty(p), np.empty(p)
    inside, wanted = np.zeros(p, np.bool_), np.zeros(p)
    for j in state[2]:
        inside[j] = True
    for j in range(p):
        free = P[0, j] == 0.0 and P[1, j] == 0.0 and P[3, j] == -np.inf and P[4, j] == np.inf
        if not inside[j] and (free or B[j] != 0.0):
            wanted[j], inside[j] = 1.0, True
    state = _join(XT, weights, fit_intercept, _joining(wanted, p), squared, state)
    if np.isnan(f[0]):
        for i in range(n):
            f[i] = c[0] + (offset[i] if len(offset) > 0 else 0.0)
        for k in range(len(state[2])):
            d, a = B[state[2][k]], state[0][k]
            if d != 0.0:
                for i in range(n):
                    f[i] += d * a[i]
    least = max(_FEW, int(np.sqrt(_PASS * float(p))), int(np.sqrt(_ROUND / n)))
    reason, done, starting, goal = RUNS, 0, np.isnan(scales[0]), 0.0
    while True:
        smooth = row_losses(loss, delta, y, weights, f, u, h)
        if starting:  # the model without penalised columns
            for i in range(n):
                goal += 1e-13 * abs(u[i])
            goal = goal if goal > 0.0 else 1e-13
        else:
            violation = _balance(u) if fit_intercept else 0.0
            _slopes(XT, u, V)
            if fit_intercept:  # columns far from zero lose digits where they are not centred
                _slopes_of_centred(state[0], state[2], u, V)
            if np.isnan(scales[0]):
                scales[0], scales[1] = max(smooth - scales[2], 1e-300), 0.0
                for j in range(p):
                    scales[1] = max(scales[1], abs(V[j]))
                scales[1] = scales[1] if scales[1] > 0.0 else 1.0
            if done == n_rounds:
                break
            cost, scale, dual, rest = judge_columns(B, V, P, gamma, kind, convex, scores)
            n_there = 0
            for j in range(p):
                violation = max(violation, scores[j])
                if inside[j]:
                    scores[j] = 0.0
                    n_there += B[j] != 0.0
            objective, gap = smooth + cost, np.nan
            if convex:
                dual += conjugate(loss, delta, y, weights, u, scale)
                for i in range(len(offset)):
                    dual -= scale * u[i] * offset[i]
                gap = max(objective + dual, 0.0) + rest
            figures[done, 0], figures[done, 1], figures[done, 2] = objective, gap, violation
            done += 1
            figure, bar = gap if convex else violation, tol * (scales[0] if convex else scales[1])
            if figure <= bar:
                reason = GAP if convex else CONDITIONS
                break
            # A gap may rest while columns join, or a bound of the curvature keeps steps short: it falls later
            resting = figure > 0.9 * memory[1] and violation <= 100.0 * memory[0] and memory[5] < _FEW
            falls = convex and objective < memory[2] - _FALL * abs(objective)
            memory[3] = memory[3] + 1.0 if resting and not falls else 0.0
            memory[1], memory[2] = min(memory[1], figure), objective
            if not violation > _LEAST * scales[1] or memory[3] > 5.0 or figure != figure:
                reason = STALLED
                break
            if ends and done == n_rounds:
                break
            new = _joining(scores, max(least, 2 * n_there))
            work = float(n) * (len(state[2]) + len(new)) ** 2
            if float(n) * n_there**2 > _MOST_THERE or work > _MOST:
                reason = LARGE
                break
            for j in new:
                inside[j] = True
            state = _join(XT, weights, fit_intercept, new, squared, state)
            memory[5] = len(new)
            memory[0] = min(memory[0], 0.3 * violation)
            if not convex:
                memory[0] = max(memory[0], 0.3 * tol * scales[1])
            goal, m = memory[0], float(len(state[2]))
            # Where the working set is all but complete, or cheap, it is solved to the end at once.
            last = (10 * len(new) <= n_there and m * m <= 30.0 * p) or not (len(new) or squared)
            if convex and figure > 0.0 and (last or (squared and m * m < float(n) * p)):
                goal = min(goal, np.sqrt(0.5 * bar / figure) * violation)  # the gap falls as its square
            goal = max(goal, 0.1 * _LEAST * scales[1])
        ids = state[2]
        m = len(ids)
        b, terms = np.empty(m), np.empty((5, m))
        for k in range(m):
            b[k] = B[ids[k]]
            for q in range(5):
                terms[q, k] = P[q, ids[k]]
        memory[4] = minimise(
            state[0][:m], state[1], loss, delta, y, weights, f, b, c, terms, gamma, kind, fit_intercept,
            False, goal, memory[4] if loss == HUBER else 0.0,
        )  # fmt: skip
        for k in range(m):
            B[ids[k]] = b[k]
        starting = False
    return state, done, reason
