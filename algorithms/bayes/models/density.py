"""A user's density: functions compiled by numba or plain Python ones, with gradients or without.

Only the prior is raised to a power in a subposterior, so that prior and likelihood are two functions. A
gradient is optional: without one it is taken by central differences, at the cost of 2 d evaluations each.
Where there is one it is compared with differences before anything is sampled, component by component.
"""

import functools
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ....kernels.bayes.address import floats
from ....kernels.bayes.callback import callback
from ....kernels.options import BARE
from ...inputs.matrices import check_takes
from .called import CompiledCalls, PythonCalls, call_again, differenced, differences, guarded
from .density_check import check_density
from .fingerprint import fingerprint


def user_model(log_likelihood, log_prior, data, start, *, power=1.0, names=None, constrain=None, check=True):
    """Make a model of a user's own functions; for these and `start` see `sample`.

    Compiled functions run without the interpreter, on as many threads as there are chains; Python ones wait
    for each other, and are some hundred times slower. `power` is that of the prior, 1/M in a subposterior.
    ``constrain(Q)`` turns parameters (K, d) into the values to be shown (K, columns), for functions of plain
    Python. With `check` density and gradient are examined first, at three points.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.models.density import user_model
    >>> def log_likelihood(q, x):
    ...     return -0.5 * ((x - q[0]) ** 2).sum(), np.array([(x - q[0]).sum()])
    >>> model = user_model(log_likelihood, None, np.array([1.0, 2.0]), [0.0])
    >>> model.logp_grad([1.0])
    (-0.5, array([1.]))
    """
    start = checked_start(start)
    names = checked_names(names, len(start))
    functions = [log_likelihood] if log_prior is None else [log_likelihood, log_prior]
    for function in functions:
        if not callable(function):
            raise DataError(f"log_likelihood and log_prior must be functions, got {shortened(function, 60)}")
    if all(is_compiled(function) for function in functions):
        model = _compiled_model(log_likelihood, log_prior, data, start, power, names)
    else:
        _check_called_from_python(log_likelihood, 2, "log_likelihood(q, data, g)")
        _check_called_from_python(log_prior, 1, "log_prior(q, g)")
        check_takes("log_likelihood", log_likelihood, "q", "data")
        if log_prior is not None:
            check_takes("log_prior", log_prior, "q")
        both = _Python(log_likelihood, log_prior, data, power)
        model = PythonModel(
            callback, np.zeros(1), np.zeros(1, np.int64), names, start, False, both, constrain
        )
    return check_density(model) if check else model


def checked_start(start):
    """Return a vector of finite numbers, or raise a DataError."""
    try:
        start = np.array(start, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"start must be a vector of numbers, one a parameter: {in_brief(error)}") from error
    if start.ndim != 1 or not len(start) or not np.isfinite(start).all():
        raise DataError(f"start must be a vector of finite numbers, one a parameter, got {start}")
    return start


def checked_names(names, d):
    """Return d names of parameters, by default ``q[0]`` and so on, or raise a DataError; None is any d."""
    if names is not None and not isinstance(names, Iterable):
        raise DataError(
            f"names must be {'' if d is None else f'{d} '}different strings, got {shortened(names)}"
        )
    names = tuple(f"q[{j}]" for j in range(d)) if names is None else tuple(names)
    d = len(names) if d is None else d
    if not all(isinstance(name, str) for name in names) or len(names) != d or len(set(names)) != d:
        raise DataError(
            f"names must be {d} different strings, one for each entry of start, got {shortened(names)}"
        )
    return names


def is_compiled(function):
    """Whether a function is compiled by numba."""
    return hasattr(function, "py_func")


def _check_called_from_python(function, most, what):
    """Refuse a compiled function that fills g, if the other one is not compiled: it would get no g."""
    if is_compiled(function) and len(inspect.signature(function.py_func).parameters) > most:
        raise DataError(
            f"{what} is compiled and the other function is not: decorate both with numba.njit, or return "
            "(value, gradient) from both"
        )


# Compiled functions -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CompiledModel(CompiledCalls):
    """A model of a user's compiled functions, kept for their identity."""

    n_axes: int = 1

    @property
    def n_own(self):
        """See `CompiledCalls`."""
        return 2

    def again(self, q):
        """See `CompiledCalls`."""
        x = self.data[1:].reshape(self.meta[: self.n_axes])
        call_again(zip(self.functions, ((x,), ()), strict=True), q, lambda q: q, np.zeros(len(q)))


def _compiled_model(log_likelihood, log_prior, data, start, power, names):
    try:
        x = np.ascontiguousarray(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"data of a compiled log_likelihood must be an array of numbers: {in_brief(error)}"
        ) from error
    if x.ndim not in (1, 2):
        raise DataError(f"data of a compiled log_likelihood must have one or two axes, got {x.ndim}")
    n_arguments = len(inspect.signature(log_likelihood.py_func).parameters)
    n_prior = 1 if log_prior is None else len(inspect.signature(log_prior.py_func).parameters)
    if n_arguments not in (2, 3) or n_prior not in (1, 2):
        raise DataError(
            f"log_likelihood must take (q, data) or (q, data, g) and log_prior (q) or (q, g); they take "
            f"{n_arguments} and {n_prior} arguments"
        )
    density = _compile(log_likelihood, log_prior, n_arguments == 3, n_prior == 2, x.ndim)
    meta = np.array([*x.shape, 1][:2], dtype=np.int64)
    functions = (log_likelihood, log_prior)
    numbers = np.concatenate([[power], x.ravel()])
    try:
        return CompiledModel(density, numbers, meta, names, start, False, functions, x.ndim)
    except Exception:  # numba's errors are of many kinds
        check_compiles("log_likelihood", log_likelihood, _vectors([1, x.ndim, 1][:n_arguments]))
        check_compiles("log_prior", log_prior, _vectors([1, 1][:n_prior]))
        raise


def _vectors(axes):
    import numba as nb

    return tuple(nb.types.Array(nb.float64, n, "C") for n in axes)


def check_compiles(name, function, arrays):
    """Refuse a function that numba cannot compile for arguments of these types, or that returns no number."""
    import numba as nb

    if function is None:
        return
    try:
        function.compile(arrays)
        kind = function.overloads[arrays].signature.return_type
    except Exception as error:
        kinds = ", ".join(map(str, arrays))
        raise DataError(f"{name} does not compile for arguments ({kinds}): {error}") from error
    if not isinstance(kind, (nb.types.Float, nb.types.Integer, nb.types.Boolean, nb.types.Optional)):
        raise DataError(f"{name} must return one number, got {kind}: sum over observations, return a float")


@functools.lru_cache(maxsize=32)  # shards have the same functions
def _compile(log_likelihood, log_prior, likelihood_slopes, prior_slopes, n_axes):
    """Put prior and likelihood together; functions without a gradient are differenced."""
    import numba as nb

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"} | BARE
    inner = options | {"forceinline": True}
    at: Any = floats
    if log_prior is None:
        log_prior, prior_slopes = nb.njit(**options)(lambda q, g: 0.0), True
    likelihood = log_likelihood if likelihood_slopes else differenced(log_likelihood, options)
    prior = log_prior if prior_slopes else differenced(log_prior, options)
    if n_axes == 1:

        @nb.njit(**inner)
        def of_data(q, data, meta, g):
            return likelihood(q, nb.carray(at(data.ctypes.data + 8), meta[0]), g)

    else:

        @nb.njit(**inner)
        def of_data(q, data, meta, g):
            return likelihood(q, nb.carray(at(data.ctypes.data + 8), (meta[0], meta[1])), g)

    @nb.njit(**inner)
    def both(q, g, data, meta):
        for i in range(len(g)):
            g[i] = 0.0
        logp = data[0] * prior(q, g)
        for i in range(len(g)):
            g[i] *= data[0]
        return logp + of_data(q, data, meta, g)

    return guarded(both, 2)


# Python functions -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Python:
    """Log density and gradient of Python functions."""

    log_likelihood: Any
    log_prior: Any
    data: Any
    power: float

    def __call__(self, q):
        value, gradient = self._part(lambda q: self.log_likelihood(q, self.data), q, "log_likelihood")
        if self.log_prior is not None:
            prior, slope = self._part(self.log_prior, q, "log_prior")
            value, gradient = value + self.power * prior, gradient + self.power * slope
        return value, gradient

    def made_at(self, q):
        """What the functions return at q."""
        made = [self.log_likelihood(q.copy(), self.data)]
        return made if self.log_prior is None else [*made, self.log_prior(q.copy())]

    def _part(self, function, q, what):
        result = function(q)
        if not isinstance(result, tuple):
            return one_number(result, what), differences(lambda point: one_number(function(point), what), q)
        if len(result) != 2:
            raise DataError(f"{what} must return a number or (value, gradient), got a tuple of {len(result)}")
        value, gradient = result
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != q.shape:
            raise DataError(
                f"the gradient of {what} has the shape {gradient.shape}, its argument {q.shape}: return one "
                "number a parameter, or no gradient to have it differenced"
            )
        return one_number(value, what), gradient


def one_number(made, what):
    """Return the number that a function made, or raise a DataError."""
    try:
        value = np.asarray(made, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what} must return one number, got a {type(made).__name__}: {in_brief(error)}"
        ) from error
    if made is None:  # of which NumPy makes NaN
        raise DataError(f"{what} must return one number, got None: does it end without a return?")
    if value.size != 1:
        raise DataError(f"{what} must return one number, got the shape {value.shape}: sum over observations")
    return float(value.reshape(()))


@dataclass(frozen=True, eq=False)
class PythonModel(PythonCalls):
    """A model of a user's Python functions."""

    constrain: Any = None

    def values(self, Q):
        """Parameters, or the values that `constrain` computes from them."""
        Q = self._points(Q)
        return Q if self.constrain is None else self.constrain(Q)

    def without_data(self):
        """Return the model without its function, which holds the data."""
        return replace(self, function=None)

    def identity(self):
        """All that the density depends on, for digests."""
        both = self.function
        functions = fingerprint((both.log_likelihood, both.log_prior))
        return functions, both.data, both.power, self.names, self.start
