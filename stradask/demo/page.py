"""``stradask demo``: every family on real data, in words and on one page with pictures.

A family's part is a function that its entry in `stradask.registry` names: ``function(settings, say)``
takes at most 15 seconds after compiling, says what it does as it goes, and returns a `Part`.
"""

import html
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .._version import __version__
from ..errors import StradaskError
from ..registry import MODELS, resolve

DEFAULT_REPORT = Path("stradask-demo.html")
_MARK = '<meta name="generator" content="stradask demo">'


@dataclass(frozen=True)
class Settings:
    """Settings of a demo: topics, the seed (which also draws the held-out data), and whether to be quick."""

    n_components: int = 30
    seed: int = 0
    quick: bool = False


@dataclass(frozen=True)
class Part:
    """One family's part of a demo: figures for JSON, ``add_to(page)``, and its row of the summary.

    The row has what was fitted, to which data, in what time, and how good that is compared with another way.
    """

    document: dict
    add_to: Callable
    row: tuple[str, str, str, str]


def run(settings, out=None, say=print):
    """Run the demo, write its report, and return its figures by model with the report's path.

    The report goes to `out`, by default ``stradask-demo.html`` in the current folder, where a report of an
    earlier demo is replaced, and no other file; without matplotlib there is none. ``say`` is given text, a
    few lines at a time.
    """
    can_plot = importlib.util.find_spec("matplotlib") is not None
    if out is not None and not can_plot:
        raise StradaskError(f"--out: {_NO_PICTURES}")
    path = Path(DEFAULT_REPORT if out is None else out).absolute()
    if can_plot:
        _check(path)
    parts = {model.name: resolve(model.demo)(settings, say) for model in MODELS.values() if model.demo}
    if can_plot:
        page = make_page()
        page.text(_OPENING)
        page.table([part.row for part in parts.values()], _COLUMNS, "What was fitted in this run")
        page.contents()
        for part in parts.values():
            part.add_to(page)
        _add_machine(page)
        page.write(path)
        say(f"\nReport with pictures: {path}")
    else:
        say(f"\nNo report: {_NO_PICTURES}")
    document = {"report": str(path) if can_plot else None}
    return document | {name: part.document for name, part in parts.items()}


_OPENING = (
    "One model of each kind, fitted on this machine a moment ago. Each part shows the data, the code and the "
    "result. Where another way is compared, it got the same data, and the same function scored both."
)
_COLUMNS = ("model", "data", "time", "result")
_NO_PICTURES = "the pictures need matplotlib, which is not installed: pip install 'stradask[plot]'"


def _add_machine(page):
    from importlib.metadata import version

    from ..benchmarks.run import describe_machine

    libraries = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    rows = [(name.replace("_", " "), value) for name, value in (describe_machine() | libraries).items()]
    page.heading("Machine and versions")
    page.table(rows, ["", ""], "Where this ran")


def _check(path):
    """Find out before the work whether the report can be written."""
    from ..cli.outputs import check_output

    check_output("--out", path, is_ours=is_report)


def is_report(path):
    """Tell whether a file is the report of a demo."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return _MARK in file.read(4096)


# The page ----------------------------------------------------------------------------------------

_STYLE = """
figure { max-width: 42rem; margin: .5rem 0 1.5rem; }
pre { overflow-x: auto; padding: .7rem .9rem; border-radius: .5rem; background: #8881; font-size: .85rem; }
nav ol { padding-left: 1.2rem; }
iframe { width: 100%; height: 44rem; border: 1px solid var(--line); border-radius: .5rem; }
main > .scroll:first-of-type td { white-space: normal; text-align: left; vertical-align: top; }
main > .scroll:first-of-type th { text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { figure img { filter: invert(.9) hue-rotate(180deg); } }
@media (max-width: 40rem) {
  main > .scroll:first-of-type :is(table, caption, tbody, tr, th, td) { display: block; }
  main > .scroll:first-of-type thead { display: none; }
  main > .scroll:first-of-type :is(th, td) { padding: .1rem 0; border: 0; position: static; }
  main > .scroll:first-of-type tbody th { font-weight: bold; padding-top: .6rem; }
}
.pair, .bars { display: grid; gap: 0 1.2rem; }
.pair { grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.bars { grid-template-columns: repeat(auto-fill, minmax(min(100%, 10rem), 1fr)); row-gap: 1.2rem; }
.bars h3 { font-size: .9rem; margin: 0 0 .3rem; color: var(--quiet); }
.bars ol { list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.bars li { display: flex; justify-content: space-between; padding: 0 .35rem; margin-bottom: 2px;
  border-radius: .2rem; background: linear-gradient(90deg, #0072b24d var(--width), #8881 0); }
.bars small { color: var(--quiet); font-variant-numeric: tabular-nums; }
"""


_CONTENTS = "<!-- contents -->"


def make_page():
    """Return an empty `DemoPage`."""
    # Imported here, so that reading the command line does not import what the page needs.
    from ..benchmarks.pages.page import Page

    class DemoPage(Page):
        """The page of a demo: a `Page` with contents, code, bars of words, and pictures side by side."""

        def __init__(self, title):
            super().__init__(title)
            self._headings = []

        def heading(self, text):
            """Add a heading that the contents name."""
            self._headings.append(text)
            return self._add(f'<h2 id="part-{len(self._headings)}">{html.escape(text)}</h2>')

        def contents(self):
            """Put the list of contents here; it has all headings, also later ones."""
            return self._add(_CONTENTS)

        def code(self, text):
            """Add the code that made what follows."""
            return self._add(f'<pre tabindex="0"><code>{html.escape(text.strip())}</code></pre>')

        def embed(self, page, title):
            """Add a whole HTML page in a frame that can reach nothing outside itself."""
            return self._add(
                f'<iframe sandbox="allow-scripts" title="{html.escape(title)}" '
                f'srcdoc="{html.escape(page)}"></iframe>'
            )

        def subheading(self, text):
            """Add a heading of the third level."""
            return self._add(f"<h3>{html.escape(text)}</h3>")

        def bars(self, groups):
            """Add labelled bars in columns: pairs of a heading and (label, share between 0 and 1) pairs."""
            cards = []
            for heading, rows in groups:
                longest = max(share for _, share in rows)
                items = (
                    f'<li style="--width:{share / longest:.1%}">{html.escape(label)} '
                    f"<small>{share:.1%}</small></li>"
                    for label, share in rows
                )
                cards.append(f"<section><h3>{html.escape(heading)}</h3><ol>{''.join(items)}</ol></section>")
            return self._add(f'<div class="bars">{"".join(cards)}</div>')

        def pair(self, *figures):
            """Add pictures side by side where there is room; each is the arguments of `figure`."""
            self._add('<div class="pair">')
            for figure in figures:
                self.figure(*figure)
            return self._add("</div>")

        def html(self):
            """Return the page as a string, marked as ours."""
            items = (
                f'<li><a href="#part-{i}">{html.escape(text)}</a></li>'
                for i, text in enumerate(self._headings, 1)
            )
            page = super().html().replace(_CONTENTS, f"<nav><ol>{''.join(items)}</ol></nav>", 1)
            page = page.replace("<title>", f"{_MARK}<title>", 1)
            return page.replace("</style>", f"{_STYLE}</style>", 1)

    return DemoPage(f"What stradask {__version__} fits")
