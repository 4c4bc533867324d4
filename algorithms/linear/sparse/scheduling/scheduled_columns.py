r"""Lasso and elastic net on columns that shards own: each works on its own, the schedule lets columns join.

For rows of weights w_i, after centring::

    P(b) = sum_i w_i (y_i - sum_k x_ik b_k)^2 / 2 + sum_k pen_k(b_k),      k: shards, each with columns of X

A shard owns columns, keeps their coefficients, and works on a few of them, W_k; a copy of the residual r of
the whole model is everything that it knows of the others. There are rounds of two kinds:

- *Scores.* Every shard multiplies its columns by r and proposes those that violate optimality most, with the
  size of the violation. From this comes the duality gap of the whole problem. The schedule takes proposals by
  priority, unless a column is correlated with one that another shard is given: both would explain the same
  part of r (`stradask.scheduler.schedules.candidates`).
- *Updates.* Every shard lets its new columns join W_k, and minimises P over the coefficients of W_k, the
  others fixed: in memory, by all that `SquaredSubproblem` has. It returns ``d_k``, the change of its part of
  the fit. The coordinator takes a part ``t_k`` of each change, where

  .. math:: \min_{0 \le t \le 1} \tfrac12 \Bigl\|r - \sum_k t_k d_k\Bigr\|^2
            + \sum_k t_k (pen_k(b_k^{new}) - pen_k(b_k))

  bounds P from above (the penalty is convex) and is P at ``t = 0``: the objective never rises, however much
  the shards' columns depend on each other. Where they do not, t = 1. The steps of the last rounds are then
  combined (Anderson acceleration), if that lowers P.

The penalty falls to its target by halves, as in `working_set`. Rounds of updates go on until the gap on W is
a part of the gap of the whole.

Messages, in bytes: a round of updates has 8 n up for each shard, the change of its part of the fit, and 40 a
column of W; and down to each worker 8 n for the new residual, and at most 16 a column of W. A round of scores
has 8 n down, and up 8 n for the part of the fit, and for each candidate 16 and its image, at most 1,024. No
column leaves its worker.

Shards hold nothing that the coordinator could not send again: of a lost worker the columns are read again.
The model is then that of the same tolerance, not of the same bits: sums that a shard had built up over rounds
are built at once. The bits depend on the number of shards, which estimators take from that of threads of all
workers, and not on where the shards are.

References
----------
Lee, Kim, Zheng, Ho, Gibson, Xing, "On model parallelization and scheduling strategies for distributed machine
learning", NIPS 2014.

Richtarik, Takac, "Parallel coordinate descent methods for big data optimization", Mathematical Programming
156, 2016.

Walker, Ni, "Anderson acceleration for fixed-point iterations", SIAM Journal on Numerical Analysis 49, 2011.
"""

import copy
import itertools
from typing import Any

import numpy as np

from ....inputs.pieces import Lazy, lazy_blocks
from ..column_store import ColumnBlock, ColumnSource, ColumnStore, Images, ReadColumns
from ..columns import columns_of
from ..duality import squared_gap
from ..joint_steps import best_parts, least_in_span
from ..squared import SquaredSubproblem
from ..working_set import INNER, LEAST_GROWTH, LEAST_INNER, LEAST_STAGE, ROUNDING, STAGE, STRIDE, Solution
from .owned_columns import ColumnShard, OwnedColumns
from .owned_program import (
    CORRELATED,
    IMAGE_ERROR,
    KEPT,
    OWN,
    PATIENCE,
    ROUNDED,
    OwnedProgram,
    adjacent_pieces,
)

_OWN_PART = 0.01  # what a shard is asked for, of its own gap


class ScheduledColumns(OwnedProgram):
    """The program; `schedule` is its own.

    `pieces`: adjacent blocks of columns, ndarray, sparse matrix, or Dask array of one block; `edges`: the
    first column of each, and the end. `n_shards`: at most, of adjacent pieces. `weights`: None, or of mean 1.
    `factors`: of the penalty, None or float64 (p,). `read`: whether blocks are read anew for each round of
    scores, because memory would not hold them. `max_rounds`: rounds of scores. `dtype`: of X; coefficients
    are rounded to it, and the gap is that of the rounded ones.
    """

    def __init__(
        self,
        pieces,
        edges,
        y,
        penalty,
        *,
        n_shards,
        weights=None,
        factors=None,
        standardize=False,
        fit_intercept=True,
        tol=1e-4,
        max_rounds=1000,
        start=None,
        dtype=np.float64,
        read=False,
        is_sparse=False,
    ):
        edges = np.asarray(edges)
        bounds = adjacent_pieces(edges, n_shards)
        self.first = self.first_block = edges[bounds]
        self.n_shards = len(bounds) - 1
        self.shards = [
            self._entry(pieces[a:b], edges[a : b + 1], factors, read) for a, b in itertools.pairwise(bounds)
        ]
        self.n_blocks, self.n_rows = int(edges[-1]), len(y)
        self.penalty, self.standardize, self.fit_intercept = penalty, standardize, fit_intercept
        self.target_y, self.weights, self.is_sparse = y, weights, is_sparse
        self.tol, self.max_rounds, self.dtype = tol, max_rounds, dtype
        base = self._loss()
        self.y, self.scale, self.y_y, self.mean = base.y, base.scale, base.y_y, base.intercept
        self.places, self.coef, self.terms = np.empty(0, np.int64), np.empty(0), np.empty((3, 0))
        self.rho, self.images = self.y, (self.places, np.empty((0, 0), np.float32))
        self.strength, self._least_stage = np.inf, 0.0
        self.passes, self.updates, self.gap, self.reason = 0, 0, np.nan, ""
        self._best, self._stuck, self._rounded = np.inf, 0, np.dtype(dtype) == np.float64
        self.rounds, self.eps, self._trail, self.request = 0, np.inf, [], {}
        self._lowest, self._lowered, self._moves = np.inf, 0, True
        self._ask_scores()
        if start is not None:
            self.places, self.coef = start
            self.terms = np.zeros((3, len(self.places)))
            self._ask("fit")

    @staticmethod
    def _entry(pieces, edges, factors, read):
        first, last = int(edges[0]), int(edges[-1])
        return {
            "first": first,
            "edges": (edges - first).tolist(),
            "factors": None if factors is None else factors[first:last],
            "pieces": lazy_blocks(pieces) if read else pieces,
        }

    def __getstate__(self):
        """Pickle without the coordinator's state."""
        own = ("places", "coef", "terms", "rho", "images", "request", "y", "_trail")
        return {**self.__dict__, "shards": (), **dict.fromkeys(own)}

    def _correlated(self, left, right):
        ids, images = self.images
        here, there = (images[np.searchsorted(ids, side)] for side in (left, right))
        return np.abs(here @ there.T) >= CORRELATED

    def _loss(self):
        return SquaredSubproblem(self.target_y, self.weights, self.fit_intercept)

    # On the worker of a shard ---------------------------------------------------------------------------

    def load(self, data):
        """Check the columns, or leave them to be read and checked for each round of scores."""
        weights = np.ones(self.n_rows) if self.weights is None else self.weights
        factors, blocks = data["factors"], []
        l1_factors: list = []
        l2_factors: list = []
        for piece, a, b in zip(data["pieces"], data["edges"][:-1], data["edges"][1:], strict=True):
            where = f"in the columns of X from {data['first'] + a} on"
            source = ColumnSource(piece, where, (self.n_rows, b - a))
            if isinstance(piece, Lazy):
                columns: Any = ReadColumns(source.read, source.shape, self.is_sparse)
            else:
                columns = columns_of(source.read())
            l1 = l2 = None if factors is None else factors[a:b]
            if self.standardize:
                scales = source.scales(self.weights, self.fit_intercept)
                l1 = scales if factors is None else factors[a:b] * scales
                l2 = l1 * scales
            blocks.append(ColumnBlock(a, columns))
            l1_factors.append(l1)
            l2_factors.append(l2)
        penalty = self.penalty
        if l1_factors[0] is not None:
            penalty = copy.copy(penalty)
            penalty.l1_factors, penalty.l2_factors = np.concatenate(l1_factors), np.concatenate(l2_factors)
        images = Images.of(weights, self.fit_intercept) if self.n_shards > 1 else None
        store = ColumnStore(blocks, self.n_rows)
        owned = OwnedColumns(store, penalty.l1_factors, self._loss, penalty, images)
        return ColumnShard(data["first"], owned)

    def renew(self, state):
        """Keep the columns alone."""
        return ColumnShard(state.first, state.owned.renewed())

    def sync(self, state, message):
        """Take the next request, and coefficients that are not those which the shard found."""
        owned = state.owned
        owned.coef = owned.sub.b.copy()
        if message["model"] is not None:
            features, coef = message["model"]
            own = slice(*np.searchsorted(features, [state.first, state.first + owned.n_columns]))
            owned.take(features[own] - state.first, coef[own])
        state.request = message

    def update(self, state, task):
        """Score the columns, or work on those that joined and the new ones."""
        request, owned = state.request, state.owned
        if request["phase"] == "score":
            bound, ids, *found = owned.score(request)
            return bound, ids + state.first, *found
        if request["phase"] == "fit":
            change, ids, *found = owned.fit()
        else:
            change, ids, *found = owned.solve(request, task.blocks - state.first)
        return change, ids + state.first, *found

    # At the coordinator -----------------------------------------------------------------------------

    def _anchor(self, fits):
        """Make the residual anew of the shards' parts of the fit; they are empty where W is."""
        self.rho = self.y.copy()
        for fit in fits:
            if len(fit):
                self.rho -= fit

    def _scored(self, partials):
        """Duality gap of the whole problem; the next strength, and proposals for it."""
        bound, limits = max(partial[0] for partial in partials), [partial[4] for partial in partials]
        target = self.penalty.strength / self.scale
        limits.append(target / bound if bound > 0 else np.inf)
        dual = self._dual(self.penalty.strength, min(limits))  # at the residual that shards multiplied by
        self._anchor([partial[5] for partial in partials])
        gap = max(self._objective(self.penalty.strength) - dual, 0.0)
        self.gap = gap / self.unit_of_gap if self.y_y > 0 else 0.0
        if not self.reason:
            self.passes += 1
            self.reason = self._reason()
            if self.reason:
                return 0, None, self._round_coefficients()
        else:  # of the rounded coefficients
            self._rounded = True
            return 0, None, None
        if not np.isfinite(self.strength):
            self._least_stage = LEAST_STAGE * bound * self.scale
            self._lower(STRIDE * bound * self.scale)
        else:
            self._lower(STRIDE * self.strength)
        ids, scores = (np.concatenate([partial[k] for partial in partials]) for k in (1, 2))
        images = [partial[3] for partial in partials if len(partial[1])]
        chosen = np.flatnonzero(scores > self.strength / self.scale)
        chosen = np.sort(chosen[np.argsort(-scores[chosen], kind="stable")[: self.request["count"]]])
        if images and self.n_shards > 1:
            self.images = ids[chosen], np.concatenate(images)[chosen]
        better = self.gap < 0.9 * self._best
        if self.strength == self.penalty.strength:
            self._best = min(self._best, self.gap)
            self._stuck = 0 if len(chosen) or better else self._stuck + 1
        self._ask_updates(gap, len(chosen) > 0)
        return 0, (ids[chosen], scores[chosen]), None

    def _lower(self, strength):
        target = self.penalty.strength
        self.strength = max(target, strength) if strength > self._least_stage else target
        self._trail = []

    def _solved(self, partials):
        """Take the shards' changes, each in the part that is best; decide whether W is solved."""
        at_start = self._objective(self.strength)
        at_start -= self._dual(self.strength, min(partial[4] for partial in partials))
        old_features, old = self.places, self.coef
        self._take_model(partials)
        found, self.coef = self.coef, np.zeros(len(self.places))
        self.coef[np.searchsorted(self.places, old_features)] = old
        steps = found - self.coef
        changes = np.array([p[0] if len(p[0]) else np.zeros(self.n_rows) for p in partials])
        cuts = np.searchsorted(self.places, self.first)
        costs = self._penalty_rises(steps)
        costs = np.array([costs[a:b].sum() for a, b in itertools.pairwise(cuts)])
        together = changes.sum(axis=0)
        # Sums of old and new coefficients are not sparse: none are made in the last round, if possible.
        if at_start <= self.eps and self._rise(steps, together) <= 0:
            parts, mixed = np.ones(self.n_shards), False
        else:
            parts, mixed = best_parts(changes @ changes.T, changes @ self.rho, costs), True
        whole = bool((parts == 1).all())
        rise = self._move(np.repeat(parts, np.diff(cuts)) * steps, parts @ changes)
        if whole:
            self.coef = found
        if mixed:
            further = self._go_along(changes, steps, cuts)
            rise, whole = rise + further, whole and not further
        self.rounds += 1
        self._moves = rise != 0 or bool((parts * np.abs(changes).max(axis=1) > 0).any())
        if self._is_solved(at_start, -rise):
            self._ask_scores()
        else:
            self._ask("solve")
        updates = sum(partial[5] for partial in partials)
        return updates, None, None if whole else (self.places, self.coef)

    def _is_solved(self, gap_before, decrease):
        """Whether the gap on W was small enough, or has not fallen for long."""
        if gap_before <= self.eps or not self._moves:
            return True
        if self.strength > self.penalty.strength:
            return decrease <= self.eps
        if gap_before < 0.9 * self._lowest:
            self._lowest, self._lowered = gap_before, self.rounds
        return self.rounds - self._lowered >= PATIENCE

    def _take_model(self, partials):
        self.places, self.coef = (np.concatenate([partial[k] for partial in partials]) for k in (1, 2))
        self.terms = np.concatenate([partial[3] for partial in partials], axis=1)

    def _go_along(self, changes, steps, cuts):
        """Minimise the objective over the span of the shards' last steps; return the rise, 0 or less."""
        for k, (a, b) in enumerate(itertools.pairwise(cuts)):
            if np.linalg.norm(changes[k]) > ROUNDED * np.sqrt(self.y_y):
                self._trail.append((self.places[a:b], steps[a:b], changes[k]))
        self._trail = self._trail[-max(KEPT, 2 * self.n_shards) :]
        if len(self._trail) < 2:
            return 0.0
        images = np.array([image for *_, image in self._trail])
        moves = np.zeros((len(self._trail), len(self.places)))
        for row, (features, step, _) in zip(moves, self._trail, strict=True):
            row[np.searchsorted(self.places, features)] = step
        l1, l2 = self.terms[0] * self.strength, self.terms[1]
        unit = self.scale
        at = self.coef / unit, self.rho
        step, image, n_steps = least_in_span(*at, moves / unit, images, l1 / unit, l2)
        step = step * unit
        if self.penalty.positive and (self.coef + step < 0).any():
            return 0.0
        # Late steps are nearly parallel: combinations of many of them are largely rounding errors of their
        # images, which would lower the objective of a residual that is not that of the coefficients.
        error = IMAGE_ERROR * n_steps * np.sqrt(self.y_y) * np.linalg.norm(self.rho)
        return self._move(step, image) if self._rise(step, image) < -error else 0.0

    def _move(self, step, image):
        """Change coefficients and residual; return how far the objective rose."""
        rise = self._rise(step, image)
        self.coef, self.rho = self.coef + step, self.rho - image
        return rise

    def _rise(self, step, image):
        """How far the objective rises by a step: not the difference of two objectives, which would round."""
        return float(image @ (0.5 * image - self.rho) + self._penalty_rises(step).sum())

    def _penalty_rises(self, step):
        """How far the terms of the penalty rise by a step of the coefficients, one a feature."""
        b, s = self.coef / self.scale, step / self.scale
        stays = np.sign(b) * np.sign(b + s) > 0
        sizes = np.where(stays, np.sign(b) * s, np.abs(b + s) - np.abs(b))
        return self.terms[0] * (self.strength / self.scale) * sizes + self.terms[1] * s * (b + 0.5 * s)

    # Figures, of the problem divided by the scale of y ------------------------------------------------

    def minimised(self):
        """The objective, at the target: a mean over rows."""
        return self._objective(self.penalty.strength) * self.scale**2 / self.n_rows

    def _objective(self, strength):
        size = np.abs(self.coef) / self.scale
        penalty = self.terms[0] @ size * (strength / self.scale) + 0.5 * (self.terms[1] @ size**2)
        return 0.5 * float(self.rho @ self.rho) + float(penalty)

    def _dual(self, strength, limit):
        """Value of the dual at a multiple of the residual, `limit` times it at most."""
        size = np.abs(self.coef) / self.scale
        squares = float(self.terms[1] @ size**2)
        terms = float(self.terms[0] @ size) * strength / self.scale, squares, squares
        objective, gap = squared_gap(float(self.y @ self.rho), float(self.rho @ self.rho), terms, limit)
        return objective - gap

    @property
    def unit_of_gap(self):
        """The objective of the model without columns, for which `tol` is meant."""
        return 0.5 * self.y_y

    @property
    def intercept(self):
        """The best one for the present coefficients."""
        return self.mean - float(self.terms[2] @ self.coef) if self.fit_intercept else 0.0

    # Requests -----------------------------------------------------------------------------------------

    def _ask(self, phase, **more):
        self.request = {**self.request, "phase": phase, "rho": self.rho, "strength": self.strength, **more}

    def _ask_scores(self):
        """Candidates are to serve the strength that is next."""
        least = self.penalty.strength
        following = least if not np.isfinite(self.strength) else max(least, STRIDE * self.strength)
        most = max(LEAST_GROWTH, int(np.count_nonzero(self.coef)), len(self.places) // 2)
        self._ask("score", strength=least, threshold=following / self.scale, count=most)

    def _ask_updates(self, gap, some_join):
        self.rounds, self._lowest, self._lowered = 0, np.inf, 0
        if self.strength > self.penalty.strength:
            self.eps = STAGE * self._objective(self.strength)
        else:
            asked = max(LEAST_INNER * self.tol, ROUNDING) * self.unit_of_gap
            self.eps = max(asked, INNER * gap if some_join else 0.0)
        y_r = float(self.y @ self.rho)
        self._ask("solve", eps=OWN * self.eps / self.n_shards, part=_OWN_PART, y_r=y_r)

    def _round_coefficients(self):
        """Ask for the gap of the coefficients as they are returned, unless they are exact."""
        if self._rounded:
            return None
        self.coef = self.coef.astype(self.dtype).astype(np.float64)
        self._ask("fit")
        return self.places, self.coef

    def solution(self, reason=None):
        """The model so far, in the units of the estimators: the objective is a mean over rows."""
        kept, square = np.flatnonzero(self.coef), self.scale**2 / self.n_rows
        return Solution(
            strength=self.penalty.strength,
            features=self.places[kept],
            coef=self.coef[kept],
            intercept=self.intercept,
            objective=self.minimised(),
            gap=self.gap,
            gap_absolute=self.gap * self.unit_of_gap * square,
            rounds=self.passes,
            updates=self.updates,
            reason=reason or self.reason,
        )
