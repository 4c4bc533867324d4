"""What the linear models with a smooth objective share: from checked input to a minimum."""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ....kernels.linear.glm_sparse import csr_counts
from ....scheduler.threads import single_threaded_blas
from ...inputs.dask_arrays import is_dask, lazily
from ...inputs.matrices import check_rows
from ...optimize.watch import Watch
from .objective import LAST_PLACES
from .separation import separated

SOLVERS = {"auto", "newton", "sandblaster"}
_EXACT, _ROUNDING = 1e-25, 1e-13  # of the objective at the start and of its constant: a perfect fit
_SPARSE, _USED = 8, 0.7  # entries a column, and share of columns in use, below which empty ones are left out


@dataclass(frozen=True)
class Layout:
    """How the coefficients of all columns and the intercepts stand in the minimisers' vector.

    Columns of a sparse matrix that hold nothing are left out of it: their coefficients are 0. The vector is
    an array (columns, n_outputs), row by row, the intercepts at its end.

    `used`: ndarray of int or None; the columns that are not empty; None for all.
    """

    n_features: int
    used: np.ndarray | None
    n_outputs: int
    fit_intercept: bool

    def vector(self, coef, intercept):
        """Put coefficients (n_features, n_outputs) and intercepts (n_outputs,) into one vector."""
        W = np.asarray(coef, np.float64) if self.used is None else coef[self.used].astype(np.float64)
        return np.vstack([W, intercept] if self.fit_intercept else [W]).ravel()

    def read(self, x):
        """Return the coefficients (n_features, n_outputs) and intercepts (n_outputs,) of a vector."""
        W = x.reshape(-1, self.n_outputs)
        intercept = W[-1] if self.fit_intercept else np.zeros(self.n_outputs)
        W = W[:-1] if self.fit_intercept else W
        if self.used is not None:
            coef = np.zeros((self.n_features, self.n_outputs))
            coef[self.used] = W
            W = coef
        return W, intercept


def lay_out(X, n_outputs, fit_intercept):
    """Leave out empty columns, where there are so many that it pays.

    `X`: ndarray or csr_array. Returns `X`: of the same kind; the columns that count; it shares what it can.

    Examples
    --------
    >>> from scipy import sparse
    >>> from stradask.algorithms.linear.glm.smooth import lay_out
    >>> X, layout = lay_out(sparse.csr_array([[0.0, 0.0, 5.0, 0.0]]), 1, False)
    >>> X.toarray(), layout.used
    (array([[5.]]), array([2]))
    """
    n_features = X.shape[1]
    used = None
    if not isinstance(X, np.ndarray) and X.nnz < _SPARSE * n_features:
        counts = np.zeros(n_features, np.int64)
        csr_counts(X.indices, X.indptr, counts)
        seen = counts > 0
        if np.count_nonzero(seen) < _USED * n_features:
            used = np.flatnonzero(seen)
            place = np.cumsum(seen, dtype=X.indices.dtype) - 1
            shape = X.shape[0], max(1, len(used))
            X = sparse.csr_array((X.data, place[X.indices], X.indptr), shape=shape)
            used = used if len(used) else np.zeros(1, np.int64)
    return X, Layout(n_features, used, n_outputs, fit_intercept)


def linear_predictor(estimator, method, X):
    """Compute ``X @ coef_.T + intercept_`` of a fitted regressor.

    `method`: the estimator's own, which asks: for a Dask array it is applied to the blocks. `X`: ndarray,
    sparse matrix, DataFrame or Dask array (n_samples, n_features).
    """
    check_is_fitted(estimator)
    if is_dask(X):
        n_outputs = None if estimator.coef_.ndim == 1 else len(estimator.coef_)
        return lazily(method, X, n_outputs, estimator.coef_.dtype)
    return check_rows(estimator, X) @ estimator.coef_.T + estimator.intercept_


def run(estimator, minimise, objective, x0, *, unit, callback, snapshot):
    """Minimise under a `Watch`, with one thread a product, and warn of a fit that fell short.

    `estimator`: with the parameters `max_iter`, `tol` (raised to what the type of the data allows) and
    `verbose`. `minimise`: ``minimise(objective, x0, max_iter=, tol=, callback=)`` returns a result and a
    name. `x0`: float64 ndarray; if the objective is not finite there, zero is taken. `callback`: callable or
    None; the user's. Returns `result`: OptimizeResult. `watch`: Watch; with history, and whether it was
    ended.
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
        if x0[: objective.n_penalised].any() and not np.isfinite(objective.value_and_gradient(x0)[0]):
            x0 = np.zeros_like(x0)
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
            stacklevel=4,
        )
    if short:
        single = "pass X in float64, " if objective.rows.dtype == np.float32 else ""
        warnings.warn(
            f"{label} stopped short of tol={estimator.tol:g} after {result.nit} steps: {result.message}; "
            f"{single}raise max_iter, or be content with a larger tol, or scale the columns",
            ConvergenceWarning,
            stacklevel=4,
        )
    return result, name, watch
