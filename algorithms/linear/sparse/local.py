"""Sparse logistic regression of two classes on columns in this process, by the solver of `structured`."""

import numpy as np
from scipy import sparse

from ....scheduler.history import Run
from ....scheduler.loop import Monitor
from ....scheduler.threads import single_threaded_blas
from ..structured.mean_loss import null_intercept
from ..structured.penalties import BlockPenalty
from ..structured.solving.blocks import single_columns
from ..structured.solving.columns import Columns
from ..structured.solving.problem import so_far
from ..structured.solving.solver import Solver
from .fitting import DEFAULT_ROUNDS, LEAST_TOL
from .working_set import Solution

_NEARLY = 0.9  # part of the rows from which on sparse columns may be constants, or far from zero


def applies(design, penalty, loss):
    """Whether a problem is sparse and in this process, of two classes with weight and an l1 penalty."""
    X, y = design.X, loss.y[loss.weights > 0, 0]
    if design.cut is not None or design.engine != "local" or not sparse.issparse(X) or y.min() == y.max():
        return False
    if penalty.strength == 0 or (design.positive and len(penalty.unpenalised(design.n_features))):
        return False
    return not design.fit_intercept or int(np.diff(X.indptr).max(initial=0)) < _NEARLY * X.shape[0]


def solve_local(
    design, loss, penalty, *, tol, max_iter, start=None, label, read=None, unit=1.0, n_jobs=None, **shown
):
    """Solve for a penalty: a `Solution`, and the `Run`. Arguments are those of `fitting.solve`.

    `loss`: `mean_loss.MeanLoss` over the rows of the design. `shown`: verbose and callback.
    """
    (n, p), centre = design.X.shape, design.fit_intercept
    blocks, every, max_rounds = single_columns(p), np.arange(p), max_iter or DEFAULT_ROUNDS
    with np.errstate(invalid="ignore"):  # excluded columns
        ridge = penalty.ridges(every) / n
    low = 0.0 if design.positive else -np.inf
    terms = BlockPenalty(blocks, penalty.thresholds(every) / n, 0.0, np.nan_to_num(ridge), low, np.inf)
    monitor: Monitor = Monitor(max_rounds, label=label, unit="pass", **shown)
    with single_threaded_blas(), monitor:
        solver = Solver(Columns(design.X, loss.weights, centre=centre), loss, blocks, fit_intercept=centre)
        nothing, first = loss.objective(solver.f), np.abs(solver.slopes()[0]).max(initial=0.0)
        if start is not None:
            B = np.zeros((p, 1))
            B[start[0], 0] = start[1]
            solver.begin(B, solver.c)
            if centre:  # that is best for the coefficients
                f = solver.f - solver.c
                solver.c = np.array([null_intercept(loss.gradient, loss.curvature, f, solver.c[0])])
                solver.f = f + solver.c

        def solution(fit):
            features = np.flatnonzero(fit.B[:, 0])
            model = penalty.strength, features, fit.B[features, 0], float(fit.intercept[0])
            return Solution(
                *model, fit.objective, fit.gap / nothing, fit.gap, fit.rounds, fit.rounds, fit.reason
            )

        def report(round_, objective, gap):
            def snapshot():
                return read(solution(so_far(solver, objective, gap, round_)), monitor.history)

            figures = {"objective": unit * objective, "updates": 1}
            return bool(monitor.record(figures, gap=gap / nothing, snapshot=read and snapshot))

        options = {"tol": max(tol, LEAST_TOL), "max_rounds": max_rounds, "report": report}
        fit = solver.solve(terms, nothing, first or 1.0, **options)
    return solution(fit), Run(monitor.history, len(monitor.history), monitor.ended or fit.reason)
