"""Helpers of the demo's pictures: colours, axes, and text at points and lines.

They are small and their letters large, so that they can be read on a telephone.
"""

from ..benchmarks.pages.page import COLOURS, plain

OURS, THEIRS, QUIET = COLOURS[0], COLOURS[1], "#666666"


def make_axes(xlabel=None, ylabel=None, *, width=4.8, height=3.4):
    """Make axes without a frame; with a label of y, with a light grid, too."""
    from matplotlib.figure import Figure

    axes = plain(Figure(figsize=(width, height)).add_subplot(), grid=ylabel is not None)
    axes.tick_params(labelsize=10)
    axes.set_xlabel(xlabel, fontsize=11)
    axes.set_ylabel(ylabel, fontsize=11)
    return axes


def draw_curve(axes, x, y, colour, **options):
    """Draw a curve with its points."""
    axes.plot(x, y, **{"color": colour, "linewidth": 2, "marker": "o", "markersize": 5} | options)


def write_beside(axes, text, point, colour, offset=(4, 6), **options):
    """Write a text next to a point of the data, in its colour."""
    axes.annotate(text, point, xytext=offset, textcoords="offset points", color=colour, **options)


def draw_level(axes, y, text=None, *, linewidth=1.2, fontsize=9):
    """Draw a dotted line at a value of y, with a text at its right end."""
    axes.axhline(y, color=QUIET, linestyle=":", linewidth=linewidth)
    if text is not None:
        end = axes.get_yaxis_transform()
        write_beside(axes, text, (0.99, y), QUIET, (0, 3), xycoords=end, fontsize=fontsize, ha="right")
