"""The benchmark ``stradask bench rotation``: a topic model on a cluster, predicted and measured, and a loss.

Fits LDA on one worker process, on two and so on, in turns with as many threads, or on a cluster that runs
(``--cluster``, which is also what ``stradask bench lda --cluster ADDRESS`` does), and shows what each worker
did. What one worker measured goes into the model of `scheduler.planning.rounds`, whose prediction is shown
with the measurement. In the end a worker is killed half way: the model must be the same, and the picture
shows what the loss cost.
"""

import contextlib
import hashlib
import os
import signal
from typing import Any

import numpy as np

from ...algorithms.topics.planning import sweep_of
from ...errors import DataError
from ...scheduler.planning.rounds import Machines
from .. import data
from ..pages.rotation import GROUPS, settled, typical
from ..pages.rotation import page as page  # as every family has both
from ..pages.rotation import table as table
from ..run import about_run


def digest(model):
    """Hash the word-topic counts of a model."""
    counts = model.word_topic_counts_
    found = hashlib.sha256()
    for array in (counts.indptr, counts.indices, counts.data):
        found.update(np.ascontiguousarray(array, np.int64).data)
    return found.hexdigest()[:16]


def fit(X, engine, settings, callback=None):
    """Fit and return what was measured.

    ``seconds``, ``tokens_per_second`` and ``bytes_sent`` are lists over sweeps, ``median_seconds`` that of
    all but the first three; ``digest`` is the model's, ``activity`` that of
    `stradask.scheduler.history.Activity`.
    """
    import stradask as sd

    parameters = {"random_state": 0, "n_groups": GROUPS, "engine": engine} | settings
    model = sd.LatentDirichletAllocation(**parameters).fit(X, callback=callback)
    seconds = model.history_["seconds"]
    activity = getattr(model, "worker_history_", {})
    return {
        "seconds": seconds.tolist(),
        "tokens_per_second": (model.history_["updates"] / seconds).tolist(),
        "bytes_sent": model.history_["bytes_sent"].tolist(),
        "median_seconds": float(np.median(seconds[3:])),
        "digest": digest(model),
        "activity": {name: column.tolist() for name, column in activity.items()},
    }


def predict(one, run, n_tokens, n_workers, n_topics, latency=3e-4, bandwidth=1e9):
    """Predict a sweep's seconds, from the rate and the overhead of `one` worker of one thread (see `fit`).

    Of the run that is predicted the bytes are taken: blocks, as each worker receives all of them once.
    """
    working = sum(worked for worked, _, _ in settled(one).values())
    overhead = max(one["median_seconds"] - working, 0.0)
    machines = Machines(n_workers, 1, latency, bandwidth, hub=overhead, idle=0.0)
    sweep = sweep_of(
        n_tokens,
        n_topics,
        machines,
        per_token=working / n_tokens,
        n_groups=GROUPS,
        n_words=1,
        row_bytes=float(np.median(run["bytes_sent"][3:])) / n_workers,
    )
    return sum(sweep.on(machines).values())


class Killer:
    """A callback that kills a worker process after a round."""

    def __init__(self, cluster, after):
        self.cluster, self.after = cluster, after

    def __call__(self, info):
        """Look at the round."""
        if info.round == self.after:
            os.kill(next(iter(self.cluster.workers.values())).pid, signal.SIGKILL)


@contextlib.contextmanager
def _workers(n_workers):
    import logging

    from distributed import LocalCluster

    options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster:
        yield cluster


def bench(X, settings, *, workers=(1, 2), cluster=None, kill=True, repeats=1, on_record=list, tell=list):
    """Run everything; ``on_record`` is given each record as it is measured.

    Each number of `workers`, processes of one thread, runs in `repeats` turns with as many threads without a
    cluster; the first one's figures make the predictions. With `kill` there is also a run on the most
    workers, one of which is killed half way. With the address of a `cluster`, there is a run on it alone.
    `settings` are parameters of `LatentDirichletAllocation`.
    """
    n_tokens, n_topics = int(X.sum()), settings["n_components"]
    common = about_run("rotation") | {"n_tokens": n_tokens, "settings": settings}
    if cluster is not None:
        on_record(common | {"name": cluster, "predicted": None} | fit(X, cluster, settings))
        return
    one: dict[str, Any] = {}
    for n_workers in workers:
        threads = f"{n_workers} thread{'s' if n_workers > 1 else ''}, no cluster"
        turns = []
        with _workers(n_workers) as made:
            for _ in range(repeats):
                local = fit(X, "local", settings | {"n_jobs": n_workers})
                on_record(common | {"name": threads, "predicted": None} | local)
                run = fit(X, made.scheduler_address, settings)
                predicted = predict(one, run, n_tokens, n_workers, n_topics) if one else None
                turns.append(run | {"of_threads": local["median_seconds"] / run["median_seconds"]})
                on_record(common | {"name": _called(n_workers), "predicted": predicted} | turns[-1])
        shown = typical(turns)
        one = one or shown
        tell(f"{_called(n_workers)}: {n_tokens / shown['median_seconds'] / 1e6:.3g} M tokens/s")
    if kill:
        with _workers(max(workers)) as made:
            killer = Killer(made, settings["max_iter"] // 2)
            run = fit(X, made.scheduler_address, settings, killer)
        name = f"{_called(max(workers))}, one killed after sweep {killer.after}"
        on_record(common | {"name": name, "predicted": None} | run)


def _called(n_workers):
    return f"{n_workers} worker{'s' if n_workers > 1 else ''}"


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench rotation`` ask for."""
    if args.against:
        raise DataError("--against: rotation compares numbers of workers and has no peers")
    if args.dataset is not None and len(args.dataset) > 1:
        raise DataError("--dataset: rotation takes one corpus")
    known: dict[str, Any] = {"n_components": 100, "max_iter": 12 if args.quick else 40, "sampler": "gibbs"}
    own: dict[str, Any] = {"workers": (1, 2), "kill": True}
    for name, value in args.param:
        if name not in known | own:
            raise DataError(f"--param: {name!r} is none of rotation's: {', '.join(known | own)}")
        (known if name in known else own)[name] = value
    if known["max_iter"] < 6:
        raise DataError(f"--param: max_iter={known['max_iter']}: give 6 or more, three are not counted")
    workers = tuple(np.atleast_1d(own["workers"]).tolist())
    if not all(type(n) is int and n > 0 for n in workers):
        raise DataError(f"--param: workers={own['workers']}: give how many processes, 1 or more")
    X = data.load_counts("synthetic" if args.dataset is None else args.dataset[0], args.seed)
    repeats = args.repeats or (1 if args.quick else 3)
    options = {"cluster": args.cluster, "repeats": repeats, "on_record": on_record, "tell": tell}
    bench(X, known, workers=workers, kill=bool(own["kill"]), **options)
