"""Sparse ratings: the default is no worse than biases alone, and penalties are those estimated."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd


def sparse_ratings(seed, bias=1.0, noise=1.4, n_users=16_000, n_items=8000):
    """One to five ratings a user, of items of heavy-tailed popularity, and no signal beyond biases."""
    rng = np.random.default_rng(seed)
    u = np.repeat(np.arange(n_users), rng.integers(1, 6, n_users))
    popularity = 1 / (np.arange(n_items) + 5.0) ** 0.8
    j = rng.choice(n_items, len(u), p=popularity / popularity.sum())
    u, j = np.divmod(np.unique(u * n_items + j), n_items)
    b, c = bias * rng.standard_normal(n_users), 0.6 * bias * rng.standard_normal(n_items)
    return u, j, np.clip(np.round(7.6 + b[u] + c[j] + noise * rng.standard_normal(len(u))), 1, 10)


def error_of_biases(train, test, shape, penalty):
    """Biases by alternated least squares."""
    (u, j, r), (v, k, t) = train, test
    mean, b, c = r.mean(), np.zeros(shape[0]), np.zeros(shape[1])
    for _ in range(30):
        b = np.bincount(u, r - mean - c[j], shape[0]) / (np.bincount(u, minlength=shape[0]) + penalty)
        c = np.bincount(j, r - mean - b[u], shape[1]) / (np.bincount(j, minlength=shape[1]) + penalty)
    return np.sqrt(np.mean((t - mean - b[v] - c[k]) ** 2))


def split(ratings, part, seed):
    held = np.random.default_rng(seed).random(len(ratings[0])) < part
    return [x[~held] for x in ratings], [x[held] for x in ratings]


@pytest.mark.parametrize(("seed", "bias"), [(0, 1.0), (1, 1.0), (2, 0.5)])
def test_the_default_is_no_worse_than_biases_alone(seed, bias):
    train, test = split(sparse_ratings(seed, bias), 0.2, seed)
    shape = 16_000, 8000
    parts = split(train, 0.1, 10 + seed)
    penalty = min([0.5, 1, 2, 3, 5, 7, 10, 20, 50], key=lambda reg: error_of_biases(*parts, shape, reg))
    least = error_of_biases(train, test, shape, penalty)
    R = sparse.csr_array((train[2], (train[0], train[1])), shape=shape)
    for solver in ("auto", "als"):
        model = sd.MatrixFactorization(solver=solver, random_state=0).fit(R)
        found = np.sqrt(np.mean((model.predict(np.column_stack(test[:2])) - test[2]) ** 2))
        assert found <= least


def test_the_penalties_are_ratios_of_variances():
    """Biases of deviation 1 and 0.6 and errors of 1.4: 1.96 ratings of a user, 5.4 of an item."""
    rng = np.random.default_rng(0)
    b, c = rng.standard_normal(600), 0.6 * rng.standard_normal(500)
    u, j = np.nonzero(rng.random((600, 500)) < 0.05)
    r = b[u] + c[j] + 1.4 * rng.standard_normal(len(u))
    model = sd.MatrixFactorization(2, max_iter=1, random_state=0).fit(np.column_stack([u, j]), r)
    np.testing.assert_allclose(model.bias_reg_, [1.96 / b.var(), 1.96 / c.var()], rtol=0.15)
    chosen = sd.MatrixFactorization(2, bias_reg=3, reg_offset=0, max_iter=1).fit(np.column_stack([u, j]), r)
    assert (chosen.bias_reg_.tolist(), chosen.reg_offset_) == ([3, 3], 0)


def test_a_saved_model_keeps_its_penalties_and_older_ones_have_those_of_their_fit(tmp_path):
    u, j, r = sparse_ratings(0, n_users=300, n_items=100)
    R = sparse.csr_array((r, (u, j)), shape=(300, 100))
    model = sd.MatrixFactorization(2, random_state=0, dtype="float64").fit(R)
    model.save(tmp_path / "new.npz")
    np.testing.assert_array_equal(sd.load(tmp_path / "new.npz").transform(R[:5]), model.transform(R[:5]))
    del model.bias_reg_, model.reg_offset_  # as in version 0.1: one penalty, of the number of ratings
    model.save(tmp_path / "old.npz")
    found = sd.load(tmp_path / "old.npz").transform(R[:5])
    for row in range(5):
        columns = R[[row]].indices
        Q = np.column_stack([model.item_factors_, np.ones(100)])[columns]
        target = R[[row]].data - model.mean_ - model.item_bias_[columns]
        A = Q.T @ Q + 0.05 * len(columns) * np.eye(3)
        np.testing.assert_allclose(found[row], np.linalg.solve(A, Q.T @ target), atol=1e-9)
