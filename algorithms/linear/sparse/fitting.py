"""The fit that the sparse linear estimators and the paths share: from checked input to solutions.

Row weights have mean 1 here, so that the unscaled problem of the solver is n_samples times the estimators'.
"""

import functools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ...._typing import Engine
from ....errors import DataError
from ....scheduler.threads import own_threads
from ....scheduler.workers import check_engine
from ...inputs.dask_arrays import engine_for, is_dask
from ..scales import column_scales
from .penalties import ENDLESS, L1L2
from .solution import Solution

SHORT = ("max_rounds", "stalled")  # reasons of solutions that did not reach `tol`
DEFAULT_ROUNDS = 1000  # of the working set, where max_iter is 0
LEAST_TOL = 1e-30  # far below rounding; with 0 itself no amount of work would be enough


@dataclass(frozen=True)
class Design:
    """The columns, weights and penalty factors that all targets and penalties of a fit share.

    `X`: ndarray or csc_array. `weights`: None, or of mean 1. `l1_factors`, `l2_factors`: None
    or (n_features,). `cut`: None, or a `CutMatrix` if the fit runs on Dask. `owned`: whether workers are to
    own its columns (see `structured.solving.owned_blocks`); `standardize` is then left to them.
    """

    X: Any
    weights: np.ndarray | None
    l1_factors: np.ndarray | None
    l2_factors: np.ndarray | None
    fit_intercept: bool
    positive: bool
    cut: Any = None
    engine: Engine = "local"
    owned: bool = False
    standardize: bool = False

    @classmethod
    def make(
        cls,
        X,
        weights,
        factors,
        *,
        standardize,
        fit_intercept,
        positive,
        engine="local",
        allow_rows=False,
        n_runs=1,
        own="never",
    ):
        """Combine penalty factors and `standardize`; cut X if the fit runs on a cluster.

        `allow_rows`: whether the loss can be fitted by rows (see `distributed`); `n_runs`: how often X is
        loaded for fits. `own`: whether workers own columns if X is
        cut so, "never", "always", or for a "large" X that would fill their memory.
        """
        cut, owned = None, False
        check_engine(engine)
        if engine != "local" or not (isinstance(X, np.ndarray) or sparse.issparse(X)):
            from . import distributed

            engine = engine_for(X, engine)
            if is_dask(X) or (engine != "local" and own_threads() is None):
                allow_rows = allow_rows and (is_dask(X) or own != "always")
                cut = None if own == "always" else distributed.streamed(X, engine, allow_rows=allow_rows)
                if isinstance(X, np.ndarray):
                    X = np.asfortranarray(X)
                cut = cut or distributed.lay_out(X, engine, allow_rows=allow_rows)
                if own == "always" and cut.by_rows:
                    raise DataError(
                        "schedule='dynamic' takes a Dask array that is cut by columns, but X is cut by rows: "
                        "call X.rechunk({0: -1, 1: 'auto'}), or take schedule='auto'"
                    )
                large = own != "never" and distributed.exceeds_memory(cut, engine)
                owned = not cut.by_rows and (own == "always" or large)
                again = (standardize or X.dtype != np.float64) and not owned  # see `rounded`
                if (n_runs > 1 or again) and not (owned and large):
                    cut = cut.kept(engine)
        l1 = l2 = factors
        if standardize and not owned:
            scales = _scales(X, weights, fit_intercept, cut, engine)
            l1 = scales if factors is None else factors * scales
            l2 = l1 * scales
        return cls(X, weights, l1, l2, fit_intercept, positive, cut, engine, owned, standardize)

    def allowed(self, start):
        """Drop excluded features from a start; None if none is left."""
        if start is None or self.l1_factors is None:
            return start
        kept = np.isfinite(self.l1_factors[start[0]])
        return (start[0][kept], start[1][kept]) if kept.any() else None

    @functools.cached_property
    def columns(self):
        """X for what reads columns: a dense one in Fortran order."""
        return np.asfortranarray(self.X) if isinstance(self.X, np.ndarray) else self.X

    @property
    def n_features(self):
        """Number of columns."""
        return self.X.shape[1]

    def penalty(self, alpha, l1_ratio):
        """Return the penalty in the units of the unscaled problem."""
        n_samples = self.X.shape[0]
        strength, ridge = (min(n_samples * alpha * part, ENDLESS) for part in (l1_ratio, 1 - l1_ratio))
        return L1L2(
            strength, ridge, l1_factors=self.l1_factors, l2_factors=self.l2_factors, positive=self.positive
        )

    def unsolved_target(self, y):
        """Stand for a target that a fit did not come to: no coefficients, and an unknown gap."""
        mean = np.average(y, weights=self.weights) if self.fit_intercept else 0.0
        return Solution(np.nan, np.empty(0, np.int64), np.empty(0), mean, np.nan, np.nan, np.nan, 0, 0, "")


class SparseCoefficients:
    """Lets an estimator show its coefficients as a CSR array."""

    coef_: Any

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients as a CSR array."""
        if "coef_" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no 'sparse_coef_': it is not fitted yet")
        return sparse.csr_array(
            np.atleast_2d(self.coef_) if isinstance(self.coef_, np.ndarray) else self.coef_
        )


def ownership(estimator):
    """Whether workers are to own columns, by `schedule` and penalty of an estimator: see `Design.make`."""
    if estimator.schedule != "auto":
        return "always" if estimator.schedule == "dynamic" else "never"
    factors = estimator.penalty_factor
    free = factors is not None and (np.asarray(factors, object) == 0).any()
    return "never" if estimator.alpha == 0 or estimator.l1_ratio == 0 or free else "large"


def moved_from(start, fit):
    """The fit, with no rounds where it ended with the coefficients that it began from, but for rounding."""
    if start is None or not len(fit.features) or not np.array_equal(start[0], fit.features):
        return fit
    moved = np.abs(start[1] - fit.coef).max()
    return replace(fit, rounds=0) if moved <= 1e-12 * np.abs(fit.coef).max() else fit


def _scales(X, weights, centre, cut, engine):
    if cut is None:
        return column_scales(X, weights, centre=centre)
    from .cut_columns import columns_of_cut

    weights = np.ones(X.shape[0]) if weights is None else weights
    columns = columns_of_cut(cut, engine, None, weights=None, centre=False)
    with columns.opened():
        return columns.scales(weights, centre)


def warn_short(fit, *, tol, max_iter, what, dtype):
    """Warn that a fit fell short of `tol`; name the gap it reached, and the remedy."""
    if fit.reason == "max_rounds":
        why = (
            f"after max_iter={max_iter or DEFAULT_ROUNDS} rounds: raise max_iter, or be content with a "
            "larger tol"
        )
    else:
        why = "and rounding errors allow no further progress: "
        why += "pass X in float64" if dtype == np.float32 else "bring the columns to one scale"
        why += ", or be content with a larger tol"
    warnings.warn(
        f"{what} stopped at a relative duality gap of {fit.gap:.1e}, above tol={tol:g}, {why}",
        ConvergenceWarning,
        stacklevel=5,
    )


def check_goes_on(coef, n_targets, n_features):
    """Refuse to go on from the coefficients of other columns or targets."""
    before = coef.shape if coef.ndim == 2 else (1, len(coef))
    if before != (n_targets, n_features):
        targets = "" if before[0] == n_targets else f", and of {before[0]} targets, not {n_targets}"
        raise DataError(
            f"warm_start=True goes on from a model of {before[1]} columns, but X has {n_features}{targets}: "
            "fit a new estimator, or set warm_start=False"
        )


def check_shapes(estimator):
    """Hold coefficients and intercept of a model file against each other; DataError if they do not fit."""
    coef, intercept = estimator.coef_, np.asarray(estimator.intercept_)
    shape: tuple = getattr(coef, "shape", ())
    if len(shape) not in (1, 2) or shape[-1] != estimator.n_features_in_ or coef.dtype.kind != "f":
        raise DataError(f"coef_ cannot be that of a model of {estimator.n_features_in_} columns")
    if intercept.dtype.kind != "f" or intercept.shape not in ((), (1,), shape[:-1]):
        raise DataError(f"intercept_ has the shape {intercept.shape}, coef_ {shape}")
