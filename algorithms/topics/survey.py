"""A first reading of all shards: the figures of a corpus that its layout needs."""

import hashlib
import os
from typing import Any

from scipy import sparse

from ...datasets.document_files import Piece, check_entries, cut_files, document_files
from ...errors import DataError
from ...scheduler.engine import run
from ...scheduler.place import check_engine
from ...scheduler.program import Outcome, Program
from ...scheduler.schedules.static import StaticSchedule
from ...scheduler.stores.store import fingerprint_csr
from ..inputs.pieces import delayed_blocks, is_dask, is_frame, is_lazy, located
from ..inputs.texts import check_are_names
from .samplers.storage import Storage
from .shard_input import figures_of, read_source

_IN_MEMORY = Storage()
# Of files, where nothing else says how many shards there are to be; above a few they are larger, since each
# has words of its own to fetch.
_BYTES_PER_SHARD, _FEW_SHARDS = 2**22, 16
_BYTES_PER_LARGE_SHARD, _MOST_SHARDS = 2**24, 64


def in_shards(X, engine):
    """Whether the engine is a cluster, or the data are no matrix."""
    check_engine(engine)
    return engine != "local" or is_sharded(X)


def is_sharded(X):
    """Whether X is names of files, a Dask collection, or a list of such."""
    if isinstance(X, (list, tuple)) and len(X) and (sparse.issparse(X[0]) or isinstance(X[0], str)):
        kinds = sorted({type(part).__name__ for part in X if not isinstance(part, (str, os.PathLike))})
        if kinds:
            raise DataError(
                f"X is a list with parts of type {', '.join(kinds)}: stack matrices with scipy.sparse.vstack "
                "or make each a dask.delayed value; names of files come in a list of their own"
            )
    return are_files(X) or is_lazy(X) or (isinstance(X, (list, tuple)) and len(X) > 0 and is_lazy(X[0]))


def check_at_hand(X):
    """Refuse what can be fitted to and is no matrix, and no collection of Dask's."""
    if is_sharded(X) and not is_dask(X):
        if are_files(X):
            check_are_names(X)
        what = "names of files" if are_files(X) else "a list of delayed values or futures"
        raise DataError(
            f"X is {what}: documents to infer come as a matrix or a Dask array; stradask.datasets reads "
            "files and dask.array.from_delayed makes blocks of an array"
        )


def are_files(X):
    """Whether X is a name of files, or a list of names."""
    parts = X if isinstance(X, (list, tuple)) and len(X) else [X]
    return all(isinstance(part, (str, os.PathLike)) for part in parts)


def sources_of(X, n_shards=None, n_threads=1):
    """Cut what is not a matrix into shards, each of which can be read anywhere and again.

    X is names of files, a Dask array or bag, or a list of delayed matrices or futures. Files are cut into
    `n_shards`, or by their sizes and `n_threads`; the others are as they are cut. Returns tuples of `Piece`,
    or delayed values.
    """
    if are_files(X):
        check_are_names(X)
        files = document_files(X)
        return cut_files(
            files, n_shards or max(_number_of_shards(sum(map(os.path.getsize, files))), n_threads)
        )
    if isinstance(X, (list, tuple)):
        return list(X)
    if is_frame(X):  # whose columns are attributes, too
        X = X.to_dask_array(lengths=True)
    if hasattr(X, "dask") and hasattr(X, "key"):  # one delayed value, which has any other attribute too
        return [X]
    if not hasattr(X, "chunks"):  # a bag, or a future
        return X.to_delayed() if hasattr(X, "to_delayed") else [X]
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, documents and words, but it has {X.ndim}")
    return delayed_blocks(X, "X", "documents")


def _number_of_shards(n_bytes):
    """Shards of files of so many bytes, 1 to 64."""
    few = min(n_bytes // _BYTES_PER_SHARD + 1, _FEW_SHARDS)
    return max(few, min(n_bytes // _BYTES_PER_LARGE_SHARD, _MOST_SHARDS))


class Survey(Program):
    """Reads every shard once; words and tokens are put into the storage.

    Attributes
    ----------
    found : list of dict
        Of each shard ``size`` (documents), ``width``, ``n_tokens``, its ``words`` and their ``tokens``, the
        tokens of the ``longest`` document, ``n_entries``, and ``digest``, a hash of its contents.
    """

    measure_every = 0
    unit = "shard"

    def __init__(self, sources, n_features=None, storage=_IN_MEMORY):
        self.storage = storage
        self.shards, self.n_features = [{"source": s, "number": n} for n, s in enumerate(sources)], n_features
        self.found: list[dict[str, Any]] = []

    def load(self, data):
        """Read a shard; a worker that is lost afterwards takes only its own figures with it."""
        with located(f"in shard {data['number']} of X"):
            X, n_entries = read_source(data["source"], self.n_features)
        size, words, tokens, longest = figures_of(X)
        figures = {"size": size, "width": X.shape[1], "n_tokens": int(tokens.sum()), "longest": longest}
        figures |= {"words": self.storage.put(words), "tokens": self.storage.put(tokens)}
        return figures | {"n_entries": n_entries, "digest": fingerprint_csr(X)}

    def renew(self, state):
        """Figures are never changed."""
        return state

    def update(self, state, task):
        """Return what was found."""
        return state

    def aggregate(self, tasks, partials):
        """Take what was found."""
        self.found = partials
        return Outcome(done=True, updates=len(tasks))


def survey(sources, engine, n_jobs=None, n_features=None, storage=_IN_MEMORY):
    """Compute the figures of all shards (`Survey.found`), and compare them with one another.

    Also returns the columns of all shards, and a hash of their contents.
    """
    program = Survey(sources, n_features, storage)
    run(program, StaticSchedule(1, n_shards=len(sources)), max_rounds=1, engine=engine, n_jobs=n_jobs)
    found = program.found
    pieces = [piece for source in sources if isinstance(source, tuple) for piece in source]
    check_entries(pieces, [n for figures in found for n in figures["n_entries"]])
    widths = [figures["width"] for figures in found]
    states = [not isinstance(source, tuple) or source[0].format == "docword" for source in sources]
    width = n_features or max(widths)
    for number, (source, own, is_stated) in enumerate(zip(sources, widths, states, strict=True)):
        if own > width or (is_stated and own != width):
            raise DataError(
                f"shard {number} of X ({_called(source)}) has {own} columns, but n_features or another shard "
                f"says {width}: all shards need the columns of one vocabulary"
            )
    if not any(len(figures["words"]) for figures in found):
        raise DataError("X holds no count above zero; LatentDirichletAllocation needs at least one")
    digest = hashlib.sha256("".join(figures["digest"] for figures in found).encode()).hexdigest()
    return found, width, digest


def _called(source):
    if isinstance(source, tuple) and isinstance(source[0], Piece):
        names = [os.path.basename(piece.path) for piece in source]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return "a block of Dask's"
