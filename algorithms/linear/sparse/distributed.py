"""Sparse linear models on a Dask cluster: how X is cut, and which of the two designs runs.

*By columns* (`cut_columns`): the coordinator sends the residual, 8 bytes a row, to each worker and round; the
workers return their slopes and the columns that are asked for. *By rows* (`rows`): it sends the coefficients,
and every shard returns a slope for each column, 8 bytes a column. A Dask array is used as it is chunked,
where its blocks are; a matrix of this process is cut into as many shards as the cluster has threads, in the
way that moves less: by columns if they are the greater number. Logistic models are fitted by columns: their
rows change weight at every step, so that no Gram matrix of the working set can stand for them, and a Dask
array chunked by rows is then rechunked once.

Neither kind of shard holds anything that the coordinator could not send again: a lost worker costs the round
that was running, and a fit by columns has the same bits for any number of workers and chunks. A local
fit's differ in the last places, its sums being grouped otherwise.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ....errors import DataError
from ....scheduler.threads import computed_here, own_threads
from ....scheduler.workers import current_client, open_workers
from ...inputs.dask_arrays import aligned, is_dask
from ...inputs.pieces import cut_at_chunks, cut_evenly, lazy_chunks, located, read_block
from ...inputs.streamed import RowStream, bytes_to_keep
from .columns import columns_of, cut

_MOST_MEMORY = 0.5  # of all workers, that columns may fill


@dataclass(frozen=True)
class CutMatrix:
    """X in pieces.

    Attributes: `by_rows`: whether the pieces are ranges of rows, or else of columns. `pieces`: of ndarray,
    sparse matrix, Dask array with one block, or (`kept`) delayed one of the first two. `edges`: list of int;
    where each piece begins, and where the last one ends.
    """

    by_rows: bool
    pieces: list
    edges: list
    shape: tuple
    dtype: np.dtype
    is_sparse: bool
    stream: RowStream | None = None
    sources: list | None = None

    def row_sources(self):
        """Sources of the blocks of a cut by rows, and what reads them."""
        if self.stream is not None:
            return self.sources, self.stream
        lengths = np.diff(self.edges).tolist()
        pieces = zip(self.edges[:-1], lengths, self.pieces, strict=True)
        return [(number, *piece) for number, piece in enumerate(pieces)], _laid_source

    def kept(self, engine):
        """Return a cut matrix whose pieces are computed once, for several runs over them.

        On Dask they stay on the workers, laid by columns as shards need them: a shard shares their memory.
        Without a client, for an engine that is an address, nothing can hold them, and each run computes them.
        """
        address = isinstance(engine, str) and "://" in engine
        if not is_dask(self.pieces[0]) or address or self.stream is not None:
            return self
        import dask

        if engine == "local" or own_threads() is not None:
            blocks = computed_here(*self.pieces)  # at once: they may have much in common
            laid = [lay_block(*pair, self.by_rows) for pair in zip(blocks, self.edges[:-1], strict=True)]
            return replace(self, pieces=laid)
        with open_workers(engine).task_workers() as workers:
            # Elsewhere only if all of these are lost: nothing else would end the wait for them.
            where = {"workers": workers.where()["workers"], "allow_other_workers": True}
        client = current_client(engine)
        blocks = client.compute(self.pieces)
        laid = client.map(lay_block, blocks, self.edges[:-1], by_rows=self.by_rows, pure=False, **where)
        # A future itself is useless while its data, lost with a worker, are made again; a task of it waits.
        return replace(self, pieces=[dask.delayed(_same)(future) for future in laid])


def streamed(X, engine, *, allow_rows):
    """Cut a Dask array in chunks of rows that would fill the workers' memory, to be read anew in every round.

    Shards have rows then, also where the solver needs columns. None for any other X.
    """
    if not is_dask(X):
        return None
    by_rows = allow_rows and _goes_by_rows(X)
    if not by_rows and not (X.numblocks[0] > 1 and X.numblocks[1] == 1):
        return None
    X = X.rechunk({1: -1})
    n_bytes = bytes_to_keep(X, engine, _compiled)
    if n_bytes is None:
        return None
    numbers, firsts, lasts, blocks = zip(*lazy_chunks(X), strict=True)
    lengths = [last - first for first, last in zip(firsts, lasts, strict=True)]
    is_sparse = sparse.issparse(X._meta)
    return CutMatrix(
        True,
        list(blocks),
        [*firsts, lasts[-1]],
        X.shape,
        X.dtype,
        is_sparse,
        stream=RowStream(_laid_source, n_bytes, X.shape[1], X.dtype, is_sparse),
        sources=list(zip(numbers, firsts, lengths, blocks, strict=True)),
    )


def _goes_by_rows(X):
    """Whether a Dask array is cut by rows, of a loss that may be fitted so."""
    rows, columns = X.numblocks
    return X.shape[0] > X.shape[1] if min(rows, columns) > 1 else rows > 1


def lay_out(X, engine, *, allow_rows):
    """Cut a matrix for a cluster, or take the chunks that a Dask array has.

    `X`: Dask array as `check_blocks` gives it; or Fortran-ordered ndarray or CSC array. `engine`: ``"dask"``
    or the address of a scheduler. `allow_rows`: whether the loss can be fitted by rows.
    """
    n_rows, n_columns = X.shape
    if is_dask(X):
        return _chunked(X, allow_rows)
    by_rows = allow_rows and n_rows > n_columns
    n_shards = open_workers(engine).n_threads()
    if by_rows:
        n_shards = min(n_shards, n_rows)
        spans = cut_evenly(X if isinstance(X, np.ndarray) else X.tocsr(), n_shards)
        pieces, edges = [span.block for span in spans], [0, *(span.last for span in spans)]
    else:
        ranges = cut(columns_of(X), n_shards)
        edges = [first for first, _ in ranges] + [n_columns]
        pieces = [X[:, a:b] for a, b in ranges]
    return CutMatrix(by_rows, pieces, edges, X.shape, X.dtype, sparse.issparse(X))


def _chunked(X, allow_rows):
    rows = X.numblocks[0]
    by_rows = allow_rows and _goes_by_rows(X)
    X = X.rechunk({1: -1} if by_rows else {0: -1})
    axis = 0 if by_rows else 1
    if X.numblocks[axis] == 1 and not by_rows and rows > 1:  # was cut by rows alone
        X = X.rechunk({1: -(-X.shape[1] // min(rows, X.shape[1]))})
    spans = cut_at_chunks(X, axis)
    return CutMatrix(
        by_rows,
        [span.block for span in spans],
        [*(span.first for span in spans), X.shape[axis]],
        X.shape,
        X.dtype,
        sparse.issparse(X._meta),
    )


def exceeds_memory(cut_matrix, engine):
    """Whether the pieces of a dense Dask array would fill too much of the workers' memory.

    Not what the cluster holds already. Of sparse arrays the sizes are not known.
    """
    first = cut_matrix.pieces[0]
    if cut_matrix.is_sparse or not is_dask(first) or not isinstance(getattr(first, "chunks", None), tuple):
        return False
    size = float(np.prod(cut_matrix.shape)) * cut_matrix.dtype.itemsize
    if size <= _MOST_MEMORY * open_workers(engine).size()[1]:
        return False
    from ....scheduler.sessions.placement import future_of

    return any(future_of(piece) is None for piece in cut_matrix.pieces)


def _compiled():
    """Import and compile what rounds need; a worker keeps that in its memory."""
    columns_of(np.ones((1, 1), order="F")).dot(np.zeros(1, np.int64), np.ones((1, 1)))


def lay_block(block, first, by_rows=False):
    """Check a block and store it by columns; errors name its first row or column."""
    with located(f"in the {'rows' if by_rows else 'columns'} of X from {first} on"):
        return by_columns(block)


def _laid_source(source, again=False):
    """Read a block of rows, perhaps for a `RowStream`."""
    _, first, n_rows, block = source
    block = read_block(block)
    if again and isinstance(block, np.ndarray) and block.dtype in (np.float32, np.float64):
        X: Any = aligned(np.asfortranarray(block))
    else:
        X = lay_block(block, first, by_rows=True)
    if X.shape[0] != n_rows:
        raise DataError(
            f"in the rows of X from {first} on: there are {X.shape[0]} where {n_rows} were announced: let "
            "the chunks of X say what they hold"
        )
    return X


def _same(block):
    return block


def by_columns(block):
    """Check a block of X, computed or of Dask, and lay it by columns."""
    from ...inputs.matrices import check_columns

    return aligned(check_columns("the fit", aligned(read_block(block))))
