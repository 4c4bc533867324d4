"""The columns of X, dense or CSC, read in place.

A scoring pass needs ``x_j . v`` for a range of columns; a working set needs copies of a few. Neither
copies X: a range of columns shares its memory, and 8 bytes a column are made for the products.
"""

import itertools
from typing import Any

import numpy as np
from scipy import sparse

from ....errors import DataError
from ....kernels.linear import columns as kernels

CONSTANT = 1e-13  # a column whose variance is this part of its mean square, or less, counts as constant


def columns_of(X):
    """Wrap a matrix by its columns, sharing its memory.

    `X`: ndarray in Fortran order, or CSC matrix or array, of float32 or float64; with finite values and, for
    CSC, index arrays (32 or 64 bits) known to be sound: compiled code trusts them. Raises DataError: For
    another format, order or type.
    """
    matrix: Any = X
    if X.dtype not in (np.float32, np.float64):
        raise DataError(f"X has type {X.dtype}; convert it to float32 or float64")
    if sparse.issparse(X):
        if matrix.format != "csc":
            raise DataError(f"X is a sparse matrix in {matrix.format} format; convert it with X.tocsc()")
        return SparseColumns(matrix.data, matrix.indices, matrix.indptr, matrix.shape[0])
    if not X.flags.f_contiguous:
        raise DataError("X is not in Fortran order; convert it with numpy.asfortranarray(X)")
    return DenseColumns(X)


def columns_from(parts, n_rows):
    """Rebuild columns from messages of `DenseColumns.take` or `SparseColumns.take`, side by side.

    Returns DenseColumns or SparseColumns; of all columns, in the order of `parts`.
    """
    if len(parts[0]) == 1:
        return DenseColumns(np.concatenate([part[0].T for part in parts]).T)
    lengths = np.concatenate([np.diff(part[2]) for part in parts])
    # Of the same type as where they come from: code compiled for another may round sums in another order.
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    kind = parts[0][2].dtype
    indptr = indptr.astype(kind) if indptr[-1] <= np.iinfo(kind).max else indptr
    data, indices = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return SparseColumns(data, indices, indptr, n_rows)


class DenseColumns:
    """Columns of a dense matrix in Fortran order.

    `X`: float32 or float64 (n_rows, n_columns), Fortran-ordered.
    """

    is_sparse = False

    def __init__(self, X):
        self.X = X
        self.shape = X.shape

    def weights(self):
        """Work of each column in a scoring pass: float64 array of shape (n_columns,)."""
        return np.full(self.shape[1], float(self.shape[0]))

    def dot(self, columns, V):
        """Multiply some columns with vectors.

        `columns`: int64 (m,). `V`: float (k, n_rows), C-ordered. Returns float64 (k, m); A column's products
        have the same bits whatever the other columns are.
        """
        out = np.empty((len(V), len(columns)))
        kernels.dense_dot(self.X.T, columns, V, out)
        return out

    def take(self, columns):
        """Copy some columns for a message; `columns_from` reads it.

        `columns`: int64 (m,). Returns tuple of ndarray; ``(block,)``, Fortran-ordered, of shape (n_rows, m),
        in the type of X.
        """
        return (np.asfortranarray(self.X[:, columns]),)


class SparseColumns:
    """Columns of a CSC matrix.

    `data`, `indices`, `indptr`: ndarrays; as in scipy; indices of 32 or 64 bits.
    """

    is_sparse = True

    def __init__(self, data, indices, indptr, n_rows):
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (n_rows, len(indptr) - 1)

    def weights(self):
        """Work of each column in a scoring pass: float64 array of shape (n_columns,)."""
        return np.diff(self.indptr) + 4.0  # going to the next column costs about as much as some entries

    def dot(self, columns, V):
        """See `DenseColumns.dot`."""
        out = np.empty((len(V), len(columns)))
        kernels.csc_dot(self.data, self.indices, self.indptr, columns, V, out)
        return out

    def lengths(self, columns):
        """Stored entries of some columns: int64 array of shape (m,)."""
        return (self.indptr[columns + 1] - self.indptr[columns]).astype(np.int64)

    def take(self, columns):
        """Copy some columns for a message; `columns_from` reads it.

        `columns`: int64 (m,). Returns tuple of ndarray; ``(data, indices, indptr)`` in the types of X, row
        indices and values of these columns alone.
        """
        lengths = self.lengths(columns)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self.indptr[columns] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return self.data[entries], self.indices[entries], indptr.astype(self.indptr.dtype)


def cut(columns, n_shards):
    """Cut the columns into ranges of about equal work.

    Returns list of (int, int); first and last (excluded) column of each range; none is empty, so there may be
    fewer than `n_shards`.
    """
    if n_shards == 1:
        return [(0, columns.shape[1])]
    work = np.cumsum(columns.weights())
    bounds = np.searchsorted(work, work[-1] * np.arange(1, n_shards) / n_shards)
    bounds = np.unique(np.concatenate([[0], bounds, [columns.shape[1]]]))
    return [(int(a), int(b)) for a, b in itertools.pairwise(bounds)]
