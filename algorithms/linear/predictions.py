"""Linear predictors of fitted models and what is made of them, of arrays now and of Dask arrays lazily."""

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from ...errors import DataError
from ..inputs.dask_arrays import is_dask, lazily
from ..inputs.matrices import check_rows, check_vector
from ..inputs.tables import given_rows
from ..inputs.targets import check_exposure, check_offset


def linear_predictor(estimator, method, X, offset=None):
    """Compute ``X @ coef_.T + intercept_ + offset``; of two classes, with one row of coefficients, a vector.

    `method`: the estimator's own, which asks: for a Dask array it is applied to the blocks. `X`: ndarray,
    sparse matrix, DataFrame or Dask array (n_samples, n_features).
    """
    check_is_fitted(estimator)
    X, coef = given_rows(estimator, X), estimator.coef_
    is_vector = coef.ndim == 1 or (coef.shape[0] == 1 and "classes_" in vars(estimator))
    if is_dask(X):
        f = lazily(method, X, None if is_vector else coef.shape[0], coef.dtype)
    else:
        f = safe_sparse_dot(check_rows(estimator, X), coef.T, dense_output=True)
        f = f + np.asarray(estimator.intercept_, coef.dtype)
        f = f.ravel() if is_vector else f
    return f if offset is None else f + _offset_like(f, offset)


def with_exposure(offset, exposure, n_samples=None, X=None):
    """Add the logarithms of exposures, if there are any, to an offset of one predictor, checked with them.

    `X`: has the rows, if `n_samples` is None; where it does not say how many, exposure does.
    """
    if exposure is None:
        return offset
    if n_samples is None:
        n_samples = getattr(X, "shape", np.shape(exposure))[0] if np.ndim(exposure) else None
    if not isinstance(n_samples, int):
        if np.ndim(exposure) != 1:
            shape = np.shape(exposure)
            raise DataError(f"exposure has the shape {shape}; pass a vector, one entry for each row of X")
        n_samples = len(exposure)
    offset = check_offset(check_vector(offset, n_samples), n_samples, 1)
    return check_exposure(check_vector(exposure, n_samples), n_samples) + (0 if offset is None else offset)


def _offset_like(f, offset):
    """Check an offset of predictors; return it in their shape, type and blocks."""
    n_samples = f.shape[0]
    if np.isnan(n_samples):
        raise DataError("offset cannot be cut as X, whose blocks have unknown lengths: compute X")
    offset = check_vector(offset, n_samples)
    offset = check_offset(offset, n_samples, 1 if f.ndim == 1 else f.shape[1])
    offset = offset.reshape(f.shape).astype(f.dtype)
    if not is_dask(f):
        return offset
    import dask.array as da

    return da.from_array(offset, chunks=f.chunks)


def applied(function, f, dtype, n_outputs=None):
    """Apply a function to linear predictors; it makes a number of each row, or `n_outputs`."""
    if not is_dask(f):
        return function(f)
    if n_outputs is None:
        return f.map_blocks(
            function, drop_axis=[1] if f.ndim == 2 else [], dtype=dtype, meta=np.empty(0, dtype)
        )
    shape = {"chunks": (f.chunks[0], (n_outputs,)), "new_axis": [1] if f.ndim == 1 else None}
    return f.map_blocks(function, **shape, dtype=dtype, meta=np.empty((0, 0), dtype))
