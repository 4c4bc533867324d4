"""What the loss of one of 2, 4, 8 or 16 worker processes costs fits of several families, in seconds.

    python -m stradask.benchmarks.experiments.recovery_workers --workers 2 4 8 16

Worker processes of one thread fit a small problem; one of them is killed (SIGKILL) in the middle of a round,
and the nanny starts another. Printed for each family and number of workers: seconds until the loss was heard
of, until the session was open again, by how much the first round after that was longer than the median of
those after it, and until as many workers as before had work, which includes the start of a process and its
imports; then whether the model is the one of threads, bit for bit.
"""

import argparse
import logging
import time

import numpy as np

from ...datasets.generated_ratings import make_ratings
from ...datasets.generators import make_lda_corpus
from .recovery import Watch, losses, put, watched

_PATIENCE = 60.0  # seconds for a newcomer to have work
_AFTER = 12  # rounds before the kill, and at least after it


class OneLoss(Watch):
    """Kills a worker after some rounds; ends the fit when as many as before have work again."""

    def __init__(self, client, n_workers):
        super().__init__(client, 1, _AFTER)
        self.n_workers, self.n_rounds = n_workers, 0
        self.whole: float | None = None  # when all had work again

    def epoch(self, info):
        """Note the end of a round."""
        super().epoch(info)
        self.n_rounds = info.round
        if self.left or self._since < self.apart:
            return False
        killed = next(when for what, when in self.marks if what == "kill")
        if self.whole is None and len(self.places[-1]) == self.n_workers:
            self.whole = time.monotonic() - killed
        return self.whole is not None or time.monotonic() - killed > _PATIENCE


def families():
    """Return by name a function of parameters that makes an estimator, its data, and arrays of the model."""
    from ...algorithms.factorization.matrix_factorization import MatrixFactorization
    from ...algorithms.topics.lda import LatentDirichletAllocation

    X, *_ = make_lda_corpus(4000, n_features=5000, n_components=20, random_state=0)
    R = abs(make_ratings(3000, 2000, 4, density=0.03, noise=0.3, random_state=0)[0])

    def topics(**given):
        return LatentDirichletAllocation(50, sampler="gibbs", n_groups=16, random_state=0, **given)

    def ratings(solver):
        def made(**given):
            return MatrixFactorization(16, solver=solver, tol=0.0, reg=0.1, random_state=0, **given)

        return made

    rows = ("user_factors_", "item_factors_")
    return {
        "LDA, Gibbs": (topics, X, ("components_",)),
        "ALS": (ratings("als"), R, rows),
        "SGD": (ratings("sgd"), R, rows),
    }


def measure(client, n_workers, made, X, names):
    """Return seconds of the loss, until all had work again (or None), and whether the bits are equal.

    Rates of gradient descent fall to 0 over the rounds that are asked for, so that both fits ask for as many.
    """
    watch = OneLoss(client, n_workers)
    before = watched(watch)
    try:
        there = made(max_iter=100_000, engine="dask").fit(X, callback=watch.epoch)
    finally:
        put(*before)
    here = made(max_iter=100_000).fit(X, callback=lambda info: info.round == watch.n_rounds)
    same = all(np.array_equal(getattr(there, name), getattr(here, name)) for name in names)
    return losses(watch.marks)[0], watch.whole, same


def main(arguments=None):
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--families", nargs="+", help="by default all")
    wanted = parser.parse_args(arguments)
    from distributed import Client, LocalCluster

    found = families()
    print("family workers: heard of, open again, first round later by, all have work after; same bits")
    for n_workers in wanted.workers:
        own = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(silence_logs=logging.CRITICAL, **own) as cluster, Client(cluster) as client:
            for name in wanted.families or found:
                client.wait_for_workers(n_workers, timeout=300)
                seconds, whole, same = measure(client, n_workers, *found[name])
                took = ", ".join(f"{value:.2f}" for value in seconds)
                again = "never" if whole is None else f"{whole:.1f}"
                print(f"{name} {n_workers}: {took}, {again}; {same}", flush=True)


if __name__ == "__main__":
    main()
