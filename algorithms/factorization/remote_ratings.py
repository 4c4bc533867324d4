"""Ratings that stay where they are: Dask arrays and frames, Parquet files and files of ratings.

Workers count users, items and their ratings, and sort the ratings into the shards of least squares. This
process gets what a model has anyway, a number or two for each user and item, and a sample of at most a
million ratings to estimate penalties from. Without a cluster the same pieces are read into this process
(`read_here`).
"""

import dataclasses
import hashlib
import itertools
import operator
import os
from typing import Any, NamedTuple

import dask
import numpy as np

from ..._urls import is_url, matching_files
from ...datasets.parquet import ParquetTable, is_parquet, read_footer, read_part
from ...datasets.ratings import read_ratings
from ...errors import DataError, shortened
from ..inputs.arrow_columns import target_of
from ..inputs.pieces import delayed_blocks, is_array, is_dask, is_frame, located
from ..inputs.reduced import computed_at, reduced
from ..inputs.tables import FoundTable, engine_of
from .entries import (
    SAMPLE,
    Entries,
    SampledUsers,
    check_ids,
    check_rating_weights,
    check_values,
    find_ids,
    users_of_sample,
)
from .solvers.sides import cut_rows

_SAMPLE = SAMPLE  # ratings that come here


class RatingPiece(NamedTuple):
    """Some ratings: ids of users and of items, values, and weights or None."""

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    weights: Any


def is_elsewhere(X):
    """Whether ratings are to be read by pieces: from Dask, or from files."""
    return is_dask(X) or isinstance(X, (ParquetTable, str, os.PathLike)) or _are_names(X)


def _are_names(X):
    return isinstance(X, list) and len(X) > 0 and all(isinstance(path, (str, os.PathLike)) for path in X)


# Pieces ---------------------------------------------------------------------------------------------------


def pieces_of(model, X, y, sample_weight, engine):
    """Return delayed `RatingPiece`, one for each piece of the input."""
    if isinstance(X, ParquetTable) or is_parquet(X):
        made = _of_table(X, y, sample_weight, engine)
    elif is_dask(X):
        made = _of_dask(model, X, y, sample_weight)
    else:
        if y is not None or sample_weight is not None:
            raise DataError(
                f"X={shortened(X)} is read as names of files, which hold the ratings: leave y and "
                "sample_weight out, or pass an array of pairs"
            )
        made = [(_from_text, (path,), "") for path in _text_files(X)]
    checked = dask.delayed(_checked, pure=False)
    return [checked(dask.delayed(function, pure=False)(*args), where) for function, args, where in made]


def _text_files(X):
    found = []
    for path in X if isinstance(X, list) else [X]:
        path = path if is_url(path) else os.fspath(path)
        pattern = matching_files(path)
        if pattern is not None and not pattern:
            raise DataError(f"{shortened(path, 200)} matches no file; check the path")
        found += [path] if pattern is None else sorted(pattern)
    return found


def _of_table(X, y, sample_weight, engine):
    table = X if isinstance(X, ParquetTable) else ParquetTable(X)
    if table.categories or table.hashed:
        raise DataError("ratings have ids, neither categories nor hashed columns: leave both out")
    names = table.columns
    if names is None:
        there = list(read_footer(table.files()[0], ()).types)
        names = [_like(kind, there) for kind in ("user", "item")]
        names += [] if y is not None else [_like("rating", there)]
    if y is not None and len(names) == 2:
        names = [*names, y]
    if len(names) != 3 or not all(isinstance(name, str) for name in names):
        raise DataError(
            "Parquet files of ratings have columns of users, items and ratings: name them in this order, "
            f"ParquetTable(paths, columns=[...]); got {shortened(names)}"
        )
    found = FoundTable(dataclasses.replace(table, columns=names), engine, sample_weight=sample_weight)
    return [(_from_parquet, (part, names, sample_weight), part.where(0)) for part in found.parts]


def _like(kind, names):
    """The column of users, items or ratings, by its name."""
    same = [name for name in names if name.strip().lower().removesuffix("id").strip("_ ") == kind]
    if len(same) != 1:
        raise DataError(
            f"no column is named {kind}, {kind}_id or {kind}Id among {shortened(names)}, or several are: say "
            "which hold users, items and ratings, ParquetTable(paths, columns=[...])"
        )
    return same[0]


def _of_dask(model, X, y, sample_weight):
    from .reading import split_table

    if is_frame(X):
        if y is None:
            names = split_table(X._meta, None, type(model).__name__)[0].columns
            y = X[next(name for name in X.columns if name not in list(names))]
            X = X[list(names)]
        blocks = list(X.to_delayed())
    elif is_array(X) and X.ndim == 2 and X.shape[1] in (2, 3):
        if (y is None) != (X.shape[1] == 3):
            raise DataError(
                f"X has {X.shape[1]} columns: give users, items and ratings, or users and items "
                "with ratings in y"
            )
        blocks = delayed_blocks(X.rechunk({1: -1}), "X", "ratings")
    else:
        raise DataError(
            f"X is a {type(X).__name__}; of Dask's collections {type(model).__name__} takes frames of "
            "users, items and ratings, arrays of these three columns, and arrays of two with ratings in y"
        )
    more = [
        _beside(vector, name, X, len(blocks)) for name, vector in (("y", y), ("sample_weight", sample_weight))
    ]
    return [
        (_from_block, (block, *own), f"in partition {k} of X")
        for k, (block, *own) in enumerate(zip(blocks, *more, strict=True))
    ]


def _beside(vector, name, X, n_blocks):
    """The parts of a vector that belong to the blocks of X."""
    if vector is None:
        return [None] * n_blocks
    if not is_dask(vector):
        raise DataError(f"{name} must be of Dask as X is: dask.array.from_array({name}, chunks=X.chunks[0])")
    if is_array(vector) and is_array(X) and not np.isnan(vector.shape[0]) and not np.isnan(X.shape[0]):
        vector = vector.rechunk((X.chunks[0],))
    parts = delayed_blocks(vector, name)
    if len(parts) != n_blocks:
        raise DataError(f"{name} has {len(parts)} partitions, but X has {n_blocks}: cut both alike")
    return parts


def _from_parquet(part, names, weight):
    table = read_part(part, [*names, weight] if weight else names)
    users, items, values = (target_of(table, name, part.where) for name in names)
    return users, items, values, target_of(table, weight, part.where) if weight else None


def _from_text(path):
    found = read_ratings(path)
    cells = found.matrix.tocoo()
    return found.users[cells.row], found.items[cells.col], cells.data, None


def _from_block(block, y, weights):
    columns = (
        [np.asarray(block[name]) for name in block.columns] if hasattr(block, "columns") else list(block.T)
    )
    values = columns[2] if y is None else y
    return columns[0], columns[1], values, weights


def _checked(columns, where):
    users, items, values, weights = columns
    with located(where) if where else located("in a file of ratings"):
        users, items = check_ids(users, "user"), check_ids(items, "item")
        if not len(users):
            return RatingPiece(users, items, np.empty(0), None if weights is None else np.empty(0))
        values = check_values(np.asarray(values), len(users), "MatrixFactorization")
        if weights is None:
            return RatingPiece(users, items, values, None)
        weights = np.asarray(weights)
        if weights.any():  # other pieces may have some where this one has none
            weights = check_rating_weights(weights, len(values))
        columns = (users, items, values, weights)
        return RatingPiece(*(column[weights > 0] for column in columns))


def read_here(model, X, y, sample_weight):
    """Read all pieces into this process: ids of users and items, values and weights."""
    engine = engine_of(model)
    pieces = computed_at(dask.delayed(list)(pieces_of(model, X, y, sample_weight, engine)), engine)
    pieces = [piece for piece in pieces if len(piece.values)]
    _check_some(len(pieces), sample_weight)
    _check_kinds(pieces)
    weights = None if sample_weight is None else np.concatenate([piece.weights for piece in pieces])
    users, items, values = (np.concatenate([piece[k] for piece in pieces]) for k in range(3))
    return users, items, values, weights


def _check_some(n_ratings, sample_weight):
    if not n_ratings:
        weighted = "" if sample_weight is None else ", and sample_weight must be above zero for one"
        raise DataError(f"X holds no rating: at least one is needed{weighted}")


def _check_kinds(pieces):
    for what, k in (("users", 0), ("items", 1)):
        if len({piece[k].dtype.kind for piece in pieces}) > 1:
            raise DataError(
                f"ids of {what} are text in some pieces and whole numbers in others: make them alike"
            )


# Counts ---------------------------------------------------------------------------------------------------


class RatingSurvey(NamedTuple):
    """What this process knows of ratings: sorted ids and their counts, sums, extremes, and a hash."""

    users: np.ndarray
    user_counts: np.ndarray
    items: np.ndarray
    item_counts: np.ndarray
    weight: float
    sums: np.ndarray  # of weighted values, and of their absolute values
    bounds: np.ndarray
    n_ratings: int
    digest: str


def _surveyed(ratings, dtype):
    users, user_counts = np.unique(ratings.users, return_counts=True)
    items, item_counts = np.unique(ratings.items, return_counts=True)
    values = ratings.values.astype(dtype).astype(np.float64)
    weights = np.ones(len(values)) if ratings.weights is None else ratings.weights
    bounds = np.array([values.min(initial=np.inf), values.max(initial=-np.inf)])
    sums = np.array([weights @ values, weights @ np.abs(values)])
    digest = hashlib.blake2b(digest_size=16)
    for part in ratings:
        digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    return RatingSurvey(
        users, user_counts, items, item_counts, float(weights.sum()), sums, bounds, len(values),
        digest.hexdigest(),
    )  # fmt: skip


def _added(surveys):
    surveys = [survey for survey in surveys if survey.n_ratings] or surveys[:1]
    _check_kinds([(survey.users, survey.items) for survey in surveys])
    users, user_counts = _counted([(survey.users, survey.user_counts) for survey in surveys])
    items, item_counts = _counted([(survey.items, survey.item_counts) for survey in surveys])
    bounds = np.array([survey.bounds for survey in surveys])
    joined = hashlib.blake2b("".join(survey.digest for survey in surveys).encode(), digest_size=16)
    return RatingSurvey(
        users, user_counts, items, item_counts,
        sum(survey.weight for survey in surveys),
        sum(survey.sums for survey in surveys),
        np.array([bounds[:, 0].min(), bounds[:, 1].max()]),
        sum(survey.n_ratings for survey in surveys),
        joined.hexdigest(),
    )  # fmt: skip


def widened(survey, users, items):
    """A survey with more users and items, which have no rating."""
    counts = []
    for known, own, every in (
        (survey.users, survey.user_counts, users),
        (survey.items, survey.item_counts, items),
    ):
        counts.append(np.zeros(len(every), np.int64))
        counts[-1][find_ids(known, every)] = own
    return survey._replace(users=users, user_counts=counts[0], items=items, item_counts=counts[1])


def _counted(pairs):
    ids, number = np.unique(np.concatenate([ids for ids, _ in pairs]), return_inverse=True)
    counts = np.concatenate([counts for _, counts in pairs])
    return ids, np.bincount(number, counts, len(ids)).astype(np.int64)


# Shards ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _RatedRows:
    """What least squares asks of the ratings of one side."""

    counts: np.ndarray


class RemoteRatings:
    """Stands for `Entries` where least squares needs sizes and counts; makes its shards on the workers."""

    stays = True

    def __init__(self, pieces, survey, model, engine):
        self._pieces, self.survey, self.engine = pieces, survey, engine
        self.dtype, self._factor = np.dtype(model.dtype), model.alpha if model.implicit else None
        # What multiplies weights to a mean of 1, and counts into confidences.
        self._settings = self.dtype, survey.n_ratings / survey.weight, self._factor
        self.shape = len(survey.users), len(survey.items)
        self._ids = dask.delayed((survey.users, survey.items), pure=False)

    def __len__(self):
        return self.survey.n_ratings

    @property
    def counts(self):
        """Number of ratings of each user."""
        return self.survey.user_counts

    @property
    def rows_a_rating(self):
        """Users and items that have ratings, for each rating."""
        rated = [np.count_nonzero(counts) for counts in (self.counts, self.survey.item_counts)]
        return sum(rated) / len(self)

    def transposed(self):
        """The side of the items."""
        return _RatedRows(self.survey.item_counts)

    def average(self, function):
        """Weighted mean of the values, or of their absolute values."""
        scale = 1.0 if self._factor is None else self._factor
        return scale * float(self.survey.sums[int(function is np.abs)]) / self.survey.weight

    def value_range(self):
        """Least and greatest value."""
        return self.survey.bounds

    def sample(self):
        """All ratings of some users, drawn by a seed that is always the same: at most about a million."""
        mask = np.ones(self.shape[0], bool)
        if len(self) > _SAMPLE:
            mask = users_of_sample(self.counts, _SAMPLE)
        chosen, wanted = dask.delayed(_chosen, pure=False), dask.delayed(mask, pure=False)
        parts = [chosen(piece, self._ids, wanted, self._settings) for piece in self._pieces]
        parts = computed_at(dask.delayed(list)(parts), self.engine)
        entries = _entries(parts, (0, 0), self.shape, self.dtype, (self.survey.users, self.survey.items))
        return SampledUsers.of(entries, self.rows_a_rating)

    def shards(self, n_shards):
        """Delayed shards of least squares: see `sides.shards_of`."""
        ends = [np.concatenate([[0], np.cumsum(counts)]) for counts in (self.counts, self.survey.item_counts)]
        cuts = [cut_rows(end, n_shards) for end in ends]
        cut, part = dask.delayed(_cut, pure=False), dask.delayed(operator.getitem, pure=False)
        where = dask.delayed(cuts, pure=False)
        split = [cut(piece, self._ids, where, self._settings) for piece in self._pieces]
        build = dask.delayed(_shard, pure=False)
        shards = []
        for k in range(n_shards):
            of_users = [part(one, (0, k)) for one in split]
            of_items = [part(one, (1, k)) for one in split]
            ranges = [(cuts[side][k], cuts[side][k + 1]) for side in (0, 1)]
            shards.append(build(of_users, of_items, ranges, self.shape, self.dtype, self._ids))
        return shards

    def fingerprint(self):
        """What tells these ratings, in these pieces, from others."""
        return {"ratings": self.survey.digest, "weights": ""}

    def pattern(self):
        """The rated cells are not fetched."""


def _numbered(piece, ids, settings):
    """Rows, columns, values and weights (or one for all) of some ratings."""
    dtype, scale, factor = settings
    rows, columns = find_ids(piece.users, ids[0]), find_ids(piece.items, ids[1])
    if len(rows) and min(rows.min(), columns.min()) < 0:
        raise DataError("the ratings have changed since the fit began: leave files and blocks as they are")
    values, weights = piece.values, None if piece.weights is None else piece.weights * scale
    if factor is not None:
        values, weights = values if weights is None else values * weights, None
        values = values.astype(dtype) * dtype.type(factor)
    weights = np.ones(1, dtype) if weights is None else weights.astype(dtype)
    return rows.astype(np.int32), columns.astype(np.int32), values.astype(dtype), weights


def _chosen(piece, ids, mask, settings):
    rows, *others = _numbered(piece, ids, settings)
    kept = mask[rows] if len(rows) else np.zeros(0, bool)
    return rows[kept], *(part[kept] if len(part) == len(kept) else part for part in others)


def _cut(piece, ids, cuts, settings):
    """Ratings by shard of users, and by shard of items, as a dict by side and number."""
    rows, columns, values, weights = _numbered(piece, ids, settings)
    found = {}
    for side, own in enumerate((rows, columns)):
        shard = np.searchsorted(cuts[side], own, side="right") - 1
        order = np.argsort(shard, kind="stable")
        edges = np.searchsorted(shard[order], np.arange(len(cuts[side])))
        for k, (a, b) in enumerate(itertools.pairwise(edges)):
            at = order[a:b]
            found[side, k] = tuple(
                part[at] if len(part) == len(own) else part for part in (rows, columns, values, weights)
            )
    return found


def _shard(of_users, of_items, ranges, shape, dtype, ids):
    """The tables of a shard: its users by their items, and its items by their users."""
    (a, b), (c, d) = ranges
    users = _entries(of_users, (a, 0), (b - a, shape[1]), dtype, ids)
    swapped = [(columns, rows, values, weights) for rows, columns, values, weights in of_items]
    return [(users, (a, b)), (_entries(swapped, (c, 0), (d - c, shape[0]), dtype, None), (c, d))]


def _entries(parts, first, shape, dtype, ids):
    """Join ratings; `ids`, or None, name those of a cell that has two."""
    rows, columns, values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    weights = weights if len(weights) == len(rows) and (weights != 1).any() else np.ones(1, dtype)
    rows = rows - first[0]

    def place(at):
        if ids is None:
            return f"in row {rows[at]} and column {columns[at]}"
        user, item = ids[0][rows[at] + first[0]].item(), ids[1][columns[at]].item()
        return f"for user {shortened(user)} and item {shortened(item)}"

    return Entries.make(rows, columns, values, weights, shape, place)


def read_remote(model, X, y, sample_weight, engine):
    """Count ratings where they are; return delayed pieces and a `RatingSurvey`."""
    if model.solver not in ("auto", "als") or model.loss != "squared":
        raise DataError(
            f"MatrixFactorization by solver={model.solver!r} with loss={model.loss!r} needs the ratings in "
            "this process; on a cluster take solver='als' or 'auto' and loss='squared', or compute X before "
            "the fit"
        )
    if model.early_stopping:
        raise DataError(
            "early_stopping=True holds ratings out in this process: set it to False, or compute X "
            "before the fit"
        )
    pieces = pieces_of(model, X, y, sample_weight, engine)
    survey = reduced(_surveyed, _added, [(piece, np.dtype(model.dtype)) for piece in pieces], engine)
    _check_some(survey.n_ratings, sample_weight)
    if model.non_negative and not model.bias and not model.implicit and survey.bounds[0] < 0:
        raise DataError(
            f"the rating {survey.bounds[0]:g} is below zero, which non_negative=True without bias cannot "
            "reach; set bias=True or non_negative=False"
        )
    return pieces, survey
