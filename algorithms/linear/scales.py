"""Standard deviations of columns, for penalties of `standardize`, wherever the rows are."""

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

_BLOCK = 1 << 20  # entries of a block of a dense matrix
_ROUNDING = 1e-15  # of a mean: what a constant column may seem to spread


def column_scales(X, weights, *, centre):
    """Compute the standard deviation of each column, or its root mean square; 1 for columns where it is 0.

    `X`: ndarray, csr_array or csc_array, shape (n_samples, n_features). `weights`: None or array
    (n_samples,). `centre`: True: standard deviation. Returns float64 (n_features,).
    """
    n, p = X.shape
    weights = np.ones(n) if weights is None else weights
    if sparse.issparse(X):
        return merged_scales(*([moment] for moment in column_moments(X, weights)), centre=centre)
    if X.flags.c_contiguous:
        step = max(1, _BLOCK // p)
        parts = [column_moments(X[a : a + step], weights[a : a + step]) for a in range(0, n, step)]
        return merged_scales(*zip(*parts, strict=True), centre=centre)
    step = max(1, _BLOCK // n)
    parts = [merged_scales(*zip(column_moments(X[:, a : a + step], weights), strict=True), centre=centre)
             for a in range(0, p, step)]  # fmt: skip
    return np.concatenate(parts)


def column_moments(X, weights):
    """Return the weight of some rows, and the means and variances of their columns."""
    total = float(weights.sum())
    if not total > 0:
        return 0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1])
    if sparse.issparse(X):
        means, variances = mean_variance_axis(X, axis=0, weights=weights.astype(X.dtype, copy=False))
        return total, means.astype(np.float64), variances.astype(np.float64)
    X = X.astype(np.float64)
    means = np.average(X, axis=0, weights=weights)
    X -= means
    return total, means, np.average(np.square(X, out=X), axis=0, weights=weights)


def merged_scales(totals, means, variances, *, centre):
    """Compute `column_scales` from the `column_moments` of parts of the rows."""
    shares, means = np.array(totals)[:, None] / sum(totals), np.array(means)
    mean = (shares * means).sum(axis=0)
    variances = np.maximum(variances, 0.0)  # those of constant sparse columns may be below zero by rounding
    squares = (shares * (variances + (means - mean) ** 2)).sum(axis=0)
    scales = np.sqrt(squares if centre else squares + mean**2)
    scales[scales <= _ROUNDING * np.abs(mean)] = 1
    return scales
