"""Families that train (topics, factors): quality against seconds; their figures, table and page."""

import itertools
import math

import numpy as np

from .page import COLOURS, bench_page, facts, plain
from .tables import Spread, Table, by_solver, divided, not_run, number, quality, shown

MARGIN = 1e-3


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
    ours, _ = divided(groups)
    if ours is None:
        return None
    by_round = {record["repeat"]: figure(record) for record in ours}
    pairs = [(figure(record), by_round.get(record["repeat"])) for record in groups[name]]
    return Spread.of([value / own for value, own in pairs if own])


def summarise(records):
    """Return the figures of records of one family: ``levels`` (by metric), ``equal_seconds``, ``systems``.

    Of each system: spreads, those of ``final``, ``at_equal_seconds`` and ``time_to_level`` by metric.
    ``ours_there`` has our seconds to its worst final value of the first metric; ``training_mb`` is the
    memory over that of a process that has imported, compiled and holds the data.
    """
    groups = by_solver(records)
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


def figures_table(records):
    """Return the table: one column a system, one row a figure; without rows where no run finished."""
    summary = summarise(records)
    systems, caption = (
        summary["systems"],
        "Medians over the repeats (smallest..largest); seconds are of training",
    )
    if not systems:
        return Table([], [], caption)
    ok = next(record for record in records if record["status"] == "ok")
    first, *others = ok["metrics"]

    def cell(figure, missing="never", form=number):
        return lambda system: shown(figure(system), missing, form)

    def of_metric(figure, metric, missing="never", form=quality):
        return cell(lambda system: system[figure][metric["key"]], missing, form)

    rows = [
        (f"million {ok['work_unit']} a second", cell(lambda system: system["rate"].scaled(1e-6))),
        ("  times ours", cell(lambda system: system["rate_ratio"])),
    ]
    for metric in ok["metrics"]:
        level = summary["levels"][metric["key"]]
        if math.isfinite(level):
            reached = of_metric("time_to_level", metric, form=number)
            rows.append((f"s to {metric['label']} {quality(level)}", reached))
    at_equal_seconds = of_metric("at_equal_seconds", first, "not yet")
    rows += [
        (f"{first['label']} at {summary['equal_seconds']:.1f} s", at_equal_seconds),
        ("  at the end", of_metric("final", first)),
        ("  s until ours is there", cell(lambda system: system["ours_there"])),
        *((f"{metric['label']} at the end", of_metric("final", metric)) for metric in others),
        ("peak memory, MB", cell(lambda system: system["peak_mb"])),
        ("  of it for training", cell(lambda system: system["training_mb"])),
        ("import and compile, s", cell(lambda system: system["warm_up_seconds"])),
        ("taking the data, s", cell(lambda system: system["setup_seconds"])),
        ("cores used, less child processes", cell(lambda system: system["threads_used"])),
    ]
    columns = {name: lambda row, system=system: row(system) for name, system in systems.items()}
    return Table.of(rows, columns, caption=caption)


def table(records):
    """Return the table as text, and a line on each system that did not run."""
    made, lines = figures_table(records), []
    if made.rows:
        note = (
            "Medians over the repeats (smallest..largest); seconds of training, without warm-up and judging."
        )
        lines = [made.text(), note]
    return "\n".join(lines + not_run(records))


def result_of(record):
    """Return in a few words how one record came out."""
    last, metric = record["snapshots"][-1], record["metrics"][0]
    reached = f"{metric['label']} {quality(last[metric['key']])}"
    return f"{reached} after {last['seconds']:.1f} s of training"


# The page ---------------------------------------------------------------------------------------------

HOW = """
Each run is a process of its own; the systems take turns. Time stands still while a state is saved, and every
state is judged afterwards by the same code. Import and compiling happen in a warm-up on a small part of the
data and are timed apart. Memory is the largest resident size of the process and its children until training
ended, without the saving of states.
"""


def page(records):
    """Return the page of a run of the benchmark."""
    groups, data = by_solver(records), records[0]["data"]

    def add_results(page):
        if not groups:
            return
        colours = dict(zip(groups, itertools.cycle(COLOURS)))
        for metric in next(iter(groups.values()))[0]["metrics"]:
            with_metric = {
                name: runs for name, runs in groups.items() if len(curve(runs[0], metric["key"])[0])
            }
            if with_metric:
                page.figure(*curves(with_metric, metric, colours))
        page.figure(*_bars(groups, records[0]["work_unit"], colours))
        page.table(*figures_table(records))

    sizes = (f"{v:,} {k.replace('_', ' ')}" for k, v in data.items() if k.startswith("train_"))
    opening = f"{data['name']}: {', '.join(sizes)}. "
    return bench_page(records, opening, add_results, HOW, facts(records[0], "data"))


def _axes(width=8.0, height=4.5):
    from matplotlib.figure import Figure

    return plain(Figure(figsize=(width, height)).add_subplot(), grid=False)


def curves(groups, metric, colours):
    """Median and range of a metric over the repeats against training seconds."""
    from matplotlib.ticker import MaxNLocator, NullLocator

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
            axes.plot(*curve(run, metric["key"]), ".", color=colour, markersize=4, alpha=0.6)
    if metric["lower_is_better"]:
        axes.set_yscale("log")
        # Decades alone would leave most of these axes without a number.
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:,g}")
    plain(axes, log="x")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel(metric["label"])
    _label_ends(axes, ends)
    better = "lower" if metric["lower_is_better"] else "higher"
    description = ", ".join(f"{name} ends at {value:.4g}" for value, name, _ in ends)
    caption = (
        f"{metric['label'].capitalize()} against seconds of training ({better} is better): median and range."
    )
    return (
        axes.figure,
        caption,
        f"Curves of the {metric['label']} against seconds of training: {description}.",
    )


def _resampled(runs, metric):
    """Bring the runs' curves to common times, those which all runs cover."""
    curves = [curve(run, metric["key"]) for run in runs]
    first = max(seconds[0] for seconds, _ in curves)
    last = min(seconds[-1] for seconds, _ in curves)
    times = np.geomspace(first, max(first, last), 60)
    return times, np.array([np.interp(np.log(times), np.log(seconds), values) for seconds, values in curves])


def _label_ends(axes, ends):
    """Write each name next to the end of its line, moved apart where ends are close."""
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
    spreads = {name: Spread.of(map(rates, runs)).scaled(1e-6) for name, runs in groups.items()}
    for place, (name, spread) in enumerate(spreads.items()):
        axes.barh(place, spread.median, color=colours[name], height=0.6)
        axes.plot([spread.low, spread.high], [place, place], color="black", linewidth=1.5)
        axes.text(spread.high, place, f"  {spread.median:.3g}", va="center")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set_xlabel(f"million {unit} a second")
    description = ", ".join(f"{name} {spread.median:.3g}" for name, spread in spreads.items())
    caption = f"Million {unit} a second over whole runs: median and range."
    return axes.figure, caption, f"Bars of million {unit} a second: {description}."
