"""Matrix factorization by rotation with blocks of items in each number format: errors, and bytes that travel.

    python -m stradask.benchmarks.experiments.ratings.factor_formats --dataset ml-1m.csv.gz

The root mean square error is that on a tenth of the ratings, which are held out: the mean over seeds, each of
which draws another tenth. Bytes are those of an epoch on two workers.
"""

import argparse

import numpy as np

from ....algorithms.factorization.matrix_factorization import MatrixFactorization
from ....scheduler.wire import FORMATS
from ...objectives._ratings import load_ratings, three_parts


def measure(R, wire, seeds, **options):
    """Return the root mean square errors, one a seed, and the bytes of an epoch."""
    errors = []
    for seed in seeds:
        train, _, test = three_parts(R, seed)
        model = MatrixFactorization(wire=wire, random_state=seed, solver="sgd", **options).fit(train)
        cells = test.tocoo()
        found = model.predict(np.column_stack([cells.row, cells.col]))
        errors.append(float(np.sqrt(np.mean((found - cells.data) ** 2))))
    return errors


def sent(R, wire, **options):
    """Return the bytes of an epoch on two workers."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        model = MatrixFactorization(wire=wire, random_state=0, solver="sgd", engine="dask", **options)
        return float(np.median(model.set_params(max_iter=3).fit(R).history_["bytes_sent"]))


def main(arguments=None):
    """Print a row for each format."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", default="generated", help="see `stradask bench mf` (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=15, help="(%(default)s)")
    parser.add_argument("--factors", type=int, default=32, help="(%(default)s)")
    found = parser.parse_args(arguments)
    R = load_ratings(found.dataset, 0, implicit=False, quick=False)
    options = {"n_components": found.factors, "max_iter": found.epochs}
    exact = np.array(measure(R, None, range(found.seeds), **options))
    for wire in (None, *FORMATS):
        errors = exact if wire is None else np.array(measure(R, wire, range(found.seeds), **options))
        apart = errors - exact
        print(
            f"{wire or 'as it is':9} error {errors.mean():.5f}, {apart.mean():+.5f} "
            f"({apart.min():+.5f} to {apart.max():+.5f}); {sent(R, wire, **options) / 1e6:.2f} MB an epoch",
            flush=True,
        )


if __name__ == "__main__":
    main()
