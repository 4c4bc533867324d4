"""What rounds of linear models and factorizations cost on 1 to 8 worker processes, also with a slow network.

    python -m stradask.benchmarks.experiments.many_workers_fits --out benchmarks/results/many-workers

As `experiments.topics.many_workers` does for topics: all processes share the cores of this machine, and
`experiments.how_many_workers` compares the model of clusters with the record. A case whose median differs by
much from that of the same case in another turn met a busy machine: the record keeps the shortest turn.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from scipy import sparse

from ...algorithms.factorization.matrix_factorization import MatrixFactorization
from ...algorithms.linear.lasso import Lasso
from ...algorithms.linear.logistic_regression import LogisticRegression
from ...datasets.generated_ratings import make_ratings
from .topics.many_workers import NETWORKS, come_first, measured

ROWS, COLUMNS, RATINGS = (200_000, 200), (20_000, 400_000, 20_000_000), (20_000, 5000, 3_500_000)


def logistic():
    """Return what fits a logistic regression to rows, with which rounds of it to count; a round is a pass."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(ROWS)
    y = X @ rng.standard_normal(ROWS[1]) + 3 * rng.standard_normal(ROWS[0]) > 0
    model = LogisticRegression(solver="lbfgs", tol=1e-14, max_iter=18, engine="dask")
    return lambda callback: model.fit(X, y, callback=callback), lambda history: np.arange(6, 17)


def lasso():
    """Return the same of a Lasso whose columns workers own; a round is one of scores that reads all of X.

    They are the first three of a fit (later ones pass over columns with bounds); the gap changes in them.
    """
    rng = np.random.default_rng(0)
    n_rows, n_columns, n_nonzero = COLUMNS
    X = sparse.random(n_rows, n_columns, n_nonzero / n_rows / n_columns, format="csc", random_state=rng)
    y = X @ (np.arange(n_columns) % 1000 == 0) + 0.1 * rng.standard_normal(n_rows)
    model = Lasso(3e-4, tol=1e-9, max_iter=4, schedule="dynamic", engine="dask")

    def fit(callback):
        gaps, whole, sent = [], [], []

        def look(info):
            callback(info)
            gaps.append(info.gap)

        for _ in range(6):
            first = len(gaps)
            history = model.fit(X, y, callback=look).history_
            scored = [k for k in range(first + 1, len(gaps)) if gaps[k] != gaps[k - 1]]
            whole += scored[:2] if first else []  # kernels were compiled in the first fit
            sent += history["bytes_sent"].tolist()
        model.history_ = {"whole": np.array(whole), "bytes_sent": np.array(sent)}
        return model

    return fit, lambda history: history["whole"]


def ratings():
    """Return the same of stochastic gradients in rotation; a round is an epoch."""
    n_users, n_items, n = RATINGS
    R = make_ratings(n_users, n_items, density=n / n_users / n_items, random_state=0)[0]
    model = MatrixFactorization(32, solver="sgd", max_iter=16, engine="dask", random_state=0)
    return lambda callback: model.fit(R, callback=callback), lambda history: np.arange(4, 16)


FITS = {"logistic": logistic, "lasso": lasso, "ratings": ratings}


def main(args=None):
    """Measure, print, and write a record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fits", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--niceness", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for fits.json")
    wanted = parser.parse_args(args)
    if wanted.niceness:
        come_first(wanted.niceness)
    path = wanted.out and wanted.out / "fits.json"
    about = {"rows": ROWS, "columns": COLUMNS, "ratings": RATINGS, "cores": os.cpu_count()}
    found: dict[tuple, dict] = {}
    if path and path.exists():
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        found = {(row["fit"], row["network"], row["workers"]): row for row in rows}
    for name in wanted.fits:
        fit, counted = FITS[name]()
        for _ in range(wanted.turns):
            for network in NETWORKS:
                for n_workers in wanted.workers:
                    row = {"fit": name} | measured(fit, counted, n_workers, network)[0]
                    print(row, flush=True)
                    case = name, network, n_workers
                    found[case] = min(row, found.get(case, row), key=lambda one: one["seconds"])
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"about": about, "rows": list(found.values())}, indent=1)
            path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
