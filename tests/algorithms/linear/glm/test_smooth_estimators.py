"""LogisticRegression, Ridge and PoissonRegressor as estimators, what they refuse, and Downpour."""

import os
import signal

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import InvalidParameterError
from smooth_problems import FORMS, MODELS, problem, target, value

import stradask as sd
from stradask.algorithms.inputs.targets import check_labels
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge
from stradask.algorithms.neural.mlp import MLPClassifier
from stradask.errors import DataError, InterruptedFitWarning

# --- being an estimator -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "form", "solver"),
    [  # each pair of levels
        (LogisticRegression, "c", "newton"),
        (LogisticRegression, "csr", "sandblaster"),
        (Ridge, "c", "sandblaster"),
        (Ridge, "csr", "newton"),
        (PoissonRegressor, "c", "sandblaster"),
        (PoissonRegressor, "csr", "newton"),
    ],
)
def test_the_same_bits_on_any_number_of_threads(cls, form, solver):
    X, *targets = problem(9000, 40)
    y = target(cls(), *targets)
    fits = [cls(solver=solver, n_jobs=n).fit(FORMS[form](X), y) for n in (1, 2, 3)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].coef_, other.coef_)
        np.testing.assert_array_equal(fits[0].intercept_, other.intercept_)


@pytest.mark.parametrize("cls", MODELS)
def test_a_start_where_the_objective_overflows_is_left(cls):
    X, *targets = problem(300)
    model = cls(warm_start=True, solver="sandblaster", tol=1e-10)
    y = target(model, *targets)
    first = model.fit(X, y).coef_.copy()
    model.coef_ = np.full_like(model.coef_, 1e200)
    np.testing.assert_allclose(model.fit(X, y).coef_, first, atol=1e-4)


@pytest.mark.parametrize("cls", MODELS)
def test_callback_and_history(cls):
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


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_a_callback_is_told_what_the_history_holds(l1_ratio):
    """Three classes; with l1 they are solved as another estimator does it, in other units."""
    X, y, *_ = problem(300)
    y, seen = y + (X[:, 0] > 1), []
    model = LogisticRegression(3.0, l1_ratio=l1_ratio)
    model.fit(X, y, callback=lambda info: seen.append((info, info.snapshot())))
    last, snapshot = seen[-1]
    assert last.objective == model.history_["objective"][-1]
    np.testing.assert_array_equal(last.history.as_dict()["objective"], model.history_["objective"])
    assert last.objective == pytest.approx(value(model, X, y), rel=1e-3)
    assert type(snapshot) is LogisticRegression
    np.testing.assert_array_equal(snapshot.predict_proba(X), model.predict_proba(X))


def test_a_bar_and_a_warning(capsys):
    X, y, *_ = problem(300, scales=1.0)
    with pytest.warns(ConvergenceWarning, match=r"stopped short of tol=1e-10 after 1 steps.*raise max_iter"):
        LogisticRegression(max_iter=1, tol=1e-10, verbose=1).fit(X, y)
    assert "LogisticRegression: 1/1" in capsys.readouterr().err


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("make", [LogisticRegression, sd.SparseLogisticRegression])
def test_sparse_coefficients_predict_as_dense_ones(make, n_classes, tmp_path):
    X, y, *_ = problem(n_classes=n_classes)
    model = make(0.1, l1_ratio=1.0).fit(X, y)
    dense, scores = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(model.sparsify().predict_proba(X), dense)
    assert sparse.issparse(model.coef_)
    blocks = da.from_array(X, chunks=(50, -1))
    np.testing.assert_allclose(model.decision_function(blocks).compute(scheduler="sync"), scores)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(sd.load(tmp_path / "model").predict_proba(X), dense)
    assert isinstance(model.densify().coef_, np.ndarray)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", MODELS)
def test_values_whose_squares_overflow(cls):
    X, *targets = problem(40)
    y = target(cls(), *targets)
    X[7, 3] = 1e30
    frame = pd.DataFrame(X.astype(np.float32), columns=list("abcdef"))
    with pytest.raises(
        DataError, match=r"X holds 1e\+30 in row 7, column 3 \('d'\), too large .* float32: scale"
    ):
        cls().fit(frame, y)


def test_classes_that_are_refused():
    X, y, *_ = problem(40)
    with pytest.raises(DataError, match="y holds 1 class, 0: LogisticRegression needs two classes or more"):
        LogisticRegression().fit(X, np.zeros(40, int))
    with pytest.raises(DataError, match="C=inf penalises nothing, and all rows of a class have"):
        LogisticRegression(np.inf).fit(X, y, (y == 0).astype(float))
    with pytest.raises(DataError, match=r"class_weight names the class 5, which y does not have"):
        LogisticRegression(class_weight={5: 1.0}).fit(X, y)


def test_weights_of_absent_classes_are_ignored_as_in_scikit_learn():
    """Where all classes of y are named; else the label may be a slip for one of them."""
    from sklearn import linear_model

    X, y, *_ = problem(40)
    weights = {0: 1.5, 1: 3.0, 5: 7.0}
    model = LogisticRegression(class_weight=weights, tol=1e-12).fit(X, y)
    want = linear_model.LogisticRegression(class_weight=weights, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, want.coef_, atol=1e-5)


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
        LogisticRegression(tol=-1), LogisticRegression(solver="bfgs"), LogisticRegression(max_iter=0),
        LogisticRegression(class_weight="even"), LogisticRegression(staleness=0.5),
        LogisticRegression(staleness=np.nan), MLPClassifier(staleness=0.5),
        Ridge(-1.0), Ridge(solver="qr"), PoissonRegressor(-1.0), PoissonRegressor(n_jobs="two"),
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

    model = LogisticRegression(solver="downpour", max_iter=1000, tol=0, random_state=0)
    with pytest.warns(InterruptedFitWarning, match="interrupted after") as caught:
        stopped = model.fit(X, y, callback=press)
    assert 2 <= stopped.n_iter_ < 100  # on one core other threads may take some more
    assert f"after {stopped.n_iter_} steps" in str(caught[0].message)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("cls", [LogisticRegression, MLPClassifier])
def test_replicas_need_not_wait_for_each_other(cls):
    X, y, *_ = problem(400)
    model = cls(solver="downpour", staleness=float("inf"), max_iter=30, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.6


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
        (LogisticRegression(solver="downpour", l1_ratio=0.5), {}, "not l1_ratio=0.5: choose another solver"),
        (
            LogisticRegression(solver="downpour", engine="tcp://a:1"),
            {"callback": print},
            "needs engine='local'",
        ),
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
        (np.array(["a", 1, "b"], object), r"y holds labels of several kinds \(int, str\)"),
        (["a", "a\0", "b"], r"y holds the text 'a\\x00', which ends with a NUL"),
    ],
)
def test_labels_that_are_refused(y, said):
    with pytest.raises(DataError, match=said):
        check_labels(y, len(y), "Model")
