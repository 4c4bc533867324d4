"""RidgeCV: against fits that really leave out a row, scikit-learn's choice, and bad input."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model
from sklearn.model_selection import KFold

import stradask as sd
from stradask.algorithms.linear.cv import ridge_cv
from stradask.errors import DataError

ALPHAS = np.array([1e-3, 0.1, 10.0, 300.0])


def data(n, p, n_targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.1, 5, p) * (rng.random((n, p)) < 0.7) + rng.uniform(
        0, 2, p
    )
    Y = X @ rng.standard_normal((p, n_targets)) + 3 * rng.standard_normal((n, n_targets)) + 5
    return X, Y if n_targets > 1 else Y[:, 0], rng.uniform(0.1, 2, n) * (rng.random(n) < 0.9)


def left_out(X, y, w, alpha, intercept):
    """Fit without each row, by the normal equations of the others."""
    errors = np.empty(len(y))
    for i in range(len(y)):
        v = w.copy()
        v[i] = 0
        mean, y_mean = (np.average(part, axis=0, weights=v) * intercept for part in (X, y))
        A, b = np.sqrt(v)[:, None] * (X - mean), np.sqrt(v) * (y - y_mean)
        coef = np.linalg.solve(A.T @ A + alpha * np.eye(X.shape[1]), A.T @ b)
        errors[i] = y[i] - y_mean - (X[i] - mean) @ coef
    return errors


@pytest.mark.parametrize(
    ("shape", "form", "intercept"),
    [  # each pair of levels
        ((40, 5), np.asarray, True),
        ((40, 5), sparse.csr_array, False),
        ((40, 5), sparse.csc_array, False),
        ((12, 30), np.asarray, True),
        ((12, 30), sparse.csr_array, True),
        ((12, 30), sparse.csc_array, False),
        ((20, 20), np.asarray, True),
        ((20, 20), sparse.csr_array, False),
        ((20, 20), sparse.csc_array, True),
        ((25, 1), np.asarray, False),
        ((25, 1), sparse.csr_array, True),
        ((25, 1), sparse.csc_array, False),
    ],
)
def test_errors_are_those_of_fits_without_the_row(shape, form, intercept):
    X, y, w = data(*shape)
    for weights in (None, w):
        model = sd.RidgeCV(ALPHAS, fit_intercept=intercept, store_cv_results=True).fit(form(X), y, weights)
        v = np.ones(len(y)) if weights is None else weights
        expected = np.array([v * left_out(X, y, v, alpha, intercept) ** 2 for alpha in ALPHAS]).T
        np.testing.assert_allclose(model.cv_results_, expected, rtol=1e-6, atol=1e-9)
        assert model.best_score_ == pytest.approx(-expected.mean(axis=0).min())
        np.testing.assert_allclose(model.scores_, -expected.mean(axis=0)[:, None], rtol=1e-6)
        assert model.alpha_ == ALPHAS[expected.mean(axis=0).argmin()]
        whole = sd.Ridge(model.alpha_, fit_intercept=intercept, tol=1e-14).fit(X, y, weights)
        np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options", "n_targets", "weighted"),
    [  # each pair of levels
        ((40, 5), {}, 1, True),
        ((40, 5), {"fit_intercept": False}, 3, False),
        ((40, 5), {"scoring": "neg_mean_absolute_error"}, 3, True),
        ((40, 5), {"scoring": "r2"}, 1, False),
        ((12, 30), {}, 3, False),
        ((12, 30), {"fit_intercept": False}, 1, True),
        ((12, 30), {"scoring": "neg_mean_absolute_error"}, 1, False),
        ((12, 30), {"scoring": "r2"}, 3, True),
    ],
)
def test_choices_are_scikit_learns(shape, options, n_targets, weighted):
    X, y, w = data(*shape, n_targets)
    w = np.maximum(w, 0.05) if weighted else None  # scikit-learn divides by the roots of weights
    for per_target in (False, True):
        if per_target and n_targets == 1 and "scoring" in options:
            continue  # an IndexError in scikit-learn
        given = {"alphas": ALPHAS, "alpha_per_target": per_target, "store_cv_results": True, **options}
        ours, theirs = sd.RidgeCV(**given).fit(X, y, w), linear_model.RidgeCV(**given).fit(X, y, w)
        np.testing.assert_array_equal(ours.alpha_, theirs.alpha_)
        np.testing.assert_allclose(ours.best_score_, theirs.best_score_, rtol=1e-7)
        np.testing.assert_allclose(ours.cv_results_, theirs.cv_results_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6)
        assert ours.coef_.shape == theirs.coef_.shape
        assert ours.scores_.shape == (len(ALPHAS), n_targets if per_target else 1)
        np.testing.assert_array_equal(ours.scores_.max(axis=0), ours.best_score_)


def test_folds_are_those_of_a_search_over_ridge():
    X, y, w = data(50, 4)
    for scoring in (None, "neg_mean_squared_error"):
        for cv in (3, KFold(4, shuffle=True, random_state=0)):
            given = {"alphas": ALPHAS, "cv": cv, "scoring": scoring}
            ours, theirs = sd.RidgeCV(**given).fit(X, y, w), linear_model.RidgeCV(**given).fit(X, y, w)
            assert ours.alpha_ == theirs.alpha_
            assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=1e-5)
            np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-6)
            assert ours.n_features_in_ == 4
            assert ours.scores_.shape == (len(ALPHAS), cv if isinstance(cv, int) else 4)
            assert ours.scores_.mean(axis=1).max() == ours.best_score_


def test_rows_that_alone_tell_a_column_keep_their_errors():
    """The leverage of row 0 is 1 - 1e-6."""
    X, y, _ = data(30, 4)
    X[:, 2] = 0
    X[0, 2] = 1e3
    alphas = [1.0, 10.0]
    for intercept in (True, False):
        model = sd.RidgeCV(alphas, fit_intercept=intercept, store_cv_results=True).fit(X, y)
        for k, alpha in enumerate(alphas):
            expected = left_out(X, y, np.ones(30), alpha, intercept) ** 2
            np.testing.assert_allclose(model.cv_results_[:, k], expected, rtol=1e-5)


def test_tiny_penalties_of_badly_scaled_columns_are_told_apart():
    X, y, _ = data(60, 5)
    X = X * [1e6, 1, 1, 1, 1e-2]
    for alpha in (1e-3, 1e-1):
        model = sd.RidgeCV(alpha, store_cv_results=True).fit(X, y)
        expected = left_out(X, y, np.ones(60), alpha, True) ** 2
        np.testing.assert_allclose(model.cv_results_[:, 0], expected, rtol=1e-5)


def test_columns_far_from_zero_and_constant_ones():
    X, y, w = data(40, 5)
    model = sd.RidgeCV(ALPHAS, store_cv_results=True).fit(np.column_stack([X, np.full(40, 3.0)]), y, w)
    other = sd.RidgeCV(ALPHAS, store_cv_results=True).fit(X + 1e6, y, w)
    expected = sd.RidgeCV(ALPHAS, store_cv_results=True).fit(X, y, w).cv_results_
    np.testing.assert_allclose(model.cv_results_, expected, rtol=1e-8)
    np.testing.assert_allclose(other.cv_results_, expected, rtol=1e-5)
    assert model.coef_[-1] == pytest.approx(0, abs=1e-12)


def test_blocks_of_rows_have_the_errors_of_all(monkeypatch):
    X, y, w = data(40, 5)
    model = sd.RidgeCV(ALPHAS, store_cv_results=True).fit(X, y, w)
    monkeypatch.setattr(ridge_cv, "_BLOCK", 16)
    blocks = sd.RidgeCV(ALPHAS, store_cv_results=True).fit(X, y, w)
    np.testing.assert_allclose(blocks.cv_results_, model.cv_results_, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alphas": [1.0, 0.0]}, "alphas must be finite numbers above 0"),
        ({"alphas": [1.0, -1.0], "cv": 3}, "alphas must be finite numbers 0 or more"),
        ({"alphas": []}, "alphas"),
        ({"alphas": ["a"]}, "alphas must be numbers"),
        ({"cv": 3, "store_cv_results": True}, "store_cv_results=True is for cv=None"),
        ({"cv": 3, "alpha_per_target": True}, "alpha_per_target=True is for cv=None"),
        ({"scoring": "nothing"}, "get_scorer_names"),
        ({"scoring": "roc_auc"}, "cannot judge"),
    ],
)
def test_bad_parameters(given, message):
    X, y, _ = data(20, 3)
    with pytest.raises(DataError, match=message):
        sd.RidgeCV(**given).fit(X, y)


def test_bad_data(monkeypatch):
    X, y, _ = data(20, 3)
    with pytest.raises(DataError, match="1 sample has weight"):
        sd.RidgeCV().fit(X, y, np.eye(20)[0])
    with pytest.raises(DataError, match="1 sample has weight"):
        sd.RidgeCV().fit(X[:1], y[:1])
    monkeypatch.setattr(ridge_cv, "_MOST", 2)
    with pytest.raises(DataError, match="give cv"):
        sd.RidgeCV().fit(X, y)
