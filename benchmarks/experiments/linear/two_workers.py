"""What a fit on two Dask worker processes of one thread takes, and one on two threads of this process.

``python -m stradask.benchmarks.experiments.linear.two_workers`` fits logistic regressions of growing length,
in turn, on rows that lie on the workers, and prints the medians: of fits through the caller's client, and of
fits that are given the scheduler's address and make a client of their own.
"""

import argparse
import logging
import statistics
import time

import numpy as np

from ....algorithms.linear.logistic_regression import LogisticRegression

CASES = {  # rows, columns, classes
    "tenth": (1_000_000, 100, 2),
    "half": (4_000_000, 100, 2),
    "seconds": (1_000_000, 100, 4),
    "ten seconds": (1_000_000, 100, 12),
}
_N_CHUNKS = 8
_SAME = 1e-3  # coefficients, in float32 and from sums that are grouped otherwise


def draw(n, p, n_classes, seed=0):
    """Rows in float32, and labels of a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p), dtype=np.float32)
    scores = X @ rng.standard_normal((p, n_classes), dtype=np.float32)
    return X, np.argmax(scores + 3 * rng.gumbel(size=scores.shape), axis=1)


def spread(client, array):
    """Lay parts of an array on the workers, as if they had read them, neighbours together."""
    import dask.array as da
    from distributed import wait

    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    there, parts = [], np.array_split(array, _N_CHUNKS)
    for number, part in enumerate(parts):
        home = [workers[number * len(workers) // _N_CHUNKS]]
        there.append(client.submit(np.copy, client.scatter(part, home), workers=home))
        wait(there)
    lazy = [da.from_delayed(f, part.shape, part.dtype) for f, part in zip(there, parts, strict=True)]
    return da.concatenate(lazy)


def measure(client, shape, repeats):
    """Seconds of fits on threads, through a client, and with an address: lists, one entry a turn."""

    def seconds_of(model, X, y):
        began = time.perf_counter()
        model.fit(X, y)
        return time.perf_counter() - began

    X, y = draw(*shape)
    far_X, far_y = spread(client, X), spread(client, y)
    here, there = LogisticRegression(n_jobs=2), LogisticRegression(engine="dask")
    apart = LogisticRegression(engine=client.scheduler.address)
    seconds: dict[str, list] = {"threads": [], "workers": [], "address": []}
    for turn in range(repeats + 1):
        found = {"threads": seconds_of(here, X, y), "workers": seconds_of(there, far_X, far_y)}
        found["address"] = seconds_of(apart, far_X, far_y)
        if turn:  # the first one compiles
            for name, value in found.items():
                seconds[name].append(value)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=_SAME)
    return seconds


def main(args=None):
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--divide", type=int, default=1, help="take so many times fewer rows")
    wanted = parser.parse_args(args)
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    print("case: seconds on two threads; on two workers (threads over workers); with an address")
    with LocalCluster(silence_logs=logging.ERROR, **options) as cluster, Client(cluster) as client:
        for case in wanted.cases:
            n, p, n_classes = CASES[case]
            seconds = measure(client, (n // wanted.divide, p, n_classes), wanted.repeats)
            turns = zip(seconds["threads"], seconds["workers"], strict=True)
            ratio = statistics.median(near / far for near, far in turns)
            near, far, address = map(statistics.median, seconds.values())
            print(f"{case}: {near:.3f}; {far:.3f} ({ratio:.2f}); {address:.3f}", flush=True)


if __name__ == "__main__":
    main()
