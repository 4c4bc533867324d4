"""Blocks of X that do not fit into the workers' memory: read there, in every pass, ahead of the passes.

A worker computes a `Lazy` block itself, each time that it needs it, and keeps as many as fit
(`stradask.scheduler.read_ahead`).
"""

import math

import numpy as np
from scipy import sparse

from ...errors import DataError
from ...scheduler.allocation import keep_freed_memory
from ...scheduler.read_ahead import ReadAhead
from ...scheduler.threads import own_threads
from ...scheduler.workers import open_workers
from .pieces import is_dask, lazy_blocks
from .reduced import reduced

_MOST_MEMORY = 0.4  # of the workers', that X may fill, from which on it is read in every pass
_KEPT = 0.6  # of a worker's memory, up to which blocks are kept; at .7 Dask spills, at .8 it pauses a worker
_WORKING = 2  # times its size is a block while it is read and checked
_AHEAD = 2  # blocks
_MOST = 0.85  # of a worker's memory that may be needed; at .95 its nanny ends it
_A_ROW = 32  # bytes that stay in memory: target, weight, curvature and one for a copy
_BLOCK = 1 / 32  # of the memory for each thread and block ahead, that a part of files has
_LEAST_SHARE = 1 / 8  # of the size of parts
_PART = 1 << 25  # bytes of a part for workers that have plenty


class RowStream:
    """Makes of a `Lazy` source a `StreamedBlock`, on the worker that has it.

    `n_bytes` of blocks are kept by each worker. `read`: ``read(source, again)`` returns a checked block;
    `again` says that the block was checked before: of numbers that cannot lead a kernel astray no more than
    the shape is looked at then. Pickled, it is the stream of another worker.
    """

    def __init__(self, read, n_bytes, n_columns, dtype, is_sparse):
        self.read, self.n_columns = read, n_columns
        self.dtype, self.is_sparse = np.dtype(dtype), is_sparse
        self.blocks = ReadAhead(n_bytes, _AHEAD)

    def __call__(self, source):
        """Return the block of a source: its number, its first row or column, its rows, and what is read."""
        keep_freed_memory()  # blocks come and go
        number, _, n_rows, _ = source
        return StreamedBlock(self, number, source, (n_rows, self.n_columns))


class StreamedBlock:
    """Rows of X that are read when they are needed: `matrix` gives them."""

    def __init__(self, stream, number, source, shape, value=None, n_entries=None):
        self.stream, self.number, self.source, self.shape = stream, number, source, shape
        self.dtype, self._n_entries, self._checked = stream.dtype, n_entries, False
        if n_entries is None and stream.is_sparse:
            value = self._read()
            self._n_entries = value.nnz
        stream.blocks.add(number, self._read, self.n_bytes, value)

    def _read(self):
        block = self.stream.read(self.source, self._checked)
        self._checked = True
        return block

    @property
    def n_entries(self):
        """Stored entries."""
        return self.shape[0] * self.shape[1] if self._n_entries is None else self._n_entries

    @property
    def n_bytes(self):
        """Bytes in memory."""
        if not self.stream.is_sparse:
            return self.n_entries * self.dtype.itemsize
        return self.n_entries * (self.dtype.itemsize + 4) + 8 * self.shape[0]

    def matrix(self):
        """Return the rows."""
        return self.stream.blocks.get(self.number)

    def renewed(self, stream):
        """Make one of another stream, with what this one has in memory."""
        if stream is self.stream:
            return self
        value = self.stream.blocks.kept(self.number)
        return StreamedBlock(stream, self.number, self.source, self.shape, value, self._n_entries)


def matrix_of(X):
    """Rows of X that are here, or that are read now."""
    return X.matrix() if isinstance(X, StreamedBlock) else X


def renewed(X, read):
    """X after a loss, for the `read` of the program that goes on."""
    return X.renewed(read) if isinstance(X, StreamedBlock) else X


def share_of_parts(engine):
    """How large parts of files may be for the workers' memory, 1/8 to 1 of 32 MB."""
    if engine == "local" or own_threads() is not None:
        return 1.0
    least = min(worker.limit / (worker.n_threads + _AHEAD) for worker in open_workers(engine).memory())
    return max(_LEAST_SHARE, min(1.0, _BLOCK * least / _PART))


def bytes_to_keep(X, engine, prepare):
    """Bytes of blocks of X that each worker may keep, or None if they all are to be in memory.

    `X`: anything; a Dask array whose blocks are not on the cluster yet, and would fill too much of the
    workers' memory, is to be streamed. DataError where a worker has no memory for the blocks that are needed
    at a time, when it has called `prepare`, which imports what a fit needs.
    """
    if not is_dask(X) or engine == "local" or own_threads() is not None:
        return None
    if not all(map(stands_alone, lazy_blocks([X.blocks[(k, 0)] for k in {0, X.numblocks[0] - 1}]))):
        return None
    cluster = open_workers(engine)
    most = _MOST_MEMORY * sum(worker.limit for worker in cluster.memory())
    if 12 * math.prod(X.shape) + 8 * X.shape[0] <= most or (n_bytes := bytes_of(X, engine)) <= most:
        return None
    block = _WORKING * n_bytes / X.shape[0] * max(X.chunks[0])
    left = []
    workers = cluster.memory_after(prepare)
    n_threads = sum(worker.n_threads for worker in workers)
    for worker in workers:
        rows = _A_ROW * X.shape[0] * worker.n_threads / n_threads
        needed = worker.used + rows + (worker.n_threads + _AHEAD) * block
        if worker.enforced and needed > _MOST * worker.limit:
            raise DataError(
                f"X is beyond the workers' memory, and a limit of {worker.limit / 1e6:,.0f} MB leaves too "
                f"little to read it in blocks: programs take {worker.used / 1e6:,.0f} MB, targets and "
                f"weights {rows / 1e6:,.0f} MB and blocks of {max(X.chunks[0]):,} rows, some read ahead, "
                f"{(needed - worker.used - rows) / 1e6:,.0f} MB: give workers a limit of "
                f"{needed / _MOST / 1e6:,.0f} MB or more, or X smaller chunks"
            )
        left.append(_KEPT * worker.limit - needed)
    return max(int(min(left, default=0)), 0)


def bytes_of(X, engine):
    """Bytes of a Dask array in memory; of a sparse one by what its first block has."""
    if not sparse.issparse(X._meta):
        return math.prod(X.shape) * X.dtype.itemsize
    (first,) = lazy_blocks([X.blocks[(0, 0)]])
    n_bytes, n_rows = reduced(_size, _only, [(first,)], engine)
    return n_bytes / max(n_rows, 1) * X.shape[0]


def stands_alone(lazy):
    """Whether a block can be computed anywhere: nothing that it is made of is on a cluster already."""
    from dask.core import flatten
    from distributed import Future

    for node in lazy.graph.values():
        if hasattr(node, "dependencies"):
            if not node.dependencies <= lazy.graph.keys():
                return False
            continue
        parts = flatten([node], container=(list, tuple))  # as Dask wrote graphs before 2024.12
        if any(isinstance(part, Future) for part in parts):
            return False
    return True


def _size(lazy):
    block = lazy.computed()
    if sparse.issparse(block):
        return 12 * block.nnz + 8 * block.shape[0], block.shape[0]
    return block.nbytes, block.shape[0]


def _only(found):
    return found[0]
