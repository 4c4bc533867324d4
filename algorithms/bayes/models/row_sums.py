"""Whether a log likelihood is a sum over rows, up to a constant: only then do shards multiply to all.

A prior inside the likelihood, a mean over rows, or terms between neighbouring rows are no such sums. With
:math:`c(q) = \\ell(q, x) - \\sum_m \\ell(q, x_m)` the product of the shards is the posterior times
:math:`e^{-c(q)}`, so that c has to be constant. It is compared at a few points before anything is sampled.
"""

import warnings

import numpy as np

from ....errors import DataError
from ....kernels.bayes.streams import uniforms
from ..chains.chain import STARTING, stream
from .failures import is_of_the_domain

_DISTANCES = np.array([0.0, 1.0, 1.0, 4.0, 4.0, 0.1, 1e-2, 1e-3])  # whole widths, about the start
_TOLERANCE = 1e-7  # of the log likelihood, in parts of its size
_NOISES = 20  # standard deviations of the rounding errors, where these are larger
_STEP = 1e-4  # between points whose differences show rounding errors: larger than those of single precision
_BINOMIAL = np.sqrt(70.0)  # standard deviation of a fourth difference of white noise


_FAULT = "log_likelihood is no sum over rows: for all rows it differs from its sum over {n} parts of them"


class NotASum(DataError):
    """A log likelihood is no sum over rows, or a density not that of its parts."""


def check_sum(likelihood, whole, parts, start, remedy, fault=_FAULT):
    """Refuse a ``likelihood(q, data)`` that is no sum over rows, up to a constant.

    ``part()`` of the `parts` returns some of the rows of `whole`; each row is in one of them. `fault` begins
    the message, where {n} counts the parts, and `remedy` ends it. Rounding errors are allowed for by their
    size, which fourth differences over short steps show: of a smooth function these are zero. Raises NotASum
    with the change of the difference and its place, or the reason why parts cannot be evaluated; a DataError
    if the likelihood is finite at none of the points.
    """
    points, fault = _points(start), fault.format(n=len(parts))
    apart, scale = np.full(len(points), np.nan), 0.0
    for i, q in enumerate(points):
        total, pieces = _values(likelihood, q, whole, parts, must=np.isnan(apart).all())
        if np.isnan(total) or np.isnan(pieces) or not (np.isfinite(total) or np.isfinite(pieces)):
            continue
        if np.isfinite(total) != np.isfinite(pieces):
            raise NotASum(f"{fault} at q = {_shown(q)}: {total:.6g} and {pieces:.6g}; {remedy}")
        apart[i], scale = total - pieces, max(scale, abs(total), abs(pieces))
    if np.isnan(apart).all():
        total, pieces = _values(likelihood, points[0], whole, parts)
        raise DataError(
            f"the log likelihood is not finite at q = {_shown(points[0])} and near by, where chains begin: "
            f"it is {total} for all rows, and {pieces} is the sum over parts of them; give a start where it "
            "is finite, or mend it"
        )
    first = int(np.isfinite(apart).argmax())
    changes = np.abs(np.nan_to_num(apart - apart[first]))
    worst = changes.argmax()
    limit = _TOLERANCE * (1 + scale)
    if changes[worst] > limit:
        noise = max(_noise(likelihood, q, whole, parts) for q in (points[first], points[worst]))
        if changes[worst] > limit + _NOISES * noise:
            raise NotASum(
                f"{fault} by {apart[first]:.6g} at q = {_shown(points[first])}, and by {apart[worst]:.6g} at "
                f"q = {_shown(points[worst])}; {remedy}"
            )


def gaps(likelihood, points, whole, parts):
    """Compute the likelihood of all rows less the sum over parts of them, (K,), at points (K, d).

    NaN where both are minus infinity or cannot be evaluated. See `check_sum`.
    """
    with np.errstate(invalid="ignore"):
        return np.array([np.subtract(*_values(likelihood, q, whole, parts)) for q in points])


def depends(likelihood, data, start):
    """Whether the likelihood of data, such as of no rows, changes with the parameters about the start.

    Not where it cannot be evaluated or is not finite.
    """
    found = []
    for q in _points(start):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as NumPy's of a mean of nothing
                found.append(likelihood(q, data))
        except Exception:  # it may need rows
            return False
    values = np.array(found)[np.isfinite(found)]
    return bool(len(values) > 1 and np.ptp(values) > _TOLERANCE * (1 + np.abs(values).max()))


def _points(start):
    d = len(start)
    spread = uniforms(stream(0, 0, 0, STARTING), len(_DISTANCES) * d).reshape(-1, d) - 0.5
    return start + _DISTANCES[:, None] * spread


def _values(likelihood, q, whole, parts, must=False):
    """The value for all rows, and the sum over parts; NaN where the function fails, unless it must not."""
    try:
        with np.errstate(all="ignore"):
            total = likelihood(q, whole)
    except Exception as error:  # a density may end where no chain comes
        if must and not is_of_the_domain(error):
            raise
        return np.nan, np.nan
    try:
        with np.errstate(all="ignore"):
            return total, sum(likelihood(q, part()) for part in parts)
    except DataError:
        raise
    except Exception as error:
        if not must:
            return np.nan, np.nan
        raise NotASum(
            f"the likelihood of a part of the rows cannot be evaluated: {error}; every size in the model "
            "must follow from the data that are cut"
        ) from error


def _noise(likelihood, q, whole, parts):
    """Size of the rounding errors of the gap at q."""
    steps = _STEP * np.arange(7)[:, None] * np.maximum(1.0, np.abs(q))
    values = gaps(likelihood, q + steps, whole, parts)
    fourth = np.diff(values, 4)
    return float(np.sqrt(np.mean(fourth**2)) / _BINOMIAL) if np.isfinite(fourth).all() else 0.0


def _shown(q):
    return np.array2string(q, precision=4, threshold=6, max_line_width=1000)
