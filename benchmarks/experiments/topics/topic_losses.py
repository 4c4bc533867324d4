"""What the loss of a worker costs a topic model: shards and bytes that are read again, and seconds.

    python -m stradask.benchmarks.experiments.topics.topic_losses --workers 2 4 8

Worker processes of one thread fit LDA to files; one of them is killed (SIGKILL) in the middle of a sweep, and
the nanny starts another. Printed for each number of workers, of a fit that begins at random and of one that
begins from given topics: how many shards were read again, of how many, and their bytes; seconds until the
loss was heard of, until the session was open again, and by how much the first sweep after that was longer
than the median of those after it; and whether the model is the one of threads, bit for bit.
"""

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ....algorithms.topics.lda import LatentDirichletAllocation
from ....datasets.bag_of_words import save_uci_bow
from ....datasets.generators import make_lda_corpus
from ..recovery import Watch, losses, put, watched


class Reads:
    """Counts shards that are read, and their bytes; replaces a method of the session while it is entered."""

    def __init__(self):
        self.n_shards = self.n_bytes = 0

    def __enter__(self):
        from ....scheduler.sessions.cluster import ClusterSession

        load = self.load = ClusterSession.load

        async def counted(session, shard, *args):
            source = session._data.shards[shard]["source"]
            self.n_shards += 1
            self.n_bytes += sum(piece.n_bytes for piece in source)
            return await load(session, shard, *args)

        _put(counted)
        return self

    def __exit__(self, *_):
        _put(self.load)


def _put(load):
    from ....scheduler.sessions import cluster

    vars(cluster)["ClusterSession"].load = load


def measure(client, files, options, given, after):
    """Fit with a loss after some sweeps; return the model, what was read before and after it, and seconds.

    `given`: topics to begin from, or None. The reading of the survey does not count.
    """
    watch = Watch(client, 1, after)
    before = watched(watch)
    at_kill: list[tuple] = []
    with Reads() as reads:

        def on_sweep(info):
            watch.epoch(info)
            if not (watch.left or at_kill):
                at_kill.append((reads.n_shards, reads.n_bytes))
            return False

        try:
            model = LatentDirichletAllocation(engine="dask", **options)
            model.fit(files, topics=given, callback=on_sweep)
        finally:
            put(*before)
        again = reads.n_shards - at_kill[0][0], reads.n_bytes - at_kill[0][1]
    return model, again, losses(watch.marks)[0]


def main(arguments=None):
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--sweeps", type=int, default=24)
    wanted = parser.parse_args(arguments)
    from distributed import Client, LocalCluster

    X, *_ = make_lda_corpus(wanted.documents, n_features=5000, n_components=20, random_state=0)
    options: dict[str, Any] = {"n_components": wanted.topics, "sampler": "gibbs", "n_groups": wanted.groups}
    options |= {"max_iter": wanted.sweeps, "random_state": 0}
    given = np.random.default_rng(0).random((wanted.topics, 5000))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "docword.txt")
        save_uci_bow(X, path)
        print(f"{X.sum()} tokens, {path.stat().st_size} bytes, {wanted.groups} shards")
        print(
            "workers: shards read again, bytes; seconds: heard of, open again, first sweep later; same bits"
        )
        for kind, topics in (("random", None), ("given topics", given)):
            local = LatentDirichletAllocation(**options).fit(path, topics=topics)
            for n_workers in wanted.workers:
                own = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
                with LocalCluster(silence_logs=logging.CRITICAL, **own) as cluster, Client(cluster) as client:
                    client.wait_for_workers(n_workers, timeout=120)
                    model, again, seconds = measure(client, path, options, topics, wanted.sweeps // 2)
                same = not (model.word_topic_counts_ != local.word_topic_counts_).nnz
                took = ", ".join(f"{value:.2f}" for value in seconds)
                print(f"{kind} {n_workers}: {again[0]}, {again[1]}; {took}; {same}", flush=True)


if __name__ == "__main__":
    main()
