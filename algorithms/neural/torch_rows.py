"""Rows for torch modules: arrays, data sets of torch, batches, or Dask arrays that stay on the workers."""

import copy
from typing import Any, NamedTuple

import numpy as np

from ..._typing import Engine
from ...errors import DataError, shortened
from ...scheduler.workers import open_workers
from ..inputs.dask_arrays import engine_for
from ..inputs.matrices import check_dense, check_floats
from ..inputs.pieces import checksum, computed, gathered, is_array, is_dask, is_frame
from ..inputs.targets import check_names
from .torch_data import Items, as_data


class TorchRows(NamedTuple):
    """What a fit reads.

    `named` has the names of the columns, `X` is an array, `Items` or a Dask array, `y` is not lazy. `crc` is
    a checksum of X where its values are not here, if it is known.
    """

    named: Any
    X: Any
    y: Any
    sample_weight: Any
    engine: Engine
    crc: int | None


def read_rows(X, y, sample_weight, name, engine, n_jobs):
    """Check the rows of a fit: a Dask collection goes to the current client, if there is one.

    On a cluster a Dask collection stays lazy, as an array. Its values are checked where they are loaded.
    Targets and weights of Dask's are computed by the workers and come here.
    """
    engine, data, crc = engine_for(X, engine), as_data(X), None
    if isinstance(data, tuple):  # the tensors of a TensorDataset
        X, y = _with_targets(data, y)
        data = None
    if data is not None:
        workers = open_workers(engine, n_jobs)
        if isinstance(data, Items):
            found, crc = data.survey(workers, y is not None)
            X, y = _checked_items(data, name), found if y is None else y
        elif y is not None:
            raise DataError("X gives batches (x, y), and y is given, too: leave y out")
        else:
            X, y, crc = data.rows(workers)
    y, sample_weight = (gathered(value, engine) for value in (y, sample_weight))
    if isinstance(X, Items):
        return TorchRows(X, X, y, sample_weight, engine, crc)
    if engine == "local" or not is_dask(X):
        return TorchRows(X, check_dense(computed(X), name), y, sample_weight, engine, crc)
    named = X
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
    return TorchRows(named, X, y, sample_weight, engine, crc)


def new_rows(X, name):
    """Check the rows of a prediction: an array, or a map-style data set, whose targets are not used."""
    data = as_data(X)
    if data is None:
        return check_dense(X, name)
    if isinstance(data, tuple):
        return check_dense(data[0], name)
    if not isinstance(data, Items):
        raise DataError(
            "X gives batches: predictions are of arrays or map-style data sets; predict batch by batch"
        )
    return _checked_items(data, name)


def lazily(method, X, n_outputs, dtype):
    """Apply a method of a fitted estimator to the blocks of rows of a Dask array or DataFrame, lazily.

    Returns a Dask array of shape (n_samples,), or (n_samples, n_outputs) unless `n_outputs` is None.
    """
    model, name = method.__self__, type(method.__self__).__name__
    if not is_dask(X) or not (is_array(X) or is_frame(X)):
        raise DataError(
            f"X is a {type(X).__name__}: of what is lazy, predictions are of Dask arrays and DataFrames"
        )
    check_names(model, X, "no_validation", first=False)
    X = X.to_dask_array() if is_frame(X) else X
    check_floats(X, name)
    if X.shape[1:] != model.row_shape_:
        raise DataError(
            f"rows of X have the shape {X.shape[1:]}, but those of the fit had {model.row_shape_}"
        )
    lean = copy.copy(model)
    lean._filled, lean.module = model.module_, None  # once, and nothing that predictions do not need
    for unused in ("feature_names_in_", "_template", "optimizer_state_", "_plan", "_timeline", "history_"):
        lean.__dict__.pop(unused, None)
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    axes: dict[str, Any] = {"drop_axis": list(range(1, X.ndim))}
    if n_outputs is not None:
        axes |= {"new_axis": 1, "chunks": (X.chunks[0], (n_outputs,))}
    meta = np.empty((0,) * (1 + (n_outputs is not None)), dtype)
    return X.map_blocks(getattr(lean, method.__name__), dtype=dtype, meta=meta, **axes)


def checksum_of(X, crc):
    """Return the checksum of rows, wherever they are."""
    if crc is not None or not is_dask(X):
        return checksum(X) if crc is None else crc
    import dask

    blocks = [dask.delayed(checksum)(block) for block in X.to_delayed().ravel()]
    return checksum(list(dask.compute(*blocks)))


def _with_targets(tensors, y):
    if len(tensors) - (y is None) != 1:
        raise DataError(
            f"X is a TensorDataset of {len(tensors)} tensors{' and y is given' if y is not None else ''}: it "
            "must be of x and y, or of x alone where y is given"
        )
    return tensors[0], tensors[1] if y is None else y


def _checked_items(items, name):
    if items.ndim < 2 or 0 in items.shape:
        raise DataError(f"items of X have the shape {items.row_shape}: {name} needs one axis or more")
    return items
