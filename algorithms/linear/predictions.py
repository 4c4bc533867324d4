"""Linear predictors of fitted models."""

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from ..inputs.dask_arrays import is_dask, lazily
from ..inputs.matrices import check_rows
from ..inputs.tables import given_rows
from ..inputs.targets import check_offset


def linear_predictor(estimator, method, X, offset=None):
    """Compute ``X @ coef_.T + intercept_ + offset`` of a fitted model.

    `method`: the estimator's method that asks; it is applied to the blocks of a Dask array. `X`: ndarray,
    sparse matrix, DataFrame, Dask array or files, (n_samples, n_features). The coefficients of two classes
    are one row, and their predictor a vector.
    """
    check_is_fitted(estimator)
    X, coef = given_rows(estimator, X), estimator.coef_
    is_vector = coef.ndim == 1 or (coef.shape[0] == 1 and "classes_" in vars(estimator))
    if is_dask(X):
        return lazily(method, X, None if is_vector else coef.shape[0], coef.dtype, offset)
    f = safe_sparse_dot(check_rows(estimator, X), coef.T, dense_output=True)
    f = f + np.asarray(estimator.intercept_, coef.dtype)
    f = f.ravel() if is_vector else f
    offset = check_offset(offset, len(f), 1 if is_vector else f.shape[1])
    return f if offset is None else f + offset.reshape(f.shape)
