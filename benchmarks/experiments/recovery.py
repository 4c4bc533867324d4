"""What the loss of a worker costs a fit of a network beyond the work that is done again.

    python -m stradask.benchmarks.experiments.recovery --kills 5

Worker processes train a network; one with work is killed (SIGKILL) in the middle of an epoch, the nanny
starts another, and so on. Printed for each kill: seconds until the loss was heard of, seconds until the
session was open again, and what the first epoch after it took longer than the median of those after it. Their
sum is what is lost beyond the work done again: the broken epoch and those since the last snapshot. The last
line has the number of workers with work in each epoch.
"""

import argparse
import os
import signal
import statistics
import threading
import time
from typing import Any

import numpy as np


def _network(kind, seed):
    """Return an estimator, and rows."""
    if kind == "torch":
        from ...algorithms.neural.torch_models import TorchClassifier
        from ..neural.networks import digits, network

        rows, _ = digits(seed)
        return TorchClassifier(
            network(48, seed), learning_rate=0.01, micro_batches=4, random_state=seed
        ), rows
    from ...algorithms.neural.mlp import MLPClassifier

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((8192, 256), np.float32)
    options: Any = {"solver": "sgd", "batch_size": 1024, "tol": 0.0, "n_iter_no_change": 10**6}
    return MLPClassifier((512, 512, 512), random_state=seed, **options), (X, X[:, 0] > 0)


class Watch:
    """Notes when the engine does what; kills a worker some epochs after the last loss."""

    def __init__(self, client, n_kills, apart):
        self.client, self.left, self.apart = client, n_kills, apart
        self.marks: list[tuple[str, float]] = []  # what, when
        self.places: list[set] = []  # the workers with work in each epoch
        self._since = 0

    def note(self, what):
        """Note that something happens now."""
        self.marks.append((what, time.monotonic()))

    def epoch(self, info):
        """Note the end of an epoch; kill a worker in the middle of the next, if it is time."""
        self.note("epoch")
        self._since += 1
        if not self.left:
            return self._since > self.apart
        if self._since >= self.apart:
            last = np.diff([when for what, when in self.marks if what == "epoch"][-3:])
            victim = self.client.run(os.getpid)[sorted(self.places[-1])[-1]]
            threading.Timer(float(np.median(last)) / 2, self._kill, [victim]).start()
            self.left, self._since = self.left - 1, 0
        return False

    def _kill(self, pid):
        self.note("kill")
        os.kill(pid, signal.SIGKILL)


def watched(watch):
    """Return engine and session classes' methods that note their times, and those that there were."""
    from ...scheduler.engine import Engine

    recover, opens = Engine._recover, Engine._open_session

    def _recover(self, r):
        watch.note("heard")
        recover(self, r)
        watch.note("done again")

    def _open_session(self, shards):
        opens(self, shards)
        watch.note("open")
        session, plain = self.session, type(self.session).run

        def run(*args, **options):
            found = plain(session, *args, **options)
            watch.note("round")
            watch.places.append(set(session.shard_at))
            return found

        session.run = run

    put(_recover, _open_session)
    return recover, opens


def put(recover, opens):
    """Set two methods of the engine."""
    from ...scheduler import engine

    for name, method in (("_recover", recover), ("_open_session", opens)):
        setattr(engine.Engine, name, method)


def losses(marks):
    """Return for each kill: seconds until it was heard of, until the session was open, of the first delay.

    Examples
    --------
    >>> from stradask.benchmarks.experiments.recovery import losses
    >>> rounds = [("round", 4), ("round", 5), ("round", 6)]
    >>> marks = [("kill", 1.5), ("heard", 1.6), ("open", 2), *rounds]
    >>> [[round(value, 6) for value in found] for found in losses(marks)]
    [[0.1, 0.4, 1.0]]
    """
    found = []
    for at, (what, when) in enumerate(marks):
        if what != "kill":
            continue
        after = marks[at + 1 :]
        stop = next((k for k, (name, _) in enumerate(after) if name == "kill"), len(after))
        after = after[:stop]
        heard = next(t for name, t in after if name == "heard")
        opened = [t for name, t in after if name == "open"][-1]
        rounds = [t for name, t in after if name == "round" and t > opened]
        spans = np.diff([opened, *rounds])
        found.append((heard - when, opened - heard, float(spans[0] - np.median(spans[1:]))))
    return found


def main(arguments=None):
    """Print the seconds of each kill, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--apart", type=int, default=40, help="epochs between them (%(default)s)")
    parser.add_argument("--network", choices=["numpy", "torch"], default="numpy")
    parser.add_argument("--plan", choices=["data", "1f1b"], default="data")
    args = parser.parse_args(arguments)
    import distributed

    model, rows = _network(args.network, 0)
    cut = "0:4" if args.network == "torch" else "0:2"
    plan = "data" if args.plan == "data" else [(cut, 1), (cut[2:] + ":", 1)]
    model.set_params(plan=plan, max_iter=10**6)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        watch = Watch(client, args.kills, args.apart)
        before = watched(watch)
        try:
            model.set_params(engine=cluster.scheduler_address).fit(*rows, callback=watch.epoch)
        finally:
            put(*before)
    found = losses(watch.marks)
    print("heard of, s  open again, s  first epoch later by, s  together, s")
    for one in found:
        print("  ".join(f"{value:.2f}" for value in (*one, sum(one))))
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    print("medians: " + ", ".join(f"{value:.2f}" for value in medians), end="; ")
    together = [sum(one) for one in found]
    print(f"together {statistics.median(together):.2f}, at most {max(together):.2f}")
    print("places that worked in each epoch: " + "".join(str(len(places)) for places in watch.places))


if __name__ == "__main__":
    main()
