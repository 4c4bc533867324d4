"""Pictures of a posterior: marginals of shards and combination side by side, traces, rank plots."""

import numpy as np
from scipy import stats

from ....errors import DataError, shortened
from ..._intervals import interval_of_draws
from ...plotting import COLOURS, axes_of, pyplot

_BLUE, _QUIET = "#0072B2", "#888888"
_MOST = 12  # panels
_BINS = 20  # of ranks
_GRID = 200  # points of a density curve


def plot_posterior(posterior, kind, names, axes):
    """See `Posterior.plot`."""
    kinds = {"marginals": _marginals, "trace": _trace, "rank": _ranks}
    if kind not in kinds:
        raise DataError(f"kind must be one of {', '.join(kinds)}, got {shortened(kind)}")
    names = [names] if isinstance(names, str) else names
    names = posterior.names[:_MOST] if names is None else list(names)
    unknown = [name for name in names if name not in posterior.names]
    if unknown or not names:
        raise DataError(
            f"names must be of columns such as {shortened(posterior.names[0])}, got {unknown or names}"
        )
    axes = _panels(len(names), kind == "trace") if axes is None else list(np.ravel(axes))
    if len(axes) != len(names):
        raise DataError(f"axes must be as many as names, {len(names)}, got {len(axes)}")
    for ax, name in zip(axes, names, strict=True):
        kinds[kind](posterior, posterior.names.index(name), ax)
        ax.set_title(name, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    return axes


def _panels(n, wide):
    columns = min(n, 1 if wide else 3)
    rows = -(-n // columns)
    size = ((7.5 if wide else 3.2 * columns), (1.6 if wide else 2.2) * rows + 0.4)
    figure, axes = pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for spare in axes.flat[n:]:
        figure.delaxes(spare)
    return list(axes.flat[:n])


def _marginals(posterior, j, ax):
    x, weights = posterior.draws[:, j], posterior.weights
    shards = posterior.shard_draws[..., j] if _is_shared(posterior, j) else []
    every = np.concatenate([x, *(shard.ravel() for shard in shards)])
    low, high = np.quantile(every, [0.001, 0.999])
    grid = np.linspace(low, high, _GRID) if high > low else np.linspace(low - 1, low + 1, _GRID)
    for i, shard in enumerate(shards):
        label = None if i else f"{len(shards)} shards"
        ax.plot(grid, _density(shard.ravel(), None, grid), color=_QUIET, linewidth=0.7, label=label)
    ax.plot(grid, _density(x, weights, grid), color=_BLUE, linewidth=2, label="posterior")
    ax.set_yticks([])
    ax.set_ylim(bottom=0)
    if len(shards):
        ax.legend(fontsize=7, frameon=False)


def _is_shared(posterior, j):
    """Whether there are draws of all shards of that column."""
    return posterior.shard_draws is not None and j < posterior.shard_draws.shape[3]


def _density(x, weights, grid):
    if np.ptp(x) == 0:
        return np.zeros_like(grid)
    return stats.gaussian_kde(x, weights=weights)(grid)


def _chains_of(posterior, j):
    """The chains of a parameter, and their labels."""
    if posterior.n_chains is not None:
        chains = posterior.draws[:, j].reshape(posterior.n_chains, -1)
        return chains, [f"chain {c}" for c in range(len(chains))]
    if not _is_shared(posterior, j):
        raise DataError("traces and ranks are of chains, and this posterior has none: take kind='marginals'")
    shards = posterior.shard_draws[..., j]
    labels = [f"shard {m}, chain {c}" for m in range(shards.shape[0]) for c in range(shards.shape[1])]
    return shards.reshape(-1, shards.shape[2]), labels


def _trace(posterior, j, ax):
    chains, labels = _chains_of(posterior, j)
    for i, (chain, label) in enumerate(zip(chains, labels, strict=True)):
        ax.plot(chain, color=COLOURS[i % len(COLOURS)], linewidth=0.5, label=label)
    ax.set_xlabel("draw", fontsize=8)


def _ranks(posterior, j, ax):
    """Ranks among the chains of one density: those of a shard, where there are several."""
    if posterior.n_chains is None and _is_shared(posterior, j):
        groups = posterior.shard_draws[..., j]
    else:
        groups = _chains_of(posterior, j)[0][None]
    total = groups.shape[1] * groups.shape[2]
    edges = np.linspace(0.5, total + 0.5, _BINS + 1)
    for group in groups:
        ranks = stats.rankdata(group).reshape(group.shape)
        for i, chain in enumerate(ranks):
            counts = np.histogram(chain, edges)[0] / (groups.shape[2] / _BINS)
            ax.stairs(counts, edges / total, color=COLOURS[i % len(COLOURS)], linewidth=0.8)
    ax.axhline(1, color=_QUIET, linewidth=0.6, linestyle="--")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("rank", fontsize=8)


def plot_predictive(observed, made, what, ax=None):
    """Distribution of observed targets (n,) over those of new ones, a row of `made` (sets, n) each."""
    ax = axes_of(ax, (5, 3))
    every = np.concatenate([observed, made.ravel()])
    low, high = np.quantile(every, [0.005, 0.995])
    low, high = min(low, observed.min()), max(high, observed.max())
    whole = bool((observed == np.floor(observed)).all()) and high - low < _GRID
    edges = np.arange(np.floor(low) - 0.5, high + 1) if whole else np.linspace(low, high, 3 * _BINS)
    middles = (edges[1:] + edges[:-1]) / 2
    for i, row in enumerate(made):
        label = None if i else f"{len(made)} draws of the {what}"
        ax.plot(middles, _shares(row, edges), color=_QUIET, linewidth=0.6, alpha=0.6, label=label)
    ax.plot(middles, _shares(observed, edges), color=_BLUE, linewidth=2, label="observed")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("share of rows")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_effect(places, lines, means, level, names, ax=None):
    """Expected targets over a column: `lines` are pairs of a label and rows, `means` (draws, rows).

    `names` are those of the column, of the one that the labels are of, and of the vertical axis.
    """
    ax = axes_of(ax, (5, 3.4))
    column, by, what = names
    is_line = np.asarray(places).dtype.kind in "iuf"
    for i, (label, rows) in enumerate(lines):
        color, draws = COLOURS[i % len(COLOURS)], means[:, rows]
        centre, (low, high) = draws.mean(axis=0), interval_of_draws(draws, level)
        if is_line:
            ax.fill_between(places[rows], low, high, color=color, alpha=0.2, linewidth=0)
            ax.plot(places[rows], centre, color=color, label=label)
        else:
            at = np.arange(len(centre)) + 0.15 * (i - (len(lines) - 1) / 2)
            ax.errorbar(at, centre, [centre - low, high - centre], fmt="o", color=color, label=label)
            ax.set_xticks(range(len(centre)), [str(place) for place in places[rows]])
    ax.set_xlabel(column)
    ax.set_ylabel(what)
    ax.spines[["top", "right"]].set_visible(False)
    if by is not None:
        ax.legend(title=by, frameon=False, fontsize=8)
    return ax


def _shares(values, edges):
    """Part of the values in each bin; those outside count in the whole."""
    return np.histogram(values, edges)[0] / len(values)
