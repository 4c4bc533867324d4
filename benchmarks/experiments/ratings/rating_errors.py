"""Root mean square errors of held-out ratings over fixed folds, as papers and packages report them.

    python -m stradask.benchmarks.experiments.ratings.rating_errors --dataset movielens-100k --folds 5
    python -m stradask.benchmarks.experiments.ratings.rating_errors --dataset movielens-1m --folds 10 \
        --first 5

The ratings are shuffled by the seed and cut into folds, each of which is held out once; with ``--first`` only
so many of them. Settings are those of the grid below with the least error on a tenth of the ratings that the
first fold learns from, and stay for all folds. Predictions are clipped to the range of the ratings learned
from, as is usual.
"""

import argparse
import itertools
import json
import time

import numpy as np
from scipy import sparse

from ...objectives._ratings import load_ratings

# For each solver: what stays, and values to choose from, one parameter after another, the first value first.
GRIDS: dict[str, tuple[dict, dict]] = {
    "als": ({"max_iter": 20}, {"reg": (0.1, 0.06, 0.13, 0.17), "n_components": (32, 16, 8)}),
    "sgd": (
        {"max_iter": 30, "learning_rate": 0.06},
        {"reg": (0.04, 0.03, 0.06, 0.08, 0.1), "n_components": (64, 32, 128)},
    ),
    "gibbs": ({"max_iter": 50}, {"n_components": (32, 16, 8, 64)}),
}


def folds(R, n_folds, seed):
    """Yield pairs of CSR arrays, ratings to learn from and those that are held out."""
    cells = R.tocoo()
    order = np.random.default_rng(seed).permutation(cells.nnz)
    for held in np.array_split(order, n_folds):
        there = np.zeros(cells.nnz, bool)
        there[held] = True
        yield tuple(
            sparse.csr_array((cells.data[part], (cells.row[part], cells.col[part])), shape=R.shape)
            for part in (~there, there)
        )


def error(learned, held_out, n_jobs, **settings):
    """Fit; return the root mean square error of clipped predictions, and seconds."""
    from ....algorithms.factorization.matrix_factorization import MatrixFactorization

    began = time.perf_counter()
    model = MatrixFactorization(random_state=0, n_jobs=n_jobs, **settings).fit(learned)
    seconds = time.perf_counter() - began
    cells = held_out.tocoo()
    found = model.predict(np.column_stack([cells.row, cells.col]))
    clipped = np.clip(found, learned.data.min(), learned.data.max())
    return float(np.sqrt(np.mean((clipped - cells.data) ** 2))), seconds


def choose(learned, solver, n_jobs, seed):
    """Return the settings of the grid with the least error on a tenth of the ratings."""
    most, rest = next(folds(learned, 10, seed))
    fixed, grid = GRIDS[solver]
    best = {"solver": solver, **fixed, **{name: values[0] for name, values in grid.items()}}
    for name, values in grid.items():
        errors = {value: error(most, rest, n_jobs, **best | {name: value})[0] for value in values}
        best[name] = min(errors, key=lambda value: errors[value])
    return best


def main(arguments=None):
    """Print a line for each solver."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", default="movielens-100k", help="see `stradask bench mf` (%(default)s)")
    parser.add_argument("--solvers", nargs="+", default=list(GRIDS), choices=list(GRIDS), metavar="NAME")
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="(%(default)s)")
    parser.add_argument("--first", type=int, metavar="N", help="how many of them are held out (all)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="(%(default)s)")
    parser.add_argument("--n-jobs", type=int, default=1, metavar="N", help="threads (%(default)s)")
    found = parser.parse_args(arguments)
    if found.folds < 2 or (found.first is not None and found.first < 1):
        parser.error("--folds: 2 or more, to learn from one and judge by the other; --first: 1 or more")
    R = load_ratings(found.dataset, found.seed, implicit=False, quick=False)
    for solver in found.solvers:
        measured: list[tuple[float, float]] = []
        settings: dict = {}
        for learned, held_out in itertools.islice(folds(R, found.folds, found.seed), found.first):
            settings = settings or choose(learned, solver, found.n_jobs, found.seed)
            measured.append(error(learned, held_out, found.n_jobs, **settings))
        errors, seconds = zip(*measured, strict=True)
        print(
            f"{solver:6} RMSE {np.mean(errors):.4f} (folds from {min(errors):.4f} to {max(errors):.4f}), "
            f"{np.median(seconds):.2f} s a fit; {json.dumps(settings)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
