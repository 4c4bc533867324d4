"""Models of a user's functions, which the compiled sampler calls through C pointers.

No error can pass through such a pointer. One that says that a point has no density (see ``failures``) makes
it zero there; another makes it NaN, and is raised after the chunk. NaN that the function itself returns
counts as a density of zero. The diagnostics say how often there was either.
"""

import ctypes
import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DataError, in_brief
from ....kernels.bayes.callback import call_function
from ....kernels.options import BARE
from .density_check import STEP
from .failures import Failures
from .fingerprint import fingerprint
from .model import Model

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"} | BARE  # of what a user's functions are in
_POINTER = ctypes.POINTER(ctypes.c_double)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_double, _POINTER, _POINTER, ctypes.c_int64)


class CalledModel(Model):
    """A model that keeps errors until it is asked for them."""

    def raise_errors(self):
        """Raise the error of a function, unless it only says that a point has no density."""
        vars(self)["_failures"].raise_fatal()

    def take_tally(self):
        """Return a `Tally` of this thread's evaluations since the last call."""
        return vars(self)["_failures"].take()

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__post_init__()


@dataclass(frozen=True, eq=False)
class CompiledCalls(CalledModel):
    """A model of compiled functions. Their errors have no text, and are found out by calling them again.

    ``meta[:n_own]`` are numbers of the model; the addresses of two callbacks follow: for evaluations that
    failed, and for those that are NaN; `guarded` calls them.
    """

    functions: tuple = ()

    @property
    def n_own(self):
        """How many numbers of `meta` the model has itself."""
        raise NotImplementedError

    def again(self, q):
        """Call the functions from Python, as the density does."""
        raise NotImplementedError

    def __post_init__(self):
        super().__post_init__()
        failures = Failures(self.names)

        def failed(q, g, d):
            point = vector_at(q, d).copy()
            vector_at(g, d)[:] = np.nan
            try:
                self.again(point)
            except BaseException as error:
                return failures.note(error, point)
            return failures.note(RuntimeError("a compiled function failed, and once more did not"), point)

        pointers = CALLBACK(failed), counter_of_nan(failures)
        meta = np.append(self.meta[: self.n_own], [address_in_c(pointer) for pointer in pointers])
        self.__dict__.update(meta=meta, _failures=failures, _pointers=pointers)

    @property
    def is_differenced(self):
        """See `Model`."""
        return any(
            function is not None and count_arguments(function) < most
            for function, most in zip(self.functions, (3, 2), strict=False)  # other libraries' have none
        )

    def identity(self):
        """All that the density depends on, for digests."""
        return fingerprint(self.functions), self.data, self.meta[: self.n_own], self.names, self.start


@dataclass(frozen=True, eq=False)
class PythonCalls(CalledModel):
    """A model of a Python function ``q -> (log density, gradient)``, whose address is ``meta[0]``."""

    function: Any = None

    @property
    def is_differenced(self):
        """See `Model`; by a call at the start."""
        made = getattr(self.function, "made_at", None)
        return made is not None and not all(isinstance(one, tuple) for one in made(self.start))

    def __post_init__(self):
        super().__post_init__()
        failures = Failures(self.names)

        def call(q, g, d):
            if failures.has_ended():
                return np.nan
            point, slope = vector_at(q, d).copy(), vector_at(g, d)
            try:
                with np.errstate(all="ignore"):  # NaN is counted, and a long leapfrog step overflows
                    value, gradient = self.function(point)
                slope[:] = gradient
                failures.note_value(value)
                return value
            except BaseException as error:
                slope[:] = np.nan
                return failures.note(error, point)

        pointer = CALLBACK(call)
        own = self.meta[1:] if len(self.meta) else self.meta
        meta = np.concatenate([[address_in_c(pointer)], own]).astype(np.int64)
        self.__dict__.update(meta=meta, _failures=failures, _pointer=pointer)


def vector_at(place, n):
    """The n numbers at an address, or at a pointer of ctypes, for which ``as_array`` takes longer."""
    address = place if isinstance(place, int) else ctypes.addressof(place.contents)
    return np.frombuffer((ctypes.c_double * n).from_address(address))


def address_in_c(pointer):
    """Address of a function of ctypes."""
    return ctypes.cast(pointer, ctypes.c_void_p).value


def counter_of_nan(failures):
    """A function of ctypes that counts NaN among the failures, and returns it."""

    def undefined(q, g, d):
        failures.note_value(np.nan)
        return np.nan

    return CALLBACK(undefined)


def guarded(density, place):
    """A compiled density of `CompiledCalls`, which calls the callbacks for its errors and NaN.

    `place` is that of their addresses in `meta`, from the end if it is negative.
    """
    import numba as nb

    by_python: Any = call_function
    of_failed, of_nan = place, place + 1

    @nb.njit(**OPTIONS)
    def whole(q, g, data, meta):
        logp = 0.0
        try:
            logp = density(q, g, data, meta)
        except Exception:  # of which compiled code knows no more; the callback finds out
            logp = by_python(meta[of_failed], q.ctypes.data, g.ctypes.data, len(q))
        if math.isnan(logp):
            logp = by_python(meta[of_nan], q.ctypes.data, g.ctypes.data, len(q))
        return logp

    return whole


def differenced(function, options):
    """Compile ``f(q, *arguments, g)``, which adds central differences of ``function(q, *arguments)`` to g."""
    import numba as nb

    step = float(STEP)

    @nb.njit(**options)
    def with_slopes(q, *rest):
        arguments, g, point = rest[:-1], rest[-1], q.copy()
        for i in range(len(q)):
            h = step * max(1.0, abs(q[i]))
            point[i] = q[i] + h
            above = function(point, *arguments)
            point[i] = q[i] - h
            g[i] += (above - function(point, *arguments)) / (2.0 * h)
            point[i] = q[i]
        return function(q, *arguments)

    return with_slopes


def call_again(pairs, q, point_of, slopes):
    """Call functions that are not None from Python, each with the arguments after its point, at q.

    Those that fill derivatives get `slopes` for these; others are differenced.
    """
    for function, arguments in pairs:
        if function is None:
            continue
        if count_arguments(function) > 1 + len(arguments):
            function(point_of(q), *arguments, slopes)
        else:
            differences(lambda at, f=function, rest=arguments: f(point_of(at), *rest), q)
            function(point_of(q), *arguments)


def differences(function, q):
    """Gradient by central differences."""
    h = STEP * np.maximum(1.0, np.abs(q))
    gradient = np.empty(len(q))
    for i in range(len(q)):
        step = np.zeros(len(q))
        step[i] = h[i]
        gradient[i] = (function(q + step) - function(q - step)) / (2 * h[i])
    return gradient


# A user's functions ---------------------------------------------------------------------------------------


def is_compiled(function):
    """Whether a function is compiled by numba."""
    return hasattr(function, "py_func")


def count_arguments(function):
    """How many arguments a compiled function takes."""
    return len(inspect.signature(function.py_func).parameters)


def value_at(function, p, data, slots):
    """The log likelihood of data at p, by a function of any form; `slots` take derivatives."""
    if is_compiled(function):
        return float(function(p, data, slots) if count_arguments(function) == 3 else function(p, data))
    made = function(p, data)
    return one_number(made[0] if isinstance(made, tuple) else made, "log_likelihood")


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
