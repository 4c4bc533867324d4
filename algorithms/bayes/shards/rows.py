"""Subposteriors: how many shards, and which rows each has.

A shard's density is the prior to the power 1/M times the likelihood of its rows. Shards are drawn
independently, with random numbers named by the shard, and meet only afterwards: see ``shard_chains``.
"""

import numpy as np

from ....errors import DataError

ROWS_A_PARAMETER = 100  # that a shard should have at least
_CELLS = 1_000_000  # rows times parameters: below it, chains of all the data take a second


def number_of_shards(n_shards, n_rows, n_params, n_rare=None, most=None):
    """Check the parameter `n_shards`, or choose.

    Parameters
    ----------
    n_shards : int or "auto"
        "auto" leaves at least 100 rows a parameter to each shard, and as many rows of the rarer class as
        there are parameters. It is 1 where
        rows times parameters are below a million, for then a second suffices for all the data.
    n_rows, n_params : int
    n_rare : int, optional
        Rows of the rarer class, or counts above zero.
    most : int, optional
        What "auto" takes at most.

    Returns
    -------
    int

    Raises
    ------
    DataError
        If there are more shards than rows, or none.

    Examples
    --------
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
            f"n_shards={n_shards}, but there are {n_rows} rows: take from 1 to {n_rows}, or 'auto'"
        )
    return int(n_shards)


def cut_rows(n_rows, n_shards, seed, groups=None):
    """Deal rows out to shards, at random; of each group every shard gets its share.

    Parameters
    ----------
    n_rows, n_shards, seed : int
    groups : ndarray of int, shape (n_rows,), optional
        For instance the class of each row.

    Returns
    -------
    list of ndarray of int
        Sorted rows of each shard.

    Raises
    ------
    DataError
        If a group has fewer rows than there are shards.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shards.rows import cut_rows
    >>> shards = cut_rows(10, 2, seed=0, groups=np.array([0, 1, 1, 1, 0, 0, 1, 1, 1, 0]))
    >>> [len(rows) for rows in shards]
    [5, 5]
    """
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_rows)
    if groups is not None:
        _, counts = np.unique(groups, return_counts=True)
        if counts.min() < n_shards:
            raise DataError(
                f"a class has {counts.min()} rows, too few for {n_shards} shards: take fewer shards, so that "
                "each has rows of every class"
            )
        order = order[np.argsort(groups[order], kind="stable")]
    return [np.sort(order[m::n_shards]) for m in range(n_shards)]


class Part:
    """Some rows of an array; what travels to a worker is these alone.

    Parameters
    ----------
    array : ndarray
    rows : ndarray of int, or None
        None for all.
    """

    def __init__(self, array, rows=None):
        self.array, self.rows = array, rows

    def take(self):
        """Return the rows."""
        return self.array if self.rows is None else self.array[self.rows]

    def __reduce__(self):
        return Part, (self.take(),)
