"""What the rules of `algorithms.factorization.rules` are worth.

    python -m stradask.benchmarks.experiments.ratings.factorization_rules --data ratings.csv.gz --write

For ratings, of generated tables and of files, a fifth of which is held out: root mean square errors of both
solvers with the defaults, of biases alone (by alternating least squares, the best of five penalties on the
held-out part itself), and CPU seconds. For counts, of generated tables and of the choices in the files:
NDCG@20 of the default, of popularity, and of 54 settings tuned, of which the best on a validation part (an
eighth of what is not held out) is fitted anew. Sets of `SHOWN` had no part in the choice of the defaults.
With ``--write`` the rows become the record in ``benchmarks/results/factorization-rules``.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .... import datasets
from ....algorithms.factorization import rules
from ....algorithms.factorization.items.popularity import Popularity
from ....algorithms.factorization.matrix_factorization import MatrixFactorization
from ....algorithms.factorization.ranking import evaluate_ranking
from ...pages.tables import Table

RECORD = Path(__file__).resolve().parents[2] / "results" / "factorization-rules" / "records.jsonl"
# Users, items, factors, share of cells, noise.
RATINGS = (
    (100, 60, 4, 0.15, 0.5),
    (300, 100, 4, 0.1, 0.5),
    (600, 200, 4, 0.06, 0.6),
    (1000, 300, 6, 0.05, 0.6),
    (1500, 500, 6, 0.04, 0.7),
    (2500, 800, 8, 0.03, 0.7),
    (4000, 1500, 8, 0.025, 0.8),
    (2000, 800, 8, 0.05, 1.5),
)
# Users, items, factors, share of cells, noise, exponent of popularity.
COUNTS = (
    (1500, 200, 8, 0.2, 0.5, 0.8),
    (3000, 800, 10, 0.03, 0.2, 0.4),
    (6000, 1500, 15, 0.01, 0.3, 0.8),
    (8000, 500, 6, 0.01, 0.2, 0.6),
    (400, 3000, 12, 0.04, 0.3, 0.7),
    (5000, 700, 8, 0.012, 0.25, 0.5),
    (600, 2000, 10, 0.05, 0.3, 0.6),
)
SHOWN = ("generated 5000 x 700", "generated 600 x 2000", "ml-1m.csv.gz")
_BIAS_REGS = (1, 2, 4, 8, 16)
_ALPHAS, _EXPONENTS, _PENALTIES = (1, 3, 10), (0.0, 0.5, 1.0), (10, 20, 40, 80, 160, 320)


def rating_sets(files):
    """Yield names and tables of ratings."""
    for n_users, n_items, rank, density, noise in RATINGS:
        options: dict[str, Any] = {"density": density, "noise": noise, "levels": np.arange(1, 6)}
        R, _ = datasets.make_ratings(n_users, n_items, rank, **options, random_state=0)
        yield f"generated {n_users} x {n_items}, noise {noise}", sparse.csr_array(R)
    for name in files:
        yield Path(name).name, sparse.csr_array(datasets.read_ratings(name).matrix)


def count_sets(files):
    """Yield names and tables of counts; ratings in files are choices."""
    for seed, (n_users, n_items, rank, density, noise, popular) in enumerate(COUNTS):
        options: dict[str, Any] = {"density": density, "noise": noise, "popularity_exponent": popular}
        options |= {"implicit": True, "random_state": seed}
        R, _ = datasets.make_ratings(n_users, n_items, rank, **options)
        yield f"generated {n_users} x {n_items}", sparse.csr_array(R)
    for name in files:
        R = sparse.csr_array(datasets.read_ratings(name).matrix)
        yield Path(name).name, sparse.csr_array((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape)


def measure_ratings(name, R):
    """Errors and CPU seconds of both solvers, and the error of biases alone."""
    train, test = datasets.rating_split(R, by="rating", random_state=0)
    row = {"rule": "solver", "data": name, "ratings": int(train.nnz)}
    for solver in ("als", "sgd"):
        began = time.process_time()
        model = MatrixFactorization(solver=solver, random_state=0).fit(train)
        row |= {f"{solver} seconds": time.process_time() - began, solver: -model.score(test)}
    row["biases"] = min(biases_alone(train, test, reg) for reg in _BIAS_REGS)
    row["auto"] = "sgd" if train.nnz >= rules.DESCENT_FROM else "als"
    return row


def biases_alone(train, test, reg):
    """Error of biases: factors are held at 0 by their penalty."""
    options = {"solver": "als", "reg": 1e9, "bias_reg": reg, "reg_offset": 0, "max_iter": 8}
    return -MatrixFactorization(1, random_state=0, **options).fit(train).score(test)


def measure_counts(name, R):
    """NDCG of the default penalty, and of the best of a grid by validation; half-widths are of users."""
    train, test = datasets.rating_split(R, random_state=0)
    learnt, validation = datasets.rating_split(train, test_size=0.125, random_state=1)

    def ndcg(model):
        return evaluate_ranking(model.fit(train), test, 20, by_user=True)["ndcg"]

    default = MatrixFactorization(implicit=True, random_state=0)
    own = ndcg(default)
    row = {"rule": "counts", "data": name, "ratings": int(train.nnz), "shown": name in SHOWN}
    row |= {"default": own.mean(), "reg": default.reg_, "popularity": ndcg(Popularity()).mean()}
    best: tuple[float, dict] = (-1.0, {})
    for alpha in _ALPHAS:
        for exponent in _EXPONENTS:
            scale = (train.nnz / train.shape[0] + train.shape[1] / alpha) ** exponent
            for penalty in _PENALTIES:
                options = {"alpha": alpha, "reg_exponent": exponent, "reg": penalty / scale}
                model = MatrixFactorization(implicit=True, random_state=0, **options).fit(learnt)
                found = evaluate_ranking(model, validation, 20)["ndcg"]
                best = max(best, (found, options), key=lambda pair: pair[0])
    tuned = ndcg(MatrixFactorization(implicit=True, random_state=0, **best[1]))
    apart = 1.96 * (own - tuned).std(ddof=1) / len(own) ** 0.5
    return row | {"tuned": tuned.mean(), "tuned settings": best[1], "half-width of the difference": apart}


def counts_table(rows):
    """NDCG@20 of counts by set."""
    columns = {
        "choices": lambda row: f"{row['ratings']:,}",
        "default": lambda row: f"{row['default']:.4f}",
        "tuned": lambda row: f"{row['tuned']:.4f}",
        "difference, %": lambda row: (
            f"{100 * (row['default'] / row['tuned'] - 1):+.1f} ± "
            f"{100 * row['half-width of the difference'] / row['tuned']:.1f}"
        ),
        "popularity": lambda row: f"{row['popularity']:.4f}",
        "chose the defaults": lambda row: "no" if row["shown"] else "yes",
    }
    return Table.of([(row["data"], row) for row in rows if row["rule"] == "counts"], columns, "set", "")


def ratings_table(rows):
    """Errors of ratings by set."""
    columns = {
        "ratings": lambda row: f"{row['ratings']:,}",
        "default": lambda row: f"{row[row['auto']]:.4f} ({row['auto']})",
        "biases alone": lambda row: f"{row['biases']:.4f}",
        "als": lambda row: f"{row['als']:.4f}",
        "sgd": lambda row: f"{row['sgd']:.4f}",
    }
    return Table.of([(row["data"], row) for row in rows if row["rule"] == "solver"], columns, "set", "")


def main(arguments=None):
    """Print a line a set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="*", default=[], metavar="FILE", help="files of ratings")
    parser.add_argument("--rules", nargs="+", choices=("solver", "counts"), default=["solver", "counts"])
    parser.add_argument("--write", action="store_true", help=f"write the record {RECORD.name}")
    options = parser.parse_args(arguments)
    if options.write and len(options.rules) < 2:
        parser.error("--write needs all rules: leave --rules out")
    rows = []
    for rule, sets, measure in (
        ("solver", rating_sets, measure_ratings),
        ("counts", count_sets, measure_counts),
    ):
        for name, R in sets(options.data) if rule in options.rules else ():
            rows.append(measure(name, R))
            print(json.dumps(rows[-1]), flush=True)
    if options.write:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
