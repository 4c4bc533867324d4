"""The columns of one shard in groups, the groups that it works on, and candidates to join them.

The state of a shard of `owned_blocks`. The problem on its own groups is solved by `solver.Solver`, with the
predictor of the whole model in place of its own.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ...sparse.columns import columns_from
from ..mean_loss import balanced
from ..penalties import BlockPenalty
from .blocks import Blocks
from .columns import Columns
from .solver import Solver

_NONE = np.empty(0, np.int64)
_OWN_PART = 0.01  # the violation that a shard leaves of that which it found


class BlockTerms(NamedTuple):
    """The penalty of each block: as `BlockPenalty` has it; float64 (n_blocks,)."""

    lam: np.ndarray
    l1: np.ndarray
    ridge: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def of(self, blocks):
        """Those of some blocks."""
        return BlockTerms(*(values[blocks] for values in self))

    def penalty(self, blocks, strength=1.0):
        """The penalty whose kinks are as many times as strong."""
        return BlockPenalty(blocks, strength * self.lam, strength * self.l1, *self[2:])


class StoredColumns(Columns):
    """Columns of a store, as a `Solver` asks for them."""

    def __init__(self, store, weights, *, centre):
        self.store, self.is_sparse = store, store.is_sparse
        self.n_samples, self.n_features = store.n_rows, store.n_columns
        self._set_weights(weights if centre and not self.is_sparse else None)

    def raw(self, features):
        """See `Columns.raw`; `features` rise."""
        shape, parts = (self.n_samples, 0), []
        for _, columns, positions in self.store.raw(features):
            taken = columns.take(positions)
            if self.is_sparse:
                parts.append(sparse.csc_array(taken, shape=(self.n_samples, len(positions))))
            else:
                parts.append(taken[0])
        if not parts:
            return sparse.csc_array(shape) if self.is_sparse else np.empty(shape, order="F")
        if self.is_sparse:
            return sparse.hstack(parts, format="csc").astype(np.float64)
        return np.asfortranarray(np.hstack(parts), np.float64)


class OwnedGroups:
    """One shard's groups: places and blocks are numbered from 0.

    `store`: ColumnStore. `loss`: `mean_loss.MeanLoss`. `blocks`: Blocks, plain. `terms`: BlockTerms.
    `images`: None where no correlations are needed.
    """

    def __init__(self, store, loss, blocks, terms, images, *, fit_intercept):
        self.store, self.loss, self.blocks, self.terms, self.images = store, loss, blocks, terms, images
        self.fit_intercept = fit_intercept
        columns = StoredColumns(store, loss.weights, centre=fit_intercept)
        self.solver = Solver(columns, loss, blocks, fit_intercept=fit_intercept)
        self.inside = _NONE  # blocks that are worked on, rising
        self._penalties = {}  # by strength: the target's, and the present one

    def renewed(self):
        """Make of the same columns what they were at first."""
        given = self.loss, self.blocks, self.terms, self.images
        return OwnedGroups(self.store.renewed(), *given, fit_intercept=self.fit_intercept)

    @property
    def places(self):
        """Places of the blocks that are worked on, rising."""
        return self.blocks.places(self.inside)[0]

    def _penalty(self, strength):
        if strength not in self._penalties:
            at_target = {1.0: self._penalties[1.0]} if 1.0 in self._penalties else {}
            self._penalties = at_target | {strength: self.terms.penalty(self.blocks, strength)}
        return self._penalties[strength]

    # What is published --------------------------------------------------------------------------------

    def admit(self, blocks):
        """Let rising blocks join."""
        self.solver.grow(blocks)
        self.inside = np.union1d(self.inside, blocks)

    def take(self, places, coef):
        """Take coefficients of the rising places of whole blocks, which join the others."""
        self.admit(np.unique(np.searchsorted(self.blocks.starts, places, side="right") - 1))
        self.solver.B[self.places] = 0.0
        self.solver.B[places] = coef

    # What is asked ------------------------------------------------------------------------------------

    def model(self):
        """Places of W in rising order, coefficients, and lam, l1, ridge and the mean of each place."""
        solver, places = self.solver, self.places
        lam, l1, ridge = (np.repeat(values, self.blocks.sizes)[places] for values in self.terms[:3])
        shift = np.zeros(len(self.blocks.order))
        shift[solver.places] = solver.shift
        return places, solver.B[places], np.array([lam, l1, ridge, shift[places]])

    def fit(self):
        """The part of the predictor that is theirs, of centred columns; empty where W is."""
        solver = self.solver
        if not len(self.inside):
            return np.empty((0, solver.K))
        return solver.columns.times(solver.part, solver.B[solver.places])

    def score(self, request):
        """Find the blocks outside W that violate optimality most, and what all allow the dual point.

        Returns the largest gauge (see `kernels.gauges`) and the conjugate of the penalty at the slopes
        divided by it; numbers, gauges and images of candidates; and the part of the fit that is theirs,
        without rounding errors of many rounds.
        """
        u, penalty = self._slopes_of(request["f"]), self._penalty(1.0)
        V = np.empty((self.store.n_columns, self.solver.K))
        ids, gauges, raw = _NONE, np.empty(0), None
        starts = self.blocks.starts
        for block in self.store.blocks:
            a, b = np.searchsorted(starts, [block.first, block.last])
            with block.opened() as columns:
                V[block.first : block.last] = -columns.dot(np.arange(block.last - block.first), u).T
                own = BlockTerms(*(values[a:b] for values in self.terms))
                found = own.penalty(_blocks(starts[a : b + 1])).gauges(V[block.first : block.last])
                found[self.inside[(self.inside >= a) & (self.inside < b)] - a] = 1.0
                new = np.flatnonzero(found > request["threshold"])
                ids, gauges = np.append(ids, new + a), np.append(gauges, found[new])
                best = np.sort(np.argsort(-gauges, kind="stable")[: request["count"]])
                if self.store.reads:
                    raw = self._joined(raw, ids, best, columns, block.first)
            ids, gauges = ids[best], gauges[best]
        if self.store.reads:
            self.store.candidates = raw
        if self.solver.shift.any():  # columns far from zero lose digits where they are not centred
            V[self.solver.places] = -self.solver.columns.slopes(self.solver.part, u.T)
        _, _, scale, conjugate, _ = penalty.judge(self.solver.B, V, True)
        images = self.store.images_of(self.images, self.blocks.places(ids)[0])
        return 1 / scale, conjugate, ids, gauges, images, self.fit()

    def _joined(self, raw, ids, best, columns, first):
        """Raw columns of the candidates so far, of which some are in `raw`, the others in `columns`."""
        places, wanted = self.blocks.places(ids)[0], self.blocks.places(ids[best])[0]
        n_old = 0 if raw is None else len(raw[0])
        parts = [] if raw is None else [raw[1].take(np.arange(n_old))]
        parts.append(columns.take(places[n_old:] - first))
        together = columns_from(parts, self.store.n_rows).take(np.searchsorted(places, wanted))
        return wanted, columns_from([together], self.store.n_rows)

    def _slopes_of(self, f):
        """Slopes of the loss, feasible with an intercept: (K, n_rows)."""
        u = self.loss.gradient(f)
        return np.ascontiguousarray((balanced(u) if self.fit_intercept else u).T)

    def solve(self, request, new):
        """Let new blocks join, and solve the problem on W with the rest of the model as it is.

        Returns the change of the fit; the `model`; the largest gauge of W and the conjugate of the penalty
        there, before; and the number of coefficients.
        """
        if len(new):
            self.admit(new)
        if not len(self.inside):
            return self.fit(), *self.model(), 1.0, 0.0, 0
        solver, f = self.solver, request["f"]
        V = np.zeros_like(solver.B)
        V[solver.places] = -solver.columns.slopes(solver.part, self._slopes_of(f).T)
        inside, places, strength = self.inside, self.places, request["strength"]
        own = self.terms.of(inside).penalty(_blocks(self.blocks.places(inside)[1]), strength)
        distances, _, scale, conjugate, _ = own.judge(solver.B[places], V[places], True)
        violation = distances.max()
        before = solver.B[solver.places]
        least = float(np.min((own.lam + own.l1)[own.allowed], initial=np.inf))
        solver.f, solver.c = f, np.zeros(solver.K)
        penalty = self._penalty(strength)
        solver.model = None  # of another predictor
        solver.descend(penalty, max(_OWN_PART * violation, request["part"] * least))
        change = solver.columns.times(solver.part, solver.B[solver.places] - before)
        return change, *self.model(), 1 / scale, conjugate, len(places)


def _blocks(starts):
    """Some adjacent blocks, numbered from 0."""
    starts = starts - starts[0]
    return Blocks(np.arange(starts[-1]), starts, plain=True)


@dataclass
class GroupShard:
    """State of a shard: its first place and block, its groups, and what is asked of them."""

    first: int
    first_block: int
    owned: OwnedGroups
    request: Any = None
