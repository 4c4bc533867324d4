"""Logistic regression with groups of columns."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import type_of_target

from ...._typing import Array, Callback, Matrix, Vector
from ....errors import DataError
from ..._base import documented
from ...inputs.dask_arrays import check_vector, is_dask
from ...inputs.targets import check_class_weights, check_labels, check_offset, check_weights
from ..classifier import ScoringClassifier, log_probabilities, probabilities
from .base import StructuredModel
from .losses import Logistic, MeanLoss
from .regressors import group_terms
from .sparse_glm import ALPHA, CONSTRAINTS, ENGINE, FACTOR, GROUPS, RATIO, SHARED


@documented(SHARED)
class GroupLogisticRegression(StructuredModel, ScoringClassifier):
    r"""Two classes by groups of columns, which have coefficients or none.

    Minimises the mean of ``log(1 + exp(-y f))``, y of 1 and -1, f = X b + c + offset, plus

    .. math:: \alpha \sum_g \left(\rho |b_g|_1 + (1 - \rho) f_g |b_g|_2\right)

    with rho = `l1_ratio`.

    Parameters
    ----------
    groups : int, array-like or None, default=None
        The size of consecutive groups, a label for each column, or a list of lists of columns. None takes
        every column alone.
    alpha : float, default=0.01
        Strength of the penalty.
    l1_ratio : float, default=0.0
        rho: above 0 there are zeros within groups.
    class_weight : dict of label to float, "balanced" or None, default=None
        Multiplies the weights of the rows of a class.
    penalty_factor : array-like of shape (n_groups,), default=None
        f, by default the square root of the size of each group; 0 leaves a group unpenalised, infinity
        excludes it.
    overlap : bool, default=False
        Allow lists of columns that overlap: each group has a copy of its columns.
    positive : bool, default=False
        Only coefficients of 0 and above.
    %(fit_parameters)s
    %(engine)s

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    %(attributes)s
    schedule_ : str
        "working-set", or "columns" where workers own them.

    See Also
    --------
    SparseLogisticRegression : Single columns, and more classes.

    References
    ----------
    Meier, van de Geer, Bühlmann, "The group lasso for logistic regression", JRSS B 2008.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 30))
    >>> y = np.where(X[:, 3] + X[:, 4] > 0, "yes", "no")
    >>> np.flatnonzero(sd.GroupLogisticRegression(3, alpha=0.08).fit(X, y).coef_)
    array([3, 4, 5])
    """

    _parameter_constraints: ClassVar[dict] = {
        **GROUPS,
        **ALPHA,
        **RATIO,
        "class_weight": [None, dict, StrOptions({"balanced"})],
        **FACTOR,
        "positive": ["boolean"],
        **CONSTRAINTS,
        **ENGINE,
    }

    def __init__(
        self,
        groups: Any = None,
        *,
        alpha: float = 0.01,
        l1_ratio: float = 0.0,
        class_weight: Any = None,
        penalty_factor: Vector | None = None,
        overlap: bool = False,
        positive: bool = False,
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: int = 0,
        engine: str = "local",
        n_jobs: int | None = None,
    ) -> None:
        self.groups = groups
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.class_weight = class_weight
        self.penalty_factor = penalty_factor
        self.overlap = overlap
        self.positive = positive
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        """Tell scikit-learn that there are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _terms(self):
        return group_terms(self)

    def _single(self, coef):
        return False

    def _pose(self, X, y, sample_weight=None, offset=None, exposure=None):
        if exposure is not None:
            raise DataError("exposure is not for classes: pass offset instead")
        X = self._columns(X, y)
        n_samples, name = X.shape[0], type(self).__name__
        y, sample_weight = check_vector(y, n_samples), check_vector(sample_weight, n_samples)
        classes, numbers = check_labels(y, n_samples, name)
        if len(classes) > 2:
            raise DataError(
                f"Only binary classification is supported. The type of the target is {type_of_target(y)}: "
                f"{name} takes two classes, not {len(classes)}; take SparseLogisticRegression"
            )
        weights = check_class_weights(
            self.class_weight, classes, numbers, check_weights(sample_weight, n_samples)
        )
        weights = (np.ones(n_samples) if weights is None else weights) / n_samples
        offset = check_offset(offset, n_samples, 1)
        offset = None if offset is None else offset[:, None]
        self.classes_ = classes
        return self._problem(
            X, MeanLoss(Logistic(), numbers[:, None].astype(np.float64), weights, offset), weights
        )

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit coefficients and intercept.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of two classes.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count.
        offset : array-like of shape (n_samples,), optional
            Is added to the log-odds.
        callback : callable, optional
            As in `SparseGLM.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._unchanged_on_error():
            problem = self._pose(X, y, sample_weight, offset)
            return self._fit(problem, callback, self._start(problem))

    def _take(self, problem, fit, history):
        super()._take(problem, fit, history)
        self.intercept_ = np.atleast_1d(self.intercept_)
        return self

    def decision_function(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute the log-odds of ``classes_[1]``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if is_dask(X):
            return self._lazily(self.decision_function, X, offset, np.float64)
        f = self._linear_predictor(X)[:, 0]
        offset = check_offset(offset, len(f), 1)
        return f if offset is None else f + offset

    def predict(self, X: Matrix) -> Array:
        """Predict the more probable label of each row.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if is_dask(X):
            return self._lazily(self.predict, X, None, self.classes_.dtype)
        return self._most_probable(self.decision_function(X))

    def predict_proba(self, X: Matrix) -> Array:
        """Compute the probabilities of the classes.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        if is_dask(X):
            return self._lazily(self.predict_proba, X, None, np.float64, 2)
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: Matrix) -> Array:
        """Compute the logarithms of the probabilities of the classes, without underflow.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        if is_dask(X):
            return self._lazily(self.predict_log_proba, X, None, np.float64, 2)
        return log_probabilities(self.decision_function(X))
