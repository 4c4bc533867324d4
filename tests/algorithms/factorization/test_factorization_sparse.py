"""Sparse ratings: the default is no worse than biases alone, and penalties are those estimated."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.factorization.entries import Entries
from stradask.algorithms.factorization.solvers.shrinkage import beyond_biases
from stradask.algorithms.factorization.solvers.sides import Sides


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
    assert (chosen.bias_reg_.tolist(), chosen.reg_offset_.tolist()) == ([3, 3], [0, 0])


def test_a_saved_model_keeps_its_penalties(tmp_path):
    u, j, r = sparse_ratings(0, n_users=300, n_items=100)
    R = sparse.csr_array((r, (u, j)), shape=(300, 100))
    model = sd.MatrixFactorization(2, random_state=0, dtype="float64").fit(R)
    model.save(tmp_path / "new.npz")
    np.testing.assert_array_equal(sd.load(tmp_path / "new.npz").transform(R[:5]), model.transform(R[:5]))


def dense_ratings(seed, n_users, n_items, n_ratings, noise, spread=0.0, bias=0.5):
    """Ratings of random cells, of biases, and with a spread of three factors."""
    rng = np.random.default_rng(seed)
    u, j = np.divmod(rng.permutation(n_users * n_items)[:n_ratings], n_items)
    b, c = bias * rng.standard_normal(n_users), bias * rng.standard_normal(n_items)
    p, q = rng.standard_normal((n_users, 3)), spread / 3**0.5 * rng.standard_normal((n_items, 3))
    return u, j, 3.5 + b[u] + c[j] + (p[u] * q[j]).sum(1) + noise * rng.standard_normal(n_ratings)


@pytest.mark.parametrize(
    ("shape", "n_ratings", "noise"),
    [((400, 300), 30_000, 0.65), ((500, 400), 80_000, 0.7), ((200, 200), 20_000, 0.65)],
)
def test_dense_ratings_of_biases_alone_are_predicted_as_by_biases(shape, n_ratings, noise):
    """Many ratings a row tempt no factors to fit errors; the penalty of biases has seen the test part."""
    train, test = split(dense_ratings(0, *shape, n_ratings, noise), 0.1, 9)
    least = min(error_of_biases(train, test, shape, reg) for reg in [0.5, 1, 2, 3, 5, 7, 10, 20, 50])
    R = sparse.csr_array((train[2], (train[0], train[1])), shape=shape)
    for solver in ("sgd", "als"):
        model = sd.MatrixFactorization(solver=solver, random_state=0).fit(R)
        found = np.sqrt(np.mean((model.predict(np.column_stack(test[:2]), clip=False) - test[2]) ** 2))
        assert found < least + 5e-4


def test_the_offset_is_raised_where_nothing_lies_beyond_biases_and_only_there():
    offsets = []
    for spread in (0.0, 0.4):
        u, j, r = dense_ratings(0, 400, 300, 30_000, 0.65, spread)
        offsets.append(sd.MatrixFactorization(max_iter=1).fit(np.column_stack([u, j]), r).reg_offset_[0])
    assert offsets[0] > 3 * offsets[1]


def test_what_lies_beyond_biases_is_the_sum_of_fourth_powers_of_singular_values():
    u, j, r = dense_ratings(0, 60, 40, 900, 0.5, 0.5)
    entries = Entries.make(u, j, r, np.ones(1), (60, 40), str)
    sides = Sides.of([np.zeros((n, 0)) for n in (60, 40)], [np.zeros(60), np.zeros(40)], r.mean())
    missed = sparse.csr_array((r - r.mean(), (u, j)), shape=(60, 40)).toarray()
    squares = missed**2
    expected = (squares.sum(0) ** 2).sum() + (squares.sum(1) ** 2).sum() - (squares**2).sum()
    exact = (np.linalg.svd(missed, compute_uv=False) ** 4).sum() / expected - 1
    found = beyond_biases(entries, sides)  # two standard errors above an estimate
    assert exact < found < 1.6 * exact


def test_biases_of_descent_are_at_their_minimum():
    """Those of items given all else exactly, as they come last."""
    u, j, r = dense_ratings(0, 100, 80, 4000, 0.5, 0.5)
    pairs = np.column_stack([u, j])
    model = sd.MatrixFactorization(3, solver="sgd", random_state=0, dtype="float64").fit(pairs, r)
    missed = r - model.predict(pairs, clip=False)
    slope = np.bincount(j, missed, 80) - model.bias_reg_[1] * model.item_bias_
    np.testing.assert_allclose(slope, 0, atol=1e-10)
