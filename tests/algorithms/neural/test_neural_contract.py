"""scikit-learn's own estimator checks over the multi-layer perceptrons, by either solver."""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

from stradask.algorithms.neural.mlp import MLPClassifier, MLPRegressor

_WHY = "minibatches are drawn from rows, of which a repeated one is several"
_MINIBATCHES = {
    "check_sample_weight_equivalence_on_dense_data": _WHY,
    "check_sample_weight_equivalence_on_sparse_data": _WHY,
}


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        (MLPClassifier, "sandblaster"),
        (MLPRegressor, "downpour"),
        pytest.param(MLPClassifier, "adam", marks=pytest.mark.slow),
        pytest.param(MLPRegressor, "sgd", marks=pytest.mark.slow),
        pytest.param(MLPClassifier, "downpour", marks=pytest.mark.slow),
        pytest.param(MLPRegressor, "sandblaster", marks=pytest.mark.slow),
    ],
)
def test_scikit_learns_checks_pass(kind, solver):
    options = {"max_iter": 20}
    if solver == "downpour":
        options = {"max_iter": 8, "batch_size": 30, "learning_rate_init": 0.1}
    elif solver != "sandblaster":
        options = {"max_iter": 40, "batch_size": 30, "learning_rate_init": 0.01 if solver == "adam" else 1e-3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, and what the checks try
        model = kind(8, solver=solver, **options)
        expected = {} if solver == "sandblaster" else _MINIBATCHES
        outcomes = check_estimator(model, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = [(o["check_name"], o["exception"]) for o in outcomes if o["status"] == "failed"]
    assert len(outcomes) > 40
    assert not failed
