"""Stochastic gradient descent over a grid of blocks of ratings, in rotation."""

import numpy as np

from ...errors import DataError
from ...kernels.mf_sgd import descend_block
from ...scheduler.threads import run_tasks
from .sides import Sides, mean_rating, start_factors

_BLOCKS = 8  # a side of the grid
_SPREAD = 0.02  # of the factors to begin with: small, so that directions are learned one after another


class RotationSGD:
    """Blocks in rotation: at step s those of user block i and item block i + s run at the same time.

    No two of them share a user or an item, so that the result depends on the grid and the seed alone. The
    rate falls linearly to 0 over the epochs. Ratings are centred and divided by their deviation, so that the
    rate suits any scale.

    Parameters
    ----------
    entries : Entries
    settings : Settings
    rng : numpy Generator

    References
    ----------
    Gemulla, Nijkamp, Haas, Sismanis, "Large-scale matrix factorization with distributed stochastic gradient
    descent", KDD 2011.
    """

    def __init__(self, entries, settings, rng):
        self._settings = settings
        self._mean = mean_rating(entries, settings)
        self._dtype = dtype = entries.values.dtype
        self._scale = _deviation(entries, self._mean)
        self._n_blocks = min(_BLOCKS, *entries.shape)
        item_counts = np.bincount(entries.indices, minlength=entries.shape[1])
        counts = (entries.counts, item_counts)
        self._order = [_Deal(count, self._n_blocks, rng) for count in counts]
        self._penalties = [settings.ridge(count, dtype) for count in counts]
        self._cut(entries, rng)
        self._factors = start_factors(rng, entries, settings, _SPREAD)
        self._bias = [np.zeros(n, dtype) for n in entries.shape]
        self._squares = [np.ones(n, dtype) for n in entries.shape]
        # A penalty is paid in equal parts by the row's ratings.
        self._ridges = [
            (penalty / np.maximum(count, 1))[order.rows].astype(dtype)
            for penalty, count, order in zip(self._penalties, counts, self._order, strict=True)
        ]

    def _cut(self, entries, rng):
        """Put the ratings of a block side by side, mixed inside it."""
        mixed = rng.permutation(len(entries))
        rows, columns = entries.rows[mixed], entries.indices[mixed]
        users, items = self._order
        block = users.block[rows] * self._n_blocks + items.block[columns]
        by_block = np.argsort(block.astype(np.int16), kind="stable")
        self._cuts = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=self._n_blocks**2))])
        chosen = mixed[by_block]
        targets = (entries.values[chosen] - self._mean) / self._scale
        self._ratings = (
            users.number[rows[by_block]],
            items.number[columns[by_block]],
            entries.weights[chosen],
            targets.astype(self._dtype),
        )

    def step(self, epoch):
        """Go over all ratings once; return figures for the history.

        The loss in the objective is of the residuals met on the way.
        """
        settings, n = self._settings, self._n_blocks
        rate = self._dtype.type(settings.learning_rate * (1 - epoch / settings.max_iter))
        scaled = [ridge / self._dtype.type(self._scale) for ridge in self._ridges]
        arrays = (*self._factors, *self._bias, *self._squares, *scaled, *self._ridges, rate, settings.bias)
        squares = 0.0
        for shift in range(n):
            blocks = [i * n + (i + shift) % n for i in range(n)]
            tasks = [
                (descend_block, (int(self._cuts[b]), int(self._cuts[b + 1]), *self._ratings, *arrays))
                for b in blocks
            ]
            squares += sum(run_tasks(tasks, settings.n_jobs))
        objective = squares * self._scale**2 + self.sides.penalty(*self._penalties)
        if not np.isfinite(objective):
            raise DataError(
                f"solver='sgd' diverged in epoch {epoch + 1} with learning_rate={settings.learning_rate:g}; "
                "take a lower one, or solver='als'"
            )
        return {"objective": objective, "updates": len(self._ratings[0])}

    @property
    def sides(self):
        """The model so far, in the order of the caller's rows."""
        scale = self._dtype.type(self._scale)
        factors = [
            part[order.number] * np.sqrt(scale)
            for part, order in zip(self._factors, self._order, strict=True)
        ]
        bias = [part[order.number] * scale for part, order in zip(self._bias, self._order, strict=True)]
        for part, order in zip(factors, self._order, strict=True):
            part[order.empty] = 0
        return Sides.of(factors, bias, self._mean)


class _Deal:
    """Rows dealt to blocks, the busiest first, to and fro; rows of a block get adjacent numbers.

    Attributes
    ----------
    block : int64 ndarray; number : int32 ndarray
        Of each row.
    rows : int64 ndarray
        Row of each number.
    empty : int64 ndarray
        Rows without ratings.
    """

    def __init__(self, counts, n_blocks, rng):
        lap, place = np.divmod(np.arange(len(counts)), n_blocks)
        self.block = np.empty(len(counts), np.int64)
        self.block[np.argsort(-counts, kind="stable")] = np.where(lap % 2 == 0, place, n_blocks - 1 - place)
        self.rows = np.lexsort((rng.random(len(counts)), self.block))
        self.number = np.empty(len(counts), np.int32)
        self.number[self.rows] = np.arange(len(counts), dtype=np.int32)
        self.empty = np.flatnonzero(counts == 0)


def _deviation(entries, mean):
    """Return the weighted deviation of the ratings from the mean; 1 if all are equal."""
    weights = entries.weights.astype(np.float64)
    squares = np.dot(weights, (entries.values.astype(np.float64) - mean) ** 2) / weights.sum()
    deviation = float(np.sqrt(squares))
    return deviation if deviation > 1e-6 * np.abs(entries.values).max() else 1.0
