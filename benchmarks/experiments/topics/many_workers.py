"""What sweeps of topics cost on 1 to 16 worker processes of this machine, also with a slow network.

    python -m stradask.benchmarks.experiments.topics.many_workers --out benchmarks/results/many-workers

All processes share the cores of this machine, so more workers are not faster here: what is measured are the
costs of messages, which `scheduling.cluster_model` needs to say what happens where each worker has cores of
its own. A record has for each case: seconds a sweep by the clock (the median), CPU seconds a sweep of all
workers and of this process, bytes a sweep that workers sent, and the memory of a worker between two sweeps.
As root, ``--niceness -10`` keeps the other programs of a busy machine from being measured, too.
`experiments.how_many_workers` compares the model with the record; with ``--sampler`` the record is that of
docs/billions-of-tokens.md.
"""

import argparse
import json
import math
import os
import statistics
import time
import zlib
from pathlib import Path

import numpy as np

from ....algorithms.topics.lda import LatentDirichletAllocation
from ....datasets.generators import make_lda_corpus
from ...data import load_counts
from ...scheduling.slow_network import cluster

_SKIPPED = 6  # sweeps, in which kernels compile and shards settle
NETWORKS = {"this machine": (0.0, math.inf), "1 ms, 1 Gbit/s": (1e-3, 1.25e8)}


def measured(fit, counted, n_workers, network):
    """Fit on a cluster of processes; return a record.

    `fit` takes a callback and returns the model; `counted` takes its history and says which rounds count.
    """
    from distributed import Client

    latency, bandwidth = NETWORKS[network]
    with (
        cluster(n_workers, latency, bandwidth) as there,
        Client(scheduler_file=str(there.scheduler_file)) as client,
    ):
        client.wait_for_workers(n_workers, timeout=300)
        rss = []
        idle, began = there.cpu_seconds()[0], time.perf_counter()
        time.sleep(1.0)
        idle = (there.cpu_seconds()[0] - idle) / (time.perf_counter() - began) / n_workers
        seen = [(time.perf_counter(), time.process_time(), *there.cpu_seconds())]

        def look(info):
            rss.append(statistics.mean(resident(pid) for pid in there.workers))
            seen.append((time.perf_counter(), time.process_time(), *there.cpu_seconds()))

        model = fit(look)
    rounds = counted(model.history_)
    clock, own, workers, proxy = np.diff(np.array(seen), axis=0)[rounds].T
    return {
        "workers": n_workers,
        "network": network,
        "seconds": statistics.median(clock.tolist()),
        "worker_cpu": float(workers.mean()),
        "proxy_cpu": float(proxy.mean()),
        "client_cpu": float(own.mean()),
        "idle_cpu": idle,
        "bytes": float(np.mean(model.history_["bytes_sent"][rounds])),
        "memory": max(rss),
    }, model


def resident(pid):
    """Return the bytes of memory that a process has now, by ``/proc``."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def come_first(niceness):
    """Set the priority of this process and those that it starts."""
    group = Path("/proc/self/autogroup")  # where there is one, that of a process counts within it alone
    if group.exists():
        group.write_text(str(niceness))
    else:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def main(args=None):
    """Measure, print, and write a record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--dataset", help="a docword file (default: a corpus is drawn)")
    parser.add_argument("--sampler", default="gibbs")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=5000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--niceness", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for record.json")
    wanted = parser.parse_args(args)
    if wanted.niceness:
        come_first(wanted.niceness)
    if wanted.dataset is None:
        X = make_lda_corpus(wanted.documents, n_features=wanted.words, n_components=20, random_state=0)[0]
    else:
        X = load_counts(wanted.dataset, 0)
    about = {name: getattr(wanted, name) for name in ("sampler", "topics", "groups", "sweeps")}
    about |= {"tokens": int(X.sum()), "documents": X.shape[0], "words": X.shape[1], "cores": os.cpu_count()}
    about["longest"] = int(X.sum(axis=1).max())
    print(about, flush=True)
    lda = LatentDirichletAllocation(
        wanted.topics,
        engine="dask",
        sampler=wanted.sampler,
        n_groups=wanted.groups,
        max_iter=wanted.sweeps,
        random_state=0,
    )

    def fit(callback):
        return lda.fit(X, callback=callback)

    rows = []
    counted = range(min(_SKIPPED, wanted.sweeps // 2), wanted.sweeps)
    for network in wanted.networks:
        for n_workers in wanted.workers:
            row, model = measured(fit, lambda history: counted, n_workers, network)
            counts = model.word_topic_counts_
            rows.append(row | {"model": zlib.crc32(counts.data, zlib.crc32(counts.indices))})
            print(rows[-1], flush=True)
            if wanted.out:
                wanted.out.mkdir(parents=True, exist_ok=True)
                text = json.dumps({"about": about, "rows": rows}, indent=1)
                (wanted.out / "record.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
