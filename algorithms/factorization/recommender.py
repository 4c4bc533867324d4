"""What all models of users and items share: recommendations and similar items by ids, and their score."""

import warnings
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils import TransformerTags
from sklearn.utils.validation import check_is_fitted

from ..._typing import FileName
from ...errors import DataError, shortened
from .._base import Estimator
from .entries import cells_of, check_ids, check_matrix, check_pairs, check_values, find_ids
from .reading import is_named, named_ids, split_table
from .remote_ratings import is_elsewhere, read_here
from .serving.recommend import (
    Recommendations,
    at_most,
    best_items,
    check_n,
    check_no_ratings,
    most_rated,
    with_ids,
)
from .update import kind_of


class Recommender(Estimator):
    """Base of models with ``user_ids_`` and ``item_ids_``.

    A subclass has ``n_jobs``, ``_training``, ``_item_counts()``, and ``_asked(users, candidates, ...)``,
    which returns what `best_items` needs: `candidates` are numbers of items, or None for all.
    """

    user_ids_: np.ndarray
    item_ids_: np.ndarray
    item_counts_: np.ndarray
    n_jobs: Any
    _training: str  # the attribute that holds which items each user has

    _lies_elsewhere = staticmethod(is_elsewhere)

    def __sklearn_tags__(self):
        """Tell scikit-learn that a dense matrix of numbers is no input: its checks have nothing to run on."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.transformer_tags = TransformerTags() if hasattr(self, "transform") else None
        return tags

    def _recommended(self, users, n, filter_seen, items, exclude, *more):
        """The best items of users; `more` is for `_asked`."""
        check_is_fitted(self)
        check_n(n)
        if not isinstance(filter_seen, (bool, np.bool_)):
            raise DataError(
                f"filter_seen must be True or False, got a {type(filter_seen).__name__}: True leaves out "
                "what users have rated in fit; to leave out what they have rated since, give exclude"
            )
        single = False
        if not sparse.issparse(users):
            single = check_no_ratings(users, len(self.item_ids_)).ndim == 0
        candidates = self._in_order(self._candidates(items, exclude))
        n_items = len(self.item_ids_)
        n = at_most(n, self.item_ids_ if candidates is None else candidates)
        asked = self._asked(users, candidates, *more)
        left_out = [asked.seen] if filter_seen else []
        if sparse.issparse(exclude):
            left_out.append(self._excluded(exclude, asked.seen.shape[0]))
        found = best_items(asked, n, left_out, candidates, n_items, self.n_jobs)
        unknown = np.diff(asked.seen.indptr) == 0
        if unknown.any() and asked.alike is not None:
            if asked.alike:
                self._put_popular(found, unknown, candidates, left_out)
            warnings.warn(
                f"users without ratings, {np.count_nonzero(unknown)} of {len(unknown)}, all get the same "
                "items: "
                + ("those with most ratings" if asked.alike else "those that are liked best by all users"),
                UserWarning,
                stacklevel=3,
            )
        return self._named(found, self.item_ids_, single)

    def _candidates(self, items, exclude):
        """Numbers of the items to choose from, None for all."""
        candidates = None if items is None else np.unique(self._known(items, "item"))
        if exclude is None or sparse.issparse(exclude):
            return candidates
        if np.ndim(exclude) > 1:
            raise DataError(
                f"exclude has the shape {np.shape(exclude)}: give a vector of ids of items that nobody gets, "
                "or a sparse matrix with a row for each user"
            )
        out = self._known(exclude, "item")
        kept = np.setdiff1d(np.arange(len(self.item_ids_)) if candidates is None else candidates, out)
        if not len(kept):
            raise DataError("exclude leaves no item to choose from: give fewer, or more items")
        return kept

    def _excluded(self, exclude, n_users):
        """The cells of a sparse matrix that are not recommended, a row a user."""
        expected = n_users, len(self.item_ids_)
        if exclude.shape != expected:
            raise DataError(
                f"exclude has the shape {exclude.shape}, but a matrix needs {expected}: a row for each of "
                "users, in their order, and the columns of item_ids_"
            )
        return sparse.csr_array(check_matrix(exclude, "exclude", may_be_empty=True))

    def _put_popular(self, found, unknown, candidates, left_out):
        """Give users who have the same score for all items those with most ratings."""
        popular = most_rated(self._item_counts(), candidates)
        n = found[0].shape[1]
        for row in np.flatnonzero(unknown):
            own = [table.indices[slice(*table.indptr[row : row + 2])] for table in left_out]
            free = popular if not any(map(len, own)) else popular[~np.isin(popular, np.concatenate(own))]
            found[0][row, : len(free[:n])] = free[:n]

    def save(self, path: FileName, *, training: bool = True) -> Self:
        """Write the model into one file, without pickle; `stradask.load` reads it.

        Parameters
        ----------
        path : path-like
        training : bool, default=True
            Whether to write which items each user has, too. Without, the file is smaller and does not tell
            it; `recommend` cannot leave out what a user has, unless it is given rows of a sparse matrix in
            place of ids.

        Returns
        -------
        self
        """
        if not isinstance(training, (bool, np.bool_)):
            raise DataError(f"training must be True or False, got {shortened(training)}")
        kept = vars(self).get(self._training)
        if training or kept is None:
            return super().save(path)
        before = dict(self.__dict__)
        self.item_counts_ = self._item_counts()
        setattr(self, self._training, None)
        try:
            return super().save(path)
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)

    def _in_order(self, candidates):
        """Item numbers to choose from (None for all), those that win where scores are equal first."""
        return candidates

    def _like(self, what, given, n, nearest):
        check_is_fitted(self)
        check_n(n)
        ids = getattr(self, f"{what}_ids_")
        return self._named(nearest(self._known(given, what), at_most(n, ids)), ids, np.ndim(given) == 0)

    @staticmethod
    def _named(found, ids, single):
        """Put ids for numbers; of a single row take that row."""
        items, scores = with_ids(found, ids)
        return Recommendations(items[0], scores[0]) if single else Recommendations(items, scores)

    def _known(self, ids, what):
        """Row numbers of ids, which must be known."""
        ids = check_ids(ids, what)
        rows = self._numbers(ids, what)
        if (rows < 0).any():
            unknown = ids[np.argmax(rows < 0)].item()
            remedy = "; give the ratings of new users as a sparse matrix" if what == "user" else ""
            raise DataError(f"the {what} {shortened(unknown)} was not in fit{remedy}")
        return rows

    def _numbers(self, ids, what):
        """Row numbers of checked ids, -1 for those that were not in fit; of another kind none could be."""
        known = self.user_ids_ if what == "user" else self.item_ids_
        if len(ids) and ids.dtype.kind != known.dtype.kind:
            raise DataError(
                f"the {what} {shortened(ids[0].item())} was not in fit: the model's ids are "
                f"{kind_of(known)}, for instance {shortened(known[0].item())}"
            )
        return find_ids(ids, known)

    def _given_cells(self, X, y, sample_weight=None):
        """Rows, columns and values as of `_cells`, and weights; files and Dask's data are read here."""
        check_is_fitted(self)
        if not is_elsewhere(X):
            return *self._cells(X, y), sample_weight
        users, items, values, weights = read_here(self, X, y, sample_weight)
        return self._numbers(users, "user"), self._numbers(items, "item"), values, weights

    def _cells(self, X, y):
        """Rows, columns (-1 for unknown ids) and values of ratings in any form that `fit` takes."""
        X, y = split_table(X, y, type(self).__name__)
        if is_named(X):
            users, items = named_ids(X)
            rows, columns, values = cells_of(check_matrix(X.matrix, type(self).__name__))
            return self._numbers(users, "user")[rows], self._numbers(items, "item")[columns], values
        if sparse.issparse(X):
            X = check_matrix(X, type(self).__name__, len(self.item_ids_))
            if X.shape[0] != len(self.user_ids_):
                raise DataError(f"X has {X.shape[0]} rows, but the model has {len(self.user_ids_)} users")
            return cells_of(X)
        users, items = check_pairs(X)
        values = check_values(y, len(users), type(self).__name__)
        return self._numbers(users, "user"), self._numbers(items, "item"), values

    def _ranking_score(self, rows, columns, values):
        """NDCG among ten recommendations, where cells with a value above zero are hits."""
        from .ranking import evaluate_ranking

        hits = (rows >= 0) & (columns >= 0) & (values > 0)
        shape = (len(self.user_ids_), len(self.item_ids_))
        held_out = sparse.csr_array((values[hits], (rows[hits], columns[hits])), shape=shape)
        return evaluate_ranking(self, held_out, k=10)["ndcg"]
