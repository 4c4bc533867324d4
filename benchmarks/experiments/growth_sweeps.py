"""What `growth` measures: for each family the sizes that grow, and the exponents that are promised.

These are the documented ones: docs/benchmarks.md has them from here.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import datasets

ITERATIONS = 5  # of what sweeps over data again and again


@dataclass(frozen=True)
class Sweep:
    """One size that grows, and the largest exponents of seconds and bytes that are promised.

    ``make(where)`` returns a function without arguments that fits once, its input made already;
    ``place(size)`` is a context that gives `where`, by default the size itself. `clock` counts the seconds:
    those of the processor, or on the clock where several threads or processes work.
    """

    family: str
    size: str
    sizes: tuple[int, ...]
    make: Callable
    promised: float
    promised_memory: float
    place: Callable = contextlib.nullcontext
    clock: Callable = time.process_time


def lda(sampler, documents=2000, length=100, words=2000, **settings):
    """Topics of a drawn corpus."""
    import stradask as sd

    X, _, _ = datasets.make_lda_corpus(documents, words, 50, mean_length=length, random_state=0)
    settings = {"n_components": 50, "max_iter": ITERATIONS, "random_state": 0} | settings
    return lambda: sd.LatentDirichletAllocation(sampler=sampler, **settings).fit(X)


def lasso(rows=500, columns=2000, divisor=20, **settings):
    """A Lasso of which ten columns matter, dense."""
    import stradask as sd

    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((rows, columns)))
    y = X[:, :10].sum(axis=1) + rng.standard_normal(rows)
    alpha = np.abs(X.T @ y).max() / rows / divisor
    return lambda: sd.Lasso(alpha, tol=1e-6, **settings).fit(X, y)


def _sparse(rows, columns, nonzeros):
    return datasets.make_sparse_regression(
        rows, columns, n_informative=10, density=nonzeros / rows / columns, random_state=0
    )[:2]


def sparse_lasso(nonzeros, estimator="Lasso"):
    """The same, sparse: the entries grow, not the shape."""
    import stradask as sd

    X, y = _sparse(2000, 4000, nonzeros)
    if estimator == "Lasso":
        alpha = np.abs(X.T @ (y - y.mean())).max() / len(y) / 5
        return lambda: sd.Lasso(alpha, tol=1e-6).fit(X, y)
    labels = (y > np.median(y)).astype(int)
    alpha = np.abs(X.T @ (labels - labels.mean())).max() / len(y) / 5
    return lambda: sd.SparseLogisticRegression(alpha, tol=1e-6).fit(X, labels)


def path(penalties, **settings):
    """A cross-validated path."""
    import stradask as sd

    X, y = _sparse(1000, 2000, 40_000)
    return lambda: sd.LassoCV(alphas=penalties, eps=0.05, cv=3, **settings).fit(X, y)


def logistic(rows=20_000, columns=50, **settings):
    """Two classes, dense."""
    import stradask as sd

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    y = X[:, 0] + rng.logistic(size=rows) > 0
    return lambda: sd.LogisticRegression(**settings).fit(X, y)


def sparse_logistic(nonzeros):
    """Two classes, sparse and wide."""
    import stradask as sd

    X, y = _sparse(5000, 10_000, nonzeros)
    return lambda: sd.LogisticRegression().fit(X, y > np.median(y))


def factors(solver, ratings=100_000, n_components=16, **settings):
    """Ratings of a thousand items."""
    import stradask as sd

    rows = max(50, ratings // 40)
    R, _ = datasets.make_ratings(rows, 1000, 8, density=ratings / rows / 1000, random_state=0)
    settings = {"solver": solver, "max_iter": ITERATIONS, "random_state": 0} | settings
    return lambda: sd.MatrixFactorization(n_components, **settings).fit(R)


def posterior(rows=1000, columns=10, draws=200, **settings):
    """A logistic regression by NUTS."""
    import stradask as sd

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    y = X[:, 0] + rng.logistic(size=rows) > 0
    options: dict[str, Any] = {
        "sampler": "nuts",
        "n_chains": 1,
        "n_warmup": 200,
        "random_state": 0,
    } | settings
    return lambda: sd.BayesianLogisticRegression(n_samples=draws, **options).fit(X, y)


def logistic_in_blocks(rows, client):
    """Two classes, dense, in blocks that lie on the workers of a client."""
    import dask
    import dask.array as da
    from distributed import wait

    import stradask as sd

    rng = da.random.default_rng(0)
    X = rng.standard_normal((rows, 50), chunks=(rows // 8, 50), dtype=np.float32)
    y = X[:, 0] + rng.logistic(size=rows, chunks=rows // 8) > 0
    with client.as_current():
        X, y = dask.persist(X, y)
        wait([X, y])
    return lambda: sd.LogisticRegression(engine=client.scheduler.address).fit(X, y)


@contextlib.contextmanager
def workers(n):
    """So many processes of one thread; gives a client of theirs."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def sweeps(quick=False):
    """Return all sweeps; quick ones have two doublings of small sizes."""

    def sizes(first, n=6):
        return tuple(first * 2**i for i in range(3 if quick else n))

    return [*_data_sizes(sizes), *_model_sizes(sizes), *_machines(quick)]


def _data_sizes(sizes):
    """Tokens, documents, words, rows, columns, entries, ratings."""
    return [
        Sweep("lda, gibbs", "documents", sizes(500), lambda n: lda("gibbs", documents=n), 1.0, 1.0),
        Sweep("lda, gibbs", "tokens a document", sizes(25), lambda n: lda("gibbs", length=n), 1.0, 1.0),
        Sweep("lda, gibbs", "words", sizes(500), lambda n: lda("gibbs", words=n), 0.5, 1.0),
        Sweep("lda, warp", "documents", sizes(500), lambda n: lda("warp", documents=n), 1.0, 1.0),
        Sweep("lda, light", "documents", sizes(500), lambda n: lda("light", documents=n), 1.0, 1.0),
        Sweep("lda, saber", "documents", sizes(500), lambda n: lda("saber", documents=n), 1.0, 1.0),
        Sweep("lasso", "rows", sizes(500), lambda n: lasso(n, 1000), 1.1, 1.0),
        Sweep("lasso", "columns", sizes(500), lambda n: lasso(500, n), 1.1, 1.0),
        Sweep("lasso", "non-zeros", sizes(20_000), sparse_lasso, 1.1, 1.0),
        Sweep("lasso, logistic", "non-zeros", sizes(20_000), lambda n: sparse_lasso(n, "logistic"), 1.1, 1.0),
        Sweep("logistic", "rows", sizes(5000), lambda n: logistic(rows=n), 1.0, 1.0),
        Sweep("logistic", "columns", sizes(16), lambda n: logistic(columns=n), 2.0, 2.0),
        Sweep("logistic", "non-zeros", sizes(50_000), sparse_logistic, 1.1, 1.0),
        Sweep("factorization, sgd", "ratings", sizes(20_000), lambda n: factors("sgd", n), 1.0, 1.0),
        Sweep("factorization, als", "ratings", sizes(20_000), lambda n: factors("als", n), 1.0, 1.0),
        Sweep("mcmc, nuts", "rows", sizes(500), lambda n: posterior(n), 1.0, 1.0),
        Sweep("mcmc, nuts", "columns", sizes(4), lambda n: posterior(columns=n), 1.5, 1.0),
    ]


def _model_sizes(sizes):
    """Topics, penalties, factors, draws."""
    return [
        Sweep("lda, gibbs", "topics", sizes(16), lambda n: lda("gibbs", n_components=n), 1.0, 1.0),
        Sweep("lda, warp", "topics", sizes(16, 9), lambda n: lda("warp", n_components=n), 0.5, 1.0),
        Sweep("lda, light", "topics", sizes(16, 9), lambda n: lda("light", n_components=n), 0.5, 1.0),
        Sweep("lda, saber", "topics", sizes(16, 7), lambda n: lda("saber", n_components=n), 1.0, 1.0),
        Sweep("lasso, path", "penalties", sizes(10, 5), path, 1.0, 1.0),
        Sweep("factorization, sgd", "factors", sizes(8), lambda n: factors("sgd", n_components=n), 1.0, 1.0),
        Sweep("factorization, als", "factors", sizes(8), lambda n: factors("als", n_components=n), 2.0, 1.0),
        Sweep("mcmc, nuts", "draws", sizes(200), lambda n: posterior(draws=n), 1.0, 1.0),
    ]


def _machines(quick):
    """Threads, as many as there are cores, and workers: seconds on the clock, which fall.

    Two threads that halve the time have an exponent of -1. Workers share the cores with the scheduler and
    this process, so that of them only a gain is promised.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = tuple(2**i for i in range(4) if 2**i <= max(2, cores))
    small = 4 if quick else 1  # parts of the problem
    on_threads = {
        "lda, gibbs": lambda **s: lda("gibbs", documents=8000 // small, max_iter=20, **s),
        "lda, warp": lambda **s: lda("warp", documents=8000 // small, max_iter=20, **s),
        "lasso": lambda **s: lasso(2000, 20_000 // small, **s),
        "logistic": lambda **s: logistic(rows=400_000 // small, **s),
        "factorization, sgd": lambda **s: factors("sgd", 800_000 // small, **s),
        "factorization, als": lambda **s: factors("als", 400_000 // small, 32, **s),
        "mcmc, nuts": lambda **s: posterior(8000 // small, n_chains=4, **s),
    }

    def at(client):
        return {"engine": client.scheduler.address}

    # What a fit sends to workers, and the steps in which they wait for each other, must not be most of it.
    least = 64 if quick else 1
    on_workers = {
        "lda, gibbs": lambda c: lda("gibbs", documents=32_000 // least, length=200, max_iter=20, **at(c)),
        "lasso": lambda c: lasso(2000, 20_000 // least, divisor=200, **at(c)),
        "logistic": lambda c: logistic_in_blocks(3_200_000 // least, c),
        "factorization, sgd": lambda c: factors("sgd", 6_400_000 // least, 32, max_iter=20, **at(c)),
        "mcmc, nuts": lambda c: posterior(64_000 // least, n_shards=4, **at(c)),
    }
    clock = time.perf_counter

    def threads(name):
        return Sweep(name, "threads", counts, lambda n: on_threads[name](n_jobs=n), -0.6, 1.0, clock=clock)

    def processes(name):
        sizes = counts[: 2 if quick else None]
        return Sweep(name, "workers", sizes, on_workers[name], -0.3, 0.3, place=workers, clock=clock)

    return [*map(threads, on_threads), *map(processes, on_workers)]
