"""The page of the families that solve: gap against seconds, ratios, memory."""

import itertools

import numpy as np

from . import gap_summary
from .report import COLOURS, Page

ROUNDING = 1e-12  # gaps below it, of which many are 0, are drawn here


def gap_report(records):
    """Return the page of a benchmark.

    Parameters
    ----------
    records : list of dict
        Records of one run of the benchmark, as `stradask.benchmarks.run.run` returns them.

    Returns
    -------
    Page
    """
    page = Page(f"stradask bench {records[0]['family']}")
    machine, settings = records[0]["machine"], records[0]["settings"]
    page.text(
        f"{settings['n_jobs']} thread(s) each on {machine['processor']} ({machine['cores']} cores), "
        f"{records[0]['started']}."
    )
    groups = gap_summary.solved(records)
    if groups:
        colours = dict(zip(gap_summary.solvers_of(records), itertools.cycle(COLOURS)))
        for data in dict.fromkeys(name for name, _ in groups):
            panels = {problem: runs for (name, problem), runs in groups.items() if name == data}
            if all(run["measure"] == "gap" for runs in panels.values() for run in next(iter(runs.values()))):
                page.figure(*gaps_against_seconds(data, panels, colours))
        header, body = gap_summary.rows(records)
        page.table(body, header, gap_summary.setting(records))
        header, body = gap_summary.cost_rows(records)
        page.table(body, header, "Memory beyond the design, and what is timed apart")
        header, body = gap_summary.agreement_rows(records)
        if body:
            page.table(body, header, "Cross-validated paths: do the systems agree?")
        page.heading("What ran")
        page.table(_versions(records), ["system", "method", "versions"], "Systems")
    missing = gap_summary.not_run(records)
    if missing:
        page.heading("What did not run").text("\n\n".join(missing))
    page.heading("How it was measured")
    page.text(
        "The systems take turns, each in a process of its own. Tolerances are stepped by decades from loose "
        "to tight, and more finely where a target was just met; every solution is judged by the same code, "
        f"outside: {gap_summary.words_of(records).judged}. A solve starts afresh; a short one is timed up to "
        "three times and the least counts. Import and compiling happen in a warm-up on a few columns and are "
        "timed apart."
    )
    data = {record["data"]["name"]: record["data"] for record in records}
    header = list(next(iter(data.values())))
    page.table([[shown(row[key]) for key in header] for row in data.values()], header, "Data")
    for key in ("settings", "machine"):
        page.table(records[0][key].items(), [key, ""], key.capitalize())
    return page


def shown(value):
    """Return a figure with commas or four digits, and anything else as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value


def gaps_against_seconds(data, panels, colours):
    """Draw every solve as a point and what each system reaches as a line, one panel a problem."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(4.0 * max(2, len(panels)), 4.2), layout="constrained")
    axes_row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    said = []
    for axes, (problem, by_solver) in zip(axes_row, panels.items(), strict=True):
        for name, runs in by_solver.items():
            key = gap_summary.clock(runs[0])
            points = np.array([(s[key], s["gap"]) for run in runs for s in run["solves"]]).reshape(-1, 2)
            points[:, 1] = np.maximum(points[:, 1], ROUNDING)
            axes.plot(*points.T, ".", color=colours[name], markersize=3, alpha=0.5)
            axes.plot(*front(points).T, color=colours[name], linewidth=2, label=name)
        for target in next(iter(by_solver.values()))[0]["targets"]:
            axes.axhline(target, color="0.7", linewidth=0.8, linestyle=":")
            said.append(_best(by_solver, target, problem))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(f"{data} {problem}")
        axes.set_xlabel("CPU seconds" if key == "cpu_seconds" else "seconds")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    what = gap_summary.words_of(next(iter(next(iter(panels.values())).values()))).name
    axes_row[0].set_ylabel(what)
    handles = {line.get_label(): line for axes in axes_row for line in axes.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False)
    caption = f"{data}: {what} against seconds (lower and further left is better)."
    return figure, caption, f"Gap against seconds on {data}. {'; '.join(said)}."


def front(points):
    """Return the points that no other beats in both seconds and gap, by seconds."""
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    least = np.minimum.accumulate(points[:, 1])
    return points[np.append(True, least[1:] < least[:-1])] if len(points) else points


def _best(by_solver, target, problem):
    spread, best = gap_summary.ratio_to_best(by_solver, target)
    head = f"{problem} to {gap_summary.power(target)}"
    if best is None:
        return f"{head}: nothing to compare"
    return f"{head}: {spread.median:.2g} times the seconds of the best peer, {best}"


def _versions(records):
    systems = {}
    for record in records:
        if record["status"] == "ok":
            versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
            systems[record["solver"]] = [record["solver"], record["method"], versions]
    return list(systems.values())
