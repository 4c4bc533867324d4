"""The fit that the linear models with a smooth loss share: from checked input to a minimum."""

import copy
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ....scheduler.threads import single_threaded_blas
from ..._base import Estimator
from ...inputs.dask_arrays import is_dask
from ...optimize.watch import Watch
from ..sparse.fitting import check_goes_on, check_shapes
from ..vocabulary import FIT_DOCS
from .objective import LAST_PLACES
from .row_places import check_rows_and_targets, columns_in_use, opened_rows, opened_with_targets
from .separation import separated

SMOOTH_DOCS = {
    "seeds": """
    Seeds and threads: the result is *bitwise* the same for any `n_jobs`, and on a cluster for any workers,
    also if some are lost in the midst of the fit. On a cluster sums are grouped otherwise than here:
    objectives agree to rounding.""",
    "X": """
    X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        float32 and float64 are kept. Best in C order or CSR: then nothing is copied. Or a Dask array or
        DataFrame; then the vectors below may be Dask's, too, and stay with the rows.
        Or names of Parquet files, or a `stradask.datasets.ParquetTable`: `y` and `sample_weight` are then
        names of columns.""",
    "callback": """
    callback : callable, optional
        ``callback(info)`` after every step; `info` has round, total, objective, seconds, history, and
        ``info.snapshot()``, the model so far as a fitted estimator. Returning True ends the fit.""",
    "names": """
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.""",
    "standardize": FIT_DOCS["standardize"],
    "places": """
    engine : str or distributed.Client, default="local"
        Where the rows are read. ``"local"``: threads of this process; ``"dask"``: the current Dask client; a
        client; or the address of a Dask scheduler. On a cluster an array is cut into portions that are sent
        once, and the blocks of a Dask array or DataFrame are not moved; a Dask `X` goes to the current
        client, if there is one. This process holds the parameters, and vectors that are not Dask's.
    n_jobs : int or None, default=None
        Threads, on a cluster of each worker. None is 1, on a cluster as many as a worker has; -1 all
        cores.""",
    "verbose": """
    verbose : int, default=0
        1 shows a progress bar: the steps done, of `max_iter` at most (most fits end long before), and the
        objective.""",
    "units": """
    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.""",
}
# What a solver's name runs, here and in scikit-learn; the names of methods that are not here run "auto".
_RUNS = {
    "newton-cholesky": "newton",
    "cholesky": "newton",
    "newton-cg": "newton-cg",
    "sparse_cg": "newton-cg",
    "lbfgs": "lbfgs",
    "sketch": "sketch",
    "proximal-newton": "proximal-newton",
    "working-set": "working-set",
}
_ELSEWHERE = {"liblinear", "sag", "saga", "svd", "lsqr"}
SOLVERS = {"auto", "newton", "newton-cg", "sketch", "lbfgs", "sandblaster"}
_EXACT, _ROUNDING = 1e-25, 1e-13  # of the objective at the start and of its constant: a perfect fit


class SmoothModel(Estimator):
    """A linear model with a smooth loss and a squared penalty: Ridge, Poisson and logistic regression.

    A subclass checks y (`_target`; where y is on a cluster `_remote_checks` and `_remote_target`) and has
    ``_scales(target, k)``: what the mean of the loss is multiplied by in its objective, and the squared
    penalty of that mean.
    """

    _keeps_order: Any = False  # whether `_solve` takes dense rows in Fortran order
    intercept_: Any

    def _fit_rows(self, X, y, sample_weight, offset, callback, stays_up_to=np.inf, exposure=None):
        """Minimise over the rows on their machines, and take the model; None where `_takes` refuses.

        With an offset or exposures Dask targets come to this process.
        """
        name = type(self).__name__
        stays_up_to = stays_up_to if offset is None and exposure is None else 0
        options = {"stays_up_to": stays_up_to, "keeps_order": self._keeps_order and self.engine == "local"}
        rows, y, sample_weight, engine = check_rows_and_targets(self, X, y, sample_weight, **options)
        if is_dask(y):
            opened = self._opened_with_targets(rows, self._remote_checks(name), y, sample_weight, engine)
            with opened as (answers, made):
                target = self._remote_target(answers, rows.shape[0])
                if not self._takes(target, X, rows.shape):
                    return None
                _, layout = columns_in_use(rows, target.loss.n_outputs, self.fit_intercept)
                return self._solve([made(target.coding)], rows.dtype, target, layout, callback)
        target = self._target(name, y, sample_weight, rows.shape[0]).moved_by(offset, exposure)
        if not self._takes(target, X, rows.shape):
            return None
        rows, layout = columns_in_use(rows, target.loss.n_outputs, self.fit_intercept)
        with self._opened_rows(rows, target, engine) as data:
            return self._solve(data, rows.dtype, target, layout, callback)

    def _takes(self, target, X, shape):
        """Whether y, now that it is known, has to be fitted over rows."""
        return True

    def _opened_rows(self, rows, target, engine):
        return opened_rows(self, rows, target.vectors, target.weights, engine, target.offset)

    def _opened_with_targets(self, rows, checks, y, sample_weight, engine):
        return opened_with_targets(self, rows, checks, y, sample_weight, engine)

    def _solve(self, data, dtype, target, layout, callback):
        """Solve for one target after the other, from the coefficients of the last fit or from none."""
        models, n_iter = self._starts(target, layout), list[int]()
        minimiser, scales = self._minimiser(target), self._column_scales(data[0])
        for k, rows in enumerate(data):
            unit, l2 = self._scales(target, k)
            options = {"l2": l2, "constant": target.constant, "fit_intercept": self.fit_intercept}
            options["scales"] = scales
            objective = target.loss.objective(rows, n_jobs=self.n_jobs, **options)

            def read(x, history, k=k):
                so_far = [*models[:k], layout.read(x), *models[k + 1 :]]
                return copy.copy(self)._read(so_far, [*n_iter, len(history)], dtype, target, history)

            start = layout.vector(*models[k])
            watching = {"unit": unit, "callback": callback, "snapshot": read}
            result, self.solver_, watch = run(self, minimiser, objective, start, **watching)
            models[k] = layout.read(result.x)
            n_iter.append(len(watch.history))
            if watch.ended:
                break
        return self._read(models, n_iter, dtype, target, watch.history)

    def _column_scales(self, rows):
        """What the penalty measures the coefficients of the columns in."""
        return rows.column_scales(self.fit_intercept) if self.standardize else 1.0

    def _minimiser(self, target):
        return target.loss.minimiser(self._method)

    @property
    def _method(self):
        """The solver in the words of `glm.choose`."""
        name = _RUNS.get(self.solver, self.solver)
        return "auto" if name in _ELSEWHERE | {"proximal-newton", "working-set"} else name

    def _warn_of_method(self):
        """Say what ran where `solver` names another method."""
        if self.solver in _ELSEWHERE or _RUNS.get(self.solver, self.solver_) != self.solver_:
            same = "has the same minimum"
            if self.solver == "liblinear" and self.fit_intercept:
                same = "does not penalise the intercept"
            warnings.warn(
                f"solver={self.solver!r}: {type(self).__name__} took {self.solver_!r}, which {same}",
                stacklevel=3,
            )

    def _starts(self, target, layout):
        """Coefficients (n_features, n_outputs) and intercepts (n_outputs,) to begin with, for each target."""
        if not (self.warm_start and "coef_" in vars(self)):
            return [(np.zeros((layout.n_features, layout.n_outputs)), start) for start in target.starts]
        check_goes_on(self.coef_, len(target.starts), layout.n_features)
        coef = np.atleast_2d(self.coef_)
        intercepts = np.zeros(len(coef)) + self.intercept_
        return [(coef[k][:, None], intercepts[k : k + 1]) for k in range(len(coef))]

    def _read(self, models, n_iter, dtype, target, history):
        """Take the model of a regression from its coefficients and intercepts."""
        coef = np.array([coef[:, 0] for coef, _ in models])
        intercept = np.array([intercept[0] for _, intercept in models])
        self.coef_ = (coef[0] if len(coef) == 1 else coef).astype(dtype)  # as scikit-learn for y of (n, 1)
        self.intercept_ = 0.0
        if self.fit_intercept:
            self.intercept_ = float(intercept[0]) if target.single else intercept.astype(dtype)
        self.n_iter_ = n_iter[0] if target.single else n_iter
        self.history_ = history.as_dict()
        return self

    def _check_state(self):
        super()._check_state()
        check_shapes(self)


def run(estimator, minimise, objective, x0, *, unit, callback, snapshot):
    """Minimise under a `Watch`, with one thread a product, and warn of a fit that fell short.

    ``minimise(objective, x0, max_iter=, tol=, callback=)`` returns a result and a name. Begins at zero where
    the objective is lower than at `x0`: a model of other rows may be far off. Returns result, name, watch.
    """
    label = type(estimator).__name__
    tol = max(estimator.tol, LAST_PLACES * float(np.finfo(objective.rows.dtype).eps))
    watch = Watch(
        estimator.max_iter,
        label=label,
        verbose=estimator.verbose,
        callback=callback,
        snapshot=snapshot,
        unit=unit,
        traffic=objective.bytes_sent,
    )
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"), watch:
        if x0[: objective.n_penalised].any():
            values = [objective.value_and_gradient(x)[0] for x in (x0, np.zeros_like(x0))]
            x0 = x0 if values[0] <= values[1] else np.zeros_like(x0)
        result, name = minimise(objective, x0, max_iter=estimator.max_iter, tol=tol, callback=watch)
        unknown = name == "proximal-newton" or watch.ended or result.nit >= estimator.max_iter
        apart = not unknown and separated(objective, result.x, x0)
        short = not (apart or result.success or watch.ended)
        if short:  # unless nothing is left but rounding
            first, _ = objective.value_and_gradient(x0)
            short = not result.fun <= _EXACT * first + _ROUNDING * abs(objective.constant)
    if apart:
        warnings.warn(
            f"{label}: without a penalty there are no best coefficients, because a combination of columns "
            "separates the rows and the loss falls along it without end; give a penalty",
            ConvergenceWarning,
            stacklevel=5,
        )
    if short:
        single = "pass X in float64, " if objective.rows.dtype == np.float32 else ""
        warnings.warn(
            f"{label} stopped short of tol={estimator.tol:g} after {result.nit} steps: {result.message}; "
            f"{single}raise max_iter, or be content with a larger tol, or scale the columns",
            ConvergenceWarning,
            stacklevel=5,
        )
    return result, name, watch
