"""Methods of a fitted factorization: predict, recommend, explain, fold in."""

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Matrix, RandomState, Vector
from ...errors import DataError, shortened
from .choose import settings_of
from .entries import (
    check_ids,
    check_matrix,
    check_pairs,
    check_rating_weights,
    find_ids,
)
from .features import means_of, with_constant
from .reading import matrix_entries
from .recommender import Recommender
from .serving.explain import driving_ratings
from .serving.exports import Exports
from .serving.item_map import ItemMap
from .serving.recommend import Asked, Recommendations, at_most, check_n, nearest, with_ids
from .solvers.als import fold_in
from .solvers.sides import Sides
from .stored import check_stored, held_cells
from .update import joined

DRAWS = ("user_draws_", "item_draws_", "variance_draws_")


class FactorModel(ItemMap, Exports, Recommender):
    """Base of `MatrixFactorization`: its methods after the fit."""

    user_ids_: np.ndarray
    item_ids_: np.ndarray
    seen_: Any
    rating_range_: np.ndarray | None
    item_titles_: np.ndarray
    user_feature_weights_: np.ndarray | None
    item_feature_weights_: np.ndarray | None

    def predict(self, X: Matrix, *, clip: bool = True, return_std: bool = False) -> Any:
        """Predict the rating (or, for implicit feedback, the preference) of pairs.

        A user or item that was not in `fit` counts as one with factors and bias 0.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2)
            Ids of users and items; after a fit to a matrix, numbers of rows and columns.
        clip : bool, default=True
            Keep predictions of ratings within the least and the greatest rating of `fit`, see
            ``rating_range_``. Preferences are never clipped.
        return_std : bool, default=False
            Return the standard deviation of a new rating (of weight 1) too, under the posterior: of a model
            of ``solver="gibbs"`` with ``n_draws``. The rating is within 1.645 deviations of an unclipped
            prediction with a probability of about 0.9.

        Returns
        -------
        ndarray of float64, shape (n_pairs,)
            With `return_std` a pair of such arrays; deviations are NaN where the user or item was not in fit.

        Raises
        ------
        DataError
            For `return_std` of a model without draws.
        """
        check_is_fitted(self)
        if not isinstance(clip, (bool, np.bool_)):
            raise DataError(f"clip must be True or False, got {shortened(clip)}: pairs are given as one X")
        if not isinstance(return_std, (bool, np.bool_)):
            raise DataError(f"return_std must be True or False, got {shortened(return_std)}")
        users, items = check_pairs(X)
        rows, columns = self._numbers(users, "user"), self._numbers(items, "item")
        found = self._predicted(rows, columns, clip)
        return (found, self._deviations(rows, columns)) if return_std else found

    def _deviations(self, rows, columns):
        """Standard deviations of new ratings of cells, from the draws."""
        if DRAWS[0] not in vars(self):
            raise DataError(
                "return_std=True needs draws: fit with solver='gibbs' and n_draws, for instance 20 "
                "(partial_fit and new users or items leave none)"
            )
        users, items, variances = (getattr(self, name) for name in DRAWS)
        out = np.full(len(rows), np.nan)
        known = np.flatnonzero((rows >= 0) & (columns >= 0))
        for start in range(0, len(known), 4096):
            own = known[start : start + 4096]
            drawn = np.einsum(
                "duk,duk->du",
                users[:, rows[own]],
                items[:, columns[own]],
                dtype=np.float64,
                casting="same_kind",
            )
            out[own] = np.sqrt(drawn.var(axis=0) + variances.mean())
        return out

    def _predicted(self, rows, columns, clip=True):
        """Predict cells by their numbers, -1 for an unknown row or column."""
        found = self._sides.predict(rows, columns)
        if clip and self.rating_range_ is not None:  # implicit feedback has none
            np.clip(found, *self.rating_range_, out=found)
        return found

    def score(self, X: Matrix, y: Vector | None = None, sample_weight: Vector | None = None) -> float:
        """Compute the negative root mean square error; for implicit feedback NDCG among ten recommendations.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), sparse matrix of shape (n_users, n_items), or DataFrame
            As in `fit`, files among them. For implicit feedback, what was held out: a value above zero is a
            hit.
        y : array-like of shape (n_pairs,), optional
        sample_weight : array-like of shape (n_pairs,), optional
            Not for implicit feedback.

        Returns
        -------
        float
        """
        rows, columns, values, sample_weight = self._given_cells(X, y, sample_weight)
        if self.implicit:
            return self._ranking_score(rows, columns, values)
        weights = check_rating_weights(sample_weight, len(values))
        misses = self._predicted(rows, columns) - values
        return -float(np.sqrt(np.average(misses**2, weights=weights)))

    def transform(self, X: Matrix, *, user_features: Any = None) -> Array:
        """Fold in new users: find their factors, given those of the items.

        Parameters
        ----------
        X : sparse matrix of shape (n_new_users, n_items)
            Their ratings (or counts), as in `fit`, with the columns of `item_ids_`; a user may have none.
        user_features : array-like or sparse matrix of shape (n_new_users, n_features), optional
            Needed if the model was fitted with features of users.

        Returns
        -------
        ndarray of shape (n_new_users, n_components), or (n_new_users, n_components + 1) with biases
            The exact minimum of each row's part of the objective; the last column is the bias.
        """
        factors, bias, _ = self._folded_in(X, user_features)
        return np.column_stack([factors, bias]) if settings_of(self).bias else factors

    def _folded_in(self, X, user_features):
        check_is_fitted(self)
        self._check_folds("folding in new users")
        X = check_matrix(X, type(self).__name__, len(self.item_ids_), may_be_empty=True)
        entries = matrix_entries(self, X, np.arange(X.shape[0]), self.item_ids_)
        means = self._prior_means("user", user_features, X.shape[0])
        found = fold_in(entries, self._sides, settings_of(self), means, self._rated_items())
        return *found, entries.pattern()

    def _prior_means(self, what, features, n_rows):
        """Prior means of new rows from their features; None for a model without."""
        weights = getattr(self, f"{what}_feature_weights_")
        if weights is None:
            if features is not None:
                raise DataError(
                    f"the model was fitted without {what}_features: give them to fit, or none here"
                )
            return None
        if features is None:
            raise DataError(f"the model was fitted with {what}_features: give those of the new {what}s too")
        table = with_constant(features, what, n_rows, len(weights) - 1)
        return means_of(table, weights, self.user_factors_.dtype)

    def _rated_items(self):
        """The items in the sums over cells; None for all."""
        if self.item_feature_weights_ is None:
            return None
        return self._item_counts() > 0

    def add_users(self, ids: Any, features: Any) -> Self:
        """Add users of whom features alone are known; their factors are the means these give.

        Afterwards `predict`, `recommend` and the like know them, and `partial_fit` takes their ratings.

        Parameters
        ----------
        ids : array-like of shape (n_new,)
            New ones, of the kind of the model's.
        features : array-like or sparse matrix of shape (n_new, n_features)

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the model was fitted without such features, and for ids that it has.
        """
        return self._add("user", ids, features)

    def add_items(self, ids: Any, features: Any) -> Self:
        """Add items of which features alone are known; see `add_users`.

        Parameters
        ----------
        ids : array-like of shape (n_new,)
        features : array-like or sparse matrix of shape (n_new, n_features)

        Returns
        -------
        self
        """
        return self._add("item", ids, features)

    def _add(self, what, ids, features):
        check_is_fitted(self)
        given = check_ids(ids, what)
        wrong = find_ids(given, getattr(self, f"{what}_ids_")) >= 0
        wrong |= ~np.isin(np.arange(len(given)), np.unique(given, return_index=True)[1])
        if wrong.any():
            first = given[np.argmax(wrong)].item()
            raise DataError(f"ids of new {what}s must be new and different: {shortened(first)}")
        factors, bias = self._prior_means(what, features, len(given))
        old = self._sides, (self.user_ids_, self.item_ids_), self._seen
        new = {"user": (given, self.item_ids_[:0]), "item": (self.user_ids_[:0], given)}[what]
        sides, seen, ids = joined(new, *old)
        at = find_ids(given, ids[what == "item"])
        getattr(sides, f"{what}_factors")[at], getattr(sides, f"{what}_bias")[at] = factors, bias
        self._take_rows(sides, ids, seen)
        return self

    def _take_rows(self, sides, ids, seen):
        """Set users and items; titles of new items are their ids."""
        if hasattr(self, "item_titles_") and len(ids[1]) > len(self.item_titles_):
            titles = ids[1].astype(object).astype(str).astype(object)
            titles[find_ids(self.item_ids_, ids[1])] = self.item_titles_
            self.item_titles_ = titles.astype(str)
        for name in DRAWS:  # of other rows
            self.__dict__.pop(name, None)
        self.user_ids_, self.item_ids_ = ids
        self.user_factors_, self.item_factors_ = sides.user_factors, sides.item_factors
        self.user_bias_, self.item_bias_ = sides.user_bias, sides.item_bias
        self.seen_ = seen

    def recommend(
        self,
        users: Any,
        n: int = 10,
        *,
        filter_seen: Any = True,
        items: Any = None,
        exclude: Any = None,
        user_features: Any = None,
        thompson: Any = False,
        random_state: RandomState | None = None,
    ) -> Recommendations:
        """Recommend items of the highest predictions.

        Parameters
        ----------
        users : id, array-like of ids, or sparse matrix of shape (n_new_users, n_items)
            Users of `fit`; or the ratings of new ones, which are folded in (see `transform`).
        n : int, default=10
            Items for each user; all that there are, if there are fewer.
        filter_seen : bool, default=True
            Leave out what the user has rated.
        items : array-like of ids, optional
            Choose among these alone.
        exclude : array-like of ids, or sparse matrix of shape (n_users, n_items), optional
            Leave out these items; or, of a matrix, each user's stored cells, with a row for each of `users`.
        user_features : array-like or sparse matrix of shape (n_new_users, n_features), optional
            Of new users; see `transform`.
        thompson : bool, default=False
            Rank the items of each user by one draw of the posterior in place of its mean, drawn anew for each
            user of each call (Thompson sampling): of a model of ``solver="gibbs"`` with ``n_draws``. Items of
            which less is known are recommended now and then.
        random_state : int, RandomState or None, default=None
            Of the choice of draws.

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_users, n), or (n,) for a single id, with at most as many
            columns as there are items to choose from. Scores are predictions that are not clipped, which
            would make many of them equal.
            Of equal scores the smaller id comes first. Users of whom nothing is known, neither ratings nor
            features, all get the same items, and a warning: those that are liked best by all, or, where a
            model without biases has the same score for all items, those with most ratings.

        Raises
        ------
        DataError
            For ids that were not in `fit`, and for `thompson` without draws, or of new users.

        References
        ----------
        Thompson, "On the likelihood that one unknown probability exceeds another in view of the evidence of
        two samples", Biometrika 1933.
        """
        if not isinstance(thompson, (bool, np.bool_)):
            raise DataError(f"thompson must be True or False, got {shortened(thompson)}")
        if filter_seen is True and not sparse.issparse(users) and hasattr(self, "user_factors_"):
            held_cells(self)
        return self._recommended(users, n, filter_seen, items, exclude, user_features, thompson, random_state)

    _training = "seen_"

    def _asked(self, users, candidates, user_features, thompson, random_state):
        if thompson:
            return self._asked_of_draws(users, candidates, random_state)
        sides = self._sides
        if sparse.issparse(users):
            factors, bias, seen = self._folded_in(users, user_features)
        elif user_features is not None:
            raise DataError(
                "user_features goes with new users, whose ratings are a sparse matrix (of zeros alone for "
                "users without any)"
            )
        else:
            rows = self._known(users, "user")
            factors, bias, seen = sides.user_factors[rows], sides.user_bias[rows], self._seen_by(rows)

        alike = None
        if self.user_feature_weights_ is None and (self.seen_ is not None or sparse.issparse(users)):
            unknown = np.diff(seen.indptr) == 0
            alike = not (factors[unknown].any() or sides.item_bias.any())
        items, item_bias = sides.item_factors, sides.item_bias
        shift = bias + factors.dtype.type(sides.mean)
        if item_bias.any():  # as one more factor: a pass over all scores would take as long as their product
            items = np.column_stack([items, item_bias])
            factors = np.column_stack([factors, np.ones(len(factors), factors.dtype)])
        items = items if candidates is None else items[candidates]
        return Asked(None, shift, seen, alike, (factors, items))

    def _asked_of_draws(self, users, candidates, random_state):
        if sparse.issparse(users) or DRAWS[0] not in vars(self):
            raise DataError(
                "thompson=True ranks by draws: fit with solver='gibbs' and n_draws, for instance 20 "
                "(partial_fit and new users or items leave none), and give ids of users of fit"
            )
        rows = self._known(users, "user")
        of_users, of_items, variances = (getattr(self, name) for name in DRAWS)
        drawn = check_random_state(random_state).randint(len(variances), size=len(rows))
        of_items = of_items if candidates is None else of_items[:, candidates]

        def score(start, stop):
            scores = np.empty((stop - start, of_items.shape[1]), of_items.dtype)
            for draw in np.unique(drawn[start:stop]):
                own = np.flatnonzero(drawn[start:stop] == draw)
                scores[own] = of_users[draw][rows[start + own]] @ of_items[draw].T
            return scores

        shift = np.full(len(rows), self.mean_, of_items.dtype)
        return Asked(score, shift, self._seen_by(rows), None)

    def similar_users(self, users: Any, n: int = 10) -> Recommendations:
        """Find the users whose factors point in the most similar direction.

        Parameters
        ----------
        users : id or array-like of ids
        n : int, default=10

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_given, n), or (n,) for a single id, with at most as many
            columns as there are users; the items are users, and scores are cosines. The user itself is left
            out.
        """
        return self._like("user", users, n, lambda rows, n: nearest(self.user_factors_, rows, n))

    def explain(self, ratings: Any, items: Any = None, n: int = 5) -> Recommendations:
        r"""Tell which of a user's ratings drive the prediction of an item.

        The factors of a user who is folded in (see `transform`) are a weighted sum over the user's ratings,
        and so is the prediction: rating j of weight w and target t adds :math:`w t\, q_i^T A^{-1} q_j` to the
        mean and the item's bias (and to what features of the user give), where A is the matrix of the user's
        normal equations (and q ends with a 1 for the user's bias).

        Parameters
        ----------
        ratings : sparse matrix of shape (n_users, n_items)
            Ratings or counts of the users, with the columns of `item_ids_`; the model does not keep those of
            `fit`.
        items : id or array-like of n_users ids
            What to explain, for each user.
        n : int, default=5
            Ratings for each user.

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_users, n), with at most as many columns as there are items:
            what the user has rated, what adds most first, and how much it adds.

        Raises
        ------
        DataError
            With `non_negative`, where a prediction is no such sum, and with another `loss` than squares.

        References
        ----------
        Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, section 5.
        """
        check_is_fitted(self)
        check_n(n)
        self._check_folds("explain")
        if self.non_negative:
            raise DataError("non_negative=True: the prediction is no sum over the user's ratings")
        if not sparse.issparse(ratings) or items is None:
            given = "no items" if sparse.issparse(ratings) else f"a {type(ratings).__name__}"
            raise DataError(
                f"ratings must be a sparse matrix of shape (n_users, {len(self.item_ids_)}), and items one "
                f"id a row, got {given}: the model keeps no ratings, so give the user's row of those of fit, "
                "explain(R[[u]], [item]); after a fit to pairs, a csr_array with the columns of item_ids_"
            )
        columns = self._known(items, "item")
        X = check_matrix(ratings, type(self).__name__, len(self.item_ids_))
        if X.shape[0] != len(columns):
            raise DataError(
                f"ratings have {X.shape[0]} rows, but there are {len(columns)} items to explain: give the "
                "row of one user for each item, ratings[[u]]"
            )
        entries = matrix_entries(self, X, np.arange(X.shape[0]), self.item_ids_)
        rated, n = self._rated_items(), at_most(n, self.item_ids_)
        found = driving_ratings(entries, columns, self._sides, settings_of(self), n, rated)
        return with_ids(found, self.item_ids_)

    def _check_folds(self, what):
        if self.loss != "squared":
            raise DataError(
                f"{what} solves least squares, which loss={self.loss!r} does not; set loss='squared'"
            )

    def similar_items(self, items: Any, n: int = 10) -> Recommendations:
        """Find the items whose factors point in the most similar direction.

        Parameters
        ----------
        items : id or array-like of ids
        n : int, default=10

        Returns
        -------
        Recommendations
            ``(items, scores)``, both of shape (n_given, n), or (n,) for a single id, with at most as many
            columns as there are items; scores are cosines. The item itself is left out.
        """
        return self._like("item", items, n, lambda rows, n: nearest(self.item_factors_, rows, n))

    def _item_counts(self):
        if self.seen_ is None and "item_counts_" in vars(self):
            return self.item_counts_
        return np.bincount(self._seen.indices, minlength=len(self.item_ids_))

    @property
    def _seen(self):
        return held_cells(self)

    def _seen_by(self, rows):
        if self.seen_ is None:
            return sparse.csr_array((len(rows), len(self.item_ids_)), dtype=np.int8)
        return self.seen_[rows]

    @property
    def _sides(self):
        weights = self.user_feature_weights_, self.item_feature_weights_
        return Sides(
            self.user_factors_, self.item_factors_, self.user_bias_, self.item_bias_, self.mean_, weights
        )

    def _check_state(self):
        super()._check_state()
        check_stored(self)
