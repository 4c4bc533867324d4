"""Logistic regression whose penalty is chosen by cross-validation, with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ...._typing import Callback, Engine, Matrix, RandomState, Vector
from ....errors import DataError, shortened
from ..._base import documented, keep_parameters, weights_differ
from ...inputs.matrices import check_vector
from ...inputs.row_order import check_row_matrix
from ...inputs.targets import all_weights, check_labels, check_names, check_offset, weights_of_classes
from ..logistic_regression import LogisticRegression
from ..losses import loss_of
from .evaluation import choose, mean_and_error, path_scorer
from .folds import fits_to_fold, folds_of, tasks_over
from .path_cv import CV_DOCS


@documented(CV_DOCS)
class LogisticRegressionCV(LogisticRegression):
    r"""Logistic regression whose `C` and share of the l1 penalty are chosen by cross-validation.

    On each fold a model is fitted to each `C`, from the smallest to the largest, each from the one before, by
    `LogisticRegression`, and scored on the test rows. The best mean score chooses, and the model is fitted to
    all rows. A fold is learnt from with weights that are zero on its test rows: `X` is not copied, and every
    fold knows all classes.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    Cs : int or array-like, default=10
        The values of `C`; or how many, from 1e-4 to 1e4 in geometric steps.
    l1_ratios : float, array-like or None, default=None
        Shares of the l1 penalty; None is 0, the squared penalty.
    fit_intercept, class_weight, solver, tol, max_iter, random_state, standardize, dual, intercept_scaling
        See `LogisticRegression`. "balanced" weights are those of all rows, standard deviations of a fold
        those of its training rows.
    cv : int, splitter, iterable of (train, test) or None, default=None
        As in scikit-learn; None is 5 stratified folds.
    penalty : {"auto", "l1", "l2", "elasticnet", None}, default="auto"
        As in `LogisticRegression`, for `l1_ratios`.
    scoring : str, callable or None, default=None
        As in scikit-learn; None is the accuracy. With `sample_weight` scores are weighted.
    engine : str or distributed.Client, default="local"
        Where folds are fitted: ``"local"``, ``"dask"`` (the current client), a client, or the address of a
        Dask scheduler. Each worker that fits a fold needs memory for `X`.
    n_jobs : int or None, default=None
        Threads: one takes a fold and a share of the l1 penalty at a time.
    verbose : int, default=0
        1 shows a progress bar over the folds.
    refit : bool, default=True
        False takes the mean of the folds' best coefficients, `C` and l1 ratios in place of a fit to all rows.

    Attributes
    ----------
    classes_, coef_, intercept_, solver_, history_, n_features_in_, feature_names_in_
        See `LogisticRegression`; with ``refit=False`` there are no `solver_` and `history_`.
    C_, l1_ratio_ : float
        Those of the model.
    Cs_, l1_ratios_ : ndarray
        Rising, as they were tried; as they were given.
    scores_ : ndarray of shape (n_folds, n_l1_ratios, n_Cs)
    coefs_paths_ : ndarray of shape (n_folds, n_l1_ratios, n_Cs, n_outputs, n_features + fit_intercept)
        Coefficients on the folds, intercepts last; 1 output for two classes.
    n_iter_ : ndarray of shape (n_folds, n_l1_ratios, n_Cs)
        Steps of each fit.

    Raises
    ------
    DataError
        As `LogisticRegression`; for a fold whose training rows lack a class.

    See Also
    --------
    SparseLogisticRegressionCV : For l1 penalties and many columns: a path of penalties on working sets.
    sklearn.linear_model.LogisticRegressionCV : The same search; attributes are those of
        ``use_legacy_attributes=False``.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = sd.LogisticRegressionCV(Cs=4, scoring="neg_log_loss").fit(X, y)
    >>> model.scores_.shape, model.score(X, y) > 0.95
    ((5, 1, 4), True)
    """

    _parameter_constraints: ClassVar[dict] = {
        **{
            name: allowed
            for name, allowed in LogisticRegression._parameter_constraints.items()
            if name not in ("C", "l1_ratio", "warm_start", "n_replicas", "staleness")
        },
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "l1_ratios": [Interval(Real, 0, 1, closed="both"), "array-like", None],
        "cv": ["cv_object"],
        "scoring": [str, callable, None],
        "refit": ["boolean"],
    }
    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = weights_differ(
        "objectives agree to tol; a weak penalty leaves coefficients of several classes less than 1e-7"
    )
    C, l1_ratio, warm_start, n_replicas, staleness = 1.0, 0.0, False, 2, 0

    def __init__(
        self,
        *,
        Cs: Any = 10,
        l1_ratios: Any = None,
        fit_intercept: bool = True,
        cv: Any = None,
        penalty: str | None = "auto",
        scoring: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        refit: bool = True,
        random_state: RandomState | None = None,
        engine: Engine = "local",
        standardize: bool = False,
        dual: bool = False,
        intercept_scaling: float = 1,
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
        """Search on the folds, and fit the model to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A row of weight 2 counts as two rows.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Added to the linear predictor of each row, in fits and in scores.
        %(folds)s

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            draft.Cs_, draft.l1_ratios_ = draft._grid()
            rows = check_row_matrix(draft, X)
            check_names(draft, X, y)
            draft.classes_, numbers = check_labels(y, rows.shape[0], type(draft).__name__)
            weights = all_weights(sample_weight, len(numbers))
            n_outputs = loss_of(draft.classes_).n_outputs
            offset = check_offset(check_vector(offset, len(numbers)), len(numbers), n_outputs)
            model = draft._model(numbers, weights)
            folds = folds_of(draft.cv, len(numbers), numbers, groups, weights, draft.classes_)
            data = numbers, None if sample_weight is None else weights, offset, model
            draft._fit_folds(rows, folds, data, callback)
            draft._choose(rows, draft.classes_[numbers], weights, offset, model)
        return self

    def _fit_folds(self, rows, folds, data, callback):
        """Fit and score all C and shares of the l1 norm on all folds."""
        scorer = path_scorer("accuracy" if self.scoring is None else self.scoring, self.classes_)
        work = [(0, fold, ratio, scorer, *data) for fold in folds for ratio in self.l1_ratios_]
        bar = {"label": type(self).__name__, "verbose": self.verbose, "callback": callback}
        with tasks_over(rows, self.engine, self.n_jobs) as tasks:
            results = tasks.map(self._path, work, unit="fold", **bar)
        scores, paths, steps = (np.array(values) for values in zip(*results, strict=True))
        shape = len(folds), len(self.l1_ratios_), len(self.Cs_)
        self.scores_, self.n_iter_ = scores.reshape(shape), steps.reshape(shape)
        self.coefs_paths_ = paths.reshape(*shape, *paths.shape[2:])

    def _model(self, numbers, weights):
        """The estimator of all fits, with the class weights of all rows."""
        masses = np.bincount(numbers, weights, minlength=len(self.classes_))
        of_class = weights_of_classes(self.class_weight, self.classes_, masses)
        return LogisticRegression(
            fit_intercept=self.fit_intercept, solver=self._method, tol=self.tol, max_iter=self.max_iter,
            class_weight=dict(zip(self.classes_.tolist(), of_class.tolist(), strict=True)),
            random_state=self.random_state, warm_start=True, n_jobs=1, standardize=self.standardize,
        )  # fmt: skip

    def _grid(self):
        try:
            Cs = (
                np.logspace(-4, 4, self.Cs)
                if isinstance(self.Cs, Integral)
                else np.asarray(self.Cs, np.float64)
            )
            ratios = np.atleast_1d(np.asarray(0.0 if self.l1_ratios is None else self.l1_ratios, np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"Cs and l1_ratios must be numbers, got {shortened((self.Cs, self.l1_ratios))}"
            ) from error
        if Cs.ndim != 1 or not len(Cs) or not (Cs > 0).all():
            raise DataError(f"Cs must be a number of values, or values above 0, got {shortened(self.Cs)}")
        if ratios.ndim != 1 or not len(ratios) or not ((ratios >= 0) & (ratios <= 1)).all():
            raise DataError(f"l1_ratios must lie between 0 and 1, got {shortened(self.l1_ratios)}")
        if self.penalty in ("l1", "l2"):
            ratios = np.array([float(self.penalty == "l1")])
        elif self.penalty is None:
            raise DataError("penalty=None leaves no C to choose: fit LogisticRegression(penalty=None)")
        return np.sort(Cs), ratios

    def _path(self, X, fold, ratio, scorer, numbers, weights, offset, model):
        """Fit and score all C on a fold: scores, coefficients with intercepts, steps."""
        model, test = clone(model).set_params(l1_ratio=float(ratio)), fold.test
        decisions, coefs, steps = [], [], []
        for _, decision in fits_to_fold(X, fold, model, "C", self.Cs_, self.classes_[numbers], offset):
            decisions.append(decision.reshape(len(test), -1))
            ends = [model.intercept_[:, None]] if self.fit_intercept else []
            coefs.append(np.hstack([model.coef_, *ends]))
            steps.append(model.n_iter_)
        weights = None if weights is None else weights[test]
        return scorer(X, numbers[test], test, np.stack(decisions, axis=1), weights), coefs, steps

    def _choose(self, X, labels, weights, offset, model):
        """Take the best mean score and fit to all rows; or the mean of the folds' best."""
        by_C = self.scores_.transpose(0, 2, 1)  # of equals the smallest C, then the first share
        if not np.isfinite(by_C).all():
            raise DataError(
                f"scoring={shortened(self.scoring)} is no finite number on some fold: use fewer folds"
            )
        means = by_C.mean(axis=0)
        flat = [int(means.argmax())] if self.refit else by_C.reshape(len(by_C), -1).argmax(axis=1)
        at_C, at_ratio = np.unravel_index(flat, means.shape)
        self.C_, self.l1_ratio_ = float(self.Cs_[at_C].mean()), float(self.l1_ratios_[at_ratio].mean())
        if self.refit:
            model.set_params(C=self.C_, l1_ratio=self.l1_ratio_)
            model.fit(X, labels, weights, offset=offset)
            for name in ("coef_", "intercept_", "solver_", "history_"):
                setattr(self, name, getattr(model, name))
            self._warn_of_method()
            return
        chosen = self.coefs_paths_[np.arange(len(flat)), at_ratio, at_C].mean(axis=0)
        n_features = X.shape[1]
        self.coef_ = np.ascontiguousarray(chosen[:, :n_features])
        self.intercept_ = chosen[:, n_features] if self.fit_intercept else np.zeros(len(chosen), X.dtype)

    def plot(self, axes: Any = None, *, n_named: int = 6) -> Any:
        """Draw mean coefficients of the folds and, below them, mean scores, over ``alpha = 1 / C``.

        Of the share of the l1 penalty with the best mean score; see `LassoCV.plot`.

        Parameters
        ----------
        axes : sequence of two matplotlib axes, optional
            For the coefficients and for the scores; by default a new figure of pyplot.
        n_named : int, default=6
            How many of the largest coefficients are coloured and named.

        Returns
        -------
        ndarray of two matplotlib axes
        """
        from .plotting import plot_path

        check_is_fitted(self)
        means, errors = mean_and_error(np.moveaxis(self.scores_, 0, -1))
        at = int(means.max(axis=1).argmax())
        best, spare = choose(means[at], errors[at])
        coefs = self.coefs_paths_[:, at, :, :, : self.n_features_in_].mean(axis=0)
        paths = sparse.csc_array(coefs.reshape(-1, self.n_features_in_).T)
        alphas = 1 / self.Cs_
        return plot_path(
            alphas, paths, means[at], errors[at], alpha=alphas[best], alpha_min=alphas[best],
            alpha_1se=alphas[spare], scoring=self.scoring or "accuracy",
            names=getattr(self, "feature_names_in_", None), axes=axes, n_named=n_named,
        )  # fmt: skip
