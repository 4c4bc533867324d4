"""Are combined shards right, and what do they save: a logistic regression in ten shards of 300 draws.

    python -m stradask.benchmarks.experiments.mcmc.shard_goals [--quick] [--out FOLDER]
    python -m stradask.benchmarks.experiments.readme shard-goals

- "error": 50,000 rows of 50 columns, five seeds; the error of the means in posterior standard deviations,
  root mean square over coefficients, against importance sampling about the mode of all rows; k-hat.
- "chain": the seconds of the slowest shard and of the combination, the shards on cores of their own, and
  those of a chain of all the rows, warm-up counted, until its effective draws make the same error.
- "coverage": 200 data sets of 5,000 rows and 10 columns, whose coefficients are drawn from the prior; how
  many of them lie in their intervals from 5 to 95 %.

Shards run one after another, by the CPU's clock. One JSON line a run goes to ``FOLDER/records.jsonl``;
the second command rewrites the table of docs/mcmc-measured.md from the last one there.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from ....algorithms.bayes.chains.chain import advance_all
from ....algorithms.bayes.chains.laplace import find_mode, laplace_draws
from ....algorithms.bayes.chains.sampling import make_plan, sample_model
from ....algorithms.bayes.combine.combiners import CombinationRefused, combine
from ....algorithms.bayes.models.model import Prior, regression
from ....algorithms.bayes.posterior.convergence import ess
from ....algorithms.bayes.posterior.psis import importance_ess
from ....algorithms.bayes.shards.rows import cut_rows
from ...pages.tables import Table
from ...run import append_record, describe_machine
from ..readme import ROOT

N_SHARDS, N_CHAINS, N_DRAWS, PROPOSALS = 10, 2, 150, 8000  # 300 draws a shard
TRUTH = 100_000  # weighted draws that the truth is known from
LEVELS = (0.05, 0.95)
WHOLE = {"rows": 50_000, "columns": 50, "n_seeds": 5, "n_sets": 200}
QUICK = {"rows": 5_000, "columns": 10, "n_seeds": 2, "n_sets": 5}
COVERED = {"rows": 5_000, "columns": 10}
SCALE = 0.5  # of the prior
_CHUNK, _MOST = 250, 100  # draws of a chain between two looks at its error, and how many looks


def data_set(rows, columns, seed):
    """Draw coefficients from the prior, standard normal columns, and classes as 1 and -1."""
    rng = np.random.default_rng(seed)
    coefs = rng.normal(0, SCALE, columns)
    X = rng.standard_normal((rows, columns))
    return X, np.where(rng.random(rows) < 1 / (1 + np.exp(-X @ coefs)), 1.0, -1.0), coefs


def model_of(X, y, power=1.0):
    """The posterior of these rows, or of a shard."""
    return regression("bernoulli", X, y, prior=Prior("normal", SCALE), power=power)


def combined(X, y, seed):
    """Sample and combine shards; return the combination, seconds of the slowest shard, and of combining.

    The shards' densities are computed side by side.
    """
    models, samples, seconds = [], [], []
    for shard, rows in enumerate(cut_rows(len(y), N_SHARDS, seed, y)):
        begun = time.process_time()
        models.append(model_of(X[rows], y[rows], 1 / N_SHARDS))
        counts = {"n_samples": N_DRAWS, "n_chains": N_CHAINS, "n_jobs": 1}
        samples.append(sample_model(models[-1], seed=seed, shard=shard, weighted=False, **counts))
        seconds.append(time.process_time() - begun)
    elsewhere = 0.0

    def log_density(points):
        nonlocal elsewhere
        begun = time.process_time()
        total = np.sum([model.logp_batch(points) for model in models], axis=0)
        elsewhere += time.process_time() - begun
        return total

    begun = time.process_time()
    found = combine(
        np.stack([sample.stacked() for sample in samples]),
        gradients=np.stack([sample.stacked("gradients") for sample in samples]),
        log_density=log_density,
        n_draws=PROPOSALS,
        random_state=seed,
    )
    combining = time.process_time() - begun - elsewhere * (1 - 1 / N_SHARDS)
    return found, max(seconds), combining


def _weighted(draws, log_weights):
    """Weights of draws, their means and standard deviations."""
    weights = np.full(len(draws), 1 / len(draws)) if log_weights is None else np.exp(log_weights)
    mean = weights @ draws
    return weights, mean, np.sqrt(weights @ (draws - mean) ** 2)


def truth(X, y):
    """Means and standard deviations of the posterior of all rows, and what the weighted draws are worth."""
    model = model_of(X, y)
    draws, k_hat = laplace_draws(model, find_mode(model), TRUTH, seed=0)
    if k_hat > 0.5:
        raise ValueError(f"the truth is not known: k-hat {k_hat:.2f}")
    return *_weighted(draws.draws, draws.log_weights)[1:], importance_ess(draws.log_weights)


def until(X, y, sampler, error, seed):
    """Seconds that a chain of all rows takes until its effective draws make the error."""
    begun = time.process_time()
    model, made = model_of(X, y), []
    plan = make_plan(model, sampler, n=2000, seed=seed, weighted=False)
    ((state, _),) = plan.begin_all(model, 1000, chains=[0], seed=seed)
    for _ in range(_MOST):
        ((state, draws),) = advance_all(model, [state], _CHUNK, chains=[0], seed=seed)
        made.append(draws.draws)
        spent = time.process_time() - begun
        if np.sqrt(np.mean(1 / ess(np.concatenate(made)[None]))) <= error:
            return spent
    raise ValueError(f"{sampler}: an error of {error:.3f} was not reached in {_CHUNK * _MOST} draws")


def errors(rows, columns, n_seeds, tell):
    """The record of "error" and "chain"."""
    X, y, _ = data_set(rows, columns, 0)
    mean, sd, worth = truth(X, y)
    runs = []
    for seed in range(n_seeds):
        found, slowest, combining = combined(X, y, seed)
        ours = _weighted(found.draws, found.log_weights)[1]
        run = {
            "error": float(np.sqrt(np.mean(((ours - mean) / sd) ** 2))),
            "k_hat": found.figures.get("k_hat"),
            "method": found.method,
            "shard_seconds": slowest,
            "combine_seconds": combining,
        }
        runs.append(run)
        tell(f"seed {seed}: error {run['error']:.3f} sd, k-hat {run['k_hat']}, {slowest + combining:.3f} s")
    error = float(np.sqrt(np.mean([run["error"] ** 2 for run in runs])))
    chains = {}
    for sampler in ("nuts", "split_hmc"):
        chains[sampler] = until(X, y, sampler, error, 0)
        tell(f"a chain of all rows, {sampler}: {chains[sampler]:.3f} s to an error of {error:.3f}")
    return {"runs": runs, "error": error, "worth_of_truth": worth, "chain_seconds": chains}


def coverage(rows, columns, n_sets, tell):
    """The record of "coverage"."""
    inside, worst, refused = [], 0.0, 0
    for seed in range(1, n_sets + 1):
        X, y, coefs = data_set(rows, columns, seed)
        try:
            found, *_ = combined(X, y, seed)
        except CombinationRefused as error:  # short chains, now and then: said, and left out
            refused += 1
            tell(f"data set {seed}: {error}")
            continue
        weights, *_ = _weighted(found.draws, found.log_weights)
        order = np.argsort(found.draws, axis=0)
        sums = np.cumsum(weights[order], axis=0)
        ends = [
            found.draws[order[(sums < p).sum(axis=0), np.arange(columns)], np.arange(columns)] for p in LEVELS
        ]
        inside.append(np.mean((ends[0] < coefs) & (coefs < ends[1])))
        worst = max(worst, found.figures.get("k_hat", 0.0))
        if seed % 20 == 0 or seed == n_sets:
            tell(f"{seed} data sets: {np.mean(inside):.1%} of the coefficients in their 90 % intervals")
    covered = {"covered": float(np.mean(inside)), "n_sets": n_sets, "n_refused": refused}
    return covered | {"largest_k_hat": worst}


def table(record):
    """Return the table of one record in Markdown."""
    runs, sizes = record["runs"], record["sizes"]
    k_hats = [run["k_hat"] for run in runs if run["k_hat"] is not None]
    data = f"{sizes['rows']:,} x {sizes['columns']}, {len(runs)} seeds"
    others = f"{record['n_sets']} data sets of {COVERED['rows']:,} x {COVERED['columns']}"
    lines = [
        (data, "error of the means, posterior sd", f"{record['error']:.3f}"),
        (data, "largest k-hat", f"{max(k_hats):.2f}"),
        (others, "coefficients in their 90 % intervals", f"{record['covered']:.1%}"),
        (others, "refused, a shard not having converged", str(record["n_refused"])),
    ]
    for sampler, part in record["parts_of_a_chain"].items():
        seconds = record["chain_seconds"][sampler]
        what = f"slowest shard and combination, in parts of the {seconds:.2f} s of a chain by {sampler}"
        lines.append((data, what, f"{part:.3f}"))
    return Table(lines, ["data", "figure", "found"]).markdown()


def main(arguments=None):
    """Run all three and keep a record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little data: does it run?")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/shard-goals", metavar="FOLDER")
    args = parser.parse_args(arguments)
    sizes = QUICK if args.quick else WHOLE

    def tell(line):
        print(line, file=sys.stderr, flush=True)

    record = {"quick": args.quick, "sizes": sizes, "n_shards": N_SHARDS, "draws": N_CHAINS * N_DRAWS}
    record |= errors(sizes["rows"], sizes["columns"], sizes["n_seeds"], tell)
    record |= coverage(COVERED["rows"], COVERED["columns"], sizes["n_sets"], tell)
    spent = [run["shard_seconds"] + run["combine_seconds"] for run in record["runs"]]
    record["parts_of_a_chain"] = {
        sampler: float(np.median(spent)) / seconds for sampler, seconds in record["chain_seconds"].items()
    }
    record["machine"] = describe_machine()
    args.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps(append_record(args.out / "records.jsonl", record)))


if __name__ == "__main__":
    main()
