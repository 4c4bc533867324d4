"""Input of `fit` in one form: checked ratings with ids, and features in their order."""

import dataclasses

import numpy as np
from scipy import sparse

from ...errors import DataError, shortened
from ...scheduler.threads import own_threads
from ..inputs.tables import engine_of
from .entries import (
    Entries,
    check_ids,
    check_matrix,
    check_pairs,
    check_rating_weights,
    check_values,
    find_ids,
    relative_weights,
)
from .features import in_order, split_features, with_constant
from .remote_ratings import RemoteRatings, is_elsewhere, read_here, read_remote, widened


def read_ratings(model, X, y, sample_weight, features=(None, None), *, may_stay=False):
    """Check the arguments of `MatrixFactorization.fit`; return `Entries`, sorted ids, and features.

    Ratings of Dask and of files become `RemoteRatings` if they `may_stay` and the fit runs on a cluster.

    For implicit feedback the values are confidences. Features are in the order of the ids, with a constant,
    or None.
    """
    name, named = type(model).__name__, None
    if is_elsewhere(X):
        return _read_elsewhere(model, X, y, sample_weight, features, may_stay)
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
    """Split a table of users, items and ratings into pairs and ratings; other X and y pass as they are.

    Raises `DataError` if a table has other than three columns, or their names are in another order.
    """
    if y is not None or sparse.issparse(X) or not hasattr(X, "columns"):
        return X, y
    of_arrow = hasattr(X, "column_names")
    names = list(X.column_names if of_arrow else X.columns)
    kinds = [str(name).strip().lower().removesuffix("id").strip("_ ") for name in names]
    out_of_order = {"user", "item"} & set(kinds[2:]) or {"rating"} & set(kinds[:2])
    if len(names) != 3 or out_of_order or "user" in kinds[1:] or "item" in kinds[:1]:
        raise DataError(
            f"{name} takes ratings as a scipy sparse matrix, or as a table of three columns, of users, items "
            "and ratings in this order, such as table[['user', 'item', 'rating']]; got the columns "
            f"{shortened(names)}"
        )
    if of_arrow:
        users, items, values = (np.asarray(X[name].to_pylist()) for name in names)
        return np.column_stack([users.astype(object), items.astype(object)]), values
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


def _read_elsewhere(model, X, y, sample_weight, features, may_stay):
    """Ratings of Dask and of files: counted where they are, or read into this process."""
    engine = engine_of(model)
    if engine == "local" or not may_stay or own_threads() is not None:
        users, items, values, weights = read_here(model, X, y, sample_weight)
        return _of_columns(model, users, items, values, check_rating_weights(weights, len(values)), features)
    pieces, survey = read_remote(model, X, y, sample_weight, engine)
    ids, tables = _ids_with_features((survey.users, survey.items), features)
    return RemoteRatings(pieces, widened(survey, *ids), model, engine), ids, tables


def _read_pairs(model, X, y, sample_weight, features):
    users, items = check_pairs(X)
    values = check_values(y, len(users), type(model).__name__)
    return _of_columns(
        model, users, items, values, check_rating_weights(sample_weight, len(values)), features
    )


def _ids_with_features(known, features):
    """Add the ids of features to those of ratings; return the ids and the tables in their order."""
    ids, tables = [], []
    for what, own, table in zip(("user", "item"), known, features, strict=True):
        every = own
        if table is not None:
            more = split_features(table, what)[0]
            if more.dtype.kind != own.dtype.kind:
                raise DataError(f"the ids of {what}_features are not of the kind of those of the ratings")
            every = np.union1d(own, more)
            table = in_order(table, every, what)
        ids.append(every)
        tables.append(table)
    return tuple(ids), tables


def _of_columns(model, users, items, values, weights, features):
    if weights is None:
        weights = np.ones(1)
    else:
        columns = (users, items, values, weights)
        users, items, values, weights = (column[weights > 0] for column in columns)
        weights = relative_weights(weights)
    if model.implicit:
        if len(weights) > 1 and getattr(model, "loss", "squared") != "squared":
            raise DataError(
                f"loss={model.loss!r} draws every choice as often, and weights above 0 in sample_weight "
                "differ: leave it out, or set loss='squared'"
            )
        values, weights = values * weights, np.ones(1)
    known, numbers = zip(*(np.unique(ids, return_inverse=True) for ids in (users, items)), strict=True)
    ids, tables = _ids_with_features(known, features)
    rows, columns = (
        number if own is every else find_ids(own, every)[number]
        for own, every, number in zip(known, ids, numbers, strict=True)
    )
    user_ids, item_ids = ids
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
