"""The elastic net: least squares with sparse coefficients."""

import copy
import functools
import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions

from ..._typing import Array, Callback, Engine, Matrix, RandomState, Vector
from .._base import Estimator, documented, keep_parameters
from ..inputs.tables import ScoresFiles, fitted_table
from ..inputs.targets import (
    check_columns_and_vectors,
    check_offset,
    check_penalty_factor,
    check_start,
    check_targets,
    check_weights,
)
from .path import enet_path
from .predictions import linear_predictor
from .sparse.fitting import (
    SHORT,
    Design,
    SparseCoefficients,
    check_goes_on,
    check_shapes,
    moved_from,
    ownership,
    warn_short,
)
from .sparse.least_squares import LeastSquares, largest_alpha, solve_squared
from .sparse.moments import order_for_moments
from .vocabulary import COLUMNS, FIT_DOCS, IGNORED


@documented(FIT_DOCS)
class ElasticNet(ScoresFiles, SparseCoefficients, MultiOutputMixin, RegressorMixin, Estimator):
    r"""Linear regression with l1 and squared l2 penalties, by a working set of columns.

    Minimises, over coefficients b and an intercept c,

    .. math:: \frac{1}{2 \sum_i w_i} \sum_i w_i (y_i - x_i b - c)^2
              + \alpha \sum_j f_j \left(\rho |b_j| + \frac{1 - \rho}{2} b_j^2\right)

    where rho is `l1_ratio`, w are `sample_weight` (1 by default) and f is `penalty_factor` (1 by default):
    scikit-learn's objective. Each round reads `X` once to find the columns that break the optimality
    conditions most, adds them to a working set, and solves the problem on that set by coordinate descent
    and a proximal Newton method. The fit ends when the duality gap of the whole problem is small enough, so
    that `dual_gap_` bounds how far the objective is from its minimum.
    Up to 200 columns are fitted through their products, in one round, where rounding errors of these are far
    below `tol`, `X` is not large or sparse, and all columns are penalised.

    `X` is never changed, never made dense and copied at most once, namely where it is not stored by
    columns (Fortran order or CSC) already; centring and `standardize` are implicit.

    Seeds and threads: the result is *bitwise* the same for any `n_jobs`; but where workers own columns
    (`schedule_` is "columns") for one number of threads in all, as each owns a part, and else within `tol`.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty. 0 leaves least squares, with a warning; `alpha_max` tells from where on all
        penalised coefficients are zero.
    l1_ratio : float, default=0.5
        rho, the share of the l1 penalty: 1 is the Lasso, 0 is ridge regression (whose solution is not sparse,
        so that a working set gains nothing).
    fit_intercept : bool, default=True
        False takes c = 0.
    precompute : bool, "auto" or array-like, default=False
        Accepted for scikit-learn's sake and without effect: Gram entries are made for the columns that turn
        out to matter.
    max_iter : int or None, default=1000
        Most rounds, at least 2. A round is a pass over `X` and then work on a few columns: much more than one
        of scikit-learn's sweeps, and tens of rounds are usual. None is 1000.
    copy_X : bool, default=True
        Accepted and without effect: `X` is never changed.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most `tol` times the objective of the model without
        columns (the intercept alone). scikit-learn's bound is ``2 * tol`` in these units, tested only after
        the coefficients have almost ceased to move.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    positive : bool, default=False
        Only coefficients of 0 and above.
    random_state : int, RandomState or None, default=None
        Seed of ``schedule="dynamic"``; the working set has no use for it.
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for scikit-learn's sake and without effect.
    penalty_factor : array-like of shape (n_features,), default=None
        f, 0 and above: with 0 a column is never penalised, with 2 twice as much, with ``np.inf`` it is
        excluded: its coefficient is 0 whatever `alpha` is. If all are, the model is the intercept alone.
        Unlike glmnet's they are not rescaled.
    %(standardize)s
    schedule : {"auto", "working-set", "dynamic"}, default="auto"
        "auto" is the working set, or "dynamic" for a Dask array that is cut by columns and would fill more
        than half of the workers' memory. "dynamic" orders updates by priority and dependency, as STRADS does.
        On a cluster each worker then owns columns and their coefficients, and updates those that violate
        optimality most; the workers exchange the residual and no columns, and `X` may be larger than their
        memory. In this process "dynamic" draws single coefficients by how much they changed, and thins them
        by correlation; this is slower than the working set.
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address. A Dask array keeps its chunks, of rows or of columns; an `X` of this process is cut by
        columns if there are more columns than rows or ``schedule="dynamic"``, else by rows.
    n_jobs : int or None, default=None
        Threads of the passes over `X`. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar: the rounds done, of `max_iter` at most (most fits end long before), and the
        objective.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        b, in the type of `X`.
    sparse_coef_ : CSR array of shape (1, n_features) or (n_targets, n_features)
        The same; made at each access.
    intercept_ : float or ndarray of shape (n_targets,)
        c, in float64, the best one for `coef_`; 0.0 without intercept.
    dual_gap_ : float or ndarray of shape (n_targets,)
        Duality gap in the scale of the objective above, which is scikit-learn's, of `coef_` as it stands: for
        float32 `X` its rounding is in it, and may leave more than a very small `tol` asks for.
    n_iter_ : int or list of int
        Rounds, one number a target; of ``schedule_="columns"`` the passes over `X`. 0 where a warm start
        was the solution.
    schedule_ : str
        What ran: "working-set" (or the products of few columns), "columns" (owned by workers) or "dynamic"
        (drawn coefficients).
    history_ : dict of arrays
        One entry a round: round, seconds, objective, updates, bytes_sent, waiting, staleness;
        with several targets their rounds one after the other, and target.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    Raises
    ------
    DataError
        For NaN, infinities, other lengths, negative weights and the like; says which and what to do.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` rounds, or the precision of the arithmetic, did not suffice for `tol`; names the gap
        reached.

    See Also
    --------
    Lasso : The same with ``l1_ratio=1``.
    enet_path : Coefficients for many values of `alpha`.
    sklearn.linear_model.ElasticNet : The same problem by coordinate descent over all columns.

    References
    ----------
    Zou, Hastie, "Regularization and variable selection via the elastic net", JRSS B 2005. Working sets and
    duality gaps: Massias, Gramfort, Salmon, "Celer: a fast solver for the Lasso with dual extrapolation",
    ICML 2018. Newton steps: Li, Sun, Toh, "A highly efficient semismooth Newton augmented Lagrangian method
    for solving Lasso problems", SIAM J. Optim. 2018.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(100, 2000, n_informative=5, random_state=0)
    >>> model = sd.ElasticNet(alpha=5.0, l1_ratio=0.9).fit(X, y)
    >>> int((model.coef_ != 0).sum()) < 300
    True
    >>> bool(model.dual_gap_ <= 1e-4 * y.var() / 2)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **COLUMNS,
        **IGNORED,
        "precompute": ["boolean", StrOptions({"auto"}), "array-like"],
    }

    path = staticmethod(enet_path)

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        precompute: Any = False,
        max_iter: int | None = 1000,
        copy_X: bool = True,
        tol: float = 1e-4,
        warm_start: bool = False,
        positive: bool = False,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
        penalty_factor: Vector | None = None,
        standardize: bool = False,
        schedule: str = "auto",
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit coefficients and intercept.

        Ctrl-C stops after the running round and keeps the model so far, with a warning.

        Parameters
        ----------
        %(X)s
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Each target is a problem of its own.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Added to the linear predictor of each row: a known part of y.
        %(callback)s Targets
            that were not reached keep zero coefficients then, and a gap of NaN.

        Returns
        -------
        self
        """
        self._validate_params()
        if self.alpha == 0:
            warnings.warn(
                "alpha=0 penalises nothing: for least squares take sklearn.linear_model.LinearRegression",
                stacklevel=2,
            )
        with self._draft() as draft, fitted_table(draft, X, y, sample_weight) as (X, y, sample_weight):
            before = vars(draft).get("coef_") if draft.warm_start else None
            design, y = draft._problem(X, y, sample_weight, offset, own=ownership(draft))
            if before is not None:
                check_goes_on(before, 1 if y.ndim == 1 else y.shape[1], design.n_features)
            draft._fit_targets(design, y, before, callback)
        return self

    def _problem(self, X, y, sample_weight, offset=None, own="never"):
        """Check the input; set the number and names of the columns."""
        order = order_for_moments(X)
        columns, y, sample_weight = check_columns_and_vectors(self, X, y, sample_weight, order=order)
        n_samples, n_features = columns.shape
        y = check_targets(y, n_samples, type(self).__name__)
        offset = check_offset(offset, n_samples, y.size // n_samples)
        y = y if offset is None else y - offset.reshape(y.shape)
        design = Design.make(
            columns,
            check_weights(sample_weight, n_samples),
            check_penalty_factor(self.penalty_factor, n_features),
            standardize=self.standardize,
            fit_intercept=self.fit_intercept,
            positive=self.positive,
            engine=self.engine,
            allow_rows=True,
            n_runs=1 if y.ndim == 1 else y.shape[1],
            own=own,
        )
        return design, y

    def _start(self, before, target):
        return check_start("coef_", np.atleast_2d(before)[target], before.shape[-1], self.positive)

    def _fit_targets(self, design, y, before, callback):
        """Solve for one target after the other."""
        targets = y.reshape(len(y), -1).T
        fits: list = []
        histories: list = []
        for k, target in enumerate(targets):
            start = None if before is None else self._start(before, k)
            (fit, *_), done = self._solve(
                design,
                target,
                tol=self.tol,
                max_iter=self.max_iter,
                start=start,
                n_jobs=self.n_jobs,
                verbose=self.verbose,
                callback=callback,
                read=functools.partial(self._snapshot, design, y, fits, histories),
                label=type(self).__name__ + (f", target {k}" if len(targets) > 1 else ""),
            )
            fits.append(moved_from(start, fit))
            histories.append(done.history)
            if done.reason in ("callback", "interrupted"):
                break
        self._warn(fits, design.X.dtype)
        return self._read(design, y, fits, histories)

    def _solve(self, design, target, **options):
        self.schedule_ = "working-set"
        if self.schedule != "dynamic" and not design.owned:
            return solve_squared(design, target, np.array([self.alpha], float), self.l1_ratio, **options)
        self.schedule_ = "columns" if design.owned else "dynamic"
        if design.owned:
            from .structured.losses import Squared
            from .structured.mean_loss import mean_loss
            from .structured.solving.owned_fit import solve_single_columns

            options["start"] = design.allowed(options["start"])
            loss = mean_loss(design, Squared(), target)
            fit, done = solve_single_columns(design, loss, self.alpha, self.l1_ratio, **options)
            return [fit], done
        from .sparse.drawn_rounds import solve_drawn

        penalty = design.penalty(self.alpha, self.l1_ratio)
        fits, done = solve_drawn(design, target, penalty, random_state=self.random_state, **options)
        return [LeastSquares(design, target).rounded(penalty, fits[0])], done

    def _snapshot(self, design, y, fits, histories, fit, history):
        return copy.copy(self)._read(design, y, [*fits, fit], [*histories, history])

    def _read(self, design, y, fits, histories):
        """Take the model from the solutions."""
        targets = y.reshape(len(y), -1)
        reached = len(fits)
        fits = [*fits, *(design.unsolved_target(target) for target in targets.T[reached:])]
        dtype, p = design.X.dtype, design.X.shape[1]
        coef = np.array([fit.dense(p, dtype) for fit in fits])
        intercept = np.array([fit.intercept for fit in fits], np.float64)
        gaps, rounds = np.array([fit.gap_absolute for fit in fits]), [fit.rounds for fit in fits]
        single = len(fits) == 1
        self.coef_ = coef[0] if single else coef
        self.dual_gap_ = gaps[0] if single else gaps
        self.n_iter_ = rounds[0] if single else rounds
        self.intercept_ = 0.0 if not self.fit_intercept else float(intercept[0]) if y.ndim == 1 else intercept
        self.history_ = _joined(histories, several=y.ndim == 2)
        return self

    def _warn(self, fits, dtype):
        """Warn, once, of the target that fell short the most."""
        short = [k for k, fit in enumerate(fits) if fit.reason in SHORT]
        if short:
            worst = max(short, key=lambda k: fits[k].gap)
            what = type(self).__name__
            if len(fits) > 1:
                what += f" (target {worst}" + (f", the worst of {len(short)})" if len(short) > 1 else ")")
            warn_short(fits[worst], tol=self.tol, max_iter=self.max_iter, what=what, dtype=dtype)

    # Using --------------------------------------------------------------------------------------

    def predict(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute ``X @ coef_ + intercept_ + offset``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return linear_predictor(self, self.predict, X, offset)

    def alpha_max(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, offset: Vector | None = None
    ) -> Any:
        """Find the smallest `alpha` at which all penalised coefficients are zero, given the other parameters.

        Useful values of `alpha` are parts of it: a half, a tenth, a hundredth.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in `fit`.

        Returns
        -------
        float or ndarray of shape (n_targets,)
            Infinite for ``l1_ratio=0``.

        Examples
        --------
        >>> import stradask as sd
        >>> sd.Lasso(fit_intercept=False).alpha_max([[1.0, 0.0], [0.0, 1.0]], [2.0, 4.0])
        2.0
        """
        self._validate_params()
        design, y = copy.copy(self)._problem(X, y, sample_weight, offset)
        alphas = [largest_alpha(design, target, self.l1_ratio) for target in np.atleast_2d(y.T)]
        return np.array(alphas) if y.ndim == 2 else alphas[0]

    def _check_state(self):
        super()._check_state()
        check_shapes(self)


def _joined(histories, several):
    """Put the rounds of several targets one after the other."""
    columns = [history.as_dict() for history in histories]
    if not several:
        return columns[0]
    joined = {name: np.concatenate([one[name] for one in columns]) for name in columns[0]}
    joined["round"] = np.arange(1, len(joined["round"]) + 1)
    joined["target"] = np.repeat(np.arange(len(columns)), [len(history) for history in histories])
    return joined
