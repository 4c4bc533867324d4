"""Alternating least squares whose workers give one another what they solve for; the coordinator has no rows.

For ratings, and for implicit feedback with factors of 0 or above. See `implicit` for its conjugate gradients,
and `gibbs` for draws in place of solutions.
"""

import itertools
from typing import NamedTuple

import numpy as np

from ....kernels.factorization.als import solve_rows
from ....kernels.factorization.lanes import LANES
from ....kernels.vector import aligned
from ....scheduler.program import Outcome, Program
from ....scheduler.stores.saved import check_same_form
from ....scheduler.threads import single_threaded_blas
from ..features import LinearPrior
from .sides import (
    INITIAL_SPREAD,
    N_SHARDS,
    InTurn,
    Sides,
    cut_rows,
    joined_parts,
    mean_rating,
    penalty_of,
    run_rows,
    shards_of,
    start_factors,
)

_SWEEPS = 5  # of coordinate descent over a row's factors, where they must not be negative
FOLD_IN_SWEEPS = 200  # the same for a new row, which has no factors to begin from
NAMES = (("user_factors", "user_biases"), ("item_factors", "item_biases"))  # of a shard's rows, by side
SOLVE, SHARE, AXES = "solve", "share", "axes"


class HalfStep(NamedTuple):
    """What all shards do with their rows of a side: 0 users, 1 items."""

    side: int
    what: str


# By the number of a block.
STEPS = tuple(HalfStep(side, what) for what in (SOLVE, SHARE, AXES) for side in (0, 1))


class AlternatingLeastSquares(Program):
    """All users' factors at once, then all items'; the objective never rises.

    A shard holds a range of users and a range of items with their ratings, 16 bytes a rating in all (24 with
    weights), and their factors. In an iteration items are given to all workers, each solves for its users,
    these are given to all, and each solves for its items. A worker sends and receives the factors of a side
    once. The coordinator receives a number of each shard, and the rows where `features` are fitted to them.

    A message is a list of ``(kind, side, values)``, which a shard keeps as ``state[kind][side]``: all
    ``rows`` of a side from the workers, the prior ``means`` of rows with features from the coordinator.

    For implicit feedback the values of `entries` are confidences, negative ones of dislikes. `features` are
    tables of users and items, with a constant, or None; see `features.LinearPrior`. `first` are the factors
    and the biases of both sides to begin from.
    """

    barrier, joins, keeps_copies, spreads = "step", True, True, True
    saved = tuple(itertools.chain.from_iterable(NAMES))
    n_blocks, unit = 4, "rating"
    format_name = "ExchangedLeastSquares"
    steps: tuple[HalfStep, ...] = (HalfStep(1, SHARE), HalfStep(0, SOLVE), HalfStep(1, SOLVE))
    kinds: tuple[str, ...] = ("rows", "means")

    def __init__(self, entries, settings, seed, features=(None, None), first=None):
        self.settings, self.seed, self.mean = settings, seed, mean_rating(entries, settings)
        self.vectors = (0,) * (-(-settings.n_components // LANES))
        self.n_ratings, self.dtype = len(entries), entries.dtype
        tables = entries, entries.transposed()
        n_shards = min(N_SHARDS, *entries.shape)
        ratings = entries.shards(n_shards) if entries.stays else shards_of(tables, n_shards)
        self.schedule = InTurn(n_shards, [STEPS.index(step) for step in self.steps])
        self.priors = [
            None if table is None else LinearPrior(table, of_side.counts, settings, side)
            for side, (table, of_side) in enumerate(zip(features, tables, strict=True))
        ]
        if first is None:
            factors = self.first_factors(np.random.default_rng(seed), entries)
            first = factors, [np.zeros(n, entries.dtype) for n in entries.shape]
        rows = []
        for table, factors, biases in zip(tables, *first, strict=True):
            factors = padded(factors)
            factors[table.counts == 0] = 0
            ends = np.concatenate([[0], np.cumsum(table.counts)])
            ranges = itertools.pairwise(cut_rows(ends, n_shards))
            rows.append([(factors[a:b], biases[a:b]) for a, b in ranges])
        self.shards = list(zip(ratings, zip(*rows, strict=True), strict=True))

    def __getstate__(self):
        return {**self.__dict__, "shards": (), "priors": (None, None), "_collected": None}

    def first_factors(self, rng, entries):
        """Draw initial factors of both sides."""
        return start_factors(rng, entries, self.settings, INITIAL_SPREAD)

    # On the workers -----------------------------------------------------------------------------------

    def load(self, data):
        """Make the state of a shard: its ratings, and the rows to begin from."""
        tables, ranges = zip(*data[0], strict=True)
        return self._begin({"tables": tables, "ranges": ranges, "first": data[1]})

    def renew(self, state):
        """Begin again with the initial rows."""
        return self._begin({name: state[name] for name in ("tables", "ranges", "first")})

    def _begin(self, state):
        for names, rows in zip(NAMES, state["first"], strict=True):
            state |= dict(zip(names, rows, strict=True))
        return state | {kind: [None, None] for kind in self.kinds}

    def sync(self, state, message):
        """Keep the values of a message; of all rows of a side a shard's own are from now on a part."""
        for kind, side, values in message:
            state[kind][side] = values
            if kind == "rows":
                (a, b), (factors, biases) = state["ranges"][side], NAMES[side]
                state[factors], state[biases] = values["factors"][a:b], values["biases"][a:b]

    def update(self, state, task):
        """Solve for a shard's rows of a side, or share them; after the items, return the objective."""
        step = STEPS[task.blocks]
        partial = self.solve(state, step.side, task) if step.what == SOLVE else {}
        partial["joined"] = self.shared_by(state, step, task.shard)
        if step == (1, SOLVE):
            state["rows"] = [None, None]
        return partial

    def solve(self, state, side, task):
        """Solve for a shard's rows of a side; return its part of the objective, and what is reported."""
        names, table, other = NAMES[side], state["tables"][side], state["rows"][1 - side]
        factors, biases = (state[name].copy() for name in names)
        pull, bias_pull = self.pulls(state, side)
        losses = solve_table(
            table, other, self.settings, factors, biases, side=side, sweeps=sweeps_of(self.settings),
            pull=pull, bias_pull=bias_pull, n_jobs=1,
        )  # fmt: skip
        state |= dict(zip(names, (factors, biases), strict=True))
        return self.report_of(state, side, losses.sum(), factors)

    def pulls(self, state, side):
        """Make the pulls of a shard's rows towards their prior means, which are 0 without features."""
        if state["means"][side] is None:
            return None, None
        means, shifts = (part[slice(*state["ranges"][side])] for part in state["means"][side])
        return pulls_to(means, shifts, *self.settings.ridges(state["tables"][side].counts, means.dtype, side))

    def report_of(self, state, side, loss, factors):
        """Report the objective, known after the items, and where features are fitted a side's rows."""
        fits_features = any(means is not None for means in state["means"])
        partial = {"rows": (factors, state[NAMES[side][1]])} if fits_features else {}
        if side == 0:
            return partial
        if state["means"][0] is None:
            ridges = self.settings.ridges(state["tables"][0].counts, factors.dtype, 0)
            loss += penalty_of(state["user_factors"], state["user_biases"], *ridges)
        return partial | {"loss": loss}

    def shared_by(self, state, step, shard):
        """What a shard gives to all at the end of a step, by its number; users as they are solved for."""
        if step == (1, SOLVE):
            return None
        return {shard: ("rows", step.side, *(state[name] for name in NAMES[step.side]))}

    def join(self, partials):
        """Put together what shards give, by shard, or what is `reported`."""
        return joined_parts(partials)

    def message_of(self, state, joined):
        """Merge what shards give, which all shards of a worker share."""
        kind, side = joined[min(joined)][:2]
        parts = zip(*(joined[shard][2:] for shard in sorted(joined)), strict=True)
        return [(kind, side, self.merge(kind, *parts))]

    def merge(self, kind, factors, biases):
        """Make what solving for one side needs of all rows of the other."""
        biases = np.concatenate(biases)
        return fixed_side(stack_rows(factors), biases, self.mean, self.settings) | {"biases": biases}

    def reported(self, joined, message):
        """Keep the rows from the coordinator."""
        return None

    # At the coordinator ---------------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Add up the objective; fit the features to the rows."""
        objective = sum(partial["loss"] for partial in partials if "loss" in partial)
        if any(self.priors):
            rows = rows_of(tasks, partials)
            for side, prior in self._with_features():
                if side == 1:  # losses leave out the squares of the means, and are of the means before
                    objective += prior.constant() - prior.penalty(*rows[side])
                prior.refit(*rows[side])
                objective += prior.penalty(*rows[side])
        return Outcome(self.publish(), objective=objective, updates=self.n_ratings)

    def _with_features(self):
        return [(side, prior) for side, prior in enumerate(self.priors) if prior is not None]

    def publish(self):
        """Send the prior means of rows with features: shards have all else."""
        means = [(side, prior.means(self.dtype)) for side, prior in self._with_features()]
        return [("means", side, (padded(factors), biases)) for side, (factors, biases) in means] or None

    def arrays(self):
        """Arrays of a checkpoint: the weights of features."""
        return {f"weights-{side}": prior.weights for side, prior in self._with_features()}

    def restore(self, arrays):
        """Continue from the arrays of a checkpoint, which must have the same form."""
        for name, fresh in self.arrays().items():
            check_same_form(name, arrays[name], np.asarray(fresh))
        for side, prior in self._with_features():
            prior.weights = arrays[f"weights-{side}"]

    def collect(self, ask):
        """Gather the rows of all shards."""
        found = ask(lambda session, messages: session.snapshot(messages))
        shards = range(len(self.shards))
        self._collected = [
            [np.concatenate([found[f"shard-{shard}/{name}"] for shard in shards]) for name in names]
            for names in NAMES
        ]

    def in_model(self, factors):
        """Return factors of a side, as shards have them when a round ends, in the model's coordinates."""
        return factors

    @property
    def sides(self):
        """The model that was collected last."""
        factors, biases = zip(*self._collected, strict=True)
        factors = [self.in_model(part)[:, : self.settings.n_components].copy() for part in factors]
        for side, prior in self._with_features():
            prior.set_unrated(factors[side], biases[side])
        weights = tuple(None if prior is None else prior.weights for prior in self.priors)
        return Sides.of(factors, list(biases), self.mean, weights)


def rows_of(tasks, partials):
    """Join the rows that shards report: for each side its factors, its biases, and what else there is."""
    rows: tuple[list, list] = [], []
    for task, partial in zip(tasks, partials, strict=True):
        if "rows" in partial:
            rows[STEPS[task.blocks].side].append(partial["rows"])
    return [tuple(map(np.concatenate, zip(*parts, strict=True))) for parts in rows]


def stack_rows(parts):
    """Stack rows in memory that begins with a cache line."""
    rows = aligned((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype)
    return np.concatenate(parts, out=rows)


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
