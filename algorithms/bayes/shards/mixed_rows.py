"""Rows of each shard of a mixed model: whole groups where there are any."""

import numpy as np

from ....errors import DataError
from ..models.groups import LEAST_GROUPS, cut_groups
from .rows import cut_rows, number_of_shards


def mixed_rows(family, design, settings):
    """Return the rows of each shard of a `MixedDesign`, or [None] for one shard with all.

    "auto" leaves normal noise and models with groups in one piece.
    """
    n, d = design.X.shape
    automatic = settings.n_shards == "auto"
    if settings.n_shards == 1 or (automatic and (family == "normal" or design.terms)):
        return [None]
    if design.terms:
        term = design.terms[-1]
        most = max(1, len(term.levels) // LEAST_GROUPS)
        n_shards = number_of_shards(settings.n_shards, n, d + 1, None, most)
    else:
        n_shards = number_of_shards(settings.n_shards, n, d + 1)
    if n_shards == 1:
        return [None]
    settings.check_combines()
    if design.terms:
        return cut_groups(design.terms[-1].groups, n_shards, settings.seed)
    classes = design.y if family in ("logistic", "ordered") else None
    if classes is not None:
        _check_classes(classes, n_shards)
    return cut_rows(n, n_shards, settings.seed, classes)


def _check_classes(classes, n_shards):
    """Every shard needs rows of each: Student's t of the intercept or cuts may be improper to a power."""
    _, counts = np.unique(classes, return_counts=True)
    if counts.min() < n_shards:
        raise DataError(
            f"a class has {counts.min()} rows, too few for {n_shards} shards: take fewer shards, so that "
            "each has rows of every class"
        )
