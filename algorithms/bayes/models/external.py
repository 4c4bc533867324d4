"""A model of another library, split into the likelihood of rows and the rest.

A shard has the likelihood of its own rows, and the rest to the power 1/M: priors with the Jacobians of
constrained parameters, and all other terms that depend on no row. Before anything is sampled, the likelihood
of an adapter is checked to be a sum over rows.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import DataError, StradaskError
from ....kernels.bayes.streams import uniforms
from ..chains.chain import STARTING, stream
from .density import user_model
from .row_sums import check_sum

SHIFTS = (0.1, -0.2)  # of the start: places at which values are compared without rows and with all
_PLACES = 3  # at which densities are compared
_DIGITS = 9  # of a density's values, by which it is known
_REMEDY = (
    "terms that no single row has belong outside the data's axis, and a model that standardises columns by "
    "their own mean (do it to the data before), takes other means over rows, or has parameters of their own "
    "for rows, cannot be cut"
)
_FAULT = "likelihood and prior do not add up to the model's log density: this differs from their sum"
_OUTSIDE = (
    "a term outside the data's axis depends on the rows, such as a factor, or a prior about the data's mean: "
    "put it among the rows, one number a row, or take the model in one piece (data_axis=None)"
)


class Functions:
    """Log likelihood and log prior of a model, with gradients, in unconstrained parameters q.

    An adapter fills in the methods. Functions that they compile are made when first needed, by
    `compiled`, and stay behind when the object travels. ``row`` holds one row of the data, ``start`` a point.
    """

    row: tuple
    start: np.ndarray

    def likelihood(self, q, data):
        """Return the log likelihood of rows (a tuple of arrays) and its gradient."""
        raise NotImplementedError

    def prior(self, q):
        """Return the log of all that belongs to no row, the Jacobian included, and its gradient."""
        raise NotImplementedError

    def whole(self, data):
        """Return the library's own log density of all rows, a function of q."""
        raise NotImplementedError

    def constrain(self, Q):
        """Turn parameters q (K, d) into the model's own values, side by side (K, columns)."""
        raise NotImplementedError

    def compile(self):
        """Compile the functions that the other methods call."""
        raise NotImplementedError

    def model_of(self, log_likelihood, log_prior, rows, start, *, power, names):
        """Make the `Model` of some rows; by default one that calls `likelihood` and `prior` from Python."""
        return user_model(
            log_likelihood, log_prior, rows, start, power=power, names=names, constrain=self.constrain
        )

    def pointwise(self, values, data):
        """Return the log-likelihood of each observation, ``(draws, *shape)`` by name, for draws by name."""
        raise NotImplementedError

    def predictions(self, values, data, seed):
        """Draw new observations in the same form."""
        raise NotImplementedError

    def observed(self, data):
        """Return the observations by name, or None where they are not known apart from other data."""
        return None

    @property
    def compiled(self):
        """Result of `compile` in this process."""
        if "_compiled" not in vars(self):
            self._compiled = self.compile()
        return self._compiled

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_compiled"}

    def __dask_tokenize__(self):
        """Identify a model by its values at a few points: graphs of other libraries have no digest."""
        points = _points(self.start)
        values = [[f"{x:.{_DIGITS}g}" for x in _joined(self.prior(q))] for q in points]
        rows = [[f"{x:.{_DIGITS}g}" for x in _joined(self.likelihood(q, self.row))] for q in points]
        return type(self).__name__, values, rows


@dataclass(frozen=True, eq=False)
class ExternalModel:
    """A model of another library for `sample`; made by ``from_numpyro``, ``from_pymc``, ``from_bridgestan``.

    `data` are arrays of one length, which are cut into shards, or ``()`` for a density in one piece.
    `start` (d,) and `names` are those of the unconstrained parameters, `variables` the model's own parameters
    and their shapes.
    """

    functions: Functions
    data: tuple
    start: np.ndarray
    names: tuple[str, ...]
    variables: dict[str, tuple]

    @property
    def in_one_piece(self):
        """Whether there are no rows: ``functions.likelihood(q, ())`` is the whole log density."""
        return not self.data

    def __post_init__(self):
        of_rows, prior = (lambda q: self._likelihood(q, self.data)), (lambda q: self.functions.prior(q)[0])
        parts = [lambda: of_rows] if self.in_one_piece else [lambda: of_rows, lambda: prior]
        if not self.in_one_piece:
            self._check_rows()
        whole = self.functions.whole(self.data)
        check_sum(lambda q, density: density(q), whole, parts, self.start, _OUTSIDE, _FAULT)

    def _check_rows(self):
        n = len(self.data[0])
        if n < 2:
            raise DataError(f"the data have {n} row(s) along their axis; at least 2 are needed")
        halves = [lambda first=first: tuple(x[first::2] for x in self.data) for first in (0, 1)]
        check_sum(self._likelihood, self.data, halves, self.start, _REMEDY)

    def _likelihood(self, q, data):
        return self.functions.likelihood(q, data)[0]


def _joined(value_and_gradient):
    value, gradient = value_and_gradient
    return [float(value), *np.asarray(gradient, dtype=float)]


def _points(start):
    spread = uniforms(stream(0, 0, 0, STARTING), _PLACES * len(start)).reshape(_PLACES, len(start)) - 0.5
    spread[0] = 0
    return start + spread


def rows_of(data, n, what):
    """Split a dict into arrays of n rows and the rest; `what` names the axis in the message."""
    cut: dict[str, np.ndarray] = {}
    fixed: dict = {}
    for name, value in data.items():
        has_rows = np.ndim(value) > 0 and len(value) == n
        (cut if has_rows else fixed)[name] = np.asarray(value) if has_rows else value
    if not cut:
        raise DataError(f"data: no array has as many rows ({n}) as {what}")
    return cut, fixed


def flat_names(shapes):
    """Names for every entry of named arrays: ``b[0]``, ``b[1, 2]``, and ``a`` for a single number."""
    names = []
    for name, shape in shapes.items():
        for index in np.ndindex(*shape):
            names.append(f"{name}{list(index)}" if index else name)
    return tuple(names)


def needed(package, door):
    """Import the package that a model is written in; `door` is the function that needs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise StradaskError(
            f"{door} needs {package}, which is not installed: pip install {package}"
        ) from error


def check_named(data):
    """Refuse data that are no dict by name."""
    if not isinstance(data, Mapping):
        raise DataError(
            f"data must be a dict, what the model takes by its names, got a {type(data).__name__}"
        )


def is_same(one, other):
    """Whether two values are the same up to rounding."""
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12)
