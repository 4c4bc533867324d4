"""Dask arrays as input: checks before anything is computed, the engine they need, lazy predictions."""

import copy
import sys

import numpy as np
from sklearn.utils.validation import validate_data

from ...errors import DataError
from .matrices import _as_data_errors, named
from .pieces import is_array, is_dask, is_frame
from .texts import REMEDY


def engine_for(X, engine):
    """Return the engine of a fit: "local" becomes "dask" for a Dask collection if there is a client."""
    if engine == "local" and is_dask(X) and "distributed" in sys.modules:
        import distributed

        try:
            distributed.default_client()
        except ValueError:
            return "local"
        return "dask"
    return engine


def check_blocks(X, name, *, lengths=True):
    """Check what is known of a Dask array or DataFrame before it is computed; return an array of floats.

    `name` is the estimator's, for messages; `lengths`: whether the numbers of rows of the chunks must be
    known. Values are checked on the workers, when blocks are loaded.
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
    """Copy a block that begins at an odd address, as data from a network may.

    Kernels would be compiled anew for it, and BLAS would copy it each time.
    """
    if isinstance(block, np.ndarray):
        return np.require(block, requirements="A")
    if block.format not in ("csr", "csc"):
        return block
    arrays = block.data, block.indices, block.indptr
    if all(array.flags.aligned for array in arrays):
        return block
    return type(block)(tuple(np.require(array, requirements="A") for array in arrays), shape=block.shape)


def check_length(vector, n_samples):
    """Refuse a Dask vector whose length is not the number of rows of X."""
    if vector.shape[0] != n_samples:
        raise DataError(f"X has {n_samples} rows, but y or a weight vector has {vector.shape[0]} entries")


def lazily(method, X, n_outputs, dtype):
    """Apply a method of a fitted model to the blocks of rows of a Dask array, lazily.

    Returns a Dask array of shape (n_samples,), or (n_samples, n_outputs) unless `n_outputs` is None.
    """
    X = check_new_blocks(X, method.__self__)
    method = getattr(without_names(method.__self__), method.__name__)
    if n_outputs is None:
        return X.map_blocks(method, drop_axis=1, dtype=dtype, meta=np.empty(0, dtype))
    return X.map_blocks(method, chunks=(X.chunks[0], (n_outputs,)), dtype=dtype, meta=np.empty((0, 0), dtype))


def check_new_blocks(X, model):
    """Check a Dask array or DataFrame for a fitted model; return an array of blocks of whole rows."""
    blocks = check_blocks(X, type(model).__name__, lengths=False)
    if blocks.shape[1] != model.n_features_in_:
        raise DataError(
            f"X has {blocks.shape[1]} columns, but the model was fitted to {model.n_features_in_}"
        )
    with _as_data_errors():
        validate_data(model, named(X), reset=False, skip_check_array=True)
    return blocks.rechunk({1: -1})


def without_names(model):
    """Copy a fitted model without feature names, for blocks, which have none."""
    nameless = copy.copy(model)
    nameless.__dict__.pop("feature_names_in_", None)
    return nameless
