"""Alternating least squares whose workers give one another what they solve for; the coordinator has no rows.

The programs here are the solvers of ratings and of implicit feedback without features. Where something is
fitted to all rows at once (features, draws), the coordinator has the rows: see `als` and `implicit`.
"""

import itertools

import numpy as np

from ....kernels.vector import aligned
from ....scheduler.program import Outcome
from ....scheduler.stores.saved import check_same_form
from ....scheduler.threads import single_threaded_blas
from .als import AlternatingLeastSquares, fixed_side, solve_table, sweeps_of
from .implicit import conjugate, principal_axes, small_factors, turned
from .sides import InTurn, Sides, cut_rows, joined_parts, penalty_of

_SHARE = 2  # added to the number of a side: its rows are given to all
_AXES = 4  # the same: one shard finds the axes of its rows for all
_BOTH = -1  # in place of a side
_ROWS = (("user_factors", "user_biases"), ("item_factors", "item_biases"))


class ExchangedLeastSquares(AlternatingLeastSquares):
    """Least squares: all users' factors at once, then all items'; the objective never rises.

    A shard holds a range of users and a range of items with their ratings, 16 bytes a rating in all (24 with
    weights), and their factors. In an iteration items are given to all workers, each solves for its users,
    these are given to all, and each solves for its items. A worker sends and receives the factors of a side
    once; the coordinator receives a number of each shard.
    """

    joins, keeps_copies, spreads = True, True, True
    saved = tuple(itertools.chain.from_iterable(_ROWS))
    n_blocks = 4

    def __init__(self, entries, settings, seed):
        super().__init__(entries, settings, seed)
        n_shards = len(self.shards)
        ends = [np.concatenate([[0], np.cumsum(counts)]) for counts in self._counts]
        ranges = [list(itertools.pairwise(cut_rows(end, n_shards))) for end in ends]
        first = [
            [part[a:b] for part, (a, b) in zip(self.factors, pairs, strict=True)]
            for pairs in zip(*ranges, strict=True)
        ]
        self.shards = list(zip(self.shards, first, strict=True))
        self.schedule = InTurn(n_shards, self.steps())
        del self.factors, self.biases, self._ridges, self._rated, self._counts

    def __getstate__(self):
        return {**self.__dict__, "shards": (), "_collected": None}

    @staticmethod
    def steps():
        """List the blocks of a round in order: sides to solve for, and sides to share."""
        return _SHARE + 1, 0, 1  # users are shared as they are solved for

    # On the workers -----------------------------------------------------------------------------------

    def load(self, data):
        """Make the state of a shard: its ratings, and initial factors of its rows."""
        tables, ranges = zip(*data[0], strict=True)
        return self._begun({"tables": tables, "ranges": ranges, "first": data[1]})

    def renew(self, state):
        """Begin again with the initial factors."""
        return self._begun({name: state[name] for name in ("tables", "ranges", "first")})

    def _begun(self, state):
        for names, first in zip(_ROWS, state["first"], strict=True):
            state |= dict(zip(names, (first, np.zeros(len(first), first.dtype)), strict=True))
        return {**state, "sides": [None, None]}

    def sync(self, state, message):
        """Take all rows of a side; a shard's own are from now on a part of them."""
        side, values = message
        state["sides"][side] = values
        (a, b), (factors, biases) = state["ranges"][side], _ROWS[side]
        state[factors], state[biases] = values["factors"][a:b], values["biases"][a:b]

    def update(self, state, task):
        """Solve for a shard's rows of a side, or give them away; after the items, return the objective."""
        side, sharing = task.blocks % 2, task.blocks >= _SHARE
        loss = 0.0 if sharing else self.solved(state, side)
        partial = {"joined": self.given(state, task)}
        if task.blocks == 1:
            ridges = self.settings.ridges(state["tables"][0].counts, state["user_factors"].dtype, 0)
            partial["loss"] = loss + penalty_of(state["user_factors"], state["user_biases"], *ridges)
            state["sides"] = [None, None]
        return partial

    def solved(self, state, side):
        """Solve for a shard's rows of a side; return the sum of their objectives."""
        names, table, other = _ROWS[side], state["tables"][side], state["sides"][1 - side]
        factors, biases = (state[name].copy() for name in names)
        sweeps = sweeps_of(self.settings)
        losses = solve_table(table, other, self.settings, factors, biases, side=side, sweeps=sweeps, n_jobs=1)
        state |= dict(zip(names, (factors, biases), strict=True))
        return losses.sum()

    def given(self, state, task):
        """What a shard gives to all at the end of a step, by its number; None for nothing."""
        if task.blocks == 1:
            return None
        side = task.blocks % 2
        return {task.shard: (side, *(state[name] for name in _ROWS[side]))}

    def join(self, partials):
        """Put together what shards give, by shard, or what is `reported`."""
        return joined_parts(partials)

    def message_of(self, state, joined):
        """Put the rows of a side together, which all shards of a worker share."""
        side, factors, biases = zip(*(joined[shard] for shard in sorted(joined)), strict=True)
        return side[0], self.whole(state, side[0], _side_by_side(factors), np.concatenate(biases))

    def whole(self, state, side, factors, biases):
        """Make what solving for one side needs of all rows of the other."""
        return fixed_side(factors, biases, self.mean, self.settings) | {"biases": biases}

    def reported(self, joined, message):
        """Keep the rows from the coordinator."""
        return None

    # At the coordinator ---------------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Add up the objective."""
        losses = [partial["loss"] for partial in partials]
        return Outcome(objective=sum(losses), updates=self.n_ratings)

    def publish(self):
        """Send nothing: shards have their rows, and give them to all when a round begins."""
        return None

    def arrays(self):
        """Nothing is kept here."""
        return {}

    def restore(self, arrays):
        """Nothing to restore."""

    def collect(self, ask):
        """Gather the rows of all shards."""
        found = ask(lambda session, messages: session.snapshot(messages))
        shards = range(len(self.shards))
        self._collected = [
            [np.concatenate([found[f"shard-{shard}/{name}"] for shard in shards]) for name in names]
            for names in _ROWS
        ]

    def frame(self):
        """The coordinates of the collected factors; None for those of the model."""
        return None

    @property
    def sides(self):
        """The model that was collected last."""
        K, frame = self.settings.n_components, self.frame()
        factors, biases = zip(*self._collected, strict=True)
        if frame is not None:
            with single_threaded_blas():
                factors = [part @ frame.T for part in factors]
        return Sides.of([part[:, :K].copy() for part in factors], list(biases), self.mean)


class ExchangedImplicit(ExchangedLeastSquares):
    """Implicit feedback; see `implicit.ImplicitFeedback` for the coordinates of the factors.

    Shards add up the Gram matrix of a side before its rows are shared, and turn their rows to its axes. One
    of them finds the axes for all: processors of two kinds may find other signs, or turn axes of nearly
    equal lengths. Only the axes are known to the coordinator. Items end a round in the coordinates in which
    they were solved for, which are the axes of the users.
    """

    n_blocks = 6

    def __init__(self, entries, settings, seed):
        super().__init__(entries, settings, seed)
        K, dtype = settings.n_components, entries.dtype
        d = self.shards[0][1][1].shape[1]
        eye, none = np.eye(d, dtype=dtype), np.zeros(d, dtype)
        self.axes = [{"axes": eye, "turn": eye, "spectrum": none, "across": eye}]
        with single_threaded_blas():
            gram = sum(items.T @ items for _, (_, items) in self.shards)
            self.axes.append(axes_of(gram, eye, K))

    def __getstate__(self):
        return {**super().__getstate__(), "axes": None}

    @staticmethod
    def steps():
        """List the blocks of a round: a side's rows are shared when its Gram matrix is known."""
        return _SHARE + 1, 0, _AXES, _SHARE, 1, _AXES + 1

    def first_factors(self, rng, entries):
        """Draw factors; see `small_factors`."""
        return small_factors(rng, entries, self.settings.n_components)

    def _begun(self, state):
        return {**super()._begun(state), "axes": [None, None], "gram": None}

    def sync(self, state, message):
        """Take the axes of both sides, or of one, the rows of one, or a Gram matrix."""
        side, values = message
        if side == _BOTH:
            state["axes"] = list(values)
        elif "gram" in values:
            state["gram"] = values["gram"]
        elif "factors" in values:
            super().sync(state, message)
        else:
            state["axes"][side] = values

    def update(self, state, task):
        """As for ratings; rows that are given are turned to the axes of their Gram matrix first."""
        if _SHARE <= task.blocks < _AXES:
            side = task.blocks - _SHARE
            name = _ROWS[side][0]
            with single_threaded_blas():
                state[name] = turned(state[name], state["axes"][side]["turn"], self.vectors)
        return super().update(state, task)

    def solved(self, state, side):
        """Move a shard's rows of a side, in the axes of the other; return the sum of their objectives."""
        name, other, axes = _ROWS[side][0], state["sides"][1 - side], state["axes"][1 - side]
        with single_threaded_blas():
            state[name] = turned(state[name], axes["across"], self.vectors)
            return conjugate(
                state["tables"][side],
                state[name],
                other["factors"],
                axes["spectrum"],
                None,
                self.settings,
                side,
            )

    def given(self, state, task):
        """Give the Gram matrix of rows that were solved for, its axes, or the rows."""
        side = task.blocks % 2
        if task.blocks >= _AXES:
            return None if task.shard else {0: (side, self._axes(state, side))}
        factors, biases = (state[name] for name in _ROWS[side])
        if task.blocks >= _SHARE:
            return {task.shard: (side, factors, biases)}
        with single_threaded_blas():
            return {task.shard: (side, factors.T @ factors)}

    def message_of(self, state, joined):
        """Put the rows of a side together, or their Gram matrix, or pass the axes on."""
        side, *rest = joined[min(joined)]
        if len(rest) > 1:
            return super().message_of(state, joined)
        if isinstance(rest[0], dict):
            return side, rest[0]
        return side, {"gram": sum(joined[shard][1] for shard in sorted(joined))}

    def _axes(self, state, side):
        """The `axes_of` a side, whose rows are in the axes of the other."""
        with single_threaded_blas():
            return axes_of(state["gram"], state["axes"][1 - side]["axes"], self.settings.n_components)

    def whole(self, state, side, factors, biases):
        """All rows of a side."""
        return {"factors": factors, "biases": biases}

    def reported(self, joined, message):
        """Report axes alone."""
        side, values = message
        return {f"axes-{side}": values} if "axes" in values else None

    # At the coordinator ---------------------------------------------------------------------------------

    def hear(self, joined):
        """Keep the axes of both sides."""
        self.axes = [joined[f"axes-{side}"] for side in (0, 1)]

    def publish(self):
        """Send the axes of both sides."""
        return _BOTH, self.axes

    def arrays(self):
        """Arrays of a checkpoint: the axes."""
        return {f"{name}-{side}": part for side, axes in enumerate(self.axes) for name, part in axes.items()}

    def restore(self, arrays):
        """Continue from the axes of a checkpoint, which must have the same form."""
        for name, fresh in self.arrays().items():
            check_same_form(name, arrays[name], fresh)
        self.axes = [{name: arrays[f"{name}-{side}"] for name in axes} for side, axes in enumerate(self.axes)]

    def frame(self):
        """Return the axes of the users, in which both sides end a round."""
        return self.axes[0]["axes"]


def axes_of(gram, frame, n_components):
    """Return the principal axes of rows whose coordinates are `frame`, given their Gram matrix.

    That is the ``axes``, in the coordinates of the model; the ``spectrum``; the ``turn`` of the rows to the
    axes; and the turn of rows whose axes are the frame ``across`` to these.
    """
    axes, turn, spectrum = principal_axes(gram, frame, n_components)
    return {"axes": axes, "turn": turn, "spectrum": spectrum, "across": frame.T @ axes}


def _side_by_side(parts):
    """Stack rows in memory that begins with a cache line."""
    whole = aligned((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype)
    return np.concatenate(parts, out=whole)
