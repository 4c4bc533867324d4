"""Which term of a mixed model has its groups whole on shards, and whether shards serve at all."""

from dataclasses import replace

from ....kernels.bayes.densities.mixed_lattice import MOST_COLUMNS

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
