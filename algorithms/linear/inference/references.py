"""Reference levels: of the columns that a category became, the one that is left out beside an intercept."""

import warnings

import numpy as np

from ....errors import DataError, listed, shortened


def levels_of(table, reference):
    """The columns of the levels of each category; the level that `reference` asks for is the first.

    Parameters
    ----------
    table : TableColumns or None
        None if the columns of X were not made of a table.
    reference : dict or None
        Levels by categories.

    Returns
    -------
    dict of str to dict of str to int

    Examples
    --------
    >>> from stradask.algorithms.inputs.table_columns import TableColumns
    >>> from stradask.algorithms.linear.inference.references import levels_of
    >>> table = TableColumns(("age", "city=a", "city=b"), ("age", "city", "city"), frozenset({"city"}))
    >>> levels_of(table, {"city": "b"})
    {'city': {'b': 2, 'a': 1}}
    """
    levels: dict = {}
    for column, (name, source) in enumerate(zip(table.names, table.sources, strict=True) if table else ()):
        if source in table.categories:
            levels.setdefault(source, {})[str(name)[len(str(source)) + 1 :]] = column
    for category, level in (reference or {}).items():
        if category not in levels:
            others = (
                f"; it has {listed([*levels], category)}" if levels else ": encode them by table_pipeline"
            )
            raise DataError(f"reference: X has no category {shortened(category)}{others}")
        if str(level) not in levels[category]:
            raise DataError(
                f"reference: the category {shortened(category)} has no level {shortened(level)}; it has "
                f"{listed([*levels[category]], str(level))}"
            )
        columns = levels[category]
        levels[category] = {str(level): columns[str(level)]} | columns
    return levels


def reference_levels(levels, reference, is_weighed):
    """Choose the level of each category, and its column, that the others are compared with.

    `is_weighed`: whether rows of weight have a column. Others tell of no level that is compared with them.
    """
    chosen = {}
    for category, columns in levels.items():
        weighed = [level for level, column in columns.items() if is_weighed[column]]
        first = next(iter(columns))
        if weighed and category in (reference or {}) and weighed[0] != first:
            raise DataError(
                f"reference: no row that counts has the level {shortened(first)} of the category "
                f"{shortened(category)}; take one of {listed(weighed, first)}"
            )
        level = weighed[0] if weighed else first
        chosen[category] = level, columns[level]
    return chosen


def columns_in_order(references, n_features):
    """Order columns such that reference levels are last: of dependent columns the last ones are left out."""
    columns = [column for _, column in references.values()]
    if not columns:
        return np.arange(n_features)
    return np.concatenate([np.setdiff1d(np.arange(n_features), columns), columns]).astype(np.intp)


def take_left_out(model, references, left_out, names):
    """Set `reference_levels_`; warn of other columns that are left out."""
    model.reference_levels_ = {
        category: level for category, (level, column) in references.items() if column in left_out
    }
    needless = {*left_out.tolist()} - {references[category][1] for category in model.reference_levels_}
    if needless:
        columns = shortened(", ".join(str(names[column]) for column in sorted(needless)))
        verb = "is" if len(needless) == 1 else "are"
        warnings.warn(
            f"{type(model).__name__}: columns depend on each other; {columns} {verb} left out, with "
            "coefficients of 0 and no standard errors",
            stacklevel=4,
        )


def in_pairs(levels):
    """Write reference levels as "city: Rome, plan: basic"."""
    return ", ".join(f"{category}: {level}" for category, level in levels.items())
