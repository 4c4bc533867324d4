"""Kernels of generalised linear losses against plain numpy, their derivatives against differences."""

import math

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit, logsumexp

from stradask.algorithms.linear.glm.rows import LOGISTIC, POISSON, SQUARED, DenseRows, cut, make_rows
from stradask.kernels.exponentials import fast_exp, fast_log1p
from stradask.kernels.linear.glm_losses import tile_losses

LOSSES = (SQUARED, LOGISTIC, POISSON)
FORMS = ("dense", "csr", "csr with int64")


def plain(loss, z, y):
    """Value, slope and curvature of each row, as the formulas say."""
    if loss == SQUARED:
        return (z - y) ** 2 / 2, z - y, np.ones_like(z)
    if loss == LOGISTIC:
        p = expit(-y * z)
        return np.logaddexp(0, -y * z), -y * p, p * expit(y * z)
    return np.exp(z) - y * z, np.exp(z) - y, np.exp(z)


def problem(n, d, loss, *, seed, dtype=np.float64, form="dense", weighted=True):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[rng.random((n, d)) < (0.0 if form == "dense" else 0.6)] = 0
    X = X.astype(dtype)
    if loss == LOGISTIC:
        y = rng.choice([-1.0, 1.0], n)
    else:
        y = rng.poisson(2.0, n).astype(float) if loss == POISSON else rng.standard_normal(n)
    weights = rng.uniform(0, 2, n) * (rng.random(n) < 0.8) if weighted else None
    kind = {"csr": sparse.csr_array, "csr with int64": with_int64}.get(form, np.asarray)
    return (
        make_rows(kind(X), y, weights),
        X.astype(float),
        rng.standard_normal(d) / math.sqrt(d),
        rng.normal(),
    )


def with_int64(X):
    C = sparse.csr_array(X)
    C.indices, C.indptr = C.indices.astype(np.int64), C.indptr.astype(np.int64)
    return C


def with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


@nb.njit
def _each(x, out, exponential):
    for i in range(len(x)):
        out[i] = fast_exp(x[i]) if exponential else fast_log1p(x[i])


def test_exp_and_log1p_to_a_few_units_in_the_last_place():
    x = np.concatenate([np.linspace(-707, 709, 100_001), np.linspace(-1, 1, 10_001)])
    found = np.empty_like(x)
    _each(x, found, True)
    np.testing.assert_allclose(found, np.exp(x), rtol=4.5e-16)
    x = np.concatenate([np.linspace(0, 1, 10_001)[1:], np.geomspace(1e-300, 1, 1001)])
    found = np.empty_like(x)
    _each(x, found, False)
    np.testing.assert_allclose(found, np.log1p(x), rtol=8.9e-16)  # older LLVM contracts other products
    edges = np.array([np.nan, -np.inf, -1e4, 0.0])
    found = np.empty(4)
    _each(edges, found, True)
    assert np.isnan(found[0])
    assert (found[1:3] <= 1e-300).all()
    assert found[3] == 1.0


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_far_out(loss):
    """No overflow where the loss is finite; infinity and NaN show where it is not."""
    z = np.array([-800.0, -30.0, 0.0, 30.0, 800.0, np.nan])
    y = np.array([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    y = np.abs(y) if loss == POISSON else y
    values, slopes, curvatures = np.empty(6), np.empty(6), np.empty(6)
    total = tile_losses(loss, z, y, np.empty(0), 6, values, slopes, curvatures)
    assert np.isnan(total)
    assert np.isnan([values[5], slopes[5]]).all()
    with np.errstate(over="ignore"):
        expected = plain(loss, z[:5], y[:5])
    for found, wanted in zip((values, slopes, curvatures), expected, strict=True):
        np.testing.assert_allclose(found[:5], wanted, rtol=1e-14, atol=1e-300)


def test_rows_without_weight_count_for_nothing():
    """Not even where their loss overflows."""
    values, slopes, curvatures = np.empty(2), np.empty(2), np.empty(2)
    z, y, weights = np.array([1e4, 0.0]), np.zeros(2), np.array([0.0, 2.0])
    assert tile_losses(POISSON, z, y, weights, 2, values, slopes, curvatures) == 2.0
    assert (slopes.tolist(), curvatures.tolist()) == ([0.0, 2.0], [0.0, 2.0])


@given(
    n=st.sampled_from([1, 2, 3, 5, 31, 64, 515, 1100]),
    d=st.sampled_from([1, 2, 7, 16, 33, 300]),
    loss=st.sampled_from(LOSSES),
    form=st.sampled_from(FORMS),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    seed=st.integers(0, 10_000),
)
@settings(deadline=None, max_examples=80)
def test_one_pass_gives_what_numpy_gives(n, d, loss, form, dtype, weighted, seed):
    rows, X, w, c = problem(n, d, loss, seed=seed, dtype=dtype, form=form, weighted=weighted)
    weights = rows.weights.astype(float) if weighted else np.ones(n)
    values, slopes, curvatures = plain(loss, X @ w.astype(dtype).astype(float) + c, rows.y.astype(float))
    rtol = 2e-5 if dtype == np.float32 and isinstance(rows, DenseRows) else 1e-11
    curvature = np.empty(n)
    value, gradient = rows.gradient(loss, w.astype(dtype).astype(float), c, curvature)
    scale = np.abs(weights * values).sum() + 1e-300
    assert value == pytest.approx(weights @ values, rel=rtol, abs=rtol * scale)
    A = with_ones(X)
    bound = np.abs(A).T @ (weights * (np.abs(slopes) + curvatures)) + 1e-300
    assert (np.abs(gradient - A.T @ (weights * slopes)) <= rtol * bound).all()
    np.testing.assert_allclose(curvature, weights * curvatures, rtol=10 * rtol, atol=1e-12)

    H = A.T @ (curvature[:, None] * A)
    size = np.abs(A).T @ (curvature[:, None] * np.abs(A)) + 1e-300
    assert (np.abs(rows.diagonal(curvature) - np.diag(H)) <= rtol * np.diag(size)).all()
    found = np.ones_like(H)
    rows.add_hessian(curvature, found)
    of_blocks = 2e-5 if dtype == np.float32 else rtol  # products of blocks are in the type of the data
    assert (np.abs(found - 1 - H) <= of_blocks * size + 1e-12).all()
    v = np.linspace(-1, 1, d + 1).astype(dtype).astype(float)
    assert (np.abs(rows.product(curvature, v[:-1], v[-1]) - H @ v) <= rtol * (size @ np.abs(v)) + 1e-12).all()


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_by_differences(loss, form):
    """Independent of the formulas: differences of the value, and of the gradient."""
    rows, _, w, c = problem(40, 6, loss, seed=1, form=form)
    at = np.append(w, c)

    def both(x):
        return rows.gradient(loss, x[:-1], x[-1])

    _, gradient = both(at)
    curvature = np.empty(40)
    rows.gradient(loss, w, c, curvature)
    H = np.zeros((7, 7))
    rows.add_hessian(curvature, H)
    for j in range(7):
        step = np.zeros(7)
        step[j] = 1e-5
        up, down = both(at + step), both(at - step)
        assert gradient[j] == pytest.approx((up[0] - down[0]) / 2e-5, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(H[j], (up[1] - down[1]) / 2e-5, rtol=1e-6, atol=1e-6)


@given(
    n=st.sampled_from([1, 3, 70]),
    d=st.sampled_from([1, 5, 20]),
    n_classes=st.sampled_from([2, 3, 8, 9, 20]),
    dense=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    seed=st.integers(0, 10_000),
)
@settings(deadline=None, max_examples=50)
def test_multinomial_pass_gives_what_numpy_gives(n, d, n_classes, dense, dtype, weighted, seed):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < (1.0 if dense else 0.5))).astype(dtype)
    labels = rng.integers(0, n_classes, n)
    weights = rng.uniform(0, 2, n) if weighted else None
    rows = make_rows(X if dense else sparse.csr_array(X), labels, weights)
    W = np.zeros((d + 1, -(-n_classes // 8) * 8), dtype)
    W[:, :n_classes] = rng.standard_normal((d + 1, n_classes))
    value, gradient = rows.multinomial(W, n_classes)
    s = np.ones(n) if weights is None else rows.weights.astype(float)
    A = with_ones(X.astype(float))
    Z = A @ W[:, :n_classes].astype(float)
    logs = Z - logsumexp(Z, axis=1)[:, None]
    rtol = 1e-5 if dtype == np.float32 else 1e-12
    assert value == pytest.approx(-s @ logs[np.arange(n), labels], rel=rtol, abs=rtol * (1 + s.sum()))
    expected = A.T @ (s[:, None] * (np.exp(logs) - np.eye(n_classes)[labels]))
    np.testing.assert_allclose(gradient[:, :n_classes], expected, rtol=rtol, atol=rtol * 4 * s.sum())
    assert not gradient[:, n_classes:].any()
    V = np.zeros_like(W)
    V[:, :n_classes] = rng.standard_normal((d + 1, n_classes))
    product = rows.multinomial_product(W, V, n_classes)
    P, U = np.exp(logs), A @ V[:, :n_classes].astype(float)
    expected = A.T @ (s[:, None] * P * (U - (P * U).sum(axis=1, keepdims=True)))
    np.testing.assert_allclose(product[:, :n_classes], expected, rtol=rtol, atol=rtol * 20 * s.sum())
    assert not product[:, n_classes:].any()


def test_multinomial_far_out():
    X = np.array([[1e4], [-1e4]])
    W = np.zeros((2, 8))
    W[0, :3] = [1.0, 0.0, -1.0]
    value, gradient = make_rows(X, np.array([0, 0])).multinomial(W, 3)
    assert value == 2e4  # the second row has its label last
    np.testing.assert_allclose(gradient[0, :3], [1e4, 0, -1e4], atol=1e-300)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_portions_are_all_rows_in_order(form):
    rows, X, w, c = problem(8099, 60, LOGISTIC, seed=3, form=form)
    parts = cut(rows)
    assert len(parts) > 1
    assert sum(part.shape[0] for part in parts) == 8099
    assert sum(part.n_entries for part in parts) == rows.n_entries
    whole = rows.gradient(LOGISTIC, w, c)
    values, gradients = zip(*(part.gradient(LOGISTIC, w, c) for part in parts), strict=True)
    assert sum(values) == pytest.approx(whole[0], rel=1e-13)
    np.testing.assert_allclose(sum(gradients), whole[1], atol=1e-10)
    some = rows.take(np.array([4000, 3, 17]))
    np.testing.assert_allclose(
        some.gradient(SQUARED, w, c)[1],
        with_ones(X)[[4000, 3, 17]].T
        @ (rows.weights[[4000, 3, 17]] * (X[[4000, 3, 17]] @ w + c - rows.y[[4000, 3, 17]])),
    )


def test_nothing_is_copied():
    X = np.ones((9, 3))
    rows = make_rows(X, np.ones(9))
    assert np.shares_memory(rows.part(2, 5).X, X)
    C = sparse.csr_array(np.eye(4))
    assert np.shares_memory(make_rows(C, np.ones(4)).part(1, 3).data, C.data)
    full = sparse.csr_array(np.ones((4, 2)))
    assert np.shares_memory(make_rows(full, np.ones(4)).X, full.data)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_squared_norms(form):
    rows, X, *_ = problem(30, 4, SQUARED, seed=2, form=form)
    np.testing.assert_allclose(rows.squared_norms(), (X**2).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(rows.part(7, 20).squared_norms(), (X[7:20] ** 2).sum(axis=1), atol=1e-12)
