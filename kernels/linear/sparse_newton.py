"""Newton's method of `newton` without products of columns, which are those of a CSC matrix, or many.

The second-order model of the loss at coefficients b, with curvatures h of the rows and the intercept
eliminated, is minimised over the change d by coordinate descent, which keeps ``A d``. Where that takes more
than a few sweeps, conjugate gradients on the coefficients that are not zero do the rest.
"""

from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

from ..indexing import at, span
from ..options import BORROWS, INNER, KERNEL
from .blocks import single
from .columns import FAST
from .newton import HALVINGS, HUBER, SQUARED, STEPS, _objective, _total, judge_step, row_losses, violation_of

_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
_OF_COLUMNS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": FAST}
_NEAR = 0.9  # columns at zero take part in a model from this part of their threshold on
_SUPPORT_SWEEPS = 8  # after each sweep over all columns of a model
_SMALL = 0.2  # part of the last full sweep's largest change at which sweeps over the support end
_FEW_SWEEPS = 1.0  # that are still needed: beyond, conjugate gradients are faster
_CONJUGATE_STEPS, _CONJUGATE_TOL = 40, 0.1
_LEAST_CURVATURE = 1e-9  # directions of less, relative to that of their coordinates, are not followed


def _dot(X, j, v):
    """Product of column j with v."""


@overload(_dot, jit_options=_OF_COLUMNS)
def _dot_of_column(X, j, v):
    def dense(X, j, v):
        total, a = v.dtype.type(0), X[j]  # in float32 where the column and v are
        for row in range(len(a)):
            total += a[row] * v[row]
        return total

    def csc(X, j, v):
        data, indices, indptr = X
        total = 0.0
        for e in span(indptr, j):
            total += data[e] * v[at(indices[e])]
        return total

    return dense if isinstance(X, nb.types.Array) else csc


@nb.njit(**_SUMS)
def slopes(X, v, out):
    """Fill `out` (p,) with the products of all columns of X, see `minimise`, with v (n,)."""
    for j in range(len(out)):
        out[j] = _dot(X, j, v)


def _add(X, j, d, v):
    """Add d times column j to v."""


@overload(_add, jit_options=_OF_COLUMNS)
def _add_column(X, j, d, v):
    def dense(X, j, d, v):
        a, d = X[j], v.dtype.type(d)
        for row in range(len(a)):
            v[row] += d * a[row]

    def csc(X, j, d, v):
        data, indices, indptr = X
        for e in span(indptr, j):
            v[at(indices[e])] += d * data[e]

    return dense if isinstance(X, nb.types.Array) else csc


def _add_weighted(X, j, d, h, q):
    """Add d h times column j to q."""


@overload(_add_weighted, jit_options=_OF_COLUMNS)
def _add_weighted_column(X, j, d, h, q):
    def dense(X, j, d, h, q):
        a, d = X[j], q.dtype.type(d)
        for row in range(len(a)):
            q[row] += h[row] * (d * a[row])

    def csc(X, j, d, h, q):
        data, indices, indptr = X
        for e in span(indptr, j):
            row = at(indices[e])
            q[row] += h[row] * (d * data[e])

    return dense if isinstance(X, nb.types.Array) else csc


def _moments(X, j, h):
    """Product of column j with h, and of its square."""


@overload(_moments, jit_options=_OF_COLUMNS)
def _moments_of_column(X, j, h):
    def dense(X, j, h):
        total, square, a = h.dtype.type(0), h.dtype.type(0), X[j]
        for row in range(len(a)):
            weighted = h[row] * a[row]
            total += weighted
            square += weighted * a[row]
        return total, square

    def csc(X, j, h):
        data, indices, indptr = X
        total = square = 0.0
        for e in span(indptr, j):
            weighted = h[at(indices[e])] * data[e]
            total += weighted
            square += weighted * data[e]
        return total, square

    return dense if isinstance(X, nb.types.Array) else csc


@nb.njit(**{**_SUMS, **BORROWS})
def moments(X, ids, u, h, out):
    """Fill `out` (3, m) with products: of columns with u (n,), of these and of their squares with h (n,)."""
    for k in range(len(ids)):
        out[0, k] = _dot(X, ids[k], u)
        out[1, k], out[2, k] = _moments(X, ids[k], h)


@nb.njit(**{**KERNEL, **BORROWS})
def add(X, ids, d, v):
    """Add columns, d (m,) times each, to v (n,)."""
    for k in range(len(ids)):
        _add(X, ids[k], d[k], v)


@nb.njit(**KERNEL, **INNER)
def _near_columns(b, v, wrong, P):
    """Columns of a model: those with coefficients or without penalty, and those near their threshold."""
    rows, k = np.empty(len(b), np.int64), 0
    for j in range(len(b)):
        bar = P[0, j] + P[1, j]
        near = wrong[j] > 0.0 or (abs(v[j]) >= _NEAR * bar and P[3, j] < 0.0 < P[4, j])
        if b[j] != 0.0 or bar == 0.0 or near:
            rows[k] = j
            k += 1
    return rows[:k]


@nb.njit(**KERNEL)
def _sweep(X, ids, g, h, model, P, d, b, q, rows):
    """Visit columns of a model; return the largest change, in units of slopes, and those not at zero."""
    ones, share, step, extra = model[0], model[1], model[2], model[3]
    support, k, largest, n = np.empty(len(rows), np.int64), 0, 0.0, len(h)
    for j in rows:
        if step[j] == 0.0:
            continue
        slope = g[j] + _dot(X, ids[j], q) - share[j] * q[n] + extra[j] * d[j]
        old = b[j]
        new = single(old, slope, step[j], P[0, j], P[1, j], P[3, j], P[4, j], None, 0)
        if new != 0.0:
            support[k] = j
            k += 1
        if new != old:
            change = new - old
            b[j] = new
            d[j] += change
            _add_weighted(X, ids[j], change, h, q)
            q[n] += ones[j] * change
            largest = max(largest, abs(change) / step[j])
    return largest, support[:k]


@nb.njit(**KERNEL)
def _conjugate_gradients(X, ids, g, h, model, P, d, b, q, support):
    """Minimise a model, about, over coefficients that are not zero, with their signs; return if it moved."""
    ones, share, step, extra = model[0], model[1], model[2], model[3]
    k, n = len(support), len(h)
    rest, z, p, image, w = np.empty(k), np.zeros(k), np.empty(k), np.empty(k), np.empty(n + 1, q.dtype)
    first = 0.0
    for i in range(k):
        j = support[i]
        slope = g[j] + _dot(X, ids[j], q) - share[j] * q[n] + extra[j] * d[j]
        rest[i] = -slope - np.sign(b[j]) * (P[0, j] + P[1, j])
        p[i] = rest[i] * step[j]
        first += rest[i] * p[i]
    size = first
    right = rest.copy()
    for _ in range(_CONJUGATE_STEPS):
        if size <= _CONJUGATE_TOL**2 * first:
            break
        for i in range(n + 1):
            w[i] = 0.0
        for i in range(k):
            _add_weighted(X, ids[support[i]], p[i], h, w)
            w[n] += ones[support[i]] * p[i]
        curvature = diagonal = 0.0
        for i in range(k):
            j = support[i]
            image[i] = _dot(X, ids[j], w) - share[j] * w[n] + extra[j] * p[i]
            curvature += p[i] * image[i]
            diagonal += p[i] * p[i] / step[j]
        if not curvature > _LEAST_CURVATURE * diagonal:
            break
        length, old, size = size / curvature, size, 0.0
        for i in range(k):
            z[i] += length * p[i]
            rest[i] -= length * image[i]
            size += rest[i] * rest[i] * step[support[i]]
        for i in range(k):
            p[i] = rest[i] * step[support[i]] + (size / old) * p[i]
    cut, gain, curvature = False, 0.0, 0.0
    for i in range(k):
        j = support[i]
        new = b[j] + z[i]
        if new * b[j] < 0.0 and P[0, j] + P[1, j] > 0.0:
            new = 0.0
        new = min(max(new, P[3, j]), P[4, j])
        cut = cut or new != b[j] + z[i]
        z[i] = new - b[j]
    for i in range(n + 1):
        w[i] = 0.0
    for i in range(k):
        _add_weighted(X, ids[support[i]], z[i], h, w)
        w[n] += ones[support[i]] * z[i]
        gain += right[i] * z[i]
    length = 1.0
    if cut:
        for i in range(k):
            j = support[i]
            image[i] = _dot(X, ids[j], w) - share[j] * w[n] + extra[j] * z[i]
            curvature += z[i] * image[i]
        length = min(1.0, gain / curvature) if curvature > 0.0 else 0.0
    if not length > 0.0:
        return False
    for i in range(k):
        b[support[i]] += length * z[i]
        d[support[i]] += length * z[i]
    for i in range(n + 1):
        q[i] += length * w[i]
    return True


@nb.njit(**KERNEL)
def descend(X, ids, g, h, model, P, d, b, q, rows, tol, most):
    """Minimise a model until a sweep changes slopes by at most `tol`; return whether it came to that.

    `g`: float64 (m,), slopes at b (m,), which is changed, less what the intercept takes up. `h`: (n,),
    curvatures. `model`: float64 (4, m), products of columns with h, those over the curvature of the
    intercept, inverse curvatures, and what ridge and damping add to these. `d`: float64 (m,), and `q`:
    (n + 1,), the change of b, and its products with the columns, times h, and with the first row of the
    model. `rows`: columns that move. `most`: sweeps over all of them.
    """
    before = np.inf
    for _ in range(most):
        largest, support = _sweep(X, ids, g, h, model, P, d, b, q, rows)
        if largest <= tol:
            return True
        need = np.log(largest / tol) / np.log(max(before / largest, 1.0 + 1e-9))
        before = largest
        if need > _FEW_SWEEPS:
            _conjugate_gradients(X, ids, g, h, model, P, d, b, q, support)
            before = np.inf
            continue
        for _inner in range(_SUPPORT_SWEEPS):
            moved, _ = _sweep(X, ids, g, h, model, P, d, b, q, support)
            if moved <= max(_SMALL * largest, 0.3 * tol):
                break
    return False


@nb.njit(**KERNEL)
def minimise(
    X, A, ids, loss, delta, y, weights, f, b, c, P, fit_intercept, tol, damping, limits, smooth, u, h, q
):
    """Minimise until the conditions are broken by at most `tol`.

    Parameters
    ----------
    X : tuple of ndarrays, or float64 ndarray (p, n)
        Data, indices and indptr of a CSC matrix of n rows; or columns as rows.
    A : tuple of ndarrays, or ndarray (p, n)
        The same for models: dense columns may be float32.
    ids : int64 ndarray (m,)
        Its columns in the working set.
    loss, delta, y, weights, f, b, c, P, fit_intercept, tol, damping
        See `newton.minimise`; the penalty is convex.
    limits : tuple of int
        Sweeps for a model, and models that are not solved by so many: then other methods are faster.
    smooth, u, h : float, float64 ndarray (n,), (n,)
        Loss, slopes and curvatures at f: see `row_losses`. Changed.
    q : ndarray (n + 1,)
        Work space, of the type of dense A, else float64.

    Returns
    -------
    float
        The damping of the next call.
    bool
        Whether descent was fast enough. If not, other methods are to go on.
    """
    m, n, quadratic, flat = len(b), len(f), loss == SQUARED, loss == HUBER
    df, old_f, curvatures = np.empty(n), np.empty(n), np.empty(n, q.dtype)
    g, v, wrong, model, value, slow = np.empty(m), np.empty(m), np.empty(m), np.zeros((4, m)), np.nan, 0
    fresh = True
    for _ in range(STEPS):
        if not fresh:
            smooth = row_losses(loss, delta, y, weights, f, u, h)
        g0 = _total(u) if fit_intercept else 0.0
        violation = abs(g0)
        for j in range(m):
            g[j] = _dot(X, ids[j], u) + P[2, j] * b[j]
            v[j] = -g[j]
            wrong[j] = violation_of(b[j], v[j], P[0, j], P[1, j], P[3, j], P[4, j], None, 0)
            violation = max(violation, wrong[j])
        if violation <= tol:
            break
        rows = _near_columns(b, v, wrong, P)
        if flat:
            for i in range(n):
                h[i] = max(h[i], damping * weights[i])
        total = _total(h) * (1.0 if flat else 1.0 + damping) if fit_intercept else 0.0
        for i in range(n):
            curvatures[i] = h[i]
        for j in rows:
            s, square = _moments(A, ids[j], curvatures)
            share = s / total if total > 0.0 else 0.0
            bend = square - share * s
            bend = bend if bend > 1e-14 * square else 0.0
            extra = P[2, j] + (0.0 if flat else damping * (bend + P[2, j]))
            model[0, j], model[1, j], model[3, j] = s, share, extra
            model[2, j] = 1.0 / (bend + extra) if bend + extra > 0.0 else 0.0
            g[j] -= share * g0
        new, d = b.copy(), np.zeros(m)
        for i in range(n + 1):
            q[i] = 0.0
        inner = 0.6 * tol if quadratic else max(0.1 * violation, 0.3 * tol)
        if not descend(A, ids, g, curvatures, model, P, d, new, q, rows, inner, limits[0]):
            slow += 1
        dc = -(g0 + q[n]) / total if total > 0.0 else 0.0
        some = dc != 0.0
        for i in range(n):
            df[i], old_f[i] = dc, f[i]
        for j in rows:
            d[j] = new[j] - b[j]
            if d[j] != 0.0:
                some = True
                _add(X, ids[j], d[j], df)
        if np.isnan(value):
            value = smooth + _objective(b, P, None, 0)
        t, moved, ends, old_b, old_c, fresh = 1.0, False, False, b.copy(), c[0], not quadratic
        for _halving in range(HALVINGS):
            for i in range(n):
                f[i] = old_f[i] + t * df[i]
            for j in rows:
                b[j] = new[j] if t == 1.0 else old_b[j] + t * d[j]
            c[0] = old_c + t * dc
            if quadratic:
                moved, ends = True, not some
                break
            now = row_losses(loss, delta, y, weights, f, u, h) + _objective(b, P, None, 0)
            moved, ends, damping = judge_step(now, value, t, damping, flat, some)
            if moved:
                value = min(now, value)
                break
            t *= 0.5
        if not moved:
            for i in range(n):
                f[i] = old_f[i]
            for j in range(m):
                b[j] = old_b[j]
            c[0], fresh = old_c, False
            moved, ends, damping = judge_step(value, value, 0.0, damping, flat, some)
        if flat:
            damping = min(max(damping, 1e-9), 1.0)
        if ends or slow == limits[1]:
            break
    return damping, slow < limits[1]
