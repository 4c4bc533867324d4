"""Models of a user's functions: ``log_likelihood(p, data)`` of named parameters, or of a vector.

A layout says what functions get of the unconstrained numbers q: see `NamedLayout` and `VectorLayout`.
Transforms, Jacobians and priors by name are compiled once, and their derivatives are exact. Derivatives of
the user's functions are those in the values, if the functions give any. Without, the functions are
differenced in q, at 2 d evaluations a gradient, and never outside of the support.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.address import SIGNATURE, address_of, call, floats, integers
from ....kernels.bayes.callback import callback
from ....kernels.bayes.densities import parameter_priors
from ....kernels.options import BARE
from ...inputs.matrices import check_takes
from .called import (
    OPTIONS,
    CalledModel,
    CompiledCalls,
    PythonCalls,
    call_again,
    check_compiles,
    count_arguments,
    differenced,
    guarded,
    is_compiled,
    value_at,
)
from .density_check import check_density
from .fingerprint import fingerprint
from .layout import values_type
from .named_functions import HEAD, NamedFunctions

_PLACES = (parameter_priors.begin, parameter_priors.end, parameter_priors.place)  # at the end of meta


def named_model(log_likelihood, log_prior, data, start, *, layout, power=1.0, check=True):
    """Make a model of a user's functions; for these see `sample`.

    `layout` has the parameters and their priors, `start` (d,) is in unconstrained numbers, `power` is that of
    the prior, 1/M in a subposterior. log_prior may be None, and of named parameters log_likelihood. With
    `check` density and gradient are examined first, at three points.

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
    p, start = layout.letter, np.array(start, dtype=np.float64)
    functions = {"log_likelihood": log_likelihood, "log_prior": log_prior}
    for name, function in functions.items():
        if not callable(function) and (function is not None or name in layout.needed):
            remedy = ": densities by name are given as priors={...}" if isinstance(function, Mapping) else ""
            raise DataError(f"{name} must be a function, got {shortened(function, 60)}{remedy}")
    if log_likelihood is not None and data is None and p == "p":
        raise DataError(
            "data is missing: log_likelihood(p, data) needs them; a density without data is a log_prior(p)"
        )
    taken = {"log_likelihood": (p, "data"), "log_prior": (p,)}
    taken = {name: taken[name] for name, function in functions.items() if function is not None}
    if all(is_compiled(functions[name]) for name in taken):
        for name, arguments in taken.items():
            _check_arguments(name, functions[name], arguments)
        model = _compiled(log_likelihood, log_prior, data, start, power, layout)
    else:
        for name, arguments in taken.items():
            if is_compiled(functions[name]) and count_arguments(functions[name]) > len(arguments):
                raise DataError(
                    f"{name}({', '.join(arguments)}, g) is compiled and the other function is not: decorate "
                    "both with numba.njit, or return (value, gradient) from both"
                )
            check_takes(name, functions[name], *arguments)
        both = NamedFunctions(layout, log_likelihood, log_prior, data, power)
        meta = np.zeros(1, np.int64)
        model = PythonModel(callback, np.zeros(1), meta, layout.names, start, False, both, layout)
    return check_density(model) if check else model


def _check_arguments(name, function, arguments):
    """Refuse a compiled function that takes neither these arguments nor derivatives after them."""
    n, words = count_arguments(function), ", ".join(arguments)
    if n not in (len(arguments), len(arguments) + 1):
        raise DataError(f"{name} must take ({words}) or ({words}, g), it takes {n} arguments")


def alone(layout, log_likelihood, log_prior):
    """Make ``likelihood(q, data)``, for whether it is a sum over rows."""
    compiled = all(is_compiled(one) for one in (log_likelihood, log_prior) if one is not None)

    def likelihood(q, data):
        p, rows = layout.at(np.array(q, dtype=np.float64)), layout.rows(data) if compiled else data
        return value_at(log_likelihood, p, rows, layout.slots())

    return likelihood


@dataclass(frozen=True, eq=False)
class WithoutDensity:
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


class _LaidOut(CalledModel):
    """Values of a layout: what compiled and Python models have in common."""

    layout: Any

    @property
    def watched(self):
        """See `Model.watched`."""
        return self.layout.watched

    def values(self, Q):
        """Values of the parameters, one after the other."""
        return self.layout.values(self._points(Q))


# Compiled functions -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CompiledModel(_LaidOut, CompiledCalls):
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
        if self.layout.form is not None:
            places = [address_of(function, SIGNATURE) for function in _PLACES]
            self.__dict__.update(meta=np.append(self.meta, places))

    def again(self, q):
        """See `CompiledCalls`."""
        log_likelihood, log_prior = self.functions
        rows = None if log_likelihood is None else _unpacked(self.data, self.meta, self.form)
        pairs = (log_prior, ()), (log_likelihood, (rows,))
        call_again(pairs, q, self.layout.at, self.layout.slots())

    def without_data(self):
        """Return names and values alone."""
        return WithoutDensity(self.layout)

    def __reduce__(self):
        own = self.meta[: self.n_own]
        return _made, (self.functions, self.layout, self.form, self.data, own, self.start)


def _made(functions, layout, form, data, meta, start):
    density = _compile(*functions, layout.form, form)
    return CompiledModel(density, data, meta, layout.names, start, False, functions, layout, form)


def _compiled(log_likelihood, log_prior, data, start, power, layout):
    functions = (log_likelihood, log_prior)
    table, reals = layout.tables
    head = np.concatenate([[power], reals])
    rows = () if log_likelihood is None else layout.rows(data)
    form, meta, floats_of_rows = _packed(rows, len(head))
    numbers = np.concatenate([head, *floats_of_rows])
    try:
        meta = np.concatenate([[HEAD + len(meta), layout.n_values], meta, table])
        return _made(functions, layout, form, numbers, meta, start)
    except Exception:  # numba's errors are of many kinds
        import numba as nb

        p = layout.at(np.zeros(len(layout.names)))
        for name, function, taken in zip(
            ("log_likelihood", "log_prior"),
            functions,
            ((p, rows, layout.slots()), (p, layout.slots())),
            strict=True,
        ):
            if function is not None:
                check_compiles(name, function, tuple(map(nb.typeof, taken[: count_arguments(function)])))
        raise


def _packed(rows, first):
    """Form, places and shapes, and floats of the rows; integers keep their bits."""
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

    if names is None:
        return _compile_vector(log_likelihood, log_prior, form)
    if log_likelihood is None and log_prior is None:
        return parameter_priors.prior_alone
    called: Any = call
    pointer: Any = floats
    n_values = sum(int(np.prod(shape)) for _, shape in names)
    kind = values_type(tuple(name for name, _ in names))
    numbers, slots = _views(names, True), _views(names, False)
    rows = _row_views(form)
    prior_slope, prior_value = _with_and_without(log_prior, 2)
    likelihood_slope, likelihood_value = _with_and_without(log_likelihood, 3)
    by_differences = prior_value is not None or likelihood_value is not None
    nothing = nb.njit(**OPTIONS)(lambda *arguments: 0.0)
    prior_value, prior_slope = prior_value or nothing, prior_slope or nothing
    likelihood_value, likelihood_slope = likelihood_value or nothing, likelihood_slope or nothing

    @nb.njit(**OPTIONS)
    def rest(q, work, data, meta):
        called(meta[len(meta) - 1], q, work, data, meta)
        p = kind(*numbers(work))
        return data[0] * prior_value(p) + likelihood_value(p, rows(data, meta))

    add_rest = differenced(rest, OPTIONS)

    @nb.njit(**OPTIONS, forceinline=True)
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


def _compile_vector(log_likelihood, log_prior, form):
    """Put functions of q itself together, each differenced if it has no derivatives."""
    import numba as nb

    rows = _row_views(form)
    nothing = nb.njit(**OPTIONS)(lambda q, g: 0.0)
    prior, differenced_prior = _with_and_without(log_prior, 2)
    prior = prior or (differenced(differenced_prior, OPTIONS) if differenced_prior else nothing)
    likelihood, differenced_likelihood = _with_and_without(log_likelihood, 3)
    likelihood = likelihood or differenced(differenced_likelihood, OPTIONS)

    @nb.njit(**OPTIONS, forceinline=True)
    def both(q, g, data, meta):
        for i in range(len(g)):
            g[i] = 0.0
        logp = data[0] * prior(q, g)
        for i in range(len(g)):
            g[i] *= data[0]
        return logp + likelihood(q, rows(data, meta), g)

    return guarded(both, -2)


def _with_and_without(function, n):
    """A function with derivatives, which takes n arguments, and one without; None for the other."""
    if function is None:
        return None, None
    return (function, None) if count_arguments(function) == n else (None, function)


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
class PythonModel(_LaidOut, PythonCalls):
    """A model of Python functions."""

    layout: Any = None

    def without_data(self):
        """Return the model without its function, which holds the data."""
        return replace(self, function=None)

    def identity(self):
        """All that the density depends on, for digests."""
        both = self.function
        functions = fingerprint((both.log_likelihood, both.log_prior))
        return functions, both.data, both.power, *self.layout.tables, self.layout.form, self.names, self.start
