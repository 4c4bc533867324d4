"""LogisticRegressionCV: against scikit-learn's search, fits of the training rows alone, and bad input."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model
from sklearn.model_selection import GroupKFold, StratifiedKFold

import stradask as sd
from stradask.errors import DataError

rng = np.random.default_rng(0)
X = rng.standard_normal((150, 5)) + 0.5
Z = X @ [1.0, -1.0, 0.5, 0, 0] + rng.standard_normal(150)
TWO, THREE = np.where(Z > 0.5, "yes", "no"), np.digitize(Z, [-0.5, 1.0])
WEIGHTS = rng.uniform(0.1, 2, 150)
CS = [0.01, 1.0, 30.0]


@pytest.mark.parametrize("y", [TWO, THREE])
@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"class_weight": "balanced"}])
def test_the_search_is_scikit_learns(y, refit, options):
    given = {"Cs": CS, "refit": refit, "scoring": "neg_log_loss", "cv": 4, **options}
    for weights in (None, WEIGHTS):
        ours = sd.LogisticRegressionCV(**given, tol=1e-13).fit(X, y, weights)
        theirs = linear_model.LogisticRegressionCV(
            **given,
            tol=1e-9,
            max_iter=10_000,
            solver="newton-cholesky",
            l1_ratios=(0,),
            use_legacy_attributes=False,
        ).fit(X, y, weights)
        np.testing.assert_allclose(ours.scores_, theirs.scores_, rtol=1e-5)
        np.testing.assert_allclose(ours.coefs_paths_, theirs.coefs_paths_, atol=2e-4)
        assert pytest.approx(theirs.C_) == ours.C_
        assert ours.l1_ratio_ == theirs.l1_ratio_ == 0
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-4)
        assert (ours.predict(X) == theirs.predict(X)).all()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_paths_are_those_of_the_training_rows(form):
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    given = {"Cs": CS, "l1_ratios": [0.2, 1.0], "cv": cv, "tol": 1e-12}
    model = sd.LogisticRegressionCV(**given).fit(form(X), TWO)
    assert model.scores_.shape == (3, 2, 3)
    assert model.coefs_paths_.shape == (3, 2, 3, 1, 6)
    for k, (train, test) in enumerate(cv.split(X, TWO)):
        for r, ratio in enumerate(given["l1_ratios"]):
            for c, C in enumerate(CS):
                one = sd.LogisticRegression(C, l1_ratio=ratio, tol=1e-12).fit(X[train], TWO[train])
                expected = np.append(one.coef_, one.intercept_)
                np.testing.assert_allclose(model.coefs_paths_[k, r, c, 0], expected, atol=1e-4)
                assert model.scores_[k, r, c] == one.score(X[test], TWO[test])
    means = model.scores_.mean(axis=0)
    assert means[list(model.l1_ratios_).index(model.l1_ratio_), list(CS).index(model.C_)] == means.max()
    whole = sd.LogisticRegression(model.C_, l1_ratio=model.l1_ratio_, tol=1e-12).fit(X, TWO)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-4)


def test_threads_groups_and_grids():
    groups = np.arange(150) % 7
    one = sd.LogisticRegressionCV(cv=GroupKFold(3), Cs=4).fit(X, TWO, groups=groups)
    more = sd.LogisticRegressionCV(cv=GroupKFold(3), Cs=4, n_jobs=2).fit(X, TWO, groups=groups)
    np.testing.assert_array_equal(one.coefs_paths_, more.coefs_paths_)
    np.testing.assert_allclose(one.Cs_, np.logspace(-4, 4, 4))
    default = sd.LogisticRegressionCV().fit(X, TWO)
    assert default.scores_.shape == (5, 1, 10)


@pytest.mark.parametrize("penalty", ["l1", "l2", "elasticnet"])
def test_penalties_by_name(penalty):
    same = {"l1": {"l1_ratios": 1.0}, "l2": {}, "elasticnet": {"l1_ratios": [0.5]}}[penalty]
    given = {"l1_ratios": [0.5]} if penalty == "elasticnet" else {}
    model = sd.LogisticRegressionCV(Cs=3, penalty=penalty, **given).fit(X, TWO)
    np.testing.assert_array_equal(model.coef_, sd.LogisticRegressionCV(Cs=3, **same).fit(X, TWO).coef_)


def test_one_warning_says_what_ran():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = sd.LogisticRegressionCV(Cs=3, solver="saga").fit(X, TWO)
    assert [str(one.message) for one in caught] == [
        "solver='saga': LogisticRegressionCV took 'newton', which has the same minimum"
    ]
    assert model.solver_ == "newton"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Cs": [1.0, 0.0]}, "Cs must be"),
        ({"Cs": []}, "Cs must be"),
        ({"Cs": ["a"]}, "must be numbers"),
        ({"l1_ratios": [0.5, 2.0]}, "l1_ratios must lie between 0 and 1"),
        ({"penalty": None}, "leaves no C to choose"),
        ({"scoring": "nothing"}, "get_scorer_names"),
        ({"cv": [(np.flatnonzero(TWO == "no"), np.arange(9))]}, "class 'yes'"),
        ({"cv": 200}, "cv"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(DataError, match=message):
        sd.LogisticRegressionCV(**given).fit(X, TWO)
