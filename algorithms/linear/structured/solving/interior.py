r"""A primal-dual interior point for losses with a kink under l1 and squared penalties: a quadratic program.

Slopes v of the rows have ranges, and so have slopes t of the penalties. With ``a = (v, t)`` the problem is

.. math:: \min_b \max_{l \le a \le h} \langle a, A b - k\rangle + \tfrac12 \sum_j r_j b_j^2,\qquad A = (X; I)

where the intercept is a column of ones. With multipliers y and z of the upper and the lower bounds a Newton
step solves

    (A'DA + R) db = -(A'a + R b) + A'D g,    da = D (A db - g),    1 / D = z / (a - l) + y / (h - a)

with as many equations as columns, or as rows where these are fewer. Steps are Mehrotra's: a predictor, whose
reach says how far to keep to the middle, and a corrector.

Portnoy, Koenker, "The Gaussian hare and the Laplacian tortoise", Statistical Science 1997. Mehrotra, "On the
implementation of a primal-dual interior point method", SIAM Journal on Optimization 1992.
"""

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from .....kernels.linear import interior as kernels
from ..penalties import KINDS, BlockPenalty
from .solver import Solver

_MOST_STEPS = 100  # a cap; ten to twenty are usual
_WORSE = 3  # of them in sequence that do not halve what is missing end it
_FAR = 1e300  # in place of an infinite bound
_ALONE = 1e-4  # of the curvature of a column: with a larger D of its own it is eliminated by rows
_DEPENDENT = 1e-13, 1e-11, 1e-9, 1e-6, 1.0  # added to pivots, as shares: columns may depend on each other
_CHEAP = 3e7  # multiplications of a step for which all columns join at once
_MOST_SPARSE = 300  # columns of sparse X, whose products fill a matrix in each step
_SHARE, _SHARP = 0.3, 1e-10  # of the gap that is asked for; near a corner each step gains several digits
_NULL = 1e-11  # the gap of the model without columns, as a share of the objective


class InteriorSolver(Solver):
    """A `Solver` that minimises a loss with a kink at once, where the penalty allows it."""

    _gap, _size = 0.0, -1  # asked for on the working set; columns of the last one
    smooths = False  # whether interior points did not suffice

    def takes(self, penalty):
        """Whether the problem is a quadratic program: no norms of blocks, bounds of 0 and infinity alone."""
        if self.smooths or not (self.loss.linear and isinstance(penalty, BlockPenalty)):
            return False
        if self.columns.is_sparse and np.count_nonzero(penalty.allowed) > _MOST_SPARSE:
            return False
        if penalty.kind != KINDS["norm"]:
            return False
        bounds = np.concatenate([penalty.low, penalty.high])
        return int(self.blocks.sizes.max(initial=1)) == 1 and bool((np.isinf(bounds) | (bounds == 0)).all())

    def solve(self, penalty, unit, first, *, tol, **options):
        """See `Solver`."""
        if self.takes(penalty):
            self._gap, self._size = min(_SHARE * tol, _SHARP) * unit, -1
            n, m = self.columns.n_samples, np.count_nonzero(penalty.allowed)
            if not self.columns.is_sparse and n * m * min(n, m) <= _CHEAP:
                self.grow(np.flatnonzero(penalty.allowed))
        return super().solve(penalty, unit, first, tol=tol, **options)

    def _newton(self, penalty, tol, *, few=False):
        """See `Solver`."""
        loss, rows = self.loss.loss, self.loss
        if not self.takes(penalty):
            if loss.width == np.inf:
                loss.width = loss.first_width
                self.forget_slopes()
            return super()._newton(penalty, tol, few=few)
        gap = self._gap or _NULL * self.loss.objective(self.f)
        if len(self.places) == self._size:
            gap = self._gap = 1e-2 * gap
        self._size = len(self.places)
        kept = np.flatnonzero(rows.weights > 0)
        w, part = rows.weights[kept], self.part
        part = part if len(w) == len(rows.weights) else part[kept]
        kink = loss.kink(rows.y) if rows.offset is None else loss.kink(rows.y) - rows.offset
        low, high = (np.broadcast_to(v, rows.y.shape)[kept, 0] * w for v in loss.range(rows.y))
        kink, v = kink[kept, 0], np.empty(len(w))
        if not len(self.places) and self.fit_intercept:
            self.c = np.array([kernels.best_constant(np.argsort(kink), kink, low, high, v)])
        elif not len(self.places):
            v = np.where(kink < 0, high, low)
        else:
            penalty = self._slopes_of(penalty)
            b = np.append(self.B[self.places, 0], self.c)
            if not self.fit_intercept:
                b = b[:-1]
            elif self.columns.is_sparse:
                part = sparse.hstack([part, np.ones((len(w), 1))], format="csc")
            else:
                part = np.hstack([part, np.ones((len(w), 1))])
            with np.errstate(all="ignore"):  # at the end multipliers and room may vanish both
                b, v = interior_point(part, kink, (low, high), penalty, b, gap)
            self.B[self.places, 0] = b[: len(self.places)]
            self.c = b[len(self.places) :] if self.fit_intercept else self.c
        self.f = self._predictor()
        # Slopes of the rows are those of the program, whatever the predictor.
        loss.width, loss.centre = np.inf, np.zeros_like(rows.y)
        loss.centre[kept, 0] = v / w
        self.forget_slopes()
        return False

    def _slopes_of(self, penalty):
        """The least and the largest slope of each column and the intercept, and their ridges."""
        size = (penalty.lam + penalty.l1)[self.inside]
        below = np.where(penalty.low[self.inside] == 0, -_FAR, -size)
        above = np.where(penalty.high[self.inside] == 0, _FAR, size)
        ridge = np.zeros(len(size)) if penalty.ridge is None else penalty.ridge[self.places]
        zero = [0.0] * self.fit_intercept
        return [np.concatenate([values, zero]) for values in (below, above, ridge)]


def interior_point(X, kink, rows, penalty, b, aim):
    """Minimise from coefficients b; return new ones, with zeros, and the slopes of the rows.

    `X`: (n, m), dense or CSC. `rows`: the least and the largest slope of each, weights included. `penalty`:
    the least and the largest slope of each column, and a ridge; slopes of 0 leave a column free. `aim`: the
    gap, in units of the objective.
    """
    n, (below, above, ridge) = len(kink), penalty
    on = np.flatnonzero(above > below)
    l, h = np.concatenate([rows[0], below[on]]), np.concatenate([rows[1], above[on]])  # noqa: E741
    k, together = np.concatenate([kink, np.zeros(len(on))]), bool(ridge.any())
    lower, upper = l > -_FAR, h < _FAR
    a = np.zeros(len(l))
    if (both := (l >= 0) | (h <= 0)).any():
        a[both] = 0.5 * (np.maximum(l, -1.0) + np.minimum(h, 1.0))[both]
    s, t, r = a - l, h - a, np.concatenate([X @ b, b[on]]) - k
    mu = max(float((h - l)[:n] @ np.abs(r[:n])), 1e-300) / (2 * n)
    z = np.where(lower, np.maximum(-r, 0) + mu / s, 0)
    y = np.where(upper, np.maximum(r, 0) + mu / t, 0)
    D, missing, first, second, g = np.empty((5, len(a)))
    best, worse = (np.inf, b, a.copy()), 0
    for _ in range(_MOST_STEPS):
        gap, cost = kernels.prepare(r, a, z, y, s, t, D, missing)
        excess = X.T @ a[:n] + ridge * b
        excess[on] += a[n:]
        cost += gap + float(np.abs(excess) @ np.abs(b))
        worse = 0 if cost < 0.5 * best[0] else worse + 1
        if worse > _WORSE or not cost <= 1e3 * best[0]:  # rounding has the better of it, or there is a NaN
            break
        best = (cost, b, a.copy()) if cost < best[0] else best
        if cost <= aim or gap <= 1e-3 * aim:
            break
        solve, pull = _factor(X, D, on, ridge), D * r
        slopes = -(X.T @ pull[:n]) - excess
        slopes[on] -= pull[n:]
        db = solve(slopes)
        kernels.predict(X @ db, db[on], r, l, h, z, y, s, t, D, missing, together, gap, first, second, g)
        pull = D * g
        slopes = X.T @ pull[:n] - excess
        slopes[on] += pull[n:]
        db = solve(slopes)
        b = b + kernels.correct(X @ db, db[on], a, z, y, s, t, D, g, first, second, together) * db
        r = np.concatenate([X @ b, b[on]]) - k
    _, b, a = best
    t = a[n:]
    room = np.minimum(t - l[n:], h[n:] - t)
    most = np.minimum(h, -l)[n:]
    share = np.where(most > 0, most, np.abs(t).max(initial=0) or 1.0)
    sizes = np.abs(b[on]) * share
    b[on[sizes * share < room * sizes.max(initial=0)]] = 0  # the multipliers vanish, not the room
    return b, a[:n]


def _factor(X, D, on, ridge):
    """What solves with ``A'DA + R``: see the module.

    Of more columns than rows, those with a large D of their own are eliminated: with
    ``S = 1 / D + P E^-1 P'`` of these the others have the matrix ``Z'S^-1 Z + E``.
    """
    (n, m), rows, E = X.shape, D[: X.shape[0]], ridge.copy()
    E[on] += D[n:]
    if sparse.issparse(X):
        scaled = X.multiply(np.sqrt(rows)[:, None]).tocsc()
        return _cholesky((scaled.T @ scaled).toarray(order="F"), E)
    if m <= n or np.count_nonzero(E == 0) > n:
        return _cholesky(dsyrk(1.0, X * np.sqrt(rows)[:, None], trans=1, lower=1), E)
    share = E / np.maximum(np.einsum("ij,ij,i->j", X, X, rows), 1e-300)
    order = np.argsort(share)
    n_others = min(max(int(np.count_nonzero(share < _ALONE)), 1), n)
    others, alone = np.sort(order[:n_others]), np.sort(order[n_others:])
    P, Z, E_P = X[:, alone], X[:, others], E[alone]
    inverse = _cholesky(dsyrk(1.0, P / np.sqrt(E_P), lower=1), 1 / rows)
    of_others = inverse(Z)
    reduced = _cholesky(np.asfortranarray(Z.T @ of_others), E[others])

    def solve(g):
        out, of_rows = np.empty(m), inverse(P @ (g[alone] / E_P))
        out[others] = reduced(g[others] - Z.T @ of_rows)
        out[alone] = (g[alone] - P.T @ (of_rows + of_others @ out[others])) / E_P
        return out

    def refined(g):
        b = solve(g)
        return b + solve(g - X.T @ (rows * (X @ b)) - E * b)

    return refined


def _cholesky(H, ridge):
    """What solves with the lower half of H, plus a ridge."""
    diagonal, places = np.diagonal(H) + ridge, np.diag_indices_from(H)
    diagonal = np.where(diagonal > 0, diagonal, 1.0)
    for share in _DEPENDENT:
        H[places] = diagonal * (1 + share)
        factor, failed = dpotrf(H, lower=1, clean=0)
        if not failed:
            break
    return lambda g: dpotrs(factor, g, lower=1)[0]
