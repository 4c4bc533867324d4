"""Whether there is a posterior that can be normalised.

Under a flat prior there is none if the likelihood does not fall along some direction of the coefficients
without a prior: when columns depend on each other, or a plane separates the classes (Albert and Anderson,
Biometrika 1984), or a column is zero or of one sign wherever there are counts. That is a linear programme.
And there is none if targets have no noise, whatever the prior.
"""

import warnings

import numpy as np

from ....errors import DataError, PosteriorWarning
from ....scheduler.threads import single_threaded_blas

_NO_VARIANCE = 3.0  # a density that falls like x to minus this, or slower
_LEAST = 1e-6  # of the largest entry: what a linear program leaves of zeros
_EXACT = 1e-12  # residuals, in parts of the targets, that are rounding errors


def check_proper(family, X, y, names, prior, options):
    """Refuse a flat prior that the rows do not make up for, and targets without noise."""
    flat = np.isinf(prior.scale)
    if flat.any():
        _check_flat(family, X, y, names, flat)
    check_scale_identified(family, X, y, prior.own_scale, flat.sum(), **options)


def check_identified(family, X, y, names):
    """Check that the likelihood identifies coefficients that have a flat prior.

    X (n, d) has their columns alone, and `names` are theirs. Raises a DataError that names the columns.
    """
    remedy = (
        "prior is flat: the posterior cannot be normalised. Give a finite prior_scale and intercept_scale"
    )
    X = X.astype(np.float64)
    scales = np.sqrt((X**2).sum(axis=0))
    X = X / np.where(scales > 0, scales, 1)
    if np.linalg.matrix_rank(X) < X.shape[1]:
        raise DataError(f"columns among {', '.join(names)} depend on each other, whose {remedy}")
    if family in ("normal", "student_t"):
        if len(X) <= X.shape[1]:
            rows = f"{len(X)} sample{'s' * (len(X) != 1)}"
            raise DataError(f"{rows} cannot identify {X.shape[1]} coefficients and the noise, whose {remedy}")
        return
    direction = _rising(family, X, y)
    if direction is not None:
        involved = [
            name for name, size in zip(names, np.abs(direction), strict=True) if size > _LEAST * scales.max()
        ]
        what = "separate the classes" if family == "bernoulli" else "have no counts on one side"
        raise DataError(
            f"the data {what} along a combination of {', '.join(involved or names)}, whose {remedy}"
        )


def identifies(family, X, y, names):
    """Whether rows identify all coefficients without a prior; see `check_identified`."""
    try:
        check_identified(family, X, y, names)
    except DataError:
        return False
    return True


def warn_of_tails(which, n_shards, freedom):
    """Warn before sampling that shards with the tails of a Student-t prior take long, and why."""
    left = (freedom + 1) / n_shards - 1
    warnings.warn(
        f"the rows of {which} of {n_shards} do not identify the coefficients (separated classes, or columns "
        f"that depend on each other), so that their tails are those of prior='student_t' to the power "
        f"1/{n_shards}: Student's t with {left:.2g} degrees of freedom, which has no variance. Their chains "
        "take long trajectories, often for minutes, and may not converge: take a smaller n_shards, or "
        "prior='normal'",
        PosteriorWarning,
        stacklevel=5,
    )


def check_shard(shard, n_shards, family, X, y, names, prior, options):
    """Refuse a shard that cannot be normalised: without noise, its prior too weak for its rows.

    All rows may be of one class if the prior is proper to the power of a shard. Returns whether the shard can
    be normalised, but its tails are those of a Student-t prior to a power that has no variance.
    """
    flat = np.isinf(prior.scale)
    decay = (prior.freedom + 1) / n_shards if prior.kind == "student_t" else np.inf
    if family == "bernoulli" and len(np.unique(y)) < 2 and (flat.any() or decay <= 1):
        raise DataError(
            f"all rows of {shard} of {n_shards} are of one class: take prior='normal' with a scale, or fewer "
            "shards, so that each has rows of both classes"
        )
    try:
        check_scale_identified(family, X, y, prior.own_scale, flat.sum(), **options)
        if decay > 1 and flat.any():
            _check_flat(family, X, y, names, flat)
    except DataError as error:
        raise DataError(f"{shard} of {n_shards}: {error}; or take a smaller n_shards") from error
    if decay <= 1:
        _check_heavy(shard, n_shards, family, X, y, names, prior)
    return decay <= _NO_VARIANCE and not identifies(family, X, y, names)


def _check_flat(family, X, y, names, flat):
    """Check that rows identify the coefficients that have a flat prior."""
    check_identified(
        family, X[:, flat], y, [name for name, is_flat in zip(names, flat, strict=True) if is_flat]
    )


def _check_heavy(shard, n_shards, family, X, y, names, prior):
    """Refuse a Student-t prior that is as good as flat to the power of a shard, where rows do not help."""
    try:
        check_identified(family, X, y, names)
    except DataError as error:
        raise DataError(
            f"prior='student_t' with {prior.freedom:g} degrees of freedom is improper to the power "
            f"1/{n_shards}, and the rows of {shard} do not make up for it ({error}): take n_shards below "
            f"{prior.freedom + 1:g}, or prior='normal'"
        ) from error


def check_scale_identified(family, X, y, own_scale, n_flat, *, weights=None, offsets=None, groups=None):
    """Check that the scale of the noise, or the overdispersion, can be neither zero nor infinite.

    `own_scale` is that of its half-Cauchy prior, `n_flat` the number of coefficients with a flat prior. A row
    of weight 2 is two rows; columns that are constant in `groups` say nothing of the noise. Raises a
    DataError if the targets are a linear function of X without noise, or a flat prior meets too few rows.
    """
    if family == "negative_binomial":
        if np.isinf(own_scale) and (y > 0).sum() < n_flat + 2:
            raise DataError(
                f"overdispersion_scale=inf is flat, and {(y > 0).sum()} counts above zero do not identify "
                "the overdispersion: give it a finite scale"
            )
        return
    if family not in ("normal", "student_t"):
        return
    free = len(y) if weights is None else weights.sum()
    if np.isinf(own_scale) and len(y) < n_flat + 2:
        raise DataError(
            f"noise_scale=inf is flat, and {len(y)} samples do not identify sigma: give it a finite scale"
        )
    targets = y if offsets is None else y - offsets
    if groups is not None:
        both = np.column_stack([X.astype(np.float64), targets])
        groups = np.unique(groups, return_inverse=True)[1]  # of a shard, which has some of all numbers
        sizes = np.bincount(groups)
        means = np.stack([np.bincount(groups, column) for column in both.T], axis=1) / sizes[:, None]
        both -= means[groups]
        both[np.abs(both) <= _EXACT * np.abs(means[groups])] = 0  # what is constant in its group
        X, free = both[:, :-1], free - len(sizes)
        size, targets = np.abs(targets).max(), both[:, -1]
    else:
        size = np.abs(targets).max()
    with single_threaded_blas():
        coefs, _, rank, _ = np.linalg.lstsq(X.astype(np.float64), targets, rcond=None)
        rest = np.abs(targets - X @ coefs).max()
    if free >= rank + 1 and rest <= _EXACT * size:
        where = "" if groups is None else " in every group"
        raise DataError(
            f"y is a linear function of X without noise (or constant){where}, so that sigma would be zero: "
            "the posterior cannot be normalised; take LinearRegression, or look whether y is a column of X"
        )


def _rising(family, X, y):
    """A direction along which the likelihood never falls; None if there is none."""
    from scipy.optimize import linprog

    if family == "bernoulli":
        signed, equal = X * y[:, None], None
    else:
        signed, equal = -X[y == 0], X[y > 0]
        equal = equal if len(equal) else None
    if not len(signed):
        return None
    solution = linprog(
        -signed.sum(axis=0),
        A_ub=-signed,
        b_ub=np.zeros(len(signed)),
        A_eq=equal,
        b_eq=None if equal is None else np.zeros(len(equal)),
        bounds=(-1, 1),
        method="highs",
    )
    return solution.x if solution.status == 0 and signed.sum(axis=0) @ solution.x > _LEAST else None
