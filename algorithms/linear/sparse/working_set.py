"""The coordinator's half of a sparse linear fit: the working set of columns and its precision.

The problem, for a loss of X b (squared, logistic, multinomial) and a sequence of penalties::

    min_b  loss(X b + b0) + sum_j pen(b_j; strength f_j)

is solved by rounds. In each, one pass over X scores every column outside the working set W by how much it
violates optimality; the largest violators join W; the problem on W is solved to a fraction of the gap. The
strength falls to its target inside these rounds, by a factor a round, and each solution starts the next. A
path is a sequence of penalties, a fit a path of one.

Stopping: the duality gap of the whole problem, from the scoring pass, is at most `tol` times the objective
of the zero model.

References
----------
Massias, Gramfort, Salmon, "Celer: a fast solver for the lasso with dual extrapolation", ICML 2018.
Friedman, Hastie, Tibshirani, "Regularization paths for generalized linear models via coordinate descent",
Journal of Statistical Software 33(1), 2010.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ....errors import DataError, ModelFileError
from ....scheduler.program import Outcome
from .penalties import ENDLESS

LEAST_GROWTH = 100  # columns that join W in a round, if so many violate
STRIDE = 0.5  # by which the strength falls in a round
_MOST = 0.5  # of the features: a larger W takes them all, so that the target is reached in one round more
LEAST_STAGE = 1e-6  # of the first largest slope: from there on the strength falls to its target at once
STAGE = 0.05  # on the way to the target, W is solved to this part of the objective
INNER = 0.1  # at the target, W is solved to this part of the outer gap,
_FEW, _INNER_FEW = 0.02, 0.02  # or to that part if few columns join, relative to the support,
LEAST_INNER = 0.3  # but not below this part of what is asked for, to which it goes when none joins
ROUNDING = 1e-17  # nothing below this part of the objective is asked of a subproblem


class Subproblem(Protocol):
    """The loss that `WorkingSet` needs: the problem on the columns of W, and v, which scores the rest.

    ``v`` is minus the gradient of the loss in X b + b0: ``x_j . v`` is the slope of feature j. It is always
    taken where the intercept and the unpenalised columns of W are exactly stationary (for the squared loss,
    ``sum(v) = 0``), because the dual point is a multiple of it.

    v, gaps and objectives are those of the problem divided by `scale`: strengths are ``strength / scale``,
    objectives ``objective / scale**2``. `features`: columns of W, in the order in which they joined; `coef`
    (m,) or (m, n_outputs) and `intercept` are of the undivided problem. `updates`: coordinates visited so
    far. `easy`: the last `solve` took next to no work, and the strength may fall faster.
    """

    n_rows: int
    scale: float
    features: np.ndarray
    updates: int
    easy: bool

    @property
    def coef(self) -> np.ndarray:
        """See above."""

    @property
    def intercept(self):
        """See above."""

    def grow(self, ids, columns, positions, penalty):
        """Add columns to W with coefficients of zero.

        `ids`: int64 (m,); their numbers, none of them in W. `columns`: DenseColumns or SparseColumns; the raw
        columns are ``columns[positions]``: what is needed of them is copied. `positions`: int64 (m,).
        `penalty`: SeparablePenalty; for the factors of these columns.
        """

    def start(self, coef):
        """Set the coefficients of W, in the order of `features`."""

    def intercept_of(self, coef, intercept, dtype):
        """Return the intercept that belongs to coefficients that were rounded.

        `coef`: float64 ndarray; of W, in the order of `features`. `intercept`: float or float64 ndarray; of
        the fit that was rounded. `dtype`: of X.
        """

    def excess(self, coef, intercept) -> float:
        """Return the objective at other coefficients and intercept less the present one, divided.

        By ``scale**2``. The squared loss takes its best intercept for granted, and that `coef` differs in
        unpenalised columns alone.
        """

    def solve(self, penalty, eps):
        """Bring the gap of the problem on W to `eps` or as near as rounding lets it.

        `eps`: of the divided problem. Returns whether it was reached.
        """

    def vectors(self) -> np.ndarray:
        """v of the current coefficients: float64 array of shape (n_outputs, n_rows), C-ordered.

        The caller keeps it: no later call may write into it.
        """

    def gap(self, penalty, bound) -> tuple[float, float]:
        """Objective and duality gap of the whole problem, both divided by ``scale**2``.

        `bound`: largest score outside W, of the vectors last asked for.
        """

    def unit(self, penalty) -> float:
        """The unit of `tol`: the objective of the zero model, divided by ``scale**2``."""


@dataclass(frozen=True)
class Solution:
    """The model for one penalty; `fitting.solve` divides `objective` and `gap_absolute` by the rows.

    `features`: those with a coefficient, rising. `coef`: (m,) or (m, n_outputs). `gap` is relative to the
    objective of the zero model, and compared with `tol`. `rounds`, `updates`: passes over X, and coordinates
    visited, since the last solution. `reason`: "gap" was reached; "stalled" by rounding; "max_rounds";
    "stopped" by the user; "" while it runs.
    """

    strength: float
    features: np.ndarray
    coef: np.ndarray
    intercept: object
    objective: float
    gap: float
    gap_absolute: float
    rounds: int
    updates: int
    reason: str

    def dense(self, n_features, dtype):
        """Coefficients as a vector of all features, or a matrix (n_outputs, n_features)."""
        coef = np.zeros((*self.coef.shape[1:], n_features), dtype)
        coef[..., self.features] = self.coef.T
        return coef


class WorkingSet:
    """Solves for a sequence of penalties, a scoring pass at a time.

    `penalties` are solved in their order, each from the solution before; they share factors and `positive`,
    and a path falls. `is_sparse`: whether X is; longer strides pay where descent is fast. `tol`: relative
    gap. `max_rounds`: passes over X for each penalty. `start`: features (rising) and coefficients to begin
    with.

    `request` says what the next scoring pass is to do::

        v          float64 (n_outputs, n_rows): the vectors to multiply columns with
        working    int64, rising: columns of W, which are not scored
        wanted     int64, rising: if any, give these columns and score nothing
        threshold  float: candidates score above it,
        count      int: and are at most so many

    `solutions` has one entry for each penalty solved so far, `reports` one for each round: its figures, an
    `Outcome` without a message. `unit`: the objective that users see is so many times the mean over the rows.
    """

    def __init__(
        self,
        subproblem,
        penalties,
        *,
        n_features,
        is_sparse,
        tol=1e-6,
        max_rounds=1000,
        start=None,
        unit=1.0,
    ):
        if not len(penalties):
            raise DataError("penalties is empty; give at least one")
        self.sub, self.penalties = subproblem, list(penalties)
        self.n_features, self.n_rows = n_features, subproblem.n_rows
        self.tol, self.max_rounds, self.unit = float(tol), int(max_rounds), unit
        self.factors, self.positive = penalties[0].l1_factors, penalties[0].positive
        self._tall = tall = self.n_rows >= n_features
        self._easy_stride = 0.1 if tall else 0.25 if is_sparse else STRIDE
        self._growth = 2 if tall or is_sparse else 0.5
        self.solutions: list[Solution] = []
        self.reports: list[Outcome] = []
        self.done: bool | str = False
        self._start = start
        self._at, self._rounds, self._strength, self._best, self._stuck = 0, 0, np.inf, np.inf, 0
        self._eps, self._least_stage = np.inf, 0.0
        self._seen_updates = subproblem.updates
        self.request: dict = {}
        self._ask(self._threshold())

    # One round ------------------------------------------------------------------------------------------

    def advance(self, candidates):
        """Take the `Candidates` of a scoring pass, work on W, set the next `request`; return the figures.

        Objective and relative gap are those before the work, for the present target; NaN if not measured.
        """
        before = self.sub.updates
        self._rounds += 1
        if len(self.request["wanted"]):
            objective, gap = self._admit_wanted(candidates), np.nan
        else:
            if not np.isfinite(self._strength):
                self._least_stage = LEAST_STAGE * candidates.bound
                self._strength = self._toward_target(candidates.bound * self._easy_stride)
            objective, gap = self._measure(candidates)
            if not self.done and not len(self.request["wanted"]):
                self._work(candidates, gap)
        report = Outcome(
            objective=objective * self.sub.scale * self.sub.scale,
            gap=gap,
            updates=self.sub.updates - before,
            done=self.done,
        )
        self.reports.append(report)
        return report

    def published(self, report):
        """Make a report a round's outcome: the next request, and the objective as users see it."""
        return replace(report, message=self.request, objective=self.unit * (report.objective / self.n_rows))

    def so_far(self):
        """The last solution; before the first one, the model between two rounds."""
        if self.solutions:
            return self.solutions[-1]
        sub, gap = self.sub, self.reports[-1].gap
        absolute = gap * sub.unit(self.penalties[0]) * sub.scale**2
        model = self.penalties[0].strength, sub.features, sub.coef, sub.intercept
        return Solution(*model, np.nan, gap, absolute, len(self.reports), sub.updates, "")

    def finish(self):
        """End a run before its time: the present coefficients become the solution of the present penalty."""
        if not self.done:
            objective = self.sub.gap(self.penalties[self._at], np.inf)[0]
            gap = self.reports[-1].gap if self.reports else np.nan
            self._record(objective, gap, gap * self.sub.unit(self.penalties[self._at]), "stopped")
            self.done = "stopped"

    # Its steps --------------------------------------------------------------------------------------

    def _admit_wanted(self, candidates):
        """Add the unpenalised features, and those of the start, to W; return the objective."""
        penalty = self.penalties[self._at]
        self.sub.grow(candidates.ids, candidates.columns, candidates.positions, penalty)
        if self._start is not None:
            features, values = self._start
            coef = np.zeros((len(self.sub.features), *np.shape(values)[1:]))
            coef[np.searchsorted(candidates.ids, features)] = values
            self.sub.start(coef)
            self._start = None
        self._ask(self._threshold())
        return self.sub.gap(penalty, np.inf)[0]

    def _measure(self, candidates):
        """Gap of the whole problem for the present target; every penalty whose end is reached is closed."""
        while True:
            penalty = self.penalties[self._at]
            objective, gap = self.sub.gap(penalty, candidates.bound)
            relative = self._relative(penalty, gap)
            reason = self._reason(relative)
            if not reason:
                return objective, relative
            self._record(objective, relative, gap, reason)
            if self._at + 1 == len(self.penalties):
                self.done = reason
                return objective, relative
            self._at += 1
            self._rounds, self._best, self._stuck = 0, np.inf, 0
            self._strength = self._toward_target(self._strength * self._stride())
            if len(self._missing()):
                self._ask(self._threshold())
                return objective, relative

    def _relative(self, penalty, gap):
        unit = self.sub.unit(penalty)
        return gap / unit if unit > 0 else (0.0 if gap <= 0 else np.inf)

    def _reason(self, gap):
        if gap <= self.tol:
            return "gap"
        if self._stuck >= 2:
            return "stalled"
        return "max_rounds" if self._rounds > self.max_rounds else ""

    def _work(self, candidates, gap):
        """Admit the largest violators and solve on W."""
        penalty = self.penalties[self._at].with_strength(self._strength * self.sub.scale)
        new = np.ones(len(candidates.scores), bool) if self._whole else candidates.scores > self._strength
        if new.any():
            self.sub.grow(candidates.ids[new], candidates.columns, candidates.positions[new], penalty)
        target = self._target(self._at)
        if self._strength > target:
            self._eps = STAGE * self.sub.gap(penalty, np.inf)[0]
        else:
            asked = max(LEAST_INNER * self.tol, ROUNDING) * self.sub.unit(penalty)
            few = np.count_nonzero(new) <= _FEW * np.count_nonzero(self.sub.coef)
            part = 0.0 if self._whole or not new.any() else _INNER_FEW if few else INNER
            self._eps = max(asked, part * gap * self.sub.unit(penalty))
        self.sub.solve(penalty, self._eps)
        if self._strength == target:
            better = gap < 0.9 * self._best
            self._best = min(self._best, gap)
            self._stuck = 0 if new.any() or better else self._stuck + 1
        self._strength = self._toward_target(self._strength * self._stride())
        self._ask(self._threshold())

    def _target(self, at):
        return self.penalties[at].strength / self.sub.scale

    def _toward_target(self, strength):
        target = self._target(self._at)
        return max(target, strength) if strength > self._least_stage else target

    def _stride(self):
        return self._easy_stride if self.sub.easy else STRIDE

    def _threshold(self):
        """Candidates serve the present strength, and the next penalty's if the present one is at its end.

        Before there is one, they may serve any strength that is to come.
        """
        if not np.isfinite(self._strength):
            least = min(penalty.strength for penalty in self.penalties)
            return 0.0 if least == ENDLESS else least / self.sub.scale
        if self._strength > self._target(self._at) or self._at + 1 == len(self.penalties):
            return self._strength
        return min(self._strength, max(self._target(self._at + 1), self._strength * self._stride()))

    def _missing(self):
        """Features that must be in W now and are not."""
        missing = self.penalties[self._at].unpenalised(self.n_features)
        if self._start is not None:
            missing = np.union1d(missing, self._start[0])
        return np.setdiff1d(missing, self.sub.features) if len(missing) else missing

    def _ask(self, threshold):
        support = int(np.count_nonzero(self.sub.coef))
        wanted = self._missing()
        n_new = max(LEAST_GROWTH, support, int(self._growth * len(self.sub.features)))
        most = _MOST * self.n_features if self._tall else np.inf
        self._whole = len(self.sub.features) > most and not len(wanted)
        if self._whole:
            threshold, n_new = 0.0, self.n_features
        self.request = {
            "v": self.sub.vectors(),
            "working": np.sort(self.sub.features),
            "wanted": wanted,
            "threshold": float(threshold),
            "count": len(wanted) or n_new,
        }

    def _record(self, objective, gap, absolute, reason):
        features, coef = self.sub.features, self.sub.coef
        kept = np.flatnonzero(coef if coef.ndim == 1 else coef.any(axis=1))
        kept = kept[np.argsort(features[kept])]
        scale = self.sub.scale
        updates = self.sub.updates
        self.solutions.append(
            Solution(
                strength=self.penalties[self._at].strength,
                features=features[kept],
                coef=coef[kept],
                intercept=self.sub.intercept,
                objective=objective * scale * scale,
                gap=gap,
                gap_absolute=absolute * scale * scale,
                rounds=self._rounds,
                updates=updates - self._seen_updates,
                reason=reason,
            )
        )
        self._seen_updates = updates

    # Checkpoints --------------------------------------------------------------------------------------

    def arrays(self):
        """Coefficients of W, for a fit of one penalty that is to go on later from there."""
        order = np.argsort(self.sub.features)
        return {"features": self.sub.features[order], "coef": self.sub.coef[order]}

    def restore(self, arrays):
        """Begin from the coefficients of `arrays`; before the first round."""
        features, coef = arrays.get("features"), arrays.get("coef")
        if features is None or coef is None or len(features) != len(coef):
            raise ModelFileError("the arrays of a sparse linear fit are its features and their coef")
        if len(features) and (features.min() < 0 or features.max() >= self.n_features):
            raise ModelFileError(f"the features of a checkpoint lie outside 0 ... {self.n_features - 1}")
        self._start = (features.astype(np.int64), coef.astype(np.float64)) if len(features) else None
        self._ask(self._threshold())
