"""Cross-validation of the strength of any model of the generic solver."""

import copy
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Engine, Matrix, Vector
from ....errors import DataError, shortened
from ....scheduler.place import open_place
from ....scheduler.threads import single_threaded_blas
from ..._base import ENGINES, Estimator
from ...inputs.targets import _numbers, check_weights
from .base import StructuredModel
from .mean_loss import MeanLoss
from .solving.problem import path_of
from .sparse_glm import SparseGLM


def _has(name):
    return available_if(lambda self: hasattr(self._base(), name))


class SparseGLMCV(MetaEstimatorMixin, Estimator):
    """Choose `alpha` of `SparseGLM`, or of a model like it, by cross-validation.

    For each fold a path of falling strengths is fitted to the other rows; the loss of the fold's rows,
    without penalty, is averaged over the folds. Of `CoxRegression` that loss is the partial likelihood of
    all rows less that of the rows of the fit (Verweij, van Houwelingen).

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units.

    Parameters
    ----------
    estimator : SparseGLM or a named model over it, default=None
        Its `alpha` is ignored. None is ``SparseGLM()``.
    alphas : int or array-like, default=50
        The strengths, or how many, from the least that holds all coefficients at zero to `eps` times that.
    eps : float, default=0.01
        Ratio of the last strength to the first.
    cv : int, splitter or iterable, default=None
        As in scikit-learn; None is 5 folds of consecutive rows, of classes stratified.
    l1_ratios : array-like, default=None
        Values of the estimator's `l1_ratio` to try, each with a path of its own. None keeps the estimator's.
    rule : {"min", "1se"}, default="min"
        "min" takes the strength of the least mean loss, "1se" the largest whose mean loss is within one
        standard error of that.
    verbose : int, default=0
        1 shows a progress bar of the folds.
    engine : str or distributed.Client, default="local"
        Where folds are fitted: ``"local"``, on threads of this process; ``"dask"``, as tasks of the current
        Dask client; a client; or the address of a Dask scheduler. The result has the same bits.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores.

    Attributes
    ----------
    alpha_ : float
        The strength that was chosen: `alpha_min_` or `alpha_1se_`.
    alpha_min_, alpha_1se_ : float
    l1_ratio_ : float
        With `l1_ratios`: the one that was chosen.
    alphas_ : ndarray of shape (n_alphas,), or (n_l1_ratios, n_alphas) with `l1_ratios`
        Falling.
    losses_ : ndarray of shape (n_alphas, n_folds), or (n_l1_ratios, n_alphas, n_folds)
        Mean losses of the rows of each fold.
    losses_mean_, losses_se_ : ndarray of the shape of `alphas_`
        Their means over the folds, by the weight of their rows, and standard errors.
    coef_path_ : CSC array of shape (n_features, n_alphas * n_outputs)
        Coefficients of all rows along `alphas_` (those of `l1_ratio_`).
    best_estimator_ : estimator
        Fitted with `alpha_` to all rows. Its `coef_`, `intercept_`, `dual_gap_` and `n_iter_` are those of
        this object.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

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
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "cv": ["cv_object"],
        "l1_ratios": ["array-like", None],
        "rule": [StrOptions({"min", "1se"})],
        "verbose": ["verbose"],
        "engine": ENGINES,
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        alphas: Any = 50,
        eps: float = 0.01,
        cv: Any = None,
        l1_ratios: Any = None,
        rule: str = "min",
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.l1_ratios = l1_ratios
        self.alphas = alphas
        self.eps = eps
        self.cv = cv
        self.rule = rule
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs

    def _base(self):
        return SparseGLM() if self.estimator is None else self.estimator

    def __sklearn_tags__(self):
        """Tell scikit-learn what the estimator takes."""
        own, base = super().__sklearn_tags__(), get_tags(self._base())
        own.estimator_type, own.target_tags, own.input_tags = (
            base.estimator_type,
            base.target_tags,
            base.input_tags,
        )
        own.classifier_tags, own.regressor_tags = base.classifier_tags, base.regressor_tags
        return own

    def fit(self, X: Matrix, y: Vector, sample_weight: Vector | None = None, **given: Any) -> Self:
        """Choose the strength, and fit all rows with it.

        Parameters
        ----------
        X, y, sample_weight
            As in the method `fit` of the estimator. Weights are relative, and weigh scores too.
        **given : array-likes of shape (n_samples,)
            Further arguments of that method, one entry a row: offset, exposure, entry, strata.

        Returns
        -------
        self
        """
        self._validate_params()
        bases = self._bases()
        with self._draft() as draft:
            problems, paths = draft._posed(bases, X, y, sample_weight, given)
            columns = problems[0].columns
            weights = check_weights(sample_weight, columns.n_samples)
            weights = np.ones(columns.n_samples) if weights is None else weights
            folds = draft._folds(y, weights, is_classifier(bases[0]))
            rows = columns.X.tocsr() if columns.is_sparse else columns.X
            losses = draft._losses((rows, np.asarray(y), weights, given), bases, paths, folds)
            masses = np.array([weights[test].sum() for _, test in folds])
            best = draft._choose(np.array(paths), losses, masses)
            coefs = bases[best]._fit_path(problems[best], paths[best])
            draft.coef_path_ = _coefficients(problems[best], coefs)
            chosen = {**draft._grid()[best], "alpha": draft.alpha_}
            draft.best_estimator_ = clone(draft._base()).set_params(**chosen)
            draft.best_estimator_.fit(X, y, sample_weight, **given)
            draft._take_names()
        return self

    def _bases(self):
        """The estimator with the parameters of each path."""
        base = self._base()
        if not isinstance(base, StructuredModel):
            raise DataError(
                f"estimator is a {type(base).__name__}; SparseGLMCV takes SparseGLM, GroupLasso, "
                "CoxRegression and the "
                "like, see also LassoCV, ElasticNetCV and SparseLogisticRegressionCV"
            )
        bases = [clone(base).set_params(**some) for some in self._grid()]
        for base in bases:
            base._validate_params()
        return bases

    def _posed(self, bases, X, y, sample_weight, given):
        """The problem of each path on all rows, and its strengths."""
        whole = [copy.copy(base) for base in bases]
        problems = [model._pose(X, y, sample_weight, **given) for model in whole]
        whole[0]._check_local(problems[0])
        if is_classifier(bases[0]):
            for base in bases:  # a fold need not have all of them
                base._all_classes = whole[0].classes_
        for base, model in zip(bases, whole, strict=True):
            if "groups_" in vars(model):  # folds have no names
                base.groups = model._numbered_groups()
        paths = [
            path_of(model, problem, self.alphas, self.eps)
            for model, problem in zip(whole, problems, strict=True)
        ]
        return problems, paths

    def _folds(self, y, weights, classifies):
        """Rows of each fold that has weight in both parts."""
        labels = np.asarray(y) if classifies else None
        splitter = check_cv(self.cv, labels, classifier=classifies)
        folds = [
            (train, test)
            for train, test in splitter.split(np.zeros(len(weights)), labels)
            if weights[test].any() and weights[train].any()
        ]
        if not folds:
            raise DataError("cv gives no fold with weight in both parts: use fewer folds, or other weights")
        return folds

    def _take_names(self):
        """Have what the best estimator learned of columns and classes."""
        for name in ("n_features_in_", "feature_names_in_", "classes_", "groups_"):
            self.__dict__.pop(name, None)
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))

    def _grid(self):
        """Parameters of each path."""
        if self.l1_ratios is None:
            return [{}]
        ratios = _numbers("l1_ratios", self.l1_ratios).ravel().tolist()
        params = self._base().get_params(deep=False)
        if "l1_ratio" not in params:
            raise DataError(f"l1_ratios: {type(self._base()).__name__} has no l1_ratio; leave it out")
        penalty = params.get("penalty", "elastic-net")
        if not isinstance(penalty, str) or penalty not in ("elastic-net", "sparse-group"):
            raise DataError(
                f"l1_ratios: penalty={shortened(penalty)} has no l1_ratio; take penalty='elastic-net' or "
                "'sparse-group', or leave l1_ratios out"
            )
        return [{"l1_ratio": ratio} for ratio in ratios]

    def _losses(self, data, bases, paths, folds):
        """Losses of the folds' rows, (n_paths, n_alphas, n_folds): a task for each path and fold."""
        pairs = zip(bases, paths, strict=True)
        work = [(0, *pair, *fold) for pair in pairs for fold in folds]
        place = open_place(self.engine, self.n_jobs)
        with place.tasks([data], name="X") as tasks, single_threaded_blas():
            label = type(self).__name__
            done = tasks.map(_of_fold, work, label=label, unit="fold", verbose=self.verbose)
        short = [message for _, messages in done for message in messages]
        if short:
            warnings.warn(
                f"{len(short)} of {len(work) * len(paths[0])} fits of folds fell short. {short[0]}",
                ConvergenceWarning,
                stacklevel=3,
            )
        losses = np.array([losses for losses, _ in done])
        return losses.reshape(len(bases), len(folds), -1).swapaxes(1, 2)

    def _choose(self, alphas, losses, masses):
        """Choose a strength from losses (n_paths, n_alphas, n_folds); return the number of its path."""
        means = losses @ (masses / masses.sum())
        if np.isnan(means).all():
            raise DataError("the losses of all strengths are NaN: check the targets of the folds")
        path, best = np.unravel_index(int(np.nanargmin(means)), means.shape)
        n = losses.shape[-1]
        errors = losses.std(axis=-1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(means.shape)
        within = int(np.flatnonzero(means[path] <= means[path, best] + errors[path, best])[0])
        single = self.l1_ratios is None
        found = [part[0] if single else part for part in (alphas, losses, means, errors)]
        self.alphas_, self.losses_, self.losses_mean_, self.losses_se_ = found
        self.__dict__.pop("l1_ratio_", None)
        if not single:
            self.l1_ratio_ = self._grid()[path]["l1_ratio"]
        self.alpha_min_, self.alpha_1se_ = float(alphas[path, best]), float(alphas[path, within])
        self.alpha_ = self.alpha_min_ if self.rule == "min" else self.alpha_1se_
        return int(path)

    def plot(self, *, axes: Any = None) -> Array:
        """Draw the coefficient paths of all rows, and below the cross-validation curve; needs matplotlib.

        Where groups have names, lines are the norms of their coefficients.

        Parameters
        ----------
        axes : sequence of two matplotlib Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        ndarray of two Axes
        """
        check_is_fitted(self, "best_estimator_")
        from ..cv.plotting import plot_path

        at = (
            0 if self.l1_ratios is None else [some["l1_ratio"] for some in self._grid()].index(self.l1_ratio_)
        )
        alphas, mean, error = (
            np.atleast_2d(a)[at] for a in (self.alphas_, self.losses_mean_, self.losses_se_)
        )
        paths, names = self.coef_path_, getattr(self, "feature_names_in_", None)
        if "groups_" in vars(self):
            members, names = list(self.groups_.values()), list(self.groups_)
            rows = np.repeat(np.arange(len(members)), [len(columns) for columns in members])
            ones = np.ones(len(rows)), (rows, np.concatenate(members))
            in_group = sparse.csr_array(ones, shape=(len(members), paths.shape[0]))
            paths = sparse.csc_array(in_group @ paths.multiply(paths)).sqrt()
        return plot_path(
            alphas,
            paths,
            -mean,
            error,
            alpha=self.alpha_,
            alpha_min=self.alpha_min_,
            alpha_1se=self.alpha_1se_,
            scoring="neg_mean loss",
            names=names,
            axes=axes,
        )

    @property
    def coef_(self) -> Array:
        """Coefficients of `best_estimator_`."""
        return self._fitted().coef_

    @property
    def intercept_(self) -> Any:
        """Intercept of `best_estimator_`."""
        return self._fitted().intercept_

    @property
    def n_iter_(self) -> int:
        """Passes of `best_estimator_`."""
        return self._fitted().n_iter_

    @property
    def dual_gap_(self) -> float:
        """Duality gap of `best_estimator_`."""
        return self._fitted().dual_gap_

    def _fitted(self):
        if "best_estimator_" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self.best_estimator_

    def predict(self, X: Matrix, **given: Any) -> Array:
        """Predict by `best_estimator_`.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        **given
            Further arguments of its method.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X, **given)

    @_has("predict_proba")
    def predict_proba(self, X: Matrix) -> Array:
        """Compute probabilities of classes by `best_estimator_`.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @_has("decision_function")
    def decision_function(self, X: Matrix) -> Array:
        """Compute log-odds by `best_estimator_`.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    def score(self, X: Matrix, y: Vector, sample_weight: Vector | None = None) -> float:
        """Compute the score of `best_estimator_`.

        Parameters
        ----------
        X, y, sample_weight
            As in its method `score`.

        Returns
        -------
        float
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, y, sample_weight)


def _of_fold(data, base, alphas, train, test):
    """Losses of the rows of a fold, of each strength, and the warnings of fits that fell short."""
    X, y, weights, given = data

    def part(rows):
        some = {name: None if value is None else np.asarray(value)[rows] for name, value in given.items()}
        return copy.copy(base)._pose(X[rows], y[rows], weights[rows], **some)

    learnt = part(train)
    if not isinstance(learnt.loss, MeanLoss):  # the partial likelihood is no sum over rows
        rows = np.sort(np.concatenate([train, test]))
        judge, share = part(rows), weights[train].sum() / weights[rows].sum()
    else:
        judge, share = part(test), None
    losses: list[float] = []
    short: list[str] = []
    for fit in base._fit_path(learnt, alphas, short):
        loss = _loss_at(judge, fit)
        if share is not None:
            loss = (loss - share * _loss_at(learnt, fit)) / (1 - share)
        losses.append(loss)
    return losses, short


def _coefficients(problem, fits):
    """Coefficients of columns along a path, sparse: those of all outputs for each strength."""
    p = problem.columns.n_features
    return sparse.hstack([sparse.csc_array(problem.blocks.summed(fit.B, p)) for fit in fits], format="csc")


def _loss_at(problem, fit):
    """Mean loss of rows with the coefficients of a fit."""
    f = problem.columns.X @ problem.blocks.summed(fit.B, problem.columns.n_features) + fit.intercept
    offset = problem.loss.offset
    return problem.loss.objective(f if offset is None else f + offset)
