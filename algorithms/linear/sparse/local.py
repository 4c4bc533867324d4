"""Lasso, elastic net and sparse logistic regression of columns in this process: solvers of `structured`.

A small dense problem takes `solving.small`, one of two classes and sparse columns the general solver.
"""

import numpy as np

from ....scheduler.history import Run
from ....scheduler.loop import Monitor, listeners
from ....scheduler.threads import single_threaded_blas
from ..structured.mean_loss import null_intercept
from ..structured.penalties import BlockPenalty
from ..structured.solving.blocks import single_columns
from ..structured.solving.columns import Columns
from ..structured.solving.problem import so_far
from ..structured.solving.small import MOST_ENTRIES, SmallSolver
from ..structured.solving.solver import Solver
from .fitting import DEFAULT_ROUNDS, LEAST_TOL
from .working_set import Solution

_RANGE = 1e-200, 1e200  # of the loss without columns: beyond, squares under- or overflow


def is_small(design, penalties, offset=None):
    """Whether a design is dense, in float64 and in this process, and each of its columns penalised."""
    X, n_features = design.X, design.n_features
    if design.cut is not None or design.engine != "local" or type(X) is not np.ndarray:
        return False
    if X.dtype != np.float64 or X.size > MOST_ENTRIES or not (design.fit_intercept or offset is None):
        return False
    return all(penalty.strength > 0 and not len(penalty.unpenalised(n_features)) for penalty in penalties)


def solve_local(
    design, loss, penalties, *, tol, max_iter, start=None, label, read=None, unit=1.0, n_jobs=None, **shown
):
    """Solve for a sequence of penalties; arguments and answers are those of `fitting.solve`.

    Where the working set of a dense problem grows too large, or rounding stands in the way, the answer is
    None, and features and coefficients to begin with elsewhere. `loss`: `mean_loss.MeanLoss` over the rows of
    the design. `shown`: verbose and callback.
    """
    (n, p), centre, small = design.X.shape, design.fit_intercept, isinstance(design.X, np.ndarray)
    blocks, every, max_rounds, fits = single_columns(p), np.arange(p), max_iter or DEFAULT_ROUNDS, []
    low = 0.0 if design.positive else -np.inf
    monitor: Monitor = Monitor(max_rounds * len(penalties), label=label, unit="pass", **shown)

    def terms(penalty):
        with np.errstate(invalid="ignore"):  # excluded columns
            ridge = penalty.ridges(every) / n
        ridge[~np.isfinite(ridge)] = 0.0
        return BlockPenalty(blocks, penalty.thresholds(every) / n, 0.0, ridge, low, np.inf)

    with single_threaded_blas():
        following = terms(penalties[0])
        columns = Columns(design.X, loss.weights, centre=centre)
        if small:
            watched = bool(shown.get("callback") is not None or shown.get("verbose") or listeners())
            solver: Solver | SmallSolver = SmallSolver(
                columns, loss, blocks, fit_intercept=centre, is_watched=watched
            )
            nothing, first = solver.null(following)
            if not _RANGE[0] < nothing < _RANGE[1]:
                return None, start
        else:
            solver = Solver(columns, loss, blocks, fit_intercept=centre)
            nothing, first = loss.objective(solver.f), np.abs(solver.slopes()[0]).max(initial=0.0) or 1.0
        if start is not None:
            B = np.zeros((p, 1))
            B[start[0], 0] = start[1]
            f, c = design.X[:, start[0]] @ B[start[0]], solver.intercept()
            if centre:  # that is best for the coefficients
                f = f if loss.offset is None else f + loss.offset
                c[0] = null_intercept(loss.gradient, loss.curvature, f, c[0])
            solver.begin(B, c)
        elif not small and terms(penalties[0]).free.any():  # a gap counts where their slopes are zero
            solver.null(terms(penalties[0]))

    def solution(penalty, fit):
        features = np.flatnonzero(fit.B[:, 0])
        model = penalty.strength, features, fit.B[features, 0], float(fit.intercept[0])
        return Solution(*model, fit.objective, fit.gap / nothing, fit.gap, fit.rounds, fit.rounds, fit.reason)

    def reporter(penalty):
        def report(round_, objective, gap):
            def snapshot():
                return read(solution(penalty, so_far(solver, objective, gap, round_)), monitor.history)

            figures = {"objective": unit * objective, "updates": 1}
            return bool(monitor.record(figures, gap=gap / nothing, snapshot=read and snapshot))

        return report

    with single_threaded_blas(), monitor:
        for k, penalty in enumerate(penalties):
            options = {"tol": max(tol, LEAST_TOL), "max_rounds": max_rounds, "report": reporter(penalty)}
            fit = solver.solve(terms(penalty) if k else following, nothing, first, **options)
            fits.append(solution(penalty, fit))
            if fit.reason in ("large", "stalled"):
                return None, (fits[-1].features, fits[-1].coef)
            if fit.reason == "stopped":
                break
    return fits, Run(monitor.history, len(monitor.history), monitor.ended or fit.reason)
