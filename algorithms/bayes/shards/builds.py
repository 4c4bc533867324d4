"""How a shard's model is made where it is worked on, and models of subsets of its rows."""

from copy import copy
from dataclasses import dataclass
from typing import Any

from ....scheduler.threads import single_threaded_blas
from ...inputs.pieces import located
from ..models.autodiff import own_data
from ..models.groups import find_groups
from ..models.model import regression
from .rows import Part, count_rows, some_rows, taken_rows
from .sources import Source, columns_of
from .subsets import subsets_of


class _OfArrays:
    """Makes a regression of a family and arrays by name; for `options` see `regression`."""

    options: dict

    def _family_and_arrays(self):
        raise NotImplementedError

    def __call__(self):
        """Make the model."""
        family, arrays = self._family_and_arrays()
        return _model(family, arrays, self.options)

    def with_parts(self):
        """Make the model, and those of subsets of the rows; none where rows cost nothing or are no sum."""
        family, arrays = self._family_and_arrays()

        def of_subset(rows, share):
            some = {name: value[rows] for name, value in arrays.items()}
            return _model(family, some, self.options | {"power": self.options["power"] * share})

        n = 0 if family == "normal" or "groups" in arrays else len(arrays["y"])
        return _model(family, arrays, self.options), _of_subsets(n, of_subset)


@dataclass(frozen=True, eq=False)
class RegressionBuild(_OfArrays):
    """A regression of rows: `parts` are a `Part` of X, y and so on by name."""

    family: str
    parts: dict[str, Part]
    options: dict

    def _family_and_arrays(self):
        return self.family, {name: part.take() for name, part in self.parts.items()}


@dataclass(frozen=True, eq=False)
class SourceBuild(_OfArrays):
    """A regression of the rows of a source, read by the checks of `blank`, a model that is not fitted.

    `scaling` is that of the columns of all shards, `groups` are the labels of their groups, and `classes` the
    two of all, sorted.
    """

    blank: Any
    source: Any
    options: dict
    scaling: Any
    groups: Any = None
    classes: Any = None

    @property
    def workers(self):
        """The Dask workers that alone may read the rows; () for any."""
        return self.source.workers

    def _family_and_arrays(self):
        arrays, _ = columns_of(self.source)
        blank = copy(self.blank)  # it keeps what it sees, and others look through it at the same time
        blank._all_classes = self.classes
        X, y, rest = blank._checked(**arrays)
        X, _ = blank._with_intercept(X, self.scaling, rest)
        if self.groups is not None:
            rest["groups"] = find_groups(rest["groups"], self.groups)
        arrays = {"X": X, "y": y} | {name: value for name, value in rest.items() if value is not None}
        return blank._family, arrays


@dataclass(frozen=True, eq=False)
class UserBuild:
    """A user's density of some rows, by ``make(log_likelihood, log_prior, rows, start, power=)``.

    `is_sum` says that the likelihood is known to be a sum over rows.
    """

    make: Any
    log_likelihood: Any
    log_prior: Any
    data: Any
    start: Any
    power: float
    is_sum: bool

    @property
    def workers(self):
        """The Dask workers that alone may read the rows; () for any."""
        return self.data.workers if isinstance(self.data, Source) else ()

    def __call__(self):
        """Make the model."""
        return self._of(self.data.take() if isinstance(self.data, Source) else taken_rows(self.data))

    def with_parts(self):
        """Make the model, and those of subsets of the rows."""
        if not self.is_sum:
            return self(), []
        rows = taken_rows(self.data)

        def of_subset(chosen, share):
            return self._of(taken_rows(some_rows(rows, chosen)), power=self.power * share, check=False)

        return self._of(rows), _of_subsets(count_rows(rows), of_subset)

    def _of(self, rows, **given):
        functions = own_data(self.log_likelihood), own_data(self.log_prior)
        options = {"power": self.power} | given
        if not isinstance(self.data, Source):
            return self.make(*functions, rows, self.start, **options)
        with located(self.data):
            return self.make(*functions, rows, self.start, **options)


def _model(family, arrays, options):
    with single_threaded_blas():
        return regression(family, **arrays, **options)


def _of_subsets(n, make):
    """Models of subsets of n rows by ``make(rows, share)``, and factors of their log densities."""
    shares = [(rows, len(rows) / n) for rows in subsets_of(n)]
    return [(make(rows, share), 1 / share) for rows, share in shares]
