"""The log-likelihood of each observation under each draw, from a user's log likelihood of all."""

import numpy as np

from ....errors import DataError, shortened
from ..posterior.draws import NotKept
from ..shards.rows import count_rows
from .autodiff import Autodiff
from .called import count_arguments, is_compiled, value_at
from .row_sums import NotASum

_TOLERANCE = 1e-6  # of the log likelihood, in parts of its size
_REMEDY = (
    "give to_arviz(log_likelihood=) a function of the draws by name instead, which returns an array "
    "(draws, observations)"
)


class SiteLikelihoods(NotKept):
    """Observed values of another library's model: likelihoods, new values and the values themselves, by name.

    `functions` are those of the adapter, `data` its rows.
    """

    def __init__(self, functions, data):
        self.functions, self.data = functions, data

    def by_name(self, values):
        """Log-likelihoods ``(draws, *shape)`` of each observation, for draws by name."""
        found = self.functions.pointwise(values, self.data)
        for name, part in found.items():
            if not np.isfinite(part).all():
                raise DataError(f"the log-likelihood of {name} is not finite under a draw")
        return found

    def __call__(self, values):
        """The same of all, one after another: (draws, observations)."""
        return np.concatenate([part.reshape(len(part), -1) for part in self.by_name(values).values()], axis=1)

    def observations(self, values, seed):
        """New values ``(draws, *shape)`` by name."""
        return self.functions.predictions(values, self.data, seed)

    @property
    def observed(self):
        """The values that were observed, by name; None where that is not known."""
        return self.functions.observed(self.data)


class RowLikelihoods(NotKept):
    """``(values) -> (draws, observations)`` for a dict of draws by name, as `Posterior` takes it.

    A row is given to the function alone, as data of length one. That the function is a sum over rows, up to a
    constant, is checked at every draw. `layout` is that of the parameters.

    A function need not be one that pickle takes.
    """

    def __init__(self, log_likelihood, layout, data):
        self.function = log_likelihood.function if isinstance(log_likelihood, Autodiff) else log_likelihood
        self.tensors = log_likelihood if isinstance(log_likelihood, Autodiff) else None
        self.layout, self.data = layout, data

    def __call__(self, values):
        """Log-likelihoods (draws, observations)."""
        flat = np.concatenate([v.reshape(len(v), -1) for v in values.values()], axis=1)
        points, compiled = self.layout.all_named(flat), is_compiled(self.function)
        data = self.layout.rows(self.data) if compiled else _as_arrays(self.data)
        _check_lengths(data)
        n, each = count_rows(data), self._by_row(data, compiled)
        out, totals = np.empty((len(points), n)), np.empty(len(points))
        for p, row in zip(points, out, strict=True):
            each(p, row)
        for k, p in enumerate(points):
            totals[k] = self._value(p, data)
        self._check(totals, out)
        return out

    def _value(self, p, data):
        return value_at(self.tensors or self.function, p, data, self.layout.slots())

    def _by_row(self, data, compiled):
        """A function that fills the log-likelihoods of all rows at p."""
        if compiled:
            loop = _loop_over(self.function, len(data) if isinstance(data, tuple) else 0)
            return lambda p, out: loop(p, data, self.layout.slots(), out)
        rows = [_row(data, i) for i in range(count_rows(data))]

        def each(p, out):
            for i, row in enumerate(rows):
                out[i] = self._value(p, row)

        return each

    @staticmethod
    def _check(totals, out):
        with np.errstate(invalid="ignore"):
            apart = totals - out.sum(axis=1)
        if not np.isfinite(apart).all():
            raise DataError(
                "the log-likelihood of a single row is not finite under a draw: is it defined for one row? "
                f"If not, {_REMEDY}"
            )
        if np.ptp(apart) > _TOLERANCE * (1 + np.abs(totals).max()):
            raise NotASum(
                "log_likelihood is no sum over rows: those of single rows, as data of length one, do not "
                f"add up to that of all rows; {_REMEDY}"
            )


def _check_lengths(data):
    """Refuse parts of several lengths: compiled functions would read beyond the ends of single rows."""
    sizes = [len(part) for part in data] if isinstance(data, tuple) else []
    if len(set(sizes)) > 1:
        raise NotASum(
            f"log_likelihood is no sum over rows: the arrays of data have the lengths {shortened(sizes)}; "
            f"{_REMEDY}"
        )


def _row(data, i):
    return tuple(part[i : i + 1] for part in data) if isinstance(data, tuple) else data[i : i + 1]


def _as_arrays(data):
    return tuple(map(np.asarray, data)) if isinstance(data, tuple) else np.asarray(data)


def _loop_over(function, n_parts):
    """Compile the loop over rows, for data that are a tuple of so many arrays, or (0) one array."""
    import numba as nb

    if n_parts:
        one = nb.njit(lambda data, i: ())
        for j in range(n_parts):
            one = _next_part(nb, one, j)
    else:
        one = nb.njit(lambda data, i: data[i : i + 1])
    if count_arguments(function) == 3:
        value = function
    else:
        value = nb.njit(lambda p, row, g: function(p, row))
    first = nb.njit((lambda data: data[0]) if n_parts else (lambda data: data))

    @nb.njit
    def loop(p, data, g, out):
        for i in range(len(first(data))):
            out[i] = value(p, one(data, i), g)

    return loop


def _next_part(nb, before, j):
    return nb.njit(lambda data, i: (*before(data, i), data[j][i : i + 1]))
