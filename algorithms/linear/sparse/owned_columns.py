"""The columns that one shard owns: those that are worked on, their coefficients, and candidates to join.

The state of a shard of `scheduled_columns`. Columns lie in blocks, in memory or at a source that is read for
every pass over all columns. Those that are worked on are copied (see `copies`), so that a pass is needed for
scores alone.
"""

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ...inputs.pieces import located, read_block
from .columns import columns_from, columns_of
from .distributed import by_columns
from .duality import limit
from .fitting import column_scales
from .program import Scores

MOST_ENTRIES = 256  # of the image of a column in which correlations are estimated
_SEED = 20
_MOST_SOLVES, _FINER = 6, 0.01
_FEW = 1 << 21  # entries of columns that are copied at a time: 16 MB
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Lazy:
    """A Dask array of one block that a worker is to compute itself, each time that it needs it."""

    block: Any


@dataclass(frozen=True)
class ColumnSource:
    """A piece of X, its place in error messages, and its shape."""

    piece: Any
    where: str
    shape: tuple

    def read(self):
        """Return the checked columns: a Fortran-ordered ndarray or a CSC matrix."""
        piece = self.piece.block if isinstance(self.piece, Lazy) else self.piece
        with located(self.where):
            return by_columns(read_block(piece, self.shape))

    def scales(self, weights, centre):
        """Standard deviations of the columns; see `column_scales`."""
        return column_scales(self.read(), weights, centre=centre)


class ReadColumns:
    """Columns that are read when they are needed, and forgotten after each pass.

    `read`: returns a Fortran-ordered ndarray or a CSC matrix.
    """

    def __init__(self, read, shape, is_sparse):
        self._read, self.shape, self.is_sparse = read, shape, is_sparse
        self._open: Any = None

    @contextlib.contextmanager
    def held(self):
        """Keep what is read until the end of the block."""
        try:
            yield self
        finally:
            self._open = None

    def _columns(self):
        if self._open is None:
            self._open = columns_of(self._read())
        return self._open

    def dot(self, columns, V):
        """See `DenseColumns.dot`; nothing is read for no columns."""
        return self._columns().dot(columns, V) if len(columns) else np.empty((len(V), 0))

    def norms(self):
        """See `DenseColumns.norms`."""
        return self._columns().norms()

    def take(self, columns):
        """See `DenseColumns.take`."""
        return self._columns().take(columns)


@dataclass
class ColumnBlock:
    """Some adjacent columns of a shard: the number of the first, within the shard, and their scores."""

    first: int
    scores: Scores

    @property
    def columns(self):
        """A `DenseColumns`, `SparseColumns` or `ReadColumns`."""
        return self.scores.columns

    def opened(self):
        """Make a context in which the columns are read at most once."""
        return self.columns.held() if isinstance(self.columns, ReadColumns) else contextlib.nullcontext()


@dataclass(frozen=True)
class Images:
    """Vectors of few entries whose products are about the correlations of columns.

    A column is centred, weighted and divided by its norm; each of its entries is added to one of the few
    numbers, with a random sign (Charikar, Chen, Farach-Colton, "Finding frequent items in data streams",
    2002). The products have errors of 1 over the root of their number (standard deviation). Where X
    has no more rows than that, the image is the column itself, and the products are exact.
    """

    signs: Any  # CSR (entries, n_rows)
    weights: np.ndarray
    centre: bool

    @classmethod
    def of(cls, weights, centre, most=MOST_ENTRIES):
        """Make those of `weights` (float64, n_rows), of `most` entries; the same on all workers."""
        n_rows = len(weights)
        if n_rows <= most:
            signs = sparse.eye_array(n_rows, format="csr")
        else:
            rng = np.random.default_rng(_SEED)
            rows = rng.integers(most, size=n_rows)
            values = rng.choice([-1.0, 1.0], n_rows)
            places = rows, np.arange(n_rows)
            signs = sparse.csr_array((values, places), shape=(most, n_rows))
        return cls(signs @ sparse.diags_array(np.sqrt(weights)), weights, centre)

    def __call__(self, columns):
        """Images of all of some columns: float32 (m, entries)."""
        X = _matrix(columns)
        squares = (X.multiply(X).T if sparse.issparse(X) else np.square(X).T) @ self.weights
        found = self.signs @ X
        found = found.toarray() if sparse.issparse(found) else found
        if self.centre:
            means = X.T @ self.weights / self.weights.sum()
            found -= np.outer(self.signs.sum(axis=1), means)
            squares = squares - self.weights.sum() * means**2
        norms = np.sqrt(np.maximum(squares, 0.0))
        return (found / np.where(norms > 0, norms, 1.0)).T.astype(np.float32)


def _matrix(columns):
    """The columns as one float64 matrix, each brought to values of at most 1: squares stay finite."""
    sizes = columns.largest(np.arange(columns.shape[1]))
    sizes = np.where(sizes > 0, sizes, 1.0)
    if not columns.is_sparse:
        return columns.X / sizes
    matrix = sparse.csc_array((columns.data, columns.indices, columns.indptr), shape=columns.shape)
    return matrix @ sparse.diags_array(1.0 / sizes)


class OwnedColumns:
    """One shard's columns.

    `blocks`: list of ColumnBlock. `n_rows`: of X. `loss`: makes an empty `SquaredSubproblem`. `penalty`: of
    these columns, numbered from 0. `images`: None where nobody asks for correlations.
    """

    def __init__(self, blocks, loss, penalty, images):
        self.blocks, self.loss, self.penalty, self.images = blocks, loss, penalty, images
        self.sub = loss()
        self.sorted = _NONE  # positions in W by rising number
        self.kept: list = []  # numbers and raw columns, of blocks that are read for each pass
        self.candidates: Any = None  # the same, of the last scores
        self.coef = np.empty(0)  # of the copies, as they were when the residual was published

    def renewed(self):
        """Make of the same blocks, and raw columns, what they were at first."""
        blocks = [
            replace(block, scores=Scores(block.columns, block.scores.factors, block.scores.positive))
            for block in self.blocks
        ]
        for block in blocks:
            if isinstance(block.columns, ReadColumns):
                own = block.columns
                block.scores.columns = ReadColumns(own._read, own.shape, own.is_sparse)
        other = OwnedColumns(blocks, self.loss, self.penalty, self.images)
        other.kept = [*self.kept, *([] if self.candidates is None else [self.candidates])]
        return other

    @property
    def n_columns(self):
        """Columns of the shard."""
        return sum(block.columns.shape[1] for block in self.blocks)

    # What is published --------------------------------------------------------------------------------

    def take(self, features, coef):
        """Take coefficients (of X) of the rising `features`, which join the others."""
        missing = np.setdiff1d(features, self.sub.features, assume_unique=True)
        if len(missing):
            self.admit(missing)
        if len(self.sub.features):
            values = np.zeros(len(self.sub.features))
            values[np.searchsorted(self.sub.features[self.sorted], features)] = coef
            own = np.empty(len(values))
            own[self.sorted] = values
            self.coef = self.sub.of_copies(own)

    def admit(self, features):
        """Let columns join; `features` rise."""
        before = len(self.sub.features)
        for ids, columns, positions in self._raw(features):
            self.sub.grow(ids, columns, positions, self.penalty)
        self.sorted = np.argsort(self.sub.features)
        self.coef = np.append(self.coef, np.zeros(len(self.sub.features) - before))

    def _raw(self, features, keep=True):
        """Numbers, columns and positions of features: where they lie, or as they were kept when read."""
        for block in self.blocks:
            here = features[(features >= block.first) & (features < block.first + block.columns.shape[1])]
            if not len(here):
                continue
            if not isinstance(block.columns, ReadColumns):
                yield here, block.columns, here - block.first
                continue
            raw = self._kept(here)
            if raw is None:
                with block.opened() as columns:
                    raw = columns_from([columns.take(here - block.first)], columns.shape[0])
            if keep:
                self.kept.append((here, raw))
            yield here, raw, np.arange(len(here))

    def _kept(self, features):
        """Columns that were kept, side by side; None if some were not."""
        sources = [*self.kept, *([] if self.candidates is None else [self.candidates])]
        parts: list = []
        found: list = []
        for ids, columns in sources:
            here = np.flatnonzero(np.isin(ids, features) & ~np.isin(ids, np.concatenate([_NONE, *found])))
            if len(here):
                parts.append(columns.take(here))
                found.append(ids[here])
        order = np.concatenate([_NONE, *found])
        if len(order) < len(features):
            return None
        n_rows = self.sub.n_rows
        together = columns_from(parts, n_rows)
        return columns_from([together.take(np.argsort(order))], n_rows)

    # What is asked ------------------------------------------------------------------------------------

    def fit(self):
        """The part of the fit that is theirs; further as `solve`."""
        if self.sub.is_empty:
            return self._fit(), _NONE, np.empty(0), np.empty((3, 0))
        self.sub.b = self.coef.copy()
        return self._fit(), *self._model()

    def _fit(self):
        if self.sub.is_empty:
            return np.empty(0)
        out, support = np.zeros(self.sub.n_rows), np.flatnonzero(self.coef)
        self.sub.copies.add(support, self.coef[support], out)
        return out

    def _model(self):
        """W in rising order, its coefficients (of X), and their factors of the two penalties and means."""
        sub, order = self.sub, self.sorted
        factors = self.penalty.with_strength(1.0).thresholds(sub.features)
        means = sub.copies.means / sub.copies.scales
        terms = np.array([factors, self.penalty.ridges(sub.features), means])
        return sub.features[order], sub.coef[order], terms[:, order]

    def score(self, request):
        """Find the columns outside W that violate optimality most, and what W allows the dual point.

        Returns the largest score, numbers and scores of the candidates, their images, the limit, and the part
        of the fit that is theirs, without rounding errors of many rounds.
        """
        rho, threshold = request["rho"], request["threshold"]
        v = (rho * self.sub.roots if len(self.sub.roots) else rho)[None]
        wanted = {"v": v, "threshold": threshold, "count": request["count"]}
        working, bound = self.sub.features[self.sorted], 0.0
        ids, scores, raw = _NONE, np.empty(0), None
        for block in self.blocks:
            last = block.first + block.columns.shape[1]
            inside = working[np.searchsorted(working, block.first) : np.searchsorted(working, last)]
            with block.opened():
                most, new, their_scores = block.scores.find(wanted, inside - block.first)
                order = np.argsort(new)
                bound, new, their_scores = max(bound, most), new[order], their_scores[order]
                parts = [block.columns.take(new)] if self._reads else []
            ids, scores = np.append(ids, new + block.first), np.append(scores, their_scores)
            best = np.sort(np.argsort(-scores, kind="stable")[: request["count"]])
            ids, scores = ids[best], scores[best]
            if parts:
                raw = columns_from([*([raw] if raw else []), *parts], self.sub.n_rows).take(best)
        if self._reads:
            self.candidates = None if raw is None else (ids, columns_from([raw], self.sub.n_rows))
        return bound, ids, scores, self._images(ids), self._limit(request), self._fit()

    @property
    def _reads(self):
        return any(isinstance(block.columns, ReadColumns) for block in self.blocks)

    def _images(self, ids):
        """Images of candidates, of a few at a time."""
        if self.images is None:
            return np.empty((0, 0), np.float32)
        found, few = [np.empty((0, self.images.signs.shape[0]), np.float32)], max(1, _FEW // self.sub.n_rows)
        for here, columns, positions in self._raw(ids, keep=False):
            for first in range(0, len(here), few):
                part = columns.take(positions[first : first + few])
                found.append(self.images(columns_from([part], self.sub.n_rows)))
        return np.concatenate(found)

    def _limit(self, request):
        """Largest multiple of the residual that is a dual point, as far as W says."""
        sub = self.sub
        if sub.is_empty:
            return np.inf
        sub.surround(self.coef.copy(), request["rho"])
        l1, l2, positive = sub.terms(self.penalty.with_strength(request["strength"]))
        slopes = sub.exact_slopes() - l2 * sub.b
        return limit(l1, np.maximum(slopes, 0.0) if positive else slopes)

    def solve(self, request, new):
        """Let new columns join and solve the problem on W for the residual of the whole model.

        Returns the change of the fit; W in rising order; its coefficients (of X); their factors of the two
        penalties and means; the limit before; and the number of coordinates visited.
        """
        if len(new):
            self.admit(new)
        sub = self.sub
        if sub.is_empty:
            return np.empty(0), _NONE, np.empty(0), np.empty((3, 0)), np.inf, 0
        most, before = self._limit(request), sub.updates
        penalty = self.penalty.with_strength(request["strength"])
        lack = self._lack(penalty, request["y_r"])
        wanted = max(request["eps"], request["part"] * lack)
        eps = sub.gap(penalty, 0.0)[1]
        for _ in range(_MOST_SOLVES):
            if lack <= wanted or not eps > 0:
                break
            eps *= _FINER
            reached = sub.solve(penalty, eps)
            lack = self._lack(penalty, request["y_r"])
            if not reached:
                break
        return request["rho"] - sub.rho, *self._model(), most, sub.updates - before

    def _lack(self, penalty, y_r):
        """The columns' part of the gap of the whole model, whose ``y . r`` is `y_r`.

        The gap of their own problem is of second order in what the slopes lack, where the columns explain
        little of y.
        """
        sub = self.sub
        l1, l2, positive = sub.terms(penalty)
        slopes = sub.exact_slopes() - l2 * sub.b
        share = min(limit(l1, np.maximum(slopes, 0.0) if positive else slopes), 1.0)
        return (1.0 - share) * abs(y_r) + float(l1 @ np.abs(sub.b) - slopes @ sub.b)


@dataclass
class ColumnShard:
    """State of a shard: the number of its first column, its columns, and what is asked of them."""

    first: int
    owned: OwnedColumns
    request: Any = None
