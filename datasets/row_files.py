"""Rows of numbers in files that are read in parts, anywhere and again: NumPy's npy, and svmlight.

A part is a range of bytes of one file. Of npy files the header says which rows they are; svmlight files have
to be read once for the number of their rows and columns.
"""

import io
import itertools
import math
import os
from typing import Any, NamedTuple

import numpy as np

from .._urls import file_size, file_stamp, file_system, is_folder, is_url, matching_files, open_file
from ..errors import DataError, in_brief, shortened
from ._files import SUFFIXES, Reader, changed
from .svmlight import load_lines, parse_line

_NPY, _SVMLIGHT = (".npy",), (".svm", ".svmlight", ".libsvm")
_FORMATS = (
    ("npy", _NPY),
    ("svmlight", (*_SVMLIGHT, *(name + packed for name in _SVMLIGHT for packed in SUFFIXES))),
)
_BYTES, _LINES = 1 << 25, 1 << 24  # of a part, about: of npy, and of svmlight, which grows when it is read
_TAIL = 1 << 16  # bytes that are read at a time for the end of a line
_MOST_SEEN = 1 << 16
_seen: dict[tuple[str, str], str] = {}  # stamps of files as this process read them first


def _check_unchanged(path, stamp):
    """Refuse a file that has changed since this process first read what has this stamp where the fit began.

    The stamps need not be equal: each machine may have a copy, written at another time.
    """
    with _read_errors(path):
        now = file_stamp(path)
    if _seen.setdefault((path, stamp), now) != now:
        raise changed(path)
    if len(_seen) > _MOST_SEEN:
        _seen.pop(next(iter(_seen)), None)


def _stamp(path):
    """The stamp of a file where a fit begins."""
    with _read_errors(path):
        stamp = file_stamp(path)
    _seen[path, stamp] = stamp
    return stamp


class NpyRows(NamedTuple):
    """Rows of a npy file; `start` is the first of their bytes."""

    path: str
    start: int
    shape: tuple
    dtype: str
    stamp: str

    @property
    def row_bytes(self):
        """Bytes of a row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape[1:])

    def cut(self, first, last):
        """Some of the rows."""
        start = self.start + first * self.row_bytes
        return self._replace(start=start, shape=(last - first, *self.shape[1:]))

    def read(self):
        """Return the rows, an ndarray."""
        _check_unchanged(self.path, self.stamp)
        dtype, n_bytes = np.dtype(self.dtype), np.dtype(self.dtype).itemsize * math.prod(self.shape)
        stop = self.start + n_bytes
        if is_url(self.path):
            got: Any = _bytes(self.path, self.start, stop)
        else:
            got = np.empty(n_bytes, np.uint8)
            with _read_errors(self.path), open(self.path, "rb", buffering=0) as file:
                file.seek(self.start)
                view, done = got.data, 0
                while done < n_bytes and (n := file.readinto(view[done:])):
                    done += n
            got = got[:done]
        if len(got) < n_bytes:
            raise DataError(
                f"{in_brief(self.path)} ends before its byte {stop:,}: it has changed, or is cut off"
            )
        return np.frombuffer(got, dtype).reshape(self.shape)


class LineRange(NamedTuple):
    """The lines of a svmlight file of `size` bytes that begin at one of the bytes ``start:stop``.

    Of a compressed file they are all lines.
    """

    path: str
    start: int
    stop: int
    size: int
    stamp: str

    def _text(self):
        """The lines, and the byte at which they begin."""
        if _is_packed(self.path):
            with Reader(self.path) as reader:
                return reader.read(), 0
        first = max(self.start - 1, 0)  # a line begins behind the end of another
        text = _bytes(self.path, first, self.stop)
        skipped = text.find(b"\n") + 1 if self.start else 0
        if self.start and not skipped:
            return b"", self.stop
        at = self.stop
        while at < self.size and not text.endswith(b"\n"):
            more = _bytes(self.path, at, min(at + _TAIL, self.size))
            if not more:
                break
            at += len(more)
            end = more.find(b"\n") + 1
            text += more[:end] if end else more
        return text[skipped:], first + skipped

    def read(self, n_features=None, zero_based=True):
        """Return rows, a csr_array, and labels."""
        from scipy import sparse

        _check_unchanged(self.path, self.stamp)
        text, first = self._text()
        if not text.strip():
            return sparse.csr_array((0, n_features or 0)), np.empty(0)
        if b"_" in text:  # which Python passes over in numbers
            self._name_line(text, first)
        name = f"{in_brief(self.path)}, bytes {first:,} on"
        options = {"n_features": n_features, "zero_based": zero_based}
        X, y = load_lines(io.BytesIO(text), name, lambda: self._name_line(text, first), **options)
        return sparse.csr_array(X), y

    def _name_line(self, text, first):
        """Raise at the first line at fault, by the byte at which it begins."""
        for line in io.BytesIO(text):
            try:
                parse_line(line, False, "auto")
            except ValueError as error:
                raise DataError(f"{in_brief(self.path)}, the line at byte {first:,}: {error}") from None
            first += len(line)


class LinesSurvey(NamedTuple):
    """Rows, stored entries, and least and largest index of a part."""

    n_rows: int
    n_entries: int
    least: int
    most: int

    @classmethod
    def of(cls, part):
        """Read a part once."""
        X, y = part.read()
        least = int(X.indices.min(initial=2**31 - 1))
        return cls(len(y), X.nnz, least, int(X.indices.max(initial=-1)))


def row_format(X) -> str | None:
    """Return "npy" or "svmlight" if X names such files, by their endings; else None."""
    paths = X if isinstance(X, (list, tuple)) and len(X) else [X]
    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    names = [os.fspath(path) for path in paths]
    for name, endings in _FORMATS:
        if all(isinstance(path, str) and path.lower().endswith(endings) for path in names):
            return name
    return None


def files_of(X) -> list[str]:
    """The files that names, patterns and URLs mean, in order."""
    found: list[str] = []
    for path in X if isinstance(X, (list, tuple)) else [X]:
        path = path if is_url(path) else os.fspath(path)
        with _read_errors(path):
            if is_folder(path):
                raise DataError(
                    f"{in_brief(path)} is a folder: name its files, or give a pattern such as *.npy"
                )
            matched = matching_files(path)
        if matched is not None and not matched:
            raise DataError(f"{in_brief(path)} matches no file; check the path")
        found += [path] if matched is None else sorted(matched)
    return found


def npy_parts(paths, n_dims, share=1.0):
    """Cut npy files into `NpyRows` of 32 MB, or a share of that; check that they are alike."""
    parts: list[NpyRows] = []
    for whole in _alike(paths, n_dims):
        step = max(1, int(_BYTES * share) // max(whole.row_bytes, 1))
        parts += [whole.cut(a, min(a + step, whole.shape[0])) for a in range(0, whole.shape[0], step)]
    if not parts:
        raise DataError(f"{in_brief(paths[0])} holds no row")
    return parts


def npy_ranges(paths, edges):
    """Cut the numbers of npy files at `edges`: of each range a list of `NpyRows`; their type and number."""
    wholes = _alike(paths, 1)
    firsts = [0, *itertools.accumulate(whole.shape[0] for whole in wholes)]
    ranges = [
        [
            whole.cut(max(a - first, 0), min(b - first, whole.shape[0]))
            for whole, first in zip(wholes, firsts, strict=False)
            if max(a, first) < min(b, first + whole.shape[0])
        ]
        for a, b in itertools.pairwise(edges)
    ]
    return ranges, np.dtype(wholes[0].dtype), firsts[-1]


def _alike(paths, n_dims):
    """The `NpyRows` of whole files, which must have rows of one kind."""
    wholes = [
        NpyRows(path, start, shape, dtype.str, _stamp(path))
        for path in paths
        for shape, dtype, start in [_header(path, n_dims)]
    ]
    first = wholes[0]
    for whole in wholes:
        if (whole.shape[1:], whole.dtype) != (first.shape[1:], first.dtype):
            raise DataError(
                f"{in_brief(whole.path)} has rows of {whole.shape[1:]} {np.dtype(whole.dtype)}, and "
                f"{in_brief(first.path)} of {first.shape[1:]} {np.dtype(first.dtype)}: make them alike"
            )
    return wholes


def line_parts(paths, share=1.0):
    """Cut svmlight files into `LineRange` of 16 MB, or a share of that."""
    parts = []
    for path in paths:
        with _read_errors(path):
            size = file_size(path)
        n = 1 if _is_packed(path) else max(1, size // int(_LINES * share))
        edges, stamp = [size * k // n for k in range(n + 1)], _stamp(path)
        parts += [LineRange(path, a, b, size, stamp) for a, b in itertools.pairwise(edges)]
    return parts


def _is_packed(path):
    return path.lower().endswith(tuple(SUFFIXES))


def _header(path, n_dims):
    """Shape, type and the place of the first number of a npy file."""
    with _read_errors(path), open_file(path) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = read(file)
        except ValueError as error:
            raise DataError(
                f"{in_brief(path)} is no npy file ({in_brief(error)}): write it by numpy.save"
            ) from None
        start = file.tell()
        stated = start + math.prod(shape) * dtype.itemsize
        if 0 in shape[1:] or stated > file_size(path):
            raise DataError(
                f"{in_brief(path)} states an array of shape {shape}, of {stated:,} bytes, and has "
                f"{file_size(path):,}: it is cut off, or has no columns; write it again"
            )
    if dtype.hasobject or dtype.kind not in "buif":
        raise DataError(f"{in_brief(path)} holds {shortened(dtype)}: numbers are needed")
    if len(shape) != n_dims:
        raise DataError(f"{in_brief(path)} holds an array of shape {shape}: {n_dims} dimensions are needed")
    if by_columns and n_dims > 1 and min(shape) > 1:
        raise DataError(
            f"{in_brief(path)} holds an array in Fortran order, of which no rows can be read alone: write "
            "numpy.ascontiguousarray of it"
        )
    return shape, dtype, start


def _bytes(path, start, stop):
    """Some bytes of a file, fewer where it was cut off; of an object store by one request."""
    with _read_errors(path):
        if is_url(path):
            system, inner = file_system(path)
            return system.cat_file(inner, start=start, end=stop)
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(stop - start)


class _read_errors:
    """Turns what goes wrong with reading a file into a DataError."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, FileNotFoundError):
            raise DataError(f"{in_brief(self.path)}: there is no such file; check the path") from None
        if isinstance(error, OSError):
            raise DataError(f"{in_brief(self.path)} cannot be read: {in_brief(error)}") from error
