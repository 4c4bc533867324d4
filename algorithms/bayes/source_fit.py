"""Fits of regressions to shards that lie elsewhere: each is checked, and made a model, where it is read."""

from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import DataError
from ..linear.dask_input import check_blocks, is_dask
from .models import regression
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
            f"{' and '.join(given)} cannot stand beside shards that are read elsewhere: put sample_weight, "
            "offset and y into the shards' own files or blocks; groups need X in memory"
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
    """

    n_features: int
    dtype: str
    classes: Any
    moments: Any
    checksum: int


@dataclass(frozen=True)
class Found:
    """What all shards have in common, and their sources; `moments` has one entry a shard."""

    n_features: int
    classes: Any
    moments: list
    sources: list


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
        Names the shard that is wrong in itself, or unlike the first.
    """
    sources = with_columns(sources, **places)
    seen = look_at([partial(_look, door, source, len(sources)) for source in sources], **places)
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
    return Found(n_features, seen[0].classes, [one.moments for one in seen], found)


def far_model(door, source, options):
    """Make the model of a shard, where it is worked on; see `regression` for the options."""
    arrays, _ = columns_of(source)
    door = copy(door)  # it keeps what it sees, and others look through it at the same time
    X, y, rest = door._checked(**arrays)
    X, _ = door._with_intercept(X)
    return regression(door._family, X, y, weights=rest["weights"], offsets=rest["offsets"], **options)


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
    >>> from stradask.algorithms.bayes.source_fit import moments, spreads
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


def _look(door, source, n_shards, shard):
    arrays, checksum = columns_of(source)
    door = copy(door)
    try:
        X, y, options = door._checked(**arrays)
        scaled = door._family in ("normal", "student_t")
        own = moments(X, y, options["weights"]) if scaled else None
        prior = door._prior(X.shape[1], partial(spreads, [own]))
        X, names = door._with_intercept(X)
        door.n_shards_ = n_shards
        door._check_shard("this shard", X, y, names, prior)
        door._check_proper(X, y, names, prior, options)
    except (DataError, TypeError) as error:
        raise DataError(f"{source}: {error}") from error
    width = X.shape[1] - door.fit_intercept
    return Looked(width, X.dtype.name, getattr(door, "classes_", None), own, checksum)
