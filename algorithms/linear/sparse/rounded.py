"""The duality gap of coefficients as they are returned: those of float32 data are rounded to float32.

The solver works in float64, and its gap is that of coefficients with more digits. The gap of the rounded ones
is that of a new problem that starts from them and takes no step: a pass over X for its columns, and one for
the slopes of all.
"""

from dataclasses import replace

import numpy as np

from .fitting import SHORT, solve


def rounded(design, loss, penalty, fit, *, n_jobs=None):
    """Round the coefficients of a fit to the type of X, and find the intercept and the gap that are theirs.

    `loss`: ``loss()`` makes the loss with an empty working set. Returns Fit; `fit` itself for float64, and
    where the fit was ended before its time. The intercept of the squared loss is the best one for the rounded
    coefficients, in float64; that of other losses is rounded. Where unpenalised columns are held at or above
    zero, the gap stays that of the fit.
    """
    dtype = design.X.dtype
    if dtype == np.float64 or fit.reason not in ("gap", *SHORT):
        return fit
    coef = fit.coef.astype(dtype).astype(np.float64)
    kept = np.flatnonzero(coef if coef.ndim == 1 else coef.any(axis=1))
    features, coef = fit.features[kept], coef[kept]
    subproblem = loss()
    start = (features, coef) if len(features) else None
    (measured, *_), done = solve(
        design,
        subproblem,
        [penalty],
        tol=np.inf,
        max_iter=2,
        start=start,
        n_jobs=n_jobs,
        label="duality gap",
    )
    if done.reason == "interrupted":
        return replace(fit, gap=np.nan, relative_gap=np.nan)
    own = np.zeros(subproblem.coef.shape)
    own[np.isin(subproblem.features, features)] = coef
    intercept = subproblem.intercept_of(own, fit.intercept, dtype)
    n_samples, square = design.X.shape[0], subproblem.scale**2
    gap = measured.gap + subproblem.excess(own, intercept) * square / n_samples
    if penalty.positive and len(penalty.unpenalised(design.n_features)):
        # The slope of a free column held at or above zero must not be positive, and is so by rounding: no
        # multiple of this residual is a dual point.
        return replace(fit, features=features, coef=coef, intercept=intercept)
    unit = subproblem.unit(penalty) * square / n_samples
    relative = gap / unit if unit > 0 else fit.relative_gap
    return replace(
        fit, features=features, coef=coef, intercept=intercept, gap=float(gap), relative_gap=float(relative)
    )
