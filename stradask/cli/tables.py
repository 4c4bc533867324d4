"""Tables for the linear models: CSV (with commas, semicolons or tabs), JSON lines and Parquet.

DATA is ``FILE:COLUMN``, the file's name (which ends in csv, tsv, jsonl or parquet) and the column that holds
the target, by its name in the header or by its number, from 0 or, from the end, -1.
"""

import itertools
import math
import re
import warnings
from array import array

from .._numbers import is_number
from ..algorithms.inputs.encoding import Encoding, is_missing
from ..errors import DataError, listed, shortened
from .rows import rows_of

_TABLE = re.compile(
    r"(.+?\.(?:[ct]sv|jsonl|parquet)(?:\.(?:gz|xz|bz2))?)(?::(.*))?", re.IGNORECASE | re.DOTALL
)


_HEAD = 1000  # rows that are looked through for codes
_CODE = re.compile("0[0-9]+")  # such as 01234, a postal code


def file_of(source):
    """Return the file that DATA names, without a column."""
    from ..datasets.text_files import file_of_texts

    return _parts(source)[0] if is_table(source) else file_of_texts(source)


def is_table(source):
    """Tell whether DATA is a table, by the file's name."""
    return _TABLE.fullmatch(str(source)) is not None


class NotNumbers(DataError):
    """A table has a cell that is not a number, and a header."""


def read_encoded(source, *, encoding=None, impute=False, drop=(), categories=(), labels=False, verbose=0):
    """Read a table with categories or missing cells; see `encoding`.

    `encoding` is that of a fitted model, and the target may be missing then; else it is learned, from all
    columns but the target and those of `drop`.

    Returns
    -------
    X : ndarray in Fortran order or csc_array
    y : ndarray of str or float64, or None
    encoding : Encoding
    counts : ndarray of int, shape (2,)
        Cells with a category that the encoding does not know, whose columns are zero, and missing cells.
    """
    import numpy as np

    path, target = _parts(source)
    wanted = None if encoding is None else {target, *(column.name for column in encoding.columns)}
    numbered = list(rows_of(path, verbose, wanted=wanted, drop=drop))
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    if len(rows) < 2 or any(map(is_number, rows[0])):
        raise DataError(
            f"{path}: a table with categories needs a header and rows below it; name the columns in line 1"
        )
    header, width = [cell.strip() for cell in rows[0]], len(rows[0])
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise DataError(f"{path}, line {line}: {len(row)} cells, but the first line has {width}")
    lines, cells = lines[1:], list(zip(*rows[1:], strict=True))
    _check_different(path, header)
    at = None if encoding is not None and not target else _place_of(target, header, width, path, "")
    y = None if at is None else _targets(cells[at], lines, header[at], path, labels)
    if encoding is None:
        check_named(path, header, None if at is None else header[at], drop, categories)
        kept = [k for k in range(width) if k != at and header[k] not in drop]
        if not kept:
            raise DataError(f"--drop leaves no column of {path} but the target; drop fewer")
        names = [header[k] for k in kept]
        encoding = Encoding.of(names, [cells[k] for k in kept], lines, path, impute, categories)
        numbers = [column.name for column in encoding.columns if column.is_number]
        _note_codes(path, header, rows[1 : _HEAD + 1], at, numbers)
    X, counts = encoding.encode(header, cells, lines, path)
    return X, y if labels or y is None else y.astype(np.float64), encoding, counts


def _check_different(path, names):
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"{path} has two columns {shortened(twice)}: columns are known by their names; rename one"
        )


def check_named(path, header, target, drop, categories):
    """Refuse columns of ``--drop`` and ``--categories`` that are not there, or the target."""
    for option, asked in (("--drop", drop), ("--categories", categories)):
        gone = next((name for name in asked if name not in header), None)
        if gone is not None:
            raise DataError(
                f"{option}: {shortened(path)} has no column {shortened(gone)}; it has {listed(header, gone)}"
            )
        if target in asked:
            raise DataError(
                f"{option} and the target (FILE:COLUMN or --target) both name the column {shortened(target)} "
                f"of {shortened(path)}: leave it out of {option}, or name another target"
            )


def _targets(cells, lines, name, path, labels):
    """Labels as text, or as numbers where all are; targets as numbers."""
    import numpy as np

    for line, cell in zip(lines, cells, strict=True):
        try:
            missing = is_missing(cell) if not labels else _label(cell) is None
        except ValueError:
            missing = True
        if missing or not (labels or is_number(cell)):
            what = "has no value" if missing else f"{shortened(cell)} is not a number"
            remedy = "correct or leave out the row"
            if not missing and not any(map(is_number, cells)):
                remedy = "of classes take a classifier, such as logistic"
            raise DataError(f"{path}, line {line}, target {shortened(name)}: {what}; {remedy}")
    cells = [cell.strip() for cell in cells]
    return np.array(cells).astype(np.float64) if all(map(is_number, cells)) else np.array(cells)


def read_table(source, *, labels=False, n_features=None, verbose=0):
    """Read a table of numbers with a column of targets from ``FILE:COLUMN``.

    The first line is a header if no cell of it is a number. A table of `n_features` columns and no COLUMN has
    no targets. With ``labels`` targets may be text; ``labels="text"`` leaves all of them as text.

    Returns X (float64, Fortran-ordered), y (float64 or str, or None) and the names of the columns of X from
    the header, or None.

    Raises
    ------
    DataError
        Names line and column of the first cell that is not a number; a line that is longer or shorter than
        the first; a target column that is missing, not there, or there twice.
    """
    import numpy as np

    path, target = _parts(source)
    rows = rows_of(path, verbose)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path} holds no line but empty ones; write it again")
    names = None if any(map(is_number, first[1])) else [cell.strip() for cell in first[1]]
    width = len(first[1])
    _check_different(path, names or ())
    alone = f", or give the model's {n_features} columns alone" * (n_features is not None)
    at = None if not target and width == n_features else _place_of(target, names, width, path, alone)
    values, targets, n_rows = array("d"), [], 0
    head = [*([] if names else [first]), *itertools.islice(rows, _HEAD)]
    for line, cells in itertools.chain(head, rows):
        if len(cells) != width:
            raise DataError(f"{path}, line {line}: {len(cells)} cells, but the first line has {width}")
        n_rows += 1
        try:
            if any("_" in cell for k, cell in enumerate(cells) if k != at or not labels):
                raise ValueError  # which Python reads as a number where digits stand about it
            if at is None:
                values.extend(map(float, cells))
            else:
                targets.append(_label(cells[at]) if labels else float(cells[at]))
                values.extend(map(float, cells[:at]))
                values.extend(map(float, cells[at + 1 :]))
        except ValueError:
            raise _unusable(path, line, cells, at if labels else None, names) from None
    if not n_rows:
        raise DataError(f"{path} holds a header and no rows; add rows")
    if names is not None and n_features is None:
        _note_codes(path, names, [cells for _, cells in head], at)
    X = np.asfortranarray(np.frombuffer(values).reshape(n_rows, -1))
    if np.isinf(X).any():
        row, column = np.argwhere(np.isinf(X))[0]
        column += at is not None and column >= at % width
        label = f"column {column}" + (f" ({shortened(names[column])})" if names else "")
        raise DataError(
            f"{path}, row {row + 1}, {label}: the number is infinite, or beyond 1.8e308; correct it"
        )
    if at is None:
        return X, None, names
    numbers = not labels or (labels != "text" and all(map(is_number, targets)))
    y = np.array(targets).astype(np.float64) if numbers else np.array(targets)
    return X, y, names and names[:at] + names[at + 1 :]


def _note_codes(path, header, rows, at, numbers=None):
    """Say which columns of numbers hold codes: whole numbers of one length, some with zeros in front."""
    for k, name in enumerate(header):
        if k == at or (numbers is not None and name not in numbers):
            continue
        cells = [row[k].strip() for row in rows]
        code = next(filter(_CODE.fullmatch, cells), None)
        if code is not None and all(len(cell) == len(code) and cell.isdecimal() for cell in cells if cell):
            warnings.warn(
                f"{path}: the column {shortened(name)} is read as numbers, but {code!r} looks like a code; "
                "name the column by --categories (or leave it out by --drop)",
                stacklevel=3,
            )


def _parts(source):
    """Divide DATA into the file's name and the target column, which may be missing."""
    found = _TABLE.fullmatch(str(source))
    return (str(source), None) if found is None else found.groups()


def _place_of(target, names, width, path, alone):
    """Return the number of the target column; `alone` ends the remedy where it is missing."""
    there = f"no header and {width} columns"
    if names:
        near = target if target and target not in names else None
        there = f"the columns {listed(names, near)}"
    if width < 2:
        raise DataError(f"{path} has {there}; a target and one column or more are needed")
    if not target:
        raise DataError(f"say which column of {path} is the target, as {path}:COLUMN{alone}; it has {there}")
    if names and target in names:
        return names.index(target)
    if re.fullmatch("-?[0-9]+", target) and -width <= int(target) < width:
        return int(target) % width
    raise DataError(f"{path} has no column {shortened(target)} for the target; it has {there}")


def _label(cell):
    """Return a label without space around it; ValueError if it is missing."""
    label = cell.strip()
    if not label or (is_number(label) and not math.isfinite(float(label))):
        raise ValueError
    return label


def _unusable(path, line, cells, label, names):
    """Make the error for the first cell that is not a number, or for a label that is missing."""
    numbers = (k for k, cell in enumerate(cells) if k != label and not is_number(cell))
    wrong = next(numbers, label)
    where = f"column {wrong}" + (f" ({shortened(names[wrong])})" if names else "")
    cell = cells[wrong].strip()
    what = (
        "the cell is empty"
        if not cell
        else f"{shortened(cell)} is not a {'label' if wrong == label else 'number'}"
    )
    kind = DataError if names is None or wrong == label else NotNumbers
    return kind(f"{path}, line {line}, {where}: {what}; fill it in, or leave out the row or column")
