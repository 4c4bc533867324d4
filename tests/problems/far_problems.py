"""A problem for each smooth linear model, and a cluster, for the tests of fits on Dask."""

import contextlib
import logging

import distributed
import numpy as np
import pytest

from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge

N, P = 400, 6
MODELS = (LogisticRegression, Ridge, PoissonRegressor)


@contextlib.contextmanager
def two_workers():
    """Yield a client of two workers in this process."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def make_problem():
    """Return X, targets by model, and weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) * np.geomspace(0.1, 10, P) + 0.3
    z = X @ (rng.uniform(-1, 1, P) / np.geomspace(0.1, 10, P))
    labels = (z + rng.logistic(size=N) > 0).astype(int)
    targets = {
        LogisticRegression: labels,
        Ridge: z + rng.standard_normal(N),
        PoissonRegressor: rng.poisson(np.exp(z / 2)),
    }
    return X, targets, rng.uniform(0.2, 2, N)


def close(far, near, rtol=1e-10):
    """The objective, and coefficients as exact as that leaves them."""
    assert far.history_["objective"][-1] == pytest.approx(near.history_["objective"][-1], rel=rtol)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(far.intercept_, near.intercept_, rtol=1e-4, atol=1e-5)
    assert far.coef_.dtype == near.coef_.dtype
