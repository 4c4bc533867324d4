"""Ridge regression: least squares with a squared penalty."""

import copy
import functools
from numbers import Integral, Real
from typing import ClassVar, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from ..._typing import Array, ArrayLike, Callback, Matrix, Vector
from ...errors import DataError, shortened
from .._base import Estimator
from ..inputs.dask_arrays import is_dask
from ..inputs.remote_targets import FarTargets, target_sums
from ..inputs.targets import check_targets, check_weights, total_weight
from .glm.choose import minimise_square
from .glm.objective import LinearObjective
from .glm.remote import objective_over
from .glm.row_places import check_beside, columns_in_use, opened_beside, opened_rows
from .glm.rows import SQUARED
from .glm.smooth import SOLVERS, linear_predictor, run
from .sparse.fitting import check_shapes


class Ridge(MultiOutputMixin, RegressorMixin, Estimator):
    r"""Linear regression with a squared penalty, by second-order methods over portions of the rows.

    Minimises, over coefficients w and an intercept c that is not penalised,

    .. math:: \sum_i s_i (y_i - x_i w - c)^2 + \alpha |w|^2

    with s = `sample_weight`: scikit-learn's objective. `X` is never centred or copied with a column of ones.

    Seeds and threads: the result is *bitwise* the same for any `n_jobs`, and on a cluster for any workers,
    also if some are lost in the midst of the fit. On a cluster sums are grouped otherwise than here:
    objectives agree to rounding.

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
    solver : {"auto", "newton", "sandblaster"}, default="auto"
        "newton": Cholesky factor of the normal equations for up to 2,000 parameters, its rounding errors
        corrected by further steps; else conjugate gradients. For at most 2,000 rows, fewer than columns, it
        and "auto" factor a matrix as large as the rows. "sandblaster": L-BFGS, preconditioned by the
        diagonal of the Hessian. "auto" takes, by the shape of the data, the one or the other, or L-BFGS
        preconditioned by the Hessian of a sample of the rows. `solver_` tells which.
    max_iter : int, default=1000
        Most steps, for each target.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    engine : str, default="local"
        Where the rows are read. ``"local"``: threads of this process; ``"dask"``: the current Dask client;
        or the address of a Dask scheduler. On a cluster an array is cut into portions that are sent once, and
        the blocks of a Dask array or DataFrame stay where they lie; a Dask `X` goes to the current client, if
        there is one. This process holds the parameters, and vectors that are not Dask's.
    n_jobs : int or None, default=None
        Threads, on a cluster of each worker. None is 1, on a cluster as many as a worker has; -1 all cores.
    verbose : int, default=0
        1 shows a progress bar: the steps done, of `max_iter` at most (most fits end long before), and the
        objective.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        w, in the type of `X`.
    intercept_ : float or ndarray of shape (n_targets,)
        c; 0.0 without intercept.
    n_iter_ : int or list of int
        Steps, one number a target.
    solver_ : str
        "newton", "newton-cg", "sketch" or "lbfgs".
    history_ : dict of arrays
        One entry a step: round, seconds, objective, updates, bytes_sent, waiting, staleness; with several
        targets that of the last one.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

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
    ElasticNet : With an l1 penalty besides.

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

    _parameter_constraints: ClassVar[dict] = {
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions(SOLVERS)],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "engine": [str],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
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
        engine: str = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solver = solver
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, callback: Callback | None = None
    ) -> Self:
        """Fit coefficients and intercept.

        Ctrl-C stops after the running step and keeps the model so far, with a warning; targets that were not
        reached keep the coefficients that they began with.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            float32 and float64 are kept. Best in C order or CSR: then nothing is copied. Or a Dask array or
            DataFrame; then the vectors below may be Dask's, too: a single target stays beside the rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Each target is a problem of its own.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative.
        callback : callable, optional
            ``callback(info)`` after every step; `info` has round, total, objective, seconds, history, and
            ``info.snapshot()``, the model so far as a fitted estimator. Returning True ends the fit.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._unchanged_on_error():
            rows, y, sample_weight, engine = check_beside(self, X, y, sample_weight, stays_up_to=np.inf)
            rows, layout = columns_in_use(rows, 1, self.fit_intercept)
            if is_dask(y):
                alphas = self._alphas(1)
                beside = FarTargets(type(self).__name__)
                with opened_beside(self, rows, beside, y, sample_weight, engine) as (answers, made):
                    known = target_sums(answers, rows.shape[0])
                    data, means = [made(known.coding)], known.means
                    return self._solve(data, layout, alphas, means, 1, known.total, callback)
            y = check_targets(y, rows.shape[0], type(self).__name__)
            weights = check_weights(sample_weight, rows.shape[0])
            total = total_weight(sample_weight, rows.shape[0])
            targets = y.reshape(len(y), -1).T
            alphas = self._alphas(len(targets))
            means = np.average(targets, axis=1, weights=weights)
            with opened_rows(self, rows, list(targets), weights, engine) as data:
                return self._solve(data, layout, alphas, means, y.ndim, total, callback)

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

    def _solve(self, data, layout, alphas, means, n_dimensions, total, callback):
        """Solve for one target after the other; where the penalty stays the same, by one factor."""
        coef, intercept = self._start(means, layout.n_features)
        factor, n_iter, dtype = None, list[int](), data[0].dtype
        for k in range(len(means)):
            factor = factor if k and alphas[k] == alphas[k - 1] else None
            objective = objective_over(
                data[k],
                LinearObjective,
                SQUARED,
                scale=1 / data[k].shape[0],
                l2=alphas[k] / total,
                fit_intercept=self.fit_intercept,
                n_jobs=self.n_jobs,
            )

            def read(x, history, k=k):
                model = copy.copy(self)
                here = coef.copy(), intercept.copy()
                here[0][k], here[1][k] = (part[..., 0] for part in layout.read(x))
                return model._read(*here, [*n_iter, len(history)], n_dimensions, dtype, history)

            result, (self.solver_, factor), watch = run(
                self,
                functools.partial(minimise_square, solver=self.solver, factor=factor),
                objective,
                layout.vector(coef[k][:, None], intercept[k : k + 1]),
                unit=2 * total,
                callback=callback,
                snapshot=read,
            )
            coef[k], intercept[k] = (part[..., 0] for part in layout.read(result.x))
            n_iter.append(len(watch.history))
            if watch.ended:
                break
        return self._read(coef, intercept, n_iter, n_dimensions, dtype, watch.history)

    def _start(self, means, n_features):
        """Coefficients of the last fit, or the means of the targets and no coefficients."""
        n_targets = len(means)
        if not (self.warm_start and "coef_" in vars(self)):
            return np.zeros((n_targets, n_features)), means
        before = np.atleast_2d(self.coef_).astype(np.float64)
        if before.shape != (n_targets, n_features):
            raise DataError(
                f"warm_start=True goes on from a model of {before.shape[1]} columns and {before.shape[0]} "
                f"targets, but X has {n_features} and y {n_targets}: fit a new estimator, or set "
                "warm_start=False"
            )
        return before, np.full(n_targets, 0.0) + self.intercept_

    def _read(self, coef, intercept, n_iter, n_dimensions, dtype, history):
        """Take the model from the parameters."""
        single = n_dimensions == 1
        self.coef_ = (coef[0] if single else coef).astype(dtype)
        self.intercept_ = 0.0
        if self.fit_intercept:
            self.intercept_ = float(intercept[0]) if single else intercept.astype(dtype)
        self.n_iter_ = n_iter[0] if single else n_iter
        self.history_ = history.as_dict()
        return self

    def predict(self, X: Matrix) -> Array:
        """Compute ``X @ coef_.T + intercept_``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Or a Dask array, and then the result is one.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return linear_predictor(self, self.predict, X)

    def _check_state(self):
        super()._check_state()
        check_shapes(self)
