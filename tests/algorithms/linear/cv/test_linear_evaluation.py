"""Scores of a path against scikit-learn's scorers on fitted models, and the choice of the penalty."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.metrics import get_scorer, make_scorer, mean_absolute_error, r2_score

from stradask.algorithms.linear.cv import evaluation
from stradask.algorithms.linear.cv.evaluation import (
    choose,
    decision_path,
    mean_and_error,
    path_scorer,
    score_path,
)
from stradask.errors import DataError

rng = np.random.default_rng(0)
N, P = 60, 30
X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.5)
WEIGHTS = rng.uniform(0.1, 3, N)
ROWS = rng.permutation(N)[:41]


def path_of(models):
    """The path of fitted models: coefficients side by side, intercepts."""
    coefs = np.vstack([np.atleast_2d(model.coef_) for model in models]).T
    return sparse.csc_array(coefs), np.concatenate([np.atleast_1d(model.intercept_) for model in models])


@pytest.fixture(scope="module")
def regression():
    y = X @ (rng.standard_normal(P) * (rng.random(P) < 0.3)) + rng.standard_normal(N)
    return y, [Lasso(alpha).fit(X, y) for alpha in (10, 0.3, 0.1, 0.02)]


@pytest.fixture(scope="module", params=[2, 3])
def classification(request):
    y = rng.integers(request.param, size=N)
    labels = np.array(["ant", "bee", "cow"])[: request.param]
    models = [LogisticRegression(C=C, max_iter=1000).fit(X, labels[y]) for C in (0.01, 0.1, 1)]
    return y, labels, models


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csc_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [1, 100, 1 << 22])
def test_decisions_of_all_models(regression, form, dtype, block, monkeypatch):
    monkeypatch.setattr(evaluation, "_BLOCK", block)
    _, models = regression
    coefs, intercepts = path_of(models)
    found = decision_path(form(X.astype(dtype)), ROWS, coefs, intercepts)
    expected = np.column_stack([model.predict(X[ROWS]) for model in models])
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == np.float32 else 1e-12, atol=1e-6)


def test_a_path_of_zeros_is_its_intercepts():
    found = decision_path(X, ROWS[:2], sparse.csc_array((P, 3)), np.array([1.0, 2, 3]))
    np.testing.assert_array_equal(found, [[1, 2, 3], [1, 2, 3]])


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("name", ["neg_mean_squared_error", "r2", "neg_mean_absolute_error"])
@pytest.mark.parametrize("block", [50, 1 << 22])
def test_regression_scores_are_scikit_learns(regression, name, weights, block, monkeypatch):
    monkeypatch.setattr(evaluation, "_BLOCK", block)
    y, models = regression
    found = score_path(path_scorer(name), X, y, ROWS, *path_of(models), weights=weights)
    part = None if weights is None else weights[ROWS]
    scorer = get_scorer(name)
    np.testing.assert_allclose(found, [scorer(m, X[ROWS], y[ROWS], sample_weight=part) for m in models])


@pytest.mark.parametrize("weights", [None, np.array([0.0, 2, 1, 3])])
@pytest.mark.parametrize("level", [1.0, 0.1])
def test_r2_of_equal_targets_is_one_or_zero(level, weights):
    """As scikit-learn has it, but whatever the rounding of the mean: here that of 0.1 is not 0.1."""
    y, decision = np.full(4, level), np.full((4, 3, 1), level)
    decision[1, 1], decision[:, 2] = level + 1, level - 1e-9
    found = path_scorer("r2")(None, y, None, decision, weights)
    assert found.tolist() == [1, 0, 0]
    if level == 1:
        assert found.tolist() == [r2_score(y, p, sample_weight=weights) for p in decision[:, :, 0].T]
    if weights is not None:  # a row that does not count
        y[0] = 7
        assert path_scorer("r2")(None, y, None, decision, weights).tolist() == [1, 0, 0]


def test_r2_of_one_row_is_not_a_number():
    assert (
        np.isnan(path_scorer("r2")(None, np.ones(1), None, np.ones((1, 2, 1)), None)).tolist() == [True] * 2
    )


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("name", ["neg_log_loss", "accuracy", "roc_auc", "roc_auc_ovr", "balanced_accuracy"])
def test_classification_scores_are_scikit_learns(classification, name, weights):
    y, labels, models = classification
    if name == "roc_auc":  # which is not defined for three classes, see below
        y, labels = np.minimum(y, 1), labels[:2]
        models = [LogisticRegression(C=C, max_iter=1000).fit(X, labels[y]) for C in (0.01, 0.1, 1)]
    found = score_path(
        path_scorer(name, labels),
        X,
        y,
        ROWS,
        *path_of(models),
        weights=weights,
        n_outputs=1 if len(labels) == 2 else len(labels),
    )
    part = None if weights is None else weights[ROWS]
    scorer = get_scorer(name)
    expected = [scorer(m, X[ROWS], labels[y[ROWS]], sample_weight=part) for m in models]
    np.testing.assert_allclose(found, expected)


def test_deviance_is_twice_the_log_loss_and_the_squared_error(classification, regression):
    y, labels, models = classification
    n_outputs = 1 if len(labels) == 2 else len(labels)
    loss, deviance = (
        score_path(path_scorer(name, labels), X, y, ROWS, *path_of(models), n_outputs=n_outputs)
        for name in ("neg_log_loss", "deviance")
    )
    np.testing.assert_allclose(deviance, 2 * loss)
    y, models = regression
    scores = [score_path(path_scorer(name), X, y, ROWS, *path_of(models)) for name in ("mse", "deviance")]
    np.testing.assert_array_equal(*scores)


def test_area_under_the_curve_with_ties():
    y, values = np.array([0, 1, 1, 0, 1]), np.array([1.0, 1, 2, 2, 3])
    # Of the six pairs: three in the right order, two ties, one wrong.
    area = path_scorer("roc_auc", np.array([0, 1]))(None, y, None, values[:, None, None], None)
    assert area.tolist() == pytest.approx([4 / 6])


def test_offsets_enter_the_score(classification):
    y, labels, models = classification
    n_outputs = 1 if len(labels) == 2 else len(labels)
    offset = rng.standard_normal((N, n_outputs))
    scores = score_path(
        path_scorer("neg_log_loss", labels), X, y, ROWS, *path_of(models), offset=offset, n_outputs=n_outputs
    )
    for model, score in zip(models, scores, strict=True):
        decision = model.decision_function(X[ROWS]).reshape(len(ROWS), -1) + offset[ROWS]
        if n_outputs == 1:
            decision = np.column_stack([np.zeros(len(ROWS)), decision])
        chance = np.exp(decision) / np.exp(decision).sum(axis=1, keepdims=True)
        assert score == pytest.approx(np.log(chance[np.arange(len(ROWS)), y[ROWS]]).mean())


def test_a_callable_sees_the_rows_and_the_model(regression):
    y, models = regression

    def second_column(model, X_rows, y_rows):
        return float(X_rows[:, 1].sum() + model.predict(X_rows)[0] + y_rows[0])

    found = score_path(path_scorer(second_column), X, y, ROWS, *path_of(models))
    expected = [second_column(model, X[ROWS], y[ROWS]) for model in models]
    np.testing.assert_allclose(found, expected)
    with pytest.raises(DataError, match=r"second_column.*takes no sample_weight"):
        score_path(path_scorer(second_column), X, y, ROWS, *path_of(models), weights=WEIGHTS)
    made = path_scorer(make_scorer(mean_absolute_error))
    weighted = score_path(made, X, y, ROWS, *path_of(models), weights=WEIGHTS)
    by_name = score_path(
        path_scorer("neg_mean_absolute_error"), X, y, ROWS, *path_of(models), weights=WEIGHTS
    )
    np.testing.assert_allclose(weighted, -by_name)


def test_a_score_of_the_wrong_kind_is_named():
    with pytest.raises(
        DataError, match=r"scoring='mse' is not a score of classification; there are accuracy"
    ):
        path_scorer("mse", np.array([0, 1]))
    with pytest.raises(
        DataError, match=r"'auc' is not a score of classification \(did you mean 'roc_auc'\?\)"
    ):
        path_scorer("auc", np.array([0, 1]))
    scorer = path_scorer("roc_auc", np.array([0, 1, 2]))
    with pytest.raises(DataError, match="scoring='roc_auc' cannot judge this model: multi_class"):
        scorer(X, np.array([0, 1, 2]), np.arange(3), np.zeros((3, 1, 3)), None)


def test_mean_and_standard_error():
    scores = rng.standard_normal((3, 7, 5))
    mean, error = mean_and_error(scores)
    np.testing.assert_allclose(mean, scores.sum(axis=2) / 5)
    deviations = scores - mean[:, :, None]
    np.testing.assert_allclose(error, np.sqrt((deviations**2).sum(axis=2) / 4 / 5))
    assert mean_and_error(np.ones((2, 1)))[1].tolist() == [0, 0]


def test_the_largest_penalty_within_one_standard_error():
    mean = np.array([-5, -2, -1.4, -1.0, -1.0, -3])
    assert choose(mean, np.full(6, 0.3)) == (3, 3)
    assert choose(mean, np.full(6, 0.4)) == (3, 2)
    # The error at the best counts, not that of the candidate.
    assert choose(mean, np.array([9, 9, 9, 0.0, 9, 9])) == (3, 3)
    assert choose(mean, np.array([0, 0, 0, 5.0, 0, 0])) == (3, 0)
