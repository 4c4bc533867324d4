"""The page of the families that sample: effective draws, and errors of shards against seconds."""

import itertools
import re

from . import sampling_summary
from .gap_report import _versions
from .gap_summary import not_run
from .report import COLOURS, Page


def sampling_report(records):
    """Return the page of a benchmark; see `stradask.benchmarks.pages.gap_report.gap_report`."""
    page = Page(f"stradask bench {records[0]['family']}")
    machine, settings = records[0]["machine"], records[0]["settings"]
    page.text(
        f"{settings['n_jobs']} thread(s) each on {machine['processor']} ({machine['cores']} cores), "
        f"{records[0]['started']}."
    )
    header, body = sampling_summary.rows(records)
    if body:
        page.table(body, header, sampling_summary.setting(records))
    header, body = sampling_summary.shard_rows(records)
    if body:
        for data in dict.fromkeys(row[0] for row in body):
            groups = _of_shards(records, data)
            if groups:
                page.figure(*errors_against_seconds(data, groups))
        page.table(body, header, "Shards, one after another, and their combinations")
    page.heading("What ran")
    page.table(_versions(records), ["system", "method", "versions"], "Systems")
    missing = not_run(records)
    if missing:
        page.heading("What did not run").text("\n\n".join(missing))
    page.heading("How it was measured")
    page.text(
        "The systems take turns, each in a process of its own; compiling happens before, on a small part of "
        "the data, and where a system compiles for a shape, with the data. Warm-up draws count. Means and "
        "standard deviations are compared with quadrature or importance sampling in plain numpy."
    )
    data = {record["data"]["name"]: record["data"] for record in records}
    header = list(next(iter(data.values())))
    page.table([list(row.values()) for row in data.values()], header, "Data")
    for key in ("settings", "machine"):
        page.table(records[0][key].items(), [key, ""], key.capitalize())
    return page


def _of_shards(records, data):
    """Records of one data set that are of shards, and the whole beside them."""
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
    from matplotlib.ticker import LogLocator, NullLocator

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
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds of the slowest shard and the combination")
    axes.set_ylabel("error of means, in posterior sd")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    best = min(records, key=lambda record: record["mean_error"])
    caption = f"{data}: error of the means for each combination; beside a point the number of shards."
    return (
        figure,
        caption,
        (f"Errors against seconds on {data}; the least is {best['mean_error']:.2g}, of {best['problem']}."),
    )
