"""Penalties: the terms added to the loss, one for each coefficient.

A penalty is a small object that the working-set solver asks for what it needs: how large a slope at zero it
holds (its *strength* times the feature's factor), and its value. Other penalties than absolute values and
squares are those of `SparseGLM` (`linear.structured`).
"""

import numpy as np

from ....errors import DataError

ENDLESS = 1e300  # a strength above which none is taken: it asks how large the largest slope is


class SeparablePenalty:
    """Base of penalties ``sum_j pen(b_j; strength * l1_factors[j])``.

    `strength`, in units of the unscaled loss (a sum): a coefficient stays at zero while ``|x_j . v| <=
    strength * l1_factors[j]``, the half-width of the subdifferential. `l1_factors`: float64 (n_features,),
    not negative; 0 never penalises, infinity excludes a feature, None is 1 for all. `positive`: coefficients
    at or above zero only.
    """

    strength: float
    l1_factors: np.ndarray | None = None
    positive: bool = False

    def with_strength(self, strength):
        """Return the same penalty with another strength: on the way to it the solver starts larger."""
        raise NotImplementedError(f"{type(self).__name__} must say what it is with another strength")

    def thresholds(self, features):
        """``strength * l1_factors`` of some features: float64 array of their number."""
        if self.l1_factors is None:
            return np.full(len(features), self.strength)
        return self.strength * self.l1_factors[features]

    def ridges(self, features):
        """Factors of ``b_j^2 / 2`` of some features: float64 array of their number."""
        return np.zeros(len(features))

    def unpenalised(self, n_features):
        """Features whose slope must vanish, since nothing holds them at zero: int64 array, rising."""
        if self.l1_factors is None:
            return np.arange(n_features) if self.strength == 0 else np.empty(0, np.int64)
        return np.flatnonzero(np.isfinite(self.l1_factors) if self.strength == 0 else self.l1_factors == 0)

    def value(self, coef, features):
        """Sum of the terms of some features: `coef` (float64) and `features` (int64) of one length."""
        raise NotImplementedError(f"{type(self).__name__} must say what its value is")


class L1L2(SeparablePenalty):
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

    def with_strength(self, strength):
        """See `SeparablePenalty.with_strength`; the ridge stays."""
        other = object.__new__(L1L2)
        other.__dict__.update(self.__dict__)
        other.strength = float(strength)
        return other

    def ridges(self, features):
        """See `SeparablePenalty.ridges`."""
        if self.l2_factors is None:
            return np.full(len(features), self.ridge)
        return self.ridge * self.l2_factors[features]

    def value(self, coef, features):
        """See `SeparablePenalty.value`."""
        return self.thresholds(features) @ np.abs(coef) + 0.5 * (self.ridges(features) @ coef**2)


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
