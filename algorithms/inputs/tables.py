"""Parquet files as X of a fit, and frames and files with categories as X of a fitted model.

`fitted_table` makes Dask arrays of the files, whose blocks a worker, or a thread, reads and encodes; from
there on they are Dask arrays like any other. The encoding stays with the model, as ``table_encoding_``, and
`given_rows` brings new tables into the form of X by it.
"""

import itertools
import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from ...datasets.parquet import ParquetTable, is_parquet, parts_of, read_footer, read_part, with_folders
from ...datasets.row_files import row_format
from ...errors import DataError, listed, shortened
from .arrow_columns import (
    LARGEST_VOCABULARY,
    arrow_of,
    encode,
    in_frame,
    is_dense,
    target_of,
    texts_of,
)
from .encoding import Column, Encoding
from .pieces import gathered, is_dask, is_frame
from .reduced import reduced
from .streamed import share_of_parts
from .table_columns import TableColumns, with_table_columns
from .targets import CheckedScore, all_weights, check_scored

_FILES = 16  # whose footers a task reads


@contextmanager
def fitted_table(estimator, X, y, sample_weight=None):
    """Yield X, y and sample_weight of a fit, as Dask arrays if X names files; keep the encoding.

    Of Parquet files `y` and `sample_weight` are names of columns; for others see `row_tables`. Any other X
    passes as it is.
    """
    kept, names_files = vars(estimator), isinstance(X, (str, os.PathLike, list, tuple, ParquetTable))
    if names_files and row_format(X) is not None:
        from .row_tables import rows_of_files

        X, y, sample_weight = rows_of_files(estimator, X, y, sample_weight)
    else:
        kept.pop("zero_based_", None)
    if not (names_files and is_parquet(X)):
        yield X, y, sample_weight
        if kept.pop("table_encoding_", None) is not None:
            kept.pop("vocabulary_", None)
        return
    table = X if isinstance(X, ParquetTable) else ParquetTable(X)
    if y is None:
        raise DataError(
            f"y must be the name of a column of {shortened(table.paths, 200)}: fit(X, y='column')"
        )
    found = FoundTable(table, engine_of(estimator), y=y, sample_weight=sample_weight)
    encoding = found.encoding()
    kept["table_encoding_"] = encoding.as_dict()  # also of the models that callbacks get
    rows = with_table_columns(found.rows(encoding), TableColumns.of_encoding(encoding))
    yield rows, found.vector(y), found.vector(sample_weight)
    kept.pop("vocabulary_", None)
    if not any(column.buckets for column in encoding.columns):
        estimator.vocabulary_ = np.array(encoding.names, dtype=str)


def engine_of(estimator):
    """The engine that Dask arrays have: "local" becomes "dask" if there is a client."""
    from dask.delayed import delayed

    from .dask_arrays import engine_for

    return engine_for(delayed(None), estimator.engine)


class FoundTable:
    """Parquet files whose footers were read: parts, columns and their types.

    `columns`: (by role) names of the columns that are not features.
    """

    def __init__(self, table, engine, **roles):
        self.table, self.engine = table, engine
        self.roles = {role: name for role, name in roles.items() if name is not None}
        wanted = [] if table.columns is None else [*table.columns]
        files = table.files()
        named = [*self.roles.values(), *wanted, *table.vocabularies, *(table.hashed or ())]
        self._check_roles(files[0])
        runs = [(files[k : k + _FILES], named if wanted else None) for k in range(0, len(files), _FILES)]
        self.footers = with_folders(reduced(_footers, _joined, runs, engine))
        types = self.footers[0].types
        for role, name in self.roles.items():
            self._check_there(name, types, role)
        apart = set(self.roles.values())
        self.names = wanted or [name for name in types if name not in apart]
        for name in named:
            self._check_there(name, types, "the table")
        unused = [name for name in (*table.vocabularies, *(table.hashed or ())) if name not in self.names]
        if unused:
            raise DataError(
                f"{shortened(unused[0])} of categories or hashed is not among the columns to fit to, "
                f"{shortened(self.names)}: add it to columns=, or leave it out of both"
            )
        if not self.names:
            raise DataError(f"{shortened(files[0], 200)} has no columns but {shortened(sorted(apart))}")
        for role, name in self.roles.items():
            if name in self.names:
                raise DataError(f"the column {shortened(name)} is {role} and in columns=: leave it out there")
        self._check_alike()
        self._check_missing()
        self.parts = parts_of(self.footers, len(self.names) + len(apart), share_of_parts(engine))
        if not self.parts:
            raise DataError(
                f"{files[0]} holds no row{' and so do the others' * (len(files) > 1)}: write it again"
            )

    @property
    def dtype(self):
        """float32 if all numbers are, else float64."""
        numbers = {footer.types[name] for footer in self.footers for name in self.names}
        kinds = {dtype for kind, dtype in numbers if kind in ("number", "integer") and dtype != "bool"}
        return np.dtype(np.float32 if kinds and kinds <= {"float32", "float16"} else np.float64)

    def _check_roles(self, file):
        for role, name in self.roles.items():
            if not isinstance(name, str):
                raise DataError(
                    f"{role} must be the name of a column of {shortened(file, 200)}, as X names Parquet "
                    f"files; got {shortened(name)}"
                )

    def _check_there(self, name, types, role):
        if name not in types:
            raise DataError(
                f"{shortened(self.footers[0].path, 200)} has no column {shortened(name)} for {role}; it has "
                f"{shortened(list(types), 150)}"
            )

    def _check_alike(self):
        first = self.footers[0]
        for name in (*self.names, *self.roles.values()):
            kind = first.types[name][0]
            if kind not in ("number", "integer", "text"):
                remedy = "; numbers or text are needed"
                if name in self.names:
                    remedy = (
                        ": leave it out by ParquetTable(paths, columns=[...]), or make numbers or text of it"
                    )
                raise DataError(
                    f"{shortened(first.path, 200)}: the column {shortened(name)} holds {kind}{remedy}"
                )
            for footer in self.footers[1:]:
                if name not in footer.types:
                    raise DataError(
                        f"{shortened(footer.path, 200)} has no column {shortened(name)}, which "
                        f"{shortened(first.path, 200)} has: leave it out, or give files of the same columns"
                    )
                there = footer.types[name][0]
                numbers = {there, kind} <= {"number", "integer"} and name not in self._coded
                if there != kind and not numbers:
                    raise DataError(
                        f"{shortened(footer.path, 200)}: the column {shortened(name)} holds {there}, and "
                        f"{kind} in {shortened(first.path, 200)}: make them alike"
                    )

    @property
    def _coded(self):
        """Columns that become categories or hashes by the caller's word."""
        return {*self.table.vocabularies, *(self.table.hashed or ())}

    def _check_missing(self):
        """Refuse missing values that footers tell of, before anything is read."""
        for footer in self.footers:
            for name in (*self.names, *self.roles.values()):
                for group, n in enumerate(footer.nulls.get(name, ())):
                    if n:
                        raise DataError(
                            f"{footer.path}, row group {group}: the column {shortened(name)} has {n:,} rows "
                            "without a value: fill them in, leave the rows out, or leave the column out by "
                            "ParquetTable(paths, columns=[...])"
                        )

    def encoding(self):
        """Make the encoding; a pass over categories finds the values that are not given."""
        types, given, hashed = self.footers[0].types, self.table.vocabularies, self.table.hashed or {}
        open_ = [
            name
            for name in self.names
            if name not in hashed and given.get(name) is None and (types[name][0] == "text" or name in given)
        ]
        floats = [name for name in self._coded if types[name] == ("number", types[name][1])]
        if floats:
            raise DataError(
                f"the column {shortened(floats[0])} of categories or hashed holds {types[floats[0]][1]}: "
                "give columns of text or whole numbers"
            )
        named = {name: set(map(str, own)) for name, own in given.items() if own is not None}
        if named:
            self._warn_of_unheld(named)
        values = {}
        if open_:
            values = reduced(_values_of, merged, [(part, open_) for part in self.parts], self.engine)
        columns = []
        for name in self.names:
            known = values[name] if name in values else given.get(name)
            if name in hashed:
                columns.append(Column(name, buckets=hashed[name]))
            elif known is not None:
                columns.append(Column(name, tuple(map(str, known)), asked=True))
            else:
                columns.append(Column(name, fill=0.0))
        return Encoding(tuple(columns), False)

    def _warn_of_unheld(self, given):
        """Warn of given values that no row has, which are often misspelt.

        Reads part after part, always more at a time, until each value was found: mostly one part.
        """
        held: Any = {name: (set(), 0, None) for name in given}
        first, size = 0, 1
        while first < len(self.parts) and any(given[name] - own for name, (own, *_) in held.items()):
            parts = [(part, given) for part in self.parts[first : first + size]]
            held = _held_in_all([held, reduced(_held_of, _held_in_all, parts, self.engine)])
            first, size = first + size, 4 * size
        for name, (own, n_others, other) in held.items():
            if absent := sorted(given[name] - own):
                rest = (
                    f"; {n_others:,} rows have other values, such as {shortened(other)}" if n_others else ""
                )
                warnings.warn(
                    f"categories of {shortened(name)}: no row has {listed(absent)}{rest}: check how they are "
                    "written",
                    stacklevel=6,
                )

    def rows(self, encoding):
        """X as a Dask array, an ndarray or csr_array for each part."""
        names, dtype = [column.name for column in encoding.columns], self.dtype
        return _array(
            _encoded, self.parts, (encoding, names, dtype), encoding.width, dtype, _blank(encoding, dtype)
        )

    def vector(self, name):
        """A column as a Dask array, in the parts of X; None for no column.

        Files may have different types of numbers: the array has one that holds them all.
        """
        if name is None:
            return None
        dtype = np.result_type(*{footer.types[name][1] for footer in self.footers})
        return _array(_column, self.parts, (name, dtype), None, dtype, np.empty(0, dtype))


def _array(function, parts, args, width, dtype, meta):
    import dask.array as da
    from dask.delayed import delayed

    made = delayed(function, pure=True)
    more = () if width is None else (width,)
    blocks = [
        da.from_delayed(made(part, *args), (part.n_rows, *more), dtype=dtype, meta=meta) for part in parts
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _blank(encoding, dtype):
    """Rows of none, of the form that blocks of X have."""
    return np.empty((0, 0), dtype) if is_dense(encoding) else sparse.csr_array((0, 0), dtype=dtype)


def _encoded(part, encoding, names, dtype):
    return encode(encoding, read_part(part, names), part.where, dtype)[0]


def _column(part, name, dtype):
    return target_of(read_part(part, [name]), name, part.where).astype(dtype, copy=False)


def _footers(paths, names):
    return [read_footer(path, names) for path in paths]


def _joined(lists):
    return list(itertools.chain(*lists))


def _values_of(part, names):
    table = read_part(part, names)
    return {name: texts_of(name, table[name], part.where)[1] for name in names}


def _held_of(part, given):
    """Of columns: which of the given values they have, how many rows have another one, and one of these."""
    table, found = read_part(part, list(given)), {}
    for name, values in given.items():
        numbers, texts = texts_of(name, table[name], part.where)
        other = np.array([text not in values for text in texts], bool)
        n_others = int(np.count_nonzero(other[numbers[numbers >= 0]])) if len(texts) else 0
        found[name] = {*texts} & values, n_others, next((text for text in texts if text not in values), None)
    return found


def _held_in_all(found):
    return {
        name: (
            set[str]().union(*(one[name][0] for one in found)),
            sum(one[name][1] for one in found),
            next((one[name][2] for one in found if one[name][2] is not None), None),
        )
        for name in found[0]
    }


def merged(found):
    """Join the values of columns, sorted; DataError where they are too many."""
    values = {name: sorted(set[str]().union(*(one[name] for one in found))) for name in found[0]}
    for name, own in values.items():
        if len(own) > LARGEST_VOCABULARY:
            raise DataError(
                f"the column {shortened(name)} has more than {LARGEST_VOCABULARY:,} different values, such "
                f"as {shortened(own[0])}: give it a number of buckets, "
                "ParquetTable(paths, hashed={name: n}), or leave it out by columns=[...]"
            )
    return values


# New rows --------------------------------------------------------------------------------------------------


def given_rows(model, X):
    """Bring new rows of a fitted model into the form of X.

    Files, Parquet or of rows, become a Dask array, and so do Dask frames; a frame becomes a matrix if the
    model was fitted to a table with an encoding. Anything else passes as it is.
    """
    kept = vars(model).get("table_encoding_")
    if row_format(X) is not None:
        from .row_tables import new_rows

        return new_rows(model, X)
    if is_parquet(X):
        return _new_files(X, _encoding_of(model, X))
    if kept is None or not (hasattr(X, "columns") or hasattr(X, "column_names")):
        return X
    encoding = Encoding.of_dict(kept, model.n_features_in_)
    if is_dask(X):
        return _new_frame(X, encoding) if is_frame(X) else X
    return _warned(model, *encode(encoding, arrow_of(X, [c.name for c in encoding.columns]), in_frame))


def _encoding_of(model, X):
    """The encoding of new files: that of the fit, or numbers in the columns that were named there."""
    kept = vars(model).get("table_encoding_")
    if kept is not None:
        return Encoding.of_dict(kept, model.n_features_in_)
    names = vars(model).get("vocabulary_")
    if names is None:
        paths = X.paths if isinstance(X, ParquetTable) else X
        raise DataError(
            f"this {type(model).__name__} was not fitted to files of named columns, by which those of "
            f"{shortened(paths, 100)} would be found: pass them as those of the fit, such as "
            "pandas.read_parquet(...)[names]"
        )
    return Encoding(tuple(Column(str(name), fill=0.0) for name in names), False)


def scored_rows(model, X, y, sample_weight=None):
    """Return X, y and sample_weight of a `score`, read as `fit` reads them; targets and weights are here.

    X stays a Dask array if it names files.
    """
    if row_format(X) is not None:
        from .row_tables import scored_files

        return scored_files(model, X, y, sample_weight)
    if not is_parquet(X):
        y, sample_weight = (gathered(values, "dask") for values in (y, sample_weight))
        check_scored(X, y, type(model).__name__)
        return X, y, None if sample_weight is None else all_weights(sample_weight, len(y))
    table = X if isinstance(X, ParquetTable) else ParquetTable(X)
    rows = given_rows(model, table)
    if y is None:
        raise DataError(
            f"y must be the name of a column of {shortened(table.paths, 200)}: score(X, y='column')"
        )
    engine, names = engine_of(model), [c.name for c in _encoding_of(model, table).columns]
    table = replace(table, columns=names, categories=None, hashed=None)
    found = FoundTable(table, engine, y=y, sample_weight=sample_weight)
    target, weights = (gathered(found.vector(name), engine) for name in (y, sample_weight))
    classes = getattr(model, "classes_", None)
    if classes is not None and classes.dtype.kind in "OU" and any(y in one.folders for one in found.footers):
        target = target.astype(str)  # month=10 alone looks like numbers, with month=09 it was text
    return rows, target, weights


class ScoresFiles(CheckedScore):
    """For models that fit to files of rows: `score` takes them, too."""

    predict: Any

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Score predictions: the accuracy of a classifier, R^2 of a regression, of counts D^2.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`: arrays, or names of files and of columns.
        offset : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            As in `fit`.

        Returns
        -------
        float
        """
        X, y, sample_weight = scored_rows(self, X, y, sample_weight)
        if y is None:
            raise DataError("score needs y, the targets of X")
        return self._score_predicted(y, self.predict(X, offset=offset), sample_weight)


def _warned(model, X, unknown):
    worst = max(unknown, key=unknown.__getitem__, default=None)
    if worst is not None and unknown[worst]:
        warnings.warn(
            f"{unknown[worst]:,} of {X.shape[0]:,} rows have a value of {shortened(worst)} that the "
            f"{type(model).__name__} has not seen: it counts as none of its categories",
            stacklevel=4,
        )
    return X


def _new_files(X, encoding):
    names = [column.name for column in encoding.columns]
    table = X if isinstance(X, ParquetTable) else ParquetTable(X, columns=names)
    footers = with_folders([read_footer(path, names) for path in table.files()])
    for footer in footers:
        lacking = [name for name in names if name not in footer.types]
        if lacking:
            raise DataError(
                f"{shortened(footer.path, 200)} has no column {shortened(lacking[0])}, which the model was "
                "fitted with; add it"
            )
    parts = parts_of(footers, len(names))
    dtype = np.dtype(np.float64)
    return _array(_encoded, parts, (encoding, names, dtype), encoding.width, dtype, _blank(encoding, dtype))


def _new_frame(frame, encoding):
    import dask.array as da
    from dask.delayed import delayed

    dtype = np.dtype(np.float64)
    empty = _blank(encoding, dtype)
    made = delayed(_frame_encoded, pure=True)
    blocks = [
        da.from_delayed(made(part, encoding), (np.nan, encoding.width), dtype=dtype, meta=empty)
        for part in frame.to_delayed()
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _frame_encoded(frame, encoding):
    return encode(encoding, arrow_of(frame, [c.name for c in encoding.columns]), in_frame)[0]
