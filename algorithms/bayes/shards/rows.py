"""Subposteriors: the number of shards, and the rows of each.

A shard's density is the prior to the power 1/M times the likelihood of its rows. Shards are drawn
independently, with random numbers named by the shard, and meet only afterwards: see ``shards.chains``.
"""

import numpy as np

from ....errors import DataError, in_brief, shortened

# The rule of n_shards="auto": docs/mcmc.md, "Regressions".
ROWS_A_PARAMETER = 100  # that a shard should have at least
_CELLS = 1_000_000  # rows times parameters: below it, chains of all the data take a second


def number_of_shards(n_shards, n_rows, n_params, n_rare=None, most=None):
    """Check the number of shards, or choose it for "auto".

    "auto" leaves at least 100 rows a parameter to each shard, and as many rows of the rarer class (`n_rare`)
    as there are parameters; it takes `most` at most. It is 1 where rows times parameters are below a million,
    for then a second suffices for all the data. Raises a DataError if there are more shards than rows, or
    none.

    >>> from stradask.algorithms.bayes.shards.rows import number_of_shards
    >>> number_of_shards("auto", 50_000, 50), number_of_shards("auto", 40_000, 30, n_rare=200)
    (10, 6)
    """
    if n_shards == "auto":
        if n_rows * n_params < _CELLS:
            return 1
        limits = [n_rows // (ROWS_A_PARAMETER * n_params)]
        limits += [] if n_rare is None else [n_rare // n_params]
        limits += [] if most is None else [most]
        return max(1, min(limits))
    if not 1 <= n_shards <= n_rows:
        raise DataError(
            f"n_shards={shortened(n_shards)}, but there are {n_rows} rows: take from 1 to {n_rows}, or 'auto'"
        )
    return int(n_shards)


def cut_rows(n_rows, n_shards, seed, groups=None):
    """Deal rows out to shards, at random; returns the sorted rows of each.

    Of each of the `groups` (n_rows,), for instance classes, every shard gets its share. One with fewer rows
    than there are shards is missing in some of them.
    """
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_rows)
    if groups is not None:
        order = order[np.argsort(groups[order], kind="stable")]
    return [np.sort(order[m::n_shards]) for m in range(n_shards)]


class Part:
    """Some rows of an array or a design, None for all; only these travel to a worker."""

    def __init__(self, array, rows=None):
        self.array, self.rows = array, rows

    def take(self):
        """Return the rows."""
        return self.array if self.rows is None else self.array[self.rows]

    def __reduce__(self):
        return Part, (self.take(),)


def count_rows(data):
    """Count the observations, which all arrays have along the first axis."""
    parts = data if isinstance(data, tuple) else (data,)
    try:
        sizes = {len(part) for part in parts}
    except TypeError as error:
        raise DataError(
            f"data must have observations along the first axis to be cut into shards: {in_brief(error)}"
        ) from error
    if len(sizes) != 1 or not max(sizes):
        raise DataError(
            f"all arrays of data must have as many observations, and at least one; they have {sizes}"
        )
    return sizes.pop()


def some_rows(data, rows):
    """Select the observations of a shard, without copying them yet."""
    if isinstance(data, tuple):
        return tuple(some_rows(part, rows) for part in data)
    return Part(np.asarray(data), rows)


def taken_rows(data):
    """Take the observations that were selected."""
    if isinstance(data, tuple):
        return tuple(map(taken_rows, data))
    return data.take() if isinstance(data, Part) else data
