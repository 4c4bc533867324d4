"""Cross-validation from second moments, against scikit-learn, the working set and single fits."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit

import stradask as sd
from stradask.algorithms.linear.cv import folds
from stradask.algorithms.linear.cv.moment_search import MomentSearch

rng = np.random.default_rng(1)
N, P = 90, 12
X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.6) * rng.uniform(0.3, 30, P) + rng.uniform(0, 5, P)
Y = (
    (X - X.mean(0)) @ (rng.standard_normal(P) * (rng.random(P) < 0.4) / X.std(0))
    + rng.standard_normal(N)
    + 30
)
WEIGHTS = rng.uniform(0, 2, N) * (rng.random(N) < 0.9)
BOOTSTRAP = [(rng.integers(0, N, N), np.arange(k, N, 3)) for k in range(3)]
TIGHT = {"alphas": 15, "eps": 0.01, "tol": 1e-9}


@pytest.fixture
def only_moments(monkeypatch):
    """Fail where a fold is fitted by its columns."""

    def refuse(*args, **options):
        raise AssertionError("the working set was asked")

    monkeypatch.setattr(folds.PathProblem, "path", refuse)


@pytest.mark.usefixtures("only_moments")
@pytest.mark.filterwarnings("ignore:Objective did not converge")  # scikit-learn's, at rounding errors
@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
@pytest.mark.parametrize("options", [{}, {"positive": True}, {"fit_intercept": False}])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_errors_and_models_are_scikit_learns(form, options, weights):
    for ratio in ({"l1_ratio": [0.3, 1.0]}, {}):
        name = "ElasticNetCV" if ratio else "LassoCV"
        for cv in (
            4,
            ShuffleSplit(3, random_state=0),
            RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        ):
            if cv != 4 and form is not np.asarray:
                continue
            given = {**TIGHT, **options, **ratio, "cv": cv}
            ours = getattr(sd, name)(**given).fit(form(X), Y, weights)
            given |= {"tol": 1e-12, "max_iter": 20_000, "alphas": np.array(ours.alphas_)}
            if ratio:  # whose alphas differ
                given |= {"alphas": TIGHT["alphas"]}
            theirs = getattr(linear_model, name)(**given).fit(form(X), Y, weights)
            np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-4)
            assert ours.alpha_ == pytest.approx(theirs.alpha_)
            scale = np.abs(theirs.coef_).max()
            np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4 * scale)


@pytest.mark.parametrize("cv", [5, KFold(3, shuffle=True, random_state=0), BOOTSTRAP])
@pytest.mark.parametrize(
    "more", [{}, {"standardize": True}, {"penalty_factor": np.r_[2, np.inf, np.ones(P - 2)]}]
)
def test_errors_are_those_of_the_working_set(cv, more, monkeypatch):
    given = {**TIGHT, **more, "cv": cv}
    for scoring in ("mse", "r2", "neg_mean_absolute_error"):
        ours = sd.LassoCV(**given, scoring=scoring).fit(X, Y, WEIGHTS)
        with monkeypatch.context() as patch:
            patch.setattr(MomentSearch, "begin", lambda *args: None)
            other = sd.LassoCV(**given, scoring=scoring).fit(X, Y, WEIGHTS)
        np.testing.assert_allclose(ours.alphas_, other.alphas_, rtol=1e-9)
        np.testing.assert_allclose(ours.mse_path_, other.mse_path_, rtol=2e-4)
        np.testing.assert_allclose(ours.scores_, other.scores_, rtol=2e-4, atol=2e-4)
        assert ours.alpha_ == pytest.approx(other.alpha_)


@pytest.mark.usefixtures("only_moments")
def test_errors_are_those_of_the_coefficients():
    """The mean squared errors come from moments: hold them against predictions of the same paths."""
    seen = []
    search = MomentSearch._path

    def keep(self, problem, ratio, alphas):
        seen.append((problem, search(self, problem, ratio, alphas)))
        return seen[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MomentSearch, "_path", keep)
        model = sd.LassoCV(alphas=10, cv=3).fit(X, Y, WEIGHTS)
    for k, (_, test) in enumerate(KFold(3).split(X)):
        path = seen[k][1]
        errors = (X[test] @ path.coefs.toarray() + path.intercepts - Y[test, None]) ** 2
        expected = np.average(errors, axis=0, weights=WEIGHTS[test])
        np.testing.assert_allclose(model.mse_path_[:, k], expected, rtol=1e-9)


def test_a_perfect_fit_is_judged_by_its_rows():
    """Its errors are rounding errors of moments, which are not taken."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 4))
    b = A @ [1.0, 2.0, 0.0, -1.0]
    model = sd.LassoCV(alphas=[1e-1, 1e-9], tol=1e-10, cv=3).fit(A, b)
    assert (model.mse_path_[-1] < 1e-9).all()
    assert (model.mse_path_ >= 0).all()
    for k, (train, test) in enumerate(KFold(3).split(A)):
        one = sd.Lasso(0.1, tol=1e-10).fit(A[train], b[train])
        assert model.mse_path_[0, k] == pytest.approx(
            ((one.predict(A[test]) - b[test]) ** 2).mean(), rel=1e-3
        )


def test_a_column_that_varies_in_test_rows_alone():
    A = X.copy()
    A[:, 3] = 0.0
    A[:30, 3] = np.arange(30)
    A[:, 4] = 7.0
    A[5, 4] += 1e-3
    ours = sd.LassoCV(**TIGHT, cv=3).fit(A, Y)
    theirs = linear_model.LassoCV(**TIGHT | {"tol": 1e-13}, cv=3, max_iter=1_000_000).fit(A, Y)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-4)


def test_most_of_the_spread_in_one_fold_is_not_subtracted_away():
    """Moments of a fold's training rows lose digits when nearly all of a column lies in its test rows."""
    A, b = X.copy(), Y.copy()
    A[:30] *= 1e6
    b[:30] += 1e6 * X[:30, 0]
    alphas = sd.LassoCV().alpha_max(A[30:], b[30:]) * np.geomspace(1, 0.01, 10)
    model = sd.LassoCV(alphas=alphas, tol=1e-8, cv=3).fit(A, b)
    for k, alpha in enumerate(model.alphas_):
        one = sd.Lasso(alpha, tol=1e-8).fit(A[30:], b[30:])
        error = ((one.predict(A[:30]) - b[:30]) ** 2).mean()
        assert model.mse_path_[k, 0] == pytest.approx(error, rel=1e-3)
