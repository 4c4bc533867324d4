"""Parts of the guide's pages that are written from records: all but the tables of families with peers.

A writer takes the records of its folder of `benchmarks/results` (none where nothing was measured) and the
folder of the guide, where its picture goes. It returns Markdown, or None where the page stays as it is.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from .. import kernel_shares
from ..comparisons import everyday, recommend, topics_models
from ..neural import allreduce, networks, pipeline, planned
from ..pages import rotation, strads
from ..pages.tables import Spread, Table, by_solver, latest_run
from ..pages.training import final, time_to
from ..scheduling import ssp
from . import growth
from .ratings import factor_profile, factorization_rules
from .topics import topic_rules

NOT_YET = "Not measured on this machine yet: `stradask bench {} --full --out benchmarks/results` does it.\n"
GROWTH = ["size that grows", "seconds, at most", "measured", "bytes, at most", "measured", ""]
MARGIN = 1.005  # of a perplexity that counts as reached
GOALS = [
    *("corpus", "topics", "alpha", "threads", "against", "target", "s until it is there", "until ours is"),
    *("ratio", "at equal time, ours", "theirs"),
]


def named_machines(machines):
    """Return the first machine, and of the others what was measured on them."""
    first, *others = machines
    return "; ".join([first, *(f"{', '.join(machines[name])}: {name}" for name in others)])


def growth_part(records, docs):
    """Return the promised exponents, and the measured ones, if any."""
    measured, said = {}, "Not measured on this machine yet."
    if records:
        sweeps = [record["sweep"] for record in records]
        last = {(sweep["family"], sweep["size"]): number for number, sweep in enumerate(sweeps)}
        all_rows = growth.rows(sweeps)
        measured = {key: all_rows[number] for key, number in last.items()}
        growth.picture([sweeps[number] for number in last.values()]).savefig(docs / "growth.png", dpi=90)
        machines: dict[str, dict] = {}
        for (_, size), number in last.items():
            machines.setdefault(records[number]["machine"]["processor"], {})[size] = None
        said = f"{named_machines(machines)}.\n\n![Costs against sizes](growth.png)"
    lines = []
    for family, size, seconds, memory in growth.steepest():
        row = measured.get((family, size))
        exponents = ["", "", ""] if row is None else [row[5], row[8], row[10]]
        lines.append([f"{family}: {size}", seconds, exponents[0], memory, exponents[1], exponents[2]])
    return f"{Table(lines, GROWTH).markdown()}\n{said}\n"


def ceilings_part(records, docs):
    """Return the shares of the machine that kernels reach, of the last run."""
    if not records:
        return NOT_YET.format("ceilings")
    table = kernel_shares.shares_table(latest_run(records))
    return f"{table.markdown()}\n{table.caption}\n"


def rotation_part(records, docs):
    """Return what threads and worker processes did, for each number of topics, of the last run of it."""
    if not records:
        return NOT_YET.format("rotation")
    by_topics: dict[int, list] = {}
    for record in records:
        by_topics.setdefault(record["settings"]["n_components"], []).append(record)
    parts = []
    for n_topics, runs in sorted(by_topics.items()):
        last = latest_run(runs)
        said = f"{last[0]['n_tokens']:,} tokens, {n_topics:,} topics, {last[0]['machine']['processor']}."
        parts.append(f"{rotation.runs_table(last).markdown()}\n{said}\n")
    return "\n".join(parts)


def ssp_part(records, docs):
    """Return picture, table and setting of the last run with bounds of staleness."""
    if not records:
        return None
    records = latest_run(records)
    ssp.picture(records).savefig(docs / "ssp.png", dpi=90)
    data = records[-1]["data"]
    return (
        "![Excess against time for five bounds of staleness](ssp.png)\n\n"
        f"Time to an excess of {ssp.TARGET:g}, in clocks that are not slow, and the share spent waiting:\n\n"
        f"{ssp.times_table(records).markdown()}\n"
        f"{data['n']:,} rows, {data['p']} columns, minibatches of {data['batch']}, {data['n_replicas']} "
        f"replicas, {data['clocks']} clocks; a slow clock takes {data['factor']:g} times as long.\n"
    )


def strads_part(records, docs):
    """Return picture, tables and setting of the schedules; updates and rounds are the same everywhere."""
    if not records:
        return None
    first, local = records[0], [record for record in records if record["place"] == "local"]
    strads.panels(local, "updates", "local")[0].savefig(docs / "strads.png", dpi=90)
    against = strads.beside_own_table(local, "local")
    parts = ["![Excess against updates for four schedules](strads.png)\n"]
    parts += [f"**{against.caption}**\n", against.markdown()]
    figures = [("updates", 1e-2), *((figure, 1e-4) for figure in strads.FIGURES)]
    for place in dict.fromkeys(record["place"] for record in records):
        for figure, target in figures if place == "local" else figures[-1:]:
            kind = "CPU seconds" if figure == "seconds" and place == "local" else figure.capitalize()
            parts.append(f"**{kind} to an excess of {target:.0e}, {place}**\n")
            parts.append(strads.reached_table(records, place, figure, target).markdown())
    facts = strads.facts_of(local)
    limits = ", ".join(f"{data['limit']:.0f} ({name})" for name, data in facts.items())
    parts.append(
        f"{strads.shapes(local)}; a tenth of the largest penalty; p / lambda_max, or for groups the sum of "
        f"their largest eigenvalues over it, is {limits}; {first['machine']['processor']}. In brackets: "
        "excess and updates where a run came to its limit of either. Excess: the objective over its minimum, "
        "relative to the objective at zero. The programs of the four schedules are NumPy in Python. CPU "
        "seconds of the estimators to a gap of 1e-3: "
        f"{strads.own_seconds(local, strads.MIDDLE)}; to 1e-4: {strads.own_seconds(local, strads.LEAST)}.\n"
    )
    return "\n".join(parts)


def goals_part(records, docs):
    """Return topic models compared with other systems: a row for each peer of every run.

    The target is the peer's last held-out perplexity and half a per cent, and what counts is when each of the
    two first gets there.
    """
    if not records:
        return None
    runs = [list(run) for _, run in itertools.groupby(records, key=lambda record: record["run"])]
    rows = sorted(
        itertools.chain.from_iterable(map(goals, runs)), key=lambda row: (int(row[1].replace(",", "")), row)
    )
    return Table(rows, GOALS).markdown()


def goals(records):
    """Return a row of strings for each peer of one run: medians over its rounds."""
    groups = by_solver(records)
    ours = next(group for group in groups.values() if group[0]["ours"])
    metric = ours[0]["metrics"][0]
    data, settings = ours[0]["data"], ours[0]["settings"]
    corpus = f"{data['name'].split('.')[1]}, {data['train_tokens'] / 1e6:.1f} M tokens"
    if settings.get("optimize_priors"):
        corpus += ", fitted priors"
    rows = []
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
        rows.append((*head, *figures, *ends))
    return rows


def shards_part(records, docs):
    """Return the table of combined shards, of the last record."""
    from .mcmc.shard_goals import table

    return table(records[-1]) if records else None


def parallel_part(records, docs):
    """Return the table of ways to run MCMC in parallel, of the last record; draws the picture."""
    from .mcmc import parallel_mcmc

    if not records:
        return None
    parallel_mcmc.picture(records[-1]).savefig(docs / "parallel-mcmc.png", dpi=100)
    words = "Errors against seconds and bytes sent, a column a problem; dotted: 4,000 independent draws"
    picture = f"![{words}](parallel-mcmc.png)"
    machine = records[-1]["machine"]["processor"]
    return f"{picture}\n\n{parallel_mcmc.table(records[-1])}\n{machine}.\n"


def topic_rules_part(records, docs):
    """Return the table of ways to sample topics, of the record of the rule that chooses."""
    return topic_rules.table(records) if records else None


def everyday_part(records, docs):
    """Return the table of ordinary problems, each as it was measured last."""
    if not records:
        return NOT_YET.format("everyday")
    last = everyday.latest(records)
    table = everyday.times_table(last)
    machines: dict[str, dict] = {}
    for record in last:
        machines.setdefault(record["machine"]["processor"], {})[repr(record["data"]["name"])] = None
    by = max(machines, key=lambda name: len(machines[name]))
    named = named_machines({by: machines.pop(by), **machines})
    return f"{everyday.summary(last)}.\n\n{table.markdown()}\n{table.caption}; one thread, {named}.\n"


def recommend_part(records, docs):
    """Return a table for each data set, of its last run."""
    if not records:
        return None
    machines: dict[str, dict] = {record["machine"]["processor"]: {} for record in records}
    made = [f"{table.caption}:\n\n{table.markdown()}" for table in recommend.tables(records)]
    return "\n".join([*made, f"One thread, {named_machines(machines)}.\n"])


def topics_models_part(records, docs):
    """Return a table for each data set, of its last run."""
    if not records:
        return None
    machines: dict[str, dict] = {record["machine"]["processor"]: {} for record in records}
    made = [f"{table.caption}:\n\n{table.markdown()}" for table in topics_models.tables(records)]
    return "\n".join([*made, f"One thread, {named_machines(machines)}.\n"])


def memory_part(records, docs):
    """Return the table of what workers of the last run held."""
    own = [record for record in records if "plan" in record]
    if not own:
        return None
    own = latest_run(own)
    return f"{pipeline.memory_table(own).markdown()}\n{pipeline.memory_setting()}\n"


def networks_part(records, docs):
    """Return the table of the last run, and its setting."""
    if not records:
        return None
    own = latest_run(records)
    return f"{networks.made_table(own).markdown()}\n{networks.setting(own[0])}\n"


def allreduce_part(records, docs):
    """Return the table of the last run, and its setting."""
    if not records:
        return None
    own = latest_run(records)
    return f"{allreduce.made_table(own).markdown()}\n{allreduce.setting(own[0])}\n"


def plan_part(records, docs):
    """Return the choices of the last run in measured seconds, and how near predictions were."""
    if not records:
        return None
    own = latest_run(records)
    return f"{planned.all_tables(own)[0].markdown()}\n{planned.setting(own)}\n"


def rules_part(records, docs):
    """Return what the defaults of matrix factorization are worth."""
    if not records:
        return None
    made = (factorization_rules.ratings_table(records), factorization_rules.counts_table(records))
    return "\n".join(table.markdown() for table in made)


def profile_part(records, docs):
    """Return what bounds least squares of counts."""
    if not records:
        return None
    return f"{factor_profile.table(records).markdown()}\n{factor_profile.setting(records)}\n"


class Part(NamedTuple):
    """Where a part stands, a page of the guide and the name of the marks, and what writes it."""

    page: str
    mark: str
    write: Callable


PARTS = {
    "growth": Part("benchmarks.md", "growth", growth_part),
    "everyday": Part("benchmarks.md", "everyday", everyday_part),
    "factorization-rules": Part("matrix-factorization.md", "factorization-rules", rules_part),
    "factor-profile": Part("matrix-factorization.md", "factor-profile", profile_part),
    "recommend": Part("item-models.md", "recommend", recommend_part),
    "topics-models": Part("topics-responses.md", "topics-models", topics_models_part),
    "ceilings": Part("benchmarks.md", "ceilings", ceilings_part),
    "rotation": Part("benchmarks.md", "rotation", rotation_part),
    "pipeline": Part("which-plan.md", "memory", memory_part),
    "networks": Part("torch.md", "networks", networks_part),
    "allreduce": Part("which-plan.md", "allreduce", allreduce_part),
    "plan": Part("which-plan.md", "plan", plan_part),
    "ssp": Part("ssp.md", "measured", ssp_part),
    "strads": Part("write-your-own-program.md", "strads", strads_part),
    "shard-goals": Part("mcmc-measured.md", "shard-goals", shards_part),
    "parallel-mcmc": Part("parallel-mcmc.md", "parallel-mcmc", parallel_part),
    "lda-goals": Part("topics.md", "lda-goals", goals_part),
    "topic-rules": Part("topics.md", "topic-rules", topic_rules_part),
}
