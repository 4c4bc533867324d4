"""Pictures of topics: a tree and a map of their distances, and their shares over groups of documents."""

import datetime

import numpy as np
from scipy.cluster.hierarchy import dendrogram, linkage
from scipy.spatial.distance import squareform

from ...plotting import COLOURS, QUIET, axes_of, tidy

_LARGEST = 1200  # points², the circle of the largest topic


def classical_scaling(distances):
    """Place points in the plane so that their distances are near to those given.

    Classical multidimensional scaling (Torgerson 1952): the two leading eigenvectors of the doubly
    centred matrix of -1/2 the squared distances, each times the root of its eigenvalue. Of the two signs
    of an axis, the one whose farthest point is positive. The second axis is zero for points on a line.
    """
    squares = -0.5 * distances**2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(centred)
    leading = np.argsort(-values, kind="stable")[:2]
    places = np.zeros((len(distances), 2))
    axes = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0))
    far = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    places[:, : axes.shape[1]] = axes * np.where(far < 0, -1, 1)
    return places


def plot_map(distances, shares, names, ax=None):
    """Draw topics as circles whose areas are their shares; see `TopicModel.plot_topics`."""
    ax = axes_of(ax, (6.4, 6.4))
    places = classical_scaling(distances)
    ax.scatter(*places.T, s=_LARGEST * shares / shares.max(), color=COLOURS[0], alpha=0.35, linewidths=0)
    for place, name in zip(places, names, strict=True):
        ax.annotate(name, place, ha="center", va="center", fontsize=8)
    # Equal units: a distance means the same in every direction.
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.15)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.axhline(0, color=QUIET, linewidth=0.4, zorder=0)
    ax.axvline(0, color=QUIET, linewidth=0.4, zorder=0)
    return ax


def plot_tree(distances, names, ax=None):
    """Draw the tree of topics by average linkage; see `TopicModel.plot_topics`."""
    ax = axes_of(ax, (6.4, max(2.4, 0.22 * len(names))))
    tree = linkage(squareform(distances, checks=False), method="average", optimal_ordering=len(names) < 500)
    dendrogram(tree, labels=names, orientation="right", ax=ax, color_threshold=0, above_threshold_color=QUIET)
    ax.set_xlabel("distance")
    ax.tick_params(axis="y", labelsize=8)
    ax.spines[["top", "left", "right"]].set_visible(False)
    return ax


def plot_prevalence(prevalence, topics, names, ax=None):
    """Draw shares over groups; see `TopicPrevalence.plot`."""
    ax = axes_of(ax, (6.4, 4.0))
    times = _are_times(prevalence.groups)
    ordered = times or prevalence.groups.dtype.kind in "iuf"
    x = prevalence.groups if ordered else np.arange(len(prevalence.groups))
    for i, k in enumerate(topics):
        colour = COLOURS[i % len(COLOURS)]
        if prevalence.low is not None:
            ends = prevalence.low[:, k], prevalence.high[:, k]
            if ordered:
                ax.fill_between(x, *ends, color=colour, alpha=0.2, linewidth=0)
            else:
                ax.vlines(x, *ends, color=colour, alpha=0.6)
        ax.plot(
            x,
            prevalence.shares[:, k],
            color=colour,
            # A second round of colours must differ from the first.
            marker="os^D"[i // len(COLOURS) % 4],
            markersize=4,
            linestyle="-" if ordered else "none",
            linewidth=1.5,
            label=names[k],
        )
    if times:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    _ticks_at_whole_numbers(ax, prevalence.groups)
    if not ordered:
        ax.set_xticks(x, [str(group) for group in prevalence.groups], rotation=30, ha="right")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("share of tokens")
    ax.legend(
        title="topic", fontsize=8, title_fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1)
    )
    return tidy(ax)


def _ticks_at_whole_numbers(ax, labels):
    """Years have no fractions."""
    if labels.dtype.kind in "iu":
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _are_times(labels):
    if labels.dtype.kind == "O":
        return all(isinstance(label, datetime.date) for label in labels)
    return labels.dtype.kind == "M"


def plot_effects(mean, low, high, names, covariate, ax=None):
    """Draw effects as points with intervals, one below the other."""
    ax = axes_of(ax, (6.4, max(2.4, 0.26 * len(names))))
    places = np.arange(len(names))
    apart = (low > 0) | (high < 0)
    for chosen, colour in ((apart, COLOURS[0]), (~apart, QUIET)):
        ax.hlines(places[chosen], low[chosen], high[chosen], color=colour, linewidth=1.4)
        ax.plot(mean[chosen], places[chosen], "o", color=colour, markersize=4)
    ax.axvline(0, color=QUIET, linewidth=0.6, zorder=0)
    ax.set_yticks(places, names)
    ax.set_xlabel(f"change of the share with {covariate}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_bands(x, shares, topics, names, ax=None):
    """Draw shares of topics as lines with bands."""
    ax = axes_of(ax, (6.4, 4.0))
    for place, k in enumerate(topics):
        colour = COLOURS[place % len(COLOURS)]
        ax.plot(x, shares.mean[:, k], color=colour, label=names[k])
        ax.fill_between(x, shares.low[:, k], shares.high[:, k], color=colour, alpha=0.2, linewidth=0)
    ax.set_ylabel("expected share")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def plot_alignment(distances, names, near, ax=None):
    """Draw distances of matched topics, a row a topic, those that come back on top."""
    ax = axes_of(ax, (6.4, max(2.4, 0.26 * len(names))))
    order = np.argsort(-np.nan_to_num(distances, nan=1.0).mean(axis=0), kind="stable")
    for place, k in enumerate(order):
        own = distances[:, k]
        own = own[~np.isnan(own)]
        if len(own):
            ax.hlines(place, own.min(), own.max(), color=QUIET, linewidth=1)
            near_ones = own < near
            for chosen, colour in ((near_ones, COLOURS[0]), (~near_ones, COLOURS[1])):
                ax.plot(own[chosen], np.full(chosen.sum(), place), "o", color=colour, markersize=4)
    ax.axvline(near, color=QUIET, linewidth=0.6, zorder=0)
    ax.set_yticks(range(len(order)), [names[k] for k in order])
    ax.set_xlim(0, 1)
    ax.set_xlabel("Hellinger distance from the topic of another seed")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_words_over_time(found, ax=None):
    """Draw a line a word over slices."""
    ax = axes_of(ax, (6.4, 4.0))
    ordered = found.slices.dtype.kind in "iufM"
    x = found.slices if ordered else np.arange(len(found.slices))
    for i, word in enumerate(found.words):
        style = ("-", "--", ":", "-.")[i // len(COLOURS) % 4]
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(x, found.probabilities[:, i], style, color=colour, label=word)
        ax.fill_between(x, found.low[:, i], found.high[:, i], color=colour, alpha=0.15, linewidth=0)
    _ticks_at_whole_numbers(ax, found.slices)
    if not ordered:
        every = max(1, -(-len(x) // 12))
        ax.set_xticks(x[::every], [str(label) for label in found.slices[::every]], rotation=30, ha="right")
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"probability in topic {found.topic}")
    tidy(ax)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return ax
