"""Objectives over rows that lie in portions, on a Dask cluster: every sum is a pass of Sandblaster's.

The coordinator holds parameters, targets and weights, and sends the parameters once a pass; values,
gradients, Hessians and their diagonals come back as sums over portions, added along a tree over their
numbers: the bits do not depend on who computed what. A worker keeps the curvatures of its rows at the last
point, and computes them again where it has taken a portion over.

A sample of the rows is drawn by their numbers in the whole matrix, as for rows of this process. Each portion
sends its share, which the coordinator puts together: what is done with a sample is done there.
"""

import functools
from typing import Any

import numpy as np
from scipy import sparse

from ....scheduler.sums.summed import Summed
from ....scheduler.threads import effective_n_jobs
from .objective import LinearObjective, MultinomialObjective
from .rows import make_rows, rare_columns

_SAMPLE_ENTRIES = 1 << 26  # that a sample may bring to the coordinator


class FarPortions(Summed):
    """What is asked of portions of rows.

    `shards`: what `read` takes, and lists of targets and weights of the same rows. `read`: ``read(source)``
    returns an ndarray in C order or a csr_array, checked. `beside`: what reads targets and weights that lie
    beside the rows: the shards then hold these as they lie. ``beside.load(source, y, weights)`` checks them,
    ``beside.survey(them)`` returns numbers and arrays that tell of them, ``beside.rows(them, dtype, coding)``
    targets and weights as a coding makes them; the last part of a coding is None where all weights are 1.
    """

    def __init__(self, shards, read, n_columns, beside=None):
        self.shards, self.read, self.n_columns, self.beside = shards, read, n_columns, beside
        self.n_portions = len(shards)  # the shards are not with the program where it is asked

    def load(self, data):
        """Read a portion; one set of rows for each target, sharing X."""
        source, targets, weights = data
        X = self.read(source)
        if self.beside is None:
            return _Portion(X, rows=[make_rows(X, y, weights) for y in targets])
        return _Portion(X, lying=self.beside.load(source, targets, weights))

    def portion(self, number, state, request):
        """Answer a request, (what, target, arguments): a number and an array, which may not be finite."""
        what, target, args = request
        return getattr(self, what)(number, state, target, *args)

    def answer_bytes(self, request):
        """Count the bytes of an answer."""
        what, _, args = request
        if what.startswith("multinomial"):
            return 8 * args[0].size
        row = 8 * (self.n_columns + 1)
        if what == "take":
            return row * len(args[0]) // self.n_portions
        return row * (self.n_columns + 1 if self.kind(request).endswith("hessian") else 1)

    def kind(self, request):
        """Requests of one kind take about as long as each other."""
        what, _, args = request
        return f"{what} {args[0]}" if what in ("second_order", "gram") else what

    def report(self, state):
        """Rows, stored entries, and what there is to be known of weights, and of targets, before all else."""
        rows = make_rows(state.X, np.empty(0)) if state.rows is None else state.rows[0]
        beside = () if state.lying is None else self.beside.survey(state.lying)
        return rows.shape[0], rows.n_entries, rows.weight_sums if state.rows else None, beside

    def weight_sums(self, number, state, target):
        """Sums of the weights and of their squares."""
        return 0.0, [(number, *self._rows(state, target).weight_sums)]

    def longest(self, number, state, target):
        """The largest and the mean squared norm of rows."""
        return 0.0, [(number, *self._rows(state, target).longest)]

    def take(self, number, state, target, wanted, edges):
        """Copy rows, of rising numbers in the whole matrix, in which portions begin and end at the edges."""
        first, last = edges[number : number + 2]
        here = slice(*np.searchsorted(wanted, (first, last)))
        part = self._rows(state, target).take(wanted[here] - first)
        return 0.0, [(number, part.X, part.y, part.weights)]

    def furthest(self, number, state, target, d, d_intercept):
        """The largest magnitude of a row's product with d."""
        return 0.0, [(number, self._rows(state, target).furthest(d, d_intercept))]

    def column_counts(self, number, state, target):
        """Stored entries of the columns."""
        return 0.0, self._rows(state, target).column_counts()

    def rows_in(self, number, state, target, columns):
        """Numbers, in the portion, of the rows with an entry in one of these columns."""
        return 0.0, [(number, self._rows(state, target).rows_in(columns))]

    def gradient(self, number, state, target, loss, w, keep):
        """Loss and gradient; keep the curvatures for what is asked next."""
        curvature = np.empty(self._rows(state, target).shape[0]) if keep else np.empty(0)
        found = self._rows(state, target).gradient(loss, *self._split(w), curvature)
        if keep:
            state.kept = w, curvature
        return found

    def multinomial(self, number, state, target, W, n_classes):
        """Loss and gradient of K classes."""
        return self._rows(state, target).multinomial(W, n_classes)

    def multinomial_product(self, number, state, target, W, V, n_classes):
        """The Hessian of K classes at W times V."""
        return 0.0, self._rows(state, target).multinomial_product(W, V, n_classes)

    def multinomial_diagonal(self, number, state, target, W, n_classes):
        """The diagonal of the Hessian of K classes at W."""
        return 0.0, self._rows(state, target).multinomial_diagonal(W, n_classes)

    def second_order(self, number, state, target, method, loss, w, *args):
        """Something that is made of the curvatures at w."""
        kept = state.kept
        if kept is None or not np.array_equal(kept[0], w):
            curvature = np.empty(self._rows(state, target).shape[0])
            self._rows(state, target).gradient(loss, *self._split(w), curvature)
        else:
            curvature = kept[1]  # no loss's depends on the target
        return 0.0, getattr(self._rows(state, target), method)(curvature, *args)

    def gram(self, number, state, target, method):
        """The same with curvatures of 1 for rows of weight 1."""
        rows = self._rows(state, target)
        return 0.0, getattr(rows, method)(rows.row_weights())

    def _rows(self, state, target):
        """Rows with a target; one that lies beside them is made when first asked for, by whoever holds it."""
        number, *coding = target
        if state.rows is None:
            targets, weights = self.beside.rows(state.lying, state.X.dtype, *coding)
            state.rows = [make_rows(state.X, y, weights) for y in targets]
        return state.rows[number]

    def _split(self, w):
        return w[: self.n_columns], float(w[self.n_columns]) if len(w) > self.n_columns else 0.0


class _Portion:
    """Rows, what lies beside them, and their curvatures at the point that was asked for last."""

    def __init__(self, X, rows=None, lying=None):
        self.X, self.rows, self.lying = X, rows, lying
        self.kept: Any = None


def surveys(passes):
    """Columns of what ``beside.survey`` told of the portions, in their order."""
    return list(zip(*(beside for *_, beside in passes.session.reports), strict=True))


class FarRows:
    """All rows of a cluster, in the place of `DenseRows` or `SparseRows`.

    `passes`: LocalPasses or ClusterPasses; over `FarPortions`. `target`: which of the targets the portions
    hold. `coding`: tuple of arrays; how targets and weights are made of what lies beside the rows.
    """

    def __init__(self, passes, dtype, target=0, coding=None):
        self.passes, self.dtype = passes, np.dtype(dtype)
        self.target = (target,) if coding is None else (target, coding)
        self._plain = coding is not None and coding[-1] is None
        self._n_rows, n_entries, self._weight_sums, _ = zip(*passes.session.reports, strict=True)
        self._edges = np.cumsum([0, *self._n_rows])
        self.shape = int(self._edges[-1]), passes.program.n_columns
        self.n_entries = sum(n_entries)
        self._expected: Any = None  # rows that are on their way, and a future of the pass that brings them

    @functools.cached_property
    def weight_sums(self):
        """See `DenseRows`; a pass where weights lie beside the rows."""
        if self._plain:
            return float(self.shape[0]), float(self.shape[0])
        sums = self._weight_sums if len(self.target) == 1 else zip(*self._pieces("weight_sums"), strict=True)
        return tuple(map(sum, zip(*sums, strict=True)))

    @functools.cached_property
    def longest(self):
        """See `DenseRows`; a pass."""
        largest, means = map(np.array, self._pieces("longest"))
        return float(largest.max()), float(np.array(self._n_rows) @ means / self.shape[0])

    def ask(self, what, *args):
        """Make a pass; return the sums of the numbers and of the arrays."""
        return self.passes.run((what, self.target, args))

    def take(self, rows):
        """A copy of some rows in this process, as `DenseRows` or `SparseRows`."""
        order = np.argsort(rows, kind="stable")
        if self._expected is not None and np.array_equal(rows, self._expected[0]):
            X, y, weights = _columns(self._expected[1].result())
        else:
            X, y, weights = self._pieces("take", rows[order], self._edges)
        self._expected = None
        dense = all(isinstance(part, np.ndarray) for part in X)
        found = make_rows(
            np.concatenate(X) if dense else sparse.csr_array(sparse.vstack(X, format="csr")),
            np.concatenate(y),
            np.concatenate(weights) if any(map(len, weights)) else None,
        )
        return found if (np.diff(order) > 0).all() else found.take(np.argsort(order))

    def expect(self, rows):
        """Have rising rows fetched, which `take` will be asked for next, while others do something else."""
        if self.passes.session.remote and self._is_full:
            self._expected = rows, self.passes.begin(("take", self.target, (rows, self._edges)))

    def furthest(self, d, d_intercept):
        """See `DenseRows`."""
        (found,) = self._pieces("furthest", d, d_intercept)
        return max(found)

    def rows_of_rare_columns(self, below, most):
        """See `SparseRows`; two passes where entries are missing."""
        if self._is_full:
            return np.empty(0, np.int64)
        rare = rare_columns(self.ask("column_counts")[1], below, most)
        (found,) = self._pieces("rows_in", rare)
        return np.concatenate([rows + first for rows, first in zip(found, self._edges, strict=False)])

    @property
    def _is_full(self):
        return self.n_entries == self.shape[0] * self.shape[1]

    def _pieces(self, what, *args):
        return _columns(self.ask(what, *args))


def _columns(sums):
    """Of a pass in which each portion answers for itself: columns of answers, in the order of portions."""
    return list(zip(*sorted(sums[1], key=lambda piece: piece[0]), strict=True))[1:]


class _Far:
    """What both objectives have in place of portions and threads of their own."""

    rows: FarRows
    n_rows: int
    n_jobs: int | None
    n_passes: int

    @property
    def most_sampled(self):
        """See `LinearObjective`; here what the coordinator has room for."""
        return min(self.n_rows // 2, _SAMPLE_ENTRIES * self.n_rows // max(1, self.rows.n_entries))

    @property
    def sample_threads(self):
        """See `LinearObjective`; here as many as wait for it on the cluster, and as there are."""
        if self.n_jobs is not None:
            return self.n_jobs
        return min(self.rows.passes.session.n_threads(), effective_n_jobs(-1))

    def bytes_sent(self):
        """Count the bytes that went over the network so far."""
        return self.rows.passes.session.bytes_sent

    def _cut(self, rows, width):
        return []

    def _ask(self, what, *args):
        self.n_passes += 1
        return self.rows.ask(what, *args)


class FarLinearObjective(_Far, LinearObjective):
    """See `LinearObjective`; a Hessian is one pass, and another one where the curvatures were not kept."""

    def value_and_gradient(self, w, *, curvature=False):
        """See `LinearObjective`."""
        if self._known_at(w) and (self._curvature or not curvature):
            return self._known[1:]
        value, gradient = self._ask("gradient", self.loss, w, curvature)
        self._curvature = curvature
        return self._complete(w, [(value, gradient[: self.n_parameters])])

    def _second_order(self, w, method, *args):
        self._curvatures(w)
        return self._scaled([self._ask("second_order", method, self.loss, w, *args)[1]])

    def _hessian_parts(self, w, means):
        self._curvatures(w)
        return [self._ask("second_order", "hessian", self.loss, w, means)[1]]


class FarMultinomialObjective(_Far, MultinomialObjective):
    """See `MultinomialObjective`."""

    def value_and_gradient(self, w):
        """See `MultinomialObjective`."""
        if self._known_at(w):
            return self._known[1:]
        value, gradient = self._ask("multinomial", self._padded(w), self.n_classes)
        return self._complete(w, [(value, self._unpadded(gradient))])

    def _product_parts(self, W, V):
        return [self._unpadded(self._ask("multinomial_product", W, V, self.n_classes)[1])]

    def _diagonal_parts(self, W):
        return [self._unpadded(self._ask("multinomial_diagonal", W, self.n_classes)[1])]

    def _gram_parts(self, method):
        return [self._ask("gram", method)[1]]


_FAR: dict = {LinearObjective: FarLinearObjective, MultinomialObjective: FarMultinomialObjective}


def objective_over(rows, kind, *args, **options):
    """Make an objective over rows, wherever they are.

    `rows`: DenseRows, SparseRows or FarRows. `kind`: {LinearObjective, MultinomialObjective}. `*args`,
    `**options`: its other parameters.
    """
    return (_FAR[kind] if isinstance(rows, FarRows) else kind)(rows, *args, **options)
