"""Write README's measured parts from records, so that no figure is typed by hand.

    python -m stradask.benchmarks.readme NAME

The table and the picture come from the last run in `benchmarks/results/NAME/records.jsonl`; the topics from a
fit, as the README shows it.
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


def table(records):
    """Return the summary of records as a Markdown table with the setting under it."""
    from .summary import rows

    header, lines = rows(records)
    out = io.StringIO()
    for cells in [header, ["---"] * len(header), *lines]:
        out.write("| " + " | ".join(cell.strip() for cell in cells) + " |\n")
    first = records[0]
    data, settings, machine = first["data"], first["settings"], first["machine"]
    out.write(
        f"\n{data['name']}: {data['train_tokens']:,} training tokens, {settings['n_components']} topics, "
        f"{settings['n_jobs']} thread(s), {machine['processor']}; medians (smallest to largest) of "
        f"{1 + max(record['repeat'] for record in records)} alternating runs.\n"
    )
    return out.getvalue()


def picture(records, path):
    """Draw the first metric against training seconds, as the report does."""
    from .report import COLOURS, curves
    from .summary import finished

    groups = finished(records)
    metric = next(iter(groups.values()))[0]["metrics"][0]
    figure, _, _ = curves(groups, metric, dict(zip(groups, COLOURS, strict=False)))
    figure.savefig(path, dpi=110)


def main(arguments=None):
    """Rewrite README.md and docs/perplexity.png."""
    from .run import read_records

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help="a folder of benchmarks/results")
    name = parser.parse_args(arguments).name
    records = read_records(ROOT / "benchmarks" / "results" / name / "records.jsonl")
    records = [record for record in records if record["run"] == records[-1]["run"]]
    readme = ROOT / "README.md"
    text = between(readme.read_text(encoding="utf-8"), "bench", table(records))
    readme.write_text(between(text, "topics", topics()), encoding="utf-8")
    picture(records, ROOT / "docs" / "perplexity.png")


if __name__ == "__main__":
    main()
