"""The summary of a fitted generalised linear model, as text, for notebooks and for pandas."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...._html import table as html_table
from ...._typing import Array
from ....errors import DataError
from ..._base import Estimator
from ..._table import Table
from ..plotting import draw_intervals


class Summary:
    """Figures of a fit, and a line for each coefficient.

    Attributes
    ----------
    figures : dict of str to text
    table : Table
        Columns by ``table["coef"]``, rows by ``table.row("intercept")``.
    """

    def __init__(self, title, figures, table):
        self.title, self.figures, self.table = title, figures, table

    def to_pandas(self):
        """Return the coefficients as a pandas DataFrame."""
        return self.table.to_pandas()

    def __repr__(self):
        width = max(map(len, self.figures), default=0)
        lines = [f"{name.ljust(width)}  {value}" for name, value in self.figures.items()]
        return "\n".join([self.title, "", *lines, "", repr(self.table)])

    def _repr_html_(self):
        """What a notebook shows."""
        figures = html_table(["", ""], self.figures.items(), text=[0, 1])
        return f"<p>{self.title}</p>{figures}{self.table._repr_html_()}"


def coefficient_table(names, coef, errors, distribution, level):
    """Estimates, standard errors, statistics, two-sided p-values and intervals.

    `distribution`: of scipy, of the estimate over its standard error, and its short name.
    """
    law, name = distribution
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = coef / errors
    reach = law.isf((1 - level) / 2) * errors
    low, high = (f"{100 * share:g}%" for share in ((1 - level) / 2, (1 + level) / 2))
    columns = {"coef": coef, "std err": errors, name: statistic, f"P>|{name}|": 2 * law.sf(np.abs(statistic))}
    return Table(names, columns | {low: coef - reach, high: coef + reach})


class SummarisedModel(Estimator):
    """Intervals and a picture of a model that has a `summary`."""

    def _checked_names(self, level):
        """Names of the columns, for a summary of a fitted model."""
        if not 0 < level < 1:
            raise DataError(f"level={level} must lie between 0 and 1")
        check_is_fitted(self)
        return self._column_names()

    def _column_names(self):
        names = getattr(self, "feature_names_in_", getattr(self, "vocabulary_", ()))
        return [str(name) for name in names] or [f"x{j}" for j in range(self.n_features_in_)]

    def confidence_interval(self, level: float = 0.95) -> Array:
        """Compute intervals of the coefficients, as in `summary`.

        Parameters
        ----------
        level : float, default=0.95

        Returns
        -------
        ndarray of shape (k, 2)
            In the order of `standard_errors_`: an intercept is last.
        """
        table = self.summary(level).table
        ends = np.column_stack([table[name] for name in list(table.columns)[-2:]])
        return np.roll(ends, -int(self.fit_intercept), axis=0)

    def plot(self, level: float = 0.95, *, ax: Any = None) -> Any:
        """Draw the coefficients and their intervals; needs matplotlib.

        Parameters
        ----------
        level : float, default=0.95
        ax : matplotlib axes, optional
            By default of a new figure.

        Returns
        -------
        matplotlib axes
        """
        return draw_intervals(self.summary(level).table, ax)
