"""LogisticRegression, Ridge and PoissonRegressor against scikit-learn and scipy, and on odd data."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, optimize, sparse
from scipy.special import expit
from sklearn import linear_model
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight
from smooth_problems import FORMS, MODELS, TIGHT, problem, target, value

import stradask as sd
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge
from stradask.benchmarks.gaps import logistic_gap
from stradask.errors import DataError

# --- against scikit-learn and scipy ---------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_objectives_are_scikit_learns(form, solver, n_classes, fit_intercept):
    X, y, *_ = problem(n_classes=n_classes)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(y))
    mine = LogisticRegression(2.0, solver=solver, fit_intercept=fit_intercept, **TIGHT)
    mine.fit(FORMS[form](X), y, weights)
    theirs = linear_model.LogisticRegression(
        C=2.0, solver="newton-cholesky", tol=1e-12, fit_intercept=fit_intercept
    ).fit(X, y, weights)
    assert value(mine, X, y, weights) <= value(theirs, X, y, weights) * (1 + 1e-8)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=2e-5)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert mine.intercept_.shape == theirs.intercept_.shape
    np.testing.assert_array_equal(mine.predict(X), mine.classes_[mine.predict_proba(X).argmax(axis=1)])
    np.testing.assert_allclose(np.exp(mine.predict_log_proba(X)), mine.predict_proba(X), rtol=1e-12)
    assert mine.history_["objective"][-1] == pytest.approx(value(mine, X, y, weights), rel=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 1: 0.5}])
def test_class_weights_are_scikit_learns(n_classes, class_weight):
    X, y, *_ = problem(n_classes=n_classes)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(y))
    if "sample_weight" not in inspect.signature(compute_class_weight).parameters:
        weights[:] = 1.0  # older scikit-learn balances numbers of rows, not their weights
    mine = LogisticRegression(0.7, class_weight=class_weight, **TIGHT).fit(X, y, weights)
    theirs = linear_model.LogisticRegression(
        C=0.7, solver="newton-cholesky", tol=1e-12, class_weight=class_weight
    )
    np.testing.assert_allclose(mine.coef_, theirs.fit(X, y, weights).coef_, atol=1e-5)


@pytest.mark.parametrize("form", ["c", "csr"])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_l1_objectives_are_scikit_learns(form, l1_ratio, n_classes):
    X, y, *_ = problem(n_classes=n_classes)
    mine = LogisticRegression(0.2, l1_ratio=l1_ratio, tol=1e-12).fit(FORMS[form](X), y)
    theirs = linear_model.LogisticRegression(
        C=0.2, l1_ratio=l1_ratio, solver="saga", tol=1e-10, max_iter=20_000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # older versions want the name of the penalty
        if theirs.get_params().get("penalty") == "l2":
            theirs.set_params(penalty="elasticnet")
        theirs.fit(X, y)
    assert value(mine, X, y) == pytest.approx(value(theirs, X, y), rel=1e-8)
    np.testing.assert_array_equal(mine.coef_ == 0, np.abs(theirs.coef_) < 1e-8)
    assert mine.solver_ == ("proximal-newton" if n_classes == 2 else "working-set")
    assert mine.history_["objective"][-1] == pytest.approx(value(mine, X, y), rel=1e-6)


def test_l1_over_many_columns_is_left_to_the_working_set():
    X, y, *_ = problem(60, 2100)
    mine = LogisticRegression(0.5, l1_ratio=0.9, tol=1e-9).fit(X, y)
    other = sd.SparseLogisticRegression(1 / (0.5 * 60), l1_ratio=0.9, tol=1e-9).fit(X, y)
    np.testing.assert_array_equal(mine.coef_, other.coef_)
    assert mine.solver_ == "working-set"
    again = clone(mine).set_params(warm_start=True).fit(X, y).fit(X, y)
    assert again.n_iter_ < mine.n_iter_


@pytest.mark.parametrize(
    ("n", "p", "solver"),
    [(50, 100, "proximal-newton"), (50, 101, "working-set"), (2601, 102, "proximal-newton")],
)
def test_an_l1_penalty_takes_whole_hessians_for_few_columns_or_many_rows(n, p, solver):
    X, y, *_ = problem(n, p)
    weak = LogisticRegression(0.2, l1_ratio=1.0, tol=1e-10)
    model, listed = weak.fit(X, y), clone(weak).fit(X.tolist(), y)
    assert model.solver_ == listed.solver_ == solver
    np.testing.assert_array_equal(model.coef_, listed.coef_)
    gap, _ = logistic_gap(X, np.where(y == 1, 1.0, -1.0), model.coef_[0], 1 / (0.2 * n), model.intercept_[0])
    assert -1e-12 < gap < 1e-6


def test_what_goes_to_the_working_set_is_checked_once_and_in_this_estimators_name():
    X, y, *_ = problem(60, 2100)
    names = [f"column {j}" for j in range(2100)]
    model = LogisticRegression(0.5, l1_ratio=1.0)
    model.fit(pd.DataFrame(X, columns=names), y)
    assert model.feature_names_in_.tolist() == names
    assert not hasattr(model.fit(X, y), "feature_names_in_")
    assert model.n_features_in_ == 2100
    weights = np.random.default_rng(2).uniform(0.5, 2, 60)
    uneven = LogisticRegression(0.5, l1_ratio=1.0, tol=1e-9, class_weight={0: 1.0, 1: 3.0}).fit(X, y, weights)
    same = LogisticRegression(0.5, l1_ratio=1.0, tol=1e-9).fit(X, y, weights * np.where(y == 1, 3.0, 1.0))
    np.testing.assert_allclose(uneven.coef_, same.coef_, atol=1e-6)
    assert not LogisticRegression(1e-320, l1_ratio=1.0).fit(X, y).coef_.any()
    X[3, 7] = np.inf
    with pytest.raises(DataError, match="infinity in row 3, column 7: LogisticRegression takes finite"):
        model.fit(X, y)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge_is_the_normal_equations_solution(form, solver, fit_intercept):
    X, _, _, y = problem()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(y))
    mine = Ridge(0.7, solver=solver, fit_intercept=fit_intercept, **TIGHT).fit(FORMS[form](X), y, weights)
    A = np.column_stack([X, np.ones(len(y))])[:, : 6 + fit_intercept]
    penalty = np.diag([0.7] * 6 + [0.0] * fit_intercept)
    exact = linalg.solve(A.T @ (weights[:, None] * A) + penalty, A.T @ (weights * y))
    np.testing.assert_allclose(
        np.append(mine.coef_, mine.intercept_)[: len(exact)], exact, rtol=2e-5, atol=1e-6
    )
    assert mine.history_["objective"][-1] == pytest.approx(value(mine, X, y, weights), rel=1e-12)
    np.testing.assert_allclose(mine.predict(X), A @ exact, atol=1e-5)


def test_ridge_of_several_targets_is_ridge_of_each():
    X, *_, y = problem()
    Y = np.column_stack([y, 2 - y**2, np.zeros(len(y))])
    both = Ridge(0.3).fit(X, Y)
    each = [Ridge(0.3).fit(X, column) for column in Y.T]
    np.testing.assert_allclose(both.coef_, [one.coef_ for one in each], atol=1e-12)
    np.testing.assert_allclose(both.intercept_, [one.intercept_ for one in each], atol=1e-12)
    theirs = linear_model.Ridge(0.3).fit(X, Y)
    np.testing.assert_allclose(both.coef_, theirs.coef_, atol=1e-8)
    np.testing.assert_allclose(both.predict(X), theirs.predict(X), atol=1e-8)
    assert len(both.n_iter_) == 3


@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
@pytest.mark.parametrize("n_rows", [200, 4], ids=["tall", "wide"])
def test_every_target_has_its_own_penalty(solver, n_rows):
    X, *_, y = problem()
    X, y = X[:n_rows], y[:n_rows]
    Y, alphas = np.column_stack([y, 2 - y**2, np.cos(y), y]), np.array([0.3, 0.3, 50.0, 0.3])
    mine = Ridge(alphas, solver=solver, **TIGHT).fit(X, Y)
    theirs = linear_model.Ridge(alphas).fit(X, Y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, rtol=1e-5, atol=1e-8)
    one = Ridge([0.3], solver=solver, **TIGHT).fit(X, y)
    np.testing.assert_array_equal(one.coef_, Ridge(0.3, solver=solver, **TIGHT).fit(X, y).coef_)
    assert clone(mine).fit(X, Y).alpha is not None


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        ([1.0, 2.0, 3.0], r"alpha has the shape \(3,\) and y 2 targets"),
        ([[1.0, 2.0]], r"alpha has the shape \(1, 2\)"),
        ([1.0, -1.0], "alpha must be finite numbers of 0 or more"),
        ([1.0, np.nan], "alpha must be finite numbers of 0 or more"),
        (["a", "b"], "alpha must be finite numbers of 0 or more"),
    ],
)
def test_penalties_that_do_not_fit_the_targets_are_refused(alpha, said):
    with pytest.raises(DataError, match=said):
        Ridge(alpha).fit(np.eye(5), np.ones((5, 2)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_poisson_objectives_are_scikit_learns(form, solver, fit_intercept):
    X, _, y, _ = problem()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(y))
    mine = PoissonRegressor(0.05, solver=solver, fit_intercept=fit_intercept, **TIGHT)
    mine.fit(FORMS[form](X), y, weights)
    theirs = linear_model.PoissonRegressor(
        alpha=0.05, tol=1e-12, solver="newton-cholesky", fit_intercept=fit_intercept
    ).fit(X, y, weights)
    assert value(mine, X, y, weights) == pytest.approx(value(theirs, X, y, weights), rel=1e-10)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(mine.predict(X), theirs.predict(X), rtol=1e-5)
    assert mine.score(X, y, weights) == pytest.approx(theirs.score(X, y, weights), abs=1e-6)
    assert mine.history_["objective"][-1] == pytest.approx(value(mine, X, y, weights), rel=1e-12)


@given(
    n=st.integers(4, 40),
    p=st.integers(1, 12),
    cls=st.sampled_from(MODELS),
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from([np.float32, np.float64]),
    solver=st.sampled_from(["auto", "sandblaster"]),
    weighted=st.booleans(),
    strength=st.sampled_from([0.01, 1.0, 100.0]),
    seed=st.integers(0, 10_000),
)
@settings(deadline=None, max_examples=60)
def test_grid_of_problems(n, p, cls, form, dtype, solver, weighted, strength, seed):
    """No general minimiser finds anything lower."""
    X, *targets = problem(n, p, seed=seed, density=0.5)
    model = cls(strength, solver=solver, tol=1e-8 if dtype == np.float32 else 1e-11)
    y = target(model, *targets)
    y = np.append(y[:-1], 1) if cls is PoissonRegressor else y
    weights = np.random.default_rng(seed).uniform(0.5, 2, n) if weighted else None
    model.fit(FORMS[form](X.astype(dtype)), y, weights)
    assert model.coef_.dtype == dtype
    X = X.astype(dtype).astype(float)
    other = clone(model)
    other.classes_ = getattr(model, "classes_", None)

    def objective(x):
        other.coef_, other.intercept_ = x[:-1].reshape(model.coef_.shape), x[-1]
        return value(other, X, y, weights)

    start = np.append(model.coef_, model.intercept_).astype(float)
    best = optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-8}).fun
    assert value(model, X, y, weights) <= best + (1e-5 if dtype == np.float32 else 1e-8) * (1 + abs(best))


# --- scales, separation, odd rows -----------------------------------------------------------------


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
def test_badly_scaled_columns_cost_little(cls, solver):
    X, *targets = problem(400, 8, scales=4.0, density=1.0)
    X += X.std(axis=0) * np.linspace(-30, 30, 8)  # and far from zero
    model = cls(1e-3 if cls is not LogisticRegression else 1e3, solver=solver, tol=1e-9)
    y = target(model, *targets)
    model.fit(X, y)
    assert model.n_iter_ < 40
    scale = X.std(axis=0)
    best = cls(model.get_params().get("alpha", model.get_params().get("C")), solver="newton", tol=1e-14).fit(
        X, y
    )
    assert value(model, X, y) <= value(best, X, y) * (1 + 1e-8)
    np.testing.assert_allclose(model.coef_ * scale, best.coef_ * scale, atol=2e-3)


@pytest.mark.parametrize("cls", MODELS)
def test_columns_that_say_nothing(cls):
    """Constant, repeated, empty, of huge and of tiny scale: an answer, the same without them."""
    X, *targets = problem()
    model = cls(**TIGHT)
    y = target(model, *targets)
    plain = model.fit(X, y).predict(X)
    odd = np.column_stack([X, np.full(len(y), 7.0), np.zeros(len(y)), np.full(len(y), 1e-30)])
    np.testing.assert_allclose(clone(model).fit(odd, y).predict(odd), plain, rtol=1e-4, atol=1e-6)
    rng = np.random.default_rng(0)
    huge = np.column_stack([X, 1e100 * rng.standard_normal(len(y))])
    assert np.isfinite(clone(model).fit(huge, y).coef_).all()
    twice = clone(model).fit(np.column_stack([X, X]), y)
    first, second = np.split(np.atleast_2d(twice.coef_), 2, axis=1)
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_separable_data_with_hardly_any_penalty():
    """The coefficient grows with C, to where one equation in it says, and the fit ends."""
    X, y = np.array([[-2.0], [-1.0], [1.0], [3.0]]), np.array([0, 0, 1, 1])
    for C in (1.0, 1e4, 1e8, 1e12):
        model = LogisticRegression(C, fit_intercept=False, tol=1e-12).fit(X, y)
        sizes = np.abs(X[:, 0])
        exact = optimize.brentq(lambda w, C=C, m=sizes: w - C * m @ expit(-m * w), 0, 100, xtol=1e-13)
        assert model.coef_[0, 0] == pytest.approx(exact, rel=1e-5)
        assert LogisticRegression(C).fit(X, y).score(X, y) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        free = LogisticRegression(np.inf).fit(X, y)
    assert np.isfinite(free.coef_).all()
    assert free.predict_proba(X).max(axis=1).min() > 0.99


@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
def test_perfect_fits_end_without_a_warning(solver):
    X = np.random.default_rng(0).standard_normal((200, 5))
    z = X @ [1, 2, 3, 4, 5.0] + 1
    exact = Ridge(0.0, solver=solver).fit(X, z)
    np.testing.assert_allclose(exact.coef_, [1, 2, 3, 4, 5], rtol=1e-12)
    np.testing.assert_allclose(Ridge(0.0, solver=solver).fit(X[:4], z[:4]).predict(X[:4]), z[:4], rtol=1e-9)
    constant = Ridge(solver=solver).fit(X, np.full(200, 3.0))
    assert (constant.coef_.any(), constant.intercept_) == (False, 3.0)
    rates = PoissonRegressor(0.0, solver=solver).fit(X / 10, np.exp(z / 10))
    np.testing.assert_allclose(rates.coef_, [1, 2, 3, 4, 5], rtol=1e-6)


def test_without_penalty_it_is_maximum_likelihood():
    X, y, *_ = problem()
    mine = LogisticRegression(np.inf, **TIGHT).fit(X, y)
    theirs = linear_model.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(X, y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("cls", MODELS)
def test_empty_matrices_and_rows(cls):
    """Rows of zeros take part through the intercept; a matrix of zeros leaves the intercept alone."""
    X, *targets = problem(40)
    model = cls(**TIGHT)
    y = target(model, *targets)
    X[::3] = 0
    np.testing.assert_allclose(
        model.fit(sparse.csr_array(X), y).coef_, clone(model).fit(X, y).coef_, atol=1e-9
    )
    nothing = clone(model).fit(sparse.csr_array((40, 6)), y)
    assert not nothing.coef_.any()
    mean = {LogisticRegression: np.log(y.mean() / (1 - y.mean() + 0.0)) if y.max() == 1 else 0, Ridge:
    y.mean(),
            PoissonRegressor: np.log(y.mean())}[cls]  # fmt: skip
    assert np.ravel(nothing.intercept_)[0] == pytest.approx(mean, rel=1e-8)


@pytest.mark.parametrize("cls", MODELS)
def test_empty_columns_are_left_out_and_come_back(cls):
    X, *targets = problem(60, 6)
    model = cls(**TIGHT)
    y = target(model, *targets)
    wide = sparse.lil_array((60, 500))
    wide[:, 3:500:90] = X
    wide = sparse.csr_array(wide)
    found = model.fit(wide, y).coef_
    plain = clone(model).fit(X, y).coef_
    np.testing.assert_allclose(found[..., 3:500:90], plain, atol=1e-8)
    assert np.count_nonzero(found) == 6
    assert model.n_features_in_ == found.shape[-1] == 500
