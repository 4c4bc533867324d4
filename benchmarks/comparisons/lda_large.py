"""Huge numbers of topics: tokens a second and memory, each fit in a process of its own.

``stradask bench lda-large`` draws 18 million tokens of 100,000 words from 100 topics, or takes a file,
and fits as many topics as ``--param n_components=1000,100000`` says. Time is that of the sweeps after the
first, which lays out the corpus and may compile. The system ends a process that would take more memory than
``limit_gb``, and that is the record.
"""

import itertools
import multiprocessing
import statistics
import time
from typing import Any

import numpy as np

from ...datasets import make_lda_corpus
from ...errors import DataError
from ..data import load_counts
from ..pages.page import Page, where
from ..pages.tables import Table
from ..run import about_run
from ..runs.worker import cpu_seconds, memory_now, peak_memory, reset_peak_memory

BETA = 0.01


def measure(X, sampler, n_components, sweeps, n_jobs, limit_gb):
    """Fit once and return speed, memory, topics in use and log-likelihood per token.

    `limit_gb` is the address space that the process may take beyond what it has now; ``training_mb`` is
    memory beyond the process that holds X, ``tokens_per_second`` that of the median sweep.
    """
    import resource  # not on Windows

    import stradask

    small = X[:500]
    settings = {"sampler": sampler, "topic_word_prior": BETA, "doc_topic_prior": min(50 / n_components, 0.1)}
    # compiles what is compiled late: that is neither time nor memory of a sweep
    stradask.LatentDirichletAllocation(1000, max_iter=3, n_jobs=n_jobs, **settings).fit(small)
    address_space = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (address_space + int(limit_gb * 2**30),) * 2)
    reset_peak_memory()
    before = memory_now()
    seconds, cpu = [time.perf_counter()], [cpu_seconds()]

    def watch(info):
        seconds.append(time.perf_counter())
        cpu.append(cpu_seconds())

    model = stradask.LatentDirichletAllocation(
        n_components, max_iter=sweeps, n_jobs=n_jobs, random_state=0, **settings
    ).fit(X, callback=watch)
    tokens = int(X.sum())
    # the last sweep's clock ends before the model is put together; its memory counts
    peak = peak_memory()
    per_sweep = [later - earlier for earlier, later in itertools.pairwise(seconds[1:])]
    return {
        "tokens_per_second": tokens / statistics.median(per_sweep),
        "cpu_ns_per_token": 1e9 * (cpu[-1] - cpu[1]) / (tokens * len(per_sweep)),
        "first_sweep_seconds": seconds[1] - seconds[0],
        "peak_mb": peak,
        "training_mb": peak - before,
        "topics_in_use": int((model.word_topic_counts_.sum(axis=0) > 0).sum()),
        "log_likelihood": float(model.log_likelihood_[-1]),
        "ran": model.sampler_,
    }


def _child(connection, *arguments):
    try:
        connection.send(measure(*arguments))
    except MemoryError as error:
        connection.send({"error": f"out of memory: {error}"})


def in_own_process(*arguments):
    """Return `measure` of a fresh process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        process.join()
        return {"error": f"the process ended with status {process.exitcode}"}
    finally:
        process.join()


def corpus(args, n_documents):
    """Return the corpus of a file, or the generated one of so many documents."""
    if args.dataset is not None:
        return load_counts(args.dataset[0], 0)
    n_words = min(100_000, 5 * n_documents)
    return make_lda_corpus(n_documents, n_words, 100, mean_length=300, random_state=3)[0]


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench lda-large`` ask for."""
    if args.against:
        raise DataError("--against: lda-large has no peers; leave it out")
    if len(args.dataset or ()) > 1:
        raise DataError(f"--dataset: lda-large takes one docword file, not {len(args.dataset)}")
    settings: dict[str, Any] = {"n_components": (1000, 100_000, 1_000_000), "sweeps": 20, "documents": 60_000}
    if args.quick:
        settings |= {"n_components": (1000, 100_000), "sweeps": 4, "documents": 1000}
    settings |= {"limit_gb": 16, "warp": True, "light": True}
    for name, value in args.param:
        if name not in settings:
            raise DataError(f"--param: {name!r} is none of lda-large's: {', '.join(settings)}")
        settings[name] = value
    sweeps, limit_gb = settings["sweeps"], settings["limit_gb"]
    if sweeps < 2:
        raise DataError(f"--param: sweeps={sweeps}: give 2 or more, the first is not timed")
    X = corpus(args, settings["documents"])
    data = {"name": (args.dataset or ["generated"])[0].rpartition("/")[2]}
    data |= {"tokens": int(X.sum()), "words": X.shape[1]}
    common = about_run("lda-large") | {"data": data, "sweeps": sweeps, "n_jobs": args.n_jobs}
    for n_components in np.atleast_1d(settings["n_components"]).tolist():
        for sampler in ("warp", "light"):
            if settings[sampler]:
                figures = in_own_process(X, sampler, n_components, sweeps, args.n_jobs, limit_gb)
                about = {"sampler": sampler, "n_components": n_components, "limit_gb": limit_gb}
                on_record(common | about | figures)
                speed = f"{figures.get('tokens_per_second', 0) / 1e6:.3g} M tokens/s"
                tell(f"{sampler}, {n_components:,} topics: {figures.get('error', speed)}")


def tables(records):
    """Return a table for each corpus, of the last run of each sampler and number of topics."""
    last: dict = {}
    for record in records:
        data = record["data"]
        caption = f"{data['name']}: {data['tokens']:,} tokens of {data['words']:,} words"
        label = f"{record['sampler']}, {record['n_components']:,} topics"
        last.setdefault(f"{caption}, {record['n_jobs']} threads", {})[label] = record

    def cell(name, form, scale=1):
        return lambda record: format(record[name] / scale, form) if name in record else "out of memory"

    columns = {
        "M tokens/s": cell("tokens_per_second", ".1f", 1e6),
        "CPU ns a token": cell("cpu_ns_per_token", ".0f"),
        "peak, MB": cell("peak_mb", ",.0f"),
        "of training, MB": cell("training_mb", ",.0f"),
        "topics in use": cell("topics_in_use", ",.0f"),
    }
    return [Table.of(rows.items(), columns, "", caption) for caption, rows in last.items()]


def table(records):
    """Return the tables as text."""
    return "\n\n".join(f"{one.caption}\n{one.text()}" for one in tables(records))


def page(records):
    """Return the page of a run of the benchmark."""
    page = Page("stradask bench lda-large: huge numbers of topics").text(f"On {where(records[0])}.")
    for one in tables(records):
        page = page.table(*one)
    return page.add_facts(records[0], "machine")
