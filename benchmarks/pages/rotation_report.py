"""The page of ``stradask bench rotation``: what workers did, and throughput with a worker lost half way."""

import numpy as np
from matplotlib.figure import Figure

from .report import COLOURS, Page
from .rotation_summary import HEADER, rows, settled, table, turns_of, typical


def rotation_report(records):
    """Return the page of a run of the benchmark.

    Parameters
    ----------
    records : list of dict
        Of `stradask.benchmarks.rotation.bench`.

    Returns
    -------
    Page
    """
    first = records[0]
    page = Page("stradask bench rotation: a topic model on a cluster")
    page.text(
        f"LDA of {first['n_tokens']:,} tokens, {first['settings']['n_components']} topics "
        f"({first['settings']['sampler']}). Medians of the sweeps but the first three, and "
        "of the turns; in brackets the least and the largest ratio. A prediction is made "
        "from the rate and the overhead that one worker measured. The last column is a hash of the model: "
        "the same for all runs, also where a worker was killed."
    )
    page.table(rows(records), HEADER, "Runs")
    shown = [record for record in map(typical, turns_of(records)) if record["activity"]]
    if shown:
        caption = "What each worker did in a sweep: working, and waiting for blocks and for others."
        page.figure(workers_picture(shown), caption, f"Bars of seconds. {table(records)}")
        caption = "Throughput of each sweep against time."
        page.figure(throughput_picture(shown), caption, f"Curves of tokens a second. {table(records)}")
    return page


def workers_picture(records):
    """Draw a bar for each worker of each run: working and waiting, in seconds a sweep."""
    bars = [
        (f"{record['name']}: {number}", *seconds)
        for record in records
        for number, seconds in enumerate(settled(record).values(), start=1)
    ]
    figure = Figure(figsize=(8, 0.8 + 0.35 * len(bars)))
    ax = figure.subplots()
    names = [name for name, *_ in bars]
    left = np.zeros(len(bars))
    for column, label in enumerate(("working", "waiting"), start=1):
        width = np.array([bar[column] for bar in bars])
        ax.barh(names, width, left=left, label=label, color=COLOURS[column - 1])
        left += width
    ax.invert_yaxis()
    ax.set_xlabel("seconds a sweep")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower right")
    return figure


def throughput_picture(records):
    """Draw the tokens a second of each sweep over time, a line a run."""
    figure = Figure(figsize=(8, 4))
    ax = figure.subplots()
    for record, colour in zip(records, np.resize(COLOURS, len(records)), strict=True):
        ends = np.cumsum(record["seconds"])
        speed = np.array(record["tokens_per_second"]) / 1e6
        ax.step(ends, speed, where="pre", label=record["name"], color=str(colour))
    ax.set_xlabel("seconds")
    ax.set_ylabel("M tokens/s")
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return figure
