"""Ratings: lines of user, item, rating and perhaps more, as CSV or in the forms of MovieLens.

Most files hold whole-number ids and ratings with a fixed number of decimals. A block of such lines is
recognised by one regular expression and parsed in bulk. Any other block goes through the csv module row
by row, which also names the first line at fault.
"""

import csv
import math
import re
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .._numbers import is_number
from .._typing import DTypeLike, FileName
from ..errors import DataError, not_utf8, shortened
from ._common import type_of
from ._files import Reader

_MOST_COLUMNS = 10  # of ratings with time stamps, titles and the like; a table has more
_SEPARATORS = ("::", "\t", ",", ";")  # tried in this order
_DUPLICATES = ("last", "sum", "error")
_WHOLE = re.compile("-?[1-9][0-9]{0,17}|0")


class Ratings(NamedTuple):
    """Ratings with the names of their rows and columns."""

    matrix: Any
    """csr_matrix of shape (n_users, n_items): one stored value a rating, a rating of 0 too."""
    users: np.ndarray
    """Id of each row, ascending: int64, or str where one of them is not a whole number."""
    items: np.ndarray
    """Id of each column, likewise."""


def read_ratings(
    path: FileName,
    *,
    sep: str | None = None,
    header: bool | str = "auto",
    value_column: int | None = 3,
    duplicates: str = "last",
    dtype: DTypeLike = np.float64,
    verbose: int = 0,
) -> Ratings:
    r"""Read ratings: CSV with or without a header, and the ``::`` and tab forms of MovieLens.

    A line is ``user, item, rating``; further columns (a time stamp) are passed over. Plain, gzip, xz and
    bzip2 files are recognised by what they hold.

    Memory at the peak is about 80 bytes a rating.

    Parameters
    ----------
    path : str, path-like or URL
        The file.
    sep : str, default=None
        What stands between columns. When None, the first of ``::``, tab, comma, semicolon that the first
        line holds.
    header : bool or "auto", default="auto"
        Whether the first line names the columns. ``"auto"``: it does where none of its first three
        columns is a number.
    value_column : int, default=3
        The column, from 1, that the values of the matrix come from: 4 for the time stamps of MovieLens, which
        `rating_split` takes.
    duplicates : {"last", "sum", "error"}, default="last"
        What becomes of a pair of user and item that is rated more than once: the last line of the file
        counts, the ratings are added up (plays, purchases), or it is an error.
    dtype : dtype, default=numpy.float64
        Floating type of the ratings.
    verbose : int, default=0
        Show a progress bar over the bytes of the file.

    Returns
    -------
    ratings : Ratings
        ``(matrix, users, items)``: a csr_matrix users x items, and the ids of its rows and of its columns
        as the file has them, ascending. Ids are whole numbers (int64) where all ids of the column are
        written as such, without leading zeros, and text otherwise.

    Warns
    -----
    UserWarning
        If there are more than three columns, and the header does not name the first "user" and the third
        "rating" (also with "id" at the end); without a header, if there are more than four.

    Raises
    ------
    DataError
        The file cannot be read, holds no rating, or a line of it is not what the format says: a column
        more or less than the first line has, an empty id, a rating that is not a finite number.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask.datasets import read_ratings
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "toy.csv"
    >>> _ = path.write_text("user,item,rating\n7,ant,3.5\n7,bee,1\n9,ant,5\n")
    >>> ratings = read_ratings(path)
    >>> ratings.matrix.toarray()
    array([[3.5, 1. ],
           [5. , 0. ]])
    >>> ratings.users, ratings.items
    (array([7, 9]), array(['ant', 'bee'], dtype='<U3'))
    >>> folder.cleanup()
    """
    return _read(Reader(path, verbose=verbose), sep, header, value_column, duplicates, dtype)


def _read(reader, sep, header, value_column, duplicates, dtype):
    _check_parameters(sep, header, value_column, duplicates, dtype)
    users, items, values = _Ids(), _Ids(), []
    with reader:
        layout = None
        for line, block in reader.blocks():
            if layout is None:
                layout, line, block = _recognise(reader, line, block, sep, header, value_column)
            if not block:  # it held the header alone, or empty lines before anything else
                continue
            columns = _parse_block(block, layout) or _parse_rows(reader, line, block, layout)
            if len(columns[2]):
                users.add(columns[0])
                items.add(columns[1])
                with np.errstate(over="ignore"):
                    values.append(columns[2].astype(dtype, copy=False))
                if not np.isfinite(values[-1]).all():
                    raise reader.error(
                        line, f"a rating from this line on does not fit {np.dtype(dtype)}; give a wider dtype"
                    )
        if not values:
            raise reader.error(reader.line, "the file ends and holds no rating")
    user_ids, rows = users.finish()
    item_ids, columns = items.finish()
    matrix = _to_csr(rows, columns, np.concatenate(values), (user_ids, item_ids), duplicates, reader.name)
    return Ratings(matrix, user_ids, item_ids)


def _check_parameters(sep, header, value_column, duplicates, dtype):
    if sep is not None and (not isinstance(sep, str) or not sep or "\n" in sep):
        raise DataError(f"sep={shortened(sep)}: give the text between two columns, or None to have it found")
    if not (isinstance(header, bool) or header == "auto"):
        raise DataError(f"header={shortened(header)}: give True, False or 'auto'")
    if not isinstance(value_column, int) or isinstance(value_column, bool) or value_column < 3:
        raise DataError(
            f"value_column={shortened(value_column)}: give a whole number from 3, after user and item"
        )
    if duplicates not in _DUPLICATES:
        raise DataError(
            f"duplicates={shortened(duplicates)}: give one of {', '.join(map(repr, _DUPLICATES))}"
        )
    if type_of(dtype).kind != "f":
        raise DataError(f"dtype={shortened(dtype)}: give a floating type")


class _Layout(NamedTuple):
    sep: str
    n_columns: int
    value: int
    """Number of the column of values, from 0."""


def _recognise(reader, line, block, sep, header, value_column):
    """Return the layout, and the block without empty lines at its head and without the header."""
    stripped = block.lstrip(b"\n")
    line += len(block) - len(stripped)
    if not stripped:
        return None, line, b""
    first = _decode(reader, line, stripped[: stripped.index(b"\n")])
    if sep is None:
        sep = next((s for s in _SEPARATORS if s in first), None)
        if sep is None:
            raise reader.error(
                line, f"no '::', tab, comma or semicolon stands in {shortened(first, 60)}; give sep="
            )
    fields = _split_rows(reader, line, [first], sep)[0]
    if len(fields) < 3:
        raise reader.error(
            line,
            f"{len(fields)} columns with sep={shortened(sep)}; user, item and rating make three: "
            f"{shortened(first, 60)}",
        )
    if len(fields) > _MOST_COLUMNS:
        raise reader.error(
            line,
            f"{len(fields)} columns; ratings are lines of user, item, rating, and this looks like a table: "
            "keep these three columns, or fit a model of tables",
        )
    if len(fields) < value_column:
        raise reader.error(line, f"{len(fields)} columns, and value_column={shortened(value_column)}")
    named = header is True or (
        header == "auto" and not any(is_number(field.replace("_", "")) for field in fields[:3])
    )
    _warn_of_table(reader.name, fields, named)
    if named:
        names = [_plain(field) for field in fields[:3]]
        if "user" in names[1:] or "rating" in names[:2]:
            raise reader.error(
                line, f"the columns are {fields[:3]}; user, item and rating must stand in this order"
            )
        line, stripped = line + 1, stripped[stripped.index(b"\n") + 1 :]
    return _Layout(sep, len(fields), value_column - 1), line, stripped


def _plain(name):
    """The name of a column without "id" at its end."""
    return name.strip().lower().removesuffix("id").strip("_ ")


def _warn_of_table(path, fields, named):
    """Warn where columns are passed over, and nothing says that the first three are of ratings."""
    known = _plain(fields[0]) == "user" and _plain(fields[2]) == "rating" if named else len(fields) <= 4
    if len(fields) > 3 and not known:
        first = ", ".join(shortened(field.strip(), 30) for field in fields[:3])
        warnings.warn(
            f"{path}: of {len(fields)} columns the first three are taken as user, item and rating "
            f"({first}); the others are passed over",
            UserWarning,
            stacklevel=4,
        )


def _decode(reader, line, text):
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(reader.name, error, line) from None


# ---- blocks of plain numbers, in bulk ----


def _parse_block(block, layout):
    """Return users, items and ratings of a block where all columns are plain numbers, or None."""
    sep = layout.sep.encode()
    first = block[: block.find(b"\n")].split(sep)
    decimals = len(first[2].partition(b".")[2]) if len(first) > 2 else 0
    if decimals > 9 or not _pattern(sep, layout.n_columns, decimals).fullmatch(block):
        return None
    # Whole numbers parse faster than decimals: leave the points out and divide, which is exact up to rounding
    # because numbers of 15 digits and powers of ten up to 10**9 are exact.
    text = block.translate(bytes.maketrans(sep, b" " * len(sep)), b"." if decimals else b"")
    numbers = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, layout.n_columns)
    values = numbers[:, layout.value]
    return numbers[:, 0], numbers[:, 1], values / 10**decimals if layout.value == 2 else values


def _pattern(sep, n_columns, decimals):
    sep, whole = re.escape(sep), b"(?:0|[1-9][0-9]{0,17}+)"
    rating = b"[0-9]{1,6}+" + (b"\\.[0-9]{%d}" % decimals if decimals else b"")
    more = (sep + b"[0-9]{1,18}+") * (n_columns - 3)
    return re.compile(b"(?:" + whole + sep + whole + sep + rating + more + b"\n)*+")


# ---- any other block, row by row ----


def _parse_rows(reader, line, block, layout):
    text = _decode(reader, line, block)
    users, items, values = [], [], []
    for number, row in enumerate(_split_rows(reader, line, text.split("\n")[:-1], layout.sep), start=line):
        if not row:
            continue
        if len(row) != layout.n_columns:
            raise reader.error(number, f"{len(row)} columns, and the first line has {layout.n_columns}")
        user, item, rating = row[0].strip(), row[1].strip(), row[layout.value]
        if not user or not item:
            raise reader.error(number, f"the {'item' if user else 'user'} is empty")
        if user.endswith("\0") or item.endswith("\0"):
            raise reader.error(number, "an id ends with a NUL character, which arrays of text drop")
        try:
            if "_" in rating:  # Python would take 1_0 for ten
                raise ValueError
            value = float(rating)
        except ValueError:
            raise reader.error(number, f"the rating must be a number, not {shortened(rating)}") from None
        if not math.isfinite(value):
            raise reader.error(number, f"the rating is {shortened(rating)}; only finite numbers can be used")
        users.append(user)
        items.append(item)
        values.append(value)
    return _as_ids(users), _as_ids(items), np.array(values, float)


def _split_rows(reader, line, lines, sep):
    """Return the fields of each line; no fields for a line that is empty."""
    if len(sep) > 1 or sep == "\t":  # these forms know no quotes
        return [text.split(sep) if text.strip() else [] for text in lines]
    rows: list[list[str]] = []
    parser = csv.reader(lines, delimiter=sep, strict=True)
    try:
        for row in parser:
            if parser.line_num > len(rows) + 1:
                raise csv.Error("a quoted field goes over the end of the line")
            rows.append(row if any(row) else [])
    except csv.Error as error:
        remedy = "ratings are lines of user, item, rating; for topics of texts fit lda"
        raise reader.error(line + len(rows), f"not CSV ({error}); {remedy}") from None
    return rows


def _as_ids(ids):
    if all(map(_WHOLE.fullmatch, ids)):
        return np.array(list(map(int, ids)), np.int64)
    return np.array(ids, str)


# ---- ids and the matrix ----


class _Ids:
    """Ids of one column: each block keeps its distinct ids and a number for each line."""

    def __init__(self):
        self._labels, self._codes = [], []

    def add(self, ids):
        labels, codes = np.unique(ids, return_inverse=True)
        self._labels.append(labels)
        self._codes.append(codes.astype(np.int32))  # a block has fewer than 2**31 lines

    def finish(self):
        """Return all distinct ids, ascending, and the place of each line's id among them."""
        if any(labels.dtype.kind == "U" for labels in self._labels):
            self._labels = [labels.astype(str) for labels in self._labels]
        ids, places = np.unique(np.concatenate(self._labels), return_inverse=True)
        starts = np.cumsum([0] + [len(labels) for labels in self._labels])
        return ids, np.concatenate(
            [places[start + codes] for start, codes in zip(starts, self._codes, strict=False)]
        )


def _to_csr(rows, columns, values, ids, duplicates, name):
    shape = (len(ids[0]), len(ids[1]))
    keys = rows * np.int64(shape[1]) + columns
    order = np.argsort(keys, kind="stable")  # stable: lines of one pair stay in the order of the file
    keys, values = keys[order], values[order]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if len(again) and duplicates == "error":
        first, second = sorted(order[again[0] : again[0] + 2] + 1)
        user, item = divmod(int(keys[again[0]]), shape[1])
        raise DataError(
            f"{name}: user {ids[0][user]} rates item {ids[1][item]} twice (ratings {first} and {second} "
            "of the file); give duplicates='last' or 'sum'"
        )
    if len(again):
        starts = np.delete(np.arange(len(keys)), again + 1)
        last = np.delete(np.arange(len(keys)), again)
        values = values[last] if duplicates == "last" else np.add.reduceat(values, starts)
        keys = keys[starts]
    rows, columns = np.divmod(keys, shape[1])
    index = np.int32 if max(len(keys), *shape) <= np.iinfo(np.int32).max else np.int64
    starts = np.searchsorted(rows, np.arange(shape[0] + 1)).astype(index)
    matrix = sparse.csr_matrix((values, columns.astype(index), starts), shape=shape)
    matrix.has_canonical_format = True
    return matrix
