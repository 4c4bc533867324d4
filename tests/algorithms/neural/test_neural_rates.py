"""Minibatch solvers step by step against scikit-learn's: rates, their schedules, and when they stop."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import neural_network
from sklearn.exceptions import ConvergenceWarning

from stradask.algorithms.neural.mlp import MLPClassifier, MLPRegressor

SETTINGS = {
    "adam": {"solver": "adam", "learning_rate_init": 0.01, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-7},
    "momentum": {"solver": "sgd", "learning_rate_init": 0.05, "momentum": 0.7, "nesterovs_momentum": False},
    "nesterov": {"solver": "sgd", "learning_rate_init": 0.05},
    "invscaling": {
        "solver": "sgd", "learning_rate": "invscaling", "learning_rate_init": 0.5, "power_t": 0.3,
        "momentum": 0.0,
    },
    "adaptive": {
        "solver": "sgd", "learning_rate": "adaptive", "learning_rate_init": 2.0, "momentum": 0.0,
        "tol": 1e-3, "n_iter_no_change": 2,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 5))
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) + (X[:, 2] > 1)


def pair(kinds, X, y, max_iter, **options):
    """Both libraries' models from the same layers, by one minibatch of all rows: their order is no matter."""
    common = {"hidden_layer_sizes": (7,), "alpha": 0.1, "batch_size": len(X), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [kind(**common, **options, warm_start=True, max_iter=1).fit(X, y) for kind in kinds]
        ours, peer = models
        ours.coefs_ = [W.copy() for W in peer.coefs_]
        ours.intercepts_ = [b.copy() for b in peer.intercepts_]
        peer.loss_curve_, peer.best_loss_, peer._no_improvement_count, peer.t_ = [], np.inf, 0, 0
        return [model.set_params(max_iter=max_iter).fit(X, y) for model in models]


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_scikit_learn(data, name):
    X, y = data
    kinds = MLPClassifier, neural_network.MLPClassifier
    ours, peer = pair(kinds, X, y, 100, **({"tol": 0.0} | SETTINGS[name]))
    assert ours.n_iter_ == peer.n_iter_
    close = {"rel": 1e-4} if name == "adam" else {"rel": 1e-9}  # there epsilon stands elsewhere
    assert ours.loss_curve_ == pytest.approx(peer.loss_curve_, **close)
    for found, expected in zip(ours.coefs_, peer.coefs_, strict=True):
        assert found == pytest.approx(expected, abs=1e-4 if name == "adam" else 1e-9)
    if name == "adaptive":
        assert ours.learning_rate_ == pytest.approx(peer._optimizer.learning_rate, rel=1e-12)
        assert ours.learning_rate_ < 2
    if name == "invscaling":
        assert ours.learning_rate_ == pytest.approx(0.5 / (1 + 99 * 90) ** 0.3, rel=1e-12)


@pytest.mark.parametrize("solver", ["adam", "sgd"])
def test_they_stop_after_as_many_passes(data, solver):
    X, _ = data
    y = X[:, 0] - X[:, 1] * X[:, 2]
    kinds = MLPRegressor, neural_network.MLPRegressor
    options = {"solver": solver, "learning_rate_init": 0.01, "tol": 1e-3, "n_iter_no_change": 4}
    ours, peer = pair(kinds, X, y, 900, **options)
    assert ours.n_iter_ == peer.n_iter_ < 900


def test_an_adaptive_rate_ends_the_fit(data):
    X, y = data
    options = {
        "solver": "sgd",
        "learning_rate": "adaptive",
        "learning_rate_init": 1e-4,
        "n_iter_no_change": 1,
    }
    ours, peer = pair((MLPClassifier, neural_network.MLPClassifier), X, y, 100, tol=0.5, **options)
    assert ours.n_iter_ == peer.n_iter_ < 30
    assert ours.learning_rate_ == pytest.approx(1e-4 / 5**3)  # the first at most 1e-6


def test_adam_is_the_default_and_learns_what_the_peer_learns():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X / 16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [
            kind(max_iter=15, random_state=0).fit(X[:1200], y[:1200])
            for kind in (MLPClassifier, neural_network.MLPClassifier)
        ]
    scores = [model.score(X[1200:], y[1200:]) for model in models]
    assert models[0].get_params()["solver"] == models[1].get_params()["solver"] == "adam"
    assert scores[0] > scores[1] - 0.02
    assert scores[0] > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": "invscaling"}, "learning_rate='invscaling' is of solver='sgd', but solver='adam'"),
        ({"solver": "sgd", "learning_rate": "adaptive", "early_stopping": True}, "follows the training loss"),
        ({"learning_rate": "falling"}, "learning_rate"),
        ({"beta_1": 1.0}, "beta_1"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_rates_that_would_not_be_followed_are_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        MLPClassifier(**options).fit(*data)


def test_an_adaptive_rate_is_the_same_on_two_threads(data):
    X, y = (np.repeat(part, 4, axis=0) for part in data)
    fits = []
    for n_jobs in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            options = SETTINGS["adaptive"] | {"n_jobs": n_jobs, "batch_size": 200, "random_state": 0}
            fits.append(MLPClassifier((7,), max_iter=40, **options).fit(X, y))
    assert fits[0].learning_rate_ == fits[1].learning_rate_ < 2
    assert all(np.array_equal(a, b) for a, b in zip(fits[0].coefs_, fits[1].coefs_, strict=True))


def test_sparse_rows_may_be_cut_by_a_plan(data):
    """With more threads than one the planner times the layers on the first rows, sparse ones too."""
    X = sparse.random_array((120, 9), density=0.4, format="csr", rng=np.random.default_rng(1))
    y = (X.sum(axis=1) > 1.8).astype(int)
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for n_jobs in (1, 2):
            fits.append(MLPClassifier((6,), max_iter=5, n_jobs=n_jobs, random_state=0).fit(X, y))
    assert all(np.array_equal(a, b) for a, b in zip(fits[0].coefs_, fits[1].coefs_, strict=True))
