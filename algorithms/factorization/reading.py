"""Input of `fit` in one form: checked ratings with ids, and features in their order."""

import dataclasses

import numpy as np
from scipy import sparse

from ...errors import DataError, shortened
from .entries import Entries, check_ids, check_matrix, check_rating_weights, check_table, find_ids
from .features import in_order, split_features, with_constant


def read_ratings(model, X, y, sample_weight, features=(None, None)):
    """Check the arguments of `MatrixFactorization.fit`; return `Entries`, sorted ids, and features.

    For implicit feedback the values are confidences. Features are in the order of the ids, with a constant,
    or None.
    """
    name, named = type(model).__name__, None
    X, y = split_table(X, y, name)
    if is_named(X):
        X, named = X.matrix, named_ids(X)
    if not sparse.issparse(X) and y is not None:
        return _read_pairs(model, X, y, sample_weight, features)
    if y is not None or sample_weight is not None:
        raise DataError(
            "y and sample_weight go with pairs of ids; a sparse matrix holds the ratings itself, and "
            "with weights: fit(numpy.column_stack([R.row, R.col]), R.data, sample_weight) for a COO R"
        )
    X = check_matrix(X, name)
    ids = named or tuple(np.arange(n) for n in X.shape)
    tables = [
        None if table is None else with_constant(table, what, n_rows=n)
        for table, what, n in zip(features, ("user", "item"), X.shape, strict=True)
    ]
    return matrix_entries(model, X, *ids), ids, tables


def split_table(X, y, name):
    """Split a DataFrame of users, items and ratings into pairs and ratings; other X and y pass as they are.

    Raises `DataError` if a table has other than three columns, or their names are in another order.
    """
    if y is not None or sparse.issparse(X) or not hasattr(X, "columns"):
        return X, y
    names = list(X.columns)
    kinds = [str(name).strip().lower().removesuffix("id").strip("_ ") for name in names]
    out_of_order = {"user", "item"} & set(kinds[2:]) or {"rating"} & set(kinds[:2])
    if len(names) != 3 or out_of_order or "user" in kinds[1:] or "item" in kinds[:1]:
        raise DataError(
            f"{name} takes ratings as a scipy sparse matrix, or as a table of three columns, of users, items "
            "and ratings in this order, such as table[['user', 'item', 'rating']]; got the columns "
            f"{shortened(names)}"
        )
    return X[names[:2]], X[names[2]]


def is_named(X):
    """Whether X is a matrix with ids of its rows and columns, as `stradask.datasets.Ratings` is."""
    return isinstance(X, tuple) and getattr(X, "_fields", ())[:3] == ("matrix", "users", "items")


def named_ids(ratings):
    """Check and return the ids of users and items: ascending, one for each row and column."""
    ids = check_ids(ratings.users, "user"), check_ids(ratings.items, "item")
    for what, given, n in zip(("users", "items"), ids, ratings.matrix.shape, strict=True):
        if len(given) != n or (given[1:] <= given[:-1]).any():
            raise DataError(f"{what} must be {n} ascending ids, one for each of the matrix, all different")
    return ids


def _read_pairs(model, X, y, sample_weight, features):
    user_ids, item_ids, rows, columns, values = check_table(X, y, type(model).__name__)
    weights = check_rating_weights(sample_weight, len(values))
    weights = np.ones(1) if weights is None else weights
    if model.implicit:
        values, weights = values * weights, np.ones(1)
    ids, numbers, tables = [], [], []
    for what, known, number, table in zip(
        ("user", "item"), (user_ids, item_ids), (rows, columns), features, strict=True
    ):
        every = known
        if table is not None:
            more = split_features(table, what)[0]
            if more.dtype.kind != known.dtype.kind:
                raise DataError(f"the ids of {what}_features are not of the kind of those of the ratings")
            every = np.union1d(known, more)
            number = find_ids(known, every)[number]
            table = in_order(table, every, what)
        ids.append(every)
        numbers.append(number)
        tables.append(table)
    (rows, columns), (user_ids, item_ids) = numbers, ids
    dtype, shape = np.dtype(model.dtype), (len(user_ids), len(item_ids))
    entries = Entries.make(
        rows, columns, values.astype(dtype), weights.astype(dtype), shape,
        lambda i: _place(user_ids, item_ids, rows[i], columns[i]),
    )  # fmt: skip
    return _scaled(model, entries), (user_ids, item_ids), tables


def matrix_entries(model, X, user_ids, item_ids):
    """Bring a checked matrix into the form that solvers take."""

    def place(row, column):
        return _place(user_ids, item_ids, row, column)

    return _scaled(model, Entries.of_matrix(X, np.dtype(model.dtype), place))


def _place(user_ids, item_ids, row, column):
    return f"for user {shortened(user_ids[row].item())} and item {shortened(item_ids[column].item())}"


def _scaled(model, entries):
    """Multiply counts into confidences; refuse ratings that factors cannot reach."""
    if model.implicit:
        return dataclasses.replace(entries, values=entries.values * entries.values.dtype.type(model.alpha))
    if model.non_negative and not model.bias and len(entries) and entries.values.min() < 0:
        raise DataError(
            f"the rating {entries.values.min():g} is below zero, which non_negative=True without bias "
            "cannot reach; set bias=True or non_negative=False"
        )
    return entries
