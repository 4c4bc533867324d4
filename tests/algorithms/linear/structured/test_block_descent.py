"""Sweeps by rows and by products minimise the same problem; judged by gaps that are computed here."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq

import stradask as sd
from stradask.algorithms.linear.structured.penalties import BlockPenalty
from stradask.algorithms.linear.structured.solving.block_descent import (
    MatrixProducts,
    RowProducts,
    SparseRowProducts,
    block_descent,
    rows_are_cheaper,
    sparse_rows_are_cheaper,
)
from stradask.algorithms.linear.structured.solving.blocks import Blocks
from stradask.algorithms.linear.structured.solving.second_order import MatrixModel, RowModel, minimise_model
from stradask.kernels.linear.blocks import gauge

RNG = np.random.default_rng(5)
N, P = 60, 400
X = np.asfortranarray(RNG.standard_normal((N, P)) + 0.5 * RNG.standard_normal((N, 1)))
B = np.zeros((P, 3))
B[:12] = RNG.standard_normal((12, 3))
Y = X @ B + RNG.standard_normal((N, 3))


def group_gap(coef, Y, size, alpha):
    """Duality gap of ``|Y - X b|^2 / 2n + alpha sum |b_g|``, groups of `size` rows of b."""
    R = (Y - X @ coef) / N
    norms = np.sqrt((coef.reshape(-1, size * coef.shape[1]) ** 2).sum(axis=1))
    duals = np.sqrt(((X.T @ R).reshape(len(norms), -1) ** 2).sum(axis=1))
    R = R * min(1.0, alpha / duals.max())
    primal = ((Y - X @ coef) ** 2).sum() / (2 * N) + alpha * norms.sum()
    return primal - ((R * Y).sum() - N / 2 * (R**2).sum())


@pytest.mark.parametrize(("size", "K"), [(1, 1), (5, 1), (1, 3)])
@pytest.mark.parametrize("by_rows", [True, False])
def test_both_ways_close_a_gap_that_is_computed_here(size, K, by_rows):
    target, alpha = Y[:, :K], 0.2
    starts = np.arange(0, P + 1, size)
    weights = np.full(N, 1 / N)
    model = RowProducts(X, weights, starts) if by_rows else MatrixProducts(X.T @ X / N, starts)
    none, without = np.zeros(len(starts) - 1), np.full(len(starts) - 1, np.inf)
    penalty = none + alpha, none, -without, without, 3.0, 0
    coef = np.zeros((P, K))
    block_descent(model, -X.T @ target / N, coef, starts, penalty, 1e-9, convex=True)
    assert group_gap(coef, target, size, alpha) < 1e-8
    assert 0 < np.count_nonzero(coef) < coef.size


def test_wide_models_go_by_rows_and_narrow_ones_by_products():
    assert rows_are_cheaper(300, 1000, 1)
    assert not rows_are_cheaper(10_000, 100, 1)


def test_a_wide_poisson_model_with_an_intercept_meets_the_optimality_conditions():
    y = np.random.default_rng(1).poisson(np.exp(0.3 * X[:, :5].sum(axis=1) + 0.5)).astype(float)
    most = sd.SparsePoissonRegressor().alpha_max(X, y)
    model = sd.SparsePoissonRegressor(alpha=most / 60, tol=1e-12).fit(X, y)
    assert np.count_nonzero(model.coef_) > N / 4
    slopes = X.T @ (y - np.exp(X @ model.coef_ + model.intercept_)) / N
    on = model.coef_ != 0
    np.testing.assert_allclose(slopes[on], most / 60 * np.sign(model.coef_[on]), atol=1e-6)
    assert np.abs(slopes).max() <= most / 60 + 1e-6
    np.testing.assert_allclose(np.exp(X @ model.coef_ + model.intercept_).sum(), y.sum(), rtol=1e-6)


def test_dependent_columns_take_no_newton_step():
    twice = np.asfortranarray(np.hstack([X[:, :5], X[:, :5]]))
    model = sd.SparseGLM(alpha=0.05, tol=1e-10, fit_intercept=False).fit(twice, Y[:, 0])
    once = sd.SparseGLM(alpha=0.05, tol=1e-10, fit_intercept=False).fit(X[:, :5], Y[:, 0])
    np.testing.assert_allclose(model.coef_[:5] + model.coef_[5:], once.coef_, atol=1e-5)


def test_the_gauge_is_the_least_scale_that_makes_slopes_feasible():
    V, starts = RNG.standard_normal((6, 1)) * 3, np.array([0, 3, 5, 6])
    lam, l1 = np.array([0.7, 0.0, 0.4]), np.array([0.3, 0.5, 0.0])
    low, high = np.full(3, -np.inf), np.full(3, np.inf)

    def excess(t, g):
        v = np.abs(V[starts[g] : starts[g + 1], 0])
        return np.linalg.norm(np.maximum(v - t * l1[g], 0)) - t * lam[g]

    least = [brentq(excess, 1e-9, 1e3, args=(g,)) for g in (0, 2)] + [np.abs(V[3:5]).max() / 0.5]
    np.testing.assert_allclose(gauge(V, starts, lam, l1, low, high), max(1, *least), rtol=1e-9)
    assert gauge(V / 1e3, starts, lam, l1, low, high) == 1.0


def test_slopes_that_a_bound_takes_do_not_count_and_those_of_a_free_half_line_forbid_any_scale():
    V, starts = np.array([[-5.0], [2.0]]), np.arange(3)
    zero, up = np.zeros(2), np.full(2, np.inf)
    assert gauge(V, starts, np.array([1.0, 4.0]), zero, zero, up) == 1.0
    assert gauge(V, starts, zero, zero, zero, up) == np.inf
    assert gauge(V, starts, np.full(2, 1.0), zero, np.full(2, -1.0), np.full(2, 1.0)) == 1.0


@pytest.mark.parametrize("flat", [False, True])
def test_a_block_goes_to_its_minimum(flat):
    """One visit of a block under its norm solves the equation of its optimum, also where H is singular."""
    A = RNG.standard_normal((N, 4))
    A[:, 3] = A[:, 0] if flat else A[:, 3]
    H, q, starts = A.T @ A / N, RNG.standard_normal((4, 1)), np.array([0, 4])
    q = H @ q if flat else q
    lam, without = np.array([0.5 * np.linalg.norm(q)]), np.array([np.inf])
    for model in (MatrixProducts(H, starts), RowProducts(np.asfortranarray(A), np.full(N, 1 / N), starts)):
        b = RNG.standard_normal((4, 1))
        model.start(H @ b + q, b)
        model.sweeps(b, starts, lam, 0 * lam, -without, without, 3.0, 0, n_sweeps=1, tol=0.0)
        np.testing.assert_allclose(H @ b + q + lam * b / np.linalg.norm(b), 0, atol=1e-9)
        model.sweeps(b, starts, 4 * lam, 0 * lam, -without, without, 3.0, 0, n_sweeps=1, tol=0.0)
        assert not b.any()


def test_rows_that_grow_are_those_of_all_columns():
    D, starts = RNG.uniform(0.5, 1, N), np.array([0, 1, 4, 9, 11])
    whole = RowProducts(X[:, :11], D, starts)
    grown = RowProducts(X[:, :1], D, starts[:2])
    grown.grow(X[:, :4], starts[:3])
    grown.grow(X[:, :11], starts)
    np.testing.assert_allclose(grown.spectrum.steps, whole.spectrum.steps, rtol=1e-12)
    np.testing.assert_allclose(grown.spectrum.spectra, whole.spectrum.spectra, atol=1e-12)
    np.testing.assert_allclose(grown.own, whole.own, rtol=1e-12)


def sparse_problem(seed=0, n=200, p=400, density=0.02):
    rng = np.random.default_rng(seed)
    A = sparse.random(n, p, density, format="csc", random_state=seed)
    return A, rng.uniform(0.2, 1, n) / n, rng


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize(
    ("size", "n_free", "intercept"), [(1, 0, True), (1, 2, True), (4, 0, False), (4, 4, True)]
)
def test_sparse_rows_have_the_minimum_of_the_matrix(size, n_free, intercept, K):
    """The model by rows of CSC columns, and by their products: both meet the conditions of the optimum."""
    A, D, rng = sparse_problem()
    p = A.shape[1]
    starts = np.arange(0, p + 1, size)
    free = np.zeros(len(starts) - 1, bool)
    free[: n_free // size] = True
    g, g0 = rng.standard_normal((p, K)) * 1e-3, rng.standard_normal(K) * 1e-3
    ridge = rng.uniform(0, 1e-3, p)
    ones = np.asarray(A.T @ D) if intercept else None
    H = (A.multiply(D[:, None]).T @ A).toarray()
    lam, none, without = (
        np.where(free, 0.0, (1.2e-3 if size * K == 1 else 1e-3 * np.sqrt(size * K))),
        np.zeros(len(free)),
        np.full(len(free), np.inf),
    )
    blocks = Blocks(np.arange(p), starts, plain=True)
    penalty = BlockPenalty(blocks, lam, none, none, -without, without)
    changes = []
    for model in (RowModel(A.copy(), D, intercept or None), MatrixModel(H, ones, float(D.sum()))):
        np.testing.assert_allclose(model.diagonal(), np.diag(H), rtol=1e-12)
        damped = model.with_ridge(ridge + 0.5 * model.diagonal(), 0.5)
        b, dc = minimise_model(
            damped, g, g0, np.zeros((p, K)), np.arange(len(free)), starts, free, penalty, 1e-10, 5000
        )
        # Slopes of the quadratic model, from its definition.
        slopes = g + H @ b + (ridge + 0.5 * np.diag(H))[:, None] * b
        if intercept:
            slopes += np.outer(A.T @ D, dc)
            np.testing.assert_allclose(g0 + (A.T @ D) @ b + 1.5 * D.sum() * dc, 0, atol=1e-9)
        norms = np.sqrt(np.add.reduceat((b**2).sum(axis=1), starts[:-1]))
        assert 0 < np.count_nonzero(norms) < len(norms)
        for block in range(len(free)):
            at = slice(starts[block], starts[block + 1])
            if norms[block] > 0:
                np.testing.assert_allclose(slopes[at], -lam[block] * b[at] / norms[block], atol=1e-8)
            else:
                assert np.sqrt((slopes[at] ** 2).sum()) <= lam[block] + 1e-8
        changes.append(np.vstack([b, dc]))
    np.testing.assert_allclose(*changes, atol=1e-5)


def test_sparse_rows_know_their_value_and_forget_no_rounding():
    A, D, rng = sparse_problem()
    crossed = np.asarray(A.T @ D)[:, None]
    starts = np.arange(0, A.shape[1] + 1, 2)
    model = SparseRowProducts(A.copy(), D, starts, crossed, crossed / D.sum())
    H = (A.multiply(D[:, None]).T @ A).toarray() - crossed @ crossed.T / D.sum()
    np.testing.assert_allclose(model.own[:2, :2], H[:2, :2], atol=1e-15)
    G, B = A.T @ rng.standard_normal((len(D), 1)) * 1e-3, rng.standard_normal((A.shape[1], 1))
    origin = B.copy()
    model.start(G, B)
    lam, none, without = (np.full(len(starts) - 1, value) for value in (1e-3, 0.0, np.inf))
    model.sweeps(B, starts, lam, none, -without, without, 3.0, 0, n_sweeps=3, tol=0.0)
    d = B - origin
    expected = float(np.sum(G * d) + 0.5 * np.sum(d * (H @ d)))
    assert model.value(B, model.state) == pytest.approx(expected, rel=1e-10)
    before = model.state.copy()
    model.refresh(B)
    np.testing.assert_allclose(model.state, before, atol=1e-13)


def test_wide_sparse_models_go_by_rows_and_long_ones_by_products():
    assert sparse_rows_are_cheaper(4000, 2000, 16_000, 1)
    assert not sparse_rows_are_cheaper(100_000, 50, 500_000, 1)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_sparse_and_dense_columns_give_the_same_model(loss):
    rng = np.random.default_rng(3)
    X = sparse.random(300, 600, 0.03, format="csc", random_state=3)
    f = X[:, :20] @ (3 * rng.standard_normal(20))
    y = f + 0.1 * rng.standard_normal(300)
    if loss == "logistic":
        y = (f + rng.logistic(size=300) > 0).astype(int)
    alpha = 0.05 * np.abs(X.T @ (y - y.mean())).max() / 300
    settings = {"loss": loss, "alpha": alpha, "tol": 1e-10}
    by_rows, by_products = sd.SparseGLM(**settings).fit(X, y), sd.SparseGLM(**settings).fit(X.toarray(), y)
    assert np.count_nonzero(by_rows.coef_) > 15
    np.testing.assert_allclose(by_rows.coef_, by_products.coef_, atol=2e-4)
