"""The best items of each user, and similar items."""

from typing import NamedTuple

import numpy as np

from ..._html import table as html_table
from ...errors import DataError
from ...kernels.factorization.top import best_columns
from ...scheduler.threads import run_tasks, single_threaded_blas
from .entries import as_array

_SCORES = 4_000_000  # numbers that a batch of users may take
_BATCH = 1024  # users


class Recommendations(NamedTuple):
    """Items for each user, the best first.

    There are n columns, or as many as there are items to choose from. A user with fewer that may be
    recommended has scores of -inf in the last ones, and items of -1 or the empty text.
    """

    items: np.ndarray
    """Ids, shape (n_users, n)."""
    scores: np.ndarray
    """Of the same shape."""

    def _repr_html_(self):
        """What a notebook shows: a row a user, at most the first 20."""
        items, scores = np.atleast_2d(self.items)[:20], np.atleast_2d(self.scores)[:20]
        rows = [
            [i, *(f"{item} ({score:.3g})" for item, score in zip(*of_user, strict=True) if score > -np.inf)]
            for i, of_user in enumerate(zip(items, scores, strict=True))
        ]
        rows = [[*row, *[""] * (items.shape[1] + 1 - len(row))] for row in rows]
        return html_table(["user", *range(1, items.shape[1] + 1)], rows, text=range(1, items.shape[1] + 1))


def best_items(factors, bias, sides, n, seen, candidates, n_jobs):
    """Find the n items of highest prediction for each user: columns (-1 for none) and scores.

    `seen` (csr_array of the users' rows, or None) is left out; `candidates` are sorted item numbers, or None
    for all.
    """
    items, item_bias = sides.item_factors, sides.item_bias
    if candidates is not None:
        items, item_bias = items[candidates], item_bias[candidates]
        seen = None if seen is None else seen[:, candidates]
    columns = np.empty((len(factors), n), np.int64)
    scores = np.empty((len(factors), n), factors.dtype)

    def work(start, stop):
        predictions = factors[start:stop] @ items.T
        predictions += item_bias
        predictions += (bias[start:stop] + factors.dtype.type(sides.mean))[:, None]
        if seen is not None:
            ends = seen.indptr[start : stop + 1]
            rows = np.repeat(np.arange(stop - start), np.diff(ends))
            predictions[rows, seen.indices[ends[0] : ends[-1]]] = -np.inf
        best_columns(predictions, columns[start:stop], scores[start:stop])

    size = max(1, min(_BATCH, _SCORES // max(1, len(items))))
    with single_threaded_blas():
        run_tasks([(work, (a, min(a + size, len(factors)))) for a in range(0, len(factors), size)], n_jobs)
    if candidates is not None:
        columns = np.append(candidates, -1)[columns]
    return columns, scores


def check_no_ratings(users, n_items):
    """Refuse dense rows of ratings where ids of users are expected."""
    given = as_array(users, "users must be a vector of ids, or a sparse matrix")
    remedy = "give a vector of ids, or ratings of new users as a sparse matrix, scipy.sparse.csr_array"
    if given.ndim > 1:
        raise DataError(f"users has the shape {given.shape}: {remedy}(users)")
    # One row of ratings: ids are hardly ever floats, and then not as many as items, with repetitions.
    if given.dtype.kind == "f" and given.shape == (n_items,) and len(np.unique(given)) < n_items:
        raise DataError(f"users holds {n_items} floats, as many as there are items: {remedy}([users])")


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
