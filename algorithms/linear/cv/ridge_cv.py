"""Ridge regression whose penalty is chosen by leaving out each row once, in closed form."""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.linalg import eigh, svd
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import GridSearchCV
from sklearn.utils._param_validation import Interval, StrOptions

from ...._typing import Array, Matrix, Vector
from ....errors import DataError, shortened
from ....scheduler.threads import single_threaded_blas
from ..._base import Estimator, keep_parameters
from ...inputs.matrices import _as_data_errors, check_columns
from ...inputs.targets import check_names, check_row_weights, check_some_weight, check_targets
from ..predictions import linear_predictor
from ..ridge import Ridge
from ..sparse.fitting import check_shapes
from ..sparse.moments import moments_of, shift_of

_MOST = 5000  # rows or columns of a matrix that is decomposed
_BLOCK = 1 << 18  # entries of the products of a block of rows
_FINE = 1e-9  # a penalty below this part of the largest eigenvalue asks for singular values


class RidgeCV(MultiOutputMixin, RegressorMixin, Estimator):
    r"""Ridge regression whose penalty is chosen by cross-validation, by default of single rows.

    For each alpha the error that a fit without row i makes at row i is computed exactly from one
    decomposition,

    .. math:: e_i = \frac{y_i - \hat y_i}{1 - h_i},

    with h the leverages of the fit to all rows: no fit is repeated. The objective is that of `Ridge`. A
    sparse `X` is never made dense; the smaller of its numbers of rows and columns must be at most 5,000.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units.

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

    Attributes
    ----------
    alpha_ : float or ndarray of shape (n_targets,)
        The chosen penalty; of equals the first.
    best_score_ : float or ndarray of shape (n_targets,)
        Its score.
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
    ) -> None:
        keep_parameters(self, locals())

    def fit(self, X: Matrix, y: Vector, sample_weight: Vector | None = None) -> Self:
        """Choose the penalty, and fit to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            alphas = draft._checked_alphas()
            if draft.cv is not None:
                draft._fit_folds(X, y, sample_weight, alphas)
                return self
            columns = check_columns(draft, X)
            n_samples = columns.shape[0]
            check_names(draft, X, y)
            y = check_targets(y, n_samples, type(draft).__name__)
            weights = draft._checked_weights(sample_weight, n_samples)
            if min(columns.shape) > _MOST:
                raise DataError(
                    f"X has the shape {columns.shape}: with cv=None RidgeCV decomposes a matrix as large as "
                    f"the smaller number, which may be {_MOST}; give cv, for instance 5"
                )
            with single_threaded_blas():
                draft._choose(columns, y, weights, alphas, sample_weight is not None)
        return self

    def _checked_alphas(self):
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
        if isinstance(self.scoring, str) and self.scoring not in get_scorer_names():
            raise DataError(
                f"scoring={shortened(self.scoring)}: take one of sklearn.metrics.get_scorer_names()"
            )
        return alphas

    def _checked_weights(self, sample_weight, n_samples):
        weights = np.ones(n_samples)
        if sample_weight is not None:
            alike = isinstance(sample_weight, Real)
            weights = check_row_weights([sample_weight] * n_samples if alike else sample_weight, n_samples)
            check_some_weight(weights.max())
        counted = np.count_nonzero(weights)
        if counted < 2:
            raise DataError(
                f"{counted} sample has weight: RidgeCV with cv=None leaves out one row and needs two"
            )
        return weights

    # Single rows ---------------------------------------------------------------------------------------

    def _choose(self, X, y, weights, alphas, weighted):
        """Compute the errors of rows that are left out, judge them, and take the best coefficients."""
        Y = y.reshape(len(y), -1)
        fits = LeftOut(X, Y, weights, self.fit_intercept, alphas)
        errors = fits.errors  # rows, targets, alphas
        if self.scoring is None:
            results = weights[:, None, None] * errors**2
            scores = -results.mean(axis=0)  # targets, alphas
            if not self.alpha_per_target:
                scores = scores.mean(axis=0, keepdims=True)
        else:
            results = Y[:, :, None] - errors
            scores = self._scores(results, y, Y, {"sample_weight": weights} if weighted else {})
        scores = np.where(np.isfinite(scores), scores, -np.inf)
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

    def _scores(self, predictions, y, Y, options):
        scorer, model = get_scorer(self.scoring), _Same()
        nothing = np.empty((len(y), 1))

        def score(predicted, target):
            try:
                return float(scorer(model.of(predicted), nothing, target, **options))
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(f"scoring={shortened(self.scoring)} cannot judge: {error}") from error

        if self.alpha_per_target and Y.shape[1] > 1:
            pairs = zip(np.moveaxis(predictions, 1, 0), Y.T, strict=True)
            return np.array([[score(one, target) for one in rows.T] for rows, target in pairs])
        shaped = predictions if y.ndim == 2 else predictions[:, 0]
        return np.array([[score(shaped[..., k], y) for k in range(predictions.shape[2])]])

    # Folds -----------------------------------------------------------------------------------------------

    def _fit_folds(self, X, y, sample_weight, alphas):
        """Fit `Ridge` to folds, as scikit-learn's search does."""
        search = GridSearchCV(
            Ridge(fit_intercept=self.fit_intercept),
            {"alpha": alphas.tolist()},
            cv=self.cv,
            scoring=self.scoring,
        )
        with _as_data_errors():
            search.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))
        model = search.best_estimator_
        self.alpha_, self.best_score_ = float(search.best_params_["alpha"]), float(search.best_score_)
        self.coef_, self.intercept_ = model.coef_, model.intercept_
        for name in ("n_features_in_", "feature_names_in_"):
            if name in vars(self):
                delattr(self, name)
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        return self

    def predict(self, X: Matrix) -> Array:
        """Compute ``X @ coef_.T + intercept_``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return linear_predictor(self, self.predict, X)

    def _check_state(self):
        super()._check_state()
        check_shapes(self)


class _Same(RegressorMixin, BaseEstimator):
    """A regressor that has predicted already."""

    def of(self, predictions):
        """Take predictions."""
        self.predictions_ = predictions
        return self

    def predict(self, X):
        """Return them."""
        return self.predictions_


class LeftOut:
    """Errors of rows that are left out of ridge regressions, and the fits to all rows.

    With A the centred rows times the roots of their weights, from the eigenvalues of ``A^T A`` where there
    are fewer columns than rows, else from those of ``A A^T``. `Y`: float64 (n, n_targets). `weights`:
    float64 (n,). Attributes: `errors`: float64 (n, n_targets, n_alphas).
    """

    def __init__(self, X, Y, weights, fit_intercept, alphas):
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
        return coef, self.y_mean - coef @ self.x_mean

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
