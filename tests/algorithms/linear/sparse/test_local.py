"""l1 problems of two classes in this process: optimality conditions from the data, and gaps."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import stradask as sd


def data(form, seed=0, n=300, p=40):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(sparse.random_array((n, p), density=0.15, rng=rng) * 2)
    y = X @ rng.standard_normal(p) + rng.standard_normal(n) > 0.4
    weights = rng.uniform(0.1, 2, n) * (rng.random(n) < 0.9)
    return (form(X) if form else X.toarray() + 5.0), np.where(y, "yes", "no"), weights


def objective(model, X, y, weights, alpha, ratio, factors, coef=None, intercept=None):
    coef = model.coef_[0] if coef is None else coef
    intercept = float(model.intercept_[0]) if intercept is None else intercept
    f = np.where(y == "yes", 1.0, -1.0) * (X @ coef + intercept)
    kept = np.isfinite(factors)
    sizes = np.abs(coef[kept])
    penalty = factors[kept] @ (ratio * sizes + 0.5 * (1 - ratio) * sizes**2)
    return float(weights @ np.logaddexp(0, -f)) / weights.sum() + alpha * penalty


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, None])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_subgradients_contain_zero(form, intercept, ratio):
    X, y, weights = data(form)
    factors = np.ones(40)
    factors[3], factors[5] = np.inf, 2.0
    tol = 1e-13
    for alpha in (0.1, 0.01, 0.0005):
        model = sd.SparseLogisticRegression(
            alpha, l1_ratio=ratio, fit_intercept=intercept, penalty_factor=factors, tol=tol
        ).fit(X, y, weights)
        signs, b = np.where(y == "yes", 1.0, -1.0), model.coef_[0]
        v = weights * signs / (1 + np.exp(signs * (X @ b + model.intercept_[0]))) / weights.sum()
        finite = np.isfinite(factors)
        held = alpha * ratio * factors[finite]
        b = b[finite]
        slopes = (X.T @ v)[finite] - alpha * (1 - ratio) * factors[finite] * b
        apart = np.where(b != 0, np.abs(slopes - held * np.sign(b)), np.maximum(np.abs(slopes) - held, 0))
        assert apart.max() < 1e-6
        assert model.coef_[0][3] == 0
        if intercept:
            assert abs(v.sum()) < 1e-7
        else:
            assert model.intercept_[0] == 0


@pytest.mark.parametrize("form", [sparse.csc_array, None])
def test_the_gap_bounds_the_excess_and_meets_the_tolerance(form):
    X, y, weights = data(form, seed=1)
    ones = np.ones(40)
    for alpha in (0.05, 0.003):
        best = sd.SparseLogisticRegression(alpha, tol=1e-10).fit(X, y, weights)
        least = objective(best, X, y, weights, alpha, 1.0, ones)
        share = weights[y == "yes"].sum() / weights.sum()
        nothing = objective(best, X, y, weights, alpha, 1.0, ones, np.zeros(40), np.log(share / (1 - share)))
        for tol in (0.1, 1e-3, 1e-6):
            model = sd.SparseLogisticRegression(alpha, tol=tol).fit(X, y, weights)
            excess = objective(model, X, y, weights, alpha, 1.0, ones) - least
            assert excess <= model.dual_gap_ + 1e-12
            assert model.dual_gap_ <= tol * nothing * (1 + 1e-9)
            rounds = model.history_["objective"]
            assert len(rounds) == model.n_iter_
            assert rounds[-1] == pytest.approx(excess + least, rel=1e-9)


def test_columns_that_repeat_each_other():
    rng = np.random.default_rng(0)
    factor = sparse.random_array((300, 1), density=0.5, rng=rng, format="csc")
    noise = 1e-3 * rng.standard_normal((factor.nnz, 60))
    alike = sparse.csc_array(sparse.hstack([_changed(factor, noise[:, k]) for k in range(60)]))
    y = (factor @ [1.0] > 0.25) ^ (rng.random(300) < 0.2)
    fits = [sd.SparseLogisticRegression(1e-4, tol=tol).fit(alike, y) for tol in (1e-6, 1e-10)]
    values = [
        objective(model, alike, np.where(y, "yes", "no"), np.ones(300), 1e-4, 1.0, np.ones(60))
        for model in fits
    ]
    assert values[0] - values[1] <= fits[0].dual_gap_ <= 1e-6


def _changed(column, noise):
    other = column.copy()
    other.data = column.data + noise
    return other


def test_a_callback_sees_each_step_and_ends_the_fit_there():
    X, y, _ = data(sparse.csc_array)
    seen = []

    def ends(info):
        seen.append((info.objective, info.snapshot().coef_))
        return info.round == 2

    model = sd.SparseLogisticRegression(0.01, tol=1e-10).fit(X, y, callback=ends)
    assert model.n_iter_ == len(seen) == 2
    assert seen[1][0] < seen[0][0]
    np.testing.assert_array_equal(model.coef_, seen[1][1])
    assert not np.array_equal(*(coef for _, coef in seen))


@pytest.mark.parametrize("intercept", [True, False])
def test_offsets_free_columns_positive_coefficients_and_warm_starts(intercept):
    X, y, weights = data(sparse.csc_array, seed=3)
    offset, factors = np.random.default_rng(0).standard_normal(300), np.ones(40)
    signs = np.where(y == "yes", 1.0, -1.0)
    for positive in (False, True):
        factors[:2] = 1.0 if positive else 0.0, np.inf
        options = {"fit_intercept": intercept, "penalty_factor": factors, "positive": positive, "tol": 1e-13}
        model = sd.SparseLogisticRegression(0.01, warm_start=True, **options)
        model.fit(X, y, weights, offset=offset)
        b = model.coef_[0]
        v = weights * signs / (1 + np.exp(signs * (X @ b + model.intercept_[0] + offset))) / weights.sum()
        slopes, held = X.T @ v, 0.01 * np.where(np.isfinite(factors), factors, 0)
        rest = np.maximum((slopes if positive else np.abs(slopes)) - held, 0)
        apart = np.where(b != 0, np.abs(slopes - held * np.sign(b)), rest)[np.isfinite(factors)]
        assert apart.max() < 1e-6
        assert b[1] == 0
        assert not positive or b.min() == 0
        assert abs(v.sum()) < 1e-7 or not intercept
        model.fit(X, y, weights, offset=offset)
        assert model.n_iter_ == 0
        np.testing.assert_allclose(model.coef_[0], b, atol=1e-7)


def test_columns_without_penalty_are_fitted_where_all_others_are_zero():
    X, y, weights = data(sparse.csc_array)
    factors = np.where(np.arange(40) < 2, 0.0, 1.0)
    model = sd.SparseLogisticRegression(10.0, penalty_factor=factors, tol=1e-10).fit(X, y, weights)
    assert np.flatnonzero(model.coef_[0]).tolist() == [0, 1]
    p = 1 / (1 + np.exp(-(X @ model.coef_[0] + model.intercept_[0])))
    assert np.abs(X[:, [0, 1]].T @ (weights * ((y == "yes") - p))).max() < 1e-6 * weights.sum()


@pytest.mark.parametrize("form", [sparse.csc_array, None])
def test_a_fit_that_rounding_ends_reports_each_round_once(form):
    X, y, _ = data(form, n=2000, p=300)
    seen, model = [], sd.SparseLogisticRegression(1e-3, tol=0.0)
    with pytest.warns(ConvergenceWarning, match="rounding errors allow no further progress"):
        model.fit(X, y, callback=lambda info: seen.append(info.round))
    assert seen == list(range(1, model.n_iter_ + 1)) == model.history_["round"].tolist()
