"""Files of documents in pieces that can be read one by one, anywhere and again.

A piece is a range of documents of one file. Of a plain file it is a range of bytes, cut where a document
ends; of a compressed one the range begins nowhere but in front, so that every piece of it goes through the
whole file and keeps its own documents.
"""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from .._urls import file_name, file_size, is_file, is_folder, matching_files, open_file
from ..errors import DataError, shortened
from ._files import Reader, check_no_text
from .bag_of_words import Lines, csr_of_entries, read_header, save_uci_bow
from .bag_of_words_chunks import iter_uci_bow
from .svmlight import read_svmlight

_DTYPE = np.dtype(np.int32)
_OTHERS = (
    ((".npy",), "numpy.load"),
    ((".npz",), "scipy.sparse.load_npz"),
    ((".parquet", ".pq"), "pandas.read_parquet"),
)
_BLOCK = 1 << 18  # bytes parsed at a time: what is made of them takes five times as many


@dataclass(frozen=True)
class Piece:
    """Some documents of a file, docword or svmlight.

    `stated` are the documents, words and entries that the head of a docword file states. The documents are
    ``first:last``, counted from 0, of a docword file; all of another if last is -1. Their lines are the bytes
    ``start:stop``; -1 for all of the file.
    """

    path: str
    format: str
    stated: tuple[int, int, int] | None = None
    first: int = 0
    last: int = -1
    start: int = -1
    stop: int = -1

    @property
    def n_bytes(self):
        """Bytes that are read for these documents alone."""
        return file_size(self.path) if self.start < 0 else self.stop - self.start

    @property
    def own_bytes(self):
        """About the bytes of these documents, also where the whole of a compressed file is read for them."""
        stated = self.stated if self.start < 0 else None
        share = (self.last - self.first) / max(stated[0], 1) if stated else 1
        return max(self.n_bytes * share, 1)


def document_files(paths):
    """Return the sorted list of the files that names and patterns stand for.

    A name with ``*``, ``?`` or ``[`` is a pattern unless there is such a file. DataError if a pattern fits
    nothing, a file is not there, or one comes twice.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from stradask.datasets.document_files import document_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in (2, 1):
    ...         _ = pathlib.Path(folder, f"docword.{number}.txt").write_text("1\\n1\\n1\\n1 1 1\\n")
    ...     [pathlib.Path(path).name for path in document_files(f"{folder}/docword.*")]
    ['docword.1.txt', 'docword.2.txt']
    """
    found: list[str] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else list(paths):
        name = os.fspath(path)
        fitting = matching_files(name)
        if fitting is not None and not fitting:
            raise DataError(f"X={shortened(name)}: no file fits this pattern")
        found.extend([name] if fitting is None else fitting)
    if not found:
        raise DataError("X is an empty list: give the names of files of documents")
    found.sort()
    for name in found:
        if is_folder(name):
            raise DataError(
                f"{name}: is a folder; name the files in it, as in "
                f"{shortened(os.path.join(name, '*.txt.gz'), 200)}"
            )
        if not is_file(name):
            called = name if len(name) <= 200 else shortened(name)
            raise DataError(
                f"{called}: cannot be opened (there is no such file); check the path; if X holds "
                "texts, count their words first with stradask.text_counts"
            )
    for name, following in itertools.pairwise(found):
        if name == following:
            raise DataError(f"X names the file {name} twice")
    return found


def cut_files(paths, n_shards):
    """Deal the documents of files into shards, tuples of `Piece`, in the order of names; none is empty.

    Names with ``docword`` or headed by three lines of one number are in the UCI bag-of-words format, others
    in the svmlight format, of which there is at least one shard a file, and no more.
    """
    wholes = [_whole(path) for path in paths]
    total = max(sum(piece.n_bytes for piece in wholes), 1)
    pieces = [
        part for piece in wholes for part in _cut(piece, max(round(piece.n_bytes / total * n_shards), 1))
    ]
    weights = np.array([piece.own_bytes for piece in pieces])
    place = ((np.cumsum(weights) - weights / 2) * n_shards / weights.sum()).astype(int)
    shards = [[p for p, at in zip(pieces, place, strict=True) if at == shard] for shard in np.unique(place)]
    return [tuple(shard) for shard in shards]


def read_pieces(pieces, n_features=None):
    """Read documents as counts; return them (CSR) and the lines read of each piece (of svmlight, documents).

    Columns are `n_features`, or what the files state, or for svmlight as many as occur. Counts are int32, for
    svmlight float64. Memory at the peak is 20 bytes an entry of a docword file, half of which stays.
    DataError names file, line and remedy.
    """
    readers = {"docword": _read_docword, "svmlight": _read_lines}
    parts, n_entries = zip(*(readers[piece.format](piece, n_features) for piece in pieces), strict=True)
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        width = max(widths)
        for piece, part in zip(pieces, parts, strict=True):
            if piece.format == "docword" and part.shape[1] != width:
                raise DataError(
                    f"{piece.path} states {part.shape[1]} words, another file {width}: files of one corpus "
                    "have one vocabulary; give n_features if it is a part of a larger one"
                )
        parts = tuple(sparse.csr_array((p.data, p.indices, p.indptr), (p.shape[0], width)) for p in parts)
    X = parts[0] if len(parts) == 1 else sparse.csr_array(sparse.vstack(parts, format="csr"))
    return X, list(n_entries)


def check_entries(pieces, n_entries):
    """Check the entries of files that were read in ranges against what their heads state.

    DataError if a file has fewer or more than its third line says.
    """
    found: dict[tuple[str, int], int] = {}
    for piece, n in zip(pieces, n_entries, strict=True):
        if piece.start >= 0 and piece.stated is not None:
            file = piece.path, piece.stated[2]
            found[file] = found.get(file, 0) + n
    for (path, stated), n in found.items():
        if n != stated:
            raise DataError(
                f"{path} has {n} entries and line 3 states {stated}; it may be cut off: "
                "download or write it again"
            )


def shard_uci_bow(path, n_shards, folder=None, *, verbose=0):
    """Cut a file in the UCI bag-of-words format into several that can be read at the same time.

    Memory: the entries of one of them.

    Parameters
    ----------
    path : str or path-like
        Plain or compressed, its documents in order.
    n_shards : int
        At most as many as there are documents.
    folder : str or path-like, optional
        Made if it is not there; that of `path` by default.
    verbose : int, default=0

    Returns
    -------
    list of Path
        ``NAME.0001.txt.gz`` and so on, for ``NAME.txt`` of any ending, each but the last with as many
        documents as the others. Every one is whole or not there.

    Raises
    ------
    DataError
        As `iter_uci_bow`, and for too many shards.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from stradask.datasets import read_uci_bow
    >>> from stradask.datasets.document_files import shard_uci_bow
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "docword.toy.txt")
    ...     _ = path.write_text("3\\n3\\n3\\n1 1 2\\n1 3 1\\n3 2 5\\n")
    ...     [(part.name, read_uci_bow(part).toarray().tolist()) for part in shard_uci_bow(path, 2)]
    [('docword.toy.0001.txt.gz', [[2, 0, 1], [0, 0, 0]]), ('docword.toy.0002.txt.gz', [[0, 5, 0]])]
    """
    path = Path(path)
    with Reader(path) as reader:
        n_documents = read_header(reader, reader.blocks())[0][0]
    if not 1 <= n_shards <= max(n_documents, 1):
        raise DataError(f"n_shards={n_shards}: {path} has {n_documents} documents; give 1 to so many")
    folder = path.parent if folder is None else Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stem = path.name
    for ending in (".gz", ".xz", ".bz2", ".txt"):
        stem = stem.removesuffix(ending)
    size, paths = -(-n_documents // n_shards), []
    for number, X in enumerate(iter_uci_bow(path, size, verbose=verbose), start=1):
        paths.append(folder / f"{stem}.{number:04d}.txt.gz")
        save_uci_bow(X, paths[-1])
    return paths


# Cutting ----------------------------------------------------------------------------------------------


def is_compressed(path):
    """Return whether a file is compressed, by its content."""
    with Reader(path) as reader:
        return reader.kind != "plain"


def _whole(path):
    for endings, reader in _OTHERS:
        if file_name(path).lower().endswith(endings):
            raise DataError(
                f"{path}: a fit to counts reads files of UCI bag of words and svmlight; read this one, for "
                f"instance with {reader}, and pass the matrix"
            )
    with Reader(path) as reader:
        start = next(reader.blocks(), (1, b""))[1]
        first = start[:200].split(b"\n")
        headed = len(first) > 3 and all(line.strip().isdigit() for line in first[:3])
        is_docword = headed or "docword" in file_name(path)
    if not is_docword:
        check_no_text(path, start, "UCI bag of words or svmlight")
        return Piece(path, "svmlight")
    with Reader(path) as reader:
        stated, _ = read_header(reader, reader.blocks())
    return Piece(path, "docword", tuple(stated), 0, stated[0])


def _cut(piece, n):
    """Cut the piece that is a whole file."""
    if piece.format == "svmlight" or n == 1 or piece.last < 2:
        return [piece]
    n = min(n, piece.last)
    if is_compressed(piece.path):
        edges = [piece.last * i // n for i in range(n + 1)]
        ranges = [(first, last, -1, -1) for first, last in itertools.pairwise(edges)]
    else:
        ranges = _byte_ranges(piece, n)
    return [Piece(piece.path, piece.format, piece.stated, *part) for part in ranges]


def _byte_ranges(piece, n):
    with open_file(piece.path) as file:
        for _ in range(3):
            file.readline()
        body, size = file.tell(), file_size(piece.path)
        cuts = [(body, 0)]
        for i in range(1, n):
            at, document = _next_document(file, body + (size - body) * i // n, size)
            if cuts[-1][0] < at < size and cuts[-1][1] < document < piece.last:
                cuts.append((at, document))
    cuts.append((size, piece.last))
    return [(a[1], b[1], a[0], b[0]) for a, b in itertools.pairwise(cuts)]


def _next_document(file, position, size):
    """Find where, behind a place in a file, a document's lines begin; and its number, from 0."""
    file.seek(position - 1)
    file.readline()
    before = None
    while (at := file.tell()) < size:
        number = file.readline().split(None, 1)[:1]
        if not number or not number[0].isdigit():
            return size, -1  # no well-formed line: the reader raises the error
        if before is not None and number[0] != before:
            return at, int(number[0]) - 1
        before = number[0]
    return size, -1


# Reading ----------------------------------------------------------------------------------------------


class _Range(Reader):
    """A range of the bytes of a plain file, its lines counted as those of the file."""

    def __init__(self, path, start, stop):
        super().__init__(path)
        self.start, self._left = start, stop - start

    def __enter__(self):
        super().__enter__()
        self._stream.seek(self.start)
        return self

    def read(self, size=-1):
        """Return up to size bytes of the range."""
        data = super().read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(data)
        return data

    def error(self, line, what):
        """Return a DataError at a line, counted from the beginning of the file."""
        before = 0
        with open_file(self.path) as file:
            for begin in range(0, self.start, 1 << 20):
                before += file.read(min(1 << 20, self.start - begin)).count(b"\n")
        return super().error(line + before, what)


def _read_docword(piece, n_features):
    whole = piece.start < 0
    with Reader(piece.path) if whole else _Range(piece.path, piece.start, piece.stop) as reader:
        lines = Lines(reader, _DTYPE, size=_BLOCK, stated=None if whole else piece.stated)
        if tuple(lines.stated) != piece.stated:
            raise reader.error(1, f"the file has changed: {lines.stated} were {list(piece.stated)}")
        n_columns = _columns(piece, n_features)
        n_documents, _, n_entries = lines.stated
        index = np.int64 if max(n_documents, n_columns, n_entries) > np.iinfo(np.int32).max else np.int32
        kinds = (index, index, _DTYPE)
        kept = tuple([np.empty(0, kind)] for kind in kinds)  # of each column the parts read so far
        for line, _, triples in lines:
            own = (triples[:, 0] > piece.first) & (triples[:, 0] <= piece.last)
            if not whole and not own.all():
                raise reader.error(
                    line,
                    f"in this block document {triples[~own][0, 0]} stands among documents "
                    f"{piece.first + 1} to {piece.last}: sort the file by document, or compress it",
                )
            for parts, column, kind, base in zip(
                kept, triples.T, kinds, (1 + piece.first, 1, 0), strict=True
            ):
                parts.append((column[own] - base).astype(kind))
    columns = []
    for parts in kept:
        columns.append(np.concatenate(parts))
        parts.clear()
    documents, words, counts = columns
    X = csr_of_entries(documents, words, counts, (piece.last - piece.first, n_columns), piece.path)
    return sparse.csr_array(X), len(counts)  # entries that come more than once are added up


def _columns(piece, n_features):
    n_words = piece.stated[1]
    if n_features is not None and n_features < n_words:
        raise DataError(
            f"n_features={n_features}: {piece.path} states {n_words} words; give no smaller number"
        )
    return n_words if n_features is None else n_features


def _read_lines(piece, n_features):
    X, _ = read_svmlight(piece.path, n_features=n_features, zero_based=False)
    return sparse.csr_array(X), X.shape[0]
