"""Names of the columns of a matrix that was made of a table, and the columns of the table behind them."""

import copy
from dataclasses import dataclass

import numpy as np

_ATTRIBUTE = "_table_columns"  # of frames of pandas an entry of `attrs`


@dataclass(frozen=True)
class TableColumns:
    """The `names` of the columns of X, and for each the column of the table that it was made of.

    `categories`: the columns of the table that became one column of X for each value.
    """

    names: tuple
    sources: tuple
    categories: frozenset

    def __deepcopy__(self, memo):
        return self  # frames of pandas copy their attrs with each operation

    @classmethod
    def of_encoding(cls, encoding):
        """Of an `Encoding`."""
        columns = encoding.columns
        sources = tuple(column.name for column in columns for _ in range(column.width))
        return cls(tuple(encoding.names), sources, frozenset(c.name for c in columns if not c.is_number))

    @classmethod
    def of_names(cls, names):
        """Of columns that stayed what they were."""
        return cls(tuple(names), tuple(names), frozenset())


class _NamedArray(np.ndarray):
    """An array that knows the table it was made of; parts and results of it do not."""

    _table_columns = None

    def __array_finalize__(self, source):
        pass


def with_table_columns(X, columns):
    """Return a matrix or frame with a record of its columns, which shares memory with X."""
    if columns is None:
        return X
    if hasattr(X, "attrs"):
        X.attrs[_ATTRIBUTE] = columns
        return X
    X = X.view(_NamedArray) if isinstance(X, np.ndarray) else copy.copy(X)
    setattr(X, _ATTRIBUTE, columns)
    return X


def table_columns_of(X):
    """The record that `with_table_columns` left, or None; of a frame, for the columns that it has now."""
    if not hasattr(X, "attrs"):
        return getattr(X, _ATTRIBUTE, None)
    columns = X.attrs.get(_ATTRIBUTE)
    if not isinstance(columns, TableColumns):
        return None
    source = dict(zip(columns.names, columns.sources, strict=True))
    names = tuple(X.columns)
    return TableColumns(names, tuple(source.get(name, name) for name in names), columns.categories)
