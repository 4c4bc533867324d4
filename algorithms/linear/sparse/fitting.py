"""From checked input to coefficients: what the sparse linear estimators and the paths share.

Row weights have mean 1 here, so that the unscaled problem of the solver is n_samples times the estimators'.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.sparsefuncs import mean_variance_axis

from ....errors import DataError
from ....scheduler.place import check_engine
from ....scheduler.threads import effective_n_jobs, own_threads, single_threaded_blas
from ...inputs.dask_arrays import engine_for, is_dask
from .penalties import ENDLESS, ElasticNet

SHORT = ("max_rounds", "stalled")  # reasons of solutions that did not reach `tol`
_BLOCK = 1 << 21  # entries of X whose squares are summed at a time: 16 MiB
_DEFAULT_ROUNDS = 1000
_LEAST_TOL = 1e-30  # far below rounding; with 0 itself no amount of work would be enough


@dataclass(frozen=True)
class Design:
    """What the targets and penalties of a fit share.

    Attributes: `X`: ndarray in Fortran order or csc_array, shape (n_samples, n_features). `weights`: None or
    array (n_samples,); of mean 1. `l1_factors`, `l2_factors`: None or array (n_features,); of the two parts
    of the penalty. `layout`: None or Layout; how `X` is cut, if the fit runs on Dask. `engine`: where it
    runs.
    """

    X: Any
    weights: np.ndarray | None
    l1_factors: np.ndarray | None
    l2_factors: np.ndarray | None
    fit_intercept: bool
    positive: bool
    layout: Any = None
    engine: str = "local"

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
    ):
        """Bring penalty factors and `standardize` together; say where the fit runs.

        `allow_rows`: whether the loss can be fitted by rows (see `distributed`); `n_runs`: how often X is
        loaded for fits.
        """
        layout = None
        check_engine(engine)
        if engine != "local" or not (isinstance(X, np.ndarray) or sparse.issparse(X)):
            from . import distributed

            engine = engine_for(X, engine)
            if is_dask(X) or (engine != "local" and own_threads() is None):
                layout = distributed.lay_out(X, engine, allow_rows=allow_rows)
                if standardize or n_runs > 1 or X.dtype != np.float64:  # see `rounded`
                    layout = layout.kept(engine)
        l1 = l2 = factors
        if standardize:
            scales = _scales(X, weights, fit_intercept, layout, engine)
            l1 = scales if factors is None else factors * scales
            l2 = l1 * scales
        return cls(X, weights, l1, l2, fit_intercept, positive, layout, engine)

    def allowed(self, start):
        """Leave excluded features out of coefficients to begin with; None if there are none left."""
        if start is None or self.l1_factors is None:
            return start
        kept = np.isfinite(self.l1_factors[start[0]])
        return (start[0][kept], start[1][kept]) if kept.any() else None

    @property
    def n_features(self):
        """Number of columns."""
        return self.X.shape[1]

    def penalty(self, alpha, l1_ratio):
        """Return the penalty in the units of the unscaled problem."""
        n_samples = self.X.shape[0]
        strength, ridge = (min(n_samples * alpha * part, ENDLESS) for part in (l1_ratio, 1 - l1_ratio))
        return ElasticNet(
            strength, ridge, l1_factors=self.l1_factors, l2_factors=self.l2_factors, positive=self.positive
        )

    def squared(self, y):
        """Return the squared loss of a target, with an empty working set."""
        if self.layout is not None and self.layout.by_rows:
            from .rows import GramSquared

            return GramSquared(y, self.weights, fit_intercept=self.fit_intercept)
        from .squared import Squared

        return Squared(y, self.weights, self.fit_intercept)

    def logistic(self, numbers, n_classes, offset):
        """Return the logistic or multinomial loss of numbered classes, with an empty working set."""
        if n_classes == 2:
            from .logistic import Logistic

            return Logistic(numbers, self.weights, offset=offset, fit_intercept=self.fit_intercept)
        from .multinomial import Multinomial

        return Multinomial(numbers, n_classes, self.weights, offset=offset, fit_intercept=self.fit_intercept)

    def alpha_max(self, subproblem, l1_ratio):
        """Find the least alpha at which every penalised coefficient is zero; infinite for ``l1_ratio=0``.

        `subproblem` has an empty working set; it is changed.
        """
        if l1_ratio == 0:
            return np.inf
        strength = largest_strength(self, subproblem, self.penalty(1.0, l1_ratio))
        return float(strength / (self.X.shape[0] * l1_ratio))

    def nothing(self, y):
        """Stand for a target that a fit did not come to: no coefficients, and an unknown gap."""
        mean = np.average(y, weights=self.weights) if self.fit_intercept else 0.0
        return Fit(np.empty(0, np.int64), np.empty(0), mean, np.nan, np.nan, 0, "")


@dataclass(frozen=True)
class Fit:
    """A model for one target and one penalty, in the units of the estimators.

    Attributes: `features`: int64 (m,); those with a coefficient. `coef`: float64 (m,) or (m, n_outputs).
    `intercept`: float or array (n_outputs,). `gap`: duality gap in the scale of the estimator's objective.
    `relative_gap`: what `tol` is compared with. `n_iter`: passes over X. `reason`: see `Solution`; "" while
    the fit runs.
    """

    features: np.ndarray
    coef: np.ndarray
    intercept: Any
    gap: float
    relative_gap: float
    n_iter: int
    reason: str

    def dense(self, n_features, dtype):
        """Coefficients as a vector of all features, or a matrix (n_outputs, n_features)."""
        coef = np.zeros((*self.coef.shape[1:], n_features), dtype)
        coef[..., self.features] = self.coef.T
        return coef


def solve(
    design,
    subproblem,
    penalties,
    *,
    tol,
    max_iter,
    start=None,
    n_jobs=None,
    verbose=0,
    callback=None,
    read=None,
    label,
):
    """Solve for a sequence of penalties through the engine.

    `penalties`: list of Penalty. `max_iter`: most passes over X for a penalty. `start`: (int64 ndarray,
    float64 ndarray); features (rising) and coefficients to begin with. `n_jobs`, `verbose`, `callback`,
    `label`: see `stradask.scheduler.run`. `read`: ``read(fit, history)`` makes the model of
    ``info.snapshot()`` for callbacks. Returns `fits`: list of Fit; one for each penalty, fewer if the run was
    ended by the callback or by Ctrl-C; the last of them is then the model so far. `done`:
    stradask.scheduler.engine.Run.
    """
    from ....scheduler import run

    rounds = max((max_iter or _DEFAULT_ROUNDS) - 1, 1)
    start = design.allowed(start)
    program, schedule = _program(design, subproblem, penalties, tol, rounds, start, n_jobs)
    working_set, n_samples = program.working_set, design.X.shape[0]
    by_rows = design.layout is not None and design.layout.by_rows  # a round scores, the next one works
    with single_threaded_blas():
        done = run(
            program,
            schedule,
            engine=design.engine,
            n_jobs=n_jobs,
            max_rounds=(2 if by_rows else 1) * (rounds + 2) * len(penalties),
            callback=callback,
            snapshot=read and (lambda history: read(_so_far(working_set, n_samples), history)),
            verbose=verbose,
            label=label,
        )
    working_set.finish()
    return [_fit(solution, n_samples) for solution in working_set.solutions], done


def solve_scheduled(
    design,
    y,
    penalty,
    *,
    tol,
    max_iter,
    random_state,
    start=None,
    n_jobs=None,
    verbose=0,
    callback=None,
    read=None,
    label,
):
    """Solve for one penalty by scheduled coordinate descent (see `scheduled`), through the engine.

    `y`: array (n_samples,). `tol`, `max_iter`, `start`, `n_jobs`, `verbose`, `callback`, `read`, `label`: see
    `solve`. A pass is as many rounds as it takes to visit every coefficient once. `random_state`: int,
    RandomState or None. Returns fits, done; see `solve`.
    """
    from ....scheduler import run
    from .scheduled import scheduled_elastic_net

    if is_dask(design.X):
        raise DataError("schedule='dynamic' takes X in this process, not a Dask array: take schedule='auto'")
    n_samples, n_features = design.X.shape
    coef, every = np.zeros(n_features), np.arange(n_features)
    if start is not None:
        coef[start[0]] = start[1]
    X = design.X
    if design.l1_factors is not None and np.isinf(design.l1_factors).any():
        every = np.flatnonzero(np.isfinite(design.l1_factors))
        if not len(every):
            raise DataError(
                "penalty_factor is inf for every column, and schedule='dynamic' needs one to draw: take "
                "schedule='auto' for the model of the intercept alone"
            )
        X, coef = X[:, every], coef[every]
    # Weights of sum 1: then all figures are those of the estimators.
    program, schedule = scheduled_elastic_net(
        X,
        y,
        penalty.thresholds(every) / n_samples,
        penalty.ridges(every) / n_samples,
        tol=max(tol, _LEAST_TOL),
        fit_intercept=design.fit_intercept,
        sample_weight=(np.ones(n_samples) if design.weights is None else design.weights) / n_samples,
        positive=design.positive,
        coef=None if start is None else coef,
        n_shards=1 if design.layout is None else len(design.layout.pieces),
        random_state=random_state,
    )

    def fit(n_rounds, reason):
        features = np.flatnonzero(program.coef)
        relative = program.gap / program.scale if program.scale > 0 else 0.0
        passes = -(-n_rounds // program.measure_every)
        return Fit(
            every[features],
            program.coef[features],
            program.intercept,
            program.gap,
            relative,
            passes,
            reason,
        )

    done = run(
        program,
        schedule,
        engine=design.engine,
        n_jobs=n_jobs,
        max_rounds=(max_iter or _DEFAULT_ROUNDS) * program.measure_every,
        stop=program.stop,
        callback=callback,
        snapshot=read and (lambda history: read(fit(len(history), ""), history)),
        verbose=verbose,
        label=label,
    )
    reason = {"finished": "max_rounds", "gap": "gap"}.get(done.reason, "stopped")
    return [fit(done.n_rounds, reason)], done


def _program(design, subproblem, penalties, tol, rounds, start, n_jobs):
    """Make the program that solves for the penalties, and its schedule."""
    from ....scheduler import StaticSchedule
    from .columns import columns_of
    from .mean_program import MeanProgram
    from .working_set import WorkingSet

    X = columns_of(design.X) if design.layout is None else design.layout
    working_set = WorkingSet(
        subproblem,
        penalties,
        n_features=design.n_features,
        is_sparse=X.is_sparse,
        tol=max(tol, _LEAST_TOL),
        max_rounds=rounds,
        start=start,
    )
    if design.layout is not None:
        return design.layout.program(working_set)
    threads = own_threads() if n_jobs is None and design.engine != "local" else None
    program = MeanProgram(working_set, X, n_shards=threads or effective_n_jobs(n_jobs))
    return program, StaticSchedule(1, n_shards=len(program.shards))


def _fit(solution, n_samples):
    return Fit(
        solution.features,
        solution.coef,
        solution.intercept,
        solution.gap_absolute / n_samples,
        solution.gap,
        solution.rounds,
        solution.reason,
    )


def _so_far(working_set, n_samples):
    """The model between two rounds of a fit."""
    if working_set.solutions:
        return _fit(working_set.solutions[-1], n_samples)
    sub, gap = working_set.sub, working_set.reports[-1].gap
    absolute = gap * sub.unit(working_set.penalties[0]) * sub.scale**2 / n_samples
    return Fit(sub.features, sub.coef, sub.intercept, absolute, gap, len(working_set.reports), "")


def largest_strength(design, subproblem, penalty):
    """Find the least strength of the l1 penalty at which every penalised coefficient is zero.

    `subproblem`: Subproblem; with an empty working set; it is changed. `penalty`: Penalty; of any strength
    above 0. Returns in units of the unscaled problem; 0 if no column is penalised.
    """
    from ....scheduler import run
    from .columns import columns_of
    from .screening import Scores

    strong = penalty.with_strength(ENDLESS)
    if design.layout is not None:
        program, schedule = _program(design, subproblem, [strong], 1e-12, 2, None, None)
        _whole(run(program, schedule, engine=design.engine, max_rounds=8))
        return program.bound * subproblem.scale
    X = columns_of(design.X)
    free = strong.unpenalised(design.n_features)
    if len(free):
        subproblem.grow(free, X, free, strong)
        subproblem.solve(strong, 1e-12 * subproblem.unit(strong))
    scores = Scores(X, penalty.l1_factors, penalty.positive)
    return scores.most(subproblem.vectors(), free) * subproblem.scale


def _scales(X, weights, centre, layout, engine):
    if layout is None:
        return column_scales(X, weights, centre=centre)
    from ....scheduler import run
    from .distributed import Scales

    program = Scales(layout, weights, centre)
    _whole(run(program, layout.schedule, engine=engine, max_rounds=2))
    return program.scales


def _whole(done):
    """Let Ctrl-C end more than a step that prepares a fit."""
    if done.reason == "interrupted":
        raise KeyboardInterrupt


def column_scales(X, weights, *, centre):
    """Compute the standard deviation of each column, or its root mean square; 1 for columns where it is 0.

    `X`: ndarray in Fortran order or csc_array, shape (n_samples, n_features). `weights`: None or array
    (n_samples,). `centre`: True: standard deviation. Returns float64 (n_features,).
    """
    if isinstance(X, np.ndarray):
        step = max(1, _BLOCK // X.shape[0])
        parts = [X[:, first : first + step] for first in range(0, X.shape[1], step)]
        squares = np.concatenate([_mean_squares(part, weights, centre) for part in parts])
    else:
        weights = None if weights is None else weights.astype(X.dtype)
        means, variances = mean_variance_axis(X, axis=0, weights=weights)
        squares = variances if centre else variances + means.astype(np.float64) ** 2
    scales = np.sqrt(squares.astype(np.float64))
    scales[scales == 0] = 1
    return scales


def _mean_squares(X, weights, centre):
    X = X.astype(np.float64)
    if centre:
        X -= np.average(X, axis=0, weights=weights)
    return np.average(np.square(X, out=X), axis=0, weights=weights)


def warn_short(fit, *, tol, max_iter, what, dtype):
    """Tell that a fit fell short of `tol`: the gap it reached, and what to do."""
    if fit.reason == "max_rounds":
        why = (
            f"after max_iter={max_iter or _DEFAULT_ROUNDS} rounds: raise max_iter, or be content with a "
            "larger tol"
        )
    else:
        why = "and rounding errors allow no further progress: "
        why += "pass X in float64" if dtype == np.float32 else "bring the columns to one scale"
        why += ", or be content with a larger tol"
    warnings.warn(
        f"{what} stopped at a relative duality gap of {fit.relative_gap:.1e}, above tol={tol:g}, {why}",
        ConvergenceWarning,
        stacklevel=5,
    )


def check_shapes(estimator):
    """Hold coefficients and intercept of a model file against each other; DataError if they do not fit."""
    coef, intercept = estimator.coef_, np.asarray(estimator.intercept_)
    if coef.ndim not in (1, 2) or coef.shape[-1] != estimator.n_features_in_ or coef.dtype.kind != "f":
        raise DataError(f"coef_ cannot be that of a model of {estimator.n_features_in_} columns")
    if intercept.dtype.kind != "f" or intercept.shape not in ((), (1,), coef.shape[:-1]):
        raise DataError(f"intercept_ has the shape {intercept.shape}, coef_ {coef.shape}")
