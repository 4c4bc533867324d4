"""Shared by both families of logistic regressions: penalties by C, and changes of a data set."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.preprocessing import normalize

from ...errors import DataError


@dataclass(frozen=True)
class Choice:
    """Changes of the rows and labels of a data set.

    `unit_rows` brings every row to the norm 1, as is usual for the counts of words; `one_class` makes two
    classes of many: that one, a number from 0 in the order of the labels, and the rest.
    """

    unit_rows: bool
    one_class: int | None

    defaults: ClassVar[dict[str, Any]] = {"unit_rows": False, "one_class": None}

    @classmethod
    def of(cls, parameters):
        """Read and check the parameters of a run."""
        if not isinstance(parameters["unit_rows"], bool):
            raise DataError(f"--param: unit_rows is {parameters['unit_rows']!r}; give True or False")
        return cls(parameters["unit_rows"], parameters["one_class"])

    def made_of(self, X, y):
        """Return the design (dense, or CSC) and the labels."""
        if self.one_class is not None:
            y = against_the_rest(y, self.one_class)
        if self.unit_rows:
            X = normalize(X) if isinstance(X, np.ndarray) else normalize(X).tocsc()
        return X, y

    def named(self, name):
        """Return the name of a data set with its changes."""
        name += "" if self.one_class is None else f", class {self.one_class} or not"
        return name + (", unit rows" if self.unit_rows else "")


def against_the_rest(y, one_class):
    """Return labels 1 for one class of several, and -1 for the others."""
    n_classes = len(np.unique(y))
    sound = isinstance(one_class, int) and not isinstance(one_class, bool) and 0 <= one_class < n_classes
    if not sound or n_classes < 3:
        raise DataError(
            f"--param: one_class is {one_class!r}; a number from 0 to {n_classes - 1} is needed, and data of "
            "more than two classes"
        )
    return np.where(y == one_class, 1.0, -1.0)


def checked_cs(values):
    """Return one C or several as a sequence; DataError for a value that is no C."""
    values = values if isinstance(values, tuple | list) else (values,)
    for C in values:
        if isinstance(C, bool) or not isinstance(C, Real) or not 0 < float(C) < math.inf:
            raise DataError(f"--param: C is {C!r}; numbers above 0 are needed, such as C=0.1,1,100")
    return values
