"""Tables of a benchmark: records by solver, spreads over the repeats, and one form for text and pages."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of a figure over the repeats; NaN (not reached) counts as largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values):
        """Return the spread of some values."""
        values = sorted(math.inf if math.isnan(value) else value for value in values)
        return cls(float(np.median(values)), values[0], values[-1]) if values else cls(*[math.nan] * 3)

    def scaled(self, factor):
        """Return the spread of the values times a positive factor."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


class Table(NamedTuple):
    """A table of strings, each row with its label first; the fields are the arguments of `Page.table`."""

    rows: list
    header: list
    caption: str = ""

    @classmethod
    def of(cls, rows, columns, corner="", caption=""):
        """Make a table from pairs of a label and a thing, and from columns: headings and ``cell(thing)``.

        Examples
        --------
        >>> from stradask.benchmarks.pages.tables import Table
        >>> print(Table.of([("two", 2), ("ten", 10)], {"n": str, "n squared": lambda n: str(n**2)}).text())
              n  n squared
        two   2          4
        ten  10        100
        """
        body = [[label, *(cell(thing) for cell in columns.values())] for label, thing in rows]
        return cls(body, [corner, *columns], caption)

    def text(self):
        """Return lines of text: the first column to the left, the others to the right."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = []
        for label, *cells in (self.header, *self.rows):
            right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join([label.ljust(widths[0]), *right]))
        return "\n".join(lines)

    def markdown(self):
        """Return the table in Markdown, without its caption."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "".join("| " + " | ".join(map(str.strip, cells)) + " |\n" for cells in lines)


# Records ----------------------------------------------------------------------------------------------


def by_solver(records):
    """Return the records of finished runs by solver, ours first, then in the order of running."""
    groups: dict[str, list] = {}
    for record in sorted(records, key=lambda record: not record["ours"]):
        if record["status"] == "ok":
            groups.setdefault(record["solver"], []).append(record)
    return groups


def by_problem(records):
    """Return the records of finished runs by data set and problem, and these as `by_solver`."""
    groups: dict[tuple[str, str], list] = {}
    for record in records:
        if record["status"] == "ok":
            groups.setdefault((record["data"]["name"], record["problem"]), []).append(record)
    return {key: by_solver(runs) for key, runs in groups.items()}


def divided(groups):
    """Return our runs (None without) and the peers' by solver, of runs by solver."""
    ours = next((runs for runs in groups.values() if runs[0]["ours"]), None)
    return ours, {name: runs for name, runs in groups.items() if not runs[0]["ours"]}


def run_label(record):
    """Return the solver of a record, with data set and problem where it has a problem."""
    problem = f" {record['data']['name']} {record['problem']}" if "problem" in record else ""
    return f"{record['solver']}{problem}"


def not_run(records, label=run_label):
    """Return one line on each run that did not finish, but not on what a system does not offer."""
    missing = (record for record in records if record.get("status") in ("failed", "unavailable"))
    return list(dict.fromkeys(f"{label(r)}: {r['status']}: {r['error']}" for r in missing))


def latest_run(records):
    """Return the records of the last run."""
    return [record for record in records if record["run"] == records[-1]["run"]]


# Figures ----------------------------------------------------------------------------------------------


def number(value, missing="never"):
    """Return a figure with two or three digits; `missing` for infinity, a dash for NaN."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return missing
    size = abs(value)
    digits = ".0f" if size >= 100 else ".1f" if size >= 20 else ".2f" if size >= 1 else ".2g"
    return format(value, digits)


def quality(value, missing="never"):
    """Return a figure of quality with four digits, since a third of a percent is a lot there."""
    return f"{value:.4g}" if math.isfinite(value) and abs(value) < 1000 else number(value, missing)


def shown(spread, missing="never", form=number, near=0.0):
    """Return median and range of a spread; the median alone where the range is within that part of it."""
    if spread is None:
        return "-"
    middle, low, high = (form(value, missing) for value in (spread.median, spread.low, spread.high))
    close = math.isfinite(spread.high) and spread.high - spread.low <= near * spread.median
    return middle if low == high or close else f"{middle} ({low}..{high})"


def power(target):
    """Return 1e-4 for 0.0001."""
    return f"{target:.0e}".replace("e-0", "e-")
