"""Ratings held out of a fit, and the model that predicts or ranks them best."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...errors import DataError
from .ranking import hits_of, measures
from .serving.recommend import Asked, best_items
from .solvers.shrinkage import bias_errors
from .solvers.sides import Sides

PLACES = 20  # of the NDCG of implicit feedback
_MOST_USERS = 3000  # to judge a ranking by
_MOST_RATINGS = 50_000  # of the fit, to compare it with biases
_FEW, _WORSE = 100, 1.01  # ratings that tell nothing; squared error over that of biases which is said


def hold_out(model, entries, rng):
    """Hold out a random fraction of the ratings, or of the choices; return the rest, and the watch."""
    fraction = model.validation_fraction
    given = np.flatnonzero(entries.values > 0) if model.implicit else np.arange(len(entries))
    n_held = round(fraction * len(given))
    if not 0 < n_held < len(given):
        what = "choices" if model.implicit else "ratings"
        raise DataError(
            f"validation_fraction={fraction:g} of {len(given)} {what} are {n_held}; early_stopping needs "
            "at least one to hold out and one to fit"
        )
    held = np.zeros(len(entries), bool)
    held[given[rng.permutation(len(given))[:n_held]]] = True
    train = entries.chosen(~held)
    if not model.implicit:
        return train, PredictionWatch(entries.chosen(held), model.n_iter_no_change)
    return train, RankingWatch(train, entries.chosen(held), model.n_iter_no_change, rng)


class HeldOutWatch:
    """Keeps the model with the best score on held-out ratings.

    `patience`: iterations without a better one after which a fit ends.
    """

    best: Sides

    def __init__(self, patience):
        self._patience = patience
        self.scores: list[float] = []

    def score(self, sides):
        """Judge a model by what was held out; more is better."""
        raise NotImplementedError

    def enough(self, sides):
        """Judge a model; return whether the score has not risen for `patience` iterations."""
        self.scores.append(self.score(sides))
        at = int(np.argmax(self.scores))
        if at == len(self.scores) - 1:
            self.best = sides
        return len(self.scores) - 1 - at >= self._patience


class PredictionWatch(HeldOutWatch):
    """Judges by the negative (unweighted) root mean square error of held-out ratings."""

    name = "validation_errors_"

    def __init__(self, held, patience):
        super().__init__(patience)
        self.held, self._rows = held, held.rows

    def score(self, sides):
        """Return the negative error."""
        misses = sides.predict(self._rows, self.held.indices) - self.held.values
        return -float(np.sqrt(np.mean(misses**2)))

    def record(self):
        """Errors after each iteration."""
        return -np.array(self.scores)


class RankingWatch(HeldOutWatch):
    """Judges by NDCG@20 of held-out choices of at most 3,000 users, among what these lack in the fit."""

    name = "validation_scores_"

    def __init__(self, train, held, patience, rng):
        super().__init__(patience)
        users = np.flatnonzero(held.counts)
        if len(users) > _MOST_USERS:
            users = np.sort(rng.choice(users, _MOST_USERS, replace=False))
        self._users, self._seen = users, train.pattern()[users]
        wanted = held.pattern()[users]
        self._counts = np.diff(wanted.indptr)
        rows = np.repeat(np.arange(len(users), dtype=np.int64), self._counts)
        self._keys = np.sort(rows * wanted.shape[1] + wanted.indices)

    def score(self, sides):
        """Return the mean NDCG."""
        users, items = sides.user_factors[self._users], sides.item_factors
        n_items = len(items)

        def scores(start, stop):
            return users[start:stop] @ items.T + sides.item_bias

        n = min(PLACES, n_items)
        found, _ = best_items(Asked(scores, None, self._seen, None), n, [self._seen], None, n_items, 1)
        hits = hits_of(found, np.arange(len(users)), self._keys, n_items)
        return float(measures(hits, self._counts, PLACES)["ndcg"].mean())

    def record(self):
        """NDCG after each iteration."""
        return np.array(self.scores)


def squared_errors(sides, entries):
    """Compute the weighted squared errors of ratings."""
    return entries.weights * (sides.predict(entries.rows, entries.indices) - entries.values) ** 2


def compare_fit_with_biases(model, sides, entries, watch):
    """Warn if biases alone predict what a watch held out better, or else the ratings of the fit themselves.

    Of those each is left out of the biases in turn, not of the model: it is far off if it is worse even so.
    """
    if watch is not None:
        compare_with_biases(model, squared_errors(sides, watch.held), entries, watch.held)
        return
    entries = entries.sample(_MOST_RATINGS)
    compare_with_biases(model, squared_errors(sides, entries), entries)


def compare_with_biases(model, errors, train, held=None):
    """Warn if biases of `train` have less than these squared errors, on `held` or left out in turn."""
    n, mean = len(errors), train.average(lambda values: values)
    if n < _FEW:
        return
    of_biases = bias_errors(train, model.bias_reg_, held)
    rises = errors - np.maximum(_WORSE * of_biases, 1e-3 * train.average(lambda values: (values - mean) ** 2))
    if rises.mean() > 2 * rises.std() / np.sqrt(n):
        what = "its own ratings" if held is None else "ratings held out"
        remedy = "a larger reg or fewer n_components" if held is not None else "more max_iter or solver='als'"
        warnings.warn(
            f"{type(model).__name__} with solver={model.solver_!r} misses {what} by "
            f"{np.sqrt(errors.mean()):.4g}, biases alone (the mean, and a number for each user and item) "
            f"miss what they have not seen by {np.sqrt(of_biases.mean()):.4g}: take "
            + (remedy if model.bias else "bias=True"),
            ConvergenceWarning,
            stacklevel=4,
        )


def watched(watch, callback):
    """The callback of a fit: the caller's, and the watch over held-out ratings."""
    if watch is None:
        return callback

    def look(info):
        enough = watch.enough(info.snapshot()._sides)
        stop = callback(info) if callback is not None else False
        return enough or stop

    return look
