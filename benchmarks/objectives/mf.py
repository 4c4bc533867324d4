"""Matrix factorization of ratings: error on held-out ratings against seconds."""

from typing import ClassVar

import numpy as np

from ...errors import DataError
from . import Metric, _ratings


class Objective(_ratings.RatingsObjective):
    """Root mean square error on a tenth of the ratings, drawn by `seed`, that is looked at when all is done.

    Another tenth is given to every solver, which chooses its penalty by it before the clock runs, from the
    same number of values (``penalties``). A solver with a schedule of learning rates begins anew with more
    and more epochs; the seconds of a state are those of the fit that led to it, from triples in memory to
    factors. Where more epochs validate worse, the state before is judged.
    """

    family = "mf"
    implicit = False
    work = "ratings"
    metrics = (Metric("rmse", "test RMSE", lower_is_better=True),)
    defaults: ClassVar[dict] = {"n_components": 32, "penalties": 4}
    quick_defaults: ClassVar[dict] = {"n_components": 16, "penalties": 2}

    def evaluate(self, snapshot):
        """Judge factors, biases and mean of a state; its penalty goes into the record."""
        K = self.parameters["n_components"]
        P, Q = _ratings.factors_of(snapshot, self.train.shape, K)
        b, c = (np.asarray(snapshot[name], np.float64) for name in ("user_bias", "item_bias"))
        figures = {"penalty": float(snapshot["penalty"])}
        for name, part in (("rmse", self.test), ("validation_rmse", self.validation)):
            cells = part.tocoo()
            products = np.concatenate(
                [
                    np.einsum("ij,ij->i", P[cells.row[a : a + 65536]], Q[cells.col[a : a + 65536]])
                    for a in range(0, cells.nnz, 65536)
                ]
            )
            misses = float(snapshot["mean"]) + b[cells.row] + c[cells.col] + products - cells.data
            figures[name] = float(np.sqrt(np.mean(misses**2)))
        if not np.isfinite(figures["rmse"]):
            raise DataError("the predictions are not finite")
        return figures
