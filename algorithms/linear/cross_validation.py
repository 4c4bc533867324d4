"""Sparse linear models whose penalty is chosen by cross-validation of a whole path."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ...errors import DataError
from .._validation import _as_data_errors
from .dask_input import check_matrix, check_vector
from .evaluation import choose, mean_and_error, path_scorer
from .folds import PathProblem, folds_of, score_folds
from .inputs import (
    check_alphas,
    check_labels,
    check_names,
    check_offset,
    check_penalty_factor,
    check_targets,
    check_weights,
)
from .lasso import ElasticNet
from .places import place_of
from .sparse_logistic import SparseLogisticRegression


class PathCV:
    """What the estimators share that cross-validate a path: grid, folds, scores, choice, picture."""

    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = {
        f"check_sample_weight_equivalence_on_{kind}_data": "equal to 1e-7 only with a tighter tol than 1e-4"
        for kind in ("dense", "sparse")
    }

    # What the estimators' constructors set, and what more than one of their bases declares.
    l1_ratio: Any
    eps: float
    n_alphas: Any
    alphas: Any
    cv: Any
    scoring: Any
    rule: str
    tol: float
    engine: str
    n_jobs: Any
    verbose: int
    dual_gap_: Any
    n_iter_: Any

    def _l1_ratios(self):
        try:
            ratios = np.atleast_1d(np.array(self.l1_ratio, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"l1_ratio must be a number or a vector of numbers: {error}") from error
        if ratios.ndim != 1 or not len(ratios):
            raise DataError(f"l1_ratio must be a number or a vector, got the shape {ratios.shape}")
        wrong = ratios[~((ratios >= 0) & (ratios <= 1))]
        if len(wrong):
            raise DataError(f"l1_ratio must lie between 0 and 1, got {wrong[0]:g}")
        return ratios.tolist()

    def _n_alphas(self):
        """How many alphas a grid has that is made; None where the alphas are given."""
        alphas = self.alphas if self.n_alphas is None else self.n_alphas
        return alphas if isinstance(alphas, Integral) else None

    def _search(self, X, problem, groups, losses=()):
        """Score all paths on all folds, choose a penalty, and fit the path to all rows.

        Parameters
        ----------
        X : ndarray or CSC array of shape (n_samples, n_features)
        problem : PathProblem
        groups : array-like or None
        losses : tuple of str
            Scores to compute beside `scoring`.

        Returns
        -------
        path : Path
            Of all rows.
        at : int
            The place on it that `rule` chooses.
        scores : list of ndarray
            Of `losses`.
        """
        classes = problem.classes
        path_scorer(self.scoring, classes)  # refuses before the work
        folds = folds_of(self.cv, len(problem.y), problem.y, groups, problem.weights, classes)
        with place_of(X, self.engine, self.n_jobs) as where:
            n_alphas, ratios = self._n_alphas(), self._l1_ratios()
            if n_alphas is None:
                grids = [(ratio, check_alphas(self.alphas)) for ratio in ratios]
            else:
                tasks = [(ratio, self.eps, n_alphas) for ratio in ratios]
                grids = list(zip(ratios, where.map(problem.grid, tasks, lambda: None), strict=True))
            (scores, *others), unsolved = score_folds(
                where,
                problem,
                grids,
                folds,
                [self.scoring, *losses],
                label=type(self).__name__,
                verbose=self.verbose,
            )
            self._check_scores(scores, classes)
            mean, error = mean_and_error(scores)
            chosen = int(np.unravel_index(np.argmax(mean), mean.shape)[0])  # of equals the first
            l1_ratio, alphas = grids[chosen]
            path = where.one(problem.path, l1_ratio, alphas, problem.weights)
        self._warn_unsolved([*unsolved, *path.unsolved], (len(grids) * len(folds) + 1) * len(alphas))
        best, spare = choose(mean[chosen], error[chosen])
        at = spare if self.rule == "1se" else best
        several = n_alphas is not None and len(grids) > 1
        self.alphas_ = np.array([grid for _, grid in grids]) if several else alphas
        self.scores_, self.scores_mean_, self.scores_se_ = map(self._squeezed, (scores, mean, error))
        self.alpha_, self.alpha_min_, self.alpha_1se_ = (float(alphas[k]) for k in (at, best, spare))
        self.l1_ratio_ = l1_ratio
        self.coef_path_, self.intercept_path_ = path.coefs, path.intercepts
        self.dual_gap_, self.n_iter_ = float(path.gaps[at]), int(path.rounds[at])
        return path, at, others

    def _squeezed(self, table):
        return table[0] if len(table) == 1 else table

    def _check_scores(self, scores, classes):
        lost = np.argwhere(~np.isfinite(scores))
        if len(lost):
            remedy = "use fewer folds, or another scoring"
            if classes is not None:
                remedy = f"its test rows may lack a class: {remedy}, or a cv that stratifies"
            raise DataError(
                f"scoring={self.scoring!r} is {scores[tuple(lost[0])]}, not a finite number, in fold "
                f"{lost[0][2]}; {remedy}"
            )

    def _warn_unsolved(self, gaps, n_fits):
        if gaps:
            warnings.warn(
                f"{type(self).__name__}: {len(gaps)} of {n_fits} fits did not reach tol={self.tol:g}; the "
                f"largest relative duality gap is {max(gaps):.1e}: raise max_iter or eps, or accept a "
                "larger tol",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _curve(self):
        """Return the alphas of the chosen share of the l1 penalty, their mean scores and standard errors."""
        if self.scores_mean_.ndim == 1:
            return self.alphas_, self.scores_mean_, self.scores_se_
        at = self._l1_ratios().index(self.l1_ratio_)
        alphas = self.alphas_ if self.alphas_.ndim == 1 else self.alphas_[at]
        return alphas, self.scores_mean_[at], self.scores_se_[at]

    def plot(self, axes=None, *, n_named=6):
        r"""Draw the coefficient paths and, below them, the cross-validation curve.

        Both are drawn over :math:`-\log_{10}` alpha, so that models grow to the right; the numbers above
        count the columns in the model. The solid line marks ``alpha_min_``, the dashed one
        ``alpha_1se_``. Of several values of `l1_ratio` the chosen one is drawn. Of a multinomial model a
        path is the Euclidean norm of a feature's coefficients over the classes.

        Parameters
        ----------
        axes : sequence of two matplotlib axes, optional
            For the coefficients and for the scores; by default a new figure of pyplot.
        n_named : int, default=6
            How many of the largest coefficients (at ``alpha_``) are coloured and named.

        Returns
        -------
        ndarray of two matplotlib axes

        Raises
        ------
        StradaskError
            If matplotlib is not installed.
        """
        from .plotting import plot_path

        check_is_fitted(self)
        alphas, mean, error = self._curve()
        names = getattr(self, "feature_names_in_", getattr(self, "vocabulary_", None))
        return plot_path(
            alphas,
            self.coef_path_,
            mean,
            error,
            alpha=self.alpha_,
            alpha_min=self.alpha_min_,
            alpha_1se=self.alpha_1se_,
            scoring=self.scoring,
            names=names,
            axes=axes,
            n_named=n_named,
        )


_CV_CONSTRAINTS: dict = {
    "eps": [Interval(Real, 0, 1, closed="neither")],
    "n_alphas": [Interval(Integral, 1, None, closed="left"), None],
    "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
    "cv": ["cv_object"],
    "scoring": [str, callable],
    "rule": [StrOptions({"min", "1se"})],
}


class ElasticNetCV(PathCV, ElasticNet):
    r"""Elastic net whose penalty, and share of the l1 penalty, are chosen by cross-validation.

    For each value of `l1_ratio` the whole path of falling penalties is fitted on every fold and scored
    on its test rows, with the objective, the solver and the input rules of `ElasticNet`. The mean
    score over the folds chooses; then the path is fitted to all rows, and the model is the one at ``alpha_``.
    As in scikit-learn the grid of penalties comes from all rows and is the same for every fold.

    A fold is learnt from with weights that are zero on its test rows: `X` is not copied. Each fold takes 16
    bytes a row, and while it is fitted what a fit takes. Paths are kept as sparse matrices.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

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
    engine : str, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; or a scheduler's address.
        On Dask a fold (and a value of `l1_ratio`) is a task, and each worker that has one must have room
        for `X`, which may be a Dask array; the results are those of ``"local"``.
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
        **_CV_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        l1_ratio=0.5,
        eps=1e-3,
        n_alphas=None,
        alphas=100,
        fit_intercept=True,
        precompute="auto",
        max_iter=1000,
        tol=1e-4,
        cv=None,
        copy_X=True,
        verbose=0,
        n_jobs=None,
        positive=False,
        random_state=None,
        selection="cyclic",
        engine="local",
        scoring="mse",
        rule="min",
        penalty_factor=None,
        standardize=False,
    ):
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

    def fit(self, X, y, sample_weight=None, *, groups=None):  # type: ignore[override]
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
        with self._unchanged_on_error():
            names, X = X, check_matrix(self, X)
            n_samples, n_features = X.shape
            y, sample_weight = check_vector(y, n_samples), check_vector(sample_weight, n_samples)
            check_names(self, names, y)
            with _as_data_errors():
                targets = column_or_1d(check_targets(y, n_samples, type(self).__name__), warn=True)
            problem = PathProblem(
                targets,
                check_weights(sample_weight, n_samples),
                check_penalty_factor(self.penalty_factor, n_features),
                self.standardize,
                self.fit_intercept,
                self.positive,
                self.tol,
                self.max_iter,
            )
            path, at, (errors,) = self._search(X, problem, groups, losses=("mse",))
            self.mse_path_ = self._squeezed(-errors)
            self.coef_ = path.coefs[:, [at]].toarray().ravel().astype(X.dtype)
            self.intercept_ = X.dtype.type(path.intercepts[at]) if self.fit_intercept else 0.0
        return self

    def __sklearn_tags__(self):
        """Tell scikit-learn that there is one target."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


class LassoCV(ElasticNetCV):
    r"""Lasso whose penalty is chosen by cross-validation.

    The path of falling penalties is fitted on every fold and scored on its test rows; the mean score over the
    folds chooses; then the path is fitted to all rows, and the model is the one at ``alpha_``. See
    `ElasticNetCV`, whose parameters and attributes it has with ``l1_ratio=1``, and `Lasso` for objective
    and solver.

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
    coef_, sparse_coef_, intercept_, alphas_, mse_path_, scores_, scores_mean_, scores_se_, coef_path_, \
    intercept_path_, dual_gap_, n_iter_, n_features_in_, feature_names_in_
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
        eps=1e-3,
        n_alphas=None,
        alphas=100,
        fit_intercept=True,
        precompute="auto",
        max_iter=1000,
        tol=1e-4,
        copy_X=True,
        cv=None,
        verbose=0,
        n_jobs=None,
        positive=False,
        random_state=None,
        selection="cyclic",
        engine="local",
        scoring="mse",
        rule="min",
        penalty_factor=None,
        standardize=False,
    ):
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


class SparseLogisticRegressionCV(PathCV, SparseLogisticRegression):
    r"""Sparse logistic regression whose penalty is chosen by cross-validation.

    For each value of `l1_ratio` the whole path of falling penalties is fitted on every fold and scored on
    its test rows, with the objective, the solver and the input rules of `SparseLogisticRegression`. The mean
    score over the folds chooses; then the path is fitted to all rows, and the model is the one at
    ``alpha_``. The grid of penalties comes from all rows and is the same for every fold.

    A fold is learnt from with weights that are zero on its test rows: `X` is not copied. Each fold takes 16
    bytes a row, and while it is fitted what a fit takes. Paths are kept as sparse matrices.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

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
    engine : str, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; or a scheduler's address.
        On Dask a fold (and a value of `l1_ratio`) is a task, and each worker that has one must have room
        for `X`, which may be a Dask array; the results are those of ``"local"``.
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
            if name not in ("alpha", "warm_start")
        },
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"],
        **_CV_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        l1_ratio=1.0,
        eps=1e-2,
        n_alphas=None,
        alphas=100,
        fit_intercept=True,
        class_weight=None,
        positive=False,
        penalty_factor=None,
        standardize=False,
        max_iter=1000,
        tol=1e-4,
        cv=None,
        scoring="deviance",
        rule="min",
        engine="local",
        n_jobs=None,
        verbose=0,
    ):
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

    def fit(self, X, y, sample_weight=None, *, offset=None, groups=None):  # type: ignore[override]
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
        with self._unchanged_on_error():
            names, X = X, check_matrix(self, X)
            n_samples, n_features = X.shape
            y, sample_weight = check_vector(y, n_samples), check_vector(sample_weight, n_samples)
            check_names(self, names, y)
            classes, numbers = check_labels(y, n_samples, type(self).__name__)
            problem = PathProblem(
                numbers,
                check_weights(sample_weight, n_samples),
                check_penalty_factor(self.penalty_factor, n_features),
                self.standardize,
                self.fit_intercept,
                self.positive,
                self.tol,
                self.max_iter,
                classes=classes,
                class_weight=self.class_weight,
                offset=check_offset(offset, n_samples, 1 if len(classes) == 2 else len(classes)),
            )
            path, at, _ = self._search(X, problem, groups)
            chosen = slice(at * problem.n_outputs, (at + 1) * problem.n_outputs)
            self.classes_ = classes
            self.coef_ = path.coefs[:, chosen].toarray().T.astype(X.dtype)
            self.intercept_ = path.intercepts[chosen].astype(X.dtype)
        return self
