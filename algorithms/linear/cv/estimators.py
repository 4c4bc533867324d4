"""Sparse linear models whose penalty is chosen by cross-validation of a whole path."""

from numbers import Real
from typing import Any, ClassVar, Self

from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import column_or_1d

from ...._typing import Engine, Matrix, RandomState, Vector
from ...inputs.matrices import _as_data_errors
from ...inputs.targets import check_targets
from ..elastic_net import ElasticNet
from .path_cv import CV_CONSTRAINTS, PathCV
from .sparse_logistic_cv import SparseLogisticRegressionCV

__all__ = ["ElasticNetCV", "LassoCV", "SparseLogisticRegressionCV"]


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
    eps : float, default=1e-3
        The smallest alpha of a grid that is made, as a part of the largest.
    n_alphas : int, optional
        The same as an integer `alphas`, by which it is replaced in newer versions of scikit-learn.
    alphas : int or array-like, default=100
        How many alphas, in geometric steps from the smallest at which every coefficient is zero down to `eps`
        times that; or the alphas themselves.
    fit_intercept, precompute, max_iter, tol, copy_X, positive, random_state, selection
        See `ElasticNet`.
    cv : int, splitter, iterable of (train, test) or None, default=None
        As in scikit-learn; None is 5 folds of neighbouring rows (`KFold`).
    verbose : int, default=0
        1 shows a progress bar over the fits of the folds.
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address. On Dask a fold (and a value of `l1_ratio`) is a task, and each worker that has one must have
        room for `X`, which may be a Dask array; the results are those of ``"local"``.
    n_jobs : int or None, default=None
        Threads: one takes a fold (and a value of `l1_ratio`) at a time.
    scoring : str or callable, default="mse"
        The score that chooses, the greater the better: "mse" is minus the mean squared error, "deviance" the
        same; or the name of any scorer of scikit-learn ("r2", "neg_mean_absolute_error", ...), or
        ``scoring(estimator, X, y)``. With sample weights scores are weighted.
    rule : {"min", "1se"}, default="min"
        Which penalty the model has: that of the best mean score, or the largest whose mean score is within
        one standard error of the best (fewer columns for nearly the same score).
    penalty_factor, standardize
        See `ElasticNet`. The standard deviations of a fold are those of its training rows.

    Attributes
    ----------
    alpha_ : float
        The penalty of the model: by `rule` one of the next two.
    alpha_min_, alpha_1se_ : float
        The penalty of the best mean score; the largest one within one standard error of it.
    l1_ratio_ : float
        The share of the l1 penalty with the best mean score.
    coef_ : ndarray of shape (n_features,)
    sparse_coef_ : CSR array of shape (1, n_features)
    intercept_ : float
    alphas_ : ndarray of shape (n_alphas,) or (n_l1_ratio, n_alphas)
        Falling.
    mse_path_ : ndarray of shape (n_alphas, n_folds) or (n_l1_ratio, n_alphas, n_folds)
        Mean squared error on the test rows of each fold, whatever `scoring` is.
    scores_ : ndarray of the same shape
        By `scoring`.
    scores_mean_, scores_se_ : ndarray of shape (n_alphas,) or (n_l1_ratio, n_alphas)
        Mean over the folds, and its standard error.
    coef_path_ : CSC array of shape (n_features, n_alphas)
        Coefficients on all rows for each alpha, with ``l1_ratio_``.
    intercept_path_ : ndarray of shape (n_alphas,)
    dual_gap_ : float
        Of the model, in the scale of the objective.
    n_iter_ : int
        Rounds for the model, from the one before it on the path.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    DataError
        For data as `ElasticNet` refuses them; for a fold without training or test rows.

    Warns
    -----
    ConvergenceWarning
        Once, if fits did not reach `tol`: how many, and the largest gap.

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

    _parameter_constraints: ClassVar[dict] = {
        **{
            name: allowed
            for name, allowed in ElasticNet._parameter_constraints.items()
            if name not in ("alpha", "warm_start", "schedule")
        },
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"],
        **CV_CONSTRAINTS,
    }

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
        self.l1_ratio = l1_ratio
        self.eps = eps
        self.n_alphas = n_alphas
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.copy_X = copy_X
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.engine = engine
        self.scoring = scoring
        self.rule = rule
        self.penalty_factor = penalty_factor
        self.standardize = standardize

    def fit(  # type: ignore[override]
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, groups: Vector | None = None
    ) -> Self:
        """Search the path on the folds, and fit the model to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, in fits and in scores; as in scikit-learn all folds count the
            same in the mean score.
        groups : array-like of shape (n_samples,), optional
            Given to the splitter of `cv`, for instance `GroupKFold`.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            X, _, model, (errors,) = draft._fit_path(X, y, sample_weight, groups, losses=("mse",))
            draft.mse_path_ = draft._squeezed(-errors)
            draft.coef_ = model.dense(X.shape[1], X.dtype)
            draft.intercept_ = float(model.intercept) if draft.fit_intercept else 0.0
        return self

    def _checked_target(self, y, n_samples, offset):
        with _as_data_errors():
            return {"y": column_or_1d(check_targets(y, n_samples, type(self).__name__), warn=True)}

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
    eps : float, default=1e-3
        The smallest alpha of a grid that is made, as a part of the largest.
    n_alphas : int, optional
        The same as an integer `alphas`, by which it is replaced in newer versions of scikit-learn.
    alphas : int or array-like, default=100
        How many alphas, in geometric steps from the smallest at which every coefficient is zero down to `eps`
        times that; or the alphas themselves.
    fit_intercept, precompute, max_iter, tol, copy_X, cv, verbose, n_jobs, positive, random_state, selection
        See `ElasticNetCV`.
    engine, scoring, rule, penalty_factor, standardize
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

    _parameter_constraints: ClassVar[dict] = {
        name: allowed for name, allowed in ElasticNetCV._parameter_constraints.items() if name != "l1_ratio"
    }
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
        self.eps = eps
        self.n_alphas = n_alphas
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.copy_X = copy_X
        self.cv = cv
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.engine = engine
        self.scoring = scoring
        self.rule = rule
        self.penalty_factor = penalty_factor
        self.standardize = standardize
