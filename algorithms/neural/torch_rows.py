"""Rows for torch modules: arrays here, or Dask arrays that stay on the workers."""

import numpy as np

from ...errors import DataError, shortened
from ..inputs.dask_arrays import engine_for
from ..inputs.matrices import check_dense, check_floats
from ..inputs.pieces import computed, is_array, is_dask, is_frame


def read_rows(X, name, engine):
    """Check the rows of a fit; return them, and the engine: a Dask collection goes to the current client.

    On a cluster a Dask collection stays lazy, as an array. Its values are checked where they are loaded.
    """
    engine = engine_for(X, engine)
    if engine == "local" or not is_dask(X):
        return check_dense(computed(X), name), engine
    if is_frame(X):
        X = X.to_dask_array(lengths=True)
    if not is_array(X):
        raise DataError(
            f"X is a {type(X).__name__}; of Dask's collections {name} takes arrays and DataFrames: make an "
            "array, for instance with dask.array.from_delayed"
        )
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise DataError("X has chunks of unknown size: call X.compute_chunk_sizes() first")
    if X.ndim < 2 or 0 in X.shape:
        raise DataError(f"X has the shape {shortened(X.shape)}: {name} needs rows of one value or more")
    check_floats(X, name)
    return X, engine
