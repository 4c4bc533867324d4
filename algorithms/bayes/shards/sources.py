"""Shards that workers read: files, and blocks of Dask collections.

A `Source` is a few bytes, which are sent to the worker of the shard. It reads the data, and another worker
reads them again if it is lost. A checksum makes sure that the data have not changed in between.
"""

import os
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ....errors import DataError, shortened
from ...inputs.pieces import check_same, checksum, delayed_blocks, is_dask, is_frame
from ...inputs.texts import check_are_names
from .tasks import ShardPool

ROW_VECTORS = ("sample_weight", "offset", "groups")  # further arrays of an npz file with X and y
_FULL = 0.05  # part of the entries of an svmlight file that must not be zero where X is large
_LARGE = 2**27  # entries of X: a gigabyte


class Source:
    """Where the observations of a shard are read; `number` is the shard's.

    An svmlight file does not state its columns `n_features`, nor whether it counts them from 0
    (`zero_based`): "auto" takes 1 if it does not name the column 0. `checksum` is that of `read` before. For
    the spec see `find_sources`. `workers` are the Dask workers that alone may read it, () for any.
    """

    def __init__(self, spec, number, n_features=None, zero_based="auto", checksum=None):
        self.spec, self.number, self.checksum = spec, number, checksum
        self.n_features, self.zero_based = n_features, zero_based
        self.workers = _workers_of(spec, f"shard {number}")

    def __repr__(self):
        return f"shard {self.number}" + (f" ({self.spec})" if isinstance(self.spec, str) else "")

    @property
    def is_svmlight(self):
        """Whether it is a file that states neither its width nor from where it counts columns."""
        return isinstance(self.spec, str) and not self.spec.endswith((".npy", ".npz"))

    def known(self, **what):
        """Return the source with some attributes replaced."""
        names = ("n_features", "zero_based", "checksum")
        return Source(self.spec, self.number, **{name: getattr(self, name) for name in names} | what)

    def read(self):
        """Read the arrays: an array, or a dict of them by name, or a tuple where nothing names them.

        Raises a DataError that names the shard, where it cannot be read or has changed.
        """
        try:
            arrays = self._read(self.spec)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise DataError(f"{self} cannot be read: {error}") from error
        if self.checksum is not None:
            check_same(checksum(arrays), self.checksum, f"{self} has changed since it was read first")
        return arrays

    def take(self):
        """Read an array or a tuple of arrays, for a user's density."""
        arrays = self.read()
        arrays = tuple(arrays.values()) if isinstance(arrays, dict) else arrays
        return arrays[0] if isinstance(arrays, tuple) and len(arrays) == 1 else arrays

    def _read(self, spec):
        if isinstance(spec, str):
            return self._read_file(spec)
        if isinstance(spec, tuple):
            return tuple(self._read(part) for part in spec)
        if not is_dask(spec):
            return spec
        dask = sys.modules["dask"]
        (block,) = dask.compute(spec, scheduler=dask.get)  # in this thread: shards share the `n_jobs` threads
        return block

    def _read_file(self, path):
        if path.endswith(".npy"):
            return np.load(path, mmap_mode="r", allow_pickle=False)
        if path.endswith(".npz"):
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        from ....datasets import read_svmlight

        X, y = read_svmlight(path, n_features=self.n_features, zero_based=self.zero_based)
        return {"X": X, "y": y}


def find_sources(data):
    """Make the sources of a list of shards' specifications; None for all other data.

    Entries are each the path of a file (npz, npy or svmlight), a Delayed of Dask's, or a tuple of such and of
    arrays. Raises a DataError for files that are not there or of no known kind, where the client sees the
    folder, and blocks that a cluster holds and could not make again.
    """
    if not isinstance(data, list) or not data or not all(map(_is_spec, data)):
        return None
    return [Source(_plain(spec, number), number) for number, spec in enumerate(data)]


def blocks_of(X, y):
    """Make the sources of a Dask array's blocks of rows, of known sizes, and of the vector y."""
    if y is None:
        raise DataError("y is missing: give a vector, or a Dask array, with an entry for each row of X")
    for name, part in (("X", X), ("y", y)):
        _check_not_held(name, part)
        if is_dask(part) and any(_bounds(part, name)):
            raise DataError(
                f"{name} has dask.annotate(workers=...), which blocks of a collection lose: give shards as a "
                "list of dask.delayed values that were made under it"
            )
    X = X.rechunk({1: -1})
    sizes = X.chunks[0]
    if not is_dask(y):
        y = np.asarray(y)
        parts = np.split(y, np.cumsum(sizes)[:-1]) if len(y) == len(X) else None
    else:
        y = y.to_dask_array(lengths=True) if is_frame(y) else y
        parts = delayed_blocks(y.rechunk({0: sizes}), "y") if len(y) == len(X) else None
    if parts is None:
        raise DataError(f"X has {len(X)} rows, y {len(y)}: give as many")
    pairs = zip(delayed_blocks(X, "X"), parts, sizes, strict=True)
    specs = [(block, part) for block, part, size in pairs if size]  # Dask allows empty chunks
    return [Source(_plain(spec, number), number) for number, spec in enumerate(specs)]


def look_at(looks, sources, **places):
    """Call functions of a shard's number, each where its source is read; `places`: `ShardPool`."""
    workers = [source.workers for source in sources]
    with ShardPool(looks, len(looks), workers=workers, **places) as pool:
        return pool.values(_itself, None)


def with_columns(sources, **places):
    """Settle for all svmlight files together how wide they are, and from where they count columns.

    One file alone cannot tell: rows of a shard may happen to have nothing in the first or the last columns.
    """
    unknown = [source.known(zero_based=True) for source in sources if source.is_svmlight]
    if not unknown:
        return sources
    extents = look_at([partial(_extent, source) for source in unknown], unknown, **places)
    zero_based = any(lowest == 0 for lowest, _ in extents)
    settled = {
        "n_features": max(1, max(width for _, width in extents) - (not zero_based)),
        "zero_based": zero_based,
    }
    return [source.known(**settled) if source.is_svmlight else source for source in sources]


def columns_of(source):
    """Read the shard of a regression; returns its arrays by name, X dense, and the checksum.

    It is an npz file with ``X`` and ``y``, and perhaps ``sample_weight``, ``offset`` and ``groups``; an
    svmlight file; or a lazy pair (X, y) or dict of these names.
    """
    content = source.read()
    total = checksum(content)
    if isinstance(content, tuple | list) and len(content) == 2:
        content = dict(zip(("X", "y"), content, strict=True))
    if not isinstance(content, dict) or not {"X", "y"} <= {*content} <= {"X", "y", *ROW_VECTORS}:
        held = f"{sorted(content)}" if isinstance(content, dict) else f"a {type(content).__name__}"
        raise DataError(
            f"{source} must hold X and y, and perhaps {', '.join(ROW_VECTORS)}; it holds {held}: give an npz "
            "file with these names, an svmlight file, or a pair (X, y)"
        )
    arrays: dict[str, Any] = dict(content)
    if sparse.issparse(arrays["X"]):
        arrays["X"] = _dense(source, arrays["X"])
    return arrays, total


def _dense(source, X):
    rows, columns = X.shape
    size = rows * columns
    if size > _LARGE and X.nnz < _FULL * size:
        raise DataError(
            f"{source} has {rows} rows of {columns} columns, of which most entries are zero: every step of "
            "this model reads each row in full; take SparseLogisticRegression, fewer columns, or more shards"
        )
    return X.toarray()


def _extent(source, shard):
    """The first column that is not empty, and how many there are, counted from 0."""
    X = source.read()["X"]
    return int(X.indices.min()) if X.nnz else X.shape[1], X.shape[1]


def _itself(seen, points):
    return seen


def _is_spec(value):
    if isinstance(value, tuple):
        return any(map(_is_spec, value))
    return isinstance(value, str | os.PathLike) or is_dask(value)


def _plain(spec, number):
    """Make paths absolute text; refuse collections whose values a cluster holds."""
    if isinstance(spec, tuple):
        return tuple(_plain(part, number) for part in spec)
    if isinstance(spec, str | os.PathLike):
        check_are_names(spec)
        path = Path(os.fsdecode(spec)).absolute()
        if path.parent.is_dir() and not path.is_file():  # else a folder that only workers see
            raise DataError(f"shard {number}: there is no file {path}")
        return str(path)
    if not is_dask(spec):
        return np.asarray(spec)
    _check_not_held(f"shard {number}", spec)
    return spec


def _workers_of(spec, name):
    """The workers for which ``dask.annotate(workers=...)`` made a delayed value; () for any."""
    parts = spec if isinstance(spec, tuple) else (spec,)
    found = {only for part in parts if is_dask(part) for only in _bounds(part, name)}
    if len(found) > 1:
        raise DataError(f"{name} is for several workers: {sorted(found)}; annotate all of it with the same")
    return next(iter(found), ())


def _bounds(collection, name):
    """The workers to which the layers of a collection's graph are bound, a tuple for each that is."""
    for layer in getattr(collection.__dask_graph__(), "layers", {}).values():
        given = layer.annotations or {}
        if "resources" in given:
            raise DataError(
                f"{name} has dask.annotate(resources={shortened(given['resources'])}), by which tasks are "
                "not placed here: name the workers instead, with dask.annotate(workers=...)"
            )
        if "workers" in given and not given.get("allow_other_workers"):
            only = given["workers"]
            if not isinstance(only, str | int | list | tuple | set):
                raise DataError(
                    f"{name} has dask.annotate(workers={shortened(only)}); give names or addresses of workers"
                )
            yield (str(only),) if isinstance(only, str | int) else tuple(sorted(map(str, only)))


def check_alone(workers):
    """Refuse a single shard that this process would read, where it is for certain workers."""
    if workers:
        raise DataError(
            f"there is one shard, which is for the worker {' or '.join(workers)} alone (dask.annotate), and "
            "would be read in this process: fit it there, or give other shards as well"
        )


def _check_not_held(name, value):
    """Refuse collections whose values a cluster holds: they die with their worker."""
    if is_dask(value) and "distributed" in sys.modules and sys.modules["distributed"].futures_of(value):
        raise DataError(
            f"{name} is held by a cluster, and could not be made again when a worker dies: give the "
            "collection as it was before persist()"
        )
