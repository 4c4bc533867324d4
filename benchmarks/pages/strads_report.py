"""The page of ``stradask bench strads``: pictures of the objective against updates and against seconds."""

import numpy as np

from . import strads_summary
from .report import COLOURS, Page


def strads_report(records):
    """Return the page of a run of the benchmark.

    Parameters
    ----------
    records : list of dict
        Of `stradask.benchmarks.strads.bench`.

    Returns
    -------
    Page
    """
    first = records[0]
    page = Page("stradask bench strads: what scheduling buys")
    page.text(
        f"A Lasso of {first['data']['n']:,} rows and {first['data']['p']:,} columns by parallel coordinate "
        f"descent, on {first['machine']['processor']} ({first['machine']['cores']} cores), "
        f"{first['started']}. The coefficients of a round (the updates in flight) are all stepped from one "
        "residual. Cyclic and random take them blindly; priority draws them in proportion to their last "
        "change (plus as much at random); priority + dependency drops in addition every column that "
        f"correlates by {strads_summary.RHO} or more with one already in the set."
    )
    page.text(_limits(records))
    places = list(dict.fromkeys(record["place"] for record in records))
    page.figure(*panels([r for r in records if r["place"] == places[0]], "updates", places[0]))
    for place in places:
        page.figure(*panels([r for r in records if r["place"] == place], "seconds", place))
    for place in places:
        for figure in strads_summary.FIGURES:
            header, body = strads_summary.rows(records, place, figure)
            page.table(body, header, f"{figure.capitalize()} to an excess of 1e-4, {place}")
    page.heading("How it was measured")
    page.text(
        "Excess is the objective over its minimum (scikit-learn's Lasso at a tolerance of 1e-10), relative "
        "to the objective at zero. A run ends at an excess of 1e-4, when it diverges, or at its limit of "
        "updates or seconds; then the table has excess and updates at the end in brackets. Seconds are CPU "
        "seconds of the process where it is local, and wall seconds with two worker processes; drawing, "
        "thinning and messages are part of them, compiling is not. Rows lie in two shards in either case, so "
        "that the curves against updates are the same bit for bit."
    )
    for key in ("data", "settings", "machine"):
        page.table(first[key].items(), [key, ""], key.capitalize())
    return page


def _limits(records):
    facts = {record["problem"]: record["data"] for record in records}
    limits = " and ".join(f"{data['limit']:.0f} for {name} columns" for name, data in facts.items())
    seconds = " and ".join(f"{data['working_set_seconds']:.2g}" for data in facts.values())
    return (
        f"p / lambda_max(X^T X), about what may be in flight at random, is {limits}. For comparison: "
        f"stradask.Lasso, by its working set, takes {seconds} CPU seconds to a duality gap of 1e-4."
    )


def panels(records, figure, place):
    """Draw excess against updates or seconds: one row of panels a problem, one column a number in flight."""
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(record["problem"] for record in records))
    sizes = list(dict.fromkeys(record["size"] for record in records))
    drawing = Figure(figsize=(3.2 * len(sizes), 3.0 * len(problems)), layout="constrained")
    grid = drawing.subplots(len(problems), len(sizes), sharey=True, squeeze=False)
    for record in records:
        axes = grid[problems.index(record["problem"]), sizes.index(record["size"])]
        _line(axes, record, figure)
    for problem, axes_row in zip(problems, grid, strict=True):
        axes_row[0].set_ylabel(f"{problem}\nexcess over the minimum")
        for size, axes in zip(sizes, axes_row, strict=True):
            axes.set(yscale="log", xscale="log", ylim=(5e-5, 20), title=f"{size} in flight", xlabel=figure)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
    handles = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    shown = [policy for policy in strads_summary.POLICIES if policy in handles]
    drawing.legend([handles[policy] for policy in shown], shown, loc="outside upper center", ncols=len(shown))
    header, body = strads_summary.rows(records, place, figure)
    said = "; ".join(
        f"{row[0]}: " + ", ".join(f"{name} {text}" for name, text in zip(header[1:], row[1:], strict=True))
        for row in body
    )
    caption = f"Excess against {figure}, {place}. A cross: the run diverged."
    return drawing, caption, f"Curves of the excess against {figure}. To 1e-4: {said}."


def _line(axes, record, figure):
    number = strads_summary.POLICIES.index(record["policy"])
    x = np.array(record["curve"][figure][1:], dtype=float)
    excess = np.array(record["curve"]["excess"][1:])
    shown = np.minimum(excess, 10.0)
    axes.plot(x, np.maximum(shown, 1e-9), color=COLOURS[number], label=record["policy"], linewidth=1.8)
    if record["reason"] == "diverged":
        axes.plot(x[-1:], shown[-1:], "x", color=COLOURS[number], markersize=9, label="_", clip_on=False)
