"""CPU seconds of fits on two workers with the memory setting of Dask's nannies, and with freed memory kept.

    python -m stradask.benchmarks.experiments.memory.freed_memory

Clusters of two worker processes of one thread alternate: in one of each pair all workers call
`keep_freed_memory` first, in the other networks may not. Seconds are those of the workers' processes, user
and system, of the second of two equal fits; the first has imports and compilation.
"""

import argparse
import statistics
import time
from typing import Any

import dask
import numpy as np


def topics(engine):
    """Fit 50 topics of drawn documents."""
    from ....algorithms.topics.lda import LatentDirichletAllocation
    from ....datasets import make_lda_corpus

    X = make_lda_corpus(3000, 5000, 50, mean_length=150, random_state=0)[0]
    LatentDirichletAllocation(50, max_iter=40, engine=engine, random_state=0).fit(X)


def lbfgs(engine):
    """Fit a logistic regression of dense rows."""
    from ....algorithms.linear.logistic_regression import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 200)) * np.logspace(0, -2, 200)
    y = X[:, 0] + rng.standard_normal(len(X)) > 0
    LogisticRegression(C=100.0, solver="lbfgs", max_iter=60, tol=1e-12, engine=engine).fit(X, y)


def network(engine):
    """Fit a perceptron by mini-batches."""
    from ....algorithms.neural.mlp import MLPClassifier

    rng = np.random.default_rng(0)
    X = rng.standard_normal((8192, 256), np.float32)
    options: Any = {"solver": "sgd", "batch_size": 2048, "max_iter": 6, "tol": 0.0, "random_state": 0}
    MLPClassifier((512, 512), engine=engine, plan="data", **options).fit(X, X[:, 0] > 0)


def factors(engine):
    """Factorize drawn ratings by gradient descent in rotation."""
    from ....algorithms.factorization.matrix_factorization import MatrixFactorization
    from ....datasets import make_ratings

    R = make_ratings(8000, 4000, density=0.03, random_state=0)[0]
    MatrixFactorization(32, solver="sgd", max_iter=15, engine=engine, random_state=0).fit(R)


FITS = {"LDA": topics, "L-BFGS": lbfgs, "MLP": network, "factorization": factors}


def measure(fit, keeps):
    """Return the CPU seconds of two workers in a fit, and their page faults."""
    import distributed

    from ....scheduler.allocation import keep_freed_memory

    with (
        dask.config.set({"stradask.keep-freed-memory": keeps}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(dask.config.set, {"stradask.keep-freed-memory": keeps})
        if keeps:
            client.run(keep_freed_memory)
        fit(cluster.scheduler_address)
        before = client.run(_spent)
        fit(cluster.scheduler_address)
        after = client.run(_spent)
    cpu, faults = np.sum([np.subtract(after[w], before[w]) for w in after], axis=0)
    return float(cpu), int(faults)


def _spent():
    import resource

    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main(arguments=None):
    """Print the seconds of each fit, kept over not kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--fits", nargs="+", choices=list(FITS), default=list(FITS))
    found = parser.parse_args(arguments)
    for name in found.fits:
        pairs = [[measure(FITS[name], keeps) for keeps in (False, True)] for _ in range(found.pairs)]
        ratios = [kept[0] / given[0] for given, kept in pairs]
        (given, faults), (kept, fewer) = (
            [statistics.median(column) for column in zip(*runs, strict=True)]
            for runs in zip(*pairs, strict=True)
        )
        print(
            f"{name}: {given:.2f} s and {faults:.0f} page faults; kept {kept:.2f} s and {fewer:.0f}; ratios "
            + ", ".join(f"{ratio:.2f}" for ratio in ratios),
            flush=True,
        )


if __name__ == "__main__":
    main()
