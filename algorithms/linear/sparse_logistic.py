"""Logistic regression with sparse coefficients, for two classes and for more."""

import copy
import functools
import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ..._typing import Array, Callback, Engine, Matrix, Vector
from .._base import documented, keep_parameters, weights_differ
from ..inputs.tables import fitted_table
from .classifier import LinearClassifier
from .path import warn_of_path
from .sparse import classes
from .sparse.classes import largest_alpha
from .sparse.fitting import SparseCoefficients, ownership
from .sparse.labels import before, pose, solve_classes, take
from .vocabulary import COLUMNS, FIT_DOCS, PATH_DOCS, path_alphas


@documented(FIT_DOCS | PATH_DOCS)
class SparseLogisticRegression(SparseCoefficients, LinearClassifier):
    r"""Logistic regression with l1 and squared l2 penalties, by a working set of columns.

    Minimises, over coefficients b and an intercept c, for classes y of 1 and -1

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \log(1 + e^{-y_i (x_i b + c + o_i)})
              + \alpha \sum_j f_j \left(\rho |b_j| + \frac{1 - \rho}{2} b_j^2\right)

    with rho = `l1_ratio`, the weights w (`sample_weight` times `class_weight`), `offset` o and
    `penalty_factor` f. For K > 2 classes the loss is the multinomial ``-log softmax(x_i B + c + o_i)[y_i]``,
    and each class has coefficients, all of which are penalised. scikit-learn's ``LogisticRegression(C=C)``
    sums where this takes the mean: the same model has ``alpha = 1 / (C * sum(w))``.

    Each round reads `X` once to find the columns that break the optimality conditions most, adds them to a
    working set, and solves the problem on that set by proximal Newton steps. The fit ends when the duality
    gap of the whole problem is small enough.

    `X` is never changed, never made dense and copied at most once, namely where it is not stored by
    columns (Fortran order or CSC) already; `standardize` is implicit. The state takes ``40 K`` bytes a row
    besides (K = 1 for two classes), 32 bytes a column, and the columns of the working set.

    Seeds and threads: the result is *bitwise* the same for any `n_jobs`; but where workers own columns within
    `tol`, as each owns a part.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=0.01
        Weight of the penalty. `alpha_max` tells from where on all penalised coefficients are zero: for
        standardized columns that is below 1. With 0 a minimum need not exist, and there is a warning.
    l1_ratio : float, default=1.0
        rho, the share of the l1 penalty; 0 is the squared penalty alone, and not sparse.
    fit_intercept : bool, default=True
        False takes c = 0.
    class_weight : dict of label to float, "balanced" or None, default=None
        Multiplies the weights of the rows of a class; "balanced" gives all classes the same total.
    positive : bool, default=False
        Only coefficients of 0 and above.
    penalty_factor : array-like of shape (n_features,), default=None
        f, 0 and above: with 0 a column is never penalised, with 2 twice as much, with ``np.inf`` it is
        excluded: its coefficients are 0.
    %(standardize)s
    max_iter : int or None, default=1000
        Most passes over `X`, at least 2; tens are usual. None is 1000.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most `tol` times the objective of the model without
        columns (the intercept alone).
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    schedule : {"auto", "working-set", "dynamic"}, default="auto"
        "dynamic", for two classes and columns on a cluster (or a Dask array in this process): each worker
        owns columns and their coefficients, and updates those that violate optimality most; the workers
        exchange the linear predictor and no columns, and `X` may be larger than their memory. "auto" is the
        working set, or "dynamic" for a Dask array that would fill more than half of the workers' memory.
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address.
    n_jobs : int or None, default=None
        Threads of the passes over `X`. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar: the rounds done, of `max_iter` at most (most fits end long before), and the
        objective.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        b, in the type of `X`; for two classes it speaks for ``classes_[1]``. See `sparsify`.
    sparse_coef_ : CSR array of the same shape
        Made at each access.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        c; for more than two classes it sums to zero.
    dual_gap_ : float
        Duality gap in the scale of the objective above.
    n_iter_ : int
        Passes over `X`; 0 where a warm start was the solution.
    schedule_ : str
        What ran: "working-set", or "columns" (owned by workers).
    history_ : dict of arrays
        One entry a round: round, seconds, objective, updates, bytes_sent, waiting, staleness.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    Raises
    ------
    DataError
        For NaN, infinities, a single class, other lengths, negative weights and the like.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` rounds, or the precision of the arithmetic, did not suffice for `tol`; names the gap
        reached.

    See Also
    --------
    SparseLogisticRegressionCV : Chooses `alpha` by cross-validation.
    sklearn.linear_model.LogisticRegression : Other penalties and solvers.

    References
    ----------
    Yuan, Ho, Lin, "An improved GLMNET for L1-regularized logistic regression", JMLR 2012. Friedman, Hastie,
    Tibshirani, "Regularization paths for generalized linear models via coordinate descent", Journal of
    Statistical Software 2010.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = sd.SparseLogisticRegression(alpha=0.02, standardize=True).fit(X, y)
    >>> int((model.coef_ != 0).sum()), model.score(X, y) > 0.97
    (7, True)
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        **COLUMNS,
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = weights_differ("equal to 1e-7 with tol=1e-12, not with 1e-4")

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        l1_ratio: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        positive: bool = False,
        penalty_factor: Vector | None = None,
        standardize: bool = False,
        max_iter: int | None = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        schedule: str = "auto",
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    # Fitting ------------------------------------------------------------------------------------

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

        Ctrl-C stops after the running round and keeps the model so far, with a warning.

        Parameters
        ----------
        %(X)s
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count. A class whose rows all weigh zero stays in `classes_`; with an
            intercept its probability is zero to rounding.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Added to the linear predictor of each row: a known part of the log-odds. The second shape is for
            more than two classes.
        %(callback)s

        Returns
        -------
        self
        """
        self._validate_params()
        if self.alpha == 0:
            warnings.warn(
                "alpha=0 penalises nothing: where a plane separates the classes there is no minimum, and "
                "otherwise sklearn.linear_model.LogisticRegression(C=np.inf) is made for it",
                stacklevel=2,
            )
        with self._draft() as draft, fitted_table(draft, X, y, sample_weight) as (X, y, sample_weight):
            problem = draft._pose(X, y, sample_weight, offset, ownership(draft))
            penalty = problem.design.penalty(draft.alpha, draft.l1_ratio)
            read = functools.partial(draft._snapshot, problem)
            fit, history = solve_classes(
                draft, problem, penalty, before(draft), callback, read, exact_gap=True
            )
            draft._take(problem, fit, history)
        return self

    def _pose(self, X, y, sample_weight, offset, own="never"):
        options = {"standardize": self.standardize, "positive": self.positive, "own": own}
        return pose(self, X, y, sample_weight, offset, factors=self.penalty_factor, **options)

    def _snapshot(self, problem, fit, history):
        return copy.copy(self)._take(problem, fit, history)

    def _take(self, problem, fit, history):
        self.dual_gap_ = fit.gap_absolute
        self.schedule_ = "columns" if problem.design.owned else "working-set"
        return take(self, problem, fit, history)

    def path(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        alphas: Vector | int = 100,
        eps: float = 1e-3,
        offset: Vector | None = None,
    ) -> tuple[Array, Array, Array, Array]:
        """Fit a falling sequence of `alpha`, on one working set that grows along it.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in `fit`.
        %(path)s
        """
        self._validate_params()
        problem, name = copy.copy(self)._pose(X, y, sample_weight, offset), type(self).__name__
        design, ratio = problem.design, self.l1_ratio
        alphas = path_alphas(alphas, eps, lambda: largest_alpha(problem.columns(), ratio))
        penalties = [design.penalty(alpha, ratio) for alpha in alphas]
        options = {"tol": self.tol, "max_iter": self.max_iter, "verbose": self.verbose}
        fits, _ = classes.solve(problem.columns(self.n_jobs), penalties, label=name, **options)
        alphas, dtype = alphas[: len(fits)], design.X.dtype
        warn_of_path(name, alphas, fits, self.tol, self.max_iter, dtype)
        coefs = np.stack([fit.dense(design.n_features, dtype) for fit in fits], axis=-1)
        intercepts = np.stack([fit.intercept for fit in fits], axis=-1)
        return alphas, coefs, intercepts, np.array([fit.gap_absolute for fit in fits])

    def alpha_max(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, offset: Vector | None = None
    ) -> Any:
        """Find the smallest `alpha` at which all penalised coefficients are zero, given the other parameters.

        Useful values of `alpha` are parts of it: a half, a tenth, a hundredth.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in `fit`.

        Returns
        -------
        float
            Infinite for ``l1_ratio=0``.

        Examples
        --------
        >>> import stradask as sd
        >>> sd.SparseLogisticRegression().alpha_max([[1.0], [-1.0]], ["yes", "no"])
        0.5
        """
        self._validate_params()
        problem = copy.copy(self)._pose(X, y, sample_weight, offset)
        return largest_alpha(problem.columns(self.n_jobs), self.l1_ratio)
