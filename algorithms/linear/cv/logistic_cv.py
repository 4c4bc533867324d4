"""Logistic regression whose penalty is chosen by cross-validation, with scikit-learn's names."""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.utils._param_validation import Interval

from ...._typing import Matrix, RandomState, Vector
from ....errors import DataError, shortened
from ....scheduler.place import open_place
from ..._base import keep_parameters
from ...inputs.row_order import check_row_matrix
from ...inputs.targets import (
    check_labels,
    check_names,
    check_row_weights,
    check_some_weight,
    weights_of_classes,
)
from ..logistic_regression import LogisticRegression
from .folds import folds_of


class LogisticRegressionCV(LogisticRegression):
    r"""Logistic regression whose `C` and share of the l1 penalty are chosen by cross-validation.

    On each fold a model is fitted to each `C`, from the smallest to the largest, each from the one before, by
    `LogisticRegression`, and scored on the test rows. The best mean score chooses, and the model is fitted to
    all rows. A fold is learnt from with weights that are zero on its test rows: `X` is not copied, and every
    fold knows all classes.

    Seeds and threads: *bitwise* the same for any `n_jobs`.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units.

    Parameters
    ----------
    Cs : int or array-like, default=10
        The values of `C`; or how many, from 1e-4 to 1e4 in geometric steps.
    l1_ratios : float, array-like or None, default=None
        Shares of the l1 penalty; None is 0, the squared penalty.
    fit_intercept, class_weight, solver, tol, max_iter, random_state, verbose
        See `LogisticRegression`. "balanced" weights are those of all rows.
    cv : int, splitter, iterable of (train, test) or None, default=None
        As in scikit-learn; None is 5 stratified folds.
    penalty : {"auto", "l1", "l2", "elasticnet", None}, default="auto"
        As in `LogisticRegression`, for `l1_ratios`.
    scoring : str, callable or None, default=None
        As in scikit-learn; None is the accuracy. With `sample_weight` scores are weighted.
    n_jobs : int or None, default=None
        Threads: one takes a fold and a share of the l1 penalty at a time.
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
            if name not in ("C", "l1_ratio", "warm_start", "engine", "n_replicas", "staleness")
        },
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "l1_ratios": [Interval(Real, 0, 1, closed="both"), "array-like", None],
        "cv": ["cv_object"],
        "scoring": [str, callable, None],
        "refit": ["boolean"],
    }
    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = {
        f"check_sample_weight_equivalence_on_{kind}_data": "objectives agree to tol; a weak penalty leaves "
        "coefficients of several classes less than 1e-7"
        for kind in ("dense", "sparse")
    }
    C, l1_ratio, warm_start, engine, n_replicas, staleness = 1.0, 0.0, False, "local", 2, 0

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
    ) -> None:
        keep_parameters(self, locals())

    def fit(  # type: ignore[override]
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, groups: Vector | None = None
    ) -> Self:
        """Search on the folds, and fit the model to all rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A row of weight 2 counts as two rows.
        groups : array-like of shape (n_samples,), optional
            Given to the splitter of `cv`, for instance `GroupKFold`.

        Returns
        -------
        self
        """
        self._validate_params()
        self._check_scoring()
        with self._draft() as draft:
            draft.Cs_, draft.l1_ratios_ = draft._grid()
            rows = check_row_matrix(draft, X)
            check_names(draft, X, y)
            draft.classes_, numbers = check_labels(y, rows.shape[0], type(draft).__name__)
            labels, weights = draft.classes_[numbers], draft._weights(sample_weight, rows.shape[0])
            model = draft._model(numbers, weights)
            folds = folds_of(draft.cv, len(labels), numbers, groups, weights, draft.classes_)
            draft._fit_folds(rows, labels, None if sample_weight is None else weights, folds, model)
            draft._choose(rows, labels, weights, model)
        return self

    def _check_scoring(self):
        if isinstance(self.scoring, str) and self.scoring not in get_scorer_names():
            raise DataError(
                f"scoring={shortened(self.scoring)}: take one of sklearn.metrics.get_scorer_names()"
            )

    def _fit_folds(self, rows, labels, weights, folds, model):
        """Fit and score all C and shares of the l1 norm on all folds."""
        data = self.Cs_, labels, weights, model
        work = [(0, fold, ratio, *data) for fold in folds for ratio in self.l1_ratios_]
        with open_place("local", self.n_jobs).tasks([rows]) as tasks:
            bar = {"label": type(self).__name__, "unit": "fold", "verbose": self.verbose}
            results = tasks.map(self._path, work, **bar)
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
            random_state=self.random_state, warm_start=True, n_jobs=1,
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

    def _weights(self, sample_weight, n_samples):
        if sample_weight is None:
            return np.ones(n_samples)
        alike = isinstance(sample_weight, Real)
        weights = check_row_weights([sample_weight] * n_samples if alike else sample_weight, n_samples)
        check_some_weight(weights.max())
        return weights

    def _path(self, X, fold, ratio, Cs, labels, weights, model):
        """Fit and score all C on a fold: scores, coefficients with intercepts, steps."""
        model = type(model)(**model.get_params()).set_params(l1_ratio=float(ratio))
        scorer = check_scoring(model, scoring=self.scoring)
        options = {} if weights is None else {"sample_weight": weights[fold.test]}
        scores, coefs, steps = [], [], []
        for C in Cs:
            model.set_params(C=float(C)).fit(X, labels, fold.weights)
            try:
                scores.append(float(scorer(model, X[fold.test], labels[fold.test], **options)))
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"scoring={shortened(self.scoring)} cannot judge this model: {error}"
                ) from error
            ends = [model.intercept_[:, None]] if self.fit_intercept else []
            coefs.append(np.hstack([model.coef_, *ends]))
            steps.append(model.n_iter_)
        return scores, coefs, steps

    def _choose(self, X, labels, weights, model):
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
            model.set_params(C=self.C_, l1_ratio=self.l1_ratio_).fit(X, labels, weights)
            for name in ("coef_", "intercept_", "solver_", "history_"):
                setattr(self, name, getattr(model, name))
            self._warn_of_method()
            return
        chosen = self.coefs_paths_[np.arange(len(flat)), at_ratio, at_C].mean(axis=0)
        n_features = X.shape[1]
        self.coef_ = np.ascontiguousarray(chosen[:, :n_features])
        self.intercept_ = chosen[:, n_features] if self.fit_intercept else np.zeros(len(chosen), X.dtype)
