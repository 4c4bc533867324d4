"""What the test of dependency buys where shards own columns: a Lasso with it and without.

``python -m stradask.benchmarks.experiments.owned_columns`` fits 500 rows of 5,000 columns to a duality gap of
1e-6, at a tenth of the largest penalty: independent columns, and 100 groups of 50 with correlations of 0.9,
dealt to the shards at random. It prints counts, which do not depend on how busy the machine is.
"""

import itertools

import numpy as np

from ...algorithms.linear.sparse.penalties import L1L2
from ...algorithms.linear.sparse.scheduled_columns import ScheduledColumns
from ...scheduler.engine import run
from ..pages.tables import Table

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
    program = ScheduledColumns(pieces, edges, y, L1L2(strength), n_shards=n_shards, tol=1e-6)
    schedule = program.schedule
    if not tested:
        schedule.conflicts = None
    done = run(program, schedule, max_rounds=10_000)
    if done.reason != "gap":
        raise RuntimeError(f"the fit ended by {done.reason}, not by its gap")
    return done.n_rounds, program.passes, len(program.features), program.updates


def main():
    """Print the table."""
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
