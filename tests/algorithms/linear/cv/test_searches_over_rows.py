"""`offset` and `standardize` of RidgeCV and LogisticRegressionCV, against folds that are fitted apart."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score
from sklearn.model_selection import KFold, StratifiedKFold

import stradask as sd
from stradask.errors import DataError, StradaskError

N, ALPHAS = 90, np.array([0.1, 1.0, 10.0])
FORMS = {"dense": np.asarray, "sparse": sparse.csr_array}


def data(p=6, *, n_classes=0, sparse_form=False):
    rng = np.random.default_rng(p + n_classes)
    X = rng.standard_normal((N, p)) * np.exp(rng.uniform(-1, 1, p))
    X = X * (rng.random((N, p)) < 0.5) if sparse_form else X + 1
    weights, offset = rng.uniform(0.5, 2, N), rng.standard_normal((N, 3) if n_classes == 3 else N)
    signal = (X @ rng.standard_normal(p) / X.std())[:, None] + 2 * offset.reshape(N, -1)
    if n_classes == 3:
        return X, (signal + rng.gumbel(size=signal.shape)).argmax(axis=1), offset, weights
    if n_classes:
        return X, (signal[:, 0] + rng.logistic(size=N) > 1).astype(int), offset, weights
    return X, signal[:, 0] + rng.standard_normal(N), offset, weights


def deviations(X, weights):
    return np.sqrt(np.average((X - np.average(X, axis=0, weights=weights)) ** 2, axis=0, weights=weights))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("p", [6, 120])
def test_rows_that_are_left_out_are_those_of_scaled_columns(form, p):
    X, y, offset, weights = data(p, sparse_form=form == "sparse")
    units = deviations(X, weights)
    model = sd.RidgeCV(ALPHAS, standardize=True, store_cv_results=True)
    model.fit(FORMS[form](X), y, weights, offset=offset)
    expected = linear_model.RidgeCV(ALPHAS, store_cv_results=True).fit(X / units, y - offset, weights)
    assert model.alpha_ == expected.alpha_
    np.testing.assert_allclose(model.cv_results_, expected.cv_results_, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, expected.coef_ / units, rtol=1e-6)
    expected = expected.predict(X / units) + offset
    np.testing.assert_allclose(model.predict(FORMS[form](X), offset=offset), expected, rtol=1e-7)


def test_scores_of_rows_that_are_left_out_know_the_offset():
    X, y, offset, _ = data()
    model = sd.RidgeCV([1.0], scoring="neg_mean_absolute_error").fit(X, y, offset=offset)
    errors = []
    for row in range(N):
        rest = np.arange(N) != row
        fit = linear_model.Ridge(1.0).fit(X[rest], (y - offset)[rest])
        errors.append(abs(y[row] - offset[row] - fit.predict(X[row : row + 1])[0]))
    assert model.best_score_ == pytest.approx(-np.mean(errors))


@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error"])
def test_folds_of_ridge_are_those_of_the_training_rows(scoring):
    X, y, offset, _ = data()
    cv = KFold(3)
    model = sd.RidgeCV(ALPHAS, cv=cv, standardize=True, scoring=scoring).fit(X, y, offset=offset)
    scores = np.zeros(len(ALPHAS))
    for train, test in cv.split(X):
        units = deviations(X[train], None)
        for k, alpha in enumerate(ALPHAS):
            fit = linear_model.Ridge(alpha).fit(X[train] / units, (y - offset)[train])
            predicted = fit.predict(X[test] / units) + offset[test]
            judge = r2_score if scoring is None else lambda *given: -mean_absolute_error(*given)
            scores[k] += judge(y[test], predicted) / 3
    assert model.alpha_ == ALPHAS[scores.argmax()]
    assert model.best_score_ == pytest.approx(scores.max(), rel=1e-5)
    whole = sd.Ridge(model.alpha_, standardize=True).fit(X, y, offset=offset)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_folds_of_classes_are_those_of_the_training_rows(n_classes, scoring):
    X, y, offset, weights = data(n_classes=n_classes)
    cv, Cs = StratifiedKFold(3), [0.01, 1.0]
    model = sd.LogisticRegressionCV(Cs=Cs, cv=cv, standardize=True, scoring=scoring, tol=1e-10)
    model.fit(X, y, weights, offset=offset)
    for fold, (train, test) in enumerate(cv.split(X, y)):
        for k, C in enumerate(Cs):
            fit = sd.LogisticRegression(C, standardize=True, tol=1e-10)
            fit.fit(X[train], y[train], weights[train], offset=offset[train])
            if scoring is None:
                own = accuracy_score(
                    y[test], fit.predict(X[test], offset=offset[test]), sample_weight=weights[test]
                )
            else:
                own = -log_loss(
                    y[test], fit.predict_proba(X[test], offset=offset[test]), sample_weight=weights[test]
                )
            assert model.scores_[fold, 0, k] == pytest.approx(own, rel=1e-5)
    whole = sd.LogisticRegression(model.C_, standardize=True, tol=1e-10).fit(X, y, weights, offset=offset)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-4, atol=1e-6)


SEARCHES = {
    "RidgeCV": (sd.RidgeCV(ALPHAS, cv=3), 0, 3),
    "RidgeCV, single rows": (sd.RidgeCV(ALPHAS), 0, 1),
    "LogisticRegressionCV": (sd.LogisticRegressionCV(Cs=2, cv=3, l1_ratios=[0, 1]), 2, 6),
    "LassoCV": (sd.LassoCV(cv=3, alphas=4), 0, 3),
    "ElasticNetCV": (sd.ElasticNetCV(cv=3, alphas=4, l1_ratio=[0.5, 1]), 0, 6),
    "SparseLogisticRegressionCV": (sd.SparseLogisticRegressionCV(cv=3, alphas=4), 2, 3),
    "SparseGLMCV": (sd.SparseGLMCV(cv=3, alphas=4), 0, 3),
    "StabilitySelection": (sd.StabilitySelection(sd.Lasso(0.1), n_pairs=3), 0, 6),
}


@pytest.mark.filterwarnings("ignore:every fit chose all")
@pytest.mark.parametrize("name", SEARCHES)
def test_callbacks_follow_a_search_and_end_it(name):
    model, n_classes, total = SEARCHES[name]
    X, y, *_ = data(n_classes=n_classes)
    seen = []
    model.fit(X, y, callback=lambda info: seen.append((info.round, info.total, len(info.history))))
    assert seen == [(k, total, k) for k in range(1, total + 1)]
    before = {key: value for key, value in vars(model).items() if key.endswith("_")}
    with pytest.raises(StradaskError, match=f"after 1 of {total} .*s, before there was a choice"):
        model.fit(X[:60], y[:60], callback=lambda info: True)
    after = {key: value for key, value in vars(model).items() if key.endswith("_")}
    assert before.keys() == after.keys()
    assert all(before[key] is after[key] for key in before)


def test_groups_are_for_folds():
    X, y, *_ = data()
    with pytest.raises(DataError, match="groups is for folds, and cv is None"):
        sd.RidgeCV().fit(X, y, groups=np.arange(N))
