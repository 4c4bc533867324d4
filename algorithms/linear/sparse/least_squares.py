"""Lasso and elastic net: least squares of one target for falling penalties, by the cheapest way.

Small and tall problems go through second moments (`moments`), columns through the solvers of `structured`,
and rows on workers through the products of columns (`rows`). Rows have weights of mean 1 here.
"""

import functools
import time
from dataclasses import replace

import numpy as np

from ....scheduler.history import History, Run
from ....scheduler.loop import report_rounds
from ....scheduler.threads import single_threaded_blas
from ..structured.losses import Squared
from ..structured.mean_loss import mean_loss
from . import classes
from .classes import ClassColumns
from .duality import column_gap
from .fitting import SHORT
from .moments import problem_of

_DEPENDENT = 1e-10  # singular values of free columns, below this part of the largest, are rounding


def solve_squared(design, y, alphas, l1_ratio, *, problem=None, tol, start=None, **options):
    """Solve least squares for falling penalties, rounded to the type of X; returns as `classes.solve`.

    `problem`: the `MomentProblem`, if there is one already; there is one round then. `options` are those of
    `classes.solve`.
    """
    began = time.perf_counter()
    problem = problem or problem_of(design, y, len(alphas))
    fits = problem and problem.solutions(alphas, l1_ratio, tol, design.X.dtype, _dense(design, start))
    if fits:
        return fits, _one_round(fits, began, **options)
    penalties = [design.penalty(alpha, l1_ratio) for alpha in alphas]
    columns = least_squares_of(design, y, options.pop("n_jobs", None))
    fits, done = columns.solve(penalties, tol=tol, start=start, **options)
    return [columns.rounded(*pair) for pair in zip(penalties, fits, strict=False)], done


def least_squares_of(design, y, n_jobs=None):
    """The problems of a design and a target, wherever the rows are."""
    if design.cut is None or not design.cut.by_rows:
        return LeastSquares(design, y, n_jobs)
    from .rows import RowLeastSquares

    return RowLeastSquares(design, y, n_jobs)


def largest_alpha(design, y, l1_ratio):
    """Find the least alpha at which every penalised coefficient is zero; infinite for ``l1_ratio=0``."""
    return classes.largest_alpha(least_squares_of(design, y), l1_ratio)


def _dense(design, start):
    """All coefficients to begin with, from features and values."""
    if start is None:
        return None
    coef = np.zeros(design.n_features)
    coef[start[0]] = start[1]
    return coef


def _one_round(fits, began, *, read=None, label="", verbose=0, callback=None, **_):
    """Report the fits as a round that is over; `began`: when. Returns its `Run`."""
    history = History()
    figures = {"objective": fits[-1].objective, "updates": sum(fit.updates for fit in fits)}
    figures["seconds"] = time.perf_counter() - began
    snapshot = read and functools.partial(read, fits[-1], history)
    rounds = [{"figures": figures, "gap": fits[-1].gap, "snapshot": snapshot}]
    ended = report_rounds(history, rounds, label=label, verbose=verbose, callback=callback)
    return Run(history, 1, "callback" if ended else "gap")


class LeastSquares(ClassColumns):
    """The problems of a design and a target; see `ClassColumns`.

    The target is ``mean + unit y'``, and the loss that of y', of mean 0 and a largest value in [1/2, 1): gaps
    keep their digits, and squares do not overflow.
    """

    def __init__(self, design, y, n_jobs=None):
        weights = np.ones(len(y)) if design.weights is None else design.weights
        used = weights > 0
        self.mean, self.unit = 0.0, _power(y[used])
        if design.fit_intercept and self.unit:
            inside = y[used] / self.unit
            mean = float(inside[0] + np.average(inside - inside[0], weights=weights[used]))
            self.mean, self.unit = mean * self.unit, _power(inside - mean) * self.unit
        rest = y / self.unit - self.mean / self.unit if self.unit else np.zeros(len(y))
        self.unit = self.unit or 1.0
        self.set_columns(design, mean_loss(design, Squared(), rest), n_jobs)

    def solution(self, penalty, fit, nothing):
        """The solution in the units of the target."""
        fit, square = super().solution(penalty, fit, nothing), self.unit * self.unit
        return replace(
            fit,
            coef=fit.coef * self.unit,
            intercept=float(self.mean + fit.intercept * self.unit) if self.design.fit_intercept else 0.0,
            objective=fit.objective * square,
            gap_absolute=fit.gap_absolute * square,
        )

    def solve(self, penalties, *, start=None, **options):
        """Solve for falling penalties; returns as `classes.solve`, not rounded."""
        if start is not None:
            start = start[0], start[1] / self.unit
        return classes.solve(self, penalties, start=start, unit=self.unit * self.unit, **options)

    def rounded(self, penalty, fit):
        """Round the coefficients of a fit to the type of X; find the intercept and the gap that are theirs.

        Returns `fit` itself for float64, and where it was ended before its time.
        """
        dtype = self.design.X.dtype
        if dtype == np.float64 or fit.reason not in ("gap", *SHORT):
            return fit
        coef, terms = fit.coef.astype(dtype).astype(np.float64), self.terms(penalty)
        with single_threaded_blas(), self.columns.opened():
            solver, nothing, _ = self.general_solver()
            self.begin(solver, (fit.features, coef / self.unit))
            objective, intercept = solver.objective(terms), float(solver.intercept()[0])
            V, y_r, r_r = self.dual_at(solver, terms.free)
        square = self.unit * self.unit
        l1, l2 = np.where(terms.allowed, terms.lam, 0.0), terms.table[2]
        objective_of_gap, gap = column_gap(
            solver.B[:, 0], V[:, 0], l1, l2, self.design.positive, y_r, r_r, np.inf
        )
        if self.design.positive and len(penalty.unpenalised(self.design.n_features)):
            gap = fit.gap_absolute / square  # their slopes must not be positive, and are so by rounding
        else:
            gap += objective - objective_of_gap
        kept = np.flatnonzero(coef)
        model = {"features": fit.features[kept], "coef": coef[kept], "intercept": 0.0}
        if self.design.fit_intercept:
            model["intercept"] = float(self.mean + intercept * self.unit)
        return replace(fit, **model, gap=float(gap / nothing), gap_absolute=float(gap) * square)

    def dual_at(self, solver, free):
        """Minus the slopes where free columns are at their best, and products of the residual."""
        self.settle_free(solver, free)
        (V, u), rest = solver.slopes(), self.loss.y - solver.f
        return V, *(-float(np.sum(values * u)) for values in (self.loss.y, rest))

    def settle_free(self, solver, free):
        """Bring free columns, of a squared loss, to their best, so that the slopes make a dual point."""
        if not free.any():
            return
        solver.grow(np.flatnonzero(free))
        free_columns = solver.part[:, free[solver.places]]
        free_columns = free_columns if isinstance(free_columns, np.ndarray) else free_columns.toarray()
        roots, rest = np.sqrt(solver.loss.weights)[:, None], solver.loss.y - solver.f
        sizes = np.linalg.norm(roots * free_columns, axis=0)
        means = solver.loss.weights @ free_columns if solver.fit_intercept else np.zeros(len(sizes))
        free_columns = free_columns - means
        norms = np.linalg.norm(roots * free_columns, axis=0)
        is_constant = norms <= _DEPENDENT * sizes
        inverse = np.divide(1.0, norms, out=np.zeros(len(norms)), where=~is_constant)
        weighted = roots * free_columns * inverse
        change = np.linalg.lstsq(weighted, roots * rest, rcond=_DEPENDENT)[0] * inverse[:, None]
        solver.f, solver.c = solver.f + free_columns @ change, solver.c - means @ change
        solver.B[solver.places[free[solver.places]]] += change


def _power(values):
    """The power of two above the largest absolute value; 0 if all are 0."""
    most = np.abs(values).max(initial=0.0)
    return float(np.ldexp(1.0, np.clip(np.frexp(most)[1], -1000, 1000))) if most else 0.0
