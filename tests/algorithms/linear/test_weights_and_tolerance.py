"""Weights are repeated rows."""

import numpy as np
import pytest
from sklearn.utils import estimator_checks

import stradask as sd


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    "model",
    [
        sd.LogisticRegression(tol=1e-12),
        sd.LogisticRegression(l1_ratio=1.0, tol=1e-12),
        sd.SparseLogisticRegression(tol=1e-12),
        sd.Lasso(0.01, tol=1e-12),
        sd.ElasticNet(0.01, tol=1e-12),
        sd.LassoCV(alphas=20, tol=1e-12),
        sd.ElasticNetCV(alphas=20, tol=1e-12),
        sd.SparseLogisticRegressionCV(alphas=20, tol=1e-12),
    ],
    ids=lambda model: type(model).__name__ + ("-l1" if getattr(model, "l1_ratio", 0) == 1 else ""),
)
def test_weights_are_repeated_rows(model, kind):
    """To 1e-7, as scikit-learn asks: two fits of a tolerance differ by what it leaves."""
    getattr(estimator_checks, f"check_sample_weight_equivalence_on_{kind}_data")(type(model).__name__, model)


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
