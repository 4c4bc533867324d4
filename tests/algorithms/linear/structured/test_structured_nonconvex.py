"""Penalties that are not convex, SLOPE, and losses and penalties of one's own."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

import stradask as sd
from stradask.algorithms.linear.structured.named import LOSSES
from stradask.algorithms.linear.structured.penalties import Slope
from stradask.algorithms.linear.structured.solving.exchange import exchange
from stradask.algorithms.linear.structured.solving.problem import scale_of
from stradask.kernels.linear import blocks
from stradask.kernels.linear.exchanges import exchanges

RNG = np.random.default_rng(1)
N, P = 60, 80
X = RNG.standard_normal((N, P))
Y = X[:, :5] @ [3.0, -2.0, 2.0, 4.0, -3.0] + 0.1 * RNG.standard_normal(N)


def penalty_of(kind, size, lam, gamma):
    """The definitions, written again."""
    if kind == 1:
        return np.where(size <= gamma * lam, lam * size - size**2 / (2 * gamma), gamma * lam**2 / 2)
    if kind == 2:
        middle = (2 * gamma * lam * size - size**2 - lam**2) / (2 * (gamma - 1))
        outer = np.where(size <= gamma * lam, middle, lam**2 * (gamma + 1) / 2)
        return np.where(size <= lam, lam * size, outer)
    return lam * size if kind == 0 else lam * gamma * np.log1p(size / gamma)


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("step", [0.3, 1.0, 4.0])
def test_the_step_of_a_norm_minimises(kind, step):
    grid = np.linspace(0, 12, 60_001)
    for size in np.linspace(0.05, 10, 41):
        for gamma in (2.5, 3.7):
            own = blocks.shrunk(size, step, 1.3, gamma, kind)
            values = (grid - size) ** 2 / (2 * step) + penalty_of(kind, grid, 1.3, gamma)
            mine = (own - size) ** 2 / (2 * step) + penalty_of(kind, own, 1.3, gamma)
            assert mine <= values.min() + 1e-7
            assert blocks.phi(size, 1.3, gamma, kind) == pytest.approx(penalty_of(kind, size, 1.3, gamma))
            up, down = penalty_of(kind, np.array([size + 1e-6, size - 1e-6]), 1.3, gamma)
            assert blocks.slope_of_phi(size, 1.3, gamma, kind) == pytest.approx((up - down) / 2e-6, abs=1e-4)


@pytest.mark.parametrize("kind", range(4))
def test_derivatives_of_a_penalty_are_differences(kind):
    sizes, h = np.array([0.0, 0.4, 1.0, 2.0, 3.0, 6.0]), 1e-5
    lam = np.full(6, 1.3)
    value, slope, bend = blocks.terms(sizes, lam, 3.0, kind)
    up, down = (penalty_of(kind, np.maximum(sizes + d, 0), 1.3, 3.0) for d in (h, -h))
    np.testing.assert_allclose(value, penalty_of(kind, sizes, 1.3, 3.0), atol=1e-12)
    np.testing.assert_allclose(slope[1:], (up - down)[1:] / (2 * h), atol=1e-6)
    np.testing.assert_allclose(bend[1:], ((up - 2 * value + down) / h**2)[1:], atol=1e-4)
    assert slope[0] == bend[0] == 0


@pytest.mark.parametrize(("penalty", "kind", "gamma"), [("mcp", 1, 3.0), ("scad", 2, 3.7), ("log", 3, 0.5)])
@pytest.mark.parametrize("groups", [None, 4])
def test_a_fit_is_a_stationary_point_and_unshrunk(penalty, kind, gamma, groups):
    alpha = 0.2
    model = sd.SparseGLM(penalty=penalty, alpha=alpha, gamma=gamma, groups=groups, tol=1e-10).fit(X, Y)
    assert model.stopped_by_ == "kkt violation"
    assert np.isnan(model.dual_gap_)
    V = (X.T @ (Y - model.predict(X)) / N).reshape(-1, groups or 1)
    B = model.coef_.reshape(V.shape)
    lam, h = alpha * np.sqrt(groups or 1), 1e-7
    for b, v in zip(B, V, strict=True):
        size = np.linalg.norm(b)
        if size:
            up, down = penalty_of(kind, np.array([size + h, size - h]), lam, gamma)
            np.testing.assert_allclose(v, (up - down) / (2 * h) * b / size, atol=1e-6)
        else:
            assert np.linalg.norm(v) <= lam + 1e-9
    sizes = np.linalg.norm(B, axis=1)
    own = np.mean((Y - model.predict(X)) ** 2) / 2 + penalty_of(kind, sizes, lam, gamma).sum()
    assert model.objective_ == pytest.approx(own)
    if groups is None and penalty != "log":
        assert np.flatnonzero(model.coef_).tolist() == [0, 1, 2, 3, 4]
        np.testing.assert_allclose(model.coef_[:5], [3, -2, 2, 4, -3], atol=0.1)


def test_the_lowest_of_three_starts_is_kept():
    """Against coordinate descent from zero, written here."""
    alpha, gamma = 0.5, 3.0
    rng = np.random.default_rng(7)
    X = rng.standard_normal((40, 30)) + rng.standard_normal((40, 1))
    y = X[:, :8] @ rng.standard_normal(8) + rng.standard_normal(40)
    b, r, squares = np.zeros(30), y.copy(), (X**2).mean(axis=0)
    for _ in range(2000):
        for j in range(30):
            z = b[j] + X[:, j] @ r / 40 / squares[j]
            new = np.sign(z) * blocks.shrunk(abs(z), 1 / squares[j], alpha, gamma, 1)
            r -= X[:, j] * (new - b[j])
            b[j] = new
    from_zero = r @ r / 80 + penalty_of(1, np.abs(b), alpha, gamma).sum()
    model = sd.SparseGLM(penalty="mcp", alpha=alpha, gamma=gamma, fit_intercept=False, tol=1e-9).fit(X, y)
    assert model.objective_ <= from_zero + 1e-9


def test_small_problems_end_at_the_lowest_of_many_starts():
    """Against coordinate descent from 300 random points at once."""
    rng, alpha, gamma, n_ends = np.random.default_rng(5), 0.2, 3.0, []
    for _ in range(8):
        X = 0.4 * rng.standard_normal((40, 7)) + rng.standard_normal((40, 1))
        y = X[:, :3] @ rng.standard_normal(3) + 0.5 * rng.standard_normal(40)
        b = 3 * rng.standard_normal((7, 300)) * (rng.random((7, 300)) < 0.5)
        squares = (X**2).mean(axis=0)
        for j in [*range(7)] * 500:
            z = b[j] + X[:, j] @ (y[:, None] - X @ b) / 40 / squares[j]
            size, step = np.abs(z), 1 / squares[j]
            shrunk = np.maximum(size - step * alpha, 0) / (1 - step / gamma)
            b[j] = np.sign(z) * np.where(size >= gamma * alpha, size, shrunk)
        values = ((y[:, None] - X @ b) ** 2).mean(axis=0) / 2
        values += penalty_of(1, np.abs(b), alpha, gamma).sum(axis=0)
        model = sd.SparseGLM(penalty="mcp", alpha=alpha, gamma=gamma, fit_intercept=False, tol=1e-9)
        assert model.fit(X, y).objective_ <= values.min() + 1e-9
        n_ends.append(len(np.unique(values.round(5))))
    assert sum(n_ends) > 12


# Rows, columns, correlation, alpha_max / alpha, noise, gamma; and the objective of skglm 0.5, from zero.
SKGLM = {
    1: (200, 1000, 0.7, 3, 0.25, 1.5, 14.223488298990699),
    8: (200, 1000, 0.2, 10, 1.0, 3.0, 11.511784379766102),
    9: (80, 2000, 0.7, 10, 0.25, 1.5, 3.254650571395777),
    14: (80, 2000, 0.9, 30, 1.0, 3.0, 1.8628497701240896),
    16: (200, 1000, 0.2, 80, 1.0, 3.0, 0.16258966100173708),
    18: (80, 2000, 0.7, 3, 0.25, 3.0, 23.11404326799596),
    32: (200, 1000, 0.9, 30, 0.25, 1.5, 0.38987462492165814),
}


@pytest.mark.parametrize("seed", SKGLM)
def test_mcp_ends_no_higher_than_coordinate_descent_from_zero(seed):
    n, p, correlation, divisor, noise, gamma, theirs = SKGLM[seed]
    rng = np.random.default_rng(seed)
    noisy = rng.standard_normal((n, p))
    X = np.asfortranarray(noisy)
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * noisy[:, j]
    b = np.zeros(p)
    b[rng.choice(p, max(3, p // 30), replace=False)] = rng.standard_normal(max(3, p // 30))
    y = X @ b
    y += rng.standard_normal(n) * np.std(y) * noise
    alpha = np.abs(X.T @ y).max() / n / divisor
    model = sd.SparseGLM(penalty="mcp", alpha=alpha, gamma=gamma, tol=1e-6, fit_intercept=False, max_iter=500)
    coef = model.fit(X, y).coef_
    own = np.mean((y - X @ coef) ** 2) / 2 + penalty_of(1, np.abs(coef), alpha, gamma).sum()
    assert own <= theirs * (1 + 1e-7)


@pytest.mark.parametrize(("kind", "gamma"), [(1, 3.0), (2, 3.7)])
def test_exchanges_are_those_of_least_rise(kind, gamma):
    """Against values on a grid, of coefficients that give way and columns that take their place."""
    rng = np.random.default_rng(kind)
    A = rng.standard_normal((30, 6))
    H, g, b = A.T @ A / 30, rng.standard_normal(6), np.array([1.5, 0.0, -0.4, 0.0, 0.0, 0.7])
    lam, grid = rng.uniform(0.05, 0.4, 6), np.linspace(-6, 6, 24_001)
    lam[5] = 0.0  # without a penalty: it stays
    none, any_value = np.zeros(6), np.full(6, np.inf)
    given, taken, values, rises = exchanges(H, g, b, lam, none, -any_value, any_value, gamma, kind)
    assert given.tolist() == [0, 2]
    for i, j, value, rise in zip(given, taken, values, rises, strict=True):
        best = {}
        for column in (1, 3, 4):
            d = np.zeros((len(grid), 6))
            d[:, i], d[:, column] = -b[i], grid
            model = d @ g + 0.5 * np.einsum("rj,jk,rk->r", d, H, d)
            best[column] = model + penalty_of(kind, abs(grid), lam[column], gamma)
        assert j == min(best, key=lambda column: best[column].min())
        assert value == pytest.approx(grid[best[j].argmin()], abs=1e-3)
        assert rise == pytest.approx(best[j].min() - penalty_of(kind, abs(b[i]), lam[i], gamma), abs=1e-6)


@pytest.mark.parametrize(("loss", "form"), [("squared", np.asfortranarray), ("logistic", sparse.csc_array)])
def test_exchanges_keep_the_state_of_a_fit(loss, form):
    """The predictor is that of the coefficients, and the objective no higher than before."""
    rng = np.random.default_rng(3)
    columns = rng.standard_normal((120, 60)) + 2 * rng.standard_normal((120, 1))
    f = columns[:, :6] @ rng.standard_normal(6)
    y = f + rng.standard_normal(120) if loss == "squared" else (f > 0) * 1.0
    model = sd.SparseGLM(loss, "mcp", alpha=0.05)
    problem = model._pose(form(columns), y)
    solver, penalty = model._solver(problem), model._penalty(problem, 0.05)
    scale_of(solver, penalty)
    solver.grow(np.arange(60))
    solver.descend(penalty, 1e-6)
    before = solver.objective(penalty)
    exchange(solver, penalty, 1e-6)
    assert solver.objective(penalty) <= before
    np.testing.assert_allclose(solver.f[:, 0], columns @ solver.B[:, 0] + solver.intercept(), atol=1e-8)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber"])
def test_other_losses_end_at_stationary_points(loss):
    y = {"logistic": (Y > 0) * 1.0, "poisson": RNG.poisson(np.exp(0.5 * X[:, 0])), "huber": Y}[loss]
    model = sd.SparseGLM(loss, "mcp", alpha=0.15, tol=1e-9).fit(X, y)
    assert model.stopped_by_ == "kkt violation"
    f = X @ model.coef_ + model.intercept_
    v = -X.T @ LOSSES[loss]().gradient(y, f) / N
    size = np.abs(model.coef_)
    np.testing.assert_allclose(
        v[size > 0], (np.sign(model.coef_) * np.maximum(0.15 - size / 3, 0))[size > 0], atol=1e-7
    )
    assert np.abs(v[size == 0]).max() <= 0.15 + 1e-8


# SLOPE ----------------------------------------------------------------------------------------------


def test_slope_of_one_weight_is_the_lasso_and_of_two_is_found_by_search():
    ones = sd.SparseGLM(penalty=Slope(np.ones(P)), alpha=0.2, tol=1e-10).fit(X, Y)
    np.testing.assert_allclose(ones.coef_, sd.SparseGLM(alpha=0.2, tol=1e-12).fit(X, Y).coef_, atol=1e-6)
    slope = Slope(np.array([2.0, 0.5])).of_width(2)
    grid = np.linspace(-4, 4, 401)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    big, small = np.maximum(abs(a), abs(b)), np.minimum(abs(a), abs(b))
    for z in RNG.uniform(-3, 3, (20, 2)):
        values = ((a - z[0]) ** 2 + (b - z[1]) ** 2) / 2 + 0.7 * (2 * big + 0.5 * small)
        at = np.unravel_index(values.argmin(), values.shape)
        np.testing.assert_allclose(slope.prox(z, 1.0, 0.7), [grid[at[0]], grid[at[1]]], atol=0.021)


def test_slope_ends_at_a_gap_and_gives_equal_sizes():
    twins = np.column_stack([X[:, 0], X[:, 0] + 0.01 * X[:, 1], X[:, 2:10]])
    y = twins[:, 0] + twins[:, 1] + 0.1 * X[:, 11]
    for loss, target in (("squared", y), ("logistic", (y > 0) * 1.0)):
        model = sd.SparseGLM(loss, "slope", alpha=0.1, penalty_options={"q": 0.5}, tol=1e-9, max_iter=300)
        model.fit(twins, target)
        assert model.stopped_by_ == "duality gap"
        assert model.coef_[0] == pytest.approx(model.coef_[1], rel=1e-4)


# Of one's own ---------------------------------------------------------------------------------------


class LogCosh(sd.Loss):
    def value(self, y, f):
        return np.logaddexp(f - y, y - f) - np.log(2)

    def gradient(self, y, f):
        return np.tanh(f - y)

    def curvature(self, y, f):
        return 1 - np.tanh(f - y) ** 2


class Absolute(sd.Penalty):
    def value(self, coef, alpha):
        return np.sum(alpha * np.abs(coef))

    def prox(self, coef, step, alpha):
        return np.sign(coef) * np.maximum(np.abs(coef) - step * alpha, 0)

    def dual_norm(self, slopes, alpha):
        return np.max(np.abs(slopes) / alpha)


class Half(sd.Penalty):
    """A penalty that is not convex: ``alpha min(|b|, 1)``."""

    convex = False

    def value(self, coef, alpha):
        return np.sum(alpha * np.minimum(np.abs(coef), 1))

    def prox(self, coef, step, alpha):
        size = np.abs(coef)
        near, far = np.minimum(np.maximum(size - step * alpha, 0), 1), np.maximum(size, 1)
        at_near = (near - size) ** 2 / (2 * step) + alpha * near
        return np.sign(coef) * np.where(at_near <= (far - size) ** 2 / (2 * step) + alpha, near, far)


def test_a_loss_of_ones_own_reaches_its_minimum():
    model = sd.SparseGLM(LogCosh(), alpha=0.05, tol=1e-8).fit(X[:, :10], Y)

    def objective(z):
        return LogCosh().value(Y, X[:, :10] @ (z[:10] - z[10:20]) + z[20]).mean() + 0.05 * z[:20].sum()

    bounds = [(0, None)] * 20 + [(None, None)]
    other = minimize(
        objective, np.zeros(21), bounds=bounds, options={"maxiter": 3000, "maxfun": 10**6, "ftol": 1e-14}
    )
    assert model.objective_ <= other.fun + 1e-7
    assert model.stopped_by_ == "kkt violation"


def test_a_penalty_of_ones_own_is_that_of_the_kernel():
    factors = np.ones(P)
    factors[:4] = [0, np.inf, 2, 0.5]
    for loss, y in (("squared", Y), ("logistic", (Y > 0) * 1.0)):
        own = sd.SparseGLM(loss, Absolute(), alpha=0.05, penalty_factor=factors, tol=1e-10, max_iter=300).fit(
            X, y
        )
        same = sd.SparseGLM(loss, alpha=0.05, penalty_factor=factors, tol=1e-10).fit(X, y)
        assert own.stopped_by_ == same.stopped_by_ == "duality gap"
        np.testing.assert_allclose(own.coef_, same.coef_, atol=1e-3)
        assert own.objective_ == pytest.approx(same.objective_, abs=1e-8)


def test_a_penalty_of_ones_own_may_not_be_convex():
    model = sd.SparseGLM(penalty=Half(), alpha=0.3, tol=1e-8, max_iter=300).fit(X, Y)
    assert model.stopped_by_ == "kkt violation"
    assert np.flatnonzero(np.abs(model.coef_) > 0.5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "form", [np.asfortranarray, lambda X: np.asfortranarray(X, np.float32), sparse.csc_array]
)
@pytest.mark.parametrize(("n", "p"), [(30, 1), (30, 2), (30, 8), (10, 40)])
def test_the_bound_of_curvatures_is_close_and_never_less(form, n, p):
    from stradask.algorithms.linear.structured.solving.columns import Columns

    rng = np.random.default_rng(p)
    X, h = rng.standard_normal((n, p)), rng.uniform(0, 1, n)
    found = Columns(form(X), None, centre=False).largest_curvature(h)
    exact = np.linalg.eigvalsh(X.T @ (h[:, None] * X))[-1]
    assert exact * (1 - 1e-6) <= found <= (1.02 * exact if p > 2 else p * exact * (1 + 1e-6))
    assert Columns(form(0 * X), None, centre=False).largest_curvature(h) == 0
