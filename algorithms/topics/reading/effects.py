"""Effects of covariates on the shares of topics, from draws of coefficients."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ..._intervals import interval_of_draws
from .comparison import check_names, check_topics


@dataclass(frozen=True, eq=False)
class TopicEffects:
    """Average marginal effects on expected shares.

    Attributes
    ----------
    names : list of str
        Of the covariates' columns.
    mean, low, high : ndarrays of shape (n_columns, n_components)
        Posterior mean and the ends of the interval.
    level : float
        Its probability.
    """

    names: list
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float

    def __str__(self):
        width = max(len("covariate"), *map(len, self.names))
        lines = [f"{'covariate':<{width}}  topic     effect  {100 * self.level:.0f} % interval"]
        for f, name in enumerate(self.names):
            for k in range(self.mean.shape[1]):
                interval = f"[{self.low[f, k]:+.4f}, {self.high[f, k]:+.4f}]"
                lines.append(f"{name:<{width}}  {k:>5}  {self.mean[f, k]:+9.4f}  {interval}")
        return "\n".join(lines)

    __repr__ = __str__

    def plot(self, name: str | None = None, topics: Any = None, names: Any = None, ax: Any = None) -> Any:
        """Draw the effect of one covariate on topics, with intervals, the largest on top.

        Parameters
        ----------
        name : str, optional
            One of `names`; the first by default.
        topics : int or sequence of int, optional
            All by default.
        names : sequence of str of length n_components, optional
            Of the topics.
        ax : matplotlib axes, optional
            By default of a new figure of pyplot.

        Returns
        -------
        matplotlib axes
        """
        from .plots import plot_effects

        if name is not None and name not in self.names:
            raise DataError(f"name={shortened(name)} is no column of the covariates: {', '.join(self.names)}")
        f = 0 if name is None else self.names.index(name)
        n_topics = self.mean.shape[1]
        topics = np.arange(n_topics) if topics is None else check_topics(topics, n_topics)
        order = topics[np.argsort(self.mean[f, topics], kind="stable")]
        labels = check_names(names, n_topics)
        ends = (self.mean[f, order], self.low[f, order], self.high[f, order])
        return plot_effects(*ends, [labels[k] for k in order], self.names[f], ax)


@dataclass(frozen=True, eq=False)
class ExpectedShares:
    """Expected shares of topics, or differences of them.

    Attributes
    ----------
    mean, low, high : ndarrays of shape (n_rows, n_components)
    level : float
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float

    def plot(self, x: Any = None, topics: Any = None, names: Any = None, ax: Any = None) -> Any:
        """Draw shares of topics over the rows, with bands.

        Parameters
        ----------
        x : array-like of shape (n_rows,), optional
            Horizontal axis: the covariate that varies. Numbers of rows by default.
        topics : int or sequence of int, optional
            By default the six whose shares change most.
        names : sequence of str of length n_components, optional
            Of the topics.
        ax : matplotlib axes, optional
            By default of a new figure of pyplot.

        Returns
        -------
        matplotlib axes
        """
        from .plots import plot_bands

        n_rows, n_topics = self.mean.shape
        if topics is None:
            topics = np.argsort(-np.ptp(self.mean, axis=0), kind="stable")[:6]
        else:
            topics = check_topics(topics, n_topics)
        x = np.arange(n_rows) if x is None else np.asarray(x)
        if x.shape != (n_rows,):
            raise DataError(f"x has the shape {x.shape}; pass a value for each of {n_rows} rows")
        return plot_bands(x, self, topics, check_names(names, n_topics), ax)


def shares_at(coefficients, design):
    """Expected shares by one draw, rows x topics."""
    logs = design @ coefficients.T
    logs -= logs.max(axis=1, keepdims=True)
    shares = np.exp(logs)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def expected_shares(draws, design, minus, level):
    """Shares at the rows of a design, or their differences from those at `minus`."""
    if minus is not None and len(minus) != len(design):
        raise DataError(f"minus has {len(minus)} rows, covariates have {len(design)}: one for each")
    found = np.array([shares_at(draw, design) for draw in draws])
    if minus is not None:
        found -= np.array([shares_at(draw, minus) for draw in draws])
    low, high = interval_of_draws(found, level)
    return ExpectedShares(found.mean(axis=0), low, high, float(level))


def effects_of(draws, design, names, columns, level):
    """Average marginal effects of all columns but the intercept; see `DMRTopicModel.effects`."""
    rows, times = np.unique(design, axis=0, return_counts=True)
    weights = times / times.sum()
    groups = _groups(columns, design)
    found = np.empty((len(draws), len(names) - 1, draws.shape[1]))
    for n, draw in enumerate(draws):
        shares = shares_at(draw, rows)
        for f in range(1, len(names)):
            if groups[f] is None:
                slope = draw[:, f] - (shares @ draw[:, f])[:, None]
                found[n, f - 1] = weights @ (shares * slope)
            else:
                if f == groups[f][0]:  # the same for all levels
                    base = rows.copy()
                    base[:, groups[f]] = 0
                    reference = shares_at(draw, base)
                there = base.copy()
                there[:, f] = 1
                found[n, f - 1] = weights @ (shares_at(draw, there) - reference)
    low, high = interval_of_draws(found, level)
    return TopicEffects(names[1:], found.mean(axis=0), low, high, float(level))


def _groups(columns, design):
    """For each column of the design those of its category, or None if it is a number.

    Columns of zeros and ones of one term of a formula are one category.
    """
    terms: list = [None]
    for number, column in enumerate(columns):
        n_own = 1 if column["levels"] is None else len(column["levels"]) - 1
        values = design[:, len(terms)]
        whole = column["levels"] is not None or bool(((values == 0) | (values == 1)).all())
        terms += [column.get("term", number) if whole else None] * n_own
    return [None if term is None else [f for f, other in enumerate(terms) if other == term] for term in terms]
