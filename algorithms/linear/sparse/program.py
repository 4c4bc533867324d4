"""Sparse linear models as a model-parallel program: a shard scores a range of columns.

One round is one pass over X: every shard multiplies its columns with the vector v of the current model and
names those that violate optimality most (`update`, push); the coordinator admits the largest of them to the
working set, solves the problem on it and publishes the new v (`aggregate`, pull). Ties go to the lower
column, so the model has the same bits however the columns are cut.

Messages of a round, in bytes: down to each shard 8 n k for v (k vectors, 1 unless multinomial) and 8 for
each column of the working set; up 16 for each candidate and, from shards that do not lie in this process,
the candidates' columns.
"""

from dataclasses import dataclass

import numpy as np

from ....scheduler.engine import run
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.static import StaticSchedule
from .columns import columns_from, columns_of, cut
from .screening import Scores

_MOST_ROUNDS = 10**9  # the working set itself knows when to stop


@dataclass(frozen=True)
class Candidates:
    """What a scoring pass found outside the working set.

    Attributes: `bound`: largest score there; 0 if nothing is outside. The score of a feature is ``max_k |x_j
    . v_k| / f_j`` (without the absolute value for positive coefficients). `ids`: int64 (m,); the wanted
    features, rising, if any were wanted; otherwise those of the largest scores above the threshold, falling,
    ties by rising number. `scores`: float64 (m,); infinite for features that were wanted. `columns`:
    DenseColumns or SparseColumns; where the raw columns are. `positions`: int64 (m,);
    ``columns[positions[i]]`` is the column of ``ids[i]``.
    """

    bound: float
    ids: np.ndarray
    scores: np.ndarray
    columns: object
    positions: np.ndarray


class SparseLinearProgram(Program):
    """The working-set solver as a program, for squared, logistic and multinomial loss.

    `working_set`: WorkingSet; the coordinator's half. `X`: DenseColumns, SparseColumns or None; the whole
    matrix, if it lies in this process: columns are then taken from it. None: shards send them. `n_shards`:
    into how many ranges of columns `X` is cut. `shards`: list of (int, object); in place of `X`: the number
    of each shard's first column, and what `read` makes its columns of.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.sparse.columns import columns_of
    >>> from stradask.algorithms.linear.sparse.penalties import ElasticNet
    >>> from stradask.algorithms.linear.sparse.program import SparseLinearProgram, solve
    >>> from stradask.algorithms.linear.sparse.squared import Squared
    >>> from stradask.algorithms.linear.sparse.working_set import WorkingSet
    >>> rng = np.random.default_rng(0)
    >>> X, y = np.asfortranarray(rng.standard_normal((30, 50))), rng.standard_normal(30)
    >>> working_set = WorkingSet(Squared(y), [ElasticNet(9.0)], n_features=50, is_sparse=False)
    >>> solve(SparseLinearProgram(working_set, columns_of(X)))
    >>> working_set.solutions[0].reason
    'gap'
    """

    n_blocks = 1
    measure_every = 0
    unit = "coordinate"

    def __init__(self, working_set, X=None, *, n_shards=1, shards=None):
        self.working_set, self.columns = working_set, X
        self.shards = shards if X is None else [(first, (first, last)) for first, last in cut(X, n_shards)]
        self.factors, self.positive = working_set.factors, working_set.positive
        self.sends_columns = X is None

    def __getstate__(self):
        """What goes to a worker: nothing of the coordinator's."""
        return {**self.__dict__, "working_set": None, "columns": None, "shards": ()}

    def read(self, source):
        """Return the matrix of a shard (Fortran-ordered, or CSC) from its entry in `shards`."""
        return source

    # Where a shard lies ---------------------------------------------------------------------------

    def load(self, data):
        """State of a shard: its columns, by reference where they lie here."""
        first, source = data
        columns = columns_of(self.read(source)) if self.sends_columns else self.columns.range(*source)
        return self._scored(first, columns)

    def _scored(self, first, columns):
        factors = None if self.factors is None else self.factors[first : first + columns.shape[1]]
        scores = Scores(columns, factors, self.positive)
        return {"first": first, "columns": columns, "scores": scores}

    def renew(self, state):
        """Forget what was asked."""
        return self._scored(state["first"], state["columns"])

    def sync(self, state, message):
        """Take the coordinator's next request."""
        state["request"] = message

    def update(self, state, task):
        """Score the shard's columns, or give the wanted ones.

        Returns tuple; largest score, ids, scores, and the raw columns (empty where the coordinator has them).
        """
        request, columns, first = state["request"], state["columns"], state["first"]
        bound, found, scores = score(state["scores"], request, first)
        sent = columns.take(found) if self.sends_columns else ()
        return bound, found + first, scores, sent

    # At the coordinator -----------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Let the working set take the best of all candidates and go on."""
        report = self.working_set.advance(self._merge(partials))
        return Outcome(
            self.working_set.request,
            objective=report.objective,
            updates=report.updates,
            done=report.done,
            gap=report.gap,
        )

    def _merge(self, partials):
        bound = max(partial[0] for partial in partials)
        ids = np.concatenate([partial[1] for partial in partials])
        scores = np.concatenate([partial[2] for partial in partials])
        order = np.lexsort((ids, -scores))[: self.working_set.request["count"]]
        if self.sends_columns:
            columns = columns_from([partial[3] for partial in partials], self.working_set.n_rows)
            return Candidates(bound, ids[order], scores[order], columns, order)
        return Candidates(bound, ids[order], scores[order], self.columns, ids[order])

    def publish(self):
        """Tell the present request."""
        return self.working_set.request

    def arrays(self):
        """See `Program.arrays`."""
        return self.working_set.arrays()

    def restore(self, arrays):
        """See `Program.restore`; the fit goes on from those coefficients, to the same tolerance."""
        self.working_set.restore(arrays)


def score(scores, request, first):
    """One scoring pass over a range of columns.

    `scores`: Scores; of these columns. `first`: number of the first column. Returns `found`: int64 ndarray;
    columns, counted from `first`. `scores`: float64 ndarray.
    """
    last = first + scores.columns.shape[1]
    if len(request["wanted"]):
        wanted = _inside(request["wanted"], first, last)
        return 0.0, wanted, np.full(len(wanted), np.inf)
    return scores.find(request, _inside(request["working"], first, last))


def _inside(ids, first, last):
    """Those of the rising `ids` in ``first:last``, counted from `first`."""
    return ids[np.searchsorted(ids, first) : np.searchsorted(ids, last)] - first


def solve(program):
    """Run a program to its end in the calling thread.

    `program`: SparseLinearProgram.
    """
    run(program, StaticSchedule(1, n_shards=len(program.shards)), max_rounds=_MOST_ROUNDS)
