"""Columns of Arrow, of Parquet files and of frames, as the columns of X that an `Encoding` makes of them."""

import numpy as np
from scipy import sparse

from ...datasets.parquet import needs_pyarrow
from ...errors import DataError, shortened

_DENSE = 0.25  # share of entries other than zero, if all numbers are, from which on X is an ndarray
_TILE = 1 << 17  # entries of X that are filled at a time: 1 MiB
LARGEST_VOCABULARY = 100_000  # values of a category that a pass may find


def is_dense(encoding):
    """Whether X is an ndarray, which does not depend on the values of its cells."""
    return len(encoding.columns) > _DENSE * encoding.width


def arrow_of(frame, names):
    """Take columns of a frame of pandas, or of another library that has `to_arrow`, or of Arrow's own."""
    lib, _ = needs_pyarrow("categories of a frame")
    there = getattr(frame, "column_names", None) or list(frame.columns)
    lacking = [name for name in names if name not in there]
    if lacking:
        raise DataError(
            f"X has no column {shortened(lacking[0])}, which the model was fitted with; add it (the order of "
            "columns does not matter)"
        )
    twice = [name for name in names if list(there).count(name) > 1]
    if twice:
        raise DataError(f"X has several columns {shortened(twice[0])}: keep one of them")
    if isinstance(frame, lib.Table):
        return frame.select(names)
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow().select(names)
    try:
        return lib.Table.from_pandas(frame[list(names)], preserve_index=False)
    except lib.ArrowException as error:
        said = " ".join(map(str, error.args))
        raise DataError(f"X has a column of mixed kinds: {said[:150]}") from None


def in_frame(row):
    """Name a row of a frame for an error."""
    return f"X, row {row}"


def encode(encoding, table, where, dtype=np.float64):
    """Encode the columns of an Arrow table.

    ``where(row)`` names a row for errors. Returns X, an ndarray or csr_array of `dtype`, and for each column
    how many cells hold a category that the encoding does not know.
    """
    n, dense = table.num_rows, is_dense(encoding)
    numbers, codes, unknown, first = {}, {}, {}, 0
    for column in encoding.columns:
        if column.is_number:
            numbers[first] = _numbers(column, table[column.name], encoding.impute, where)
        else:
            codes[first] = _codes(column, table[column.name], encoding.impute, where)
            unknown[column.name] = int(np.count_nonzero(codes[first] == -1))
        first += column.width
    if dense:
        return _filled(numbers, codes, (n, first), dtype), unknown
    rows, at, values = [], [], []
    for place, column in numbers.items():
        kept = np.flatnonzero(column)
        rows.append(kept)
        at.append(np.full(len(kept), place))
        values.append(column[kept].astype(dtype))
    for place, own in codes.items():
        kept = np.flatnonzero(own >= 0)
        rows.append(kept)
        at.append(own[kept] + place)
        values.append(np.ones(len(kept), dtype))
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(at))
    return sparse.csr_array(entries, shape=(n, first)), unknown


def _filled(numbers, codes, shape, dtype):
    """Put columns of numbers and of codes, by their places, into an array; by rows that fit the cache."""
    X = np.empty(shape, dtype) if not codes else np.zeros(shape, dtype)
    step = max(1, _TILE // max(shape[1], 1))
    for a in range(0, shape[0], step):
        tile = X[a : a + step]
        for place, column in numbers.items():
            tile[:, place] = column[a : a + step]
    for place, own in codes.items():
        kept = np.flatnonzero(own >= 0)
        X[kept, own[kept] + place] = 1
    return X


def _numbers(column, cells, impute, where):
    """A column of numbers in float64, or in float32 as it is."""
    kind = str(cells.type)
    if "decimal" in kind or kind == "bool":
        cells = cells.cast("float64" if kind != "bool" else "int8")
    elif not (kind in ("float", "double", "halffloat") or "int" in kind):
        raise DataError(
            f"{where(0)}: the column {shortened(column.name)} holds {kind}, and the model was "
            "fitted to numbers"
        )
    numbers = cells.to_numpy()  # None of Arrow becomes NaN
    if numbers.dtype != np.float32:
        numbers = numbers.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(numbers.sum()):
            return numbers
    missing = np.isnan(numbers)
    if missing.any():
        if not impute or column.fill is None:
            raise _missing(column.name, missing, where)
        numbers = np.where(missing, column.fill, numbers)
    wrong = np.flatnonzero(np.isinf(numbers))
    if len(wrong):
        raise DataError(
            f"{where(wrong[0])}: the column {shortened(column.name)} is infinite there: correct or leave out "
            "the row"
        )
    return numbers


def _codes(column, cells, impute, where):
    """The column of X, among those of this column, for each row; -1 for unknown and -2 for missing values."""
    numbers, texts = texts_of(column.name, cells, where)
    codes = column.codes(texts)[numbers] if len(texts) else np.full(len(numbers), -1)
    missing = numbers < 0
    if missing.any():
        if not impute:
            raise _missing(column.name, missing, where)
        codes[missing] = -2
    return codes


def texts_of(name, cells, where):
    """For each row the number of its value, or -1; and the values of text or whole numbers, as text."""
    kind = str(cells.type)
    if kind in ("float", "double", "halffloat") or (
        "string" not in kind and "int" not in kind and kind != "bool"
    ):
        raise DataError(
            f"{where(0)}: categories of {shortened(name)} are {kind}: make them whole numbers or text"
        )
    if "dictionary" in kind:
        cells = cells.cast(cells.type.value_type)
    cells = cells.combine_chunks().dictionary_encode()
    if hasattr(cells, "chunks"):
        cells = cells.combine_chunks()
    texts = cells.dictionary.cast("string").to_pylist()
    return cells.indices.fill_null(-1).to_numpy().astype(np.int64), texts


def _missing(name, missing, where):
    return DataError(
        f"{where(int(np.argmax(missing)))}: the column {shortened(name)} has no value there "
        f"({missing.sum():,} such rows in this part): fill them in, leave the rows out, or "
        "leave the column out"
    )


def target_of(table, name, where):
    """A column of targets or weights: numbers of their own type, or text."""
    cells = table[name]
    kind = str(cells.type)
    if cells.null_count:
        raise _missing(name, cells.is_null().to_numpy(), where)
    if "string" in kind:
        numbers, texts = texts_of(name, cells, where)
        return np.array(texts, dtype=object)[numbers] if len(texts) else np.empty(0, object)
    if "decimal" in kind:
        cells = cells.cast("float64")
    elif not (kind in ("bool", "float", "double", "halffloat") or "int" in kind):
        raise DataError(f"{where(0)}: the column {shortened(name)} holds {kind}; numbers or text are needed")
    values = cells.to_numpy()
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(1, bool)
    if missing.any():
        raise _missing(name, missing, where)
    return values
