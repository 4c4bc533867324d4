"""A second round over tall shards of a logistic regression: log densities by subsets of rows and by all rows.

    python -m stradask.benchmarks.experiments.mcmc.second_round [--rows 10000000] [--seeds 3] [--out FOLDER]

Proposals come from a normal density at the mode of all rows, with the inverse of the information as its
covariance. Columns are normal, of Student's t with 3 degrees of freedom ("heavy"), or normal where one row in
a thousand is an event ("rare"). Shards are looked at one after another in this process; seconds are its CPU
seconds. "error" is the root mean square difference of the log densities from those of all rows, at 200 of the
points, and "error_said" what the round says of itself; where subsets do not serve all rows are taken. Memory:
16 bytes times rows times columns.

One JSON line goes to ``FOLDER/records.jsonl``.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import expit

from ....algorithms.bayes.models.model import Prior, regression
from ....algorithms.bayes.shards.subsets import estimates, subsets_of, summed
from ....scheduler.threads import single_threaded_blas
from ...run import append_record, describe_machine
from ..readme import ROOT

SCALE = 2.5  # of the prior
DATA = ("normal", "heavy", "rare")
_COMPARED = 200  # points at which all rows are looked at
_RARE = -7.5  # intercept


def shard(number, n_rows, coefs, power, data, seed):
    """A shard's model, the models of its subsets with their factors, and its rows."""
    rng = np.random.default_rng([1 + seed, number])
    size = n_rows, len(coefs)
    X = rng.standard_t(3, size) if data == "heavy" else rng.standard_normal(size)
    X[:, 0] = 1.0
    signs = np.where(rng.random(n_rows) < expit(X @ coefs), 1.0, -1.0)
    parts, prior = [], Prior("normal", SCALE)
    for rows in subsets_of(n_rows):
        factor = n_rows / len(rows)
        part = regression("bernoulli", X[rows], signs[rows], prior=prior, power=power / factor)
        parts.append((part, factor))
    return regression("bernoulli", X, signs, prior=prior, power=power), parts, X


def measured(n_rows, n_columns, n_shards, n_points, data="normal", seed=0):
    """Seconds and errors of one second round."""
    rng = np.random.default_rng(seed)
    coefs = rng.standard_normal(n_columns) / np.sqrt(n_columns)
    coefs[0] = _RARE if data == "rare" else coefs[0]
    models, parts, information = [], [], np.zeros((n_columns, n_columns))
    for number in range(n_shards):
        model, own, X = shard(number, n_rows // n_shards, coefs, 1 / n_shards, data, seed)
        few = X[:20_000]
        p = expit(few @ coefs)
        information += len(X) / len(few) * (few * (p * (1 - p))[:, None]).T @ few
        models.append(model)
        parts.append(own)
    covariance = np.linalg.inv(information)

    def exact(points):
        both = np.sum([np.column_stack(model.logp_grads(points)) for model in models], axis=0)
        return both[:, 0], both[:, 1:]

    def estimate(places):
        made = [estimates(model, own, places) for model, own in zip(models, parts, strict=True)]
        return tuple(sum(column) for column in zip(*made, strict=True))

    mode = coefs
    for _ in range(3):
        mode = mode + covariance @ exact(mode[None])[1][0]
    points = rng.multivariate_normal(mode, covariance, n_points)
    begun = time.process_time()
    found = summed(exact, estimate, points)
    by_subsets = time.process_time() - begun
    some = np.linspace(0, n_points - 1, _COMPARED).astype(int)
    begun = time.process_time()
    heights = exact(points[some])[0]
    by_rows = (time.process_time() - begun) * n_points / _COMPARED
    figures = {"data": data, "seed": seed, "seconds": by_subsets, "seconds_all_rows": by_rows}
    if found is not None:
        apart = found[0][some] - heights
        figures |= {"error": float(np.sqrt(np.mean(apart**2))), "error_said": found[2]}
    return figures | {"served": found is not None}


def main(arguments=None):
    """Measure second rounds and keep a record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--points", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks/results/second-round", metavar="FOLDER"
    )
    args = parser.parse_args(arguments)
    sizes = args.rows, args.columns, args.shards, args.points
    record = dict(zip(("rows", "columns", "shards", "points"), sizes, strict=True)) | {"runs": []}
    with single_threaded_blas():  # for seconds of one core
        for data in DATA:
            for seed in range(args.seeds):
                record["runs"].append(measured(*sizes, data, seed))
                print(record["runs"][-1], file=sys.stderr, flush=True)
    record["machine"] = describe_machine()
    args.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps(append_record(args.out / "records.jsonl", record)))


if __name__ == "__main__":
    main()
