"""Columns of an X whose rows are on workers, or in files that workers read: each product is a pass over them.

The solver of this process asks for two things of the whole X. *Slopes*: each block of rows is multiplied by
its part of the slopes of the loss, and the sums are those of all columns. *Columns*: each block sends its
part of the columns that join the working set. So rows beyond the workers' memory
(`stradask.algorithms.inputs.streamed`) go with every loss and penalty.

Memory of this process: the working set, 8 bytes for each row of a dense column, and a few vectors of n
rows. Bytes of a pass over n rows, p columns and K outputs: slopes 8 n K down to each worker and 8 p K up from
each; m columns 8 n m up.
"""

import contextlib
import itertools
from typing import Any

import numpy as np
from scipy import sparse

from .....scheduler.sums.summed import Summed
from .....scheduler.workers import open_workers
from ....inputs.streamed import RowStream, StreamedBlock, matrix_of, renewed
from ...glm.row_places import sources_and_reader
from ...scales import column_moments, merged_scales
from ...sparse.moments import Shift, moments_of
from .columns import Columns


class RemoteColumns(Columns):
    """Columns of an X in blocks, which workers have: see `Columns`. Passes need `opened`.

    `program`: answers requests for a block. `engine`, `n_jobs`: where, on how many threads of a worker.
    """

    def __init__(self, program, shape, dtype, is_sparse, engine, n_jobs, *, weights, centre):
        (self.n_samples, self.n_features), self.dtype, self.is_sparse = shape, dtype, is_sparse
        self._set_weights(weights if centre else None)
        self._program, self._place = program, open_workers(engine, n_jobs)
        self._passes: Any = None

    @property
    def size(self):
        """See `Columns`."""
        return sum(self._passes.session.reports)

    @property
    def bytes_sent(self):
        """See `Columns`."""
        return self._passes.session.bytes_sent

    @contextlib.contextmanager
    def opened(self):
        """See `Columns`: the blocks are on the workers, or known there."""
        if self._passes is not None:
            yield
            return
        with contextlib.closing(self._place.sum(self._program, ordered=True)) as self._passes:
            try:
                yield
            finally:
                self._passes = None


class RowsOnWorkers(RemoteColumns):
    """See `Columns`; X has blocks of rows."""

    schedule = "rows"

    def __init__(self, estimator, X, engine, weights, *, centre):
        sources, read = sources_and_reader(estimator, X, engine)
        self.streams = isinstance(read, RowStream)
        edges = [*(first for first, *_ in sources), X.shape[0]]
        program = _RowBlocks([source for *_, source in sources], read, edges, X.shape[1])
        about = X.shape, X.dtype, sparse.issparse(X._meta), engine, getattr(estimator, "n_jobs", None)
        super().__init__(program, *about, weights=weights, centre=centre)

    @classmethod
    def of_sources(cls, sources, read, edges, shape, *about, vectors=(), **options):
        """Make them of sources of blocks, which `read` reads; `edges`: their first rows, and the end.

        `vectors`: y and the weights, for `weighted_sums`, `slopes_at` and `sums`.
        """
        rows = object.__new__(cls)
        program = _RowBlocks(sources, read, edges, shape[1], vectors)
        RemoteColumns.__init__(rows, program, shape, *about, **options)
        return rows

    def raw(self, features):
        """See `Columns`."""
        if not len(features):
            shape = (self.n_samples, 0)
            return sparse.csc_array(shape) if self.is_sparse else np.empty(shape, order="F")
        parts = sorted(self._passes.run(("columns", features))[1], key=lambda part: part[0])
        if self.is_sparse:
            return sparse.csc_array(sparse.vstack([part for _, part in parts], format="csc"))
        found = np.empty((self.n_samples, len(features)), order="F")
        for (first, part), last in zip(parts, self._program.edges[1:], strict=True):
            found[first:last] = part
        return found

    def all_slopes(self, U):
        """See `Columns`."""
        return self._passes.run(("slopes", U))[1]

    def squares(self, h):
        """See `Columns`."""
        return self._passes.run(("squares", h))[1]

    def products(self, h, v):
        """See `Columns`."""
        return self._passes.run(("products", h, v))[1]

    def scales(self, weights, centre):
        """Standard deviations of the columns; see `column_scales`."""
        parts = sorted(self._passes.run(("column_moments", weights))[1], key=lambda part: part[0])
        return merged_scales(*list(zip(*parts, strict=True))[1:], centre=centre)

    def first_means(self):
        """Means of the columns in the first block, which alone is read."""
        return self._passes.run(("first_means",))[1]

    def moments(self, Y, weights, shift, parts):
        """Second moments of parts of the rows (None: all), see `sparse.moments.moments_of`, by one pass."""
        return self._passes.run(("moments", Y, weights, (shift.columns, shift.targets), parts))[1]

    def weighted_sums(self):
        """``X.T @ weights``."""
        return self._passes.run(("weighted_sums",))[1]

    def slopes_at(self, features, coef, shift, centres=None):
        """``X.T @ u``, and the sum of ``u = weights * (y - (X[:, features] - centres) @ coef - shift)``."""
        return self._passes.run(("slopes_at", features, coef, shift, centres))[1]

    def sums(self, new, old, centres=None):
        """Weighted products of new columns with old ones, with one another, with y and with ones.

        `centres`: None or float64 (n_old + n_new,), which dense columns are taken from.
        """
        return self._passes.run(("sums", new, old, centres))[1]

    def ranges(self, weights, features):
        """The least and the largest value of columns in the rows that have weight."""
        least, most = zip(*self._passes.run(("ranges", weights, features))[1], strict=True)
        return np.min(least, axis=0), np.max(most, axis=0)


class _RowBlocks(Summed):
    """What blocks of rows are asked for, (what, arguments); `edges` are their first rows, and the end."""

    def __init__(self, sources, read, edges, n_features, vectors=()):
        self.read, self.edges, self.n_features = read, edges, n_features
        rows = itertools.starmap(slice, itertools.pairwise(edges))
        self.shards = [
            (source, *(v[own] for v in vectors)) for source, own in zip(sources, rows, strict=True)
        ]

    def load(self, data):
        """Read a block, or leave it to be read in each pass; keep its part of the vectors."""
        return self.read(data[0]), *data[1:]

    def renew(self, state):
        """See `Summed`; blocks that are read in every pass go on with this program's memory."""
        return renewed(state[0], self.read), *state[1:]

    def report(self, state):
        """Stored entries."""
        X, *_ = state
        if isinstance(X, StreamedBlock):
            return X.n_entries
        return X.size if isinstance(X, np.ndarray) else X.nnz

    def portion(self, number, state, request):
        """Answer a request for a block."""
        what, *args = request
        if what == "first_means" and number:
            return 0.0, np.zeros(self.n_features)
        X, *vectors = state
        block = Columns(matrix_of(X), None, centre=False)
        args = (*vectors, *args) if what in ("weighted_sums", "slopes_at", "sums") else args
        return getattr(self, f"_{what}")(block, slice(*self.edges[number : number + 2]), *args)

    def kind(self, request):
        """Requests of one kind take about as long as each other."""
        return request[0]

    def answer_bytes(self, request):
        """Bytes of an answer."""
        what, *args = request
        if what == "columns":
            return 8 * len(args[0]) * self.edges[-1] // (len(self.edges) - 1)
        if what == "moments":
            return 8 * len(args[-1]) * self.n_features**2
        if what == "sums":
            return 8 * len(args[0]) * (len(args[0]) + len(args[1]) + 2)
        vectors = args[0].shape[1] if what == "slopes" and args[0].ndim > 1 else 1
        return 8 * self.n_features * vectors

    def _slopes(self, block, rows, U):
        return 0.0, block.all_slopes(np.ascontiguousarray(U[rows]))

    def _columns(self, block, rows, features):
        return 0.0, [(rows.start, block.raw(features))]

    def _squares(self, block, rows, h):
        return 0.0, block.squares(h[rows])

    def _first_means(self, block, rows):
        return 0.0, block.X.mean(axis=0, dtype=np.float64)

    def _moments(self, block, rows, Y, weights, shift, parts):
        X, Y, first, last = block.X, Y[rows], rows.start, rows.stop
        weights = None if weights is None else weights[rows]
        X = sparse.csc_array(X) if block.is_sparse else X
        inside = [None if part is None else part[(part >= first) & (part < last)] - first for part in parts]
        return 0.0, np.array([moments_of(X, Y, weights, Shift(*shift), part) for part in inside])

    def _column_moments(self, block, rows, weights):
        return 0.0, [(rows.start, *column_moments(block.X, weights[rows]))]

    def _weighted_sums(self, block, rows, y, weights):
        return 0.0, block.X.T @ weights

    def _slopes_at(self, block, rows, y, weights, features, coef, shift, centres):
        u = weights * (y - (_less(block.X[:, features], centres) @ coef + shift))
        return 0.0, np.append(block.X.T @ u, u.sum())

    def _sums(self, block, rows, y, weights, new, old, centres):
        every = _less(block.X[:, np.append(old, new)], centres)
        part = every[:, len(old) :]
        part = part.multiply(weights[:, None]).tocsc() if block.is_sparse else part * weights[:, None]
        products = part.T @ every
        products = products.toarray() if block.is_sparse else products
        return 0.0, np.column_stack([products, part.T @ y, part.T @ np.ones(len(y))])

    def _ranges(self, block, rows, weights, features):
        values = block.raw(features)
        values = values.toarray() if block.is_sparse else values
        values = values if weights is None else values[weights[rows] > 0]
        return 0.0, [(values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf))]

    def _products(self, block, rows, h, v):
        return 0.0, block.products(h[rows], v)


def _less(columns, centres):
    """Columns, copied from a block, less numbers that are near them: their products keep their digits."""
    if centres is None:
        return columns
    columns = columns.astype(np.float64, copy=False)
    columns -= centres
    return columns
