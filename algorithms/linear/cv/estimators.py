"""Sparse linear models whose penalty is chosen by cross-validation of a whole path."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

from ...._typing import Callback, Engine, Matrix, RandomState, Vector
from ..._base import documented, keep_parameters
from ...inputs.matrices import _as_data_errors
from ...inputs.targets import check_labels, check_offset, check_targets
from ..elastic_net import ElasticNet
from ..losses import loss_of
from ..sparse_logistic import SparseLogisticRegression
from .path_cv import CV_CONSTRAINTS, CV_DOCS, SHARES, PathCV

__all__ = ["ElasticNetCV", "LassoCV", "SparseLogisticRegressionCV"]

_DOCS = CV_DOCS | {
    "scoring": """
    scoring : str or callable, default="mse"
        The score that chooses, the greater the better: "mse" is minus the mean squared error, "deviance" the
        same; or the name of any scorer of scikit-learn ("r2", "neg_mean_absolute_error", ...), or
        ``scoring(estimator, X, y)``. With sample weights scores are weighted.""",
    "raises": """
    Raises
    ------
    DataError
        For data as the model of one penalty refuses them; for a fold that lacks rows or a class.

    Warns
    -----
    ConvergenceWarning
        Once, if fits did not reach `tol`: how many, and the largest gap.""",
}


def _constraints(cls, *without):
    """The constraints of a search, from those of its model."""
    model = cls._parameter_constraints
    without = "alpha", "l1_ratio", "warm_start", "schedule", *without
    return {name: kinds for name, kinds in model.items() if name not in without} | CV_CONSTRAINTS


@documented(_DOCS)
class ElasticNetCV(PathCV, ElasticNet):
    r"""Elastic net whose penalty, and share of the l1 penalty, are chosen by cross-validation.

    For each value of `l1_ratio` the whole path of falling penalties is fitted on every fold and scored
    on its test rows, with the objective, the solver and the input rules of `ElasticNet`. The mean
    score over the folds chooses; then the path is fitted to all rows, and the model is the one at ``alpha_``.
    As in scikit-learn the grid of penalties comes from all rows and is the same for every fold.

    A fold is learnt from with weights that are zero on its test rows: `X` is not copied. Each fold takes 16
    bytes a row, and while it is fitted what a fit takes. Paths are kept as sparse matrices.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    l1_ratio : float or list of float, default=0.5
        Share of the l1 penalty; of a list the value with the best mean score is chosen, the first of equals.
    n_alphas : int, optional
        The same as an integer `alphas`, by which it is replaced in newer versions of scikit-learn.
    %(search)s
    %(scoring)s
    fit_intercept, precompute, max_iter, tol, copy_X, positive, random_state, selection
        See `ElasticNet`.
    penalty_factor, standardize
        See `ElasticNet`. The standard deviations of a fold are those of its training rows.

    Attributes
    ----------
    %(choice)s
    mse_path_ : ndarray of the shape of `scores_`
        Mean squared error on the test rows of each fold, whatever `scoring` is.
    coef_, sparse_coef_, intercept_, n_features_in_, feature_names_in_
        See `ElasticNet`.
    dual_gap_ : float
        Of the model, in the scale of the objective.
    n_iter_ : int
        Rounds for the model, from the one before it on the path.

    %(raises)s

    See Also
    --------
    LassoCV : The same with ``l1_ratio=1``.
    sklearn.linear_model.ElasticNetCV : The same search by coordinate descent over all columns.

    References
    ----------
    One standard error: Breiman, Friedman, Olshen, Stone, "Classification and regression trees", 1984,
    section 3.4.3.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(80, 200, n_informative=4, noise=5.0, random_state=0)
    >>> model = sd.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=20, eps=0.05, cv=4).fit(X, y)
    >>> model.l1_ratio_, model.mse_path_.shape
    (1.0, (2, 20, 4))
    >>> model.alpha_ == model.alpha_min_ <= model.alpha_1se_
    True
    """

    _parameter_constraints: ClassVar[dict] = {**_constraints(ElasticNet), "l1_ratio": SHARES}
    _ratios_name = "l1_ratio"

    def __init__(
        self,
        *,
        l1_ratio: Any = 0.5,
        eps: float = 1e-3,
        n_alphas: int | None = None,
        alphas: Any = 100,
        fit_intercept: bool = True,
        precompute: Any = "auto",
        max_iter: int | None = 1000,
        tol: float = 1e-4,
        cv: Any = None,
        copy_X: bool = True,
        verbose: int = 0,
        n_jobs: int | None = None,
        positive: bool = False,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
        engine: Engine = "local",
        scoring: Any = "mse",
        rule: str = "min",
        penalty_factor: Vector | None = None,
        standardize: bool = False,
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
        """Search the path on the folds, and fit the model to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, in fits and in scores; as in scikit-learn all folds count the
            same in the mean score.
        offset : array-like of shape (n_samples,), optional
            Added to the linear predictor of each row, in fits and in scores.
        %(folds)s

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            X, problem = draft._read_problem(X, y, sample_weight, offset=offset)
            model, (errors,) = draft._search(X, problem, groups, callback, losses=("mse",))
            draft.mse_path_ = draft._squeezed(-errors)
            draft.coef_ = model.dense(X.shape[1], X.dtype)
            draft.intercept_ = float(model.intercept) if draft.fit_intercept else 0.0
            draft.dual_gap_, draft.n_iter_ = float(model.gap_absolute), model.rounds
        return self

    def _checked_target(self, y, n_samples, offset=None):
        with _as_data_errors():
            y = column_or_1d(check_targets(y, n_samples, type(self).__name__), warn=True)
        return {"y": y, "offset": check_offset(offset, n_samples, 1)}

    def __sklearn_tags__(self):
        """Declare a single target to scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


class LassoCV(ElasticNetCV):
    r"""Lasso whose penalty is chosen by cross-validation.

    The path of falling penalties is fitted on every fold and scored on its test rows; the mean score over the
    folds chooses; then the path is fitted to all rows, and the model is the one at ``alpha_``. See
    `ElasticNetCV`, whose parameters and attributes it has with ``l1_ratio=1``, and `Lasso` for objective
    and solver.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    alphas, eps, n_alphas, cv, scoring, rule, engine, n_jobs, verbose
        See `ElasticNetCV`.
    fit_intercept, precompute, max_iter, tol, copy_X, positive, random_state, selection
        See `ElasticNetCV`.
    penalty_factor, standardize
        See `ElasticNetCV`.

    Attributes
    ----------
    alpha_, alpha_min_, alpha_1se_ : float
        The penalty of the model, by `rule` one of the other two: of the best mean score; the largest within
        one standard error of it.
    `coef_`, `sparse_coef_`, `intercept_`, `alphas_`, `mse_path_`, `scores_`, `scores_mean_`, ... : various
        See `ElasticNetCV`.

    See Also
    --------
    Lasso : For one penalty.
    sklearn.linear_model.LassoCV : The same search by coordinate descent over all columns.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(80, 500, n_informative=4, noise=20.0, random_state=0)
    >>> best = sd.LassoCV(alphas=30, eps=0.03).fit(X, y)
    >>> sparing = sd.LassoCV(alphas=30, eps=0.03, rule="1se").fit(X, y)
    >>> sparing.alpha_ == best.alpha_1se_, int((sparing.coef_ != 0).sum()) <= int((best.coef_ != 0).sum())
    (True, True)
    """

    _parameter_constraints: ClassVar[dict] = _constraints(ElasticNet)
    l1_ratio = 1.0

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        n_alphas: int | None = None,
        alphas: Any = 100,
        fit_intercept: bool = True,
        precompute: Any = "auto",
        max_iter: int | None = 1000,
        tol: float = 1e-4,
        copy_X: bool = True,
        cv: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        positive: bool = False,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
        engine: Engine = "local",
        scoring: Any = "mse",
        rule: str = "min",
        penalty_factor: Vector | None = None,
        standardize: bool = False,
    ) -> None:
        keep_parameters(self, locals())


@documented(_DOCS)
class SparseLogisticRegressionCV(PathCV, SparseLogisticRegression):
    r"""Sparse logistic regression whose penalty is chosen by cross-validation.

    As `ElasticNetCV`, with the objective, the solver and the input rules of `SparseLogisticRegression`: the
    whole path is fitted on every fold for each of `l1_ratios`, the mean score chooses, and the model is the
    one at ``alpha_`` of the path on all rows.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    l1_ratios : float or list of float, default=1.0
        Share of the l1 penalty; of a list the value with the best mean score is chosen, the first of equals.
    n_alphas : int, optional
        The same as an integer `alphas`.
    %(search)s
    scoring : str or callable, default="deviance"
        The score that chooses, the greater the better: "deviance" is minus the mean deviance, twice the log
        loss; or the name of any scorer of scikit-learn ("roc_auc", "accuracy", "neg_log_loss", ...), or
        ``scoring(estimator, X, y)``. With sample weights scores are weighted; class weights do not enter.
    fit_intercept, class_weight, positive, penalty_factor, standardize, max_iter, tol
        See `SparseLogisticRegression`. "balanced" class weights, and standard deviations, of a fold are
        those of its training rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    %(choice)s
    sparse_coef_, dual_gap_, n_iter_, n_features_in_, feature_names_in_
        See `SparseLogisticRegression`; `n_iter_` counts rounds from the model before on the path.

    %(raises)s

    See Also
    --------
    SparseLogisticRegression : For one penalty.
    sklearn.linear_model.LogisticRegressionCV : Chooses ``C = 1 / (alpha * sum(w))`` from a grid.

    Examples
    --------
    >>> import stradask as sd
    >>> make = sd.datasets.make_sparse_classification
    >>> X, y, _ = make(200, 500, n_informative=5, density=0.2, random_state=0)
    >>> model = sd.SparseLogisticRegressionCV(alphas=15, eps=0.05, cv=3, scoring="roc_auc").fit(X, y)
    >>> bool(model.scores_mean_.max() > 0.8), model.coef_.shape
    (True, (1, 500))
    """

    _parameter_constraints: ClassVar[dict] = {**_constraints(SparseLogisticRegression), "l1_ratios": SHARES}
    path: Any = None  # that of the chosen share is `coef_path_`

    def __init__(
        self,
        *,
        l1_ratios: Any = 1.0,
        eps: float = 1e-3,
        n_alphas: int | None = None,
        alphas: Any = 100,
        fit_intercept: bool = True,
        class_weight: Any = None,
        positive: bool = False,
        penalty_factor: Vector | None = None,
        standardize: bool = False,
        max_iter: int | None = 1000,
        tol: float = 1e-4,
        cv: Any = None,
        scoring: Any = "deviance",
        rule: str = "min",
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
        """Search the path on the folds, and fit the model to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, in fits and in scores.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Added to the linear predictor of each row, in fits and in scores.
        %(folds)s

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            X, problem = draft._read_problem(X, y, sample_weight, offset=offset)
            model, _ = draft._search(X, problem, groups, callback)
            draft.classes_ = problem.classes
            draft.coef_ = np.atleast_2d(model.dense(X.shape[1], X.dtype))
            draft.intercept_ = np.atleast_1d(model.intercept).astype(X.dtype)
            draft.dual_gap_, draft.n_iter_ = float(model.gap_absolute), model.rounds
        return self

    def _checked_target(self, y, n_samples, offset=None):
        classes, numbers = check_labels(y, n_samples, type(self).__name__)
        offset = check_offset(offset, n_samples, loss_of(classes).n_outputs)
        return {"y": numbers, "classes": classes, "class_weight": self.class_weight, "offset": offset}
