"""Values that follow from the parameters, kept with their draws: what Stan calls generated quantities."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ...inputs.matrices import check_takes
from ..posterior.draws import Posterior


@dataclass(frozen=True, eq=False)
class Deterministic:
    """A user's function of the parameters, and the shapes of what it returns.

    `layout` is that of named parameters, None for a vector.
    """

    function: Any
    layout: Any
    shapes: dict[str, tuple]

    @classmethod
    def of(cls, function, layout, start, taken):
        """Examine the function at the start (d,) of the chains; `taken` are the names of the parameters."""
        if not callable(function):
            raise DataError(f"deterministic must be a function, got {shortened(function, 60)}")
        check_takes("deterministic", function, "q" if layout is None else "p")
        start = np.array(start, dtype=np.float64)
        values = start if layout is None else layout.values(start[None])[0]
        made = cls(function, layout, {})
        found = made.values(values, first=True)
        for name in found:
            if name in taken:
                raise DataError(f"deterministic returns {shortened(name)}, which is a parameter: rename it")
        return cls(function, layout, {name: value.shape for name, value in found.items()})

    def values(self, values, first=False):
        """What the function returns for values of the parameters, checked."""
        return self._at(values.copy() if self.layout is None else self.layout.named(values.copy()), first)

    def _at(self, point, first=False):
        try:
            found = self.function(point)
        except Exception as error:
            raise DataError(
                f"deterministic fails at {shortened(point, 80)}: {type(error).__name__}: "
                f"{in_brief(str(error), 100)}"
            ) from error
        if not isinstance(found, Mapping) or not found or not all(isinstance(name, str) for name in found):
            raise DataError(
                f"deterministic must return a dict of numbers by name, got {shortened(found, 60)}"
            )
        try:
            arrays = {name: np.asarray(value, np.float64) for name, value in found.items()}
        except (TypeError, ValueError) as error:
            raise DataError(f"deterministic must return numbers: {in_brief(str(error), 100)}") from error
        shapes = {name: value.shape for name, value in arrays.items()}
        if not first and shapes != self.shapes:
            raise DataError(f"deterministic returns the shapes {shapes}, at the start it was {self.shapes}")
        if first:
            _check_finite(arrays, point)
        return arrays

    def added_to(self, posterior):
        """A `Posterior` with these values as more columns."""
        points = posterior.draws.copy() if self.layout is None else self.layout.all_named(posterior.draws)
        rows = np.empty((len(posterior.draws), sum(math.prod(shape) for shape in self.shapes.values())))
        for row, point in zip(rows, points, strict=True):
            found, first = self._at(point), 0
            for name, shape in self.shapes.items():
                row[first : (first := first + math.prod(shape))] = found[name].reshape(-1)
        for i in np.flatnonzero(~np.isfinite(rows).all(axis=1)):
            _check_finite(self._at(points[i]), points[i])
        variables = {name: posterior.labels.get(name, shape) for name, shape in posterior.variables.items()}
        return Posterior(
            np.hstack([posterior.draws, rows]),
            variables | self.shapes,
            log_weights=posterior.log_weights,
            n_chains=posterior.n_chains,
            shard_draws=posterior.shard_draws,
            diagnostics=posterior.diagnostics,
            method=posterior.method,
            log_likelihood=posterior._log_likelihood,
            statistics=posterior.statistics,
        )


def _check_finite(arrays, point):
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise DataError(f"deterministic returns {name}={shortened(value, 40)} at {shortened(point, 80)}")
