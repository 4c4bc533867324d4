"""Where the rows of a fit lie: in this process, or in portions on a Dask cluster."""

import contextlib
import functools
import itertools
from numbers import Real

import numpy as np
from scipy import sparse

from ....errors import DataError
from ....scheduler.place import open_place
from ....scheduler.threads import computed_here
from ...inputs.dask_arrays import (
    aligned,
    check_blocks,
    check_length,
    check_vector,
    engine_for,
    is_array,
    is_dask,
    is_frame,
)
from ...inputs.row_order import check_row_matrix, row_matrix
from ...inputs.targets import check_names, check_row_weights, check_weights
from .remote import FarPortions, FarRows, surveys
from .rows import make_rows
from .smooth import Layout, lay_out

_MOST_PORTIONS, _LEAST_ENTRIES = 64, 60_000


def check_beside(estimator, X, y, sample_weight, *, stays_up_to=0):
    """Check X for where it will be read, and compute what stands beside it.

    `estimator`: with the parameter `engine`. `X`: ndarray, sparse matrix, DataFrame or collection of Dask's,
    shape (n_samples, n_features). `y`, `sample_weight`: array-like, Dask vector or None. `stays_up_to`:
    columns up to which targets of Dask's may stay on the cluster beside the rows, for `opened_beside`.
    Returns `rows`: ndarray in C order, csr_array or Dask array; A Dask array where its blocks stay on a
    cluster; their values are checked there. `y`, `sample_weight`: of this process; or Dask arrays in the
    chunks of the rows. `engine`: "local", "dask" or an address.
    """
    if is_dask(X):
        blocks = check_blocks(X, type(estimator).__name__)
        engine = engine_for(blocks, estimator.engine)
        rows = check_row_matrix(estimator, computed_here(blocks)[0]) if engine == "local" else blocks
    else:
        rows, engine = check_row_matrix(estimator, X), estimator.engine
    stays = is_dask(rows) and rows.shape[1] <= stays_up_to
    y = _beside(rows, y, X) if stays else y
    if stays and is_dask(y):
        sample_weight = _beside(rows, sample_weight, X)
    else:
        y, sample_weight = (check_vector(beside, rows.shape[0]) for beside in (y, sample_weight))
    check_names(estimator, X, y)
    return rows, y, sample_weight, engine


def _beside(rows, vector, X):
    """Cut a Dask vector as the rows of `X` are; compute one whose blocks are not to be known."""
    if not is_dask(vector):
        return vector
    if is_frame(vector):
        if hasattr(getattr(vector, "dtype", None), "numpy_dtype"):  # blocks of these would hold objects
            return check_vector(vector, rows.shape[0])
        # Columns of one frame are cut alike; if not, it is found where they are read, unless that is nowhere.
        alike = is_frame(X) and vector.npartitions == len(rows.chunks[0]) and all(rows.chunks[0])
        vector = vector.to_dask_array(lengths=rows.chunks[0] if alike else True)
    if not is_array(vector) or vector.ndim != 1 or np.isnan(vector.shape[0]):
        return check_vector(vector, rows.shape[0])
    check_length(vector, rows.shape[0])
    return vector.rechunk((rows.chunks[0],))


def columns_in_use(rows, n_outputs, fit_intercept):
    """See `lay_out`; of a Dask array, which nobody has read yet, all columns are in use."""
    if is_dask(rows):
        return rows, Layout(rows.shape[1], None, n_outputs, fit_intercept)
    return lay_out(rows, n_outputs, fit_intercept)


@contextlib.contextmanager
def opened_rows(estimator, rows, targets, weights, engine):
    """Lay rows out for the passes of a fit.

    `rows`: ndarray in C order, csr_array or Dask array. `targets`: list of array (n_samples,). `weights`:
    None or array (n_samples,). `engine`: from `check_beside`. Yields list of DenseRows, SparseRows or
    FarRows; one for each target; on a cluster X is sent once for all of them, or read where it lies.
    """
    if engine == "local":
        yield [make_rows(rows, y, weights) for y in targets]
        return
    beside = [y if y.dtype.kind in "iu" else y.astype(rows.dtype, copy=False) for y in targets]
    weights = None if weights is None else weights.astype(rows.dtype, copy=False)
    shards = [
        (source, [y[first:last] for y in beside], None if weights is None else weights[first:last])
        for first, last, source in sources_of(rows)
    ]
    program = FarPortions(shards, reader(estimator, rows), rows.shape[1])
    with _opened(estimator, program, engine) as passes:
        yield [FarRows(passes, rows.dtype, target) for target in range(len(targets))]


@contextlib.contextmanager
def opened_beside(estimator, rows, beside, y, sample_weight, engine):
    """Lay rows out with targets, and perhaps weights, that stay beside them on the cluster.

    `rows`, `y`: Dask arrays of the same chunks of rows. `beside`: FarLabels or FarTargets. `sample_weight`:
    None, float, array-like, or Dask array of the same chunks. Yields `answers`: list of tuples; columns of
    what ``beside.survey`` tells of the blocks. `made`: ``made(coding)`` returns a `FarRows`.
    """
    shards = shards_beside(rows, y, sample_weight)
    program = FarPortions(shards, reader(estimator, rows), rows.shape[1], beside)
    with _opened(estimator, program, engine) as passes:

        def made(coding):
            return FarRows(passes, rows.dtype, 0, coding)

        yield surveys(passes), made


def shards_beside(rows, y, sample_weight):
    """What a `reader` reads, with targets and weights of the same rows, for each chunk of a Dask array."""
    weights = _row_weights(rows, sample_weight)

    def weights_of(a, b, chunk):
        if weights is None or isinstance(weights, float):
            return weights
        return weights.blocks[chunk] if is_dask(weights) else weights[a:b]

    return [(source, y.blocks[source[0]], weights_of(a, b, source[0])) for a, b, source in sources_of(rows)]


def _row_weights(rows, sample_weight):
    """Check weights that are here."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        check_weights(sample_weight, 1)
        return float(sample_weight)
    return sample_weight if is_dask(sample_weight) else check_row_weights(sample_weight, rows.shape[0])


@contextlib.contextmanager
def _opened(estimator, program, engine):
    with contextlib.closing(open_place(engine, estimator.n_jobs).sum(program, ordered=True)) as passes:
        yield passes


def sources_of(rows):
    """First row, last row and what a `reader` reads, of the chunks of a Dask array or of equal parts."""
    return [(a, b, (k, a, b - a, part)) for k, a, b, part in _pieces(rows)]


def reader(estimator, rows):
    """Make the function that checks a block of these rows where it lies, and lays it by rows."""
    return functools.partial(_read, type(estimator).__name__, rows.shape[1], rows.dtype)


def _pieces(rows):
    if is_dask(rows):
        rows = rows.rechunk({1: -1})
        spans = enumerate(itertools.pairwise(np.cumsum([0, *rows.chunks[0]]).tolist()))
        return [(k, a, b, rows.blocks[k]) for k, (a, b) in spans if b > a]  # Dask allows empty chunks
    n, size = rows.shape[0], rows.size if isinstance(rows, np.ndarray) else rows.nnz
    n_portions = max(1, min(_MOST_PORTIONS, size // _LEAST_ENTRIES, n))
    edges = [n * k // n_portions for k in range(n_portions + 1)]
    return [(k, a, b, rows[a:b]) for k, (a, b) in enumerate(itertools.pairwise(edges))]


def _read(name, n_columns, dtype, source):
    """On a worker: check a block of X; say which it is if it cannot be used."""
    number, first, n_rows, block = source
    if is_dask(block):  # in a session of this process
        block = computed_here(block)[0]
    where = f"in partition {number} of X, which begins at row {first}"
    if not isinstance(block, np.ndarray) and not sparse.issparse(block):
        raise DataError(
            f"{where}: it is a {type(block).__name__}; partitions must be numpy arrays or scipy.sparse ones"
        )
    shape = getattr(block, "shape", None)
    if shape != (n_rows, n_columns):
        raise DataError(
            f"{where}: it has the shape {shape}, but X says {(n_rows, n_columns)}: correct the shape "
            "that was given to Dask, or call X.compute_chunk_sizes()"
        )
    try:
        return aligned(row_matrix(name, aligned(block)).astype(dtype, copy=False))
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
