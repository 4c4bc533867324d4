"""Matrix factorization on worker processes against as many threads of one process: seconds, and equal bits.

    python -m stradask.benchmarks.experiments.ratings.factorization_on_dask --dataset generated-10m \
        --workers 2

The fits alternate. What is compared is the median epoch, by the seconds of the history: the first begins
with code that is compiled or loaded, and ratings are handed out before it and factors fetched in the end. The
seconds of the whole fit are given too. An epoch on workers is at work, waits for blocks on their way, or is
the coordinator's; ``waiting`` are the second, in seconds of all workers.
"""

import argparse
import json
import logging
import os
import time

import numpy as np

from ....scheduler.wire import FORMATS
from ...objectives._ratings import load_ratings


def measure(R, engine, n_jobs, **options):
    """Fit once; return the model and its figures.

    These are seconds in all, of an epoch (median), of waiting in an epoch, and bytes sent in an epoch.
    """
    from ....algorithms.factorization.matrix_factorization import MatrixFactorization

    began = time.perf_counter()
    model = MatrixFactorization(solver="sgd", engine=engine, n_jobs=n_jobs, random_state=0, **options).fit(R)
    whole = time.perf_counter() - began
    epochs = {
        name: float(np.median(model.history_[name][1:])) for name in ("seconds", "waiting", "bytes_sent")
    }
    return model, {"seconds": whole, **{f"{name}_an_epoch": value for name, value in epochs.items()}}


def compare(R, n_workers, repeats, tell=print, **options):
    """Alternate fits on threads and on worker processes; return the figures of both.

    They are of the repeat of the median epoch; ``ratio`` has the seconds of an epoch on threads over those on
    workers, and ``equal`` says whether all factors are.
    """
    import distributed

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: dict = {"threads": [], "workers": []}
    equal = True
    with distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
    ) as cluster:
        for _ in range(repeats):
            near, figures = measure(R, "local", n_workers, **options)
            found["threads"].append(figures)
            far, figures = measure(R, cluster.scheduler_address, None, **options)
            found["workers"].append(figures)
            equal &= np.array_equal(near.user_factors_, far.user_factors_)
            equal &= np.array_equal(near.item_factors_, far.item_factors_)
            tell(json.dumps({place: runs[-1] for place, runs in found.items()}))
    middle = {
        place: sorted(runs, key=lambda run: run["seconds_an_epoch"])[repeats // 2]
        for place, runs in found.items()
    }
    ratio = middle["threads"]["seconds_an_epoch"] / middle["workers"]["seconds_an_epoch"]
    return {**middle, "ratio": ratio, "equal": bool(equal)}


def main(arguments=None):
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", default="generated-10m", help="see `stradask bench mf` (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="and threads (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--factors", type=int, default=32, help="(%(default)s)")
    parser.add_argument("--wire", choices=FORMATS, help="number format of factors that travel")
    found = parser.parse_args(arguments)
    if found.epochs < 2:
        parser.error("--epochs: 2 or more, the first is not counted")
    R = load_ratings(found.dataset, 0, implicit=False, quick=False)
    options = {"n_components": found.factors, "max_iter": found.epochs, "wire": found.wire}
    result = compare(R, found.workers, found.repeats, **options)
    print(f"ratio {result['ratio']:.2f}, {'equal to the bit' if result['equal'] else 'NOT EQUAL'}")


if __name__ == "__main__":
    main()
