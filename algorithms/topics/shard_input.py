"""A corpus in shards of documents, and what all shards must know of it."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ...datasets.document_files import read_pieces
from ...errors import DataError
from ...scheduler.schedules.rotation import balance
from ...scheduler.stores.store import fingerprint_csr
from ...scheduler.threads import computed_here
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_counts
from ..inputs.texts import text_in
from .samplers.storage import Storage, release

_IN_MEMORY = Storage()


@dataclass(frozen=True)
class Summary:
    """Sizes of a corpus.

    Attributes
    ----------
    n_words, n_documents : int
    """

    n_words: int
    n_documents: int


@dataclass(frozen=True)
class Corpus:
    """Shards of documents.

    Attributes
    ----------
    shards : list of dict
        Of each its ``source`` (what `read_source` takes), the number of its ``first_document`` among all, and
        for the ``words`` in it the ``offsets``: how many tokens of the word lie in shards before it; also
        its ``width`` and ``digest`` if it was surveyed (`survey`).
    frequency : int64 array of shape (n_words,)
        Tokens of each word.
    summary : Summary
    weights : list of int
        Tokens of each shard.
    longest : int
        Tokens of the longest document.
    rows : list of int64 array, or None
        Which documents of X each shard has, where they are not in order.
    """

    shards: list
    frequency: np.ndarray
    summary: Summary
    weights: list
    longest: int
    rows: list | None = None


def corpus_of(sources, figures, n_words, rows=None, storage=_IN_MEMORY):
    """Put shards together.

    Parameters
    ----------
    sources : list
    figures : iterable of (int, int32 array, int64 array, int)
        See `figures_of`.
    n_words : int
    rows : list of int64 array, optional
    storage : Storage, optional
        Where what is known of each shard lies.
    """
    frequency, shards, weights, n_documents, most = np.zeros(n_words, np.int64), [], [], 0, 0
    for source, (size, words, tokens, longest) in zip(sources, figures, strict=True):
        place = {"first_document": n_documents, "words": words, "offsets": storage.put(frequency[words])}
        shards.append({"source": source} | place)
        weights.append(int(tokens.sum()))
        frequency[words] += tokens
        n_documents, most = n_documents + size, max(most, longest)
        release(words)
        release(tokens)
    return Corpus(shards, frequency, Summary(n_words, n_documents), weights, most, rows)


def corpus_of_matrix(X, n_shards):
    """Deal the documents of a CSR matrix of counts into shards of equal weight."""
    group = balance(np.asarray(X.sum(axis=1, dtype=np.int64)).ravel(), n_shards)
    rows = [np.flatnonzero(group == g) for g in range(n_shards)]
    parts = [X[own] for own in rows]
    return corpus_of(parts, map(figures_of, parts), X.shape[1], rows)


def with_labels(corpus, labels):
    """Give each shard the labels of its documents, rows of a CSR matrix in the order of X."""
    firsts = [shard["first_document"] for shard in corpus.shards]
    rows = corpus.rows or [slice(*part) for part in itertools.pairwise([*firsts, corpus.summary.n_documents])]
    shards = [shard | {"labels": labels[own]} for shard, own in zip(corpus.shards, rows, strict=True)]
    return replace(corpus, shards=shards)


def figures_of(X):
    """Number of documents of a shard, its words, how many tokens they have, and the longest document has."""
    tokens = np.asarray(X.sum(axis=0, dtype=np.int64)).ravel()
    words = np.flatnonzero(tokens).astype(np.int32)
    longest = int(np.asarray(X.sum(axis=1, dtype=np.int64)).max(initial=0))
    return X.shape[0], words, tokens[words], longest


def read_again(shard, n_words):
    """Read a shard of a `Corpus`, which must be what was surveyed: kernels trust what is known of it."""
    X, _ = read_source(shard["source"], n_words)
    if "digest" in shard:
        seen = sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], shard["width"]))
        if fingerprint_csr(seen) != shard["digest"]:
            raise DataError(
                f"the shard of X that begins with document {shard['first_document']} is not what it was when "
                "the fit began: leave files as they are while it runs, and let delayed values be the same "
                "each time they are computed"
            )
    return X


def read_source(source, n_features=None):
    """Read a shard as checked counts, CSR.

    Parameters
    ----------
    source : tuple of Piece, matrix, list of matrices, or delayed value of either
    n_features : int, optional

    Returns
    -------
    X : csr_array of int32
    n_entries : list of int
        See `read_pieces`.
    """
    if isinstance(source, tuple):
        X, n_entries = read_pieces(source, n_features)
        return check_counts("LatentDirichletAllocation", X, reset=False), n_entries
    if is_lazy(source):  # in a session of this process
        source = computed_here(source)[0] if hasattr(source, "compute") else source.result()
    if isinstance(source, list):  # a partition of a bag
        others = [type(part).__name__ for part in source if getattr(part, "ndim", 0) != 2]
        if source and (text := text_in(source)):
            raise DataError(f"{text}; of a bag by bag.map_partitions(vectorizer.transform)")
        if others or not source:
            raise DataError(
                f"a partition of X holds {others[0] if others else 'nothing'}, where matrices of counts are "
                "expected: count words before the fit, for instance by "
                "bag.map_partitions(CountVectorizer(vocabulary=words).transform); leave no partition empty"
            )
        widths = {np.shape(part)[1] for part in source}
        if len(widths) > 1:
            raise DataError(f"a partition of X holds matrices of {sorted(widths)} columns: one width for all")
        source = sparse.vstack([sparse.csr_array(part) for part in source], format="csr")
    return check_counts("LatentDirichletAllocation", source, reset=False), []


def is_lazy(X):
    """Whether X is a collection or a future of Dask's."""
    return is_dask(X) or type(X).__module__.startswith("distributed.client")
