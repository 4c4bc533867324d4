"""Cross-validated models by name: `SparseGLMCV` over one estimator, with its parameters."""

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from ...._typing import Array, Engine, Vector
from ..._base import documented
from .cv import SparseGLMCV
from .regressors import GroupLasso, MultiTaskElasticNet, MultiTaskLasso

_SHARED = {
    "cv": """
    alphas : int or array-like, default=50
        The strengths, or how many, from the least that holds all coefficients at zero to `eps` times that.
    eps : float, default=0.01
        Ratio of the last strength to the first.
    cv : int, splitter or iterable, default=None
        As in `SparseGLMCV`.
    rule : {"min", "1se"}, default="min"
        "min" takes the strength of the least mean loss, "1se" the largest whose mean loss is within one
        standard error of that.
    fit_intercept, max_iter, tol
        As in the model without CV.
    verbose : int, default=0
        1 shows a progress bar of the folds.
    engine, n_jobs
        As in `SparseGLMCV`.""",
    "attributes": """
    alpha_, alpha_min_, alpha_1se_ : float
        The strength that was chosen, and those of the two rules.
    alphas_, losses_, losses_mean_, losses_se_, coef_path_, best_estimator_
        See `SparseGLMCV`, as for methods.
    mse_path_ : ndarray
        Mean squared errors of the squared loss, also over the targets.
    coef_, intercept_, dual_gap_, n_iter_
        Of `best_estimator_`.""",
}


class _NamedCV(SparseGLMCV):
    """`SparseGLMCV` whose estimator is made of its own parameters."""

    _kind: ClassVar[Any]
    _own: ClassVar[tuple[str, ...]]
    _tries_ratios: ClassVar[bool] = False
    l1_ratios: Any = None

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        kind = cls._kind._parameter_constraints
        shared = {
            n: SparseGLMCV._parameter_constraints[n]
            for n in ("alphas", "eps", "cv", "rule", "verbose", "engine", "n_jobs")
        }
        given = {"l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"]} if cls._tries_ratios else {}
        cls._parameter_constraints = {**{name: kind[name] for name in cls._own}, **given, **shared}

    def _base(self):
        return self._kind(**{name: getattr(self, name) for name in self._own})

    @property
    def mse_path_(self) -> Array:
        """Mean squared errors of the folds, as in scikit-learn."""
        self._fitted()
        if getattr(self, "loss", "squared") != "squared":
            raise AttributeError("mse_path_ is of the squared loss; see losses_")
        return 2 * self.losses_ / (1 if self.coef_.ndim == 1 else len(self.coef_))


@documented(_SHARED)
class GroupLassoCV(_NamedCV):
    """`GroupLasso` with its strength chosen by cross-validation.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units.

    Parameters
    ----------
    groups, l1_ratio, loss, penalty_factor, overlap, positive
        As in `GroupLasso`.
    %(cv)s

    Attributes
    ----------
    %(attributes)s

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = X[:, 3:6] @ [1.0, -1.0, 2.0] + rng.standard_normal(100)
    >>> np.flatnonzero(sd.GroupLassoCV(3, rule="1se").fit(X, y).coef_)
    array([3, 4, 5])
    """

    _kind = GroupLasso
    _own = (
        "groups", "l1_ratio", "loss", "penalty_factor", "overlap", "positive", "fit_intercept", "max_iter",
        "tol",
    )  # fmt: skip

    def __init__(
        self,
        groups: Any = None,
        *,
        l1_ratio: float = 0.0,
        loss: str = "squared",
        penalty_factor: Vector | None = None,
        overlap: bool = False,
        positive: bool = False,
        alphas: Any = 50,
        eps: float = 0.01,
        cv: Any = None,
        rule: str = "min",
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        self.groups = groups
        self.l1_ratio = l1_ratio
        self.loss = loss
        self.penalty_factor = penalty_factor
        self.overlap = overlap
        self.positive = positive
        self.alphas = alphas
        self.eps = eps
        self.cv = cv
        self.rule = rule
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs


@documented(_SHARED)
class MultiTaskElasticNetCV(_NamedCV):
    """`MultiTaskElasticNet` with its strength, and perhaps `l1_ratio`, chosen by cross-validation.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units.

    Parameters
    ----------
    l1_ratio : float or array-like, default=0.5
        The share of the norm; several are tried, and `l1_ratio_` is the one that was chosen.
    penalty_factor : array-like of shape (n_features,), default=None
        As in `MultiTaskElasticNet`.
    %(cv)s

    Attributes
    ----------
    l1_ratio_ : float
    %(attributes)s

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> model = sd.MultiTaskElasticNetCV(l1_ratio=[0.5, 1.0], cv=3).fit(X, X[:, :2] @ [[1.0, 2], [0, 1]])
    >>> model.l1_ratio_, np.flatnonzero(model.coef_.any(axis=0)).tolist()
    (1.0, [0, 1])
    """

    _kind, _tries_ratios = MultiTaskElasticNet, True
    _own = ("penalty_factor", "fit_intercept", "max_iter", "tol")

    def __init__(
        self,
        *,
        l1_ratio: Any = 0.5,
        penalty_factor: Vector | None = None,
        alphas: Any = 50,
        eps: float = 0.01,
        cv: Any = None,
        rule: str = "min",
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        self.l1_ratio = l1_ratio
        self.penalty_factor = penalty_factor
        self.alphas = alphas
        self.eps = eps
        self.cv = cv
        self.rule = rule
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs

    @property
    def l1_ratios(self) -> Any:
        """The shares that are tried."""
        return np.atleast_1d(self.l1_ratio)


@documented(_SHARED)
class MultiTaskLassoCV(_NamedCV):
    """`MultiTaskLasso` with its strength chosen by cross-validation.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units.

    Parameters
    ----------
    penalty_factor : array-like of shape (n_features,), default=None
        As in `MultiTaskLasso`.
    %(cv)s

    Attributes
    ----------
    %(attributes)s

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> model = sd.MultiTaskLassoCV(cv=3).fit(X, X[:, :2] @ [[1.0, 2], [0, 1]])
    >>> np.flatnonzero(model.coef_.any(axis=0)).tolist()
    [0, 1]
    """

    _kind = MultiTaskLasso
    _own = ("penalty_factor", "fit_intercept", "max_iter", "tol")

    def __init__(
        self,
        *,
        penalty_factor: Vector | None = None,
        alphas: Any = 50,
        eps: float = 0.01,
        cv: Any = None,
        rule: str = "min",
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        self.penalty_factor = penalty_factor
        self.alphas = alphas
        self.eps = eps
        self.cv = cv
        self.rule = rule
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs
