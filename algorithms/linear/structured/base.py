"""The fit and the linear predictor that all estimators of the generic solver share."""

import copy
import warnings
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import column_or_1d

from ...._typing import Array, Matrix, Vector
from ....errors import DataError
from ....scheduler.loop import Monitor, Rounds, listeners
from ....scheduler.threads import own_threads, single_threaded_blas
from ..._base import Estimator, documented
from ...inputs.matrices import (
    _as_data_errors,
    check_plain,
)
from ...inputs.pieces import computed
from ...inputs.table_columns import TableColumns, table_columns_of, with_table_columns
from ...inputs.tables import engine_of, fitted_table
from ...inputs.targets import (
    check_columns_and_vectors,
    check_exposure,
    check_offset,
    check_span,
    check_targets,
    check_weights,
)
from ..sparse.fitting import SparseCoefficients, check_shapes
from ..vocabulary import PATH_DOCS, path_alphas
from .losses import Loss
from .named_groups import groups_by_name
from .penalties import BlockPenalty, GivenPenalty, Penalty
from .scaled_huber import HuberOfRows, HuberSolver
from .solving.blocks import check_groups
from .solving.columns import Columns, ScaledColumns, scales_of
from .solving.interior import InteriorSolver
from .solving.kinks import KinkedRows, RootOfRows, resume
from .solving.moments import moment_solver
from .solving.owned_fit import ColumnsOnWorkers, CutColumns, owns
from .solving.problem import (
    StructuredProblem,
    Terms,
    begin_lower,
    least_alpha,
    null_predictor,
    scale_of,
    smoothed,
    so_far,
    spread_bounds,
    times,
)
from .solving.reweighting import Reweighting, factors_of
from .solving.small import SmallSolver, is_small
from .solving.solver import Solver
from .solving.starts import lowest

_SOLVERS = {KinkedRows: InteriorSolver, RootOfRows: InteriorSolver, HuberOfRows: HuberSolver}
_DEFAULT_GAMMA = {"mcp": 3.0, "scad": 3.7, "log": 1.0, "lq": 0.5}


@documented(PATH_DOCS)
class StructuredModel(ColumnsOnWorkers, Reweighting, SparseCoefficients, Estimator):
    """Fits, paths and predictions. A subclass has `_make_loss` and `_terms`."""

    groups: Any = None
    _groups_are_categories = False  # where `groups` is None and X has categories
    _counts_weights = False  # whether a row of weight 2 counts as two rows

    def _make_loss(self) -> Loss:
        raise NotImplementedError

    def _terms(self) -> Terms:
        raise NotImplementedError

    # Input --------------------------------------------------------------------------------------

    @contextmanager
    def _read(self, X, y, sample_weight):
        """Yield X, y and sample_weight of a fit; of files X is in this process, or there is a Dask client."""
        with fitted_table(self, X, y, sample_weight) as (rows, y, sample_weight):
            if rows is not X and (engine_of(self) == "local" or own_threads() is not None):
                rows = with_table_columns(computed(rows), table_columns_of(rows))
            yield rows, y, sample_weight

    def _columns(self, X, y, sample_weight):
        checked = check_columns_and_vectors(self, X, y, sample_weight)
        self._name_groups(X)
        return checked

    def _name_groups(self, X):
        """Set `groups_` where groups are given by names; return the groups as numbers of columns."""
        self.__dict__.pop("groups_", None)
        table = table_columns_of(X)
        if table is None and self.groups is not None and "feature_names_in_" in vars(self):
            table = TableColumns.of_names(self.feature_names_in_.tolist())
        named = groups_by_name(
            self.groups, self.n_features_in_, table, by_category=self._groups_are_categories
        )
        if named is not None:
            self.groups_ = named
        return self._numbered_groups()

    def _numbered_groups(self):
        """Groups as `check_groups` takes them: of names the columns that they came to in the fit."""
        return list(self.groups_.values()) if "groups_" in vars(self) else self.groups

    def _pose(self, X, y, sample_weight=None, offset=None, exposure=None):
        """Check the input; set the number and names of the columns."""
        loss, name = self._make_loss(), type(self).__name__
        X, y, sample_weight = self._columns(X, y, sample_weight)
        n_samples = X.shape[0]
        if not self.__sklearn_tags__().target_tags.multi_output:
            with _as_data_errors():
                check_plain("y", y)
                y = y if type(y) is np.ndarray and y.ndim == 1 else column_or_1d(y, warn=True)
        y = self._check_y(loss, check_targets(y, n_samples, name), name)
        weights = check_weights(sample_weight, n_samples)
        weights = np.full(n_samples, 1 / n_samples) if weights is None else weights / n_samples
        weighed = (weights > 0).reshape(-1, *[1] * (y.ndim - 1))
        if not weighed.all():  # rows without weight take a target that the loss takes
            y = np.where(weighed, y, y[np.argmax(weights > 0)])
        loss.check(y, name)
        loss = loss.fitted_to(y, weights)
        offset = self._offset(loss, offset, exposure, n_samples, y.reshape(n_samples, -1).shape[1])
        rows = loss.over_rows(y.reshape(n_samples, -1), weights, offset)
        return self._problem(X, rows, weights)

    def _check_y(self, loss, y, name):
        """Refuse targets of another form than the model takes."""
        if y.ndim != 1:
            raise DataError(f"y has the shape {y.shape}; {name} takes a vector, one target a row")
        return y

    def _offset(self, loss, offset, exposure, n_samples, n_outputs):
        offset = check_offset(offset, n_samples, n_outputs)
        if exposure is not None:
            if not loss.positive_mean:
                raise DataError(
                    "exposure is for losses of positive means, such as 'poisson'; pass offset instead"
                )
            exposure = check_exposure(exposure, n_samples)
            offset = exposure + (0 if offset is None else offset)
        offset = check_span(offset) if loss.positive_mean else offset
        return None if offset is None else offset.reshape(n_samples, -1)

    def _problem(self, X, loss, weights, *, centre=None):
        """Put X, loss and groups together; columns are centred with an intercept, or as `centre` says."""
        terms, p = self._terms(), X.shape[1]
        blocks = check_groups(terms.groups, p, overlap=terms.overlap)
        grouped, factors = terms.groups is not None, factors_of(terms, blocks)
        curvature: Any = 0.0
        centre = self.fit_intercept if centre is None else centre
        if owns(X, self.engine):
            columns: Any = self._columns_on_workers(X, loss, weights, blocks, factors, centre)
        else:
            columns = Columns(X, weights, centre=centre)
        if isinstance(columns, CutColumns):
            return StructuredProblem(columns, loss, blocks, factors, curvature)
        scales = scales_of(columns, weights, centre) if self.standardize else None
        columns = columns if scales is None else ScaledColumns(columns, scales)
        if isinstance(terms.kind, Penalty):
            if grouped or loss.n_outputs > 1:
                raise DataError("a penalty of your own takes single columns and one target: leave out groups")
            finite = factors[np.isfinite(factors)]
            if not terms.kind.separable and len(finite) and (factors != finite[0]).any():
                raise DataError(
                    "penalty_factor is for penalties that are sums over coefficients; leave it out"
                )
            with columns.opened():
                curvature = columns.largest_curvature(loss.steepness(null_predictor(loss, X.shape[0])))
        if terms.kind == "lq":
            h = loss.steepness(null_predictor(loss, X.shape[0]))
            with columns.opened():
                squares = blocks.spread(columns.curvatures(h))
            curvature = np.add.reduceat(squares, blocks.starts[:-1])  # a bound of the eigenvalues
        return StructuredProblem(columns, loss, blocks, factors, curvature, scales)

    def _penalty(self, problem, alpha, *, convex=False):
        """The penalty at a strength; with `convex` its convex form, the norm."""
        terms, factors, blocks = self._terms(), problem.factors, problem.blocks
        excluded = factors == np.inf
        strengths = np.where(excluded, np.inf, alpha * np.where(excluded, 1, factors))
        if isinstance(terms.kind, Penalty):
            own = terms.kind.of_width(problem.columns.n_features)
            return GivenPenalty(own, strengths, problem.curvature)
        rho, n = terms.l1_ratio, len(factors)
        low, high = spread_bounds(terms.low, terms.high, n, blocks, problem.loss.n_outputs)
        if problem.scales is not None and n == len(problem.scales):  # groups have bounds of 0 and infinity
            low, high = low * problem.scales, high * problem.scales
        kind = "norm" if convex else terms.kind
        l1 = ridge = 0.0
        if terms.sparse_groups:
            whole = np.where(factors == np.inf, np.inf, np.where(factors == 0, 0.0, alpha))
            lam, l1 = times(1 - rho, strengths), times(rho, whole)
        else:
            lam, ridge = times(rho, strengths), times(1 - rho, strengths)
        lam[excluded] = np.inf
        gamma = None  # kernels of the norm: see `kernels.linear.blocks`
        if terms.kind != "norm":
            gamma = float(_DEFAULT_GAMMA[terms.kind] if terms.gamma is None else terms.gamma)
        return BlockPenalty(blocks, lam, l1, ridge, low, high, kind, gamma, problem.curvature)

    # Fitting ------------------------------------------------------------------------------------

    def _fit(self, problem, callback=None, start=None):
        with single_threaded_blas(), problem.columns.opened():
            return self._take(problem, *self._solve(problem, callback, start))

    def _solve(self, problem, callback, start):
        label = type(self).__name__
        if isinstance(problem.columns, CutColumns):
            return self._solve_owned(problem, callback, start, label)
        penalty = self._penalty(problem, self.alpha)
        watched = bool(callback is not None or self.verbose or listeners())
        solver = self._solver(problem, penalty, is_watched=watched)
        unit, first = scale_of(solver, penalty)
        if start is not None:
            begin_lower(solver, penalty, lambda: solver.begin(*start))
            resume(solver, penalty, vars(self).get("_smoothing"))
        monitor: Monitor = Monitor(
            self.max_iter,
            label=label,
            unit="pass",
            verbose=self.verbose,
            callback=callback,
            came_to=lambda: f"{len(monitor.history)} passes; the model so far is kept",
        )

        def snapshot(*figures):
            return copy.copy(self)._take(problem, problem.in_units(so_far(solver, *figures)), monitor.history)

        report = Rounds(monitor, lambda objective: {"objective": objective}, snapshot)
        options = {"tol": max(self.tol, 1e-30), "report": report}
        with monitor:
            if not (penalty.convex or start is not None):
                fit = self._minimise_from_starts(problem, solver, penalty, unit, first, options)
                if fit.reason == "large":
                    solver = self._solver(problem)
                    scale_of(solver, penalty)
                    fit = self._minimise_from_starts(problem, solver, penalty, unit, first, options)
            else:
                fit = smoothed(solver, penalty, unit, first, max_rounds=self.max_iter, **options)
            if self._is_left(solver, fit):
                solver = self._solver(problem)
                solver.begin(fit.B, fit.intercept)
                fit = smoothed(solver, penalty, unit, first, max_rounds=self.max_iter, **options)
        fit.rounds = len(monitor.history)
        if start is not None and fit.rounds == 1 and fit.reason in ("gap", "kkt"):
            fit.rounds = 0  # the pass found nothing to do
        self._warn(fit, unit, first)
        return problem.in_units(fit), monitor.history

    def _minimise_from_starts(self, problem, solver, penalty, unit, first, options):
        penalties = partial(self._penalty, problem)
        return lowest(solver, penalties, penalty, self.alpha, unit, first, self.max_iter, **options)

    def _solver(self, problem, penalty=None, **options):
        self._check_local(problem)
        parts = problem.columns, problem.loss, problem.blocks
        kind = _SOLVERS.get(type(problem.loss), Solver)
        if kind is Solver and penalty is not None:
            if is_small(problem, penalty, self.fit_intercept):
                return SmallSolver(*parts, fit_intercept=self.fit_intercept, **options)
            if solver := moment_solver(problem, penalty, self.fit_intercept, **options):
                return solver
        return kind(*parts, fit_intercept=self.fit_intercept)

    def _is_left(self, solver, fit):
        """Whether a small problem turned out to be large, or too precise, for its solver."""
        return isinstance(solver, SmallSolver) and fit.reason in ("large", "stalled")

    def _warn(self, fit, unit, first):
        if message := self._shortfall(fit, unit, first):
            warnings.warn(message, ConvergenceWarning, stacklevel=6)

    def _shortfall(self, fit, unit, first):
        """Say by how much a fit missed its tolerance; None if it did not."""
        if fit.reason not in ("max_rounds", "stalled"):
            return None
        by_gap = np.isfinite(fit.gap)
        name = "duality gap" if by_gap else "violation of optimality"
        figure, bound = (fit.gap, self.tol * unit) if by_gap else (fit.violation, self.tol * first)
        passes = fit.reason == "max_rounds"
        why = f"max_iter={self.max_iter} passes" if passes else "the precision of the arithmetic"
        return (
            f"{type(self).__name__} did not reach tol={self.tol:g} by {why}: the {name} is {figure:.3g}, "
            f"above {bound:.3g}; raise max_iter or tol, or scale the columns"
        )

    def _take(self, problem, fit, history):
        p = problem.columns.n_features
        coef = problem.blocks.summed(fit.B, p).T.astype(problem.columns.dtype)
        intercept = np.asarray(fit.intercept, np.float64)
        single = self._single(coef)
        self.coef_ = coef[0].copy() if single else np.ascontiguousarray(coef)
        if self.fit_intercept:
            self.intercept_ = float(intercept[0]) if single else intercept
        else:
            self.intercept_ = 0.0
        self.objective_, self.n_iter_ = float(fit.objective), int(fit.rounds)
        self.dual_gap_, self.kkt_violation_ = float(fit.gap), float(fit.violation)
        self.stopped_by_ = {"gap": "duality gap", "kkt": "kkt violation"}.get(fit.reason, fit.reason)
        self.history_ = history.as_dict()
        if self.warm_start and isinstance(problem.loss, KinkedRows):
            self._smoothing = problem.loss.smoothing_now()
        self.schedule_ = problem.columns.schedule
        if problem.blocks.plain is False and len(fit.B) > p:
            self.group_coef_ = fit.B[:, 0].copy() if single else fit.B.copy()
        return self

    def _single(self, coef):
        return coef.shape[0] == 1

    def _only_many(self):
        return False

    def _start(self, problem):
        """Coefficients of places and intercepts of the last fit, for `warm_start`."""
        if not self.warm_start or "coef_" not in vars(self):
            return None
        if "group_coef_" in vars(self):
            B = self.group_coef_.reshape(len(self.group_coef_), -1)
        else:
            B = np.atleast_2d(self.coef_).T
        if B.shape != (len(problem.blocks.order), problem.loss.n_outputs):
            B = None if "group_coef_" in vars(self) else problem.blocks.spread(B)
        if B is None or B.shape != (len(problem.blocks.order), problem.loss.n_outputs):
            raise DataError(
                "warm_start=True goes on from a model of other columns, groups or targets: fit a new "
                "estimator, or set warm_start=False"
            )
        B = B.astype(np.float64)
        B = B if problem.scales is None else B * problem.blocks.spread(problem.scales)[:, None]
        return B, np.atleast_1d(np.asarray(self.intercept_, np.float64))

    def _largest_alpha(self, problem):
        with single_threaded_blas(), problem.columns.opened():
            solver = self._solver(problem)
            scale_of(solver, self._penalty(problem, 1.0))
            return least_alpha(lambda alpha: self._penalty(problem, alpha), solver)

    def _fit_path(self, problem, alphas, short=None):
        """Solve for falling strengths, each from the one before; yields fits.

        Warns of those that miss the tolerance, or appends their relative gaps to the list `short`.
        """
        with single_threaded_blas(), problem.columns.opened():
            penalty = self._penalty(problem, alphas[0])
            solver = self._solver(problem, penalty)
            unit, first = scale_of(solver, penalty)
            for alpha in alphas:
                penalty = self._penalty(problem, alpha)
                options = {"tol": max(self.tol, 1e-30), "max_rounds": self.max_iter}
                fit = smoothed(solver, penalty, unit, first, wide=True, **options)
                if self._is_left(solver, fit):
                    solver = self._solver(problem)
                    solver.begin(fit.B, fit.intercept)
                    fit = solver.solve(penalty, unit, first, **options)
                if short is None:
                    self._warn(fit, unit, first)
                elif self._shortfall(fit, unit, first):
                    short.append(float(fit.gap / unit if np.isfinite(fit.gap) else fit.violation / first))
                yield problem.in_units(fit)

    def alpha_max(self, X: Matrix, y: Vector, sample_weight: Vector | None = None, **more: Any) -> float:
        """Find the smallest `alpha` at which all penalised coefficients are zero, given the other parameters.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        **more
            Further arguments of `fit`, one entry a row, such as `offset`.

        Returns
        -------
        float
            Infinite where no strength suffices, as for ``l1_ratio=0`` of an elastic net.
        """
        self._validate_params()
        return self._largest_alpha(copy.copy(self)._pose(X, y, sample_weight, **more))

    def path(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        alphas: Vector | int = 100,
        eps: float = 1e-3,
        **more: Any,
    ) -> tuple[Array, ...]:
        """Fit a falling sequence of `alpha`, each from the solution before.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        **more
            Further arguments of `fit`, one entry a row, such as `offset`.
        %(path)s
        """
        self._validate_params()
        problem = copy.copy(self)._pose(X, y, sample_weight, **more)
        alphas = path_alphas(alphas, eps, lambda: self._largest_alpha(problem))
        fits = list(self._fit_path(problem, alphas))
        p = problem.columns.n_features
        coefs = np.stack([problem.blocks.summed(fit.B, p).T for fit in fits], axis=-1)
        intercepts = np.stack([fit.intercept for fit in fits], axis=-1)
        gaps = np.array([fit.gap for fit in fits])
        if len(coefs) == 1 and not self._only_many():
            return alphas, coefs[0], intercepts[0], gaps
        return alphas, coefs, intercepts, gaps

    def _check_state(self):
        super()._check_state()
        check_shapes(self)
