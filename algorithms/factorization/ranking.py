"""How good a ranking is: precision, recall, average precision, discounted gain and reciprocal rank at k."""

import re
import warnings
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..._typing import Matrix
from ...errors import DataError, shortened
from .entries import cells_of, check_matrix, find_ids
from .reading import is_named
from .remote_ratings import is_elsewhere

_BATCH = 4096  # users recommended to at a time
_UNKNOWN = re.compile(r"users without ratings, (\d+) of \d+,(.*)")  # what a batch says of some


def ranking_metrics(recommended: Any, relevant: Matrix, k: int = 10) -> dict[str, float]:
    r"""Judge ranked items against those that are relevant, as means over the users who have any.

    With h_j = 1 if the item on place j is relevant, r the number of relevant items and m = min(k, r):

    - ``precision`` is :math:`\sum_{j \le k} h_j / k`, also where fewer than k items are recommended;
    - ``recall`` is :math:`\sum_{j \le k} h_j / r`;
    - ``map`` is :math:`\frac{1}{m} \sum_{j \le k} h_j \cdot \frac{1}{j} \sum_{i \le j} h_i`;
    - ``ndcg`` is :math:`\sum_{j \le k} h_j / \log_2(j + 1)` over :math:`\sum_{j \le m} 1 / \log_2(j + 1)`;
    - ``mrr`` is one over the first place with a hit, 0 without.

    Parameters
    ----------
    recommended : array-like of int, shape (n_users, n_places)
        Columns of `relevant`, the best first; -1 for none. Places beyond k are not looked at.
    relevant : sparse matrix of shape (n_users, n_items)
        Every stored value above zero is relevant.
    k : int, default=10

    Returns
    -------
    dict of str to float
        ``precision``, ``recall``, ``map``, ``ndcg``, ``mrr``, and ``n_users``, the users it is the mean over.

    Raises
    ------
    DataError
        For other shapes, columns out of range, an item that is recommended twice, and if no user has a
        relevant item.

    References
    ----------
    Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 2002.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from stradask.algorithms.factorization.ranking import ranking_metrics
    >>> found = ranking_metrics([[2, 0]], csr_array([[1, 1, 0]]), k=2)
    >>> found["precision"], found["mrr"]
    (0.5, 0.5)
    """
    k = _check_k(k)
    rows, columns, shape = _relevant_cells(relevant)
    recommended = _check_recommended(recommended, shape, k)
    table = np.zeros(shape[0] + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=table[1:])
    keys = np.sort(rows * shape[1] + columns)
    counts = np.diff(table)
    users = np.flatnonzero(counts)
    hits = hits_of(recommended[users], users, keys, shape[1])
    means = {name: float(values.mean()) for name, values in measures(hits, counts[users], k).items()}
    return means | {"n_users": len(users)}


def evaluate_ranking(
    model: Any, held_out: Any, k: Any = 10, *, observed: Any = None, by_user: bool = False
) -> dict[str, Any]:
    r"""Recommend to users of a model, leaving out what they had in fit, and judge by what was held out.

    In addition to the measures of `ranking_metrics` there are, of the first k recommendations
    to the users with something held out,

    - ``coverage``, the share of all items that are recommended to someone;
    - ``novelty``, the mean of :math:`-\log_2 (n_i / n)` over what is recommended, with n_i the users of item
      i in fit (at least 1) and n all users: bits, 0 for an item that everybody has.

    Parameters
    ----------
    model : MatrixFactorization, EASE, SLIM, ItemKNN or Popularity
    held_out : sparse matrix of shape (n_users, n_items), or ratings in another form
        With the rows of ``model.user_ids_`` and the columns of ``model.item_ids_``, in their order; every
        stored value above zero is relevant. `stradask.rating_split` cuts off such a part. Or Ratings, a table
        of users, items and ratings, also of Dask, or names of files: as `fit` takes them, but read into this
        process. Of these, users and items that were not in fit are left out.
    k : int or sequence of int, default=10
        Places. Of several, names of measures have them at the end: ``"ndcg@20"``.
    observed : sparse matrix of shape (n_users, n_items), or ratings in another form, optional
        What the users had in fit, every stored entry, in place of what the model has: for a factorization of
        ratings that stayed on a cluster, or saved with ``training=False``, which have nothing. In the forms
        of `held_out`.
    by_user : bool, default=False
        Whether to return an array for each measure, one entry a user, instead of means; without coverage, and
        with ``user_ids``. Intervals of means come from these.

    Returns
    -------
    dict of str to float
        With ``n_users``, the users with something held out.

    Warns
    -----
    UserWarning
        If relevant cells were in fit: they count as misses.

    Raises
    ------
    DataError
        For another shape, a model that is not fitted or without what users had in fit, and if nothing is held
        out.

    References
    ----------
    Vargas, Castells, "Rank and relevance in novelty and diversity metrics for recommender systems", RecSys
    2011.

    Examples
    --------
    >>> from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
    >>> from stradask.algorithms.factorization.ranking import evaluate_ranking
    >>> from stradask.datasets import make_ratings
    >>> from stradask.datasets.split import rating_split
    >>> counts, _ = make_ratings(300, 60, 3, density=0.2, implicit=True, random_state=0)
    >>> observed, held_out = rating_split(counts)
    >>> mf = MatrixFactorization(4, implicit=True, random_state=0).fit(observed)
    >>> evaluate_ranking(mf, held_out)["ndcg"] > 0.2
    True
    >>> sorted(evaluate_ranking(mf, held_out, k=[5, 20]))[:4]
    ['coverage@20', 'coverage@5', 'map@20', 'map@5']
    """
    several = not isinstance(k, Integral) and np.ndim(k) == 1 and len(k) > 0
    places = [_check_k(one) for one in k] if several else [_check_k(k)]
    if not isinstance(by_user, (bool, np.bool_)):
        raise DataError(f"by_user must be True or False, got {shortened(by_user)}")
    _check_fitted(model)
    held_out, observed = _in_cells(model, held_out, "held_out"), _in_cells(model, observed)
    expected = (len(model.user_ids_), len(model.item_ids_))
    for name, table in (("held_out", held_out), ("observed", observed)):
        if sparse.issparse(table) and table.shape != expected:
            raise DataError(
                f"{name} has the shape {table.shape}, but the model has users and items {expected}"
            )
    rows, columns, shape = _relevant_cells(held_out, "held_out")
    if observed is None:
        seen = getattr(model, model._training)
        if seen is None:
            raise DataError(
                "the model does not have what users had in fit, as its ratings stayed on a cluster or it was "
                "saved with training=False: evaluate_ranking(model, held_out, observed=...) takes the "
                "ratings of the fit, as fit took them"
            )
    else:
        seen = observed = sparse.csr_array(check_matrix(observed, "observed", may_be_empty=True))
    _warn_of_seen(seen, rows, columns)
    users, numbers = np.unique(rows, return_inverse=True)
    found = _recommended(model, users, min(max(places), shape[1]), observed)
    keys = np.sort(numbers * shape[1] + columns)
    hits = hits_of(found, np.arange(len(users)), keys, shape[1])
    counts = np.bincount(numbers, minlength=len(users))
    of_items = model._item_counts() if observed is None else np.bincount(seen.indices, minlength=shape[1])
    popular = np.maximum(of_items, 1)
    bits = np.log2(max(len(model.user_ids_), 1)) - np.log2(popular)
    figures: dict[str, Any] = {}
    for one in places:
        end = f"@{one}" if several else ""
        first = found[:, :one]
        own = measures(hits[:, :one], counts, one)
        there = first >= 0
        own["novelty"] = (bits[first] * there).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        if not by_user:
            own["coverage"] = np.array([len(np.unique(first[there])) / shape[1]])
        figures |= {name + end: values if by_user else float(values.mean()) for name, values in own.items()}
    return figures | ({"user_ids": model.user_ids_[users]} if by_user else {"n_users": len(users)})


def _check_fitted(model):
    """Refuse what does not recommend, and models that are not fitted."""
    from .recommender import Recommender

    if not isinstance(model, Recommender):
        raise DataError(
            f"model must be MatrixFactorization, EASE, SLIM, ItemKNN or Popularity, got {shortened(model)}: "
            "lists of other origin are judged by ranking_metrics"
        )
    check_is_fitted(model)


def _in_cells(model, ratings, name=None):
    """A sparse matrix of ratings in any form of `fit`; what is none passes, to be refused."""
    known = is_named(ratings) or is_elsewhere(ratings) or hasattr(ratings, "columns")
    if sparse.issparse(ratings) or not known:
        return ratings
    rows, columns, values, _ = model._given_cells(ratings, None)
    there = (rows >= 0) & (columns >= 0)
    if name is not None and not there.any():
        raise DataError(
            f"{name}: none of its {len(there):,} ratings is of a user and an item of the fit: nothing "
            "can be judged by it"
        )
    shape = (len(model.user_ids_), len(model.item_ids_))
    return sparse.csr_array((values[there], (rows[there], columns[there])), shape=shape)


def _warn_of_seen(seen, rows, columns):
    """Warn of relevant cells that were in fit, which are never recommended."""
    ones = np.ones(len(seen.indices), np.int8)
    pattern = sparse.csr_array((ones, seen.indices, seen.indptr), shape=seen.shape)
    n_seen = int(pattern[rows, columns].sum(dtype=np.int64))
    if n_seen:
        warnings.warn(
            f"{n_seen:,} of {len(rows):,} relevant cells were in fit; recommendations leave these out, so "
            "they count as misses: hold out before the fit what is to judge it, for instance by rating_split",
            UserWarning,
            stacklevel=3,
        )


def _recommended(model, users, n, observed):
    """Columns that are recommended to users, by their numbers; -1 for none."""
    found = np.empty((len(users), n), np.int64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for start in range(0, len(users), _BATCH):
            batch = users[start : start + _BATCH]
            items, scores = _asked_of(model, batch, n, observed)
            columns = find_ids(items.ravel(), model.item_ids_).reshape(items.shape)
            found[start : start + _BATCH] = np.where(np.isneginf(scores), -1, columns)
    unknown: dict[str, int] = {}
    for warning in caught:
        same = _UNKNOWN.match(str(warning.message))
        if same:
            unknown[same[2]] = unknown.get(same[2], 0) + int(same[1])
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    for what, count in unknown.items():  # once for all batches
        message = f"users without ratings, {count} of {len(users)},{what}"
        warnings.warn(message, UserWarning, stacklevel=3)
    return found


def _asked_of(model, users, n, observed):
    """Recommend to users by their numbers, leaving out what the model has of them, or what is observed."""
    from .items.base import ChoiceModel

    if observed is None:
        return model.recommend(model.user_ids_[users], n)
    if isinstance(model, ChoiceModel):  # scores are of choices, and these are they
        return model.recommend(observed[users], n)
    return model.recommend(model.user_ids_[users], n, filter_seen=False, exclude=observed[users])


def _relevant_cells(relevant, name="relevant"):
    if sparse.issparse(relevant) and not relevant.nnz:
        raise DataError(f"{name} has no stored value: at least one must be above zero")
    relevant = check_matrix(relevant, name)
    rows, columns, values = cells_of(relevant)
    positive = values > 0
    if not positive.any():
        raise DataError("no user has a relevant item: at least one stored value must be above zero")
    return rows[positive].astype(np.int64), columns[positive].astype(np.int64), relevant.shape


def _check_k(k):
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise DataError(f"k must be an integer of at least 1, got {shortened(k)}")
    return int(k)


def _check_recommended(recommended, shape, k):
    """Return the first k places, checked."""
    found = np.asarray(recommended)
    if found.ndim != 2 or len(found) != shape[0] or found.dtype.kind not in "iu":
        raise DataError(
            f"recommended must be integers of shape ({shape[0]}, n_places), one row a user, got "
            f"{found.dtype} of shape {found.shape}"
        )
    found = found[:, :k].astype(np.int64)
    wrong = np.argwhere((found < -1) | (found >= shape[1]))
    if len(wrong):
        user, place = wrong[0]
        raise DataError(
            f"recommended holds {found[user, place]} in row {user}; columns are from 0 to {shape[1] - 1}, "
            "and -1 stands for none"
        )
    ordered = np.sort(found, axis=1)
    twice = np.argwhere((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0))
    if len(twice):
        user, place = twice[0]
        raise DataError(f"recommended holds {ordered[user, place]} twice in row {user}")
    return found


def hits_of(recommended, users, keys, n_items):
    """Tell which places hold a relevant item; `keys` are the sorted relevant cells."""
    wanted = users[:, None] * n_items + recommended
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return (keys[at] == wanted) & (recommended >= 0)


def measures(hits, counts, k):
    """Measures of each user; see `ranking_metrics`."""
    n_places = hits.shape[1]
    places = np.arange(1, n_places + 1)
    running = np.cumsum(hits, axis=1)
    most = np.minimum(k, counts)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.cumsum(discounts)[most - 1]
    first = np.where(hits.any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0)
    return {
        "precision": hits.sum(axis=1) / k,
        "recall": hits.sum(axis=1) / counts,
        "map": (hits * running / places).sum(axis=1) / most,
        "ndcg": hits @ discounts[:n_places] / ideal,
        "mrr": first,
    }
