"""Figures of solved problems: seconds to a gap, ratios to the best peer, memory, agreement of paths."""

import math
from typing import NamedTuple

import numpy as np

from .summary import Spread, aligned, number

MEGABYTE = 2**20
WORDS = {"gap": "to gap", "tolerance": "at tolerance"}

ROW_BYTES, COLUMN_BYTES = 64, 32  # what a lean solver needs beyond the design, a row and a column


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


def solved(records):
    """Return the records that came to an end, by data set and problem, then by solver, ours first."""
    groups: dict[tuple[str, str], dict[str, list]] = {}
    for record in sorted(records, key=lambda record: not record["ours"]):
        if record["status"] == "ok":
            groups.setdefault((record["data"]["name"], record["problem"]), {}).setdefault(
                record["solver"], []
            ).append(record)
    order = list(dict.fromkeys((r["data"]["name"], r["problem"]) for r in records if r["status"] == "ok"))
    return {key: groups[key] for key in order}


def solvers_of(records):
    """Return the solvers that solved anything, ours first."""
    finished = [record for record in records if record["status"] == "ok"]
    return list(dict.fromkeys(r["solver"] for r in sorted(finished, key=lambda record: not record["ours"])))


def ratio_to_best(by_solver, target):
    """Return the spread of our seconds over those of the best peer of the same round, and that peer.

    The peer named is the one with the best median. NaN and None without ours or without peers; the ratio is 0
    where no peer meets the target, infinity where only we do not.
    """
    ours = next((runs for runs in by_solver.values() if runs[0]["ours"]), None)
    peers = {name: runs for name, runs in by_solver.items() if not runs[0]["ours"]}
    if ours is None or not peers:
        return Spread.of([]), None
    medians = {name: Spread.of(time_to(run, target) for run in runs).median for name, runs in peers.items()}
    best = min(medians, key=medians.__getitem__)
    ratios = []
    for run in ours:
        others = [
            time_to(other, target)
            for runs in peers.values()
            for other in runs
            if other["repeat"] == run["repeat"]
        ]
        mine, theirs = time_to(run, target), min(others, default=math.inf)
        if math.isfinite(mine) or math.isfinite(theirs):
            ratios.append(mine / theirs)
    return Spread.of(ratios), best


def rows(records, targets=None):
    """Return header and rows (of strings) of the table: one row a problem and target, one column a solver.

    Parameters
    ----------
    records : list of dict
    targets : sequence of float or None
        Only these gaps.
    """
    names = solvers_of(records)
    body = []
    for (data, problem), by_solver in solved(records).items():
        first = next(iter(by_solver.values()))[0]
        for target in first["targets"]:
            if targets is None or target in targets:
                cells = [_seconds(by_solver.get(name), target) for name in names]
                label = f"{data} {problem} {WORDS[first['measure']]} {power(target)}"
                body.append([label, *cells, _ratio(by_solver, target)])
    return ["seconds", *names, "ours / best peer"], body


def power(target):
    """Return 1e-4 for 0.0001."""
    return f"{target:.0e}".replace("e-0", "e-")


def _seconds(runs, target):
    if not runs:
        return "-"
    spread = Spread.of(time_to(run, target) for run in runs)
    stopped = any(run["over_time"] for run in runs)
    return _shown(spread, "stopped" if stopped else "never")


def _ratio(by_solver, target):
    spread, best = ratio_to_best(by_solver, target)
    if best is None or math.isnan(spread.median):  # there is no peer; or nobody meets the target
        return "-"
    if spread.median == 0:
        return "no peer"
    return f"{_shown(spread, 'not ours')} ({best})"


def _shown(spread, missing):
    """Show median and range, or the median alone where the range is within a tenth of it."""
    middle, low, high = (number(value, missing) for value in (spread.median, spread.low, spread.high))
    close = math.isfinite(spread.high) and spread.high - spread.low <= 0.1 * spread.median
    return middle if low == high or close else f"{middle} ({low}..{high})"


def cost_rows(records):
    """Return header and rows of what else the solvers cost, a row a data set and figure (of all problems).

    The memory is the largest that a call took beyond the design and what was loaded before, its result
    included; beside it what 64 bytes a row and 32 a column make, which leaves the working set out.
    """
    names = solvers_of(records)
    by_data: dict[str, dict[str, list]] = {}
    for (data, _), by_solver in solved(records).items():
        for name, runs in by_solver.items():
            by_data.setdefault(data, {}).setdefault(name, []).extend(runs)
    body = []
    for data, by_solver in by_data.items():
        described = next(iter(by_solver.values()))[0]["data"]
        lean = (ROW_BYTES * described["train_rows"] + COLUMN_BYTES * described["train_columns"]) / MEGABYTE
        figures = {
            f"{data}: MB beyond the design (64 a row, 32 a column: {number(lean)})": _beyond,
            f"{data}: import and compile, s": lambda run: run["warm_up_seconds"],
            f"{data}: taking the data, s": lambda run: run["setup_seconds"],
        }
        for label, figure in figures.items():
            spreads = [Spread.of(map(figure, by_solver.get(name, []))) for name in names]
            body.append([label, *(_shown(spread, "-") for spread in spreads)])
    return ["", *names], body


def _beyond(run):
    return max((solve["beyond_mb"] for solve in run["solves"]), default=math.nan)


def agreement_rows(records):
    """Return header and rows that tell how far the systems' curves of cross-validated errors are apart.

    Each curve is compared with the median, penalty by penalty, of the curves of all systems at the tightest
    tolerance: the largest relative difference; and the penalty that was chosen.
    """
    body = []
    for (data, problem), by_solver in solved(records).items():
        curves = [
            (name, solve, np.array(solve["errors"]))
            for name, runs in by_solver.items()
            for solve in runs[0]["solves"]
            if "errors" in solve
        ]
        tightest = min((solve["tolerance"] for _, solve, _ in curves), default=None)
        reference = [curve for _, solve, curve in curves if solve["tolerance"] == tightest]
        for name, solve, curve in curves:
            apart = np.abs(curve / np.median(reference, axis=0) - 1).max()
            label = f"{data} {problem} at tolerance {power(solve['tolerance'])}: {name}"
            share = solve["alpha"] / by_solver[name][0]["data"]["alpha_max"]
            body.append([label, f"{apart:.1e}", f"{share:.4f}"])
    return ["curves of errors", "largest relative difference", "chosen penalty / alpha_max"], body


def not_run(records):
    """Return one line on each problem that a system did not solve, but not on what it does not offer."""
    lines = []
    for record in records:
        if record["status"] in ("failed", "unavailable"):
            what = f" {record['data']['name']} {record['problem']}" if "problem" in record else ""
            lines.append(f"{record['solver']}{what}: {record['status']}: {record['error']}")
    return list(dict.fromkeys(lines))


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
    header, body = rows(records)
    if body:
        lines += [*aligned(header, body), setting(records), "", *aligned(*cost_rows(records))]
        header, body = agreement_rows(records)
        if body:
            lines += ["", *aligned(header, body)]
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
