"""A corpus in shards of documents, and its figures that all shards need."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ...datasets.document_files import read_pieces
from ...errors import DataError
from ...scheduler.schedules.rotation import balance
from ...scheduler.stores.store import fingerprint_csr
from ..inputs.matrices import check_counts
from ..inputs.pieces import check_same, computed, is_dask, is_lazy
from ..inputs.texts import text_in
from .samplers.storage import Storage, release

_IN_MEMORY = Storage()

_COUNTED = "bag.map_partitions(lambda texts: stradask.text_counts(texts, vocabulary=words).X)"


@dataclass(frozen=True)
class Summary:
    """Numbers of words and of documents of a corpus."""

    n_words: int
    n_documents: int


@dataclass(frozen=True)
class Corpus:
    """Shards of documents.

    Attributes
    ----------
    shards : list of dict
        Of each its ``number``, its ``source`` (for `read_source`), that of its ``first_document``, and for
        the ``words`` in it the ``offsets``: how many tokens of the word are in shards before it; also its
        ``width`` and ``digest`` if it was surveyed (`survey`).
    frequency : int64 array of shape (n_words,)
        Tokens of each word.
    weights : list of int
        Tokens of each shard.
    longest : int
        Tokens of the longest document.
    rows : list of int64 array, or None
        Which documents of X each shard has, where X is a matrix.
    labels : CSR array, or None
        Of the documents, in the order of X.
    """

    shards: list
    frequency: np.ndarray
    summary: Summary
    weights: list
    longest: int
    rows: list | None = None
    labels: sparse.csr_array | None = None


@dataclass(frozen=True)
class Rows:
    """Documents of a matrix of this process, which is checked; they are copied where they are read."""

    X: sparse.csr_array
    rows: np.ndarray


def corpus_of(sources, figures, n_words, rows=None, storage=_IN_MEMORY):
    """Put shards together, from their `figures_of`; words and offsets are put into the storage."""
    frequency, n_documents, most = np.zeros(n_words, np.int64), 0, 0
    shards: list[dict] = []
    weights = []
    for source, (size, words, tokens, longest) in zip(sources, figures, strict=True):
        offsets = frequency[words].astype(np.int32)  # no word has more tokens (`check_frequency`)
        place = {"number": len(shards), "first_document": n_documents}
        shards.append({"source": source, "words": words, "offsets": storage.put(offsets)} | place)
        weights.append(int(tokens.sum()))
        frequency[words] += tokens
        n_documents, most = n_documents + size, max(most, longest)
        release(words)
        release(tokens)
    return Corpus(shards, frequency, Summary(n_words, n_documents), weights, most, rows)


def corpus_of_matrix(X, n_shards, copies=True):
    """Deal the documents of a CSR matrix of counts into shards of equal weight.

    Without copies the shards are for sessions of this process alone.
    """
    group = balance(np.asarray(X.sum(axis=1, dtype=np.int64)).ravel(), n_shards)
    rows = [np.flatnonzero(group == g) for g in range(n_shards)]
    sources = [X[own] if copies else Rows(X, own) for own in rows]
    return corpus_of(sources, (figures_of(X[own]) for own in rows), X.shape[1], rows)


def with_labels(corpus, labels):
    """Give each shard the labels of its documents, rows of a CSR matrix in the order of X."""
    firsts = [shard["first_document"] for shard in corpus.shards]
    rows = corpus.rows or [slice(*part) for part in itertools.pairwise([*firsts, corpus.summary.n_documents])]
    shards = [shard | {"labels": labels[own]} for shard, own in zip(corpus.shards, rows, strict=True)]
    return replace(corpus, shards=shards, labels=labels)


def figures_of(X):
    """Number of documents of a shard, its words, how many tokens they have, and the longest document has."""
    tokens = np.asarray(X.sum(axis=0, dtype=np.int64)).ravel()
    words = np.flatnonzero(tokens).astype(np.int32)
    longest = int(np.asarray(X.sum(axis=1, dtype=np.int64)).max(initial=0))
    return X.shape[0], words, tokens[words], longest


def read_again(shard, n_words):
    """Read a shard of a `Corpus`, which must be as it was surveyed: kernels trust the figures of it."""
    if isinstance(shard["source"], Rows):
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
        return check_counts("LatentDirichletAllocation", X, reset=False), n_entries
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
    return check_counts("LatentDirichletAllocation", source, reset=False), []
