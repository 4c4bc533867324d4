"""Minibatches of portions of rows, and one pass over them."""

import numpy as np

from ...errors import DataError
from ...scheduler.parameters import stream
from .._streams import Purpose


class Minibatches:
    """The minibatches of a replica: each pass over its portion takes the rows in another order.

    `portion`: array, sparse matrix, or tuple of them. `size`: rows of a minibatch. `replica`: whose orders
    these are. Attributes: `in_a_pass`: minibatches of a pass; what is left over at its end waits for another
    order.
    """

    def __init__(self, portion, size, seed, replica):
        self.portion, self.size, self.seed, self.replica = portion, size, seed, replica
        self.n_rows = n_rows_of(portion)
        self.in_a_pass = max(1, self.n_rows // size)
        self._pass, self._order = -1, np.empty(0, np.int64)

    def __getitem__(self, step):
        number, place = divmod(step, self.in_a_pass)
        if number != self._pass:
            random = stream(self.seed, Purpose.BATCHES.value, number, self.replica)
            self._pass, self._order = number, random.permutation(self.n_rows)
        return take_rows(self.portion, self._order[place * self.size : (place + 1) * self.size])


def n_rows_of(portion):
    """Count the rows of a portion: an array, a sparse matrix, or a tuple of them with equally many."""
    parts = portion if isinstance(portion, (tuple, list)) else (portion,)
    lengths = {part.shape[0] if getattr(part, "shape", ()) else -1 for part in parts}
    if len(lengths) != 1 or min(lengths) < 1:
        raise DataError(
            "a portion must be an array, a sparse matrix or a tuple of them, with equally many rows and at "
            f"least one; got {[(type(part).__name__, *getattr(part, 'shape', ())) for part in parts]}"
        )
    return lengths.pop()


def take_rows(portion, rows):
    """Take some rows of a portion."""
    if isinstance(portion, (tuple, list)):
        return tuple(part[rows] for part in portion)
    return portion[rows]
