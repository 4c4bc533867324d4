"""Multi-layer perceptrons: gradients by finite differences, scikit-learn's objective, both solvers, files."""

import os
import signal
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import neural_network
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from stradask.algorithms.neural.mlp import MLPClassifier, MLPRegressor
from stradask.algorithms.neural.network import Network
from stradask.errors import DataError, InterruptedFitWarning

ACTIVATIONS = ("relu", "tanh", "logistic", "identity")


# The network ---------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 5), max_size=3),
    n_features=st.integers(1, 4),
    activation=st.sampled_from(ACTIVATIONS),
    loss=st.sampled_from(["squared", "softmax", "logistic"]),
    n=st.integers(1, 6),
    is_sparse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gradients_are_finite_differences(hidden, n_features, activation, loss, n, is_sparse, seed):
    rng = np.random.default_rng(seed)
    n_outputs = 1 if loss == "logistic" else rng.integers(2, 4)
    network = Network((n_features, *hidden, n_outputs), activation, loss, 0.3, 11)
    X = rng.standard_normal((n, n_features))
    y = rng.standard_normal((n, n_outputs)) if loss == "squared" else rng.integers(max(2, n_outputs), size=n)
    rows = (sparse.csr_array(X) if is_sparse else X), y
    w = rng.standard_normal(network.n_parameters)
    _, gradient = network.loss(rows, w)
    for j in rng.choice(len(w), min(len(w), 8), replace=False):
        step = np.zeros(len(w))
        step[j] = 1e-6
        slopes = [
            (network.loss(rows, w + s)[0] - network.loss(rows, w - s)[0]) / 2e-6 for s in (step, step / 2)
        ]
        slopes[1] *= 2
        if abs(slopes[0] - slopes[1]) < 1e-6 * (1 + abs(slopes[0])):  # else a kink of relu is within the step
            assert gradient[j] == pytest.approx(slopes[0], rel=1e-5, abs=1e-6)


def test_the_gradient_is_not_all_kinks():
    """The check above skips kinks: here is a point far from any."""
    network = Network((1, 1, 1), "relu", "squared", 0.0, 1)
    w = np.array([2.0, 1.0, 3.0, 0.5])  # relu(2 x + 1) 3 + 0.5
    value, gradient = network.loss((np.array([[1.0]]), np.array([[0.0]])), w)
    assert value == 0.5 * 9.5**2
    assert gradient.tolist() == [9.5 * 3, 9.5 * 3, 9.5 * 3, 9.5]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_loss_and_probabilities_are_those_of_scikit_learn(n_classes, activation):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 4)), np.arange(50) % n_classes
    peer = neural_network.MLPClassifier((6, 5), activation=activation, alpha=0.7, max_iter=1, solver="lbfgs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer.fit(X, y)
    loss = "logistic" if n_classes == 2 else "softmax"
    network = Network((4, 6, 5, 1 if n_classes == 2 else 3), activation, loss, 0.7, 50)
    pairs = zip(peer.coefs_, peer.intercepts_, strict=True)
    w = np.concatenate([part.ravel() for pair in pairs for part in pair])
    output = network.output(X, w)
    assert network.probabilities(output) == pytest.approx(peer.predict_proba(X), rel=1e-12)
    assert np.exp(network.log_probabilities(output)) == pytest.approx(peer.predict_proba(X), rel=1e-12)
    penalty = 0.7 / 2 * sum((W**2).sum() for W in peer.coefs_)
    likelihood = -np.log(peer.predict_proba(X)[np.arange(50), y]).sum()
    assert network.loss((X, y), w)[0] == pytest.approx(likelihood + penalty, rel=1e-12)


def test_parts_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)), rng.integers(3, size=30)
    network = Network((4, 6, 3), "tanh", "softmax", 0.7, 30)
    w = network.start(0, np.float64)
    whole = network.loss((X, y), w)
    parts = [network.loss((X[a:b], y[a:b]), w) for a, b in ((0, 7), (7, 30))]
    assert sum(p[0] for p in parts) == pytest.approx(whole[0], rel=1e-12)
    assert sum(p[1] for p in parts) == pytest.approx(whole[1], rel=1e-12)


def test_huge_outputs_overflow_nothing():
    network = Network((1, 3), "relu", "softmax", 0.0, 1)
    for loss, y in (("softmax", np.array([0, 2])), ("logistic", np.array([1, 0]))):
        network = Network((1, 3 if loss == "softmax" else 1), "relu", loss, 0.0, 1)
        w = np.full(network.n_parameters, 0.0)
        w[0] = 1e4
        value, gradient = network.loss((np.array([[1.0], [1.0]]), y), w)
        assert value == 1e4
        assert np.isfinite(gradient).all()


# The fits --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def test_without_hidden_layers_it_is_ridge():
    """The one case with a closed form."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    y = (
        X @ np.array([[1.0, 0.0], [-2.0, 1.0], [0.5, 0.5], [0.0, 3.0]])
        + 0.1 * rng.standard_normal((80, 2))
        + 2
    )
    model = MLPRegressor((), solver="sandblaster", alpha=3.0, tol=1e-10, random_state=0).fit(X, y)
    want = Ridge(3.0).fit(X, y)
    assert model.coefs_[0] == pytest.approx(want.coef_.T, rel=1e-6)
    assert model.intercepts_[0] == pytest.approx(want.intercept_, rel=1e-6)
    assert model.predict(X).shape == (80, 2)
    penalised = 0.5 * ((y - want.predict(X)) ** 2).sum() + 1.5 * (want.coef_**2).sum()
    assert model.loss_ == pytest.approx(penalised / 80, rel=1e-9)


@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
def test_digits_are_learned(digits, solver):
    X, y = digits
    model = MLPClassifier(50, solver=solver, max_iter=60, tol=1e-3, batch_size=50, random_state=0)
    model.fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.9
    assert model.score(X[:1200], y[:1200]) > 0.98
    assert len(model.loss_curve_) == model.n_iter_
    assert model.loss_ == model.loss_curve_[-1]
    assert model.t_ > 1200
    assert (model.n_layers_, model.n_outputs_, model.out_activation_) == (3, 10, "softmax")
    assert [W.shape for W in model.coefs_] == [(64, 50), (50, 10)]
    assert [b.shape for b in model.intercepts_] == [(50,), (10,)]
    # What the curve shows is the objective that is documented.
    if solver == "sandblaster":
        chosen = model.predict_log_proba(X[:1200])[np.arange(1200), y[:1200]]
        penalty = 1e-4 / 2 * sum((W**2).sum() for W in model.coefs_)
        assert model.loss_ == pytest.approx((penalty - chosen.sum()) / 1200, rel=1e-9)


@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
def test_two_classes_with_names_and_sparse_float32(solver):
    X, y = load_breast_cancer(return_X_y=True)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    names = np.array(["ill", "well"])[y]
    options = {"solver": solver, "max_iter": 30, "tol": 1e-2, "random_state": 0}
    dense = MLPClassifier(8, **options).fit(X, names)
    assert dense.score(X, names) > 0.97
    assert dense.out_activation_ == "logistic"
    assert {part.dtype for part in dense.coefs_ + dense.intercepts_} == {np.dtype(np.float32)}
    assert dense.predict_proba(X).dtype == np.float32
    thin = MLPClassifier(8, **options).fit(sparse.csr_array(X), names)
    assert thin.predict_proba(sparse.csc_array(X)) == pytest.approx(dense.predict_proba(X), abs=2e-2)


@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_early_stopping_keeps_the_best(digits, solver, kind):
    X, y = digits
    model = kind(
        20,
        solver=solver,
        early_stopping=True,
        batch_size=20,
        n_iter_no_change=3,
        tol=1e-3,
        max_iter=100,
        random_state=0,
    )
    model.fit(X[:600], y[:600] if kind is MLPClassifier else y[:600] / 9.0)
    assert model.best_validation_score_ == max(model.validation_scores_)
    assert model.best_loss_ is None
    assert len(model.validation_scores_) == len(model.loss_curve_) == model.n_iter_ < 100
    assert model.best_validation_score_ > 0.6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_threads_change_no_bit(digits):
    X, y = digits
    fits = [
        MLPClassifier(10, max_iter=5, tol=0.1, random_state=3, n_jobs=n).fit(
            np.tile(X, (3, 1)), np.tile(y, 3)
        )
        for n in (1, 3)
    ]
    assert all(np.array_equal(a, b) for a, b in zip(fits[0].coefs_, fits[1].coefs_, strict=True))


def test_downpour_is_repeatable_without_staleness(digits):
    X, y = digits
    options = {"solver": "downpour", "max_iter": 2, "tol": 0.5, "n_iter_no_change": 1, "n_replicas": 3}

    def fit(seed):
        return MLPClassifier(10, **options, random_state=seed).fit(X, y).coefs_[0]

    assert np.array_equal(fit(3), fit(3))
    assert not np.array_equal(fit(3), fit(4))


def test_a_warm_start_goes_on(digits):
    X, y = digits
    options = {"solver": "sandblaster", "max_iter": 15, "warm_start": True, "tol": 0, "random_state": 0}
    model = MLPClassifier(10, **options)
    with pytest.warns(ConvergenceWarning, match="max_iter=15 steps"):
        first = model.fit(X, y).loss_
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert model.loss_curve_[0] < first
    with pytest.raises(DataError, match="goes on from layers of the shapes"):
        model.set_params(hidden_layer_sizes=11).fit(X, y)
    assert model.loss_curve_[0] < first  # a fit that fails changes nothing


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
def test_the_work_may_lie_on_dask(digits, solver):
    from distributed import LocalCluster

    X, y = digits
    options = {"solver": solver, "max_iter": 6, "tol": 0.3, "n_iter_no_change": 1, "random_state": 0}
    want = MLPClassifier(10, **options).fit(X, y)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        got = MLPClassifier(10, **options, engine=cluster.scheduler_address).fit(X, y)
    assert got.predict_proba(X) == pytest.approx(want.predict_proba(X), abs=1e-6)


def test_attributes_are_those_of_the_last_fit(digits):
    X, y = digits
    model = MLPClassifier(5, solver="downpour", early_stopping=True, max_iter=30, tol=0.2, random_state=0)
    assert model.fit(X, y).learning_rate_ > 0
    model.set_params(solver="sandblaster", early_stopping=False, tol=0.5).fit(X, y)
    for name in ("learning_rate_", "validation_scores_", "best_validation_score_"):
        assert not hasattr(model, name)
    assert model.loss_ == model.loss_curve_[-1]
    done = model.set_params(warm_start=True, tol=10.0).fit(X, y)  # no step is wanted
    assert done.n_iter_ == 0
    assert done.loss_ == pytest.approx(done.best_loss_)


# Files and bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_layer_sizes": (3, 0)}, "hidden_layer_sizes must be integers above 0"),
        ({"hidden_layer_sizes": (3, 2.5)}, "hidden_layer_sizes must be integers above 0"),
        ({"solver": "newton"}, "solver"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        (
            {"early_stopping": True, "validation_fraction": 0.001},
            "validation_fraction=0.001 of 20 rows cannot be",
        ),
        ({"learning_rate_init": 0.0}, "learning_rate_init"),
        ({"staleness": 0.5, "solver": "downpour"}, "staleness. parameter of MLPClassifier must be an int"),
        ({"engine": "cluster", "solver": "downpour"}, "engine='cluster' is unknown"),
        ({"plan": "split", "solver": "sandblaster"}, "plan='split' is of solver='sgd' and 'adam'"),
        ({"plan": [("0:", 2)], "solver": "downpour"}, "but solver='downpour': set plan='auto'"),
    ],
)
def test_what_it_refuses(digits, change, message):
    X, y = digits
    with pytest.raises(ValueError, match=message):
        MLPClassifier(**({"hidden_layer_sizes": 3} | change)).fit(X[:20], y[:20] % 3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
def test_data_too_large_for_arithmetic_are_named(solver):
    X = np.full((30, 2), 1e200) * np.arange(1, 31)[:, None]
    with pytest.raises(DataError, match="scale the columns of X"):
        MLPRegressor(3, solver=solver, activation="identity").fit(X, np.arange(30.0))


# --- weights, callbacks, Ctrl-C ---------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "softmax", "logistic"])
def test_weights_count_rows(loss):
    rng = np.random.default_rng(0)
    n_outputs = 1 if loss == "logistic" else 3
    network = Network((4, 5, n_outputs), "tanh", loss, 0.0, 1)
    X, w = rng.standard_normal((6, 4)), rng.standard_normal(network.n_parameters)
    y = rng.standard_normal((6, 3)) if loss == "squared" else rng.integers(max(2, n_outputs), size=6)
    times = np.array([1, 0, 3, 2, 1, 1])
    value, gradient = network.loss((X, y, times.astype(float)), w)
    many = np.repeat(np.arange(6), times)
    want, slope = network.loss((X[many], y[many]), w)
    assert value == pytest.approx(want)
    np.testing.assert_allclose(gradient, slope, atol=1e-12)


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_integer_weights_are_repeated_rows_with_the_same_penalty(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    y = X[:, 0] + rng.standard_normal(80)
    y = (y > 0).astype(int) if kind is MLPClassifier else y
    times = rng.integers(0, 6, 80)
    # Without hidden layers there is one minimum.
    model = kind((), solver="sandblaster", alpha=5.0, tol=1e-10, random_state=0)
    weighted = clone(model).fit(X, y, 1e-3 * times)
    share = times.sum() / np.count_nonzero(times)  # the penalty is divided by the number of rows
    repeated = clone(model).set_params(alpha=5.0 * share)
    repeated.fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.coefs_[0], repeated.coefs_[0], rtol=1e-6, atol=1e-8)
    assert weighted.loss_ == pytest.approx(repeated.loss_, rel=1e-9)


@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
@pytest.mark.parametrize("options", [{}, {"early_stopping": True}])
def test_rows_without_weight_teach_nothing(digits, solver, options):
    """Half of the labels are wrong, and have next to no weight."""
    X, y = digits
    wrong, weights = np.where(np.arange(len(y)) % 2, (y + 1) % 10, y), np.where(np.arange(len(y)) % 2, 0, 2.0)
    model = MLPClassifier(30, solver=solver, max_iter=60, tol=1e-2, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert model.fit(X, wrong, weights).score(X, y) > 0.9
        assert model.fit(X, wrong).score(X, y) < 0.9


@pytest.mark.parametrize("solver", ["sandblaster", "downpour"])
def test_callbacks_snapshots_and_control_c(digits, solver, capsys):
    X, y = digits
    seen = []

    def watch(info):
        seen.append((info.round, info.total, info.objective, info.snapshot()))
        return info.round == 3

    model = MLPClassifier(10, solver=solver, max_iter=50, random_state=0, verbose=1)
    model.fit(X, y, callback=watch)
    assert [row[:2] for row in seen] == [(1, 50), (2, 50), (3, 50)]
    assert model.n_iter_ == 3
    np.testing.assert_allclose([row[2] for row in seen], model.loss_curve_, rtol=1e-12)
    last = seen[-1][3]
    assert last.loss_curve_ == pytest.approx(model.loss_curve_)
    assert last.score(X, y) == pytest.approx(model.score(X, y), abs=0.03)
    assert "MLPClassifier" in capsys.readouterr().err

    def press(info):
        if info.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match="interrupted after [23] steps"):
        stopped = MLPClassifier(10, solver=solver, max_iter=50, random_state=0).fit(X, y, callback=press)
    assert stopped.n_iter_ in (2, 3)
    assert stopped.predict(X).shape == y.shape
    distant = MLPClassifier(10, solver="downpour", engine="tcp://nobody:1")
    with pytest.raises(DataError, match="callback with solver='downpour' needs engine='local'"):
        distant.fit(X, y, callback=watch)


# Synchronous minibatches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_plans_of_minibatches_change_no_bit(digits, solver):
    X, y = digits
    settings = {"solver": solver, "max_iter": 15, "learning_rate_init": 0.01, "random_state": 0, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = MLPClassifier((30, 20), **settings).fit(X[:1200], y[:1200])
        for options in (
            {"n_jobs": 2},
            {"plan": [("0:1", 1), ("1:", 1)]},
            {"plan": [("0:2", 2), ("2:", 1)], "n_jobs": 2},
        ):
            model = MLPClassifier((30, 20), **settings, **options).fit(X[:1200], y[:1200])
            assert all(np.array_equal(a, b) for a, b in zip(model.coefs_, one.coefs_, strict=True))
            assert model.loss_curve_ == one.loss_curve_
        peer = neural_network.MLPClassifier((30, 20), **settings).fit(X[:1200], y[:1200])
    assert one.loss_curve_[-1] < 1.1 * peer.loss_curve_[-1]
    assert one.score(X[1200:], y[1200:]) > peer.score(X[1200:], y[1200:]) - 0.02
    assert one.plan_.table().startswith("stage  layers  replicas")
    one.set_params(solver="sandblaster", max_iter=1, tol=1.0).fit(X[:100], y[:100])
    for name in ("plan_", "timeline_"):  # not those of the fit before
        with pytest.raises(AttributeError, match=f"there is no {name}"):
            getattr(one, name)


def test_a_full_batch_step_is_the_gradient_of_the_objective():
    """One minibatch of all rows, sparse and weighted: a step of descent by the network's own gradient."""
    rng = np.random.default_rng(0)
    X, y = sparse.random_array((60, 8), density=0.3, rng=rng, format="csr"), np.arange(60) % 3
    weights = rng.random(60) + 0.5
    settings = {"solver": "sgd", "momentum": 0.0, "alpha": 0.5, "batch_size": 60, "random_state": 0}
    with pytest.warns(ConvergenceWarning):
        model = MLPClassifier((6,), max_iter=1, learning_rate_init=0.1, **settings).fit(X, y, weights)
    with pytest.warns(ConvergenceWarning):
        start = MLPClassifier((6,), max_iter=1, learning_rate_init=1e-300, **settings).fit(X, y, weights)
    w = [
        np.concatenate([p.ravel() for pair in zip(m.coefs_, m.intercepts_, strict=True) for p in pair])
        for m in (start, model)
    ]
    network = Network((8, 6, 3), "relu", "softmax", 0.5, 60)
    value, gradient = network.loss((X, y, weights / weights.mean()), w[0])
    assert w[1] == pytest.approx(w[0] - 0.1 * gradient / 60, rel=1e-9)
    assert model.loss_ == pytest.approx(value / 60, rel=1e-12)


def test_minibatches_stop_in_time(digits):
    X, y = digits
    model = MLPClassifier(
        20, solver="adam", early_stopping=True, learning_rate_init=0.02, random_state=0
    ).fit(X, y)
    assert model.n_iter_ < 200
    assert model.best_validation_score_ == max(model.validation_scores_) > 0.9
    settled = MLPClassifier(20, solver="adam", tol=0.05, n_iter_no_change=2, random_state=0).fit(X, y)
    assert settled.n_iter_ < 100
    assert all(a - b < 0.05 for a, b in zip(settled.loss_curve_[-3:], settled.loss_curve_[-2:], strict=False))


@pytest.mark.parametrize(("scale", "max_iter"), [(20, 6), (30, 2), (100, 9)])
def test_a_fit_that_diverged_is_refused_also_where_numbers_are_finite(scale, max_iter):
    """Else R2 is -15,000, -8e13, or worse, and the only word that of max_iter."""
    rng = np.random.default_rng(0)
    X = scale * rng.standard_normal((500, 5))
    y = X @ rng.standard_normal(5)
    model = MLPRegressor(solver="sgd", max_iter=max_iter, random_state=0)
    for seed in range(3):
        with pytest.raises(DataError, match=r"scale (the columns of )?X.*, or lower"):
            model.set_params(random_state=seed).fit(X, y)
    assert not hasattr(model, "coefs_")
    with pytest.warns(ConvergenceWarning):
        assert model.fit(X / scale, y / scale).score(X / scale, y / scale) > -1
