"""The UCI bag-of-words format some documents at a time, for corpora that do not fit in memory."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from .._typing import DTypeLike, FileName
from ..errors import DataError, shortened
from ._files import Reader
from .bag_of_words import Lines, add_up, checked_columns, checked_dtype, line_of_row


def iter_uci_bow(
    path: FileName,
    chunk_size: int = 10_000,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.int32,
    verbose: int = 0,
) -> Iterator[Any]:
    r"""Read word counts in the UCI bag-of-words format, `chunk_size` documents at a time.

    The file is read once, from front to end, and must hold its documents in order. Memory: the entries of a
    chunk, and a megabyte of the file.

    Parameters
    ----------
    path : str, path-like or URL
        The ``docword`` file, plain, gzip, xz or bzip2.
    chunk_size : int, default=10_000
        Documents of each matrix but the last.
    n_features, dtype, verbose
        As in `read_uci_bow`.

    Yields
    ------
    X : csr_matrix of shape (chunk_size, n_features)
        Counts, with sorted indices and no duplicates. Documents without entries are rows, too.

    Raises
    ------
    DataError
        The file cannot be read, a line of it is not what the format says, or a document comes after a
        later one. Matrices that were given before are right.

    See Also
    --------
    read_uci_bow : The whole file at once, documents in any order.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask.datasets import iter_uci_bow
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "docword.toy.txt"
    >>> _ = path.write_text("3\n3\n3\n1 1 2\n1 3 1\n3 2 5\n")
    >>> [X.toarray().tolist() for X in iter_uci_bow(path, 2)]
    [[[2, 0, 1], [0, 0, 0]], [[0, 5, 0]]]
    >>> folder.cleanup()
    """
    if not isinstance(chunk_size, Integral) or chunk_size < 1:
        raise DataError(f"chunk_size={shortened(chunk_size)}; give a whole number of at least 1")
    return _chunks(path, int(chunk_size), n_features, checked_dtype(dtype), verbose)


def _chunks(path, chunk_size, n_features, dtype, verbose):
    with Reader(path, verbose=verbose) as reader:
        lines = Lines(reader, dtype)
        n_documents, n_words, _ = lines.stated
        n_columns = checked_columns(n_features, n_words, path)
        first, kept = 0, [np.empty((0, 3), np.int64)]  # of the current chunk

        def chunk(triples):
            size = min(chunk_size, n_documents - first)
            place = (triples[:, 0] - 1 - first, triples[:, 1] - 1)
            X = sparse.csr_matrix((triples[:, 2].astype(dtype), place), shape=(size, n_columns))
            return X if X.nnz == len(triples) else _added_up(triples, place, X.shape, dtype, path)

        for line, block, triples in lines:
            _check_order(reader, line, block, triples, kept[-1])
            while len(triples) and triples[-1, 0] > first + chunk_size:
                here = np.searchsorted(triples[:, 0], first + chunk_size, side="right")
                yield chunk(np.concatenate([*kept, triples[:here]]))
                first, triples, kept = first + chunk_size, triples[here:], [triples[:0]]
            if len(triples):
                kept.append(triples)
        while first < n_documents:
            yield chunk(np.concatenate(kept))
            first, kept = first + chunk_size, [kept[0][:0]]


def _check_order(reader, line, block, triples, before):
    documents = triples[:, 0]
    last = before[-1, 0] if len(before) else 0
    back = np.flatnonzero(np.diff(documents, prepend=last) < 0)
    if len(back):
        raise reader.error(
            line_of_row(line, block, back[0]),
            f"document {documents[back[0]]} after a later one; sort the file by document, or read it whole "
            "with read_uci_bow",
        )


def _added_up(triples, place, shape, dtype, path):
    """A chunk with entries that come more than once."""
    order = np.lexsort((place[1], place[0]))
    rows, columns = (part[order] for part in place)
    starts = np.searchsorted(rows, np.arange(shape[0] + 1))
    return add_up(sparse.csr_matrix((triples[order, 2].astype(dtype), columns, starts), shape=shape), path)
