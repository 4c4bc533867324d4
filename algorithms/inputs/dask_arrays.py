"""Dask arrays as input: what can be checked at once, which engine they need, and lazy predictions."""

import copy
import sys

import numpy as np
from sklearn.utils.validation import validate_data

from ...errors import DataError
from .matrices import _as_data_errors, check_columns, named
from .texts import REMEDY


def is_dask(X):
    """Tell whether X is a collection of Dask's; imports nothing."""
    return "dask.base" in sys.modules and sys.modules["dask.base"].is_dask_collection(X)


def is_array(X):
    """Tell whether a collection of Dask's is an array; delayed values have any attribute one asks for."""
    return isinstance(getattr(X, "chunks", None), tuple)


def is_frame(X):
    """Tell whether a collection of Dask's is a DataFrame or a column of one."""
    return isinstance(getattr(X, "npartitions", None), int) and hasattr(X, "to_dask_array")


def engine_for(X, engine):
    """Return the engine of a fit: "local" becomes "dask" for a Dask collection where there is a client."""
    if engine == "local" and is_dask(X) and "distributed" in sys.modules:
        import distributed

        try:
            distributed.default_client()
        except ValueError:
            return "local"
        return "dask"
    return engine


def check_matrix(estimator, X):
    """Check a matrix of features: `check_columns`, or `check_blocks` for a collection of Dask's."""
    return check_blocks(X, type(estimator).__name__) if is_dask(X) else check_columns(estimator, X)


def check_blocks(X, name, *, lengths=True):
    """Check what can be known of a Dask array before it is computed.

    Parameters
    ----------
    X : Dask array or DataFrame
        Of numpy or scipy.sparse blocks.
    name : str
        The estimator, for messages.
    lengths : bool, default=True
        Whether the numbers of rows of the blocks must be known.

    Returns
    -------
    Dask array
        Of float32 or float64. Values are checked where the blocks lie, when they are loaded.

    Raises
    ------
    DataError
        For another number of dimensions, unknown chunks, no rows or columns, and types that are not real
        numbers.
    """
    if is_frame(X):
        X = X.to_dask_array(lengths=lengths or None)
    if not is_array(X):
        raise DataError(
            f"X is a {type(X).__name__}; of Dask's collections {name} takes arrays and DataFrames: make an "
            f"array, for instance with dask.array.from_delayed; if it holds texts, {REMEDY}"
        )
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, rows and columns, but it has {X.ndim}")
    if any(np.isnan(size) for sizes in X.chunks[0 if lengths else 1 :] for size in sizes):
        raise DataError("X has chunks of unknown size: call X.compute_chunk_sizes() first")
    if 0 in X.shape:
        raise DataError(f"X has the shape {X.shape}: {name} needs at least one row and one column")
    if X.dtype.kind not in "buif":
        raise DataError(
            f"X has the type {X.dtype}; {name} takes real numbers: convert it with X.astype; if "
            f"X holds texts, {REMEDY}"
        )
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def aligned(block):
    """Move a block that begins at an odd address, as what came over a network may: kernels want none.

    For such arrays they would be compiled anew, and BLAS copies them each time.
    """
    if isinstance(block, np.ndarray):
        return np.require(block, requirements="A")
    if block.format not in ("csr", "csc"):
        return block
    arrays = block.data, block.indices, block.indptr
    if all(array.flags.aligned for array in arrays):
        return block
    return type(block)(tuple(np.require(array, requirements="A") for array in arrays), shape=block.shape)


def check_vector(value, n_samples):
    """Compute a Dask vector that stands beside X; anything else is passed on."""
    if not is_dask(value):
        return value
    value = value.compute()
    check_length(value, n_samples)
    return value


def check_length(vector, n_samples):
    """Refuse a vector beside X that has another length."""
    if vector.shape[0] != n_samples:
        raise DataError(f"X has {n_samples} rows, but a vector beside it has {vector.shape[0]} entries")


def lazily(method, X, n_outputs, dtype):
    """Apply a method of a fitted model to the rows of a Dask array, block by block, when it is computed.

    Parameters
    ----------
    method : callable
        Of the estimator: takes a block of rows.
    X : Dask array or DataFrame of shape (n_samples, n_features)
    n_outputs : int or None
        Columns of what `method` returns; None for a vector.
    dtype : dtype

    Returns
    -------
    Dask array of shape (n_samples,) or (n_samples, n_outputs)
    """
    X = check_new_blocks(X, method.__self__)
    method = getattr(without_names(method.__self__), method.__name__)
    if n_outputs is None:
        return X.map_blocks(method, drop_axis=1, dtype=dtype, meta=np.empty(0, dtype))
    return X.map_blocks(method, chunks=(X.chunks[0], (n_outputs,)), dtype=dtype, meta=np.empty((0, 0), dtype))


def check_new_blocks(X, model):
    """Check a Dask array or DataFrame that a fitted model is to read; returns an array of whole rows.

    Raises
    ------
    DataError
        As `check_blocks`, and for other columns than those of the fit.
    """
    blocks = check_blocks(X, type(model).__name__, lengths=False)
    if blocks.shape[1] != model.n_features_in_:
        raise DataError(
            f"X has {blocks.shape[1]} columns, but the model was fitted to {model.n_features_in_}"
        )
    with _as_data_errors():
        validate_data(model, named(X), reset=False, skip_check_array=True)
    return blocks.rechunk({1: -1})


def without_names(model):
    """Copy a fitted model, for blocks, which have no names: they were compared when there was an X."""
    known = copy.copy(model)
    known.__dict__.pop("feature_names_in_", None)
    return known
