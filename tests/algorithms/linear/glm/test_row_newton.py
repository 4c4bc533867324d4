"""Newton's method and L-BFGS in the space of the rows, against scipy and the space of the columns."""

import numpy as np
import pytest
from scipy import optimize, sparse

from stradask.algorithms.linear.glm import choose, row_newton
from stradask.algorithms.linear.glm.objective import LinearObjective
from stradask.algorithms.linear.glm.row_newton import applies, minimize_by_row_newton
from stradask.algorithms.linear.glm.rows import LOGISTIC, POISSON, SQUARED, make_rows
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor


def problem(loss, n=50, d=300, *, seed=0, density=0.02, dtype=np.float64, long=False, **options):
    """Thin sparse rows of a few entries a column, one of them perhaps long, and the objective on them."""
    rng = np.random.default_rng(seed)
    X = sparse.random(n, d, density, format="csr", random_state=rng, data_rvs=rng.standard_normal)
    if long:
        X.data[X.indptr[3] : X.indptr[4]] *= 30
    z = X @ rng.standard_normal(d)
    y = np.where(z + rng.logistic(size=n) > 0, 1.0, -1.0) if loss == LOGISTIC else z
    y = rng.poisson(np.exp(np.clip(z, -3, 3))).astype(float) if loss == POISSON else y
    rows = make_rows(sparse.csr_array(X.astype(dtype)), y, rng.uniform(0.5, 2, n))
    return LinearObjective(rows, loss, **({"scale": 1 / n, "l2": 0.01, "constant": 0.3} | options))


# Counts that a long row makes large, hardly penalised, take more products than it gives them.
CASES = [
    (loss, long, l2)
    for loss in (LOGISTIC, POISSON)
    for long in (False, True)
    for l2 in (1e-4, 0.01, 2.0)
    if not (loss == POISSON and long and l2 < 0.01)
]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("loss", "long", "l2"), CASES)
def test_the_minimum_is_what_scipy_finds(loss, long, l2, fit_intercept):
    objective = problem(loss, 150 if long else 50, l2=l2, fit_intercept=fit_intercept, long=long)
    x0 = np.append(np.zeros(300), [0.2] * fit_intercept)
    found = minimize_by_row_newton(objective, x0, tol_decrease=1e-11)
    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 50}
    best = optimize.minimize(objective.value_and_gradient, x0, jac=True, method="L-BFGS-B", options=options)
    value, _ = objective.value_and_gradient(found.x)
    assert found.success
    assert found.method == ("lbfgs" if long and loss == LOGISTIC else "newton-cg")
    assert found.fun == pytest.approx(value, rel=1e-12)
    assert value <= best.fun + 1e-10 * abs(best.fun)


@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("long", [False, True])
def test_the_end_is_as_near_to_the_minimum_as_it_says(long, tol, seed):
    objective = problem(LOGISTIC, 150 if long else 50, l2=1e-3, seed=seed, fit_intercept=False, long=long)
    found = minimize_by_row_newton(objective, np.zeros(300), tol_decrease=tol)
    least = minimize_by_row_newton(objective, np.zeros(300), tol_decrease=1e-12).fun
    assert found.success
    assert found.fun - least <= tol * least


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [10, 100])
def test_estimators_take_it_and_end_where_the_columns_do(dtype, C, monkeypatch):
    monkeypatch.setattr(choose, "method_for", lambda objective: "lbfgs")  # so small a Hessian is had at once
    rng = np.random.default_rng(2)
    X = sparse.random(80, 600, 0.02, format="csr", random_state=rng, dtype=dtype)
    z = X @ rng.standard_normal(600)
    taken = []
    monkeypatch.setattr(
        choose, "minimize_by_row_newton", lambda *a, **k: taken.append(1) or minimize_by_row_newton(*a, **k)
    )
    labels = LogisticRegression(C=C, tol=1e-9).fit(X, z > np.median(z))
    counts = PoissonRegressor(alpha=0.01 / C, tol=1e-9).fit(X, np.round(np.exp(z)))
    assert taken == [1, 1]
    assert labels.solver_ == counts.solver_ == "newton-cg"
    by_columns = LogisticRegression(C=C, tol=1e-9, solver="newton").fit(X, z > np.median(z))
    assert labels.coef_.dtype == dtype
    rtol = 1e-8 if dtype == np.float64 else 3e-6
    assert labels.history_["objective"][-1] == pytest.approx(by_columns.history_["objective"][-1], rel=rtol)
    again = PoissonRegressor(alpha=0.01 / C, tol=1e-9, solver="newton").fit(X, np.round(np.exp(z)))
    assert counts.history_["objective"][-1] == pytest.approx(again.history_["objective"][-1], rel=rtol)


@pytest.mark.parametrize("long", [False, True])
def test_bits_do_not_depend_on_threads(long):
    one, three = (problem(LOGISTIC, 400, 900, density=0.5, long=long, n_jobs=n_jobs) for n_jobs in (1, 3))
    assert len(three.portions) == 3
    assert three._threads == 3
    found = [minimize_by_row_newton(f, np.zeros(901), tol_decrease=1e-9).x.tobytes() for f in (one, three)]
    assert found[0] == found[1]


def test_portions_make_the_products_of_the_whole():
    objective = problem(LOGISTIC, 400, 900, density=0.5)
    assert len(objective.portions) == 3
    X, rng = objective.rows.X.toarray(), np.random.default_rng(0)
    r, v = rng.standard_normal(400), rng.standard_normal(900)
    np.testing.assert_allclose(objective.transposed(r), X.T @ r, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(objective.images(v), X @ v, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("long", [False, True])
def test_where_products_run_out_the_diagonal_goes_on(long, monkeypatch):
    objective = problem(LOGISTIC, 150 if long else 50, l2=1e-4, long=long)
    x0 = np.zeros(301)
    best = minimize_by_row_newton(objective, x0, tol_decrease=1e-12)
    monkeypatch.setattr(row_newton, "_STEPS", 5)
    monkeypatch.setattr(row_newton, "_PRODUCTS", 5)
    short = minimize_by_row_newton(objective, x0, tol_decrease=1e-9)
    assert not short.success
    assert short.fun > best.fun * (1 + 1e-6)
    monkeypatch.setattr(choose, "method_for", lambda objective: "lbfgs")
    steps = []
    result, _ = choose.minimise(objective, x0, tol=1e-9, callback=lambda step: steps.append(step.fun))
    assert result.success
    assert result.nit == len(steps)
    assert np.all(np.diff(steps) <= 0)
    assert result.fun == pytest.approx(best.fun, rel=1e-8)


def test_callbacks_see_models_and_end_it():
    objective = problem(LOGISTIC)
    told = []
    found = minimize_by_row_newton(
        objective, np.zeros(301), callback=lambda step: told.append((step.fun, step.x)) or step.nit == 2
    )
    assert found.nit == len(told) == 2
    assert found.status == 3
    assert all(objective.value_and_gradient(x)[0] == pytest.approx(fun, rel=1e-12) for fun, x in told)
    np.testing.assert_array_equal(told[-1][1], found.x)


def test_what_it_does_not_take():
    x0 = np.zeros(301)
    assert applies(problem(LOGISTIC), x0)
    assert applies(problem(LOGISTIC), np.append(x0[:-1], 1.0))  # the intercept may begin anywhere
    assert not applies(problem(LOGISTIC), np.append(1.0, x0[1:]))
    assert not applies(problem(LOGISTIC, l2=0.0), x0)
    assert not applies(problem(SQUARED), x0)  # one system: what solves it once does
    assert not applies(problem(LOGISTIC, n=300), x0)
    dense = LinearObjective(make_rows(np.ones((4, 9)), np.ones(4)), LOGISTIC, l2=1.0)
    assert not applies(dense, np.zeros(10))
    wild = problem(LOGISTIC)
    wild.rows.data[wild.rows.indices == wild.rows.indices[0]] *= 1e4
    assert not applies(wild, x0)
