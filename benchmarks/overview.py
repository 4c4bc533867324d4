"""All families side by side: how many times as fast as the best peer, at an equal result.

Each family has its own figures; what all share is a number of seconds (or clocks) until a result is as good
as the peer's: a level of the quality that both reach, a gap, a number of effective draws.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .pages import sampling, solving, training
from .pages.page import COLOURS, Page, plain, where
from .pages.tables import Spread, Table, by_problem, by_solver, divided, not_run, number, power, shown

GAP = 1e-6
ESS = 1000.0  # effective draws, for whose seconds samplers are compared
FINE = "priority + dependency"  # of strads
LATE = "10"  # of ssp: the staleness that stands for bounded ones


class Comparison(NamedTuple):
    """One problem, and how long ours and the best other took for it.

    ``speedup`` is theirs over ours, round by round: above 1 ours is faster, infinite where the other did not
    come to it. Memory is in MB beyond the data, warm-up (import and compiling) in seconds; NaN: not measured.
    """

    family: str
    problem: str
    ours: Spread
    other: str | None
    theirs: Spread
    speedup: Spread
    memory: tuple[float, float] = (math.nan, math.nan)
    warm_up: tuple[float, float] = (math.nan, math.nan)


def comparisons(records):
    """Return the comparisons of records of one family or several."""
    all_problems = []
    for family in dict.fromkeys(record["family"] for record in records):
        own = [record for record in records if record["family"] == family]
        compared = _BY_KIND.get(own[0].get("procedure", family), lambda records: [])
        all_problems += [comparison._replace(family=family) for comparison in compared(own)]
    return all_problems


def _compared(problem, groups, cost, memory):
    """Compare ours with the best other of the solvers' runs (ours first); None without ours.

    ``cost(run, others)`` are the seconds of a run to what it shares with the other system, ``memory(run)``
    its MB.
    """
    ours, others = divided(groups)
    if ours is None:
        return None
    best, spread = None, Spread.of([])
    for name, runs in others.items():
        ratio = Spread.of(_ratios(ours, runs, cost))
        if best is None or ratio.median < spread.median:
            best, spread = name, ratio
    peer_runs = others.get(best, [])
    return Comparison(
        "",
        problem,
        Spread.of(cost(run, peer_runs or ours) for run in ours),
        best,
        Spread.of(cost(run, ours) for run in peer_runs),
        spread,
        tuple(_median(map(memory, runs)) for runs in (ours, peer_runs)),
        tuple(_median(run["warm_up_seconds"] for run in runs) for runs in (ours, peer_runs)),
    )


def _median(values):
    values = list(values)
    return float(np.median(values)) if values else math.nan


def _ratios(ours, theirs, cost):
    """Yield theirs over ours for each common round in which one of both got there."""
    by_round = {run["repeat"]: cost(run, ours) for run in theirs}
    for run in ours:
        mine, other = cost(run, theirs), by_round.get(run["repeat"], math.nan)
        if math.isfinite(mine) or math.isfinite(other):
            yield (math.inf if math.isnan(other) else other) / (mine if math.isfinite(mine) else math.inf)


def _training(records):
    """Seconds to the worse of the two final values of the first metric."""
    groups = by_solver(records)
    if not groups:
        return []
    metric = next(iter(groups.values()))[0]["metrics"][0]

    def cost(run, others):
        level = training.common_level([run, *others], metric)
        return training.time_to(run, metric, level)

    def memory(run):
        return run["peak_mb"] - run["memory_before_mb"]

    comparison = _compared(f"{records[0]['data']['name']}: equal {metric['label']}", groups, cost, memory)
    return [] if comparison is None else [comparison]


def _solving(records):
    """Seconds to a gap of a millionth, or to the finest target of a problem that has no such."""
    compared = []
    for (data, problem), groups in by_problem(records).items():
        targets = next(iter(groups.values()))[0]["targets"]
        target = GAP if GAP in targets else targets[-1]

        def cost(run, others, target=target):
            return solving.time_to(run, target)

        what = solving.WORDS[next(iter(groups.values()))[0]["measure"]]
        label = f"{data} {problem} {what} {power(target)}"
        compared.append(_compared(label, groups, cost, solving.beyond))
    return [comparison for comparison in compared if comparison is not None]


def _sampling(records):
    """Compare CPU seconds for a thousand effective draws of the whole posterior; ours chooses its sampler."""
    compared = []
    wholes: dict[str, dict[str, list]] = {}
    for (data, problem), groups in by_problem(records).items():
        for name, runs in groups.items():
            # "auto" is ours alone and comes after "chains", in whose place it stands.
            if problem in sampling.WHOLE:
                wholes.setdefault(data, {})[name] = runs
    for data, groups in wholes.items():

        def cost(run, others):
            return ESS / sampling.rate(run)

        label = f"{data}: {ESS:,.0f} effective draws"
        compared.append(_compared(label, groups, cost, lambda run: run.get("beyond_mb", math.nan)))
    return [comparison for comparison in compared if comparison is not None]


def _plain(problem, ours, other, theirs):
    """Compare two numbers; None was not reached."""
    mine, his = (Spread.of([math.inf if cost is None else cost]) for cost in (ours, theirs))
    speedup = Spread.of([] if ours is None and theirs is None else [his.median / mine.median])
    return Comparison("", problem, mine, other, his, speedup)


def _ssp(records):
    """Clocks to the target with a bound, against replicas in step."""
    reached = {(r["place"], r["slowness"], r["staleness"]): r["reached"] for r in records}
    keys = dict.fromkeys((place, slowness) for place, slowness, _ in reached)
    return [
        _plain(
            f"{place}, slow: {slowness}, clocks with s = {LATE}",
            reached[place, slowness, LATE],
            "s = 0",
            reached[place, slowness, "0"],
        )
        for place, slowness in keys
        if {(place, slowness, LATE), (place, slowness, "0")} <= reached.keys()
    ]


def _strads(records):
    """Seconds to the least excess by the full schedule, against the best of the others."""
    runs: dict[tuple, dict] = {}
    for record in records:
        reached = record["reached"][min(record["reached"], key=float)]
        key = record["problem"], record["place"], record["size"]
        runs.setdefault(key, {})[record["policy"]] = None if reached is None else reached["seconds"]
    compared = []
    for (problem, place, size), by_policy in runs.items():
        others = {name: math.inf if s is None else s for name, s in by_policy.items() if name != FINE}
        if FINE in by_policy and others:
            best = min(others, key=others.__getitem__)
            theirs = others[best] if math.isfinite(others[best]) else None
            label = f"{problem}, {place}, {size} in flight, {FINE}"
            compared.append(_plain(label, by_policy[FINE], best, theirs))
    return compared


_BY_KIND = {
    "training": _training,
    "solving": _solving,
    "sampling": _sampling,
    "ssp": _ssp,
    "strads": _strads,
}
HEADER = [
    "",
    "ours, s",
    "best other, s",
    "other",
    "times as fast",
    "MB beyond the data: ours",
    "other's",
    "import and compile, s: ours",
    "other's",
]


def comparison_table(records):
    """Return the table of comparisons: one row a problem."""
    rows = [_row(comparison) for comparison in comparisons(records)]
    return Table(rows, HEADER, "Seconds to an equal result; compiling is timed apart")


def _row(c):
    speedup = shown(c.speedup, "only ours") if c.other else "no peer"
    figures = (number(value) for value in (*c.memory, *c.warm_up))
    theirs = shown(c.theirs) if c.other else "-"
    return [f"{c.family}: {c.problem}", shown(c.ours), theirs, c.other or "-", speedup, *figures]


def left_out(records):
    """Return one line on each run that did not come to an end."""
    return not_run(records, lambda record: f"{record['family']}, {record['solver']}")


def table(records):
    """Return the table as text, and a line on each system that did not run."""
    body, header, _ = comparison_table(records)
    narrow = Table([row[:5] for row in body], header[:5])
    return "\n".join([*([narrow.text()] if body else []), *left_out(records)])


def picture(compared):
    """Draw the speed-ups as points with their range, families in colours, on a log axis."""
    import itertools

    from matplotlib.figure import Figure

    # Not NaN: there is a peer, and one of both is there.
    shown = [c for c in compared if c.speedup.median > 0]
    figure = Figure(figsize=(8.0, 1.0 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colours = dict(zip(dict.fromkeys(c.family for c in shown), itertools.cycle(COLOURS)))
    ends = [value for c in shown for value in (c.speedup.low, c.speedup.median, c.speedup.high)]
    edge = 1.6 * max((value for value in ends if math.isfinite(value)), default=1.0)
    for place, c in enumerate(shown):
        low, high = (min(value, edge) for value in (c.speedup.low, c.speedup.high))
        axes.plot([low, high], [place, place], color=colours[c.family], linewidth=1.5)
        marker = ">" if math.isinf(c.speedup.median) else "o"
        axes.plot(min(c.speedup.median, edge), place, marker, color=colours[c.family], markersize=6)
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{c.family}: {c.problem}" for c in shown], fontsize=8)
    axes.invert_yaxis()
    plain(axes, log="x", grid=False)
    axes.set_xlabel("times as fast as the best other (right of 1: ours is faster)")
    axes.grid(alpha=0.25, axis="x")
    return figure


def middle(compared: Iterable[Comparison]):
    """Return median, least and largest of the median speed-ups that are known; NaN if none is."""
    known = [c.speedup.median for c in compared if not math.isnan(c.speedup.median)]
    return Spread(float(np.median(known)), min(known), max(known)) if known else Spread.of([])


def page_of_all(records, pages):
    """Return one page: the comparison of all families, and the page of each."""
    first = records[0]
    page = Page("stradask bench")
    page.text(
        f"All families on {where(first)}. A quick look, one run of small problems: the recipes of the "
        "documentation's tables are run by stradask bench FAMILY --full."
    )
    compared = comparisons(records)
    if compared:
        said = "; ".join(
            f"{c.family} {c.problem} {number(c.speedup.median, 'only ours')}" for c in compared if c.other
        )
        page.figure(
            picture(compared),
            "How many times as fast as the best other system, at an equal result: median and range. A "
            "triangle: the other did not come to it. Schedules (strads) and bounds of staleness (ssp) are "
            "compared with one another.",
            f"Points of speed-ups: {said}.",
        )
        page.table(*comparison_table(records))
    missing = left_out(records)
    if missing:
        page.heading("What did not run").text("\n\n".join(missing))
    for part in pages:
        page.include(part)
    return page
