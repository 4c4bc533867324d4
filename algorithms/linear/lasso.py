"""The lasso: the elastic net without its squared penalty."""

from typing import Any, ClassVar

from ..._typing import Engine, RandomState, Vector
from .._base import keep_parameters
from .elastic_net import ElasticNet
from .path import lasso_path


class Lasso(ElasticNet):
    r"""Linear regression with an l1 penalty, by a working set of columns.

    Minimises, over coefficients b and an intercept c,

    .. math:: \frac{1}{2 \sum_i w_i} \sum_i w_i (y_i - x_i b - c)^2 + \alpha \sum_j f_j |b_j|

    with w the `sample_weight` and f the `penalty_factor`, both 1 by default: scikit-learn's objective, and
    `ElasticNet` with ``l1_ratio=1``, where method, promises and memory are described.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty; see `alpha_max` for a scale.
    fit_intercept : bool, default=True
        False takes c = 0.
    precompute : bool, "auto" or array-like, default=False
        Without effect.
    copy_X : bool, default=True
        Without effect: `X` is never changed.
    max_iter : int or None, default=1000
        Most passes over `X`, at least 2; tens are usual.
    tol : float, default=1e-4
        Bound of the duality gap, relative to the objective of the intercept alone.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    positive : bool, default=False
        Only coefficients of 0 and above.
    random_state : int, RandomState or None, default=None
        Seed of ``schedule="dynamic"``.
    selection : {"cyclic", "random"}, default="cyclic"
        Without effect.
    penalty_factor : array-like of shape (n_features,), default=None
        f; 0 leaves a column free, ``np.inf`` excludes it.
    standardize : bool, default=False
        Penalise as if the columns had been divided by their standard deviations.
    schedule : {"auto", "working-set", "dynamic"}, default="auto"
        "auto" is the working set; see `ElasticNet`.
    engine : str or distributed.Client, default="local"
        ``"local"``, ``"dask"``, a client, or the address of a Dask scheduler.
    n_jobs : int or None, default=None
        Threads. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar: the rounds done, of `max_iter` at most (most fits end long before), and the
        objective.

    Attributes
    ----------
    coef_, sparse_coef_, intercept_, dual_gap_, n_iter_, schedule_, history_, n_features_in_,
    feature_names_in_
        See `ElasticNet`.

    Raises
    ------
    DataError
        For NaN, infinities, other lengths, negative weights and the like; says which and what to do.

    Warns
    -----
    ConvergenceWarning
        If `tol` was not reached; names the gap.

    See Also
    --------
    ElasticNet : With an additional squared penalty.
    LassoCV : Chooses `alpha` by cross-validation.
    lasso_path : Coefficients for many values of `alpha`.

    References
    ----------
    Tibshirani, "Regression shrinkage and selection via the lasso", JRSS B 1996.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 5000))
    >>> y = 3 * X[:, 7] - 2 * X[:, 42] + 1
    >>> lasso = sd.Lasso()
    >>> lasso = lasso.set_params(alpha=lasso.alpha_max(X, y) / 10).fit(X, y)
    >>> np.flatnonzero(lasso.coef_).tolist()
    [7, 42]
    >>> lasso.score(X, y) > 0.98
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        name: kinds for name, kinds in ElasticNet._parameter_constraints.items() if name != "l1_ratio"
    }

    l1_ratio = 1.0
    path = staticmethod(lasso_path)

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        precompute: Any = False,
        copy_X: bool = True,
        max_iter: int | None = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        positive: bool = False,
        random_state: RandomState | None = None,
        selection: str = "cyclic",
        penalty_factor: Vector | None = None,
        standardize: bool = False,
        schedule: str = "auto",
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())
