"""Figures of a set of records: medians over repeats, time to a level, ratios to ours."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

MARGIN = 1e-3


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


def finished(records):
    """Return the records of finished runs by solver, ours first, then in the order of running."""
    groups: dict[str, list] = {}
    for record in sorted(records, key=lambda record: not record["ours"]):
        if record["status"] == "ok":
            groups.setdefault(record["solver"], []).append(record)
    return groups


def curve(record, key):
    """Return seconds and values of a metric over the snapshots of a run (empty when it has none)."""
    points = [(s["seconds"], s[key]) for s in record["snapshots"] if s[key] is not None]
    return np.array(points, dtype=float).reshape(-1, 2).T


def time_to(record, metric, level):
    """Return the training seconds at which a run first reaches a level, interpolated; NaN if never.

    A run that is there at its first snapshot gets the time of that snapshot.
    """
    seconds, values = curve(record, metric["key"])
    short = (values - level) * (1 if metric["lower_is_better"] else -1)
    reached = np.flatnonzero(short <= 0)
    if len(reached) == 0:
        return math.nan
    i = reached[0]
    if i == 0:
        return float(seconds[0])
    share = short[i - 1] / (short[i - 1] - short[i])
    return float(seconds[i - 1] + share * (seconds[i] - seconds[i - 1]))


def value_at(record, metric, at):
    """Return a metric at some training seconds, interpolated; NaN before the first snapshot."""
    seconds, values = curve(record, metric["key"])
    return float(np.interp(at, seconds, values, left=math.nan))


def final(record, metric):
    """Return a metric at the end of a run; NaN when the run does not have it."""
    values = curve(record, metric["key"])[1]
    return float(values[-1]) if len(values) else math.nan


def common_level(records, metric):
    """Return the level that all runs with this metric reach: the worst final one, less a thousandth."""
    values = [value for record in records if not math.isnan(value := final(record, metric))]
    if not values:
        return math.nan
    return (
        max(values) * (1 + MARGIN) if metric["lower_is_better"] else min(values) - MARGIN * abs(min(values))
    )


def rates(record):
    """Return work units per second of training over a whole run."""
    return record["work"] / record["training_seconds"]


def ratio_to_ours(groups, name, figure):
    """Return the spread of figure(run) / figure(our run of the same round); None without ours."""
    ours = next((group for group in groups.values() if group[0]["ours"]), None)
    if ours is None:
        return None
    by_round = {record["repeat"]: figure(record) for record in ours}
    pairs = [(figure(record), by_round.get(record["repeat"])) for record in groups[name]]
    return Spread.of([value / own for value, own in pairs if own])


def summarise(records):
    """Return the figures of a set of records of one family.

    Returns
    -------
    dict
        ``levels`` (metric key -> common level), ``equal_seconds``, and ``systems``: one dict a solver of
        spreads ``rate``, ``rate_ratio`` (to ours), ``final``, ``at_equal_seconds``, ``time_to_level``
        (each metric key -> spread), ``ours_there`` (our seconds to this system's worst final value of
        the first metric), ``peak_mb``, ``training_mb`` (over the process that has imported, compiled and
        holds the data), ``warm_up_seconds``, ``setup_seconds``, ``threads_used``.
    """
    groups = finished(records)
    runs = list(itertools.chain.from_iterable(groups.values()))
    if not runs:
        return {"levels": {}, "equal_seconds": math.nan, "systems": {}}
    metrics = runs[0]["metrics"]
    levels = {metric["key"]: common_level(runs, metric) for metric in metrics}
    equal_seconds = min(run["training_seconds"] for run in runs)
    systems = {}
    for name, group in groups.items():
        own_level = common_level(group, metrics[0])
        systems[name] = {
            "method": group[0]["method"],
            "versions": group[0]["versions"],
            "rate": Spread.of(map(rates, group)),
            "rate_ratio": ratio_to_ours(groups, name, rates),
            "final": _each(metrics, group, final),
            "at_equal_seconds": _each(metrics, group, value_at, dict.fromkeys(levels, equal_seconds)),
            "time_to_level": _each(metrics, group, time_to, levels),
            "ours_there": Spread.of(time_to(run, metrics[0], own_level) for run in runs if run["ours"]),
            "peak_mb": Spread.of(run["peak_mb"] for run in group),
            "training_mb": Spread.of(run["peak_mb"] - run["memory_before_mb"] for run in group),
            "warm_up_seconds": Spread.of(run["warm_up_seconds"] for run in group),
            "setup_seconds": Spread.of(run["setup_seconds"] for run in group),
            "threads_used": Spread.of(run["cpu_seconds"] / run["training_seconds"] for run in group),
        }
    return {"levels": levels, "equal_seconds": equal_seconds, "systems": systems}


def _each(metrics, group, figure, at=None):
    """Spread of a figure for each metric, over the runs that have it; `at` is an argument a metric."""
    spreads = {}
    for metric in metrics:
        key = metric["key"]
        runs = [run for run in group if len(curve(run, key)[0])]
        spreads[key] = Spread.of(figure(run, metric, *([at[key]] if at else [])) for run in runs)
    return spreads


def rows(records):
    """Return header and rows (of strings) of the table: one column a system, one row a figure."""
    summary = summarise(records)
    systems = summary["systems"]
    if not systems:
        return [], []
    ok = next(record for record in records if record["status"] == "ok")
    first, *others = ok["metrics"]

    def row(label, figure, missing="never", form=number):
        return [label, *(_spread(figure(system), missing, form) for system in systems.values())]

    lines = [
        row(f"million {ok['work_unit']} a second", lambda system: system["rate"].scaled(1e-6)),
        row("  times ours", lambda system: system["rate_ratio"]),
    ]
    for metric in ok["metrics"]:
        key, level = metric["key"], summary["levels"][metric["key"]]
        if math.isfinite(level):
            lines.append(
                row(
                    f"s to {metric['label']} {quality(level)}",
                    lambda system, k=key: system["time_to_level"][k],
                )
            )
    key = first["key"]
    lines += [
        row(
            f"{first['label']} at {summary['equal_seconds']:.1f} s",
            lambda system: system["at_equal_seconds"][key],
            missing="not yet",
            form=quality,
        ),
        row("  at the end", lambda system: system["final"][key], form=quality),
        row("  s until ours is there", lambda system: system["ours_there"]),
    ]
    for metric in others:
        label, ends = f"{metric['label']} at the end", lambda system, k=metric["key"]: system["final"][k]
        lines.append(row(label, ends, form=quality))
    lines += [
        row("peak memory, MB", lambda system: system["peak_mb"]),
        row("  of it for training", lambda system: system["training_mb"]),
        row("import and compile, s", lambda system: system["warm_up_seconds"]),
        row("taking the data, s", lambda system: system["setup_seconds"]),
        row("cores used, less child processes", lambda system: system["threads_used"]),
    ]
    return ["", *systems], lines


def not_run(records):
    """Return one line on each run that did not finish."""
    lines = (f"{r['solver']}: {r['status']}: {r['error']}" for r in records if r["status"] != "ok")
    return list(dict.fromkeys(lines))


def table(records):
    """Return the table as text, and a line on each system that did not run."""
    header, body = rows(records)
    lines = []
    if body:
        lines = aligned(header, body)
        lines.append(
            "Medians over the repeats (smallest..largest); seconds of training, without warm-up and judging."
        )
    return "\n".join(lines + not_run(records))


def aligned(header, body):
    """Return the lines of a table of strings: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    lines = []
    for label, *cells in (header, *body):
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *right]))
    return lines


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


def _spread(spread, missing, form):
    if spread is None:
        return "-"
    middle, low, high = (form(value, missing) for value in (spread.median, spread.low, spread.high))
    return middle if low == high else f"{middle} ({low}..{high})"
