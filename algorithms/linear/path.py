"""Paths: the coefficients of Lasso and elastic net for a falling sequence of penalties."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from ..._typing import Engine, Matrix, RandomState, Vector
from ...errors import DataError
from ..inputs.targets import check_start
from .sparse import least_squares
from .sparse.fitting import SHORT, warn_short
from .sparse.moments import problem_of
from .vocabulary import path_alphas


def lasso_path(
    X: Matrix, y: Vector, *, eps: float = 1e-3, n_alphas: int | None = 100, alphas: Any = None, **options: Any
) -> Any:
    """Compute Lasso coefficients for a falling sequence of penalties.

    `enet_path` with ``l1_ratio=1``: see there for the objective, the other parameters and what is returned.

    Parameters
    ----------
    X : ndarray, sparse matrix or Dask array of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    eps : float, default=1e-3
        Smallest over largest alpha.
    n_alphas : int, default=100
    alphas : array-like or int, default=None
        The penalties themselves, or their number.
    **options
        As in `enet_path`, without `l1_ratio`.

    Returns
    -------
    alphas, coefs, dual_gaps : ndarrays
        And more if asked for.

    References
    ----------
    Friedman, Hastie, Tibshirani, "Regularization paths for generalized linear models via coordinate descent",
    Journal of Statistical Software 2010.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = sd.lasso_path(X, y - y.mean(), n_alphas=4, tol=1e-9)
    >>> (alphas / alphas[0]).round(4).tolist()
    [1.0, 0.1, 0.01, 0.001]
    >>> (coefs != 0).sum(axis=0)
    array([ 0,  5,  8, 10])
    """
    if "l1_ratio" in options:
        raise TypeError("lasso_path has no l1_ratio (it is 1); enet_path has one")
    return enet_path(X, y, l1_ratio=1.0, eps=eps, n_alphas=n_alphas, alphas=alphas, **options)


def enet_path(
    X: Matrix,
    y: Vector,
    *,
    l1_ratio: float = 0.5,
    eps: float = 1e-3,
    n_alphas: int | None = 100,
    alphas: Any = None,
    precompute: Any = "auto",
    Xy: Any = None,
    copy_X: bool = True,
    coef_init: Any = None,
    verbose: int = False,
    return_n_iter: bool = False,
    positive: bool = False,
    check_input: bool = True,
    tol: float = 1e-4,
    max_iter: int = 1000,
    random_state: RandomState | None = None,
    selection: str = "cyclic",
    sample_weight: Vector | None = None,
    offset: Vector | None = None,
    fit_intercept: bool = False,
    penalty_factor: Vector | None = None,
    standardize: bool = False,
    sparse_coefs: bool = False,
    engine: Engine = "local",
    n_jobs: int | None = None,
) -> Any:
    r"""Compute elastic net coefficients for a falling sequence of penalties.

    For each alpha, with rho = `l1_ratio`, minimises

    .. math:: \frac{1}{2 \sum_i w_i} \sum_i w_i (y_i - x_i b - c)^2
              + \alpha \sum_j f_j \left(\rho |b_j| + \frac{1 - \rho}{2} b_j^2\right)

    Each solution starts from the one before, on one working set that grows along the path. As in scikit-learn
    there is no intercept unless it is asked for.

    Parameters
    ----------
    X : ndarray, sparse matrix or Dask array of shape (n_samples, n_features)
        Never changed; copied once if it is neither Fortran-ordered nor CSC.
    y : array-like of shape (n_samples,)
        One target. (For several, scikit-learn's functions solve the multi-task problem, which is another
        one.)
    l1_ratio : float, default=0.5
        Between 0 and 1.
    eps : float, default=1e-3
        Smallest over largest alpha, where `alphas` does not give them.
    n_alphas : int, default=100
        How many, in geometric progression from the smallest alpha at which every penalised coefficient is
        zero.
    alphas : array-like or int, default=None
        The penalties themselves, solved from largest to smallest; or their number, in place of `n_alphas`.
    precompute, Xy, copy_X, check_input, random_state, selection
        Accepted for scikit-learn's sake, without effect.
    coef_init : array-like of shape (n_features,), default=None
        Coefficients to begin with.
    verbose : bool or int, default=False
        True shows a progress bar.
    return_n_iter : bool, default=False
        Return the passes over `X` as well.
    positive : bool, default=False
        Only coefficients of 0 and above.
    tol : float, default=1e-4
        Bound of the duality gap of each model, relative to the objective of the zero model.
    max_iter : int, default=1000
        Most passes over `X` for each alpha.
    sample_weight, offset : array-like of shape (n_samples,), default=None
        As in `ElasticNet.fit`.
    fit_intercept : bool, default=False
        True fits an intercept to each alpha and returns them.
    penalty_factor : array-like of shape (n_features,), default=None
        f; see `ElasticNet`.
    standardize : bool, default=False
        See `ElasticNet`.
    sparse_coefs : bool, default=False
        Return the coefficients as a CSC array, which takes 12 bytes a coefficient other than zero; dense, a
        path of 100 over 10 million columns would take 8 GB.
    engine : str or distributed.Client, default="local"
    n_jobs : int or None, default=None
        Threads of the passes over `X`.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Falling. After Ctrl-C only those that were solved, with a warning.
    coefs : ndarray or CSC array of shape (n_features, n_alphas)
        In the type of `X`.
    dual_gaps : ndarray of shape (n_alphas,)
        In the scale of the objective above.
    n_iters : list of int
        With ``return_n_iter=True``.
    intercepts : ndarray of shape (n_alphas,)
        With ``fit_intercept=True``.

    Raises
    ------
    DataError
        For input that cannot be used.

    Warns
    -----
    ConvergenceWarning
        Once, for the alpha whose gap stayed furthest above `tol`.

    References
    ----------
    Friedman, Hastie, Tibshirani, "Regularization paths for generalized linear models via coordinate descent",
    Journal of Statistical Software 2010.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> path = sd.enet_path(X, y, l1_ratio=0.9, alphas=[1, 0.1], fit_intercept=True)
    >>> alphas, coefs, gaps, intercepts = path
    >>> alphas, coefs.shape, intercepts.round(1)
    (array([1. , 0.1]), (10, 2), array([152.1, 152.1]))
    """
    from .elastic_net import ElasticNet

    name = "lasso_path" if l1_ratio == 1 else "enet_path"
    model = ElasticNet(
        l1_ratio=l1_ratio,
        fit_intercept=fit_intercept,
        max_iter=max_iter,
        tol=tol,
        positive=positive,
        penalty_factor=penalty_factor,
        standardize=standardize,
        engine=engine,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    model._validate_params()
    if np.ndim(y) == 2:
        raise DataError(
            f"y has the shape {np.shape(y)}, and {name} takes one target: call it for each column of y "
            "(scikit-learn's solves the multi-task problem here, which is another one)"
        )
    design, y = model._problem(X, y, sample_weight, offset)
    n_features, alphas = design.n_features, n_alphas if alphas is None else alphas
    problem = problem_of(design, y, alphas if isinstance(alphas, Integral) else np.size(alphas))
    alphas = path_alphas(alphas, eps, lambda: largest_alpha(design, y, l1_ratio, problem))
    fits, _ = least_squares.solve_squared(
        design,
        y,
        alphas,
        l1_ratio,
        problem=problem,
        tol=tol,
        max_iter=max_iter,
        start=check_start("coef_init", coef_init, n_features, positive),
        n_jobs=n_jobs,
        verbose=int(verbose),
        label=name,
    )
    alphas = alphas[: len(fits)]
    warn_of_path(name, alphas, fits, tol, max_iter, design.X.dtype)
    coefs, gaps = stacked(fits, n_features, design.X.dtype), np.array([fit.gap_absolute for fit in fits])
    results = [alphas, coefs if sparse_coefs else coefs.toarray(), gaps]
    if return_n_iter:
        results.append([fit.rounds for fit in fits])
    if fit_intercept:
        results.append(np.array([fit.intercept for fit in fits], np.float64))
    return tuple(results)


def largest_alpha(design, y, l1_ratio, problem=None):
    """Find the least alpha at which every penalised coefficient is zero; `problem` as in `solve_squared`."""
    if problem and problem.sound:
        return problem.alpha_max(l1_ratio)
    return least_squares.largest_alpha(design, y, l1_ratio)


def stacked(fits, n_features, dtype):
    """Put the coefficients of several models side by side.

    Returns csc_array (n_features, n_models).
    """
    ends = np.cumsum([0, *(len(fit.features) for fit in fits)])
    features = np.concatenate([fit.features for fit in fits])
    coefs = np.concatenate([fit.coef for fit in fits]).astype(dtype)
    return sparse.csc_array((coefs, features, ends), shape=(n_features, len(fits)))


def warn_of_path(name, alphas, fits, tol, max_iter, dtype):
    """Warn, once, of the penalties that fell short."""
    if (alphas == 0).any():
        warnings.warn("alpha=0 penalises nothing: least squares is better solved as such", stacklevel=3)
    short = [k for k, fit in enumerate(fits) if fit.reason in SHORT]
    if short:
        worst = max(short, key=lambda k: fits[k].gap)
        what = f"{name} at alpha={alphas[worst]:.3g} (the worst of {len(short)} of {len(fits)})"
        warn_short(fits[worst], tol=tol, max_iter=max_iter, what=what, dtype=dtype)
