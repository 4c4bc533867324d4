"""Priors of named parameters, for ``sample(priors=)``.

Arguments are numbers, or arrays of the parameter's shape. Locations, scales and rates may also be the name of
another parameter, of one value or of the same shape: ``{"effect": normal("mean", "spread"), ...}`` is a
hierarchical prior. On a narrower support than its own a density is cut off, and not normalised anew. It is
refused if the part that is left depends on another parameter.
"""

import math

import numpy as np
from scipy import special

from ..._typing import ArrayLike
from ...errors import DataError, shortened
from ...kernels.bayes.densities import parameter_priors as codes
from .models.prior_density import PriorDensity, inverse_root
from .posterior.tables import as_floats

__all__ = [
    "beta", "cauchy", "dirichlet", "exponential", "gamma", "half_cauchy", "half_normal", "inverse_gamma",
    "laplace", "lkj", "lognormal", "multivariate_normal", "normal", "student_t", "uniform",
]  # fmt: skip

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_AT_ZERO = (("", np.zeros(())),)  # a location that is no argument
_FIXED = ("gamma", "inverse_gamma", "beta", "dirichlet", "lkj")  # whose arguments are numbers


def normal(mean: ArrayLike | str = 0.0, sd: ArrayLike | str = 1.0) -> PriorDensity:
    """Make a normal prior.

    Parameters
    ----------
    mean, sd : float, array-like of the parameter's shape, or name of a parameter

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If sd is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.normal(0, 2.5), sd.priors.normal("mean", "spread")
    (normal(mean=0.0, sd=2.5), normal(mean='mean', sd='spread'))
    """
    return _prior("normal", codes.NORMAL, constant=-_HALF_LOG_2PI, mean=mean, sd=sd)


def student_t(
    freedom: float = 4.0, location: ArrayLike | str = 0.0, scale: ArrayLike | str = 1.0
) -> PriorDensity:
    """Make a prior of Student's t.

    Parameters
    ----------
    freedom : float, default=4
        Degrees of freedom.
    location, scale : float, array-like of the parameter's shape, or name of a parameter

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If freedom or scale are not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.student_t(4, 0, 2.5)
    student_t(location=0.0, scale=2.5, freedom=4.0)
    """
    return _student("student_t", freedom, location, scale)


def cauchy(location: ArrayLike | str = 0.0, scale: ArrayLike | str = 1.0) -> PriorDensity:
    """Make a Cauchy prior: Student's t with one degree of freedom.

    Parameters
    ----------
    location, scale : float, array-like of the parameter's shape, or name of a parameter

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If scale is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.cauchy(0, 5).name
    'cauchy'
    """
    return _student("cauchy", 1.0, location, scale)


def _student(name, freedom, location, scale):
    _check_single(name, "freedom", freedom)

    def constant(location, scale, freedom):
        half = 0.5 * float(freedom)
        return special.gammaln(half + 0.5) - special.gammaln(half) - 0.5 * math.log(2 * half * math.pi)

    return _prior(name, codes.STUDENT_T, "any", constant, location=location, scale=scale, freedom=freedom)


def laplace(location: ArrayLike | str = 0.0, scale: ArrayLike | str = 1.0) -> PriorDensity:
    """Make a Laplace prior, ``exp(-|x - location| / scale) / (2 scale)``.

    Parameters
    ----------
    location, scale : float, array-like of the parameter's shape, or name of a parameter

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If scale is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.laplace(0, 1).name
    'laplace'
    """
    return _prior("laplace", codes.LAPLACE, constant=-math.log(2), location=location, scale=scale)


def lognormal(mean: ArrayLike | str = 0.0, sd: ArrayLike | str = 1.0) -> PriorDensity:
    """Make a log-normal prior of a positive parameter.

    Parameters
    ----------
    mean, sd : float, array-like of the parameter's shape, or name of a parameter
        Of the logarithm.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If sd is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.lognormal(0, 0.5).support
    'positive'
    """
    return _prior("lognormal", codes.LOGNORMAL, "positive", -_HALF_LOG_2PI, mean=mean, sd=sd)


def half_normal(scale: ArrayLike | str = 1.0) -> PriorDensity:
    """Make a half-normal prior of a parameter that is not negative.

    Parameters
    ----------
    scale : float, array-like of the parameter's shape, or name of a parameter
        Standard deviation of the whole normal density.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If scale is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.half_normal(5).support
    'not negative'
    """
    constant = 0.5 * math.log(2 / math.pi)
    return _prior("half_normal", codes.NORMAL, "not negative", constant, first=_AT_ZERO, scale=scale)


def half_cauchy(scale: ArrayLike | str = 1.0) -> PriorDensity:
    """Make a half-Cauchy prior of a positive parameter.

    Parameters
    ----------
    scale : float, array-like of the parameter's shape, or name of a parameter
        Its median.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If scale is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.half_cauchy(2.5)
    half_cauchy(scale=2.5)
    """
    return _prior("half_cauchy", codes.HALF_CAUCHY, "positive", math.log(2 / math.pi), scale=scale)


def exponential(rate: ArrayLike | str = 1.0) -> PriorDensity:
    """Make an exponential prior, ``rate exp(-rate x)``, of a parameter that is not negative.

    Parameters
    ----------
    rate : float, array-like of the parameter's shape, or name of a parameter
        One over the mean.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If rate is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.exponential(0.1).name
    'exponential'
    """
    return _prior("exponential", codes.EXPONENTIAL, "not negative", first=_AT_ZERO, rate=rate)


def gamma(shape: ArrayLike, rate: ArrayLike) -> PriorDensity:
    """Make a gamma prior of a positive parameter, of mean ``shape / rate``.

    Parameters
    ----------
    shape, rate : float or array-like of the parameter's shape

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If shape or rate are not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.gamma(2, 0.5)
    gamma(shape=2.0, rate=0.5)
    """
    return _prior("gamma", codes.GAMMA, "positive", _of_gamma, shape=shape, rate=rate)


def inverse_gamma(shape: ArrayLike, scale: ArrayLike) -> PriorDensity:
    """Make an inverse gamma prior of a positive parameter, of mode ``scale / (shape + 1)``.

    Parameters
    ----------
    shape, scale : float or array-like of the parameter's shape

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If shape or scale are not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.inverse_gamma(3, 2).name
    'inverse_gamma'
    """
    return _prior("inverse_gamma", codes.INVERSE_GAMMA, "positive", _of_gamma, shape=shape, scale=scale)


def beta(a: ArrayLike, b: ArrayLike) -> PriorDensity:
    """Make a beta prior of a parameter between 0 and 1, of mean ``a / (a + b)``.

    Parameters
    ----------
    a, b : float or array-like of the parameter's shape

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If a or b are not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.beta(5, 5)
    beta(a=5.0, b=5.0)
    """
    return _prior("beta", codes.BETA, "unit", lambda *counts: -special.betaln(*counts), a=a, b=b)


def uniform(low: float, high: float) -> PriorDensity:
    """Make a uniform prior of an interval.

    A parameter without a prior is uniform on its support; this one is normalised as well.

    Parameters
    ----------
    low, high : float

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If low is not below high, or one of them is not finite.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.uniform(-1, 1)
    uniform(low=-1.0, high=1.0)
    """
    arguments = (_number("uniform", "low", low, names=False), _number("uniform", "high", high, names=False))
    a, b = (value for _, value in arguments)
    if a.ndim or b.ndim or not a < b:
        raise DataError(
            f"priors.uniform: low must be below high, both one number, got {shortened(low)} and "
            f"{shortened(high)}"
        )
    return PriorDensity("uniform", codes.FLAT, arguments, "interval", -math.log(float(b - a)))


def dirichlet(concentration: ArrayLike) -> PriorDensity:
    """Make a Dirichlet prior of a simplex.

    Parameters
    ----------
    concentration : float or array-like of shape (k,), or of the parameter's shape
        1 is uniform; larger numbers draw towards equal parts. Of the parameter's shape, such as (K, K) for
        the rows of a transition matrix, each simplex has its own.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If a concentration is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.dirichlet([2, 2, 4]).support
    'simplex'
    """
    return _prior("dirichlet", codes.POWERS, "simplex", concentration=concentration)


def lkj(concentration: float = 1.0) -> PriorDensity:
    r"""Make the prior of Lewandowski, Kurowicka and Joe of a correlation matrix: :math:`\det(R)^{\eta - 1}`.

    Parameters
    ----------
    concentration : float, default=1
        :math:`\eta`: 1 is uniform over correlation matrices; larger numbers draw towards no correlation.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If concentration is not above zero.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.lkj(2)
    lkj(concentration=2.0)
    """
    _check_single("lkj", "concentration", concentration)
    return _prior("lkj", codes.POWERS, "cholesky", concentration=concentration)


def multivariate_normal(mean: ArrayLike, covariance: ArrayLike) -> PriorDensity:
    """Make a normal prior with correlations, of a vector (or of the last axis of an array).

    Parameters
    ----------
    mean : array-like of shape (k,)
    covariance : array-like of shape (k, k)
        ``s[:, None] * R * s`` for standard deviations s and a correlation matrix R.

    Returns
    -------
    PriorDensity

    Raises
    ------
    DataError
        If covariance is not symmetric and positive definite, or shapes do not match.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.priors.multivariate_normal([0, 0], [[1, 0.5], [0.5, 2]]).support
    'vector'
    """
    name = "multivariate_normal"
    (_, m), (_, S) = arguments = tuple(
        _number(name, what, value, names=False)
        for what, value in (("mean", mean), ("covariance", covariance))
    )
    if m.ndim != 1 or S.shape != (len(m), len(m)):
        raise DataError(
            f"priors.{name}: mean must have the shape (k,) and covariance (k, k), got {m.shape} and {S.shape}"
        )
    try:
        if not np.allclose(S, S.T, rtol=1e-9, atol=0):
            raise np.linalg.LinAlgError
        inverse = inverse_root(S)
    except np.linalg.LinAlgError as error:
        raise DataError(
            f"priors.{name}: covariance must be symmetric and positive definite, got {shortened(covariance)}"
        ) from error
    const = float(np.log(np.diag(inverse)).sum()) - 0.5 * len(m) * math.log(2 * math.pi)
    return PriorDensity(name, codes.MULTIVARIATE, arguments, "vector", const)


# Arguments ------------------------------------------------------------------------------------------------


def _number(name, what, value, names=True):
    """Return (what, value): a name, or an array of finite numbers."""
    if names and isinstance(value, str):
        return what, value
    words = f"priors.{name}: {what} must be numbers{' or the name of a parameter' * names}"
    array = as_floats(words, value).copy()
    if isinstance(value, bool) or not array.size or not np.isfinite(array).all():
        raise DataError(f"priors.{name}: {what} must be finite numbers, got {shortened(value)}")
    return what, array


def _argument(name, what, value):
    """Check an argument: all but locations are above zero, and some may not name a parameter."""
    pair = _number(name, what, value, names=name not in _FIXED and what != "freedom")
    if what not in ("mean", "location") and not isinstance(pair[1], str) and not (pair[1] > 0).all():
        raise DataError(f"priors.{name}: {what} must be above zero, got {shortened(value)}")
    return pair


def _check_single(name, what, value):
    _, array = _argument(name, what, value)
    if array.ndim:
        raise DataError(f"priors.{name}: {what} must be one number, got the shape {array.shape}")


def _of_gamma(shape, rate):
    return shape * np.log(rate) - special.gammaln(shape)


def _prior(name, code, support="any", constant=0.0, first=(), **arguments):
    """Make a density of checked arguments, behind `first`; `constant` may be a function of them."""
    pairs = tuple(_argument(name, what, value) for what, value in arguments.items())
    if callable(constant):
        constant = constant(*(value for _, value in pairs))
    return PriorDensity(name, code, (*first, *pairs), support, constant)
