"""Named parameters of a density of your own: their supports and shapes, for ``sample(parameters=)``.

Chains move in unconstrained numbers, to which each kind of parameter has a transform; see
``kernels.bayes.transforms``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from ...errors import DataError, shortened
from ...kernels.bayes import transforms
from .posterior.tables import as_floats, names_of

_NEAR = 1e-6  # of sums and lengths that are 1, in a start
_NONE: tuple[int, ...] = ()


@dataclass(frozen=True)
class NamedParameter:
    """A parameter of a density: its support and shape.

    Made by `real`, `positive`, `unit`, `interval`, `simplex`, `ordered` and `cholesky`. `kind` is that of
    ``kernels.bayes.transforms``. A parameter has `shape` copies of its entry: a number, a vector of `size`
    entries, or a triangle (size, size). `low` and `high` bound its numbers.
    """

    kind: int
    copies: tuple[int, ...] = ()
    size: int = 1
    low: float = -math.inf
    high: float = math.inf

    @property
    def entry(self) -> tuple[int, ...]:
        """Shape of one entry: (), (size,) or (size, size)."""
        if self.kind in (transforms.SIMPLEX, transforms.ORDERED):
            return (self.size,)
        return (self.size, self.size) if self.kind == transforms.TRIANGLE else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return (*self.copies, *self.entry)

    @property
    def n_copies(self) -> int:
        """How many numbers, vectors or triangles there are."""
        return math.prod(self.copies)

    @property
    def n_values(self) -> int:
        """How many values there are."""
        return math.prod(self.shape)

    @property
    def n_free(self) -> int:
        """How many unconstrained numbers there are."""
        k = self.size
        each = {transforms.SIMPLEX: k - 1, transforms.TRIANGLE: k * (k - 1) // 2}
        return self.n_copies * each.get(self.kind, k)

    @property
    def is_positive(self) -> bool:
        """Whether the support are all positive numbers, or rising ones."""
        return self.kind in (transforms.SHIFTED, transforms.ORDERED) and self.low == 0

    @property
    def reals(self) -> tuple[float, ...]:
        """Constants of the transform."""
        if self.kind == transforms.SHIFTED:
            return (self.low, 1.0) if math.isfinite(self.low) else (self.high, -1.0)
        if self.kind == transforms.ORDERED:
            return (self.low,)
        return (self.low, self.high) if self.kind == transforms.BETWEEN else ()

    def free_names(self, name: str) -> list[str]:
        """Names of the unconstrained numbers."""
        values = names_of(name, self.shape)
        if self.kind == transforms.FREE:
            return values
        distance = "log" if self.low == 0 else "log distance of"
        if self.kind == transforms.SHIFTED:
            return [f"{distance} {one}" for one in values]
        if self.kind == transforms.BETWEEN:
            return [f"logit {one}" for one in values]
        if self.kind == transforms.ORDERED:
            first = f"{distance} " if math.isfinite(self.low) else ""
            return [f"log gap below {one}" if i % self.size else first + one for i, one in enumerate(values)]
        if self.kind == transforms.SIMPLEX:
            return [f"log ratio of {one}" for i, one in enumerate(values) if i % self.size]
        k = self.size
        below = [one for i, one in enumerate(values) if (i // k) % k > i % k]
        return [f"atanh partial {one}" for one in below]

    def free(self, name: str, value: object) -> np.ndarray:
        """Turn values into unconstrained numbers; raises a DataError if they are outside of the support."""
        x = as_floats(f"start[{name!r}] must be numbers", value)
        if x.shape != self.shape:
            raise DataError(
                f"start[{name!r}] has the shape {x.shape}, but {name} is {self.words}, of the shape "
                f"{self.shape}"
            )
        if not (np.isfinite(x).all() and self._holds(x)):
            raise DataError(f"start[{name!r}] = {shortened(value)} is outside of the support: it must be "
                            f"{self.words}")  # fmt: skip
        return _INVERSES[self.kind](self, x.reshape((self.n_copies, *self.entry))).ravel()

    def _holds(self, x):
        if self.kind == transforms.SIMPLEX:
            return (x > 0).all() and (np.abs(x.sum(axis=-1) - 1) <= _NEAR).all()
        if self.kind == transforms.ORDERED:
            return (np.diff(x, axis=-1) > 0).all() and (x > self.low).all()
        if self.kind == transforms.TRIANGLE:
            lengths = (x**2).sum(axis=-1)
            diagonal = np.diagonal(x, axis1=-2, axis2=-1)
            return (
                (np.abs(lengths - 1) <= _NEAR).all() and (diagonal > 0).all() and (np.triu(x, 1) == 0).all()
            )
        return (x > self.low).all() and (x < self.high).all()

    @property
    def words(self) -> str:
        """Describe the support."""
        k = self.size
        if self.kind == transforms.SIMPLEX:
            return f"{k} positive numbers of sum 1"
        if self.kind == transforms.ORDERED:
            return f"{k} rising numbers" + (f" above {self.low:g}" if math.isfinite(self.low) else "")
        if self.kind == transforms.TRIANGLE:
            return f"a lower triangle ({k}, {k}) with rows of length 1 and a positive diagonal"
        if self.kind == transforms.FREE:
            return "any real numbers"
        return f"between {self.low:g} and {self.high:g}"


def _free_shifted(parameter, x):
    base, sign = parameter.reals
    return np.log(sign * (x - base))


def _free_between(parameter, x):
    return np.log(x - parameter.low) - np.log(parameter.high - x)


def _free_simplex(parameter, x):
    logs = np.log(x)
    j = np.arange(1, parameter.size)
    return (np.cumsum(logs, axis=1)[:, :-1] - j * logs[:, 1:]) / np.sqrt(j * (j + 1.0))


def _free_ordered(parameter, x):
    first = np.log(x[:, :1] - parameter.low) if math.isfinite(parameter.low) else x[:, :1]
    return np.concatenate([first, np.log(np.diff(x, axis=1))], axis=1)


def _free_triangle(parameter, x):
    k = parameter.size
    squares = np.concatenate([np.zeros((len(x), k, 1)), np.cumsum(x**2, axis=2)[:, :, :-1]], axis=2)
    rows, columns = np.tril_indices(k, -1)
    return np.arctanh(x[:, rows, columns] / np.sqrt(1 - squares[:, rows, columns]))


_INVERSES = {
    transforms.FREE: lambda parameter, x: x,
    transforms.SHIFTED: _free_shifted,
    transforms.BETWEEN: _free_between,
    transforms.SIMPLEX: _free_simplex,
    transforms.ORDERED: _free_ordered,
    transforms.TRIANGLE: _free_triangle,
}


def real(shape: int | Sequence[int] = _NONE) -> NamedParameter:
    """Make a parameter of any real numbers, for ``sample(parameters=)``.

    Parameters
    ----------
    shape : int or sequence of int, default=()
        Of its values; () is one number.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If a side of the shape is below 1.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.real(3).shape, sd.real((2, 3)).shape, sd.real().shape
    ((3,), (2, 3), ())
    """
    return NamedParameter(transforms.FREE, _sides("real", shape))


def positive(shape: int | Sequence[int] = _NONE) -> NamedParameter:
    """Make a parameter of positive numbers, such as a standard deviation.

    Chains move in ``log x``; the density is that of x, and the Jacobian x is added.

    Parameters
    ----------
    shape : int or sequence of int, default=()
        Of its values; () is one number.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If a side of the shape is below 1.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.positive()
    NamedParameter(kind=1, copies=(), size=1, low=0.0, high=inf)
    """
    return NamedParameter(transforms.SHIFTED, _sides("positive", shape), low=0.0)


def unit(shape: int | Sequence[int] = _NONE) -> NamedParameter:
    """Make a parameter of numbers between 0 and 1, such as a probability.

    Chains move in the logit, and the Jacobian ``x (1 - x)`` is added.

    Parameters
    ----------
    shape : int or sequence of int, default=()
        Of its values; () is one number.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If a side of the shape is below 1.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.unit(2).shape
    (2,)
    """
    return NamedParameter(transforms.BETWEEN, _sides("unit", shape), low=0.0, high=1.0)


def interval(low: float, high: float, shape: int | Sequence[int] = _NONE) -> NamedParameter:
    """Make a parameter of numbers between two bounds, one of which may be infinite.

    Parameters
    ----------
    low, high : float
        Bounds; inf or -inf for none.
    shape : int or sequence of int, default=()
        Of its values; () is one number.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If low is not below high, neither is finite, or a side of the shape is below 1.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.interval(-1, 1).low
    -1.0
    """
    for name, bound in (("low", low), ("high", high)):
        _check_bound("interval", name, bound)
    low, high = float(low), float(high)
    if not low < high:
        raise DataError(f"interval: low must be below high, got low={low:g} and high={high:g}")
    if math.isinf(low) and math.isinf(high):
        raise DataError("interval: neither bound is finite: take real()")
    if not math.isinf(low) and not math.isinf(high) and math.isinf(high - low):
        raise DataError(f"interval: from {low:g} to {high:g} is wider than numbers go: rescale the parameter")
    kind = transforms.BETWEEN if math.isfinite(low) and math.isfinite(high) else transforms.SHIFTED
    return NamedParameter(kind, _sides("interval", shape), low=low, high=high)


def simplex(k: int, shape: int | Sequence[int] = _NONE) -> NamedParameter:
    """Make a parameter of k positive numbers of sum 1, such as weights of a mixture.

    Densities are those of the first k - 1 numbers, as Dirichlet's. Chains move in isometric log-ratios, in
    which a symmetric Dirichlet density is symmetric.

    Parameters
    ----------
    k : int
        At least 2.
    shape : int or sequence of int, default=()
        Of several such vectors; the values have the shape ``(*shape, k)``.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If k is below 2, or a side of the shape below 1.

    References
    ----------
    Egozcue et al., "Isometric logratio transformations for compositional data analysis", Mathematical Geology
    2003.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.simplex(4).n_free
    3
    """
    return NamedParameter(transforms.SIMPLEX, _sides("simplex", shape), _size("simplex", k, 2), 0.0, 1.0)


def ordered(k: int, shape: int | Sequence[int] = _NONE, *, low: float = -math.inf) -> NamedParameter:
    """Make a parameter of k rising numbers, such as cut points, or means of a mixture.

    Chains move in the first number, or the logarithm of its distance from `low`, and the logarithms of the
    steps.

    Parameters
    ----------
    k : int
        At least 1.
    shape : int or sequence of int, default=()
        Of several such vectors; the values have the shape ``(*shape, k)``.
    low : float, default=-inf
        A bound below the first number: 0 for rising positive numbers, such as rates.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If k or a side of the shape is below 1, or low is no number or inf.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.ordered(3).shape, sd.ordered(2, low=0).words
    ((3,), '2 rising numbers above 0')
    """
    _check_bound("ordered", "low", low)
    if low == math.inf:
        raise DataError("ordered: low must be below inf")
    return NamedParameter(transforms.ORDERED, _sides("ordered", shape), _size("ordered", k, 1), float(low))


def cholesky(k: int, shape: int | Sequence[int] = _NONE) -> NamedParameter:
    """Make a parameter L, the lower Cholesky factor of a correlation matrix ``R = L L'``.

    Densities are those of the entries of R below the diagonal: without a prior all correlation matrices have
    the same density, as with ``priors.lkj(1)``. (Stan's densities of such a factor are those of L.) The
    factor of a covariance matrix is ``s[:, None] * L`` with a positive s of k entries.

    Parameters
    ----------
    k : int
        At least 2.
    shape : int or sequence of int, default=()
        Of several such matrices; the values have the shape ``(*shape, k, k)``.

    Returns
    -------
    NamedParameter

    Raises
    ------
    DataError
        If k is below 2, or a side of the shape below 1.

    References
    ----------
    Lewandowski, Kurowicka, Joe, "Generating random correlation matrices based on vines and extended onion
    method", Journal of Multivariate Analysis 2009.

    Examples
    --------
    >>> import stradask as sd
    >>> sd.cholesky(3).n_free
    3
    """
    return NamedParameter(transforms.TRIANGLE, _sides("cholesky", shape), _size("cholesky", k, 2))


def _check_bound(what, name, bound):
    if isinstance(bound, bool) or not isinstance(bound, Real) or math.isnan(bound):
        raise DataError(f"{what}: {name} must be a number, got {shortened(bound)}")


def _size(what, k, least):
    if isinstance(k, bool) or not isinstance(k, Integral) or k < least:
        raise DataError(f"{what}: k must be an integer of at least {least}, got {shortened(k)}")
    return int(k)


def _sides(what, shape):
    try:
        sides = (shape,) if isinstance(shape, Integral) else tuple(shape)
    except TypeError as error:
        raise DataError(
            f"{what}: shape must be an integer or a tuple of integers, got {shortened(shape)}"
        ) from error
    if any(isinstance(side, bool) or not isinstance(side, Integral) or side < 1 for side in sides):
        raise DataError(
            f"{what}: every side of shape must be an integer of at least 1, got {shortened(shape)}"
        )
    return tuple(int(side) for side in sides)
