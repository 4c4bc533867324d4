"""Tables with categories and missing cells: how columns become numbers, kept in the model's file.

A column whose cells are all numbers stays one; of any other column each value, or each bucket of a hash,
becomes a column of zeros and ones. The encoding is learned where a model is fitted; new tables are read by
it, their columns found by name. Cells are text (of CSV), or columns of Arrow (of Parquet and of frames, see
`arrow_columns`).
"""

import hashlib
import math
import re
from dataclasses import dataclass

from ..._numbers import is_number
from ...errors import DataError, ModelFileError, shortened

_FLAGS = {"True": 1.0, "False": 0.0}
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./-]\d\d?[./-]\d{2,4}")
# Numbers as people write them, which Python does not read: 1,5  $1,200  5 %  1 000
_WRITTEN = re.compile(r"[-+(]?\s*[$€£¥]?\s*[-+]?\d[\d.,' \u00a0]*\s*[%$€£¥)]?")
LONGEST = 100  # letters of a category
MOST_VALUES, LARGEST_SHARE = 1000, 0.5  # of a category: in all, and of the rows from 50 on
_MOST_SAID, _MOST_NAMED = 5, 12  # columns in an error: with the reason, and in the options to give
_DENSE = 0.25  # share of entries other than zero from which X is an ndarray


class _Refused(DataError):
    """A column that cannot be used as it is: why, in short, and the option that ends it, if there is one."""

    def __init__(self, message, name, why, option=None):
        super().__init__(message)
        self.name, self.why, self.option = name, why, option


def is_missing(cell):
    """Whether a cell holds no value."""
    return cell.strip().lower() in _MISSING


@dataclass(frozen=True)
class Column:
    """A column: of numbers, missing ones replaced by `fill`; of categories, the `values`; or of hashes."""

    name: str
    values: tuple | None = None
    fill: float | None = None
    asked: bool = False  # for as a category: then only an empty cell is missing, and "NA" is a value
    buckets: int | None = None  # of a hash of the cell's text

    def misses(self, cell):
        """Whether a cell of this column holds no value."""
        return not cell.strip() if self.asked else is_missing(cell)

    @classmethod
    def of(cls, name, cells, lines, path, impute, category):
        """Learn a column from its cells; as a category also if all are numbers, where `category` says so."""
        misses = cls(name, asked=category).misses
        present = [cell for cell in cells if not misses(cell)]
        if len(present) < len(cells) and not impute:
            raise _missing(name, list(map(misses, cells)), lines, path)
        if not present:
            raise _Refused(
                f"{path}: column {shortened(name)} has no values at all; leave it out by --drop",
                *(name, "no values", "drop"),
            )
        n_numbers, where = sum(map(_finite, present)), f"column {shortened(name)}"
        flags = all(cell.strip() in _FLAGS for cell in present)  # as ParquetTable reads them: one column
        if (n_numbers == len(present) or flags) and not category:
            numbers = sorted(map(_number, present))
            middle = len(numbers) // 2
            return cls(name, None, (numbers[middle] + numbers[~middle]) / 2)
        values = sorted({cell.strip() for cell in present})
        odd = next((value for value in values if not _finite(value)), values[0])
        if n_numbers and not category:
            line = next(line for line, cell in zip(lines, cells, strict=True) if cell.strip() == odd)
            raise _Refused(
                f"{path}, line {line}, {where}: {shortened(odd)} among {n_numbers:,} numbers: correct the "
                "cell, or pass --categories with the column's name if its values are categories",
                *(name, f"{shortened(odd, 20)} among numbers"),
            )
        written = sum(_WRITTEN.fullmatch(value) is not None for value in values)
        if not category and written > len(values) / 2:
            raise _Refused(
                f"{path}: {where} holds {shortened(odd)}: write numbers with a point and no other signs, or "
                "pass --categories with the column's name if these are categories",
                *(name, f"numbers such as {shortened(odd, 20)}"),
            )
        if all(map(DATE.fullmatch, values)):
            raise _Refused(
                f"{path}: {where} holds dates, such as {shortened(odd)}: put year, month or day in columns "
                "of numbers, or leave it out by --drop",
                *(name, "dates", "drop"),
            )
        strange = next((v for v in values if len(v) > LONGEST or not v.isprintable()), None)
        if strange is not None:
            raise _Refused(
                f"{path}: {where} holds {shortened(strange)}, too long or with control characters for a "
                "category: leave texts out by --drop (for topics of texts: fit lda)",
                *(name, "texts", "drop"),
            )
        if len(values) > MOST_VALUES or (len(cells) >= 50 and len(values) > LARGEST_SHARE * len(cells)):
            raise _Refused(
                f"{path}: {where} has {len(values):,} different values in {len(cells):,} rows, such as "
                f"{shortened(odd)}: leave names, ids and texts out by --drop (for topics of texts: fit lda)",
                *(name, f"{len(values):,} different values", "drop"),
            )
        return cls(name, tuple(values), None, category)

    @property
    def is_number(self):
        """Whether it stays one column."""
        return self.values is None and self.buckets is None

    @property
    def width(self):
        """Number of columns that it becomes."""
        if self.buckets is not None:
            return self.buckets
        return 1 if self.values is None else len(self.values)

    @property
    def names(self):
        """Names of the columns that it becomes."""
        if self.buckets is not None:
            return [f"{self.name}#{bucket}" for bucket in range(self.buckets)]
        return [self.name] if self.values is None else [f"{self.name}={value}" for value in self.values]

    def codes(self, texts):
        """The number of the column of each text, among those that it becomes; -1 for unknown categories."""
        import numpy as np

        if self.buckets is not None:
            return np.array([_bucket(self.name, text, self.buckets) for text in texts], np.int64)
        number = {value: k for k, value in enumerate(self.values or ())}
        return np.array([number.get(text, -1) for text in texts], np.int64)

    def encode(self, cells, lines, path):
        """Return rows, columns (of those it becomes) and values not zero; unknown and missing cells."""
        import numpy as np

        if not self.is_number:
            codes = self.codes([cell.strip() for cell in cells])
            codes[np.array(list(map(self.misses, cells)), bool)] = -2
            rows = np.flatnonzero(codes >= 0)
            counts = np.array([np.count_nonzero(codes == -1), np.count_nonzero(codes == -2)])
            return rows, codes[rows], np.ones(len(rows)), counts
        for line, cell in zip(lines, cells, strict=True):
            if not (_finite(cell) or is_missing(cell) or cell.strip() in _FLAGS):
                raise DataError(
                    f"{path}, line {line}, column {shortened(self.name)}: {shortened(cell)} is not a finite "
                    "number, as the model's column has; correct it"
                )
        numbers = np.array([self.fill if is_missing(cell) else _number(cell) for cell in cells], float)
        rows = np.flatnonzero(numbers)
        return rows, np.zeros(len(rows), int), numbers[rows], np.array([0, sum(map(is_missing, cells))])


@dataclass(frozen=True)
class Encoding:
    """All columns of a table but the target and those left out; `impute`: missing cells may come."""

    columns: tuple
    impute: bool

    @classmethod
    def of(cls, names, cells, lines, path, impute, categories=()):
        """Learn from the cells of each column."""
        made, refused = [], []
        for name, own in zip(names, cells, strict=True):
            try:
                made.append(Column.of(name, own, lines, path, impute, name in categories))
            except _Refused as error:
                refused.append(_next_to(error, name, own, lines, path, name in categories))
        if refused:
            raise refused[0] if len(refused) == 1 else _all_of(refused, path)
        return cls(tuple(made), impute)

    @property
    def names(self):
        """Names of the columns of X."""
        return [name for column in self.columns for name in column.names]

    @property
    def width(self):
        """Number of columns of X."""
        return sum(column.width for column in self.columns)

    def encode(self, header, cells, lines, path):
        """Return X, dense or CSC, of columns found by their names; numbers of unknown and missing cells."""
        import numpy as np
        from scipy import sparse

        lacking = [column.name for column in self.columns if column.name not in header]
        if lacking:
            raise DataError(
                f"{path} has no column {shortened(lacking[0])}, which the model was fitted with; add it (the "
                "order of columns does not matter)"
            )
        rows, at, values, first, counts = [], [], [], 0, np.zeros(2, int)
        for column in self.columns:
            own = cells[header.index(column.name)]
            if not self.impute and any(map(column.misses, own)):
                raise _missing(column.name, list(map(column.misses, own)), lines, path)
            found = column.encode(own, lines, path)
            rows.append(found[0])
            at.append(found[1] + first)
            values.append(found[2])
            counts += found[3]
            first += column.width
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(at))
        X = sparse.csc_array(entries, shape=(len(lines), first))
        return (X.toarray(order="F") if X.nnz > _DENSE * len(lines) * first else X), counts

    def as_dict(self):
        """For the model's file."""
        columns = []
        for c in self.columns:
            values = c.values and list(c.values)
            entry = {"name": c.name, "values": values, "fill": c.fill, "asked": c.asked}
            columns.append(entry if c.buckets is None else entry | {"buckets": c.buckets})
        return {"columns": columns, "impute": self.impute}

    @classmethod
    def of_dict(cls, kept, n_features):
        """Take what `as_dict` made from a file, which may have been altered, of a model of `n_features`."""
        try:
            columns = []
            for entry in kept["columns"]:
                name, values, fill = entry["name"], entry["values"], entry["fill"]
                texts = values is None or all(isinstance(value, str) for value in values)
                buckets = entry.get("buckets")
                if buckets is not None and not (type(buckets) is int and 0 < buckets < 2**31):
                    raise ValueError(name)
                if not (isinstance(name, str) and texts and (values or buckets or isinstance(fill, float))):
                    raise ValueError(name)
                columns.append(Column(name, values and tuple(values), fill, bool(entry["asked"]), buckets))
            encoding = cls(tuple(columns), bool(kept["impute"]))
            if encoding.width != n_features:
                raise ValueError(f"{encoding.width} columns, and the model has {n_features}")
            return encoding
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"the model's file does not say how its table was read ({shortened(str(error))}): fit again"
            ) from error


def _missing(name, missing, lines, path):
    gone = [line for line, misses in zip(lines, missing, strict=True) if misses]
    return _Refused(
        f"{path}: column {shortened(name)} has {len(gone):,} cells without a value, the first in line "
        f"{gone[0]}: fill them in, leave the column out by --drop, or fit with --impute",
        *(name, f"{len(gone):,} without a value", "impute"),
    )


def _next_to(error, name, cells, lines, path, category):
    """What else speaks against a column with missing cells, or the error itself."""
    if error.option == "impute":
        try:
            Column.of(name, cells, lines, path, True, category)
        except _Refused as further:
            return further
    return error


def _all_of(refused, path):
    """One error for several columns, with the options that the next try needs."""
    said = [f"{shortened(error.name, 30)} ({error.why})" for error in refused[:_MOST_SAID]]
    more = f" and {len(refused) - _MOST_SAID:,} more" if len(refused) > _MOST_SAID else ""
    by_option = {
        option: [error.name for error in refused if error.option == option]
        for option in ("impute", "drop", None)
    }
    options = ["--impute"] * bool(by_option["impute"])
    if by_option["drop"]:
        options += ["--drop", *map(_quoted, by_option["drop"][:_MOST_NAMED])]
        options += ["..."] * (len(by_option["drop"]) > _MOST_NAMED)
    if by_option[None]:
        options.append("and" * bool(options))
        options.append("correct the cells that are no numbers, or name their columns by --categories")
    return DataError(
        f"{path}: {len(refused):,} columns cannot be used as they are: {', '.join(said)}{more}; "
        f"for instance {' '.join(filter(None, options))}"
    )


def _quoted(name):
    """A name as a shell takes it."""
    return shortened(name, 30) if re.search(r"[^\w.-]", name) else shortened(name, 30)[1:-1]


def _bucket(name, text, n_buckets):
    """The bucket of a value: the same in every process and version."""
    digest = hashlib.blake2b(f"{name}={text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % n_buckets


def _number(cell):
    return _FLAGS.get(cell.strip()) if cell.strip() in _FLAGS else float(cell)


def _finite(cell):
    return is_number(cell) and math.isfinite(float(cell))
