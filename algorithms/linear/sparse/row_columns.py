"""The working-set solver by columns where shards have rows: X is read in blocks of rows, in every pass.

For losses without a Gram matrix, whose rows change weight at every step, and rows beyond the workers' memory.
A round is one of two passes over X:

- *score*: every shard multiplies its rows with its part of the vectors v of the present model; their sums are
  the slopes of all columns, which name those that violate optimality most.
- *columns*: every shard sends its part of these columns. The coordinator puts them together and solves the
  problem on the working set as for columns of its own.

Memory of the coordinator: the columns of the working set, 8 bytes for each row of a dense one. Bytes of a
round: 8 n k for k vectors of n rows down to each worker, 8 k p for p columns up from each shard; then the new
columns once.
"""

import numpy as np
from scipy import sparse

from .columns import columns_of
from .rows import RowProgram


class RowColumns(RowProgram):
    """A `RowProgram` for any `Subproblem` that takes columns."""

    def __init__(self, working_set, sources, lengths, read, is_sparse):
        super().__init__(working_set, sources, lengths, read)
        self.lengths, self.is_sparse = [int(n) for n in lengths], is_sparse

    def _vectors_of(self, first, last):
        """The numbers of the rows: their part of the vectors comes with each request."""
        return first, last

    def _slopes(self, X, vectors, request):
        first, last = vectors
        own = np.ascontiguousarray(request["v"][:, first:last])
        return columns_of(X).dot(np.arange(self.n_features), own)

    def _products(self, X, vectors, request):
        return columns_of(X).take(request["new"])

    def _model(self, with_products):
        return {} if with_products else {"v": self.working_set.request["v"]}

    def _joined(self, partials):
        """Put parts of columns together, the rows of one shard below those of the one before."""
        n_rows = sum(self.lengths)
        if not self.is_sparse:
            blocks = [block for (block,) in partials] or [np.empty((n_rows, 0))]
            return columns_of(np.asfortranarray(np.concatenate(blocks)))
        blocks = [
            sparse.csc_array(part, shape=(n, len(part[2]) - 1))
            for part, n in zip(partials, self.lengths, strict=False)
        ] or [sparse.csc_array((n_rows, 0))]
        return columns_of(sparse.vstack(blocks, format="csc"))
