"""CCD++: coordinate descent over one factor of all users and items at a time."""

import numpy as np

from ...kernels.mf_ccd import catch_up_rows, refit_rows
from ...scheduler.program import Outcome, Program
from ...scheduler.static import StaticSchedule
from .sides import Sides, mean_rating, run_rows, start_factors

_INNER = 2  # times that a factor's two sides are refitted in turn
_SPREAD = 0.1  # of the factors to begin with


class CyclicCoordinateDescent(Program):
    """One factor after another, on the residuals; the objective never rises.

    A bias is one more factor, whose counterpart on the other side is 1. There is one shard, in this process,
    whose rows are shared among threads. It holds 24 bytes a rating (32 with weights).

    Parameters
    ----------
    entries : Entries
    settings : Settings
    seed : int

    References
    ----------
    Yu, Hsieh, Si, Dhillon, "Scalable coordinate descent approaches to parallel matrix factorization for
    recommender systems", ICDM 2012.
    """

    saved = ("factors-0", "factors-1", "bias-0", "bias-1", "residuals-0", "residuals-1")
    unit = "rating"

    def __init__(self, entries, settings, seed):
        self.settings, self.mean, self.seed = settings, mean_rating(entries, settings), seed
        self.shards = [entries]
        self.schedule = StaticSchedule(1)
        self.tables = (entries, entries.transposed())
        self.ridges = [settings.ridge(table.counts, entries.values.dtype) for table in self.tables]

    def load(self, entries):
        """Begin: factors at random, a row of them side by side; biases of zero; residuals in both orders."""
        drawn = start_factors(np.random.default_rng(self.seed), entries, self.settings, _SPREAD)
        state = {f"factors-{side}": np.ascontiguousarray(part.T) for side, part in enumerate(drawn)}
        for side in (0, 1):
            state[f"bias-{side}"] = np.zeros(entries.shape[side], entries.values.dtype)
            state[f"residuals-{side}"] = self._fresh(side, state)
        return state

    def _fresh(self, side, state):
        """Compute the residuals in the order of a side."""
        table = self.tables[side]
        residuals = table.values - table.values.dtype.type(self.mean)
        for x, y in zip(state[f"factors-{side}"], state[f"factors-{1 - side}"], strict=True):
            run_rows(catch_up_rows, table.indptr, self.settings.n_jobs, table.indices, residuals, x, y)
        return residuals

    def update(self, state, task):
        """Refit the biases and every factor; return the objective."""
        bias = [state["bias-0"], state["bias-1"]]
        if self.settings.bias:
            for side in (0, 1):
                ones = [np.ones_like(bias[0]), np.ones_like(bias[1])]
                ones[side] = bias[side]
                self._refit(state, ones, (side,), False)
        for pair in zip(state["factors-0"], state["factors-1"], strict=True):
            self._refit(state, pair, (0, 1) * _INNER, self.settings.non_negative)
        residuals = state["residuals-0"].astype(np.float64)
        weights = self.tables[0].weights
        loss = weights @ residuals**2 if len(weights) > 1 else weights[0] * (residuals @ residuals)
        return float(loss) + _sides(state, self.mean).penalty(*self.ridges)

    def _refit(self, state, pair, order, non_negative):
        """Refit the two sides of one factor in the given order, in place."""
        changes = [np.zeros_like(x) for x in pair]  # not yet in the residuals of the other order
        n_jobs = self.settings.n_jobs
        for side in order:
            table = self.tables[side]
            run_rows(
                refit_rows,
                table.indptr,
                n_jobs,
                table.indices,
                table.weights,
                state[f"residuals-{side}"],
                pair[side],
                pair[1 - side],
                changes[1 - side],
                self.ridges[side],
                non_negative,
                changes[side],
            )
        side = 1 - order[-1]
        table = self.tables[side]
        arrays = (table.indices, state[f"residuals-{side}"], pair[side], changes[1 - side])
        run_rows(catch_up_rows, table.indptr, n_jobs, *arrays)

    def aggregate(self, tasks, partials):
        """Tell the objective."""
        return Outcome(objective=partials[0], updates=len(self.tables[0]))

    def restore(self, arrays):
        """Keep nothing: all that changes lies in the shard."""

    def collect(self, ask):
        """Keep the state of the shard."""
        arrays = ask(lambda session, messages: session.snapshot(messages))
        self._collected = {name: arrays[f"shard-0/{name}"] for name in self.saved}

    @property
    def sides(self):
        """The model."""
        return _sides(self._collected, self.mean)


def _sides(state, mean):
    factors = [np.array(state[f"factors-{side}"].T, order="C") for side in (0, 1)]
    return Sides.of(factors, [state[f"bias-{side}"].copy() for side in (0, 1)], mean)
