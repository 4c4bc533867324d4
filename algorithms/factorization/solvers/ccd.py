"""CCD++: coordinate descent over one factor of all users and items at a time."""

import numpy as np

from ....kernels.factorization.ccd import catch_up_rows, refit_rows
from ....scheduler.program import Outcome, Program
from ....scheduler.stores.saved import check_same_form
from .sides import (
    INITIAL_SPREAD,
    N_SHARDS,
    InTurn,
    Sides,
    joined_parts,
    mean_rating,
    shards_of,
    start_factors,
)

_INNER = 2  # times that a factor's two sides are refitted in turn
_LEAST = 50_000  # ratings of a shard: a step over fewer takes less time than its start


class CyclicCoordinateDescent(Program):
    """One factor after another, on the residuals; the objective never rises.

    As in STRADS a block is a side of one factor: every shard refits its rows of it (push), and workers give
    one another the result (pull). The coordinator receives all factors once an iteration. A bias is one more
    factor, whose counterpart on the other side is 1. A shard holds a range of users and a range of items,
    with their ratings and residuals 24 bytes a rating (32 with weights).
    Residuals are computed anew in each iteration, so that rounding errors do not accumulate and a lost worker
    loses nothing.

    Reference: Yu, Hsieh, Si, Dhillon, "Scalable coordinate descent approaches to parallel matrix
    factorization for recommender systems", ICDM 2012.
    """

    barrier, joins = "step", True
    unit = "rating"

    def __init__(self, entries, settings, seed):
        self.settings, self.mean = settings, mean_rating(entries, settings)
        self.n_ratings = len(entries)
        tables = entries, entries.transposed()
        n_shards = min(N_SHARDS, *entries.shape, 1 + len(entries) // _LEAST)
        self.shards = shards_of(tables, n_shards)
        dtype, K = entries.values.dtype, settings.n_components
        self._ridges = [settings.ridges(table.counts, dtype, side) for side, table in enumerate(tables)]
        drawn = start_factors(np.random.default_rng(seed), entries, settings, INITIAL_SPREAD)
        self.factors = [list(np.ascontiguousarray(part.T)) for part in drawn]
        if settings.bias:  # factors K and K + 1: users' biases and ones, ones and items' biases
            users, items = (np.zeros(n, dtype) for n in entries.shape)
            self.factors[0] += [users, np.ones_like(users)]
            self.factors[1] += [np.ones_like(items), items]
        self.n_blocks = 2 * len(self.factors[0])  # 2 t + side
        blocks = [2 * K, 2 * (K + 1) + 1] if settings.bias else []
        blocks += [2 * t + side for t in range(K) for side in (0, 1) * _INNER]
        self.schedule = InTurn(n_shards, blocks)

    def __getstate__(self):
        return {**self.__dict__, "shards": (), "factors": None, "_ridges": None}

    # On the workers -----------------------------------------------------------------------------------

    def load(self, data):
        """Make the state of a shard: its ratings, and the changes that its residuals lack."""
        tables, ranges = zip(*data, strict=True)
        ridges = [
            self.settings.ridges(table.counts, table.values.dtype, side) for side, table in enumerate(tables)
        ]
        # `late`: changes of the other side's factors that the residuals of a side do not contain yet.
        return {"tables": tables, "ranges": ranges, "ridges": ridges, "late": ({}, {})}

    def renew(self, state):
        """Forget the last messages to the shard."""
        return {name: state[name] for name in ("tables", "ranges", "ridges")} | {"late": ({}, {})}

    def sync(self, state, message):
        """Take all factors, or one that was refitted, from a message."""
        if isinstance(message, list):
            state["sides"] = [list(part) for part in message]
            return
        block, values, change = message
        factor, side = divmod(block, 2)
        state["sides"][side][factor] = values
        state["late"][1 - side][factor] = change

    def update(self, state, task):
        """Refit a factor of the shard's rows, for all, with its change; in the last step return the loss."""
        if task.step == 0:
            self._begin(state)
        factor, side = divmod(task.blocks, 2)
        x = self._own(state, side, factor).copy()
        y = state["sides"][1 - side][factor]
        change = state["late"][side].pop(factor, None)
        self._catch_up(state, side)
        table, residuals, added = state["tables"][side], state["residuals"][side], np.empty_like(x)
        is_bias = factor >= self.settings.n_components
        refit_rows(
            0, len(x), table.indptr, table.indices, table.weights, residuals, x, y,
            np.zeros_like(y) if change is None else change, state["ridges"][side][is_bias],
            self.settings.non_negative and not is_bias, added,
        )  # fmt: skip
        partial = {"joined": {task.shard: (task.blocks, x, added)}}
        if task.step == len(self.schedule.blocks) - 1:
            partial["loss"] = _loss(residuals, table.weights)
        return partial

    def _begin(self, state):
        """Compute the residuals of the shard's users and items."""
        state["residuals"] = []
        for side, late in enumerate(state["late"]):
            values = state["tables"][side].values
            state["residuals"].append(values - values.dtype.type(self.mean))
            late.clear()
            late.update(enumerate(state["sides"][1 - side]))
            self._catch_up(state, side)

    def _catch_up(self, state, side):
        table, late = state["tables"][side], state["late"][side]
        for factor, change in late.items():
            x = self._own(state, side, factor)
            catch_up_rows(0, len(x), table.indptr, table.indices, state["residuals"][side], x, change)
        late.clear()

    def _own(self, state, side, factor):
        return state["sides"][side][factor][slice(*state["ranges"][side])]

    def join(self, partials):
        """Put together what shards give, by shard, or what is `reported`, by block."""
        return joined_parts(partials)

    def message_of(self, state, joined):
        """Put the rows of a factor together, and their changes."""
        block, values, change = zip(*(joined[shard] for shard in sorted(joined)), strict=True)
        return block[0], np.concatenate(values), np.concatenate(change)

    def reported(self, joined, message):
        """Report a factor as it is then."""
        block, values, _ = message
        return {block: values}

    # At the coordinator ---------------------------------------------------------------------------------

    def hear(self, joined):
        """Take the factors of an iteration."""
        for block, values in joined.items():
            self.factors[block % 2][block // 2] = values

    def aggregate(self, tasks, partials):
        """Add up the objective."""
        losses = [partial["loss"] for partial in partials]
        objective = sum(losses) + self.sides.penalty(*self._ridges)
        return Outcome(objective=objective, updates=self.n_ratings)

    def publish(self):
        """Message with all factors."""
        return self.factors

    def arrays(self):
        """Arrays of a checkpoint: the model."""
        return {f"factors-{side}": np.array(part) for side, part in enumerate(self.factors)}

    def restore(self, arrays):
        """Continue from the model of a checkpoint, which must have the same form."""
        for name, fresh in self.arrays().items():
            check_same_form(name, arrays[name], fresh)
        self.factors = [list(arrays[f"factors-{side}"].copy()) for side in (0, 1)]

    @property
    def sides(self):
        """The current model, copied."""
        K = self.settings.n_components
        factors = [np.stack(part[:K], axis=1) for part in self.factors]
        if self.settings.bias:
            bias = [self.factors[0][K].copy(), self.factors[1][K + 1].copy()]
        else:
            bias = [np.zeros(len(part), part.dtype) for part in factors]
        return Sides.of(factors, bias, self.mean)


def _loss(residuals, weights):
    residuals = residuals.astype(np.float64)
    return float(weights @ residuals**2 if len(weights) > 1 else weights[0] * (residuals @ residuals))
