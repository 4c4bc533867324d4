"""The requests and answers of programs over columns that workers own."""

from typing import Any

import numpy as np

from .....scheduler.program import Outcome, Program
from .....scheduler.schedules.candidates import CandidateSchedule

OWN = 0.2  # of what is asked of W, what the shards together are asked for
PATIENCE = 50  # rounds of updates in which the gap on W does not fall, after which they end
KEPT = 20  # steps of shards over whose span the objective is minimised
ROUNDED = 1e-10  # steps that move the fit less than this part of y are largely rounding
IMAGE_ERROR = 1e-16  # of a step's image, as a part of y
CORRELATED = 0.5  # correlations of candidates, in absolute value, from which one waits for the other


def adjacent_pieces(edges, n_shards):
    """Bounds of adjacent pieces of about equal widths, for `n_shards` shards at most."""
    middles = 0.5 * (edges[:-1] + edges[1:])
    party = (middles * n_shards / edges[-1]).astype(np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(party)) + 1, [len(edges) - 1]])


class OwnedProgram(Program):
    """A program whose shards answer requests of three phases, "fit", "score" and "solve".

    A subclass keeps `places` and `coef` of the working set, `gap`, `tol`, `passes`, `max_rounds`, `reason`,
    and `first_block` of each shard. `_scored` and `_solved` return the number of updates, proposals or None,
    and coefficients that are not those which the shards found, or None.
    """

    measure_every = 0
    unit = "coordinate"
    # Of the subclasses:
    first_block: Any
    request: dict[str, Any]
    places: Any
    coef: Any
    gap: float
    tol: float
    reason: str
    passes: int
    max_rounds: int
    updates: int
    minimised: Any
    _rounded: bool
    _stuck: int
    _anchor: Any
    _ask_scores: Any
    _correlated: Any
    _scored: Any
    _solved: Any
    _take_model: Any

    @property
    def schedule(self):
        """Proposals by priority, none of which is correlated with one of another shard."""
        conflicts = self._correlated if len(self.shards) > 1 else None
        return CandidateSchedule(self.first_block, conflicts=conflicts)

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
        self._anchor([partial[0] for partial in partials])
        self._ask_scores()
        return 0, None, None

    def _reason(self):
        if self.gap <= self.tol:
            return "gap"
        if self._stuck >= 2:
            return "stalled"
        return "max_rounds" if self.passes >= self.max_rounds else ""
