"""Groups by the names of columns and categories."""

from numbers import Integral

import numpy as np

from ....errors import DataError, listed, shortened


def groups_by_name(groups, n_features, table, *, by_category=False):
    """The columns of each group, by the group's name; None where `groups` says numbers or labels.

    Parameters
    ----------
    groups
        "category"; a dict of names to columns; or a list of columns and of lists of them, some by name. A
        column is the name of a column of X, or of the table: then it is all columns of X made of that.
        Columns that no group has are one group for each category, and for each other column.
    n_features : int
    table : TableColumns or None
        None if the columns have no names.
    by_category : bool, default=False
        Take None as "category" where there are categories.

    Examples
    --------
    >>> from stradask.algorithms.inputs.table_columns import TableColumns
    >>> from stradask.algorithms.linear.structured.named_groups import groups_by_name
    >>> table = TableColumns(("city=a", "city=b", "age"), ("city", "city", "age"), frozenset({"city"}))
    >>> groups_by_name("category", 3, table)
    {'city': [0, 1], 'age': [2]}
    """
    if groups is None and by_category and table is not None and table.categories:
        groups = "category"
    if isinstance(groups, str) and table is None:
        raise DataError(
            f"groups={shortened(groups)}, but X has no names of columns: fit a frame, or a table by "
            "table_pipeline, from a Parquet file or on the command line; or pass a label for each column"
        )
    if isinstance(groups, str):
        groups = {}
    elif not isinstance(groups, dict):
        if not _has_names(groups, n_features):
            return None
        groups = {_name_of(members): members for members in groups}
    columns_of = {} if table is None else _columns_by_name(table)
    numbered = {str(name): _numbers_of(members, name, columns_of) for name, members in groups.items()}
    members = {column for columns in numbered.values() for column in columns}
    names = range(n_features) if table is None else table.names
    for column, name in enumerate(names):
        if column not in members:
            source = table.sources[column] if table is not None else name
            whole = table is not None and source in table.categories
            group = str(source if whole else name)
            rest = [j for j in columns_of[source] if j not in members] if whole else [column]
            numbered[_unused(group, numbered)] = rest
            members.update(rest)
    return numbered


def _has_names(groups, n_features):
    """Whether a list holds names of columns, rather than numbers, or a label for each column."""
    if not isinstance(groups, (list, tuple)):
        return False
    several = [isinstance(members, (list, tuple, np.ndarray)) for members in groups]
    if not any(several) and len(groups) == n_features:
        return False
    flat = [name for members in groups for name in ([members] if np.ndim(members) == 0 else members)]
    return any(isinstance(name, str) for name in flat)


def _name_of(members):
    return members if isinstance(members, str) else " + ".join(map(str, np.atleast_1d(members)))


def _columns_by_name(table):
    """Columns of X by their names, and by those of the table's columns that they were made of."""
    columns: dict = {}
    for column, (name, source) in enumerate(zip(table.names, table.sources, strict=True)):
        for key in dict.fromkeys((source, name)):
            columns.setdefault(key, []).append(column)
    return columns


def _numbers_of(members, group, columns_of):
    """The columns of a group, which has names or numbers of them."""
    members = [members] if np.ndim(members) == 0 else members
    columns: list = []
    for name in members:
        if isinstance(name, Integral) and not isinstance(name, bool):
            columns.append(int(name))
        elif name in columns_of:
            columns += columns_of[name]
        elif columns_of:
            raise DataError(
                f"groups: the group {shortened(group)} names {shortened(name)}, and X has no such column or "
                f"category; it has {listed(columns_of, name)}"
            )
        else:
            raise DataError(
                f"groups: the group {shortened(group)} names {shortened(name)}, but X has no names of "
                "columns: pass a frame, or numbers of columns"
            )
    if not columns:
        raise DataError(f"groups: the group {shortened(group)} has no columns; leave it out")
    return columns


def _unused(name, names):
    while name in names:
        name += "'"
    return name
