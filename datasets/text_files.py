"""Texts read from tables, folders and files of lines."""

import contextlib
import csv
import io
import os
import re
import sys
import warnings
from typing import NamedTuple

import numpy as np

from .._typing import Array, FileName
from .._urls import file_name, file_size, files_below, is_file, is_folder
from ..errors import DataError, in_brief, listed, shortened
from ._common import json_lines, separator_of
from ._files import Reader, too_empty
from .parquet import open_parquet

_RATINGS = {"user", "rating"}  # names of columns, without "id"
_TABLES = {".csv", ".tsv"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte-order marks
_FORMS = "FILE.csv:COLUMN, FILE.tsv:COLUMN, FILE.jsonl:FIELD, FILE.parquet:COLUMN, a folder of .txt files"
_SOURCE = re.compile(
    r"(.+?\.(csv|tsv|jsonl|parquet)(?:\.(?:gz|xz|bz2))?)(?::(.*))?", re.IGNORECASE | re.DOTALL
)


class Texts(NamedTuple):
    """Texts, and where each is from: a list of str, and an array of str of the same length."""

    texts: list[str]
    names: Array


def read_texts(
    path: FileName, column: str | int | None = None, *, encoding: str | None = None, verbose: int = 0
) -> Texts:
    """Read texts from a table, a folder, or a file with a text on each line.

    Parameters
    ----------
    path : str, path-like or URL
        A table with a header (``.csv``, ``.tsv``), JSON lines (``.jsonl``), Parquet (``.parquet``, needs
        pyarrow), each plain or compressed but for Parquet; a folder, of which all ``.txt`` files are read,
        those of inner folders too, and binary ones are left out with a warning; any other file, of which
        each line is a text; or ``"-"``, the lines of standard input. ``"FILE.csv:COLUMN"`` names the column,
        too.
    column : str or int, optional
        The column or field of the texts, by its name or number from 0. Needed where a table has several.
    encoding : str, optional
        By default UTF-8, or UTF-16 with a byte-order mark; files that are neither are read as Windows-1252,
        with a warning.
    verbose : int, default=0
        Show a progress bar.

    Returns
    -------
    Texts
        ``texts``, a list, and ``names``: the paths of files inside a folder, or numbers of rows from 1.
        Missing texts of tables are "".

    Raises
    ------
    DataError
        If the column is missing, not there or not of texts, or a file is damaged.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from stradask.datasets import read_texts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "reviews.csv")
    ...     _ = path.write_text('stars,text\\n5,"Clean, quiet"\\n1,Rude\\n')
    ...     read_texts(path, "text").texts
    ['Clean, quiet', 'Rude']
    """
    path, column = _parts(path, column)
    if str(path) == "-":
        return _lines(_decoded(sys.stdin.buffer.read(), "standard input", encoding))
    if is_folder(path):
        return _folder(path, encoding, verbose)
    kind = _kind(path)
    if kind == ".parquet":
        return _numbered(_of_parquet(path, column))
    with Reader(path, verbose=verbose) as reader:
        text = _decoded(reader.read(), str(path), encoding)
    if kind in _TABLES:
        return _numbered(_of_table(text, path, column))
    if kind == ".jsonl":
        return _numbered(_of_json(text, path, column))
    if column is not None:
        raise DataError(f"column={shortened(column)}: {path} is a file of lines, not a table; leave it out")
    return _lines(text)


def names_texts(source):
    """Whether a name, as the command line takes it, is of texts: a table, a folder or standard input."""
    return str(source) == "-" or _SOURCE.fullmatch(str(source)) is not None or is_folder(source)


def file_of_texts(source):
    """The file that ``FILE.jsonl:FIELD`` names."""
    return os.fspath(_parts(source, None)[0])


def _parts(path, column):
    """Divide ``FILE.csv:COLUMN``."""
    found = _SOURCE.fullmatch(os.fspath(path))
    if found is None or found[3] is None or is_file(path) or is_folder(path):
        return path, column
    if column is not None:
        raise DataError(
            f"path names the column {shortened(found[3])} and column={shortened(column)}: give one"
        )
    return found[1], found[3]


def _kind(path):
    found = _SOURCE.fullmatch(os.fspath(path))
    return "" if found is None else f".{found[2].lower()}"


def _numbered(texts):
    return Texts([_whole(text) for text in texts], np.arange(1, len(texts) + 1).astype(str))


def _whole(text):
    """Replace halves of surrogate pairs, which JSON and names of files may hold and no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _lines(text):
    """The lines that are not blank, by their numbers."""
    lines = [(n, line.strip()) for n, line in enumerate(io.StringIO(text, newline=None), 1) if line.strip()]
    if not lines:
        raise DataError("path holds no texts, but blank lines; give a file with a text on each line")
    return Texts([line for _, line in lines], np.array([str(n) for n, _ in lines]))


def _decoded(data, name, encoding, fallback=None):
    """Text of bytes; of several files those that are not UTF-8 are collected in `fallback`."""
    if encoding is not None:
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise DataError(
                f"encoding={shortened(encoding)} does not fit {in_brief(name)}: {in_brief(error)}"
            ) from None
    if _is_binary(data):
        raise DataError(f"{in_brief(name)} is not text; give {_FORMS}, or a file of lines")
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode("utf-16" if data[:2] in _UTF_16 else "utf-8-sig")
    if fallback is None:
        _warn_of_encoding(f"{in_brief(name)} is")
    else:
        fallback.append(name)
    return data.decode("cp1252", errors="replace")


def _warn_of_encoding(subject):
    warnings.warn(
        f"{subject} not in UTF-8 and read as Windows-1252; if it is another encoding, convert to UTF-8, or "
        "name it in read_texts(..., encoding=...)",
        stacklevel=4,
    )


def _is_binary(data):
    """Whether no text of a usual encoding begins like this: a zero byte, and no mark of UTF-16."""
    return data[:2] not in _UTF_16 and b"\0" in data[:1000]


def _folder(folder, encoding, verbose):
    """All text files of a folder; hidden ones are passed over."""
    from .._bar import Bar

    found = files_below(folder)
    files = [
        (name, path)
        for name, path in found
        if name.endswith(".txt") and not any(part.startswith(".") for part in name.split("/"))
    ]
    if not files:
        there = [shortened(name, 30) for name, _ in found[:3]]
        raise DataError(
            f"{in_brief(folder)} has no .txt files, but {', '.join(there) or 'nothing'}; give texts as "
            f"{_FORMS}"
        )
    texts: list[str] = []
    names: list[str] = []
    others: list[str] = []
    binary: list[str] = []
    for name, path in Bar(files, desc=file_name(folder), unit="file", disable=not verbose):
        with Reader(path, may_be_empty=True) as reader:
            data = reader.read()
        if encoding is None and _is_binary(data):
            binary.append(str(path))
            continue
        texts.append(_decoded(data, str(path), encoding, others))
        names.append(_whole(name))
    if not texts:
        raise DataError(
            f"{in_brief(folder)}: its {len(files):,} .txt files hold no text, such as {in_brief(binary[0])}; "
            f"give texts as {_FORMS}"
        )
    if binary:
        warnings.warn(
            f"{len(binary):,} of {len(files):,} files, such as {in_brief(binary[0])}, hold no text and are "
            "left out; remove them, or, if they are texts, convert them to UTF-8 or name their encoding in "
            "read_texts(..., encoding=...)",
            stacklevel=3,
        )
    if others:
        _warn_of_encoding(f"{len(others):,} of {len(files):,} files, such as {in_brief(others[0])}, are")
    return Texts(texts, np.array(names))


def _of_table(text, path, column):
    """The texts of a column of CSV; quoted cells may hold line ends."""
    separator = "\t" if _kind(path) == ".tsv" else separator_of(text.lstrip().partition("\n")[0])
    before = csv.field_size_limit(max(len(text) + 1, 1 << 17))  # a cell may be as long as the file
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}: not a table ({error}); write it as CSV with quoted texts") from None
    finally:
        csv.field_size_limit(before)
    numbered = [(line, row) for line, row in enumerate(rows, 1) if row]
    if len(numbered) < 2:
        raise DataError(f"{path} holds no rows below its header; add rows")
    header = [cell.strip() for cell in numbered[0][1]]
    at = _place(header, column, path)
    for number, row in numbered:
        if len(row) != len(header):
            raise DataError(
                f"{path}, row {number}: {len(row)} cells, but the header has {len(header)}; put texts with "
                f"{separator!r} or line ends in quotes"
            )
    return [row[at] for _, row in numbered[1:]]


def _place(header, column, path):
    """The number of a column."""
    there = f"the columns {listed(header, None if column in header else column)}"
    if column is None:
        if len(header) == 1:
            return 0
        if {name.lower().removesuffix("id").strip("_ ") for name in header} >= _RATINGS:
            there += ". These look like ratings: fit mf for recommendations"
        raise DataError(
            f"say which column of {in_brief(path)} holds the texts, as {path}:COLUMN; it has {there}"
        )
    if column in header:
        if header.count(column) > 1:
            raise DataError(f"{path} has two columns {shortened(column)}; give its number, from 0")
        return header.index(column)
    if re.fullmatch("[0-9]+", str(column)) and int(column) < len(header):
        return int(column)
    raise DataError(f"{in_brief(path)} has no column {shortened(column)}; it has {there}")


def _of_json(text, path, column):
    """The texts of JSON lines: strings, or a field of objects."""
    texts = []
    for number, value in json_lines(io.StringIO(text, newline=None), path):
        if isinstance(value, dict):
            fields = list(value)
            value = value.get(fields[_place(fields, column, path)]) if column in (None, *fields) else None
        if value is not None and not isinstance(value, str):
            raise DataError(f"{path}, line {number}: {shortened(value)} is no text; name a field of texts")
        texts.append(value or "")
    if not any(texts):
        field = "texts" if column is None else f"field {shortened(column)} with texts"
        raise DataError(
            f"{in_brief(path)} has no {field}; give lines of objects, and the field that holds texts"
        )
    return texts


def _of_parquet(path, column):
    with open_parquet(path) as (file, _):
        header = file.schema_arrow.names
        name = header[_place(header, column, path)]
        if too_empty(file.metadata.num_rows, file_size(path)):
            raise DataError(
                f"{in_brief(path)} holds {file.metadata.num_rows:,} texts in {file_size(path):,} bytes, "
                "too many to be real; leave out empty and equal ones"
            )
        values = file.read(columns=[name])[name].to_pylist()
    wrong = next((value for value in values if value is not None and not isinstance(value, str)), None)
    if wrong is not None:
        raise DataError(f"{in_brief(path)}: the column {shortened(name)} holds {shortened(wrong)}, not texts")
    return [value or "" for value in values]
