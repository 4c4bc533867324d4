"""Linear models on data that are hard on arithmetic; the truth is another solver's, or equations."""

import warnings

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning

from stradask.algorithms.linear.glm import choose
from stradask.algorithms.linear.glm.objective import LinearObjective
from stradask.algorithms.linear.glm.rows import LOGISTIC, make_rows
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge
from stradask.algorithms.optimize.methods.memory import Memory
from stradask.algorithms.optimize.methods.newton import minimize_newton
from stradask.algorithms.optimize.methods.sparse_quadratic import minimise_quadratic
from stradask.algorithms.optimize.space import LocalSpace


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


def logistic_value(w, c, X, y, C):
    """The objective without l1; X may be sparse."""
    z = np.where(y > 0, 1, -1) * (X @ w + c)
    return C * np.logaddexp(0, -z).sum() + w @ w / 2


def value(model, X, y, C=1.0):
    return logistic_value(model.coef_[0], model.intercept_[0], X, y, C)


def logistic_minimum(X, y, C=1.0):
    """The least objective, by Newton's method on columns of scale one, until the gradient is rounding."""
    mean, scale = X.mean(axis=0), X.std(axis=0)
    A = np.column_stack([(X - mean) / scale, np.ones(len(y))])
    penalty = np.append(1 / scale**2, 0.0)
    u, sign = np.zeros(A.shape[1]), np.where(y > 0, 1, -1)

    def objective(u):
        return C * np.logaddexp(0, -sign * (A @ u)).sum() + penalty @ u**2 / 2

    for _ in range(200):
        p = expit(A @ u)
        g = C * A.T @ (p - (y > 0)) + penalty * u
        d = -np.linalg.solve(C * (A.T * (p * (1 - p))) @ A + np.diag(penalty), g)
        if -g @ d < 1e-13 * objective(u):
            return objective(u)
        t = 1.0
        while objective(u + t * d) > objective(u) + 1e-4 * t * (g @ d):
            t /= 2
        u = u + t * d
    raise AssertionError("no minimum")


def ridge_minimum(X, y, alpha):
    """The least objective and its coefficients, by singular values of the centred columns."""
    Z, t = X - X.mean(axis=0), y - y.mean()
    U, s, V = np.linalg.svd(Z, full_matrices=False)
    w = V.T @ (s / (s**2 + alpha) * (U.T @ t))
    return ((t - Z @ w) ** 2).sum() + alpha * w @ w, w


# Scales of columns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sandblaster", "newton"])
def test_one_column_may_be_far_larger_than_the_others(cancer, solver):
    X, y = cancer
    X = X.copy()
    X[:, 2] *= 1e10
    model = LogisticRegression(solver=solver).fit(X, y)
    assert value(model, X, y) <= logistic_minimum(X, y) * (1 + 1e-6)


def test_a_large_column_beside_thousands_of_sparse_ones():
    rng = np.random.default_rng(0)
    S = sparse.random(2500, 2100, 0.01, random_state=0, format="csr")
    y = (S @ (3 * rng.normal(size=2100)) + rng.normal(size=2500) > 0).astype(int)
    X = sparse.hstack([S, sparse.csr_matrix(1e9 * rng.random((2500, 1)))]).tocsr()
    model = LogisticRegression().fit(X, y)
    assert model.solver_ == "lbfgs"
    assert model.score(X, y) > 0.98


def test_pairs_whose_squares_underflow_are_not_kept(cancer):
    memory = Memory(LocalSpace(), 3)
    with np.errstate(all="raise", under="ignore"):
        assert not memory.add(np.array([1.0, 0.0]), np.array([1e-170, 0.0]), np.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)  # these classes are separable
        LogisticRegression(C=np.inf, solver="sandblaster").fit(*cancer)


# The steps that are left ------------------------------------------------------------------------------


def heavy_tails():
    rng = np.random.default_rng(1)
    S = sparse.random(300, 250, 0.05, random_state=0, format="csr")
    S.data = np.exp(3 * rng.normal(size=S.nnz))
    return S, (rng.random(300) < 0.4).astype(int)


@pytest.mark.parametrize("factors", [True, False], ids=["newton last", "conjugate gradients last"])
def test_the_last_method_has_all_steps_that_are_left(monkeypatch, factors):
    """Limits are lowered, for 250 columns to be treated as thousands."""
    X, y = heavy_tails()
    monkeypatch.setattr(choose, "NEWTON_MOST", 100)
    monkeypatch.setattr(choose, "_LATE_NEWTON_MOST", 4000 if factors else 100)
    monkeypatch.setattr(choose, "_LONG_PATIENCE", 6)
    model = LogisticRegression().fit(X, y)
    assert model.n_iter_ > 18
    reached = value(model, X, y)
    w = np.append(model.coef_[0], model.intercept_)

    def smooth(w):
        sign = np.where(y > 0, 1, -1)
        r = -sign * expit(-sign * (X @ w[:-1] + w[-1]))
        return logistic_value(w[:-1], w[-1], X, y, 1.0), np.append(X.T @ r + w[:-1], r.sum())

    best = optimize.minimize(smooth, w, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    assert reached <= best.fun * (1 + 3e-6)
    with pytest.warns(ConvergenceWarning, match=r"after 12 steps: max_iter=12 steps were taken; .*raise max"):
        LogisticRegression(max_iter=12).fit(X, y)


# What is told to have converged -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-10, 1e-4])
@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_ridge_with_fewer_rows_than_columns(alpha, solver):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 800)) + 100, rng.normal(size=50)
    model = Ridge(alpha=alpha, solver=solver).fit(X, y)
    least, w = ridge_minimum(X, y, alpha)
    np.testing.assert_allclose(model.coef_, w, atol=1e-7 * np.abs(w).max())
    residual = y - X @ model.coef_ - model.intercept_
    assert residual @ residual + alpha * model.coef_ @ model.coef_ <= least * (1 + 1e-8)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_dual_weighs_rows(form, fit_intercept):
    rng = np.random.default_rng(0)
    X, y, s = rng.normal(size=(20, 45)) + 1, rng.normal(size=(20, 2)), rng.integers(0, 3, 20)
    X[rng.random(X.shape) < 0.6] = 0
    given = sparse.csr_array(X) if form == "sparse" else X
    model = Ridge(0.3, fit_intercept=fit_intercept).fit(given, y, s.astype(float))
    A = np.column_stack([X, np.ones(20)]) if fit_intercept else X
    H = (A.T * s) @ A + 0.3 * np.diag(np.arange(A.shape[1]) < 45)
    exact = np.linalg.solve(H, (A.T * s) @ y)
    np.testing.assert_allclose(model.coef_, exact[:45].T, atol=1e-11)
    if fit_intercept:
        np.testing.assert_allclose(model.intercept_, exact[45], atol=1e-11)


@pytest.mark.parametrize("C", [1.0, 1e4])
def test_lbfgs_meets_its_tolerance_on_correlated_columns(cancer, C):
    X, y = cancer
    model = LogisticRegression(C, solver="sandblaster").fit(X, y)
    assert value(model, X, y, C) <= logistic_minimum(X, y, C) * (1 + 1e-6)


def test_conjugate_gradients_prove_it_as_well(cancer, monkeypatch):
    monkeypatch.setattr(choose, "_PROOF_PASSES", 0)
    X, y = cancer
    model = LogisticRegression(solver="sandblaster").fit(X, y)
    assert value(model, X, y) <= logistic_minimum(X, y) * (1 + 2e-6)


def test_several_classes_meet_their_tolerance():
    X, y = load_iris(return_X_y=True)
    C = 1e4

    def objective(u):
        W = u.reshape(5, 3)
        Z = X @ W[:-1] + W[-1]
        Z = Z - Z.max(axis=1, keepdims=True)
        logs = Z - np.log(np.exp(Z).sum(axis=1, keepdims=True))
        R = np.exp(logs) - np.eye(3)[y]
        gradient = np.vstack([C * X.T @ R + W[:-1], C * R.sum(axis=0)])
        return -C * logs[np.arange(len(y)), y].sum() + (W[:-1] ** 2).sum() / 2, gradient.ravel()

    model = LogisticRegression(C).fit(X, y)
    mine = np.vstack([model.coef_.T, model.intercept_]).ravel()
    tight = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 50}
    least = optimize.minimize(objective, mine, jac=True, method="L-BFGS-B", options=tight).fun
    assert objective(mine)[0] <= least * (1 + 1.5e-6)


# Columns far from zero --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
def test_a_column_far_from_zero(cancer, solver, form):
    X, y = cancer
    X = X.copy()
    X[:, 0] += 1e8
    model = LogisticRegression(solver=solver).fit(sparse.csr_array(X) if form == "sparse" else X, y)
    assert value(model, X, y) <= logistic_minimum(X, y) * (1 + 2e-6)


def test_ridge_far_from_zero():
    X, y = load_diabetes(return_X_y=True)
    X = X + 1e8
    model = Ridge().fit(X, y)
    _, exact = ridge_minimum(X, y, 1.0)
    np.testing.assert_allclose(model.coef_, exact, rtol=1e-4)
    assert model.n_iter_ < 5


@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_counts_far_from_zero(solver):
    X, _ = load_diabetes(return_X_y=True)
    counts = np.random.default_rng(0).poisson(np.exp(2 + 20 * X[:, 2]))
    far = X + 1e9
    model = PoissonRegressor(alpha=1e-6, solver=solver, tol=1e-5).fit(far, counts)
    near = PoissonRegressor(alpha=1e-6, tol=1e-13).fit(far - 1e9, counts)
    np.testing.assert_allclose(model.predict(far), near.predict(far - 1e9), rtol=1e-3)


def test_a_far_column_and_l_bfgs_either_arrive_or_say_so():
    X, _ = load_diabetes(return_X_y=True)
    counts = np.random.default_rng(0).poisson(np.exp(2 + 20 * X[:, 2]))
    far = X + 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = PoissonRegressor(alpha=1e-6, solver="sandblaster").fit(far, counts)
    near = PoissonRegressor(alpha=1e-6, tol=1e-13).fit(far - 1e9, counts)
    np.testing.assert_allclose(model.predict(far), near.predict(far - 1e9), rtol=0.05)


class RoundedQuadratic:
    """``u^T H u / 2 + 1`` with a Hessian that is told with an error which makes it indefinite."""

    constant, fit_intercept, ridge = 0.0, False, 0.0
    H = np.array([[1, 1 - 1e-9], [1 - 1e-9, 1]])

    def value_and_gradient(self, u, *, curvature=False):
        return u @ self.H @ u / 2 + 1, self.H @ u

    def hessian(self, u, means=None):
        return self.H + np.array([[0, 2e-9], [2e-9, 0]])

    def hessian_product(self, u, v):
        return self.H @ v


def test_a_step_that_does_not_solve_its_system_is_not_believed():
    """Along (1, -1) there is an excess of 1e-9 u^2, of which the step with what was added sees a tenth."""
    start = 3e4 * np.array([1.0, -1.0])
    excess = RoundedQuadratic().value_and_gradient(start)[0] - 1
    found = minimize_newton(RoundedQuadratic(), start, tol_decrease=0.5 * excess)
    assert not found.success or found.fun - 1 <= 0.5 * excess


def test_a_shifted_hessian_is_that_of_shifted_columns():
    rng = np.random.default_rng(0)
    X, y, means = rng.normal(size=(40, 3)), np.where(rng.random(40) < 0.5, 1.0, -1.0), np.array([1.0, 0, -2])
    w = rng.normal(size=4)
    there = np.append(w[:3], w[3] + means @ w[:3])
    for given in (X, sparse.csr_array(np.where(rng.random(X.shape) < 0.7, X, 0))):
        dense = given if given is X else given.toarray()
        objective = LinearObjective(make_rows(given, y), LOGISTIC, l2=0.3)
        shifted = LinearObjective(make_rows(dense - means, y), LOGISTIC, l2=0.3)
        np.testing.assert_allclose(objective.hessian(w, means), shifted.hessian(there), atol=1e-12)
        diagonal = objective.hessian_diagonal(w, means)
        np.testing.assert_allclose(diagonal, np.diag(shifted.hessian(there)), atol=1e-12)


# The l1 penalty ---------------------------------------------------------------------------------------


def sparse_minimum(w, c, X, y, C):
    """The least objective on the support and signs of w, which the slopes elsewhere prove to be the least."""
    S, scale = np.flatnonzero(w), X.std(axis=0)
    signs = np.sign(w[S])
    A = np.column_stack([X[:, S] / scale[S], np.ones(len(y))])
    l1 = np.append(signs / scale[S], 0.0)
    u, t = np.append(w[S] * scale[S], c), (y > 0).astype(float)
    for _ in range(20):
        p = expit(A @ u)
        H = C * (A.T * (p * (1 - p))) @ A
        u = u - np.linalg.solve(H, C * A.T @ (p - t) + l1)
    assert (np.sign(u[:-1]) == signs).all()
    slopes = C * X.T @ (expit(A @ u) - t)
    assert np.abs(np.delete(slopes, S)).max(initial=0) <= 1 + 1e-6
    return C * np.logaddexp(0, -(2 * t - 1) * (A @ u)).sum() + np.abs(u[:-1] / scale[S]).sum()


@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
def test_l1_meets_its_tolerance(cancer, C):
    X, y = cancer
    tight = LogisticRegression(C, l1_ratio=1.0, tol=1e-13).fit(X, y)
    least = sparse_minimum(tight.coef_[0], tight.intercept_[0], X, y, C)
    model = LogisticRegression(C, l1_ratio=1.0).fit(X, y)
    w = model.coef_[0]
    found = C * np.logaddexp(0, -(2 * y - 1) * (X @ w + model.intercept_[0])).sum() + np.abs(w).sum()
    assert found <= least * (1 + 1e-6)
    assert model.n_iter_ < 50


def test_l1_far_from_zero_in_single_precision():
    rng = np.random.default_rng(19)
    X = np.float32(rng.normal(size=(600, 6)) + np.array([0, 1, 1e4, 0, 3e4, 10]))
    y = (X[:, 2] - 1e4 + X[:, 3] + rng.logistic(size=600) > 0).astype(int)
    near = X.astype(np.float64) - [0, 0, 1e4, 0, 3e4, 0]
    tight = LogisticRegression(l1_ratio=1.0, tol=1e-13).fit(near, y)
    model = LogisticRegression(l1_ratio=1.0).fit(X, y)
    np.testing.assert_allclose(model.coef_, tight.coef_, atol=2e-3)


@pytest.mark.parametrize("seed", range(5))
def test_a_sparse_quadratic_has_no_slope_left(seed):
    """Columns that almost repeat each other, which coordinate descent takes thousands of sweeps for."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 12)) + 1e-4 * rng.normal(size=(30, 12))
    H, g, x = A.T @ A, A.T @ rng.normal(size=30), rng.normal(size=12)
    l1 = np.where(np.arange(12) < 10, 0.05, 0.0)
    b, fell = minimise_quadratic(H, g, x, l1)
    slope = g + H @ (b - x)
    size = np.abs(g).max()
    np.testing.assert_allclose(slope[b != 0], -(l1 * np.sign(b))[b != 0], atol=1e-5 * size)
    assert (np.abs(slope) <= l1 + 1e-5 * size).all()

    def model(b):
        return g @ (b - x) + (b - x) @ H @ (b - x) / 2 + l1 @ np.abs(b)

    assert fell == pytest.approx(model(x) - model(b), rel=1e-9)


# No minimum -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]])
def test_without_a_penalty_its_kind_does_not_matter(y):
    X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    with pytest.warns(ConvergenceWarning, match=r"separates the rows.*give a penalty") as told:
        model = LogisticRegression(np.inf, l1_ratio=0.5).fit(X, y)
    assert len(told) == 1
    with pytest.warns(ConvergenceWarning):
        np.testing.assert_array_equal(model.coef_, LogisticRegression(np.inf).fit(X, y).coef_)


@pytest.mark.parametrize("solver", ["auto", "sandblaster"])
@pytest.mark.parametrize("y", [[0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2]])
def test_classes_that_a_plane_separates(y, solver):
    """Also where only some rows can be told apart, the others lying on the plane."""
    X = [[0.0], [2.0], [2.0], [1.0], [3.0], [4.0]] if y[1] else [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    with pytest.warns(ConvergenceWarning, match="separates the rows.*give a penalty") as told:
        LogisticRegression(np.inf, solver=solver).fit(X, y)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression(1.0, solver=solver).fit(X, y)


@pytest.mark.parametrize("solver", ["auto", "sandblaster"])
@pytest.mark.parametrize("tol", [1e-6, 1e-10])
@pytest.mark.parametrize("apart", ["one class", "pairs", "plane", "column"])
def test_some_of_several_classes_that_can_be_told_apart(apart, tol, solver):
    """The others overlap; a model of all classes has no minimum all the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.logistic(size=300) > 0).astype(int)
    far = np.array([20.0, 0, 0])
    if apart == "one class":
        X, y = np.vstack([X, X[:100] + far]), np.append(y, np.full(100, 2))
    elif apart == "pairs":
        X, y = np.vstack([X, X + far]), np.append(y, 2 + (X[:, 1] + rng.logistic(size=300) > 0))
    elif apart == "plane":
        X, y = [[0.0], [2.0], [2.0], [2.0], [1.0], [3.0], [4.0], [2.0]], [0, 0, 1, 2, 0, 1, 2, 2]
    else:  # that is 1 in some rows of one class alone
        y = y + (X[:, 1] + rng.logistic(size=300) > 1)
        X = np.column_stack([X, (y == 1) & (rng.random(300) < 0.1)])
    with pytest.warns(ConvergenceWarning, match="separates the rows.*give a penalty") as told:
        LogisticRegression(np.inf, solver=solver, tol=tol).fit(X, y)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression(1.0, solver=solver, tol=tol).fit(X, y)


def test_rows_without_counts_that_can_be_told_apart():
    X = [[0.0], [0.0], [1.0], [1.0]]
    with pytest.warns(ConvergenceWarning, match="separates the rows"):
        PoissonRegressor(alpha=0.0).fit(X, [0, 0, 1, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["auto", "sandblaster"])
def test_an_unpenalised_minimum_is_not_taken_for_none(solver, dtype):
    """Not even where columns repeat each other, and coefficients are not unique."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 5)).astype(dtype)
    y = (A[:, 0] + rng.logistic(size=300) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in (A, np.column_stack([A, A])):
            LogisticRegression(np.inf, solver=solver).fit(X, y)
            LogisticRegression(np.inf, solver=solver).fit(X, y + (A[:, 1] + rng.logistic(size=300) > 0))
            PoissonRegressor(alpha=0.0, solver=solver).fit(X, rng.poisson(np.exp(A[:, 1])))
            Ridge(alpha=0.0, solver=solver).fit(X, A[:, 0] + rng.normal(size=300))


@pytest.mark.parametrize("solver", ["auto", "sandblaster"])
@pytest.mark.parametrize("columns", ["same", "near", "scaled"])
def test_float32_columns_that_repeat_each_other_change_no_prediction(columns, solver):
    """Rounding errors of gradients along them, over a curvature of zero, were steps of 1e6."""
    for p in (1, 2, 3, 8):
        rng = np.random.default_rng(p)
        A = rng.normal(size=(300, p)).astype(np.float32)
        y = (A[:, 0] + rng.logistic(size=300) > 0).astype(int)
        classes, counts = y + (A[:, -1] + rng.logistic(size=300) > 0), rng.poisson(np.exp(A[:, 0] / 2))
        again = {"same": A, "near": A * np.float32(3) / np.float32(3), "scaled": A * np.float32(0.7)}[columns]
        X = np.column_stack([A, again])
        for model, target in (
            (LogisticRegression(np.inf, solver=solver), y),
            (LogisticRegression(np.inf, solver=solver), classes),
            (PoissonRegressor(alpha=0.0, solver=solver), counts),
            (Ridge(alpha=0.0, solver=solver), A[:, 0] + rng.normal(size=300)),
        ):
            alone = clone(model).fit(A.astype(float), target)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                both = clone(model).fit(X, target)
            predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
            expected = getattr(alone, predict)(A.astype(float))
            np.testing.assert_allclose(getattr(both, predict)(X), expected, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
@pytest.mark.parametrize("scale", [1.0, 1.0 / 3])
def test_repeated_columns_in_single_precision_reach_the_minimum_of_one_copy(order, scale):
    """Rounding drives no coefficients to millions along a direction that changes no predictor."""
    rng = np.random.default_rng(0)
    A = np.float32(scale * rng.normal(size=(300, 5)))
    y = (A[:, 0] / scale + rng.logistic(size=300) > 0).astype(int)
    y += A[:, 1] / scale + rng.logistic(size=300) > 0
    once = LogisticRegression(np.inf, tol=1e-10).fit(A.astype(np.float64), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice = LogisticRegression(np.inf).fit(np.column_stack([A, A[:, order]]), y)
    added = twice.coef_[:, :5] + twice.coef_[:, 5:][:, order]
    np.testing.assert_allclose(added, once.coef_, atol=0.02 / scale)
    assert np.abs(twice.coef_).max() < 10 / scale


def test_planes_are_found_in_single_precision_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.logistic(size=300) > 0).astype(int)
    X, y = np.float32(np.vstack([X, X[:100] + np.array([20.0, 0, 0])])), np.append(y, np.full(100, 2))
    for given in (X, np.column_stack([X, X])):
        with pytest.warns(ConvergenceWarning, match="separates the rows"):
            LogisticRegression(np.inf).fit(given, y)
