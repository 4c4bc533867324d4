"""Ridge by normal equations: against QR of stacked rows, and what is handed over."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

import stradask as sd
from stradask.algorithms.linear import ridge


def data(seed, n=50, p=6, n_targets=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * 10 ** rng.uniform(-2, 2, p) + rng.uniform(-5, 5, p)
    Y = (
        X @ (rng.standard_normal((p, n_targets)) / X.std(0)[:, None])
        + rng.standard_normal((n, n_targets))
        + 4
    )
    return X, Y if n_targets > 1 else Y[:, 0], rng.uniform(0, 2, n) * (rng.random(n) < 0.9)


def by_qr(X, y, w, alpha, intercept):
    """Least squares of weighted rows and of ``sqrt(alpha) I``, centred by the weighted means."""
    mean, y_mean = (np.average(part, axis=0, weights=w) * intercept for part in (X, y))
    A = np.vstack([np.sqrt(w)[:, None] * (X - mean), np.sqrt(alpha) * np.eye(X.shape[1])])
    coef = np.linalg.lstsq(A, np.append(np.sqrt(w) * (y - y_mean), np.zeros(X.shape[1])), rcond=None)[0]
    return coef, y_mean - mean @ coef


@pytest.fixture
def only_small(monkeypatch):
    """Fail where the steps of other solvers are asked."""

    def refuse(*args, **options):
        raise AssertionError("another solver was asked")

    monkeypatch.setattr(ridge.SmoothModel, "_solve", refuse)


@pytest.mark.usefixtures("only_small")
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solutions_are_those_of_qr(intercept, alpha, dtype):
    for seed in range(3):
        X, y, w = data(seed)
        X = X.astype(dtype)
        for weights in (None, w):
            model = sd.Ridge(alpha, fit_intercept=intercept).fit(X, y, weights)
            coef, c = by_qr(X.astype(float), y, np.ones(50) if weights is None else weights, alpha, intercept)
            scale = np.abs(coef * X.std(0)).max()
            rtol = 1e-7 if dtype == np.float64 else 1e-3
            np.testing.assert_allclose(model.coef_ * X.std(0), coef * X.std(0), atol=rtol * scale)
            assert model.intercept_ == pytest.approx(c, rel=1e-3, abs=1e-2) or not intercept
            assert model.coef_.dtype == dtype
            assert model.solver_ == "newton"
            r = y - X.astype(float) @ coef - c
            objective = (np.ones(50) if weights is None else weights) @ r**2 + alpha * coef @ coef
            assert model.history_["objective"][-1] == pytest.approx(objective, rel=1e-6)
            assert len(model.history_["round"]) == model.n_iter_


@pytest.mark.usefixtures("only_small")
def test_targets_have_their_own_penalties():
    X, Y, w = data(3, n_targets=3)
    model = sd.Ridge([0.1, 10, 0.1]).fit(X, Y, w)
    theirs = linear_model.Ridge([0.1, 10, 0.1], solver="cholesky").fit(X, Y, w)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, rtol=1e-6)
    assert len(model.n_iter_) == 3


@pytest.mark.parametrize("options", [{}, {"solver": "sandblaster"}, {"fit_intercept": False}])
def test_one_target_as_a_column_has_the_shapes_of_scikit_learn(options):
    X, y, _ = data(4)
    model = sd.Ridge(**options).fit(X, y[:, None])
    theirs = linear_model.Ridge(fit_intercept=model.fit_intercept).fit(X, y[:, None])
    assert model.coef_.shape == theirs.coef_.shape
    assert np.shape(model.intercept_) == np.shape(theirs.intercept_)
    assert model.predict(X).shape == theirs.predict(X).shape
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-4)
    same = model.set_params(warm_start=True).fit(X, y[:, None])
    np.testing.assert_allclose(same.coef_, theirs.coef_, rtol=1e-4)


@pytest.mark.usefixtures("only_small")
def test_one_row_constant_columns_and_columns_far_from_zero():
    model = sd.Ridge(2.0).fit([[3.0, 1.0]], [5.0])
    assert model.intercept_ == 5.0
    np.testing.assert_array_equal(model.coef_, 0)
    X, y, w = data(4)
    X[:, 1], X[:, 2] = 7.0, X[:, 2] + 1e7
    model = sd.Ridge().fit(X, y, w)
    other = sd.Ridge().fit(X - [0, 7, 1e7, 0, 0, 0], y, w)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-5, atol=1e-9)


def test_what_normal_equations_cannot_tell_is_handed_over(monkeypatch):
    calls, inner = [], ridge.SmoothModel._solve
    monkeypatch.setattr(ridge.SmoothModel, "_solve", lambda *args: calls.append(1) or inner(*args))
    X, y, _ = data(5)
    twice = np.column_stack([X, X[:, 0]])
    model = sd.Ridge(0.0).fit(twice, y)
    assert len(calls) == 1
    coef, c = by_qr(X, y, np.ones(50), 0.0, True)
    np.testing.assert_allclose(model.predict(twice), X @ coef + c, rtol=1e-5)
    sd.Ridge(0.0).fit(X, X @ np.arange(6))  # nothing is left but rounding
    sd.Ridge().fit(sparse.csr_array(X * (X > 0)), y)
    sd.Ridge(solver="sandblaster").fit(X, y)
    assert len(calls) >= 3


@pytest.mark.usefixtures("only_small")
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e4])
def test_fewer_rows_than_columns(intercept, alpha):
    X, Y, w = data(6, n=20, p=45, n_targets=2)
    for weights in (None, w):
        model = sd.Ridge(alpha, fit_intercept=intercept).fit(X, Y, weights)
        for k in range(2):
            coef, c = by_qr(X, Y[:, k], np.ones(20) if weights is None else weights, alpha, intercept)
            scale = np.abs(coef * X.std(0)).max()
            np.testing.assert_allclose(model.coef_[k] * X.std(0), coef * X.std(0), atol=1e-6 * scale)
            assert model.intercept_[k] == pytest.approx(c, rel=1e-3, abs=1e-2) if intercept else True


@pytest.mark.usefixtures("only_small")
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows(intercept, dtype):
    rng = np.random.default_rng(7)
    X = sparse.random_array((200, 30), density=0.1, format="csr", rng=rng, dtype=dtype)
    Y, w = X @ rng.standard_normal((30, 2)) + 3, rng.uniform(0, 2, 200)
    for weights in (None, w):
        model = sd.Ridge(0.5, fit_intercept=intercept).fit(X, Y, weights)
        for k in range(2):
            dense = X.toarray().astype(float)
            coef, c = by_qr(dense, Y[:, k], np.ones(200) if weights is None else weights, 0.5, intercept)
            np.testing.assert_allclose(model.coef_[k], coef, atol=1e-7 if dtype == np.float64 else 1e-3)
            c_found = np.atleast_1d(model.intercept_)[k if intercept else 0]
            assert c_found == pytest.approx(c, abs=1e-6 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("far", [0.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_more_rows_than_a_small_system_takes(far, weighted, dtype):
    rng = np.random.default_rng(8)
    X = (rng.standard_normal((250, 400)) + far * rng.standard_normal(400)).astype(dtype)
    y = (X - X.mean(0)) @ rng.standard_normal(400) + 5
    w = rng.uniform(0.5, 2, 250) if weighted else None
    model = sd.Ridge(3.0).fit(X, y, w)
    coef, _ = by_qr(X.astype(float), y, np.ones(250) if w is None else w, 3.0, True)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-6 if dtype == np.float64 else 2e-2)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_conjugate_gradients_end_at_the_tolerance(intercept, tol):
    rng = np.random.default_rng(9)
    X = sparse.random_array((3000, 2500), density=0.004, format="csr", rng=rng)
    X = X @ sparse.diags_array(np.exp(rng.standard_normal(2500)))
    y = X @ rng.standard_normal(2500) + rng.standard_normal(3000) + 2
    model = sd.Ridge(0.1, fit_intercept=intercept, tol=tol).fit(X, y)
    assert model.solver_ == "newton-cg"
    exact = linear_model.Ridge(0.1, fit_intercept=intercept, solver="sparse_cg", tol=1e-12).fit(X, y)

    def objective(m):
        r = y - X @ m.coef_ - m.intercept_
        return r @ r + 0.1 * m.coef_ @ m.coef_

    least = objective(exact)
    assert -1e-12 <= objective(model) / least - 1 <= tol
    seen = []
    watched = sd.Ridge(0.1, fit_intercept=intercept, tol=tol)
    watched.fit(X, y, callback=lambda info: seen.append(info.objective))
    assert (np.diff(seen) <= 0).all()
    assert seen[-1] == pytest.approx(objective(watched), rel=1e-6)
    ended = sd.Ridge(0.1, fit_intercept=intercept).fit(X, y, callback=lambda info: info.round == 3)
    assert ended.n_iter_ == 3


def test_parameters_that_changed_are_checked_again():
    X, y, _ = data(10)
    sd.Ridge(1).fit(X, y)
    for wrong in (True, -1, "1"):
        with pytest.raises(ValueError, match="alpha"):
            sd.Ridge(wrong).fit(X, y)
    assert sd.Ridge(1).fit(X, y).n_iter_ >= 1
