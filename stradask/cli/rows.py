"""The rows of a table in a file, as cells of text: CSV, JSON lines and Parquet."""

import csv
import io
import itertools
import re

from .._urls import file_size
from ..errors import DataError, in_brief, not_utf8, shortened

_PORTION = 10_000  # rows of Parquet that become text at once


def rows_of(path, verbose=0, *, wanted=None, drop=()):
    """Yield the number and the cells of each row, the header first; from 1, of CSV the number of its line.

    Of columns in `drop`, and of others than `wanted`, JSON lines and Parquet may hold lists and objects: such
    cells are empty.
    """
    name = str(path).lower()
    unused = _Unused(wanted, drop)
    if name.endswith(".parquet"):
        return _of_parquet(path, unused)
    if re.search(r"\.jsonl(\.(gz|xz|bz2))?$", name):
        return _of_json(path, verbose, unused)
    return _of_csv(path, verbose)


class _Unused:
    """Names of columns that are not read."""

    def __init__(self, wanted, drop):
        self.wanted, self.drop = wanted, drop

    def __contains__(self, name):
        return name in self.drop or (self.wanted is not None and name not in self.wanted)


def _of_csv(path, verbose):
    """The lines that are not empty."""
    from ..datasets._common import separator_of

    try:
        lines = _lines(path, verbose)
        head = []
        for line in lines:
            head.append(line)
            if line.strip():
                break
        separator = separator_of(head[-1] if head else "")
        rows = csv.reader(itertools.chain(head, lines), delimiter=separator, strict=True)
        for cells in rows:
            if len(cells) > 1 or any(cell.strip() for cell in cells):  # "," is a row without values
                yield rows.line_num, cells
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except csv.Error as error:
        raise DataError(
            f"{path}: not a table ({error}); write it as CSV with quotes in pairs, and leave out texts "
            "of more than 100,000 letters"
        ) from None


def _of_json(path, verbose, unused):
    """One object a line; a field that a line lacks is an empty cell."""
    from ..datasets._common import json_lines
    from ..datasets._files import too_empty

    try:
        objects = list(json_lines(_lines(path, verbose), path))
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    for number, fields in objects:
        if not isinstance(fields, dict):
            raise DataError(
                f'{path}, line {number}: {shortened(fields, 40)} is no object; write lines as {{"age": 31}}'
            )
    header = list(dict.fromkeys(name for _, fields in objects for name in fields))
    values = sum(len(fields) for _, fields in objects)
    if too_empty(len(objects) * len(header), values):
        raise DataError(
            f"{path}: {len(objects):,} lines have {len(header):,} different fields, and {values:,} values in "
            "all; write lines with the same fields"
        )
    if header:
        yield 1, header
    for number, fields in objects:
        yield number, [_cell(fields.get(name), name, path, f"line {number}", unused) for name in header]


def _of_parquet(path, unused):
    """Row k + 1 of the file has the number k + 2, as it would have in CSV below a header."""
    from ..datasets._files import too_empty
    from ..datasets.parquet import open_parquet

    with open_parquet(path) as (file, _):
        names, number = file.schema_arrow.names, 1
        if too_empty(file.metadata.num_rows * len(names), file_size(path)):
            raise DataError(
                f"{in_brief(path)} holds {file.metadata.num_rows:,} rows in {file_size(path):,} bytes, "
                "too many to read as text; fit in Python, to stradask.datasets.ParquetTable"
            )
        yield number, names
        for batch in file.iter_batches(_PORTION):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                pairs = zip(row, names, strict=True)
                yield number, [_cell(v, name, path, f"row {number - 1}", unused) for v, name in pairs]


def _cell(value, name, path, where, unused):
    """A value as CSV would have it."""
    if value is None:
        return ""
    if isinstance(value, (dict, list, bytes)):
        if name in unused:
            return ""
        kind = {"dict": "an object", "list": "a list", "bytes": "bytes"}[type(value).__name__]
        raise DataError(
            f"{path}, {where}: the column {shortened(name)} holds {kind}, {shortened(value, 40)}; leave it "
            "out by --drop, or write a column for each of its values"
        )
    return str(value)


def _lines(path, verbose):
    from ..datasets._files import Reader

    with Reader(path, verbose=verbose) as reader:
        for _, block in reader.blocks():
            yield from io.StringIO(block.decode("utf-8"))
