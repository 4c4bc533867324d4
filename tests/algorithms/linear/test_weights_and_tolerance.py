"""Weighted and repeated rows give predictions that agree as far as the tolerance says."""

import numpy as np
import pytest

import stradask as sd


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_predictions_of_weighted_and_of_repeated_rows_differ_by_the_root_of_the_tolerance(alpha, tol):
    """Least squares bends by 1 in each prediction, so that a gap bounds their mean squared error."""
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(40, 60)), rng.normal(size=40), rng.integers(1, 5, 40)
    weighted = sd.Lasso(alpha, tol=tol).fit(X, y, weights)
    repeated = sd.Lasso(alpha, tol=tol).fit(X.repeat(weights, axis=0), y.repeat(weights))
    apart = weights @ (weighted.predict(X) - repeated.predict(X)) ** 2 / weights.sum()
    assert np.sqrt(apart) <= 2 * np.sqrt(tol * np.cov(y, aweights=weights, ddof=0))
