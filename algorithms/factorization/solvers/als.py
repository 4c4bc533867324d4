"""Alternating least squares, for ratings, and for implicit feedback with factors of 0 or above.

Here the coordinator has the rows, as features and draws need them. See `exchange` for fits without these.
"""

import numpy as np

from ....kernels.factorization.als import solve_rows
from ....kernels.factorization.lanes import LANES
from ....scheduler.program import Outcome, Program
from ....scheduler.stores.saved import check_same_form
from ....scheduler.threads import single_threaded_blas
from ..features import LinearPrior
from .sides import (
    INITIAL_SPREAD,
    N_SHARDS,
    InTurn,
    Sides,
    mean_rating,
    penalty_of,
    run_rows,
    shards_of,
    start_factors,
)

_SWEEPS = 5  # of coordinate descent over a row's factors, where they must not be negative
FOLD_IN_SWEEPS = 200  # the same for a new row, which has no factors to begin from


class AlternatingLeastSquares(Program):
    """All users' factors at once, then all items'; the objective never rises.

    A shard holds a range of users and a range of items with their ratings, 16 bytes a rating in all (24 with
    weights). The coordinator has the model, and every worker a copy, updated by a message after each half.

    For implicit feedback the values of `entries` are confidences, negative ones of dislikes. `features` are
    tables of users and items, with a constant, or None; see `features.LinearPrior`.
    """

    barrier = "step"
    n_blocks = 2
    unit = "rating"

    def __init__(self, entries, settings, seed, features=(None, None)):
        self.settings, self.seed, self.mean = settings, seed, mean_rating(entries, settings)
        self.vectors = (0,) * (-(-settings.n_components // LANES))
        self.n_ratings = len(entries)
        tables = entries, entries.transposed()
        n_shards = min(N_SHARDS, *entries.shape)
        self.shards = entries.shards(n_shards) if entries.stays else shards_of(tables, n_shards)
        self.schedule = InTurn(n_shards, (0, 1))
        self._ridges = [
            settings.ridges(table.counts, entries.dtype, side) for side, table in enumerate(tables)
        ]
        rng = np.random.default_rng(seed)
        self.factors = [padded(part) for part in self.first_factors(rng, entries)]
        self.biases = [np.zeros(n, entries.dtype) for n in entries.shape]
        self._counts = [table.counts for table in tables]
        self._rated = [counts > 0 for counts in self._counts]
        for factors, rated in zip(self.factors, self._rated, strict=True):
            factors[~rated] = 0
        self.priors = [
            None if table is None else LinearPrior(table, ratings.counts, settings, side)
            for side, (table, ratings) in enumerate(zip(features, tables, strict=True))
        ]

    def __getstate__(self):
        left_out = dict.fromkeys(("factors", "biases", "_ridges", "_rated", "_counts"))
        return {**self.__dict__, **left_out, "shards": (), "priors": (None, None)}

    def first_factors(self, rng, entries):
        """Draw initial factors of both sides."""
        return start_factors(rng, entries, self.settings, INITIAL_SPREAD)

    # On the workers -----------------------------------------------------------------------------------

    def load(self, data):
        """Make the state of a shard: its ratings, and memory for the factors of both sides."""
        tables, ranges = zip(*data, strict=True)
        return {"tables": tables, "ranges": ranges, "sides": [None, None]}

    def renew(self, state):
        """Forget the last messages to the shard."""
        return {**state, "sides": [None, None]}

    def sync(self, state, message):
        """Take the factors of sides from a message."""
        for side, values in message:
            state["sides"][side] = values

    def update(self, state, task):
        """Solve for a shard's rows of a side; return their factors and biases, and the objective."""
        side = task.blocks
        own, other = state["sides"][side], state["sides"][1 - side]
        table, (a, b) = state["tables"][side], state["ranges"][side]
        factors, biases = own["factors"][a:b].copy(), own["biases"][a:b].copy()
        loss = self.solve(table, other, factors, biases, state, task)
        return factors, biases, loss

    def solve(self, table, other, factors, biases, state, task):
        """Solve for the rows of a table; return the sum of their objectives."""
        side, sweeps = task.blocks, sweeps_of(self.settings)
        pull, bias_pull = self._pulls(table, state["sides"][side], state["ranges"][side], side)
        return solve_table(
            table, other, self.settings, factors, biases, side=side, sweeps=sweeps, pull=pull,
            bias_pull=bias_pull, n_jobs=1,
        ).sum()  # fmt: skip

    def _pulls(self, table, values, rows, side):
        """Pulls of rows towards their prior means, which are 0 without features."""
        if "means" not in values:
            return None, None
        means, shifts = (part[slice(*rows)] for part in values["means"])
        return pulls_to(means, shifts, *self.settings.ridges(table.counts, means.dtype, side))

    # At the coordinator ---------------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Take the new rows of a side; after the items, the objective is known."""
        side = tasks[0].blocks
        factors, biases, losses = zip(*partials, strict=True)
        self.factors[side], self.biases[side] = np.concatenate(factors), np.concatenate(biases)
        objective = sum(losses)
        prior = self.priors[side]
        if prior is not None:  # losses leave out the squares of the means, and are of the means before
            objective += prior.constant()
            objective -= prior.penalty(self.factors[side], self.biases[side])
            prior.refit(self.factors[side], self.biases[side])
            objective += prior.penalty(self.factors[side], self.biases[side])
        message = [(side, self._values(side))]
        if side == 0:
            return Outcome(message)
        return Outcome(message, objective=objective + self._penalty(0), updates=self.n_ratings)

    def _penalty(self, side):
        factors, biases = self.factors[side], self.biases[side]
        if self.priors[side] is not None:
            return self.priors[side].penalty(factors, biases)
        return penalty_of(factors, biases, *self._ridges[side])

    def publish(self):
        """Message with both sides."""
        return [(side, self._values(side)) for side in (0, 1)]

    def _values(self, side):
        """The part of a message that is of one side."""
        rated = self._rated[side]
        values = fixed_side(self.factors[side], self.biases[side], self.mean, self.settings, rated)
        values["biases"] = self.biases[side]
        return values | self._prior_means(side)

    def _prior_means(self, side):
        """The part of a message that only a side with features has."""
        if self.priors[side] is None:
            return {}
        means, shifts = self.priors[side].means(self.factors[side].dtype)
        return {"means": (padded(means), shifts)}

    def arrays(self):
        """Arrays of a checkpoint: the model."""
        names = [f"{part}-{side}" for part in ("factors", "biases") for side in (0, 1)]
        kept = dict(zip(names, self.factors + self.biases, strict=True))
        return kept | {f"weights-{side}": prior.weights for side, prior in self._with_features()}

    def restore(self, arrays):
        """Continue from the model of a checkpoint, which must have the same form."""
        for name, fresh in self.arrays().items():
            check_same_form(name, arrays[name], np.asarray(fresh))
        self.factors = [arrays[f"factors-{side}"] for side in (0, 1)]
        self.biases = [arrays[f"biases-{side}"] for side in (0, 1)]
        for side, prior in self._with_features():
            prior.weights = arrays[f"weights-{side}"]

    def _with_features(self):
        return [(side, prior) for side, prior in enumerate(self.priors) if prior is not None]

    def model_factors(self):
        """Return the factors of both sides, padded, in the coordinates of the model."""
        return self.factors

    @property
    def sides(self):
        """The current model, copied."""
        K = self.settings.n_components
        factors = [part[:, :K].copy() for part in self.model_factors()]
        weights = tuple(None if prior is None else prior.weights for prior in self.priors)
        return Sides.of(factors, [part.copy() for part in self.biases], self.mean, weights)


def sweeps_of(settings):
    """Count sweeps of coordinate descent over a row's factors; 0 solves by Cholesky factors."""
    return _SWEEPS if settings.non_negative else 0


def fixed_side(factors, biases, mean, settings, rated=None):
    """What solving for one side needs of the other: padded factors, offsets, and their Gram matrix.

    Rows that are not `rated` (by default all are) are left out of the Gram matrix.
    """
    values = {"factors": factors, "offsets": biases + biases.dtype.type(mean)}
    with single_threaded_blas():
        none = np.zeros((factors.shape[1],) * 2, factors.dtype)
        present = factors if rated is None or rated.all() else factors[rated]
        values["gram"] = present.T @ present if settings.implicit else none
    return values


def pulls_to(means, shifts, ridge, bias_ridge):
    """Pulls on factors and biases whose penalties are on squared distances from a mean."""
    return ridge[:, None] * means, bias_ridge * shifts


def fold_in(entries, sides, settings, means=None, rated=None):
    """Solve for new rows, given the items of a model; return their factors and biases.

    `means` are prior means of factors and biases, which rows without ratings have; `rated` are the items in
    the sums of implicit feedback, by default all.
    """
    other = fixed_side(padded(sides.item_factors), sides.item_bias, sides.mean, settings, rated)
    dtype = sides.item_factors.dtype
    factors = np.zeros((entries.shape[0], other["factors"].shape[1]), dtype)
    biases, pull, bias_pull = np.zeros(len(factors), dtype), None, None
    if means is not None:
        factors, biases = padded(means[0]), means[1].copy()
        pull, bias_pull = pulls_to(factors, biases, *settings.ridges(entries.counts, dtype, 0))
    sweeps = FOLD_IN_SWEEPS if settings.non_negative else 0
    solve_table(
        entries, other, settings, factors, biases, sweeps=sweeps, pull=pull, bias_pull=bias_pull,
        n_jobs=settings.n_jobs,
    )  # fmt: skip
    return np.ascontiguousarray(factors[:, : settings.n_components]), biases


def solve_table(
    table, other, settings, factors, biases, *, side=0, sweeps=0, shares=None, pull=None, bias_pull=None,
    precision=1.0, ridge=None, bias_ridge=None, noise=None, n_jobs=None,
):  # fmt: skip
    """Minimise each row's objective (or draw), in `factors` and `biases`; return the objectives.

    `other` is from `fixed_side`, `side` 0 for rows that are users and 1 for items. The defaults of the other
    arguments, see `kernels.factorization.als.solve_rows`, are those of least squares.
    """
    dtype, d = factors.dtype, factors.shape[1]
    losses = np.empty(len(factors))
    run_rows(
        solve_rows,
        table.indptr,
        n_jobs,
        table.indices,
        table.values,
        table.weights,
        other["offsets"],
        settings.implicit,
        other["factors"],
        np.ascontiguousarray(other["gram"]),  # of one layout, for which the kernel is compiled once
        np.ones(1, dtype) if shares is None else shares,
        np.zeros((1, d), dtype) if pull is None else pull,
        np.zeros(1, dtype) if bias_pull is None else bias_pull,
        dtype.type(precision),
        settings.ridge(table.counts, dtype, side) if ridge is None else ridge,
        settings.bias_ridge(table.counts, dtype, side) if bias_ridge is None else bias_ridge,
        settings.bias,
        sweeps,
        np.empty((0, d), dtype) if noise is None else noise,
        factors,
        biases,
        losses,
        (0,) * (d // LANES),
    )
    return losses


def padded(factors):
    """Add columns of zeros, which stay zero, up to whole vectors."""
    return np.pad(factors, [(0, 0), (0, -factors.shape[1] % LANES)])
