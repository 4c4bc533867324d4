"""Logistic regression with groups of columns."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ...._typing import Callback, Engine, Matrix, Vector
from ....errors import DataError
from ..._base import documented, keep_parameters
from ...inputs.targets import (
    check_class_weights,
    check_labels,
    check_offset,
    check_same_classes,
    check_weights,
)
from ..classifier import LinearClassifier
from ..vocabulary import ALPHA, CONSTRAINTS, FACTOR, RATIO
from .base import StructuredModel
from .losses import Logistic, Multinomial
from .mean_loss import MeanLoss
from .regressors import group_terms
from .sparse_glm import GROUPS, SHARED


@documented(SHARED)
class GroupLogisticRegression(StructuredModel, LinearClassifier):
    r"""Two or more classes by groups of columns, which have coefficients or none.

    Minimises the mean of ``log(1 + exp(-y f))``, y of 1 and -1, f = X b + c + offset, plus

    .. math:: \alpha \sum_g \left(\rho |b_g|_1 + (1 - \rho) f_g |b_g|_2\right)

    with rho = `l1_ratio`. Of more than two classes it is the multinomial log loss, each class has
    coefficients, and `b_g` are those of the columns of a group for all classes.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    %(groups)s
        None takes "category" where X has categories, else every column alone.
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

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    %(attributes)s
    groups_ : dict of str to list of int
        The columns of each group, where groups are given by names, or as categories.

    See Also
    --------
    SparseLogisticRegression : Single columns, which each class chooses by itself.

    References
    ----------
    Meier, van de Geer, Bühlmann, "The group lasso for logistic regression", JRSS B 2008. Simon, Friedman,
    Hastie, "A blockwise descent algorithm for group-penalized multiresponse and multinomial regression",
    arXiv 1311.6529, 2013.

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
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        keep_parameters(self, locals())

    _groups_are_categories = True

    def _terms(self):
        return group_terms(self)

    def _single(self, coef):
        return False

    def _pose(self, X, y, sample_weight=None, offset=None, exposure=None):
        if exposure is not None:
            raise DataError("exposure is not for classes: pass offset instead")
        X, y, sample_weight = self._columns(X, y, sample_weight)
        n_samples = X.shape[0]
        classes, numbers = self._coded(y, n_samples)
        weights = check_class_weights(
            self.class_weight, classes, numbers, check_weights(sample_weight, n_samples)
        )
        weights = (np.ones(n_samples) if weights is None else weights) / n_samples
        several = len(classes) > 2
        offset = check_offset(offset, n_samples, len(classes) if several else 1)
        offset = None if offset is None else offset.reshape(n_samples, -1)
        self.classes_ = classes
        target = numbers[:, None] == np.arange(len(classes)) if several else numbers[:, None]
        loss = Multinomial() if several else Logistic()
        return self._problem(X, MeanLoss(loss, target.astype(np.float64), weights, offset), weights)

    def _coded(self, y, n_samples):
        """The classes, and the number of each row's; in the folds of a search they are those of all rows."""
        classes = vars(self).get("_all_classes")
        if classes is None:
            return check_labels(y, n_samples, type(self).__name__)
        return classes, np.searchsorted(classes, y)

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
            Labels of two or more classes.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Is added to the log-odds; with more than two classes, to the linear predictors of all classes.
        callback : callable, optional
            As in `SparseGLM.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft, draft._read(X, y, sample_weight) as (X, y, sample_weight):
            before = vars(self).get("classes_") if self.warm_start else None
            problem = draft._pose(X, y, sample_weight, offset)
            if before is not None:
                check_same_classes(before, draft.classes_)
            draft._fit(problem, callback, draft._start(problem))
        return self

    def _take(self, problem, fit, history):
        super()._take(problem, fit, history)
        self.intercept_ = np.atleast_1d(self.intercept_)
        return self
