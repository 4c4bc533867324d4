"""CCD++: coordinate descent over one factor of all users and items at a time."""

import numpy as np

from ...kernels.mf_ccd import catch_up_rows, refit_rows
from .sides import Sides, mean_rating, run_rows, start_factors

_INNER = 2  # times that a factor's two sides are refitted in turn
_SPREAD = 0.1  # of the factors to begin with


class CyclicCoordinateDescent:
    """One factor after another, on the residuals; the objective never rises.

    A bias is one more factor, whose counterpart on the other side is 1.

    Parameters
    ----------
    entries : Entries
    settings : Settings
    rng : numpy Generator

    References
    ----------
    Yu, Hsieh, Si, Dhillon, "Scalable coordinate descent approaches to parallel matrix factorization for
    recommender systems", ICDM 2012.
    """

    def __init__(self, entries, settings, rng):
        self._settings = settings
        self._mean = mean_rating(entries, settings)
        self._tables = (entries, entries.transposed())
        dtype = entries.values.dtype
        self._ridges = [settings.ridge(table.counts, dtype) for table in self._tables]
        # A row of these is a factor, so that the numbers of one factor lie side by side.
        self._factors = [
            np.ascontiguousarray(part.T) for part in start_factors(rng, entries, settings, _SPREAD)
        ]
        self._bias = [np.zeros(n, dtype) for n in entries.shape]
        self._residuals = [self._fresh(side) for side in (0, 1)]

    def _fresh(self, side):
        """Compute the residuals in the order of a side."""
        table, own, others = self._tables[side], self._factors[side], self._factors[1 - side]
        residuals = table.values - table.values.dtype.type(self._mean)
        for x, y in zip(own, others, strict=True):
            run_rows(catch_up_rows, table.indptr, self._settings.n_jobs, table.indices, residuals, x, y)
        return residuals

    def step(self, _):
        """Refit the biases and every factor; return figures for the history."""
        if self._settings.bias:
            for side in (0, 1):
                ones = [np.ones_like(self._bias[0]), np.ones_like(self._bias[1])]
                ones[side] = self._bias[side]
                self._refit(ones, (side,), False)
        for pair in zip(*self._factors, strict=True):
            self._refit(pair, (0, 1) * _INNER, self._settings.non_negative)
        weights, residuals = self._tables[0].weights, self._residuals[0].astype(np.float64)
        objective = float(np.dot(weights, residuals**2)) + self.sides.penalty(*self._ridges)
        return {"objective": objective, "updates": len(residuals)}

    def _refit(self, pair, order, non_negative):
        """Refit the two sides of one factor in the given order, in place."""
        changes = [np.zeros_like(x) for x in pair]  # not yet in the residuals of the other order
        for side in order:
            table = self._tables[side]
            run_rows(
                refit_rows,
                table.indptr,
                self._settings.n_jobs,
                table.indices,
                table.weights,
                self._residuals[side],
                pair[side],
                pair[1 - side],
                changes[1 - side],
                self._ridges[side],
                non_negative,
                changes[side],
            )
        side = 1 - order[-1]
        table = self._tables[side]
        arrays = (table.indices, self._residuals[side], pair[side], changes[1 - side])
        run_rows(catch_up_rows, table.indptr, self._settings.n_jobs, *arrays)

    @property
    def sides(self):
        """The model so far, in memory of its own."""
        factors = [np.array(part.T, order="C") for part in self._factors]
        return Sides.of(factors, [part.copy() for part in self._bias], self._mean)
