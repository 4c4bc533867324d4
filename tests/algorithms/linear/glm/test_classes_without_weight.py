"""A class whose rows all weigh zero: the model of the others, as scikit-learn makes it."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Theirs

import stradask as sd

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5))
Y = np.argmax(X[:, :4] + RNG.gumbel(size=(120, 4)), axis=1)
WEIGHTS = np.where(Y == 2, 0.0, 1.0 + np.arange(120) % 3)
KEPT = Y != 2


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("labels", [Y, (Y == 2).astype(int), np.where(Y == 3, 1, Y)], ids=["4", "2", "3"])
def test_logistic_regression_is_scikit_learns(labels, fit_intercept):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = sd.LogisticRegression(tol=1e-12, fit_intercept=fit_intercept).fit(X, labels, WEIGHTS)
    theirs = Theirs(tol=1e-9, max_iter=20_000, fit_intercept=fit_intercept).fit(X, labels, WEIGHTS)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("class_weight", [None, "balanced", {2: 5.0, 1: 2.0}])
@pytest.mark.parametrize(
    "model",
    [
        sd.LogisticRegression(tol=1e-13),
        sd.LogisticRegression(l1_ratio=1.0, tol=1e-11),
        sd.SparseLogisticRegression(0.02, tol=1e-11),
        sd.SparseLogisticRegression(0.02, l1_ratio=0.3, standardize=True, tol=1e-11),
    ],
    ids=["l2", "l1", "sparse", "net"],
)
def test_the_others_have_the_model_without_these_rows(model, class_weight):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = model.set_params(class_weight=class_weight).fit(X, Y, WEIGHTS)
    coef, probabilities = whole.coef_.copy(), whole.predict_proba(X)
    if isinstance(class_weight, dict):
        model.set_params(class_weight={1: 2.0})
    part = model.fit(X[KEPT], Y[KEPT], WEIGHTS[KEPT])
    others = [0, 1, 3]
    np.testing.assert_allclose(coef[others], part.coef_, atol=2e-5)
    np.testing.assert_allclose(coef[2], 0.0, atol=1e-10)
    np.testing.assert_allclose(probabilities[:, others], part.predict_proba(X), atol=2e-5)
    assert probabilities[:, 2].max() < 1e-12


def test_cross_validation():
    options = {"alphas": [0.1, 0.03, 0.01], "tol": 1e-10}
    cv = [
        (np.flatnonzero(np.arange(120) % 3 != k), np.flatnonzero(np.arange(120) % 3 == k)) for k in range(3)
    ]
    whole = sd.SparseLogisticRegressionCV(cv=cv, **options).fit(X, Y, WEIGHTS)
    place = np.cumsum(KEPT) - 1
    inside = [tuple(place[rows[KEPT[rows]]] for rows in pair) for pair in cv]
    part = sd.SparseLogisticRegressionCV(cv=inside, **options).fit(X[KEPT], Y[KEPT], WEIGHTS[KEPT])
    np.testing.assert_allclose(whole.scores_, part.scores_, atol=1e-5)
    np.testing.assert_allclose(whole.coef_[[0, 1, 3]], part.coef_, atol=1e-4)


def test_labels_beside_the_blocks_of_dask():
    da = pytest.importorskip("dask.array")
    blocks, y, w = (
        da.from_array(v, 40) if v.ndim == 1 else da.from_array(v, (40, -1)) for v in (X, Y, WEIGHTS)
    )
    there = sd.LogisticRegression(tol=1e-13).fit(blocks, y, w)
    here = sd.LogisticRegression(tol=1e-13).fit(X, Y, WEIGHTS)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-5)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-5)
