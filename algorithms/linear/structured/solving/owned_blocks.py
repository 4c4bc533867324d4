r"""Groups of columns that shards own: any loss with a conjugate, convex penalties on norms of groups.

For rows with weights w_i of sum 1 and a predictor f that all shards' columns make together::

    P(B, c) = sum_i w_i loss(y_i, f_i) + sum_k pen_k(B_k),      f = offset + sum_k X_k B_k + c

A shard owns whole groups of columns, keeps their coefficients B_k, and works on a few of them, W_k; a copy of
f is everything that it knows of the others. There are rounds of two kinds:

- *Scores.* Every shard multiplies its columns by the slopes of the loss at f and proposes the groups that
  violate optimality most; the priority of a group is how many times stronger its penalty would have to be to
  keep it at zero. From this comes the duality gap of the whole problem. The schedule takes proposals by
  priority, unless a column of a group is correlated with one of a group that another shard is given
  (`stradask.scheduler.schedules.candidates`).
- *Updates.* Every shard lets its new groups join W_k, and minimises P over B_k and an intercept of its own,
  the other coefficients fixed. It returns ``d_k``, the change of its part of f. The coordinator takes that
  share of each change, and that intercept, which are best together (`joint.best_shares`); then it minimises P
  over the span of the shards' last steps (`joint.least_in_span`). The objective never rises, however much the
  shards' columns depend on each other.

The strength of the penalty falls to its target by halves. Rounds of updates go on until the gap on W is a
part of the gap of the whole.

**Gap.** With u the slopes of the mean loss at f, of sum zero if there is an intercept, and g_k the largest
gauge of shard k, at least 1, the dual point is ``s u``, ``s = min_k 1 / g_k``. Where a squared penalty leaves
a conjugate, the shards know it at ``u / g_k``; it is convex and 0 at 0, so that ``s g_k`` times that is a
bound. At the minimum s is 1.

Messages, in bytes, of n rows and K outputs: a round of updates has 8 n K up for each shard that works on
columns, and 40 + 8 K a column of W; down to each worker 8 n K for the new f, and at most 8 + 8 K a column of
W. A round of scores has 8 n K down, and up 8 n K for the part of f, and for each candidate 16 and the images
of its columns, at most 1,024 each. No column leaves its worker.

Shards hold nothing that the coordinator could not send again: of a lost worker the columns are read again.
The model is then that of the same tolerance, not of the same bits.

References
----------
Lee, Kim, Zheng, Ho, Gibson, Xing, "On model parallelization and scheduling strategies for distributed machine
learning", NIPS 2014.

Richtarik, Takac, "Parallel coordinate descent methods for big data optimization", Mathematical Programming
156, 2016.

Mahajan, Keerthi, Sundararajan, "A distributed block coordinate descent method for training l1 regularized
linear classifiers", JMLR 18, 2017.
"""

import itertools
from typing import Any

import numpy as np

from .....scheduler.program import Outcome, Program
from .....scheduler.schedules.candidates import CandidateSchedule
from .....scheduler.threads import single_threaded_blas
from ....inputs.pieces import Lazy, lazy_blocks
from ...sparse.column_store import ColumnBlock, ColumnSource, ColumnStore, Images, ReadColumns
from ...sparse.columns import columns_of
from ..mean_loss import balanced
from .blocks import Blocks
from .joint import PenaltyOfBlocks, best_shares, least_in_span
from .shard import BlockTerms, GroupShard, OwnedGroups
from .solver import Fit

_LEAST_GROWTH = 100  # columns that join W in a round, if so many violate
_STRIDE = 0.5  # by which the strength falls in a round
_STAGE = 0.05  # on the way to the target, W is solved to this part of the objective
_INNER = 0.1  # at the target, W is solved to this part of the outer gap,
_LEAST_INNER = 0.3  # but not below this part of what is asked for, to which it goes when none joins
_OWN = 0.2  # of what is asked of W, what the shards together are asked for
_PATIENCE = 50  # rounds of updates in which the gap on W does not fall, after which they end
_KEPT = 20  # steps of shards over whose span the objective is minimised
_ROUNDED = 1e-10  # steps that move the predictor less than this part of it are largely rounding
_IMAGE_ERROR = 1e-16  # of a step's image, as a part of the predictor
_CORRELATED = 0.5  # correlations of candidates, in absolute value, from which one waits for the other
_MOST_STRENGTH = 1e6  # times the target: above it the strength falls to its target at once
_ROUNDING = 1e-15  # nothing below this part of the objective is asked of W


def _adjacent_pieces(edges, n_shards):
    """Bounds of adjacent pieces of about equal widths, for `n_shards` shards at most."""
    middles = 0.5 * (edges[:-1] + edges[1:])
    party = (middles * n_shards / edges[-1]).astype(np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(party)) + 1, [len(edges) - 1]])


class OwnedBlocks(Program):
    """The program; `schedule` is its own. Shards answer requests of three phases, "fit", "score" and "solve".

    `pieces`: adjacent blocks of columns, in the order of the groups: ndarray, sparse matrix, or Dask array of
    one block; `edges`: the first column of each, and the end; every group is in one piece. `loss`:
    `mean_loss.MeanLoss`. `blocks`: Blocks, plain. `terms`: BlockTerms at the target, without free blocks.
    `n_shards`: at most, of adjacent pieces.
    `standardize`: of single columns. `read`: whether blocks are read anew for each round of scores, because
    memory would not hold them. `max_rounds`: rounds of scores. `start`: places (rising, of whole groups) and
    their coefficients. `dtype`: to which coefficients are rounded at the end.
    """

    measure_every = 0
    unit = "coordinate"

    def __init__(
        self,
        pieces,
        edges,
        loss,
        blocks,
        terms,
        *,
        n_shards,
        fit_intercept=True,
        standardize=False,
        tol=1e-4,
        max_rounds=1000,
        start=None,
        dtype=np.float64,
        read=False,
        is_sparse=False,
    ):
        edges = np.asarray(edges)
        bounds = _adjacent_pieces(edges, n_shards)
        self.first = edges[bounds]
        self.first_block = np.searchsorted(blocks.starts, self.first)
        self.n_shards, self.n_blocks, self.n_rows = len(bounds) - 1, len(blocks.sizes), len(loss.y)
        self.shards = [
            self._entry(pieces[a:b], edges[a : b + 1], blocks, terms, read)
            for a, b in itertools.pairwise(bounds)
        ]
        self.loss, self.blocks, self.fit_intercept = loss, blocks, fit_intercept
        self.positive, self.negative = terms.low == 0, terms.high == 0
        self.standardize, self.is_sparse = standardize, is_sparse
        self.tol, self.max_rounds, self.dtype = tol, max_rounds, np.dtype(dtype)
        K = loss.n_outputs
        self.K, self._offset = K, np.zeros_like(loss.y) if loss.offset is None else loss.offset
        self.c = loss.start() if fit_intercept else np.zeros(K)  # of the centred columns
        self.reason, self._rounded = "", self.dtype == np.float64
        self._take_model([])
        self._rebuild_predictor([])
        self.excess = max(loss.objective(self.f) - loss.least(), 0.0) or 1e-300
        self.spread = float(np.sqrt(self.loss.weights @ (self.f**2).sum(axis=1))) or 1.0
        self.images: Any = (np.empty(0, np.int64), None, None)
        self.strength = np.inf
        self.passes, self.updates, self.gap = 0, 0, np.nan
        self._best, self._stuck = np.inf, 0
        self.rounds, self.eps, self._trail, self.request = 0, np.inf, [], {}
        self._lowest, self._lowered, self._moves = np.inf, 0, True
        self._ask_scores()
        if start is not None:
            self.places, self.coef = start
            self._ask("fit")

    @staticmethod
    def _entry(pieces, edges, blocks, terms, read):
        first, last = int(edges[0]), int(edges[-1])
        a, b = np.searchsorted(blocks.starts, [first, last])
        return {
            "first": first,
            "first_block": int(a),
            "edges": (edges - first).tolist(),
            "starts": blocks.starts[a : b + 1] - first,
            "terms": tuple(values[a:b] for values in terms),
            "pieces": lazy_blocks(pieces) if read else pieces,
        }

    def __getstate__(self):
        """Pickle without the coordinator's state."""
        own = (
            "places", "coef", "terms", "f", "blocks", "images", "request", "positive", "negative",
            "_offset", "_trail",
        )  # fmt: skip
        return {**self.__dict__, "shards": (), **dict.fromkeys(own)}

    @property
    def schedule(self):
        """Proposals by priority, none of which is correlated with one of another shard."""
        conflicts = self._correlated if len(self.shards) > 1 else None
        return CandidateSchedule(self.first_block, conflicts=conflicts)

    def _correlated(self, left, right):
        ids, images, starts = self.images
        if not len(ids):
            return np.zeros((len(left), len(right)), bool)
        largest = np.abs(images @ images.T)
        largest = np.maximum.reduceat(np.maximum.reduceat(largest, starts, axis=0), starts, axis=1)
        return largest[np.ix_(np.searchsorted(ids, left), np.searchsorted(ids, right))] >= _CORRELATED

    # On the worker of a shard ---------------------------------------------------------------------------

    def load(self, data):
        """Check the columns, or leave them to be read and checked for each round of scores."""
        weights, stored, scales = self.loss.weights, [], []
        for piece, a, b in zip(data["pieces"], data["edges"][:-1], data["edges"][1:], strict=True):
            source = ColumnSource(
                piece, f"in the columns of X from {data['first'] + a} on", (self.n_rows, b - a)
            )
            if isinstance(piece, Lazy):
                columns: Any = ReadColumns(source.read, source.shape, self.is_sparse)
            else:
                columns = columns_of(source.read())
            stored.append(ColumnBlock(a, columns))
            if self.standardize:
                scales.append(source.scales(weights, self.fit_intercept))
        terms = BlockTerms(*data["terms"])
        if self.standardize:
            s = np.concatenate(scales)
            terms = BlockTerms(terms.lam * s, terms.l1 * s, terms.ridge * s * s, *terms[3:])
        blocks = Blocks(np.arange(data["edges"][-1]), data["starts"], plain=True)
        images = Images.of(weights, self.fit_intercept) if self.n_shards > 1 else None
        store = ColumnStore(stored, self.n_rows)
        owned = OwnedGroups(store, self.loss, blocks, terms, images, fit_intercept=self.fit_intercept)
        return GroupShard(data["first"], data["first_block"], owned)

    def renew(self, state):
        """Keep the columns alone."""
        return GroupShard(state.first, state.first_block, state.owned.renewed())

    def sync(self, state, message):
        """Take the next request, and coefficients that are not those which the shard found."""
        owned = state.owned
        if message["model"] is not None:
            places, coef = message["model"]
            own = slice(*np.searchsorted(places, [state.first, state.first + owned.store.n_columns]))
            owned.take(places[own] - state.first, coef[own])
        state.request = message

    def update(self, state, task):
        """Score the columns, or work on those that joined and the new ones."""
        request, owned = state.request, state.owned
        with single_threaded_blas():
            if request["phase"] == "score":
                most, conjugate, ids, *found = owned.score(request)
                return most, conjugate, ids + state.first_block, *found
            if request["phase"] == "fit":
                places, *found = owned.model()
                return owned.fit(), places + state.first, *found
            change, places, *found = owned.solve(request, task.blocks - state.first_block)
            return change, places + state.first, *found

    # At the coordinator -----------------------------------------------------------------------------

    def publish(self):
        """Send the present request with all coefficients."""
        return self.request | {"model": (self.places, self.coef)}

    def aggregate(self, tasks, partials):
        """Take a round's answers; set the next request."""
        answer = {"fit": self._fitted, "score": self._scored, "solve": self._solved}[self.request["phase"]]
        updates, proposals, model = answer(partials)
        self.updates += updates
        return Outcome(
            message=self.request | {"model": model},
            objective=self.minimised(),
            updates=updates,
            priorities=proposals or (np.empty(0, np.int64), np.empty(0)),
            done=self._rounded and self.reason,
            gap=self.gap,
        )

    def _fitted(self, partials):
        """Take up coefficients that no round of updates led to."""
        self._take_model(partials)
        self._rebuild_predictor([partial[0] for partial in partials])
        self._ask_scores()
        return 0, None, None

    def _reason(self):
        if self.gap <= self.tol:
            return "gap"
        if self._stuck >= 2:
            return "stalled"
        return "max_rounds" if self.passes >= self.max_rounds else ""

    def _take_model(self, partials):
        """Coefficients of W, and the penalties of its blocks."""
        if partials:
            self.places, self.coef = (np.concatenate([partial[k] for partial in partials]) for k in (1, 2))
            self.terms = np.concatenate([partial[3] for partial in partials], axis=1)
        else:
            self.places, self.coef, self.terms = (
                np.empty(0, np.int64),
                np.empty((0, self.K)),
                np.empty((4, 0)),
            )
        owner = np.searchsorted(self.blocks.starts, self.places, side="right") - 1
        self.firsts = np.flatnonzero(np.diff(owner, prepend=-1))
        self.signed = self.positive[owner], self.negative[owner]

    def _scaled_penalty(self, strength):
        lam, l1, ridge, _ = self.terms
        return PenaltyOfBlocks(self.firsts, strength * lam[self.firsts], strength * l1, ridge)

    def _rebuild_predictor(self, predictor_parts):
        """Make the predictor anew of the shards' parts of it; they are empty where W is."""
        f = self._offset + self.c
        for predictor_part in predictor_parts:
            if len(predictor_part):
                f = f + predictor_part
        self.f = f
        self._optimise_intercept()

    def _optimise_intercept(self):
        """Bring the intercept to its best value."""
        if not self.fit_intercept or not self._free:
            return
        none = np.empty((0, *self.f.shape)), np.empty(0)
        _, dc = best_shares(self.loss, self.f, *none, intercept=True)
        self.c, self.f = self.c + dc, self.f + dc

    @property
    def _free(self):
        """Whether the intercept may move: not once it is rounded."""
        return self._rounded or not self.reason

    def _dual(self, answers):
        """Value of the dual at f, from the shards' gauges and conjugates (see the module)."""
        u = self.loss.gradient(self.f)
        u = balanced(u) if self.fit_intercept else u
        s = min(1 / gauge for gauge, _ in answers)
        return -self.loss.conjugate(u, s, self.f) - sum(s * gauge * value for gauge, value in answers)

    def minimised(self):
        """The objective, at the target."""
        return self.loss.objective(self.f) + self._scaled_penalty(1.0).value(self.coef)

    def _scored(self, partials):
        """Duality gap of the whole problem; the next strength, and proposals for it."""
        dual = self._dual([partial[:2] for partial in partials])  # at the f that shards were given
        self._rebuild_predictor([partial[5] for partial in partials])
        gap = max(self.minimised() - dual, 0.0)
        self.gap = gap / self.excess
        if self.reason:  # of the rounded coefficients
            self._rounded = True
            return 0, None, None
        self.passes += 1
        self.reason = self._reason()
        if self.reason:
            return 0, None, self._round_coefficients()
        if not np.isfinite(self.strength):
            self._lower(_STRIDE * max(partial[0] for partial in partials))
        else:
            self._lower(_STRIDE * self.strength)
        ids, scores = (np.concatenate([partial[k] for partial in partials]) for k in (2, 3))
        chosen = np.flatnonzero(scores > self.strength)
        chosen = np.sort(chosen[np.argsort(-scores[chosen], kind="stable")[: self.request["count"]]])
        if self.n_shards > 1 and len(chosen):
            images = np.concatenate([partial[4] for partial in partials if len(partial[2])])
            sizes = self.blocks.sizes[ids]
            images = images[np.isin(np.repeat(np.arange(len(ids)), sizes), chosen)]
            starts = np.concatenate([[0], np.cumsum(sizes[chosen])[:-1]])
            self.images = ids[chosen], images, starts
        better = self.gap < 0.9 * self._best
        if self.strength == 1:
            self._best = min(self._best, self.gap)
            self._stuck = 0 if len(chosen) or better else self._stuck + 1
        self._ask_updates(gap, len(chosen) > 0)
        return 0, (ids[chosen], scores[chosen]), None

    def _lower(self, strength):
        self.strength = max(1.0, strength) if strength < _MOST_STRENGTH else 1.0
        self._trail = []

    def _solved(self, partials):
        """Take the shards' changes, each in the share that is best; decide whether W is solved."""
        at_start = self.loss.objective(self.f) + self._scaled_penalty(self.strength).value(self.coef)
        at_start -= self._dual([partial[4:6] for partial in partials])
        old_places, old, old_f = self.places, self.coef, self.f
        self._take_model(partials)
        solved, penalty = self.coef, self._scaled_penalty(self.strength)
        self.coef = np.zeros_like(solved)
        self.coef[np.searchsorted(self.places, old_places)] = old
        steps, cuts = solved - self.coef, np.searchsorted(self.places, self.first)
        of_shard = np.searchsorted(self.first, self.places[self.firsts], side="right") - 1
        costs = np.bincount(of_shard, penalty.rises(self.coef, steps), self.n_shards)
        working = [k for k, partial in enumerate(partials) if len(partial[0])]
        changes = np.array([partials[k][0] for k in working]).reshape(len(working), *self.f.shape)
        options = {"intercept": self.fit_intercept}
        # Sums of old and new coefficients are not sparse: none are made in the last round, if possible.
        together = changes.sum(axis=0)
        whole = at_start <= self.eps and self.loss.rise(self.f, together) + float(costs.sum()) <= 0
        shares = np.ones(self.n_shards)
        if whole:
            self.f = self.f + together
            self._optimise_intercept()
        else:
            shares[working], dc = best_shares(self.loss, self.f, changes, costs[working], **options)
            self.f = self.f + np.tensordot(shares[working], changes, 1) + dc
            self.c = self.c + dc
        all_taken = bool((shares == 1).all())
        taken = np.repeat(shares, np.diff(cuts))[:, None] * steps
        self.coef = solved if all_taken else self.coef + taken
        further = False
        if not whole:
            further = self._search_span_of_steps(working, changes, steps, cuts, penalty)
        self.rounds += 1
        self._moves = bool(np.any(self.f != old_f))
        if self._is_solved(at_start):
            self._ask_scores()
        else:
            self._ask("solve")
        updates = sum(partial[6] for partial in partials)
        return updates, None, None if all_taken and not further else (self.places, self.coef)

    def _is_solved(self, gap_before):
        """Whether the gap on W was small enough, or has not fallen for long."""
        if gap_before <= self.eps or not self._moves:
            return True
        if gap_before < 0.9 * self._lowest:
            self._lowest, self._lowered = gap_before, self.rounds
        patience = _PATIENCE if self.strength == 1 else 3
        return self.rounds - self._lowered >= patience

    def _search_span_of_steps(self, working, changes, steps, cuts, penalty):
        """Minimise the objective over the span of the shards' last steps; return whether it fell."""
        for change, k in zip(changes, working, strict=True):
            if np.sqrt(self.loss.weights @ (change**2).sum(axis=1)) > _ROUNDED * self.spread:
                own = slice(cuts[k], cuts[k + 1])
                self._trail.append((self.places[own], steps[own], change))
        self._trail = self._trail[-max(_KEPT, 2 * self.n_shards) :]
        if len(self._trail) < 2:
            return False
        images = np.array([image for *_, image in self._trail])
        moves = np.zeros((len(self._trail), *self.coef.shape))
        for row, (places, step, _) in zip(moves, self._trail, strict=True):
            row[np.searchsorted(self.places, places)] = step
        arguments = self.loss, self.f, penalty, self.coef, moves, images
        step, image, dc, n_steps = least_in_span(*arguments, intercept=self.fit_intercept)
        after, (positive, negative) = self.coef + step, self.signed
        if (after[positive] < 0).any() or (after[negative] > 0).any():
            return False
        # Late steps are nearly parallel: combinations of many of them are largely rounding errors of their
        # images, which would lower the objective of a predictor that is not that of the coefficients.
        u = np.abs(self.loss.gradient(self.f)).sum()
        error = _IMAGE_ERROR * n_steps * u
        if self.loss.rise(self.f, image + dc) + penalty.rise(self.coef, step) >= -error:
            return False
        self.coef, self.f, self.c = after, self.f + image + dc, self.c + dc
        return True

    @property
    def intercept(self):
        """That of X as it is."""
        return self.c - self.terms[3] @ self.coef if self.fit_intercept else np.zeros(self.K)

    # Requests -----------------------------------------------------------------------------------------

    def _ask(self, phase, **more):
        self.request = {**self.request, "phase": phase, "f": self.f, "strength": self.strength, **more}

    def _ask_scores(self):
        """Candidates are to serve the strength that is next."""
        following = 1.0 if not np.isfinite(self.strength) else max(1.0, _STRIDE * self.strength)
        mean_size = len(self.blocks.order) / self.n_blocks
        there = np.logical_or.reduceat(self.coef.any(axis=1), self.firsts) if len(self.coef) else ()
        most = max(int(_LEAST_GROWTH / mean_size), 10, int(np.sum(there)), len(self.firsts) // 2)
        self._ask("score", strength=1.0, threshold=following, count=most)

    def _ask_updates(self, gap, some_join):
        self.rounds, self._lowest, self._lowered = 0, np.inf, 0
        if self.strength > 1:
            at = (
                self.loss.objective(self.f)
                - self.loss.least()
                + self._scaled_penalty(self.strength).value(self.coef)
            )
            self.eps = _STAGE * at
        else:
            # The last steps on W may have led from a gap that is small enough to a larger one.
            asked = max(_LEAST_INNER ** (1 + self._stuck) * self.tol, _ROUNDING) * self.excess
            self.eps = max(asked, _INNER * gap if some_join else 0.0)
        self._ask("solve", part=_OWN * self.eps / (self.n_shards * self.excess))

    def _round_coefficients(self):
        """Ask for the gap of the coefficients as they are returned, unless they are exact."""
        if self._rounded:
            return None
        intercept = self.intercept.astype(self.dtype)
        self.coef = self.coef.astype(self.dtype).astype(np.float64)
        self.c = intercept + self.terms[3] @ self.coef
        self._ask("fit")
        return self.places, self.coef

    def solution(self, reason=None):
        """The model so far."""
        B = np.zeros((len(self.blocks.order), self.K))
        B[self.places] = self.coef
        gap = self.gap * self.excess
        return Fit(B, self.intercept, self.minimised(), gap, np.nan, self.passes, reason or self.reason)
