"""Ratings held out of a fit, and the model that predicts them best."""

import numpy as np

from ...errors import DataError
from .sides import Sides


def hold_out(entries, fraction, patience, rng):
    """Hold out a random fraction of the ratings; return the rest and the `EarlyStopping` of the fit."""
    n_held = round(fraction * len(entries))
    if not 0 < n_held < len(entries):
        raise DataError(
            f"validation_fraction={fraction:g} of {len(entries)} ratings are {n_held}; early_stopping needs "
            "at least one to hold out and one to fit"
        )
    held = np.zeros(len(entries), bool)
    held[rng.permutation(len(entries))[:n_held]] = True
    if len(entries.weights) > 1 and not entries.weights[~held].any():
        raise DataError("all ratings that are not held out have the weight 0; set early_stopping=False")
    return entries.chosen(~held), EarlyStopping(entries.chosen(held), patience)


class EarlyStopping:
    """Keeps the model with the least (unweighted) error on held-out ratings.

    `patience`: iterations without a smaller error after which a fit ends.
    """

    def __init__(self, held, patience):
        self._held, self._rows, self._patience = held, held.rows, patience
        self.errors: list[float] = []
        self.best: Sides

    def enough(self, sides):
        """Score a model; return whether the error has not fallen for `patience` iterations."""
        misses = sides.predict(self._rows, self._held.indices) - self._held.values
        self.errors.append(float(np.sqrt(np.mean(misses**2))))
        at = int(np.argmin(self.errors))
        if at == len(self.errors) - 1:
            self.best = sides
        return len(self.errors) - 1 - at >= self._patience


def watched(watch, callback):
    """The callback of a fit: the caller's, and the watch over held-out ratings."""
    if watch is None:
        return callback

    def look(info):
        enough = watch.enough(info.snapshot()._sides)
        stop = callback(info) if callback is not None else False
        return enough or stop

    return look
