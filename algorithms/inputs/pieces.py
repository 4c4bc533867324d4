"""Input in pieces: X cut into rows or columns, lazy blocks computed and checked, hashes of what was read.

Every family cuts and reads its input by these functions, so that errors name a piece in the same words.
"""

import itertools
import sys
import zlib
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ...errors import DataError
from ...scheduler.threads import computed_here
from ...scheduler.workers import is_client


def is_dask(X):
    """Whether X is a Dask collection; imports nothing."""
    return "dask.base" in sys.modules and sys.modules["dask.base"].is_dask_collection(X)


def is_array(X):
    """Whether a Dask collection is an array; a delayed value claims to have any attribute."""
    return isinstance(getattr(X, "chunks", None), tuple)


def is_frame(X):
    """Whether a Dask collection is a DataFrame or a column of one."""
    return isinstance(getattr(X, "npartitions", None), int) and hasattr(X, "to_dask_array")


def is_lazy(X):
    """Whether X is a Dask collection or a future of a client."""
    return is_dask(X) or type(X).__module__.startswith("distributed.client")


class Span(NamedTuple):
    """Rows or columns `first` to `last` of X, and the number of their chunk."""

    number: int
    first: int
    last: int
    block: Any  # a part of the array, or a Dask array of one block


class Lazy:
    """A block of a Dask array that a worker is to compute itself, each time that it needs it.

    `graph` has the tasks of the block `key` and no others. Dask looks into tuples and dataclasses for tasks,
    and is not to find these.
    """

    def __init__(self, graph, key):
        self.graph, self.key = graph, key

    def computed(self):
        """Compute it, on this thread."""
        import dask.local

        return dask.local.get_sync(self.graph, self.key)


def lazy_blocks(blocks):
    """Make a `Lazy` of each of some Dask arrays of one block, which may have much in common."""
    import dask
    from dask.core import flatten
    from dask.optimization import cull

    found = dask.optimize(*blocks)
    graph: dict = {}
    for block in found:
        graph.update(block.__dask_graph__())
    keys = [next(iter(flatten(block.__dask_keys__()))) for block in found]
    return [Lazy(cull(graph, [key])[0], key) for key in keys]


def lazy_chunks(X):
    """Make a `Lazy` of each chunk of rows that is not empty, of a Dask array of one axis or two.

    In time that grows with the chunks, not with their square as slicing them one by one. Returns tuples of
    the number of the chunk, its first and last row, and the block.
    """
    import dask
    from dask.optimization import cull

    X = X.rechunk({1: -1}) if X.ndim == 2 else X
    (found,) = dask.optimize(X)
    graph, edges = dict(found.__dask_graph__()), np.cumsum([0, *X.chunks[0]]).tolist()
    keys = [key[0] if X.ndim == 2 else key for key in found.__dask_keys__()]
    spans = zip(range(len(keys)), edges, edges[1:], keys, strict=False)
    return [(k, a, b, Lazy(cull(graph, [key])[0], key)) for k, a, b, key in spans if b > a]


def cut_evenly(X, n_pieces):
    """Cut an array or CSR matrix into ranges of rows whose lengths differ by at most one."""
    n_rows = X.shape[0]
    edges = [n_rows * k // n_pieces for k in range(n_pieces + 1)]
    return [Span(k, a, b, X[a:b]) for k, (a, b) in enumerate(itertools.pairwise(edges))]


def cut_at_chunks(X, axis=0):
    """Cut a Dask array at its chunks along an axis, whole along the other, without empty chunks."""
    X = X.rechunk({1 - axis: -1})
    edges = np.cumsum([0, *X.chunks[axis]]).tolist()
    spans = enumerate(itertools.pairwise(edges))
    return [Span(k, a, b, X.blocks[(slice(None),) * axis + (k,)]) for k, (a, b) in spans if b > a]


def delayed_blocks(X, name, rows="rows"):
    """Return the chunks of rows of a Dask array, or the partitions of a frame or bag, as delayed values."""
    blocks = X.to_delayed()
    if not isinstance(blocks, np.ndarray):
        return list(blocks)
    if blocks.size != len(blocks):
        raise DataError(
            f"{name} has the chunks {X.chunks}: {rows} are to stay whole; call "
            f"{name}.rechunk({{1: -1}}) first"
        )
    return list(blocks.ravel())


def computed(value):
    """Compute a Dask collection, or a `Lazy` block, in this process; anything else is passed on."""
    if isinstance(value, Lazy):
        return value.computed()
    return computed_here(value)[0] if is_dask(value) else value


def gathered(value, engine):
    """Compute a Dask collection: by the client if there is one, and the engine is no thread here."""
    if engine == "local" or not is_dask(value):
        return computed(value)
    return engine.compute(value, sync=True) if is_client(engine) else value.compute()


def first_rows(X, n_rows, engine):
    """Return the first rows of X, copied, as an array or a sparse matrix, wherever it is."""
    rows = gathered(X[:n_rows], engine)
    return rows.copy() if sparse.issparse(rows) else np.array(rows)


def read_block(block, shape=None):
    """Compute a lazy block, and check that it is an array or sparse matrix of the shape that X states."""
    block = computed(block)
    if not isinstance(block, np.ndarray) and not sparse.issparse(block):
        raise DataError(
            f"a block of X is a {type(block).__name__}: blocks must be numpy arrays or scipy.sparse matrices"
        )
    if shape is not None and block.shape != shape:
        raise DataError(
            f"it has the shape {block.shape}, but X says {shape}: correct the shape that was given to Dask, "
            "or call X.compute_chunk_sizes()"
        )
    return block


@contextmanager
def located(where):
    """Put the place of a piece before the message of a DataError."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def partition(number, first, name=""):
    """Name a partition in an error: its number and first row."""
    return f"in partition {number}{name and f' of {name}'}, which begins at row {first}"


def checksum(arrays):
    """Sum up arrays in 32 bits: an array, a sparse matrix, plain values, and tuples and dicts of them."""
    if isinstance(arrays, dict):
        arrays = tuple(arrays.values())
    if isinstance(arrays, tuple | list):
        return zlib.crc32(repr([checksum(part) for part in arrays]).encode())
    if sparse.issparse(arrays):
        rows: Any = arrays
        rows = rows.tocsr()
        return checksum((rows.data, rows.indices, rows.indptr, rows.shape))
    values = np.ascontiguousarray(arrays)
    if values.dtype.hasobject:
        return zlib.crc32(repr(values.tolist()).encode())
    return zlib.crc32(values.view(np.uint8).data, zlib.crc32(repr((values.shape, values.dtype)).encode()))


def check_same(now, before, refusal):
    """Refuse a piece whose hash is not what it was when it was read first; `refusal` names the piece."""
    if now != before:
        raise DataError(
            f"{refusal}: leave files as they are during a run, and let delayed blocks give the same values "
            "each time"
        )
