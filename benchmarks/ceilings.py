"""Upper bounds of this machine: memory bandwidth, random reads, rounds (``stradask info --measure``).

A report's tokens or entries a second mean little by themselves. With these figures they say which share of
the machine a kernel reaches: bytes streamed (dense rows), entries gathered (sparse rows, counts), and, on a
cluster, rounds.
"""

import itertools
import statistics
import time

import numpy as np

from ..scheduler.threads import effective_n_jobs, run_tasks

MEGABYTES = 256  # beyond any cache
REPEATS = 5
_ROUNDS = 50


def measure(n_jobs=-1, megabytes=MEGABYTES):
    """Measure the memory, on one thread and on `n_jobs`, and a round on a cluster of two processes.

    Returns ``copy_gb_s`` and ``read_gb_s``, bytes read plus written, and bytes read, in 1e9 a second;
    ``gather_m_s``, reads of 8 bytes at random places, in millions a second; each a dict of threads to
    medians. ``task_ms`` and ``round_ms``: of a Dask task whose result is waited for, and of a round of
    this library's on the same two workers.

    Examples
    --------
    >>> from stradask.benchmarks.ceilings import memory
    >>> sorted(memory(1, megabytes=1))
    ['copy_gb_s', 'gather_m_s', 'read_gb_s']
    """
    return memory(n_jobs, megabytes) | rounds()


def memory(n_jobs, megabytes):
    """Return the three figures of the memory, see `measure`."""
    n = megabytes * 2**20 // 8
    source, target = np.ones(n), np.zeros(n)
    places = np.random.default_rng(0).integers(n, size=n // 8)
    works = {
        "copy_gb_s": (16e-9 * n, lambda part: np.copyto(target[part], source[part]), n),
        "read_gb_s": (8e-9 * n, lambda part: np.add.reduce(source[part]), n),
        "gather_m_s": (1e-6 * len(places), lambda part: source.take(places[part]), len(places)),
    }
    threads = sorted({1, effective_n_jobs(n_jobs)})
    return {
        name: {t: amount / _seconds(work, length, t) for t in threads}
        for name, (amount, work, length) in works.items()
    }


def _seconds(work, length, n_threads):
    """Return the median time of a work cut into one part a thread, after one that warms up."""
    edges = np.linspace(0, length, n_threads + 1).astype(int)
    tasks = [(work, (slice(a, b),)) for a, b in itertools.pairwise(edges)]
    seconds = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        run_tasks(tasks, n_threads)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def rounds():
    """Return milliseconds of a Dask task and of an empty pass over two worker processes."""
    from distributed import Client, LocalCluster

    from ..algorithms.optimize.minimize import minimize

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        tasks = []
        for i in range(_ROUNDS):
            started = time.perf_counter()
            client.submit(_nothing, i, pure=False).result()
            tasks.append(time.perf_counter() - started)
        fit = minimize(_bowl, np.ones(8), list(range(8)), engine="dask", max_iter=_ROUNDS, tol=0.0)
    seconds, passes = np.diff(fit.history["seconds"]), np.diff(fit.history["passes"])
    return {"task_ms": 1e3 * statistics.median(tasks), "round_ms": 1e3 * float(np.median(seconds / passes))}


def _nothing(i):
    return i


def _bowl(portion, x):
    """A valley that takes many steps, so that there are many passes to time."""
    scales = 10.0 ** np.arange(len(x))
    return float(np.sum(scales * x**2) + np.sum(x**4)), 2 * scales * x + 4 * x**3


def as_rows(figures):
    """Return rows of text for what `measure` found."""
    units = {
        "copy_gb_s": ("copying", "GB/s, read and written"),
        "read_gb_s": ("reading", "GB/s"),
        "gather_m_s": ("gathering", "M random reads of 8 bytes a second"),
    }
    rows = []
    for name, (what, unit) in units.items():
        cells = [f"{value:.1f} on {t} thread{'s' * (int(t) > 1)}" for t, value in figures[name].items()]
        rows.append((what, f"{', '.join(cells)} ({unit})"))
    dask = f"a task {figures['task_ms']:.1f} ms, a round of a fit {figures['round_ms']:.1f} ms"
    return [*rows, ("Dask", dask)]
