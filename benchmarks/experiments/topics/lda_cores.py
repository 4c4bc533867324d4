"""How many times faster topics are drawn with more threads: a table for this machine, in 90 seconds.

    python -m stradask.benchmarks.experiments.topics.lda_cores --json cores.json

Each sampler sweeps over a generated corpus of 6 million tokens in 27 groups on 1, 2, 4, 8 and 16 threads,
as far as the machine has cores. The times are medians of the same sweeps of the same chain, without the first
one, which lays out the corpus. The models must be equal bit for bit: a difference is an error.
A slow machine does fewer sweeps, and leaves out rows for which there is no time.
"""

import argparse
import itertools
import json
import statistics
import time
import warnings
from pathlib import Path

from ....errors import StradaskError
from ...run import describe_machine

SAMPLERS, TOPICS, THREADS = ("gibbs", "warp", "light"), (100, 1000), (1, 2, 4, 8, 16)
_SHAPE = {"n_documents": 40_000, "n_features": 4_600, "n_components": 50, "mean_length": 150}
_LEAST, _MOST = 3, 10  # sweeps of a fit, the first one included
_ONE_THREAD = 0.5  # of the time for a sampler: the part of the fit on one thread


class Clock:
    """Wall and CPU seconds at the end of each sweep; as a callback it ends a fit when its time is over."""

    def __init__(self, seconds, least=_LEAST, most=_MOST):
        self.ends, self.least, self.most = time.perf_counter() + seconds, least, most
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __call__(self, info):
        """Note the time."""
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())
        late = self.wall[-1] >= self.ends and len(self.wall) >= self.least
        return late or len(self.wall) == self.most

    def medians(self):
        """Wall and CPU seconds of the median sweep after the first."""
        both = []
        for times in (self.wall, self.cpu):
            both.append(statistics.median(b - a for a, b in itertools.pairwise(times)))
        return both


def fitted(X, sampler, n_topics, n_jobs, clock):
    """Fit until the clock says so; the fit ends by it alone."""
    from ....algorithms.topics.lda import LatentDirichletAllocation

    settings = {"sampler": sampler, "doc_topic_prior": min(0.1, 10 / n_topics), "random_state": 0}
    lda = LatentDirichletAllocation(n_topics, max_iter=_MOST, n_jobs=n_jobs, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # more threads than groups: the table says how many
        return lda.fit(X, callback=clock)


def measure(X, sampler, n_topics, threads, seconds):
    """Yield a row for each number of threads, the first of which decides how many sweeps there are."""
    began, first = time.perf_counter(), None
    for n_jobs in threads:
        clock = Clock(seconds * _ONE_THREAD)
        if first is not None:
            if time.perf_counter() - began > seconds:
                return
            clock = Clock(0.0, first["sweeps"], first["sweeps"])
        lda = fitted(X, sampler, n_topics, n_jobs, clock)
        wall, cpu = clock.medians()
        row = {"sampler": sampler, "topics": n_topics, "threads": n_jobs, "sweeps": len(clock.wall)}
        row |= {"seconds": wall, "cpu_seconds": cpu, "tokens_per_second": int(X.sum()) / wall}
        row["log_likelihood"] = float(lda.log_likelihood_[-1])
        first = first or row
        if row["log_likelihood"] != first["log_likelihood"]:
            raise StradaskError(
                f"{sampler} with {n_topics} topics: {n_jobs} threads give another model than {threads[0]} "
                f"({row['log_likelihood']!r} for {first['log_likelihood']!r})"
            )
        yield row | {"speed_up": first["seconds"] / wall, "cpu_ratio": cpu / first["cpu_seconds"]}


def measured(X, samplers, topics, threads, seconds):
    """Yield the rows of all samplers within so many seconds, compiling included."""
    ends = time.perf_counter() + seconds
    for sampler in samplers:
        for n_topics in topics:
            fitted(X[:2000], sampler, n_topics, 1, Clock(0.0, 1, 1))  # compiles
    cases = [(sampler, n_topics) for sampler in samplers for n_topics in topics]
    for number, case in enumerate(cases):
        left = ends - time.perf_counter()
        if left <= 0:
            return
        yield from measure(X, *case, threads, left / (len(cases) - number))


def main(arguments=None):
    """Print a table, and write the same as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--topics", nargs="+", type=int, default=list(TOPICS))
    parser.add_argument("--threads", nargs="+", type=int, help="(1, 2, 4, 8, 16, up to the cores)")
    parser.add_argument("--seconds", type=float, default=80.0, help="all in all, about (%(default)g)")
    parser.add_argument("--divide", type=int, default=1, help="take so many times fewer documents")
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args(arguments)
    began, machine = time.perf_counter(), describe_machine()
    threads = options.threads or [n for n in THREADS if n <= max(machine["cores"], 1)]

    from ....algorithms.topics.blocks.groups import number_of_groups
    from ....datasets import make_lda_corpus

    shape = _SHAPE | {"n_documents": _SHAPE["n_documents"] // options.divide}
    X = make_lda_corpus(**shape, random_state=0)[0]
    n_tokens = int(X.sum())
    groups = [number_of_groups(n_tokens, X.shape[1], n_topics) for n_topics in options.topics]
    corpus = {"documents": X.shape[0], "words": X.shape[1], "tokens": n_tokens, "groups": groups}
    print(f"{machine['processor']}, {machine['cores']} cores; {n_tokens:,} tokens, groups: {groups}")
    print("sampler  topics  threads  sweeps  ms a sweep  M tokens/s  times 1 thread  CPU of 1 thread's")
    rows = []
    left = options.seconds - (time.perf_counter() - began)
    for row in measured(X, options.samplers, options.topics, threads, left):
        rows.append(row)
        print(
            f"{row['sampler']:7}{row['topics']:8d}{row['threads']:9d}{row['sweeps']:8d}"
            f"{1e3 * row['seconds']:12.1f}{row['tokens_per_second'] / 1e6:12.1f}{row['speed_up']:16.2f}"
            f"{row['cpu_ratio']:19.2f}",
            flush=True,
        )
    asked = len(options.samplers) * len(options.topics) * len(threads)
    if len(rows) < asked:
        print(f"{asked - len(rows)} of {asked} rows are left out: no time (--seconds)")
    result = {"machine": machine, "corpus": corpus, "rows": rows, "seconds": time.perf_counter() - began}
    text = json.dumps(result)
    if options.json is None:
        print(text)
    else:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
