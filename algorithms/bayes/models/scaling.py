"""How columns are standardised, and the way back to their units."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Scaling:
    """How columns are standardised: ``(x - centre) / spread``. Shards have that of all rows."""

    centres: np.ndarray
    spreads: np.ndarray

    def scaled(self, X):
        """Standardise columns (n, d), in their own precision."""
        return np.ascontiguousarray((X - self.centres) / self.spreads, dtype=X.dtype)

    def scaled_products(self, X):
        """The same for weighted rows whose last column is that of the intercept."""
        ones = X[:, len(self.centres) :]
        return np.hstack([(X[:, : len(self.centres)] - ones * self.centres) / self.spreads, ones])

    def put_back(self, draws):
        """Bring draws (..., d + 1) of coefficients and an intercept to the columns' units, in place."""
        d = len(self.centres)
        draws[..., :d] /= self.spreads
        if self.centres.any():
            draws[..., d] -= draws[..., :d] @ self.centres
