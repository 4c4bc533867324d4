"""Ranking losses of choices by gradient descent in rotation."""

import numpy as np

from ....kernels.factorization.pairwise import BPR, LOGISTIC, WARP, rank_block
from .rotation import Rotation
from .sides import INITIAL_SPREAD

_LOSSES = {"bpr": BPR, "logistic": LOGISTIC, "warp": WARP}


class PairwiseRanking(Rotation):
    """Pairs of a chosen and another item of the same block; see `Rotation` and the kernel.

    Values above zero are choices, whatever their size; others are ignored. In an epoch every block takes as
    many steps as it has choices.
    """

    def __init__(self, entries, settings, seed):
        chosen = entries.chosen(entries.values > 0)
        super().__init__(chosen, settings, seed, 0.0, 1.0, INITIAL_SPREAD)
        self.n_items = len(np.unique(chosen.indices))

    @staticmethod
    def arrange(start, stop, rows, columns, weights, targets, seed):
        """Sort a block by row and column."""
        order = np.lexsort((columns[start:stop], rows[start:stop]))
        rows[start:stop], columns[start:stop] = rows[start:stop][order], columns[start:stop][order]

    def descend(self, state, task, cell, tables):
        """Take the steps of a block; return the sum of their losses."""
        number, settings = task.shard * self.n_blocks + task.blocks, self.settings
        return rank_block(
            *cell, *tables, self.rate(task.round), self.dtype.type(1 / settings.n_components), settings.bias,
            _LOSSES[settings.loss], self.n_items, self.seed, task.round, number, self.vectors,
        )  # fmt: skip
