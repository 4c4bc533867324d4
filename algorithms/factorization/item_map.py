"""A map of items: their factors in two dimensions, and a picture with titles."""

import numpy as np
from sklearn.decomposition import PCA

from ...errors import DataError, StradaskError

_POINT, _TEXT = "#0072B2", "#333333"


def projected(factors, weights):
    """Project rows of factors on the two directions in which those of a weight above zero vary most.

    Parameters
    ----------
    factors : ndarray of shape (n_items, n_components)
    weights : ndarray of shape (n_items,)
        Numbers of ratings: an item counts for the directions if it has some.

    Returns
    -------
    ndarray of float64, shape (n_items, 2)
        The second column is zero where there is one direction alone.
    """
    used = factors[weights > 0].astype(np.float64)
    n_directions = min(2, *used.shape)
    found = PCA(n_directions, svd_solver="full").fit(used).transform(factors.astype(np.float64))
    return np.pad(found, [(0, 0), (0, 2 - n_directions)])


def draw(places, sizes, titles, *, n_items, n_titles, ax=None):
    """Draw the items with most ratings, and titles of those that leave room for them.

    Parameters
    ----------
    places : ndarray of shape (n_items, 2)
    sizes : ndarray of shape (n_items,)
        Numbers of ratings.
    titles : sequence of str
    n_items, n_titles : int
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    if len(titles) != len(places):
        raise DataError(f"titles has {len(titles)} entries, but the model has {len(places)} items")
    if ax is None:
        ax = _new_axes()
    shown = np.argsort(-sizes, kind="stable")[:n_items]
    area = 4 + 60 * sizes[shown] / max(sizes.max(), 1)
    ax.scatter(*places[shown].T, s=area, color=_POINT, alpha=0.45, linewidths=0)
    for at in _apart(places[shown], n_titles):
        ax.annotate(
            str(titles[shown[at]]), places[shown[at]], xytext=(3, 2), textcoords="offset points", fontsize=7,
            color=_TEXT,
        )  # fmt: skip
    ax.set_xlabel("first principal direction of the items' factors")
    ax.set_ylabel("second")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _apart(places, n):
    """Choose points, the first ones first, whose titles (far wider than high) do not lie on one another."""
    extent = np.ptp(places, axis=0)
    scaled = places / np.where(extent == 0, 1, extent) * [6, 36]  # in titles
    chosen: list[int] = []
    for at, place in enumerate(scaled):
        if len(chosen) == n:
            break
        if all((abs(place - scaled[other]) > 1).any() for other in chosen):
            chosen.append(at)
    return chosen


def _new_axes():
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise StradaskError(
            "plot_items() needs matplotlib, which is not installed: pip install 'stradask[plot]'"
        ) from error
    return plt.subplots(figsize=(7.2, 5.4), layout="constrained")[1]
