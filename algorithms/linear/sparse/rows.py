"""Lasso and elastic net on shards of rows: the Gram matrix of the working set comes to the coordinator.

The design for many more rows than columns, where an n-vector is the large thing. A round is one of two:

- *score*: every shard computes its residual from the coefficients, and its part of the slopes X^T W r of all
  columns; their sum names the columns that violate optimality most.
- *gram*: every shard multiplies those columns with the working set and with themselves. The problem on the
  working set is then solved at the coordinator without data.

Bytes of a round and shard: score 16 for each coefficient down and ``8 p`` up; gram 8 for each column named
and each of the working set down, and for m new columns and w of the working set ``8 m (w + m + 2)``
up. No n-vector travels but y and the weights, once.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from ....errors import DataError
from ....scheduler.program import Outcome, Program
from ...inputs.pieces import located
from ...inputs.streamed import matrix_of, renewed
from ..subproblems.gram import GramProblem
from .columns import CONSTANT
from .duality import column_gap

POSITIVE_TRACE = 1e-10  # the least l1 that keeps signs
_MOST_ATTEMPTS = 20  # shorter steps, before the round ends where it stands


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


@dataclass(frozen=True)
class GramBlock:
    """Products of columns that may join the working set, weighted and centred.

    Attributes: `old`, `own`: float64 (m, w) and (m, m); products with the working set, in its order, and with
    one another. `target`: float64 (m,); products with y. `means`: float64 (m,).
    """

    old: np.ndarray
    own: np.ndarray
    target: np.ndarray
    means: np.ndarray


class GramSquared:
    """The squared loss on a working set of which only the Gram matrix is known: a `Subproblem`.

    Memory: ``8 w (w + 8)`` bytes for w columns, twice that while columns join.

    `y`: float64 (n_rows,). `weights`: float64 (n_rows,). Attributes: `residual`: float64 (n_rows,), y less
    its mean, divided by `scale`.
    """

    def __init__(self, y, weights=None, *, fit_intercept=True):
        self.n_rows, self.fit_intercept = len(y), fit_intercept
        self.weights = np.ones(len(y)) if weights is None else weights
        self.total = self.weights.sum()
        self.mean = float(self.weights @ y / self.total) if fit_intercept else 0.0
        centred = y - self.mean
        most = np.abs(centred).max(initial=0.0)
        self.scale = float(2.0 ** np.floor(np.log2(most))) if most > 0 else 1.0
        self.residual = centred / self.scale
        self.y_y = float(self.weights @ self.residual**2)
        self.features, self.coefs = np.empty(0, np.int64), np.empty(0)
        self.target, self.slopes, self.means = np.empty(0), np.empty(0), np.empty(0)
        self.free = np.empty(0, bool)  # features that nothing holds
        self.norms, self.members = np.empty(0), np.empty(0, np.int64)  # members: columns that vary
        self.problem = GramProblem(np.empty((0, 0)))
        self.updates, self.easy = 0, True

    @property
    def coef(self):
        """Coefficients of the working set."""
        return self.coefs * self.scale

    @property
    def intercept(self):
        """Mean of y less that of the fit."""
        return self.mean - float(self.means @ self.coef) if self.fit_intercept else 0.0

    def grow(self, ids, columns, positions, penalty):
        """See `Subproblem.grow`; `columns` is a `GramBlock`."""
        old, own = columns.old[positions], columns.own[np.ix_(positions, positions)]
        means, first = columns.means[positions], len(self.features)
        self.features = np.append(self.features, ids)
        self.target = np.append(self.target, columns.target[positions])
        self.means = np.append(self.means, means)
        self.coefs = np.append(self.coefs, np.zeros(len(ids)))
        norms = np.diag(own)
        varies = np.flatnonzero(norms > CONSTANT * (norms + self.total * means**2))
        old, own = old[np.ix_(varies, self.members)], own[np.ix_(varies, varies)]
        gram = np.ascontiguousarray(np.block([[self.problem.G, old.T], [old, own]]))
        self.problem = GramProblem(gram, self.problem.step)
        self.norms, self.members = np.append(self.norms, norms), np.append(self.members, first + varies)
        l1, l2, _ = self._terms(penalty)
        self.free = (l1 == 0) & (l2 == 0)
        self._optimise_free_columns()

    def start(self, coef):
        """See `Subproblem.start`."""
        self.coefs = coef / self.scale
        self._optimise_free_columns()

    def intercept_of(self, coef, intercept, dtype):
        """See `Subproblem.intercept_of`: the best one, in float64."""
        return self.mean - float(self.means @ coef) if self.fit_intercept else 0.0

    def excess(self, coef, intercept):
        """See `Subproblem.excess`: the present coefficients differ in columns that are at their best."""
        change = (coef / self.scale - self.coefs)[self.members]
        return 0.5 * float(change @ self.problem.times(change))

    def solve(self, penalty, eps):
        """See `Subproblem.solve`."""
        l1, l2, positive = self._terms(penalty)
        members, before, lowest, wish = self.members, self.updates, np.inf, eps
        for _ in range(_MOST_ATTEMPTS):
            own = (l1[members], l2[members], positive)
            b, visits = self.problem.minimise(
                self.coefs[members], self.slopes[members], self.y_y, own, 0.5 * wish
            )
            self.coefs[members] = b
            self.updates += visits
            self._optimise_free_columns()
            gap = self.gap(penalty, 0.0)[1]
            if gap <= eps or gap > 0.9 * lowest:
                break
            lowest, wish = gap, min(wish, 0.1 * gap)
        self.easy = self.updates - before <= 4 * len(self.features)
        return gap <= eps

    def _terms(self, penalty):
        """l1 and l2 of each column of the working set, and whether coefficients are held at 0 or above.

        A column that nothing else holds is then given a trace of l1: no multiple of the residual meets an
        inequality exactly.
        """
        l1, l2 = penalty.thresholds(self.features) / self.scale, penalty.ridges(self.features)
        if penalty.positive:
            trace = POSITIVE_TRACE * np.sqrt(self.norms * self.y_y)
            l1 = np.where(l2 > 0, l1, np.maximum(l1, trace))
        return l1, l2, penalty.positive

    def _optimise_free_columns(self):
        """Recompute the slopes; solve for free features, whose slopes must vanish at a dual point."""
        self._compute_slopes()
        free = np.flatnonzero(self.free[self.members])
        if len(free):
            change, *_ = linalg.lstsq(self.problem.G[np.ix_(free, free)], self.slopes[self.members[free]])
            self.coefs[self.members[free]] += change
            self._compute_slopes()

    def _compute_slopes(self):
        """Slopes of columns that do not vary stay 0."""
        members = self.members
        self.slopes = np.zeros(len(self.features))
        self.slopes[members] = self.target[members] - self.problem.times(self.coefs[members])

    def vectors(self):
        """See `Subproblem.vectors`: the shards make theirs from the coefficients."""
        return np.empty((1, 0))

    def gap(self, penalty, bound):
        """See `Subproblem.gap`."""
        l1, l2, positive = self._terms(penalty)
        y_r = self.y_y - self.target @ self.coefs
        outside = penalty.strength / self.scale / bound if bound > 0 else np.inf
        r_r = y_r - self.coefs @ self.slopes
        return column_gap(self.coefs, self.slopes, l1, l2, positive, y_r, r_r, outside)

    def unit(self, penalty):
        """See `Subproblem.unit`."""
        return self.y_y / 2


class RowProgram(Program):
    """The working-set solver, over a `GramSquared`, on shards of rows.

    `sources`: for each shard the argument of ``read(source)``, which returns its rows, by columns, or a
    `StreamedBlock` that reads them in each round. `lengths`: rows of each shard.
    """

    n_blocks = 1
    measure_every = 0
    unit = "coordinate"

    def __init__(self, working_set, sources, lengths, read):
        self.working_set, self.read = working_set, read
        self.n_features = working_set.n_features
        edges = np.cumsum([0, *lengths])
        self.shards = [
            (source, a, b, self._vectors_of(a, b))
            for source, (a, b) in zip(sources, itertools.pairwise(edges.tolist()), strict=True)
        ]
        self.candidates = None  # found, and waiting for their products
        self.bound = 0.0  # largest score outside the working set

    def __getstate__(self):
        """Pickle without the coordinator's state."""
        return {**self.__dict__, "working_set": None, "candidates": None, "shards": ()}

    def _vectors_of(self, first, last):
        """What a shard has of a fit besides its rows: its part of y, and its weights."""
        return self.working_set.sub.residual[first:last], self.working_set.sub.weights[first:last]

    # On the worker of a shard ---------------------------------------------------------------------------

    def load(self, data):
        """State of a shard: its rows, and its vectors."""
        source, first, last, vectors = data
        with located(f"in the rows of X from {first} on"):
            X, shape = self.read(source), (last - first, self.n_features)
        if X.shape != shape:
            raise DataError(
                f"a shard of X has the shape {X.shape}, but {shape[0]} rows of {shape[1]} columns were "
                "announced: let the chunks of X say what they hold"
            )
        return {"X": X, "vectors": vectors}

    def renew(self, state):
        """Forget what was asked; blocks that are read in every round go on with this program's memory."""
        return {"X": renewed(state["X"], self.read), "vectors": state["vectors"]}

    def sync(self, state, message):
        """Take the coordinator's next request."""
        state["request"] = message

    def update(self, state, task):
        """Slopes of all columns, or what is sent of the columns that are asked for."""
        X, request = matrix_of(state["X"]), state["request"]
        if "new" in request:
            return self._products(X, state["vectors"], request)
        return self._slopes(X, state["vectors"], request)

    def _slopes(self, X, vectors, request):
        y, weights = vectors
        fit = X[:, request["features"]] @ request["coef"] + request["shift"]
        return np.asarray(X.T @ (weights * (y - fit))).ravel()

    def _products(self, X, vectors, request):
        y, weights = vectors
        new = X[:, request["new"]]
        weighed = (
            new * weights[:, None] if isinstance(new, np.ndarray) else new.multiply(weights[:, None]).tocsc()
        )
        old, own = weighed.T @ X[:, request["old"]], weighed.T @ new
        return _dense(old), _dense(own), weighed.T @ y, weighed.T @ np.ones(len(weights))

    # At the coordinator -----------------------------------------------------------------------------

    def publish(self):
        """Send the present request: for the products of columns, or for the slopes of all."""
        wanted = self.working_set.request["wanted"] if self.candidates is None else self.candidates[1]
        if self.candidates is not None or len(wanted):
            return {"new": wanted} | self._model(True)
        return self._model(False)

    def _model(self, with_products):
        """What shards need of the present model for products of columns, or for slopes."""
        sub = self.working_set.sub
        if with_products:
            return {"old": sub.features}
        used = np.flatnonzero(sub.coefs)
        shift = -float(sub.means @ sub.coefs) if sub.fit_intercept else 0.0
        return {"features": sub.features[used], "coef": sub.coefs[used], "shift": shift}

    def aggregate(self, tasks, partials):
        """Request the products of violators; with these, advance the working set."""
        if isinstance(partials[0], np.ndarray):
            self.candidates = self._candidates(sum(partials))
            self.bound = self.candidates[0]
            if len(self.candidates[1]):
                return Outcome(self.publish())
            partials = []
        block, wanted = self._joined(partials), self.working_set.request["wanted"]
        bound, ids, scores = self.candidates or (0.0, wanted, np.full(len(wanted), np.inf))
        self.candidates = None
        report = self.working_set.advance(Candidates(bound, ids, scores, block, np.arange(len(ids))))
        return replace(self.working_set.published(report), message=self.publish())

    def _candidates(self, slopes):
        """Bound, ids and scores outside the working set; `slopes` of one vector or several."""
        working_set = self.working_set
        sizes = np.maximum(slopes, 0.0) if working_set.positive else np.abs(slopes)
        outside = np.setdiff1d(np.arange(self.n_features), working_set.request["working"], assume_unique=True)
        if working_set.factors is not None:
            outside = outside[np.isfinite(working_set.factors[outside])]
        scores = np.atleast_2d(sizes).max(axis=0)[outside]
        if working_set.factors is not None:
            scores /= working_set.factors[outside]
        request = working_set.request
        best = largest(scores, request["threshold"], request["count"])
        return float(scores.max(initial=0.0)), outside[best], scores[best]

    def _joined(self, partials):
        """Add what the shards sent up to a `GramBlock`, centred."""
        if not partials:
            return GramBlock(*(np.empty((0, 0)),) * 2, *(np.empty(0),) * 2)
        old, own, target, means = (sum(parts) for parts in zip(*partials, strict=True))
        sub = self.working_set.sub
        if not sub.fit_intercept:
            return GramBlock(old, own, target, np.zeros(len(target)))
        means = means / sub.total
        old = old - sub.total * np.outer(means, sub.means)
        return GramBlock(old, own - sub.total * np.outer(means, means), target, means)

    def arrays(self):
        """See `Program.arrays`."""
        return self.working_set.arrays()

    def restore(self, arrays):
        """See `Program.restore`; the fit goes on from those coefficients."""
        self.working_set.restore(arrays)
        self.candidates = None


def _dense(product):
    return product if isinstance(product, np.ndarray) else product.toarray()


def largest(scores, threshold, count):
    """Positions of the `count` largest scores above a threshold, falling; ties by rising position."""
    above = np.flatnonzero(scores > threshold)
    if len(above) > count:
        least = np.partition(scores[above], len(above) - count)[len(above) - count]
        above = above[scores[above] >= least]
    return above[np.lexsort((above, -scores[above]))][:count]
