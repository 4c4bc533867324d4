"""LogisticRegression, Ridge and PoissonRegressor against scikit-learn and scipy, and what they refuse."""

import os
import pickle
import signal
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, optimize, sparse
from scipy.special import expit, logsumexp, xlogy
from sklearn import linear_model
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import check_estimator

import stradask as sd
from stradask.algorithms.linear.inputs import check_labels
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge
from stradask.errors import DataError, InterruptedFitWarning, ModelFileError

FORMS = {
    "c": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
}
TIGHT = {"tol": 1e-13}
MODELS = (LogisticRegression, Ridge, PoissonRegressor)


def problem(n=120, p=6, n_classes=2, *, seed=0, scales=0.0, density=0.7):
    """Columns whose scales and means lie up to `scales` decades from 1; labels, counts and reals."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[rng.random((n, p)) > density] = 0
    z = X @ rng.uniform(-1, 1, p) + 0.3
    edges = np.linspace(-1, 1, n_classes + 1)[1:-1] if n_classes > 2 else [0.0]
    labels = np.digitize(z + rng.logistic(size=n), edges)
    labels[:n_classes] = np.arange(n_classes)
    X = X * 10.0 ** rng.uniform(-scales, scales, p)
    return X, labels, rng.poisson(np.exp(z)), z + rng.standard_normal(n)


def target(model, labels, counts, reals):
    return {LogisticRegression: labels, Ridge: reals, PoissonRegressor: counts}[type(model)]


def value(model, X, y, weights=None):
    """The documented objective, in plain numpy."""
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    s = np.ones(len(y)) if weights is None else np.broadcast_to(weights, len(y))
    coef = np.asarray(model.coef_, float)
    z = X.astype(float) @ coef.T + model.intercept_
    square = (coef**2).sum()
    if isinstance(model, (Ridge, linear_model.Ridge)):
        return s @ (y - z) ** 2 + model.alpha * square
    if isinstance(model, (PoissonRegressor, linear_model.PoissonRegressor)):
        return np.average(xlogy(y, y) - y * z - y + np.exp(z), weights=s) + model.alpha / 2 * square
    Z = np.column_stack([np.zeros(len(y)), z]) if z.shape[1] == 1 else z
    losses = logsumexp(Z, axis=1) - Z[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    rho = model.l1_ratio
    return model.C * (s @ losses) + (1 - rho) / 2 * square + rho * np.abs(coef).sum()


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


@pytest.mark.parametrize("cls", MODELS)
def test_weights_count_rows(cls):
    X, *targets = problem(80)
    model = cls(**TIGHT)
    y = target(model, *targets)
    counts = np.random.default_rng(3).integers(0, 3, 80)
    counts[:2] = 1
    weighted = model.fit(X, y, counts).coef_.copy()
    repeated = clone(model).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts)).coef_
    np.testing.assert_allclose(weighted, repeated, atol=1e-7)
    same = clone(model).fit(X, y, 2.0).coef_
    np.testing.assert_allclose(same, clone(model).fit(X, y, np.full(80, 2.0)).coef_, atol=1e-12)


# --- being an estimator -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", [LogisticRegression(), Ridge(), PoissonRegressor()], ids=repr)
def test_scikit_learns_checks(model):
    outcomes = check_estimator(model, on_fail=None, on_skip=None)
    assert len(outcomes) > 50
    assert not [(o["check_name"], o["exception"]) for o in outcomes if o["status"] == "failed"]


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("form", ["c", "csr"])
@pytest.mark.parametrize("solver", ["newton", "sandblaster"])
def test_the_same_bits_on_any_number_of_threads(cls, form, solver):
    X, *targets = problem(9000, 40)
    y = target(cls(), *targets)
    fits = [cls(solver=solver, n_jobs=n).fit(FORMS[form](X), y) for n in (1, 2, 3)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].coef_, other.coef_)
        np.testing.assert_array_equal(fits[0].intercept_, other.intercept_)


@pytest.mark.parametrize("cls", MODELS)
def test_warm_start(cls):
    X, *targets = problem(300)
    model = cls(warm_start=True, solver="sandblaster", tol=1e-10)
    y = target(model, *targets)
    first = model.fit(X, y).coef_.copy()
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < cold
    np.testing.assert_allclose(model.coef_, first, atol=1e-4)
    with pytest.raises(DataError, match=r"warm_start=True goes on from a model of 6 columns"):
        model.fit(X[:, 1:], y)
    np.testing.assert_allclose(model.coef_, first, atol=1e-4)
    if cls is LogisticRegression:
        with pytest.raises(DataError, match=r"warm_start=True goes on from a model of the classes \[0, 1\]"):
            model.fit(X, y + 1)
    model.coef_ = np.full_like(model.coef_, 1e200)  # where the objective overflows: zero is taken
    np.testing.assert_allclose(model.fit(X, y).coef_, first, atol=1e-4)


@pytest.mark.parametrize("cls", MODELS)
def test_callback_history_and_control_c(cls):
    X, *targets = problem(300, scales=1.0)
    y = target(cls(), *targets)
    seen = []

    def watch(info):
        seen.append((info.round, value(info.snapshot(), X, y), info.objective))
        return info.round == 2

    model = cls(solver="sandblaster", tol=1e-14).fit(X, y, callback=watch)
    assert [number for number, *_ in seen] == [1, 2]
    for _, snapshot, told in seen:
        assert snapshot == pytest.approx(told, rel=1e-10)
    assert model.n_iter_ == len(model.history_["objective"]) == 2

    def press(info):
        if info.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match=f"{cls.__name__} was interrupted after 2 steps"):
        model.fit(X, y, callback=press)
    assert model.coef_.any()


def test_a_bar_and_a_warning(capsys):
    X, y, *_ = problem(300, scales=1.0)
    with pytest.warns(ConvergenceWarning, match=r"stopped short of tol=1e-10 after 1 steps.*raise max_iter"):
        LogisticRegression(max_iter=1, tol=1e-10, verbose=1).fit(X, y)
    assert "LogisticRegression: 1/1" in capsys.readouterr().err


@pytest.mark.parametrize("cls", MODELS)
def test_save_load_pickle(cls, tmp_path, monkeypatch):
    monkeypatch.setitem(sd._PLACES, cls.__name__, cls.__module__.replace("stradask", ""))
    X, *targets = problem()
    model = cls()
    model.fit(X, target(model, *targets))
    model.save(tmp_path / "model")
    loaded = sd.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.get_params() == model.get_params()
    assert loaded.solver_ == model.solver_
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    model.coef_ = model.coef_[..., 1:]
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="coef_"):
        sd.load(tmp_path / "model")


def test_sparse_coefficients_predict_as_dense_ones():
    X, y, *_ = problem()
    model = LogisticRegression(0.1, l1_ratio=1.0).fit(X, y)
    dense = model.predict_proba(X)
    np.testing.assert_allclose(model.sparsify().predict_proba(X), dense)
    assert sparse.issparse(model.coef_)
    assert isinstance(model.densify().coef_, np.ndarray)


def test_frames_labels_and_grid_search():
    X, y, *_ = problem()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    words = np.array(["no", "yes"])
    model = LogisticRegression().fit(frame, pd.Series(words[y]), pd.Series(np.ones(len(y))))
    assert model.feature_names_in_.tolist() == list("abcdef")
    assert model.score(frame, words[y]) == LogisticRegression().fit(X, y).score(X, y)
    search = GridSearchCV(LogisticRegression(), {"C": [1e-6, 1.0]}, cv=3, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_ == {"C": 1.0}
    assert repr(LogisticRegression(0.5, l1_ratio=0.2)) == "LogisticRegression(C=0.5, l1_ratio=0.2)"


@pytest.mark.parametrize("cls", MODELS)
def test_predictions_of_dask_arrays(cls):
    da = pytest.importorskip("dask.array")
    X, *targets = problem()
    model = cls()
    model.fit(X, target(model, *targets))
    lazy = model.predict(da.from_array(X, chunks=(50, 6)))
    np.testing.assert_allclose(lazy.compute(), model.predict(X), rtol=1e-12)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_nan_and_infinities_are_named_with_their_place(cls, form, dtype, bad, word):
    X, *targets = problem(40)
    X[7, 3] = bad
    model = cls()
    with pytest.raises(DataError, match=rf"X contains {word} in row 7, column 3: {cls.__name__} takes"):
        model.fit(FORMS[form](X.astype(dtype)), target(model, *targets))
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("cls", MODELS)
def test_values_whose_squares_overflow(cls):
    X, *targets = problem(40)
    y = target(cls(), *targets)
    frame = pd.DataFrame(X.astype(np.float32), columns=list("abcdef"))
    frame.loc[7, "d"] = 1e30
    with pytest.raises(
        DataError, match=r"X holds 1e\+30 in row 7, column 3 \('d'\), too large .* float32: scale"
    ):
        cls().fit(frame, y)


@pytest.mark.parametrize("cls", MODELS)
def test_targets_and_weights_that_are_refused(cls):
    X, *targets = problem(40)
    model = cls()
    y = np.asarray(target(model, *targets), float)
    with pytest.raises(DataError, match="y has 39 rows, but X has 40"):
        model.fit(X, y[1:])
    missing = y.copy()
    missing[5] = np.nan
    with pytest.raises(DataError, match="y contains NaN in row 5"):
        model.fit(X, missing)
    with pytest.raises(DataError, match="sample_weight must be 0 or above and finite, got -1 for row 4"):
        model.fit(X, y, np.where(np.arange(40) == 4, -1.0, 1.0))
    with pytest.raises(DataError, match="sample_weight is zero in every row"):
        model.fit(X, y, np.zeros(40))
    with pytest.raises(DataError, match="sample_weight has the shape"):
        model.fit(X, y, np.ones(39))
    with pytest.raises(DataError):
        model.fit(X, None)
    with pytest.raises(DataError):
        model.fit(np.empty((0, 3)), [])
    fitted = model.fit(X, y)
    with pytest.raises(ValueError, match="features"):
        fitted.predict(X[:, 1:])


def test_classes_that_are_refused():
    X, y, *_ = problem(40)
    with pytest.raises(DataError, match="y holds 1 class, 0: LogisticRegression needs two classes or more"):
        LogisticRegression().fit(X, np.zeros(40, int))
    with pytest.raises(DataError, match="all rows of the class 1 have the weight zero"):
        LogisticRegression().fit(X, y, (y == 0).astype(float))
    with pytest.raises(DataError, match=r"class_weight names the class 5, which y does not have"):
        LogisticRegression(class_weight={5: 1.0}).fit(X, y)


def test_counts_that_are_refused():
    X, _, y, _ = problem(40)
    with pytest.raises(DataError, match="y holds -3 in row 2: the targets of PoissonRegressor are counts"):
        PoissonRegressor().fit(X, np.where(np.arange(40) == 2, -3, y))
    with pytest.raises(DataError, match="y is 0 in every row that has weight"):
        PoissonRegressor().fit(X, np.zeros(40))
    with pytest.raises(DataError, match="y is 0 in every row that has weight"):
        PoissonRegressor().fit(X, y, (y == 0).astype(float))


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(0.0), LogisticRegression(-1), LogisticRegression(l1_ratio=1.5),
        LogisticRegression(tol=-1), LogisticRegression(solver="lbfgs"), LogisticRegression(max_iter=0),
        LogisticRegression(class_weight="even"),
        Ridge(-1.0), Ridge(solver="svd"), PoissonRegressor(-1.0), PoissonRegressor(n_jobs="two"),
    ],
    ids=repr,
)  # fmt: skip
def test_parameters_that_are_refused(model):
    with pytest.raises(InvalidParameterError):
        model.fit(np.ones((4, 1)), [0, 1, 0, 1])


# --- Downpour -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["c", "csr"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("options", [{}, {"n_replicas": 1, "fit_intercept": False}, {"staleness": 3}])
def test_downpour_comes_near_the_minimum(form, n_classes, options):
    X, y, *_ = problem(1500, 5, n_classes, scales=1.0)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(y))
    model = LogisticRegression(0.5, solver="downpour", random_state=0, tol=1e-4, **options)
    model.fit(FORMS[form](X), y, weights)
    best = LogisticRegression(0.5, fit_intercept=model.fit_intercept).fit(X, y, weights)
    assert value(model, X, y, weights) < 1.03 * value(best, X, y, weights)
    assert value(model, X, y, weights) > value(best, X, y, weights) * (1 - 1e-9)
    assert model.n_iter_ == len(model.history_["objective"]) < 100
    assert model.history_["objective"][-1] == pytest.approx(value(model, X, y, weights), rel=0.1)
    assert (model.solver_, model.intercept_.any()) == ("downpour", model.fit_intercept)


def test_downpour_tells_of_its_passes():
    X, y, *_ = problem(600, 5)
    seen = []

    def watch(info):
        seen.append((info.round, info.objective, info.snapshot()))
        return info.round == 3

    model = LogisticRegression(solver="downpour", random_state=0).fit(X, y, callback=watch)
    assert [number for number, *_ in seen] == [1, 2, 3]
    np.testing.assert_array_equal(model.history_["objective"], [objective for _, objective, _ in seen])
    assert seen[-1][2].score(X, y) == pytest.approx(model.score(X, y), abs=0.02)

    def press(info):
        if info.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match="interrupted after [23] steps"):
        stopped = LogisticRegression(solver="downpour", random_state=0).fit(X, y, callback=press)
    assert stopped.n_iter_ in (2, 3)


def test_downpour_is_repeatable_goes_on_and_warns():
    X, y, *_ = problem(600, 5)
    model = LogisticRegression(solver="downpour", random_state=3, tol=1e-4)
    first, again = clone(model).fit(X, y), clone(model).fit(X, y)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert (clone(model).set_params(random_state=4).fit(X, y).coef_ != first.coef_).any()
    start = LogisticRegression(solver="newton", warm_start=True).fit(X, y)
    start.set_params(solver="downpour", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="has not come to rest in 1 passes"):
        start.fit(X, y)
    assert value(start, X, y) < 1.05 * value(LogisticRegression().fit(X, y), X, y)
    one = clone(model).set_params(max_iter=1)
    with pytest.warns(ConvergenceWarning):
        one.fit(X.astype(np.float32), y)
    assert one.coef_.dtype == np.float32


@pytest.mark.parametrize(
    ("model", "options", "word"),
    [
        (LogisticRegression(solver="downpour", l1_ratio=0.5), {}, "l1_ratio is 0.5: choose another solver"),
        (
            LogisticRegression(solver="downpour", engine="tcp://a:1"),
            {"callback": print},
            "needs engine='local'",
        ),
        (LogisticRegression(solver="downpour", staleness=0.5), {}, "staleness must be an integer"),
    ],
)
def test_what_downpour_refuses(model, options, word):
    X, y, *_ = problem(60)
    with pytest.raises(DataError, match=word):
        model.fit(X, y, **options)


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.uint8, bool])
@pytest.mark.parametrize("values", [[0, 1], [1, 0], [3, 0, 0], [0, 1, 0, 2], [-1, 0], [-2, 5, 0]])
def test_labels_are_numbered_as_numpy_does(dtype, values):
    with np.errstate(all="ignore"):
        y = np.array(values).astype(dtype)
    classes, numbers = check_labels(y, len(y), "Model")
    want, places = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(classes, want)
    np.testing.assert_array_equal(numbers, places)
    assert (classes.dtype, numbers.dtype) == (y.dtype, np.int64)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([0.0, 1.0, np.nan, np.nan], "y contains NaN in row 2"),
        ([0.0, np.inf, 1.0], "y contains infinity in row 1"),
        ([0.0, -np.inf], "y contains infinity in row 1"),
        (np.array(["a", None, "b"], object), "y contains None in row 1"),
        ([0.5, 1.5], "Unknown label type: continuous"),
        ([2.0, 2.0], "y holds 1 class, 2.0"),
    ],
)
def test_labels_that_are_refused(y, said):
    with pytest.raises(DataError, match=said):
        check_labels(y, len(y), "Model")
