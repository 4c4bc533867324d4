"""Base of the models of items: input, scores, explanations, similar items."""

import itertools
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Engine, Matrix, Vector
from ....errors import DataError, shortened
from ....kernels.factorization.item_products import dense_scores, sparse_scores
from ....kernels.factorization.top import best_columns
from ....scheduler.threads import effective_n_jobs
from ..entries import check_matrix, check_pairs
from ..reading import matrix_entries, read_ratings
from ..recommender import Recommender
from ..serving.recommend import Asked, Recommendations, at_most, check_n, with_ids

_BATCH = 256  # users whose scores of all items are held at a time, by a thread

PARAMETERS = """
    binary : bool, default=True
        Whether every value above zero counts as 1. False takes the values as they are."""
ATTRIBUTES = """
    user_ids_, item_ids_ : ndarray
        Sorted id of each row and column of the table: their numbers for a matrix, or what the pairs held.
    interactions_ : csr_array of float32, shape (n_users, n_items), or None
        What users have chosen, as it enters the scores; a stored zero has been seen and counts for nothing.
        None after ``save(path, training=False)``.
    item_counts_ : ndarray of shape (n_items,)
        Users of each item."""


class ChoiceModel(Recommender):
    """Base of models of users' choices: ``fit`` sets `interactions_` and calls ``_learn``."""

    implicit: ClassVar[bool] = True  # how `read_ratings` and `score` take values
    alpha: ClassVar[float] = 1.0
    dtype: ClassVar[str] = "float32"
    engine: Engine = "local"
    binary: bool
    interactions_: sparse.csr_array | None
    item_counts_: np.ndarray

    def fit(self, X: Matrix, y: Vector | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : sparse matrix of shape (n_users, n_items), Ratings, DataFrame, or array-like of (n_choices, 2)
            Choices, of which every stored entry is one: counts or ratings, not negative; with their ids if
            they come from `stradask.datasets.read_ratings`. Or a table of three columns, the ids of users
            and of items, whole numbers or text, and values; or pairs of ids, with values in `y`.
            Also a Dask frame or array of such columns, and names of files for `read_ratings` or of Parquet
            files: they are read into this process.
        y : array-like of shape (n_choices,), optional

        Returns
        -------
        self

        Raises
        ------
        DataError
            For a dense matrix, negative values, several values in one cell, and the like.
        """
        self._validate_params()
        effective_n_jobs(self.n_jobs)  # refuses 0
        with self._draft() as draft:
            entries, (draft.user_ids_, draft.item_ids_), _ = read_ratings(draft, X, y, None)
            draft.interactions_ = draft._values(entries, draft.user_ids_)
            present = draft.interactions_.indices[draft.interactions_.data > 0]
            if not len(present):
                raise DataError("no value of X is above zero: no user has chosen an item")
            draft.item_counts_ = np.bincount(present, minlength=len(draft.item_ids_))
            draft._learn(_without_zeros(draft.interactions_))
        return self

    _training = "interactions_"

    def _learn(self, X):
        """Learn from choices, a CSR table of values above zero."""
        raise NotImplementedError

    def _values(self, entries, users):
        """A table of values as they enter the scores; `users` name its rows."""
        negative = np.flatnonzero(entries.values < 0)
        if len(negative):
            at = negative[0]
            user = users[int(np.searchsorted(entries.indptr, at, side="right")) - 1].item()
            item = self.item_ids_[entries.indices[at]].item()
            raise DataError(
                f"X holds {entries.values[at]:g} for user {shortened(user)} and item {shortened(item)}, but "
                f"{type(self).__name__} knows no dislikes: leave out what is below zero"
            )
        values = (entries.values > 0).astype(np.float32) if self.binary else entries.values.copy()
        return entries.matrix(values).copy()

    def _given(self, users):
        """Rows of choices of users: ids of `fit`, or a matrix of new ones."""
        if sparse.issparse(users):
            X = check_matrix(users, type(self).__name__, len(self.item_ids_), may_be_empty=True)
            users = np.arange(X.shape[0])
            return self._values(matrix_entries(self, X, users, self.item_ids_), users)
        rows = self._known(users, "user")
        if self.interactions_ is None:
            raise DataError(
                "the model was saved without its training data: give the choices of the users as a sparse "
                f"matrix of {len(self.item_ids_)} columns in place of their ids"
            )
        return self.interactions_[rows]

    def _scores(self, choices, first, last):
        """Scores of all items for a range of rows of choices: a new float32 matrix."""
        raise NotImplementedError

    def _asked(self, users, candidates):
        choices = self._given(users)

        def score(start, stop):
            scores = self._scores(choices, start, stop)
            return scores if candidates is None else scores[:, candidates]

        return Asked(score, None, choices, self._alike)

    _alike: bool | None = True

    def _in_order(self, candidates):
        order = np.argsort(-self.item_counts_, kind="stable")
        return order if candidates is None else order[np.isin(order, candidates)]

    def _item_counts(self):
        return self.item_counts_

    def recommend(
        self, users: Any, n: int = 10, *, filter_seen: Any = True, items: Any = None, exclude: Any = None
    ) -> Recommendations:
        """Recommend items of the highest scores.

        Parameters
        ----------
        users : id, array-like of ids, or sparse matrix of shape (n_new_users, n_items)
            Users of `fit`; or the choices of new ones.
        n : int, default=10
            Items for each user; all that there are, if there are fewer.
        filter_seen : bool, default=True
            Leave out what the user has chosen.
        items : array-like of ids, optional
            Choose among these alone.
        exclude : array-like of ids, or sparse matrix of shape (n_users, n_items), optional
            Leave out these items; or, of a matrix, each user's stored cells, with a row for each of `users`.

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_users, n), or (n,) for a single id, with at most as many
            columns as there are items to choose from. Of equal scores the item of more users comes first.
            Users without choices get the items of most users, and a warning.

        Raises
        ------
        DataError
            For ids that were not in `fit`.
        """
        return self._recommended(users, n, filter_seen, items, exclude)

    def predict(self, X: Matrix) -> Array:
        """Score pairs of users and items.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2)
            Ids of users and items; unknown ones have the score 0.

        Returns
        -------
        ndarray of float64, shape (n_pairs,)
        """
        check_is_fitted(self)
        users, items = check_pairs(X)
        return self._predicted(self._numbers(users, "user"), self._numbers(items, "item"))

    def _predicted(self, rows, columns, clip=False):
        """Score cells by their numbers, -1 for an unknown row or column; scores are never clipped."""
        known = np.flatnonzero((rows >= 0) & (columns >= 0))
        out = np.zeros(len(rows))
        if not len(known):
            return out
        given, numbers = np.unique(rows[known], return_inverse=True)
        choices = self._given(self.user_ids_[given])
        order = np.argsort(numbers, kind="stable")
        for start in range(0, len(given), _BATCH):
            stop = min(start + _BATCH, len(given))
            scores = self._scores(choices, start, stop)
            a, b = np.searchsorted(numbers[order], [start, stop])
            own = order[a:b]
            out[known[own]] = scores[numbers[own] - start, columns[known[own]]]
        return out

    def score(self, X: Matrix, y: Vector | None = None) -> float:
        """Compute NDCG among ten recommendations of what was held out.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), sparse matrix of shape (n_users, n_items), or DataFrame
            As in `fit`, files among them; a value above zero is a hit.
        y : array-like of shape (n_pairs,), optional

        Returns
        -------
        float
        """
        return self._ranking_score(*self._given_cells(X, y)[:3])

    def _check_state(self):
        super()._check_state()
        shape = len(self.user_ids_), len(self.item_ids_)
        for ids in (self.user_ids_, self.item_ids_):
            if ids.ndim != 1 or ids.dtype.kind not in "iU":
                raise DataError("ids must be vectors of whole numbers or text")
        if self.item_counts_.shape != shape[1:] or self.item_counts_.dtype.kind not in "iu":
            raise DataError(f"item_counts_ has the shape {self.item_counts_.shape}")
        choices = self.interactions_
        if choices is not None and (choices.shape != shape or choices.dtype != np.float32):
            raise DataError(f"interactions_ is {choices.dtype} of shape {choices.shape}")


class ItemModel(ChoiceModel):
    """Base of models with weights between items: scores are ``choices @ item_weights_``."""

    item_weights_: Any

    def _scores(self, choices, first, last):
        out = np.empty((last - first, len(self.item_ids_)), np.float32)
        users = (choices.indptr, choices.indices, choices.data)
        weights = self.item_weights_
        if sparse.issparse(weights):
            sparse_scores(first, last, users, (weights.indptr, weights.indices, weights.data), out)
        else:
            dense_scores(first, last, users, weights, out)
        return out

    def similar_items(self, items: Any, n: int = 10) -> Recommendations:
        """Find the items whose scores a choice of an item raises most.

        Parameters
        ----------
        items : id or array-like of ids
        n : int, default=10

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_given, n), or (n,) for a single id, with at most as many
            columns as there are items; scores are rows of `item_weights_`. Items of weight 0, such as the
            item itself, are left out.
        """
        return self._like("item", items, n, self._nearest)

    def _nearest(self, rows, n):
        columns = np.empty((len(rows), n), np.int64)
        scores = np.empty((len(rows), n), np.float32)
        order = self._in_order(None)
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            weights = self.item_weights_[batch]
            weights = weights.toarray() if sparse.issparse(weights) else weights.copy()
            weights[weights == 0] = -np.inf
            best_columns(weights[:, order], columns[start : start + _BATCH], scores[start : start + _BATCH])
        return np.append(order, -1)[columns], scores

    def explain(self, users: Any, items: Any = None, n: int = 5) -> Recommendations:
        """Tell which of a user's choices drive the score of an item.

        The score is a sum over the user's choices: choice j of value x adds ``x * item_weights_[j, item]``.

        Parameters
        ----------
        users : id, array-like of ids, or sparse matrix of shape (n_users, n_items)
            Users of `fit`, or rows of choices.
        items : id or array-like of n_users ids
            What to explain, for each user.
        n : int, default=5
            Choices for each user.

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_users, n), or (n,) for a single user, with at most as many
            columns as there are items: what the user has chosen, what adds most first, and how much it adds;
            what adds nothing is left out.
        """
        check_is_fitted(self)
        check_n(n)
        if items is None:
            raise DataError("explain needs items: one id for each user, whose score is explained")
        choices, columns = self._given(users), self._known(items, "item")
        if choices.shape[0] != len(columns):
            raise DataError(
                f"there are {choices.shape[0]} users, but {len(columns)} items to explain: give one item "
                "for each user"
            )
        n = at_most(n, self.item_ids_)
        found, amounts = np.full((len(columns), n), -1), np.full((len(columns), n), -np.inf)
        for u, column in enumerate(columns):
            own = slice(choices.indptr[u], choices.indptr[u + 1])
            chosen = choices.indices[own]
            weights = self.item_weights_[chosen][:, [column]]
            weights = weights.toarray() if sparse.issparse(weights) else weights
            adds = choices.data[own].astype(np.float64) * weights[:, 0]
            order = np.argsort(-adds, kind="stable")
            order = order[adds[order] != 0][:n]
            found[u, : len(order)], amounts[u, : len(order)] = chosen[order], adds[order]
        single = not sparse.issparse(users) and np.ndim(users) == 0
        items, amounts = with_ids((found, amounts), self.item_ids_)
        return Recommendations(items[0], amounts[0]) if single else Recommendations(items, amounts)

    def _check_state(self):
        super()._check_state()
        n, weights = len(self.item_ids_), self.item_weights_
        kind = (sparse.csr_array, np.ndarray)
        if not isinstance(weights, kind) or weights.shape != (n, n) or weights.dtype != np.float32:
            raise DataError(f"item_weights_ must be float32 of shape ({n}, {n})")


def tables_of(X):
    """A CSR table by item and by user, as kernels take it."""
    by_item = X.tocsc()
    return (
        (by_item.indptr.astype(np.int64), by_item.indices, by_item.data),
        (X.indptr.astype(np.int64), X.indices, X.data),
    )


def ranges(n, n_parts):
    """Cut n rows into at most so many ranges."""
    cuts = np.unique(np.linspace(0, n, min(n_parts, n) + 1).astype(int)).tolist()
    return list(itertools.pairwise(cuts))


def _without_zeros(X):
    X = X.copy()
    X.eliminate_zeros()
    return X
