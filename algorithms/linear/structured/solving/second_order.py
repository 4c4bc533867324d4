"""The second-order model of a loss on a working set, with free columns and the intercept eliminated from it.

With F the free columns and the intercept, P the others and d the change of the coefficients::

    d_F = -H_FF^-1 (g_F + H_FP d_P),    H_P = H_PP - H_PF H_FF^-1 H_FP,    g_P - H_PF H_FF^-1 g_F

A penalty is minimised with H_P, by `block_descent`.
"""

from typing import Any

import numpy as np
from scipy import sparse

from .....kernels.linear import blocks as kernels
from .....kernels.linear import newton, sparse_newton
from .....kernels.linear.newton import HALVINGS, ROUNDING, STEPS
from .block_descent import MatrixProducts, SparseRowProducts

_MOST_SWEEPS = 20_000  # a cap; the tolerance ends them
_MODEL_SWEEPS = 500  # over a model of a loss that has others: a cap
_LEAST = 1e-300
_NEAR = 0.9  # columns at zero take part in a bound from this part of their threshold on
_FEW = 10  # blocks that get coefficients at least
_MANY, _PARTS = 250, (0.05, 0.3)  # columns whose sweeps cost more than a round; parts of a tolerance
_TINY = np.finfo(np.float64).tiny  # of curvatures whose inverse is finite


class MatrixModel:
    """H as a matrix (m, m). `ones`: products with the intercept, None without one; `total`: its curvature."""

    def __init__(self, H, ones, total):
        self.H, self.ones, self.total = H, ones, total

    def diagonal(self):
        """Curvatures of the coefficients."""
        return np.diag(self.H)

    def with_ridge(self, ridge, damping):
        """Add to the curvatures of the coefficients, and the share `damping` to that of the intercept."""
        return MatrixModel(self.H + np.diag(ridge), self.ones, self.total * (1 + damping))

    def of_free(self, free):
        """Products of free columns with each other, and with the others; the intercept apart."""
        return self.H[np.ix_(free, free)], self.H[np.ix_(free, ~free)]

    def reduced(self, starts):
        """The model where no column is free."""
        return MatrixProducts(self.H, starts)

    def without_free(self, free, crossed, shares, starts):
        """The model of the other columns."""
        return MatrixProducts(self.H[np.ix_(~free, ~free)] - crossed.T @ shares, starts)


class RowModel:
    """H as ``A^T D A`` of a CSC matrix. A ridge is a row of its own for each column."""

    def __init__(self, A, D, intercept, total=None):
        self.A, self.D = A, D
        self.total = float(D.sum()) if total is None else total
        self.ones = A.T @ D if intercept is True else intercept

    def diagonal(self):
        """Curvatures of the coefficients."""
        return self.A.multiply(self.A).T @ self.D

    def with_ridge(self, ridge, damping):
        """Add to the curvatures of the coefficients, and the share `damping` to that of the intercept."""
        A = sparse.vstack([self.A, sparse.eye(len(ridge), format="csc")], format="csc")
        return RowModel(A, np.concatenate([self.D, ridge]), self.ones, self.total * (1 + damping))

    def of_free(self, free):
        """Products of free columns with each other, and with the others; the intercept apart."""
        products = (self.A[:, free].multiply(self.D[:, None]).T @ self.A).toarray()
        return products[:, free], products[:, ~free]

    def reduced(self, starts):
        """The model where no column is free."""
        none = np.zeros((self.A.shape[1], 0))
        return SparseRowProducts(self.A, self.D, starts, none, none)

    def without_free(self, free, crossed, shares, starts):
        """The model of the other columns."""
        A = self.A[:, ~free] if free.any() else self.A
        return SparseRowProducts(A, self.D, starts, crossed.T.copy(), shares.T.copy())


def minimise_model(model, g, g0, b, blocks, starts, free_blocks, penalty, tol, most):
    """Minimise the model plus the penalty: new coefficients, and the change of the intercepts.

    `g`, `g0`: slopes of the coefficients b and the intercepts. `free_blocks`: which have no penalty.
    """
    free, intercept = np.repeat(free_blocks, np.diff(starts)), model.ones is not None
    k = np.count_nonzero(free)
    if not k + intercept:
        new = b.copy()
        penalty.descend(model.reduced(starts), g, new, blocks, starts, tol, most)
        return new, np.zeros(b.shape[1])
    penalised = ~free
    HF = np.zeros((k + intercept, k + intercept))
    crossed = np.zeros((k + intercept, np.count_nonzero(penalised)))
    gF = np.zeros((k + intercept, b.shape[1]))
    if k:
        (HF[:k, :k], crossed[:k]), gF[:k] = model.of_free(free), g[free]
    if intercept:
        HF[k, :k] = HF[:k, k] = model.ones[free]
        HF[k, k], crossed[k], gF[k] = model.total, model.ones[penalised], g0
    solved = np.linalg.lstsq(HF, np.hstack([crossed, gF]), rcond=1e-14)[0]
    shares, alone = solved[:, : crossed.shape[1]], solved[:, crossed.shape[1] :]
    new, of_penalised = b.copy(), b[penalised]
    if penalised.any():
        places = np.concatenate([[0], np.cumsum(np.diff(starts)[~free_blocks])])
        reduced = model.without_free(free, crossed, shares, places)
        slopes = g[penalised] - crossed.T @ alone
        penalty.descend(reduced, slopes, of_penalised, blocks[~free_blocks], places, tol, most)
    change = -(alone + shares @ (of_penalised - b[penalised]))
    new[penalised], new[free] = of_penalised, b[free] + change[:k]
    return new, change[k] if intercept else np.zeros(b.shape[1])


def visited(distances, there, few):
    """Which blocks move: those there and those that break the conditions, or a `few` of the latter."""
    if not few:
        return there | (distances > 0)
    waiting, visited = np.where(there, 0.0, distances), there.copy()
    visited[np.argsort(-waiting, kind="stable")[: max(_FEW, np.count_nonzero(there))]] = True
    return visited & (there | (distances > 0))


def minimise_columns(A, products, loss, f, b, c, P, gamma, kind, fit_intercept, few, tol, floor):
    """Minimise a loss that kernels know and a penalty of single columns: new f, b, c and floor.

    `A`: float64 (m, n), columns as rows. `products`: of a squared loss, of these or more columns, see
    `MeanLoss.gram`; those with the intercept are None where they vanish. `f`: (n, 1). `floor`: of curvatures,
    where they may vanish. Others: see `kernels.linear.newton.minimise`.
    """
    if not loss.by_rows:
        return *minimise_likelihood(A, None, loss, f, b, P, gamma, kind, few, tol)[:2], c, 0.0
    terms = P, gamma, kind, fit_intercept, few, tol
    if loss.quadratic:
        return *_minimise_squared(A, products, loss, f, b, c, *terms), 0.0
    f, b, c, y = f[:, 0].copy(), b.copy(), c.copy(), loss.y[:, 0]
    floor = newton.minimise(A, loss.code, loss.delta, y, loss.weights, f, b, c, *terms, floor)
    return f[:, None], b, c, floor if loss.flat else 0.0


def _minimise_squared(A, products, loss, f, b, c, P, gamma, kind, fit_intercept, few, tol):
    H, ones, total = products
    ones = ones if fit_intercept else None
    on: Any = slice(len(b))
    model, scores = None, np.empty(len(b))
    part = _PARTS[len(b) > _MANY and not P[2].any()]
    for _ in range(STEPS):
        u = loss.gradient(f)[:, 0]
        V, g0 = -(A @ u), float(u.sum()) if fit_intercept else 0.0
        violation = newton.judge_columns(b, V, P, gamma, kind, False, scores)[-1]
        if max(abs(g0), violation) <= tol:
            break
        if few:
            on = np.flatnonzero(visited(scores, (b != 0) | ((P[0] == 0) & (P[1] == 0)), few))
        if few or model is None:
            lam, l1, ridge, low, high = np.ascontiguousarray(P[:, on])
            model = H
            if few or ones is not None or ridge.any():
                model = H[on][:, on] + np.diag(ridge)
            if ones is not None:
                model -= np.outer(ones[on], ones[on]) / total
            curvatures = model.diagonal()[: len(ridge)]
            steps = 1 / np.where(curvatures >= _TINY, curvatures, np.inf)
        slopes = P[2] * b - V if ones is None else P[2] * b - V - ones * (g0 / total)
        new, step = b[on].copy(), np.zeros(len(b))
        terms = lam, l1, low, high, gamma, kind, part * tol, _MOST_SWEEPS, len(new)
        kernels.minimise_columns(model, slopes[on], new, steps, *terms)
        step[on] = new - b[on]
        dc = -(g0 if ones is None else g0 + ones @ step) / total if fit_intercept else 0.0
        if dc == 0 and not step.any():
            break
        f, b, c = f + (step @ A + dc)[:, None], b + step, c + dc
    return f, b, c


def minimise_likelihood(X, ids, loss, f, b, P, gamma, kind, few, tol, limits=None):
    """Minimise a partial likelihood and a penalty of single columns: f, b, and whether that was fast.

    The model is the Hessian, of X, float64 (m, n), columns as rows; or with `limits` the bound by a diagonal
    matrix, see `kernels.linear.cox`, of columns `ids` of X: see `sparse_newton.minimise`.
    """
    damping, value, slow = 0.0, np.nan, 0.0
    most, patience = (0, np.inf) if limits is None else limits
    scores, sums = np.empty(len(b)), np.empty((3, len(b)))
    for _ in range(STEPS):
        smooth, u, h = loss.at(f)
        if limits is None:
            sums[0] = X @ u
        else:
            sparse_newton.moments(X, ids, u, h, sums)
        V = -sums[0]
        cost, *_, violation = newton.judge_columns(b, V, P, gamma, kind, False, scores)
        if violation <= tol:
            break
        value = smooth + cost if np.isnan(value) else value
        on, inner = visited(scores, (b != 0) | (P[0] + P[1] == 0), few), max(0.1 * violation, 0.3 * tol)
        if limits is None:
            on = np.flatnonzero(on)
            d, df = _change(X, loss, f, P[2] * b - V, b, P, gamma, kind, on, damping, inner)
        else:
            on = np.flatnonzero(on | (np.abs(V) >= _NEAR * (P[0] + P[1])))
            d, df, fast = _change_of_bound(X, ids, h, sums, b, P, on, damping, inner, most)
            slow += not fast
        for halving in range(HALVINGS + 1):
            t = 0.5**halving if halving < HALVINGS else 0.0  # in the end back where it was
            new_f, new = f + t * df[:, None], b + t * d
            now = loss.value(new_f) + newton.judge_columns(new, new, P, gamma, kind, False, scores)[0]
            if now < value or (t == 1.0 and now <= value + ROUNDING * abs(value)):
                break  # a step of rounding may still bring slopes down
        ends = damping > 1e6 if t == 0.0 else now >= value and not d.any()
        if t < 0.1:
            damping = max(10.0 * damping, 1e-2)
        elif t == 1.0:
            damping = 0.25 * damping if damping > 1e-4 else 0.0
        if t > 0.0:
            f, b, value = new_f, new, min(now, value)
        if ends or slow == patience:
            break
    else:
        slow = patience
    return f, b, slow < patience


def _change(A, loss, f, g, b, P, gamma, kind, on, damping, tol):
    """Minimise the model of `minimise_likelihood` over some columns: the changes of b and f."""
    part, (lam, l1, ridge, low, high) = A[on], np.ascontiguousarray(P[:, on])
    means = loss.means(f, part)
    H = (part * loss.steepness(f)) @ part.T - means @ means.T
    curvatures = (H.diagonal() + ridge) * (1 + damping)
    np.fill_diagonal(H, curvatures)
    new, d, steps = b[on], np.zeros(len(b)), 1 / np.where(curvatures > 0, curvatures, np.inf)
    terms = lam, l1, low, high, gamma, kind, tol, _MODEL_SWEEPS, len(new)
    kernels.minimise_columns(H, g[on], new, steps, *terms)
    d[on] = new - b[on]
    return d, d[on] @ part


def _change_of_bound(X, ids, h, sums, b, P, on, damping, tol, most):
    """The same of the bound, with what a constant takes up; and whether so many sweeps were enough."""
    d, new, q, df = np.zeros(len(b)), b.copy(), np.zeros(len(h) + 1), np.zeros(len(h))
    share = sums[1] / max(h.sum(), _LEAST)
    bend = sums[2] - share * sums[1]
    bend[bend < 1e-14 * sums[2]] = 0.0
    extra = P[2] + damping * (bend + P[2])
    model = np.stack([sums[1], share, 1 / np.where(bend + extra > 0, bend + extra, np.inf), extra])
    fast = sparse_newton.descend(X, ids, P[2] * b + sums[0], h, model, P, d, new, q, on, tol, most)
    sparse_newton.add(X, ids[on], d[on], df)
    return d, df, fast
