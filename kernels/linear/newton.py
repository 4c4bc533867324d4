"""Newton's method for a loss of rows and penalties of single coefficients, on the columns of a working set::

    min_(b, c)  sum_i w_i l(y_i, x_i b + c + offset_i) + sum_j phi(|b_j|) + l1_j |b_j| + ridge_j b_j^2 / 2

The loss is replaced by its second-order model, less what the intercept takes up, ``H - s s^T / total``, and
`blocks.minimise_columns` minimises that. Of a squared loss it is the loss itself, which needs no more than
that: see `solving.second_order`.
"""

from typing import Any

import numba as nb
import numpy as np
from numba.extending import register_jitable

from ..exponentials import fast_exp, fast_log1p
from ..options import INNER, KERNEL
from .blocks import _cost, minimise_columns, slope_of_phi
from .columns import FAST

SQUARED, LOGISTIC, POISSON, GAMMA, HUBER = 0, 1, 2, 3, 4  # losses

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
STEPS = 50  # models of a loss on one working set; the tolerance ends them
_MOST_SWEEPS = 500  # over a model: a cap; the tolerance ends them
_FEW = 10  # columns that join at least
HALVINGS = 12
ROUNDING = 1e-14  # of an objective
_HIGHEST = 709.0  # beyond, the exponential is infinite


@nb.njit(**{**KERNEL, "fastmath": {"contract"}})
def row_losses(loss, delta, y, weights, f, u, h):
    """Return the weighted loss at predictors f (n,); fill u and h with the weighted slopes and curvatures.

    `loss`: see above; `delta`: width of Huber's. A row without weight counts for nothing, even where its loss
    overflows.
    """
    total = 0.0
    for i in range(len(f)):
        z, t = f[i], y[i]
        if loss == SQUARED:
            slope, bend = z - t, 1.0
            value = 0.5 * slope * slope
        elif loss == LOGISTIC:
            e = fast_exp(-abs(z))
            q = 1.0 / (1.0 + e)
            slope, bend = (q if z >= 0 else e * q) - t, e * q * q
            value = max(z, 0.0) - t * z + fast_log1p(e)
        elif loss == HUBER:
            rest = z - t
            slope, bend = min(max(rest, -delta), delta), 1.0 if abs(rest) <= delta else 0.0
            value = slope * rest - 0.5 * slope * slope
        else:
            x = z if loss == POISSON else -z
            e = fast_exp(min(x, _HIGHEST) if x == x else x) if x <= _HIGHEST or x != x else np.inf
            if loss == POISSON:
                value, slope, bend = e - t * z, e - t, e
            else:
                value, slope, bend = t * e + z, 1.0 - t * e, t * e
        if weights[i] > 0.0:
            total += weights[i] * value
            u[i], h[i] = weights[i] * slope, weights[i] * bend
        else:
            u[i] = h[i] = 0.0
    return total


@nb.njit(**KERNEL, **INNER)
def _log_times(x):
    return x * np.log(x) if x > 0.0 else 0.0


@nb.njit(**KERNEL)
def conjugate(loss, delta, y, weights, u, scale):
    """Conjugate of the weighted loss at a share `scale` of slopes u (n,); infinite outside of its domain."""
    total = 0.0
    for i in range(len(u)):
        if weights[i] == 0.0:
            continue
        v, t = scale * u[i] / weights[i], y[i]
        if loss in (SQUARED, HUBER):
            value = v * (0.5 * v + t)
            if loss == HUBER and abs(v) > delta * (1 + 1e-12):
                return np.inf
        elif loss == LOGISTIC:
            p = min(max(v + t, 0.0), 1.0)
            value = _log_times(p) + _log_times(1.0 - p)
        elif loss == POISSON:
            mean = max(v + t, 0.0)
            value = _log_times(mean) - mean
        else:
            rest = 1.0 - v
            if not rest > 0.0:
                return np.inf
            value = -rest * (np.log(t) + 1.0) + _log_times(rest)
        total += weights[i] * value
    return total


@nb.njit(**_SUMS, **INNER)
def _multiply(A, u, g):
    for j in range(len(A)):
        total, a = 0.0, A[j]
        for i in range(len(a)):
            total += a[i] * u[i]
        g[j] = total


@nb.njit(**_SUMS, **INNER)
def _total(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


@nb.njit(**KERNEL, **INNER)
def violation_of(b, v, lam, l1, low, high, gamma, kind):
    """Distance of ``v = -slope`` from the subdifferential of the penalty at b."""
    if b == 0.0:
        return 0.0 if (low >= 0.0 and v < 0.0) or (high <= 0.0 and v > 0.0) else max(abs(v) - l1 - lam, 0.0)
    v -= np.sign(b) * (slope_of_phi(abs(b), lam, gamma, kind) + l1)
    return 0.0 if (b <= low and v < 0.0) or (b >= high and v > 0.0) else abs(v)


@nb.njit(**KERNEL)
def judge_columns(b, V, P, gamma, kind, has_dual, scores):
    """What `blocks.judge` says, of single coefficients, and the largest of their violations, the `scores`."""
    value = rest = dual = worst = 0.0
    largest = 1.0  # how many times too large the slopes are
    for j in range(len(b)):
        lam, l1, ridge, low, high = P[0, j], P[1, j], P[2, j], P[3, j], P[4, j]
        size, pulled, bounded = abs(b[j]), V[j] - ridge * b[j], low > -np.inf or high < np.inf
        costless, excluded = lam + l1 == 0.0, not (lam + l1 < np.inf and low < high)
        if size > 0.0:
            value += _cost(b[j], lam, l1, gamma, kind) + 0.5 * ridge * size * size
        scores[j] = 0.0 if excluded else violation_of(b[j], pulled, lam, l1, low, high, gamma, kind)
        worst = max(worst, scores[j])
        if costless and (not bounded or (ridge == 0.0 and b[j] != 0.0)):
            rest += abs(V[j] * b[j]) if ridge == 0.0 else 0.0
        elif not (excluded or (costless and ridge > 0.0) or (low > -np.inf and high < np.inf)):
            outward = (low == 0.0 and pulled < 0.0) or (high == 0.0 and pulled > 0.0)
            if not outward and abs(pulled) > largest * (lam + l1):
                largest = np.inf if costless else abs(pulled) / (lam + l1)
    scale = 1.0 / largest
    for j in range(len(b) if has_dual else 0):
        lam, l1, ridge, low, high = P[0, j], P[1, j], P[2, j], P[3, j], P[4, j]
        excess, bound = abs(scale * V[j]) - lam - l1, high if V[j] > 0.0 else -low
        if (
            excess > 0.0
            and bound > 0.0
            and lam + l1 < np.inf
            and low < high
            and (ridge > 0.0 or bound < np.inf)
        ):
            size = min(excess / ridge if ridge > 0.0 else np.inf, bound)
            dual += excess * size - 0.5 * ridge * size * size
    return value, scale, dual, rest, worst


@nb.njit(**KERNEL, **INNER)
def _objective(b, P, gamma, kind):
    total = 0.0
    for j in range(len(b)):
        if b[j] != 0.0:
            total += _cost(b[j], P[0, j], P[1, j], gamma, kind) + 0.5 * P[2, j] * b[j] * b[j]
    return total


@nb.njit(**KERNEL, **INNER)
def _products(A, rows, h):
    """Return the products of some columns with the weights h."""
    n, m = A.shape[1], len(rows)
    left, right = np.empty((m, n)), np.empty((m, n))
    for p in range(m):
        for i in range(n):
            left[p, i] = A[rows[p], i]
            right[p, i] = h[i] * left[p, i]
    return np.dot(left, right.T)


@nb.njit(**KERNEL, **INNER)
def _visited(b, wrong, P, few, rows):
    """Put columns that move into `rows`; return how many: those with coefficients or without penalty, and
    those that break the conditions.

    With `few`, only some of the latter, which break them most.
    """
    m, n_there = len(b), 0
    for j in range(m):
        if b[j] != 0.0 or (P[0, j] == 0.0 and P[1, j] == 0.0):
            n_there += 1
            wrong[j] = np.inf
    limit, k = max(_FEW, n_there) if few else m, 0
    for j in range(m):
        larger = 0
        if few and 0.0 < wrong[j] < np.inf:
            for i in range(m):
                larger += wrong[j] < wrong[i] < np.inf or (wrong[i] == wrong[j] and i < j)
        if wrong[j] > 0.0 and larger < limit:
            rows[k] = j
            k += 1
    return k


@register_jitable
def judge_step(now, value, t, damping, flat, moves):
    """Whether a step of length t from `value` to `now` is taken, whether it is the last, and the damping.

    No step is of length 0. One that changes `value` by rounding may still bring slopes down.
    """
    if t == 0.0:
        return True, not damping < (1.0 if flat else 1e6), max(10.0 * damping, 1e-2)
    if not now < value:
        return t == 1.0 and now <= value + ROUNDING * abs(value), not moves, damping
    if t == 1.0:
        damping = 0.25 * damping if damping > 1e-4 or flat else 0.0
    elif t < 0.1:
        damping = max(4.0 * damping, 1e-3)
    return True, False, damping


@nb.njit(**KERNEL)
def minimise(A, loss, delta, y, weights, f, b, c, P, gamma, kind, fit_intercept, few, tol, damping):
    """Minimise until the conditions are broken by at most `tol`; return the damping of the next call.

    Parameters
    ----------
    A : float64 ndarray (m, n)
        Columns of the working set, as rows.
    loss, delta : int, float
        See `row_losses`.
    y, weights : float64 ndarray (n,)
    f, b, c : float64 ndarray (n,), (m,), (1,)
        Predictors, with offsets; coefficients; intercept. Changed.
    P : float64 ndarray (5, m)
        lam, l1, ridge, low and high.
    gamma, kind : float or None, int
        Of phi: see `blocks`.
    few : bool
        Columns get coefficients by and by, those first that break the conditions most: where the penalty is
        not convex, the end depends on it.
    tol, damping : float
        Share of the curvatures that is added to them; of a loss that may be flat, the least curvature.
    """
    m, n, flat = len(b), len(f), loss == HUBER
    u, h, df, old_f = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    g, wrong, ones, rows = np.empty(m), np.empty(m), np.zeros(m), np.empty(m, np.int64)
    value = np.nan
    for _ in range(STEPS):
        smooth = row_losses(loss, delta, y, weights, f, u, h)
        _multiply(A, u, g)
        g0 = _total(u) if fit_intercept else 0.0
        violation = abs(g0)
        for j in range(m):
            g[j] += P[2, j] * b[j]
            wrong[j] = violation_of(b[j], -g[j], P[0, j], P[1, j], P[3, j], P[4, j], gamma, kind)
            violation = max(violation, wrong[j])
        if violation <= tol:
            break
        k = _visited(b, wrong, P, few, rows)
        if flat:
            for i in range(n):
                h[i] = max(h[i], damping * weights[i])
        total = _total(h) * (1.0 if flat else 1.0 + damping) if fit_intercept else 0.0
        if fit_intercept:
            _multiply(A, h, ones)
        model = _products(A, rows[:k], h)
        new, old, slopes, steps, chosen = np.empty(k), np.empty(k), np.empty(k), np.empty(k), np.empty((5, k))
        for p in range(k):
            j = rows[p]
            share = ones[j] / total if total > 0.0 else 0.0
            if share != 0.0:
                for q in range(k):
                    model[p, q] -= share * ones[rows[q]]
            model[p, p] += P[2, j]
            if not flat:
                model[p, p] *= 1.0 + damping
            steps[p] = 1.0 / model[p, p] if model[p, p] > 0.0 else 0.0
            new[p], old[p], slopes[p] = b[j], b[j], g[j] - share * g0
            for q in range(5):
                chosen[q, p] = P[q, j]
        inner = max(0.1 * violation, 0.3 * tol)
        most = np.int64(_MOST_SWEEPS)  # for a constant it would be compiled anew
        lam, l1, low, high = chosen[0], chosen[1], chosen[3], chosen[4]
        minimise_columns(model, slopes, new, steps, lam, l1, low, high, gamma, kind, inner, most, k)
        shared = g0
        for p in range(k):
            shared += ones[rows[p]] * (new[p] - old[p])
        dc = -shared / total if total > 0.0 else 0.0
        for i in range(n):
            df[i], old_f[i] = dc, f[i]
        some = dc != 0.0
        for p in range(k):
            d, a = new[p] - old[p], A[rows[p]]
            if d != 0.0:
                some = True
                for i in range(n):
                    df[i] += d * a[i]
        if np.isnan(value):
            value = smooth + _objective(b, P, gamma, kind)
        t, ends, old_c = 1.0, False, c[0]
        for halving in range(HALVINGS + 1):
            t = 0.5**halving if halving < HALVINGS else 0.0  # in the end back where it was
            for i in range(n):
                f[i] = old_f[i] + t * df[i]
            for p in range(k):
                b[rows[p]] = old[p] + t * (new[p] - old[p])
            c[0] = old_c + t * dc
            now = value
            if t > 0.0:
                now = row_losses(loss, delta, y, weights, f, u, h) + _objective(b, P, gamma, kind)
            taken, ends, damping = judge_step(now, value, t, damping, flat, some)
            if taken:
                value = min(now, value)
                break
        if flat:
            damping = min(max(damping, 1e-9), 1.0)
        if ends:
            break
    return damping
