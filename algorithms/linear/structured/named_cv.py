"""Cross-validated models by name: `SparseGLMCV` over one estimator, with its parameters."""

from typing import Any, ClassVar

from ...._typing import Array, Engine, RandomState, Vector
from ..._base import documented, keep_parameters
from ..cv.path_cv import CV_DOCS, SHARES
from ..vocabulary import IGNORED
from .cv import SparseGLMCV
from .regressors import GroupLasso, MultiTaskElasticNet, MultiTaskLasso
from .sparse_glm import SHARED

_SHARED = CV_DOCS | {
    "ignored": SHARED["ignored"],
    "scoring": """
    scoring : str or callable, default="loss"
        As in `SparseGLMCV`.
    fit_intercept, standardize, max_iter, tol
        As in the model without CV.""",
    "model": """
    mse_path_ : ndarray of the shape of `scores_`
        With ``scoring="loss"``: mean squared errors of the squared loss, also over the targets.
    best_estimator_, coef_, intercept_, dual_gap_, n_iter_
        See `SparseGLMCV`, as for methods.""",
}


class _NamedCV(SparseGLMCV):
    """`SparseGLMCV` whose estimator is made of its own parameters."""

    _kind: ClassVar[Any]
    _own: ClassVar[tuple[str, ...]] = "penalty_factor", "fit_intercept", "standardize", "max_iter", "tol"

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        kind, search = cls._kind._parameter_constraints, SparseGLMCV._parameter_constraints
        names = cls._get_param_names()
        constraints = {name: kind[name] for name in cls._own} | {cls._ratios_name: SHARES} | IGNORED
        cls._parameter_constraints = {name: (search | constraints)[name] for name in names}

    def _base(self):
        return self._kind(**{name: getattr(self, name) for name in self._own})

    @property
    def mse_path_(self) -> Array:
        """Mean squared errors of the folds, as in scikit-learn."""
        self._fitted()
        if getattr(self, "loss", "squared") != "squared" or self.scoring != "loss":
            raise AttributeError('mse_path_ is of the squared loss with scoring="loss"; see scores_')
        return -2 * self.scores_ / (1 if self.coef_.ndim == 1 else len(self.coef_))


@documented(_SHARED)
class GroupLassoCV(_NamedCV):
    """`GroupLasso` with its strength chosen by cross-validation.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    groups, loss, penalty_factor, overlap, positive
        As in `GroupLasso`.
    l1_ratios : float or array-like, default=0.0
        The share of the l1 norm; several are tried, and `l1_ratio_` is the one that was chosen.
    %(search)s
    %(scoring)s

    Attributes
    ----------
    %(choice)s
    %(model)s

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
        "groups", "loss", "penalty_factor", "overlap", "positive", "fit_intercept", "standardize",
        "max_iter", "tol",
    )  # fmt: skip

    def __init__(
        self,
        groups: Any = None,
        *,
        l1_ratios: Any = 0.0,
        loss: str = "squared",
        penalty_factor: Vector | None = None,
        overlap: bool = False,
        positive: bool = False,
        alphas: Any = 100,
        eps: float = 1e-3,
        cv: Any = None,
        scoring: Any = "loss",
        rule: str = "min",
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        keep_parameters(self, locals())


@documented(_SHARED)
class MultiTaskElasticNetCV(_NamedCV):
    """`MultiTaskElasticNet` with its strength, and perhaps `l1_ratio`, chosen by cross-validation.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    l1_ratio : float or array-like, default=0.5
        The share of the norm; several are tried, and `l1_ratio_` is the one that was chosen.
    penalty_factor : array-like of shape (n_features,), default=None
        As in `MultiTaskElasticNet`.
    %(search)s
    %(scoring)s
    %(ignored)s

    Attributes
    ----------
    %(choice)s
    %(model)s

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> search = sd.MultiTaskElasticNetCV(l1_ratio=[0.5, 1.0], eps=0.01, alphas=50, cv=3)
    >>> model = search.fit(X, X[:, :2] @ [[1.0, 2], [0, 1]])
    >>> model.l1_ratio_, np.flatnonzero(model.coef_.any(axis=0)).tolist()
    (1.0, [0, 1])
    """

    _kind, _ratios_name = MultiTaskElasticNet, "l1_ratio"

    def __init__(
        self,
        *,
        l1_ratio: Any = 0.5,
        penalty_factor: Vector | None = None,
        alphas: Any = 100,
        eps: float = 1e-3,
        cv: Any = None,
        scoring: Any = "loss",
        rule: str = "min",
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        copy_X: bool = True,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
    ) -> None:
        keep_parameters(self, locals())


@documented(_SHARED)
class MultiTaskLassoCV(_NamedCV):
    """`MultiTaskLasso` with its strength chosen by cross-validation.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    penalty_factor : array-like of shape (n_features,), default=None
        As in `MultiTaskLasso`.
    %(search)s
    %(scoring)s
    %(ignored)s

    Attributes
    ----------
    %(choice)s
    %(model)s

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

    def __init__(
        self,
        *,
        penalty_factor: Vector | None = None,
        alphas: Any = 100,
        eps: float = 1e-3,
        cv: Any = None,
        scoring: Any = "loss",
        rule: str = "min",
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        copy_X: bool = True,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
    ) -> None:
        keep_parameters(self, locals())
