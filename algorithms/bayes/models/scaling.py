"""How columns are standardised, and the way back to their units."""

from dataclasses import dataclass

import numpy as np

_ROUNDING = 1e-12  # parts of a number that are rounding


@dataclass(frozen=True, eq=False)
class Scaling:
    """How columns are standardised: ``(x - centre) / spread``. Shards have that of all rows.

    `offset` is subtracted from offsets, so that the intercept is the predictor at means of the data. `size`
    is the unit of predictors of mixed models, the standard deviation of a y that has units.
    """

    centres: np.ndarray
    spreads: np.ndarray
    offset: float = 0.0
    size: float = 1.0

    def design(self, X, with_intercept):
        """Standardise columns (n, d), in their own precision; and add one of ones."""
        n, d = X.shape
        design = np.ones((n, d + with_intercept), dtype=X.dtype)
        np.subtract(X, self.centres, out=design[:, :d], casting="same_kind")
        np.divide(design[:, :d], self.spreads, out=design[:, :d], casting="same_kind")
        return design

    def scaled_products(self, X):
        """The same for weighted rows whose last column is that of the intercept."""
        columns, ones = X[:, : len(self.centres)], X[:, len(self.centres) :]
        rest = columns - ones * self.centres
        rest[:, np.abs(rest).max(axis=0) <= _ROUNDING * np.abs(columns).max(axis=0)] = 0.0  # constant
        return np.hstack([rest / self.spreads, ones])

    def put_back(self, draws):
        """Bring draws (..., d + 1) of coefficients and an intercept to the columns' units, in place."""
        d = len(self.centres)
        draws[..., :d] /= self.spreads
        if self.centres.any() or self.offset:
            draws[..., d] -= draws[..., :d] @ self.centres + self.offset
