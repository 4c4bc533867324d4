"""Rows of each shard of a mixed model, whole groups where there are any, and whether shards serve at all."""

from dataclasses import replace

import numpy as np

from ....errors import DataError
from ....kernels.bayes.densities.mixed_lattice import MOST_COLUMNS
from ..models.groups import cut_groups
from .rows import cut_rows, number_of_shards

_MOST_SHARED = 60  # effects of other terms, parameters that all shards share


def with_local_last(design):
    """The design with the term of most groups last, whose groups shards have in whole."""
    return replace(design, terms=tuple(sorted(design.terms, key=lambda term: len(term.levels))))


def not_in_shards(design, family):
    """Why the last term's effects cannot be integrated out shard by shard; empty where they can."""
    *others, local = design.terms
    k = len(local.columns)
    if k > MOST_COLUMNS and family != "normal":
        return f"({local.name}) has {k} effects a group, and quadrature takes {MOST_COLUMNS}"
    shared = sum(len(term.columns) * len(term.levels) for term in others)
    if shared >= _MOST_SHARED:
        names = ", ".join(term.name for term in others)
        return (
            f"all shards would share {shared} effects of the groups of {names}; with {_MOST_SHARED} and more "
            "combinations seldom pass their checks"
        )
    return ""


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
