"""The door of matrix factorization: ratings as a sparse matrix, or as pairs of ids and values."""

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from ...errors import DataError, in_brief
from ...scheduler.stores.store import fingerprint_csr
from ..inputs.indices import sound
from ..inputs.matrices import check_plain, check_text
from ..inputs.targets import check_targets

_INT32_MAX = np.iinfo(np.int32).max
SAMPLE = 1_000_000  # ratings from which penalties are estimated
_MOST = 1e15  # of a rating or weight: sums of squares must not overflow in single precision


@dataclass(frozen=True)
class Entries:
    """Ratings by row: sorted columns, no duplicates, stored zeros kept; kernels rely on it.

    `indptr` is int64, `indices` int32; `values` and `weights` are float32 or float64. `weights` are above 0,
    with mean 1 over the ratings of a fit, and may have one entry for all.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    shape: tuple

    @classmethod
    def make(cls, rows, columns, values, weights, shape, place):
        """Sort ratings by row and column; `place(i)` names rating i in the error if its cell has two."""
        numbers = np.arange(len(rows))
        table = sparse.coo_array((numbers, (rows, columns)), shape=shape).tocsr()  # sums what is there twice
        if table.nnz < len(rows):
            _refuse_repeated(place(_repeated(rows, columns)))
        table.sort_indices()
        weights = weights[table.data] if len(weights) > 1 else weights
        return cls(
            table.indptr.astype(np.int64),
            table.indices.astype(np.int32, copy=False),
            values[table.data],
            weights,
            shape,
        )

    @classmethod
    def of_matrix(cls, X, dtype, place):
        """Take the arrays of a checked matrix; sorted CSR with int32 indices is not copied."""
        n_stored = X.nnz
        table = X.tocsr()
        if table.nnz < n_stored:  # a COO with entries that scipy has added up
            at = _repeated(X.row, X.col)
            _refuse_repeated(place(X.row[at], X.col[at]))
        indptr, indices = table.indptr.astype(np.int64), np.asarray(table.indices, np.int32)
        values = table.data
        if not _ascending(indices, indptr).all():
            table = sparse.csr_array((np.arange(len(indices)), indices.copy(), indptr), shape=X.shape)
            table.sort_indices()
            indices, values = table.indices.astype(np.int32, copy=False), values[table.data]
            ascending = _ascending(indices, indptr)
            if not ascending.all():
                at = int(np.argmin(ascending))
                _refuse_repeated(place(np.searchsorted(indptr, at, side="right") - 1, indices[at]))
        # Kernels are compiled for arrays that can be written; others, though only read, are copied.
        values = values.astype(dtype, copy=False)
        indices, values = (np.require(part, requirements=["C", "A", "W"]) for part in (indices, values))
        return cls(indptr, indices, values, np.ones(1, dtype), X.shape)

    def __len__(self):
        return len(self.indices)

    @property
    def dtype(self):
        """Type of the values."""
        return self.values.dtype

    stays: ClassVar[bool] = False  # on a cluster

    def fingerprint(self):
        """What tells these ratings from others."""
        weights = hashlib.blake2b(np.ascontiguousarray(self.weights).data, digest_size=16).hexdigest()
        return {"ratings": fingerprint_csr(self.matrix(self.values)), "weights": weights}

    def sample(self, size=None):
        """Ratings that tell how others are: all, or those of some users, about `size` or a million."""
        size = SAMPLE if size is None else size
        if len(self) <= size:
            return self
        rows, counts = users_of_sample(self.counts, size), self.counts
        ends = np.concatenate([[0], np.cumsum(np.where(rows, counts, 0))])
        at = np.repeat(self.indptr[:-1][rows] - ends[:-1][rows], counts[rows]) + np.arange(ends[-1])
        weights = self.weights[at] if len(self.weights) > 1 else self.weights
        rated = np.count_nonzero(counts) + np.count_nonzero(np.bincount(self.indices))
        return SampledUsers(ends, self.indices[at], self.values[at], weights, self.shape, rated / len(self))

    @property
    def rows(self):
        """Row of each rating."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.indptr))

    @property
    def counts(self):
        """Number of ratings of each row."""
        return np.diff(self.indptr)

    def transposed(self):
        """The same ratings by column."""

        def laid(data):
            return self.matrix(data).tocsc()

        table = laid(self.values)
        weights = laid(self.weights).data if len(self.weights) > 1 else self.weights
        indices = table.indices.astype(np.int32, copy=False)
        return Entries(table.indptr.astype(np.int64), indices, table.data, weights, self.shape[::-1])

    def part(self, first, last):
        """A range of rows, sharing memory."""
        held = slice(self.indptr[first], self.indptr[last])
        indptr = self.indptr[first : last + 1] - self.indptr[first]
        weights = self.weights[held] if len(self.weights) > 1 else self.weights
        shape = (last - first, self.shape[1])
        return Entries(indptr, self.indices[held], self.values[held], weights, shape)

    def chosen(self, mask):
        """The ratings selected by a mask."""
        kept = np.concatenate([[0], np.cumsum(mask)])
        weights = self.weights[mask] if len(self.weights) > 1 else self.weights
        return Entries(kept[self.indptr], self.indices[mask], self.values[mask], weights, self.shape)

    def average(self, function):
        """Weighted mean of ``function(values)``, with values in float64."""
        total = weight = 0.0
        for start in range(0, len(self), 1 << 16):
            part = function(self.values[start : start + (1 << 16)].astype(np.float64))
            if len(self.weights) > 1:
                weights = self.weights[start : start + (1 << 16)].astype(np.float64)
                total, weight = total + float((weights * part).sum()), weight + float(weights.sum())
            else:
                total, weight = total + float(part.sum()), weight + len(part)
        return total / weight

    def value_range(self):
        """Return the least and the greatest value, in float64."""
        return np.array([self.values.min(), self.values.max()], np.float64)

    def pattern(self):
        """The rated cells, a csr_array of int8 with memory of its own."""
        ones = np.ones(len(self), np.int8)
        return self.matrix(ones).copy()

    def matrix(self, data):
        """A csr_array of these cells, sharing memory if possible."""
        # scipy wants index arrays of one type, and takes the wider one for both.
        wide = len(self) > _INT32_MAX
        indptr = self.indptr if wide else self.indptr.astype(np.int32)
        return sparse.csr_array((data, self.indices, indptr), shape=self.shape)


@dataclass(frozen=True)
class SampledUsers(Entries):
    """Ratings of some users, and how many users and items there are for each rating of all."""

    rows_a_rating: float = 0.0

    @classmethod
    def of(cls, entries, rows_a_rating):
        """Add the number to ratings."""
        return cls(**vars(entries), rows_a_rating=rows_a_rating)


def users_of_sample(counts, size):
    """Draw users who have about so many ratings together, always the same ones: a mask."""
    mask = np.zeros(len(counts), bool)
    order = np.random.default_rng(0).permutation(len(counts))
    mask[order[: max(1, np.searchsorted(np.cumsum(counts[order]), size))]] = True
    return mask


def _ascending(indices, indptr):
    """For each entry: whether the next one of its row, if there is one, has a larger column."""
    steps = indices[1:] > indices[:-1]
    steps[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True
    return steps


def _refuse_repeated(place):
    raise DataError(
        f"there are several ratings of one item by one user, the first {place}; keep one of them, or add "
        "them up"
    )


def _repeated(rows, columns):
    """Find the first rating, in order of cells, whose cell has another."""
    order = np.lexsort((columns, rows))
    same = (np.diff(rows[order]) == 0) & (np.diff(columns[order]) == 0)
    return order[np.argmax(same)]


def check_matrix(R, name, n_columns=None, *, may_be_empty=False):
    """Check a sparse matrix of ratings; return it in CSR, CSC or COO, sharing memory if possible.

    Every stored entry is a rating, a stored zero too. Magnitudes may be at most 1e15.
    """
    if not sparse.issparse(R):
        raise DataError(
            f"{name} takes ratings as a scipy sparse matrix, where a cell that is not stored is unknown, got "
            f"a {type(R).__name__}; try scipy.sparse.csr_array(R), or of triples "
            "fit(pandas.DataFrame(R, columns=['user', 'item', 'rating']))"
        )
    X = sound(R)
    if n_columns is not None and X.shape[1] != n_columns:
        raise DataError(
            f"R has {X.shape[1]} columns, but the model has {n_columns} items: give R the columns of "
            "item_ids_, in their order"
        )
    if max(X.shape) > _INT32_MAX:
        raise DataError(f"R has the shape {X.shape}; a side may have at most {_INT32_MAX} rows or columns")
    if X.data.dtype.kind not in "buif":
        raise DataError(f"R must hold real numbers, got {X.data.dtype}; try R.astype('float32')")

    def place(at):
        cells = X.tocoo(copy=False)
        return f"row {cells.row[at]}, column {cells.col[at]}"

    if X.nnz or not may_be_empty:
        _check_values("R", X.data, place)
    return X


def cells_of(X):
    """Rows, columns and float64 values of a checked matrix."""
    cells = X.tocoo(copy=False)
    return cells.row, cells.col, cells.data.astype(np.float64)


def check_pairs(pairs):
    """Check pairs of a user's and an item's id; return two vectors of int64 or str.

    Examples
    --------
    >>> from stradask.algorithms.factorization.entries import check_pairs
    >>> check_pairs([[7, 1], [9, 1]])
    (array([7, 9]), array([1, 1]))
    """
    check_plain("the array of pairs", pairs)
    given = as_array(pairs, "pairs must have two columns, the ids of users and of items")
    if given.ndim != 2 or given.shape[1] != 2:
        raise DataError(
            f"pairs must have two columns, the ids of users and of items, got the shape {given.shape}: give "
            "[[user, item]] for one pair, and table[['user', 'item']] of a wider table"
        )
    return _as_ids(given[:, 0], "user"), _as_ids(given[:, 1], "item")


def check_ids(ids, what):
    """Check a vector of ids of `what` ("user" or "item"); a single id is a vector of one."""
    check_plain(f"ids of {what}s", ids)
    given = np.atleast_1d(as_array(ids, f"ids of {what}s must be a vector"))
    if given.ndim != 1:
        raise DataError(f"ids of {what}s must be a vector, got the shape {given.shape}")
    return _as_ids(given, what)


def as_array(values, wanted):
    """Make an array; for rows of different lengths, which NumPy refuses, name what is `wanted`."""
    if isinstance(values, (list, tuple)):
        check_text("the list of ids", values)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"{wanted}, got rows of different lengths") from error


def _as_ids(ids, what):
    if ids.dtype.kind == "O":
        kinds = {type(value) for value in ids.tolist()}
        if kinds <= {str}:
            check_text(f"the vector of {what}s' ids", ids)
            return ids.astype(str)
        if not all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
            names = sorted(kind.__name__ for kind in kinds)
            raise DataError(f"ids of {what}s must be all whole numbers or all text, got {', '.join(names)}")
        ids = np.array(ids.tolist())
    if ids.dtype.kind == "U" or not len(ids):
        return ids
    if ids.dtype.kind not in "iuf":
        raise DataError(f"ids of {what}s must be whole numbers or text, got {ids.dtype}")
    wrong = np.flatnonzero(~((np.abs(ids.astype(np.float64)) < 2.0**63) & (ids == np.floor(ids))))
    if len(wrong):
        raise DataError(
            f"ids of {what}s must be whole numbers or text, got {ids[wrong[0]]} in row {wrong[0]}: drop it"
        )
    return ids.astype(np.int64)


def find_ids(ids, known):
    """Position of each id among the known ones (sorted), -1 for others."""
    if ids.dtype.kind != known.dtype.kind:
        return np.full(len(ids), -1)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[at] == ids, at, -1)


def check_values(y, n_ratings, name):
    """Check one value a rating; return float64."""
    values = check_targets(y, n_ratings, name, classes="leave y out, of choices without ratings")
    if values.ndim != 1:
        raise DataError(f"y must be a vector, one value a pair, got the shape {values.shape}")
    _check_values("y", values, lambda at: f"row {at}")
    return values


def check_rating_weights(sample_weight, n_ratings):
    """Check the weights of ratings, None or from 0 to 1e15 and not all 0; return float64 or None."""
    if sample_weight is None:
        return None
    check_plain("sample_weight", sample_weight)
    try:
        weights = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight must hold numbers: {in_brief(error)}") from error
    if weights.shape != (n_ratings,):
        raise DataError(
            f"sample_weight has the shape {weights.shape}; pass a vector of {n_ratings}, one entry a rating"
        )
    wrong = np.flatnonzero(~((weights >= 0) & (weights <= _MOST)))
    if len(wrong):
        raise DataError(
            f"sample_weight must be from 0 to {_MOST:g}, got {weights[wrong[0]]:g} for rating {wrong[0]}"
        )
    if not weights.any():
        raise DataError("sample_weight is zero for every rating: at least one must be above zero")
    return weights


def relative_weights(weights):
    """Divide weights above 0 by their mean; equal ones become a single 1 for all ratings.

    Examples
    --------
    >>> from stradask.algorithms.factorization.entries import relative_weights
    >>> relative_weights([10.0, 30.0]), relative_weights([7.0, 7.0])
    (array([0.5, 1.5]), array([1.]))
    """
    weights = np.asarray(weights)
    if (weights == weights[0]).all():
        return np.ones(1)
    return weights * (len(weights) / weights.sum())


def _check_values(name, values, place):
    if not len(values):
        raise DataError(f"{name} holds no rating: at least one is needed")
    for start in range(0, len(values), 1 << 16):
        wrong = np.flatnonzero(~(np.abs(values[start : start + (1 << 16)].astype(np.float64)) <= _MOST))
        if len(wrong):
            at = start + wrong[0]
            raise DataError(
                f"{name} holds {values[at]:g} at {place(at)}; a rating must be finite, of at most {_MOST:g}: "
                "leave out what is unknown, and scale what is larger"
            )
