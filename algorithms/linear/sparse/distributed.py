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

import contextlib
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ....errors import DataError
from ....scheduler.place import current_client, open_place
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.static import StaticSchedule
from ....scheduler.threads import computed_here, own_threads
from ...inputs.dask_arrays import aligned, is_dask
from ...inputs.pieces import cut_at_chunks, cut_evenly, lazy_chunks, located, read_block
from ...inputs.streamed import RowStream, bytes_to_keep, matrix_of, renewed
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
        with contextlib.closing(open_place(engine).workers()) as workers:
            workers.open()
            # Elsewhere only if all of these are lost: nothing else would end the wait for them.
            where = {"workers": workers.where()["workers"], "allow_other_workers": True}
        client = current_client(engine)
        blocks = client.compute(self.pieces)
        laid = client.map(lay_block, blocks, self.edges[:-1], by_rows=self.by_rows, pure=False, **where)
        # A future itself is useless while its data, lost with a worker, are made again; a task of it waits.
        return replace(self, pieces=[dask.delayed(_same)(future) for future in laid])

    @property
    def schedule(self):
        """All shards at once."""
        return StaticSchedule(1, n_shards=len(self.pieces))


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
    n_shards = open_place(engine).n_threads()
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
    if size <= _MOST_MEMORY * open_place(engine).size()[1]:
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


class Scales(Program):
    """Standard deviations (or root mean squares) of columns, in two rounds: means, then squares.

    `weights`: None or array (n_samples,). `centre`: True: about the mean. Attributes: `scales`: array
    (n_features,); 1 where they would be 0.
    """

    measure_every = 0

    def __init__(self, cut_matrix, weights, centre):
        weights = np.ones(cut_matrix.shape[0]) if weights is None else weights
        parts = list(itertools.pairwise(cut_matrix.edges))
        rows = [weights[a:b] if cut_matrix.by_rows else weights for a, b in parts]
        self.shards = list(zip(cut_matrix.sources or cut_matrix.pieces, rows, strict=True))
        self.stream = cut_matrix.stream
        self.by_rows, self.centre, self.total = cut_matrix.by_rows, centre, weights.sum()
        self.edges, self.means = cut_matrix.edges, None

    def load(self, data):
        """Check a shard and store it by columns."""
        X = by_columns(data[0]) if self.stream is None else self.stream(data[0])
        return {"X": X, "weights": data[1]}

    def renew(self, state):
        """Forget the means."""
        return {"X": renewed(state["X"], self.stream), "weights": state["weights"]}

    def publish(self):
        """Send the means, once they are known."""
        return {"means": self.means}

    def sync(self, state, message):
        """Take the means."""
        state["means"] = message["means"]

    def update(self, state, task):
        """Weighted sums of a shard's columns, or of the squares of their distances from the means."""
        X, weights, means = matrix_of(state["X"]), state["weights"], state["means"]
        if means is None:  # not by BLAS, whose bits depend on the place and the neighbours of a column
            return columns_of(X).dot(np.arange(X.shape[1]), weights[None])[0]
        if not self.by_rows:
            means = means[self.edges[task.shard] : self.edges[task.shard + 1]]
        if isinstance(X, np.ndarray):
            return np.array([(weights * (X[:, j] - means[j]) ** 2).sum() for j in range(X.shape[1])])
        rows, columns, far = X.indices, np.repeat(np.arange(X.shape[1]), np.diff(X.indptr)), X.data
        inside = np.bincount(columns, weights[rows], X.shape[1])
        near = np.bincount(columns, weights[rows] * (far - means[columns]) ** 2, X.shape[1])
        return near + means**2 * (weights.sum() - inside)

    def aggregate(self, tasks, partials):
        """Put the shards' sums together."""
        sums = sum(partials) if self.by_rows else np.concatenate(partials)
        if tasks[0].round == 0:
            self.means = sums / self.total if self.centre else np.zeros(len(sums))
            return Outcome(self.publish())
        self.scales = np.sqrt(sums / self.total)
        self.scales[self.scales == 0] = 1
        return Outcome(done=True)
