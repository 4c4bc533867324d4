"""Whether the limits of `algorithms.linear.rules` are where methods for small problems stop to pay.

``python -m stradask.benchmarks.experiments.linear.linear_rules`` fits problems on both sides of each limit,
in turn with the method and without it, and prints the median CPU seconds of both and their ratio. With
``--write`` the rows take the place of those rules' in the record in ``benchmarks/results/linear-rules``.
"""

import argparse
import json
import statistics
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import sparse

from ....algorithms.linear import rules
from ....algorithms.linear.lasso import Lasso
from ....algorithms.linear.logistic_regression import LogisticRegression
from ....algorithms.linear.path import lasso_path
from ....algorithms.linear.ridge import Ridge

RECORD = Path(__file__).resolve().parents[2] / "results" / "linear-rules" / "records.jsonl"
_DENSITY = 0.05
_ALWAYS, _NEVER = rules.Sizes(np.inf, np.inf, np.inf), rules.Sizes(-1, -1.0, -1.0)


def _logistic(X, y):
    LogisticRegression().fit(X, y > np.median(y))


def _ridge(X, y):
    Ridge().fit(X, y)


def _lasso(X, y):
    Lasso(0.1 * np.abs(X.T @ (y - y.mean())).max() / len(y)).fit(X, y)


def _path(X, y):
    lasso_path(X, y, n_alphas=50)


FITS = {
    "SMALL_SMOOTH": (_logistic, (False,)),
    "SMALL_RIDGE": (_ridge, (False,)),
    "MOMENTS": (_lasso, (False,)),
    "SPARSE_MOMENTS": (_lasso, (True,)),
    "MOMENTS_OF_A_PATH": (_path, (False, True)),
}


def cases(name, is_sparse):
    """Rows and columns on both sides of a rule's limits: of columns, and of products."""
    most = getattr(rules, name)
    limit = most.stored if is_sparse else most.products
    found = []
    for part in (0.25, 0.5, 1, 2):
        p = int(most.columns * part)
        found.append((5 * p, p))
    p = int(most.columns / 4)
    for part in (0.125, 0.5, 1, 4):  # of the products that the limit allows
        products = p * p * (_DENSITY**2 if is_sparse else 1)
        n = int(part * limit / products)
        if 5 * p < n < 10**6:
            found.append((n, p))
    return sorted(set(found))


def draw(n, p, is_sparse, seed=0):
    """A matrix, and a target of ten of its columns and noise."""
    rng = np.random.default_rng(seed)
    if is_sparse:
        X = sparse.random_array((n, p), density=_DENSITY, rng=rng, format="csc")
    else:
        X = rng.standard_normal((n, p))
    return X, X[:, : min(10, p)].sum(axis=1) + rng.standard_normal(n)


@contextmanager
def limited(name, sizes):
    """Put other limits into the table of rules."""
    before = getattr(rules, name)
    setattr(rules, name, sizes)
    try:
        yield
    finally:
        setattr(rules, name, before)


def measure(name, n, p, is_sparse, repeats):
    """Median CPU seconds with the method and without it, fits in turn; the first of each compiles."""
    fit, (X, y) = FITS[name][0], draw(n, p, is_sparse)
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(repeats + 1):
        for way, sizes in (("with", _ALWAYS), ("without", _NEVER)):
            with limited(name, sizes):
                began = time.process_time()
                fit(X, y)
                spent = time.process_time() - began
            if turn:
                seconds[way].append(spent)
    own = {way: statistics.median(values) for way, values in seconds.items()}
    stored = int(X.nnz) if is_sparse else None
    within = getattr(rules, name).hold(n, p, stored)
    row = {"rule": name, "rows": n, "columns": p, "stored": stored, "within": bool(within)}
    return row | own | {"ratio": own["with"] / own["without"]}


def measured(names, repeats=5):
    """A row for each case of some rules."""
    for name in names:
        for is_sparse in FITS[name][1]:
            for n, p in cases(name, is_sparse):
                yield measure(name, n, p, is_sparse, repeats)


def main(arguments=None):
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rules", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"renew these rules in {RECORD.name}")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1; got {options.repeats}")
    warnings.simplefilter("ignore")  # of problems that are not solved to the tolerance
    rows = []
    print(f"{'rule':20}{'rows':>9}{'columns':>9}{'stored':>10}  within     with  without  ratio")
    for row in measured(options.rules, options.repeats):
        rows.append(row)
        stored = "dense" if row["stored"] is None else f"{row['stored']:,}"
        print(
            f"{row['rule']:20}{row['rows']:9,}{row['columns']:9,}{stored:>10}  {row['within']!s:6}"
            f"{row['with']:9.4f}{row['without']:9.4f}{row['ratio']:7.2f}",
            flush=True,
        )
    if options.write:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        before = RECORD.read_text().splitlines() if RECORD.exists() else []
        rows += [row for row in map(json.loads, before) if row["rule"] not in options.rules]
        rows.sort(key=lambda row: list(FITS).index(row["rule"]))
        RECORD.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
