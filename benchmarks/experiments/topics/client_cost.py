"""What a sweep of a topic model on a cluster costs the process that calls fit.

``python -m stradask.benchmarks.experiments.topics.client_cost`` starts a scheduler and worker processes of
one thread on this machine, fits LDA, and prints for each sampler and number of workers: milliseconds of this
process's CPU a sweep, milliseconds a sweep by the clock, kilobytes a sweep that workers answered to this
process, and bytes a token that they answered after the last sweep, for the model. The first sweeps, in which
kernels compile, do not count.
"""

import argparse
import time

from ....algorithms.topics.lda import LatentDirichletAllocation
from ....datasets.generators import make_lda_corpus
from ...scheduling.slow_network import cluster

_SKIPPED = 5  # sweeps


class Answers:
    """Counts the bytes of workers' answers to this process; replaces a function while it is entered."""

    def __init__(self):
        self.n_bytes = 0

    def __enter__(self):
        from ....scheduler.sessions import payloads, workers

        self._names = vars(workers)
        self._opened = self._names["opened"]

        def counted(answer, worker):
            if answer and answer.get("ok"):
                self.n_bytes += sum(map(payloads.bytes_of, answer["ok"]))
            return self._opened(answer, worker)

        self._names["opened"] = counted
        return self

    def __exit__(self, *_):
        self._names["opened"] = self._opened


def measure(X, n_topics, sampler, n_groups, n_sweeps):
    """Fit; return CPU and clock seconds and bytes a sweep, and bytes after the last sweep."""
    seen = []
    with Answers() as answers:

        def look(info):
            seen.append((time.process_time(), time.perf_counter(), answers.n_bytes))

        options = {"sampler": sampler, "n_groups": n_groups, "max_iter": n_sweeps, "random_state": 0}
        LatentDirichletAllocation(n_topics, engine="dask", **options).fit(X, callback=look)
        first, last = seen[_SKIPPED], seen[-1]
        spent = [(b - a) / (len(seen) - 1 - _SKIPPED) for a, b in zip(first, last, strict=True)]
        return *spent, answers.n_bytes - last[2]


def main(args=None):
    """Print a line a case."""
    from distributed import Client

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--samplers", nargs="+", default=["gibbs", "light", "warp"])
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--sweeps", type=int, default=45)
    wanted = parser.parse_args(args)
    X, *_ = make_lda_corpus(wanted.documents, n_features=5000, n_components=20, random_state=0)
    print(f"{X.sum()} tokens, {wanted.groups} groups, {wanted.topics} topics", flush=True)
    print("sampler workers: client CPU ms, ms, kB a sweep; bytes a token at the end")
    for n_workers in wanted.workers:
        with cluster(n_workers) as found, Client(scheduler_file=str(found.scheduler_file)) as client:
            client.wait_for_workers(n_workers, timeout=120)
            for sampler in wanted.samplers:
                own = (X, wanted.topics, sampler, wanted.groups, wanted.sweeps)
                cpu, clock, sent, after = measure(*own)
                figures = f"{1e3 * cpu:.2f}, {1e3 * clock:.0f}, {sent / 1e3:.1f}; {after / X.sum():.2f}"
                print(f"{sampler} {n_workers}: {figures}", flush=True)


if __name__ == "__main__":
    main()
