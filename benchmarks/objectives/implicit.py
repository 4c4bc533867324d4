"""Matrix factorization of implicit feedback: ranking of held-out choices against seconds."""

from typing import ClassVar

import numpy as np

from ...errors import DataError
from . import Metric, _ratings

PLACES = 20
MAX_USERS = 5000  # that are judged


class Objective:
    """NDCG and recall among 20 recommendations, on a tenth of the choices, drawn by `seed`.

    All systems minimise the same function, of Hu, Koren and Volinsky, with the same penalty and confidence.

    Parameters
    ----------
    dataset : str
        See `_ratings.load_ratings`.
    seed : int
    parameters : mapping
        ``n_components``, ``alpha`` and ``reg``.
    quick : bool
    """

    family = "implicit"
    procedure = "training"
    work = "choices"
    metrics = (
        Metric("ndcg", "NDCG@20", lower_is_better=False),
        Metric("recall", "recall@20", lower_is_better=False),
    )
    default_datasets = ("generated",)
    defaults: ClassVar[dict] = {"n_components": 64, "alpha": 10.0, "reg": 10.0}
    quick_defaults: ClassVar[dict] = {"n_components": 16}
    max_seconds, quick_max_seconds = 6.0, 1.0

    def __init__(self, dataset, *, seed, parameters, quick=False):
        for name, value in parameters.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise DataError(f"--param: {name} is {value!r}; a number above 0 is needed")
        self.dataset, self.seed, self.parameters = dataset, seed, parameters
        R = _ratings.load_ratings(dataset, seed, implicit=True, quick=quick)
        self.train, self.validation, self.test = _ratings.three_parts(R, seed)

    def describe(self):
        """What the records say of the data."""
        return _ratings.describe(self.dataset, self.seed, self.train, self.validation, self.test)

    def settings(self):
        """Settings that every solver is given."""
        return dict(self.parameters)

    def arrays(self):
        """Triples to learn from."""
        return _ratings.arrays_of(self.train, self.validation)

    def sample(self):
        """Part of the users, to warm up on."""
        return _ratings.arrays_of(self.train[:300], self.validation[:300])

    def evaluate(self, snapshot):
        """Judge factors: rank all items that the user has not chosen in training.

        Parameters
        ----------
        snapshot : mapping of arrays
            ``user_factors`` and ``item_factors``.

        Returns
        -------
        dict
        """
        P, Q = _ratings.factors_of(snapshot, self.train.shape, self.parameters["n_components"])
        users = np.flatnonzero(np.diff(self.test.indptr))[:MAX_USERS]
        discounts = 1 / np.log2(np.arange(2, PLACES + 2))
        gains, recalls = [], []
        for u in users:
            scores = Q @ P[u]
            scores[self.train.indices[self.train.indptr[u] : self.train.indptr[u + 1]]] = -np.inf
            best = np.argsort(-scores, kind="stable")[:PLACES]
            wanted = self.test.indices[self.test.indptr[u] : self.test.indptr[u + 1]]
            hits = np.isin(best, wanted)
            gains.append(hits @ discounts[: len(hits)] / discounts[: len(wanted)].sum())
            recalls.append(hits.sum() / len(wanted))
        return {"ndcg": float(np.mean(gains)), "recall": float(np.mean(recalls))}
