"""l1-penalised logistic regression: seconds to a relative duality gap."""

import numpy as np

from ..gaps import logistic_gap
from ..linear_cases import CLASSIFICATIONS, load_classification
from . import Problem
from ._classes import Choice, checked_cs
from ._linear import TARGETS, LinearObjective


class Objective(LinearObjective):
    """Logistic regression, 1/n sum_i log(1 + exp(-y_i (x_i.b + b0))) + alpha |b|_1.

    The penalties are alpha_max / divisor or, where some `C` of scikit-learn's is given, ``1 / (C n)``: beyond
    alpha_max every coefficient is zero. ``unit_rows`` and ``one_class``: see `Choice`.
    """

    family = "sparse-logistic"
    default_datasets = tuple(CLASSIFICATIONS)
    defaults = {**LinearObjective.defaults, "C": None, **Choice.defaults}  # noqa: RUF012
    gap = staticmethod(logistic_gap)

    def __init__(self, dataset, *, seed, parameters, quick=False):
        self.Cs = () if parameters["C"] is None else checked_cs(parameters["C"])
        self.choice = Choice.of(parameters)
        super().__init__(dataset, seed=seed, parameters=parameters, quick=quick)

    def load(self, dataset, *, seed, quick):
        """Return the design (dense, or CSC) and labels -1 and 1."""
        several = self.choice.one_class is not None
        return self.choice.made_of(*load_classification(dataset, seed=seed, quick=quick, several=several))

    def alpha_max(self, X, y):
        """Return the smallest penalty at which all coefficients are 0."""
        residual = y / 2 if not self.intercept else (y - y.mean()) / 2
        return float(np.abs(X.T @ residual).max() / len(y))

    def describe(self):
        """See `LinearObjective`."""
        described = super().describe()
        return described | {"name": self.choice.named(described["name"])}

    def problems(self):
        """Return the penalties to be solved for."""
        n = len(self.y)
        at_cs = [Problem(f"C={C:g}", "solve", {"alpha": 1 / (C * n)}, TARGETS) for C in self.Cs]
        return at_cs or super().problems()
