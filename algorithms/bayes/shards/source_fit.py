"""Fits of regressions to shards that workers read: a worker checks a shard and makes its model.

With normal noise and no groups there is nothing to combine. The likelihood of a shard's rows follows from
its weight and the cross products of (X, y), so that as many rows as columns, with weights, replace it. Those
of all shards together give the whole posterior, for any prior. The worker that reads the shard computes them
by a QR decomposition, which loses no digits as sums of squares would.
"""

from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ....scheduler.threads import single_threaded_blas
from ...inputs.dask_arrays import check_blocks
from ...inputs.pieces import is_dask
from ..models.groups import check_enough, is_counted, join_groups
from ..models.propriety import check_shard, warn_of_tails
from .sources import blocks_of, columns_of, find_sources, look_at, with_columns

_LEAST_ROWS = 3  # of a bound site: of fewer, means and deviations are the rows
_BITS, _LEAST = 24.0, 1e-300  # of a deviation, and of the mean of a constant column
_ROUNDING = 1e-12  # a deviation that is rounding of the mean: the column is constant


def sources_of_fit(name, X, y, **row_vectors):
    """Make the sources of X and y of a fit of the estimator `name`; None where these are arrays.

    Only a Dask collection takes a y. No `row_vectors` may be given, for a shard has its own.
    """
    sources = find_sources(X)
    if sources is None and not is_dask(X):
        return None
    given = [name for name, value in row_vectors.items() if value is not None]
    if sources is not None and y is not None:
        given.append("y")
    if given:
        raise DataError(
            f"{name}: {' and '.join(given)} cannot go with shards that are read elsewhere: put y, "
            "sample_weight, offset and groups into npz files of the shards, or Delayed dicts of these names"
        )
    return blocks_of(check_blocks(X, name), y) if sources is None else sources


@dataclass(frozen=True)
class Looked:
    """Facts of a shard that was read; `groups` are its labels, sorted."""

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
    """Facts that all shards have in common, and the sources of those with any weight.

    `moments` has an entry for each. `groups` are the labels of all, sorted, or None; `rows` (X, y, weights)
    has the likelihood of all, or is None.
    """

    n_features: int
    classes: Any
    moments: list
    sources: list
    groups: Any
    rows: Any


def inspect_shards(blank, sources, **places):
    """Read and check every shard on its worker, by the checks of `blank`, a model that is not fitted.

    A shard whose rows all have the weight 0 is left out, as such rows are: the others look as if it were not
    there. Raises a DataError that names the shard that is wrong in itself, or unlike the first; or if no row
    has any weight.
    """
    sources = with_columns(sources, **places)
    seen = look_at([partial(_inspect, blank, source, len(sources)) for source in sources], sources, **places)
    counting = [source for one, source in zip(seen, sources, strict=True) if one is not None]
    if not counting:
        raise DataError("sample_weight is zero in every row of all shards: nothing is left to fit to")
    if len(counting) < len(sources):
        return inspect_shards(blank, counting, **places)  # whose number their priors go by
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
    known = [source.known(checksum=one.checksum) for one, source in zip(seen, sources, strict=True)]
    groups, rows, classes = _groups_of(seen, sources), None, _classes_of(seen, sources)
    if seen[0].reduced is not None:
        rows = tuple(np.concatenate(part) for part in zip(*(one.reduced for one in seen), strict=True))
    return Found(n_features, classes, [one.moments for one in seen], known, groups, rows)


def _classes_of(seen, sources):
    """The two classes of all shards, of which a shard may lack one; None for other targets."""
    if seen[0].classes is None:
        return None
    classes: list = []
    for one, source in zip(seen, sources, strict=True):
        classes += [label for label in one.classes.tolist() if label not in classes]
        if len(classes) > 2:
            raise DataError(
                f"{source} has the classes {one.classes.tolist()}, and all shards up to it {classes}: all "
                "shards together must have two"
            )
    if len(classes) < 2:
        raise DataError(f"all rows of all {len(seen)} shards are of one class, {shortened(classes[0])}")
    return np.sort(np.array(classes, dtype=np.result_type(*(one.classes.dtype for one in seen))))


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

    Returns X, y and weights with the same sum of weights, and the same weighted cross products of (X, y -
    offsets).

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


def moments(X, y, weights=None, offsets=None):
    """Compute the weight of all rows, and means and variances of the columns, of offsets and of y."""
    n = len(y)
    numbers = np.column_stack([X, np.zeros(n) if offsets is None else offsets, y]).astype(np.float64)
    mean = np.average(numbers, axis=0, weights=weights)
    total = float(n if weights is None else weights.sum())
    return total, mean, np.average((numbers - mean) ** 2, axis=0, weights=weights)


def joined(parts, about_zero=False):
    """Put moments of parts together: means, and standard deviations, 1 for constant columns.

    With `about_zero` all means but that of y are zero, and deviations are from there. All are rounded, so
    that they do not depend on how the rows are cut: draws would have other last digits.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shards.source_fit import joined, moments
    >>> X, y = np.array([[1.0], [2.0], [6.0]]), np.array([0.0, 2.0, 2.0])
    >>> means, spreads = joined([moments(X[:1], y[:1]), moments(X[1:], y[1:])])
    >>> np.allclose(means, [3, 0, y.mean()]), np.allclose(spreads, [X.std(), 1, y.std()])
    (True, True)
    """
    totals, means, variances = (np.array(part) for part in zip(*parts, strict=True))
    centre = mean = np.average(means, axis=0, weights=totals)
    if about_zero:
        centre = np.append(np.zeros(len(mean) - 1), mean[-1])
    spreads = np.sqrt(np.average(variances + (means - centre) ** 2, axis=0, weights=totals))
    varies = spreads > _ROUNDING * np.abs(mean)
    units = np.exp2(np.floor(np.log2(np.where(varies, spreads, np.maximum(np.abs(mean), _LEAST)))) - _BITS)
    return np.round(centre / units) * units, np.where(varies, np.round(spreads / units) * units, 1.0)


def _check_summed(source, X):
    """Refuse rows that may not leave their worker where their cross products determine them."""
    n, width = len(X), X.shape[1] + 1
    if source.workers and n <= width:
        raise DataError(
            f"{n} rows for the worker {' or '.join(source.workers)} alone: cross products of their {width} "
            "columns (with y), which normal noise sends, would be these rows; give more rows, or "
            "combine='exact', which sends draws"
        )


def _weighs_nothing(X, sample_weight=None, **rest):
    weights = np.asarray(sample_weight)  # what is no vector of numbers is refused later
    return weights.dtype.kind in "biuf" and weights.shape == np.shape(X)[:1] and not weights.any()


def _inspect(blank, source, n_shards, shard):
    """Read one shard; None if all its weights are zero."""
    arrays, checksum = columns_of(source)
    if _weighs_nothing(**arrays):
        return None
    blank = copy(blank)
    blank._all_classes = ()  # a site may have rows of one class
    try:
        X, y, options = blank._checked(**arrays)
        labels = None
        if options["groups"] is not None:
            blank._check_grouped()
            labels, options["groups"] = np.unique(options["groups"], return_inverse=True)
        if source.workers and len(X) < _LEAST_ROWS:
            raise DataError(
                f"{len(X)} rows for the worker {' or '.join(source.workers)} alone: means and deviations of "
                f"their columns, by which these are standardised, would be these rows; give {_LEAST_ROWS} or "
                "more"
            )
        shard_moments = moments(X, y, options["weights"], options["offsets"])
        scaling, size = blank._scaling([shard_moments])
        reduced, n_features, prior = None, X.shape[1], blank._prior(scaling, size)
        if labels is None and blank._merges():
            X = np.hstack([X, np.ones((len(X), int(blank.fit_intercept)), X.dtype)])
            _check_summed(source, X)
            reduced = reduced_rows(X, y, options["weights"], options["offsets"])
        else:
            design, names = blank._with_intercept(X, scaling, options)
            checked = "this shard", n_shards, blank._family, design, y, names, prior, options
            if check_shard(*checked):
                warn_of_tails(f"{source}, a shard", n_shards, blank.prior_freedom)
    except (DataError, TypeError) as error:
        raise DataError(f"{source}: {error}") from error
    classes, counted = getattr(blank, "classes_", None), is_counted(blank._family, options["weights"])
    return Looked(
        n_features, X.dtype.name, classes, shard_moments, checksum, labels, len(y), counted, reduced
    )
