"""Lasso, elastic net and sparse logistic regression of small dense problems, in one call for each penalty."""

import numpy as np

from ....scheduler.history import Run
from ....scheduler.loop import Monitor, listeners
from ....scheduler.threads import single_threaded_blas
from ..structured.mean_loss import null_intercept
from ..structured.penalties import BlockPenalty
from ..structured.solving.blocks import single_columns
from ..structured.solving.columns import Columns
from ..structured.solving.small import MOST_ENTRIES, SmallSolver
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


def solve_small(
    design, loss, penalties, *, tol, max_iter, start=None, label, read=None, unit=1.0, n_jobs=None, **shown
):
    """Solve for a sequence of penalties; arguments and answers are those of `fitting.solve`.

    Where a working set grows too large, or rounding stands in the way, the answer is None, and features and
    coefficients to begin with elsewhere. `loss`: `mean_loss.MeanLoss` over the rows of the design. `shown`:
    verbose and callback.
    """
    n, p = design.X.shape
    blocks, every = single_columns(p), np.arange(p)
    watched = bool(shown.get("callback") is not None or shown.get("verbose") or listeners())
    columns = Columns(design.X, loss.weights, centre=design.fit_intercept)
    solver = SmallSolver(columns, loss, blocks, fit_intercept=design.fit_intercept, is_watched=watched)
    low, max_rounds, fits = np.full(p, 0.0 if design.positive else -np.inf), max_iter or DEFAULT_ROUNDS, []
    monitor: Monitor = Monitor(max_rounds * len(penalties), label=label, unit="pass", **shown)

    def blocked(penalty):
        with np.errstate(invalid="ignore"):  # excluded columns
            ridge = penalty.ridges(every)
        ridge = np.where(np.isfinite(ridge), ridge, 0.0) / n
        return BlockPenalty(
            blocks, penalty.thresholds(every) / n, np.zeros(p), ridge, low, np.full(p, np.inf)
        )

    with single_threaded_blas():
        scale = solver.null(blocked(penalties[0]))
    if not _RANGE[0] < scale[0] < _RANGE[1]:
        return None, start
    if start is not None:
        B = np.zeros((p, 1))
        B[start[0], 0] = start[1]
        f, c = design.X[:, start[0]] @ B[start[0]], solver.intercept()
        if design.fit_intercept:  # that is best for the coefficients
            f = f if loss.offset is None else f + loss.offset
            c[0] = null_intercept(loss.gradient, loss.curvature, f, c[0])
        solver.begin(B, c)

    def solution(penalty, fit, reason):
        features = np.flatnonzero(fit.B[:, 0])
        model = penalty.strength, features, fit.B[features, 0], float(fit.intercept[0])
        return Solution(*model, fit.objective, fit.gap / scale[0], fit.gap, fit.rounds, fit.rounds, reason)

    def reporter(penalty):
        def report(round_, objective, gap):
            def snapshot():
                fit = solver.fit(objective, gap, round_)
                return read(solution(penalty, fit, "running"), monitor.history)

            figures = {"objective": unit * objective, "updates": 1}
            return bool(monitor.record(figures, gap=gap / scale[0], snapshot=read and snapshot))

        return report

    with single_threaded_blas(), monitor:
        for penalty in penalties:
            options = {"tol": max(tol, LEAST_TOL), "max_rounds": max_rounds, "report": reporter(penalty)}
            fit = solver.solve(blocked(penalty), *scale, **options)
            if fit.reason in ("large", "stalled"):
                features = np.flatnonzero(fit.B[:, 0])
                return None, (features, fit.B[features, 0])
            fits.append(solution(penalty, fit, fit.reason))
            if fit.reason == "stopped":
                break
    return fits, Run(monitor.history, len(monitor.history), monitor.ended or "gap")
