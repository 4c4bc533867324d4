"""Families that sample: effective draws a CPU second, errors of combined shards; their table and page."""

import itertools
import math
import re

from .page import COLOURS, bench_page, data_table, plain
from .tables import Spread, Table, by_problem, divided, not_run, number

WHOLE = ("chains", "auto")


def rate(record):
    """Return the tail ESS of the worst parameter in a CPU second, warm-up counted."""
    return record["tail_ess"] / record["cpu_seconds"]


def whole_runs(records):
    """Return the runs of the whole posterior by data set and solver; ours that chose itself has a name."""
    whole: dict[str, dict[str, list]] = {}
    for (data, problem), runs_of in by_problem(records).items():
        for name, runs in runs_of.items():
            if problem in WHOLE:
                label = name if problem == "chains" else f"{name} {problem}"
                whole.setdefault(data, {})[label] = runs
    return whole


def rates_table(records):
    """Return the table of the chains: a row a data set, a column a solver, and ours over the best."""
    whole = whole_runs(records)
    names = list(dict.fromkeys(name for runs_of in whole.values() for name in runs_of))
    names.sort(
        key=lambda name: not any(r["ours"] for runs_of in whole.values() for r in runs_of.get(name, ()))
    )

    def median(runs):
        return Spread.of(map(rate, runs)).median

    def cell(runs):
        if runs is None:
            return "-"
        error = Spread.of(run["mean_error"] for run in runs).median
        return f"{number(median(runs))} ({error:.2g})"

    def ratio(runs_of):
        ours = max((median(runs) for runs in runs_of.values() if runs[0]["ours"]), default=math.nan)
        peers = {name: median(runs) for name, runs in divided(runs_of)[1].items()}
        best = max(peers, key=peers.__getitem__, default=None)
        return "-" if best is None else f"{number(ours / peers[best])} ({best})"

    def column(name):
        return lambda runs_of: cell(runs_of.get(name))

    columns = {name: column(name) for name in names}
    columns["ours / best peer"] = ratio
    return Table.of(whole.items(), columns, "tail ESS / CPU s (error)", setting(records))


def shards_table(records):
    """Return the table of the combinations: a row a data set and way."""
    refused: dict[tuple[str, str], dict] = {}
    for record in records:
        if record["status"] == "refused":
            refused.setdefault((record["data"]["name"], record["problem"]), record)
    body = []
    for (data, problem), group in by_problem(records).items():
        for runs in group.values():
            if problem in WHOLE or "parallel_seconds" not in runs[0]:
                continue
            figures = [
                Spread.of(run[key] for run in runs).median
                for key in ("mean_error", "sd_error", "quantile_error", "parallel_seconds")
            ]
            body.append([data, problem, *(f"{figure:.3g}" for figure in figures)])
    body += [[data, problem, "refused", "", "", ""] for data, problem in refused]
    errors = ["error of means", "error of sd", "of 5 and 95 %"]
    return Table(
        sorted(body, key=lambda row: row[0]),
        ["shards", "", *errors, "slowest shard + combination, s"],
        "Shards, one after another, and their combinations",
    )


def setting(records):
    """Return a sentence that explains the figures."""
    settings = records[0]["settings"]
    return (
        f"{settings['n_chains']} chains of {settings['n_warmup']} + {settings['n_samples']} draws. Tail ESS "
        "of the worst parameter in a CPU second, warm-up counted, compiling not (but NumPyro's, of which "
        "each run does a part); in brackets the error of the means, in posterior standard deviations (root "
        "mean square over parameters). Medians over the runs."
    )


def table(records):
    """Return the tables as text, and a line on each system that did not run."""
    tables = [made for made in (rates_table(records), shards_table(records)) if made.rows]
    lines = [line for made in tables for line in (made.text(), "")]
    if lines:
        lines += [setting(records), ""]
    lines += [
        f"{r['data']['name']} {r['problem']}: refused: {r['refused'].splitlines()[0]}"
        for r in records
        if r["status"] == "refused"
    ]
    return "\n".join(lines + not_run(records))


def result_of(record):
    """Return in a few words how one record came out."""
    if record["status"] == "refused":
        return f"refused: {record['refused'].splitlines()[0]}"
    errors = f"errors {record['mean_error']:.3f} and {record['sd_error']:.3f}"
    return f"tail ESS {number(rate(record))} a CPU second, {errors}, {record['seconds']:.1f} s"


# The page ---------------------------------------------------------------------------------------------

HOW = """
The systems take turns, each in a process of its own; compiling happens before, on a small part of the data,
and where a system compiles for a shape, with the data. Warm-up draws count. Means and standard deviations are
compared with quadrature or importance sampling in plain numpy.
"""


def page(records):
    """Return the page of a run of the benchmark."""

    def add_results(page):
        rates, shards = rates_table(records), shards_table(records)
        if rates.rows:
            page.table(*rates)
        if shards.rows:
            for data in dict.fromkeys(row[0] for row in shards.rows):
                runs = _of_shards(records, data)
                if runs:
                    page.figure(*errors_against_seconds(data, runs))
            page.table(*shards)

    return bench_page(records, "", add_results, HOW, data_table(records))


def _of_shards(records, data):
    """Return the finished records of one data set that have seconds of parallel shards."""
    return [
        record
        for record in records
        if record["status"] == "ok"
        and record["ours"]
        and record["data"]["name"] == data
        and "parallel_seconds" in record
    ]


def _way(record):
    """Number of shards and the way they are combined, of "M=5 auto" or "M=5, as long"."""
    [(shards, way)] = re.findall(r"^M=(\d+),? (.+)$", record["problem"])
    return int(shards), way


def errors_against_seconds(data, records):
    """Draw the error of means against slowest shard and combination: a colour a method, a point an M."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    ways = [_way(record) for record in records]
    methods = list(dict.fromkeys(method for _, method in ways))
    colours = dict(zip(methods, itertools.cycle(COLOURS)))
    for method in methods:
        runs = [(m, record) for (m, way), record in zip(ways, records, strict=True) if way == method]
        runs.sort(key=lambda run: run[0])
        x, y = ([record[key] for _, record in runs] for key in ("parallel_seconds", "mean_error"))
        axes.plot(x, y, "o", color=colours[method], markersize=6, label=method)
        for m, record in runs:
            axes.annotate(
                str(m),
                (record["parallel_seconds"], record["mean_error"]),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=8,
                color="0.35",
            )
    plain(axes, log="xy")
    axes.set_xlabel("seconds of the slowest shard and the combination")
    axes.set_ylabel("error of means, in posterior sd")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    best = min(records, key=lambda record: record["mean_error"])
    caption = f"{data}: error of the means for each combination; the number at a point is that of shards."
    return (
        figure,
        caption,
        (f"Errors against seconds on {data}; the least is {best['mean_error']:.2g}, of {best['problem']}."),
    )
