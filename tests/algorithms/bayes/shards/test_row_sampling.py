"""Samples of rows in which every column is seen: those of rare columns are taken whole."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from stradask.algorithms.linear.glm import sketch
from stradask.algorithms.linear.glm.objective import LinearObjective
from stradask.algorithms.linear.glm.rows import LOGISTIC, make_rows
from stradask.algorithms.linear.glm.sketch import minimize_sketch, sample_of, sampled_rows
from stradask.algorithms.optimize.methods.newton import minimize_newton


def skewed(n=60_000, d=40, *, seed=0, l2=1.0, n_jobs=None, dtype=np.float64, weighted=False):
    """Rows with some measured columns far from zero and a category, most of whose values are rare."""
    rng = np.random.default_rng(seed)
    category = (rng.zipf(1.6, n).clip(max=d) - 1).astype(int)
    measured = rng.standard_normal((n, 3)) * [300, 20, 1] + [3000, 50, 0]
    X = sparse.csr_array(np.hstack([measured, np.eye(d)[category]]))
    z = measured @ [0.002, -0.02, 0.5] - 5 + rng.standard_normal(d)[category] * 3
    y = np.where(z + rng.logistic(size=n) > 0, 1.0, -1.0)
    weights = rng.uniform(0.5, 2, n) if weighted else None
    rows = make_rows(sparse.csr_array(X.astype(dtype)), y, weights)
    return LinearObjective(rows, LOGISTIC, scale=1 / n, l2=l2 / n, fit_intercept=False, n_jobs=n_jobs)


@pytest.mark.parametrize(("below", "most"), [(1, 1000), (4, 1000), (4, 7), (100, 25), (1000, 1000)])
def test_rows_of_rare_columns_are_those_that_numpy_finds(below, most):
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((60, 30)) * (rng.random((60, 30)) < np.linspace(0, 0.5, 30))
    dense[:, [3, 17]] = dense[:, [17, 3]]
    counts = np.count_nonzero(dense, axis=0)
    rare, room = np.zeros(30, bool), most
    for j in sorted(range(30), key=lambda j: (counts[j], j)):
        room -= counts[j]
        rare[j] = counts[j] < below and room >= 0
    rows = make_rows(sparse.csr_array(dense), np.ones(60))
    expected = np.flatnonzero((dense[:, rare] != 0).any(axis=1))
    np.testing.assert_array_equal(rows.rows_of_rare_columns(below, most), expected)
    later = rows.part(20, 60)  # whose entries do not begin at the first
    counts = np.count_nonzero(dense[20:], axis=0)
    expected = np.flatnonzero((dense[20:, counts < 3] != 0).any(axis=1))
    np.testing.assert_array_equal(later.rows_of_rare_columns(3, 1000), expected)
    assert len(make_rows(dense + 1.5, np.ones(60)).rows_of_rare_columns(below, most)) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_are_whole_stand_for_themselves(weighted, dtype):
    f = skewed(3000, weighted=weighted, dtype=dtype)
    rng = np.random.default_rng(5)
    order, w = rng.permutation(3000), rng.standard_normal(43) * 1e-3
    weights = f.rows.row_weights()
    X = sparse.csr_array((f.rows.data, f.rows.indices, f.rows.indptr), shape=f.rows.shape).astype(np.float64)
    losses = weights * np.logaddexp(0, -f.rows.y * (X @ w)) / 3000
    rows, whole = order[:500], order[500:800]
    others = np.setdiff1d(order, whole)
    expected = losses[whole].sum() + losses[rows].sum() * weights[others].sum() / weights[rows].sum()
    value, _ = f.sample(rows, whole).value_and_gradient(w)
    assert value == pytest.approx(expected + f.l2 / 2 * w @ w, rel=1e-5 if dtype == np.float32 else 1e-12)


def test_every_column_is_in_a_sample():
    f = skewed()
    counts = np.bincount(f.rows.indices, minlength=43)
    assert counts[-10:].min() > 0
    sample = sample_of(f, 4000, seed=0)
    assert sample.n_rows < 8000
    assert len(np.unique(sample.rows.data[::4])) == sample.n_rows  # rows of four entries, none of them twice
    assert (np.bincount(sample.rows.indices, minlength=43) >= np.minimum(counts, 20)).all()


def test_rare_columns_do_not_mislead_the_sketch(monkeypatch):
    f = skewed(l2=0.01)
    result = minimize_sketch(f, np.zeros(43), tol_decrease=1e-6)
    passes = f.n_passes
    best = minimize_newton(f, result.x, tol_decrease=1e-14)
    assert result.success
    assert result.fun - best.fun <= 1e-6 * best.fun
    blind = skewed(l2=0.01)
    monkeypatch.setattr(sketch, "sample_of", lambda f, n, seed: f.sample(sampled_rows(f.n_rows, n, seed)))
    minimize_sketch(blind, np.zeros(43), tol_decrease=1e-6)
    assert 1.4 * passes < blind.n_passes


def test_a_sample_has_the_same_bits_on_any_number_of_threads():
    results = [minimize_sketch(skewed(n_jobs=n), np.zeros(43), tol_decrease=1e-6).x for n in (1, 3)]
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("counting", [30, 20_000])
def test_most_rows_have_no_weight(counting):
    f = skewed(l2=0.1)
    weights = np.zeros(60_000)
    apart = np.setdiff1d(np.arange(60_000), sampled_rows(60_000, 4000, seed=0))  # not in the usual sample
    weights[np.random.default_rng(1).permutation(apart)[:counting]] = 60_000 / counting
    rows = replace(f.rows, weights=weights)
    f = LinearObjective(rows, LOGISTIC, scale=f.scale, l2=f.l2, fit_intercept=False)
    result = minimize_sketch(f, np.zeros(43), tol_decrease=1e-6)
    best = minimize_newton(f, np.zeros(43), tol_decrease=1e-14)
    assert result.success
    assert result.fun - best.fun <= 1e-6 * best.fun


def test_all_weight_is_in_the_rows_that_are_whole():
    f = skewed(3000)
    weights = np.zeros(3000)
    weights[500:800] = 10.0
    f = LinearObjective(
        replace(f.rows, weights=weights), LOGISTIC, scale=f.scale, l2=f.l2, fit_intercept=False
    )
    w = np.random.default_rng(5).standard_normal(43) * 1e-3
    value, gradient = f.sample(np.arange(500), np.arange(500, 800)).value_and_gradient(w)
    expected = f.value_and_gradient(w)
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-11)
