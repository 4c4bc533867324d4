"""Named parameters in one vector: names, places, start, and the tables that compiled code reads."""

import keyword
import math
import unicodedata
from collections import namedtuple
from collections.abc import Mapping
from functools import cached_property, lru_cache

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes import transforms
from ....kernels.bayes.densities import parameter_priors as codes
from ..parameters import NamedParameter
from ..posterior.tables import as_floats, by_name
from .prior_density import PriorDensity, inverse_root

_FIRST_REAL = 1  # in the data of a model, whose first number is the power of the prior
_SCALES = ("sd", "scale", "rate")  # arguments that must be positive
_MOVED = (transforms.SIMPLEX, transforms.ORDERED, transforms.TRIANGLE)  # values mix several numbers


@lru_cache(maxsize=64)
def values_type(names):
    """Make the named tuple of values; one type for the same names, for which functions are compiled once."""
    return namedtuple("Parameters", names)


class NamedLayout:
    """Where named parameters and their priors are in vectors q, values and tables.

    `parameters` maps names to `NamedParameter`, `priors` names to `PriorDensity`. Raises a DataError that
    names the parameter whose name, support, prior or argument is wrong.
    """

    def __init__(self, parameters, priors=None):
        self.parameters = _checked_parameters(parameters)
        self.priors = _checked_priors(priors, self.parameters)

    letter, needed = "p", ()  # of functions: their first argument, and those that may not be None

    @property
    def variables(self):
        """Names and shapes of the values."""
        return {name: one.shape for name, one in self.parameters.items()}

    @property
    def names(self):
        """Names of the entries of q."""
        return tuple(n for name, one in self.parameters.items() for n in one.free_names(name))

    @property
    def n_values(self):
        """How many values there are."""
        return sum(one.n_values for one in self.parameters.values())

    @property
    def n_free(self):
        """How many unconstrained numbers there are."""
        return sum(one.n_free for one in self.parameters.values())

    @property
    def form(self):
        """Names and shapes, which compiled functions depend on."""
        return tuple(self.variables.items())

    def named(self, values):
        """Return values (n_values,) by name, as functions get them: numbers, vectors, matrices."""
        split = by_name(self.variables, values)
        kind = values_type(tuple(split))
        return kind(*(float(v) if v.ndim == 0 else np.ascontiguousarray(v) for v in split.values()))

    def at(self, q):
        """Return the values at q (d,), as functions get them."""
        return self.named(self.values(q[None])[0])

    def flat(self, gradient, what):
        """Return derivatives that a function (`what`) gave by name, one after the other; checked."""
        variables = self.variables
        if not isinstance(gradient, (Mapping, tuple, list)) or len(gradient) != len(variables):
            raise DataError(
                f"the gradient of {what} must be a dict with an array for each of {', '.join(variables)}, "
                f"got {shortened(gradient, 60)}"
            )
        parts = []
        for i, (name, shape) in enumerate(variables.items()):
            if isinstance(gradient, Mapping) and name not in gradient:
                raise DataError(f"the gradient of {what} lacks {name!r}: give zeros, or no gradient")
            part = np.asarray(gradient[name if isinstance(gradient, Mapping) else i], dtype=np.float64)
            if part.shape != shape:
                raise DataError(
                    f"the gradient of {what} for {name!r} has the shape {part.shape}, the parameter {shape}"
                )
            parts.append(part.ravel())
        return np.concatenate(parts)

    def all_named(self, draws):
        """Return values (K, n_values) as a list of K tuples as `named`; the arrays are copies."""
        split = by_name(self.variables, draws)
        kind = values_type(tuple(split))
        columns = [v.tolist() if v.ndim == 1 else list(np.array(v, order="C")) for v in split.values()]
        return [kind(*point) for point in zip(*columns, strict=True)]

    def slots(self):
        """Zeros for the derivatives in the values: arrays by name, of one entry for a number."""
        kind = values_type(tuple(self.variables))
        return kind(*(np.zeros(shape or 1) for shape in self.variables.values()))

    def rows(self, data):
        """Return data as compiled functions get them: arrays of floats or integers, or a tuple of these."""
        if isinstance(data, tuple):
            return tuple(_as_array(part, f"data[{i}]") for i, part in enumerate(data))
        return _as_array(data, "data")

    def start(self, given=None):
        """Return the point q (d,) of values by name; other parameters begin at zero in q."""
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise DataError(
                f"start must be a dict of values by name, with parameters=, got {shortened(given, 60)}"
            )
        unknown = [name for name in given if name not in self.parameters]
        if unknown:
            raise DataError(
                f"start has {shortened(unknown[0])}, but parameters are {', '.join(self.parameters)}"
            )
        parts = []
        for name, one in self.parameters.items():
            if name in given:
                parts.append(one.free(name, given[name]))
            elif name in self.priors and self.priors[name].references():
                # All equal to their mean, they would allow a spread of zero.
                parts.append(np.where(np.arange(one.n_free) % 2, -1.0, 1.0))
            else:
                parts.append(np.zeros(one.n_free))
        return np.concatenate(parts)

    @cached_property
    def tables(self):
        """Integers and reals of the rows of parameters and priors, for places as in `data` of a model."""
        rows, reals = [], []
        places, q, theta = {}, 0, 0

        def real(values):
            reals.extend(np.ravel(values).tolist())
            return _FIRST_REAL + len(reals) - np.size(values)

        for name, one in self.parameters.items():
            places[name] = theta
            constants = real(one.reals) if one.reals else _FIRST_REAL
            rows.append([one.kind, q, theta, one.n_copies, one.size, constants])
            q, theta = q + one.n_free, theta + one.n_values
        for name, prior in self.priors.items():
            one = self.parameters[name]
            count, size, arguments = one.n_values, 1, []
            if prior.code == codes.POWERS:
                values = prior.powers(one)
                count, size, arguments = one.n_values // len(values), len(values), [(-1 - real(values), 1)]
            elif prior.code == codes.MULTIVARIATE:
                (_, mean), (_, covariance) = prior.arguments
                size = len(mean)
                count = one.n_values // size
                arguments = [(-1 - real(mean), 1), (-1 - real(inverse_root(covariance)), 1)]
            else:
                for _, value in prior.arguments:
                    if isinstance(value, str):
                        arguments.append((places[value], int(self.parameters[value].n_values > 1)))
                    else:
                        value = np.broadcast_to(value, one.shape) if value.ndim else value
                        arguments.append((-1 - real(value), int(value.ndim > 0)))
            constant = real(prior.log_constant(one))
            arguments += [(-1 - constant, 0)] * (3 - len(arguments))
            rows.append([prior.code, places[name], count, size, constant, *np.ravel(arguments)])
        counts = [len(self.parameters), len(self.priors)]
        integers = np.array([*counts, *(int(n) for row in rows for n in row)], dtype=np.int64)
        return integers, np.array(reals, dtype=np.float64)

    def values(self, Q):
        """Values (K, n_values) of points Q (K, d)."""
        integers, reals = self.tables
        return transforms.transform_all(Q, self.n_values, np.append(1.0, reals), integers, 0)

    @cached_property
    def watched(self):
        """Columns of values that depend on several entries of q.

        Chains that agree on each entry of q may still differ on these.
        """
        columns, first = [], 0
        for one in self.parameters.values():
            entries = np.arange(one.n_values)
            if one.kind == transforms.TRIANGLE:
                k = one.size
                entries = entries[(entries // k) % k >= np.maximum(entries % k, 1)]
            elif one.kind == transforms.ORDERED:
                entries = entries[entries % one.size > 0]
            if one.kind in _MOVED:
                columns += (first + entries).tolist()
            first += one.n_values
        return np.array(columns, dtype=np.int64)


def _checked_parameters(parameters):
    if not isinstance(parameters, Mapping) or not parameters:
        raise DataError(
            "parameters must be a dict of names to real(), positive() and so on, with one entry or more, got "
            f"{shortened(parameters, 60)}"
        )
    for name, one in parameters.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name[0] == "_":
            raise DataError(
                f"parameters: {shortened(name)} cannot be a name, for functions take p.name: take letters, "
                "digits and underscores, and no word of Python"
            )
        if unicodedata.normalize("NFKC", name) != name:  # as Python reads names in code
            raise DataError(
                f"parameters: {name!r} cannot be a name, since Python reads p.{name} as "
                f"p.{unicodedata.normalize('NFKC', name)}: take {unicodedata.normalize('NFKC', name)!r}"
            )
        if not isinstance(one, NamedParameter):
            raise DataError(
                f"parameters[{name!r}] must be one of real(), positive(), unit(), interval(), simplex(), "
                f"ordered() and cholesky(), got {shortened(one, 60)}"
            )
    return dict(parameters)


def _checked_priors(priors, parameters):
    priors = {} if priors is None else priors
    if not isinstance(priors, Mapping):
        raise DataError(f"priors must be a dict of names to densities of priors, got {shortened(priors, 60)}")
    for name, prior in priors.items():
        if name not in parameters:
            raise DataError(f"priors has {shortened(name)}, but parameters are {', '.join(parameters)}")
        if not isinstance(prior, PriorDensity):
            raise DataError(
                f"priors[{name!r}] must be a density such as priors.normal(0, 1), got {shortened(prior, 60)}"
            )
        prior.check(name, parameters[name])
        for what, value in prior.arguments:
            if isinstance(value, str):
                _check_reference(name, what, value, parameters)
            elif prior.is_by_entry and value.ndim and value.shape != parameters[name].shape:
                raise DataError(
                    f"priors[{name!r}]: {what} has the shape {value.shape}, but {name} has "
                    f"{parameters[name].shape}: give one number, or one for each value"
                )
        _check_cut(name, prior, parameters)
    _check_order(priors)
    return dict(priors)


def _check_reference(name, what, other, parameters):
    if other not in parameters:
        raise DataError(f"priors[{name!r}]: {what} is {other!r}, but parameters are {', '.join(parameters)}")
    one = parameters[other]
    if one.shape and one.shape != parameters[name].shape:
        raise DataError(
            f"priors[{name!r}]: {what} is {other!r} of the shape {one.shape}, but {name} has "
            f"{parameters[name].shape}: it must be one number, or of the same shape"
        )
    if what in _SCALES and not one.low >= 0:
        raise DataError(f"priors[{name!r}]: {what} is {other!r}, which may be negative: take positive()")


def _check_cut(name, prior, parameters):
    """Refuse a prior whose part within the parameter's support depends on other parameters.

    That part would belong to the density: without it the prior of those parameters is another one.
    """
    one, references = parameters[name], prior.references()
    values = [value for _, value in prior.arguments if not isinstance(value, str)]
    own = -math.inf if prior.support == "any" else 0.0
    bounds = [bound for bound in (one.low, one.high) if math.isfinite(bound) and bound > own]
    _, middle = prior.arguments[0]
    symmetric = prior.support == "any" and not isinstance(middle, str)  # half of it is on either side
    kept = not bounds or (symmetric and len(bounds) == 1 and bool((middle == bounds[0]).all()))
    if one.kind == transforms.ORDERED:  # of k numbers of one density a k!-th part is in order
        kept &= all(value.ndim == 0 for value in values)
        kept &= not any(parameters[other].shape for other in references)
    if references and not kept:
        raise DataError(
            f"priors[{name!r}] is {prior}, but {name} is {one.words}: how much of the density lies there "
            f"depends on {' and '.join(references)}, and stradask does not divide by it: give numbers, or "
            f"leave {name} out of priors and add its density, divided by that part, in log_prior(p)"
        )


def _check_order(priors):
    """Refuse priors that depend on each other in a circle."""
    done: set = set()
    left = {name: set(prior.references()) & set(priors) for name, prior in priors.items()}
    while left:
        ready = [name for name, others in left.items() if others <= done]
        if not ready:
            raise DataError(f"priors of {', '.join(left)} depend on each other in a circle")
        done.update(ready)
        left = {name: others for name, others in left.items() if name not in done}


def _as_array(part, what):
    array = np.asarray(part)
    whole = array.dtype.kind in "biu"
    if array.ndim < 1:
        raise DataError(f"{what} must be an array, got {shortened(part)}: let the function refer to a number")
    if whole and array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise DataError(f"{what} holds {array.max()}, beyond 64-bit integers: give floats")
    if whole:
        return np.ascontiguousarray(array, dtype=np.int64)
    return as_floats(f"{what} of a compiled log_likelihood must be an array of numbers", array)
