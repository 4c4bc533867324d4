"""Rows of a mixed model, the terms of its groups, and how columns are standardised."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....errors import DataError


@dataclass(frozen=True, eq=False)
class Term:
    """Effects of the groups of one factor.

    `columns` (k names) have effects of each of the `levels`; `Z` (n, k) are their values, `groups` (n,) the
    number of each row's group, a negative one for each new group. Without `correlated` the effects of a group
    are independent.
    """

    name: str
    columns: tuple[str, ...]
    levels: np.ndarray
    Z: np.ndarray
    groups: np.ndarray
    correlated: bool = True

    @property
    def has_correlations(self):
        """Whether correlations are parameters."""
        return self.correlated and len(self.columns) > 1

    @property
    def pairs(self):
        """Numbers and names of the columns of each correlation, the later one first."""
        names = self.columns
        return [(i, names[i], j, names[j]) for i in range(len(names)) for j in range(i)]


@dataclass(frozen=True, eq=False)
class MixedDesign:
    """Rows of a mixed model: columns X (n, d) and their names, targets, weights, offsets, terms.

    Of a logistic family targets are 0 and 1, of an ordered one 0, 1, ..., `n_levels` - 1. Of a binomial one
    they are shares of the `trials`, which are part of the weights. `centres` are the weighted means of X
    where there is an intercept, or cuts.
    """

    names: tuple[str, ...]
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray
    terms: tuple[Term, ...] = ()
    intercept: bool = True
    n_levels: int = 0
    trials: np.ndarray | None = None

    @property
    def observed(self):
        """The targets, counts of a binomial family."""
        return self.y if self.trials is None else np.rint(self.y * self.trials)

    def __getitem__(self, rows):
        """The rows of a shard."""
        terms = tuple(
            Term(t.name, t.columns, t.levels, t.Z[rows], t.groups[rows], t.correlated) for t in self.terms
        )
        parts = (self.X[rows], self.y[rows], self.weights[rows], self.offsets[rows])
        trials = None if self.trials is None else self.trials[rows]
        return MixedDesign(self.names, *parts, terms, self.intercept, self.n_levels, trials)

    @cached_property
    def centres(self):
        """Means of the columns, zero without an intercept or cuts."""
        if not (self.intercept or self.n_levels) or not self.X.shape[1]:
            return np.zeros(self.X.shape[1])
        return np.average(self.X, axis=0, weights=self.weights)

    @cached_property
    def spreads(self):
        """Standard deviations of the columns, about zero where these are not centred."""
        if not self.X.shape[1]:
            return np.zeros(0)
        spreads = np.sqrt(np.average((self.X - self.centres) ** 2, axis=0, weights=self.weights))
        for name, spread, centre in zip(self.names, spreads, self.centres, strict=True):
            if not spread > 1e-12 * abs(centre):
                remedy = "leave it out"
                if not centre and "[" in name:
                    remedy = "no row has this level, or combination of levels: join it with another one"
                raise DataError(f"the column {name} is constant, which says nothing: {remedy}")
        return spreads
