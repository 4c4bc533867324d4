"""A map of items: their factors in two dimensions, and a picture with titles."""

import numpy as np
from sklearn.decomposition import PCA

from ...errors import DataError
from ..plotting import pyplot

_POINT, _TEXT = "#0072B2", "#333333"


def projected(factors, weights):
    """Project factors on the first two principal directions of the items of weight above zero.

    Returns float64 (n_items, 2). The second column is zero if there is a single direction.
    """
    used = factors[weights > 0].astype(np.float64)
    n_directions = min(2, *used.shape)
    found = PCA(n_directions, svd_solver="full").fit(used).transform(factors.astype(np.float64))
    return np.pad(found, [(0, 0), (0, 2 - n_directions)])


def draw(places, sizes, titles, *, n_items, n_titles, ax=None):
    """Draw the items with most ratings (`sizes`), and titles that do not overlap; return the axes."""
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
    """Choose points, in order, whose titles (far wider than high) do not overlap."""
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
    return pyplot().subplots(figsize=(7.2, 5.4), layout="constrained")[1]
