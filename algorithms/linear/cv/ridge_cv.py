"""Ridge regression whose penalty is chosen by leaving out each row once, in closed form."""

import copy
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.linalg import eigh, svd
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.utils._param_validation import Interval, StrOptions

from ...._typing import Array, Callback, Engine, Matrix, Vector
from ....errors import DataError, shortened
from ....scheduler.threads import single_threaded_blas
from ..._base import Estimator, documented, keep_parameters
from ...inputs.matrices import check_columns, check_vector
from ...inputs.row_order import check_row_matrix
from ...inputs.tables import ScoresFiles
from ...inputs.targets import all_weights, check_names, check_offset, check_targets
from ..glm.smooth import SMOOTH_DOCS
from ..predictions import linear_predictor
from ..ridge import Ridge
from ..scales import column_scales
from ..sparse.fitting import check_shapes
from ..sparse.moments import moments_of, shift_of
from ..vocabulary import CONSTRAINTS
from .evaluation import path_scorer
from .folds import fits_to_fold, folds_of, tasks_over
from .path_cv import CV_DOCS

_MOST = 5000  # rows or columns of a matrix that is decomposed
_BLOCK = 1 << 18  # entries of the products of a block of rows
_FINE = 1e-9  # a penalty below this part of the largest eigenvalue asks for singular values


@documented(SMOOTH_DOCS | CV_DOCS)
class RidgeCV(ScoresFiles, MultiOutputMixin, RegressorMixin, Estimator):
    r"""Ridge regression whose penalty is chosen by cross-validation, by default of single rows.

    For each alpha the error that a fit without row i makes at row i is computed exactly from one
    decomposition,

    .. math:: e_i = \frac{y_i - \hat y_i}{1 - h_i},

    with h the leverages of the fit to all rows: no fit is repeated. The objective is that of `Ridge`. A
    sparse `X` is never made dense; the smaller of its numbers of rows and columns must be at most 5,000.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    alphas : float or array-like, default=(0.1, 1.0, 10.0)
        The penalties, above 0 where `cv` is None.
    fit_intercept : bool, default=True
        False takes an intercept of 0.
    scoring : str, callable or None, default=None
        None is minus the (weighted) mean squared error, with `cv` the explained variance; else a scorer as in
        scikit-learn, which judges the predictions of rows that were left out.
    cv : int, splitter, iterable of (train, test) or None, default=None
        None leaves out single rows, in closed form; else `Ridge` is fitted to the folds.
    gcv_mode : {None, "auto", "svd", "eigen"}, default=None
        Accepted for scikit-learn's sake, without effect.
    store_cv_results : bool, default=False
        Keep `cv_results_`; needs ``cv=None``.
    alpha_per_target : bool, default=False
        Choose a penalty for each target; needs ``cv=None``.
    %(standardize)s With ``cv=None`` they are those of all rows, with `cv` those of the training rows.
    engine : str or distributed.Client, default="local"
        Where folds are fitted, or with ``cv=None`` the one decomposition: ``"local"``, ``"dask"`` (the
        current client), a client, or the address of a Dask scheduler. Each worker that computes needs memory
        for `X`.
    n_jobs : int or None, default=None
        Threads: one takes a fold at a time. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar over the folds.

    Attributes
    ----------
    alpha_ : float or ndarray of shape (n_targets,)
        The chosen penalty; of equals the first.
    best_score_ : float or ndarray of shape (n_targets,)
        Its score.
    scores_ : ndarray of shape (n_alphas, n_folds)
        By `scoring`, on the test rows of each fold. With ``cv=None`` of all rows that were left out, of shape
        (n_alphas, 1), or with `alpha_per_target` (n_alphas, n_targets).
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients of the fit to all rows, in the type of `X`.
    intercept_ : float or ndarray of shape (n_targets,)
    cv_results_ : ndarray of shape (n_samples, n_alphas) or (n_samples, n_targets, n_alphas)
        With `store_cv_results`: the (weighted) squared errors of rows that were left out, or with `scoring`
        the predictions for them.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    DataError
        For data as `Ridge` refuses them, and where no two rows have weight.

    See Also
    --------
    Ridge : For one penalty.
    sklearn.linear_model.RidgeCV : The same choice.

    References
    ----------
    Golub, Heath, Wahba, "Generalized cross-validation as a method for choosing a good ridge parameter",
    Technometrics 1979.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = sd.RidgeCV(alphas=[1e-3, 1e-2, 1e-1, 1.0]).fit(X, y)
    >>> model.alpha_, round(model.score(X, y), 3)
    (0.01, 0.517)
    """

    _parameter_constraints: ClassVar[dict] = {
        "alphas": ["array-like", Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "scoring": [str, callable, None],
        "cv": ["cv_object"],
        "gcv_mode": [StrOptions({"auto", "svd", "eigen"}), None],
        "store_cv_results": ["boolean"],
        "alpha_per_target": ["boolean"],
        **{name: CONSTRAINTS[name] for name in ("standardize", "engine", "n_jobs", "verbose")},
    }
    coef_: Any
    intercept_: Any

    def __init__(
        self,
        alphas: Any = (0.1, 1.0, 10.0),
        *,
        fit_intercept: bool = True,
        scoring: Any = None,
        cv: Any = None,
        gcv_mode: str | None = None,
        store_cv_results: bool = False,
        alpha_per_target: bool = False,
        standardize: bool = False,
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        groups: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Choose the penalty, and fit to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A row of weight 2 counts as two rows.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Added to the linear predictor of each row, in fits and in scores.
        %(folds)s With
            ``cv=None`` it is called once.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            alphas = draft._checked_alphas(groups)
            columns = check_columns(draft, X) if draft.cv is None else check_row_matrix(draft, X)
            n_samples = columns.shape[0]
            check_names(draft, X, y)
            y = check_targets(y, n_samples, type(draft).__name__)
            weights, n_targets = all_weights(sample_weight, n_samples), y.size // n_samples
            offset = check_offset(check_vector(offset, n_samples), n_samples, n_targets)
            if draft.cv is not None:
                weighted = sample_weight is not None
                draft._fit_folds(columns, y, weights, offset, groups, alphas, weighted, callback)
                return self
            _check_two(weights)
            if min(columns.shape) > _MOST:
                raise DataError(
                    f"X has the shape {columns.shape}: with cv=None RidgeCV decomposes a matrix as large as "
                    f"the smaller number, which may be {_MOST}; give cv, for instance 5"
                )
            work = (0, draft, y, weights, offset, alphas, sample_weight is not None)
            with tasks_over(columns, draft.engine, draft.n_jobs) as tasks:
                vars(draft).update(*tasks.map(_chosen, [work], **draft._bar(callback)))
        return self

    def _checked_alphas(self, groups):
        try:
            alphas = np.atleast_1d(np.asarray(self.alphas, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"alphas must be numbers, got {shortened(self.alphas)}") from error
        least = "0 or more" if self.cv is not None else "above 0"
        fine = (alphas >= 0) if self.cv is not None else (alphas > 0)
        if alphas.ndim != 1 or not len(alphas) or not (fine & np.isfinite(alphas)).all():
            raise DataError(f"alphas must be finite numbers {least}, got {shortened(self.alphas)}")
        for name in ("store_cv_results", "alpha_per_target"):
            if self.cv is not None and getattr(self, name):
                raise DataError(f"{name}=True is for cv=None, where each row is left out once: leave out cv")
        if self.cv is None and groups is not None:
            raise DataError("groups is for folds, and cv is None: give cv, for instance GroupKFold()")
        return alphas

    def _bar(self, callback):
        return {"label": type(self).__name__, "unit": "fold", "verbose": self.verbose, "callback": callback}

    # Single rows ---------------------------------------------------------------------------------------

    def _choose(self, X, y, weights, offset, alphas, weighted):
        """Compute the errors of rows that are left out, judge them, and take the best coefficients."""
        Y = y.reshape(len(y), -1)
        residual = Y if offset is None else Y - offset.reshape(Y.shape)
        scales = column_scales(X, weights, centre=self.fit_intercept) if self.standardize else None
        fits = LeftOut(X, residual, weights, self.fit_intercept, alphas, scales)
        errors = fits.errors  # rows, targets, alphas
        if self.scoring is None:
            results = weights[:, None, None] * errors**2
            scores = -results.mean(axis=0)  # targets, alphas
            if not self.alpha_per_target:
                scores = scores.mean(axis=0, keepdims=True)
        else:
            results = Y[:, :, None] - errors
            scores = self._scores(X, np.moveaxis(results, 1, 2), y, weights if weighted else None)
        scores = np.where(np.isfinite(scores), scores, -np.inf)
        self.scores_ = scores.T
        best = scores.argmax(axis=1)
        if not np.isfinite(scores.max(axis=1)).all():
            raise DataError(
                f"scoring={shortened(self.scoring)} is no finite number for any alpha: take another"
            )
        chosen = np.broadcast_to(best, Y.shape[1])
        coef, intercept = fits.model(chosen)
        per_target = self.alpha_per_target and y.ndim == 2 and Y.shape[1] > 1
        self.alpha_ = alphas[best] if per_target else float(alphas[best[0]])
        self.best_score_ = scores.max(axis=1) if per_target else float(scores[0, best[0]])
        if self.store_cv_results:
            self.cv_results_ = (results if y.ndim == 2 else results[:, 0]).astype(X.dtype)
        self.coef_ = (coef if y.ndim == 2 and Y.shape[1] > 1 else coef[0]).astype(X.dtype)
        self.intercept_ = 0.0
        if self.fit_intercept:
            self.intercept_ = intercept.astype(X.dtype) if y.ndim == 2 else float(intercept[0])

    def _scores(self, X, predictions, y, weights):
        """Score predictions (rows, alphas, targets), of all targets together or of each."""
        scorer, rows = path_scorer(self.scoring, quick={}), np.arange(len(y))
        if self.alpha_per_target and predictions.shape[2] > 1:
            targets = range(predictions.shape[2])
            return np.array([scorer(X, y[:, k], rows, predictions[:, :, k, None], weights) for k in targets])
        return scorer(X, y, rows, predictions, weights)[None]

    # Folds -----------------------------------------------------------------------------------------------

    def _fit_folds(self, X, y, weights, offset, groups, alphas, weighted, callback):
        """Fit `Ridge` to folds, as scikit-learn's search does; with sample weights scores are weighted."""
        model = Ridge(fit_intercept=self.fit_intercept, standardize=self.standardize, n_jobs=1)
        scorer = path_scorer("r2" if self.scoring is None else self.scoring, quick={})
        folds = folds_of(self.cv, len(y), y, groups, weights)
        with tasks_over(X, self.engine, self.n_jobs) as tasks:
            judged = weights if weighted else None
            work = [(0, fold, model, alphas, y, offset, scorer, judged) for fold in folds]
            self.scores_ = np.array(tasks.map(_scores_of_fold, work, **self._bar(callback))).T
        scores = self.scores_.mean(axis=1)
        if not np.isfinite(scores).all():
            raise DataError(
                f"scoring={shortened(self.scoring)} is no finite number on some fold: use fewer folds, or "
                "another scoring"
            )
        self.alpha_, self.best_score_ = float(alphas[scores.argmax()]), float(scores.max())
        model.set_params(alpha=self.alpha_).fit(X, y, weights, offset=offset)
        self.coef_, self.intercept_ = model.coef_, model.intercept_

    def predict(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute ``X @ coef_.T + intercept_ + offset``.

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

    def _check_state(self):
        super()._check_state()
        check_shapes(self)


def _chosen(X, model, *data):
    """What `_choose` sets, as a dict."""
    model = copy.copy(model)
    with single_threaded_blas():
        model._choose(X, *data)
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def _check_two(weights):
    counted = np.count_nonzero(weights)
    if counted < 2:
        raise DataError(f"{counted} sample has weight: RidgeCV with cv=None leaves out one row and needs two")


def _scores_of_fold(X, fold, model, alphas, y, offset, scorer, weights):
    """Fit a model for each alpha to a fold, and score it."""
    fits = fits_to_fold(X, fold, clone(model), "alpha", alphas, y, offset)
    decisions = [predicted.reshape(len(fold.test), -1) for _, predicted in fits]
    weights = None if weights is None else weights[fold.test]
    return scorer(X, y[fold.test], fold.test, np.stack(decisions, axis=1), weights)


class LeftOut:
    """Errors of rows that are left out of ridge regressions, and the fits to all rows.

    With A the centred rows times the roots of their weights, from the eigenvalues of ``A^T A`` where there
    are fewer columns than rows, else from those of ``A A^T``. `Y`: float64 (n, n_targets). `weights`:
    float64 (n,). `scales`: None, or what to divide columns by. Attributes: `errors`: float64 (n, n_targets,
    n_alphas).
    """

    def __init__(self, X, Y, weights, fit_intercept, alphas, scales=None):
        self.scales = np.ones(X.shape[1]) if scales is None else scales
        if scales is not None:
            X = X / scales if isinstance(X, np.ndarray) else X @ sparse.diags_array(1 / scales)
        self.X, self.Y, self.weights, self.alphas = X, Y, weights, alphas
        mass = weights.sum()
        shift = shift_of(X, Y, fit_intercept)
        self.x_mean, self.y_mean = np.zeros(X.shape[1]), np.zeros(Y.shape[1])
        if fit_intercept:
            self.x_mean = np.asarray(weights @ X, dtype=np.float64).ravel() / mass
            if not sparse.issparse(X):  # far from zero: sums of differences keep digits
                self.x_mean = shift.columns + weights @ (X - shift.columns) / mass
            self.y_mean = shift.targets + weights @ (Y - shift.targets) / mass
        self.y = Y - self.y_mean
        self._share = weights / mass if fit_intercept else np.zeros(len(Y))
        if len(Y) <= X.shape[1]:
            self._by_rows(fit_intercept)
        else:
            self._by_columns(shift)

    def model(self, chosen):
        """Coefficients (n_targets, p) and intercepts, each target's at its own place among alphas."""
        coef = np.array([self._coef(k, at) for k, at in enumerate(chosen)])
        return coef / self.scales, self.y_mean - coef @ self.x_mean

    def _by_columns(self, shift):
        """Fill errors from ``A^T A``."""
        X, weights, (n, p) = self.X, self.weights, self.X.shape
        moments = moments_of(X, self.Y, weights, shift)[:p, :p]
        gap = self.x_mean - shift.columns
        values, V = eigh(moments - weights.sum() * np.outer(gap, gap))
        if not sparse.issparse(X) and self.alphas.min() < _FINE * values[-1]:
            A = np.sqrt(weights)[:, None] * (X - self.x_mean)
            _, values, Vt = svd(A, full_matrices=False, check_finite=False)
            values, V = values**2, Vt.T
        values = np.maximum(values, 0.0)
        inverse = 1 / (values[:, None] + self.alphas)  # (p, n_alphas)
        right = weights[:, None] * self.y
        pulls = V.T @ (X.T @ right - np.outer(self.x_mean, right.sum(axis=0)))  # (p, n_targets)
        self._coef = lambda k, at: V @ (pulls[:, k] * inverse[:, at])
        self.errors = np.empty((n, self.Y.shape[1], len(self.alphas)))
        at_zero = self.x_mean @ V
        step = max(1, _BLOCK // p)
        for first in range(0, n, step):
            part = slice(first, first + step)
            Z = X[part] @ V - at_zero if sparse.issparse(X) else (X[part] - self.x_mean) @ V
            left = 1 - weights[part, None] * (Z**2 @ inverse) - self._share[part, None]
            for k in range(self.Y.shape[1]):
                residual = self.y[part, k, None] - Z @ (pulls[:, k, None] * inverse)
                self.errors[part, k] = residual / left

    def _by_rows(self, fit_intercept):
        """Fill errors from ``A A^T``."""
        X, roots, n = self.X, np.sqrt(self.weights), len(self.Y)
        if sparse.issparse(X):
            rows = sparse.csr_array(X).astype(np.float64)
            K, across = (rows @ rows.T).toarray(), rows @ self.x_mean
            K += self.x_mean @ self.x_mean - across[:, None] - across
        else:
            K = np.zeros((n, n))
            for first in range(0, X.shape[1], max(1, _BLOCK // n)):
                part = slice(first, first + max(1, _BLOCK // n))
                block = X[:, part] - self.x_mean[part]
                K += block @ block.T
        K *= np.outer(roots, roots)
        q = roots / np.linalg.norm(roots)
        if fit_intercept:  # the direction of the intercept is made the last eigenvector, and left out
            K += (2 * np.trace(K) + 1) * np.outer(q, q)
        values, U = eigh(K)
        if fit_intercept:
            values, U = values[:-1], U[:, :-1]
        inverse = 1 / (np.maximum(values, 0.0)[:, None] + self.alphas)  # (n, n_alphas)
        own = U**2 @ inverse
        pulls = U.T @ (roots[:, None] * self.y)

        def dual(k):
            return U @ (pulls[:, k, None] * inverse)  # (n, n_alphas)

        def coefs(c):
            right = roots[:, None] * c
            return X.T @ right - np.outer(self.x_mean, right.sum(axis=0))

        self._coef = lambda k, at: coefs(dual(k)[:, at : at + 1])[:, 0]
        self.errors = np.empty((n, self.Y.shape[1], len(self.alphas)))
        without = np.flatnonzero(roots == 0)
        for k in range(self.Y.shape[1]):
            c = dual(k)
            with np.errstate(divide="ignore", invalid="ignore"):
                self.errors[:, k] = c / own / roots[:, None]
            if len(without):
                b = coefs(c)
                self.errors[without, k] = self.y[without, k, None] - (X[without] @ b - self.x_mean @ b)
