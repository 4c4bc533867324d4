"""Do intervals of shards and of hierarchical models cover as they say? Data sets drawn from the prior.

    python -m stradask.benchmarks.experiments.mcmc.coverage [--sets 200] [--models ...] [--out FOLDER]

Parameters are drawn from the prior, data from the parameters, and the model is fitted with that prior.
Central intervals of 50 and 90 % then cover the parameters in 50 and 90 % of the data sets if the draws are
those of the posterior: in each model, for each parameter, up to the binomial error of the number of sets.
``coverage.json`` in the folder keeps a record of each model, that of its last run.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import stradask as sd
from stradask.errors import PosteriorWarning, StradaskError

LEVELS = (0.5, 0.9)
SAMPLING: dict[str, Any] = {"n_samples": 250, "n_warmup": 400}


def logistic(rng, seed):
    """Four shards of a logistic regression, combined."""
    b, c = rng.normal(0, 1, 3), rng.normal(0, 1)
    X = rng.standard_normal((800, 3))
    y = rng.random(800) < 1 / (1 + np.exp(-X @ b - c))
    model = sd.BayesianLogisticRegression(
        prior_scale=1.0, intercept_scale=1.0, n_shards=4, random_state=seed, **SAMPLING
    )
    return model.fit(X, y).posterior_, {"coef": b, "intercept": c}


def counts(rng, seed):
    """Two shards of whole groups of a Poisson regression; intercepts of groups are integrated out."""
    b, c, spread = rng.normal(0, 0.5, 2), rng.normal(0, 0.5), abs(rng.normal(0, 0.5))
    groups = np.repeat(np.arange(16), 15)
    X = rng.standard_normal((240, 2))
    u = rng.normal(0, spread, 16)
    y = rng.poisson(np.exp(X @ b + c + u[groups]))
    model = sd.BayesianPoissonRegression(
        prior_scale=0.5, intercept_scale=0.5, group_scale=0.5, n_shards=2, random_state=seed, **SAMPLING
    )
    truth = {"coef": b, "intercept": c, "group_sd": spread, "group": u}
    return model.fit(X, y, groups=groups).posterior_, truth


def slopes(rng, seed):
    """Intercepts and slopes by group with normal noise, by formula, in two shards of whole groups."""
    normal, half = sd.priors.normal(0, 1), sd.priors.half_normal(1)
    priors = {"coef": normal, "intercept": normal, "sd": half, "cor": sd.priors.lkj(1), "sigma": half}
    g = np.repeat(np.arange(20), 10)
    x = rng.standard_normal(200)
    x -= x.mean()  # the prior of the intercept is that at the mean
    b, c, sigma = rng.normal(), rng.normal(), abs(rng.normal())
    spreads, r = np.abs(rng.normal(0, 1, 2)), rng.uniform(-1, 1)
    u = spreads * (rng.standard_normal((20, 2)) @ np.linalg.cholesky([[1, r], [r, 1]]).T)
    y = c + u[g, 0] + (b + u[g, 1]) * x + sigma * rng.standard_normal(200)
    model = sd.BayesianGLM("y ~ x + (x | g)", priors=priors, n_shards=2, random_state=seed, **SAMPLING)
    posterior = model.fit({"y": y, "x": x, "g": g}).posterior_
    truth = {"coef": [b], "intercept": c, "sd_g": spreads, "cor_g": [r], "sigma": sigma}
    return posterior, truth | {"g:Intercept": u[:, 0], "g:x": u[:, 1]}


def labels(rng, seed):
    """Intercepts by group of a logistic regression in one piece, by formula; effects are parameters."""
    normal, half = sd.priors.normal(0, 1), sd.priors.half_normal(1)
    g = np.repeat(np.arange(20), 15)
    x = rng.standard_normal(300)
    x -= x.mean()
    b, c, spread = rng.normal(), rng.normal(), abs(rng.normal())
    u = rng.normal(0, spread, 20)
    y = rng.random(300) < 1 / (1 + np.exp(-c - u[g] - b * x))
    priors = {"coef": normal, "intercept": normal, "sd": half}
    model = sd.BayesianGLM("y ~ x + (1 | g)", "logistic", priors=priors, random_state=seed, **SAMPLING)
    posterior = model.fit({"y": y.astype(float), "x": x, "g": g}).posterior_
    return posterior, {"coef": [b], "intercept": c, "sd_g": [spread], "g:Intercept": u}


def overdispersed(rng, seed):
    """Intercepts by group of a negative binomial regression, by formula, in two shards of whole groups."""
    normal, half = sd.priors.normal(0, 0.5), sd.priors.half_normal(0.5)
    priors = {"coef": normal, "intercept": normal, "sd": half, "overdispersion": half}
    g = np.repeat(np.arange(20), 15)
    x = rng.standard_normal(300)
    x -= x.mean()
    b, c = rng.normal(0, 0.5), rng.normal(0, 0.5)
    spread, over = np.abs(rng.normal(0, 0.5, 2))
    u = rng.normal(0, spread, 20)
    y = rng.poisson(np.exp(c + u[g] + b * x) * rng.gamma(1 / over, over, 300))
    options = {"priors": priors, "n_shards": 2, "random_state": seed, **SAMPLING}
    model = sd.BayesianGLM("y ~ x + (1 | g)", "negative_binomial", **options)
    posterior = model.fit({"y": y, "x": x, "g": g}).posterior_
    truth = {"coef": [b], "intercept": c, "sd_g": [spread], "overdispersion": over, "g:Intercept": u}
    return posterior, truth


MODELS = {
    "logistic-shards": logistic,
    "poisson-groups-shards": counts,
    "slopes-shards": slopes,
    "logistic-groups": labels,
    "negative-binomial-shards": overdispersed,
}


def covered(posterior, truth):
    """For each name and level, which parameters lie in their central interval."""
    found = {}
    for name, value in truth.items():
        ends = {
            level: np.quantile(posterior[name], [0.5 - level / 2, 0.5 + level / 2], axis=0)
            for level in LEVELS
        }
        found[name] = {
            level: np.atleast_1d((low <= value) & (value <= high)) for level, (low, high) in ends.items()
        }
    return found


def run(name, n_sets):
    """Fit the sets of a model; returns its part of the record."""
    hits: dict = {}
    refused, warned, start = 0, 0, time.process_time()
    for seed in range(n_sets):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PosteriorWarning)
            try:
                posterior, truth = MODELS[name](np.random.default_rng(seed), seed)
            except StradaskError:
                refused += 1
                continue
        warned += any(issubclass(one.category, PosteriorWarning) for one in caught)
        for variable, levels in covered(posterior, truth).items():
            for level, inside in levels.items():
                hits.setdefault(variable, {}).setdefault(str(level), []).append(inside.mean())
    shares = {
        variable: {level: round(float(np.mean(values)), 3) for level, values in levels.items()}
        for variable, levels in hits.items()
    }
    seconds = round(time.process_time() - start, 1)
    return {"sets": n_sets, "refused": refused, "warned": warned, "cpu_seconds": seconds, "coverage": shares}


def main():
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200, help="data sets of each model")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, help="folder of coverage.json")
    given = parser.parse_args()
    path = None if given.out is None else given.out / "coverage.json"
    for name in given.models:
        found = run(name, given.sets)
        print(json.dumps({name: found}, indent=1), flush=True)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            record = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps(record | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
