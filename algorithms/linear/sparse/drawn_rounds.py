"""Lasso and elastic net by scheduled coordinate descent in one process: many rounds in one compiled call.

A round draws coefficients by priority, thins them by correlation, and steps along all of them from one
residual; all of this, and the new priorities, is one kernel (`stradask.kernels.linear.scheduled_rounds`).
After about as many visits as there are columns, all slopes are computed: from them come the duality gap of
the whole problem, and the priority of each coefficient, how far its own minimum would move the fit. No round
raises the objective: of the steps of a round the part is taken that is best for a bound (see the kernel).

Correlations are estimated from images of 64 numbers a column (`column_store.Images`), 256 bytes each, and
exact for 64 rows and fewer.

Any number of threads gives the same bits: rounds follow each other on one thread.

References
----------
Lee, Kim, Zheng, Ho, Gibson, Xing, "On model parallelization and scheduling strategies for distributed machine
learning", NIPS 2014.
"""

from typing import Any

import numpy as np

from ....errors import DataError
from ....kernels import scheduling
from ....kernels.linear import column_moments, scheduled_rounds
from ....scheduler.engine import run
from ....scheduler.parameters import seed_from
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.static import StaticSchedule
from .column_store import Images
from .columns import CONSTANT, columns_from, columns_of
from .duality import column_gap
from .fitting import DEFAULT_ROUNDS, LEAST_TOL
from .solution import Solution

_ENTRIES = 64  # of an image
_FEW = 1 << 21  # entries of columns that are copied at a time: 16 MB
_SHARE = 0.5  # of draws that do not look at priorities: columns that are small may matter later
_OVERSAMPLE = 4  # draws for each coefficient that is wanted


def solve_drawn(
    design, y, penalty, *, tol, max_iter, random_state, start=None, n_jobs=None, read=None, **options
):
    """Solve for one penalty on columns of this process; returns as `classes.solve`.

    A pass is as many rounds as it takes to visit every coefficient once. `options`: of `run`.
    """
    n_samples, n_features = design.X.shape
    allowed, X = np.arange(n_features), design.columns
    if design.l1_factors is not None and np.isinf(design.l1_factors).any():
        allowed = np.flatnonzero(np.isfinite(design.l1_factors))
        if not len(allowed):
            raise DataError(
                "penalty_factor is inf for every column, and schedule='dynamic' needs one to draw: take "
                "schedule='auto' for the model of the intercept alone"
            )
        X = X[:, allowed]
    coef = None
    if start is not None:
        coef = np.zeros(n_features)
        coef[start[0]] = start[1]
        coef = coef[allowed]
    # Weights of sum 1: then all figures are those of the estimators.
    program = DrawnRounds(
        X,
        y,
        penalty.thresholds(allowed) / n_samples,
        penalty.ridges(allowed) / n_samples,
        (np.ones(n_samples) if design.weights is None else design.weights) / n_samples,
        fit_intercept=design.fit_intercept,
        positive=design.positive,
        tol=max(tol, LEAST_TOL),
        coef=coef,
        random_state=random_state,
    )

    def solution(n_rounds, reason):
        features = np.flatnonzero(program.coef)
        relative = program.gap / program.scale if program.scale > 0 else 0.0
        model = penalty.strength, allowed[features], program.coef[features], program.intercept
        return Solution(*model, program.primal, relative, program.gap, n_rounds, n_rounds, reason)

    done = run(
        program,
        StaticSchedule(1),
        n_jobs=n_jobs,
        max_rounds=max_iter or DEFAULT_ROUNDS,
        snapshot=read and (lambda history: read(solution(len(history), ""), history)),
        **options,
    )
    if done.reason != "gap":
        program.measure_now()
    reason = {"finished": "max_rounds", "gap": "gap"}.get(done.reason, "stopped")
    return [solution(done.n_rounds, reason)], done


class DrawnRounds(Program):
    """The program: one shard and one block, a round of the engine is a pass of scheduled rounds.

    `X`: Fortran-ordered ndarray or CSC, checked. `l1`, `l2`: float64 (p,), in units of the weighted loss, l1
    above 0. `weights`: float64 (n,). `size`: coefficients a round. `rho`: columns of a round have absolute
    correlations below it, as far as the images say. `tol`: of the gap, relative to the objective at b = 0.
    """

    measure_every = 0
    unit = "coordinate"

    def __init__(
        self,
        X,
        y,
        l1,
        l2,
        weights,
        *,
        fit_intercept,
        positive,
        tol,
        coef=None,
        size=32,
        rho=0.3,
        random_state=None,
    ):
        p = X.shape[1]
        columns, free = columns_of(X), np.flatnonzero((l1 == 0) & (l2 == 0))
        if len(free):
            raise DataError(
                f"the dynamic schedule needs a penalty on every column, but column {free[0]} has none: its "
                "gap would never close; take schedule='auto'"
            )
        self.X, self.columns, self.weights, self.size, self.rho = X, columns, weights, min(size, p), rho
        self.l1, self.l2, self.positive, self.tol = l1, l2, positive, tol
        self.total, self.seed = float(weights.sum()), np.uint64(seed_from(random_state))
        self.measure_rounds = -(-p // self.size)
        sums, squares = np.empty(p), np.empty(p)
        if columns.is_sparse:
            column_moments.csc_moments(columns.data, columns.indices, columns.indptr, weights, sums, squares)
        else:
            column_moments.dense_moments(X.T, weights, sums, squares)
        wrong = np.flatnonzero(~np.isfinite(squares))
        if len(wrong):
            raise DataError(
                f"column {wrong[0]} of X is so large that sums of squares overflow: scale it, or take "
                "schedule='auto'"
            )
        self.means = sums / self.total if fit_intercept else np.zeros(p)
        curvature = squares - self.total * self.means**2
        self.curvature = np.where(curvature > CONSTANT * squares, curvature, 0.0)
        self.y_mean = float(weights @ y) / self.total if fit_intercept else 0.0
        self.y = y - self.y_mean
        self.scale = 0.5 * float(weights @ self.y**2)
        self.coef = np.zeros(p) if coef is None else np.where(self.curvature > 0, coef, 0.0)
        make = Images.of(weights, fit_intercept, _ENTRIES)
        step = max(1, _FEW // X.shape[0])
        every = [np.arange(first, min(first + step, p)) for first in range(0, p, step)]
        self.images = np.concatenate([make(columns_from([columns.take(ids)], len(y))) for ids in every])
        self.tree = np.zeros(2 * p)
        self.rounds, self.primal, self.gap = 0, np.inf, np.inf

    @property
    def intercept(self):
        """The intercept that belongs to the coefficients; 0 without one."""
        return self.y_mean - float(self.means @ self.coef)

    def update(self, state, task):
        """Measure; if the gap is too large, do the rounds of a pass. Returns the coordinates visited."""
        v = self.measure_now()
        if self.gap <= self.tol * self.scale:
            return 0
        args = self.coef, self.l1, self.l2, self.positive, self.images, self.rho, self.tree, self.seed
        tries, share = _OVERSAMPLE * self.size, _SHARE
        counts = self.rounds, self.measure_rounds, self.size, tries, share
        columns = self.columns
        parts: Any
        if columns.is_sparse:
            parts = columns.data, columns.indices, columns.indptr, self.means, self.curvature, v, self.weights
            visits = scheduled_rounds.csc_rounds(*parts, self.total, *args, *counts)
        else:
            parts = self.X.T, self.means, self.curvature, v, self.weights
            visits = scheduled_rounds.dense_rounds(*parts, *args, *counts)
        self.rounds += self.measure_rounds
        return int(visits)

    def measure_now(self):
        """Compute objective, gap and priorities (how far own minima would move the fit); return v."""
        b, residual = self.coef, self.y.copy()
        support = np.flatnonzero(b)
        residual -= self.X[:, support] @ b[support] - float(self.means @ b)
        v = self.weights * residual
        slopes = self.columns.dot(np.arange(len(b)), v[None])[0]
        slopes[self.curvature == 0] = 0.0
        y_r, r_r = float(v @ self.y), float(v @ residual)
        self.primal, self.gap = column_gap(b, slopes, self.l1, self.l2, self.positive, y_r, r_r, np.inf)
        z = slopes + self.curvature * b
        size = np.maximum((z if self.positive else np.abs(z)) - self.l1, 0.0)
        best = np.sign(z) * size / np.maximum(self.curvature + self.l2, np.finfo(float).tiny)
        self.tree[len(b) :] = np.abs(best - b) * np.sqrt(self.curvature)
        scheduling.build(self.tree)
        return v

    def aggregate(self, tasks, partials):
        """Publish the figures of before the pass."""
        done = "gap" if self.gap <= self.tol * self.scale else False
        relative = self.gap / self.scale if self.scale > 0 else 0.0
        return Outcome(objective=self.primal, updates=partials[0], done=done, gap=relative)
