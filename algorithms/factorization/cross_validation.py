"""Cross-validation of recommenders, by several measures at once."""

import re
import time
import warnings
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from ...errors import DataError, shortened
from .entries import cells_of, check_matrix, check_pairs, check_values
from .ranking import evaluate_ranking
from .reading import is_named, named_ids, split_table
from .recommender import Recommender
from .remote_ratings import is_elsewhere

_OF_RATINGS = {"rmse": lambda miss: np.sqrt(np.mean(miss**2)), "mae": lambda miss: np.mean(np.abs(miss))}
_OF_RANKINGS = ("precision", "recall", "map", "ndcg", "mrr", "coverage", "novelty")


class _Table(NamedTuple):
    """Ratings with the ids of their rows and columns, as `fit` takes them."""

    matrix: Any
    users: np.ndarray
    items: np.ndarray


def cross_validate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    metrics: Any = None,
    n_splits: int = 5,
    by: str = "user",
    random_state: Any = 0,
) -> dict[str, np.ndarray]:
    """Fit a recommender to all but one fold of the ratings, judge it by that fold, and so for all folds.

    Every rating is in one fold. A measure of a ranking leaves out what the users had in fit, and takes every
    value above zero that is held out as relevant.

    Parameters
    ----------
    model : MatrixFactorization, EASE, SLIM, ItemKNN or Popularity
        It is copied, and not changed.
    X, y
        Ratings in this process: a sparse matrix, `Ratings`, a DataFrame, or pairs and values.
    metrics : str or sequence of str, optional
        ``"rmse"`` and ``"mae"`` of ratings; of rankings ``"precision"``, ``"recall"``, ``"map"``, ``"ndcg"``,
        ``"mrr"``, ``"coverage"`` and ``"novelty"`` with the number of places, as in ``"ndcg@20"``; see
        `evaluate_ranking`. By default the RMSE for models of ratings, else ``("ndcg@10", "recall@10")``.
    n_splits : int, default=5
    by : {"user", "rating"}, default="user"
        Whether each user's ratings are divided among the folds as evenly as can be, or all ratings.
    random_state : int, RandomState or None, default=0
        Of the folds.

    Returns
    -------
    dict of str to ndarray of shape (n_splits,)
        ``"test_" + metric`` for each, ``"fit_time"`` and ``"score_time"`` in seconds, as scikit-learn has
        them.

    Raises
    ------
    DataError
        For other models, ratings on a cluster or in files, unknown measures, and folds without ratings.

    Examples
    --------
    >>> import stradask as sd
    >>> from stradask.datasets import make_ratings
    >>> counts, _ = make_ratings(300, 60, 3, density=0.2, implicit=True, random_state=0)
    >>> found = sd.cross_validate(sd.EASE(30), counts, metrics=["ndcg@10", "coverage@10"], n_splits=3)
    >>> found["test_ndcg@10"].shape
    (3,)
    """
    if not isinstance(model, Recommender):
        raise DataError(
            f"model must be a recommender, such as EASE(), got {shortened(model)}: for other estimators "
            "take sklearn.model_selection.cross_validate"
        )
    if is_elsewhere(X):
        raise DataError(
            f"X is a {type(X).__name__}, but folds are made of ratings in this process: read files by "
            "stradask.datasets.read_ratings or pandas.read_parquet, and compute Dask collections"
        )
    wanted = _wanted(metrics, model)
    if not isinstance(n_splits, Integral) or isinstance(n_splits, bool) or n_splits < 2:
        raise DataError(f"n_splits must be an integer of at least 2, got {shortened(n_splits)}")
    if by not in ("user", "rating"):
        raise DataError(f"by={shortened(by)}: give 'user' or 'rating'")
    table = _table(X, y, type(model).__name__)
    folds = _folds(table.matrix, n_splits, by, check_random_state(random_state))
    found: dict[str, list[float]] = {f"test_{name}": [] for name in wanted}
    found |= {"fit_time": [], "score_time": []}
    for fold in range(n_splits):
        train, test = (_part(table.matrix, chosen) for chosen in (folds != fold, folds == fold))
        began = time.perf_counter()
        fitted = clone(model).fit(table._replace(matrix=train))
        ended = time.perf_counter()
        for name, value in _judged(fitted, test, wanted).items():
            found[f"test_{name}"].append(value)
        found["fit_time"].append(ended - began)
        found["score_time"].append(time.perf_counter() - ended)
    return {name: np.array(values) for name, values in found.items()}


def _wanted(metrics, model):
    """Names of measures, each with its base and its number of places."""
    of_ratings = not getattr(model, "implicit", True)
    if metrics is None:
        metrics = ("rmse",) if of_ratings else ("ndcg@10", "recall@10")
    names = [metrics] if isinstance(metrics, str) else metrics
    if not isinstance(names, (list, tuple)) or not names:
        raise DataError(f"metrics must be names, such as 'ndcg@10', got {shortened(metrics)}")
    wanted: dict[str, tuple[str, int | None]] = {}
    for name in names:
        found = re.fullmatch(r"(\w+)@([1-9]\d{0,8})", name) if isinstance(name, str) else None
        if found is not None and found[1] in _OF_RANKINGS:
            wanted[name] = found[1], int(found[2])
        elif isinstance(name, str) and name in _OF_RATINGS:
            if not of_ratings:
                raise DataError(
                    f"metrics: {name} is of ratings, which {type(model).__name__} does not predict"
                )
            wanted[name] = name, None
        else:
            raise DataError(
                f"metrics: {shortened(name)} is unknown: take {', '.join(_OF_RATINGS)}, or one of "
                f"{', '.join(_OF_RANKINGS)} with the number of places, such as 'ndcg@10'"
            )
    return wanted


def _table(X, y, name):
    X, y = split_table(X, y, name)
    if is_named(X):
        return _Table(_sorted(check_matrix(X.matrix, name)), *named_ids(X))
    if sparse.issparse(X):
        if y is not None:
            raise DataError("y goes with pairs of ids; a sparse matrix holds the ratings itself")
        X = _sorted(check_matrix(X, name))
        return _Table(X, *(np.arange(n) for n in X.shape))
    users, items = check_pairs(X)
    values = check_values(y, len(users), name)
    users, rows = np.unique(users, return_inverse=True)
    items, columns = np.unique(items, return_inverse=True)
    matrix = sparse.coo_array((values, (rows, columns)), shape=(len(users), len(items)))
    return _Table(_sorted(matrix), users, items)


def _sorted(X):
    table = X.tocsr()
    if table.nnz < X.nnz or not table.has_canonical_format:
        table = table.copy()
        n_stored = X.nnz
        table.sum_duplicates()
        if table.nnz < n_stored:
            raise DataError(
                "there are several ratings of one item by one user; keep one of them, or add them up"
            )
    return table


def _folds(R, n_splits, by, rng):
    """The fold of each rating."""
    lengths = np.diff(R.indptr)
    if by == "user":
        users = np.repeat(np.arange(R.shape[0]), lengths)
        order = np.lexsort((rng.random_sample(R.nnz), users))
        folds = np.empty(R.nnz, np.int64)
        rank = np.arange(R.nnz) - R.indptr[:-1].astype(np.int64)[users]
        folds[order] = (rank + rng.randint(n_splits, size=R.shape[0])[users]) % n_splits
    else:
        folds = np.empty(R.nnz, np.int64)
        folds[rng.permutation(R.nnz)] = np.arange(R.nnz) % n_splits
    counts = np.bincount(folds, minlength=n_splits)
    if not counts.all():
        raise DataError(f"n_splits={n_splits} folds of {R.nnz} ratings leave one without any: take fewer")
    return folds


def _part(R, chosen):
    cells = R.tocoo()
    kept = cells.data[chosen], (cells.row[chosen], cells.col[chosen])
    return sparse.csr_array(kept, shape=R.shape)


def _judged(model, test, wanted):
    found = {}
    places = sorted({k for _, k in wanted.values() if k is not None})
    if places:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "users without ratings")  # all of theirs are in the fold
            ranked = evaluate_ranking(model, test, places)
        found = {name: ranked[name] for name, (_, k) in wanted.items() if k is not None}
    if len(found) < len(wanted):
        rows, columns, values = cells_of(test)
        misses = model._predicted(rows, columns) - values
        found |= {name: float(_OF_RATINGS[name](misses)) for name, (_, k) in wanted.items() if k is None}
    return found
