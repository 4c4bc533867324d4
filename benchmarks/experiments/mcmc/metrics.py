"""Effective draws a gradient of NUTS with a diagonal, a dense and a low-rank metric.

    python -m stradask.benchmarks.experiments.mcmc.metrics [--only NAME ...] [--out FOLDER]

Normal densities of known correlations, a logistic regression with correlated columns, and a regression with
the horseshoe prior. Four chains each warm up and draw on their own. A record has, for each metric, thousands
of gradients of a chain's warm-up, the least effective size of 1,000 gradients of the draws, over parameters
and their squares, the least effective size of all draws, and the share of divergences.
"""

import argparse
import json
from pathlib import Path

import numba as nb
import numpy as np
from scipy import linalg

from ....algorithms.bayes.chains.adaptation import warm_up
from ....algorithms.bayes.chains.chain import advance, starting_point
from ....algorithms.bayes.models.density import user_model
from ....algorithms.bayes.models.model import Prior, regression
from ....algorithms.bayes.posterior.convergence import ess
from ...pages.tables import Table

METRICS = ("diagonal", "dense", "low_rank")
CHAINS = 4
_CAREFUL = 0.95  # acceptance of horseshoe priors, as the estimators have it


@nb.njit
def normal(q, precision, g):
    """Density of N(0, inverse of precision), up to a constant."""
    slopes = precision @ q
    g -= slopes
    return -0.5 * q @ slopes


def correlations(kind, d):
    """A matrix of correlations (d, d)."""
    rng = np.random.default_rng(0)
    if kind == "three factors":
        loadings = 3 * rng.standard_normal((d, 3))
        C = loadings @ loadings.T + np.eye(d)
    elif kind == "Wishart":
        draws = rng.standard_normal((2 * d, d))
        C = draws.T @ draws
    else:
        C = linalg.toeplitz(float(kind.removeprefix("autoregressive ")) ** np.arange(d))
    scales = np.sqrt(np.diag(C))
    return C / scales / scales[:, None]


def gaussian(kind, d):
    """A normal density with correlations, and scales over two powers of ten."""
    scales = np.logspace(-1, 1, d)[np.random.default_rng(1).permutation(d)]
    C = correlations(kind, d)
    precision = np.linalg.inv(C) / scales / scales[:, None]
    return user_model(normal, None, precision, np.zeros(d), check=False), float(np.linalg.cond(C))


def logistic():
    """A logistic regression of 1,000 rows and 60 columns, autoregressive with .95."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 60)) @ np.linalg.cholesky(correlations("autoregressive 0.95", 60)).T
    y = np.where(rng.random(1000) < 1 / (1 + np.exp(-X[:, 0] + X[:, 30])), 1.0, -1.0)
    return regression("bernoulli", X, y, prior=Prior(scale=2.5)), None


def horseshoe():
    """A linear regression of 150 rows and 20 columns, two of which matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 20))
    y = 2 * X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(150)
    return regression("normal", X, y, prior=Prior("horseshoe")), None


KINDS = ("autoregressive 0.3", "autoregressive 0.9", "three factors", "Wishart")
MODELS: dict[str, tuple] = {f"{d}, {kind}": (gaussian, kind, d) for d in (20, 100) for kind in KINDS}
MODELS |= {"logistic, 60 columns": (logistic,), "horseshoe, 20 columns": (horseshoe,)}


def figures(model, metric, n=1000):
    """Figures of a metric: see above."""
    target = None if model.regular else _CAREFUL
    warm, made = [], []
    for chain in range(CHAINS):
        numbers = {"seed": 0, "chain": chain}
        start = starting_point(model, **numbers)
        state, draws = warm_up(model, start, metric=metric, n=n, target=target, **numbers)
        warm.append(draws)
        made.append(advance(model, state, n, **numbers)[1])
    draws = np.stack([one.draws for one in made])
    least = float(min(ess(values).min() for values in (draws, draws**2)))
    spent = sum(one.statistics["n_gradients"].sum() for one in made)
    return {
        "ess_of_1000_gradients": round(1000 * least / float(spent), 2),
        "warm_up": round(float(np.mean([one.statistics["n_gradients"].sum() for one in warm])) / 1000, 2),
        "least_ess": round(least),
        "divergent": round(float(np.mean([one.statistics["divergent"].mean() for one in made])), 4),
    }


def run(name):
    """The record of a density."""
    make, *given = MODELS[name]
    model, condition = make(*given)
    found = {metric: figures(model, metric) for metric in METRICS}
    return {"name": name, "condition": condition, "metrics": found}


def table(records):
    """The table of a record, in Markdown."""

    def cell(metric, figure):
        return lambda record: f"{record['metrics'][metric][figure]:.3g}"

    heads = {"diagonal": "diagonal", "dense": "dense", "low_rank": "low rank"}
    columns = {head: cell(metric, "ess_of_1000_gradients") for metric, head in heads.items()}
    columns |= {f"warm-up: {head}": cell(metric, "warm_up") for metric, head in heads.items()}
    rows = [(_label(record), record) for record in records]
    return Table.of(rows, columns, "parameters, correlations").markdown()


def _label(record):
    condition = record["condition"]
    return record["name"] if condition is None else f"{record['name']} ({condition:,.0f})"


def main(arguments=None):
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, help="folder of records.jsonl")
    given = parser.parse_args(arguments)
    records = []
    for name in given.only:
        records.append(run(name))
        print(json.dumps(records[-1]), flush=True)
    print(table(records))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "records.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


if __name__ == "__main__":
    main()
