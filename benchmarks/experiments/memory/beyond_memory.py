"""Rows beyond the workers' memory: the optimum, and the bandwidth of passes against that of the storage.

    python -m stradask.benchmarks.experiments.memory.beyond_memory --times 5 --limit 700MB

Writes npy files of several times the memory limits of two worker processes of one thread, fits logistic
regression to them by L-BFGS, and prints: the bytes of X and of the limits, and the most memory of a worker;
passes, and bytes of X a second in them; what two processes read a second of the same parts, with nothing else
to do; the ratio; and the largest difference of coefficients from a fit to the mapped files in this process.
Before each pass the system is asked to forget the files' pages, so that both read from the storage. With
``--warm`` they come from the system's memory. ``--megabytes`` reads through a storage of so many a second and
worker.
"""

import argparse
import contextlib
import logging
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from ....algorithms.inputs.memory import memory_in_bytes
from ....algorithms.linear.logistic_regression import LogisticRegression
from ....datasets.row_files import NpyRows, npy_parts
from ....scheduler.sums.cluster_passes import ClusterPasses

_FILES = 8


def write(folder, n_rows, n_columns, seed=0):
    """Write rows in float64 and labels of a logistic model; return the names of the files of rows."""
    rng, names, labels = np.random.default_rng(seed), [], []
    coef = rng.standard_normal(n_columns) / np.sqrt(n_columns)
    for number in range(_FILES):
        X = rng.standard_normal((n_rows // _FILES, n_columns))
        names.append(str(Path(folder, f"X{number}.npy")))
        np.save(names[-1], X)
        labels.append((X @ coef + rng.logistic(size=len(X)) > 0).astype(int))
    np.save(Path(folder, "y.npy"), np.concatenate(labels))
    os.sync()
    return names


def forget(names):
    """Have the system forget the pages of files."""
    for name in names:
        descriptor = os.open(name, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _put(kind, name, method):
    setattr(kind, name, method)


def read_all(parts, rate):
    """Read parts one after the other; return their bytes."""
    slowly(rate)
    return sum(part.read().nbytes for part in parts)


def slowly(rate):
    """Let this process read no more than so many bytes a second from now on; 0 for no limit."""
    if not rate or NpyRows.read.__name__ == "waiting":
        return
    read, ready = NpyRows.read, [0.0]

    def waiting(part):
        data = read(part)
        ready[0] = max(ready[0], time.monotonic()) + data.nbytes / rate
        time.sleep(max(ready[0] - time.monotonic(), 0.0))
        return data

    _put(NpyRows, "read", waiting)


def of_storage(parts, names, rate, warm, repeats=3):
    """Bytes a second that two processes read, the median."""
    found = []
    with ProcessPoolExecutor(2) as processes:
        list(processes.map(read_all, [parts[:1]] * 2, [rate] * 2))
        for _ in range(repeats):
            if not warm:
                forget(names)
            began = time.perf_counter()
            n_bytes = sum(processes.map(read_all, [parts[::2], parts[1::2]], [rate] * 2))
            found.append(n_bytes / (time.perf_counter() - began))
    return statistics.median(found)


@contextlib.contextmanager
def timed(names, warm):
    """Give a list of the seconds of each pass."""
    seconds, run = [], ClusterPasses._run

    def timing(passes, x):
        if not warm:
            forget(names)
        began = time.perf_counter()
        found = run(passes, x)
        seconds.append(time.perf_counter() - began)
        return found

    _put(ClusterPasses, "_run", timing)
    try:
        yield seconds
    finally:
        _put(ClusterPasses, "_run", run)


def main(arguments=None):
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit", default="500MB", help="memory limit of a worker (%(default)s)")
    parser.add_argument("--times", type=float, default=5.0, help="bytes of X, of both limits (%(default)s)")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--megabytes", type=float, default=0.0, help="a second, of a worker's storage")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--solver", default="lbfgs")
    wanted = parser.parse_args(arguments)
    from distributed import Client, LocalCluster

    limit, rate = memory_in_bytes(wanted.limit), 1e6 * wanted.megabytes
    n_rows = int(wanted.times * 2 * limit / 8 / wanted.columns) // _FILES * _FILES
    with tempfile.TemporaryDirectory() as folder:
        names = write(folder, n_rows, wanted.columns)
        parts, y = npy_parts(names, 2), f"{folder}/y.npy"
        own = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": limit}
        with LocalCluster(silence_logs=logging.CRITICAL, **own) as cluster, Client(cluster) as client:
            client.run(slowly, rate)
            model = LogisticRegression(solver=wanted.solver, tol=1e-8)
            before = set(client.run(os.getpid).values())
            with timed(names, wanted.warm) as seconds:
                model.fit(names, y)
            alive = set(client.run(os.getpid).values()) == before
            used = max(client.run(lambda dask_worker: dask_worker.monitor.get_process_memory()).values())
        n_bytes = sum(part.shape[0] for part in parts) * 8 * wanted.columns
        passes = statistics.median(seconds[1:])
        storage = of_storage(parts, names, rate, wanted.warm)
        X = np.concatenate([np.load(name, mmap_mode="r") for name in names])
        here = LogisticRegression(solver=wanted.solver, tol=1e-8).fit(X, np.load(y))
        apart = float(np.abs(model.coef_ - here.coef_).max())
    speed, share = n_bytes / passes, used / limit
    print(f"X {n_bytes / 1e9:.3g} GB, limits {2 * limit / 1e9:.3g} GB, most used {share:.2f} of a limit")
    print(f"all workers alive: {alive}; {len(seconds)} passes of {passes:.3g} s, {speed / 1e6:.0f} MB/s")
    print(f"storage alone {storage / 1e6:.0f} MB/s; ratio {speed / storage:.2f}")
    print(f"largest difference of coefficients {apart:.1e}")


if __name__ == "__main__":
    main()
