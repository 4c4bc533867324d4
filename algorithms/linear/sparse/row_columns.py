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

from dataclasses import replace

import numpy as np
from scipy import sparse

from ....scheduler.program import Outcome
from ...inputs.streamed import matrix_of
from .columns import columns_of
from .program import Candidates
from .rows import RowProgram


class RowColumns(RowProgram):
    """A `RowProgram` for any `Subproblem` that takes columns.

    `edges`: where the rows of each shard begin, and those of the last one end.
    """

    def __init__(self, working_set, sources, edges, is_sparse):
        self.working_set = working_set
        self.n_features, self.positive = working_set.n_features, working_set.positive
        self.edges, self.is_sparse = edges, is_sparse
        self.shards = list(zip(sources, edges[:-1], edges[1:], strict=True))
        self.candidates, self.bound = None, 0.0

    # On the worker of a shard ---------------------------------------------------------------------------

    def load(self, data):
        """State of a shard: its rows, by columns, and their numbers."""
        source, first, last = data
        return {"X": self.checked(source, last - first), "rows": slice(first, last)}

    def renew(self, state):
        """Forget what was asked."""
        return {name: state[name] for name in ("X", "rows")}

    def update(self, state, task):
        """Products of all columns with the vectors, or the columns that are asked for."""
        columns, request = columns_of(matrix_of(state["X"])), state["request"]
        if "new" in request:
            return columns.take(request["new"])
        own = np.ascontiguousarray(request["v"][:, state["rows"]])
        return columns.dot(np.arange(self.n_features), own)

    # At the coordinator -----------------------------------------------------------------------------

    def publish(self):
        """Send the present request."""
        if self.candidates is not None:
            return {"new": self.candidates[1]}
        wanted = self.working_set.request["wanted"]
        return {"new": wanted} if len(wanted) else {"v": self.working_set.request["v"]}

    def aggregate(self, tasks, partials):
        """Request the columns of violators; with these, advance the working set."""
        if isinstance(partials[0], np.ndarray):
            slopes = sum(partials)
            sizes = np.maximum(slopes, 0.0) if self.positive else np.abs(slopes)
            self.candidates = self._candidates(sizes.max(axis=0))
            self.bound = self.candidates[0]
            if len(self.candidates[1]):
                return Outcome(self.publish())
            columns = self._stacked(())
        else:
            columns = self._stacked(partials)
        wanted = self.working_set.request["wanted"]
        bound, ids, scores = self.candidates or (0.0, wanted, np.full(len(wanted), np.inf))
        self.candidates = None
        report = self.working_set.advance(Candidates(bound, ids, scores, columns, np.arange(len(ids))))
        return replace(self.working_set.published(report), message=self.publish())

    def _stacked(self, parts):
        """Put parts of columns together, the rows of one shard below those of the one before."""
        if not self.is_sparse:
            blocks = [block for (block,) in parts] or [np.empty((self.edges[-1], 0))]
            return columns_of(np.asfortranarray(np.concatenate(blocks)))
        lengths = np.diff(self.edges).tolist()
        blocks = [
            sparse.csc_array(part, shape=(n, len(part[2]) - 1))
            for part, n in zip(parts, lengths, strict=False)
        ] or [sparse.csc_array((self.edges[-1], 0))]
        return columns_of(sparse.vstack(blocks, format="csc"))
