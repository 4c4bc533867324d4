"""`partial_fit` of networks: minibatches over rows that come in parts."""

import copy
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import neural_network
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.errors import DataError, ModelFileError

ONLINE = {"solver": "downpour", "random_state": 0}


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])


def parts(X, y, n_parts=3):
    return list(zip(np.array_split(X, n_parts), np.array_split(y, n_parts), strict=True))


def test_a_pass_is_adagrad_over_minibatches_by_hand():
    """A linear model of one output: gradients, sums of squares and steps, written out."""
    X, _ = rows(60)
    y = X @ [1.0, -2.0, 0.5, 0.0] + 3
    model = sd.MLPRegressor((), alpha=0.3, batch_size=60, learning_rate_init=0.2, **ONLINE)
    model.partial_fit(X[:1], y[:1])
    w = np.append(model.coefs_[0][:, 0], model.intercepts_[0])
    h = model.squared_gradients_.copy()
    A = np.column_stack([X, np.ones(60)])
    for n_rows in (60, 40):
        A_part, y_part = A[:n_rows], y[:n_rows]
        g = A_part.T @ (A_part @ w - y_part) / n_rows + 0.3 / n_rows * w * [1, 1, 1, 1, 0]
        loss = 0.5 * np.mean((A_part @ w - y_part) ** 2) + 0.15 / n_rows * w[:4] @ w[:4]
        h = h + g**2
        w = w - 0.2 * g / np.sqrt(h)
        model.partial_fit(X[:n_rows], y[:n_rows])
        np.testing.assert_allclose(np.append(model.coefs_[0][:, 0], model.intercepts_[0]), w, rtol=1e-10)
        np.testing.assert_allclose(model.squared_gradients_, h, rtol=1e-10)
        assert model.loss_ == pytest.approx(loss)
    assert (model.n_iter_, model.t_, len(model.loss_curve_)) == (3, 101, 3)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_classes_are_learnt_from_parts(form):
    X, y = rows(1500)
    model = sd.MLPClassifier(20, batch_size=25, **ONLINE)
    for _ in range(15):
        for X_part, y_part in parts(X, y):
            model.partial_fit(form(X_part), y_part, classes=[2, 0, 1])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(form(X), y) > 0.9
    assert model.loss_curve_[-1] < 0.5 * model.loss_curve_[0]


@pytest.mark.parametrize("solver", ["downpour", "adam", "sgd"])
def test_what_is_saved_goes_on_as_if_nothing_had_been(tmp_path, solver):
    X, y = rows()
    first, *others = parts(X, y)
    model = sd.MLPClassifier(8, **ONLINE | {"solver": solver}).partial_fit(*first, classes=range(3))
    model.save(tmp_path / "network")
    read = sd.load(tmp_path / "network")
    for part in others:
        model.partial_fit(*part)
        read.partial_fit(*part)
    np.testing.assert_array_equal(model.coefs_[0], read.coefs_[0])
    again = clone(model).partial_fit(*first, classes=range(3))
    for part in others:
        again.partial_fit(*part)
    np.testing.assert_array_equal(model.coefs_[1], again.coefs_[1])


def test_a_pass_goes_on_from_a_fit():
    X, y = rows()
    model = sd.MLPClassifier(8, max_iter=60, tol=1e-2, **ONLINE).fit(X, y)
    score, squares, rate = model.score(X, y), model.squared_gradients_.copy(), model.learning_rate_
    model.partial_fit(X, y)
    assert model.score(X, y) > score - 0.05
    assert (model.squared_gradients_ >= squares).all()
    assert model.learning_rate_ == rate
    other = sd.MLPClassifier(8, max_iter=30, tol=1e-1, random_state=0).fit(X, y)
    other.set_params(solver="downpour").partial_fit(X, y)
    assert other.learning_rate_ > 0


def test_float32_stays_and_text_labels_are_found():
    X, y = rows()
    names = np.array(["ham", "spam", "eggs"])[y]
    model = sd.MLPClassifier(8, **ONLINE).partial_fit(X.astype(np.float32), names, classes=np.unique(names))
    model.partial_fit(X[y == 1], names[y == 1])
    assert model.coefs_[0].dtype == np.float32
    assert set(model.predict(X)) <= {"ham", "spam", "eggs"}
    weighted = clone(model)
    weighted.partial_fit(X, names, np.full(600, 2.0), classes=np.unique(names))
    plain = clone(model).partial_fit(X, names, classes=np.unique(names))
    np.testing.assert_array_equal(weighted.coefs_[0], plain.coefs_[0])


def test_without_minibatches_there_is_no_pass():
    for cls in (sd.MLPClassifier, sd.MLPRegressor):
        for solver in ("adam", "sgd", "downpour"):
            assert hasattr(cls(solver=solver), "partial_fit")
        model = cls(solver="sandblaster")
        assert not hasattr(model, "partial_fit")
        with pytest.raises(AttributeError) as caught:
            _ = model.partial_fit
        assert "'sgd' or 'downpour'" in str(caught.value.__cause__ or caught.value)


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ({}, {}, "classes: the first call of partial_fit needs them"),
        ({}, {"classes": [1]}, r"classes holds \[1\]: MLPClassifier needs two"),
        ({}, {"classes": [0, 1]}, r"y holds 2, which is none of the classes \[0, 1\]"),
        ({"early_stopping": True}, {"classes": range(3)}, "early_stopping=False"),
        ({"engine": "dask"}, {"classes": range(3)}, "engine='local'"),
        ({}, {"classes": range(3), "sample_weight": np.full(600, -1.0)}, "sample_weight"),
    ],
)
def test_a_first_call_that_cannot_be(change, arguments, said):
    model = sd.MLPClassifier(5, **ONLINE | change)
    with pytest.raises(DataError, match=said):
        model.partial_fit(*rows(), **arguments)
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "coefs_")


def test_a_later_call_that_does_not_fit_leaves_the_model():
    X, y = rows()
    model = sd.MLPClassifier(5, **ONLINE).partial_fit(X, y, classes=range(3))
    kept = model.coefs_[0].copy()
    for arguments, said in (
        ((X[:, :3], y), "features"),
        ((X, y + 1), "y holds 3"),
        ((X, np.array(["a", "b", "c"])[y]), "y holds 'a'"),
        ((X, y, None, [0, 1, 2, 3]), "leave them out"),
        ((np.full((5, 4), np.nan), y[:5]), "NaN"),
    ):
        with pytest.raises(DataError, match=said):
            model.partial_fit(*arguments)
    with pytest.raises(DataError, match="partial_fit goes on from layers"):
        model.set_params(hidden_layer_sizes=6).partial_fit(X, y)
    model.set_params(hidden_layer_sizes=5, learning_rate_init=1e300)
    with pytest.raises(DataError, match="lower learning_rate_init"), np.errstate(all="ignore"):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.coefs_[0], kept)
    two = sd.MLPRegressor(5, **ONLINE).partial_fit(X, X[:, :2])
    with pytest.raises(DataError, match=r"partial_fit goes on from layers .* fit a new estimator$"):
        two.partial_fit(X, X[:, 0])


# By synchronous minibatches --------------------------------------------------------------------------------

SCHEDULED = {
    "adam": {"solver": "adam", "learning_rate_init": 0.01},
    "momentum": {"solver": "sgd", "learning_rate_init": 0.1},
    "no momentum": {"solver": "sgd", "learning_rate_init": 0.5, "momentum": 0.0},
    "invscaling": {"solver": "sgd", "learning_rate": "invscaling", "learning_rate_init": 0.5, "power_t": 0.3},
    "adaptive": {
        "solver": "sgd", "learning_rate": "adaptive", "learning_rate_init": 1.0, "tol": 1e-3,
        "n_iter_no_change": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULED)
def test_calls_with_the_rows_of_a_fit_are_its_passes(name):
    X, y = rows()
    options = {"tol": 0.0, "n_iter_no_change": 99} | SCHEDULED[name] | {"random_state": 0}
    model = sd.MLPClassifier(8, **options)
    for _ in range(20):
        model.partial_fit(X, y, classes=None if hasattr(model, "classes_") else range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = sd.MLPClassifier(8, max_iter=20, **options).fit(X, y)
    assert model.loss_curve_ == whole.loss_curve_
    for one, other in zip(model.coefs_, whole.coefs_, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(model.optimizer_state_, whole.optimizer_state_)
    for attribute in ("learning_rate_", "t_", "n_iter_", "n_updates_", "best_loss_"):
        assert getattr(model, attribute) == getattr(whole, attribute)
    assert (model.learning_rate_ < options["learning_rate_init"]) == (name in ("invscaling", "adaptive"))


@pytest.mark.parametrize("name", SCHEDULED)
def test_passes_are_those_of_scikit_learn(name):
    """From the same layers, over calls with other rows, each one minibatch: their order is no matter."""
    X, y = rows(90)
    options = SCHEDULED[name] | ({"tol": 0.3} if name == "adaptive" else {})
    if "learning_rate" in options:  # a rate that changes is a factor of earlier gradients there
        options |= {"momentum": 0.0}
    common = {"hidden_layer_sizes": (7,), "alpha": 0.1, "random_state": 0, "epsilon": 1e-12}
    ours, peer = (kind(**common | options) for kind in (sd.MLPClassifier, neural_network.MLPClassifier))
    for model in (ours, peer):
        model.partial_fit(X, y, classes=range(3))
        model.t_, model.loss_curve_ = 0, []
    ours.coefs_ = [W.copy() for W in peer.coefs_]
    ours.intercepts_ = [b.copy() for b in peer.intercepts_]
    del ours.optimizer_state_, peer._optimizer
    peer.best_loss_, peer._no_improvement_count = np.inf, 0
    used = []
    for a, b in 6 * [(0, 30), (30, 70), (70, 90)]:
        for model in (ours, peer):
            model.partial_fit(X[a:b], y[a:b])
        assert ours.loss_ == pytest.approx(peer.loss_, rel=1e-6)
        used.append(peer._optimizer.learning_rate)
    for found, expected in zip(ours.coefs_, peer.coefs_, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    if name != "adam":  # whose rate has the corrections of the means in it there
        assert (used[-1] < used[0]) == (name in ("invscaling", "adaptive"))


def test_an_optimizer_that_does_not_fit_begins_anew():
    X, y = rows()
    model = sd.MLPClassifier(8, solver="sandblaster", max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    for solver, momentum, n_slots in (
        ("sgd", 0.0, 0),
        ("sgd", 0.9, 1),
        ("adam", 0.9, 2),
        ("downpour", 0.9, None),
    ):
        model.set_params(solver=solver, momentum=momentum).partial_fit(X, y)
        state = getattr(model, "optimizer_state_", None)
        assert (None if state is None else len(state)) == n_slots
        assert getattr(model, "n_updates_", 3) == 3
    assert model.n_iter_ == 7


@pytest.mark.cluster
def test_workers_and_snapshots_go_on_alike(address):
    X, _ = rows()
    snapshots = []
    with pytest.warns(ConvergenceWarning):
        model = sd.MLPRegressor(
            8, max_iter=2, random_state=0, engine=address, plan=[("0:1", 1), ("1:", 1)]
        ).fit(X, X[:, :2], callback=lambda info: snapshots.append(info.snapshot()))
    for one in (snapshots[1], snapshots[0].set_params(plan="auto").partial_fit(X, X[:, :2])):
        np.testing.assert_array_equal(one.coefs_[0], model.coefs_[0])
        np.testing.assert_array_equal(one.optimizer_state_, model.optimizer_state_)
        assert one.n_updates_ == model.n_updates_


def test_a_file_with_another_optimizer_is_refused(tmp_path):
    model = sd.MLPRegressor(8, random_state=0).partial_fit(*rows(90))
    state = model.optimizer_state_
    for name, wrong in (
        ("optimizer_state_", state[:, 1:]),
        ("optimizer_state_", state * np.nan),
        ("optimizer_state_", state - 1),
        ("optimizer_state_", None),
        ("n_updates_", 1.5),
    ):
        other = copy.copy(model)
        setattr(other, name, wrong)
        other.save(tmp_path / "network")
        with pytest.raises(ModelFileError, match=name):
            sd.load(tmp_path / "network")


def test_the_state_after_early_stopping_is_of_the_epoch_that_is_kept():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    options = {"batch_size": 45, "learning_rate_init": 0.1, "n_iter_no_change": 3, "random_state": 0}
    fitted = sd.MLPClassifier(8, max_iter=60, early_stopping=True, **options).fit(X, y)
    best = int(np.argmax(fitted.validation_scores_)) + 1
    assert best < fitted.n_iter_
    assert fitted.n_updates_ == best * 3  # of 135 rows
