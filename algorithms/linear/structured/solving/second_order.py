"""The second-order model of a loss on a working set, with free columns and the intercept eliminated from it.

With F the free columns and the intercept, P the others and d the change of the coefficients::

    d_F = -H_FF^-1 (g_F + H_FP d_P),    H_P = H_PP - H_PF H_FF^-1 H_FP,    g_P - H_PF H_FF^-1 g_F

A penalty is minimised with H_P, by `block_descent`.
"""

from typing import Any

import numpy as np
from scipy import sparse

from .....kernels.linear import blocks as kernels
from .....kernels.linear import newton
from .block_descent import MatrixProducts, SparseRowProducts

_STEPS, _MOST_SWEEPS = 50, 20_000  # of a squared loss: caps; the tolerance ends them
_FEW = 10  # blocks that get coefficients at least
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
    for _ in range(_STEPS):
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
        terms = lam, l1, low, high, gamma, kind, 0.05 * tol, _MOST_SWEEPS, len(new)
        kernels.minimise_columns(model, slopes[on], new, steps, *terms)
        step[on] = new - b[on]
        dc = -(g0 if ones is None else g0 + ones @ step) / total if fit_intercept else 0.0
        if dc == 0 and not step.any():
            break
        f, b, c = f + (step @ A + dc)[:, None], b + step, c + dc
    return f, b, c
