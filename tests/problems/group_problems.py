"""Data of regressions with an intercept for each group."""

import numpy as np
from scipy import special

import stradask as sd

MODELS = {
    "bernoulli": sd.BayesianLogisticRegression,
    "normal": sd.BayesianLinearRegression,
    "poisson": sd.BayesianPoissonRegression,
}


def drawn_targets(family, f, rng):
    return {
        "bernoulli": lambda: np.where(rng.random(len(f)) < special.expit(f), 1.0, -1.0),
        "normal": lambda: f + 0.5 * rng.standard_normal(len(f)),
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "negative_binomial": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(f))).astype(float),
    }[family]()


def group_data(family, n, G, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    X, numbers = rng.standard_normal((n, 2)), np.concatenate([np.arange(G), rng.integers(0, G, n - G)])
    u = rng.normal(0, spread, G)
    y = drawn_targets(family, X @ [1.0, -0.5] + 0.3 + u[numbers], rng)
    return X, y, numbers, u
