"""Update of a model by new ratings, without the old ones."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from ...errors import DataError
from .entries import Entries, find_ids
from .solvers.als import FOLD_IN_SWEEPS, padded, solve_table
from .solvers.sides import Sides

_ROUNDS = 3  # of all users and all items


def widened(entries, given, sides, known, seen):
    """Bring new ratings and an old model to a common numbering of users and items; see `joined`.

    `given` are the ids of the users and items of `entries`; returns the renumbered entries, model, cells and
    ids.
    """
    sides, seen, ids = joined(given, sides, known, seen)
    rows, columns = (find_ids(new, every) for new, every in zip(given, ids, strict=True))
    order = Entries.make(
        rows[entries.rows], columns[entries.indices], entries.values, entries.weights, seen.shape, str
    )
    return order, sides, seen, ids


def joined(given, sides, known, seen):
    """Add new users and items to a model, with zeros; return the model, its cells and sorted ids.

    `given` are the ids to add, new or not, `known` those of the model, and `seen` the cells of the old
    ratings. Ids of numbers and of text do not mix.
    """
    ids = []
    for what, new, old in zip(("users", "items"), given, known, strict=True):
        if new.dtype.kind != old.dtype.kind:
            raise DataError(f"the ids of the model's {what} are {kind_of(old)}, but {kind_of(new)} are given")
        ids.append(np.union1d(old, new))
    shape = (len(ids[0]), len(ids[1]))
    places = [find_ids(old, every) for old, every in zip(known, ids, strict=True)]
    cells = seen.tocoo()
    seen = sparse.csr_array((cells.data, (places[0][cells.row], places[1][cells.col])), shape=shape)
    factors, bias = [], []
    for place, every, table, shift in zip(
        places,
        ids,
        (sides.user_factors, sides.item_factors),
        (sides.user_bias, sides.item_bias),
        strict=True,
    ):
        factors.append(np.zeros((len(every), table.shape[1]), table.dtype))
        bias.append(np.zeros(len(every), table.dtype))
        factors[-1][place], bias[-1][place] = table, shift
    return Sides.of(factors, bias, sides.mean, sides.weights), seen, tuple(ids)


def kind_of(ids):
    """Kind of ids, in words."""
    return "text" if ids.dtype.kind == "U" else "whole numbers"


def updated(entries, sides, seen, settings, confidence):
    """Move the rows that have new ratings; see `MatrixFactorization.partial_fit`.

    `seen` are the cells of the old ratings, of mean `confidence` for implicit feedback.
    """
    tables = entries, entries.transposed()
    patterns = seen, sparse.csr_array(seen.T)
    old = [padded(sides.user_factors), padded(sides.item_factors)]
    old_bias = [sides.user_bias, sides.item_bias]
    counts = [np.diff(pattern.indptr) for pattern in patterns]
    now, now_bias = [part.copy() for part in old], [part.copy() for part in old_bias]
    for _ in range(_ROUNDS):
        for side in (0, 1):
            rows = now[side], now_bias[side]
            if settings.implicit:
                others = old[1 - side], now[1 - side], counts[1 - side]
                begun = old[side], sides.weights[side] is not None
                _solve_counts(tables[side], patterns[side], confidence, begun, others, rows, settings, side)
            else:
                other = now[1 - side], now_bias[1 - side], counts[1 - side]
                own = old[side], old_bias[side], counts[side]
                _solve_ratings(tables[side], own, other, rows, sides.mean, settings, side)
    K = settings.n_components
    factors = [np.ascontiguousarray(part[:, :K]) for part in now]
    return Sides.of(factors, now_bias, sides.mean, sides.weights)


def _solve_ratings(table, own, other, rows, mean, settings, side):
    """Solve for the rows of a side that have new ratings, given the other side, in place.

    n old ratings weigh n C against the penalty of the factors, and n against that of the bias.
    """
    (factors, bias, counts), (others, other_bias, other_counts) = own, other
    dtype = factors.dtype
    spread = (others.T * (other_counts / max(other_counts.sum(), 1)).astype(dtype)) @ others
    shares = counts.astype(dtype)
    ridge, bias_ridge = settings.ridges(counts + table.counts, dtype, side)
    bias_ridge = bias_ridge + shares
    fixed = {"factors": others, "offsets": other_bias + dtype.type(mean), "gram": spread}
    pull = shares[:, None] * (factors @ spread) + ridge[:, None] * factors
    _solve(
        table, fixed, settings, rows, shares=shares, pull=pull, bias_pull=bias_ridge * bias, ridge=ridge,
        bias_ridge=bias_ridge,
    )  # fmt: skip


def _solve_counts(table, pattern, confidence, own, others, rows, settings, side):
    """The same for implicit feedback.

    With c the confidence of all old cells, the normal equations of a row were ``H o = b``, b = c sum_old q.
    The new ones are ``A x = H o + c sum_old (q - q_before) + sum_new v t q`` with

        A = Q'Q + (c - 1) sum_old q q' + sum_new v q q' - sum_(new, not old) q q' + ridge I,

    which leave a row as it is while nothing is new, and are exact if all old cells have the confidence c. If
    the penalty grows with the cells, the part of the new ones draws to 0, or with features, whose mean is not
    given, to the row as it was.
    """
    (own, has_features), (before, now, counts) = own, others
    dtype = own.dtype
    n_old = np.diff(pattern.indptr)
    cells = _both(table, pattern, confidence)

    def summed(coefficients, factors):
        layer = (coefficients.astype(dtype), cells.columns, cells.indptr)
        return sparse.csr_array(layer, shape=table.shape) @ factors

    begun = np.where(n_old[:, None] > 0, own, dtype.type(0))  # others had no equations
    ridge = settings.ridge(n_old + table.counts, dtype, side)
    drawn = ridge if has_features else settings.ridge(n_old, dtype, side)
    pull = begun @ (before[counts > 0].T @ before[counts > 0]) + drawn[:, None] * own
    pull += summed(cells.is_old * ((confidence - 1) * _products(cells, begun, before) - confidence), before)
    pull += summed(cells.is_old * confidence + cells.liked, now)
    present = now[counts + np.bincount(table.indices, minlength=len(now)) > 0]
    # As dislikes the kernel takes confidences alone: what is linear is in the pull.
    confidences = -cells.confidences.astype(dtype)
    union = Entries(cells.indptr, cells.columns, confidences, np.ones(1, dtype), table.shape)
    fixed = {"factors": now, "offsets": np.zeros(len(now), dtype), "gram": present.T @ present}
    _solve(union, fixed, settings, rows, pull=pull, ridge=ridge)


class _Cells(NamedTuple):
    """Old and new cells of the rows that have new ones."""

    indptr: np.ndarray
    columns: np.ndarray
    confidences: np.ndarray
    liked: np.ndarray
    """v t of the new ones."""
    is_old: np.ndarray


def _both(table, pattern, confidence):
    lengths = np.diff(pattern.indptr)
    held = np.repeat(table.counts > 0, lengths)
    n_old, (n_rows, n_columns) = int(held.sum()), table.shape
    rows = np.concatenate([np.repeat(np.arange(n_rows), lengths)[held], table.rows])
    columns = np.concatenate([pattern.indices[held], table.indices])
    keys, number = np.unique(rows.astype(np.int64) * n_columns + columns, return_inverse=True)
    values = np.concatenate([np.full(n_old, confidence), np.abs(table.values)])
    liked = np.concatenate([np.zeros(n_old), np.maximum(table.values, 0)])
    is_old = np.bincount(number[:n_old], minlength=len(keys)) > 0
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // n_columns, minlength=n_rows))])
    return _Cells(
        indptr.astype(np.int64),
        (keys % n_columns).astype(np.int32),
        np.bincount(number, weights=values, minlength=len(keys)),
        np.bincount(number, weights=liked, minlength=len(keys)),
        is_old,
    )


def _products(cells, rows, columns):
    products = np.empty(len(cells.columns))
    numbers = np.repeat(np.arange(len(rows)), np.diff(cells.indptr))
    for start in range(0, len(products), 65536):
        part = slice(start, start + 65536)
        products[part] = np.einsum("ij,ij->i", rows[numbers[part]], columns[cells.columns[part]])
    return products


def _solve(table, fixed, settings, rows, **more):
    sweeps = FOLD_IN_SWEEPS if settings.non_negative else 0
    solve_table(table, fixed, settings, *rows, sweeps=sweeps, n_jobs=settings.n_jobs, **more)
