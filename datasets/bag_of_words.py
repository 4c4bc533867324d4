"""The UCI bag-of-words format: counts of words in documents.

Three lines say how many documents, words and entries follow; each further line is one entry,
``document word count``, with documents and words counted from 1::

    2
    3
    3
    1 1 2
    1 3 1
    2 2 5

Lines are parsed a block at a time: the bytes that are not digits are compared with the one pattern that
well-formed lines leave, and only then are the numbers parsed in bulk. A block that does not pass is tried
again without what is harmless (tabs, several spaces, empty lines), and then gone through line by line,
which names the first line at fault.
"""

import re
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from .._typing import DTypeLike, FileName, Matrix, Names
from .._urls import file_name, sibling
from ..errors import DataError, shortened
from ._common import type_of
from ._files import Reader, too_empty, write_aside

_HEADER = ("number of documents", "number of words", "number of entries")
_COLUMNS = ("document", "word", "count")
_WRITE_ENTRIES = 200_000  # formatted at once


def read_uci_bow(
    path: FileName,
    vocabulary: FileName | None = None,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.int32,
    verbose: int = 0,
) -> Any:
    r"""Read word counts in the UCI bag-of-words format.

    Plain, gzip, xz and bzip2 files are recognised by what they hold. Entries may come in any order; an
    entry (document, word) that comes more than once has its counts added up.

    Memory at the peak is 13 bytes an entry where the documents are in order (the result holds 8) and 33
    where they are not; about twice that where there are more than 2**31 - 1 words or entries.

    Parameters
    ----------
    path : str, path-like or URL
        The ``docword`` file.
    vocabulary : str or path-like, default=None
        The ``vocab`` file: one word a line, as many lines as there are words.
    n_features : int, default=None
        Columns of the result; the number of words that the file states when None. It may be larger
        (columns at the end stay empty), not smaller.
    dtype : dtype, default=numpy.int32
        Integer or floating type of the counts. A count that it cannot hold exactly is an error.
    verbose : int, default=0
        Show a progress bar over the bytes of the file.

    Returns
    -------
    X : csr_matrix of shape (n_documents, n_features)
        Counts, with sorted indices and no duplicates. When `vocabulary` is None, it is returned alone.
    words : list of str
        The word of each column that the file states. Only when `vocabulary` is given:
        ``X, words = read_uci_bow(path, vocabulary)``.

    Raises
    ------
    DataError
        The file cannot be read, or a line of it is not what the format says.

    See Also
    --------
    save_uci_bow : Write this format.

    References
    ----------
    .. [1] D. Newman, "Bag of Words", UCI Machine Learning Repository, 2008.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask.datasets import read_uci_bow
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "docword.toy.txt"
    >>> _ = path.write_text("2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n")
    >>> read_uci_bow(path).toarray()
    array([[2, 0, 1],
           [0, 5, 0]], dtype=int32)
    >>> folder.cleanup()
    """
    dtype = checked_dtype(dtype)
    with Reader(path, verbose=verbose) as reader:
        lines = Lines(reader, dtype)
        n_documents, n_words, _ = lines.stated
        n_columns = checked_columns(n_features, n_words, path)
        names = None if vocabulary is None else read_vocabulary(vocabulary, n_words, path)
        documents, words, counts = _allocate(reader, lines.stated, dtype)
        start = 0
        for _, _, triples in lines:
            block = slice(start, start := start + len(triples))
            np.subtract(triples[:, 0], 1, out=documents[block], casting="unsafe")
            np.subtract(triples[:, 1], 1, out=words[block], casting="unsafe")
            counts[block] = triples[:, 2]
    X = csr_of_entries(documents, words, counts, (n_documents, n_columns), path)
    return X if names is None else (X, names)


def save_uci_bow(
    X: Matrix, path: FileName, vocabulary: Names | None = None, *, vocabulary_path: FileName | None = None
) -> None:
    r"""Write word counts in the UCI bag-of-words format.

    The files are written aside and renamed: they are whole or not there. Stored zeros are left out,
    because the format has none, and duplicate entries are added up.

    Parameters
    ----------
    X : sparse matrix or array of shape (n_documents, n_words)
        Counts: whole numbers, none negative.
    path : str or path-like
        The file to write; a name in ``.gz``, ``.xz`` or ``.bz2`` is compressed.
    vocabulary : sequence of str, default=None
        The word of each column, written one a line.
    vocabulary_path : str or path-like, default=None
        Where the words go. When None, ``docword`` in the name of `path` becomes ``vocab`` and an ending
        that says how the file is compressed is dropped: ``docword.toy.txt.gz`` has ``vocab.toy.txt``.

    Raises
    ------
    DataError
        `X` holds a value that is no count, the vocabulary does not fit, or a file cannot be written.

    See Also
    --------
    read_uci_bow : Read this format.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from scipy.sparse import csr_matrix
    >>> from stradask.datasets import read_uci_bow, save_uci_bow
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "docword.toy.txt.gz"
    >>> save_uci_bow(csr_matrix([[2, 0, 1], [0, 5, 0]]), path, ["ant", "bee", "cow"])
    >>> X, words = read_uci_bow(path, path.with_name("vocab.toy.txt"))
    >>> int(X.sum()), words
    (8, ['ant', 'bee', 'cow'])
    >>> folder.cleanup()
    """
    X = _checked_counts(X)
    if vocabulary is not None:
        words = _checked_words(vocabulary, X.shape[1])
        vocabulary_path = _vocabulary_path(path, vocabulary_path)
    elif vocabulary_path is not None:
        raise DataError(
            f"vocabulary_path={shortened(str(vocabulary_path), 200)} needs vocabulary, the words to write "
            "there"
        )
    with write_aside(path) as handle:
        handle.write(b"%d\n%d\n%d\n" % (*X.shape, X.nnz))
        for start in range(0, X.nnz, _WRITE_ENTRIES):
            handle.write(_format_entries(X, start, min(start + _WRITE_ENTRIES, X.nnz)))
    if vocabulary is not None:
        with write_aside(vocabulary_path) as handle:
            handle.write("".join(f"{word}\n" for word in words).encode())


# ---- reading ----


def checked_dtype(dtype):
    """Return a type that can hold counts, or raise an error."""
    checked = type_of(dtype)
    if checked.kind not in "iu" and checked not in (np.float32, np.float64):
        raise DataError(f"dtype={shortened(dtype)} cannot hold counts; give an integer or floating type")
    return checked


def largest_count(dtype):
    """Return the largest count up to which every whole number has an exact value of this type."""
    if dtype.kind == "f":
        return 2 ** (np.finfo(dtype).nmant + 1)
    return min(int(np.iinfo(dtype).max), 2**63 - 2)  # in bulk, larger ones are parsed as 2**63 - 1


def checked_columns(n_features, n_words, path):
    """Return the number of columns of the result."""
    if n_features is None:
        return n_words
    if not isinstance(n_features, Integral) or n_features < n_words:
        raise DataError(
            f"n_features={shortened(n_features)}: {path} states {n_words} words; give None or a whole number "
            "that is not smaller"
        )
    return int(n_features)


def read_header(reader, blocks):
    """Return the three numbers, and the rest of the block that holds them with its line number."""
    head = b""
    while head.count(b"\n") < 3:
        _, block = next(blocks, (0, b""))
        if not block:
            line = head.count(b"\n") + 1
            raise reader.error(line, f"the file ends where the {_HEADER[line - 1]} should stand")
        head += block
    *lines, body = head.split(b"\n", 3)
    numbers = []
    for line, (text, meaning) in enumerate(zip(lines, _HEADER, strict=True), start=1):
        if not re.fullmatch(rb"\s*[0-9]{1,18}\s*", text):
            raise reader.error(
                line,
                f"the {meaning} should stand here alone, a whole number, not {_shown(text)}",
            )
        numbers.append(int(text))
    if too_empty(numbers[0], numbers[2]):
        raise reader.error(
            1, f"{numbers[0]} documents with {numbers[2]} entries in all; correct lines 1 and 3"
        )
    return numbers, (4, body)


def _shown(text):
    """Return bytes of a file fit for an error message."""
    text = text.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


class Lines:
    """The lines of entries of a file, block by block, parsed and checked.

    `stated` are the documents, words and entries that its head states. Where they are given there is no head:
    the reader has a range of the lines. Iteration yields the number of a block's first line, its bytes, and
    its entries, and ends with an error if a whole file lacks some.
    """

    def __init__(self, reader, dtype, *, size=None, stated=None):
        self._reader, self._blocks, self._filled = reader, reader.blocks(size), 0
        self._is_whole, self._body = stated is None, (1, b"")
        self.stated = stated
        if stated is None:
            self.stated, self._body = read_header(reader, self._blocks)
        *of_columns, self._n = self.stated
        self._limits = (*of_columns, largest_count(dtype))

    def __iter__(self):
        if self._body[1]:
            yield *self._body, self._parse(*self._body)
        for line, block in self._blocks:
            yield line, block, self._parse(line, block)
        if self._is_whole and self._filled < self._n:
            raise self._reader.error(
                self._reader.line,
                f"the file ends after {self._filled} entries and line 3 states {self._n}; "
                "it may be cut off: download or write it again",
            )

    def _parse(self, line, block):
        """Return the entries of a block that begins at some line: int64 array (n, 3)."""
        triples = _parse_block(block, self._limits)
        if triples is None:
            triples = _parse_block(_tidied(block), self._limits)
        if triples is None:
            triples = self._parse_lines(line, block)
        if self._filled + len(triples) > self._n:
            excess = line_of_row(line, block, self._n - self._filled)
            raise self._reader.error(
                excess, f"an entry more than the {self._n} that line 3 states; correct line 3 or the entries"
            )
        self._filled += len(triples)
        return triples

    def _parse_lines(self, line, block):
        """Return the entries of a block gone through line by line, or raise at the first bad one."""
        triples = []
        for number, text in enumerate(block.split(b"\n")[:-1], start=line):
            fields = text.split()
            if not fields:
                continue
            if len(fields) != 3:
                raise self._reader.error(
                    number,
                    f"{len(fields)} columns and not the three of 'document word count': {_shown(text)}",
                )
            triples.append(
                [
                    self._checked(number, *column)
                    for column in zip(fields, _COLUMNS, self._limits, strict=True)
                ]
            )
        return np.array(triples, np.int64).reshape(-1, 3)

    def _checked(self, line, text, column, limit):
        if not text.isdigit():
            raise self._reader.error(
                line, f"the {column} must be a whole number from 1 on, not {_shown(text)}"
            )
        value = int(text[:1000])  # Python refuses to convert far longer ones
        if value == 0:
            remedy = "leave such entries out" if column == "count" else f"a {column} is counted from 1"
            raise self._reader.error(line, f"{column} 0; {remedy}")
        if value > limit:
            if column == "count":
                raise self._reader.error(
                    line,
                    f"count {_shown(text)} does not fit dtype, which holds up to {limit}; give a wider one",
                )
            stated = _COLUMNS.index(column) + 1
            raise self._reader.error(
                line, f"{column} {_shown(text)} is beyond the {limit} that line {stated} states"
            )
        return value


def _allocate(reader, stated, dtype):
    """Allocate documents, words and counts of all entries of a file."""
    index = np.int64 if max(stated) > np.iinfo(np.int32).max else np.int32
    try:
        # Memory is taken up only as it is filled, so a false header costs nothing.
        return tuple(np.empty(stated[2], kind) for kind in (index, index, dtype))
    except (MemoryError, ValueError):
        raise reader.error(3, f"{stated[2]} entries do not fit in the memory of this machine") from None


def _parse_block(block, limits):
    """Return the entries of well-formed lines as an array (n, 3), or None where there is any doubt."""
    rows = block.count(b"\n")
    if not block:
        return np.empty((0, 3), np.int64)
    if rows == 0 or block.translate(None, b"0123456789") != b"  \n" * rows:
        return None
    # With the separators in their places, an empty field would show as a missing number.
    numbers = np.fromstring(block, dtype=np.int64, sep=" ")
    if len(numbers) != 3 * rows:
        return None
    triples = numbers.reshape(rows, 3)
    if triples.min() < 1 or any(triples[:, i].max() > limit for i, limit in enumerate(limits)):
        return None
    return triples


def _tidied(block):
    """Return a block with one space between columns, none around them, and no empty lines."""
    block = re.sub(rb"[ \t]+", b" ", block)
    return re.sub(rb" ?\n[ \n]*", b"\n", block).lstrip()


def line_of_row(line, block, row):
    """Return the number of the line that holds an entry, by its place among the entries of a block."""
    filled = [i for i, text in enumerate(block.split(b"\n")) if text.strip()]
    return line + filled[row]


def csr_of_entries(documents, words, counts, shape, path):
    """Make a CSR matrix of entries in any order, of documents and words from 0; `path` is for messages."""
    if (documents[1:] < documents[:-1]).any():
        order = np.argsort(documents, kind="stable")
        documents, words, counts = documents[order], words[order], counts[order]
    try:
        starts = _row_starts(documents, shape[0])
    except (MemoryError, ValueError):
        raise DataError(
            f"{path}, line 1: {shape[0]} documents do not fit in the memory of this machine"
        ) from None
    X = sparse.csr_matrix((counts, words, starts), shape=shape)
    X.sort_indices()
    return X if X.has_canonical_format else add_up(X, path)


def _row_starts(documents, n_documents):
    # of the same type, or searchsorted would make a wider copy of all documents
    return np.searchsorted(documents, np.arange(n_documents + 1, dtype=documents.dtype)).astype(
        documents.dtype
    )


def add_up(X, path):
    """Return X with its duplicates added up, in 64 bits so that no sum wraps around unseen."""
    total = X.astype(np.int64)
    total.sum_duplicates()
    limit = largest_count(X.dtype)
    if total.data.max() > limit:
        row = int(np.searchsorted(total.indptr, total.data.argmax(), side="right"))
        raise DataError(
            f"{path}: the entries of document {row} for one word add up to {total.data.max()}, "
            f"more than dtype={X.dtype} holds ({limit}); give a wider dtype"
        )
    return total.astype(X.dtype)


def read_vocabulary(path, n_words, counts_path):
    """Read a file of one word a line, which must hold `n_words` words.

    `counts_path` is what states `n_words`, for the message.
    """
    with Reader(path, may_be_empty=n_words == 0) as reader:
        words = []
        for first, block in reader.blocks():
            for line, text in enumerate(block.split(b"\n")[:-1], start=first):
                try:
                    words.append(text.decode().strip())
                except UnicodeDecodeError:
                    raise reader.error(line, f"{_shown(text)} is not UTF-8 text; convert the file") from None
        while words and not words[-1]:
            words.pop()
        if "" in words:
            raise reader.error(words.index("") + 1, "an empty line where a word should stand")
        if len(words) != n_words:
            raise reader.error(
                min(len(words), n_words + 1),
                f"there are {len(words)} words and {counts_path} states {n_words}; give its own vocabulary",
            )
    return words


# ---- writing ----


def _checked_counts(X):
    if not sparse.issparse(X) and np.ndim(X) != 2:
        raise DataError(f"X has {np.ndim(X)} dimensions; give a matrix of documents x words")
    X = sparse.csr_matrix(X)
    if X.dtype.kind not in "iufb":
        raise DataError(f"X holds {X.dtype}; give whole numbers, none negative")
    if X.dtype.kind == "b":
        X = X.astype(np.int8)
    # floor rather than rint: what it leaves of NaN and infinity is refused with the rest
    bad = np.flatnonzero(~((X.data >= 0) & (X.data < 2.0**63) & (X.data == np.floor(X.data))))
    if len(bad):
        row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
        raise DataError(
            f"X[{row}, {X.indices[bad[0]]}] is {X.data[bad[0]]}; give counts: whole numbers, none negative"
        )
    if not X.has_canonical_format or not X.data.all():
        X = X.astype(np.int64)  # a copy: the caller's matrix stays as it is
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


def _checked_words(vocabulary, n_words):
    words = list(vocabulary)
    if len(words) != n_words:
        raise DataError(f"vocabulary has {len(words)} words and X {n_words} columns; give one word a column")
    for i, word in enumerate(words):
        if not isinstance(word, str) or not word or word != word.strip() or "\n" in word or "\r" in word:
            raise DataError(
                f"vocabulary[{i}] is {shortened(word)}; give words that fill a line, without space around "
                "them"
            )
    return words


def _vocabulary_path(path, vocabulary_path):
    if vocabulary_path is not None:
        return vocabulary_path
    before = file_name(path)
    name = before.replace("docword", "vocab")
    if name == before:
        raise DataError(
            f"vocabulary_path is needed: 'docword' is not part of the name {shortened(before, 200)}"
        )
    return sibling(path, name.removesuffix(".gz").removesuffix(".xz").removesuffix(".bz2"))


def _format_entries(X, start, stop):
    """Return the lines of the entries start to stop of a CSR matrix."""
    documents = np.searchsorted(X.indptr, np.arange(start, stop), side="right")
    columns = (documents, X.indices[start:stop] + 1, X.data[start:stop])
    return "".join(
        map("%d %d %d\n".__mod__, zip(*(column.tolist() for column in columns), strict=True))
    ).encode()
