"""Names, shapes and checks of the arrays of a `Posterior`, and the table that it prints."""

import math

import numpy as np

from ...._html import table as html_table
from ....errors import DataError, StradaskError, in_brief, shortened


class Table:
    """Columns of equal length with named rows; `note` is a line below the table.

    >>> from stradask.algorithms.bayes.posterior.tables import Table
    >>> table = Table(["a", "b"], {"mean": [1.0, 20.5], "draws": [3, 4]})
    >>> table
       mean  draws
    a  1.00      3
    b  20.5      4
    >>> table["mean"], table.row("b")
    (array([ 1. , 20.5]), {'mean': 20.5, 'draws': 4})
    """

    def __init__(self, rows, columns, note=""):
        self.rows = [str(row) for row in rows]
        self.columns = {name: np.asarray(values) for name, values in columns.items()}
        self.note = note
        for name, values in self.columns.items():
            if values.shape != (len(self.rows),):
                raise DataError(
                    f"the column {shortened(name)} has the shape {values.shape}, the table {len(self.rows)} "
                    "rows"
                )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, name):
        if name not in self.columns:
            raise DataError(f"there is no column {shortened(name)}; there are {', '.join(self.columns)}")
        return self.columns[name]

    def row(self, name):
        """Return a row as a dict of plain values."""
        if name not in self.rows:
            raise DataError(f"there is no row {shortened(name)}; the first are {', '.join(self.rows[:5])}")
        i = self.rows.index(name)
        return {column: values[i].item() for column, values in self.columns.items()}

    def to_pandas(self):
        """Return a pandas DataFrame with the rows' names as its index."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise StradaskError(
                "to_pandas needs pandas, which is not installed: pip install pandas"
            ) from error
        return pd.DataFrame(self.columns, index=self.rows)

    def __repr__(self):
        left = [name for name, values in self.columns.items() if values.dtype.kind not in "fiub"]
        cells = [[name, *map(_shown, values)] for name, values in self.columns.items()]
        widths = [max(map(len, column)) for column in cells]
        names = max([len(row) for row in self.rows], default=0)
        lines = []
        for i in range(len(self.rows) + 1):
            line = (self.rows[i - 1] if i else "").ljust(names)
            for column, width in zip(cells, widths, strict=True):
                cell = column[i]
                line += "  " + (cell.ljust(width) if column[0] in left else cell.rjust(width))
            lines.append(line.rstrip())
        return "\n".join(lines + [self.note] * bool(self.note))

    def _repr_html_(self):
        """What a notebook shows."""
        texts = [k for k, values in enumerate(self.columns.values(), 1) if values.dtype.kind not in "fiub"]
        shown = [list(map(_shown, values)) for values in self.columns.values()]
        rows = zip(self.rows, *shown, strict=True)
        return html_table(["", *self.columns], rows, self.note, [0, *texts])


def _shown(value):
    """Three figures, or all before the point up to a million; integers and text as they are."""
    if isinstance(value, (float, np.floating)):
        value = float(value)
        if np.isnan(value):
            return ""
        if 999.5 <= abs(value) < 1e6:
            return f"{value:.0f}"
        return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.3g}"
    return str(value)


def finite(name, values, ndim):
    """Check an array of finite numbers with so many axes, none of length 0."""
    try:
        array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array of numbers: {in_brief(error)}") from error
    if array.ndim != ndim or not array.size:
        raise DataError(f"{name} must have {ndim} dimensions, none of length 0, got the shape {array.shape}")
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{name} holds {array[place]} at {place}: every draw must be finite")
    return array


def checked_variables(variables, d):
    """Check names and shapes of variables, which have d entries in all."""
    checked = {}
    for name, shape in variables.items():
        sides = tuple(int(side) for side in shape)
        if not isinstance(name, str) or not name or any(side < 1 for side in sides):
            raise DataError(
                f"variables must map names to shapes of positive sides, got {shortened(name)}: "
                f"{shortened(shape)}"
            )
        checked[name] = sides
    total = sum(math.prod(shape) for shape in checked.values())
    if total != d:
        raise DataError(f"the variables {checked} have {total} parameters in all, the draws {d}")
    return checked


def is_text(shape):
    """Whether a shape is the names of a vector's entries."""
    return len(shape) > 0 and all(isinstance(entry, str) for entry in shape)


def shape_of(stored):
    """Return a shape, or names of entries, as it was before it was stored."""
    return stored if is_text(stored) else tuple(stored)


def names_of(variable, shape, labels=None):
    """Name the columns of a variable: "scale", "coef[0]", "table[1,2]", "group[north]"."""
    if not shape:
        return [variable]
    if labels is not None:
        return [f"{variable}[{label}]" for label in labels]
    return [f"{variable}[{','.join(map(str, place))}]" for place in np.ndindex(*shape)]


def by_name(variables, draws):
    """Split the last axis into variables."""
    values, first = {}, 0
    for name, shape in variables.items():
        size = math.prod(shape)
        values[name] = draws[..., first : first + size].reshape((*draws.shape[:-1], *shape))
        first += size
    return values


def in_chains(values, chains):
    """Give the first axis of each array to chains, one after another."""
    return {name: v.reshape(chains, len(v) // chains, *v.shape[1:]) for name, v in values.items()}


def normalised(log_weights, n):
    """Check logarithms of n weights, and let the weights sum to one."""
    weights = np.asarray(log_weights, dtype=np.float64)
    if weights.shape != (n,):
        raise DataError(f"log_weights must have one number for each of {n} draws, got {weights.shape}")
    if np.isnan(weights).any() or not np.isfinite(weights.max()):
        raise DataError("log_weights must be numbers or -inf, one of them finite and none inf")
    highest = weights.max()
    return weights - highest - math.log(np.exp(weights - highest).sum())


def quantile_levels(name, values):
    """Check a quantile's level, or a vector of them."""
    try:
        levels = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a number or a vector of numbers: {in_brief(error)}") from error
    if levels.ndim > 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise DataError(
            f"{name} must be a number or a vector of numbers between 0 and 1, got {shortened(values)}"
        )
    return levels


def of_draws(log_likelihood, n_draws):
    """Check log-likelihoods of observations, a row a draw."""
    try:
        values = np.asarray(log_likelihood, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"log_likelihood must be True, False or an array of numbers: {in_brief(error)}"
        ) from error
    if values.ndim != 2 or len(values) != n_draws:
        raise DataError(
            f"log_likelihood must have a row for each of {n_draws} draws, and a column for each observation, "
            f"got the shape {values.shape}"
        )
    return values


def weighted_quantiles(draws, weights, levels):
    """Quantiles of weighted draws, (levels, d).

    A draw stands in the middle of its weight; between two draws quantiles go in a straight line.
    """
    order = np.argsort(draws, axis=0)
    sums = np.cumsum(weights[order], axis=0)
    values = np.take_along_axis(draws, order, axis=0)
    middles = (sums - weights[order] / 2) / sums[-1]
    columns = [np.interp(levels, middles[:, j], values[:, j]) for j in range(values.shape[1])]
    return np.stack(columns, axis=-1)
