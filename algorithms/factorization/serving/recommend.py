"""The best items of each user, and similar items."""

from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ...._html import table as html_table
from ....errors import DataError, shortened
from ....kernels.factorization.top import best_columns, merge_best
from ....scheduler.threads import run_tasks, single_threaded_blas
from ..entries import as_array

_SCORES = 4_000_000  # numbers that a batch of users may take
_BATCH = 1024  # users
_CHUNK = 1024  # items, of which users are done with most after the first
_PRUNED_FROM = 4096  # items; of fewer all are scored at once


class Recommendations(NamedTuple):
    """Items for each user, the best first.

    One row for a single id. There are n columns, or as many as there are items to choose from. A user with
    fewer that may be recommended has scores of -inf in the last ones, and items of -1 or the empty text.
    """

    items: np.ndarray
    """Ids, shape (n_users, n); (n,) for a single id."""
    scores: np.ndarray
    """Of the same shape."""

    def to_frame(self, users: Any = None) -> Any:
        """Make a pandas DataFrame of the columns user, rank (from 1), item and score, a row a recommendation.

        Parameters
        ----------
        users : id or array-like of ids, optional
            Of the rows, as they were given to `recommend`; by default their numbers.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        DataError
            For another number of users than there are rows.
        """
        import pandas as pd

        items, scores = np.atleast_2d(self.items), np.atleast_2d(self.scores)
        given = np.arange(len(items)) if users is None else np.atleast_1d(users)
        if given.shape != (len(items),):
            raise DataError(
                f"users has the shape {given.shape}, but there are {len(items)} rows: one id each"
            )
        rows, ranks = np.nonzero(scores > -np.inf)
        return pd.DataFrame(
            {"user": given[rows], "rank": ranks + 1, "item": items[rows, ranks], "score": scores[rows, ranks]}
        )

    def _repr_html_(self):
        """What a notebook shows: a row a user, at most the first 20."""
        items, scores = np.atleast_2d(self.items)[:20], np.atleast_2d(self.scores)[:20]
        rows = [
            [i, *(f"{item} ({score:.3g})" for item, score in zip(*of_user, strict=True) if score > -np.inf)]
            for i, of_user in enumerate(zip(items, scores, strict=True))
        ]
        rows = [[*row, *[""] * (items.shape[1] + 1 - len(row))] for row in rows]
        return html_table(["user", *range(1, items.shape[1] + 1)], rows, text=range(1, items.shape[1] + 1))


class Asked(NamedTuple):
    """Users to whom items are recommended."""

    score: Callable | None
    """``score(start, stop)`` scores the items to choose from for a range of users: a matrix of its own."""
    shift: np.ndarray | None
    """What is added to all scores of a user."""
    seen: csr_array
    """What they have rated, a row a user."""
    alike: bool | None
    """Whether users who have rated nothing have the same score for all items; None if something else is known
    of them."""
    factors: tuple | None = None
    """In place of `score`: factors of users and of the items to choose from, whose products are scores."""


def best_items(asked, n, left_out, candidates, n_items, n_jobs):
    """Find the n items of highest score for each user: columns (-1 for none) and scores.

    `left_out` are tables of users and all items whose stored cells are not recommended. `candidates` are item
    numbers, of equal scores the first is taken; None for all.
    """
    if candidates is not None:
        left_out, n_items = [table[:, candidates] for table in left_out], len(candidates)
    n_users = asked.seen.shape[0]
    columns, scores = np.empty((n_users, n), np.int64), []
    if asked.factors is not None and n_items >= _PRUNED_FROM:
        return _best_by_norm(asked, n, left_out, candidates, n_jobs)

    def work(start, stop):
        if asked.factors is None:
            predictions = asked.score(start, stop)
        else:
            predictions = asked.factors[0][start:stop] @ asked.factors[1].T
        for table in left_out:
            ends = table.indptr[start : stop + 1]
            rows = np.repeat(np.arange(stop - start), np.diff(ends))
            predictions[rows, table.indices[ends[0] : ends[-1]]] = -np.inf
        values = np.empty((stop - start, n), predictions.dtype)
        best_columns(predictions, columns[start:stop], values)
        return values if asked.shift is None else values + asked.shift[start:stop, None]

    size = max(1, min(_BATCH, _SCORES // max(1, n_items)))
    with single_threaded_blas():
        starts = range(0, max(n_users, 1), size)
        scores = run_tasks([(work, (a, min(a + size, n_users))) for a in starts], n_jobs)
    if candidates is not None:
        columns = np.append(candidates, -1)[columns]
    return columns, np.concatenate(scores)


def _best_by_norm(asked, n, left_out, candidates, n_jobs):
    """Find the best items from those of the largest norm down.

    A score is at most the product of the norms of user and item (Cauchy and Schwarz). So a user is done when
    the n-th best score so far is above that bound for all items that are left, and most users are soon.
    """
    users, items = asked.factors
    norms = np.sqrt(np.einsum("ij,ij->i", items, items, dtype=np.float64))
    order = np.argsort(-norms, kind="stable")
    items, norms, place = items[order], norms[order], np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    slack = 1 + 4 * items.shape[1] * float(np.finfo(items.dtype).eps)  # of products that are rounded
    reach = slack * np.sqrt(np.einsum("ij,ij->i", users, users, dtype=np.float64))
    columns, values = np.full((len(users), n), -1), np.full((len(users), n), -np.inf, items.dtype)

    def work(start, stop):
        cells = [_by_place(table, place, start, stop) for table in left_out]
        live = np.arange(stop - start)
        for a in range(0, len(items), _CHUNK):
            live = live[values[start + live, -1] <= reach[start + live] * norms[a]]
            if not len(live):
                break
            b = min(a + _CHUNK, len(items))
            scores = users[start + live] @ items[a:b].T
            at = np.full(stop - start, -1)
            at[live] = np.arange(len(live))
            for rows, places in cells:
                own = slice(*np.searchsorted(places, [a, b]))
                row, column = at[rows[own]], places[own] - a
                scores[row[row >= 0], column[row >= 0]] = -np.inf
            merge_best(scores, live, order[a:b], columns[start:stop], values[start:stop])

    with single_threaded_blas():
        starts = range(0, len(users), _BATCH)
        run_tasks([(work, (a, min(a + _BATCH, len(users)))) for a in starts], n_jobs)
    if candidates is not None:
        columns = np.append(candidates, -1)[columns]
    return columns, values if asked.shift is None else values + asked.shift[:, None]


def _by_place(table, place, start, stop):
    """Rows, from `start` on, and places of the cells of a range of rows, in the order of places."""
    ends = table.indptr[start : stop + 1]
    places = place[table.indices[ends[0] : ends[-1]]]
    order = np.argsort(places)
    return np.repeat(np.arange(stop - start), np.diff(ends))[order], places[order]


def check_no_ratings(users, n_items):
    """Refuse dense rows of ratings where ids of users are expected; return an array."""
    given = as_array(users, "users must be a vector of ids, or a sparse matrix")
    remedy = "give a vector of ids, or ratings of new users as a sparse matrix, scipy.sparse.csr_array"
    if given.ndim > 1:
        raise DataError(f"users has the shape {given.shape}: {remedy}(users)")
    # One row of ratings: ids are hardly ever floats, and then not as many as items, with repetitions.
    if given.dtype.kind == "f" and given.shape == (n_items,) and len(np.unique(given)) < n_items:
        raise DataError(f"users holds {n_items} floats, as many as there are items: {remedy}([users])")
    return given


def most_rated(counts, candidates):
    """Return the numbers of the items, or of the candidates among them, those with most ratings first."""
    popular = np.argsort(-counts, kind="stable")
    return popular if candidates is None else popular[np.isin(popular, candidates)]


def nearest(factors, chosen, n):
    """Find the n rows of highest cosine with each chosen row, itself left out: rows and cosines.

    A row of zeros has the cosine 0 with all.
    """
    norms = np.linalg.norm(factors, axis=1, keepdims=True)
    units = factors / np.where(norms == 0, 1, norms)
    rows, cosines = np.empty((len(chosen), n), np.int64), np.empty((len(chosen), n), factors.dtype)
    size = max(1, min(_BATCH, _SCORES // len(units)))
    with single_threaded_blas():
        for start in range(0, len(chosen), size):
            batch = chosen[start : start + size]
            products = units[batch] @ units.T
            products[np.arange(len(batch)), batch] = -np.inf
            best_columns(products, rows[start : start + size], cosines[start : start + size])
    return rows, cosines


def with_ids(found, ids):
    """Replace the numbers in a pair of columns and scores by ids; -1 becomes -1 or the empty text."""
    columns, scores = found
    none = "" if ids.dtype.kind == "U" else -1
    return Recommendations(np.where(columns < 0, np.array(none, ids.dtype), ids[columns]), scores)


def check_n(n):
    """Refuse a number of items below 1."""
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise DataError(f"n must be an integer of at least 1, got {shortened(n)}")


def at_most(n, ids):
    """The smaller of n and the number of ids, but at least 1."""
    return max(1, min(n, len(ids)))
