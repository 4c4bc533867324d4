"""L-BFGS and OWL-QN: the minimisers against others' answers, how they stop, and how they go on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import rosen, rosen_der
from smooth_problems import make_quadratic

from stradask import Lasso
from stradask.algorithms.optimize.methods.lbfgs import Trace, minimize_lbfgs
from stradask.errors import DataError
from stradask.scheduler.sums.summed import NonFiniteObjective


def quadratic(A, b):
    return lambda x: (x @ A @ x / 2 - b @ x, A @ x - b)


def bowl(A, lowest):
    """A quadratic that goes to 0, and is precise to the end."""

    def f(x):
        residual = A @ (x - lowest)
        return (x - lowest) @ residual / 2, residual

    return f


class Diagonal:
    def __init__(self, q):
        self.q = q

    def direct(self, v):
        return self.q * v

    transposed = direct


class Triangular:
    """P = L^-T of the Hessian's Cholesky factor."""

    def __init__(self, A):
        self.P = np.linalg.inv(np.linalg.cholesky(A)).T

    def direct(self, v):
        return self.P @ v

    def transposed(self, v):
        return self.P.T @ v


# L-BFGS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 10, 100])
def test_rosenbrock(n):
    start = np.tile([-1.2, 1.0], n // 2)
    result = minimize_lbfgs(lambda x: (rosen(x), rosen_der(x)), start, tol_gradient=1e-9)
    peer = scipy_minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", options={"maxiter": 5000})
    assert result.success
    np.testing.assert_allclose(result.x, 1, atol=1e-6)
    assert result.nfev <= 1.5 * peer.nfev + 10


@pytest.mark.parametrize("memory", [1, 5, 40])
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e5])
def test_quadratics(memory, condition):
    A, exact = make_quadratic(30, condition)
    options = {"memory": memory, "tol_gradient": 1e-10, "max_iter": 10_000}
    result = minimize_lbfgs(bowl(A, exact), np.zeros(30), **options)
    assert result.success
    np.testing.assert_allclose(result.x, exact, atol=1e-5)
    assert result.history["gradient_norm"][-1] <= 1e-10 * np.linalg.norm(A @ exact)


def logistic(seed=0, n=200, p=15):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.geomspace(0.1, 10, p)
    y = np.sign(X @ (rng.standard_normal(p) / np.geomspace(0.1, 10, p)) + rng.logistic(size=n))

    def f(w):
        margin = y * (X @ w)
        return np.logaddexp(0, -margin).sum() + 0.5 * w @ w, w - X.T @ (y / (1 + np.exp(margin)))

    return X, f


def test_the_minimum_is_scipys():
    _, f = logistic()
    result = minimize_lbfgs(f, np.zeros(15), tol_gradient=1e-11)
    peer = scipy_minimize(
        f, np.zeros(15), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-8, "maxiter": 5000}
    )
    assert result.success
    assert result.fun == pytest.approx(peer.fun, rel=1e-12)


def test_a_preconditioner_changes_the_passes_and_not_the_answer():
    X, f = logistic()
    plain = minimize_lbfgs(f, np.zeros(15), tol_gradient=1e-10)
    H = X.T @ X / 4 + np.eye(15)
    for P in (Diagonal(np.diag(H) ** -0.5), Triangular(H)):
        result = minimize_lbfgs(f, np.zeros(15), tol_gradient=1e-10, preconditioner=P)
        np.testing.assert_allclose(result.x, plain.x, rtol=1e-6)
        assert result.nfev < plain.nfev / 2


def test_with_the_hessian_as_preconditioner_a_quadratic_takes_one_step():
    A, b = make_quadratic(20, 1e6)
    result = minimize_lbfgs(
        quadratic(A, b), np.zeros(20), preconditioner=Triangular(A), tol_decrease=1e-12, tol_gradient=0.0
    )
    assert (result.nit, result.nfev) == (1, 2)
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.0, 4.0), st.integers(0, 99))
def test_any_convex_quadratic(n, memory, decades, seed):
    A, exact = make_quadratic(n, 10.0**decades, seed)
    options = {"memory": memory, "tol_gradient": 1e-8, "max_iter": 5000}
    result = minimize_lbfgs(bowl(A, exact), np.zeros(n), **options)
    assert result.success
    assert np.linalg.norm(A @ (result.x - exact)) <= 1.0001e-8 * np.linalg.norm(A @ exact)


# Stopping -------------------------------------------------------------------------------------------------


def test_each_rule_stops_and_says_so():
    _, f = logistic()
    exact = minimize_lbfgs(f, np.zeros(15), tol_gradient=1e-11).fun
    off = {"tol_gradient": 0.0}
    by_gradient = minimize_lbfgs(f, np.zeros(15), tol_gradient=1e-3)
    norms = by_gradient.history["gradient_norm"]
    assert norms[-1] <= 1e-3 * norms[0] < norms[-2]
    assert "gradient fell" in by_gradient.message
    by_decrease = minimize_lbfgs(f, np.zeros(15), tol_decrease=1e-6, **off)
    assert "promised decrease" in by_decrease.message
    assert 0 <= by_decrease.fun - exact < 1e-4 * exact
    by_objective = minimize_lbfgs(f, np.zeros(15), tol_objective=1e-4, **off)
    values = by_objective.history["objective"]
    assert values[-2] - values[-1] <= 1e-4 * values[-2] < values[-3] - values[-2]
    by_limit = minimize_lbfgs(f, np.zeros(15), max_iter=3)
    assert (by_limit.status, by_limit.nit, by_limit.success) == (1, 3, False)
    by_callback = minimize_lbfgs(f, np.zeros(15), callback=lambda it: np.bool_(it.nit == 2))
    assert (by_callback.status, by_callback.nit) == (3, 2)
    assert minimize_lbfgs(f, np.zeros(15), max_iter=3, callback=lambda it: "done").nit == 3
    to_the_end = minimize_lbfgs(f, np.zeros(15), **off)
    assert to_the_end.success
    assert to_the_end.fun == pytest.approx(exact, rel=1e-13)


def test_an_objective_whose_value_is_not_precise():
    """It may seem to rise where the gradient still leads down; who says so is told that it is the end."""
    A, lowest = make_quadratic(8)

    def f(x):
        value, gradient = bowl(A, lowest)(x)
        return 1.0 + value + 1e-7 * np.sin(1e9 * x.sum()), gradient

    stuck = minimize_lbfgs(f, np.zeros(8), tol_gradient=0.0)
    assert stuck.status == 2
    assert "less precise" in stuck.message
    arrived = minimize_lbfgs(f, np.zeros(8), tol_gradient=0.0, precision=1e-6)
    assert arrived.success
    assert arrived.x.tobytes() == stuck.x.tobytes()
    assert arrived.fun == pytest.approx(1.0, abs=1e-6)


def test_at_the_minimum_nothing_is_done():
    A, b = make_quadratic(4)
    result = minimize_lbfgs(lambda x: (x @ x, 2 * x), np.zeros(4))
    assert (result.nit, result.nfev, result.success) == (0, 1, True)
    result = minimize_lbfgs(quadratic(A, b), np.ones(4), max_iter=0)
    assert (result.nit, result.nfev, result.status) == (0, 1, 1)


def test_history_has_a_row_a_step():
    trace = Trace()
    first = minimize_lbfgs(lambda x: (rosen(x), rosen_der(x)), np.zeros(4), max_iter=5, history=trace)
    assert len(first.history["objective"]) == 6
    assert first.history["objective"][-1] == first.fun
    assert first.history["passes"][[0, -1]].tolist() == [1, first.nfev]
    assert (np.diff(first.history["seconds"]) >= 0).all()
    second = minimize_lbfgs(lambda x: (rosen(x), rosen_der(x)), first.x, max_iter=2, history=trace)
    assert len(second.history["objective"]) == 9


def test_it_goes_on_bitwise():
    for l1 in (None, 0.05):
        states = {}

        def keep(iterate, states=states):
            states[iterate.nit] = {name: np.copy(array) for name, array in iterate.state().items()}

        def f(x):
            return rosen(x) + 1.0, rosen_der(x)

        whole = minimize_lbfgs(f, np.zeros(6), memory=4, l1=l1, callback=keep)
        for nit in (1, 3, 9):
            again = minimize_lbfgs(f, np.zeros(6), memory=4, l1=l1, resume=states[nit])
            assert again.x.tobytes() == whole.x.tobytes()
            assert (again.nit, again.nfev) == (whole.nit, whole.nfev)
            assert again.history["objective"].tolist() == whole.history["objective"].tolist()


def test_it_goes_on_from_a_point_without_pairs():
    kept = {}

    def keep(iterate):
        if iterate.nit == 4:
            kept.update(iterate.state(whole=False), x=iterate.x.copy())

    def f(x):
        return rosen(x), rosen_der(x)

    whole = minimize_lbfgs(f, np.zeros(6), tol_gradient=1e-10, callback=keep)
    again = minimize_lbfgs(f, np.zeros(6), tol_gradient=1e-10, resume=kept)
    np.testing.assert_allclose(again.x, whole.x, atol=1e-8)
    assert again.history["objective"][:5].tolist() == whole.history["objective"][:5].tolist()
    assert len(again.history["objective"]) == again.nit + 1


# Objectives that are not finite, or wrong -----------------------------------------------------------------


def test_a_long_step_out_of_the_domain_is_shortened():
    """-log: infinite beyond 0, where the first step ends."""

    def f(x):
        if x[0] <= 0:
            return np.inf, np.full(1, np.nan)
        return x[0] - np.log(x[0]), 1 - 1 / x

    result = minimize_lbfgs(f, np.array([0.02]), tol_gradient=1e-9)
    assert result.success
    assert result.x[0] == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("l1", [None, 0.01])
@pytest.mark.parametrize("what", ["value", "gradient", "error"])
def test_the_last_good_point_is_kept(what, l1):
    A, b = make_quadratic(5)
    f, calls = quadratic(A, b), []

    def failing(x):
        calls.append(x.copy())
        value, gradient = f(x)
        if len(calls) <= 4:
            return value, gradient
        if what == "error":
            raise NonFiniteObjective("bad news from portion 7")
        return (np.nan, gradient) if what == "value" else (value, gradient * np.nan)

    result = minimize_lbfgs(failing, np.zeros(5), l1=l1, tol_gradient=1e-12)
    text = {"value": "the objective is nan", "gradient": "gradient is not finite", "error": "portion 7"}[what]
    assert result.status == 4
    assert not result.success
    assert text in result.message
    assert "last good point" in result.message
    penalty = 0 if l1 is None else l1 * abs(result.x).sum()
    assert result.fun == pytest.approx(f(result.x)[0] + penalty, rel=1e-12)
    assert any((result.x == x).all() for x in calls[:4])


def test_a_start_without_an_objective():
    result = minimize_lbfgs(lambda x: (np.nan, x), np.ones(2))
    assert (result.status, result.nit) == (4, 0)
    assert result.message == "the objective is nan at x0"
    assert result.x.tolist() == [1, 1]
    result = minimize_lbfgs(lambda x: (1.0, x * np.inf), np.ones(2))
    assert (result.status, result.message) == (4, "the gradient is not finite at x0")


def test_points_without_an_objective_again_and_again_end_it():
    """A minimum on the edge of what the function can evaluate: no creeping along it for ever."""
    result = minimize_lbfgs(lambda x: (np.nan if x[0] > 1 else (x[0] - 3) ** 2, 2 * (x - 3)), np.zeros(1))
    assert result.status == 4
    assert result.nit < 10
    assert 0 < result.x[0] <= 1


def test_a_gradient_that_points_uphill_is_told():
    result = minimize_lbfgs(lambda x: ((x - 1) @ (x - 1), -2 * (x - 1)), np.zeros(3))
    assert (result.status, result.nit) == (2, 0)
    assert "value and gradient do not agree" in result.message


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"memory": 0}, "memory must be at least 1"),
        ({"max_iter": -1}, "max_iter"),
        ({"tol_gradient": -1e-3}, "tol_gradient must be"),
        ({"tol_decrease": np.nan}, "tol_decrease must be"),
        ({"tol_objective": "small"}, "tol_objective must be"),
        ({"precision": -1.0}, "precision must be"),
        ({"l1": -1.0}, "l1 must be finite and not negative"),
        ({"l1": np.ones(3)}, "l1 must be a number or 2 weights"),
        ({"x0": [1.0, np.inf]}, r"x0\[1\] is inf"),
        ({"x0": []}, "x0 must be a vector"),
        ({"x0": np.ones((2, 2))}, "x0 must be a vector"),
        ({"l1": 1.0, "preconditioner": Triangular(make_quadratic(2)[0])}, "must be diagonal"),
    ],
)
def test_bad_input(arguments, text):
    arguments = {"x0": np.ones(2)} | arguments
    with pytest.raises(DataError, match=text):
        minimize_lbfgs(lambda x: (x @ x, 2 * x), **arguments)


# OWL-QN ---------------------------------------------------------------------------------------------------


def lasso_problem(seed=0, n=120, p=30, spread=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.geomspace(1, spread, p)
    coef = np.where(np.arange(p) % 5 == 0, 2.0, 0.0) / np.geomspace(1, spread, p)
    y = X @ coef + rng.standard_normal(n)

    def f(w):
        residual = X @ w - y
        return residual @ residual / (2 * n), X.T @ residual / n

    return X, y, f


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("scaled", [False, True])
def test_owlqn_is_the_lasso(alpha, scaled):
    X, y, f = lasso_problem(spread=30.0 if scaled else 1.0)
    P = Diagonal((X**2).mean(0) ** -0.5) if scaled else None
    result = minimize_lbfgs(f, np.zeros(30), l1=alpha, tol_gradient=1e-10, preconditioner=P)
    model = Lasso(alpha=alpha, fit_intercept=False, tol=1e-13, max_iter=100_000).fit(X, y)
    assert result.success
    exact = f(model.coef_)[0] + alpha * abs(model.coef_).sum()
    assert result.fun == pytest.approx(exact, rel=1e-12)
    np.testing.assert_array_equal(result.x != 0, model.coef_ != 0)
    np.testing.assert_allclose(result.x, model.coef_, atol=1e-7)


def test_weights_of_the_penalty():
    """A coordinate without a penalty is never held at 0, and one with a great one always is."""
    _, _, f = lasso_problem(p=6)
    weights = np.array([0.0, 0.0, 0.1, 0.1, 1e6, 1e6])
    result = minimize_lbfgs(f, np.full(6, 0.1), l1=weights, tol_gradient=1e-14)
    assert result.success
    w, g = result.x, result.jac
    np.testing.assert_allclose(g[:2], 0, atol=1e-6)
    assert (w[4:] == 0).all()
    for j in (2, 3):  # the conditions of a minimum
        assert g[j] == pytest.approx(-0.1 * np.sign(w[j]), abs=1e-6) if w[j] else abs(g[j]) <= 0.1


def test_above_the_largest_penalty_all_is_zero():
    _, _, f = lasso_problem()
    largest = abs(f(np.zeros(30))[1]).max()
    result = minimize_lbfgs(f, np.zeros(30), l1=1.001 * largest)
    assert (result.nit, result.x.any(), result.success) == (0, False, True)
    assert minimize_lbfgs(f, np.zeros(30), l1=0.99 * largest).x.any()


def test_without_a_penalty_owlqn_finds_the_smooth_minimum():
    A, b = make_quadratic(8)
    result = minimize_lbfgs(quadratic(A, b), np.zeros(8), l1=0.0, tol_gradient=1e-9)
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b), rtol=1e-6)
