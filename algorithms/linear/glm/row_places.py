"""The rows of a fit, in this process or in portions on a Dask cluster, and the layout of parameters."""

import contextlib
import functools
from dataclasses import dataclass
from numbers import Real

import numpy as np
from scipy import sparse

from ....kernels.linear.glm_sparse import csr_counts
from ....scheduler.threads import computed_here
from ....scheduler.workers import open_workers
from ...inputs.dask_arrays import aligned, check_blocks, check_length, engine_for, is_array, is_dask, is_frame
from ...inputs.matrices import check_vector
from ...inputs.pieces import Lazy, cut_at_chunks, cut_evenly, lazy_chunks, located, partition, read_block
from ...inputs.row_order import check_row_matrix, row_matrix
from ...inputs.streamed import RowStream, bytes_to_keep, stands_alone
from ...inputs.targets import check_names, check_row_weights, check_weights
from .remote import RemotePortions, RemoteRows, surveys
from .rows import LOGISTIC, make_rows

_MOST_PORTIONS, _LEAST_ENTRIES = 64, 60_000  # portions, and entries that are worth a task
_SPARSE, _USED = 8, 0.7  # entries a column, and share of columns in use, below which empty ones are left out


def check_rows_and_targets(estimator, X, y, sample_weight, *, stays_up_to=0, keeps_order=False):
    """Check X for the place where it is read, and compute the vectors that do not stay there.

    Dask targets stay on the cluster for up to `stays_up_to` columns, see `opened_with_targets`. Returns rows
    (ndarray in C order, with `keeps_order` perhaps in Fortran order, csr_array, or a Dask array that workers
    check), y and sample_weight (Dask arrays in the chunks of the rows where they stay), and the engine.
    """
    if is_dask(X):
        blocks = check_blocks(X, type(estimator).__name__)
        engine = engine_for(blocks, estimator.engine)
        rows = check_row_matrix(estimator, computed_here(blocks)[0]) if engine == "local" else blocks
    else:
        rows, engine = check_row_matrix(estimator, X, keeps_order=keeps_order), estimator.engine
    stays = is_dask(rows) and rows.shape[1] <= stays_up_to
    y = _chunked_as(rows, y, X) if stays else y
    if stays and is_dask(y):
        sample_weight = _chunked_as(rows, sample_weight, X)
    else:
        y, sample_weight = (check_vector(vector, rows.shape[0]) for vector in (y, sample_weight))
    check_names(estimator, X, y)
    return rows, y, sample_weight, engine


def _chunked_as(rows, vector, X):
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


@dataclass(frozen=True)
class ParameterLayout:
    """The order of coefficients and intercepts in the minimisers' vector.

    An array (columns, n_outputs), row by row, the intercepts last. `used`: the columns of a sparse matrix
    that are not empty; the others are left out, and have coefficients of 0. None for all.
    """

    n_features: int
    used: np.ndarray | None
    n_outputs: int
    fit_intercept: bool

    def vector(self, coef, intercept):
        """Put coefficients (n_features, n_outputs) and intercepts (n_outputs,) into one vector."""
        W = np.asarray(coef, np.float64) if self.used is None else coef[self.used].astype(np.float64)
        return np.vstack([W, intercept] if self.fit_intercept else [W]).ravel()

    def read(self, x):
        """Return the coefficients (n_features, n_outputs) and intercepts (n_outputs,) of a vector."""
        W = x.reshape(-1, self.n_outputs)
        intercept = W[-1] if self.fit_intercept else np.zeros(self.n_outputs)
        W = W[:-1] if self.fit_intercept else W
        if self.used is not None:
            coef = np.zeros((self.n_features, self.n_outputs))
            coef[self.used] = W
            W = coef
        return W, intercept


def lay_out(X, n_outputs, fit_intercept):
    """Leave out empty columns, where so many are; return X, sharing memory, and a layout."""
    n_features = X.shape[1]
    used = None
    if not isinstance(X, np.ndarray) and X.nnz < _SPARSE * n_features:
        counts = np.zeros(n_features, np.int64)
        csr_counts(X.indices, X.indptr, counts)
        seen = counts > 0
        if np.count_nonzero(seen) < _USED * n_features:
            used = np.flatnonzero(seen)
            place = np.cumsum(seen, dtype=X.indices.dtype) - 1
            shape = X.shape[0], max(1, len(used))
            X = sparse.csr_array((X.data, place[X.indices], X.indptr), shape=shape)
            used = used if len(used) else np.zeros(1, np.int64)
    return X, ParameterLayout(n_features, used, n_outputs, fit_intercept)


def columns_in_use(rows, n_outputs, fit_intercept):
    """See `lay_out`; of a Dask array, which is not read yet, all columns are in use."""
    if is_dask(rows):
        return rows, ParameterLayout(rows.shape[1], None, n_outputs, fit_intercept)
    return lay_out(rows, n_outputs, fit_intercept)


@contextlib.contextmanager
def opened_rows(estimator, rows, targets, weights, engine, offset=None):
    """Load rows for the passes of a fit; yield one `DenseRows`, `SparseRows` or `RemoteRows` for each target.

    `engine`: from `check_rows_and_targets`. On a cluster X is sent once for all targets, or read in place.
    """
    if engine == "local":
        yield [make_rows(rows, y, weights, offset) for y in targets]
        return
    vectors = [y if y.dtype.kind in "iu" else y.astype(rows.dtype, copy=False) for y in targets]
    weights = None if weights is None else weights.astype(rows.dtype, copy=False)
    sources, read = sources_and_reader(estimator, rows, engine)
    shards = [
        (source, [y[a:b] for y in vectors], *(None if v is None else v[a:b] for v in (weights, offset)))
        for a, b, source in sources
    ]
    program = RemotePortions(shards, read, rows.shape[1])
    with _opened(estimator, program, engine) as passes:
        yield [RemoteRows(passes, rows.dtype, target) for target in range(len(targets))]


@contextlib.contextmanager
def opened_with_targets(estimator, rows, targets, y, sample_weight, engine):
    """Load rows whose targets, and perhaps weights, stay on the cluster.

    `sample_weight` may be a number, a vector, or a Dask array in the chunks of the rows. Yields columns of
    the results of ``targets.survey`` over the blocks, and ``made(coding)``, which returns `RemoteRows`.
    """
    sources, read = sources_and_reader(estimator, rows, engine)
    shards = shards_with_targets(rows, y, sample_weight, sources)
    program = RemotePortions(shards, read, rows.shape[1], targets)
    with _opened(estimator, program, engine) as passes:

        def made(coding):
            return RemoteRows(passes, rows.dtype, 0, coding)

        yield surveys(passes), made


def shards_with_targets(rows, y, sample_weight, sources):
    """For each chunk of a Dask array: the source for a `reader`, and its targets and weights."""
    weights = _row_weights(rows, sample_weight)
    streams = isinstance(sources[0][2][-1], Lazy)
    y_of = _chunks_of(y, streams)
    weights_of = _chunks_of(weights, streams) if is_dask(weights) else None

    def own_weights(a, b, chunk):
        if weights is None or isinstance(weights, float):
            return weights
        return weights[a:b] if weights_of is None else weights_of(chunk)

    return [(source, y_of(source[0]), own_weights(a, b, source[0])) for a, b, source in sources]


def _chunks_of(vector, streams):
    """A function that gives a chunk of a Dask vector; workers read it where they read the rows anew."""
    if streams:
        chunks = {number: chunk for number, _, _, chunk in lazy_chunks(vector)}
        if all(map(stands_alone, chunks.values())):
            return chunks.__getitem__
    return lambda number: vector.blocks[number]


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
    with contextlib.closing(open_workers(engine, estimator.n_jobs).sum(program, ordered=True)) as passes:
        yield passes


def sources_of(rows):
    """First row, last row and source for a `reader`, of the chunks of a Dask array or of equal parts."""
    return [(a, b, (k, a, b - a, block)) for k, a, b, block in _spans(rows)]


def sources_and_reader(estimator, rows, engine):
    """`sources_of` and `reader`; rows beyond the workers' memory are read anew in every pass (`streamed`)."""
    read, n_bytes = reader(estimator, rows), bytes_to_keep(rows, engine, compiled)
    if n_bytes is None:
        return sources_of(rows), read
    streamed = [(a, b, (k, a, b - a, block)) for k, a, b, block in lazy_chunks(rows)]
    about = rows.shape[1], rows.dtype, sparse.issparse(rows._meta)
    return streamed, RowStream(read, n_bytes, *about)


def compiled():
    """Import and compile what passes need; a worker keeps that in its memory."""
    make_rows(np.ones((1, 1)), np.ones(1), None).gradient(LOGISTIC, np.zeros(1), 0.0, np.empty(0))


def reader(estimator, rows):
    """Make the function that checks a block of these rows on its worker, and stores it by rows."""
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    return functools.partial(_read, name, rows.shape[1], rows.dtype)


def _spans(rows):
    if is_dask(rows):
        return cut_at_chunks(rows)
    n, size = rows.shape[0], rows.size if isinstance(rows, np.ndarray) else rows.nnz
    return cut_evenly(rows, max(1, min(_MOST_PORTIONS, size // _LEAST_ENTRIES, n)))


def _read(name, n_columns, dtype, source, again=False):
    """On a worker: check a block of X; errors name the block. `again`: see `RowStream`."""
    number, first, n_rows, block = source
    with located(partition(number, first, "X")):
        block = read_block(block, (n_rows, n_columns))
        if again and isinstance(block, np.ndarray):
            return aligned(np.ascontiguousarray(block, dtype))
        return aligned(row_matrix(name, aligned(block)).astype(dtype, copy=False))
