"""Lasso: seconds to a relative duality gap; and a path of penalties with cross-validation."""

import numpy as np

from ..gaps import lasso_gap
from ..linear_cases import PATHS, REGRESSIONS, load_regression
from . import Problem
from ._linear import LinearObjective

N_FOLDS = 5
SMALLEST = 1e-3  # of the path's penalties, relative to the largest


class Objective(LinearObjective):
    """The Lasso, 1/2n |y - X b - b0|^2 + alpha |b|_1.

    The data set "path" is one problem of another kind: 100 penalties from alpha_max to a thousandth of it (30
    when quick), 5 folds of consecutive rows, the best penalty, and the fit to all rows at it, always with an
    intercept. The gap of the last fit says nothing of the 500 before it, so systems are compared at equal
    tolerances, relative to the target's square as all that offer such a path mean them, and by how well
    they agree on the errors of the folds.
    """

    family = "lasso"
    default_datasets = (*REGRESSIONS, *PATHS)
    load = staticmethod(load_regression)
    gap = staticmethod(lasso_gap)

    def __init__(self, dataset, *, seed, parameters, quick=False):
        self.is_path = dataset in PATHS
        if self.is_path:
            parameters = {**parameters, "intercept": True}
        super().__init__(dataset, seed=seed, parameters=parameters, quick=quick)

    def alpha_max(self, X, y):
        """Return the smallest penalty at which all coefficients are 0 (the target has mean 0)."""
        return float(np.abs(X.T @ y).max() / len(y))

    def problems(self):
        """Return the penalties to be solved for, or the one path."""
        if not self.is_path:
            return super().problems()
        alphas = self.largest_alpha * np.geomspace(1, SMALLEST, 30 if self.quick else 100)
        arguments = {"alphas": alphas.tolist(), "n_folds": N_FOLDS}
        name = f"{len(alphas)} x {N_FOLDS}"
        return [Problem(name, "cross_validate", arguments, (1e-4, 1e-6), "tolerance", patience=60)]

    def alpha_of(self, problem, arrays):
        """Return the penalty that a solution is for: of a path, the one it has chosen."""
        return float(arrays["alpha"]) if self.is_path else super().alpha_of(problem, arrays)

    def evaluate(self, problem, arrays):
        """Judge one solution; of a path, return the chosen penalty and the curve of errors as well."""
        judged = super().evaluate(problem, arrays)
        if self.is_path:
            judged |= {"alpha": float(arrays["alpha"]), "errors": np.asarray(arrays["errors"]).tolist()}
        return judged
