"""A corpus in shards of documents: their cutting, a first reading, and its figures that all shards need."""

import hashlib
import itertools
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ...._urls import file_name, file_size
from ....datasets._files import too_empty
from ....datasets.document_files import Piece, check_entries, cut_files, document_files, read_pieces
from ....errors import DataError, shortened
from ....scheduler.engine import run
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.rotation import balance
from ....scheduler.schedules.static import StaticSchedule
from ....scheduler.stores.store import fingerprint_csr
from ....scheduler.threads import effective_n_jobs
from ....scheduler.workers import check_engine
from ...inputs.matrices import check_counts, check_words_used
from ...inputs.pieces import check_same, computed, delayed_blocks, is_dask, is_frame, is_lazy, located
from ...inputs.texts import check_are_names, text_in
from ..blocks.packing import pack_numbers, pack_words, unpack_numbers, unpack_words
from ..blocks.storage import Storage, release

_IN_MEMORY = Storage()

# Of files, where nothing else says how many shards there are to be; above a few they are larger, since each
# has words of its own to fetch.
_BYTES_PER_SHARD, _FEW_SHARDS = 2**22, 16
_BYTES_PER_LARGE_SHARD, _MOST_SHARDS = 2**24, 64  # of files
_COUNTED = "bag.map_partitions(lambda texts: stradask.text_counts(texts, vocabulary=words).X)"


@dataclass(frozen=True)
class CorpusSize:
    """Numbers of words and of documents of a corpus."""

    n_words: int
    n_documents: int


@dataclass(frozen=True)
class ShardedCorpus:
    """Shards of documents.

    Attributes
    ----------
    shards : list of dict
        Of each its ``number``, its ``source`` (for `read_source`), that of its ``first_document``, and for
        the ``words`` in it the ``offsets``: how many tokens of the word are in shards before it (both for
        `unpack_words` and `unpack_numbers`); also its ``width`` and ``digest`` if it was surveyed (`survey`).
    frequency : int64 array of shape (n_words,)
        Tokens of each word.
    weights : list of int
        Tokens of each shard.
    longest : int
        Tokens of the longest document.
    n_pairs : list of float
        Pairs of tokens of the same document, of each shard.
    rows : list of int64 array, or None
        Which documents of X each shard has, where X is a matrix.
    labels : CSR array, or None
        Of the documents, in the order of X.
    """

    shards: list
    frequency: np.ndarray
    summary: CorpusSize
    weights: list
    longest: int
    n_pairs: list
    rows: list | None = None
    labels: sparse.csr_array | None = None


@dataclass(frozen=True)
class MatrixRows:
    """Documents of a matrix of this process, which is checked; they are copied where they are read."""

    X: sparse.csr_array
    rows: np.ndarray


def corpus_of(sources, figures, n_words, rows=None, storage=_IN_MEMORY):
    """Put shards together, from their `figures_of`; offsets are put into the storage."""
    frequency, n_documents, most = np.zeros(n_words, np.int64), 0, 0
    shards: list[dict] = []
    weights, n_pairs = [], []
    for source, (size, gaps, numbers, longest, pairs) in zip(sources, figures, strict=True):
        words, tokens = unpack_words(gaps), unpack_numbers(numbers)
        offsets = _put(pack_numbers(frequency[words]), storage)
        place = {"number": len(shards), "first_document": n_documents}
        shards.append({"source": source, "words": gaps, "offsets": offsets} | place)
        weights.append(int(tokens.sum()))
        frequency[words] += tokens
        n_documents, most = n_documents + size, max(most, longest)
        n_pairs.append(pairs)
        let_go(gaps)
        let_go(numbers)
    size = CorpusSize(n_words, n_documents)
    return ShardedCorpus(shards, frequency, size, weights, most, n_pairs, rows)


def _put(arrays, storage):
    return tuple(map(storage.put, arrays))


def let_go(arrays):
    """Release the memory of arrays that are in files."""
    for array in arrays:
        release(array)


def corpus_of_matrix(X, n_shards, copies=True):
    """Deal the documents of a CSR matrix of counts into shards of equal weight.

    Without copies the shards are for sessions of this process alone.
    """
    group = balance(np.asarray(X.sum(axis=1, dtype=np.int64)).ravel(), n_shards)
    rows = [np.flatnonzero(group == g) for g in range(n_shards)]
    sources = [X[own] if copies else MatrixRows(X, own) for own in rows]
    return corpus_of(sources, (figures_of(X[own]) for own in rows), X.shape[1], rows)


def with_labels(corpus, labels):
    """Give each shard the labels of its documents, rows of a CSR matrix in the order of X."""
    return replace(with_rows(corpus, "labels", labels), labels=labels)


def with_rows(corpus, name, matrix):
    """Give each shard its documents' rows of a matrix in the order of X, under that name."""
    firsts = [shard["first_document"] for shard in corpus.shards]
    rows = corpus.rows or [slice(*part) for part in itertools.pairwise([*firsts, corpus.summary.n_documents])]
    shards = [shard | {name: matrix[own]} for shard, own in zip(corpus.shards, rows, strict=True)]
    return replace(corpus, shards=shards)


def figures_of(X):
    """Number of documents of a shard, its words, their tokens, those of the longest document, and pairs.

    Words and their tokens are packed (`pack_words`, `pack_numbers`).
    """
    if too_empty(X.shape[1], X.nnz):  # which is refused when all shards are known
        words, places = np.unique(X.indices, return_inverse=True)
        tokens = np.bincount(places, X.data).astype(np.int64)
    else:
        tokens = np.asarray(X.sum(axis=0, dtype=np.int64)).ravel()
        words = np.flatnonzero(tokens)
        tokens = tokens[words]
    lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
    pairs = float((lengths * (lengths - 1.0)).sum() / 2)
    return X.shape[0], pack_words(words), pack_numbers(tokens), int(lengths.max(initial=0)), pairs


def read_again(shard, n_words):
    """Read a shard of a corpus, which must be as it was surveyed: kernels trust the figures of it."""
    if isinstance(shard["source"], MatrixRows):
        return shard["source"].X[shard["source"].rows]
    X, _ = read_source(shard["source"], n_words)
    if "digest" in shard:
        seen = sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], shard["width"]))
        begins = f"the shard of X that begins with document {shard['first_document']}"
        check_same(fingerprint_csr(seen), shard["digest"], f"{begins} is not what it was when the fit began")
    return X


def read_source(source, n_features=None):
    """Read a shard as checked counts, CSR of int32; also return its numbers of entries (`read_pieces`).

    A source is a tuple of `Piece`, a matrix, a list of matrices, or a delayed value of either.
    """
    if isinstance(source, tuple):
        X, n_entries = read_pieces(source, n_features)
        return check_counts("the model", X, reset=False), n_entries
    if is_lazy(source):  # in a session of this process
        source = computed(source) if is_dask(source) else source.result()
    if isinstance(source, list):  # a partition of a bag
        others = [type(part).__name__ for part in source if getattr(part, "ndim", 0) != 2]
        if source and (text := text_in(source)):
            raise DataError(f"{text}; of a bag by {_COUNTED}")
        if others or not source:
            raise DataError(
                f"a partition of X holds {others[0] if others else 'nothing'}, where matrices of counts are "
                f"expected: count words before the fit, by {_COUNTED}; leave no partition empty"
            )
        widths = {np.shape(part)[1] for part in source}
        if len(widths) > 1:
            raise DataError(f"a partition of X holds matrices of {sorted(widths)} columns: one width for all")
        source = sparse.vstack([sparse.csr_array(part) for part in source], format="csr")
    return check_counts("the model", source, reset=False), []


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


def gathered_counts(X, n_features=None):
    """Counts of what is no matrix, in memory: a CSR array, read and checked part by part.

    Parts are let go as they are copied, so that hardly more than the counts is held.
    """
    sources = sources_of(X)
    _, width, _ = survey(sources, "local", n_features=n_features)
    parts = [read_source(source, width)[0] for source in sources]
    sizes = np.cumsum([0, *(part.nnz for part in parts)])
    rows = np.concatenate([np.diff(part.indptr) for part in parts])
    data, indices = np.empty(sizes[-1], np.int32), np.empty(sizes[-1], np.int32)
    for number in range(len(parts)):
        part = parts[number]
        parts[number] = None
        here = slice(sizes[number], sizes[number + 1])
        data[here], indices[here] = part.data, part.indices
    return sparse.csr_array((data, indices, np.concatenate([[0], np.cumsum(rows)])), shape=(len(rows), width))


def given_documents(model, X):
    """Documents for a fitted model, as a Dask array of blocks if X names files; anything else as it is."""
    if not are_files(X):
        return X
    import dask.array as da
    from dask.delayed import delayed

    width = model.n_features_in_
    read, blank = delayed(_read_documents, pure=True), sparse.csr_array((0, width), dtype=np.int32)
    blocks = [
        da.from_delayed(read(source, width), (np.nan, width), dtype=blank.dtype, meta=blank)
        for source in sources_of(X, n_threads=effective_n_jobs(model.n_jobs))
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _read_documents(source, n_features):
    X, n_entries = read_source(source, n_features)
    check_entries(source, n_entries)
    return X


def are_files(X):
    """Whether X is a name of files, or a list of names."""
    parts = X if isinstance(X, (list, tuple)) and len(X) else [X]
    return all(isinstance(part, (str, os.PathLike)) for part in parts)


def check_order_of_files(X, name):
    """Refuse a list of files in another order than that of their names, in which documents are numbered."""
    if isinstance(X, (list, tuple)) and len(X) and are_files(X):
        check_are_names(X)
        files = list(map(os.fspath, X))
        later = next((b for a, b in itertools.pairwise(files) if b < a), None)
        if later is not None:
            raise DataError(
                f"{name} has a row a document, and files are read in the order of their names, but X has "
                f"{shortened(later)} after a later name: sort X, and the rows of {name} with it"
            )


def sources_of(X, n_shards=None, n_threads=1):
    """Cut what is not a matrix into shards, each of which can be read anywhere and again.

    X is names of files, a Dask array or bag, or a list of delayed matrices or futures. Files are cut into
    `n_shards`, or by their sizes and `n_threads`; the others are as they are cut. Returns tuples of `Piece`,
    or delayed values.
    """
    if are_files(X):
        check_are_names(X)
        files = document_files(X)
        return cut_files(files, n_shards or max(number_of_shards(sum(map(file_size, files))), n_threads))
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


def number_of_shards(n_bytes):
    """Shards of files of so many bytes, 1 to 64."""
    few = min(n_bytes // _BYTES_PER_SHARD + 1, _FEW_SHARDS)
    return max(few, min(n_bytes // _BYTES_PER_LARGE_SHARD, _MOST_SHARDS))


class Survey(Program):
    """Reads every shard once; words and tokens are put into the storage.

    Attributes
    ----------
    found : list of dict
        Of each shard ``size`` (documents), ``width``, ``n_tokens``, its ``words`` and their ``tokens`` (as in
        `figures_of`), the tokens of the ``longest`` document, ``n_pairs`` of tokens, ``n_entries``, and
        ``digest``, a hash of its contents.
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
        size, words, tokens, longest, n_pairs = figures_of(X)
        n_tokens = int(unpack_numbers(tokens).sum())
        figures = {"size": size, "width": X.shape[1], "n_tokens": n_tokens, "longest": longest}
        figures |= {"words": _put(words, self.storage), "tokens": _put(tokens, self.storage)}
        figures["n_pairs"] = n_pairs
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
    if not any(figures["n_tokens"] for figures in found):
        raise DataError("X holds no count above zero; the model needs at least one")
    check_words_used(width, sum(figures["n_tokens"] for figures in found))
    digest = hashlib.sha256("".join(figures["digest"] for figures in found).encode()).hexdigest()
    return found, width, digest


def _called(source):
    if isinstance(source, tuple) and isinstance(source[0], Piece):
        names = [file_name(piece.path) for piece in source]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return "a block of Dask's"
