"""What linear models share of their parameters: what values these may have, and what they mean."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ...errors import DataError, shortened
from .._base import ENGINES
from ..inputs.targets import check_alphas

_MOST_ALPHAS = 1_000_000  # a slip of the keyboard, not a path

CONSTRAINTS: dict = {
    "fit_intercept": ["boolean"],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, np.inf, closed="left")],
    "warm_start": ["boolean"],
    "verbose": ["verbose"],
    "standardize": ["boolean"],
    "engine": ENGINES,
    "n_jobs": [None, Integral],
}
ALPHA: dict = {"alpha": [Interval(Real, 0, np.inf, closed="left")]}
RATIO: dict = {"l1_ratio": [Interval(Real, 0, 1, closed="both")]}
FACTOR: dict = {"penalty_factor": ["array-like", None]}
IGNORED: dict = {
    "copy_X": ["boolean"],
    "random_state": ["random_state"],
    "selection": [StrOptions({"cyclic", "random"})],
}
COLUMNS: dict = {  # of models by columns
    **ALPHA,
    **RATIO,
    **FACTOR,
    **CONSTRAINTS,
    "positive": ["boolean"],
    "schedule": [StrOptions({"auto", "working-set", "dynamic"})],
    "max_iter": [*CONSTRAINTS["max_iter"], None],
}
FIT_DOCS = {  # of models by columns
    "X": """
    X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        float32 and float64 are kept. Best in Fortran order or CSC: then nothing is copied.
        Or names of Parquet files, or a `stradask.datasets.ParquetTable`: `y` and `sample_weight` are then
        names of columns.""",
    "callback": """
    callback : callable, optional
        ``callback(info)`` after every round; `info` has round, total, objective, seconds, updates,
        history, and ``info.snapshot()``, the model so far as a fitted estimator. Returning True ends the
        fit.""",
    "standardize": """
    standardize : bool, default=False
        Penalise ``s_j b_j`` instead of b_j, with s_j the (weighted) standard deviation of column j, or its
        root mean square without an intercept: as a fit to columns divided by s_j, without a copy, and with
        coefficients for the columns as they are.""",
}
PATH_DOCS = {
    "path": """
    alphas : int or array-like, default=100
        The strengths, or how many, from `alpha_max` to `eps` times that.
    eps : float, default=1e-3
        Ratio of the last strength to the first.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Falling.
    coefs : ndarray of shape (n_features, n_alphas), or (n_outputs, n_features, n_alphas) of several
    intercepts : ndarray of shape (n_alphas,) or (n_outputs, n_alphas)
    dual_gaps : ndarray of shape (n_alphas,)
        NaN where no gap is known.""",
}


def path_alphas(alphas, eps, largest_of):
    """Check the strengths of a path, or lay out a number of them; return them in falling order.

    These fall from ``largest_of()``, the least at which every penalised coefficient is zero, to `eps` times
    that.
    """
    if not isinstance(alphas, Integral):
        return check_alphas(alphas)
    if not (isinstance(eps, Real) and 0 < float(eps) <= 1):
        raise DataError(f"eps must be above 0 and at most 1, got {shortened(eps)}")
    if not 1 <= int(alphas) <= _MOST_ALPHAS:
        raise DataError(f"a path has 1 to {_MOST_ALPHAS:,} alphas, got {shortened(alphas)}")
    largest = largest_of()
    if not np.isfinite(largest):
        raise DataError(
            "no alpha makes all coefficients zero, as with l1_ratio=0, so that a path has no start: "
            "give the alphas themselves"
        )
    if largest == 0:  # nothing but zero models
        return np.full(alphas, np.finfo(np.float64).resolution)
    return np.geomspace(largest, largest * eps, alphas)
