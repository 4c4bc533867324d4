"""Ridge regression: least squares with a squared penalty."""

import copy
import time
from numbers import Real
from typing import ClassVar, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from ..._typing import Array, ArrayLike, Callback, Engine, Matrix, RandomState, Vector
from ...errors import DataError, shortened
from ...scheduler.history import History
from ...scheduler.loop import report_rounds
from .._base import documented, keep_parameters
from ..inputs.matrices import check_vector
from ..inputs.remote_targets import FarTargets, target_sums
from ..inputs.tables import ScoresFiles, fitted_table
from ..inputs.targets import total_weight
from .glm.objective import LAST_PLACES
from .glm.ridge_system import applies, solve_ridge
from .glm.smooth import SMOOTH_DOCS, SOLVERS, SmoothModel
from .losses import squared
from .predictions import linear_predictor
from .sparse.moments import one_thread
from .vocabulary import CONSTRAINTS


@documented(SMOOTH_DOCS)
class Ridge(ScoresFiles, MultiOutputMixin, RegressorMixin, SmoothModel):
    r"""Linear regression with a squared penalty, by second-order methods over portions of the rows.

    Minimises, over coefficients w and an intercept c that is not penalised,

    .. math:: \sum_i s_i (y_i - x_i w - c - o_i)^2 + \alpha |w|^2

    with s = `sample_weight` and o = `offset`: scikit-learn's objective. `X` is never centred or copied
    with a column of ones.

    %(seeds)s

    %(units)s

    Parameters
    ----------
    alpha : float or array-like of shape (n_targets,), default=1.0
        Weight of the penalty, of each target its own where there are several. 0 leaves least squares.
        Targets of equal weight that stand side by side share one factor.
    fit_intercept : bool, default=True
        False takes c = 0.
    tol : float, default=1e-8
        A fit ends when the estimated excess of the objective over its minimum is at most `tol` times the
        objective. For float32 data at least 1.2e-6 is taken.
    solver : str, default="auto"
        "newton": Cholesky factor of the normal equations for up to 2,000 parameters, its rounding errors
        corrected by further steps; else conjugate gradients. For at most 2,000 rows, fewer than columns, it
        and "auto" factor a matrix as large as the rows. "sandblaster": L-BFGS, preconditioned by the
        diagonal of the Hessian. "auto" takes, by the shape of the data, the one or the other, or L-BFGS
        preconditioned by the Hessian of a sample of the rows; and conjugate gradients first where their steps
        cost little against a factor, unless they are watched. `solver_` tells which, and can be given. Of
        scikit-learn's names "cholesky" is "newton", "sparse_cg" is "newton-cg", "lbfgs" is "sandblaster";
        with "svd", "lsqr", "sag" and "saga" "auto" runs, and a warning says what that took.
    max_iter : int, default=1000
        Most steps, for each target.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    positive : bool, default=False
        Only coefficients of 0 and above, by the working set of `ElasticNet`: `solver_` is "working-set", and
        `tol` bounds its duality gap. For one `alpha`.
    copy_X, random_state : bool, default=True; int, RandomState or None, default=None
        Accepted for scikit-learn's sake and without effect: `X` is never changed, and nothing is drawn.
    %(places)s
    %(standardize)s
    %(verbose)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        w, in the type of `X`; a vector also where y has the shape (n_samples, 1).
    intercept_ : float or ndarray of shape (n_targets,)
        c; 0.0 without intercept.
    n_iter_ : int or list of int
        Steps, one number a target.
    solver_ : str
        "newton", "newton-cg", "sketch", "lbfgs" or "working-set".
    history_ : dict of arrays
        One entry a step: round, seconds, objective, updates, bytes_sent, waiting, staleness; with several
        targets that of the last one.
    %(names)s

    Raises
    ------
    DataError
        For NaN, infinities, other lengths, negative weights and the like.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` steps, or the precision of the arithmetic, did not suffice for `tol`.

    See Also
    --------
    ElasticNet : With an additional l1 penalty.

    References
    ----------
    Hoerl, Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics 1970.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.ridge import Ridge
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> model = Ridge(alpha=2.0).fit(X, [1.0, 2.0, 3.0])
    >>> model.coef_.round(6).tolist(), round(model.intercept_, 6)
    ([0.5], 1.5)
    """

    _keeps_order = True
    _parameter_constraints: ClassVar[dict] = {
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
        "solver": [StrOptions(SOLVERS | {"cholesky", "sparse_cg", "lsqr", "svd", "sag", "saga"})],
        **CONSTRAINTS,
        "positive": ["boolean"],
        "copy_X": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        alpha: float | ArrayLike = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        solver: str = "auto",
        max_iter: int = 1000,
        warm_start: bool = False,
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
        standardize: bool = False,
        positive: bool = False,
        copy_X: bool = True,
        random_state: RandomState | None = None,
    ) -> None:
        keep_parameters(self, locals())

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

        Ctrl-C stops after the running step and keeps the model so far, with a warning; targets that were not
        reached keep the coefficients that they began with.

        Parameters
        ----------
        %(X)s Several targets of Dask come to this process.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Each target is a problem of its own.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A row of weight 2 counts as two rows.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Added to the linear predictor of each row: a known part of y. A Dask y comes to this process then.
        %(callback)s

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft, fitted_table(draft, X, y, sample_weight) as (X, y, sample_weight):
            fit = draft._fit_columns if draft.positive else draft._fit_rows
            fit(X, y, sample_weight, offset, callback)
            draft._warn_of_method()
        return self

    def _fit_columns(self, X, y, sample_weight, offset, callback):
        """Leave coefficients with a bound to the working set, whose objective is the mean over the rows."""
        from .elastic_net import ElasticNet

        if np.ndim(self.alpha):
            raise DataError("positive=True takes one alpha for all targets: give a number")
        shared = "fit_intercept", "standardize", "tol", "max_iter", "positive", "engine", "n_jobs", "verbose"
        n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
        total = total_weight(check_vector(sample_weight, n_samples), n_samples)
        model = ElasticNet(self._alphas(1)[0] / max(total, 1e-300), l1_ratio=0.0)
        model.set_params(**{name: getattr(self, name) for name in shared}, warm_start=self.warm_start)
        if self.warm_start and "coef_" in vars(self):
            model.coef_, model.intercept_ = self.coef_, self.intercept_
        model.fit(X, y, sample_weight, offset=offset, callback=callback)
        names = "coef_", "intercept_", "n_iter_", "history_", "n_features_in_", "feature_names_in_"
        self.__dict__.update({name: vars(model)[name] for name in names if name in vars(model)})
        self.solver_ = "working-set"

    def _target(self, name, y, sample_weight, n_samples):
        target = squared.target(name, y, sample_weight, n_samples)
        self._alphas(len(target.starts))
        return target

    def _remote_checks(self, name):
        self._alphas(1)
        return FarTargets(name)

    def _remote_target(self, answers, n_samples):
        return squared.remote_target(target_sums(answers, n_samples))

    def _solve(self, data, dtype, target, layout, callback):
        """Solve the normal equations of few columns; else as `SmoothModel`."""
        goes_on = self.warm_start and "coef_" in vars(self)
        quick = self._method == "auto" and callback is None and not self.verbose
        asked = not goes_on and self._method in ("auto", "newton")
        if not (asked and applies(data[0], len(target.vectors), quick)):
            return super()._solve(data, dtype, target, layout, callback)
        began, scales = time.perf_counter(), [self._scales(target, k) for k in range(len(target.vectors))]
        tol = max(self.tol, LAST_PLACES * float(np.finfo(dtype).eps))
        Y = np.array(target.vectors).T
        options = {"fit_intercept": self.fit_intercept, "tol": tol, "max_iter": self.max_iter, "quick": quick}
        options["scales"] = self._column_scales(data[0])
        with one_thread(data[0]):
            found = solve_ridge(data[0], Y, target.weights, [l2 for _, l2 in scales], **options)
        if found is None:
            return super()._solve(data, dtype, target, layout, callback)
        coefs, intercepts, objectives, n_iter, self.solver_ = found
        seconds = (time.perf_counter() - began) / n_iter[-1]
        ends = intercepts[:, None] if self.fit_intercept else np.empty((len(coefs), 0))
        history, models = History(), [layout.read(x) for x in np.hstack([coefs, ends])]

        def read():
            return copy.copy(self)._read(models, n_iter, dtype, target, history)

        figures = {"objective": scales[-1][0] * objectives[-1], "seconds": seconds}
        rounds = [{"figures": dict(figures), "snapshot": read} for _ in range(n_iter[-1])]
        shown = {"label": type(self).__name__, "verbose": self.verbose, "callback": callback}
        report_rounds(history, rounds, **shown)
        return self._read(models, [*n_iter[:-1], len(history)], dtype, target, history)

    def _scales(self, target, k):
        """The objective is a sum, its loss twice the kernels'."""
        return 2 * target.total, self._alphas(len(target.starts))[k] / target.total

    def _alphas(self, n_targets):
        """Return the weight of the penalty for each target."""
        try:
            alphas = np.asarray(self.alpha, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"alpha must be finite numbers of 0 or more, got {shortened(self.alpha)}"
            ) from error
        if alphas.shape not in ((), (1,), (n_targets,)):
            raise DataError(
                f"alpha has the shape {alphas.shape} and y {n_targets} targets: give one number, or one for "
                "each target"
            )
        if not (np.isfinite(alphas).all() and (alphas >= 0).all()):
            raise DataError(f"alpha must be finite numbers of 0 or more, got {shortened(self.alpha)}")
        return np.broadcast_to(alphas, n_targets).tolist()

    def predict(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute ``X @ coef_.T + intercept_ + offset``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Or a Dask array, and then the result is one.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return linear_predictor(self, self.predict, X, offset)
