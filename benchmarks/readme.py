"""Write README's measured parts from records, so that no figure is typed by hand.

    python -m stradask.benchmarks.readme NAME

The table and the picture come from the last run of each data set in `benchmarks/results/NAME/records.jsonl`
(topic models: from the last run). Their part of the README is the one that bears the folder's name, else
their family's; with the main one of topic models come the topics of a fit.
"""

import argparse
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def between(text, name, inside):
    """Replace what stands between the two comments of that name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no part <!-- {name} -->")
    return pattern.sub(lambda match: match[1] + inside + match[2], text)


def topics():
    """Return the first lines of the README's example."""
    import stradask

    X, vocabulary = stradask.datasets.load_docstrings()
    lda = stradask.LatentDirichletAllocation(30, random_state=0, n_jobs=-1).fit(X)
    lines = str(lda.topics(vocabulary, n_words=8)).splitlines()
    figures = f"perplexity {lda.perplexity(X):.0f} over {X.shape[0]:,} docstrings, {X.sum():,} words"
    return "\n".join(["```", *lines[:9], "  ...", figures, "```", ""])


def markdown(header, lines):
    """Return a table of strings in Markdown."""
    out = io.StringIO()
    for cells in [header, ["---"] * len(header), *lines]:
        out.write("| " + " | ".join(cell.strip() for cell in cells) + " |\n")
    return out.getvalue()


def table(records):
    """Return the summary of records of a training family in Markdown, with the setting under it."""
    from .summary import rows

    data, settings = records[0]["data"], records[0]["settings"]
    return (
        f"{markdown(*rows(records))}\n"
        f"{data['name']}: {data['train_tokens']:,} training tokens, {settings['n_components']} topics, "
        f"{machine(records)}; medians (smallest to largest).\n"
    )


def gap_table(records):
    """Return the seconds to a gap of 1e-6 in Markdown, with the setting under it."""
    from .gap_summary import rows, setting

    return f"{markdown(*rows(records, targets=(1e-6,)))}\n{setting(records)} {machine(records)}.\n"


def sampling_table(records):
    """Return effective draws a CPU second in Markdown, with the setting under it."""
    from .sampling_summary import rows, setting

    return f"{markdown(*rows(records))}\n{setting(records)} {machine(records)}.\n"


def machine(records):
    """Return threads, processor and number of runs in a few words."""
    runs: dict[str, set] = {}
    for record in records:
        runs.setdefault(record["data"]["name"], set()).add(record["repeat"])
    least, most = min(map(len, runs.values())), max(map(len, runs.values()))
    n_runs = f"{most}" if least == most else f"{least} to {most}"
    threads, processor = records[0]["settings"]["n_jobs"], records[0]["machine"]["processor"]
    return f"{threads} thread(s), {processor}, {n_runs} alternating run(s)"


def latest(records):
    """Return the records of each data set's last run, or those of the last run where sets cannot be mixed."""
    if records[-1]["procedure"] == "training":
        return [record for record in records if record["run"] == records[-1]["run"]]
    last = {record["data"]["name"]: record["run"] for record in records}
    return [record for record in records if record["run"] == last[record["data"]["name"]]]


def picture(records, path):
    """Draw the first metric against training seconds, as the report does."""
    from .report import COLOURS, curves
    from .summary import finished

    groups = finished(records)
    metric = next(iter(groups.values()))[0]["metrics"][0]
    figure, _, _ = curves(groups, metric, dict(zip(groups, COLOURS, strict=False)))
    figure.savefig(path, dpi=110)


def gap_picture(records, path):
    """Draw the gaps of the first data set against seconds, as the report does."""
    from .gap_report import gaps_against_seconds
    from .gap_summary import solved, solvers_of
    from .report import COLOURS

    groups = solved(records)
    first = next(iter(groups))[0]
    panels = {problem: by_solver for (data, problem), by_solver in groups.items() if data == first}
    colours = dict(zip(solvers_of(records), COLOURS, strict=False))
    figure, _, _ = gaps_against_seconds(first, panels, colours)
    figure.savefig(path, dpi=110)


def main(arguments=None):
    """Rewrite the family's parts of README.md and its picture in docs."""
    from .run import read_records

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help="a folder of benchmarks/results")
    name = parser.parse_args(arguments).name
    records = latest(read_records(ROOT / "benchmarks" / "results" / name / "records.jsonl"))
    family = records[0]["family"]
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if f"<!-- bench {name} -->" in text and family == "lda":
        text = between(text, f"bench {name}", table(records))
    elif family == "lda":
        text = between(between(text, "bench", table(records)), "topics", topics())
        picture(records, ROOT / "docs" / "perplexity.png")
    elif records[0]["procedure"] == "sampling":
        text = between(text, f"bench {name}", sampling_table(records))
    else:
        text = between(text, f"bench {family}", gap_table(records))
        gap_picture(records, ROOT / "docs" / f"{family}.png")
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
