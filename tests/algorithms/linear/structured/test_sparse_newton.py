"""Newton's method on the entries of columns: optimality conditions from the data, and gaps."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.linear.structured.solving import solver
from stradask.algorithms.linear.structured.solving.column_descent import ColumnDescent


def problem(loss, n=300, p=120, seed=0, alike=0.0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, p), density=0.1, rng=rng, data_sampler=rng.standard_normal).toarray()
    if alike:  # columns that are nearly equal
        X = X[:, np.arange(p) % 6] * (1 + alike * rng.standard_normal((n, p)))
    f = X @ (rng.standard_normal(p) * (rng.random(p) < 0.2)) + 0.3
    y = {
        "squared": f + rng.standard_normal(n),
        "huber": f + rng.standard_t(2, n),
        "logistic": np.where(rng.random(n) < 1 / (1 + np.exp(-f)), 1, 0),
        "poisson": rng.poisson(np.exp(np.clip(f, -3, 3))).astype(float),
    }[loss]
    return sparse.csc_array(X), y, rng.uniform(0.2, 2, n), 0.3 * rng.standard_normal(n)


def slopes(loss, y, f):
    if loss == "huber":
        return np.clip(f - y, -1.35, 1.35)
    return {"squared": f, "logistic": 1 / (1 + np.exp(-f)), "poisson": np.exp(f)}[loss] - y


def violations(model, loss, X, y, weights, offset, alpha, ratio, factors, positive):
    """How far zero is from the subgradients, by columns; and the mean slope."""
    b = model.coef_
    u = weights / weights.sum() * slopes(loss, y, X @ b + model.intercept_ + offset)
    v = -(X.T @ u)
    finite = np.isfinite(factors)
    assert not b[~finite].any()
    strength, b, v = alpha * factors[finite], b[finite], v[finite]
    v -= strength * (1 - ratio) * b
    sizes = np.maximum(v - strength * ratio, 0) if positive else np.maximum(np.abs(v) - strength * ratio, 0)
    return np.where(b != 0, np.abs(v - strength * ratio * np.sign(b)), sizes), u.sum()


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "huber"])
@pytest.mark.parametrize(
    ("intercept", "ratio", "positive", "alike"),
    [(True, 1.0, False, 0), (False, 0.5, False, 0), (True, 0.7, True, 0), (True, 1.0, False, 0.05)],
)
def test_subgradients_contain_zero(loss, intercept, ratio, positive, alike):
    X, y, weights, offset = problem(loss, alike=alike)
    factors = np.ones(120)
    factors[:3] = 0.0, np.inf, 2.0
    for alpha in (0.05, 0.002):
        model = sd.SparseGLM(
            loss,
            penalty="elastic-net",
            alpha=alpha,
            l1_ratio=ratio,
            fit_intercept=intercept,
            positive=positive,
            penalty_factor=factors,
            tol=1e-11,
        ).fit(X, y, weights, offset=offset)
        apart, mean = violations(model, loss, X, y, weights, offset, alpha, ratio, factors, positive)
        assert apart.max() < 2e-5
        assert abs(mean) < 1e-5 or not intercept


@pytest.mark.parametrize(
    ("loss", "n", "p", "alpha"),
    [("squared", 250, 9000, 0.05), ("logistic", 400, 700, 5e-3), ("huber", 400, 700, 5e-3)],
)
def test_many_dense_columns_are_solved_without_products(monkeypatch, loss, n, p, alpha):
    minimise, descend, forms = solver.sparse_newton.minimise, ColumnDescent.minimise, []
    monkeypatch.setattr(
        solver.sparse_newton, "minimise", lambda X, *rest: forms.append(type(X)) or minimise(X, *rest)
    )
    monkeypatch.setattr(ColumnDescent, "minimise", lambda *args: forms.append(np.ndarray) or descend(*args))
    X, y, *_ = problem(loss, n=n, p=p, seed=2)
    X = X.toarray() + np.random.default_rng(0).standard_normal((n, p))
    model = sd.SparseGLM(loss, alpha=alpha, tol=1e-11).fit(X, y)
    apart, mean = violations(model, loss, X, y, np.ones(n), 0.0, alpha, 1.0, np.ones(p), False)
    assert forms.count(np.ndarray) > 0
    assert apart.max() < 2e-5
    assert abs(mean) < 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gap_bounds_the_excess(dtype):
    X, y, *_ = problem("logistic", n=200, p=400, seed=1)
    X = X.astype(dtype)
    best = sd.SparseGLM("logistic", alpha=0.004, tol=1e-10).fit(X, y)
    for tol in (1e-1, 1e-3, 1e-6):
        model = sd.SparseGLM("logistic", alpha=0.004, tol=tol).fit(X, y)
        assert model.objective_ - best.objective_ <= model.dual_gap_ + 1e-9
    np.testing.assert_allclose(
        best.coef_,
        sd.SparseGLM("logistic", alpha=0.004, tol=1e-10).fit(X.toarray(), y).coef_,
        atol=1e-4,
    )


def test_where_descent_is_slow_other_methods_go_on(monkeypatch):
    X, y, *_ = problem("squared", alike=1e-3)
    minimise, answers = solver.sparse_newton.minimise, []

    def slow(*args):
        answers.append(minimise(*args)[0])
        return answers[-1], False

    monkeypatch.setattr(solver.sparse_newton, "minimise", slow)
    model = sd.SparseGLM("squared", alpha=1e-3, tol=1e-9).fit(X, y)
    assert len(answers) <= 2  # the model without columns, and one working set
    assert model.stopped_by_ == "duality gap"
    apart, _ = violations(model, "squared", X, y, np.ones(300), 0.0, 1e-3, 1.0, np.ones(120), False)
    assert apart.max() < 1e-5
