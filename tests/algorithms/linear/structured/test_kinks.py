"""Losses with a kink, the square-root lasso, and powers of coefficients, against other solvers."""

from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.svm import LinearSVC

import stradask as sd
from stradask.kernels.linear import blocks

RNG = np.random.default_rng(0)
N, P = 120, 15
X = RNG.standard_normal((N, P))
Y = X[:, :4] @ [2.0, -1, 1, 0.5] + RNG.standard_normal(N)
LABELS = (Y > 0).astype(float)


def least_by_linear_program(alpha, intercept):
    """The least mean hinge loss plus alpha |b|_1."""
    S = (2 * LABELS - 1)[:, None]
    cost = np.concatenate([np.full(2 * P, alpha), [0, 0], np.full(N, 1 / N)])
    A = np.hstack([-S * X, S * X, -S * intercept, S * intercept, -np.eye(N)])
    return optimize.linprog(cost, A_ub=A, b_ub=-np.ones(N), method="highs").fun


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.02, 0.1])
def test_the_hinge_loss_with_l1_is_a_linear_program(alpha, intercept):
    model = sd.SparseGLM("hinge", alpha=alpha, fit_intercept=intercept, tol=1e-7, max_iter=1000).fit(
        X, LABELS
    )
    assert model.stopped_by_ == "duality gap"
    excess = model.objective_ - least_by_linear_program(alpha, intercept)
    assert -1e-9 <= excess <= model.dual_gap_ + 1e-9
    assert set(np.unique(model.predict(X))) == {0.0, 1.0}
    assert (model.predict(X) == LABELS).mean() > 0.8


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
def test_the_hinge_loss_with_a_squared_penalty_is_a_support_vector_machine(form):
    C, some = 0.05, form(X * (RNG.uniform(size=X.shape) < 0.3))
    peer = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0)
    peer.fit(some, LABELS)
    options = {"l1_ratio": 0.0, "alpha": 1 / (C * N), "fit_intercept": False, "tol": 1e-11}
    model = sd.SparseGLM("hinge", "elastic-net", **options).fit(some, LABELS)
    assert model.stopped_by_ == "duality gap"
    np.testing.assert_allclose(model.coef_, peer.coef_[0], atol=1e-6)
    with pytest.raises(sd.errors.DataError, match="hinge loss are 0 and 1"):
        sd.SparseGLM("hinge").fit(X, Y)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
def test_a_square_root_lasso_is_the_lasso_of_its_residuals_size(form, intercept):
    weights, offset = RNG.uniform(0.5, 2, N), 0.3 * RNG.standard_normal(N)
    model = sd.SparseGLM("square-root", alpha=0.1, fit_intercept=intercept, tol=1e-12)
    model.fit(form(X + 1), Y, weights, offset=offset)
    residuals = Y - offset - (X + 1) @ model.coef_ - model.intercept_
    size = np.sqrt(np.average(residuals**2, weights=weights))
    assert model.stopped_by_ == "duality gap"
    assert model.objective_ == pytest.approx(size + 0.1 * np.abs(model.coef_).sum(), rel=1e-12)
    peer = sd.Lasso(alpha=0.1 * size, fit_intercept=intercept, tol=1e-13)
    peer.fit(X + 1, Y - offset, weights)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)


def test_the_strength_of_a_square_root_lasso_knows_no_units():
    options = {"alpha": 0.15, "tol": 1e-10}
    one, large = (sd.SparseGLM("square-root", **options).fit(X, scale * Y) for scale in (1, 1000))
    np.testing.assert_allclose(large.coef_, 1000 * one.coef_, atol=1e-3)
    zero = sd.SparseGLM("square-root", alpha=1.0001 * one.alpha_max(X, Y)).fit(X, Y)
    assert not zero.coef_.any()
    some = sd.SparseGLM("square-root", alpha=0.98 * one.alpha_max(X, Y)).fit(X, Y)
    assert some.coef_.any()


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_a_square_root_lasso_of_columns_that_fit_every_row(alpha):
    few = X[:10], Y[:10]  # ten rows, fifteen columns
    model = sd.SparseGLM("square-root", alpha=alpha, tol=1e-9, fit_intercept=False).fit(*few)
    assert model.stopped_by_ == "duality gap"
    assert np.abs(few[1] - few[0] @ model.coef_).max() < 1e-6
    # The least l1 norm of coefficients that fit every row, by a linear program: alpha is small enough for it.
    pairs = np.hstack([few[0], -few[0]])
    least = optimize.linprog(np.full(2 * P, alpha), A_eq=pairs, b_eq=few[1], method="highs").fun
    assert -1e-9 <= model.objective_ - least <= model.dual_gap_ + 1e-9


@pytest.mark.parametrize("loss", ["quantile", "hinge", "square-root"])
def test_a_warm_start_keeps_the_smoothing(loss):
    y = LABELS if loss == "hinge" else Y
    model = sd.SparseGLM(loss, alpha=0.1, tol=1e-9, warm_start=True).fit(X, y)
    first, rounds = model.coef_, model.n_iter_
    assert model.fit(X, y).n_iter_ == 0
    np.testing.assert_array_equal(model.coef_, first)
    near = model.set_params(alpha=0.09).fit(X, y)
    assert 0 < near.n_iter_ <= rounds or loss == "square-root"
    # Other rows: what was kept does not fit them.
    other = model.fit(X[::-1] + 1, 10 * y if loss == "quantile" else y)
    cold = clone(model).set_params(warm_start=False).fit(X[::-1] + 1, 10 * y if loss == "quantile" else y)
    assert other.stopped_by_ == "duality gap"
    assert other.objective_ == pytest.approx(cold.objective_, rel=1e-7)
    few = model.fit(X[:50], y[:50])  # nor other numbers of them
    assert few.stopped_by_ == "duality gap"


@pytest.mark.parametrize("penalty", ["mcp", "scad"])
def test_a_kink_is_sharp_also_with_a_penalty_that_is_not_convex(penalty):
    model = sd.SparseGLM("quantile", penalty, alpha=0.2, tol=1e-5, max_iter=500).fit(X, Y)
    chosen = np.flatnonzero(model.coef_)
    assert (np.abs(Y - model.predict(X)) < 1e-3).sum() >= len(chosen)  # the median goes through rows
    peer = sd.QuantileRegressor(alpha=0, tol=1e-6).fit(X[:, chosen], Y)
    if np.abs(model.coef_[chosen]).min() > 3.7 * 0.2:  # not shrunk
        np.testing.assert_allclose(model.coef_[chosen], peer.coef_, atol=1e-2)


@pytest.mark.parametrize("q", [0.2, 0.5, 2 / 3, 0.9])
@pytest.mark.parametrize("step", [0.3, 1.0, 4.0])
def test_the_step_of_a_power_minimises(q, step):
    grid = np.linspace(0, 12, 60_001)
    for size in np.linspace(0.05, 10, 41):
        own = blocks.shrunk(size, step, 1.3, q, 4)
        values = (grid - size) ** 2 / (2 * step) + 1.3 * grid**q
        mine = (own - size) ** 2 / (2 * step) + 1.3 * own**q
        assert mine <= values.min() + 1e-7
    sizes, h = np.array([0.4, 1.0, 2.0, 6.0]), 1e-5
    value, slope, bend = blocks.terms(sizes, np.full(4, 1.3), q, 4)
    up, down = 1.3 * (sizes + h) ** q, 1.3 * (sizes - h) ** q
    np.testing.assert_allclose(value, 1.3 * sizes**q)
    np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(bend, (up - 2 * value + down) / h**2, rtol=1e-3, atol=1e-4)


def best_of_all_subsets(X, y, alpha, q):
    """The least mean squared loss plus alpha |b|^q: the best stationary point of any set of columns."""
    best = 0.5 * np.mean(y**2)
    for size in range(1, X.shape[1] + 1):
        for chosen in map(list, combinations(range(X.shape[1]), size)):
            part = X[:, chosen]

            def objective(b, part=part):
                return 0.5 * np.mean((y - part @ b) ** 2) + alpha * np.sum(np.abs(b) ** q)

            start = np.linalg.lstsq(part, y, rcond=None)[0]
            best = min(best, optimize.minimize(objective, start, method="L-BFGS-B").fun)
    return best


@pytest.mark.parametrize("q", [0.3, 0.5, 0.8])
def test_powers_end_at_the_least_of_all_subsets(q):
    some = X[:, :6]
    y = Y - Y.mean()
    for alpha in (0.05, 0.3):
        model = sd.SparseGLM(penalty="lq", gamma=q, alpha=alpha, fit_intercept=False, tol=1e-9).fit(some, y)
        assert model.stopped_by_ == "kkt violation"
        assert model.objective_ <= best_of_all_subsets(some, y, alpha, q) + 1e-6


@pytest.mark.parametrize("options", [{}, {"groups": 3}, {"positive": True}])
def test_powers_are_stationary(options):
    model = sd.SparseGLM("logistic", "lq", alpha=0.02, tol=1e-8, **options).fit(X, LABELS)
    assert model.stopped_by_ == "kkt violation"
    size = options.get("groups", 1)
    f = X @ model.coef_ + model.intercept_
    V = (X.T @ (LABELS - 1 / (1 + np.exp(-f))) / N).reshape(-1, size)
    B = model.coef_.reshape(-1, size)
    norms = np.linalg.norm(B, axis=1, keepdims=True)
    there = norms[:, 0] > 0
    assert 0 < there.sum() < len(there)
    slope = 0.02 * np.sqrt(size) * 0.5 * norms[there] ** -1.5 * B[there]
    np.testing.assert_allclose(V[there], slope, atol=1e-6)
    with pytest.raises(sd.errors.DataError, match="its exponent, must be below 1"):
        sd.SparseGLM(penalty="lq", gamma=1.5).fit(X, Y)


def test_strengths_of_powers():
    model = sd.SparseGLM(penalty="lq", fit_intercept=False)
    most = model.alpha_max(X, Y)
    assert not model.set_params(alpha=1.001 * most).fit(X, Y).coef_.any()
    assert model.set_params(alpha=0.9 * most).fit(X, Y).coef_.any()


def test_a_squared_penalty_alone_has_a_gap():
    from sklearn.linear_model import Ridge

    options = {"l1_ratio": 0.0, "alpha": 0.3, "tol": 1e-10}
    model = sd.SparseGLM(penalty="elastic-net", **options).fit(X, Y)
    assert model.stopped_by_ == "duality gap"
    np.testing.assert_allclose(model.coef_, Ridge(0.3 * N).fit(X, Y).coef_, atol=1e-6)
    held = sd.SparseGLM(penalty="elastic-net", positive=True, **options).fit(X, Y)
    assert held.stopped_by_ == "duality gap"
    assert held.dual_gap_ < 1e-8
    moved = optimize.minimize(
        lambda b: 0.5 * np.mean((Y - Y.mean() - (X - X.mean(axis=0)) @ b) ** 2) + 0.15 * b @ b,
        np.ones(P), method="L-BFGS-B", bounds=[(0, None)] * P, options={"ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    np.testing.assert_allclose(held.coef_, moved.x, atol=1e-5)


def test_not_negative_least_squares_stops_by_optimality():
    model = sd.SparseGLM(alpha=0, positive=True, fit_intercept=False, tol=1e-10).fit(X, Y)
    assert model.stopped_by_ == "kkt violation"
    np.testing.assert_allclose(model.coef_, optimize.nnls(X, Y)[0], atol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        sd.Lasso(0.1),
        sd.ElasticNet(0.1),
        sd.SparseGLM(alpha=0.1),
        sd.SparseGLM("poisson", alpha=0.1),
        sd.SparseGLM(penalty="mcp", alpha=0.3),
        sd.SparseLogisticRegression(0.05),
        sd.CoxRegression(0.05),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_warm_start_at_the_solution_takes_no_iterations(model):
    y = LABELS if isinstance(model, sd.SparseLogisticRegression) else np.exp(Y / 2)
    model.set_params(warm_start=True, tol=1e-8).fit(X, y)
    assert model.n_iter_ > 0
    coef = model.coef_.copy()
    model.fit(X, y)
    assert model.n_iter_ == 0
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-10)
    model.set_params(alpha=model.alpha / 2).fit(X, y)
    assert model.n_iter_ > 0


@pytest.mark.parametrize(
    ("n", "p", "form"), [(80, 8, np.asarray), (20, 60, np.asarray), (40, 30, sparse.csc_array)]
)
def test_quantiles_of_tied_weightless_and_dependent_data_are_the_linear_programs(n, p, form):
    rng = np.random.default_rng(n)
    x, weights, offset = rng.standard_normal((n, p)), rng.integers(0, 3, n), rng.standard_normal(n)
    x[:, 1], x[:, 2], y = x[:, 0], 3.0, np.round(2 * x[:, 0] + rng.standard_normal(n)) + offset
    model = sd.QuantileRegressor(0.3, alpha=0.01, positive=n == 80, tol=1e-9)
    model.fit(form(x), y, weights, offset=offset)
    share = weights / weights.sum()
    cost = np.concatenate([np.full(2 * p, 0.01), [0, 0], 0.3 * share, 0.7 * share])
    pairs = np.hstack([x, -x, np.ones((n, 1)), -np.ones((n, 1)), np.eye(n), -np.eye(n)])
    bounds = [(0, None)] * p + [(0, 0 if n == 80 else None)] * p + [(0, None)] * (2 + 2 * n)
    least = optimize.linprog(cost, A_eq=pairs, b_eq=y - offset, bounds=bounds, method="highs").fun
    assert model.stopped_by_ == "duality gap"
    assert -1e-9 <= model.objective_ - least <= model.dual_gap_ + 1e-9
    residuals = y - offset - x @ model.coef_ - model.intercept_
    again = share @ np.maximum(0.3 * residuals, -0.7 * residuals) + 0.01 * np.abs(model.coef_).sum()
    assert model.objective_ == pytest.approx(again, rel=1e-12)
