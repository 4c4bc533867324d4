"""Rows of each shard of a mixed model: whole groups where there are any."""

import numpy as np

from ....errors import DataError
from ..models.groups import cut_groups
from .rows import cut_rows, number_of_shards


def mixed_rows(family, design, settings):
    """Return the rows of each shard of a `MixedDesign`, or [None] for one shard with all.

    "auto" leaves normal noise and models with groups in one piece, and a class with few rows bounds it.
    """
    n, d = design.X.shape
    automatic = settings.n_shards == "auto"
    if settings.n_shards == 1 or (automatic and (family == "normal" or design.terms)):
        return [None]
    rare = None if design.terms else _rows_of_rarest(family, design.y)
    n_shards = number_of_shards(settings.n_shards, n, d + 1, rare)
    if n_shards == 1:
        return [None]
    settings.check_combines()
    if design.terms:
        return cut_groups(design.terms[-1].groups, n_shards, settings.seed)
    if rare is not None:
        _check_classes(family, rare, n_shards)
    classes = design.y if family in ("logistic", "ordered") else None
    if family == "binomial":
        classes = np.ceil(design.y) + np.floor(design.y)  # no success, some, and no failure
    return cut_rows(n, n_shards, settings.seed, classes)


def _rows_of_rarest(family, y):
    """Rows of the rarest class, or with successes or failures of trials; None of other families."""
    if family == "binomial":
        return int(min((y > 0).sum(), (y < 1).sum()))
    return int(np.unique(y, return_counts=True)[1].min()) if family in ("logistic", "ordered") else None


def _check_classes(family, rare, n_shards):
    """Every shard needs rows of each: Student's t of the intercept or cuts may be improper to a power."""
    if rare < n_shards:
        what = "successes, or failures, are in" if family == "binomial" else "a class has"
        raise DataError(
            f"{what} {rare} rows, too few for {n_shards} shards: take fewer shards, so that each has rows of "
            f"{'both' if family == 'binomial' else 'every class'}"
        )
