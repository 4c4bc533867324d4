"""A map of items: their factors in two dimensions, and a picture with titles."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array
from ....errors import DataError
from ...plotting import axes_of
from .recommend import check_n

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
    ax = axes_of(ax, (7.2, 5.4))
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


class ItemMap:
    """The map of the items of a factorization."""

    item_factors_: np.ndarray
    item_ids_: np.ndarray
    _item_counts: Callable

    def item_map(self) -> Array:
        """Project the factors of items on the two directions in which they vary most.

        Returns
        -------
        ndarray of shape (n_items, 2)
            By principal components of the items that have ratings; in the order of `item_ids_`.
        """
        check_is_fitted(self)
        return projected(self.item_factors_, self._item_counts())

    def plot_items(
        self, titles: Any = None, *, n_items: int = 300, n_titles: int = 30, ax: Any = None
    ) -> Any:
        """Draw a map of the items with most ratings; items near each other are liked by the same users.

        Parameters
        ----------
        titles : sequence of str, optional
            In the order of `item_ids_`; None takes those of ``stradask fit mf --titles``, else ids.
        n_items : int, default=300
            Points, whose area grows with the number of ratings.
        n_titles : int, default=30
            At most so many are written, where they do not lie on one another.
        ax : matplotlib axes, optional

        Returns
        -------
        matplotlib axes

        Raises
        ------
        StradaskError
            If matplotlib is not installed.
        """
        check_is_fitted(self)
        for n in (n_items, n_titles):
            check_n(n)
        if titles is None:
            titles = getattr(self, "item_titles_", self.item_ids_)
        return draw(self.item_map(), self._item_counts(), titles, n_items=n_items, n_titles=n_titles, ax=ax)
