"""``stradask bench rotation``: table and pictures of what workers did, also with one lost half way."""

import numpy as np

from .page import COLOURS, Page, plain
from .tables import Table

GROUPS = 8  # of documents, and blocks of words, on any number of workers


def settled(run):
    """Return each worker's seconds of working, waiting and sending a sweep, of all but the first three."""
    columns = {name: np.array(column) for name, column in run["activity"].items()}
    counted = columns["round"] > 3
    n_rounds = max(len(np.unique(columns["round"][counted])), 1)
    return {
        str(worker): tuple(
            float(columns[name][counted & (columns["worker"] == worker)].sum() / n_rounds)
            for name in ("working", "waiting", "sending")
        )
        for worker in np.unique(columns["worker"])
    }


def typical(runs):
    """Return the run of the median speed."""
    return sorted(runs, key=lambda run: run["median_seconds"])[(len(runs) - 1) // 2]


def turns_of(records):
    """Put the turns of one kind of run into one list: those of a name, on one corpus and model."""
    turns: dict[tuple, list] = {}
    for record in records:
        key = record["name"], record["n_tokens"], record["settings"]["n_components"]
        turns.setdefault(key, []).append(record)
    return list(turns.values())


def runs_table(records):
    """Return the table of all kinds of runs: the figures of the median turn, and the ratios of all turns."""

    def of_typical(figure):
        return lambda runs: f"{figure(typical(runs)):.3g}"

    def of_workers(figure):
        return lambda runs: figure(typical(runs), settled(typical(runs))) if runs[0]["activity"] else ""

    def predicted(runs):
        seconds = typical(runs)["predicted"]
        return "" if seconds is None else f"{seconds:.3g}"

    def beside_work(run, workers):
        if "killed" in run["name"]:  # there sweeps that were done again count twice
            return ""
        busiest = max(worked for worked, _, _ in workers.values())
        return f"{1e3 * (run['median_seconds'] - busiest) / GROUPS:.3g}"

    def waiting(run, workers):
        worked, waited, _ = (sum(column) for column in zip(*workers.values(), strict=True))
        return f"{waited / (worked + waited):.0%}"

    columns = {
        "s a sweep": of_typical(lambda run: run["median_seconds"]),
        "predicted": predicted,
        "M tokens/s": of_typical(lambda run: run["n_tokens"] / run["median_seconds"] / 1e6),
        "of threads": lambda runs: _ratio([run["of_threads"] for run in runs if "of_threads" in run]),
        "MB a sweep": of_typical(lambda run: np.median(run["bytes_sent"][3:]) / 1e6),
        "ms a step beside work": of_workers(beside_work),
        "waiting": of_workers(waiting),
        "model": lambda runs: ", ".join(dict.fromkeys(run["digest"] for run in runs)),
    }
    return Table.of(((runs[0]["name"], runs) for runs in turns_of(records)), columns, caption="Runs")


def _ratio(ratios):
    """Say the median; in brackets the least and the largest of several turns."""
    if not ratios:
        return ""
    spread = f" ({min(ratios):.2f}..{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{np.median(ratios):.2f}{spread}"


def table(records):
    """Return the table as text."""
    return runs_table(records).text()


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench rotation: a topic model on a cluster")
    whole.text(
        f"LDA of {first['n_tokens']:,} tokens, {first['settings']['n_components']} topics "
        f"({first['settings']['sampler']}). Medians of the sweeps but the first three, and "
        "of the turns; in brackets the least and the largest ratio. A prediction is made "
        "from the rate and the overhead that one worker measured. The last column is a hash of the model: "
        "the same for all runs, also where a worker was killed."
    )
    whole.table(*runs_table(records))
    shown = [record for record in map(typical, turns_of(records)) if record["activity"]]
    if shown:
        caption = "What each worker did in a sweep: working, and waiting for blocks and for others."
        whole.figure(workers_picture(shown), caption, f"Bars of seconds. {table(records)}")
        caption = "Throughput of each sweep against time."
        whole.figure(throughput_picture(shown), caption, f"Curves of tokens a second. {table(records)}")
    return whole


def workers_picture(records):
    """Draw a bar for each worker of each run: working and waiting, in seconds a sweep."""
    from matplotlib.figure import Figure

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
    plain(ax, grid=False)
    ax.legend(frameon=False, loc="lower right")
    return figure


def throughput_picture(records):
    """Draw the tokens a second of each sweep over time, a line a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4))
    ax = figure.subplots()
    for record, colour in zip(records, np.resize(COLOURS, len(records)), strict=True):
        ends = np.cumsum(record["seconds"])
        speed = np.array(record["tokens_per_second"]) / 1e6
        ax.step(ends, speed, where="pre", label=record["name"], color=str(colour))
    ax.set_xlabel("seconds")
    ax.set_ylabel("M tokens/s")
    ax.set_ylim(bottom=0)
    plain(ax, grid=False)
    ax.legend(frameon=False)
    return figure
