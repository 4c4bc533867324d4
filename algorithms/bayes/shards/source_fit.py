"""Fits of regressions to shards that lie elsewhere: each is checked, and made a model, where it is read.

With normal noise and no groups there is nothing to combine. The likelihood of a shard's rows is known from
its weight and the cross products of (X, y), so that as many rows as columns, with weights, stand for all of
it; those of all shards together are the whole posterior, for any prior. They are made where the shard is
looked at, by a QR decomposition, which loses no digits as sums of squares would.
"""

from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....errors import DataError
from ....scheduler.threads import single_threaded_blas
from ...inputs.dask_arrays import check_blocks, is_dask
from ..models.groups import check_enough, find_groups, is_counted, join_groups
from ..models.model import regression
from ..models.propriety import warn_of_tails
from .sources import blocks_of, columns_of, find_sources, look_at, with_columns

_ROUNDING = 1e-12


def sources_of_fit(X, y, **beside):
    """Make the sources of a fit's X and y; None where these are arrays.

    Parameters
    ----------
    X : list of specifications, collection of Dask's, or anything else
    y : None for specifications, which have it; a vector or Dask array
    **beside
        What must be None, for a shard has its own.

    Returns
    -------
    list of Source, or None
    """
    sources = find_sources(X)
    if sources is None and not is_dask(X):
        return None
    given = [name for name, value in beside.items() if value is not None]
    if sources is not None and y is not None:
        given.append("y")
    if given:
        raise DataError(
            f"{' and '.join(given)} cannot stand beside shards that are read elsewhere: put y, "
            "sample_weight, offset and groups into npz files of the shards, or Delayed dicts of these names"
        )
    return blocks_of(check_blocks(X, "a Bayesian regression"), y) if sources is None else sources


@dataclass(frozen=True)
class Looked:
    """What was seen of a shard.

    Parameters
    ----------
    n_features : int
    dtype : str
    classes : ndarray or None
    moments : tuple or None
        See `moments`.
    checksum : int
    groups : ndarray or None
        Labels of its groups, sorted.
    n_rows : int
    is_counted : bool
        See `groups.is_counted`.
    reduced : tuple or None
        See `reduced_rows`; where these are enough.
    """

    n_features: int
    dtype: str
    classes: Any
    moments: Any
    checksum: int
    groups: Any
    n_rows: int
    is_counted: bool
    reduced: Any


@dataclass(frozen=True)
class Found:
    """What all shards have in common, and the sources of those that count; `moments` has an entry for each.

    `groups` are the labels of all, sorted, or None; `rows` (X, y, weights) has the likelihood of all, or is
    None.
    """

    n_features: int
    classes: Any
    moments: list
    sources: list
    groups: Any
    rows: Any


def look(door, sources, **places):
    """Look at every shard where it will be worked on.

    Parameters
    ----------
    door : BayesianRegression
        Not fitted; it checks.
    sources : list of Source
    **places
        See `ShardPool`.

    Returns
    -------
    Found

    Raises
    ------
    DataError
        Names the shard that is wrong in itself, or unlike the first; or if no row has any weight.

    Notes
    -----
    A shard whose rows all have the weight 0 is left out, as such rows are: the others look as if it were not
    there.
    """
    sources = with_columns(sources, **places)
    seen = look_at([partial(_look, door, source, len(sources)) for source in sources], **places)
    counting = [source for one, source in zip(seen, sources, strict=True) if one is not None]
    if not counting:
        raise DataError("sample_weight is zero in every row of all shards: nothing is left to fit to")
    if len(counting) < len(sources):
        return look(door, counting, **places)  # whose number their priors go by
    widths = [one.n_features for one in seen]
    n_features = max(widths)
    for one, source in zip(seen, sources, strict=True):
        if one.n_features != n_features:
            widest = sources[widths.index(n_features)]
            raise DataError(
                f"{source} has {one.n_features} columns, {widest} {n_features}: give all the same"
            )
        if one.dtype != seen[0].dtype:
            raise DataError(f"{source} is of {one.dtype}, {sources[0]} of {seen[0].dtype}: give all one type")
        if one.classes is not None and not np.array_equal(one.classes, seen[0].classes):
            raise DataError(
                f"{source} has the classes {one.classes.tolist()}, {sources[0]} {seen[0].classes.tolist()}: "
                "every shard needs rows of both; deal rows out to shards at random"
            )
    found = [source.known(checksum=one.checksum) for one, source in zip(seen, sources, strict=True)]
    groups, rows = _groups_of(seen, sources), None
    if seen[0].reduced is not None:
        rows = tuple(np.concatenate(part) for part in zip(*(one.reduced for one in seen), strict=True))
    return Found(n_features, seen[0].classes, [one.moments for one in seen], found, groups, rows)


def _groups_of(seen, sources):
    """The labels of all groups, sorted; None where no shard has any."""
    has = [one.groups is not None for one in seen]
    if not any(has):
        return None
    if not all(has):
        raise DataError(
            f"{sources[has.index(True)]} has groups, {sources[has.index(False)]} has none: give groups to "
            "all shards, or to none"
        )
    names = join_groups([one.groups for one in seen], sources)
    check_enough(names, sum(one.n_rows for one in seen), any(one.is_counted for one in seen))
    return names


def reduced_rows(X, y, weights=None, offsets=None):
    """Make rows of the same normal likelihood: at most one more than there are columns, each of equal weight.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    weights, offsets : ndarray of shape (n,), optional

    Returns
    -------
    X : ndarray of shape (k, d)
    y, weights : ndarray of shape (k,)
        With the same sum of weights, and the same weighted cross products of (X, y - offsets).

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shards.source_fit import reduced_rows
    >>> X, y, w = reduced_rows(np.array([[1.0], [2.0], [3.0]]), np.array([2.0, 4.0, 7.0]))
    >>> len(y), round(float(w.sum()), 12), round(float(w @ (X[:, 0] * y)), 12)
    (2, 3.0, 31.0)
    """
    weights = np.ones(len(y)) if weights is None else weights
    both = np.column_stack([X, y if offsets is None else y - offsets]).astype(np.float64)
    if len(both) > both.shape[1]:
        with single_threaded_blas():
            triangle: Any = np.linalg.qr(both * np.sqrt(weights)[:, None], mode="r")
        weights = np.full(len(triangle), weights.sum() / len(triangle))
        both = triangle / np.sqrt(weights)[:, None]
    return both[:, :-1], both[:, -1], weights


def far_model(door, source, options, groups=None):
    """Make the model of a shard, where it is worked on; see `regression` for the options.

    `groups` are the labels of all shards' groups, sorted.
    """
    arrays, _ = columns_of(source)
    door = copy(door)  # it keeps what it sees, and others look through it at the same time
    X, y, rest = door._checked(**arrays)
    X, _ = door._with_intercept(X)
    if groups is not None:
        rest["groups"] = find_groups(rest["groups"], groups)
    return regression(door._family, X, y, **rest, **options)


def moments(X, y, weights=None):
    """Compute the weight of all rows, and means and variances of the columns, those of y last."""
    both = np.column_stack([X, y]).astype(np.float64)
    mean = np.average(both, axis=0, weights=weights)
    total = float(len(y) if weights is None else weights.sum())
    return total, mean, np.average((both - mean) ** 2, axis=0, weights=weights)


def spreads(parts):
    """Put moments of parts together: standard deviations of the columns, 1 for constant ones, and of y.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shards.source_fit import moments, spreads
    >>> X, y = np.array([[1.0], [2.0], [6.0]]), np.array([0.0, 2.0, 2.0])
    >>> both = spreads([moments(X[:1], y[:1]), moments(X[1:], y[1:])])
    >>> np.allclose(both[0], X.std(axis=0)), bool(np.isclose(both[1], y.std()))
    (True, True)
    """
    totals, means, variances = (np.array(part) for part in zip(*parts, strict=True))
    mean = np.average(means, axis=0, weights=totals)
    sd = np.sqrt(np.average(variances + (means - mean) ** 2, axis=0, weights=totals))
    sd = np.where(sd > _ROUNDING * np.abs(mean), sd, 1.0)
    return sd[:-1], sd[-1]


def _weighs_nothing(X, sample_weight=None, **rest):
    weights = np.asarray(sample_weight)  # what is no vector of numbers is refused later
    return weights.dtype.kind in "biuf" and weights.shape == np.shape(X)[:1] and not weights.any()


def _look(door, source, n_shards, shard):
    """Look at one shard; None if all its weights are zero."""
    arrays, checksum = columns_of(source)
    if _weighs_nothing(**arrays):
        return None
    door = copy(door)
    try:
        X, y, options = door._checked(**arrays)
        labels = None
        if options["groups"] is not None:
            door._check_grouped()
            labels, options["groups"] = np.unique(options["groups"], return_inverse=True)
        scaled = door._family in ("normal", "student_t")
        own = moments(X, y, options["weights"]) if scaled else None
        prior = door._prior(X.shape[1], partial(spreads, [own]))
        X, names = door._with_intercept(X)
        reduced = None
        if labels is None and door._merges():
            reduced = reduced_rows(X, y, options["weights"], options["offsets"])
        else:
            door.n_shards_ = n_shards
            if door._check_shard("this shard", X, y, names, prior, options):
                warn_of_tails(f"{source}, a shard", n_shards, door.prior_freedom)
    except (DataError, TypeError) as error:
        raise DataError(f"{source}: {error}") from error
    width = X.shape[1] - door.fit_intercept
    classes, counted = getattr(door, "classes_", None), is_counted(door._family, options["weights"])
    return Looked(width, X.dtype.name, classes, own, checksum, labels, len(y), counted, reduced)
