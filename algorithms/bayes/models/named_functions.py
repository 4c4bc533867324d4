"""Log density and gradient of a user's Python functions of named parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.densities import parameter_priors
from .called import differences
from .density import one_number

HEAD = 2  # numbers of meta before the rows: place of the layout, number of values


def _called(function, p, arguments):
    """Call a density of the caller's."""
    try:
        return function(p, *arguments)
    except TypeError as error:
        if "tuple indices" in str(error):
            error.add_note(f"parameters are attributes of the first argument: p.{p._fields[0]}")
        raise


@dataclass(frozen=True, eq=False)
class NamedFunctions:
    """Log density and gradient in q of Python functions of named values."""

    layout: Any
    log_likelihood: Any
    log_prior: Any
    data: Any
    power: float

    def __call__(self, q):
        """Log density and gradient at q (d,)."""
        n, (table, reals) = self.layout.n_values, self.layout.tables
        numbers, places = np.append(self.power, reals), np.concatenate([[HEAD, n], table])
        work = np.zeros(4 * n + len(q))
        logp = parameter_priors.begin(q, work, numbers, places)
        p, slope, gradient = self.layout.named(work[:n]), work[2 * n : 3 * n], work[4 * n :]
        for what, function, arguments, weight in (
            ("log_prior", self.log_prior, (), self.power),
            ("log_likelihood", self.log_likelihood, (self.data,), 1.0),
        ):
            if function is None:
                continue
            made = _called(function, p, arguments)
            if isinstance(made, tuple):
                if len(made) != 2:
                    raise DataError(
                        f"{what} must return a number or (value, gradient), got a tuple of {len(made)}"
                    )
                slope += weight * self._slope(made[1], what)
                made = made[0]
            else:
                value = self._value_at(function, arguments, what)
                gradient += weight * differences(value, q)
            logp += weight * one_number(made, what)
        parameter_priors.end(q, work, numbers, places)
        return logp, gradient

    def made_at(self, q):
        """What the functions return at q."""
        p = self.layout.named(self.layout.values(q[None])[0])
        given = ((self.log_prior, ()), (self.log_likelihood, (self.data,)))
        return [function(p, *arguments) for function, arguments in given if function is not None]

    def _value_at(self, function, arguments, what):
        def value(q):
            return one_number(function(self.layout.named(self.layout.values(q[None])[0]), *arguments), what)

        return value

    def _slope(self, gradient, what):
        """Derivatives in the values, one after the other."""
        variables = self.layout.variables
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
