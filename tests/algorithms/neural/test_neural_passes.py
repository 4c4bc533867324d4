"""`partial_fit` of networks: minibatches over rows that come in parts."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import stradask as sd
from stradask.errors import DataError

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


def test_what_is_saved_goes_on_as_if_nothing_had_been(tmp_path):
    X, y = rows()
    first, *others = parts(X, y)
    model = sd.MLPClassifier(8, **ONLINE).partial_fit(*first, classes=range(3))
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
    weighted = clone(model).set_params(alpha=2.0 * model.alpha)  # against which all rows weigh twice
    weighted.partial_fit(X, names, np.full(600, 2.0), classes=np.unique(names))
    plain = clone(model).partial_fit(X, names, classes=np.unique(names))
    np.testing.assert_array_equal(weighted.coefs_[0], plain.coefs_[0])


def test_without_minibatches_there_is_no_pass():
    for cls in (sd.MLPClassifier, sd.MLPRegressor):
        assert hasattr(cls(solver="downpour"), "partial_fit")
        assert not hasattr(cls(), "partial_fit")
        with pytest.raises(AttributeError) as caught:
            _ = cls().partial_fit
        assert "solver='downpour'" in str(caught.value.__cause__ or caught.value)


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
    with pytest.raises(DataError, match="partial_fit goes on from layers"):
        two.partial_fit(X, X[:, 0])
