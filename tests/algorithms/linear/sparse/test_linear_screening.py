"""Scores by bounds against scores of every column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import stradask as sd
from stradask.algorithms.linear.sparse import program as screening
from stradask.algorithms.linear.sparse.columns import columns_of
from stradask.algorithms.linear.sparse.program import Scores
from stradask.datasets import make_sparse_regression


def brute_force(X, factors, positive, request, working):
    """Every column is read."""
    slopes = X.T @ request["v"].T
    scores = (slopes if positive else abs(slopes)).max(axis=1, initial=0)
    scores = scores / factors
    scores[working] = -1
    above = np.flatnonzero(scores > request["threshold"])
    above = above[np.lexsort((above, -scores[above]))][: request["count"]]
    return scores.max(initial=0), above, scores[above]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    is_sparse=st.booleans(),
    positive=st.booleans(),
    weighted=st.booleans(),
    n_outputs=st.sampled_from([1, 3]),
    scale=st.sampled_from([1.0, 1e-200, 1e200]),
    mean=st.sampled_from([0.0, 50.0]),
)
def test_no_column_above_the_threshold_is_missed(seed, is_sparse, positive, weighted, n_outputs, scale, mean):
    rng = np.random.default_rng(seed)
    n, p = 30, 80
    X = (rng.standard_normal((n, p)) + mean) * (rng.random((n, p)) < 0.6)
    X[:, 5] = 0
    factors = rng.uniform(0.5, 2, p) if weighted else np.ones(p)
    form = sparse.csc_array(X * scale) if is_sparse else np.asfortranarray(X * scale)
    scores = Scores(columns_of(form), factors if weighted else None, positive)
    start, move = rng.standard_normal((2, n_outputs, n))
    if mean and seed % 2:  # as with an intercept; otherwise sums drift
        start, move = (part - part.mean(axis=1, keepdims=True) for part in (start, move))
    working = np.empty(0, np.int64)
    read, inner = [], scores._read
    scores._read = lambda columns, vectors: read.append(len(columns)) or inner(columns, vectors)
    threshold = abs(X.T @ start[0]).max() * scale
    for round in range(14):
        v = np.ascontiguousarray(start * 0.97**round + move * 0.004 * round)
        threshold *= 0.98
        request = {"v": v, "threshold": threshold, "count": 12}
        bound, found, values = scores.find(request, working)
        most, expected, expected_values = brute_force(X * scale, factors, positive, request, working)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(values, expected_values, rtol=1e-9)
        assert bound >= most * (1 - 1e-9)
        assert bound == pytest.approx(max(most, 0.99 * threshold), rel=1e-9)
        working = np.union1d(working, found[:6])
    assert max(read[:6]) > 60
    assert read[-1] < 60 or scale != 1


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_columns_that_turn_with_the_vector_are_found_in_time(is_sparse, factor):
    """The worst case: slopes of zero, and then the whole change in one column's direction, or in its mean."""
    n = 64
    start = np.r_[1.0, -1.0, np.zeros(n - 2)]
    turn = np.r_[0, 0, 1.0, -1.0, np.zeros(n - 4)]
    X = np.column_stack([turn * 100, np.full(n, 5.0), np.r_[0, 0, 0, 0, np.ones(n - 4)]])
    form = sparse.csc_array(X) if is_sparse else np.asfortranarray(X)
    for column, change in ((0, turn), (1, np.full(n, 1.0)), (2, X[:, 2])):
        slope = abs(X[:, column] @ change) / factor
        scores = Scores(columns_of(form), np.full(3, factor), False)
        threshold = 0.95 * slope
        working = np.setdiff1d(np.arange(3), column)
        for step in (0.0,) * 8 + (1.0,):
            request = {"v": (start + step * change)[None], "threshold": threshold, "count": 3}
            _, found, _ = scores.find(request, working)
            assert found.tolist() == ([column] if step == 1.0 else [])


def test_a_path_reads_few_columns_and_ends_with_the_same_gaps(monkeypatch):
    X, y, _ = make_sparse_regression(200, 3000, n_informative=10, density=0.05, random_state=0)
    read, inner = [], Scores._read
    monkeypatch.setattr(Scores, "_read", lambda self, *args: read.append(len(args[0])) or inner(self, *args))
    options = {"n_alphas": 40, "eps": 0.1, "tol": 1e-8, "fit_intercept": True}
    alphas, coefs, gaps, intercepts = sd.lasso_path(X, y, **options)
    assert sum(read) < 0.35 * len(read) * X.shape[1]
    monkeypatch.setattr(screening, "_PATIENCE", 10**9)
    read.clear()
    _, plain_coefs, plain_gaps, _ = sd.lasso_path(X, y, **options)
    assert sum(read) > 0.9 * len(read) * X.shape[1]
    for k, alpha in enumerate(alphas):
        residual = y - X @ coefs[:, k] - intercepts[k]
        slope = abs(X.T @ residual).max() / len(y)
        target = y - y.mean()
        s = min(target @ residual / (residual @ residual), alpha / slope)
        dual = s * (target @ residual) - s**2 * (residual @ residual) / 2
        gap = (residual @ residual / 2 - dual) / len(y) + alpha * abs(coefs[:, k]).sum()
        assert gap <= 1.01e-8 * (target @ target) / 2 / len(y)
    np.testing.assert_allclose(coefs, plain_coefs, atol=1e-3)
    assert max(gaps) <= 1e-8 * y.var() / 2
    assert max(plain_gaps) <= 1e-8 * y.var() / 2


def test_columns_that_overflow_are_read():
    X = np.asfortranarray(np.ones((4, 3)) * [1.0, 1e300, 1e308])
    scores = Scores(columns_of(X), None, False)
    request = {"v": np.ones((1, 4)), "threshold": 3.0, "count": 3}
    for _ in range(9):
        _, found, _ = scores.find(request, np.empty(0, np.int64))
    assert sorted(found.tolist()) == [0, 1, 2]
