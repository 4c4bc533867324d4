"""Files as every reader and writer here sees them: paths of this machine, and URLs that fsspec opens.

`Reader` opens plain, gzip, xz and bzip2 files (recognised by what they hold, not by their name) and
members of zip archives, hands out bytes or blocks of whole lines, and turns every failure into a
`DataError` that names the file, the line and the remedy. `write_aside` writes a file so that it is
either whole or not there.
"""

import bz2
import gzip
import io
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path

from .._urls import file_name, file_size, is_url, open_file, write_atomic
from ..errors import DataError, in_brief, shortened

_LOOKED_AT, _SHOWN = 1000, 100  # bytes of the beginning: to tell text by, and in the message
# Bytes read at a time: small enough that a block and what is made of it stay near the processor.
BLOCK = 1 << 20

# What bounds the memory that a file can ask for. A line has at most so many bytes:
LONGEST_LINE = 1 << 28
# and a compressed file unfolds to at most so many bytes, or to so many times its own, whichever is more.
# What compresses better is a trap rather than data, and who knows better can unpack it.
UNFOLDED, UNFOLDED_TIMES = 1 << 23, 100
# So many blank bytes in a row are no data; to count the lines of more takes long for few compressed bytes.
_BLANK = 1 << 20
# Rows and columns without entries take memory, too: a file has at most so many, and so many for each entry.
_EMPTY, _EMPTY_PER_ENTRY = 1 << 24, 100

_KINDS: dict[bytes, tuple[str, Callable]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"\xfd7zXZ\x00": ("xz", lzma.open),
    b"BZh": ("bzip2", bz2.open),
}
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
SUFFIXES = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def too_empty(n, n_entries):
    """Whether a file of so many entries states more rows, or columns, than can be meant."""
    return n > _EMPTY + _EMPTY_PER_ENTRY * n_entries


def progress_bar(total, name, verbose):
    """Return a tqdm bar over bytes, silent when verbose is 0."""
    from .._bar import Bar

    return Bar(total=total, desc=str(name), unit="B", unit_scale=True, disable=not verbose)


class Reader:
    """A file, or a member of a zip archive, opened for reading; use it in a ``with`` statement.

    Lines beyond 256 MiB, and compressed files that unfold to more than 8 MiB and a hundred times their
    size, are refused: memory stays in proportion to the file.
    """

    def __init__(self, path, *, member=None, may_be_empty=False, verbose=0):
        self.path = path if is_url(path) else Path(path)
        self.name = f"{self.path} ({member})" if member else str(self.path)
        self.line = 0  # whole lines handed out so far
        self._unfolded = 0
        self.kind = "plain"
        self._member = member
        self._may_be_empty = may_be_empty
        self._verbose = verbose

    def __enter__(self):
        try:
            size = file_size(self.path)
            self._raw = open_file(self.path)
        except OSError as error:
            raise DataError(
                f"{in_brief(self.path)}: cannot be opened ({error.strerror}); check the path"
            ) from None
        try:
            if size == 0 and not self._may_be_empty:
                raise DataError(f"{self.path}: the file is empty; write or download it again")
            self._stream = self._open_member() if self._member else self._open_stream()
        except BaseException:
            self._raw.close()
            raise
        self._most = math.inf if self.kind == "plain" else max(UNFOLDED, UNFOLDED_TIMES * size)
        self._bar = progress_bar(size, file_name(self.path), self._verbose) if self._verbose else None
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()
        self._stream.close()
        self._raw.close()

    def _open_stream(self):
        start = self._raw.read(6)
        self._raw.seek(0)
        for magic, (kind, opener) in _KINDS.items():
            if start.startswith(magic):
                self.kind = kind
                return opener(self._raw)
        other = next((name for magic, name in _OTHERS.items() if start.startswith(magic)), None)
        if other is not None:
            raise DataError(f"{self.path}: a {other} archive; unpack it, or compress it by gzip, xz or bzip2")
        suffix = Path(file_name(self.path)).suffix
        promised = SUFFIXES.get(suffix)
        if promised is not None:
            raise DataError(
                f"{self.path}: not a {promised} file (it starts with {shortened(start)}); "
                f"download it again, or take {suffix} from its name if it is plain text"
            )
        return self._raw

    def _open_member(self):
        self.kind = "zip"
        try:
            return zipfile.ZipFile(self._raw).open(self._member)
        except (*_BROKEN, KeyError, RuntimeError, NotImplementedError) as error:
            raise DataError(
                f"{self.path}: {self._member} cannot be read from this zip archive ({error}); "
                "download it again"
            ) from None

    def error(self, line, what):
        """Return a DataError at a line of this file."""
        return DataError(f"{self.name}, line {line}: {what}")

    def read(self, size=-1):
        """Return up to size decompressed bytes (all that are left when -1), b'' at the end."""
        try:
            data = self._stream.read(size)
        except _BROKEN as error:
            raise DataError(
                f"{self.name}, after line {self.line}: the {self.kind} data are broken or cut off "
                f"({error}); download the file again"
            ) from None
        self._unfolded += len(data)
        if self._unfolded > self._most:
            raise DataError(
                f"{self.name}, after line {self.line}: the {self.kind} data unfold to more than "
                f"{self._most:,} bytes, {UNFOLDED_TIMES} times their own; unpack the file first if that is "
                "right"
            )
        if self._bar is not None:
            self._bar.update(self._raw.tell() - self._bar.n)
        return data

    def blocks(self, size=None):
        r"""Yield blocks of whole lines, each with the number of its first line (from 1).

        Every line ends in ``\n``, the last one too; ``\r\n`` has become ``\n`` and a byte-order mark
        is gone. They are read `size` bytes at a time.
        """
        rest = bytearray()  # grows in place, so that one very long line costs no repeated copying
        blank = 0
        while data := self.read(size or BLOCK):
            blank = blank + len(data) if data.isspace() else 0
            if blank > _BLANK:
                raise self.error(self.line + 1, f"more than {_BLANK:,} blank bytes; leave these lines out")
            end = data.rfind(b"\n") + 1
            if end:
                yield from self._numbered(bytes(rest) + data[:end])
                rest = bytearray(data[end:])
            else:
                rest += data
                if len(rest) > LONGEST_LINE:
                    raise self.error(
                        self.line + 1, f"longer than {LONGEST_LINE:,} bytes; is this a file of text?"
                    )
        if rest:
            yield from self._numbered(bytes(rest) + b"\n")

    def _numbered(self, block):
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if self.line == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
        lines = block.count(b"\n")
        yield self.line + 1, block
        self.line += lines

    def __iter__(self):
        """Yield the lines as bytes, so that scikit-learn can read from here."""
        for _, block in self.blocks():
            yield from io.BytesIO(block)


@contextmanager
def write_aside(path):
    """Open a binary file for writing that appears under its name only when it is whole.

    A name in ``.gz``, ``.xz`` or ``.bz2`` is compressed. The same bytes in give the same file out: no time
    stamp is stored. What a URL names is written by its file system at the end.
    """
    try:
        with write_atomic(path) as raw, _compressor(Path(file_name(path)).suffix, raw) as handle:
            yield handle
    except OSError as error:
        if error.filename not in (path, os.path.realpath(os.fsdecode(path))):  # of what the caller reads, say
            raise
        why = (error.strerror or in_brief(error)).replace(", could not write", "")
        raise DataError(f"{in_brief(path)}: cannot be written ({why})") from None


def _compressor(suffix, raw):
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
    if suffix == ".xz":
        return lzma.LZMAFile(raw, "wb", preset=3)
    if suffix == ".bz2":
        return bz2.BZ2File(raw, "wb")
    return nullcontext(raw)


def is_text(start):
    """Whether the beginning of a file (bytes) is text: no control signs, and letters for the greater part.

    Lines that begin with ``#`` do not count: they are comments of the svmlight format.
    """
    seen = [sign for sign in _body(start).decode(errors="replace").rstrip("\ufffd") if not sign.isspace()]
    readable = all(sign.isprintable() and sign != "\ufffd" for sign in seen)
    return readable and 2 * sum(map(str.isalpha, seen)) > len(seen)


def check_no_text(path, start, expected):
    """Refuse a file whose beginning is text; `expected` names the formats it could be in."""
    if is_text(start):
        begin = shortened(_body(start).lstrip()[:_SHOWN].decode(errors="ignore"))
        raise DataError(
            f"{path}: not {expected}, but text, which starts with {begin}: count its words with "
            "stradask.text_counts(stradask.datasets.read_texts(path))"
        )


def changed(path):
    """Make the error for a file that is not what it was when a fit began."""
    return DataError(f"{in_brief(path)} has changed since the fit began; leave it as it is")


def _body(start):
    lines = start[:_LOOKED_AT].splitlines(keepends=True)
    return b"".join(line for line in lines if not line.lstrip().startswith(b"#"))
