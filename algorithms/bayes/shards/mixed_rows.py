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
    classes = design.y if family in ("logistic", "ordered") and not design.terms else None
    rarest = None if classes is None else int(np.unique(classes, return_counts=True)[1].min())
    n_shards = number_of_shards(settings.n_shards, n, d + 1, rarest)
    if n_shards == 1:
        return [None]
    settings.check_combines()
    if design.terms:
        return cut_groups(design.terms[-1].groups, n_shards, settings.seed)
    # Every shard needs rows of each: Student's t of the intercept or cuts may be improper to a power.
    if rarest is not None and rarest < n_shards:
        raise DataError(
            f"a class has {rarest} rows, too few for {n_shards} shards: take fewer shards, so that each has "
            "rows of every class"
        )
    return cut_rows(n, n_shards, settings.seed, classes)
