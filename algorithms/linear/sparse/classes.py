"""Sparse logistic regression of two or more classes, by the solvers of `structured`.

A small dense problem of two classes takes `solving.small`, any other the general solver.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....scheduler.history import Run
from ....scheduler.loop import Monitor, Rounds, listeners
from ....scheduler.threads import single_threaded_blas
from ....scheduler.workers import open_workers
from ..structured.losses import Logistic, Multinomial
from ..structured.mean_loss import mean_loss, null_intercept
from ..structured.penalties import BlockPenalty
from ..structured.solving.blocks import single_columns
from ..structured.solving.columns import Columns, ScaledColumns
from ..structured.solving.problem import begin_lower, so_far
from ..structured.solving.small import MOST_ENTRIES, MOST_REMADE, SmallSolver
from ..structured.solving.solver import Solver
from .fitting import DEFAULT_ROUNDS, LEAST_TOL, SHORT
from .solution import Solution

_RANGE = 1e-60, 1e60  # of slopes of columns: beyond, these are scaled
_FAR = 1e7  # times the median of the slopes: rounding errors of such columns hide what others are short of
_CERTAIN = 1e-13  # a mean loss without columns that counts as zero: one class has all weight
_FREE_ROUNDS = 50  # in which coefficients without penalty alone are fitted
_MOST = 1e300  # of a ridge
_SMALL, _NOTHING = 1e-12, 1e-15  # l1 that may be lost in rounding, of norms of columns: it is taken for 0
# l1 of unpenalised coefficients at or above zero, whose inequalities no dual point meets exactly: a part of
# the tolerance, since the objective rises by as much, times norms of columns and coefficients.
_TRACE, _LEAST_TRACE = 1e-4, 1e-10


class ClassColumns:
    """The columns of a design, in units whose squares are numbers, and the loss of classes over its rows.

    `unit`: what coefficients are divided by. `numbers`: the class of each row. `offset`: None or
    (n_samples,), of several classes (n_samples, K).
    """

    unit, trace = 1.0, _LEAST_TRACE

    def __init__(self, design, numbers, n_classes, offset=None, n_jobs=None):
        several = n_classes > 2
        y = numbers[:, None] == np.arange(n_classes) if several else numbers
        loss = mean_loss(design, Multinomial() if several else Logistic(), y, offset)
        self.set_columns(design, loss, n_jobs)

    def set_loss(self, design, loss):
        """Keep the loss, and what it is of."""
        self.design, self.loss = design, loss
        self.blocks, self.scales = single_columns(design.n_features), np.ones(design.n_features)
        self._last_terms: tuple = (None, None, None)  # a penalty, columns, and what `terms` says of them

    def set_trace(self, trace):
        """Set the l1 of unpenalised coefficients at or above zero, in norms of columns."""
        if trace != self.trace:
            self.trace, self._last_terms = trace, (None, None, None)

    def set_columns(self, design, loss, n_jobs):
        """Keep the loss, and the columns of the design."""
        self.set_loss(design, loss)
        options = {"weights": self.loss.weights, "centre": design.fit_intercept}
        if design.cut is None:
            open_workers(design.engine, n_jobs)  # warns inside a Dask task
            self.columns: Any = Columns(design.columns, n_jobs=n_jobs, **options)
        else:
            from .cut_columns import columns_of_cut

            self.columns = columns_of_cut(design.cut, design.engine, n_jobs, **options)

    def general_solver(self):
        """The general solver at the model without columns, its loss and largest slope there."""
        solver = Solver(self.columns, self.loss, self.blocks, fit_intercept=self.design.fit_intercept)
        if self.design.fit_intercept and self.loss.n_outputs > 1 and self.loss.offset is not None:
            solver.fit_intercepts()
        nothing, slopes = self.loss.objective(solver.f), np.abs(solver.slopes()[0]).max(axis=1)
        median = float(np.median(slopes[slopes > 0])) if slopes.any() else 0.0
        is_extreme = (slopes > 0) & ((slopes < _RANGE[0]) | (slopes > min(_RANGE[1], _FAR * median)))
        if is_extreme.any() and not isinstance(self.columns, ScaledColumns):
            self.scales[is_extreme] = np.ldexp(1.0, np.clip(np.frexp(slopes[is_extreme])[1], -1000, 1000))
            self.columns = ScaledColumns(self.columns, self.scales)
            return self.general_solver()
        nothing = nothing if nothing > _CERTAIN else 1.0
        return solver, nothing, float(slopes.max(initial=0.0)) or 1.0

    def small_solver(self, penalties, is_watched):
        """The same of the solver of small problems; None where that is not for this one."""
        design, loss = self.design, self.loss
        if design.cut is not None or design.engine != "local" or type(design.X) is not np.ndarray:
            return None
        most = MOST_ENTRIES if loss.quadratic else MOST_REMADE
        if loss.n_outputs > 1 or design.X.dtype != np.float64 or design.X.size > most:
            return None
        if not (design.fit_intercept or loss.offset is None):
            return None
        if any(penalty.strength <= 0 or len(penalty.unpenalised(design.n_features)) for penalty in penalties):
            return None
        parts = self.columns, self.loss, self.blocks
        solver = SmallSolver(*parts, fit_intercept=self.design.fit_intercept, is_watched=is_watched)
        nothing, first = solver.null(self.terms(penalties[0]))
        return (solver, nothing, first) if nothing > _CERTAIN and _RANGE[0] < first < _RANGE[1] else None

    def terms(self, penalty, *, drops_small=True):
        """An `L1L2` in the units of the mean over the rows, and of the columns.

        `drops_small`: whether an l1 that would be lost in rounding is none.
        """
        if drops_small and self._last_terms[0] is penalty and self._last_terms[1] is self.columns:
            return self._last_terms[2]
        n, every = self.design.X.shape[0], self.blocks.order
        with np.errstate(invalid="ignore", over="ignore"):  # excluded columns, and those of tiny scale
            l1 = penalty.thresholds(every) / n / self.scales / self.unit
            ridge = np.minimum(penalty.ridges(every) / n / self.scales / self.scales, _MOST)
        ridge[~np.isfinite(l1)] = 0.0
        if drops_small and self.loss.quadratic and l1.min(initial=1.0) < _SMALL:
            sizes = np.sqrt(self.columns.squares(self.loss.weights))
            l1[(l1 <= _NOTHING * sizes) & (ridge == 0)] = 0.0
        free = (l1 == 0) & (ridge == 0)
        is_traced = self.design.positive and free.any() and not self.loss.quadratic
        if is_traced:
            l1[free] = self.trace * np.sqrt(self.columns.squares(self.loss.weights))[free]
        lam, l1 = (l1, 0.0 * every) if self.loss.n_outputs == 1 else (0.0 * every, l1)
        low, single = 0.0 if self.design.positive else -np.inf, self.loss.quadratic
        terms = BlockPenalty(self.blocks, lam, l1, ridge, low, np.inf, single=single)
        terms.traced = free if is_traced else None
        if drops_small:
            self._last_terms = penalty, self.columns, terms
        return terms

    def begin(self, solver, start):
        """Start from features and coefficients, with the intercept that is best for them."""
        features, values = start
        loss, K, B = self.loss, self.loss.n_outputs, np.zeros((self.design.n_features, self.loss.n_outputs))
        B[features] = np.reshape(values, (-1, K)) * self.scales[features, None]
        c = solver.intercept()
        if self.design.fit_intercept:
            f = self.columns.times(self.columns.raw(features), B[features])
            if K == 1:
                f = f if loss.offset is None else f + loss.offset
                c[0] = null_intercept(loss.gradient, loss.curvature, f, c[0])
            else:
                c = c - loss.weights @ f
        solver.begin(B, c)
        if self.design.fit_intercept and K > 1:
            solver.fit_intercepts()

    def solution(self, penalty, fit, nothing):
        """The solution in the units of the columns; of several classes, free coefficients sum to zero."""
        features = np.flatnonzero(fit.B.any(axis=1))
        coef = fit.B[features] / self.scales[features, None]
        intercept = fit.intercept
        if self.loss.n_outputs == 1:
            coef, intercept = coef[:, 0], float(intercept[0])
        else:
            free = self.terms(penalty).free[features]
            coef[free] -= coef[free].mean(axis=1, keepdims=True)
            intercept = intercept - intercept.mean()
        figures = fit.objective, fit.gap / nothing, fit.gap, fit.rounds, fit.rounds, fit.reason
        return Solution(penalty.strength, features, coef, intercept, *figures)

    def rounded(self, penalty, fit):
        """Round a solution to the type of X; find the gap that is its own.

        A pass over X finds the dual point of the rounded coefficients, with the intercept that is best for
        them. Returns `fit` itself for float64, and where it was ended before its time.
        """
        dtype, K = self.design.X.dtype, self.loss.n_outputs
        if dtype == np.float64 or fit.reason not in ("gap", *SHORT):
            return fit
        coef, intercept = (np.asarray(v).astype(dtype).astype(np.float64) for v in (fit.coef, fit.intercept))
        kept, terms = np.flatnonzero(coef.reshape(-1, K).any(axis=1)), self.terms(penalty)
        features, coef = fit.features[kept], coef[kept]
        model = {"features": features, "coef": coef, "intercept": intercept if K > 1 else float(intercept)}
        if terms.traced is not None:
            return replace(fit, **model)  # their slopes must not be positive, and are so by rounding
        with single_threaded_blas(), self.columns.opened():
            solver, nothing, _ = self.general_solver()
            self.begin(solver, (features, coef))
            gap = solver.gap(terms, *solver.slopes(), solver.objective(terms))
            f = solver.f - solver.intercept() + intercept
        gap += self.loss.value(f) - self.loss.value(solver.f)
        return replace(fit, **model, gap=float(gap / nothing), gap_absolute=float(gap))


def solve(problem, penalties, *, tol, max_iter, start=None, label, read=None, unit=1.0, **shown):
    """Solve a `ClassColumns` for a sequence of penalties: a list of `Solution`, and the `Run`.

    `max_iter`: most passes over X for a penalty. `start`: features (rising) and coefficients.
    ``read(solution, history)`` makes the model of ``info.snapshot()``. The history's objective is `unit`
    times the mean over the rows. `shown`: verbose and callback. A run that was ended has fewer solutions, the
    last of them being the model so far.
    """
    max_rounds, fits, start = max_iter or DEFAULT_ROUNDS, [], problem.design.allowed(start)
    tol = max(tol, LEAST_TOL)
    problem.set_trace(max(_TRACE * tol, _LEAST_TRACE))
    sent = [0]
    monitor: Monitor = Monitor(max_rounds * len(penalties), label=label, unit="pass", **shown)

    def figures(objective):
        sent.append(problem.columns.bytes_sent)
        return {"objective": unit * objective, "updates": 1, "bytes_sent": sent[-1] - sent[-2]}

    def snapshot(penalty, *figures):
        return read(problem.solution(penalty, so_far(solver, *figures), nothing), monitor.history)

    def reporter(penalty):
        return Rounds(monitor, figures, read and partial(snapshot, penalty), nothing)

    with single_threaded_blas(), problem.columns.opened(), monitor:
        is_watched = bool(shown.get("callback") is not None or shown.get("verbose") or listeners())
        small = problem.small_solver(penalties, is_watched)
        solver, nothing, first = small or problem.general_solver()
        terms = problem.terms(penalties[0])
        if start is not None:
            begin_lower(solver, terms, lambda: problem.begin(solver, start))
        elif terms.free.any() and not problem.loss.quadratic:  # a gap counts where their slopes are zero
            solver.null(terms)
        if problem.loss.quadratic and not small:
            problem.settle_free(solver, terms.free)
        for penalty in penalties:
            terms = problem.terms(penalty)
            options = {"tol": tol, "max_rounds": max_rounds, "report": reporter(penalty)}
            fit = solver.solve(terms, nothing, first, **options)
            if small and fit.reason in ("large", "stalled"):
                (solver, nothing, first), small, B = problem.general_solver(), None, fit.B
                problem.begin(solver, (np.flatnonzero(B.any(axis=1)), B[B.any(axis=1)]))
                terms = problem.terms(penalty)  # in units of columns that may be scaled now
                solver.is_hard = fit.reason == "stalled"
                fit = solver.solve(terms, nothing, first, **options | {"report": reporter(penalty)})
            if terms.traced is not None:
                sizes = np.abs(fit.B[terms.traced]).sum(axis=1)
                excess = float((terms.lam + terms.l1)[terms.traced] @ sizes)
                fit.gap += excess  # the minimum without traces is lower by about as much
                if fit.reason == "gap" and excess > tol * nothing:
                    fit.reason = "stalled"
            fits.append(problem.solution(penalty, fit, nothing))
            if fit.reason == "stopped":
                break
    return fits, Run(monitor.history, len(monitor.history), monitor.ended or fit.reason)


def largest_alpha(problem, l1_ratio):
    """Find the least alpha at which every penalised coefficient is zero; infinite for ``l1_ratio=0``."""
    if l1_ratio == 0:
        return np.inf
    with single_threaded_blas(), problem.columns.opened():
        solver, *_ = problem.general_solver()
        terms = problem.terms(problem.design.penalty(1.0, l1_ratio), drops_small=False)
        V = solver.null(terms)[1] if terms.free.any() else solver.slopes()[0]
        is_penalised = (terms.lam + terms.l1 > 0) & terms.allowed
        if (
            terms.allowed & ~is_penalised & ~terms.free
        ).any():  # coefficients at or above zero without a penalty
            lam = np.where(is_penalised, np.inf, terms.lam)
            alone = BlockPenalty(problem.blocks, lam, 0.0, 0.0, 0.0, np.inf, single=True)
            solver.solve(alone, 1.0, 1.0, tol=1e-13, max_rounds=_FREE_ROUNDS)
            V = solver.slopes()[0]
    pulls = (np.maximum(V, 0.0) if problem.design.positive else np.abs(V)).max(axis=1)
    return float((pulls[is_penalised] / (terms.lam + terms.l1)[is_penalised]).max(initial=0.0))
