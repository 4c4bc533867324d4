"""Objectives over portions, and the minimisers that use their Hessians."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from stradask.algorithms.linear.glm import choose
from stradask.algorithms.linear.glm.objective import LinearObjective, MultinomialObjective, tree_sum
from stradask.algorithms.linear.glm.rows import LOGISTIC, POISSON, SQUARED, make_rows
from stradask.algorithms.linear.glm.sketch import minimize_sketch, sampled_rows
from stradask.algorithms.optimize.methods.newton import (
    minimize_newton,
    minimize_newton_cg,
    minimize_proximal_newton,
)
from stradask.algorithms.optimize.methods.preconditioner import Centred, Cholesky, Diagonal, Repeated

LOSSES = (SQUARED, LOGISTIC, POISSON)


def data(n, d, loss, *, seed=0, scales=0.0, density=1.0, shift=0.0):
    """Columns whose scales lie up to `scales` decades from 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + shift
    X[rng.random((n, d)) > density] = 0
    z = X @ rng.standard_normal(d) / np.sqrt(d)
    if loss == LOGISTIC:
        y = np.where(z - z.mean() + rng.logistic(size=n) > 0, 1.0, -1.0)
    else:
        y = (
            rng.poisson(np.exp(np.clip(z, -3, 3))).astype(float)
            if loss == POISSON
            else z + rng.normal(size=n)
        )
    return X * 10.0 ** rng.uniform(-scales, scales, d), y, rng.uniform(0.5, 2, n)


def objective(
    n=60, d=5, loss=LOGISTIC, *, form=np.asarray, l2=0.3, n_jobs=None, fit_intercept=True, **options
):
    X, y, weights = data(n, d, loss, **options)
    rows = make_rows(form(X), y, weights)
    return LinearObjective(
        rows, loss, scale=1 / n, l2=l2, constant=2.0, fit_intercept=fit_intercept, n_jobs=n_jobs
    )


def multinomial(n=60, d=4, n_classes=3, *, form=np.asarray, l2=0.1, n_jobs=None, fit_intercept=True, seed=0):
    rng = np.random.default_rng(seed)
    X, labels = rng.standard_normal((n, d)), rng.integers(0, n_classes, n)
    rows = make_rows(form(X), labels, rng.uniform(0.5, 2, n))
    return MultinomialObjective(
        rows, n_classes, scale=1 / n, l2=l2, fit_intercept=fit_intercept, n_jobs=n_jobs
    )


def differences(function, x, step=1e-5):
    """Derivatives of a function, one row a coordinate."""
    rows = []
    for j in range(len(x)):
        e = np.zeros(len(x))
        e[j] = step
        rows.append((function(x + e) - function(x - e)) / (2 * step))
    return np.array(rows)


# --- objectives -----------------------------------------------------------------------------------


@given(
    n=st.integers(1, 30),
    d=st.integers(1, 6),
    loss=st.sampled_from(LOSSES),
    sparse_rows=st.booleans(),
    fit_intercept=st.booleans(),
    l2=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_derivatives_by_differences(n, d, loss, sparse_rows, fit_intercept, l2, seed):
    f = objective(
        n, d, loss, form=sparse.csr_array if sparse_rows else np.asarray, l2=l2, fit_intercept=fit_intercept,
        seed=seed, density=0.7,
    )  # fmt: skip
    x = np.random.default_rng(seed).standard_normal(d + fit_intercept) * 0.5
    _, gradient = f.value_and_gradient(x)
    bound = {"rtol": 1e-5, "atol": 1e-5 * (1 + np.abs(gradient).max())}
    np.testing.assert_allclose(gradient, differences(lambda w: f.value_and_gradient(w)[0], x), **bound)
    H = f.hessian(x)
    np.testing.assert_allclose(H, differences(lambda w: f.value_and_gradient(w)[1], x), **bound)
    np.testing.assert_allclose(f.hessian_diagonal(x), np.diag(H), rtol=1e-10)
    v = np.arange(1.0, len(x) + 1)
    np.testing.assert_allclose(f.hessian_product(x, v), H @ v, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_derivatives_of_the_multinomial_by_differences(form, fit_intercept):
    f = multinomial(form=form, fit_intercept=fit_intercept)
    x = np.random.default_rng(1).standard_normal(f.n_parameters)
    expected = differences(lambda w: f.value_and_gradient(w)[0], x)
    np.testing.assert_allclose(f.value_and_gradient(x)[1], expected, atol=1e-8)
    K, n = 3, 4 + fit_intercept
    H, v = differences(lambda w: f.value_and_gradient(w)[1], x), np.cos(np.arange(f.n_parameters))
    np.testing.assert_allclose(f.hessian_product(x, v), H @ v, atol=1e-8)
    H = differences(lambda w: f.value_and_gradient(w)[1], np.zeros(f.n_parameters))
    np.testing.assert_allclose(f.hessian_diagonal(), np.diag(H), rtol=1e-6)
    own = H.reshape(n, K, n, K)[:, 0, :, 0]
    np.testing.assert_allclose(f.class_hessian(), own, atol=1e-8)


def test_the_value_by_hand():
    rows = make_rows(np.array([[1.0], [2.0]]), np.array([1.0, -1.0]), np.array([3.0, 1.0]))
    f = LinearObjective(rows, LOGISTIC, scale=0.5, l2=4.0, constant=1.0)
    expected = 0.5 * (3 * np.log1p(np.exp(-0.5)) + np.log1p(np.exp(0.8))) + 2.0 * 0.3**2 + 1
    assert f.value_and_gradient(np.array([0.3, 0.2]))[0] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_any_number_of_threads(form, dtype):
    def everything(n_jobs):
        X, y, weights = data(6000, 40, LOGISTIC, density=0.9)
        rows = make_rows(form(X.astype(dtype)), y, weights)
        f = LinearObjective(rows, LOGISTIC, n_jobs=n_jobs)
        assert len(f.portions) > 2
        w = np.linspace(-1, 1, 41)
        value, gradient = f.value_and_gradient(w)
        g = MultinomialObjective(make_rows(form(X.astype(dtype)), (y > 0).astype(int)), 3, n_jobs=n_jobs)
        W = np.linspace(-1, 1, g.n_parameters)
        others = f.hessian_product(w, w), f.hessian_diagonal(w), f.hessian(w).ravel()
        others += g.value_and_gradient(W)[1], g.hessian_product(W, np.cos(W))
        return np.concatenate([[value], gradient, *others])

    np.testing.assert_array_equal(everything(1), everything(2))


def test_portions_are_functions_of_data_and_parameters():
    f = objective(5000, 60, form=sparse.csr_array, density=0.9)
    w = np.linspace(-1, 1, 61)
    values, gradients = zip(*(f.evaluate(portion, w) for portion in f.portions), strict=True)
    penalty = 0.15 * w[:-1] @ w[:-1] + 2.0
    assert len(values) > 1
    assert f.value_and_gradient(w)[0] == tree_sum(values) / 5000 + penalty
    total = tree_sum(gradients) / 5000 + 0.3 * np.append(w[:-1], 0)
    np.testing.assert_allclose(f.value_and_gradient(w)[1], total, rtol=1e-14)


def test_a_point_is_read_once():
    f = objective()
    w = np.ones(6)
    f.value_and_gradient(w)
    passes = f.n_passes
    f.value_and_gradient(w.copy())
    assert f.n_passes == passes
    f.value_and_gradient(w, curvature=True)  # which was not asked for before
    f.hessian(w)
    assert f.n_passes == passes + 2
    f.hessian(w + 1)
    assert f.n_passes == passes + 4


def test_a_sample_stands_for_all_rows():
    f = objective(400, 3)
    every = f.sample(np.arange(400))
    w = np.ones(4)
    assert every.value_and_gradient(w)[0] == pytest.approx(f.value_and_gradient(w)[0], rel=1e-13)
    half = f.sample(sampled_rows(400, 200, seed=1))
    assert half.n_rows == 200
    assert half.value_and_gradient(w)[0] == pytest.approx(f.value_and_gradient(w)[0], rel=0.1)


@given(st.integers(8, 500), st.integers(1, 500), st.integers(0, 50))
def test_sampled_rows_are_different_rows(n, wanted, seed):
    rows = sampled_rows(n, wanted, seed)
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows[0] <= rows[-1] < n
    assert len(rows) <= max(8, wanted)


# --- preconditioners ------------------------------------------------------------------------------


def matrix_of(function, n):
    return np.column_stack([function(e) for e in np.eye(n)])


@pytest.mark.parametrize("kind", ["diagonal", "centred", "cholesky", "repeated"])
def test_transposed_is_the_transpose(kind):
    H = objective(scales=2.0).hessian(np.zeros(6))
    P = {
        "diagonal": Diagonal(np.diag(H)),
        "centred": Centred(np.diag(H), H[-1]),
        "cholesky": Cholesky(H),
        "repeated": Repeated(Cholesky(H[:2, :2]), 3),
    }[kind]
    np.testing.assert_allclose(matrix_of(P.transposed, 6), matrix_of(P.direct, 6).T, rtol=1e-12)


def test_what_preconditioners_undo():
    H = objective(scales=2.0).hessian(np.zeros(6))
    P = matrix_of(Cholesky(H).direct, 6)
    np.testing.assert_allclose(P.T @ H @ P, np.eye(6), atol=1e-9)
    np.testing.assert_allclose(Cholesky(H).solve(H @ np.arange(6.0)), np.arange(6.0), atol=1e-9)
    P = matrix_of(Diagonal(np.diag(H)).direct, 6)
    np.testing.assert_allclose(np.diag(P.T @ H @ P), 1)
    P = matrix_of(Centred(np.diag(H), H[-1]).direct, 6)
    transformed = P.T @ H @ P
    np.testing.assert_allclose(np.diag(transformed), 1)
    np.testing.assert_allclose(transformed[-1, :-1], 0, atol=1e-12)
    P = matrix_of(Repeated(Cholesky(H[:3, :3]), 2).direct, 6)
    np.testing.assert_allclose(P.T @ np.kron(H[:3, :3], np.eye(2)) @ P, np.eye(6), atol=1e-9)


def test_singular_matrices_have_factors():
    v = np.array([1.0, 1e3, 0.0])
    found = Cholesky(np.outer(v, v)).direct(np.ones(3))
    assert np.isfinite(found).all()
    assert np.isfinite(Cholesky(np.zeros((2, 2))).direct(np.ones(2))).all()
    assert np.isfinite(Diagonal(np.zeros(2)).direct(np.ones(2))).all()


# --- minimisers -----------------------------------------------------------------------------------


def reference(f):
    """By scipy, from the value and gradient alone, in columns of one scale."""
    scale = 1 / np.sqrt(f.hessian_diagonal(np.zeros(f.n_parameters)))

    def both(u):
        value, gradient = f.value_and_gradient(scale * u)
        return value, scale * gradient

    found = optimize.minimize(both, np.zeros(f.n_parameters), jac=True, method="BFGS", options={"gtol": 1e-9})
    return scale * found.x, found.fun


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("minimiser", [minimize_newton, minimize_newton_cg])
def test_newton_finds_what_scipy_finds(minimiser, loss):
    f = objective(200, 6, loss, l2=0.01, scales=2.0)
    x, value = reference(f)
    result = minimiser(f, np.zeros(7), tol_decrease=1e-12)
    assert result.success
    assert result.fun == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(f.hessian(x) @ (result.x - x), 0, atol=1e-5)
    assert result.nit < 20


@pytest.mark.parametrize("minimiser", [minimize_newton, minimize_newton_cg])
def test_the_decrement_estimates_the_excess(minimiser):
    f = objective(300, 6, LOGISTIC, l2=0.01)
    _, least = reference(f)
    seen = []
    minimiser(f, np.zeros(7), tol_decrease=1e-12, callback=lambda r: seen.append((r.fun, r.decrement)))
    values = [f.value_and_gradient(np.zeros(7))[0], *(value for value, _ in seen)]
    for before, (_, decrement) in zip(values[1:], seen[1:], strict=False):
        if before - least > 1e-9:
            assert decrement == pytest.approx(before - least, rel=0.3)
    assert np.diff(values).max() <= 1e-15 * values[0]  # the last step may end in rounding


def test_callbacks_and_limits_end_it():
    f = objective()
    result = minimize_newton(f, np.zeros(6), tol_decrease=0.0, callback=lambda r: r.nit == 2)
    assert (result.nit, result.status, result.success) == (2, 3, False)
    result = minimize_newton(f, np.zeros(6), tol_decrease=1e-12, max_iter=1)
    assert (result.nit, result.status) == (1, 1)
    exact = minimize_newton(f, np.zeros(6), tol_decrease=0.0)
    assert exact.success  # ends by rounding


def test_an_objective_that_overflows_is_come_back_from():
    """The first Newton step of a Poisson model from far away goes far too far."""
    X = np.linspace(0, 1, 50)[:, None]
    y = np.round(np.exp(8 * X[:, 0]))
    f = LinearObjective(make_rows(X, y), POISSON, scale=1 / 50, l2=1e-6)
    result = minimize_newton(f, np.array([-20.0, 0.0]), tol_decrease=1e-12)
    np.testing.assert_allclose(result.x, [8.0, 0.0], atol=0.01)


@pytest.mark.parametrize("l1", [0.0, 0.01, 0.05, 10.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_proximal_newton_meets_the_subgradient_conditions(loss, l1):
    f = objective(150, 8, loss, l2=0.02, scales=1.0)
    weights = np.append(np.full(8, l1), 0.0)
    result = minimize_proximal_newton(f, np.zeros(9), weights, tol_decrease=1e-13)
    assert result.success
    slope = f.value_and_gradient(result.x)[1]
    size = np.sqrt(f.hessian_diagonal(result.x))
    on = result.x != 0
    np.testing.assert_allclose((slope + weights * np.sign(result.x))[on] / size[on], 0, atol=1e-5)
    assert (np.abs(slope[~on]) <= weights[~on] * (1 + 1e-9)).all()
    assert on[-1]
    assert l1 < 10 or not on[:-1].any()
    assert result.fun == pytest.approx(f.value_and_gradient(result.x)[0] + weights @ np.abs(result.x))


def test_the_sketch_needs_few_passes_over_badly_scaled_columns():
    X, y, weights = data(20_000, 30, LOGISTIC, scales=3.0, shift=1.0)
    f = LinearObjective(make_rows(X, y, weights), LOGISTIC, scale=1 / 20_000, l2=1e-6)
    result = minimize_sketch(f, np.zeros(31), tol_decrease=1e-8)
    assert result.success
    assert f.n_passes <= 6
    best = minimize_newton(f, result.x, tol_decrease=1e-14)
    assert 0 <= result.fun - best.fun <= 1e-8 * best.fun


@pytest.mark.parametrize("correlation", [0.0, 0.95])  # of neighbours
def test_the_diagonal_serves_where_columns_hardly_correlate(correlation, monkeypatch):
    """A Hessian of the sample would take longer than six passes over all rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 300))
    for j in range(1, 300):
        X[:, j] += correlation * X[:, j - 1]
    y = np.where(X @ rng.standard_normal(300) / 20 + rng.logistic(size=20_000) > 0, 1.0, -1.0)
    f = LinearObjective(make_rows(X, y), LOGISTIC, scale=1 / 20_000, l2=1e-6, fit_intercept=False)
    hessians, original = [], LinearObjective.hessian
    monkeypatch.setattr(LinearObjective, "hessian", lambda *args: hessians.append(1) or original(*args))
    result = minimize_sketch(f, np.zeros(300), tol_decrease=1e-8)
    assert result.success
    assert bool(hessians) == (correlation > 0)
    assert f.n_passes <= 20
    best = minimize_newton(f, result.x, tol_decrease=1e-14)
    assert abs(result.fun - best.fun) <= 1e-8 * best.fun


def test_a_flat_direction_does_not_pass_for_a_minimum():
    """Two columns nearly the same, whose difference matters: by what its steps promise the diagonal is done
    while the objective is fifty times the tolerance too high.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 200))
    X[:, -1] = X[:, 0] + 0.03 * X[:, -1]
    z = X @ (rng.standard_normal(200) / 20) + 5 * (X[:, -1] - X[:, 0])
    y = np.where(z + rng.logistic(size=12_000) > 0, 1.0, -1.0)
    f = LinearObjective(make_rows(X, y), LOGISTIC, scale=1 / 12_000, l2=1e-8, fit_intercept=False)
    result = minimize_sketch(f, np.zeros(200), tol_decrease=1e-4)
    best = minimize_newton(f, result.x, tol_decrease=1e-14)
    assert result.success
    assert result.fun - best.fun <= 1e-4 * best.fun
    assert f.n_passes < 60


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_behind_the_diagonal_are_counted(form):
    X = np.zeros((40, 4))
    X[:, 0] = 3.0
    X[5:25, 1] = -2.0
    X[7, 2] = 1e-170  # its square is lost
    X[:, 3] = np.append(100.0, np.ones(39))
    f = LinearObjective(make_rows(form(X), np.ones(40)), SQUARED, scale=1 / 40)
    counts = f.rows_behind_diagonal(np.zeros(5))
    np.testing.assert_allclose(counts[:3], [40, 20, 0])
    assert 1 < counts[3] < 1.01


def test_the_sketch_grows_its_sample_until_it_is_everything():
    """One-hot columns that a sample hardly sees, and too few rows for any sample to be small."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(np.eye(50)[rng.zipf(1.3, 9000).clip(max=50) - 1])
    y = np.where(rng.random(9000) < 0.3, 1.0, -1.0)
    f = LinearObjective(make_rows(X, y), LOGISTIC, scale=1 / 9000, l2=1e-7)
    result = minimize_sketch(f, np.zeros(51), tol_decrease=1e-9)
    best = minimize_newton(f, np.zeros(51), tol_decrease=1e-14)
    assert result.fun == pytest.approx(best.fun, rel=1e-8)


def test_columns_that_a_sample_hardly_saw_do_not_mislead_it():
    """Without the diagonal of all rows this takes more than twice as many passes."""
    rng = np.random.default_rng(1)
    column = rng.zipf(1.3, 60_000).clip(max=200) - 1
    X = sparse.csr_array((np.ones(60_000), column, np.arange(60_001)), shape=(60_000, 200))
    y = np.where(rng.random(60_000) < rng.random(200)[column], 1.0, -1.0)
    f = LinearObjective(make_rows(X, y), LOGISTIC, scale=1 / 60_000, l2=1e-8)
    assert minimize_sketch(f, np.zeros(201), tol_decrease=1e-8).success
    assert f.n_passes <= 45


@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
@pytest.mark.parametrize("shape", [(300, 20), (3000, 90), (60, 2500)])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_every_method_arrives(solver, shape, form):
    f = objective(*shape, LOGISTIC, l2=0.01, form=form, density=0.3 if form is sparse.csr_array else 1.0)
    result, name = choose.minimise(f, np.zeros(f.n_parameters), solver=solver, tol=1e-8)
    assert result.success
    best = minimize_newton_cg(f, result.x, tol_decrease=1e-13)
    assert result.fun - best.fun <= 1e-8 * best.fun
    assert name in ("newton", "newton-cg", "sketch", "lbfgs")


def test_the_diagonal_hands_over_where_it_is_slow():
    """Columns that repeat one factor: no diagonal helps."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((3000, 1))
    X = factor + 1e-3 * rng.standard_normal((3000, 60))
    y = np.where(factor[:, 0] + rng.logistic(size=3000) > 0, 1.0, -1.0)
    for n in (3000, 200):
        f = LinearObjective(make_rows(X[:n], y[:n]), LOGISTIC, scale=1 / n, l2=1e-9)
        result, _ = choose._diagonal_first(f, np.zeros(61), max_iter=500, tol_decrease=1e-9, callback=None)
        best = minimize_newton(f, result.x, tol_decrease=1e-14)
        assert result.success
        assert result.nit > 25
        assert result.fun - best.fun <= 1e-8 * best.fun


def test_a_dear_hessian_is_not_made_where_l_bfgs_is_slow(monkeypatch):
    """Sparse rows and many columns, almost separable: conjugate gradients arrive with Newton's accuracy."""
    f = objective(900, 700, LOGISTIC, l2=1e-4, form=sparse.csr_array, density=0.02)
    asked = []
    monkeypatch.setattr(choose, "minimize_newton", lambda *args, **options: asked.append(1))
    monkeypatch.setattr(choose, "_LONG_PATIENCE", 20)
    result, _ = choose._diagonal_first(f, np.zeros(701), max_iter=500, tol_decrease=1e-9, callback=None)
    assert result.success
    assert not asked
    best = minimize_newton(f, result.x, tol_decrease=1e-14)
    assert result.fun - best.fun <= 1e-9 * best.fun


def test_flat_directions_that_conjugate_gradients_missed_are_found(monkeypatch):
    """The same columns, which repeat one factor, where a Hessian counts as dear."""
    monkeypatch.setattr(choose, "_CHEAP_HESSIAN", 0)
    test_the_diagonal_hands_over_where_it_is_slow()


def test_what_auto_takes():
    """By the shape alone: few parameters, many rows, many columns."""
    small, large = objective(300, 5), objective(200_000, 5)
    wide = objective(30, 3000)
    assert choose.method_for(small) == "newton"
    assert choose.method_for(large) == "sketch"
    assert choose.method_for(wide) == "lbfgs"
    X, y, _ = data(200_000, 5, SQUARED)
    assert choose.method_for(LinearObjective(make_rows(X, y), SQUARED)) == "newton"


def test_the_tree_sum():
    assert [tree_sum(range(n)) for n in range(1, 20)] == [n * (n - 1) // 2 for n in range(1, 20)]
    assert tree_sum([1e16, 1.0, -1e16, 1.0]) == (1e16 + 1.0) + (-1e16 + 1.0)
