"""Rows beyond the workers' memory: the optimum, and the bandwidth of passes against that of the storage.

    python -m stradask.benchmarks.experiments.memory.beyond_memory --times 5 --limit 700MB --format parquet

Writes npy or Parquet files of several times the memory limits of two worker processes of one thread, and
fits logistic regression to them by L-BFGS. After each pass the same workers read the same parts with
nothing else to do, npy by plain reads and Parquet by a plain pyarrow scan: passes and scans alternate.
Prints the bytes of X and of the limits, and the most memory of a worker; for passes and scans, bytes of X a
second and CPU seconds a GB, medians; the median ratio of neighbours; and the largest difference of
coefficients from a fit in this process. Before each pass and scan the system is asked to forget the files'
pages, so that both read from the storage; with ``--warm`` they come from the system's memory.
``--megabytes`` reads through a storage of so many a second and worker.
"""

import argparse
import contextlib
import logging
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from ....algorithms.inputs.memory import memory_in_bytes
from ....algorithms.inputs.streamed import share_of_parts
from ....algorithms.linear.logistic_regression import LogisticRegression
from ....datasets import parquet, row_files
from ....datasets.parquet import ParquetTable, parts_of, read_footer
from ....datasets.row_files import npy_parts
from ....scheduler.sums.cluster_passes import ClusterPasses

_FILES = 8
_GROUP = 20_000  # rows of a group of Parquet


def write(folder, n_rows, n_columns, kind, seed=0):
    """Write rows in float64 and labels of a logistic model; return the names of the files of rows."""
    rng, names, labels = np.random.default_rng(seed), [], []
    coef = rng.standard_normal(n_columns) / np.sqrt(n_columns)
    for number in range(_FILES):
        X = rng.standard_normal((n_rows // _FILES, n_columns))
        labels.append((X @ coef + rng.logistic(size=len(X)) > 0).astype(int))
        names.append(str(Path(folder, f"X{number}.{kind}")))
        if kind == "npy":
            np.save(names[-1], X)
            continue
        from pyarrow import Table
        from pyarrow.parquet import write_table

        columns = {f"x{j}": X[:, j] for j in range(n_columns)} | {"y": labels[-1]}
        write_table(Table.from_pydict(columns), names[-1], row_group_size=_GROUP, use_dictionary=False)
    np.save(Path(folder, "y.npy"), np.concatenate(labels))
    os.sync()
    return names


def forget(names):
    """Have the system forget the pages of files."""
    for name in names:
        descriptor = os.open(name, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def scan(parts, columns):
    """Read parts one after the other, with nothing else to do; return seconds of this process's CPU."""
    began = time.process_time()
    for part in parts:
        if columns is None:
            part.read()
        else:
            parquet.read_part(part, columns)
    return time.process_time() - began


def slowly(rate):
    """Let this process read no more than so many bytes of X a second from now on; 0 for no limit."""
    if not rate:
        return
    ready = [0.0]

    def limited(read):
        def waiting(part, *columns):
            data = read(part, *columns)
            ready[0] = max(ready[0], time.monotonic()) + data.nbytes / rate
            time.sleep(max(ready[0] - time.monotonic(), 0.0))
            return data

        return waiting

    from ....algorithms.inputs import tables

    row_files.NpyRows.read = limited(row_files.NpyRows.read)  # type: ignore[method-assign]
    parquet.read_part = tables.read_part = limited(parquet.read_part)


def process_seconds():
    """CPU seconds of this process."""
    return time.process_time()


@contextlib.contextmanager
def alternating(client, names, parts, columns, warm):
    """Scan after each pass; yield a list of seconds and CPU seconds of each pass and its scan."""
    found, run = [], ClusterPasses._run
    workers = list(client.scheduler_info(n_workers=-1)["workers"])

    def scanned():
        if not warm:
            forget(names)
        began = time.perf_counter()
        tasks = [
            client.submit(scan, parts[k :: len(workers)], columns, workers=[worker], pure=False)
            for k, worker in enumerate(workers)
        ]
        cpu = sum(client.gather(tasks))
        return time.perf_counter() - began, cpu

    def passing(passes, x):
        if not warm:
            forget(names)
        before, began = sum(client.run(process_seconds).values()), time.perf_counter()
        sums = run(passes, x)
        seconds = time.perf_counter() - began
        cpu = sum(client.run(process_seconds).values()) - before
        found.append((seconds, cpu, *scanned()))
        return sums

    ClusterPasses._run = passing  # type: ignore[method-assign]
    try:
        yield found
    finally:
        ClusterPasses._run = run  # type: ignore[method-assign]


def _in_memory(names, columns, folder):
    """All rows and labels, in this process."""
    y = np.load(f"{folder}/y.npy")
    if columns is None:
        return np.concatenate([np.load(name, mmap_mode="r") for name in names]), y
    from pyarrow.parquet import read_table

    tables = [read_table(name, columns=columns) for name in names]
    return np.concatenate([np.column_stack([column.to_numpy() for column in t.columns]) for t in tables]), y


def main(arguments=None):
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit", default="500MB", help="memory limit of a worker (%(default)s)")
    parser.add_argument("--times", type=float, default=5.0, help="bytes of X, of both limits (%(default)s)")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--format", choices=["npy", "parquet"], default="npy")
    parser.add_argument("--megabytes", type=float, default=0.0, help="a second, of a worker's storage")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--max-iter", type=int, default=1000)
    wanted = parser.parse_args(arguments)
    from distributed import Client, LocalCluster

    limit, rate = memory_in_bytes(wanted.limit), 1e6 * wanted.megabytes
    n_rows = int(wanted.times * 2 * limit / 8 / wanted.columns) // _FILES * _FILES
    options = {"solver": "lbfgs", "tol": 1e-8, "max_iter": wanted.max_iter}
    with tempfile.TemporaryDirectory() as folder:
        names = write(folder, n_rows, wanted.columns, wanted.format)
        columns = None if wanted.format == "npy" else [f"x{j}" for j in range(wanted.columns)]
        own = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": limit}
        with LocalCluster(silence_logs=logging.CRITICAL, **own) as cluster, Client(cluster) as client:
            client.run(slowly, rate)
            share = share_of_parts("dask")
            if columns is None:
                parts, X, y = npy_parts(names, 2, share), names, f"{folder}/y.npy"
            else:
                parts = parts_of([read_footer(name, []) for name in names], len(columns), share)
                X, y = ParquetTable(names, columns=columns), "y"
            model = LogisticRegression(**options)
            before = set(client.run(os.getpid).values())
            with alternating(client, names, parts, columns, wanted.warm) as found:
                model.fit(X, y)
            alive = set(client.run(os.getpid).values()) == before
            used = max(client.run(lambda dask_worker: dask_worker.monitor.get_process_memory()).values())
        n_bytes = 8 * n_rows * wanted.columns
        here = LogisticRegression(**options).fit(*_in_memory(names, columns, folder))
    passes, cpu, scans, scan_cpu = np.array(found[1:]).T
    print(
        f"X {n_bytes / 1e9:.3g} GB, limits {2 * limit / 1e9:.3g} GB, most used {used / limit:.2f} of a limit"
    )
    print(f"all workers alive: {alive}; {len(passes)} passes")
    for what, seconds, of_cpu in (("passes", passes, cpu), ("scans", scans, scan_cpu)):
        speed, per_gb = n_bytes / np.median(seconds) / 1e6, np.median(of_cpu) / n_bytes * 1e9
        print(f"{what}: {speed:.0f} MB/s, {per_gb:.2f} CPU seconds a GB")
    print(f"ratio {np.median(scans / passes):.2f}, of CPU seconds {np.median(scan_cpu / cpu):.2f}")
    print(f"largest difference of coefficients {np.abs(model.coef_ - here.coef_).max():.1e}")


if __name__ == "__main__":
    main()
