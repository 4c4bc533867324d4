"""What a fitted factorization can do: predict, recommend, explain, fold in."""

import copy
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ...errors import DataError
from .._base import Estimator
from .als import fold_in
from .entries import (
    cells_of,
    check_ids,
    check_matrix,
    check_pairs,
    check_rating_weights,
    check_values,
    find_ids,
)
from .explain import driving_ratings
from .recommend import best_items, nearest, with_ids
from .sides import Sides


class FactorModel(Estimator):
    """Base of `MatrixFactorization`: what is done with its attributes."""

    user_ids_: np.ndarray
    item_ids_: np.ndarray
    seen_: Any

    def predict(self, X):
        """Predict the rating (or, for implicit feedback, the preference) of pairs.

        A user or item that was not in `fit` counts as one with factors and bias 0.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2)
            Ids of users and items; after a fit to a matrix, numbers of rows and columns.

        Returns
        -------
        ndarray of float64, shape (n_pairs,)
        """
        check_is_fitted(self)
        users, items = check_pairs(X)
        return self._sides.predict(find_ids(users, self.user_ids_), find_ids(items, self.item_ids_))

    def score(self, X, y=None, sample_weight=None):
        """Compute the negative root mean square error; for implicit feedback NDCG among ten recommendations.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or sparse matrix of shape (n_users, n_items)
            As in `fit`. For implicit feedback, what was held out: a value above zero is a hit.
        y : array-like of shape (n_pairs,), optional
        sample_weight : array-like of shape (n_pairs,), optional
            Not for implicit feedback.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if sparse.issparse(X):
            X = check_matrix(X, type(self).__name__, len(self.item_ids_))
            if X.shape[0] != len(self.user_ids_):
                raise DataError(f"X has {X.shape[0]} rows, but the model has {len(self.user_ids_)} users")
            rows, columns, values = cells_of(X)
        else:
            users, items = check_pairs(X)
            values = check_values(y, len(users), type(self).__name__)
            rows, columns = find_ids(users, self.user_ids_), find_ids(items, self.item_ids_)
        if self.implicit:
            return self._ranking_score(rows, columns, values)
        weights = check_rating_weights(sample_weight, len(values))
        return -float(
            np.sqrt(np.average((self._sides.predict(rows, columns) - values) ** 2, weights=weights))
        )

    def _ranking_score(self, rows, columns, values):
        from .ranking import evaluate_ranking

        hits = (rows >= 0) & (columns >= 0) & (values > 0)
        shape = (len(self.user_ids_), len(self.item_ids_))
        held_out = sparse.csr_array((values[hits], (rows[hits], columns[hits])), shape=shape)
        return evaluate_ranking(self, held_out, k=10)["ndcg"]

    def transform(self, X):
        """Fold in new users: find their factors, given those of the items.

        Parameters
        ----------
        X : sparse matrix of shape (n_new_users, n_items)
            Their ratings (or counts), as in `fit`, with the columns of `item_ids_`.

        Returns
        -------
        ndarray of shape (n_new_users, n_components), or (n_new_users, n_components + 1) with biases
            The exact minimum of each row's part of the objective; the last column is the bias.
        """
        factors, bias, _ = self._folded_in(X)
        return np.column_stack([factors, bias]) if self._settings().bias else factors

    def _folded_in(self, X):
        check_is_fitted(self)
        self._check_folds("folding in new users")
        X = check_matrix(X, type(self).__name__, len(self.item_ids_))
        model = copy.copy(self)
        model.user_ids_ = np.arange(X.shape[0])
        entries = model._matrix_entries(X)
        return *fold_in(entries, self._sides, self._settings()), entries.pattern()

    def recommend(self, users, n=10, *, exclude_seen=True, items=None):
        """Recommend items of the highest predictions.

        Parameters
        ----------
        users : id, array-like of ids, or sparse matrix of shape (n_new_users, n_items)
            Users of `fit`; or the ratings of new ones, which are folded in (see `transform`).
        n : int, default=10
            Items for each user.
        exclude_seen : bool, default=True
            Leave out what the user has rated.
        items : array-like of ids, optional
            Choose among these alone.

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_users, n). Of equal scores the smaller id comes first.

        Raises
        ------
        DataError
            For ids that were not in `fit`.
        """
        check_is_fitted(self)
        _check_n(n)
        sides = self._sides
        if sparse.issparse(users):
            factors, bias, seen = self._folded_in(users)
        else:
            rows = self._known(users, "user")
            factors, bias, seen = sides.user_factors[rows], sides.user_bias[rows], self.seen_[rows]
        candidates = None if items is None else np.unique(self._known(items, "item"))
        seen = seen if exclude_seen else None
        found = best_items(factors, bias, sides, n, seen, candidates, self.n_jobs)
        return with_ids(found, self.item_ids_)

    def similar_users(self, users, n=10):
        """Find the users whose factors point in the most similar direction.

        Parameters
        ----------
        users : id or array-like of ids
        n : int, default=10

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_given, n); the items are users, and scores are cosines. The
            user itself is left out.
        """
        check_is_fitted(self)
        _check_n(n)
        return with_ids(nearest(self.user_factors_, self._known(users, "user"), n), self.user_ids_)

    def explain(self, ratings, items, n=5):
        r"""Tell which of a user's ratings drive the prediction of an item.

        The factors of a user who is folded in (see `transform`) are a weighted sum over the user's ratings,
        and so is the prediction: rating j of weight w and target t adds :math:`w t\, q_i^T A^{-1} q_j` to the
        mean and the item's bias, where A is the matrix of the user's normal equations (and q ends with a 1
        for the user's bias).

        Parameters
        ----------
        ratings : sparse matrix of shape (n_users, n_items)
            Ratings or counts of the users, with the columns of `item_ids_`.
        items : id or array-like of n_users ids
            What to explain, for each user.
        n : int, default=5
            Ratings for each user.

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_users, n): what the user has rated, what adds most first,
            and how much it adds.

        Raises
        ------
        DataError
            With `non_negative`, where a prediction is no such sum, and with ``loss="bpr"``.

        References
        ----------
        Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, section 5.
        """
        check_is_fitted(self)
        _check_n(n)
        self._check_folds("explain")
        if self.non_negative:
            raise DataError("non_negative=True: the prediction is no sum over the user's ratings")
        columns = self._known(items, "item")
        X = check_matrix(ratings, type(self).__name__, len(self.item_ids_))
        if X.shape[0] != len(columns):
            raise DataError(f"ratings have {X.shape[0]} rows, but there are {len(columns)} items to explain")
        model = copy.copy(self)
        model.user_ids_ = np.arange(X.shape[0])
        found = driving_ratings(model._matrix_entries(X), columns, self._sides, self._settings(), n)
        return with_ids(found, self.item_ids_)

    def _check_folds(self, what):
        if self.loss == "bpr":
            raise DataError(f"{what} solves least squares, which loss='bpr' does not; set loss='squared'")

    def similar_items(self, items, n=10):
        """Find the items whose factors point in the most similar direction.

        Parameters
        ----------
        items : id or array-like of ids
        n : int, default=10

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_given, n); scores are cosines. The item itself is left out.
        """
        check_is_fitted(self)
        _check_n(n)
        return with_ids(nearest(self.item_factors_, self._known(items, "item"), n), self.item_ids_)

    @property
    def _sides(self):
        return Sides(self.user_factors_, self.item_factors_, self.user_bias_, self.item_bias_, self.mean_)

    def _known(self, ids, what):
        """Return the numbers of ids that must be known."""
        ids = check_ids(ids, what)
        rows = find_ids(ids, self.user_ids_ if what == "user" else self.item_ids_)
        if (rows < 0).any():
            unknown = ids[np.argmax(rows < 0)].item()
            remedy = "; give the ratings of new users as a sparse matrix" if what == "user" else ""
            raise DataError(f"the {what} {unknown!r} was not in fit{remedy}")
        return rows

    def _check_state(self):
        super()._check_state()
        if "user_factors_" not in vars(self):
            return
        for side in ("user", "item"):
            factors, bias, ids = (getattr(self, f"{side}_{part}_") for part in ("factors", "bias", "ids"))
            if factors.shape != (len(ids), self.n_components) or bias.shape != (len(ids),):
                raise DataError(f"{side}_factors_ and {side}_bias_ cannot be those of {len(ids)} {side}s")
            if factors.dtype != self.dtype or bias.dtype != self.dtype or ids.dtype.kind not in "iU":
                raise DataError(f"the {side}s are not stored as {self.dtype}")
        if self.seen_.shape != (len(self.user_ids_), len(self.item_ids_)):
            raise DataError(f"seen_ has the shape {self.seen_.shape}")


def _check_n(n):
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise DataError(f"n must be an integer of at least 1, got {n!r}")
