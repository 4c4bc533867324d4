"""Huge numbers of topics: tokens a second and the memory they take, each fit in a process of its own.

    python -m stradask.benchmarks.experiments.topics.lda_large --n-components 1000 100000 1000000 --n-jobs 2

A corpus of 18 million tokens over 100,000 words is drawn from 100 topics, unless a docword file is given.
Time is that of the sweeps after the first, which lays out the corpus and may compile. A process that
would take more than the limit of memory is ended by the system, and that is the record.
"""

import argparse
import itertools
import json
import multiprocessing
import resource
import statistics
import time
from pathlib import Path

from ....errors import DataError
from ...data import load_counts
from ...run import describe_machine
from ...runs.worker import cpu_seconds, memory_now, peak_memory, reset_peak_memory

BETA = 0.01


def measure(X, sampler, n_components, sweeps, n_jobs, limit_gb):
    """Fit once and return speed, memory, topics in use and log-likelihood per token.

    `limit_gb` is the address space that the process may take beyond what it has now; ``training_mb`` is
    memory beyond the process that holds X, ``tokens_per_second`` that of the median sweep.
    """
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


def main(arguments=None):
    """Measure each sampler at each K, and print one JSON line a fit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", help="a docword file (default: 18 million tokens are drawn)")
    parser.add_argument("--n-components", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
    parser.add_argument("--samplers", nargs="+", default=["warp", "light"])
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--limit-gb", type=float, default=16)
    args = parser.parse_args(arguments)
    if args.sweeps < 2:
        raise DataError(f"--sweeps is {args.sweeps}; 2 or more are needed, the first is not timed")
    X = corpus(args.dataset)
    common = {
        "data": {"name": Path(args.dataset or "generated").name, "tokens": int(X.sum()), "words": X.shape[1]},
        "sweeps": args.sweeps,
        "n_jobs": args.n_jobs,
        "limit_gb": args.limit_gb,
        "machine": describe_machine(),
    }
    for n_components in args.n_components:
        for sampler in args.samplers:
            seen = in_own_process(X, sampler, n_components, args.sweeps, args.n_jobs, args.limit_gb)
            print(json.dumps({"sampler": sampler, "n_components": n_components} | seen | common), flush=True)


def corpus(dataset):
    """Return the corpus of a file, or the generated one."""
    if dataset is not None:
        return load_counts(dataset, 0)
    from ....datasets import make_lda_corpus

    return make_lda_corpus(60_000, 100_000, 100, mean_length=300, random_state=3)[0]


if __name__ == "__main__":
    main()
