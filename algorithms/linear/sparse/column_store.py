"""The columns that one shard owns, in blocks: in memory, or at a source that is read for every pass.

Columns that joined a working set, and those that may join it next, are kept of blocks that are read.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ...inputs.pieces import located, read_block
from ..scales import column_scales
from .columns import columns_from, columns_of
from .distributed import by_columns

MOST_ENTRIES = 256  # of the image of a column in which correlations are estimated
_SEED = 20  # of the sample that estimates correlations; any will do
_FEW = 1 << 21  # entries of columns that are copied at a time: 16 MB
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class ColumnSource:
    """A piece of X, its place in error messages, and its shape."""

    piece: Any
    where: str
    shape: tuple

    def read(self):
        """Return the checked columns: a Fortran-ordered ndarray or a CSC matrix."""
        with located(self.where):
            return by_columns(read_block(self.piece, self.shape))

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

    def take(self, columns):
        """See `DenseColumns.take`."""
        return self._columns().take(columns)


@dataclass
class ColumnBlock:
    """Some adjacent columns of a shard: the number of the first, within the shard, and the columns."""

    first: int
    columns: Any  # DenseColumns, SparseColumns or ReadColumns

    @property
    def last(self):
        """The number behind that of the last column."""
        return self.first + self.columns.shape[1]

    def opened(self):
        """Make a context in which the columns are read at most once."""
        if isinstance(self.columns, ReadColumns):
            return self.columns.held()
        return contextlib.nullcontext(self.columns)


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
    if not columns.is_sparse:
        sizes = np.abs(columns.X).max(axis=0).astype(np.float64)
        return columns.X / np.where(sizes > 0, sizes, 1.0)
    matrix = sparse.csc_array((columns.data, columns.indices, columns.indptr), shape=columns.shape)
    sizes = abs(matrix).max(axis=0).toarray().ravel().astype(np.float64)
    sizes = np.where(sizes > 0, sizes, 1.0)
    return matrix @ sparse.diags_array(1.0 / sizes)


class ColumnStore:
    """The columns of a shard, numbered from 0. `blocks`: list of ColumnBlock. `n_rows`: of X."""

    def __init__(self, blocks, n_rows):
        self.blocks, self.n_rows = blocks, n_rows
        self.reads = any(isinstance(block.columns, ReadColumns) for block in blocks)
        self.is_sparse = blocks[0].columns.is_sparse
        self.kept: list = []  # numbers and raw columns, of blocks that are read for each pass
        self.candidates: Any = None  # the same, of the last scores

    def renewed(self):
        """Make one of the same columns, and of the raw ones that were kept."""
        blocks = []
        for block in self.blocks:
            own = block.columns
            if isinstance(own, ReadColumns):
                own = ReadColumns(own._read, own.shape, own.is_sparse)
            blocks.append(ColumnBlock(block.first, own))
        other = ColumnStore(blocks, self.n_rows)
        other.kept = [*self.kept, *([] if self.candidates is None else [self.candidates])]
        return other

    @property
    def n_columns(self):
        """Columns of the shard."""
        return self.blocks[-1].last

    def raw(self, features, keep=True):
        """Yield numbers, columns and positions of rising features, of blocks or as they were kept."""
        for block in self.blocks:
            here = features[(features >= block.first) & (features < block.last)]
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
        together = columns_from(parts, self.n_rows)
        return columns_from([together.take(np.argsort(order))], self.n_rows)

    def images_of(self, images, ids):
        """Images of columns, of a few at a time; none if `images` is None."""
        if images is None:
            return np.empty((0, 0), np.float32)
        found, few = [np.empty((0, images.signs.shape[0]), np.float32)], max(1, _FEW // self.n_rows)
        for here, columns, positions in self.raw(ids, keep=False):
            for first in range(0, len(here), few):
                part = columns.take(positions[first : first + few])
                found.append(images(columns_from([part], self.n_rows)))
        return np.concatenate(found)
