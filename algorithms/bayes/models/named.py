"""A user's density of named parameters: ``log_likelihood(p, data)`` with p.beta, p.sigma and so on.

Transforms, Jacobians and priors by name are compiled once, and their derivatives are exact. Derivatives of
the user's functions are those in the values, if the functions give any. Without, the functions are
differenced in q, at 2 d evaluations a gradient, and never outside of the support.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ....kernels.bayes.address import SIGNATURE, address_of, call, floats, integers
from ....kernels.bayes.callback import callback
from ....kernels.bayes.densities import parameter_priors
from ....kernels.options import BARE
from ...inputs.matrices import check_takes
from .called import CompiledCalls, PythonCalls, call_again, differenced, guarded
from .density import check_compiles, is_compiled, one_number
from .density_check import check_density
from .fingerprint import fingerprint
from .layout import values_type
from .named_functions import HEAD, NamedFunctions

_PLACES = (parameter_priors.begin, parameter_priors.end, parameter_priors.place)  # at the end of meta


def named_model(log_likelihood, log_prior, data, start, *, layout, power=1.0, check=True):
    """Make a model of named parameters; for the functions see `sample`.

    `layout` has the parameters and their priors, `start` (d,) is in unconstrained numbers. log_likelihood and
    log_prior may be None. With `check` density and gradient are examined first, at three points.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.models.layout import NamedLayout
    >>> from stradask.algorithms.bayes.models.named import named_model
    >>> from stradask.algorithms.bayes.parameters import positive
    >>> from stradask.algorithms.bayes.priors import exponential
    >>> layout = NamedLayout({"rate": positive()}, {"rate": exponential(1.0)})
    >>> model = named_model(None, None, None, [0.0], layout=layout)
    >>> model.names, model.logp_grad([0.0])  # -x + log x at x = 1
    (('log rate',), (-1.0, array([0.])))
    """
    given = {"log_likelihood": log_likelihood, "log_prior": log_prior}
    for name, function in given.items():
        if function is not None and not callable(function):
            remedy = ": densities by name are given as priors={...}" if isinstance(function, Mapping) else ""
            raise DataError(f"{name} must be a function, got {shortened(function, 60)}{remedy}")
    if log_likelihood is not None and data is None:
        raise DataError(
            "data is missing: log_likelihood(p, data) needs them; a density without data is a log_prior(p)"
        )
    start = np.array(start, dtype=np.float64)
    there = [function for function in given.values() if function is not None]
    if all(map(is_compiled, there)):
        model = _compiled(log_likelihood, log_prior, data, start, power, layout)
    else:
        for (name, function), others in zip(given.items(), (("p", "data"), ("p",)), strict=True):
            if function is not None:
                check_takes(name, function, *others)
        both = NamedFunctions(layout, log_likelihood, log_prior, data, power)
        meta = np.zeros(1, np.int64)
        model = PythonNamed(callback, np.zeros(1), meta, layout.names, start, False, both, layout)
    return check_density(model) if check else model


def alone(layout, log_likelihood):
    """Make ``likelihood(q, data)``, for whether it is a sum over rows."""
    compiled = is_compiled(log_likelihood)
    fills = compiled and len(inspect.signature(log_likelihood.py_func).parameters) == 3

    def likelihood(q, data):
        p = layout.named(layout.values(np.array(q, dtype=np.float64)[None])[0])
        if not compiled:
            made = log_likelihood(p, data)
            return one_number(made[0] if isinstance(made, tuple) else made, "log_likelihood")
        rows = as_rows(data)
        return float(log_likelihood(p, rows, _slots(layout)) if fills else log_likelihood(p, rows))

    return likelihood


@dataclass(frozen=True, eq=False)
class NamedWithoutDensity:
    """Names and values of a model, without its density."""

    layout: Any

    @property
    def names(self):
        """Names of the unconstrained numbers."""
        return self.layout.names

    @property
    def watched(self):
        """See `Model.watched`."""
        return self.layout.watched

    def values(self, Q):
        """Turn unconstrained numbers q (K, d) into the values of the posterior."""
        return self.layout.values(np.require(Q, np.float64, ["C", "W"]))


class _Named:
    """What compiled and Python models have in common."""

    layout: Any

    @property
    def watched(self):
        """See `Model.watched`."""
        return self.layout.watched

    def values(self, Q):
        """Values of named parameters, one after the other."""
        return self.layout.values(np.require(Q, np.float64, ["C", "W"]))

    def without_data(self):
        """Return names and values alone."""
        return NamedWithoutDensity(self.layout)


# Compiled functions -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CompiledNamed(_Named, CompiledCalls):
    """A model of compiled functions.

    ``data`` are the power of the prior, the reals of the layout and the rows, integers by their bits. Of
    ``meta`` see `HEAD`; then come place and shape of each array of rows, and the tables of the layout.
    """

    layout: Any = None
    form: Any = None

    @property
    def n_own(self):
        """See `CompiledCalls`."""
        return HEAD + _numbers_of(self.form) + len(self.layout.tables[0])

    def __post_init__(self):
        super().__post_init__()
        places = [address_of(function, SIGNATURE) for function in _PLACES]
        self.__dict__.update(meta=np.append(self.meta, places))

    def again(self, q):
        """See `CompiledCalls`."""
        log_likelihood, log_prior = self.functions
        rows = None if log_likelihood is None else _unpacked(self.data, self.meta, self.form)
        pairs = (log_prior, ()), (log_likelihood, (rows,))
        by_name = lambda q: self.layout.named(self.layout.values(q[None])[0])  # noqa: E731
        call_again(pairs, q, by_name, _slots(self.layout))

    def __reduce__(self):
        own = self.meta[: self.n_own]
        return _made, (self.functions, self.layout, self.form, self.data, own, self.start)


def _made(functions, layout, form, data, meta, start):
    density = _compile(*functions, layout.form, form)
    return CompiledNamed(density, data, meta, layout.names, start, False, functions, layout, form)


def _compiled(log_likelihood, log_prior, data, start, power, layout):
    functions = (log_likelihood, log_prior)
    for name, function, takes in zip(
        ("log_likelihood", "log_prior"),
        functions,
        ("(p, data) or (p, data, g)", "(p) or (p, g)"),
        strict=True,
    ):
        n = 0 if function is None else len(inspect.signature(function.py_func).parameters)
        if function is not None and n not in ((2, 3) if name == "log_likelihood" else (1, 2)):
            raise DataError(f"{name} must take {takes}, it takes {n} arguments")
    table, reals = layout.tables
    head = np.concatenate([[power], reals])
    form, meta, floats_of_rows = _packed(data if log_likelihood is not None else (), len(head))
    numbers = np.concatenate([head, *floats_of_rows])
    try:
        meta = np.concatenate([[HEAD + len(meta), layout.n_values], meta, table])
        return _made(functions, layout, form, numbers, meta, start)
    except Exception:  # numba's errors are of many kinds
        _check_both_compile(functions, layout, data)
        raise


def _check_both_compile(functions, layout, data):
    import numba as nb

    p = layout.named(layout.values(np.zeros((1, layout.n_free)))[0])
    for name, function, rows in (
        ("log_likelihood", functions[0], () if functions[0] is None else (as_rows(data),)),
        ("log_prior", functions[1], ()),
    ):
        if function is not None:
            n = len(inspect.signature(function.py_func).parameters)
            arguments = (p, *rows, _slots(layout))[:n]
            check_compiles(name, function, tuple(map(nb.typeof, arguments)))


def _slots(layout):
    """Zeros for the derivatives in the values: arrays by name, of one entry for a number."""
    kind = values_type(tuple(layout.variables))
    return kind(*(np.zeros(shape or 1) for shape in layout.variables.values()))


def as_rows(data):
    """Return data as compiled functions get them: arrays of floats, or of integers, or a tuple of these."""
    if isinstance(data, tuple):
        return tuple(_as_array(part, f"data[{i}]") for i, part in enumerate(data))
    return _as_array(data, "data")


def _as_array(part, what):
    array = np.asarray(part)
    whole = array.dtype.kind in "biu"
    if array.ndim < 1:
        raise DataError(f"{what} must be an array, got {shortened(part)}: let the function refer to a number")
    if whole and array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise DataError(f"{what} holds {array.max()}, beyond 64-bit integers: give floats")
    try:
        return np.ascontiguousarray(array, dtype=np.int64 if whole else np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what} of a compiled log_likelihood must be an array of numbers: {in_brief(error)}"
        ) from error


def _packed(data, first):
    """Form, places and shapes, and floats of the rows; integers keep their bits."""
    rows = as_rows(data)
    parts = rows if isinstance(rows, tuple) else (rows,)
    meta: list[int] = []
    for part in parts:
        meta += [first, *part.shape]
        first += part.size
    form = isinstance(rows, tuple), tuple((part.dtype.kind == "i", part.ndim) for part in parts)
    return form, np.array(meta, dtype=np.int64), [part.reshape(-1).view(np.float64) for part in parts]


def _unpacked(data, meta, form):
    parts, at = [], HEAD
    for whole, ndim in form[1]:
        first, shape = meta[at], tuple(meta[at + 1 : at + 1 + ndim])
        part = data[first : first + int(np.prod(shape))].reshape(shape)
        parts.append(part.view(np.int64) if whole else part)
        at += 1 + ndim
    return tuple(parts) if form[0] else parts[0]


def _numbers_of(form):
    return sum(1 + ndim for _, ndim in form[1])


@lru_cache(maxsize=32)  # shards have the same functions
def _compile(log_likelihood, log_prior, names, form):
    """Put transforms, priors and functions together; functions without derivatives are differenced."""
    import numba as nb

    if log_likelihood is None and log_prior is None:
        return parameter_priors.prior_alone

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"} | BARE
    inner = options | {"forceinline": True}
    called: Any = call
    pointer: Any = floats
    n_values = sum(int(np.prod(shape)) for _, shape in names)
    kind = values_type(tuple(name for name, _ in names))
    numbers, slots = _views(names, True), _views(names, False)
    rows = _row_views(form)
    prior_slope, prior_value = _with_and_without(log_prior, 2)
    likelihood_slope, likelihood_value = _with_and_without(log_likelihood, 3)
    by_differences = prior_value is not None or likelihood_value is not None
    nothing = nb.njit(**options)(lambda *arguments: 0.0)
    prior_value, prior_slope = prior_value or nothing, prior_slope or nothing
    likelihood_value, likelihood_slope = likelihood_value or nothing, likelihood_slope or nothing

    @nb.njit(**options)
    def rest(q, work, data, meta):
        called(meta[len(meta) - 1], q, work, data, meta)
        p = kind(*numbers(work))
        return data[0] * prior_value(p) + likelihood_value(p, rows(data, meta))

    add_rest = differenced(rest, options)

    @nb.njit(**inner)
    def both(q, g, data, meta):
        work = np.empty(4 * n_values + len(q))  # in use until the end, for views of it
        logp: Any = called(meta[len(meta) - 3], q, work, data, meta)
        slope = nb.carray(pointer(work.ctypes.data + 16 * n_values), (n_values,))
        p, taken, power = kind(*numbers(work)), kind(*slots(slope)), data[0]
        if power == 1.0:
            logp += prior_slope(p, taken)
        else:  # derivatives that a function adds are those without the power
            before = slope.copy()
            for i in range(n_values):
                slope[i] = 0.0
            logp += power * prior_slope(p, taken)
            for i in range(n_values):
                slope[i] = before[i] + power * slope[i]
        logp += likelihood_slope(p, rows(data, meta), taken)
        called(meta[len(meta) - 2], q, work, data, meta)
        for i in range(len(g)):
            g[i] = work[4 * n_values + i]
        if by_differences:
            logp += add_rest(q, work, data, meta, g)
        return logp

    return guarded(both, -5)  # places of priors come after the callbacks


def _with_and_without(function, n):
    """A function with derivatives, which takes n arguments, and one without; None for the other."""
    if function is None:
        return None, None
    fills = len(inspect.signature(function.py_func).parameters) == n
    return (function, None) if fills else (None, function)


def _views(names, numbers):
    """Make a compiled function of values (n_values,) that returns views by name, and numbers as such.

    The views do not keep the values alive: who calls it does.
    """
    import numba as nb

    made, first = nb.njit(**BARE)(lambda values: ()), 0
    for _, shape in names:
        made = _next_view(nb, made, first, shape if shape or numbers else (1,))
        first += int(np.prod(shape))
    return made


def _next_view(nb, before, first, shape):
    # By its address: slices of `values` would count references to it, by locked instructions.
    where: Any = floats
    if not shape:
        return nb.njit(**BARE)(lambda values: (*before(values), values[first]))
    return nb.njit(**BARE)(
        lambda values: (*before(values), nb.carray(where(values.ctypes.data + 8 * first), shape))
    )


def _row_views(form):
    """Make a compiled function of (data, meta) that returns the rows: an array, or a tuple of arrays."""
    import numba as nb

    made: Any = nb.njit(**BARE)(lambda data, meta: ())
    at = HEAD
    for whole, ndim in form[1]:
        made = _next_rows(nb, made, at, integers if whole else floats, ndim)
        at += 1 + ndim
    if form[0]:
        return made
    return nb.njit(**BARE)(lambda data, meta: made(data, meta)[0])


def _next_rows(nb, before, at, pointer, ndim):
    where: Any = pointer
    shape = shape_at(at + 1, ndim)
    return nb.njit(**BARE)(
        lambda data, meta: (
            *before(data, meta),
            nb.carray(where(data.ctypes.data + 8 * meta[at]), shape(meta)),
        )
    )


def shape_at(place, n_axes):
    """Make a compiled function of meta that returns a shape, whose first side is at a place."""
    import numba as nb

    shape: Any = nb.njit(**BARE)(lambda meta: ())
    for side in range(place, place + n_axes):
        shape = _next_side(nb, shape, side)
    return shape


def _next_side(nb, before, at):
    return nb.njit(**BARE)(lambda meta: (*before(meta), meta[at]))


# Python functions -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PythonNamed(_Named, PythonCalls):
    """A model of Python functions of named values."""

    layout: Any = None

    def identity(self):
        """All that the density depends on, for digests."""
        both = self.function
        functions = fingerprint((both.log_likelihood, both.log_prior))
        return functions, both.data, both.power, *self.layout.tables, self.layout.form, self.start
