"""The items that most users have: the baseline of recommendations."""

from numbers import Integral
from typing import ClassVar

import numpy as np

from ..._base import documented
from .base import ATTRIBUTES, PARAMETERS, ChoiceModel


@documented({"binary": PARAMETERS, "attributes": ATTRIBUTES})
class Popularity(ChoiceModel):
    """Recommends the items that most users have chosen: the same to all, except what each one has.

    The score of an item is the number of its users, or, with ``binary=False``, the sum of its values.

    Parameters
    ----------
    %(binary)s
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores.

    Attributes
    ----------
    %(attributes)s
    item_scores_ : ndarray of float32, shape (n_items,)

    Raises
    ------
    DataError
        See `fit`.

    References
    ----------
    Ferrari Dacrema, Cremonesi, Jannach, "Are we really making much progress? A worrying analysis of recent
    neural recommendation approaches", RecSys 2019.

    Examples
    --------
    >>> import stradask as sd
    >>> pairs = [["ann", "tea"], ["bob", "tea"], ["bob", "ale"], ["cat", "ale"], ["cat", "jam"]]
    >>> sd.Popularity().fit(pairs, [1, 1, 1, 1, 1]).recommend("ann", n=2).items.tolist()
    ['ale', 'jam']
    """

    _parameter_constraints: ClassVar[dict] = {"binary": ["boolean"], "n_jobs": [None, Integral]}

    def __init__(self, *, binary: bool = True, n_jobs: int | None = None) -> None:
        self.binary = binary
        self.n_jobs = n_jobs

    _alike = None  # that all get the same is what the model is for

    def _learn(self, X):
        self.item_scores_ = np.bincount(X.indices, X.data, len(self.item_ids_)).astype(np.float32)

    def _asked(self, users, candidates):
        """Scores as products of one factor, 1 for users: the best items are found without scoring all."""
        asked = super()._asked(users, candidates)
        scores = self.item_scores_ if candidates is None else self.item_scores_[candidates]
        ones = np.ones((asked.seen.shape[0], 1), np.float32)
        return asked._replace(score=None, factors=(ones, scores[:, None]))

    def _predicted(self, rows, columns, clip=False):
        return np.where((rows >= 0) & (columns >= 0), self.item_scores_[columns].astype(np.float64), 0.0)

    def _check_state(self):
        super()._check_state()
        if self.item_scores_.shape != self.item_counts_.shape or self.item_scores_.dtype != np.float32:
            raise ValueError("item_scores_ must be one float32 an item")
