"""Values that follow from the parameters, kept with their draws: what Stan calls generated quantities."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ...inputs.matrices import check_takes
from .failures import is_of_the_domain

_SHIFTS = (0.1, -0.2, 0.0)  # of the start, where a quotient of parameters may have no value


@dataclass(frozen=True, eq=False)
class Deterministic:
    """A user's function of the parameters of a layout, and the shapes of what it returns."""

    function: Any
    layout: Any
    shapes: dict[str, tuple]

    @classmethod
    def of(cls, function, layout, start):
        """Examine the function at the start (d,) of the chains, or near by where it has no values there."""
        if not callable(function):
            raise DataError(f"deterministic must be a function, got {shortened(function, 60)}")
        check_takes("deterministic", function, layout.letter)
        made = cls(function, layout, {})
        for shift in _SHIFTS:
            point = np.array(start, dtype=np.float64) + shift
            try:
                found = made._at(layout.at(point), first=True)
                break
            except DataError as error:
                if shift == _SHIFTS[-1] or not is_of_the_domain(error.__cause__ or ArithmeticError()):
                    raise
        for name in found:
            if name in layout.variables:
                raise DataError(f"deterministic returns {shortened(name)}, which is a parameter: rename it")
        return cls(function, layout, {name: value.shape for name, value in found.items()})

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

    def added_to(self, values):
        """Values of draws (n, columns), with these as more columns."""
        points = self.layout.all_named(values)
        rows = np.empty((len(values), sum(math.prod(shape) for shape in self.shapes.values())))
        for row, point in zip(rows, points, strict=True):
            found, first = self._at(point), 0
            for name, shape in self.shapes.items():
                row[first : (first := first + math.prod(shape))] = found[name].reshape(-1)
        for i in np.flatnonzero(~np.isfinite(rows).all(axis=1)):
            _check_finite(self._at(points[i]), points[i])
        return np.hstack([values, rows])


def _check_finite(arrays, point):
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise DataError(f"deterministic returns {name}={shortened(value, 40)} at {shortened(point, 80)}")
