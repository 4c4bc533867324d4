"""Linear predictors, likelihoods and new observations of a mixed model, under draws; draws of its priors."""

from typing import Any

import numpy as np

from ..models.prior_draws import draw_prior
from ..posterior.draws import NotKept
from . import families
from .priors import AUXILIARY

_CELLS = 4_000_000  # of predictors, draws times rows, at a time


class Predictors:
    """Linear predictors of the rows of a `MixedDesign` under draws by name.

    Without `groups` the effects of groups are left out, as if all were zero.
    """

    def __init__(self, family, design, groups=True):
        self.family, self.design, self.groups = family, design, groups

    def blocks(self, values, seed):
        """Yield blocks of rows, their predictors (draws, rows) and the auxiliary parameters (draws, 1).

        Effects of a group that the fit did not see are drawn from the groups' distribution, one for each
        draw: all rows of the group share it.
        """
        n = len(self.design.y)
        draws = len(next(iter(values.values())))
        height = max(1, _CELLS // draws)
        for first in range(0, n, height):
            rows = slice(first, min(first + height, n))
            yield rows, self._block(values, rows, seed), self.aux(values)

    def aux(self, values):
        """The family's auxiliary parameters, as arrays that broadcast with (draws, rows)."""
        return {name: values[name][:, None] for name in AUXILIARY.get(self.family, ())}

    def _block(self, values, rows, seed):
        design = self.design
        draws = len(next(iter(values.values())))
        f = np.broadcast_to(design.offsets[rows], (draws, rows.stop - rows.start)).copy()
        if design.names:
            f += values["coef"] @ design.X[rows].T
        if design.intercept:
            f += values["intercept"][:, None]
        for number, term in enumerate(design.terms if self.groups else ()):
            groups, Z = term.groups[rows], term.Z[rows]
            in_fit = groups >= 0
            for j, column in enumerate(term.columns):
                f[:, in_fit] += values[f"{term.name}:{column}"][:, groups[in_fit]] * Z[in_fit, j]
            triangles: Any = None if in_fit.all() else roots(term, values)
            for group in np.unique(groups[~in_fit]):
                # By the group's number: the same in every block, and for other rows beside it.
                rng = np.random.default_rng([seed, number, -int(group)])
                effects = np.einsum("dij,dj->di", triangles, rng.standard_normal((draws, Z.shape[1])))
                f[:, groups == group] += effects @ Z[groups == group].T
        return f

    def means(self, values, seed):
        """Yield means of observations (draws, rows) of blocks of rows; of levels on a last axis, too."""
        for rows, f, aux in self.blocks(values, seed):
            made = families.mean(self.family, f, aux)
            yield made if self.design.trials is None else made * self.design.trials[rows]

    def observations(self, values, seed):
        """New observations (draws, rows)."""
        rng, trials = np.random.default_rng([seed, 1]), self.design.trials
        made = [
            families.new_observations(self.family, f, aux, rng, 1 if trials is None else trials[rows])
            for rows, f, aux in self.blocks(values, seed)
        ]
        return np.concatenate(made, axis=1)


def roots(term, values):
    """Triangles T (draws, k, k) of the covariances of a term's effects."""
    sd = values[f"sd_{term.name}"]
    k = sd.shape[1]
    if not term.has_correlations:
        return sd[:, :, None] * np.eye(k)
    R = np.tile(np.eye(k), (len(sd), 1, 1))
    for at, (i, _, j, _) in enumerate(term.pairs):
        R[:, i, j] = R[:, j, i] = values[f"cor_{term.name}"][:, at]
    return sd[:, :, None] * np.linalg.cholesky(R + 1e-12 * np.eye(k))


class MixedLikelihoods(NotKept):
    """``(values) -> (draws, rows)`` for a dict of draws by name, as `Posterior` takes it."""

    def __init__(self, family, design):
        self.family, self.design = family, design

    @property
    def observed(self):
        """The targets."""
        return self.design.observed

    def observations(self, values, seed):
        """New targets (draws, rows)."""
        return Predictors(self.family, self.design).observations(values, seed)

    def __call__(self, values):
        """Log densities of the targets, times the weights of their rows."""
        parts = []
        for rows, f, aux in Predictors(self.family, self.design).blocks(values, 0):
            y, weights = self.design.y[rows], self.design.weights[rows]
            if self.family == "ordered":
                made = np.stack(
                    [
                        families.log_density("ordered", f[k], y, {"cut": aux["cut"][k, 0]})
                        for k in range(len(f))
                    ]
                )
            else:
                made = families.log_density(self.family, f, y, aux)
            parts.append(weights * made)
        found = np.concatenate(parts, axis=1)
        return found if self.design.trials is None else found + families.ways(self.design)


def prior_values(mixed, n, rng):
    """Draw n values (n, columns) of all parameters and effects from their priors; see `variables`."""
    layout = mixed.layout
    theta = [
        draw_prior(layout.priors[name], one, n, rng).reshape(n, -1) for name, one in layout.parameters.items()
    ]
    shared = mixed.on_scale(np.concatenate(theta, axis=1))
    parts, values = [shared], mixed.by_name(shared)
    for term in mixed.terms:
        z = rng.standard_normal((n, len(term.levels), len(term.columns)))
        u = np.einsum("dij,dgj->dgi", roots(term, values), z)
        parts.append(u.transpose(0, 2, 1).reshape(n, -1))
    return np.concatenate(parts, axis=1)
