"""Who did what when: a timeline of places, simulated or measured, and its picture."""

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, StradaskError, shortened

KINDS = ("forward", "backward", "all-reduce", "update")
_SUMS = ("send", "add", "fill", "take")  # the parts of an all-reduce, as a schedule of pipelines names them
# Okabe and Ito's palette.
_COLOURS = {"forward": "#0072B2", "backward": "#E69F00", "all-reduce": "#CC79A7", "update": "#009E73"}


class Event(NamedTuple):
    """A place works on one thing: from `start` to `end`, in seconds.

    `kind` is ``"forward"``, ``"backward"``, ``"all-reduce"`` or ``"update"``; `micro` is -1 for the last two.
    """

    place: int
    kind: str
    step: int
    micro: int
    start: float
    end: float


class Timeline:
    """What each place does when; what is between two events is waiting.

    Parameters
    ----------
    events : iterable of Event, or of tuples with the same entries
        Simulated or measured, as `timeline_` of a fitted network is. Those of one place must not overlap.
    n_places : int, optional
        By default as many as the events name.

    Attributes
    ----------
    events : tuple of Event
        By place and time.
    seconds : float
        From the first start to the last end.
    busy : ndarray of shape (n_places,)
        Share of the time that each place works, all-reduce included.
    idle : float
        Share of the time of all places that is waiting: the bubble.

    Examples
    --------
    >>> from stradask.scheduler.planning import Timeline
    >>> timeline = Timeline([(0, "forward", 0, 0, 0.0, 1.0), (1, "forward", 0, 0, 1.0, 3.0)])
    >>> timeline.seconds, timeline.idle
    (3.0, 0.5)
    >>> print(timeline.table())
    place  forward  backward  all-reduce  update  waiting
        0   1000.0       0.0         0.0     0.0   2000.0
        1   2000.0       0.0         0.0     0.0   1000.0
    milliseconds; 50 % of the time is waiting
    """

    def __init__(self, events: Iterable[Any], n_places: int | None = None) -> None:
        try:
            found = [event if isinstance(event, Event) else _event(*event) for event in events]
        except (TypeError, ValueError) as error:
            raise DataError("events must be tuples (place, kind, step, micro, start, end)") from error
        found.sort(key=lambda event: (event.place, event.start, event.end))
        for event in found:
            if event.kind not in KINDS or event.place < 0 or not event.start <= event.end < np.inf:
                raise DataError(
                    f"events must have a place from 0, a kind of {', '.join(KINDS)} and start <= end, got "
                    f"{shortened(tuple(event))}"
                )
        slack = 1e-9 * max((abs(event.end) for event in found), default=0.0)
        for one, two in itertools.pairwise(found):
            if one.place == two.place and two.start < one.end - slack:
                raise DataError(f"two events of place {one.place} overlap at {two.start}; give disjoint ones")
        most = 1 + max((event.place for event in found), default=-1)
        self.n_places = most if n_places is None else n_places
        if self.n_places < most:
            raise DataError(f"n_places must be at least {most}, which the events name, got {n_places}")
        self.events = tuple(found)
        self._start = min((event.start for event in found), default=0.0)
        self.seconds = float(max((event.end for event in found), default=0.0) - self._start)

    @property
    def busy(self) -> np.ndarray:
        """Share of the time that each place works."""
        return self._sums().sum(axis=1) / max(self.seconds, np.finfo(float).tiny)

    @property
    def idle(self) -> float:
        """Share of the time of all places that is waiting."""
        return float(round(1 - self.busy.mean(), 12)) if self.events else 0.0

    def _sums(self):
        sums = np.zeros((self.n_places, len(KINDS)))
        for event in self.events:
            sums[event.place, KINDS.index(event.kind)] += event.end - event.start
        return sums

    def table(self) -> str:
        """Return milliseconds of each place by kind, as plain text."""
        sums = self._sums()
        rows = [["place", *KINDS, "waiting"]]
        for place, values in enumerate(sums):
            waiting = self.seconds - values.sum()
            rows.append([str(place), *(f"{1e3 * value:.1f}" for value in (*values, waiting))])
        return f"{columns(rows)}\nmilliseconds; {100 * self.idle:.0f} % of the time is waiting"

    def plot(self, measured: "Timeline | None" = None, *, axes: Any = None) -> Any:
        """Draw who works when: a row for each place, white where it waits.

        Parameters
        ----------
        measured : Timeline, optional
            Of the same places, drawn below to the same scale.
        axes : sequence of matplotlib Axes, optional
            One, or two with `measured`.

        Returns
        -------
        ndarray of matplotlib Axes
        """
        lines = [self] if measured is None else [self, measured]
        axes = np.atleast_1d(np.asarray(_new_axes(lines) if axes is None else axes, dtype=object)).ravel()
        if len(axes) != len(lines):
            raise DataError(f"axes must be {len(lines)}, one for each timeline, got {len(axes)}")
        unit, label = (1e3, "ms") if max(line.seconds for line in lines) < 10 else (1.0, "s")
        for ax, line, what in zip(axes, lines, ("simulated", "measured"), strict=False):
            _draw(ax, line, unit)
            title = f"{unit * line.seconds:.4g} {label}, {100 * line.idle:.0f} % waiting"
            ax.set_title(title if measured is None else f"{what}: {title}", fontsize=10, loc="left")
            ax.set_xlim(0, unit * max(line.seconds for line in lines))
        axes[-1].set_xlabel(label)
        shown = {kind: bar for ax in axes for bar, kind in zip(*ax.get_legend_handles_labels(), strict=True)}
        axes[0].legend(shown.values(), shown.keys(), ncols=4, fontsize=8, frameon=False, loc="lower right",
                       bbox_to_anchor=(1, 1))  # fmt: skip
        return axes


def _event(place, kind, step, micro, start, end):
    kind = "all-reduce" if kind in _SUMS else str(kind)
    return Event(int(place), kind, int(step), int(micro), float(start), float(end))


def _draw(ax, line, unit):
    for kind in KINDS:
        events = [event for event in line.events if event.kind == kind]
        if events:
            left = [unit * (event.start - line._start) for event in events]
            width = [unit * (event.end - event.start) for event in events]
            ax.barh([event.place for event in events], width, 0.8, left, color=_COLOURS[kind], label=kind,
                    edgecolor="white", linewidth=0.5)  # fmt: skip
    if len(line.events) <= 120:  # more numbers than that are not readable
        for event in line.events:
            if event.micro >= 0 and event.end - event.start > 0.01 * line.seconds:
                middle = unit * ((event.start + event.end) / 2 - line._start)
                ax.text(middle, event.place, event.micro, ha="center", va="center", color="white", fontsize=7)
    ax.set_yticks(range(line.n_places), [f"place {place}" for place in range(line.n_places)])
    ax.set_ylim(line.n_places - 0.5, -0.5)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)


def _new_axes(lines):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise StradaskError(
            "plot() needs matplotlib, which is not installed: pip install 'stradask[plot]'"
        ) from error
    height = sum(0.9 + 0.35 * line.n_places for line in lines)
    return plt.subplots(len(lines), 1, figsize=(8, height), layout="constrained", squeeze=False)[1].ravel()


def columns(rows, left=0):
    """Return rows of texts as aligned lines; the first `left` columns stand to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
