"""Portions: a few rows of the data, and their sums for generalised linear objectives.

A portion is cut without copying, and evaluated by plain methods of (portion, parameters): on any machine
its sums have the same bits. Vectors of sums are of length d + 1, matrices (d + 1, d + 1): the last entry is
the intercept's.
"""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from ....kernels.linear import glm_dense, glm_sparse, multinomial
from ..scales import column_moments, column_scales

SQUARED, LOGISTIC, POISSON = 0, 1, 2  # as in kernels.glm_losses
LANES = 8  # of a vector of the widest kind, in float64
_NONE, _NONE_OF_CLASSES = np.empty(0), np.empty((0, 0))
_MOST_PORTIONS, _LEAST_ENTRIES = 16, 60_000  # portions, and entries that are worth a thread
_BLOCK = 1 << 20  # entries of a block of rows that a Hessian takes at once
_MANY = 10_000  # rows from which on every 16th is looked at
_ROUNDING = 16  # units in the last place of the terms of a sum, below which the sum is taken for rounding
CALL = 1e5  # nanoseconds around a pass, however short
_DENSER = 8  # rows so full that a product of blocks beats one entry by one: k^2 > p^2 / 8


class _AnyRows:
    """Base of dense and sparse rows."""

    y: np.ndarray
    weights: np.ndarray
    offset: np.ndarray
    shape: Any
    dtype: Any
    X: Any
    add_hessian: Any
    squared_norms: Any

    def row_weights(self):
        """Weights of the rows in float64."""
        return self.weights.astype(np.float64) if len(self.weights) else np.ones(len(self.y))

    def hessian(self, curvature, means=None):
        """Return the Hessian, (d + 1, d + 1)."""
        out = np.zeros((self.shape[1] + 1, self.shape[1] + 1))
        self.add_hessian(curvature, out, means)
        return out

    def rows_of_rare_columns(self, below, most):
        """Numbers of the rows with an entry in a rare column; none where no entry is missing."""
        return np.empty(0, np.int64)

    def expect(self, rows):
        """Do nothing: rows of this process are there when `take` asks for them."""

    def furthest(self, d, d_intercept):
        """The largest magnitude of ``x_i d + d_intercept``, over the rows where it is more than rounding.

        A sum that is smaller than what rounding of x_i alone may make of its terms says nothing: where
        columns repeat each other, coefficients of 1e6 cancel, and in float32 they leave about 1. Such rows
        count as 0.
        """
        rounding = _ROUNDING * float(np.finfo(self.dtype).eps)
        each = max(1, _BLOCK // max(self.shape[1], 1))
        most = 0.0
        for first in range(0, self.shape[0], each):
            block = self.X[first : first + each].astype(np.float64, copy=False)
            moved = np.abs(block @ d + d_intercept)
            sure = moved > rounding * (abs(block) @ np.abs(d) + abs(d_intercept))
            most = max(most, float(moved[sure].max(initial=0.0)))
        return most

    def column_scales(self, centre):
        """Standard deviations of the columns; see `scales.column_scales`."""
        return column_scales(self.X, self.row_weights(), centre=centre)

    def column_moments(self):
        """The weight of the rows, and means and variances of the columns."""
        return column_moments(self.X, self.row_weights())

    @property
    def weight_sums(self):
        """The sum of the weights of the rows, and of their squares."""
        if not len(self.weights):
            return float(len(self.y)), float(len(self.y))
        weights = self.row_weights()
        return float(weights.sum()), float(weights @ weights)

    @property
    def longest(self):
        """The largest squared norm of a row, and their mean."""
        squares = self.squared_norms()
        return float(squares.max()), float(squares.mean())


@dataclass(frozen=True)
class DenseRows(_AnyRows):
    """Rows of a dense matrix.

    `X`: float32 or float64 (n, d), C-ordered but for `ridge_system` and several classes. `y`: array (n,);
    targets in the type of `X` (signs 1 and -1 of a logistic loss), or int64 numbers of classes. `weights`:
    array (n,) or (0,), in the type of `X`; empty for weights of 1. `offset`: float64 array, (n,) or of
    several classes (n, K), added to the predictors; or (0,).
    """

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    offset: np.ndarray = field(default_factory=lambda: _NONE)

    @property
    def shape(self):
        """Rows and columns."""
        return self.X.shape

    @property
    def dtype(self):
        """The type of the data."""
        return self.X.dtype

    @property
    def n_entries(self):
        """Entries that a pass reads."""
        return self.X.size

    @property
    def _X(self):
        """A writeable view for the kernels: numba would compile them again for read-only arrays."""
        if self.X.flags.writeable:
            return self.X
        address = self.X.ctypes.data
        borrowed = SimpleNamespace(
            __array_interface__=self.X.__array_interface__ | {"data": (address, False)}, X=self.X
        )
        return np.asarray(borrowed)  # whose base keeps X

    def part(self, start, stop):
        """Rows `start` to `stop`, which share memory with these."""
        return DenseRows(self.X[start:stop], *_vectors(self, slice(start, stop)))

    def take(self, rows):
        """A copy of some rows."""
        return DenseRows(self.X[rows], *_vectors(self, rows))

    def column_counts(self):
        """Count the stored entries of the columns."""
        return np.full(self.shape[1], len(self.y))

    def rows_in(self, columns):
        """Numbers of the rows with an entry in one of these columns, a mask."""
        return np.arange(len(self.y) if columns.any() else 0)

    def squared(self):
        """Rows of the squares of the entries."""
        return replace(self, X=self.X**2)

    def gradient(self, loss, coef, intercept, curvature=_NONE):
        """Return the loss and its gradient, (d + 1,); fill the curvatures of the rows, if asked for."""
        out = np.zeros(self.X.shape[1] + 1)
        coef = coef.astype(self.dtype)
        vectors = self.y, self.weights, coef, intercept, self.offset
        value = glm_dense.dense_gradient(loss, self._X, *vectors, out, curvature)
        return value, out

    def product(self, curvature, v, v_intercept):
        """Return the Hessian times a vector, (d + 1,)."""
        out = np.zeros(self.X.shape[1] + 1)
        glm_dense.dense_product(self._X, curvature, v.astype(self.dtype), v_intercept, out)
        return out

    def diagonal(self, curvature, means=None):
        """Return the diagonal of the Hessian, (d + 1,)."""
        out = np.zeros(self.X.shape[1] + 1)
        if means is not None:
            for block in _less(self, curvature, means):
                out += np.einsum("ij,ij->j", block, block)
            return out
        glm_dense.dense_diagonal(in_rows(self)._X, curvature, out)
        return out

    def add_hessian(self, curvature, out, means=None):
        """Add the Hessian to a matrix (d + 1, d + 1)."""
        _add_blocks(self, curvature, out, means)

    def squared_norms(self):
        """Squared norms of the rows, of every 16th of a long matrix."""
        X = self.X[:: 16 if len(self.X) > _MANY else 1]
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)

    def scaled(self, curvature, out):
        """Fill ``sqrt(curvature) [X, 1]``."""
        if self.X.flags.c_contiguous:
            glm_dense.dense_scaled(self._X, curvature, out)
            return
        out[:, -1] = np.sqrt(curvature)
        np.multiply(self.X, out[:, -1:], out=out[:, :-1])

    def multinomial(self, W, n_classes):
        """Return the multinomial loss and its gradient, as `kernels.multinomial` lays them out."""
        out, total = np.zeros(W.shape), 0.0
        for part in self._blocks(W):
            Z = part._predictors(W)
            total += multinomial.multinomial_residuals(Z, part.y, part.weights, n_classes)
            part._add_transposed(Z, out)
        return total, out

    def multinomial_product(self, W, V, n_classes):
        """Return the Hessian of the multinomial loss at W times V, both laid out as the gradient."""
        out = np.zeros(W.shape)
        for part in self._blocks(W):
            bent = part.X @ V[:-1] + V[-1]
            multinomial.residual_changes(part._predictors(W), bent, part.weights, n_classes)
            part._add_transposed(bent, out)
        return out

    def multinomial_diagonal(self, W, n_classes):
        """Return the diagonal of the Hessian of the multinomial loss at W, laid out as W."""
        out = np.zeros(W.shape)
        for part in self._blocks(W):
            curves = part._predictors(W)
            multinomial.multinomial_curves(curves, part.weights, n_classes)
            part.squared()._add_transposed(curves, out)
        return out

    def _blocks(self, W):
        """Parts whose predictors stay in the cache."""
        size = max(64, _BLOCK // 8 // max(self.X.shape[1], W.shape[1]))
        return (self.part(start, start + size) for start in range(0, len(self.y), size))

    def _predictors(self, W):
        Z = self.X @ W[:-1] + W[-1]
        if len(self.offset):
            Z[:, : self.offset.shape[1]] += self.offset
        return Z

    def _add_transposed(self, Z, out):
        out[:-1] += self.X.T @ Z
        out[-1] += Z.sum(axis=0, dtype=np.float64)


@dataclass(frozen=True)
class SparseRows(_AnyRows):
    """Rows of a CSR matrix; columns rise within a row.

    `data`, `indices`: ndarrays; of the whole matrix, or at least of these rows. `indptr`: array (n + 1,);
    where rows begin in `data`. `y`, `weights`, `offset`: ndarrays; see `DenseRows`.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    n_columns: int
    y: np.ndarray
    weights: np.ndarray
    offset: np.ndarray = field(default_factory=lambda: _NONE)

    @property
    def shape(self):
        """Rows and columns."""
        return len(self.indptr) - 1, self.n_columns

    @property
    def dtype(self):
        """The type of the data."""
        return self.data.dtype

    @property
    def n_entries(self):
        """Stored entries of these rows."""
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def X(self):
        """The matrix, which shares memory with these rows; they must be all that `indptr` begins with."""
        return sparse.csr_array(self._arrays, shape=self.shape)

    @property
    def _arrays(self):
        return self.data, self.indices, self.indptr

    @property
    def _vectors(self):
        return self.weights, self.offset if self.offset.ndim == 2 else _NONE_OF_CLASSES

    def part(self, start, stop):
        """Rows `start` to `stop`, which share memory with these."""
        indptr, vectors = self.indptr[start : stop + 1], _vectors(self, slice(start, stop))
        return SparseRows(self.data, self.indices, indptr, self.n_columns, *vectors)

    def take(self, rows):
        """A copy of some rows."""
        X = self.X[rows]
        return SparseRows(X.data, X.indices, X.indptr, self.n_columns, *_vectors(self, rows))

    def rows_of_rare_columns(self, below, most):
        """Numbers of the rows with an entry in a rare column; see `rare_columns`."""
        return self.rows_in(rare_columns(self.column_counts(), below, most))

    def column_counts(self):
        """Count the stored entries of the columns."""
        counts = np.zeros(self.n_columns, np.int64)
        glm_sparse.csr_counts(self.indices, self.indptr, counts)
        return counts

    def rows_in(self, columns):
        """Numbers of the rows with an entry in one of these columns, a mask."""
        hit = np.empty(len(self.y), bool)
        glm_sparse.csr_rows_in(self.indices, self.indptr, columns, hit)
        return np.flatnonzero(hit)

    def squared(self):
        """Rows of the squares of the entries."""
        return replace(self, data=self.data**2)

    def gradient(self, loss, coef, intercept, curvature=_NONE):
        """Return the loss and its gradient, (d + 1,); fill the curvatures of the rows, if asked for."""
        out = np.zeros(self.n_columns + 1)
        value = glm_sparse.csr_gradient(
            loss, *self._arrays, self.y, self.weights, coef, intercept, self.offset, out, curvature
        )
        return value, out

    def product(self, curvature, v, v_intercept):
        """Return the Hessian times a vector, (d + 1,)."""
        out = np.zeros(self.n_columns + 1)
        glm_sparse.csr_product(*self._arrays, curvature, v, v_intercept, out)
        return out

    def diagonal(self, curvature, means=None):
        """Return the diagonal of the Hessian, (d + 1,)."""
        out = np.zeros(self.n_columns + 1)
        if means is not None:
            for block in _less(self, curvature, means):
                out += np.einsum("ij,ij->j", block, block)
            return out
        glm_sparse.csr_diagonal(*self._arrays, curvature, out)
        return out

    def add_hessian(self, curvature, out, means=None):
        """Add the Hessian to a matrix (d + 1, d + 1)."""
        n, d = self.shape
        if means is not None or _DENSER * self.n_entries**2 > (n * d) ** 2:
            _add_blocks(self, curvature, out, means)
            return
        upper = np.zeros_like(out)
        glm_sparse.csr_outer(*self._arrays, curvature, upper)
        out += upper
        np.fill_diagonal(upper, 0.0)
        out += upper.T

    def squared_norms(self):
        """Squared norms of the rows."""
        out = np.empty(len(self.indptr) - 1)
        glm_sparse.csr_squared_norms(self.data, self.indptr, out)
        return out

    def scaled(self, curvature, out):
        """Fill ``sqrt(curvature) [X, 1]``."""
        glm_sparse.csr_scaled(*self._arrays, curvature, out)

    def transposed(self, r):
        """Return ``X^T r`` and the sum of r, (d + 1,)."""
        out = np.zeros(self.n_columns + 1)
        glm_sparse.csr_transposed(*self._arrays, r, out)
        return out

    def images(self, v, out):
        """Fill ``out = X v``."""
        glm_sparse.csr_images(*self._arrays, v, out)

    def multinomial_product(self, W, V, n_classes):
        """Return the Hessian of the multinomial loss at W times V, both laid out as the gradient."""
        out = np.zeros(W.shape)
        multinomial.csr_multinomial_product(*self._arrays, *self._vectors, W, V, n_classes, out)
        return out

    def multinomial_diagonal(self, W, n_classes):
        """Return the diagonal of the Hessian of the multinomial loss at W, laid out as W."""
        out = np.zeros(W.shape)
        multinomial.csr_multinomial_diagonal(*self._arrays, *self._vectors, W, n_classes, out)
        return out

    def multinomial(self, W, n_classes):
        """Return the multinomial loss and its gradient, as `kernels.multinomial` lays them out."""
        out = np.zeros(W.shape)
        value = multinomial.csr_multinomial(*self._arrays, self.y, *self._vectors, W, n_classes, out)
        return value, out


def _vectors(rows, which):
    """Targets, weights and offset of some rows."""
    vectors = rows.y, rows.weights, rows.offset
    return [vector[which] if len(vector) else vector for vector in vectors]


def row_costs(rows):
    """Nanoseconds that a row takes in a pass and in a Hessian, about: only their ratio matters."""
    n, d = rows.shape
    product = 5 + 0.3 * d + 0.04 * d**2
    per_row = rows.n_entries / n
    if per_row == d:
        return 3 + 0.4 * d, product
    return 5 + 1.2 * per_row, min(product, 5 + 0.7 * per_row**2)


def rare_columns(counts, below, most):
    """Mark columns with fewer entries than `below`, the rarest first, up to `most` entries in all."""
    order = np.argsort(counts, kind="stable")
    rare = np.zeros(len(counts), bool)
    rare[order[(counts[order] < below) & (np.cumsum(counts[order]) <= most)]] = True
    return rare


def make_rows(X, y, weights=None, offset=None):
    """Wrap checked data, sharing memory, as `DenseRows` or `SparseRows`.

    A CSR matrix without a single zero is read as a dense one. Integer targets are numbers of classes and stay
    so.
    """
    y = y.astype(np.int64 if y.dtype.kind in "iu" else X.dtype, copy=False)
    weights = np.empty(0, X.dtype) if weights is None else weights.astype(X.dtype)
    offset = _NONE if offset is None else offset
    if not isinstance(X, np.ndarray) and X.nnz == X.shape[0] * X.shape[1]:
        X = X.data.reshape(X.shape)
    if isinstance(X, np.ndarray):
        return DenseRows(X, y, weights, offset)
    return SparseRows(X.data, X.indices, X.indptr, X.shape[1], y, weights, offset)


def in_rows(rows):
    """The same rows, dense ones in C order, which the kernels take."""
    return replace(rows, X=np.ascontiguousarray(rows.X)) if type(rows) is DenseRows else rows


def cut(rows):
    """Cut rows into portions, by the shape of the data alone.

    At most 16 portions, each of at least 60,000 entries, and of 8 a column, for which it makes a sum.
    """
    n, d = rows.shape
    size = rows.n_entries
    most = min(_MOST_PORTIONS, size // _LEAST_ENTRIES, size // (8 * d), n)
    step = -(-n // max(1, most))
    step += -step % (512 if step > 4096 else 4)
    return [rows.part(start, min(n, start + step)) for start in range(0, n, step)]


def _add_blocks(rows, curvature, out, means=None):
    """Add ``A^T A``, with A the rows times the roots of their curvatures, block by block."""
    if means is not None:
        for block in _less(rows, curvature, means):
            out += block.T @ block
        return
    n, width = len(curvature), len(out)
    size = max(256, min(4096, _BLOCK // width))
    A = np.empty((min(n, size), width), rows.dtype)
    for start in range(0, n, size):
        stop = min(n, start + size)
        block = A[: stop - start]
        rows.part(start, stop).scaled(curvature[start:stop], block)
        out += block.T @ block


def _less(rows, curvature, means):
    """Yield blocks of ``sqrt(curvature) [X - means, 1]``, the difference taken first, in float64."""
    n, width = len(curvature), rows.shape[1] + 1
    size = max(256, min(4096, _BLOCK // width))
    for start in range(0, n, size):
        stop = min(n, start + size)
        block = np.empty((stop - start, width), rows.dtype)
        rows.part(start, stop).scaled(np.ones(stop - start), block)
        block = block.astype(np.float64)
        block[:, :-1] -= means
        block *= np.sqrt(curvature[start:stop, None])
        yield block
