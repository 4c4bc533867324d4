r"""Sparse linear models as a model-parallel program: a shard scores a range of columns.

One round is one pass over X: every shard multiplies its columns with the vector v of the current model and
names those that violate optimality most (`update`, push); the coordinator admits the largest of them to the
working set, solves the problem on it and publishes the new v (`aggregate`, pull). Ties go to the lower
column, so the model has the same bits however the columns are cut.

Messages of a round, in bytes: down to each shard 8 n k for v (k vectors, 1 unless multinomial) and 8 for
each column of the working set; up 16 for each candidate and, from shards on other processes,
the candidates' columns.

**Screening.** Scores without reading most columns: bounds are carried from round to round.
Write the new vector as v' = c v + d, with the c that makes d least. With m_j the mean of column j,

.. math:: |x_j \cdot v'| \le |c| \, |x_j \cdot v| + \|x_j - m_j\| \, \|d\| + |m_j| \, |\sum_i d_i|

so a column whose bound stays below the threshold need not be multiplied. Nothing is given up: every column
above the threshold is found. On a path of many penalties v moves little and few columns are read; a fit
that is done in a few rounds never asks for norms.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....scheduler.engine import run
from ....scheduler.program import Program
from ....scheduler.schedules.static import StaticSchedule
from .columns import columns_from, columns_of, cut

_BLOCK = 1 << 16  # columns scored at a time
_PATIENCE = 3  # whole passes before norms, which cost about one, are worth their price
_NEAR = 0.99  # columns whose bound is above this part of the threshold are read too
_SLACK = 1 + 1e-9  # on differences, for their rounding
_SINGLE = (1 + 1e-6, 1e-37)  # on norms and means, which are kept in float32: never less than they are
MOST_ROUNDS = 10**9  # the working set itself knows when to stop


@dataclass(frozen=True)
class Candidates:
    """The result of a scoring pass: violators outside the working set.

    `bound`: largest score there, 0 if nothing is outside. The score of a feature is ``max_k |x_j . v_k| /
    f_j`` (without the absolute value for positive coefficients). `ids`: the wanted features, rising; else
    those of the largest scores above the threshold, falling, ties by rising number. `scores`: infinite for
    wanted features. ``columns[positions[i]]`` is the column of ``ids[i]``.
    """

    bound: float
    ids: np.ndarray
    scores: np.ndarray
    columns: object
    positions: np.ndarray


class Scores:
    """The scoring passes over a range of columns.

    Memory: 16 bytes a column, from the third whole pass on; less than 4 MB while they are scored.

    `factors`: float64 ndarray or None; of the penalty, for these columns; those with infinite ones are never
    read. `positive`: only slopes above zero count.
    """

    def __init__(self, columns, factors, positive):
        self.columns, self.factors, self.positive = columns, factors, positive
        self._excluded = np.empty(0, np.int64) if factors is None else np.flatnonzero(np.isinf(factors))
        self._passes = 0
        self._vectors: Any = None  # those of the last pass
        self._bounds: Any = None

    def most(self, vectors, working):
        """Return the largest score outside a working set, every column being read."""
        outside = np.ones(self.columns.shape[1], bool)
        outside[working] = False
        outside[self._excluded] = False
        return float(self._read(np.flatnonzero(outside), vectors).max(initial=0.0))

    def find(self, request, working):
        """Find the columns outside the working set with the largest scores.

        `working`: int64 ndarray; columns of the working set. Returns `bound`: no score is above it: the
        largest score, or a little less than the threshold if that is more. `violators`: int64 ndarray;
        columns with scores above the threshold, by falling score, ties by rising number.
        """
        vectors, threshold = request["v"], request["threshold"]
        bounded = self._bounds is not None
        if bounded:
            self._widen(vectors)
        else:
            self._passes += 1
            if self._passes == _PATIENCE:
                self._begin(vectors)
        # The same whether or not columns were passed over: a shard that was lost begins anew. It lies below
        # the threshold, lest it limits the dual point where no column does.
        bound, violators = _NEAR * threshold, []
        for first in range(0, self.columns.shape[1], _BLOCK):
            read = self._to_read(first, working, threshold if bounded else None)
            scores = self._read(read, vectors)
            if self._bounds is not None:
                self._bounds[read] = scores
            bound = max(bound, float(scores.max(initial=0.0)))
            above = np.flatnonzero(scores > threshold)
            violators.append((read[above], scores[above]))
        columns, scores = (np.concatenate(parts) for parts in zip(*violators, strict=True))
        best = largest(scores, threshold, request["count"])
        return bound, columns[best], scores[best]

    def _to_read(self, first, working, threshold):
        """Columns of a block to be scored: outside the working set, and not below their bounds."""
        last = min(first + _BLOCK, self.columns.shape[1])
        if threshold is None and not len(working) and not len(self._excluded):
            return np.arange(first, last)
        outside = np.ones(last - first, bool)
        for left in (working, self._excluded):
            outside[left[np.searchsorted(left, first) : np.searchsorted(left, last)] - first] = False
        if threshold is not None:  # written so that a bound that is no number is read
            outside &= ~(self._bounds[first:last] <= _NEAR * threshold)
        return np.flatnonzero(outside) + first

    def _read(self, read, vectors):
        slopes = self.columns.dot(read, vectors)
        sizes = np.maximum(slopes, 0.0, out=slopes) if self.positive else np.abs(slopes, out=slopes)
        scores = sizes[0] if len(sizes) == 1 else sizes.max(axis=0)
        return scores if self.factors is None else scores / self.factors[read]

    def _widen(self, vectors):
        """Update every bound for new vectors; c is not below 0, for scores that are slopes with a sign."""
        old = self._vectors
        square = np.vdot(old, old)
        c = max(np.vdot(old, vectors) / square, 0.0) if square > 0 else 0.0
        rest = vectors - c * old
        step = np.sqrt(np.einsum("ij,ij->i", rest, rest)).max() * _SLACK
        drift = np.abs(rest.sum(axis=1)).max() * _SLACK
        with np.errstate(invalid="ignore", over="ignore"):  # bounds that are infinite, or no number, are read
            self._bounds *= c * _SLACK
            self._bounds += np.multiply(self._norms, step, dtype=np.float64)
            if drift:
                self._bounds += np.multiply(self._means, drift, dtype=np.float64)
        self._vectors = vectors

    def _begin(self, vectors):
        """Begin to carry bounds."""
        self._means, self._norms = map(self._widened, self.columns.norms())
        self._bounds = np.full(self.columns.shape[1], np.inf)
        self._vectors = vectors

    def _widened(self, sizes):
        """Means or norms in units of the factors, rounded up to float32."""
        sizes = np.abs(sizes, out=sizes)
        if self.factors is not None:
            sizes /= np.where(self.factors > 0, self.factors, 1.0)  # others are in the working set
        with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and read
            return (sizes * _SINGLE[0] + _SINGLE[1]).astype(np.float32)


def largest(scores, threshold, count):
    """Positions of the `count` largest scores above a threshold, falling; ties by rising position."""
    above = np.flatnonzero(scores > threshold)
    if len(above) > count:
        least = np.partition(scores[above], len(above) - count)[len(above) - count]
        above = above[scores[above] >= least]
    return above[np.lexsort((above, -scores[above]))][:count]


class SparseLinearProgram(Program):
    """The working-set solver as a program, for squared, logistic and multinomial loss.

    `X`: the matrix in this process, cut into `n_shards` ranges of columns. Or `shards`: the number of each
    shard's first column, and the source that `read` makes its columns of; shards then send columns.
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
        """Pickle without the coordinator's state."""
        return {**self.__dict__, "working_set": None, "columns": None, "shards": ()}

    def read(self, source):
        """Return the matrix of a shard (Fortran-ordered, or CSC) from its entry in `shards`."""
        return source

    # On the worker of a shard ---------------------------------------------------------------------------

    def load(self, data):
        """State of a shard: its columns, by reference in this process."""
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
        bound, violators, scores = score(state["scores"], request, first)
        sent = columns.take(violators) if self.sends_columns else ()
        return bound, violators + first, scores, sent

    # At the coordinator -----------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Advance the working set with the best of all candidates."""
        return self.working_set.published(self.working_set.advance(self._merge(partials)))

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
        """Send the present request."""
        return self.working_set.request

    def arrays(self):
        """See `Program.arrays`."""
        return self.working_set.arrays()

    def restore(self, arrays):
        """See `Program.restore`; the fit goes on from those coefficients, to the same tolerance."""
        self.working_set.restore(arrays)


def score(scores, request, first):
    """One scoring pass over a range of columns.

    `scores`: Scores; of these columns. `first`: number of the first column. Returns `violators`: int64
    ndarray; columns, counted from `first`.
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
    """Run a program to its end in the calling thread."""
    run(program, StaticSchedule(1, n_shards=len(program.shards)), max_rounds=MOST_ROUNDS)
