"""Named regressions over the generic solver."""

import warnings
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ...._typing import Engine, RandomState, Vector
from ....errors import DataError
from ..._base import documented, keep_parameters
from ...inputs.matrices import check_vector
from ..vocabulary import ALPHA, CONSTRAINTS, FACTOR, IGNORED, RATIO
from .losses import Huber, Poisson, Squared
from .named import LOSSES
from .regressor_base import StructuredRegressor
from .scaled_huber import ScaledHuber
from .solving.kinks import Pinball
from .solving.problem import Terms
from .sparse_glm import GROUPS, SHARED


@documented(SHARED)
class GroupLasso(StructuredRegressor):
    r"""Regression in which groups of columns have coefficients, or none.

    Minimises the mean loss plus

    .. math:: \alpha \sum_g \left(\rho |b_g|_1 + (1 - \rho) f_g |b_g|_2\right)

    with rho = `l1_ratio`, 0 by default: the group lasso; above 0 it is the sparse-group lasso, with zeros
    within groups.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    %(groups)s
        None takes "category" where X has categories, else every column alone.
    alpha : float, default=1.0
        Strength of the penalty. From `alpha_max` on all penalised coefficients are zero.
    l1_ratio : float, default=0.0
        rho.
    loss : {"squared", "poisson", "gamma", "huber"}, default="squared"
        For classes see `GroupLogisticRegression`.
    penalty_factor : array-like of shape (n_groups,), default=None
        f, by default the square root of the size of each group. 0 leaves a group unpenalised, infinity
        excludes it. Labels are sorted: the first factor is of the least label.
    overlap : bool, default=False
        Allow lists of columns that overlap: each group has a copy of its columns.
    positive : bool, default=False
        Only coefficients of 0 and above.
    %(fit_parameters)s

    Attributes
    ----------
    %(attributes)s
    groups_ : dict of str to list of int
        The columns of each group, where groups are given by names, or as categories.
    group_coef_ : ndarray
        With `overlap`: the coefficients of the copies, one group after the other.

    See Also
    --------
    SparseGLM

    References
    ----------
    Yuan, Lin, "Model selection and estimation in regression with grouped variables", JRSS B 2006. Simon and
    others, "A sparse-group lasso", Journal of Computational and Graphical Statistics 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = X[:, 3:6] @ [1.0, -1.0, 2.0] + 0.1 * rng.standard_normal(100)
    >>> np.flatnonzero(sd.GroupLasso(3, alpha=0.3).fit(X, y).coef_)
    array([3, 4, 5])
    """

    _parameter_constraints: ClassVar[dict] = {
        **GROUPS,
        **ALPHA,
        **RATIO,
        "loss": [StrOptions({"squared", "poisson", "gamma", "huber"})],
        **FACTOR,
        "positive": ["boolean"],
        **CONSTRAINTS,
    }

    def __init__(
        self,
        groups: Any = None,
        *,
        alpha: float = 1.0,
        l1_ratio: float = 0.0,
        loss: str = "squared",
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

    def _make_loss(self):
        return LOSSES[self.loss]()

    def _terms(self):
        return group_terms(self)


def group_terms(model):
    """The penalty of a model with groups."""
    low = 0.0 if model.positive else -np.inf
    return Terms(
        "norm",
        model.l1_ratio,
        model._numbered_groups(),
        model.overlap,
        model.penalty_factor,
        low,
        sparse_groups=True,
    )


@documented(SHARED)
class MultiTaskElasticNet(StructuredRegressor):
    r"""Regression of several targets that share which columns have coefficients, with a squared penalty
    besides.

    Minimises, over coefficients B with a row a column and a column a target,

    .. math:: \frac{1}{2 \sum_i w_i} \sum_i w_i |y_i - x_i B - c|^2
              + \alpha \sum_j f_j \left(\rho |B_j|_2 + \frac{1 - \rho}{2} |B_j|_2^2\right)

    scikit-learn's objective.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    l1_ratio : float, default=0.5
        rho, the share of the norm.
    penalty_factor : array-like of shape (n_features,), default=None
        f; 0 never penalises a column, infinity excludes it.
    %(fit_parameters)s
    %(ignored)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    ElasticNet : Each target by itself.

    References
    ----------
    Obozinski, Taskar, Jordan, "Joint covariate selection and joint subspace selection for multiple
    classification problems", Statistics and Computing 2010.

    Examples
    --------
    >>> import stradask as sd
    >>> X = [[0, 0], [1, 1], [2, 2]]
    >>> model = sd.MultiTaskElasticNet(alpha=0.1, tol=1e-8).fit(X, X)
    >>> model.coef_.round(3)
    array([[0.456, 0.456],
           [0.456, 0.456]])
    """

    _parameter_constraints: ClassVar[dict] = {**ALPHA, **RATIO, **FACTOR, **CONSTRAINTS, **IGNORED}

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        penalty_factor: Vector | None = None,
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        copy_X: bool = True,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
    ) -> None:
        keep_parameters(self, locals())

    def _many_targets(self):
        return True

    def _only_many(self):
        return True

    def _single(self, coef):
        return False

    def _check_y(self, loss, y, name):
        if y.ndim != 2:
            raise DataError(
                f"y has the shape {y.shape}; {name} takes several targets: for a single one take Lasso"
            )
        return y

    def _make_loss(self):
        return Squared()

    def _terms(self):
        return Terms("norm", self.l1_ratio, factors=self.penalty_factor)


@documented(SHARED)
class MultiTaskLasso(MultiTaskElasticNet):
    r"""Regression of several targets that share which columns have coefficients.

    Minimises the objective of `MultiTaskElasticNet` with ``l1_ratio=1``: scikit-learn's `MultiTaskLasso`.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty.
    penalty_factor : array-like of shape (n_features,), default=None
        0 never penalises a column, infinity excludes it.
    %(fit_parameters)s
    %(ignored)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    Lasso : Each target by itself.

    Examples
    --------
    >>> import stradask as sd
    >>> model = sd.MultiTaskLasso(alpha=0.1).fit([[0], [1], [2]], [[0, 0], [1, 2], [2, 4]])
    >>> model.coef_.round(3)
    array([[0.933],
           [1.866]])
    """

    _parameter_constraints: ClassVar[dict] = {**ALPHA, **FACTOR, **CONSTRAINTS, **IGNORED}

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        penalty_factor: Vector | None = None,
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        copy_X: bool = True,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
    ) -> None:
        keep_parameters(self, locals())

    def _terms(self):
        return Terms("norm", 1.0, factors=self.penalty_factor)


class _L1Regressor(StructuredRegressor):
    """A loss with l1 and squared penalties on single columns."""

    def _terms(self):
        low = 0.0 if self.positive else -np.inf
        return Terms("norm", self.l1_ratio, factors=self.penalty_factor, low=low)


_OF_L1 = {
    **SHARED,
    "l1": """
    alpha : float, default=1.0
        Strength of the penalty ``alpha f_j (l1_ratio |b_j| + (1 - l1_ratio) b_j^2 / 2)``.
    l1_ratio : float, default=1.0
        The share of the l1 penalty; 0 is the squared penalty alone.
    penalty_factor : array-like of shape (n_features,), default=None
        f; 0 never penalises a column, infinity excludes it.
    positive : bool, default=False
        Only coefficients of 0 and above.""",
}
_L1: dict = {**ALPHA, **RATIO, **FACTOR, "positive": ["boolean"], **CONSTRAINTS}


@documented(_OF_L1)
class SparsePoissonRegressor(_L1Regressor):
    r"""Counts by few columns: a linear model of the logarithm of the mean.

    Minimises the mean of ``exp(f) - y f``, f = X b + c + offset, plus l1 and squared penalties. Targets that
    are no whole numbers are taken, as by `PoissonRegressor`: rates, for instance, with their exposures as
    weights.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    %(l1)s
    %(fit_parameters)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    PoissonRegressor : The squared penalty alone, also on clusters.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X, years = rng.standard_normal((300, 20)), rng.uniform(1, 5, 300)
    >>> y = rng.poisson(years * np.exp(X[:, 7]))
    >>> np.flatnonzero(sd.SparsePoissonRegressor(alpha=1.0).fit(X, y, exposure=years).coef_)
    array([7])
    """

    _parameter_constraints: ClassVar[dict] = _L1

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        penalty_factor: Vector | None = None,
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

    def _make_loss(self):
        return Poisson()


_OF_HUBER = {"fit_parameters": SHARED["fit_parameters"].replace("default=1000", "default=100")}


@documented(SHARED | _OF_HUBER)
class HuberRegressor(_L1Regressor):
    r"""Regression that outliers do not pull, with the scale of the noise estimated: scikit-learn's objective.

    Minimises over coefficients b, the intercept c and the scale s

    .. math:: \sum_i w_i \left(s + s H\left(\frac{y_i - x_i b - c}{s}\right)\right)
              + \alpha \sum_j f_j \left((1 - \rho) b_j^2 + 2 \rho |b_j|\right)

    where H(z) is z^2 up to `epsilon`, and ``2 epsilon |z| - epsilon^2`` beyond; rho = `l1_ratio`. For a loss
    of a fixed width take ``SparseGLM("huber", loss_options={"delta": 1.35})``.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    epsilon : float, default=1.35
        At least 1: residuals beyond `epsilon` scales count less. 1.35 loses 5 %% of efficiency if the noise
        is normal.
    alpha : float, default=0.0001
        Strength of the penalty, against the sum over all rows: it weighs half as much in twice as many.
    l1_ratio : float, default=0.0
        rho; above 0 coefficients may be zero.
    penalty_factor : array-like of shape (n_features,), default=None
        f; 0 never penalises a column, infinity excludes it.
    positive : bool, default=False
        Only coefficients of 0 and above.
    %(fit_parameters)s
    delta : float, default=None
        Until 0.4 the objective of 0.2, with a FutureWarning: that of ``SparseGLM("huber", alpha=alpha,
        l1_ratio=l1_ratio, penalty="elastic-net", loss_options={"delta": delta})``.

    Attributes
    ----------
    %(attributes)s
    scale_ : float
        s; at least a millionth of the mean distance of y from its mean.
    outliers_ : ndarray of bool, shape (n_samples,)
        Rows whose residuals are beyond ``epsilon * scale_``.

    Notes
    -----
    Weights are frequencies: a row of weight 2 counts as two rows.

    References
    ----------
    Huber, Ronchetti, "Robust statistics", 2nd edition, 2009, section 7.7 and 7.8.

    Examples
    --------
    >>> import stradask as sd
    >>> model = sd.HuberRegressor().fit([[0], [1], [2], [3], [4], [5]], [0, 1.1, 100, 2.9, 4.1, 5])
    >>> model.coef_.round(1), model.outliers_.nonzero()[0]
    (array([1.]), array([2, 3]))
    """

    _parameter_constraints: ClassVar[dict] = {
        "epsilon": [Interval(Real, 1, np.inf, closed="left")],
        "delta": [Interval(Real, 0, np.inf, closed="neither"), None],
        **_L1,
    }
    _counts_weights = True

    def __init__(
        self,
        *,
        epsilon: float = 1.35,
        max_iter: int = 100,
        alpha: float = 0.0001,
        warm_start: bool = False,
        fit_intercept: bool = True,
        tol: float = 1e-5,
        l1_ratio: float = 0.0,
        penalty_factor: Vector | None = None,
        positive: bool = False,
        standardize: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        delta: float | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _make_loss(self):
        return ScaledHuber(self.epsilon) if self.delta is None else Huber(self.delta)

    def _pose(self, X, y, sample_weight=None, offset=None, exposure=None):
        problem = super()._pose(X, y, sample_weight, offset, exposure)
        if self.delta is not None:
            warnings.warn(
                "delta of HuberRegressor ends with version 0.4: take SparseGLM('huber', "
                "penalty='elastic-net', alpha=..., l1_ratio=..., loss_options={'delta': ...}), or epsilon, "
                "in units of an estimated scale; alpha and l1_ratio have scikit-learn's defaults now",
                FutureWarning,
                stacklevel=3,
            )
            return problem
        weights, n_samples = check_vector(sample_weight, len(problem.loss.y)), len(problem.loss.y)
        weights = 1.0 if weights is None else np.asarray(weights, np.float64)
        problem.loss.total = float(np.sum(np.broadcast_to(weights, n_samples)))
        return problem

    def _penalty(self, problem, alpha, **options):
        if self.delta is not None:
            return super()._penalty(problem, alpha, **options)
        total = getattr(problem.loss, "total", 1.0)  # of which the kind of columns does not depend
        return super()._penalty(problem, 2 * alpha / total, **options)  # of the mean over rows

    def _take(self, problem, fit, history):
        super()._take(problem, fit, history)
        if self.delta is None:
            self.scale_, self.outliers_ = problem.loss.at_last()
        return self


@documented(_OF_L1)
class QuantileRegressor(_L1Regressor):
    r"""A quantile of the target by few columns.

    Minimises the mean of ``q max(r, 0) + (1 - q) max(-r, 0)``, r = y - X b - c, plus penalties:
    scikit-learn's objective with ``l1_ratio=1``. Solved by a primal-dual interior point on the columns that
    matter; `objective_` and `dual_gap_` are those of the exact problem.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    quantile : float, default=0.5
        q, between 0 and 1.
    %(l1)s
    %(fit_parameters)s
    solver : str, default="highs"
    solver_options : dict, default=None
        Accepted for scikit-learn's sake and without effect: there is one solver.

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    sklearn.linear_model.QuantileRegressor : The same problem as a linear program.

    References
    ----------
    Koenker, Bassett, "Regression quantiles", Econometrica 1978. Portnoy, Koenker, "The Gaussian hare and the
    Laplacian tortoise", Statistical Science 1997.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> X, y = np.zeros((5, 1)), [1.0, 2.0, 3.0, 4.0, 100.0]
    >>> sd.QuantileRegressor(tol=1e-6).fit(X, y).predict(X[:1]).round(2)
    array([3.])
    """

    _parameter_constraints: ClassVar[dict] = {
        "quantile": [Interval(Real, 0, 1, closed="neither")],
        "solver": [
            StrOptions({"auto", "highs", "highs-ds", "highs-ipm", "interior-point", "revised simplex"})
        ],
        "solver_options": [dict, None],
        **_L1,
    }

    def __init__(
        self,
        quantile: float = 0.5,
        *,
        alpha: float = 1.0,
        l1_ratio: float = 1.0,
        penalty_factor: Vector | None = None,
        positive: bool = False,
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        solver: str = "highs",
        solver_options: dict | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _make_loss(self):
        return Pinball(self.quantile)
