"""What runs of ``stradask bench rotation`` come to, in figures and tables."""

import numpy as np

GROUPS = 8  # of documents, and blocks of words, on any number of workers

HEADER = (
    "",
    "s a sweep",
    "predicted",
    "M tokens/s",
    "of threads",
    "MB a sweep",
    "ms a step beside work",
    "waiting",
    "model",
)


def settled(run):
    """Sum up a run's activity: what each worker did in a sweep, those but the first three.

    Returns
    -------
    dict of str to (float, float, float)
        Seconds of ``working``, ``waiting`` and ``sending`` a sweep.
    """
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
    found: dict[tuple, list] = {}
    for record in records:
        key = record["name"], record["n_tokens"], record["settings"]["n_components"]
        found.setdefault(key, []).append(record)
    return list(found.values())


def rows(records):
    """Return one row for the turns of each kind of run, under `HEADER`: the median's, and their ratios."""
    found = []
    for runs in turns_of(records):
        record = typical(runs)
        ratios = [run["of_threads"] for run in runs if "of_threads" in run]
        seconds, n_tokens = record["median_seconds"], record["n_tokens"]
        beside = waiting = ""
        if record["activity"]:
            of_workers = settled(record)
            busiest = max(worked for worked, _, _ in of_workers.values())
            if "killed" not in record["name"]:  # there sweeps that were done again count twice
                beside = f"{1e3 * (seconds - busiest) / GROUPS:.3g}"
            worked, waited = (sum(column) for column in list(zip(*of_workers.values(), strict=True))[:2])
            waiting = f"{waited / (worked + waited):.0%}"
        predicted = "" if record["predicted"] is None else f"{record['predicted']:.3g}"
        sent = f"{np.median(record['bytes_sent'][3:]) / 1e6:.3g}"
        speed = f"{n_tokens / seconds / 1e6:.3g}"
        digests = ", ".join(dict.fromkeys(run["digest"] for run in runs))
        figures = (f"{seconds:.3g}", predicted, speed, _ratio(ratios), sent, beside, waiting, digests)
        found.append([record["name"], *figures])
    return found


def _ratio(ratios):
    """Say the median; in brackets the least and the largest of several turns."""
    if not ratios:
        return ""
    spread = f" ({min(ratios):.2f}..{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{np.median(ratios):.2f}{spread}"


def table(records):
    """Return the table as text."""
    body = [HEADER, *rows(records)]
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    lines = []
    for first, *cells in body:
        aligned = (text.rjust(width) for text, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *aligned]).rstrip())
    return "\n".join(lines)
