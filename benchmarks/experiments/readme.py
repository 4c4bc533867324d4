"""Write the measured parts of README.md and docs/benchmarks.md from records: no figure is typed by hand.

    python -m stradask.benchmarks.experiments.readme [NAME ...]

A name is a folder of `benchmarks/results` whose table and picture go to docs/benchmarks.md, from the last run
of each data set (where sets cannot be mixed, from the last run); without names, all that have a part there,
with the exponents of `growth` and the shares of `kernel_shares`. README.md gets one line for each of them.
``package`` renews what `experiments.package` measures, ``topics`` the topics of the README's example.
"""

import argparse
import io
import re
from pathlib import Path

from .. import overview, recipes
from ..pages.summary import number

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path("benchmarks") / "results"
SHARE = 0.8  # of a core that a run must have had for its seconds to tell anything
PROGRAMS = ("libmf", "warplda")  # run by their solvers, so that their processor seconds are not known
TITLES = {
    "lda-20news": "topics: LDA, 100 topics",
    "lda-20news-1000": "topics: LDA, 1,000 topics",
    "lasso": "Lasso",
    "sparse-logistic": "logistic regression, l1",
    "sparse-logistic-c": "logistic regression, l1, by C",
    "logistic": "logistic regression, l2",
    "mf": "ratings: 32 factors",
    "mf-64": "ratings: 64 factors",
    "mf-10m": "ratings: ten million",
    "implicit": "choices: 32 factors",
    "implicit-64": "choices: 64 factors",
    "implicit-128": "choices: 128 factors",
    "mcmc": "posteriors by MCMC",
    "mcmc-small": "posteriors: small data",
}
NOT_YET = "Not measured on this machine yet: `stradask bench {} --full --out benchmarks/results` does it.\n"


STARVED = (
    "Other work took the core from some of these runs: what is reached can be compared, how fast cannot, and "
    "the README leaves them out."
)


GROWTH = ["size that grows", "seconds, at most", "measured", "bytes, at most", "measured", ""]


def between(text, name, inside, page="README.md"):
    """Replace what stands between the two comments of that name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{page} has no part <!-- {name} -->")
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
    """Return the table of one folder's records in Markdown, with the setting under it."""
    from ..pages import gap_summary, sampling_summary, summary

    if records[0]["procedure"] == "training":
        data, settings = records[0]["data"], records[0]["settings"]
        sizes = [f"{v:,} {k.removeprefix('train_')}" for k, v in data.items() if k.startswith("train_")]
        header, said = summary.rows(records), f"{data['name']}: {', '.join(sizes)} to learn from"
        said += f", {settings['n_components']} components; medians (smallest to largest)."
    elif records[0]["procedure"] == "sampling":
        header, said = sampling_summary.rows(records), sampling_summary.setting(records)
    else:
        header, said = gap_summary.rows(records, targets=(1e-6,)), gap_summary.setting(records)
    notes = overview.left_out(records) + [STARVED] * starved(records)
    return f"{markdown(*header)}\n{said} {machine(records)}.\n" + "".join(f"\n{note}\n" for note in notes)


def starved(records):
    """Return whether other work took the core from a run whose wall seconds are compared."""
    return any(
        record["cpu_seconds"] < SHARE * record["training_seconds"]
        for record in records
        if record["procedure"] == "training" and record["status"] == "ok"
        if record["solver"] not in PROGRAMS
    )


def machine(records):
    """Return threads, processor and number of runs in a few words."""
    runs: dict[str, set] = {}
    for record in records:
        runs.setdefault(record["data"]["name"], set()).add(record["repeat"])
    least, most = min(map(len, runs.values())), max(map(len, runs.values()))
    n_runs = f"{most}" if least == most else f"{least} to {most}"
    machines: dict[str, dict] = {}
    for record in records:
        machines.setdefault(record["machine"]["processor"], {})[record["data"]["name"]] = None
    return f"{records[0]['settings']['n_jobs']} thread(s), {_said(machines)}, {n_runs} alternating run(s)"


def latest(records):
    """Return the records of each data set's last run, or those of the last run where sets cannot be mixed."""
    if records[-1]["procedure"] == "training":
        return [record for record in records if record["run"] == records[-1]["run"]]
    last = {record["data"]["name"]: record["run"] for record in records}
    return [record for record in records if record["run"] == last[record["data"]["name"]]]


def picture(records):
    """Return the figure of one folder's records, as the report has it."""
    from ..pages.report import COLOURS, curves

    if records[0]["procedure"] == "training":
        from ..pages.summary import finished

        runs = finished(records)
        metric = next(iter(runs.values()))[0]["metrics"][0]
        return curves(runs, metric, dict(zip(runs, COLOURS, strict=False)))[0]
    if records[0]["procedure"] == "sampling":
        return overview.picture(overview.comparisons(records))
    from ..pages.gap_report import gaps_against_seconds
    from ..pages.gap_summary import solved, solvers_of

    groups = solved(records)
    first = next(iter(groups))[0]
    panels = {problem: by_solver for (data, problem), by_solver in groups.items() if data == first}
    return gaps_against_seconds(first, panels, dict(zip(solvers_of(records), COLOURS, strict=False)))[0]


def part(name, records):
    """Write the picture of a folder's records and return its part of the page."""
    figure = f"bench-{name}.png"
    picture(records).savefig(ROOT / "docs" / figure, dpi=100)
    return f"![{TITLES[name]}, against seconds]({figure})\n\n{table(records)}"


def in_short(found):
    """Return the README's table of all folders.

    Parameters
    ----------
    found : dict of str to list of records
    """
    lines = []
    for name, records in found.items():
        rows = [c for c in overview.comparisons(records) if c.other and c.speedup.median == c.speedup.median]
        if not rows or starved(records):
            continue
        spread = overview.middle(rows)
        middle, low, high = (number(v, "only ours") for v in (spread.median, spread.low, spread.high))
        peers = sorted({r["solver"] for r in records if not r["ours"] and r["status"] == "ok"})
        behind = sum(c.speedup.median < 1 for c in rows)
        shown = middle if len(rows) == 1 else f"{middle} ({low} .. {high})"
        lines.append([TITLES[name], ", ".join(peers), str(len(rows)), shown, str(behind)])
    header = ["", "beside", "problems", "times as fast as the best of them", "of these behind"]
    return markdown(header, lines)


def _processors(records):
    """Return the first machine, and what was measured on others: the last record of a sweep counts."""
    machines: dict[str, dict] = {}
    for record in {(r["sweep"]["family"], r["sweep"]["size"]): r for r in records}.values():
        machines.setdefault(record["machine"]["processor"], {})[record["sweep"]["size"]] = None
    return _said(machines)


def _said(machines):
    """Return the first machine, and of the others what was measured on them."""
    first, *others = machines
    return "; ".join([first, *(f"{', '.join(machines[name])}: {name}" for name in others)])


def growth_part():
    """Return the promised exponents, beside them those that were measured, if they were."""
    from . import growth

    path = ROOT / RESULTS / "growth" / "growth.jsonl"
    measured, said = {}, "Not measured on this machine yet."
    if path.exists():
        from ..run import read_records

        records = read_records(path)
        sweeps = [record["sweep"] for record in records]
        measured = {(r["family"], r["size"]): row for r, row in zip(sweeps, growth.rows(sweeps), strict=True)}
        growth.picture(list({(r["family"], r["size"]): r for r in sweeps}.values())).savefig(
            ROOT / "docs" / "growth.png", dpi=90
        )
        said = f"{_processors(records)}.\n\n![Costs against sizes](growth.png)"
    lines = []
    for family, size, seconds, memory in growth.steepest():
        row = measured.get((family, size))
        found = ["", "", ""] if row is None else [row[5], row[8], row[10]]
        lines.append([f"{family}: {size}", seconds, found[0], memory, found[1], found[2]])
    return f"{markdown(GROWTH, lines)}\n{said}\n"


def ceilings_part():
    """Return the shares of the machine that kernels reach, of the last run."""
    from .. import kernel_shares
    from ..run import read_records

    path = ROOT / RESULTS / "ceilings" / "records.jsonl"
    if not path.exists():
        return NOT_YET.format("ceilings")
    records = read_records(path)
    records = [record for record in records if record["run"] == records[-1]["run"]]
    return f"{markdown(*kernel_shares.rows(records))}\n{kernel_shares.setting(records)}\n"


def rotation_part():
    """Return what threads and worker processes did, for each number of topics, of the last run of it."""
    from ..pages import rotation_summary
    from ..run import read_records

    path = ROOT / RESULTS / "rotation" / "records.jsonl"
    if not path.exists():
        return NOT_YET.format("rotation")
    runs: dict[int, list] = {}
    for record in read_records(path):
        runs.setdefault(record["settings"]["n_components"], []).append(record)
    parts = []
    for n_topics, found in sorted(runs.items()):
        records = [record for record in found if record["run"] == found[-1]["run"]]
        tokens, machine = records[0]["n_tokens"], records[0]["machine"]["processor"]
        said = f"{tokens:,} tokens, {n_topics:,} topics, {machine}."
        parts.append(f"{markdown(rotation_summary.HEADER, rotation_summary.rows(records))}\n{said}\n")
    return "\n".join(parts)


def records_of(name):
    """Return the latest records of a folder; none if it has none."""
    from ..run import read_records

    path = ROOT / RESULTS / name / "records.jsonl"
    return latest(read_records(path)) if path.exists() else []


PARTS = {"growth": growth_part, "ceilings": ceilings_part, "rotation": rotation_part}


def main(arguments=None):
    """Rewrite the parts of docs/benchmarks.md that were asked for, and README's table."""
    from .package import line

    parser = argparse.ArgumentParser(
        prog="python -m stradask.benchmarks.experiments.readme", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="folders of benchmarks/results (all)")
    names = parser.parse_args(arguments).names
    if unknown := set(names) - {*TITLES, *PARTS, "topics", "package"}:
        parser.error(
            f"{', '.join(sorted(unknown))}: there are {', '.join([*TITLES, *PARTS])}, topics, package"
        )
    readme, page = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
    shown, text = readme.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")
    found = {name: records for name in TITLES if (records := records_of(name))}
    for name in names or TITLES:
        if name in TITLES:
            family = recipes.family_of(recipes.FULL[name][0])
            inside = part(name, found[name]) if name in found else NOT_YET.format(family)
            text = between(text, f"bench {name}", inside, page.name)
    for name, written in PARTS.items():
        if name in names or not names:
            text = between(text, name, written(), page.name)
    shown = between(shown, "bench", in_short(found))
    if "topics" in names:
        shown = between(shown, "topics", topics())
    if "package" in names:
        shown = between(shown, "package", line() + "\n")
    page.write_text(text, encoding="utf-8")
    readme.write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    main()
