"""One self-contained HTML page: text, pictures, tables; and the page of a benchmark."""

import base64
import html
import io
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np

from . import summary

# Okabe and Ito's palette without its yellow, which is too light for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #666; }
@media (prefers-color-scheme: dark) { :root { --quiet: #aaa; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; }
figure { margin: 1.5rem 0; }
figure img { width: 100%; height: auto; background: #fff; border-radius: .5rem; }
figcaption, caption { color: var(--quiet); font-size: .9rem; text-align: left; padding: .3rem 0; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tbody th { font-weight: normal; white-space: pre-wrap; position: sticky; left: 0; background: Canvas; }
"""


class Page:
    """An HTML page that needs nothing outside itself.

    Parts appear in the order in which they are added; each method returns the page. All text is
    escaped.

    Parameters
    ----------
    title : str

    Examples
    --------
    >>> from stradask.benchmarks.pages.report import Page
    >>> page = Page("Two numbers").text("Squares of small numbers.")
    >>> page = page.table([[1, 1], [2, 4]], header=["n", "n squared"], caption="Squares")
    >>> "<td>4</td>" in page.html()
    True
    """

    def __init__(self, title):
        self.title = title
        self._parts = []

    def heading(self, text):
        """Add a heading of the second level."""
        return self._add(f"<h2>{html.escape(text)}</h2>")

    def text(self, text):
        """Add paragraphs; an empty line parts them."""
        for paragraph in filter(None, map(str.strip, text.split("\n\n"))):
            self._add(f"<p>{html.escape(paragraph)}</p>")
        return self

    def figure(self, figure, caption, alt, *, format="svg"):
        """Add a matplotlib figure.

        Parameters
        ----------
        figure : matplotlib.figure.Figure
            Best made with ``Figure(...)`` itself, without pyplot and its global state.
        caption : str
        alt : str
            What the picture shows, for readers who do not see it.
        format : {"svg", "png"}
            "png" for pictures of very many points.
        """
        import matplotlib

        picture = io.BytesIO()
        # What has a layout fits already, and to find the box of its text takes as long as to draw it.
        box = "tight" if figure.get_layout_engine() is None else None
        # The fixed salt makes equal figures equal bytes; so does leaving out the date.
        with matplotlib.rc_context({"svg.hashsalt": "stradask"}):
            metadata = {"Date": None} if format == "svg" else {}
            figure.savefig(picture, format=format, dpi=160, bbox_inches=box, metadata=metadata)
        kind = "svg+xml" if format == "svg" else "png"
        data = base64.b64encode(picture.getvalue()).decode("ascii")
        return self._add(
            f'<figure><img src="data:image/{kind};base64,{data}" alt="{html.escape(alt)}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def table(self, rows, header, caption):
        """Add a table; the first cell of each row is its heading."""
        head = "".join(f'<th scope="col">{html.escape(str(cell))}</th>' for cell in header)
        body = "".join(
            f'<tr><th scope="row">{html.escape(str(first))}</th>'
            + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
            + "</tr>"
            for first, *cells in rows
        )
        return self._add(
            f'<div class="scroll" tabindex="0"><table><caption>{html.escape(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def include(self, page):
        """Add another page as a section of this one: its headings go down by a level."""
        self.heading(page.title)
        for part in page._parts:
            self._add(part.replace("<h2>", "<h3>").replace("</h2>", "</h3>"))
        return self

    def html(self):
        """Return the page as a string."""
        title = html.escape(self.title)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{STYLE}</style></head>\n"
            f"<body><main><h1>{title}</h1>\n" + "\n".join(self._parts) + "\n</main></body></html>\n"
        )

    def write(self, path):
        """Write the page to `path`, aside first and then renamed; return the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.html())
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
        return path

    def _add(self, part):
        self._parts.append(part)
        return self


def bench_report(records):
    """Return the page of a benchmark.

    Parameters
    ----------
    records : list of dict
        Records of one run of the benchmark, as `stradask.benchmarks.run.run` returns them.

    Returns
    -------
    Page
    """
    header, rows = summary.rows(records)
    page = Page(f"stradask bench {records[0]['family']}")
    page.text(_setting(records[0]))
    groups = summary.finished(records)
    if groups:
        colour = dict(zip(groups, itertools.cycle(COLOURS)))
        for metric in next(iter(groups.values()))[0]["metrics"]:
            shown = {
                name: runs for name, runs in groups.items() if len(summary.curve(runs[0], metric["key"])[0])
            }
            if shown:
                page.figure(*curves(shown, metric, colour))
        page.figure(*_bars(groups, records[0]["work_unit"], colour))
        page.table(rows, header, "Medians over the repeats (smallest..largest); seconds are of training")
        page.heading("What ran")
        versions = [
            [name, runs[0]["method"], ", ".join(f"{k} {v}" for k, v in runs[0]["versions"].items())]
            for name, runs in groups.items()
        ]
        page.table(versions, ["system", "method", "versions"], "Systems")
    missing = summary.not_run(records)
    if missing:
        page.heading("What did not run").text("\n\n".join(missing))
    page.heading("How it was measured")
    page.text(
        "Each run is a process of its own; the systems take turns. Time stands still while a state is "
        "saved, and every state is judged afterwards by the same code. Import and compiling happen in a "
        "warm-up on a small part of the data and are timed apart. Memory is the largest resident size of "
        "the process and its children until training ended, without the saving of states."
    )
    for key in ("data", "settings", "machine"):
        page.table(records[0][key].items(), [key, ""], key.capitalize())
    return page


def _setting(record):
    data, machine, settings = record["data"], record["machine"], record["settings"]
    sizes = ", ".join(
        f"{value:,} {key.replace('_', ' ')}" for key, value in data.items() if key.startswith("train_")
    )
    return (
        f"{data['name']}: {sizes}. {settings['n_jobs']} thread(s) each on {machine['processor']} "
        f"({machine['cores']} cores), {record['started']}."
    )


def _axes(width=8.0, height=4.5):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(width, height)).add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def curves(groups, metric, colours):
    """Median and range of a metric over the repeats against training seconds."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes = _axes()
    ends = []
    for name, runs in groups.items():
        colour = colours[name]
        seconds, values = _resampled(runs, metric)
        middle = np.median(values, axis=0)
        axes.plot(seconds, middle, color=colour, linewidth=2)
        axes.fill_between(
            seconds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0
        )
        ends.append((middle[-1], name, colour))
        for run in runs:
            axes.plot(*summary.curve(run, metric["key"]), ".", color=colour, markersize=4, alpha=0.6)
    axes.set_xscale("log")
    if metric["lower_is_better"]:
        axes.set_yscale("log")
        # Decades alone would leave most of these axes without a number.
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:,g}")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel(metric["label"])
    axes.grid(alpha=0.25)
    _label_ends(axes, ends)
    better = "lower" if metric["lower_is_better"] else "higher"
    said = ", ".join(f"{name} ends at {value:.4g}" for value, name, _ in ends)
    caption = (
        f"{metric['label'].capitalize()} against seconds of training ({better} is better): median and range."
    )
    return axes.figure, caption, f"Curves of the {metric['label']} against seconds of training: {said}."


def _resampled(runs, metric):
    """Bring the runs' curves to common times, those which all runs cover."""
    curves = [summary.curve(run, metric["key"]) for run in runs]
    first = max(seconds[0] for seconds, _ in curves)
    last = min(seconds[-1] for seconds, _ in curves)
    times = np.geomspace(first, max(first, last), 60)
    return times, np.array([np.interp(np.log(times), np.log(seconds), values) for seconds, values in curves])


def _label_ends(axes, ends):
    """Write each name beside the end of its line, moved apart where ends are close."""
    to_axes = axes.transAxes.inverted().transform
    heights = [to_axes(axes.transData.transform((1, value)))[1] for value, _, _ in ends]
    order = np.argsort(heights)
    places: list[float] = []
    for i in order:
        places.append(max(heights[i], places[-1] + 0.06) if places else heights[i])
    down = np.mean(places) - np.mean(heights)  # they were moved up only
    for i, place in zip(order, places, strict=True):
        _, name, colour = ends[i]
        axes.text(
            1.01, place - down, name, color=colour, transform=axes.transAxes, va="center", weight="bold"
        )


def _bars(groups, unit, colours):
    """Bars of the work per second, with the range over the repeats."""
    axes = _axes(height=0.6 + 0.5 * len(groups))
    spreads = {
        name: summary.Spread.of(map(summary.rates, runs)).scaled(1e-6) for name, runs in groups.items()
    }
    for place, (name, spread) in enumerate(spreads.items()):
        axes.barh(place, spread.median, color=colours[name], height=0.6)
        axes.plot([spread.low, spread.high], [place, place], color="black", linewidth=1.5)
        axes.text(spread.high, place, f"  {spread.median:.3g}", va="center")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set_xlabel(f"million {unit} a second")
    said = ", ".join(f"{name} {spread.median:.3g}" for name, spread in spreads.items())
    caption = f"Million {unit} a second over whole runs: median and range."
    return axes.figure, caption, f"Bars of million {unit} a second: {said}."
