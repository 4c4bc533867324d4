"""Columns that workers own: what the test of dependency buys, and two processes compared with two threads.

``python -m stradask.benchmarks.experiments.linear.owned_columns`` fits 500 rows of 5,000 columns to a duality
gap of 1e-6, at a tenth of the largest penalty: independent columns, and 100 groups of 50 with correlations of
0.9, dealt to the shards at random. It prints counts, which do not depend on how busy the machine is.

``... owned_columns workers`` fits a Lasso, a group lasso, and logistic regressions with single columns and
groups, to 20,000 rows of 2,000 columns by the same program on two worker processes of one thread and on two
threads of this process, in turns, and prints medians.
"""

import argparse
import itertools
import statistics

import numpy as np

from ....algorithms.linear.structured.losses import Squared
from ....algorithms.linear.structured.mean_loss import MeanLoss
from ....algorithms.linear.structured.solving.blocks import single_columns
from ....algorithms.linear.structured.solving.owned_blocks import OwnedBlocks
from ....algorithms.linear.structured.solving.shard import BlockTerms
from ....scheduler.engine import run
from ...pages.tables import Table

_ROWS, _COLUMNS, _GROUPS, _CORRELATION = 500, 5000, 100, 0.9


def problem(correlated):
    """Columns, and a target of 50 of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((_ROWS, _COLUMNS))
    if correlated:
        groups = rng.permutation(np.repeat(np.arange(_GROUPS), _COLUMNS // _GROUPS))
        shared = rng.standard_normal((_ROWS, _GROUPS))[:, groups]
        X = np.sqrt(_CORRELATION) * shared + np.sqrt(1 - _CORRELATION) * X
    fit = X[:, rng.choice(_COLUMNS, 50, replace=False)] @ rng.standard_normal(50)
    return np.asfortranarray(X), fit + rng.standard_normal(_ROWS) * fit.std() / 3


def fitted(X, y, n_shards, tested):
    """Return rounds, passes, working columns and updates of a fit."""
    edges = [_COLUMNS * k // n_shards for k in range(n_shards + 1)]
    pieces = [X[:, a:b] for a, b in itertools.pairwise(edges)]
    strength = 0.1 * np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max()
    loss = MeanLoss(Squared(), y[:, None], np.full(_ROWS, 1 / _ROWS))
    none, without = np.zeros(_COLUMNS), np.full(_COLUMNS, np.inf)
    terms = BlockTerms(none + strength / _ROWS, none, none, -without, without)
    program = OwnedBlocks(pieces, edges, loss, single_columns(_COLUMNS), terms, n_shards=n_shards, tol=1e-6)
    schedule = program.schedule
    if not tested:
        schedule.conflicts = None
    done = run(program, schedule, max_rounds=10_000)
    if done.reason != "gap":
        raise RuntimeError(f"the fit ended by {done.reason}, not by its gap")
    return done.n_rounds, program.passes, len(program.places), program.updates


_BLOCK, _BLOCKS = (20_000, 250), 8


def block(number, shape):
    """A block of columns, drawn where it is wanted."""
    return np.random.default_rng(number).standard_normal(shape)


def models():
    """The estimators, and whether each takes classes."""
    from ....algorithms.linear.lasso import Lasso
    from ....algorithms.linear.sparse_logistic import SparseLogisticRegression
    from ....algorithms.linear.structured.classifier import GroupLogisticRegression
    from ....algorithms.linear.structured.regressors import GroupLasso

    return {
        "Lasso": (Lasso(0.03, schedule="dynamic", tol=1e-6), False),
        "group lasso": (GroupLasso(5, alpha=0.03, tol=1e-6), False),
        "logistic, l1": (SparseLogisticRegression(0.01, schedule="dynamic", tol=1e-6), True),
        "logistic, groups": (GroupLogisticRegression(5, alpha=0.01, tol=1e-6), True),
    }


def beside_threads(repeats, shape=_BLOCK):
    """Rows of a table: medians of fits on processes and on threads, that take turns.

    `shape`: of a block of columns; there are eight.
    """
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster
    from sklearn.base import clone

    X = da.concatenate(
        [da.from_delayed(dask.delayed(block)(k, shape), shape, float) for k in range(_BLOCKS)], axis=1
    )
    rng = np.random.default_rng(_BLOCKS)
    f = sum(block(k, shape)[:, :25] @ rng.standard_normal(25) for k in range(_BLOCKS))
    y = f / f.std() + rng.standard_normal(shape[0])
    rows = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        for name, (model, classes) in models().items():
            target = (y > 0) if classes else y
            runs: dict[str, list] = {"processes": [], "threads": []}
            for turn in range(repeats + 1):
                with Client(cluster):
                    runs["processes"].append(_timed(clone(model), X, target))
                runs["threads"].append(_timed(clone(model).set_params(n_jobs=2), X, target))
                if not turn:  # the first ones compile
                    runs = {"processes": [], "threads": []}
            rows.append([name, *_figures(runs)])
    return rows


def _timed(model, X, y):
    """Seconds of the rounds, without the reading of X before them, and the model."""
    model.fit(X, y)
    return float(np.sum(model.history_["seconds"])), model


def _figures(runs):
    """Medians of processes and threads, their ratio, and rounds, milliseconds and bytes of a round."""
    wall = {name: statistics.median(seconds for seconds, _ in some) for name, some in runs.items()}
    last = runs["processes"][-1][1]
    if last.schedule_ != "columns":
        raise RuntimeError(f"the fit ran by {last.schedule_!r}, not on columns of workers")
    each, sent = np.array(last.history_["seconds"]), np.array(last.history_["bytes_sent"])
    return (
        f"{wall['processes']:.2f}",
        f"{wall['threads']:.2f}",
        f"{wall['threads'] / wall['processes']:.2f}",
        f"{len(each)}",
        f"{1000 * np.median(each):.0f}",
        f"{sent.sum() / 1e6:.1f}",
        f"{last.dual_gap_:.1e}",
    )


def main(args=None):
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("dependency", "workers"), default="dependency")
    parser.add_argument("--repeats", type=int, default=3)
    wanted = parser.parse_args(args)
    if wanted.what == "workers":
        header = ["", "processes, s", "threads, s", "speed of threads", "rounds", "ms a round", "MB", "gap"]
        print(Table(beside_threads(wanted.repeats), header).markdown())
        return
    rows = []
    for correlated in (False, True):
        X, y = problem(correlated)
        for n_shards in (2, 4, 8):
            for tested in (False, True):
                rounds, passes, working, updates = fitted(X, y, n_shards, tested)
                name = f"{'groups' if correlated else 'independent'}, {n_shards} shards"
                name += ", priority and dependency" if tested else ", priority"
                rows.append([name, str(rounds), str(passes), f"{working:,}", f"{updates:,}"])
    header = ["", "rounds", "passes over X", "working columns", "updates"]
    print(Table(rows, header).markdown())


if __name__ == "__main__":
    main()
