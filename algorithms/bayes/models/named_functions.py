"""Log density and gradient of a user's Python functions of named parameters, or of a vector."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ....errors import DataError
from ....kernels.bayes.densities import parameter_priors
from .called import differences, one_number

HEAD = 2  # numbers of meta before the rows: place of the layout, number of values


@dataclass(frozen=True, eq=False)
class NamedFunctions:
    """Log density and gradient in q of Python functions of the values of a layout."""

    layout: Any
    log_likelihood: Any
    log_prior: Any
    data: Any
    power: float

    def __call__(self, q):
        """Log density and gradient at q (d,)."""
        if self.layout.form is None:
            gradient = np.zeros(len(q))
            return self._add_functions(0.0, q, q, gradient, gradient), gradient
        n, (table, reals) = self.layout.n_values, self.layout.tables
        numbers, places = np.append(self.power, reals), np.concatenate([[HEAD, n], table])
        work = np.zeros(4 * n + len(q))
        logp = parameter_priors.begin(q, work, numbers, places)
        p, slope, gradient = self.layout.named(work[:n]), work[2 * n : 3 * n], work[4 * n :]
        logp = self._add_functions(logp, p, q, slope, gradient)
        parameter_priors.end(q, work, numbers, places)
        return logp, gradient

    def _add_functions(self, logp, p, q, slope, gradient):
        """Add the functions at p to logp, which is returned, and derivatives in the values or in q."""
        for what, function, arguments, weight in self._weighed:
            try:
                made = function(p, *arguments)
            except TypeError as error:
                if "tuple indices" in str(error):
                    error.add_note(f"parameters are attributes of the first argument: p.{p._fields[0]}")
                raise
            if isinstance(made, tuple):
                if len(made) != 2:
                    raise DataError(
                        f"{what} must return a number or (value, gradient), got a tuple of {len(made)}"
                    )
                made, part = made[0], self.layout.flat(made[1], what)
                slope += part if weight == 1.0 else weight * part
            else:
                gradient += weight * differences(partial(self._value, function, arguments, what), q)
            logp += weight * one_number(made, what)
        return logp

    def _value(self, function, arguments, what, q):
        return one_number(function(self.layout.at(q), *arguments), what)

    def made_at(self, q):
        """What the functions return at q."""
        return [function(self.layout.at(q), *rest) for _, function, rest, _ in self._weighed]

    @cached_property
    def _weighed(self):
        """Names of the functions that there are, these, their further arguments, and their powers."""
        both = (
            ("log_prior", self.log_prior, (), self.power),
            ("log_likelihood", self.log_likelihood, (self.data,), 1.0),
        )
        return [one for one in both if one[1] is not None]
