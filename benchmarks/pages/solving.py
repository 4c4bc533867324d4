"""Families that solve: seconds to a gap, ratios to the best peer, memory, agreement of paths."""

import itertools
import math
from typing import NamedTuple

import numpy as np

from .page import COLOURS, bench_page, data_table, plain
from .tables import Spread, Table, by_problem, by_solver, divided, not_run, number, power, shown

MEGABYTE = 2**20
WORDS = {"gap": "to gap", "tolerance": "at tolerance"}

ROW_BYTES, COLUMN_BYTES = 64, 32  # what a lean solver needs beyond the design, a row and a column
NEAR = 0.1  # a range within a tenth of the median is not shown
ROUNDING = 1e-12  # gaps below it, of which many are 0, are drawn here


class Words(NamedTuple):
    """How a family's gaps are spoken of."""

    name: str
    relative_to: str
    judged: str


DUALITY_GAPS = Words(
    "relative duality gap",
    "relative to the zero model's objective",
    "the gap between its objective and the dual objective at its scaled residual, relative to the objective "
    "of the zero model",
)
EXCESSES = Words(
    "relative excess over the minimum",
    "the excess over the least objective, relative to that",
    "the excess of its objective over the least one, relative to that",
)


def clock(record):
    """Return the key of the seconds to compare: CPU seconds of one thread, wall seconds of several."""
    return "cpu_seconds" if record["settings"]["n_jobs"] == 1 else "seconds"


def time_to(record, target):
    """Return the seconds of the cheapest solve of a record that meets a target; infinity if none does."""
    key, measure = clock(record), record["measure"]
    return min((solve[key] for solve in record["solves"] if solve[measure] <= target), default=math.inf)


def ratio_to_best(runs_of, target):
    """Return the spread of our seconds over those of the best peer of the same round, and that peer.

    The peer named is the one with the best median. NaN and None without ours or without peers; the ratio is 0
    where no peer meets the target, infinity where only we do not.
    """
    ours, peers = divided(runs_of)
    if ours is None or not peers:
        return Spread.of([]), None
    medians = {name: Spread.of(time_to(run, target) for run in runs).median for name, runs in peers.items()}
    ratios = []
    for run in ours:
        others = (other for runs in peers.values() for other in runs if other["repeat"] == run["repeat"])
        mine = time_to(run, target)
        theirs = min((time_to(other, target) for other in others), default=math.inf)
        if math.isfinite(mine) or math.isfinite(theirs):
            ratios.append(mine / theirs)
    return Spread.of(ratios), min(medians, key=medians.__getitem__)


def seconds_table(records, targets=None):
    """Return the table of seconds: a row a problem and target (all, or only `targets`), a column a solver."""
    rows = []
    for (data, problem), runs_of in by_problem(records).items():
        first = next(iter(runs_of.values()))[0]
        for target in first["targets"]:
            if targets is None or target in targets:
                rows.append(
                    (f"{data} {problem} {WORDS[first['measure']]} {power(target)}", (runs_of, target))
                )

    def column(name):
        return lambda row: _seconds(row[0].get(name), row[1])

    columns = {name: column(name) for name in by_solver(records)}
    columns["ours / best peer"] = lambda row: _ratio(*row)
    return Table.of(rows, columns, "seconds", setting(records))


def _seconds(runs, target):
    if not runs:
        return "-"
    stopped = any(run["over_time"] for run in runs)
    return shown(
        Spread.of(time_to(run, target) for run in runs), "stopped" if stopped else "never", near=NEAR
    )


def _ratio(runs_of, target):
    spread, best = ratio_to_best(runs_of, target)
    if best is None or math.isnan(spread.median):  # there is no peer; or none meets the target
        return "-"
    return "no peer" if spread.median == 0 else f"{shown(spread, 'not ours', near=NEAR)} ({best})"


def cost_table(records):
    """Return the table of what else the solvers cost: a row a data set and figure (of all problems).

    The memory is the largest that a call took beyond the design and what was loaded before, its result
    included; next to it what 64 bytes a row and 32 a column make, which leaves the working set out.
    """
    rows = []
    for data in dict.fromkeys(name for name, _ in by_problem(records)):
        runs_of = by_solver(record for record in records if record["data"]["name"] == data)
        size = next(iter(runs_of.values()))[0]["data"]
        lean = (ROW_BYTES * size["train_rows"] + COLUMN_BYTES * size["train_columns"]) / MEGABYTE
        beyond_label = f"{data}: MB beyond the design (64 a row, 32 a column: {number(lean)})"
        rows += [
            (beyond_label, (runs_of, beyond)),
            (f"{data}: import and compile, s", (runs_of, lambda run: run["warm_up_seconds"])),
            (f"{data}: taking the data, s", (runs_of, lambda run: run["setup_seconds"])),
        ]
    columns = {
        name: lambda row, name=name: shown(Spread.of(map(row[1], row[0].get(name, []))), "-", near=NEAR)
        for name in by_solver(records)
    }
    return Table.of(rows, columns, caption="Memory beyond the design, and what is timed apart")


def beyond(run):
    """Return the most memory in MB that a solve took beyond the design; NaN without one."""
    return max((solve["beyond_mb"] for solve in run["solves"]), default=math.nan)


def agreement_table(records):
    """Return the table of how far the systems' curves of cross-validated errors are apart.

    Each curve is compared with the median, penalty by penalty, of the curves of all systems at the tightest
    tolerance: the largest relative difference; and the penalty that was chosen.
    """
    rows = []
    for (data, problem), runs_of in by_problem(records).items():
        curves = [
            (name, solve, np.array(solve["errors"]))
            for name, runs in runs_of.items()
            for solve in runs[0]["solves"]
            if "errors" in solve
        ]
        tightest = min((solve["tolerance"] for _, solve, _ in curves), default=None)
        reference = [curve for _, solve, curve in curves if solve["tolerance"] == tightest]
        for name, solve, curve in curves:
            apart = np.abs(curve / np.median(reference, axis=0) - 1).max()
            label = f"{data} {problem} at tolerance {power(solve['tolerance'])}: {name}"
            share = solve["alpha"] / runs_of[name][0]["data"]["alpha_max"]
            rows.append([label, f"{apart:.1e}", f"{share:.4f}"])
    header = ["curves of errors", "largest relative difference", "chosen penalty / alpha_max"]
    return Table(rows, header, "Cross-validated paths: do the systems agree?")


def words_of(records):
    """Return how the gaps of the records' family are spoken of."""
    return EXCESSES if records[0]["family"] == "logistic" else DUALITY_GAPS


def setting(records):
    """Return a sentence on how the seconds were measured."""
    kind = "CPU" if clock(records[0]) == "cpu_seconds" else "Wall"
    limits = sorted({record["settings"]["max_seconds"] for record in records})
    limit = " to ".join(f"{seconds:g}" for seconds in dict.fromkeys((limits[0], limits[-1])))
    by_set = ", by data set" if len(limits) > 1 else ""
    return (
        f"{kind} seconds of the cheapest solve that meets the gap, {words_of(records).relative_to}; "
        f"medians over the repeats (and range); stopped: beyond {limit} s{by_set}."
    )


def table(records):
    """Return the tables as text, and a line on each system that did not run."""
    lines = []
    seconds, agreement = seconds_table(records), agreement_table(records)
    if seconds.rows:
        lines += [seconds.text(), seconds.caption, "", cost_table(records).text()]
    if agreement.rows:
        lines += ["", agreement.text()]
    return "\n".join(lines + not_run(records))


def result_of(record):
    """Return in a few words how one record came out."""
    times = " / ".join(number(time_to(record, target)) for target in record["targets"])
    targets = " / ".join(map(power, record["targets"]))
    least = min((solve["gap"] for solve in record["solves"]), default=math.nan)
    stopped = ", then stopped" if record["over_time"] else ""
    return (
        f"{times} s {WORDS[record['measure']]} {targets}, {len(record['solves'])} solves, "
        f"least gap {least:.1e}{stopped}"
    )


# The page ---------------------------------------------------------------------------------------------

HOW = """
The systems take turns, each in a process of its own. Tolerances are stepped by decades from loose to tight,
and more finely where a target was just met; every solution is judged by the same code, outside: {}. A solve
starts afresh; a short one is timed up to three times and the least counts. Import and compiling happen in a
warm-up on a few columns and are timed apart.
"""


def page(records):
    """Return the page of a run of the benchmark."""
    problems = by_problem(records)

    def add_results(page):
        if not problems:
            return
        colours = dict(zip(by_solver(records), itertools.cycle(COLOURS)))
        for data in dict.fromkeys(name for name, _ in problems):
            panels = {problem: runs_of for (name, problem), runs_of in problems.items() if name == data}
            if all(
                run["measure"] == "gap" for runs_of in panels.values() for run in next(iter(runs_of.values()))
            ):
                page.figure(*gaps_against_seconds(data, panels, colours))
        page.table(*seconds_table(records)).table(*cost_table(records))
        agreement = agreement_table(records)
        if agreement.rows:
            page.table(*agreement)

    how = HOW.format(words_of(records).judged)
    return bench_page(records, "", add_results, how, data_table(records, in_digits))


def in_digits(value):
    """Return a figure with commas or four digits, and anything else as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value


def gaps_against_seconds(data, panels, colours):
    """Draw every solve as a point and what each system reaches as a line, one panel a problem."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0 * max(2, len(panels)), 4.2), layout="constrained")
    axes_row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    description = []
    for axes, (problem, runs_of) in zip(axes_row, panels.items(), strict=True):
        for name, runs in runs_of.items():
            key = clock(runs[0])
            points = np.array([(s[key], s["gap"]) for run in runs for s in run["solves"]]).reshape(-1, 2)
            points[:, 1] = np.maximum(points[:, 1], ROUNDING)
            axes.plot(*points.T, ".", color=colours[name], markersize=3, alpha=0.5)
            axes.plot(*front(points).T, color=colours[name], linewidth=2, label=name)
        for target in next(iter(runs_of.values()))[0]["targets"]:
            axes.axhline(target, color="0.7", linewidth=0.8, linestyle=":")
            description.append(_best(runs_of, target, problem))
        plain(axes, log="xy")
        axes.set_title(f"{data} {problem}")
        axes.set_xlabel("CPU seconds" if key == "cpu_seconds" else "seconds")
    what = words_of(next(iter(next(iter(panels.values())).values()))).name
    axes_row[0].set_ylabel(what)
    handles = {line.get_label(): line for axes in axes_row for line in axes.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
    caption = f"{data}: {what} against seconds (lower and further left is better)."
    return figure, caption, f"Gap against seconds on {data}. {'; '.join(description)}."


def front(points):
    """Return the points that no other beats in both seconds and gap, by seconds."""
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    least = np.minimum.accumulate(points[:, 1])
    return points[np.append(True, least[1:] < least[:-1])] if len(points) else points


def _best(runs_of, target, problem):
    spread, best = ratio_to_best(runs_of, target)
    head = f"{problem} to {power(target)}"
    if best is None:
        return f"{head}: nothing to compare"
    return f"{head}: {spread.median:.2g} times the seconds of the best peer, {best}"
