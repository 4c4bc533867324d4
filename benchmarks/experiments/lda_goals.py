"""Write the table of docs/topics.md that sets topic models beside other systems, from records.

    python -m stradask.benchmarks.experiments.lda_goals

Every run of `benchmarks/results/lda-goals/records.jsonl` gives a row for each peer: the target is the peer's
last held-out perplexity and half a per cent, and what counts is when each of the two first gets there.
"""

import itertools
from pathlib import Path

from ..pages.summary import Spread, final, finished, time_to
from ..run import read_records
from .readme import ROOT, between, markdown

MARGIN = 1.005
HEADER = (
    *(
        "corpus",
        "topics",
        "alpha",
        "threads",
        "against",
        "target",
        "s until it is there",
        "until ours is",
        "ratio",
    ),
    *("at equal time, ours", "theirs"),
)


def lines(records):
    """Return a row of strings for each peer of one run: medians over its rounds."""
    groups = finished(records)
    ours = next(group for group in groups.values() if group[0]["ours"])
    metric = ours[0]["metrics"][0]
    data, settings = ours[0]["data"], ours[0]["settings"]
    corpus = f"{data['name'].split('.')[1]}, {data['train_tokens'] / 1e6:.1f} M tokens"
    if settings.get("optimize_priors"):
        corpus += ", fitted priors"
    found = []
    for name, group in groups.items():
        if group[0]["ours"]:
            continue
        target = Spread.of(final(run, metric) for run in group).median * MARGIN
        theirs, own = (
            Spread.of(time_to(run, metric, target) for run in runs).median for runs in (group, ours)
        )
        sweeps = Spread.of(run["work"] / data["train_tokens"] for run in group).median
        figures = (f"{target:.0f}", f"{theirs:.3g}", f"{own:.3g}", f"{own / theirs:.2f}")
        ends = (f"{Spread.of(final(run, metric) for run in runs).median:.0f}" for runs in (ours, group))
        head = (
            corpus,
            f"{settings['n_components']:,}",
            f"{settings['doc_topic_prior']:g}",
            str(settings["n_jobs"]),
            f"{name}, {sweeps:.0f} sweeps",
        )
        found.append((*head, *figures, *ends))
    return found


def main():
    """Rewrite the table."""
    records = read_records(ROOT / "benchmarks/results/lda-goals/records.jsonl")
    runs = [list(group) for _, group in itertools.groupby(records, key=lambda record: record["run"])]
    rows = sorted(
        itertools.chain.from_iterable(map(lines, runs)), key=lambda row: (int(row[1].replace(",", "")), row)
    )
    page = Path(ROOT / "docs/topics.md")
    page.write_text(between(page.read_text(), "lda-goals", markdown(HEADER, rows)))


if __name__ == "__main__":
    main()
