"""Objectives over portions of rows on a Dask cluster: every sum is a Sandblaster pass.

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
from ...inputs.streamed import StreamedBlock, renewed
from ..scales import merged_scales
from .objective import LinearObjective, MultinomialObjective
from .rows import make_rows, rare_columns

_SAMPLE_ENTRIES = 1 << 26  # that a sample may bring to the coordinator


class RemotePortions(Summed):
    """The requests that portions of rows answer.

    `shards`: sources for `read`, with targets and weights of the same rows. ``read(source)`` returns a
    checked ndarray in C order or csr_array. `targets` reads targets and weights that stay with the rows: its
    ``load(source, y, weights)`` checks them, ``survey(them)`` returns figures of them, ``rows(them, dtype,
    coding)`` codes them; the last part of a coding is None where all weights are 1.
    """

    def __init__(self, shards, read, n_columns, targets=None):
        self.shards, self.read, self.n_columns, self.targets = shards, read, n_columns, targets
        self.n_portions = len(shards)  # the shards are not with the program where it is asked

    def load(self, data):
        """Read a portion; one set of rows for each target, sharing X."""
        source, targets, weights, *offset = data
        X = self.read(source)
        if self.targets is None:
            return _RowPortion(X, vectors=[(y, weights, *offset) for y in targets])
        return _RowPortion(X, raw_targets=self.targets.load(source, targets, weights))

    def renew(self, state):
        """See `Summed`; blocks that are read in every pass go on with this program's memory."""
        state.X = renewed(state.X, self.read)
        return state

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
        """Rows, stored entries, sums of weights and a survey of the targets, reported once."""
        survey = () if state.raw_targets is None else self.targets.survey(state.raw_targets)
        sums = None
        if state.vectors is not None:
            weights = state.vectors[0][1]
            own = np.empty(0) if weights is None else weights.astype(state.X.dtype).astype(np.float64)
            n = state.X.shape[0]
            sums = (float(own.sum()), float(own @ own)) if len(own) else (float(n), float(n))
        return state.X.shape[0], _n_entries(state.X), sums, survey

    def weight_sums(self, number, state, target):
        """Sums of the weights and of their squares."""
        return 0.0, [(number, *self._rows(state, target).weight_sums)]

    def longest(self, number, state, target):
        """The largest and the mean squared norm of rows."""
        return 0.0, [(number, *self._rows(state, target).longest)]

    def column_moments(self, number, state, target):
        """The weight of the rows, and means and variances of the columns."""
        return 0.0, [(number, *self._rows(state, target).column_moments())]

    def take(self, number, state, target, wanted, edges):
        """Copy rows, of rising numbers in the whole matrix, in which portions begin and end at the edges."""
        first, last = edges[number : number + 2]
        here = slice(*np.searchsorted(wanted, (first, last)))
        part = self._rows(state, target).take(wanted[here] - first)
        return 0.0, [(number, part.X, part.y, part.weights, part.offset)]

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
        """Loss and gradient; keep the curvatures for the next request."""
        curvature = np.empty(self._rows(state, target).shape[0]) if keep else np.empty(0)
        sums = self._rows(state, target).gradient(loss, *self._split(w), curvature)
        if keep:
            state.kept = w, curvature
        return sums

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
        """Rows with a target; a remote target is coded when it is first needed."""
        number, *coding = target
        if state.vectors is None:
            targets, weights = self.targets.rows(state.raw_targets, state.X.dtype, *coding)
            state.vectors = [(y, weights) for y in targets]
        if isinstance(state.X, StreamedBlock):
            return make_rows(state.X.matrix(), *state.vectors[number])
        if state.rows is None:
            state.rows = [make_rows(state.X, *vectors) for vectors in state.vectors]
        return state.rows[number]

    def _split(self, w):
        return w[: self.n_columns], float(w[self.n_columns]) if len(w) > self.n_columns else 0.0


class _RowPortion:
    """Rows, pairs of targets and weights once these are known, and curvatures at the last point."""

    def __init__(self, X, vectors=None, raw_targets=None):
        self.X, self.vectors, self.raw_targets = X, vectors, raw_targets
        self.rows: Any = None  # with each of the targets, unless X is read in every pass
        self.kept: Any = None


def _n_entries(X):
    """Entries that a pass over rows reads."""
    if isinstance(X, StreamedBlock):
        return X.n_entries
    return X.size if isinstance(X, np.ndarray) else X.nnz


def surveys(passes):
    """Columns of the results of ``targets.survey`` over the portions, in their order."""
    return list(zip(*(survey for *_, survey in passes.session.reports), strict=True))


class RemoteRows:
    """All rows of a cluster, in the place of `DenseRows` or `SparseRows`.

    `passes`: over `RemotePortions`. `target`: its number in the portions. `coding`: see `RemotePortions`.
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
        """See `DenseRows`; a pass where weights are remote."""
        if self._plain:
            return float(self.shape[0]), float(self.shape[0])
        sums = self._weight_sums if len(self.target) == 1 else zip(*self._pieces("weight_sums"), strict=True)
        return tuple(map(sum, zip(*sums, strict=True)))

    @functools.cached_property
    def longest(self):
        """See `DenseRows`; a pass."""
        largest, means = map(np.array, self._pieces("longest"))
        return float(largest.max()), float(np.array(self._n_rows) @ means / self.shape[0])

    def column_scales(self, centre):
        """See `DenseRows`; a pass."""
        return merged_scales(*self._pieces("column_moments"), centre=centre)

    def request(self, what, *args):
        """Make a pass; return the sums of the numbers and of the arrays."""
        return self.passes.run((what, self.target, args))

    def take(self, rows):
        """A copy of some rows in this process, as `DenseRows` or `SparseRows`."""
        order = np.argsort(rows, kind="stable")
        if self._expected is not None and np.array_equal(rows, self._expected[0]):
            X, y, *others = _columns(self._expected[1].result())
        else:
            X, y, *others = self._pieces("take", rows[order], self._edges)
        self._expected = None
        dense = all(isinstance(part, np.ndarray) for part in X)
        sample = make_rows(
            np.concatenate(X) if dense else sparse.csr_array(sparse.vstack(X, format="csr")),
            np.concatenate(y),
            *(np.concatenate(parts) if any(map(len, parts)) else None for parts in others),
        )
        return sample if (np.diff(order) > 0).all() else sample.take(np.argsort(order))

    def expect(self, rows):
        """Begin to fetch rising rows for the next `take`, while other work goes on."""
        if self.passes.session.remote and self._is_full:
            self._expected = rows, self.passes.begin(("take", self.target, (rows, self._edges)))

    def furthest(self, d, d_intercept):
        """See `DenseRows`."""
        (largest,) = self._pieces("furthest", d, d_intercept)
        return max(largest)

    def rows_of_rare_columns(self, below, most):
        """See `SparseRows`; two passes where entries are missing."""
        if self._is_full:
            return np.empty(0, np.int64)
        rare = rare_columns(self.request("column_counts")[1], below, most)
        (numbers,) = self._pieces("rows_in", rare)
        return np.concatenate([rows + first for rows, first in zip(numbers, self._edges, strict=False)])

    @property
    def _is_full(self):
        return self.n_entries == self.shape[0] * self.shape[1]

    def _pieces(self, what, *args):
        return _columns(self.request(what, *args))


def _columns(sums):
    """Of a pass in which each portion answers for itself: columns of answers, in the order of portions."""
    return list(zip(*sorted(sums[1], key=lambda piece: piece[0]), strict=True))[1:]


class _Remote:
    """Replaces portions and threads of this process in both objectives."""

    rows: RemoteRows
    n_rows: int
    n_jobs: int | None
    n_passes: int

    @property
    def most_sampled(self):
        """See `LinearObjective`; here as many as fit into the coordinator's memory."""
        return min(self.n_rows // 2, _SAMPLE_ENTRIES * self.n_rows // max(1, self.rows.n_entries))

    @property
    def sample_threads(self):
        """See `LinearObjective`; here as many as wait for it on the cluster, and as there are."""
        if self.n_jobs is not None:
            return self.n_jobs
        return min(self.rows.passes.session.n_threads(), effective_n_jobs(-1))

    def bytes_sent(self):
        """Bytes sent over the network so far."""
        return self.rows.passes.session.bytes_sent

    def _cut(self, rows):
        return []

    def _request(self, what, *args):
        self.n_passes += 1
        return self.rows.request(what, *args)


class RemoteLinearObjective(_Remote, LinearObjective):
    """See `LinearObjective`; a Hessian is one pass, and another one where the curvatures were not kept."""

    def value_and_gradient(self, w, *, curvature=False):
        """See `LinearObjective`."""
        if self._known_at(w) and (self._curvature or not curvature):
            return self._known[1:]
        value, gradient = self._request("gradient", self.loss, w, curvature)
        self._curvature = curvature
        return self._complete(w, [(value, gradient[: self.n_parameters])])

    def _second_order(self, w, method, *args):
        self._curvatures(w)
        return self._scaled([self._request("second_order", method, self.loss, w, *args)[1]])

    def _hessian_parts(self, w, means):
        self._curvatures(w)
        return [self._request("second_order", "hessian", self.loss, w, means)[1]]


class RemoteMultinomialObjective(_Remote, MultinomialObjective):
    """See `MultinomialObjective`."""

    def value_and_gradient(self, w):
        """See `MultinomialObjective`."""
        if self._known_at(w):
            return self._known[1:]
        value, gradient = self._request("multinomial", self._padded(w), self.n_classes)
        return self._complete(w, [(value, self._unpadded(gradient))])

    def _product_parts(self, W, V):
        return [self._unpadded(self._request("multinomial_product", W, V, self.n_classes)[1])]

    def _diagonal_parts(self, W):
        return [self._unpadded(self._request("multinomial_diagonal", W, self.n_classes)[1])]

    def _gram_parts(self, method):
        return [self._request("gram", method)[1]]


_REMOTE: dict = {LinearObjective: RemoteLinearObjective, MultinomialObjective: RemoteMultinomialObjective}


def objective_over(rows, kind, *args, **options):
    """Make an objective over rows, wherever they are.

    `kind`: {LinearObjective, MultinomialObjective}. `*args`, `**options`: its other parameters.
    """
    return (_REMOTE[kind] if isinstance(rows, RemoteRows) else kind)(rows, *args, **options)
