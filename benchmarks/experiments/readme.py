"""Write the measured parts of README.md and of the guide from records: no figure is typed by hand.

    python -m stradask.benchmarks.experiments.readme [NAME ...]

A name is a folder of `benchmarks/results`: of a family with peers, whose table and picture go to
docs/benchmarks.md, from the last run of each data set (where sets cannot be mixed, from the last run), or one
of `experiments.parts`; without names, all of them. README.md gets one line for each family with peers.
``package`` renews what `experiments.package` measures, ``topics`` the topics of the README's example.
"""

import argparse
import itertools
from pathlib import Path

from .. import overview, recipes
from ..pages import sampling, solving, training
from ..pages.page import COLOURS, write_parts
from ..pages.tables import Table, by_problem, by_solver, latest_run, number
from ..run import read_records
from .parts import NOT_YET, PARTS, named_machines

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
    "structured": "groups, several targets, counts, survival",
    "mf": "ratings: 32 factors",
    "mf-64": "ratings: 64 factors",
    "mf-10m": "ratings: ten million",
    "implicit": "implicit feedback: 32 factors",
    "implicit-64": "implicit feedback: 64 factors",
    "implicit-128": "implicit feedback: 128 factors",
    "mcmc": "posteriors by MCMC",
    "mcmc-small": "posteriors: small data",
}
IN_SHORT = {  # the rows of README's table, each from some folders
    "topics (LDA)": ("lda-20news", "lda-20news-1000"),
    "Lasso": ("lasso",),
    "logistic regression, l1": ("sparse-logistic", "sparse-logistic-c"),
    "logistic regression, l2": ("logistic",),
    "groups, several targets, counts, survival": ("structured",),
    "ratings": ("mf", "mf-64", "mf-10m"),
    "implicit feedback": ("implicit", "implicit-64", "implicit-128"),
    "posteriors (MCMC)": ("mcmc", "mcmc-small"),
}
STARVED = (
    "Other work took the core from some of these runs: what is reached can be compared, how fast cannot, and "
    "the README leaves them out."
)


def topics():
    """Return the first lines of the README's example."""
    import stradask

    X, vocabulary = stradask.datasets.load_docstrings()
    lda = stradask.LatentDirichletAllocation(30, random_state=0, n_jobs=-1).fit(X)
    lines = str(lda.topics(vocabulary, n_words=8)).splitlines()
    figures = f"perplexity {lda.perplexity(X):.0f} over {X.shape[0]:,} docstrings, {X.sum():,} words"
    return "\n".join(["```", *lines[:6], "  ...", figures, "```", ""])


def table(records):
    """Return the table of one folder's records in Markdown, with the setting under it."""
    if records[0]["procedure"] == "training":
        data, settings = records[0]["data"], records[0]["settings"]
        sizes = [f"{v:,} {k.removeprefix('train_')}" for k, v in data.items() if k.startswith("train_")]
        made, said = training.figures_table(records), f"{data['name']}: {', '.join(sizes)} to learn from"
        said += f", {settings['n_components']} components; medians (smallest to largest)."
    elif records[0]["procedure"] == "sampling":
        made, said = sampling.rates_table(records), sampling.setting(records)
    else:
        made, said = solving.seconds_table(records, targets=(1e-6,)), solving.setting(records)
    notes = overview.left_out(records) + [STARVED] * starved(records)
    return f"{made.markdown()}\n{said} {machine(records)}.\n" + "".join(f"\n{note}\n" for note in notes)


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
    n_jobs = records[0]["settings"]["n_jobs"]
    return f"{n_jobs} thread(s), {named_machines(machines)}, {n_runs} alternating run(s)"


def latest(records):
    """Return the records of each data set's last run, or those of the last run where sets cannot be mixed."""
    if records[-1]["procedure"] == "training":
        return latest_run(records)
    last = {record["data"]["name"]: record["run"] for record in records}
    return [record for record in records if record["run"] == last[record["data"]["name"]]]


def picture(records):
    """Return the figure of one folder's records, as the report has it."""
    if records[0]["procedure"] == "training":
        runs = by_solver(records)
        metric = next(iter(runs.values()))[0]["metrics"][0]
        return training.curves(runs, metric, dict(zip(runs, COLOURS, strict=False)))[0]
    if records[0]["procedure"] == "sampling":
        return overview.picture(overview.comparisons(records))
    problems = by_problem(records)
    first = next(iter(problems))[0]
    panels = {problem: runs_of for (data, problem), runs_of in problems.items() if data == first}
    colours = dict(zip(by_solver(records), COLOURS, strict=False))
    return solving.gaps_against_seconds(first, panels, colours)[0]


def part(name, records):
    """Write the picture of a folder's records and return its part of the page."""
    figure = f"bench-{name}.png"
    picture(records).savefig(ROOT / "docs" / figure, dpi=100)
    return f"![{TITLES[name]}, against seconds]({figure})\n\n{table(records)}"


def in_short(records_of_folders):
    """Return the README's table of all folders, a dict of records by folder."""
    lines = []
    for title, folders in IN_SHORT.items():
        found = [records for name in folders if (records := records_of_folders.get(name))]
        found = [records for records in found if not starved(records)]
        compared = [c for records in found for c in overview.comparisons(records) if c.other]
        rows = [c for c in compared if c.speedup.median == c.speedup.median]
        if not rows:
            continue
        spread = overview.middle(rows)
        middle, low, high = (number(v, "only ours") for v in (spread.median, spread.low, spread.high))
        records = itertools.chain(*found)
        names = (r["solver"] for r in records if not r["ours"] and r["status"] == "ok")
        peers = sorted({name.partition("-")[0] for name in names})
        slower = sum(c.speedup.median < 1 for c in rows)
        shown = [middle] + ([f"{low} to {high}"] if len(rows) > 1 else [""])
        lines.append([title, ", ".join(peers), str(len(rows)), *shown, str(slower)])
    header = ["", "compared with", "problems", "speed-up over the fastest", "range", "slower on"]
    return Table(lines, header).markdown()


def records_of(name):
    """Return all records of a folder; none if it has none."""
    return [
        record for path in sorted((ROOT / RESULTS / name).glob("*.jsonl")) for record in read_records(path)
    ]


def main(arguments=None):
    """Rewrite the parts that were asked for, and README's table."""
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
    docs = ROOT / "docs"
    compared = {name: latest(records) for name in TITLES if (records := records_of(name))}
    written: dict[str, dict] = {"benchmarks.md": {}}  # of each page, its parts
    for name in names or TITLES:
        if name in TITLES:
            family = recipes.family_of(recipes.FULL[name][0])
            inside = part(name, compared[name]) if name in compared else NOT_YET.format(family)
            written["benchmarks.md"][f"bench {name}"] = inside
    for name, other in PARTS.items():
        inside = other.write(records_of(name), docs) if name in names or not names else None
        if inside is not None:
            written.setdefault(other.page, {})[other.mark] = inside
    for page, parts in written.items():
        write_parts(docs / page, parts)
    shown = {"bench": in_short(compared)}
    if "topics" in names:
        shown["topics"] = topics()
    if "package" in names:
        shown["package"] = line() + "\n"
    write_parts(ROOT / "README.md", shown)


if __name__ == "__main__":
    main()
