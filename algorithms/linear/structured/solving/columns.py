"""Products with the columns of X, whole or a part: dense or CSC, never made dense."""

import contextlib

import numpy as np
from scipy import sparse

from .accelerated import largest_eigenvalue

_BLOCK = 1 << 22  # entries of a float32 matrix that are turned into float64 at a time


class Columns:
    """Columns of X. Dense ones are copied less their mean, `shift`, which the intercept takes up again."""

    schedule = "working-set"

    def __init__(self, X, weights, *, centre):
        self.X, self.is_sparse = X, not isinstance(X, np.ndarray)
        self.n_samples, self.n_features = X.shape
        self._weights = weights if centre and not self.is_sparse else None

    def opened(self):
        """A context in which X can be read."""
        return contextlib.nullcontext()

    @property
    def size(self):
        """Stored entries of X."""
        return self.X.size

    def take(self, features):
        """Copy columns in float64: the part, and what was subtracted from each."""
        part = self.raw(features)
        if self._weights is None:
            return part, np.zeros(len(features))
        shift = self._weights @ part
        part -= shift
        return part, shift

    def raw(self, features):
        """Copy columns in float64, as they are."""
        if self.is_sparse:
            return self.X[:, features].astype(np.float64)
        return self.X.T[features].T.astype(np.float64, copy=False)

    def stack(self):
        """Columns to which others are added."""
        return _Sparse() if self.is_sparse else _Dense(self.n_samples)

    def all_slopes(self, U):
        """``X.T @ U``."""
        if self.is_sparse or self.X.dtype == np.float64:
            return self.X.T @ U
        step = max(1, _BLOCK // self.n_samples)
        parts = [self.X[:, a : a + step].astype(np.float64).T @ U for a in range(0, self.n_features, step)]
        return np.concatenate(parts)

    def slopes(self, part, U):
        """``part.T @ U``."""
        return part.T @ U

    def times(self, part, B):
        """``part @ B``, of the columns that have a coefficient."""
        on = np.flatnonzero(B.any(axis=1))
        return part @ B if 2 * len(on) > len(B) else part[:, on] @ B[on]

    def gram(self, part, h):
        """``part.T @ diag(h) @ part``."""
        if not self.is_sparse and (h == h[0]).all():
            return h[0] * (part.T @ part)
        roots = np.sqrt(h)[:, None]
        if self.is_sparse:
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

    def curvatures(self, h):
        """The diagonal of ``X.T @ diag(h) @ X``, with an intercept less what that takes up."""
        if self.is_sparse:
            return np.asarray(self.X.multiply(self.X).T @ h)
        own = np.einsum("ij,ij,i->j", self.X, self.X, h, dtype=np.float64)
        if self._weights is None:
            return own
        return np.maximum(own - self.all_slopes(h) ** 2 / h.sum(), 0.0)

    def largest_curvature(self, h):
        """The largest eigenvalue of ``X.T @ diag(h) @ X``, not negative h, and 1 % more."""
        if self.is_sparse:
            trace = float((self.X.multiply(self.X).T @ h).sum())
        else:
            trace = float(np.einsum("ij,ij,i->", self.X, self.X, h, dtype=np.float64))
        return largest_eigenvalue(lambda v: self.all_slopes(h * (self.X @ v)), self.n_features, trace)


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
