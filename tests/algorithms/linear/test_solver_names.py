"""Names of solvers and penalties: what they mean, and what is said of them."""

import warnings

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.base import clone

import stradask as sd
from stradask.errors import DataError

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 6))
Y = X @ [1.0, 0, -2, 0.5, 0, 0] + rng.standard_normal(300)
LABELS = Y > 0.3
COUNTS = rng.poisson(np.exp(0.3 * X[:, 0]))


def fit(model, y):
    """Fit without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.fit(X, y)


@pytest.mark.parametrize(
    "solver", ["lbfgs", "newton-cg", "newton-cholesky", "newton", "sketch", "sandblaster"]
)
def test_methods_that_are_here_run_without_a_word(solver):
    ran = {"newton-cholesky": "newton", "sandblaster": "lbfgs"}.get(solver, solver)
    model = fit(sd.LogisticRegression(solver=solver, tol=1e-12), LABELS)
    assert model.solver_ == ran
    exact = linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(X, LABELS)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-4)
    poisson = fit(sd.PoissonRegressor(solver=solver, tol=1e-12), COUNTS)
    assert poisson.solver_ == ran
    exact = linear_model.PoissonRegressor(solver="newton-cholesky", tol=1e-10).fit(X, COUNTS)
    np.testing.assert_allclose(poisson.coef_, exact.coef_, atol=1e-4)


@pytest.mark.parametrize("solver", ["cholesky", "sparse_cg", "lbfgs", "newton-cg", "sketch"])
def test_ridge_has_the_names_of_its_own(solver):
    model = fit(sd.Ridge(solver=solver), Y)
    assert model.solver_ == {"cholesky": "newton", "sparse_cg": "newton-cg"}.get(solver, solver)
    np.testing.assert_allclose(model.coef_, linear_model.Ridge(solver="cholesky").fit(X, Y).coef_, atol=1e-3)


@pytest.mark.parametrize("solver", ["svd", "lsqr", "sag", "saga"])
def test_ridge_says_what_ran_for_methods_that_are_not_here(solver):
    with pytest.warns(
        UserWarning, match=f"solver='{solver}': Ridge took 'newton', which has the same minimum"
    ):
        model = sd.Ridge(solver=solver).fit(X, Y)
    np.testing.assert_allclose(model.coef_, sd.Ridge().fit(X, Y).coef_)


@pytest.mark.parametrize("solver", ["liblinear", "sag", "saga"])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_logistic_regression_says_what_ran_for_methods_that_are_not_here(solver, ratio):
    ran = "proximal-newton" if ratio else "newton"
    words = "does not penalise the intercept" if solver == "liblinear" else "has the same minimum"
    with pytest.warns(
        UserWarning, match=f"solver='{solver}': LogisticRegression took '{ran}', which {words}"
    ):
        model = sd.LogisticRegression(solver=solver, l1_ratio=ratio).fit(X, LABELS)
    np.testing.assert_array_equal(model.coef_, sd.LogisticRegression(l1_ratio=ratio).fit(X, LABELS).coef_)
    with pytest.warns(UserWarning, match="has the same minimum"):
        sd.LogisticRegression(solver=solver, fit_intercept=False).fit(X, LABELS)


def test_liblinear_without_an_intercept_has_the_same_coefficients():
    with pytest.warns(UserWarning, match="same minimum"):
        ours = sd.LogisticRegression(solver="liblinear", l1_ratio=1.0, fit_intercept=False, tol=1e-10).fit(
            X, LABELS
        )
    exact = linear_model.LogisticRegression(solver="liblinear", l1_ratio=1.0, fit_intercept=False, tol=1e-10)
    np.testing.assert_allclose(ours.coef_, exact.fit(X, LABELS).coef_, atol=1e-4)


def test_a_method_that_cannot_be_had_is_named():
    with pytest.warns(UserWarning, match="solver='lbfgs': LogisticRegression took 'proximal-newton'"):
        sd.LogisticRegression(solver="lbfgs", l1_ratio=1.0).fit(X, LABELS)
    with pytest.warns(UserWarning, match="solver='newton-cg': LogisticRegression took 'lbfgs'"):
        sd.LogisticRegression(solver="newton-cg").fit(X, np.arange(300) % 3)
    with pytest.warns(UserWarning, match="solver='working-set': LogisticRegression took 'newton'"):
        sd.LogisticRegression(solver="working-set").fit(X, LABELS)
    wide = rng.standard_normal((20, 2100))
    with pytest.warns(UserWarning, match="solver='proximal-newton': LogisticRegression took 'working-set'"):
        sd.LogisticRegression(solver="proximal-newton", l1_ratio=1.0).fit(wide, np.arange(20) % 2)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_what_a_fit_took_can_be_given_back(ratio):
    for y in (LABELS, np.arange(300) % 3):
        model = sd.LogisticRegression(l1_ratio=ratio, C=0.1).fit(X, y)
        again = fit(clone(model).set_params(solver=model.solver_), y)
        assert again.solver_ == model.solver_
        np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-5)
    by_columns = fit(sd.LogisticRegression(l1_ratio=1.0, solver="working-set", tol=1e-9), LABELS)
    assert by_columns.solver_ == "working-set"
    by_rows = fit(sd.LogisticRegression(l1_ratio=1.0, solver="proximal-newton", tol=1e-9), LABELS)
    assert by_rows.solver_ == "proximal-newton"
    np.testing.assert_allclose(by_rows.coef_, by_columns.coef_, atol=1e-3)


def test_unknown_names_are_refused():
    for model in (
        sd.Ridge(solver="liblinear"),
        sd.PoissonRegressor(solver="saga"),
        sd.LogisticRegression(penalty="L1"),
    ):
        with pytest.raises(ValueError, match="parameter of"):
            model.fit(X, LABELS)


# Penalties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "given", "same"),
    [
        ("l1", {}, {"l1_ratio": 1.0}),
        ("l2", {}, {}),
        ("elasticnet", {"l1_ratio": 0.3}, {"l1_ratio": 0.3}),
        (None, {}, {"C": np.inf}),
        ("auto", {"l1_ratio": 0.3}, {"l1_ratio": 0.3}),
    ],
)
def test_penalties_are_those_of_scikit_learn(penalty, given, same):
    model = fit(sd.LogisticRegression(penalty=penalty, **given), LABELS)
    other = fit(sd.LogisticRegression(**same), LABELS)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert model.solver_ == other.solver_
    several = fit(sd.LogisticRegression(penalty=penalty, **given), np.arange(300) % 3)
    np.testing.assert_array_equal(several.coef_, fit(sd.LogisticRegression(**same), np.arange(300) % 3).coef_)


def test_what_a_penalty_overrules_is_said():
    with pytest.warns(UserWarning, match=r"penalty='l1': l1_ratio=0\.5 is not used"):
        model = sd.LogisticRegression(penalty="l1", l1_ratio=0.5).fit(X, LABELS)
    np.testing.assert_array_equal(model.coef_, sd.LogisticRegression(l1_ratio=1.0).fit(X, LABELS).coef_)
    with pytest.warns(UserWarning, match=r"C=2 is not used"):
        sd.LogisticRegression(penalty=None, C=2.0).fit(X, LABELS)
    with pytest.raises(DataError, match="downpour"):
        sd.LogisticRegression(penalty="l1", solver="downpour").fit(X, LABELS)


def test_models_with_these_names_are_saved_and_read(tmp_path):
    model = fit(sd.LogisticRegression(penalty=None, solver="newton-cg"), LABELS).save(tmp_path / "model.npz")
    again = sd.load(tmp_path / "model.npz")
    assert again.penalty is None
    assert again.solver == "newton-cg"
    np.testing.assert_array_equal(again.coef_, model.coef_)
