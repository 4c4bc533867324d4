"""Stochastic gradient descent over a grid of blocks of ratings, in rotation."""

from ....kernels.factorization.sgd import descend_block
from .rotation import Rotation
from .sides import deviation, mean_rating

_SPREAD = 0.01  # of the initial factors: small, so that directions are learned one after another


class RotationSGD(Rotation):
    """Squared errors of ratings; see `Rotation`.

    The rate falls linearly to 0 over the epochs. Ratings are centred and divided by their standard deviation,
    so that the rate suits any scale.
    """

    def __init__(self, entries, settings, seed, spread=_SPREAD):
        mean = mean_rating(entries, settings)
        super().__init__(entries, settings, seed, mean, deviation(entries, mean), spread)
        self.holds = tuple(self.dtype.type(reg) for reg in settings.bias_reg or (0.0, 0.0))

    def descend(self, state, task, cell, tables):
        """One pass over the ratings of a block; return the sum of squared errors before each step."""
        dtype, settings = self.dtype.type, self.settings
        return descend_block(
            *cell, state["weights"], state["targets"], *tables, self.rate(task.round), dtype(1 / self.scale),
            *self.holds, dtype(1 / settings.n_components), settings.bias, self.vectors,
        )  # fmt: skip
