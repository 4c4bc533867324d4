"""One self-contained HTML page: text, pictures, tables; and what the pages of benchmarks share."""

import base64
import html
import io
import os
import re
import tempfile
from pathlib import Path

from .tables import Table, by_solver, not_run

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

    Parts appear in the order in which they are added; each method returns the page. All text is escaped.

    Examples
    --------
    >>> from stradask.benchmarks.pages.page import Page
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
        """Add a matplotlib figure, best made with ``Figure(...)`` itself, without pyplot's global state.

        `alt` says what the picture shows, for readers who do not see it; `format` is "svg", or "png" for
        pictures of very many points.
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

    def add_facts(self, record, *keys):
        """Add a table of two columns for each of some dicts of a record."""
        for key in keys:
            self.table(*facts(record, key))
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


def fill_part(text, name, inside, page):
    """Replace the text between the two comments of that name in Markdown."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{page} has no part <!-- {name} -->")
    return pattern.sub(lambda match: match[1] + inside + match[2], text)


def write_parts(path, parts):
    """Rewrite parts of a page of Markdown, by the name of their comments."""
    text = path.read_text(encoding="utf-8")
    for name, inside in parts.items():
        text = fill_part(text, name, inside, path.name)
    path.write_text(text, encoding="utf-8")


# What pages of benchmarks share -------------------------------------------------------------------------


def bench_page(records, opening, add_results, how, data):
    """Return the page of a family with peers.

    ``add_results(page)`` adds pictures and tables; before them stands `opening`, after them what ran, what
    did not, `how` it was measured, the table of the `data`, settings and machine.
    """
    first = records[0]
    page = Page(f"stradask bench {first['family']}")
    page.text(f"{opening}{first['settings']['n_jobs']} thread(s) each on {where(first)}.")
    add_results(page)
    systems = [runs[0] for runs in by_solver(records).values()]
    if systems:
        columns = {"method": lambda run: run["method"], "versions": _versions}
        rows = ((run["solver"], run) for run in systems)
        page.heading("What ran").table(*Table.of(rows, columns, "system", "Systems"))
    if missing := not_run(records):
        page.heading("What did not run").text("\n\n".join(missing))
    page.heading("How it was measured").text(" ".join(how.split())).table(*data)
    return page.add_facts(first, "settings", "machine")


def where(record):
    """Return machine and time of a record in a few words."""
    machine = record["machine"]
    return f"{machine['processor']} ({machine['cores']} cores), {record['started']}"


def facts(record, key):
    """Return a dict of a record as a table of two columns."""
    return Table(list(record[key].items()), [key, ""], key.capitalize())


def data_table(records, form=lambda value: value):
    """Return the table of the data sets of some records, one row each."""
    data = {record["data"]["name"]: record["data"] for record in records}
    header = list(next(iter(data.values())))
    return Table([[form(row[key]) for key in header] for row in data.values()], header, "Data")


def _versions(run):
    return ", ".join(f"{name} {version}" for name, version in run["versions"].items())


def plain(axes, log="", grid=True):
    """Take the frame off axes; an x axis in ``log`` gets ticks at 1, 2 and 5 of each decade. Return them."""
    from matplotlib.ticker import LogLocator, NullLocator

    if "x" in log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in log:
        axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(alpha=0.25)
    return axes
