"""Multinomial models in the space of the rows, against numpy, scikit-learn and the space of the columns."""

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression as Reference

from stradask.algorithms.linear.glm import choose
from stradask.algorithms.linear.glm.objective import MultinomialObjective
from stradask.algorithms.linear.glm.row_space import (
    RowSpace,
    RowVector,
    _RowProblem,
    applies,
    minimize_by_rows,
)
from stradask.algorithms.linear.glm.rows import make_rows
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.optimize.methods.excess import Excess
from stradask.algorithms.optimize.methods.lbfgs import Identity
from stradask.kernels.linear.multinomial import csc_gram


def problem(n=40, d=120, n_classes=4, *, seed=0, density=0.1, dtype=np.float64, weighted=True, **options):
    """Sparse rows whose classes depend on them, and the objective on them."""
    rng = np.random.default_rng(seed)
    X = sparse.random(n, d, density, format="csr", random_state=rng, data_rvs=rng.standard_normal)
    labels = (X @ rng.standard_normal((d, n_classes)) + rng.gumbel(size=(n, n_classes)) / 2).argmax(axis=1)
    weights = rng.uniform(0.5, 2, n) if weighted else None
    rows = make_rows(sparse.csr_array(X.astype(dtype)), labels, weights)
    settings = {"scale": 1 / n, "l2": 0.02, "fit_intercept": True} | options
    return MultinomialObjective(rows, n_classes, **settings)


def drawn(space_of, *, seed=1):
    """A vector in the space of the rows, with the intercepts that there are."""
    n, K = space_of._shape
    rng = np.random.default_rng(seed)
    A, free = rng.standard_normal((n, K)), rng.standard_normal(K if space_of._intercept else 0)
    X = space_of._X.toarray().astype(np.float64)
    return RowVector(np.append(A, free), np.append(X @ (X.T @ A), free))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 20])
def test_the_kernel_gives_what_numpy_gives(dtype, width):
    rng = np.random.default_rng(0)
    X = sparse.random(30, 50, 0.2, format="csc", dtype=dtype, random_state=rng)
    R, out = rng.standard_normal((30, width)), rng.standard_normal((30, width))
    before, some = out.copy(), X[:, 11:37].toarray().astype(np.float64)
    csc_gram(X.data, X.indices, X.indptr[11:38], R, out)
    np.testing.assert_allclose(out, before + some @ (some.T @ R), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_gradient_and_products_are_those_of_the_columns(fit_intercept, weighted):
    objective = problem(fit_intercept=fit_intercept, weighted=weighted)
    rows = _RowProblem(objective)
    x, v = drawn(rows), drawn(rows, seed=2)
    w = rows.of_columns(x)
    value, gradient = rows.value_and_gradient(x)
    expected, by_columns = objective.value_and_gradient(w)
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(rows.of_columns(gradient), by_columns, rtol=1e-11, atol=1e-13)
    space = RowSpace()
    square, slope = space.dots([(gradient, gradient), (gradient, v)])
    assert square == pytest.approx(by_columns @ by_columns, rel=1e-12)
    assert slope == pytest.approx(by_columns @ rows.of_columns(v), rel=1e-12)
    assert sum(rows.squared_norms(gradient)) == pytest.approx(square, rel=1e-12)
    step = 1e-5
    ahead, behind = (
        objective.value_and_gradient(w + sign * step * rows.of_columns(v))[1] for sign in (1, -1)
    )
    bent = rows.hessian_product(x, v)
    np.testing.assert_allclose(rows.of_columns(bent), (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-7)
    assert float(space.dots([(bent, v)])[0]) == pytest.approx(rows.of_columns(bent) @ rows.of_columns(v))


@pytest.mark.parametrize("l2", [1e-4, 0.02, 3.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_classes", [3, 9])
def test_the_minimum_is_what_scipy_finds(l2, fit_intercept, n_classes):
    objective = problem(l2=l2, fit_intercept=fit_intercept, n_classes=n_classes)
    found = minimize_by_rows(objective, np.zeros(objective.n_parameters), tol_decrease=1e-11)
    rows = objective.rows
    X = sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape).toarray()
    X = np.hstack([X, np.ones((40, 1))])[:, : 120 + fit_intercept]
    labels, weights = rows.y, rows.weights

    def plain(w):
        W = w.reshape(-1, n_classes)
        Z = X @ W
        losses = logsumexp(Z, axis=1) - Z[np.arange(40), labels]
        slopes = weights[:, None] * (softmax(Z, axis=1) - np.eye(n_classes)[labels]) / 40
        penalty = np.vstack([W[:120], 0 * W[120:]])
        return weights @ losses / 40 + l2 / 2 * np.sum(W[:120] ** 2), (X.T @ slopes + l2 * penalty).ravel()

    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 30}
    best = optimize.minimize(plain, np.zeros(found.x.size), jac=True, method="L-BFGS-B", options=options)
    assert found.success
    assert plain(found.x)[0] == pytest.approx(best.fun, rel=1e-8)
    assert found.fun == pytest.approx(plain(found.x)[0], rel=1e-12)
    np.testing.assert_allclose(found.jac, plain(found.x)[1], atol=1e-12)


def text(n=120, d=600, n_classes=5, seed=3):
    """Rows as those of documents, labelled."""
    rng = np.random.default_rng(seed)
    X = sparse.random(n, d, 0.05, format="csr", random_state=rng)
    return X, (X @ rng.standard_normal((d, n_classes)) + rng.gumbel(size=(n, n_classes)) / 3).argmax(axis=1)


@pytest.mark.parametrize("C", [0.1, 1, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_estimator_takes_it_and_is_scikit_learns(C, dtype, monkeypatch):
    X, y = text()
    taken = []
    monkeypatch.setattr(
        choose, "minimize_by_rows", lambda *a, **k: taken.append(1) or minimize_by_rows(*a, **k)
    )
    model = LogisticRegression(C=C, tol=1e-10).fit(X.astype(dtype), y)
    assert taken == [1]
    assert model.coef_.dtype == dtype
    reference = Reference(C=C, solver="newton-cg", tol=1e-10, max_iter=1000).fit(X, y)

    def value(m):
        return C * -np.log(m.predict_proba(X)[np.arange(len(y)), y]).sum() + np.sum(m.coef_**2) / 2

    rtol = 1e-8 if dtype == np.float64 else 3e-6
    assert value(model) == pytest.approx(value(reference), rel=rtol)
    assert model.history_["objective"][-1] == pytest.approx(value(reference), rel=rtol)


def test_bits_do_not_depend_on_threads(monkeypatch):
    objective = problem(300, 2000, 6, density=0.05)
    rows = _RowProblem(objective)
    assert len(rows._columns) > 3  # pieces to be shared out
    several = problem(300, 2000, 6, density=0.05, n_jobs=3)
    assert several._threads == 3
    x0 = np.zeros(objective.n_parameters)
    one, three = (minimize_by_rows(f, x0, tol_decrease=1e-9) for f in (objective, several))
    assert one.x.tobytes() == three.x.tobytes()


def test_where_it_is_slow_the_diagonal_goes_on(monkeypatch):
    objective = problem(60, 900, 3, density=0.05, l2=1e-3)
    monkeypatch.setattr(choose, "_ROW_SPACE_PATIENCE", 3)
    steps = []
    x0 = np.zeros(objective.n_parameters)
    result, _ = choose.minimise_multinomial(
        objective, x0, tol=1e-10, callback=lambda step: steps.append(step.fun)
    )
    assert result.success
    assert result.nit == len(steps) > 3
    assert np.all(np.diff(steps) <= 0)  # from where the rows ended
    best = minimize_by_rows(objective, x0, tol_decrease=1e-12)
    assert result.fun == pytest.approx(best.fun, rel=1e-9)


def test_who_is_told_of_a_step_can_ask_for_its_model():
    X, y = text()
    told = []
    model = LogisticRegression(tol=1e-4).fit(
        X, y, callback=lambda info: told.append(info.snapshot()) and None
    )
    assert len(told) == model.n_iter_ > 2
    np.testing.assert_array_equal(told[-1].coef_, model.coef_)
    assert np.abs(told[0].coef_ - model.coef_).max() > 1e-3


def test_what_it_does_not_take():
    objective = problem()
    x0 = np.zeros(objective.n_parameters)
    assert applies(objective, x0)
    assert applies(objective, np.append(x0[:-4], np.ones(4)))  # intercepts may begin anywhere
    assert not applies(objective, np.append(1.0, x0[1:]))
    assert not applies(problem(l2=0.0), x0)
    assert not applies(problem(n=61), x0)
    dense = MultinomialObjective(make_rows(np.ones((4, 9)), np.array([0, 1, 2, 0])), 3, l2=1.0)
    assert not applies(dense, np.zeros(dense.n_parameters))


@pytest.mark.parametrize("factor", [100.0, 1e4, 1e6])
def test_a_column_far_larger_than_the_others(factor):
    """Its square swallows the others' digits in products over rows, beyond some factor."""
    X, y = text()
    X = sparse.csr_array(X @ sparse.diags_array(np.where(np.arange(600) == 3, factor, 1.0)))
    rows = make_rows(X, y)
    objective = MultinomialObjective(rows, 5, scale=1 / 120, l2=1 / 120)
    x0 = np.zeros(objective.n_parameters)
    assert applies(objective, x0) == (factor < 1e3)
    result, _ = choose.minimise_multinomial(objective, x0, tol=1e-8)
    scaled = objective.rows.diagonal(np.full(120, 1 / 120))[:-1] * 0.2 + 1 / 120
    root = np.append(np.repeat(scaled**-0.5, 5), np.ones(5))

    def in_one_scale(u):
        value, gradient = objective.value_and_gradient(root * u)
        return value, root * gradient

    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 50}
    best = optimize.minimize(in_one_scale, x0, jac=True, method="L-BFGS-B", options=options)
    assert result.success
    assert result.fun == pytest.approx(best.fun, rel=1e-7)


def test_warm_starts_go_on_in_the_space_of_the_columns():
    X, y = text()
    model = LogisticRegression(C=1.0, tol=1e-9, warm_start=True).fit(X, y)
    again = LogisticRegression(C=2.0, tol=1e-9).fit(X, y)
    model.set_params(C=2.0).fit(X, y)
    assert model.history_["objective"][-1] == pytest.approx(again.history_["objective"][-1], rel=1e-8)


def test_the_excess_is_the_newton_decrement():
    objective = problem(l2=1e-3, fit_intercept=False)
    rows, step = _RowProblem(objective), 1e-5
    x = rows.vector(np.zeros(objective.n_parameters))
    value, gradient = rows.value_and_gradient(x)
    w, g = rows.of_columns(x), rows.of_columns(gradient)
    moved = [objective.value_and_gradient(w + step * e)[1] for e in np.eye(len(w))]
    decrement = g @ np.linalg.solve(np.array(moved) - g, g) * step / 2
    excess = Excess(rows, 5 * decrement / value, lambda x: Identity(), False, RowSpace())
    assert g @ g / (2 * objective.l2) > 5 * decrement  # so that strong convexity does not tell it
    assert excess(x, value, gradient) == pytest.approx(1 / 5, rel=0.1)


def test_a_callback_ends_it():
    X, y = text()
    model = LogisticRegression(tol=1e-9).fit(X, y, callback=lambda info: info.round == 2)
    assert model.n_iter_ == 2
    assert np.isfinite(model.coef_).all()
    assert model.coef_.any()
