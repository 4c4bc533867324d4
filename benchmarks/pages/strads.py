"""``stradask bench strads``: tables, and pictures of the objective against updates and against seconds."""

from typing import Any

import numpy as np

from .page import COLOURS, Page, plain, where
from .tables import Table, power

POLICIES = ("cyclic", "random", "priority", "priority + dependency")
TARGETS = (1e-2, 1e-3, 1e-4)
LEAST = TARGETS[-1]
MIDDLE = TARGETS[1]
RHO = 0.3  # columns that correlate by as much, and groups with this root of the RV coefficient, are apart
FIGURES = ("updates", "rounds", "seconds")


def cell(record, figure, target):
    """Say when a run reached a target, in one of `FIGURES`; or ``"diverges"``, or its last excess."""
    reached = record["reached"][f"{target:g}"]
    if reached is None:
        if record["reason"] == "diverged":
            return "diverges"
        return f"({record['curve']['excess'][-1]:.0e} at {record['updates']:,})"
    if figure == "rounds":  # at the least target a run ends, so that all its rounds count
        return f"{record['rounds']:,}"
    return f"{reached['updates']:,}" if figure == "updates" else f"{reached['seconds']:.3g}"


def reached_table(records, place, figure, target=LEAST):
    """Return the table of one of `FIGURES` to a target: one row a problem and size, one column a schedule."""
    runs = {(r["problem"], r["size"], r["policy"]): r for r in records if r["place"] == place}
    rows = [(f"{problem}, {size} in flight", (problem, size)) for problem, size in _cases(records, place)]

    def column(policy):
        return lambda key: cell(runs[*key, policy], figure, target) if (*key, policy) in runs else ""

    caption = f"{figure.capitalize()} to an excess of {power(target)}, {place}"
    return Table.of(rows, {policy: column(policy) for policy in POLICIES}, caption=caption)


def beside_own_table(records, place, target=MIDDLE):
    """Return updates and seconds to a target, and the seconds of the estimator by its working set."""
    updates, seconds = (reached_table(records, place, figure, target) for figure in ("updates", "seconds"))
    facts = [facts_of(records)[problem] for problem, _ in _cases(records, place)]
    rows = []
    for (label, *many), (_, *long), data in zip(updates.rows, seconds.rows, facts, strict=True):
        cells = [n if n == s else f"{n} ({s})" for n, s in zip(many, long, strict=True)]
        own_times = [f"`{name}` ({own[f'{target:g}']['seconds']:.2g})" for name, own in data["own"].items()]
        rows.append([label, *cells, *(own_times[:1] or [""])])
    caption = f"Updates (and seconds) to an excess of {power(target)}, {place}; the working set to that gap"
    return Table(rows, [*updates.header, "working set"], caption)


def facts_of(records):
    """Return the facts of each problem, of its last record that has ``own``, else of its last.

    Records from before the estimators were timed have none; ``own`` is empty then.
    """
    with_own_last = sorted(records, key=lambda record: "own" in record["data"])
    return {record["problem"]: {"own": {}} | record["data"] for record in with_own_last}


def _cases(records, place):
    """Return problems and sizes as the rows of `reached_table` have them."""
    return list(dict.fromkeys((r["problem"], r["size"]) for r in records if r["place"] == place))


def all_tables(records):
    """Return the tables of all places: next to the estimators, and all figures at the least target."""
    made: list[Any] = []
    for place in dict.fromkeys(record["place"] for record in records):
        made.append(beside_own_table(records, place))
        made.extend(reached_table(records, place, figure) for figure in FIGURES)
    return made


def table(records):
    """Return the tables as text."""
    lines = [line for made in all_tables(records) for line in (made.caption, made.text())]
    lines.append("In brackets: excess and updates at the end of a run that came to a limit of either.")
    return "\n".join(lines)


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench strads: what scheduling buys")
    whole.text(
        f"{shapes(records)}, by parallel coordinate descent, on {where(first)}. The blocks of a round, "
        "coefficients or groups (the updates in flight), are all stepped from one residual. Cyclic and "
        "random take them blindly; priority draws them in proportion to their last change (plus as much at "
        "random); priority + dependency drops in addition every block that correlates by "
        f"{RHO} or more with one already in the set (groups: the root of their RV coefficient)."
    )
    whole.text(_limits(records))
    places = list(dict.fromkeys(record["place"] for record in records))
    whole.figure(*panels([r for r in records if r["place"] == places[0]], "updates", places[0]))
    for place in places:
        whole.figure(*panels([r for r in records if r["place"] == place], "seconds", place))
    for made in all_tables(records):
        whole.table(*made)
    whole.heading("How it was measured")
    whole.text(
        "Excess is the objective over its minimum (scikit-learn's Lasso at a tolerance of 1e-10; of groups a "
        "solution whose duality gap, by plain NumPy, is below 1e-9), relative to the objective at zero. "
        "A run ends at an excess of 1e-4, when it diverges, or at its limit of "
        "updates or seconds; then the table has excess and updates at the end in brackets. Seconds are CPU "
        "seconds of the process where it is local, and wall seconds with two worker processes; drawing, "
        "products of groups for the test of dependency, thinning and messages are part of them, compiling is "
        "not; the programs are NumPy in Python, and an update has its overhead. The estimators end by their "
        "duality gap, which is at least the excess; their seconds are the least of three. Rows lie in two "
        "shards in either case, so that the curves against updates are the same bit for bit."
    )
    return whole.add_facts(first, "data", "settings", "machine")


def shapes(records):
    """Say what the problems are."""
    said = []
    for name, data in facts_of(records).items():
        size = f"of {data['n']:,} rows and {data['p']:,} columns"
        if "size" in data:
            said.append(
                f"a group lasso {size} in {data['n_groups']} groups, in {data['n_clusters']} clusters"
            )
        else:
            said.append(f"a Lasso {size} ({name})")
    text = ", ".join(said)
    return text[0].upper() + text[1:]


def own_seconds(records, target):
    """Say how long the estimators take, by their working set and by compiled rounds of the schedule."""
    said = []
    for name, data in facts_of(records).items():
        for solver, figures in data["own"].items():
            said.append(f"{solver} {figures[f'{target:g}']['seconds']:.2g} ({name})")
    return ", ".join(said)


def _limits(records):
    facts = facts_of(records)
    own = own_seconds(records, LEAST)
    limits = " and ".join(f"{data['limit']:.0f} ({name})" for name, data in facts.items())
    return (
        f"p / lambda_max(X^T X), or for groups the sum of their largest eigenvalues over it, about what may "
        f"be in flight at random, is {limits}."
        + (f" CPU seconds of the estimators to a duality gap of 1e-4: {own}." if own else "")
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
            plain(axes)
    handles = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    shown = [policy for policy in POLICIES if policy in handles]
    drawing.legend([handles[policy] for policy in shown], shown, loc="outside upper center", ncols=len(shown))
    description = "; ".join(
        f"{label}: " + ", ".join(f"{name} {text}" for name, text in zip(POLICIES, cells, strict=True))
        for label, *cells in reached_table(records, place, figure).rows
    )
    caption = f"Excess against {figure}, {place}. A cross: the run diverged."
    return drawing, caption, f"Curves of the excess against {figure}. To 1e-4: {description}."


def _line(axes, record, figure):
    number = POLICIES.index(record["policy"])
    x = np.array(record["curve"][figure][1:], dtype=float)
    excess = np.array(record["curve"]["excess"][1:])
    shown = np.minimum(excess, 10.0)
    axes.plot(x, np.maximum(shown, 1e-9), color=COLOURS[number], label=record["policy"], linewidth=1.8)
    if record["reason"] == "diverged":
        axes.plot(x[-1:], shown[-1:], "x", color=COLOURS[number], markersize=9, label="_", clip_on=False)
