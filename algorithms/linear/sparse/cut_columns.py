"""Columns of an X that is cut for workers, by columns or by rows: each product is a pass over them.

The working set is solved by this process, which asks for the slopes of all columns, and for the columns that
join. Where workers have blocks of columns, a pass over n rows, p columns and K classes takes 8 n K bytes down
to each worker and 8 p K up from all of them, and m columns 8 n m up, once. Blocks of rows are those of
`structured.solving.rows_on_workers`.

A column's products have the same bits however X is cut by columns.
"""

import numpy as np
from scipy import sparse

from ....scheduler.sums.summed import Summed
from ..scales import column_scales
from ..structured.solving.rows_on_workers import RemoteColumns, RowsOnWorkers
from .columns import columns_from, columns_of
from .distributed import lay_block


class BlocksOfColumns(RemoteColumns):
    """See `Columns`; workers have blocks of columns. `cut`: a `CutMatrix` by columns."""

    def __init__(self, cut, *where, **options):
        program = _ColumnBlocks(cut)
        super().__init__(program, cut.shape, cut.dtype, cut.is_sparse, *where, **options)

    def _joined(self, parts):
        """What blocks answered, in their order."""
        return np.concatenate([part for _, part in sorted(parts, key=lambda part: part[0])])

    def raw(self, features):
        """See `Columns`."""
        if not len(features):
            empty = np.empty((self.n_samples, 0), order="F")
            return sparse.csc_array(empty) if self.is_sparse else empty
        order = np.argsort(features, kind="stable")
        parts = sorted(self._passes.run(("columns", features[order]))[1], key=lambda part: part[0])
        back = np.argsort(order, kind="stable")
        columns = columns_from([part for _, part in parts], self.n_samples).take(back)
        if not self.is_sparse:
            return columns[0].astype(np.float64, copy=False)
        return sparse.csc_array(columns, shape=(self.n_samples, len(features))).astype(np.float64)

    def all_slopes(self, U):
        """See `Columns`."""
        V = np.ascontiguousarray(U.T).reshape(-1, self.n_samples)
        return self._joined(self._passes.run(("slopes", V))[1]).reshape(-1, *U.shape[1:])

    def squares(self, h):
        """See `Columns`."""
        return self._joined(self._passes.run(("squares", h))[1])

    def scales(self, weights, centre):
        """See `RowsOnWorkers`."""
        return self._joined(self._passes.run(("scales", (weights, centre)))[1])


class _ColumnBlocks(Summed):
    """What blocks of columns are asked for, (what, argument); answers have the first column of a block."""

    def __init__(self, cut):
        self.shards, self.shape = list(zip(cut.edges[:-1], cut.pieces, strict=True)), cut.shape

    def load(self, data):
        """Check a block, and store it by columns."""
        first, block = data
        return first, lay_block(block, first)

    def report(self, state):
        """Stored entries."""
        return float(columns_of(state[1]).weights().sum())

    def portion(self, number, state, request):
        """Answer a request for a block."""
        (first, X), (what, argument) = state, request
        columns = columns_of(X)
        every = np.arange(columns.shape[1])
        if what == "slopes":
            answer = columns.dot(every, argument).T
        elif what == "squares":
            answer = np.array([_square(columns.take(every[j : j + 1]), argument) for j in every.tolist()])
        elif what == "scales":
            weights, centre = argument
            answer = column_scales(X, weights, centre=centre)
        else:
            inside = argument[(argument >= first) & (argument < first + len(every))]
            if not len(inside):
                return 0.0, []
            answer = columns.take(inside - first)
        return 0.0, [(first, answer)]

    def kind(self, request):
        """Requests of one kind take about as long as each other."""
        return request[0]

    def answer_bytes(self, request):
        """Bytes of an answer."""
        what, argument = request
        n_numbers = self.shape[0] * len(argument) if what == "columns" else self.shape[1]
        return 8 * n_numbers // len(self.shards)


def _square(column, h):
    """The square of a column, a message of `columns_of`, with the weights h."""
    if len(column) == 1:
        return float(h @ column[0][:, 0].astype(np.float64) ** 2)
    data, rows, _ = column
    return float(h[rows] @ data.astype(np.float64) ** 2)


def columns_of_cut(cut, *where, **options):
    """The columns of a `CutMatrix`; `where`: an engine, and threads of a worker."""
    if cut.by_rows:
        rows = *cut.row_sources(), cut.edges, cut.shape, cut.dtype, cut.is_sparse
        return RowsOnWorkers.of_sources(*rows, *where, **options)
    return BlocksOfColumns(cut, *where, **options)
