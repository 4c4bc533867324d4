"""Matrix factorization of implicit feedback: ranking of held-out choices against seconds."""

from typing import ClassVar

import numpy as np

from . import Metric, _ratings

PLACES = 20
MAX_USERS = 5000  # that are judged


class Objective(_ratings.RatingsObjective):
    """NDCG and recall among 20 recommendations, on a tenth of the choices, drawn by `seed`.

    All systems minimise the same function, of Hu, Koren and Volinsky, with the same penalty and confidence.
    """

    family = "implicit"
    implicit = True
    work = "choices"
    metrics = (
        Metric("ndcg", "NDCG@20", lower_is_better=False),
        Metric("recall", "recall@20", lower_is_better=False),
    )
    defaults: ClassVar[dict] = {"n_components": 64, "alpha": 10.0, "reg": 10.0}
    quick_defaults: ClassVar[dict] = {"n_components": 16}

    def evaluate(self, snapshot):
        """Judge factors of users and items: rank all items that the user has not chosen in training."""
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
