"""The three Bayesian regressions, and data of each with known coefficients."""

import numpy as np
from scipy import special

from stradask.algorithms.bayes.linear import BayesianLinearRegression
from stradask.algorithms.bayes.logistic import BayesianLogisticRegression
from stradask.algorithms.bayes.poisson import BayesianPoissonRegression

MODELS = (BayesianLogisticRegression, BayesianLinearRegression, BayesianPoissonRegression)
TRUTH = np.array([1.0, -0.5])


def regression_data(model, n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    f = X @ TRUTH + 0.3
    if model is BayesianLogisticRegression:
        return X, np.where(rng.random(n) < special.expit(f), "yes", "no")
    if model is BayesianPoissonRegression:
        return X, rng.poisson(np.exp(f))
    return X, f + 0.7 * rng.standard_normal(n)


def assert_near(a, b, error, times=4.5):
    assert (np.abs(np.asarray(a) - np.asarray(b)) < times * np.asarray(error)).all(), (a, b, error)
