"""Products with the columns of X, whole or a part: dense or CSC, never made dense."""

import contextlib
import itertools
from typing import Any

import numpy as np
from scipy import sparse

from .....kernels.linear import sparse_newton
from .....kernels.linear.columns import dense_dot
from .....scheduler.threads import effective_n_jobs, run_tasks
from ...scales import column_scales
from .accelerated import largest_eigenvalue

_NEARLY, _FAR = 0.9, 100.0  # rows, as a part of all, and distance from zero of what is taken less its mean
_CONSTANT = 1e-13  # a value that is this part of the mean, or less, is rounding
_PART = 1e6  # entries of X from which on threads share a pass


class Columns:
    """Columns of X.

    Dense ones are copied less their mean, `shift`, which the intercept takes up again. So are sparse ones
    that lack few rows and are far from zero, where they would hardly differ from the intercept.
    """

    schedule = "working-set"
    csc: Any = None  # data, indices and indptr of a CSC matrix in this process, whose columns need no copy

    def __init__(self, X, weights, *, centre, n_jobs=None):
        self.n_jobs = n_jobs
        self.X, self.is_sparse = X, not isinstance(X, np.ndarray)
        (self.n_samples, self.n_features), self.dtype = X.shape, X.dtype
        self._set_weights(weights if centre else None)
        if self.is_sparse and X.format == "csc" and not self._far_means(X).any():  # blocks of rows are CSR
            self.csc = X.data, X.indices, X.indptr.astype(np.int64)

    def _set_weights(self, weights):
        """Keep the weights of rows of columns that are centred; None: none is."""
        self._weights: Any = None if self.is_sparse else weights
        self._sparse_weights: Any = weights if self.is_sparse else None

    def opened(self):
        """A context in which X can be read."""
        return contextlib.nullcontext()

    @property
    def bytes_sent(self):
        """Bytes that passes have sent so far."""
        return 0

    @property
    def size(self):
        """Stored entries of X."""
        return self.X.size

    def take(self, features):
        """Copy columns in float64: the part, and what was subtracted from each."""
        part = self.raw(features)
        if self.is_sparse:
            return _less(part, self._far_means(part))
        if self._weights is None:
            return part, np.zeros(len(features))
        shift = self._weights @ part
        part -= shift
        part[:, np.abs(part).max(axis=0, initial=0.0) <= _CONSTANT * np.abs(shift)] = 0.0
        return part, shift

    def _far_means(self, X):
        """Means of columns of a CSC matrix that lack few rows and are far from zero; 0 for others."""
        means, weights = np.zeros(X.shape[1]), self._sparse_weights
        if weights is None:
            return means
        for j in np.flatnonzero(np.diff(X.indptr) >= _NEARLY * len(weights)).tolist():
            entries = slice(X.indptr[j], X.indptr[j + 1])
            values, w = X.data[entries].astype(np.float64), weights[X.indices[entries]]
            top = np.abs(values).max(initial=0.0) or 1.0
            mean = float(w @ (values / top))
            variance = float(w @ (values / top - mean) ** 2) + max(1.0 - float(w.sum()), 0.0) * mean**2
            means[j] = mean * top if abs(mean) > _FAR * np.sqrt(variance) else 0.0
        return means

    def raw(self, features):
        """Copy columns in float64, as they are."""
        if self.is_sparse:
            return self.X[:, features].astype(np.float64)
        return self.X.T[features].T.astype(np.float64, copy=False)

    def entries(self, features):
        """Stored entries of columns."""
        if self.csc is None:
            return self.size * len(features) / max(self.n_features, 1)
        return int((self.csc[2][features + 1] - self.csc[2][features]).sum())

    def stack(self):
        """Columns to which others are added."""
        return _Sparse() if self.is_sparse else _Dense(self.n_samples)

    def all_slopes(self, U):
        """``X.T @ U``."""
        X: Any = self.csc
        dense, V = not self.is_sparse, np.ascontiguousarray(U.T).reshape(-1, self.n_samples)
        if (self.is_sparse and X is None) or (
            dense and self.X.dtype == np.float64 and (len(V) > 1 or not self.X.flags.f_contiguous)
        ):
            return self.X.T @ U
        XT = np.asfortranarray(self.X).T if dense else None
        out = np.empty((len(V), self.n_features))

        def fill(k, a, b):
            if dense:
                dense_dot(XT, np.arange(a, b), V[k : k + 1], out[k : k + 1, a:b])
            else:
                sparse_newton.slopes((*X[:2], X[2][a : b + 1]), V[k], out[k, a:b])

        edges = np.linspace(0, self.n_features, self._n_threads() + 1).astype(np.int64)
        run_tasks(
            [(fill, (k, *edge)) for k in range(len(V)) for edge in itertools.pairwise(edges)], self.n_jobs
        )
        return out.T.reshape(-1, *U.shape[1:])

    def _n_threads(self):
        """Ranges of columns that are read side by side: sums of each column are the same for any number."""
        return min(effective_n_jobs(self.n_jobs), max(self.n_features, 1)) if self.size > _PART else 1

    def slopes(self, part, U):
        """``part.T @ U``."""
        return part.T @ U

    def times(self, part, B):
        """``part @ B``, of the columns that have a coefficient."""
        on = np.flatnonzero(B.any(axis=1))
        return part @ B if 2 * len(on) > len(B) else part[:, on] @ B[on]

    def gram(self, part, h):
        """``part.T @ diag(h) @ part``; of sparse columns a small solver has a dense copy."""
        is_dense = isinstance(part, np.ndarray)
        if is_dense and (h == h[0]).all():
            return h[0] * (part.T @ part)
        roots = np.sqrt(h)[:, None]
        if not is_dense:
            scaled = part.multiply(roots).tocsc()
            return (scaled.T @ scaled).toarray()
        scaled = part * roots
        return scaled.T @ scaled

    def cross(self, part, more, h):
        """``part.T @ diag(h) @ more``."""
        if self.is_sparse:
            return (part.T @ more.multiply(h[:, None]).tocsc()).toarray()
        if (h == h[0]).all():
            return h[0] * (part.T @ more)
        return part.T @ (more * h[:, None])

    def squares(self, h):
        """The diagonal of ``X.T @ diag(h) @ X``."""
        if self.is_sparse:
            return np.asarray(self.X.multiply(self.X).T @ h)
        return np.einsum("ij,ij,i->j", self.X, self.X, h, dtype=np.float64)

    def curvatures(self, h):
        """The diagonal of ``X.T @ diag(h) @ X``, with an intercept less what that takes up."""
        own = self.squares(h)
        if self._weights is None:
            return own
        return np.maximum(own - self.all_slopes(h) ** 2 / h.sum(), 0.0)

    def products(self, h, v):
        """``X.T @ (h * (X @ v))``."""
        return self.all_slopes(h * (self.X @ v))

    def largest_curvature(self, h):
        """The largest eigenvalue of ``X.T @ diag(h) @ X``, not negative h, and 1 % more."""
        trace = float(self.squares(h).sum())
        return largest_eigenvalue(lambda v: self.products(h, v), self.n_features, trace)


class ScaledColumns(Columns):
    """Columns over their scales, wherever X is: what is taken or summed is divided, and X stays as it is."""

    def __init__(self, columns, scales):
        self.columns, self.scales = columns, scales
        self.is_sparse, self.schedule, self.dtype = columns.is_sparse, columns.schedule, columns.dtype
        self.n_samples, self.n_features = columns.n_samples, columns.n_features

    def opened(self):
        """See `Columns`."""
        return self.columns.opened()

    @property
    def size(self):
        """See `Columns`."""
        return self.columns.size

    def take(self, features):
        """See `Columns`."""
        part, shift = self.columns.take(features)
        return self._divided(part, features), shift / self.scales[features]

    def raw(self, features):
        """See `Columns`."""
        return self._divided(self.columns.raw(features), features)

    def _divided(self, part, features):
        inverse = 1 / self.scales[features]
        return part @ sparse.diags_array(inverse, format="csc") if self.is_sparse else part * inverse

    def all_slopes(self, U):
        """See `Columns`."""
        return (self.columns.all_slopes(U).T / self.scales).T

    def squares(self, h):
        """See `Columns`."""
        return self.columns.squares(h) / self.scales**2

    def curvatures(self, h):
        """See `Columns`."""
        return self.columns.curvatures(h) / self.scales**2

    def products(self, h, v):
        """See `Columns`."""
        return self.columns.products(h, v / self.scales) / self.scales


def _less(part, means):
    """Columns of a CSC matrix less their means, which takes all rows; and these."""
    parts, last = [], 0
    for j in np.flatnonzero(means).tolist():
        column = part[:, [j]].toarray() - means[j]
        column[np.abs(column) <= _CONSTANT * abs(means[j])] = 0.0
        parts += [part[:, last:j], sparse.csc_array(column)]
        last = j + 1
    return (sparse.hstack([*parts, part[:, last:]], format="csc") if parts else part), means


def scales_of(columns, weights, centre):
    """Standard deviations of columns, or root mean squares; 1 where that is 0. `weights`: of sum 1."""
    if hasattr(columns, "X"):
        return column_scales(columns.X, weights * len(weights), centre=centre)
    with columns.opened():
        return columns.scales(weights, centre)


class _Dense:
    """Columns side by side in Fortran order, with spare capacity."""

    def __init__(self, n_rows):
        self._buffer, self._n = np.empty((n_rows, 0), order="F"), 0

    def add(self, more):
        """Put columns behind those that are there; return all."""
        n = self._n + more.shape[1]
        if n > self._buffer.shape[1]:
            buffer = np.empty((len(more), n + n // 2), order="F")
            buffer[:, : self._n] = self._buffer[:, : self._n]
            self._buffer = buffer
        self._buffer[:, self._n : n] = more
        self._n = n
        return self._buffer[:, :n]


class _Sparse:
    """Columns in CSC."""

    def __init__(self):
        self._parts = []

    def add(self, more):
        """Put columns behind those that are there; return all."""
        self._parts = [sparse.hstack([*self._parts, more], format="csc")]
        return self._parts[0]
