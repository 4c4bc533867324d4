"""l1-penalised logistic regression: seconds to a relative duality gap."""

import numpy as np

from ..gaps import logistic_gap
from ..linear_cases import CLASSIFICATIONS, load_classification
from ._linear import LinearObjective


class Objective(LinearObjective):
    """Logistic regression, 1/n sum_i log(1 + exp(-y_i (x_i.b + b0))) + alpha |b|_1."""

    family = "sparse-logistic"
    default_datasets = tuple(CLASSIFICATIONS)
    load = staticmethod(load_classification)
    gap = staticmethod(logistic_gap)

    def alpha_max(self, X, y):
        """Return the smallest penalty at which all coefficients are 0."""
        residual = y / 2 if not self.intercept else (y - y.mean()) / 2
        return float(np.abs(X.T @ residual).max() / len(y))
