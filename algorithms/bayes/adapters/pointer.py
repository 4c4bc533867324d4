"""Densities that are C functions: compiled by numba, by a C compiler, by anything with such an address."""

import contextlib
import ctypes
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...._typing import ArrayLike, Names
from ....errors import DataError, shortened
from ....kernels.bayes.callback import pointer
from ..models.called import CalledModel, address_in_c, counter_of_nan
from ..models.density import VectorLayout, checked_start
from ..models.density_check import check_density
from ..models.deterministic import Deterministic
from ..models.failures import Failures
from ..shards.chains import Densities

_FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[
    1
]  # the base of all functions of ctypes, which has no public name


def from_pointer(function: Any, start: ArrayLike, *, names: Names | None = None) -> "PointerDensity":
    """Take a log density and its gradient that are a C function, for `sample`.

    The sampler calls it from compiled code, on as many threads as there are chains. Nothing passes through
    Python.

    Parameters
    ----------
    function : numba cfunc, ctypes function, or int
        ``double f(const double *q, double *g, int64_t d)``, or its address. It returns the log posterior
        density, all of it, at q (d,), any real numbers, and fills the gradient g (d,). NaN is a density of
        zero. It must be safe on several threads at a time (else ``n_jobs=1``). An error that numba or ctypes
        would drop, as nothing can be raised through C, ends the run.
    start : array-like of shape (d,)
        A point where the density is finite.
    names : sequence of d str, optional
        By default the parameters are one vector, ``theta``.

    Returns
    -------
    PointerDensity
        For ``sample(density, ...)``, in one piece, on this process.

    Raises
    ------
    DataError
        If function is none of these, has no address, or is known to take or return something else.

    Examples
    --------
    >>> import numba
    >>> import stradask as sd
    >>> @numba.cfunc("float64(CPointer(float64), CPointer(float64), int64)")
    ... def normal(q, g, d):
    ...     total = 0.0
    ...     for i in range(d):
    ...         g[i] = -q[i]
    ...         total -= 0.5 * q[i] * q[i]
    ...     return total
    >>> posterior = sd.sample(sd.from_pointer(normal, [0.0, 0.0]), random_state=0)
    >>> posterior.sd()["theta"].round(1)
    array([1., 1.])
    """
    point: np.ndarray = checked_start(start)
    layout = VectorLayout(len(point), names)
    return PointerDensity(function, _address(function), point, layout)


def _address(function):
    """The address of a C function."""
    address: Any
    if isinstance(function, (int, np.integer)) and not isinstance(function, bool):
        address = int(function)
    elif isinstance(getattr(function, "address", None), int):  # numba's
        address = function.address
        _check_types(function.ctypes)
    elif isinstance(function, _FUNCTION):
        address = ctypes.cast(function, ctypes.c_void_p).value
        if function.argtypes is not None:
            _check_types(function)
    else:
        raise DataError(
            f"function must be a numba.cfunc, a function of ctypes, or an address, got "
            f"{shortened(function, 60)}: numba.njit and Python functions go to sample as they are"
        )
    if not address or not 0 < address < 2**63:
        raise DataError(f"function has the address {address}, where there is no function")
    return address


def _check_types(function):
    """Refuse a function of ctypes that is declared to take or return something else: calls check nothing."""
    taken, returned = tuple(function.argtypes), function.restype
    fits = len(taken) == 3 and returned is ctypes.c_double and ctypes.sizeof(taken[2]) == 8
    if not fits or not all(_are_numbers(one) for one in taken[:2]):
        words = ", ".join(one.__name__ for one in taken)
        raise DataError(
            f"function takes ({words}) and returns {getattr(returned, '__name__', returned)}: it must be "
            "double f(const double *q, double *g, int64_t d)"
        )


def _are_numbers(kind):
    """Whether a type of ctypes is an address of float64, or of anything."""
    return (
        kind is ctypes.c_void_p
        or getattr(kind, "_type_", None) is ctypes.c_double
        or hasattr(kind, "_dtype_")
    )


@dataclass(frozen=True, eq=False)
class PointerDensity:
    """A C function for `sample`; made by `from_pointer`. It keeps the function alive."""

    function: Any
    address: int
    start: np.ndarray
    layout: VectorLayout
    errors: "DroppedErrors" = field(default_factory=lambda: DroppedErrors())

    def __reduce__(self):
        raise DataError(
            "the address of a C function is valid in its own process only: take engine='local', or load the "
            "function in a log_likelihood that workers call"
        )

    # What `sample` asks of a problem.

    def watched(self):
        """Keep errors that the function raises, which Python would print and ignore; a context manager."""
        return _watched_errors(self.errors)

    def check_ships(self, engine):
        """Refuse to leave this process."""
        if engine != "local":
            self.__reduce__()

    def deterministic(self, function):
        """Examine a user's function of the parameters."""
        return Deterministic.of(function, self.layout, self.start)

    def cut(self, settings):
        """Return the one part."""
        if settings.n_shards not in (1, "auto"):
            raise DataError(f"n_shards={settings.n_shards}, but a C function is one density: take n_shards=1")
        if settings.checkpoint is not None:
            raise DataError("a C function has no digest by which a checkpoint knows it: leave checkpoint out")
        return [None]

    def densities(self, parts, settings):
        """Return the density of all."""
        return Densities([self.model], lambda model: self.layout.variables)

    def model(self):
        """Make the model, and compare its gradient with differences."""
        made = PointerModel(
            pointer,
            np.zeros(1),
            np.array([self.address, 0, 0]),
            self.layout.names,
            self.start,
            False,
            self.function,
            self.errors,
        )
        return check_density(made)


_REMEDY = (
    "raised by the function of from_pointer, through which no error can pass: let it return NaN where there "
    "is no density, and catch its errors; a Python function can be given to sample itself"
)


class DroppedErrors:
    """The first error that a function raised into C, which passes nothing on; `flag` is then 1."""

    def __init__(self):
        self.flag = np.zeros(1, np.int64)
        self.first = None

    def keep(self, error):
        """Keep an error, if it is the first one."""
        if self.first is None:
            if _REMEDY not in getattr(error, "__notes__", ()):
                error.add_note(_REMEDY)
            self.first = error
        self.flag[0] = 1

    def forget(self):
        """Begin anew."""
        self.first, self.flag[0] = None, 0


_watching: list[DroppedErrors] = []  # of all runs now; Python has one hook for the whole process
_hooks: list[Any] = []  # the hook from before the first of them
_changing = threading.Lock()


def _dropped(unraisable):
    """Keep what callbacks of ctypes and numba raise: whose it is cannot be seen, so that every run ends."""
    error = unraisable.exc_value
    of_callback = "numba" in str(unraisable.object) or "ctypes callback" in (unraisable.err_msg or "")
    if isinstance(error, BaseException) and of_callback:
        for errors in tuple(_watching):
            errors.keep(error)
    else:
        _hooks[0](unraisable)


@contextlib.contextmanager
def _watched_errors(errors):
    """While the context lasts, `errors` gets what callbacks of ctypes and numba raise on any thread."""
    errors.forget()
    with _changing:
        if not _watching:
            _hooks[:] = [sys.unraisablehook]
            sys.unraisablehook = _dropped
        _watching.append(errors)
    try:
        yield
    finally:
        with _changing:
            _watching[:] = [other for other in _watching if other is not errors]
            if not _watching and sys.unraisablehook is _dropped:
                sys.unraisablehook = _hooks[0]


@dataclass(frozen=True, eq=False)
class PointerModel(CalledModel):
    """The model of a C function, whose address is ``meta[0]``."""

    function: Any = None
    errors: Any = None

    def __post_init__(self):
        super().__post_init__()
        failures = Failures(self.names)

        counted = counter_of_nan(failures)
        meta = np.array([self.meta[0], address_in_c(counted), self.errors.flag.ctypes.data], dtype=np.int64)
        self.__dict__.update(meta=meta, _failures=failures, _pointer=counted)

    def raise_errors(self):
        """Raise the first error that the function dropped."""
        if self.errors.first is not None:
            raise self.errors.first
