"""The page "How many workers": predictions of `scheduler.planning.rounds`, held to measurements.

    python -m stradask.benchmarks.experiments.how_many_workers > docs/how-many-workers.md

The costs of messages are those of the record of `topics.many_workers`: those of two of its rows go into the
model, which then predicts the others.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from ...algorithms.topics.blocks.groups import number_of_groups
from ...algorithms.topics.planning import measure_rate, sweep_of
from ...algorithms.topics.rules import WARP_PASSES
from ...scheduler.planning.rounds import Machines, binding, stages
from ..scheduling import cluster_model

RECORD = Path(__file__).parents[1] / "results" / "many-workers" / "record.json"
FITS = RECORD.with_name("fits.json")  # of `many_workers_fits`
SAMPLERS = ((1000, "gibbs"), (1000, "warp"), (10_000, "warp"))
WORKERS = (2, 4, 8, 16, 64, 256, 1000)
_LATENCIES = {"this machine": 1e-4, "1 ms, 1 Gbit/s": 1.1e-3}  # this machine's own are .1 ms
_CORPORA = (
    ("6 million tokens, 4,600 words", 6_000_000, 4600),
    ("RFCs, 10.8 million", 10_801_146, 16_200),
    ("100 million, 50,000 words", 100_000_000, 50_000),
    ("a billion, 100,000 words", 1_000_000_000, 100_000),
)
_FEW = (2, 4, 8, 16)
_NETWORKS = {"1 Gbit/s": 1.25e8, "10 Gbit/s": 1.25e9, "25 Gbit/s": 3.125e9, "100 Gbit/s": 1.25e10}
_COSTS = {"per_token": 24e-9, "per_block": 17e-6, "per_task": 1e-6}  # measured: docs/topics.md
_BANDWIDTHS = {"this machine": 1e9, "1 ms, 1 Gbit/s": 1.25e8}


def costs(record):
    """Return CPU seconds of a message, of an answer at the hub and of a sweep, and the idle share.

    From the rows of one and of four workers without a slow network.
    """
    rows = {row["workers"]: row for row in record["rows"] if row["network"] == "this machine"}
    one, four = rows[1], rows[4]
    sweep = one["worker_cpu"] - one["idle_cpu"] * one["seconds"]
    idle = four["idle_cpu"] * 4 * four["seconds"]
    n_messages = 4 * record["about"]["groups"] * (stages(4) + 1)
    hub = (four["client_cpu"] - one["client_cpu"]) / 3
    return {
        "message": (four["worker_cpu"] - idle - sweep) / n_messages,
        "hub": hub,
        "sweep": sweep,
        "idle": four["idle_cpu"],
    }


def predicted(record, row, found):
    """Return the seconds of a sweep of one row of the record, by the model."""
    about, network, P = record["about"], row["network"], row["workers"]
    passed = 2 * P * about["groups"] * (stages(P) + 1)
    machines = Machines(
        P,
        latency=_LATENCIES[network],
        bandwidth=_BANDWIDTHS[network],
        # The proxy that makes the network slow takes its own part of the cores.
        message=found["message"] + 2 * row.get("proxy_cpu", 0.0) / passed * (P > 1),
        hub=found["hub"],
        idle=found["idle"],
        cores=about["cores"],
    )
    sweep = sweep_of(
        about["tokens"],
        about["topics"],
        machines,
        per_token=found["sweep"] / about["tokens"],
        n_groups=about["groups"],
        n_words=about["words"],
        row_bytes=row_bytes(about, row),
    )
    return sum(sweep.on(machines).values())


def row_bytes(about, row):
    """Return the bytes of a word's counts as they travel: of what a worker sent, without the totals."""
    totals = stages(row["workers"]) * about["groups"] * 8 * about["topics"]
    return max(row["bytes"] / row["workers"] - totals, 0.0) / about["words"]


def comparison(record):
    """Return rows of workers, network, seconds measured and predicted, for all rows of a record."""
    found = costs(record)
    return [
        (row["workers"], row["network"], row["seconds"], predicted(record, row, found))
        for row in record["rows"]
    ]


def fits_comparison(record):
    """Return the same of `many_workers_fits`: the fit, workers, network, then seconds and CPU seconds.

    Of both what was measured and what the model says. For each fit the CPU seconds of one worker and of four
    say what the work, a message and an answer cost.
    """
    rows = {(row["fit"], row["network"], row["workers"]): row for row in record["rows"]}
    found = []
    about = record["about"]
    for (fit, network, P), row in rows.items():
        one, four = rows[fit, "this machine", 1], rows[fit, "this machine", 4]
        busy = [row["worker_cpu"] - row["idle_cpu"] * n * row["seconds"] for n, row in ((1, one), (4, four))]
        passed = [_needs(about, fit, 1.0, n, row).messages(n) for n, row in ((1, one), (4, four))]
        message = max(busy[1] - busy[0], 0.0) / (passed[1] - passed[0])
        round_ = _needs(about, fit, busy[0] - message * passed[0], P, row)
        answers = [_needs(about, fit, 1.0, n, row).answers or n for n, row in ((1, one), (4, four))]
        hub = max(four["client_cpu"] - one["client_cpu"], 0.0) / (answers[1] - answers[0])
        round_ = replace(round_, alone=max(one["client_cpu"] - hub * answers[0], 0.0))
        machines = Machines(
            P,
            latency=_LATENCIES[network],
            bandwidth=_BANDWIDTHS[network],
            message=message + row["proxy_cpu"] / round_.messages(P),  # the proxy has its part of the cores
            hub=hub,
            idle=four["idle_cpu"],
            cores=about["cores"],
        )
        cpu = row["worker_cpu"] + row["client_cpu"] + row["proxy_cpu"]
        clock = sum(round_.on(machines).values())
        found.append((fit, P, network, row["seconds"], clock, cpu, round_.cpu_seconds(machines)))
    return found


def _needs(about, fit, work, n_workers, row):
    """Return what a round of a fit needs, of `work` seconds in all."""
    machines = Machines(n_workers)
    if fit == "logistic":
        n_rows, n_columns = about["rows"]
        answers = row["bytes"] / (8 * (n_columns + 1)) - n_workers
        n_bytes = 8.0 * n_rows * n_columns
        return cluster_model.rows(n_bytes, n_columns, machines, rate=n_bytes / work, answers=answers)
    if fit == "lasso":
        n_rows, n_columns, n_nonzero = about["columns"]
        return cluster_model.columns(n_rows, n_columns, n_nonzero, machines, per_nonzero=work / n_nonzero)
    n_users, n_items, n = about["ratings"]
    # Blocks are two for each of eight shards, whatever the workers are.
    made = cluster_model.ratings(n, n_users, n_items, 32, Machines(8), per_rating=work / n)
    here = n_workers > 1
    return replace(
        made,
        blocks=made.blocks * here,
        travels=made.travels * here,
        hides=1 - n_workers / made.blocks,
        asked=n_workers,
    )


def cases(rates):
    """Return the fits of the page: title, what a round is, and a function of `Machines` that gives one."""

    def lda(n_tokens, n_topics, n_words, sampler):
        # Rows of counts travel compact: two bytes for each of the topics that a word has, some hundred.
        own = {"n_words": n_words, "row_bytes": 200.0, "heaviest": 0.005, "warp": sampler == "warp"}
        per_token = 1 / rates[f"tokens of {sampler}, {n_topics} topics"]
        return lambda m: sweep_of(n_tokens, n_topics, m, per_token=per_token, **own)

    def ratings(n_factors, width):
        per_rating = 1 / rates[f"ratings, {n_factors} factors"]
        own = {"per_rating": per_rating, "width": width}
        return lambda m: cluster_model.ratings(1e9, 1e7, 1e6, n_factors, m, **own)

    every: list[tuple[str, str, Callable]] = []
    for n_tokens, text, n_words in ((1e9, "10^9 tokens", 1e5), (1e11, "10^11 tokens", 1e6)):
        for n_topics, sampler in SAMPLERS:
            title = f"LDA ({sampler}), {n_topics:,} topics, {text}"
            every.append((title, "a sweep", lda(n_tokens, n_topics, n_words, sampler)))
    every += [
        (
            "Logistic regression, 1 TB of rows in portions of 1 GB, 1,000 columns",
            "a pass",
            lambda m: cluster_model.rows(1e12, 1000, m, rate=rates["bytes of rows"]),
        ),
        (
            "Lasso, 10^8 columns of 100 entries, 10^6 rows",
            "a round",
            lambda m: cluster_model.columns(1e6, 1e8, 1e10, m, per_nonzero=1 / rates["entries of columns"]),
        ),
        *(
            (f"Factorization, 10^9 ratings, 10^6 items, {n} factors{more}", "an epoch", ratings(n, width))
            for n, width, more in ((32, 4, ""), (128, 4, ""), (128, 2, ' with `wire="float16"`'))
        ),
        (
            "A network of 10^7 parameters, minibatches of 10^12 operations",
            "a minibatch",
            lambda m: cluster_model.network(1e7, 1e12, m, rate=rates["operations"]),
        ),
    ]
    return every


def _seconds_a_round(model, *data):
    """Return the CPU seconds of a round of a fit on one thread, the median."""
    seen = []
    model.fit(*data, callback=lambda info: seen.append(time.process_time()))
    return statistics.median(np.diff(seen[2:]).tolist())


def most_threads(record, n_workers, bandwidth, most=128):
    """Return with how many threads a worker, or fewer, "auto" has sooner done what "gibbs" does in a sweep.

    0 if with none; `most` are tried. With 1,000 topics and 10^9 tokens: "auto" takes several pairs of passes
    of warp in place of a sweep.
    """
    found, needs = costs(record), {title: needs for title, _, needs in cases(record["rates"])}

    def seconds(sampler, n_threads):
        machines = Machines(
            n_workers, n_threads, bandwidth=bandwidth, message=found["message"], hub=found["hub"]
        )
        return sum(needs[f"LDA ({sampler}), 1,000 topics, 10^9 tokens"](machines).on(machines).values())

    sooner = (n for n in range(1, most + 1) if WARP_PASSES * seconds("warp", n) < seconds("gibbs", n))
    return max(sooner, default=0)


def measure_rates():
    """Measure what one thread of this machine does in a CPU second, a dict."""
    import stradask as sd

    rng = np.random.default_rng(0)
    rates = {
        f"tokens of {sampler}, {n_topics} topics": 1 / measure_rate(sampler, n_topics)
        for n_topics, sampler in SAMPLERS
    }
    X = rng.standard_normal((200_000, 100))
    labels = X @ rng.standard_normal(100) + 3 * rng.standard_normal(len(X)) > 0
    model = sd.LogisticRegression(solver="lbfgs", tol=1e-14, max_iter=15, n_jobs=1)
    rates["bytes of rows"] = X.nbytes / _seconds_a_round(model, X, labels)
    R = sd.datasets.make_ratings(20_000, 5000, density=0.01, random_state=0)[0]
    for n_factors in (32, 128):
        model = sd.MatrixFactorization(n_factors, solver="sgd", max_iter=12, n_jobs=1, random_state=0)
        rates[f"ratings, {n_factors} factors"] = R.nnz / _seconds_a_round(model, R)
    S, residuals = sparse.random(100_000, 100_000, 1e-4, format="csc", random_state=rng), np.ones(100_000)
    rates["entries of columns"] = S.nnz / _cpu(lambda: residuals @ S)
    A = rng.standard_normal((1024, 1024)).astype(np.float32)
    rates["operations"] = 2 * 1024**3 / _cpu(lambda: A @ A)
    return {name: float(f"{rate:.3g}") for name, rate in rates.items()}


def _cpu(function):
    """Return the CPU seconds of a call, the median of five after a first one."""
    found = []
    for _ in range(6):
        began = time.process_time()
        function()
        found.append(time.process_time() - began)
    return statistics.median(found[1:])


# The page -------------------------------------------------------------------------------------------------


def threads_table(threads=(2, 4, 8, 16, 32, 64)):
    """Return the table of sweeps on threads of one process that docs/topics.md has, Markdown."""
    lines = ["| corpus | groups | 2 threads | " + " | ".join(map(str, threads[1:])) + " |"]
    lines.append("|---" * (2 + len(threads)) + "|")
    for title, n_tokens, n_words in _CORPORA:
        own = number_of_groups(n_tokens, n_words, 100)
        for n_groups in sorted({own, *((16, 64) if n_words == _CORPORA[0][2] else ())}):
            alone, *seconds = [
                cluster_model.sweep_on_threads(n_tokens, n_groups, n, **_COSTS) for n in (1, *threads)
            ]
            cells = [title, f"{n_groups}{' (its own number)' if n_groups == own else ''}"]
            lines.append("| " + " | ".join(cells + [f"{alone / each:.1f}" for each in seconds]) + " |")
    return "\n".join(lines) + "\n"


def _figure(seconds):
    return (
        f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s" if seconds >= 1 else f"{seconds:.2g} s"
    )


def _cell(round_, machines):
    """Return what a cell of a table says: seconds, and what takes most of them."""
    if not round_.fits(machines):
        return "memory"
    parts = round_.on(machines)
    return f"{_figure(sum(parts.values()))}, {binding(parts)}"


def page(record):
    """Return the page, Markdown."""
    found = costs(record)
    lines = [INTRODUCTION.rstrip(), ""]
    head = ["", *(f"{n:,}" for n in WORKERS)]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for title, unit, needs in cases(record["rates"]):
        cells = []
        for n_workers in WORKERS:
            machines = Machines(n_workers, THREADS, message=found["message"], hub=found["hub"])
            cells.append(_cell(needs(machines), machines))
        lines.append(f"| {title}: {unit} | " + " | ".join(cells) + " |")
    lines += [AUTO.format(passes=WARP_PASSES).rstrip(), ""]
    lines += ["| | " + " | ".join(f"{n} workers" for n in _FEW) + " |", "|---" * (1 + len(_FEW)) + "|"]
    for title, bandwidth in _NETWORKS.items():
        most = [most_threads(record, n_workers, bandwidth) for n_workers in _FEW]
        lines.append(f"| {title} | " + " | ".join(str(n or "none") for n in most) + " |")
    about = record["about"]
    lines += [MEASURED.format(**found_in_words(found), **about).rstrip(), ""]
    lines += ["| workers | network | measured, ms | predicted, ms | off by |", "|---|---|---|---|---|"]
    for n_workers, network, seconds, model in comparison(record):
        cells = [
            str(n_workers),
            network,
            f"{1e3 * seconds:.0f}",
            f"{1e3 * model:.0f}",
            f"{model / seconds - 1:+.0%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    fits = json.loads(FITS.read_text(encoding="utf-8"))
    lines += [FITS_MEASURED.rstrip(), "", *fits_table(fits)]
    lines += [RATES.rstrip(), "", "| a thread, in a CPU second | |", "|---|---|"]
    lines += [f"| {name} | {rate:.3g} |" for name, rate in record["rates"].items()]
    return "\n".join(lines) + "\n"


def fits_table(record):
    """Return the lines of the table of `fits_comparison`, Markdown."""
    lines = ["| fit | workers | network | CPU, ms | predicted | off by | clock, ms | predicted | off by |"]
    lines.append("|---" * 9 + "|")
    for fit, n_workers, network, *seconds in fits_comparison(record):
        cells = [_TITLES[fit], str(n_workers), network]
        for measured, model in (seconds[2:], seconds[:2]):
            cells += [f"{1e3 * measured:.0f}", f"{1e3 * model:.0f}", f"{model / measured - 1:+.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def found_in_words(found):
    """Return the measured costs as the page says them."""
    return {"message": f"{1e3 * found['message']:.2f} ms", "hub": f"{1e3 * found['hub']:.2f} ms"}


THREADS = 16
INTRODUCTION = """# How many workers

More workers help until something else than computing binds. The table has predicted seconds, and what takes
the largest part of them, for workers of 16 threads, 10 Gbit/s and .3 ms between any two of them and the
process that calls `fit`. A worker has 64 GB, of which data may take half, and reads 100 GB/s from its
memory.

- **compute**: the threads are busy; twice the workers take half the time.
- **row**: one worker at a time draws from the row of the most frequent word, which has .5 % of the tokens
  ([common words](distributed-topics.md#the-same-model)): leave out stop words.
- **blocks**: blocks of a model travel from worker to worker, and there is not enough other work meanwhile.
  Blocks of Gibbs sampling have rows of counts; those of "warp" have tokens, so that with 1,000 topics each
  worker receives 3.1 bytes for each token of the corpus in a sweep, on any number of workers. A worker sends
  all its blocks in one message, and Gibbs sampling exchanges totals 64 to 127 times a sweep: messages grow
  with the workers and not with their threads ([which sampler](#which-sampler-on-a-cluster)).
- **messages**: workers exchange sums, in log2(P) messages one after the other; the gradients of a network
  go round a ring, in 2 (P - 1) messages.
- **hub**: the process that calls `fit` sends to and hears from each worker, over its one link. A pass over
  rows costs it an answer for each portion (chunk, row group): make portions large, but no fewer than there
  are threads.
- **memory**: the data do not fit the workers. Fits of rows then read them in every pass
  ([how](tables.md#rows-beyond-the-workers-memory)), topic models write them to disk (`memory_limit`).

No fit has been run on more than 16 workers: these are predictions of a model, which is held to measurements
below.
"""
AUTO = """
## Which sampler on a cluster

`sampler="auto"` does not look at the network: the choice follows from the corpus and the number of topics
alone, so that a seed gives the same model on threads and on any cluster. With more than 700 topics it begins
with 150 sweeps of {passes} pairs of passes of "warp" each, which take less work than a sweep of Gibbs
sampling and send more. The table has the threads a worker up to which they end sooner than Gibbs sampling by
the model above (1,000 topics, 10^9 tokens). With more threads, set `sampler="gibbs"`.
"""
MEASURED = """
## How far the model is from measurements

Sweeps of Gibbs sampling of {tokens:,} tokens with {topics} topics and {groups} groups, on 1 to 16 worker
processes of one thread, all on one machine of {cores} cores. They share the cores, so a sweep on 16 workers
takes longer than on two: what shows are the costs of messages. The slow network is a proxy between the
processes, which hands bytes on after 1 ms and at 1 Gbit/s; it stands in for a network between machines (`tc
netem`, which the kernel of that machine lacks), takes CPU time itself, and leaves out the messages of the
scheduler.

The rows of one and of four workers without it went into the model: a message costs {message} of CPU time at
both ends together, and an answer of a worker {hub} of the client's. It predicts the other rows. The fits
gave the same model, bit for bit, in all of them.
"""
_TITLES = {"logistic": "logistic regression", "lasso": "Lasso, columns", "ratings": "factorization"}
FITS_MEASURED = """
The same for other fits, on 1 to 8 processes: a pass of L-BFGS over 200,000 rows of 200 columns; a round of
scores over 20,000,000 entries in 400,000 columns that workers own; an epoch of stochastic gradients over
3,500,000 ratings with 32 factors, in 8 shards, 16 blocks. For each fit the CPU seconds of one worker and of
four without the slow network went into the model. CPU seconds are those of all processes and the proxy.

Other programs ran on the machine at the same time (a load of 8 to 40 on its two cores), with lower priority.
The model knows nothing of them, so the clock is that of the shortest of two to four turns: cases far
off were measured again more often. CPU seconds need no such choice, and are those of the same turn. The model
misses both by at most a fifth, but for the Lasso on eight processes: CPU seconds by 24 %, the clock by 30 %.
"""
RATES = """
`python -m stradask.benchmarks.experiments.topics.many_workers --out benchmarks/results/many-workers`
and `... experiments.many_workers_fits` with the same option measure this,
`python -m stradask.benchmarks.experiments.how_many_workers --rates` adds the rates below to
the record, and without an option it prints this page from it.
[`stradask plan lda`](billions-of-tokens.md) predicts fits of topics with your own numbers; for other fits
set rates, latency and bandwidth in `scheduler/planning/rounds.py`'s `Machines`.
"""


def main(args=None):
    """Print the page, or measure rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", type=Path, default=RECORD, help="of topics.many_workers (%(default)s)")
    parser.add_argument("--rates", action="store_true", help="measure rates of one thread, for the record")
    parser.add_argument("--threads", action="store_true", help="print the table of threads of one process")
    wanted = parser.parse_args(args)
    record = json.loads(wanted.record.read_text(encoding="utf-8"))
    if wanted.rates:
        record["rates"] = measure_rates()
        wanted.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(record["rates"])
    else:
        print(threads_table() if wanted.threads else page(record), end="")


if __name__ == "__main__":
    main()
