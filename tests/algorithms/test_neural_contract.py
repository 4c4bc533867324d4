"""scikit-learn's own estimator checks over the multi-layer perceptrons, by either solver."""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

from stradask.algorithms.neural.mlp import MLPClassifier, MLPRegressor


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
def test_scikit_learns_checks_pass(kind, solver):
    options = {"max_iter": 20}
    if solver == "downpour":
        options = {"max_iter": 8, "batch_size": 30, "learning_rate_init": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, and what the checks try
        outcomes = check_estimator(kind(8, solver=solver, **options), on_fail=None, on_skip=None)
    failed = [(o["check_name"], o["exception"]) for o in outcomes if o["status"] == "failed"]
    assert len(outcomes) > 40
    assert not failed
