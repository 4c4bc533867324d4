"""Rows of each shard of a mixed model: whole groups where there are any."""

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
    return cut_rows(n, n_shards, settings.seed, classes)
