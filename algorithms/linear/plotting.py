"""Pictures of linear models: paths of coefficients, coefficients with intervals, survival curves."""

from typing import Any

import numpy as np

from ..._typing import Array, Names
from ...errors import DataError
from ..plotting import COLOURS, QUIET, axes_of, tidy
from .cv.plotting import _draw_paths, _places


def plot_path(
    alphas: Array, coefs: Array, *, names: Names | None = None, n_named: int = 6, ax: Any = None
) -> Any:
    """Draw paths of coefficients, as `lasso_path`, `enet_path` and the method `path` of models return them.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,)
        Strengths of the penalty.
    coefs : array-like of shape (n_features, n_alphas) or (n_targets, n_features, n_alphas)
        Of several targets the norm of each column's coefficients is drawn.
    names : sequence of str, optional
        Of the columns.
    n_named : int, default=6
        How many columns, the largest at the last strength, get a colour and a name.
    ax : matplotlib axes, optional
        By default of a new figure of pyplot.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import stradask as sd
    >>> X, y, _ = sd.datasets.make_sparse_regression(100, 100, n_informative=5, random_state=0)
    >>> alphas, coefs, _ = sd.lasso_path(X, y)
    >>> sd.plot_path(alphas, coefs).get_ylabel()
    'coefficient'
    """
    alphas, coefs = np.asarray(alphas, np.float64), np.asarray(coefs, np.float64)
    several = coefs.ndim == 3
    coefs = np.sqrt((coefs**2).sum(axis=0)) if several else coefs
    if alphas.ndim != 1 or coefs.ndim != 2 or coefs.shape[1] != len(alphas):
        raise DataError(
            f"coefs has the shape {coefs.shape} and alphas {alphas.shape}: give what path(...) returned"
        )
    if names is not None and len(names) != len(coefs):
        raise DataError(f"names has {len(names)} entries for {len(coefs)} columns: give one for each")
    ax = axes_of(ax)
    used = np.flatnonzero(coefs.any(axis=1))
    values = coefs[used]
    last = int(np.argmin(alphas))
    named = np.argsort(-np.abs(values[:, last]), kind="stable")[:n_named]
    labels = [f"x{j}" if names is None else str(names[j]) for j in used[named]]
    _draw_paths(ax, _places(alphas), values, named, labels)
    ax.set_xlabel("$-\\log_{10}$ alpha")
    ax.set_ylabel("norm of the coefficients" if several else "coefficient")
    return tidy(ax)


def draw_intervals(table, ax=None):
    """Draw estimates and intervals of a table of coefficients, the first on top."""
    ax = axes_of(ax)
    low, high = (table[name] for name in list(table.columns)[-2:])
    at = np.arange(len(table))[::-1]
    ax.axvline(0, color=QUIET, linewidth=0.8)
    ax.hlines(at, low, high, color=COLOURS[0], linewidth=1.8)
    ax.plot(table["coef"], at, "o", color=COLOURS[0], markersize=5)
    ax.set_yticks(at, table.rows)
    ax.set_xlabel("coefficient, with " + " to ".join(list(table.columns)[-2:]))
    return tidy(ax)


def draw_survival(times, curves, labels=None, ax=None):
    """Draw survival curves (n_rows, n_times), which begin at 1."""
    labels = [str(row) for row in range(len(curves))] if labels is None else [str(label) for label in labels]
    if len(labels) != len(curves):
        raise DataError(f"labels has {len(labels)} names for {len(curves)} rows: give one for each")
    ax = axes_of(ax)
    order = np.argsort(times, kind="stable")
    x = np.concatenate([[min(0.0, times.min(initial=0.0))], times[order]])
    for k, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        y = np.concatenate([[1.0], curve[order]])
        ax.step(x, y, where="post", color=COLOURS[k % len(COLOURS)], linewidth=1.5, label=label)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("time")
    ax.set_ylabel("probability of no event")
    if 1 < len(curves) <= len(COLOURS):
        ax.legend(frameon=False)
    return tidy(ax)
