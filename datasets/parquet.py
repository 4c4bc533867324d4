"""Parquet files by groups of rows: types and lengths from the footers, columns as they are needed.

Nothing is read but footers until a part is: some groups of rows of a file, which a worker reads.
"""

import contextlib
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple
from urllib.parse import unquote

from .._urls import files_below, is_folder, is_url, matching_files, open_file
from ..errors import DataError, in_brief, shortened
from ._files import changed

_TAIL = 1 << 16  # bytes of the end of a file that are read at once; most footers are shorter
_PART = 1 << 22  # cells of a part, about: 32 MiB of numbers. A group of rows is read whole
_FOLDER = re.compile(r"([^/=]+)=([^/]*)")  # a column in the name of a folder, as Hive writes it
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ParquetTable:
    """Parquet files as the `X` of a fit, with what becomes of their columns.

    ``fit("s3://bucket/*.parquet", y="clicked")`` is the short form, with all the defaults. Numbers stay one
    column. Text becomes a column of zeros and ones for each value, and true and false become 1 and 0. The fit
    reads lengths and types from the footers and everything else where it computes, on threads or on the
    workers of a cluster, and keeps the encoding: `predict` takes frames and Parquet files with the same
    columns, in any order.

    Parameters
    ----------
    paths : str, path-like or list of them
        Files, folders (all ``.parquet`` files below), patterns with ``*``, or URLs of these that fsspec
        opens, which workers open, too. The rows are in the order of the names. Names of folders such as
        ``year=2026`` are a column of whole numbers or of text.
    columns : list of str, optional
        Those to fit to; by default all but the target and the weights.
    categories : list of str, or dict, optional
        Columns of whole numbers that are categories; or for columns their values. A value that is not among
        them has zeros in all columns. By default, and for ``None`` in place of the values, one pass over the
        column finds them: at most 100,000.
    hashed : dict, optional
        For columns of text or whole numbers the number of buckets: a value becomes the one of this many
        columns that its hash (64 bits of BLAKE2b) falls to. No pass is needed, and values may be new in
        `predict`; several values may share a column.

    Raises
    ------
    DataError
        For arguments of other kinds, and columns that are named twice.

    See Also
    --------
    stradask.LogisticRegression : One of the models that take such tables.
    stradask.MatrixFactorization : Takes tables of users, items and ratings.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import stradask as sd
    >>> from stradask.datasets import ParquetTable
    >>> table = pd.DataFrame({"city": ["Oslo", "Rome"] * 20, "age": range(40), "paid": [1.0, 2.0] * 20})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/a.parquet")
    ...     model = sd.Ridge().fit(ParquetTable(folder, hashed={"city": 16}), y="paid")
    >>> model.predict(table[:2]).round(2)
    array([1.02, 1.97])
    """

    paths: Any
    columns: Sequence[str] | None = None
    categories: Any = None
    hashed: Mapping[str, int] | None = None

    def __post_init__(self):
        given = self.paths if isinstance(self.paths, (list, tuple)) else [self.paths]
        wrong = next((path for path in given if not isinstance(path, (str, os.PathLike))), None)
        if wrong is not None or not given:
            raise DataError(f"paths must be names of Parquet files, got {shortened(self.paths)}")
        for name, values in (("columns", self.columns), ("categories", self.categories)):
            texts = values is None or (
                not isinstance(values, str) and all(isinstance(v, str) for v in values)
            )
            if not texts or (values is not None and len(set(values)) < len(values)):
                raise DataError(f"{name} must be names of columns, each once, got {shortened(values)}")
        if not isinstance(self.hashed, (Mapping, type(None))):
            raise DataError(f"hashed must be a dict of columns and buckets, got {shortened(self.hashed)}")
        for name, n in (self.hashed or {}).items():
            if isinstance(n, bool) or not isinstance(n, Integral) or not 1 <= n < 2**31:
                raise DataError(f"hashed must have for each column a number of buckets, not {shortened(n)}")
            if name in (self.categories or ()):
                raise DataError(f"the column {shortened(name)} is in categories and in hashed: keep one")
        for name, values in self.vocabularies.items():
            if values is not None and not _are_categories(values):
                raise DataError(
                    f"categories of {shortened(name)} must be a list of texts or whole numbers, each once; "
                    f"got {shortened(values)}"
                )

    @property
    def vocabularies(self) -> dict[str, Any]:
        """For each of `categories`: its values, or None if a pass finds them."""
        given = self.categories or {}
        return dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)

    def files(self) -> list[str]:
        """The names of all files, in order; DataError where there is none."""
        given = self.paths if isinstance(self.paths, (list, tuple)) else [self.paths]
        return [file for path in given for file in _files(path if is_url(path) else os.fspath(path))]


def _are_categories(values):
    if isinstance(values, str) or not len(values) or len(set(map(str, values))) < len(values):
        return False
    return all(isinstance(value, (str, Integral)) and not isinstance(value, bool) for value in values)


def _files(path):
    try:
        if is_folder(path):
            found = [str(file) for name, file in files_below(path) if name.lower().endswith(".parquet")]
            return _some(found, path, "has no files that end in .parquet")
        pattern = matching_files(path)
    except OSError as error:
        raise DataError(f"{in_brief(path)}: cannot be opened ({error.strerror}); check the path") from None
    return [path] if pattern is None else _some(sorted(pattern), path, "matches no file")


def _some(found, path, why):
    if not found:
        raise DataError(f"{in_brief(path)} {why}; check the path")
    return found


class Footer(NamedTuple):
    """What a file says of itself."""

    path: str
    types: dict  # of each column: "number", "integer", "text", or Arrow's name of another type; and a dtype
    lengths: list  # rows of each group
    nulls: dict  # of some columns, for each group: cells without a value, None where it is not said
    folders: dict  # text of the columns that are in the names of folders and not in the file
    checksum: int  # of the footer's bytes


class RowGroups(NamedTuple):
    """Groups of rows of a file, from one number on; `lengths` are their rows."""

    path: str
    first: int
    lengths: tuple
    folders: tuple = ()  # columns, and the value that all rows have
    checksum: int | None = None  # of the file's footer

    @property
    def n_rows(self):
        """Number of rows."""
        return sum(self.lengths)

    def where(self, row):
        """Name a row for an error."""
        group = 0
        while row >= self.lengths[group]:
            row -= self.lengths[group]
            group += 1
        return f"{self.path}, row group {self.first + group}, row {row} of it"


def read_footer(path, names=None):
    """Read types, lengths and, of some columns or all, the numbers of missing values; no data."""
    with open_parquet(path) as (file, checksum):
        metadata, schema = file.metadata, file.schema_arrow
        types = {field.name: _type(field.type) for field in schema}
        if len(types) < len(schema):
            raise DataError(f"{in_brief(path)} has two columns of one name: columns are known by their names")
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        places = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
        nulls = {}
        for name in places if names is None else names:
            if name in places:
                said = [group.column(places[name]).statistics for group in groups]
                nulls[name] = [s.null_count if s is not None and s.has_null_count else None for s in said]
        folders = {name: value for name, value in _folders(path).items() if name not in types}
        return Footer(path, types, [group.num_rows for group in groups], nulls, folders, checksum)


def _folders(path):
    """The columns that stand in the names of folders, ``year=2026/``, with their values."""
    found = {}
    for part in re.split(r"[/\\]", str(path))[:-1]:
        if match := _FOLDER.fullmatch(part):
            name, value = map(unquote, match.groups())
            if value == _NO_VALUE:
                raise DataError(
                    f"{in_brief(path)}: the rows have no value of {shortened(name)}: leave the folder out"
                )
            found[name] = value
    return found


def with_folders(footers):
    """Give files the columns that are in the names of their folders: whole numbers if all are, or text."""
    values: dict[str, set] = {}
    for footer in footers:
        for name, value in footer.folders.items():
            values.setdefault(name, set()).add(value)
    numbers = {name for name, own in values.items() if all(map(_is_whole, own))}
    kinds = {name: ("integer", "int64") if name in numbers else ("text", "object") for name in values}
    return [
        footer._replace(
            types=footer.types | {name: kinds[name] for name in footer.folders},
            folders={name: int(v) if name in numbers else v for name, v in footer.folders.items()},
        )
        for footer in footers
    ]


def _is_whole(text):
    """Whether text is a whole number, written as one: 07 is text."""
    return re.fullmatch(r"0|-?[1-9]\d{0,17}", text) is not None


def _type(kind):
    """The kind of a column, and the dtype of its values."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return "number", "bool"
    if types.is_integer(kind) or types.is_floating(kind):
        return ("integer" if types.is_integer(kind) else "number"), str(kind.to_pandas_dtype().__name__)
    if types.is_decimal(kind):
        return "number", "float64"
    if types.is_string(kind) or types.is_large_string(kind) or "string_view" in str(kind):
        return "text", "object"
    return str(kind), "object"


def parts_of(footers, n_columns, share=1.0):
    """Cut files into `RowGroups` of about 4 million cells, or a share, none of two files; no empty ones."""
    parts, held = [], list[int]()
    for footer in footers:
        first, held, more = 0, [], (tuple(footer.folders.items()), footer.checksum)
        for number, rows in enumerate(footer.lengths):
            if held and (sum(held) + rows) * n_columns > _PART * share:
                parts.append(RowGroups(footer.path, first, tuple(held), *more))
                first, held = number, []
            held.append(rows)
        parts.append(RowGroups(footer.path, first, tuple(held), *more))
    return [part for part in parts if part.n_rows]


def read_part(part, names):
    """Read columns of a part as a ``pyarrow.Table``."""
    with open_parquet(part.path) as (file, checksum):
        if part.checksum not in (None, checksum):
            raise changed(part.path)
        groups, apart = range(part.first, part.first + len(part.lengths)), dict(part.folders)
        inside = [name for name in names if name not in apart]
        table = file.read_row_groups(list(groups), columns=inside, use_threads=False)
    for name in names:
        if name in apart:
            table = table.append_column(name, _constant(apart[name], table.num_rows))
    if table.num_rows != part.n_rows or any(name not in table.column_names for name in names):
        raise changed(part.path)
    return table


def _constant(value, n_rows):
    import pyarrow

    return pyarrow.repeat(value, n_rows)


@contextlib.contextmanager
def open_parquet(path):
    """Open a file: it, and a checksum of its footer; what is wrong with it becomes a DataError."""
    lib, parquet = needs_pyarrow(in_brief(path))
    try:
        with open_file(path) as stream:
            checksum = _footer_checksum(stream)
            # A file of this machine not by Python's object, which costs a copy and the lock of Python.
            with parquet.ParquetFile(stream if is_url(path) else path) as file:
                yield file, checksum
    except FileNotFoundError:
        raise DataError(f"{in_brief(path)}: there is no such file; check the path") from None
    except (OSError, lib.ArrowException) as error:
        raise DataError(
            f"{in_brief(path)} cannot be read as Parquet ({in_brief(error)}); name Parquet files (for other "
            "files there are stradask.datasets.read_svmlight, read_ratings and pandas.read_csv), or write it "
            "again"
        ) from None


def _footer_checksum(stream):
    """The footer says where the columns are, how long, and mostly their least and largest values."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - _TAIL, 0))
    tail = stream.read(_TAIL)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < length <= size:
        stream.seek(size - length)
        tail = stream.read(length)
    stream.seek(0)
    return zlib.crc32(tail[-length:])


def needs_pyarrow(what):
    """Import what reads Parquet; DataError with the remedy if it is not installed."""
    try:
        from pyarrow import lib, parquet
    except ImportError:
        raise DataError(f"{what}: Parquet needs pyarrow; pip install stradask[parquet]") from None
    return lib, parquet


def is_parquet(X):
    """Whether the X of a fit names Parquet files: by their endings, as URLs, or by their folder."""
    if isinstance(X, ParquetTable):
        return True
    paths = X if isinstance(X, (list, tuple)) and len(X) else [X]
    return all(isinstance(path, (str, os.PathLike)) and _looks_so(path) for path in paths)


def _looks_so(path):
    path = path if is_url(path) else os.fspath(path)
    if not isinstance(path, str) or "\n" in path or "\0" in path:
        return False
    return is_url(path) or path.lower().endswith((".parquet", ".pq")) or os.path.isdir(path)
