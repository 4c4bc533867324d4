"""Least squares through second moments: what small and tall problems need of X and y, in one pass.

The moments of some rows are one matrix, ``A^T A`` of ``A = sqrt(w) [X - u, Y - v, 1]``; those of several
sets of rows add up, and the moments of a fold's training rows are those of all less those of its test rows.
From them come the products of centred columns, whole paths (`kernels.linear.gram_path`) and squared errors
on other rows.

Products are less exact than columns. Every result is therefore held against a bound of its rounding errors,
and `None` is returned where they are not far below what was asked for: the caller then takes the working
set.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ....kernels.linear.gram_path import solve_path
from ....kernels.linear.weighted_descent import csc_weighted_gram
from ....scheduler.threads import single_threaded_blas
from .. import rules
from .solution import Solution

_NARROW = 64  # columns, below which the loops over them are short
_BLOCK = 1 << 16  # entries of a block of rows: 512 KiB
_DOUBTFUL = 1e-7  # of a column's square that is left by centring, or by taking rows away: is it constant?
_RANGE = (1e-200, 1e200)  # of squares
_ROUNDING = 32 * np.finfo(np.float64).eps  # bound of relative errors of sums
_PART = 0.1  # of what is asked for, that rounding errors may be
_ASKED = 0.9  # the kernel is asked for this part of the gap, rounding errors may have the rest
_MOST_ROUNDS = 100  # of active sets; a cap
_STRIDE, _ROUGH, _FEW = 3.0, 0.01, 20  # of the approach to a penalty; fewer columns need none
_NOTHING = 1e-20  # of a column's square: far below its rounding
_EXACT_ERROR = 1e-9  # relative error of a squared error from moments


@dataclass(frozen=True)
class Shift:
    """What columns and targets are taken from: their means, near enough, or 0.

    `columns`: float64 (p,). `targets`: float64 (n_targets,).
    """

    columns: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class QuadraticTerms:
    """What a problem has besides X, y and alpha. Factors are None or (p,), above 0, and infinite to exclude.

    `standardize`: multiply the factors by the scales of the columns.
    """

    l1_factors: Any
    l2_factors: Any
    fit_intercept: bool
    positive: bool
    standardize: bool = False


def affords(X, factors, n_alphas):
    """Whether second moments are cheaper than a working set, and every column is penalised or excluded."""
    stored = X.nnz if sparse.issparse(X) else None
    sizes = rules.MOMENTS if stored is None else rules.SPARSE_MOMENTS
    if n_alphas >= rules.PATH:
        sizes = rules.MOMENTS_OF_A_PATH
    penalised = factors is None or (factors > 0).all()
    return bool(penalised) and sizes.hold(X.shape[0], X.shape[1], stored)


def order_for_moments(X):
    """The order in which X is read: as it is, where its moments will do, else by columns."""
    plain = type(X) in (np.ndarray, np.memmap) and X.ndim == 2
    return "A" if plain and rules.MOMENTS.hold(*X.shape) else "F"


def shift_of(X, Y, centre):
    """Take the means of columns and targets (not weighted: any point near them serves), or 0."""
    if not centre or sparse.issparse(X):
        return Shift(np.zeros(X.shape[1]), Y.mean(axis=0) if centre else np.zeros(Y.shape[1]))
    if X.dtype == np.float64 and X.flags.c_contiguous:
        return Shift(np.ones(len(X)) @ X / len(X), Y.mean(axis=0))
    return Shift(X.mean(axis=0, dtype=np.float64), Y.mean(axis=0))


def one_thread(X):
    """Limit BLAS to one thread, except for products that take less time than the limiting."""
    few = float(X.shape[0]) * X.shape[1] ** 2 < rules.FEW_PRODUCTS
    return contextlib.nullcontext() if few else single_threaded_blas()


def moments_of(X, Y, weights, shift, rows=None):
    """Second moments of some rows: float64 (p + n_targets + 1,) * 2.

    `X`: ndarray, or CSC. `Y`: float64 (n_rows, n_targets). `weights`: None or float64
    (n_rows,). `rows`: None for all, or int64; one may be there several times.
    """
    if sparse.issparse(X):
        return _sparse_moments(X, Y, weights, shift, rows)
    (n_rows, p), n_targets = X.shape, Y.shape[1]
    if rows is not None:
        n_rows = len(rows)
        if n_rows and rows[-1] - rows[0] == n_rows - 1 and (np.diff(rows) == 1).all():
            X, Y = (M[rows[0] : rows[-1] + 1] for M in (X, Y))
            weights, rows = None if weights is None else weights[rows[0] : rows[-1] + 1], None
    size = p + n_targets + 1
    total, step = np.zeros((size, size)), max(256, _BLOCK // size)
    if rows is None and X.flags.c_contiguous:
        return _moments_by_rows(X, Y, weights, shift, total, step)
    for first in range(0, n_rows, step):
        part = slice(first, first + step) if rows is None else rows[first : first + step]
        A = np.ones((size, min(step, n_rows - first)))
        np.subtract(X.T[:, part], shift.columns[:, None], out=A[:p])
        np.subtract(Y.T[:, part], shift.targets[:, None], out=A[p:-1])
        if weights is not None:
            A *= np.sqrt(weights[part])
        total += A @ A.T
    return total


def _moments_by_rows(X, Y, weights, shift, total, step):
    """`moments_of` for C order: blocks of few columns are read as vectors, since short loops take longer."""
    n_rows, p = X.shape
    step = min(step, n_rows)
    shifts, buffer = np.tile(shift.columns, step) if p < _NARROW else None, np.empty(step * p)
    for first in range(0, n_rows, step):
        part = slice(first, min(first + step, n_rows))
        m = part.stop - first
        A, B = buffer[: m * p].reshape(m, p), np.ones((m, len(total) - p))
        if shifts is None:
            np.subtract(X[part], shift.columns, out=A)
        else:
            np.subtract(X[part].reshape(-1), shifts[: m * p], out=buffer[: m * p])
        np.subtract(Y[part], shift.targets, out=B[:, :-1])
        if weights is not None:
            roots = np.sqrt(weights[part])[:, None]
            A *= roots
            B *= roots
        if m == n_rows:
            total[:p, :p] = A.T @ A
        else:
            total[:p, :p] += A.T @ A
        total[:p, p:] += A.T @ B
        total[p:, p:] += B.T @ B
    total[p:, :p] = total[:p, p:].T
    return total


def _sparse_moments(X, Y, weights, shift, rows):
    dense = np.hstack([Y - shift.targets, np.ones((len(Y), 1))])
    if rows is not None:
        X, dense = sparse.csc_array(sparse.csr_array(X)[rows]), dense[rows]
        weights = None if weights is None else weights[rows]
    p = X.shape[1]
    given = np.ones(len(dense)) if weights is None else weights
    dense_weighted = dense if weights is None else dense * weights[:, None]
    total = np.empty((p + dense.shape[1],) * 2)
    total[:p, :p] = csc_weighted_gram(X.data, X.indices, X.indptr, np.arange(p), given)
    total[:p, p:] = X.T @ dense_weighted
    total[p:, :p] = total[:p, p:].T
    total[p:, p:] = dense.T @ dense_weighted
    return total


class MomentProblem:
    """The problem of one target, from moments.

    `total`: see `moments_of`. ``constant(columns)`` says which of some columns, by their numbers, are
    constant (without an intercept: 0) in all rows that have weight. `raw`: the diagonal of the moments from
    which rows were taken away, if any.
    """

    def __init__(self, terms, shift, total, target, constant, raw=None):
        p, mass = len(shift.columns), total[-1, -1]
        at = p + target
        self.terms, self.n_columns = terms, p
        self.x_mean, self.y_mean = shift.columns, shift.targets[target]
        gram, products, self.y_y = total[:p, :p] / mass, total[:p, at] / mass, total[at, at] / mass
        raw = (np.diagonal(total) if raw is None else raw) / mass
        squares, self.y_size, rounded = raw[:p], raw[at], np.zeros(p)
        if terms.fit_intercept:
            mean, y_mean = total[:p, -1] / mass, total[at, -1] / mass
            if (mean * mean > _NOTHING * np.diagonal(gram)).any():
                gram -= mean[:, None] * mean
            products, self.y_y = products - mean * y_mean, self.y_y - y_mean * y_mean
            self.x_mean, self.y_mean = shift.columns + mean, self.y_mean + y_mean
            rounded = shift.columns**2
        norms = np.diagonal(gram)
        kept = norms > _DOUBTFUL * np.maximum(squares, rounded)
        self.sound = bool(constant(np.flatnonzero(~kept)).all())
        l1, l2 = (np.ones(p) if given is None else given for given in (terms.l1_factors, terms.l2_factors))
        if terms.standardize:
            scales = np.sqrt(np.where(kept, norms, 1.0))
            l1 = l1 * scales
            l2 = l1 * scales
        kept &= np.isfinite(l1)
        self.kept = kept = np.flatnonzero(kept)
        self.l1_factors, self.l2_factors, self.sizes = l1[kept], l2[kept], np.sqrt(squares[kept])
        self.gram = np.ascontiguousarray(gram if len(kept) == p else gram[np.ix_(kept, kept)])
        self.products = np.ascontiguousarray(products[kept])
        squares = np.append(norms[kept], self.y_y)
        self.sound &= bool(((squares > _RANGE[0]) & (squares < _RANGE[1])).all())
        self.sound &= bool(self.y_y > _DOUBTFUL * max(self.y_size, self.y_mean**2))

    def alpha_max(self, l1_ratio):
        """The least alpha at which every coefficient is zero; infinite for ``l1_ratio=0``."""
        if l1_ratio == 0:
            return np.inf
        pulls = self.products if self.terms.positive else np.abs(self.products)
        return max(float((pulls / self.l1_factors).max(initial=0.0)), 0.0) / l1_ratio

    def solve(self, alphas, l1_ratio, tol, start=None):
        """Coefficients (n_alphas, n_columns) of float64 and figures, as `solve_path` fills them; or None.

        `start`: coefficients of all columns.
        """
        strengths, ridges = alphas * l1_ratio, alphas * (1 - l1_ratio)
        if not (self.sound and strengths.min() > 0 and self._resolves(strengths.min(), tol, 0.0)):
            return None
        p = len(self.kept)
        b = np.zeros(p) if start is None else np.ascontiguousarray(start[self.kept])
        coefs, figures = np.empty((len(alphas), p)), np.empty((len(alphas), 4))
        eps = _ASKED * tol * 0.5 * self.y_y
        if start is None:
            self._approach(b, strengths[0], ridges[0], eps)
        solved = self._run(strengths, ridges, eps, b, coefs, figures)
        if solved < len(alphas):
            return None
        reach = (np.abs(coefs) @ self.sizes).max(initial=0.0)
        if not self._resolves(strengths.min(), tol, reach):
            return None
        if p < self.n_columns:
            coefs, few = np.zeros((len(alphas), self.n_columns)), coefs
            coefs[:, self.kept] = few
        return coefs, figures

    def _approach(self, b, strength, ridge, eps):
        """Come near to the first penalty through larger ones, where it is far from the zero model's."""
        largest = self.alpha_max(1.0)
        steps = int(np.ceil(np.log(max(largest / strength, 1.0)) / np.log(_STRIDE)))
        if steps > 1 and len(b) > _FEW:
            strengths = largest * (strength / largest) ** (np.arange(1, steps) / steps)
            coefs, figures = np.empty((len(strengths), len(b))), np.empty((len(strengths), 4))
            rough = max(eps, _ROUGH * self.y_y)
            self._run(strengths, np.full(len(strengths), ridge), rough, b, coefs, figures)

    def _run(self, strengths, ridges, eps, b, coefs, figures):
        return solve_path(
            self.gram, self.products, self.y_y, self.l1_factors, self.l2_factors, strengths, ridges,
            self.terms.positive, eps, _MOST_ROUNDS, b, coefs, figures,
        )  # fmt: skip

    def _resolves(self, strength, tol, reach):
        """Whether rounding errors of moments are far below a gap, for coefficients of this reach."""
        total = reach + np.sqrt(self.y_size)
        error = 0.5 * tol * self.y_y * _PART / total**2
        slopes = strength * (self.l1_factors / self.sizes).min(initial=np.inf) * tol * _PART / total
        return min(error, slopes) >= _ROUNDING

    def intercepts(self, coefs):
        """The best intercepts of some coefficients: (n_alphas, n_columns)."""
        if not self.terms.fit_intercept:
            return np.zeros(len(coefs))
        return self.y_mean - coefs @ self.x_mean

    def round_to(self, coefs, figures, alphas, l1_ratio, dtype):
        """Round coefficients to a type, and find the objectives and gaps that are theirs."""
        coefs = coefs.astype(dtype).astype(np.float64)
        b = coefs[:, self.kept]
        l1 = (alphas * l1_ratio)[:, None] * self.l1_factors
        l2 = (alphas * (1 - l1_ratio))[:, None] * self.l2_factors
        slopes = self.products - b @ self.gram
        pulls = slopes - l2 * b
        pulls = np.maximum(pulls, 0.0) if self.terms.positive else np.abs(pulls)
        with np.errstate(divide="ignore"):
            limits = (l1 / pulls).min(axis=1, initial=np.inf)
        squares = (l2 * b * b).sum(axis=1)
        y_r = self.y_y - b @ self.products
        r_r = np.maximum(y_r - (b * slopes).sum(axis=1), 0.0)
        total = r_r + squares
        s = np.clip(y_r / np.where(total > 0, total, 1.0), 0.0, limits)
        objective = 0.5 * total + (l1 * np.abs(b)).sum(axis=1)
        figures = figures.copy()
        figures[:, 0] = objective
        figures[:, 1] = np.maximum(objective - (s * y_r - 0.5 * s * s * total), 0.0)
        return coefs, figures

    def solutions(self, alphas, l1_ratio, tol, dtype, start=None):
        """List of `Solution` without `strength`, rounded to a type; or None. Each has one round."""
        found = self.solve(alphas, l1_ratio, tol, start)
        if found is None:
            return None
        coefs, figures = found
        if dtype != np.float64:
            coefs, figures = self.round_to(coefs, figures, alphas, l1_ratio, dtype)
        intercepts, unit = self.intercepts(coefs), 0.5 * self.y_y
        fits = []
        for k, (objective, gap, _, visits) in enumerate(figures.tolist()):
            features = np.flatnonzero(coefs[k])
            model = np.nan, features, coefs[k, features], float(intercepts[k])
            fits.append(Solution(*model, objective, gap / unit, gap, 1, int(visits), "gap"))
        return fits

    def squared_errors(self, coefs, intercepts, shift, test, target):
        """Mean squared errors on the rows of other moments; NaN where rounding errors would be in them."""
        p, mass = self.n_columns, test[-1, -1]
        at = np.append(np.arange(p), [p + target, len(test) - 1])
        M = test[np.ix_(at, at)] / mass
        ends = np.broadcast_to(-1.0, len(coefs)), intercepts + coefs @ shift.columns - shift.targets[target]
        v = np.column_stack([coefs, *ends])
        errors = np.einsum("kj,kj->k", v @ M, v)
        reach = np.abs(v) @ np.sqrt(np.diagonal(M))
        errors[~(errors * _EXACT_ERROR > _ROUNDING * reach**2)] = np.nan
        return errors


def constant_in(X, weights, intercept):
    """Return ``constant(columns)``: which of some columns are constant, or zero, in the rows with weight."""

    def constant(columns):
        if not len(columns):
            return np.ones(0, bool)
        few: Any = X[:, columns]
        few = few.toarray() if sparse.issparse(few) else few
        few = few if weights is None else few[weights > 0]
        return (few == (few[:1] if intercept else 0)).all(axis=0)

    return constant


def problem_of(design, y, n_alphas=1):
    """Return the `MomentProblem` of a design and a target, where it is the cheaper way; else None."""
    X, Y = design.X, y.reshape(len(y), 1)
    if design.cut is not None and n_alphas >= rules.PATH:
        from .row_moments import problem_of_blocks

        return problem_of_blocks(design, y)
    if design.cut is not None or design.engine != "local" or not affords(X, design.l1_factors, n_alphas):
        return None
    shift = shift_of(X, Y, design.fit_intercept)
    with one_thread(X):
        total = moments_of(X, Y, design.weights, shift)
    terms = QuadraticTerms(design.l1_factors, design.l2_factors, design.fit_intercept, design.positive)
    return MomentProblem(terms, shift, total, 0, constant_in(X, design.weights, design.fit_intercept))
