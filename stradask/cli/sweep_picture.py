"""The picture of ``stradask sweep``: held-out perplexity against the number of topics, and coherence."""

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from .._urls import write_atomic
from ..benchmarks.pages.page import COLOURS

_PERPLEXITY, _COHERENCE, _QUIET = COLOURS[0], COLOURS[1], "#666666"


def write(path, rows, best, smallest):
    """Draw the rows of a sweep into a file whose name ends in png or svg; see `draw`."""
    figure = draw(rows, best, smallest)
    with write_atomic(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=120)


def draw(rows, best, smallest):
    """Draw the rows of a sweep, which rise by K, and mark two of them (or None).

    The first axes of the figure have the perplexity, bars being a standard deviation of the fits up and down;
    the second ones the coherence.
    """
    axes = Figure(figsize=(6.4, 4.2), layout="constrained").add_subplot()
    numbers = [row.n_components for row in rows]
    axes.errorbar(
        numbers,
        [row.perplexity for row in rows],
        yerr=[row.perplexity_sd or 0.0 for row in rows],
        color=_PERPLEXITY,
        marker="o",
        markersize=5,
        linewidth=2,
        capsize=3,
    )
    coherence = axes.twinx()
    coherence.plot(
        numbers, [row.coherence for row in rows], color=_COHERENCE, marker="s", markersize=4, linestyle=":"
    )
    marks = {"best": (best, "-"), "smallest within one standard error": (smallest, "--")}
    for name, (number, style) in marks.items():
        if number is not None:
            label = f"{name}: {number:,}"
            axes.axvline(number, color=_QUIET, linestyle=style, linewidth=1, zorder=0, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(numbers))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel("topics")
    axes.set_ylabel("held-out perplexity (lower is better)", color=_PERPLEXITY)
    coherence.set_ylabel("coherence, mean NPMI (higher is better)", color=_COHERENCE)
    axes.grid(alpha=0.25)
    for each in (axes, coherence):
        each.spines["top"].set_visible(False)
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return axes.figure
