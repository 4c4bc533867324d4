"""The penalty of sparse linear models with one problem a target; see `linear.structured` for others."""

import numpy as np

from ....errors import DataError

ENDLESS = 1e300  # a strength above which none is taken


class L1L2:
    """``sum_j strength f_j |b_j| + ridge q_j b_j^2 / 2``, perhaps over b >= 0.

    `strength`: of the absolute values: ``sum(weights) * alpha * l1_ratio``. `ridge`: of the squares:
    ``sum(weights) * alpha * (1 - l1_ratio)``. `l1_factors`, `l2_factors`: float64 (n_features,), f and q: not
    negative; 1 by default. Features whose factors are infinite are excluded.
    """

    def __init__(self, strength, ridge=0.0, *, l1_factors=None, l2_factors=None, positive=False):
        _check_strength("strength", strength)
        _check_strength("ridge", ridge)
        self.strength, self.ridge, self.positive = float(strength), float(ridge), positive
        self.l1_factors = _checked_factors("l1_factors", l1_factors)
        self.l2_factors = _checked_factors("l2_factors", l2_factors)

    def thresholds(self, features):
        """``strength * l1_factors`` of some features: float64 array of their number."""
        if self.l1_factors is None:
            return np.full(len(features), self.strength)
        return self.strength * self.l1_factors[features]

    def ridges(self, features):
        """Factors of ``b_j^2 / 2`` of some features: float64 array of their number."""
        if self.l2_factors is None:
            return np.full(len(features), self.ridge)
        return self.ridge * self.l2_factors[features]

    def unpenalised(self, n_features):
        """Features whose slope must vanish, since nothing holds them at zero: int64 array, rising."""
        if self.l1_factors is None:
            return np.arange(n_features) if self.strength == 0 else np.empty(0, np.int64)
        return np.flatnonzero(np.isfinite(self.l1_factors) if self.strength == 0 else self.l1_factors == 0)


def _check_strength(name, value):
    if not np.isfinite(value) or value < 0:
        raise DataError(f"{name} must be finite and not negative, got {float(value)}")


def _checked_factors(name, factors):
    if factors is None:
        return None
    factors = np.ascontiguousarray(factors, dtype=np.float64)
    bad = np.flatnonzero(~(factors >= 0))
    if factors.ndim != 1 or len(bad):
        at = f", got {float(factors[bad[0]])} for feature {bad[0]}" if len(bad) and factors.ndim == 1 else ""
        raise DataError(f"{name} must hold one number for each feature, not negative{at}")
    return factors
