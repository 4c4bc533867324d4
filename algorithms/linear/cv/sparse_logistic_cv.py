"""Sparse logistic regression whose penalty is chosen by cross-validation of a whole path."""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from ...._typing import Engine, Matrix, Vector
from ...inputs.targets import check_labels, check_offset
from ..losses import loss_of
from ..sparse_logistic import SparseLogisticRegression
from .path_cv import CV_CONSTRAINTS, PathCV


class SparseLogisticRegressionCV(PathCV, SparseLogisticRegression):
    r"""Sparse logistic regression whose penalty is chosen by cross-validation.

    For each value of `l1_ratio` the whole path of falling penalties is fitted on every fold and scored on
    its test rows, with the objective, the solver and the input rules of `SparseLogisticRegression`. The mean
    score over the folds chooses; then the path is fitted to all rows, and the model is the one at
    ``alpha_``. The grid of penalties comes from all rows and is the same for every fold.

    A fold is learnt from with weights that are zero on its test rows: `X` is not copied. Each fold takes 16
    bytes a row, and while it is fitted what a fit takes. Paths are kept as sparse matrices.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    l1_ratio : float or list of float, default=1.0
        Share of the l1 penalty; of a list the value with the best mean score is chosen, the first of equals.
    eps : float, default=1e-2
        The smallest alpha of a grid that is made, as a part of the largest. (Where a plane separates the
        classes, coefficients grow without bound as alpha falls.)
    n_alphas : int, optional
        The same as an integer `alphas`.
    alphas : int or array-like, default=100
        How many alphas, in geometric steps from the smallest at which every coefficient is zero down to
        `eps` times that; or the alphas themselves.
    fit_intercept, class_weight, positive, penalty_factor, standardize, max_iter, tol
        See `SparseLogisticRegression`. "balanced" class weights, and standard deviations, of a fold are
        those of its training rows.
    cv : int, splitter, iterable of (train, test) or None, default=None
        As in scikit-learn; None is 5 stratified folds.
    scoring : str or callable, default="deviance"
        The score that chooses, the greater the better: "deviance" is minus the mean deviance, twice the log
        loss; or the name of any scorer of scikit-learn ("roc_auc", "accuracy", "neg_log_loss", ...), or
        ``scoring(estimator, X, y)``. With sample weights scores are weighted; class weights do not enter.
    rule : {"min", "1se"}, default="min"
        Which penalty the model has: that of the best mean score, or the largest whose mean score is within
        one standard error of the best (fewer columns for nearly the same score).
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address. On Dask a fold (and a value of `l1_ratio`) is a task, and each worker that has one must have
        room for `X`, which may be a Dask array; the results are those of ``"local"``.
    n_jobs : int or None, default=None
        Threads: one takes a fold (and a value of `l1_ratio`) at a time.
    verbose : int, default=0
        1 shows a progress bar over the fits of the folds.

    Attributes
    ----------
    alpha_ : float
        The penalty of the model: by `rule` one of the next two.
    alpha_min_, alpha_1se_ : float
        The penalty of the best mean score; the largest one within one standard error of it.
    l1_ratio_ : float
        The share of the l1 penalty with the best mean score.
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    alphas_ : ndarray of shape (n_alphas,) or (n_l1_ratio, n_alphas)
        Falling.
    scores_ : ndarray of shape (n_alphas, n_folds) or (n_l1_ratio, n_alphas, n_folds)
        By `scoring`, on the test rows of each fold.
    scores_mean_, scores_se_ : ndarray of shape (n_alphas,) or (n_l1_ratio, n_alphas)
        Mean over the folds, and its standard error.
    coef_path_ : CSC array of shape (n_features, n_alphas) or (n_features, n_alphas * n_classes)
        Coefficients on all rows for each alpha, with ``l1_ratio_``; the classes of an alpha stand together.
    intercept_path_ : ndarray of shape (n_alphas,) or (n_alphas * n_classes,)
    sparse_coef_, dual_gap_, n_iter_, n_features_in_, feature_names_in_
        See `SparseLogisticRegression`; `n_iter_` counts rounds from the model before on the path.

    Raises
    ------
    DataError
        For data as `SparseLogisticRegression` refuses them; for a fold that lacks rows or a class.

    Warns
    -----
    ConvergenceWarning
        Once, if fits did not reach `tol`: how many, and the largest gap.

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

    _parameter_constraints: ClassVar[dict] = {
        **{
            name: allowed
            for name, allowed in SparseLogisticRegression._parameter_constraints.items()
            if name not in ("alpha", "schedule", "warm_start")
        },
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"],
        **CV_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        l1_ratio: Any = 1.0,
        eps: float = 1e-2,
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
        self.l1_ratio = l1_ratio
        self.eps = eps
        self.n_alphas = n_alphas
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.positive = positive
        self.penalty_factor = penalty_factor
        self.standardize = standardize
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(  # type: ignore[override]
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        groups: Vector | None = None,
    ) -> Self:
        """Search the path on the folds, and fit the model to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, in fits and in scores; all folds count the same in the mean
            score.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Added to the linear predictor of each row, in fits and in scores.
        groups : array-like of shape (n_samples,), optional
            Given to the splitter of `cv`, for instance `GroupKFold`.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            X, classes, model, _ = draft._fit_path(X, y, sample_weight, groups, offset=offset)
            draft.classes_ = classes
            draft.coef_ = np.atleast_2d(model.dense(X.shape[1], X.dtype))
            draft.intercept_ = np.atleast_1d(model.intercept).astype(X.dtype)
        return self

    def _checked_target(self, y, n_samples, offset):
        classes, numbers = check_labels(y, n_samples, type(self).__name__)
        offset = check_offset(offset, n_samples, loss_of(classes).n_outputs)
        return {"y": numbers, "classes": classes, "class_weight": self.class_weight, "offset": offset}
