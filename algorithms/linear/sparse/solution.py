"""The solution of a sparse linear problem for one penalty."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Solution:
    """The model for one penalty.

    `features`: those with a coefficient, rising. `coef`: (m,) or (m, n_outputs). `gap` is relative to the
    objective of the zero model, and compared with `tol`. `rounds`, `updates`: passes over X, and coordinates
    visited, since the last solution. `reason`: "gap" was reached; "stalled" by rounding; "max_rounds";
    "stopped" by the user; "" while it runs.
    """

    strength: float
    features: np.ndarray
    coef: np.ndarray
    intercept: object
    objective: float
    gap: float
    gap_absolute: float
    rounds: int
    updates: int
    reason: str

    def dense(self, n_features, dtype):
        """Coefficients as a vector of all features, or a matrix (n_outputs, n_features)."""
        coef = np.zeros((*self.coef.shape[1:], n_features), dtype)
        coef[..., self.features] = self.coef.T
        return coef
