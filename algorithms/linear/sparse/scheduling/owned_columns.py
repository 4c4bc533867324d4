"""The columns that one shard owns: those that are worked on, their coefficients, and candidates to join.

The state of a shard of `scheduled_columns`. Those that are worked on are copied (see `copies`), so that a
pass is needed for scores alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..columns import columns_from
from ..duality import limit
from ..program import Scores

_MOST_SOLVES, _FINER = 6, 0.01  # tries at the local problem, each to a hundredth of the last tolerance
_NONE = np.empty(0, np.int64)


class OwnedColumns:
    """One shard's columns.

    `store`: their ColumnStore. `factors`: of the penalty, None or one a column. `loss`: makes an empty
    `Squared`. `penalty`: of these columns, numbered from 0. `images`: None where they are not needed
    correlations.
    """

    def __init__(self, store, factors, loss, penalty, images):
        self.store, self.factors, self.loss, self.penalty, self.images = store, factors, loss, penalty, images
        self.scores = [
            Scores(
                block.columns,
                None if factors is None else factors[block.first : block.last],
                penalty.positive,
            )
            for block in store.blocks
        ]
        self.sub = loss()
        self.sorted = _NONE  # positions in W by rising number
        self.coef = np.empty(0)  # of the copies, as they were when the residual was published

    def renewed(self):
        """Make of the same columns what they were at first."""
        return OwnedColumns(self.store.renewed(), self.factors, self.loss, self.penalty, self.images)

    @property
    def n_columns(self):
        """Columns of the shard."""
        return self.store.n_columns

    # What is published --------------------------------------------------------------------------------

    def take(self, features, coef):
        """Take coefficients (of X) of the rising `features`, which join the others."""
        missing = np.setdiff1d(features, self.sub.features, assume_unique=True)
        if len(missing):
            self.admit(missing)
        if len(self.sub.features):
            values = np.zeros(len(self.sub.features))
            values[np.searchsorted(self.sub.features[self.sorted], features)] = coef
            own = np.empty(len(values))
            own[self.sorted] = values
            self.coef = self.sub.of_copies(own)

    def admit(self, features):
        """Let columns join; `features` rise."""
        before = len(self.sub.features)
        for ids, columns, positions in self.store.raw(features):
            self.sub.grow(ids, columns, positions, self.penalty)
        self.sorted = np.argsort(self.sub.features)
        self.coef = np.append(self.coef, np.zeros(len(self.sub.features) - before))

    # What is asked ------------------------------------------------------------------------------------

    def fit(self):
        """The part of the fit that is theirs; further as `solve`."""
        if self.sub.is_empty:
            return self._fit(), _NONE, np.empty(0), np.empty((3, 0))
        self.sub.b = self.coef.copy()
        return self._fit(), *self._model()

    def _fit(self):
        if self.sub.is_empty:
            return np.empty(0)
        out, support = np.zeros(self.sub.n_rows), np.flatnonzero(self.coef)
        self.sub.copies.add(support, self.coef[support], out)
        return out

    def _model(self):
        """W in rising order, its coefficients (of X), and their factors of the two penalties and means."""
        sub, order = self.sub, self.sorted
        factors = self.penalty.with_strength(1.0).thresholds(sub.features)
        means = sub.copies.means / sub.copies.scales
        terms = np.array([factors, self.penalty.ridges(sub.features), means])
        return sub.features[order], sub.coef[order], terms[:, order]

    def score(self, request):
        """Find the columns outside W that violate optimality most, and what W allows the dual point.

        Returns the largest score, numbers and scores of the candidates, their images, the limit, and the part
        of the fit that is theirs, without rounding errors of many rounds.
        """
        rho, threshold = request["rho"], request["threshold"]
        v = (rho * self.sub.roots if len(self.sub.roots) else rho)[None]
        wanted = {"v": v, "threshold": threshold, "count": request["count"]}
        working, bound = self.sub.features[self.sorted], 0.0
        ids, scores, raw = _NONE, np.empty(0), None
        for block, scores_of in zip(self.store.blocks, self.scores, strict=True):
            inside = working[np.searchsorted(working, block.first) : np.searchsorted(working, block.last)]
            with block.opened():
                most, new, their_scores = scores_of.find(wanted, inside - block.first)
                order = np.argsort(new)
                bound, new, their_scores = max(bound, most), new[order], their_scores[order]
                parts = [block.columns.take(new)] if self.store.reads else []
            ids, scores = np.append(ids, new + block.first), np.append(scores, their_scores)
            best = np.sort(np.argsort(-scores, kind="stable")[: request["count"]])
            ids, scores = ids[best], scores[best]
            if parts:
                raw = columns_from([*([raw] if raw else []), *parts], self.sub.n_rows).take(best)
        if self.store.reads:
            self.store.candidates = None if raw is None else (ids, columns_from([raw], self.sub.n_rows))
        return bound, ids, scores, self.store.images_of(self.images, ids), self._limit(request), self._fit()

    def _limit(self, request):
        """Largest multiple of the residual that is a dual point, as far as W says."""
        sub = self.sub
        if sub.is_empty:
            return np.inf
        sub.surround(self.coef.copy(), request["rho"])
        l1, l2, positive = sub.terms(self.penalty.with_strength(request["strength"]))
        slopes = sub.exact_slopes() - l2 * sub.b
        return limit(l1, np.maximum(slopes, 0.0) if positive else slopes)

    def solve(self, request, new):
        """Let new columns join and solve the problem on W for the residual of the whole model.

        Returns the change of the fit; W in rising order; its coefficients (of X); their factors of the two
        penalties and means; the limit before; and the number of coordinates visited.
        """
        if len(new):
            self.admit(new)
        sub = self.sub
        if sub.is_empty:
            return np.empty(0), _NONE, np.empty(0), np.empty((3, 0)), np.inf, 0
        most, before = self._limit(request), sub.updates
        penalty = self.penalty.with_strength(request["strength"])
        lack = self._lack(penalty, request["y_r"])
        wanted = max(request["eps"], request["part"] * lack)
        eps = sub.gap(penalty, 0.0)[1]
        for _ in range(_MOST_SOLVES):
            if lack <= wanted or not eps > 0:
                break
            eps *= _FINER
            reached = sub.solve(penalty, eps)
            lack = self._lack(penalty, request["y_r"])
            if not reached:
                break
        return request["rho"] - sub.rho, *self._model(), most, sub.updates - before

    def _lack(self, penalty, y_r):
        """The columns' part of the gap of the whole model, whose ``y . r`` is `y_r`.

        The gap of their own problem is of second order in what the slopes lack, where the columns explain
        little of y.
        """
        sub = self.sub
        l1, l2, positive = sub.terms(penalty)
        slopes = sub.exact_slopes() - l2 * sub.b
        share = min(limit(l1, np.maximum(slopes, 0.0) if positive else slopes), 1.0)
        return (1.0 - share) * abs(y_r) + float(l1 @ np.abs(sub.b) - slopes @ sub.b)


@dataclass
class ColumnShard:
    """State of a shard: the number of its first column, its columns, and what is asked of them."""

    first: int
    owned: OwnedColumns
    request: Any = None
