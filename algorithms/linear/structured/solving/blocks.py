"""Blocks of columns that are penalised together: the checks of `groups`, and their order in the solver."""

import functools
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from .....errors import DataError, shortened
from ....inputs.targets import _numbers


@dataclass(frozen=True)
class Blocks:
    """Columns in the order of their blocks; a column of several groups is there once for each.

    `order`: int64 (n_places,), the column of each place. `starts`: int64 (n_blocks + 1,).
    """

    order: np.ndarray
    starts: np.ndarray
    plain: bool  # places are columns

    @functools.cached_property
    def sizes(self):
        """Number of places of each block."""
        return np.diff(self.starts)

    def places(self, blocks):
        """Places of some blocks, one block after the other, and where each begins."""
        sizes = self.sizes[blocks]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return np.repeat(self.starts[:-1][blocks], sizes) + within, starts

    def block_of(self):
        """The block of each place."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes)

    def spread(self, V):
        """Take an array over columns to places."""
        return V if self.plain else V[self.order]

    def summed(self, B, n_features):
        """Sum coefficients of places to those of columns."""
        if self.plain:
            return B
        out = np.zeros((n_features, *B.shape[1:]))
        np.add.at(out, self.order, B)
        return out


def single_columns(n_features):
    """Every column a block."""
    return Blocks(np.arange(n_features), np.arange(n_features + 1), plain=True)


def check_groups(groups, n_features, *, overlap=False):
    """Check the groups of the columns; return `Blocks`.

    `groups` is a size of consecutive groups, a label for each column, or a list of lists of columns.

    Examples
    --------
    >>> from stradask.algorithms.linear.structured.solving.blocks import check_groups
    >>> check_groups([[0, 2], [1]], 3).order
    array([0, 2, 1])
    """
    if groups is None:
        return single_columns(n_features)
    if isinstance(groups, Integral) and not isinstance(groups, bool):
        groups = int(groups)
        if not 1 <= groups <= n_features or n_features % groups:
            raise DataError(
                f"groups={shortened(groups)} is a size of groups and must divide the {n_features} columns "
                "of X; pass a label for each column instead"
            )
        return Blocks(np.arange(n_features), np.arange(0, n_features + 1, groups), plain=True)
    first = groups[0] if isinstance(groups, (list, tuple)) and len(groups) else ""
    if hasattr(first, "__len__") and not isinstance(first, (str, bytes)):
        return _of_lists(groups, n_features, overlap)
    try:
        labels = np.asarray(groups)
    except ValueError as error:
        raise DataError("groups must be a label for each column, or a list of lists of columns") from error
    if labels.shape != (n_features,):
        raise DataError(
            f"groups has the shape {labels.shape}; pass a label for each of the {n_features} columns, or "
            "a list of lists of columns"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError("groups holds NaN or infinity: give every column the label of its group")
    if labels.dtype.kind == "O" and any(label is None for label in labels):
        raise DataError("groups holds None: give every column the label of its group")
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(numbers, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Blocks(order, starts, plain=bool((order == np.arange(n_features)).all()))


def _of_lists(groups, n_features, overlap):
    parts = []
    for number, group in enumerate(groups):
        part = _numbers(f"groups[{number}]", group)
        wrong = ~((part >= 0) & (part < n_features) & (part == np.floor(part)))
        if part.ndim != 1 or not len(part) or wrong.any():
            what = f"holds {part[wrong][0]:g}" if wrong.any() else "is no list of columns"
            raise DataError(f"groups[{number}] {what}; pass numbers of columns from 0 to {n_features - 1}")
        if len(np.unique(part)) < len(part):
            raise DataError(f"groups[{number}] names a column twice")
        parts.append(part.astype(np.int64))
    order = np.concatenate(parts)
    counts = np.bincount(order, minlength=n_features)
    if not counts.all():
        raise DataError(
            f"groups lacks column {int(np.argmin(counts > 0))}: name every column; one alone is a group, too"
        )
    if counts.max() > 1 and not overlap:
        raise DataError(
            f"groups names column {int(np.argmax(counts > 1))} in several groups: pass overlap=True to "
            "give each group a copy of it, or assign it to one group"
        )
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    plain = len(order) == n_features and bool((order == np.arange(n_features)).all())
    return Blocks(order, starts, plain=plain)
