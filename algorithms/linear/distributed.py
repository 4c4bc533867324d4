"""Sparse linear models on a Dask cluster: how X is cut, and which of the two designs runs.

*By columns* (`program`): the coordinator sends the residual, 8 bytes a row, to each worker and round; the workers
return their largest violators with their columns. *By rows* (`rows`): it sends the coefficients, and every
shard returns a slope for each column, 8 bytes a column. A Dask array is used as it is chunked, where its
blocks lie; a matrix of this process is cut into as many shards as the cluster has threads, in the
way that moves less: by columns if they are the greater number. Logistic models are fitted by columns: their rows
change weight at every step, so that no Gram matrix of the working set can stand for them, and a Dask
array chunked by rows is then rechunked once.

Neither kind of shard holds anything that the coordinator could not send again: a lost worker costs the round
that was running.
"""

import itertools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ...errors import DataError
from ...scheduler.static import StaticSchedule
from .columns import columns_of, cut
from .program import SparseLinearProgram
from .rows import RowProgram


def is_dask(X):
    """Tell whether X is a collection of Dask's; imports nothing."""
    return "dask.base" in sys.modules and sys.modules["dask.base"].is_dask_collection(X)


@dataclass(frozen=True)
class Layout:
    """X in pieces.

    Attributes
    ----------
    by_rows : bool
        Whether the pieces are ranges of rows, or else of columns.
    pieces : list
        Of ndarray, sparse matrix or Dask array with one block.
    edges : list of int
        Where each piece begins, and where the last one ends.
    shape : tuple of int
    dtype : dtype
        float32 or float64.
    is_sparse : bool
    """

    by_rows: bool
    pieces: list
    edges: list
    shape: tuple
    dtype: np.dtype
    is_sparse: bool

    def program(self, working_set):
        """Make the program of this layout and its schedule."""
        made: Any
        if self.by_rows:
            made = RowBlocks(working_set, self.pieces, np.diff(self.edges))
        else:
            made = ColumnBlocks(working_set, shards=list(zip(self.edges[:-1], self.pieces, strict=True)))
        return made, StaticSchedule(1, n_shards=len(self.pieces))


def lay_out(X, engine, *, allow_rows):
    """Cut a matrix for a cluster, or take the chunks that a Dask array has.

    Parameters
    ----------
    X : Dask array as `check_blocks` gives it; or Fortran-ordered ndarray or CSC array
    engine : str
        ``"dask"`` or the address of a scheduler.
    allow_rows : bool
        Whether the loss can be fitted by rows.

    Returns
    -------
    Layout
    """
    n_rows, n_columns = X.shape
    if is_dask(X):
        return _chunked(X, allow_rows)
    by_rows = allow_rows and n_rows > n_columns
    n_shards = _n_threads(engine)
    if by_rows:
        n_shards = min(n_shards, n_rows)
        edges = [n_rows * s // n_shards for s in range(n_shards + 1)]
        rows = X.tocsr() if sparse.issparse(X) else X
        pieces = [rows[a:b] for a, b in itertools.pairwise(edges)]
    else:
        ranges = cut(columns_of(X), n_shards)
        edges = [first for first, _ in ranges] + [n_columns]
        pieces = [X[:, a:b] for a, b in ranges]
    return Layout(by_rows, pieces, edges, X.shape, X.dtype, sparse.issparse(X))


def _chunked(X, allow_rows):
    rows, columns = X.numblocks
    by_rows = allow_rows and (X.shape[0] > X.shape[1] if min(rows, columns) > 1 else rows > 1)
    X = X.rechunk({1: -1} if by_rows else {0: -1})
    axis = 0 if by_rows else 1
    if X.numblocks[axis] == 1 and not by_rows and rows > 1:  # was cut by rows alone
        X = X.rechunk({1: -(-X.shape[1] // min(rows, X.shape[1]))})
    edges = np.cumsum([0, *X.chunks[axis]]).tolist()
    pieces = [X.blocks[i] if by_rows else X.blocks[:, i] for i in range(X.numblocks[axis])]
    filled = [k for k, size in enumerate(X.chunks[axis]) if size]  # Dask allows empty chunks
    return Layout(
        by_rows,
        [pieces[k] for k in filled],
        [*(edges[k] for k in filled), edges[-1]],
        X.shape,
        X.dtype,
        sparse.issparse(X._meta),
    )


def _n_threads(engine):
    import distributed

    if engine == "dask":
        return max(sum(distributed.default_client().nthreads().values()), 1)
    with distributed.Client(engine, set_as_default=False) as client:
        return max(sum(client.nthreads().values()), 1)


def check_blocks(X, name):
    """Check what can be known of a Dask array before it is computed.

    Parameters
    ----------
    X : Dask array or DataFrame
        Of numpy or scipy.sparse blocks.
    name : str
        The estimator, for messages.

    Returns
    -------
    Dask array
        Of float32 or float64, with known chunks. Values are checked where the blocks lie, when they are loaded.

    Raises
    ------
    DataError
        For another number of dimensions, unknown chunks, no rows or columns, and types that are not real
        numbers.
    """
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    if not hasattr(X, "blocks") or not hasattr(X, "chunks"):
        raise DataError(
            f"X is a {type(X).__name__}; of Dask's collections {name} takes arrays and DataFrames: make an array, "
            "for instance with dask.array.from_delayed"
        )
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, rows and columns, but it has {X.ndim}")
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise DataError("X has chunks of unknown size: call X.compute_chunk_sizes() before the fit")
    if 0 in X.shape:
        raise DataError(f"X has the shape {X.shape}: {name} needs at least one row and one column")
    if X.dtype.kind not in "buif":
        raise DataError(f"X has the type {X.dtype}; {name} takes real numbers: convert it with X.astype")
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def check_vector(value, n_samples):
    """Compute a Dask vector that stands beside X; anything else is passed on."""
    if not is_dask(value):
        return value
    value = value.compute()
    if len(value) != n_samples:
        raise DataError(f"X has {n_samples} rows, but a vector beside it has {len(value)} entries")
    return value


class ColumnBlocks(SparseLinearProgram):
    """The working-set solver over shards of columns that lie in workers."""

    def read(self, source):
        """Check a block and lay it by columns."""
        return _by_columns(source)

    def load(self, data):
        """See `SparseLinearProgram.load`."""
        try:
            return super().load(data)
        except DataError as error:
            raise DataError(f"in the columns of X from {data[0]} on: {error}") from error


class RowBlocks(RowProgram):
    """The working-set solver over shards of rows that lie in workers."""

    def read(self, source):
        """Check a block and lay it by columns."""
        return _by_columns(source)


def _by_columns(block):
    if not isinstance(block, np.ndarray) and not sparse.issparse(block):
        raise DataError(
            f"a block of X is a {type(block).__name__}: blocks must be numpy arrays or scipy.sparse matrices"
        )
    from .._validation import check_columns

    return check_columns("X", block)


def multiply(X, coef, intercept):
    """Compute ``X @ coef.T + intercept`` lazily, block by block.

    Parameters
    ----------
    X : Dask array of shape (n_samples, n_features)
    coef : ndarray of shape (n_features,) or (n_outputs, n_features)
    intercept : float or ndarray of shape (n_outputs,)

    Returns
    -------
    Dask array of shape (n_samples,) or (n_samples, n_outputs)
    """
    X = X.rechunk({1: -1})

    def block(rows):
        return np.asarray(rows @ coef.T) + intercept

    if coef.ndim == 1:
        return X.map_blocks(block, drop_axis=1, dtype=coef.dtype, meta=np.empty(0, coef.dtype))
    chunks = (X.chunks[0], (len(coef),))
    return X.map_blocks(block, chunks=chunks, dtype=coef.dtype, meta=np.empty((0, 0), coef.dtype))
