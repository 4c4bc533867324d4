"""The course of fits: objectives against seconds, rounds or updates."""

from typing import Any

import numpy as np

from .._typing import Names
from ..errors import DataError, StradaskError, shortened

# Okabe and Ito's palette without its yellow, which is too light for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
QUIET = "#666666"
_X = {"seconds": "seconds", "round": "rounds", "updates": "updates"}


def pyplot() -> Any:
    """Return matplotlib's pyplot; where that is not installed, say how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise StradaskError(
            "plots need matplotlib, which is not installed: pip install 'stradask[plot]'"
        ) from error
    return plt


def axes_of(ax: Any, size: Any = (6.4, 4.0)) -> Any:
    """Return the axes, or those of a new figure."""
    return pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def tidy(ax: Any) -> Any:
    """Take away frames and add a grid; return the axes."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    return ax


def plot_history(
    *models: Any, x: str = "seconds", excess: bool = False, labels: Names | None = None, ax: Any = None
) -> Any:
    """Draw the objective of fitted models as it went.

    Parameters
    ----------
    *models : estimator
        Fitted, with a `history_`. Compare only models of one objective: the same data and penalty.
    x : {"seconds", "round", "updates"}, default="seconds"
        Horizontal axis. Seconds leave out those in which numba compiles.
    excess : bool, default=False
        Draw the distance from the best objective of all models, on a logarithmic axis: a straight line is
        linear convergence. The best point itself has no distance and is left out.
    labels : sequence of str, optional
        For the legend; the names of the classes by default.
    ax : matplotlib axes, optional
        By default of a new figure of pyplot.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    DataError
        If a model keeps no history, or has measured no objective.
    StradaskError
        If matplotlib is not installed.

    Examples
    --------
    >>> import stradask as sd
    >>> X, y, _ = sd.datasets.make_sparse_regression(100, 300, n_informative=5, random_state=0)
    >>> ax = sd.plot_history(sd.Lasso(0.1).fit(X, y), sd.Lasso(0.1, n_jobs=2).fit(X, y), labels=["1", "2"])
    >>> ax.get_ylabel()
    'objective'
    """
    if x not in _X:
        raise DataError(f"x is {shortened(x)}; there are {', '.join(_X)}")
    if not models:
        raise DataError("models is empty: give fitted estimators, as in plot_history(model)")
    labels = [type(model).__name__ for model in models] if labels is None else list(labels)
    if len(labels) != len(models):
        raise DataError(f"labels has {len(labels)} names for {len(models)} models: give one for each")
    curves = [_curve(model, x) for model in models]
    fall = [y[-1] <= y[0] for _, y in curves]
    if excess and any(fall) != all(fall):
        raise DataError("excess=True needs objectives that all fall or all rise; draw the models apart")
    best = (min if all(fall) else max)(y.min() if all(fall) else y.max() for _, y in curves)
    ax = axes_of(ax)
    for (at, y), label in zip(curves, labels, strict=True):
        y = np.abs(y - best) if excess else y
        kept = y > 0 if excess else np.ones(len(y), bool)
        ax.plot(at[kept], y[kept], marker="o", markersize=3, linewidth=1.2, label=label)
    if excess:
        ax.set_yscale("log")
    ax.set_xlabel(_X[x])
    ax.set_ylabel("distance from the best objective" if excess else "objective")
    tidy(ax)
    if len(models) > 1:
        ax.legend(frameon=False)
    return ax


def _curve(model, x):
    """Where an objective was measured, and what it was."""
    history, name = getattr(model, "history_", None), type(model).__name__
    if not isinstance(history, dict) or not {"objective", x} <= history.keys():
        raise DataError(f"{name} has no history_: it is not fitted, or its kind keeps none")
    at, y = np.asarray(history[x], float), np.asarray(history["objective"], float)
    at = np.cumsum(at) if x == "updates" else at
    measured = np.isfinite(y)
    if not measured.any():
        raise DataError(f"the history_ of this {name} has no objective: fit it for more rounds")
    return at[measured], y[measured]
