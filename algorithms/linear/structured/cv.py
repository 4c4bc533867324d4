"""Cross-validation of the strength of any model of the generic solver."""

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Callback, Engine, Matrix, Vector
from ....errors import DataError, shortened
from ..._base import documented, keep_parameters
from ...inputs.matrices import check_vector
from ...inputs.targets import check_weights
from ..cv.evaluation import path_scorer
from ..cv.folds import Path
from ..cv.path_cv import CV_CONSTRAINTS, CV_DOCS, PathCV
from ..vocabulary import path_alphas
from .base import StructuredModel
from .mean_loss import MeanLoss
from .regressor_base import StructuredRegressor
from .sparse_glm import SparseGLM

_LOSSES = ("deviance", "loss")  # scores that are minus the loss of the model


@dataclass(frozen=True)
class ModelPath:
    """The path of a model of the generic solver, as `cv.folds.PathProblem`; the tasks' X is in rows.

    `numbers`: of the classes of y, else y. `weights`: (n_samples,), as they were given. `more`: further
    arguments of `fit`, one entry a row.
    """

    estimator: Any
    y: np.ndarray
    numbers: np.ndarray
    weights: np.ndarray
    more: dict
    classes: Any = None
    needs_classes: ClassVar[bool] = False

    @property
    def tol(self):
        """Relative tolerance of each fit."""
        return self.estimator.tol

    def scorer(self, scoring):
        """Return the function that scores predictions; it is not called for the loss of the model."""
        return path_scorer(scoring, self.classes, dict.fromkeys(_LOSSES))

    def masses(self, folds):
        """Weights of the folds in the mean score: those of their test rows."""
        return np.array([self.weights[fold.test].sum() for fold in folds])

    def pose(self, X, l1_ratio, weights, rows=None):
        """Return the estimator with a share of the l1 penalty, and its problem on some rows."""
        model = copy.copy(self.estimator)
        if l1_ratio is not None:
            model.set_params(l1_ratio=l1_ratio)
        y, more = self.y, {name: value for name, value in self.more.items() if value is not None}
        if rows is not None:
            X, y, weights = X[rows], y[rows], weights[rows]
            more = {name: np.asarray(value)[rows] for name, value in more.items()}
        return model, model._pose(X, y, weights, **more)

    def alpha_max(self, X, l1_ratio):
        """Find the least alpha for all rows at which every penalised coefficient is zero."""
        model, problem = self.pose(X, l1_ratio, self.weights)
        return model._largest_alpha(problem)

    def grid(self, X, l1_ratio, eps, n_alphas):
        """Return the falling alphas for all rows."""
        model, problem = self.pose(X, l1_ratio, self.weights)
        return path_alphas(n_alphas, eps, lambda: model._largest_alpha(problem))

    def path(self, X, l1_ratio, alphas, weights, n_jobs=None):
        """Solve for falling alphas on all rows."""
        model, problem = self.pose(X, l1_ratio, weights)
        unsolved: list[float] = []
        fits = list(model._fit_path(problem, alphas, unsolved))
        coefs = [sparse.csc_array(problem.blocks.summed(fit.B, X.shape[1])) for fit in fits]
        return Path(
            sparse.hstack(coefs, format="csc"),
            np.concatenate([np.ravel(fit.intercept) for fit in fits]),
            np.array([fit.gap for fit in fits]),
            np.array([fit.rounds for fit in fits]),
            unsolved,
        )

    def model(self, tasks, X, path, at, l1_ratio, alpha):
        """None: the model is fitted anew."""

    def scores(self, X, fold, l1_ratio, alphas, scorings):
        """Solve a path on the training rows of a fold and score it; as `PathProblem.scores`."""
        rows = np.flatnonzero(fold.weights)
        model, problem = self.pose(X, l1_ratio, fold.weights, rows)
        unsolved: list[float] = []
        fits = list(model._fit_path(problem, alphas, unsolved))
        return [self._score(model, problem, fits, X, rows, fold, name) for name in scorings], unsolved

    def _score(self, model, problem, fits, X, train, fold, scoring):
        """Scores of fits to the rows `train`, (n_alphas,)."""
        test = fold.test
        if not isinstance(scoring, str) or scoring not in _LOSSES:
            _, judge = self.pose(X, None, self.weights, test)
            decision = np.array([_predictor(judge, fit) for fit in fits]).swapaxes(0, 1)
            if isinstance(model, StructuredRegressor):
                shape = decision.shape
                decision = model._make_loss().mean(decision.reshape(-1, shape[2])).reshape(shape)
            return self.scorer(scoring)(X, self.numbers[test], test, decision, self.weights[test])
        if isinstance(problem.loss, MeanLoss):
            _, judge = self.pose(X, None, self.weights, test)
            losses = np.array([_loss_at(judge, fit) for fit in fits])
        else:  # the partial likelihood is no sum over rows
            rows = np.union1d(train, test)
            _, judge = self.pose(X, None, self.weights, rows)
            share = self.weights[train].sum() / self.weights[rows].sum()
            losses = np.array([_loss_at(judge, fit) - share * _loss_at(problem, fit) for fit in fits])
            losses /= 1 - share
        return -losses if scoring == "loss" else -2 * (losses - judge.loss.least())


def _predictor(problem, fit):
    """Linear predictors of rows with the coefficients of a fit."""
    f = problem.predictor(problem.blocks.summed(fit.B, problem.columns.n_features)) + fit.intercept
    return f if problem.loss.offset is None else f + problem.loss.offset


def _loss_at(problem, fit):
    """Mean loss of rows with the coefficients of a fit."""
    return problem.loss.objective(_predictor(problem, fit))


def _figure_of_best(name):
    def figure(self: Any) -> Any:
        return getattr(self._fitted(), name)

    return property(figure, doc=f"`{name}` of `best_estimator_`.")


def _of_best(name, what):
    """Make a method that calls that of `best_estimator_`; it is there where the estimator has it."""

    def method(self, X: Matrix, **given: Any) -> Array:
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, name)(X, **given)

    method.__name__, method.__qualname__ = name, f"SparseGLMCV.{name}"
    method.__doc__ = f"""{what} by `best_estimator_`.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        **given
            Further arguments of its method, one entry a row, such as `offset`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
    return available_if(lambda self: hasattr(self._base(), name))(method)


@documented(CV_DOCS)
class SparseGLMCV(MetaEstimatorMixin, PathCV):
    """Choose `alpha` of `SparseGLM`, or of a model like it, by cross-validation.

    For each fold a path of falling strengths is fitted to the other rows and scored on its own; the scores
    are averaged over the folds, by the weight of their rows. Of `CoxRegression` the loss of a fold is the
    partial likelihood of all rows less that of the rows of the fit (Verweij, van Houwelingen).

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass an estimator with ``standardize=True``.

    Parameters
    ----------
    estimator : SparseGLM or a named model over it, default=None
        Its `alpha` is ignored. None is ``SparseGLM()``.
    l1_ratios : float or array-like, default=None
        Values of the estimator's `l1_ratio` to try, each with a path of its own. None keeps the estimator's.
    %(search)s
    scoring : str or callable, default="loss"
        The score that chooses, the greater the better: "loss" is minus the mean loss of the model,
        "deviance" minus twice what it is above the least loss; or the name of any scorer of scikit-learn, or
        ``scoring(estimator, X, y)`` with an estimator that predicts. Scores are weighted.

    Attributes
    ----------
    %(choice)s
    best_estimator_ : estimator
        Fitted with `alpha_` to all rows. Its `coef_`, `intercept_`, `dual_gap_` and `n_iter_` are those of
        this object.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    LassoCV, ElasticNetCV, SparseLogisticRegressionCV : Faster for what they fit, and on clusters.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = X[:, 3:6] @ [1.0, -1.0, 2.0] + rng.standard_normal(100)
    >>> model = sd.SparseGLMCV(sd.GroupLasso(3), rule="1se").fit(X, y)
    >>> np.flatnonzero(model.coef_)
    array([3, 4, 5])
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "l1_ratios": ["array-like", None],
        **{name: kinds for name, kinds in CV_CONSTRAINTS.items() if name != "n_alphas"},
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        alphas: Any = 100,
        eps: float = 1e-3,
        cv: Any = None,
        l1_ratios: Any = None,
        scoring: Any = "loss",
        rule: str = "min",
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _base(self):
        return SparseGLM() if self.estimator is None else self.estimator

    def __sklearn_tags__(self):
        """Tell scikit-learn what the estimator takes."""
        own, base = super().__sklearn_tags__(), get_tags(self._base())
        names = "estimator_type", "target_tags", "input_tags", "classifier_tags", "regressor_tags"
        return replace(own, **{name: getattr(base, name) for name in names})

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        groups: Any = None,
        callback: Callback | None = None,
        **given: Any,
    ) -> Self:
        """Choose the strength, and fit all rows with it.

        Parameters
        ----------
        X, y, sample_weight
            As in the method `fit` of the estimator. Weights are relative, and weigh scores too.
        %(folds)s
        **given : array-likes of shape (n_samples,)
            Further arguments of that method, one entry a row: offset, exposure, entry, strata.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            draft._search(*draft._read_problem(X, y, sample_weight, **given), groups, callback)
            ratio = {name[:-1]: draft.l1_ratio_ for name in vars(draft) if name == "l1_ratio_"}
            best = clone(draft._base()).set_params(alpha=draft.alpha_, **ratio)
            draft.best_estimator_ = best.fit(X, y, sample_weight, **given)
            for name in ("n_features_in_", "feature_names_in_", "classes_", "groups_"):
                draft.__dict__.pop(name, None)
                if hasattr(best, name):
                    setattr(draft, name, getattr(best, name))
        return self

    def _read_problem(self, X, y, sample_weight, **more):
        base = clone(self._base())
        if not isinstance(base, StructuredModel):
            raise DataError(
                f"estimator is a {type(base).__name__}; SparseGLMCV takes SparseGLM, GroupLasso, "
                "CoxRegression and the like, see also LassoCV, ElasticNetCV and SparseLogisticRegressionCV"
            )
        self._check_shares(base)
        base._validate_params()
        posed = copy.copy(base).set_params(standardize=False)
        problem = posed._pose(X, y, sample_weight, **more)
        posed._check_local(problem, reads_rows=True)
        columns, y, classes = problem.columns, np.asarray(y), getattr(posed, "classes_", None)
        weights = check_vector(sample_weight, columns.n_samples)
        if not base._counts_weights:
            weights = check_weights(weights, columns.n_samples)
        weights = np.broadcast_to(np.asarray(1.0 if weights is None else weights, float), columns.n_samples)
        if is_classifier(base):
            base._all_classes = classes  # a test fold need not have all of them
        if "groups_" in vars(posed):
            base.groups = posed._numbered_groups()  # folds have no names
        numbers = y if classes is None else np.searchsorted(classes, y)
        rows = columns.X.tocsr() if columns.is_sparse else columns.X
        return rows, ModelPath(base, y, numbers, weights, more, classes)

    def _check_shares(self, base):
        """Refuse shares of the l1 penalty where the penalty has none."""
        if self._shares() == [None]:
            return
        params = base.get_params(deep=False)
        if "l1_ratio" not in params:
            raise DataError(f"l1_ratios: {type(base).__name__} has no l1_ratio; leave it out")
        penalty = params.get("penalty", "elastic-net")
        if not isinstance(penalty, str) or penalty not in ("elastic-net", "sparse-group"):
            raise DataError(
                f"l1_ratios: penalty={shortened(penalty)} has no l1_ratio; take penalty='elastic-net' or "
                "'sparse-group', or leave l1_ratios out"
            )

    def _lines(self):
        """Where groups have names, lines are the norms of their coefficients."""
        paths, names = super()._lines()
        if "groups_" not in vars(self):
            return paths, names
        members = list(self.groups_.values())
        rows = np.repeat(np.arange(len(members)), [len(columns) for columns in members])
        ones = np.ones(len(rows)), (rows, np.concatenate(members))
        in_group = sparse.csr_array(ones, shape=(len(members), paths.shape[0]))
        return sparse.csc_array(in_group @ paths.multiply(paths)).sqrt(), list(self.groups_)

    coef_ = _figure_of_best("coef_")
    intercept_ = _figure_of_best("intercept_")
    n_iter_ = _figure_of_best("n_iter_")
    dual_gap_ = _figure_of_best("dual_gap_")

    def _fitted(self):
        if "best_estimator_" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self.best_estimator_

    predict = _of_best("predict", "Predict")
    predict_proba = _of_best("predict_proba", "Compute the probabilities of the classes")
    predict_log_proba = _of_best("predict_log_proba", "Compute logarithms of the probabilities of classes")
    decision_function = _of_best("decision_function", "Compute log-odds, or predictors of more classes,")

    def score(self, X: Matrix, y: Vector, sample_weight: Vector | None = None, **given: Any) -> float:
        """Compute the score of `best_estimator_`.

        Parameters
        ----------
        X, y, sample_weight, **given
            As in its method `score`.

        Returns
        -------
        float
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, y, sample_weight, **given)
