"""Generalised linear models on Dask: the objective of a local fit, data where they lie, lost workers."""

import logging
import os
import re
from pathlib import Path

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from far_problems import MODELS, N, P, close, make_problem, two_workers
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from stradask.algorithms.linear.glm import row_places
from stradask.algorithms.linear.glm.objective import MultinomialObjective
from stradask.algorithms.linear.glm.remote import RemotePortions, objective_over
from stradask.algorithms.linear.glm.rows import LOGISTIC, make_rows
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge
from stradask.algorithms.optimize.minimize import minimize
from stradask.errors import DataError
from stradask.scheduler.workers import ClusterWorkers


@pytest.fixture(scope="module", autouse=True)
def client():
    with two_workers() as client:
        yield client


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(row_places, "_LEAST_ENTRIES", 300)


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("solver", ["auto", "newton", "sandblaster"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, lambda X: da.from_array(X, (150, 4))])
def test_objectives_are_those_of_a_local_fit(problem, cls, solver, form):
    X, targets, weights = problem
    X = np.where(np.abs(X) > 0.1, X, 0)
    near = cls(solver=solver, tol=1e-12).fit(X, targets[cls], weights)
    far = cls(solver=solver, tol=1e-12, engine="dask").fit(form(X), targets[cls], weights)
    close(far, near)
    assert far.solver_ == near.solver_
    assert (far.history_["bytes_sent"] > 0).all()
    assert not near.history_["bytes_sent"].any()


@pytest.mark.parametrize("p", [P, 700])  # Hessian of a class, and the diagonal
def test_more_than_two_classes(p):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, p))
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + rng.gumbel(size=(200, 3)), axis=1)]
    near = LogisticRegression(0.1, tol=1e-11).fit(X, y)
    far = LogisticRegression(0.1, tol=1e-11).fit(da.from_array(X, (70, -1)), y)
    close(far, near)
    assert far.classes_.tolist() == ["a", "b", "c"]


def test_products_with_the_hessian_of_several_classes(problem):
    X, _, weights = problem
    labels, options = np.arange(N) % 3, {"scale": 1 / N, "l2": 0.3}
    near = MultinomialObjective(make_rows(X, labels, weights), 3, **options)
    w = np.linspace(-0.1, 0.1, near.n_parameters)
    with row_places.opened_rows(LogisticRegression(), X, [labels], weights, "dask") as [rows]:
        far = objective_over(rows, MultinomialObjective, 3, **options)
        found, diagonal = far.hessian_product(w, np.cos(w)), far.hessian_diagonal(w)
    np.testing.assert_allclose(found, near.hessian_product(w, np.cos(w)), rtol=1e-11)
    np.testing.assert_allclose(diagonal, near.hessian_diagonal(w), rtol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_l1_penalties(problem, n_classes):
    X, targets, _ = problem
    y = targets[LogisticRegression] if n_classes == 2 else np.arange(N) % 3
    near = LogisticRegression(0.02, l1_ratio=0.9, tol=1e-11).fit(X, y)
    far = LogisticRegression(0.02, l1_ratio=0.9, tol=1e-11, engine="dask").fit(X, y)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-6)
    np.testing.assert_array_equal(far.coef_ == 0, near.coef_ == 0)


def test_l1_over_many_columns():
    """The working set and OWL-QN, on workers, have the minimum and the support of the local working set."""
    rng = np.random.default_rng(0)
    X, C = rng.standard_normal((60, 2100)), 0.3
    y = X[:, :5].sum(axis=1) + rng.logistic(size=60) > 0
    options = {"C": C, "l1_ratio": 1.0, "fit_intercept": False, "tol": 1e-10}
    near = LogisticRegression(**options).fit(X, y)
    far = LogisticRegression(**options, engine="dask").fit(X, y)
    assert far.solver_ == near.solver_ == "working-set"
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-6)
    np.testing.assert_array_equal(far.coef_ == 0, near.coef_ == 0)

    def loss(rows, w):
        X, signs = rows
        margin = signs * (X @ w)
        return C * np.logaddexp(0, -margin).sum(), -C * X.T @ (signs / (1 + np.exp(margin)))

    signs = np.where(y, 1.0, -1.0)
    portions = [(X[k::3], signs[k::3]) for k in range(3)]
    found = minimize(loss, np.zeros(2100), portions, l1=1.0, tol=1e-7, engine="dask")
    least = loss((X, signs), near.coef_[0])[0] + np.abs(near.coef_).sum()
    assert found.fun == pytest.approx(least, rel=1e-9)
    np.testing.assert_array_equal(found.x == 0, near.coef_[0] == 0)
    assert 10 < np.count_nonzero(found.x) < 60


def test_many_columns_by_conjugate_gradients():
    rng = np.random.default_rng(1)
    X = sparse.random_array((300, 2500), density=0.01, rng=rng, format="csr")
    y = X @ rng.standard_normal(2500) > 0
    for solver in ("newton", "auto"):
        near = LogisticRegression(solver=solver, tol=1e-11).fit(X, y)
        close(LogisticRegression(solver=solver, tol=1e-11, engine="dask").fit(X, y), near)


def test_several_targets_share_the_portions(problem, monkeypatch):
    X, targets, weights = problem
    Y = np.column_stack([targets[Ridge], targets[PoissonRegressor], np.zeros(N)])
    opened, open_passes = [], ClusterWorkers.sum

    def counted(*args, **options):
        opened.append(args)
        return open_passes(*args, **options)

    monkeypatch.setattr(ClusterWorkers, "sum", counted)
    lazily = da.from_array(X, (100, -1))
    far = Ridge(0.5, tol=1e-12).fit(lazily, da.from_array(Y, (90, 2)), weights)
    near = Ridge(0.5, tol=1e-12).fit(X, Y, weights)
    assert len(opened) == 1
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-10)
    np.testing.assert_allclose(far.intercept_, near.intercept_, atol=1e-10)


@pytest.mark.parametrize("cls", MODELS)
def test_float32_warm_start_and_callbacks(problem, cls):
    X, targets, _ = problem
    X = da.from_array(X.astype(np.float32), (100, -1))
    far = cls(warm_start=True).fit(X, targets[cls])
    assert far.coef_.dtype == np.float32
    first = far.n_iter_
    assert far.fit(X, targets[cls]).n_iter_ <= min(2, first)
    seen = []
    stopped = cls().fit(X, targets[cls], callback=lambda info: seen.append(info.snapshot()) or True)
    assert len(seen) == stopped.n_iter_ == 1
    np.testing.assert_array_equal(seen[0].coef_, stopped.coef_)


@pytest.mark.parametrize("cls", MODELS)
def test_without_a_client_it_is_a_local_fit(problem, cls, monkeypatch):
    X, targets, _ = problem
    lazily = da.from_array(X, (100, 3))

    def nobody():
        raise ValueError("no client")

    monkeypatch.setattr(distributed, "default_client", nobody)
    far = cls(tol=1e-12).fit(lazily, targets[cls])
    assert not far.history_["bytes_sent"].any()
    np.testing.assert_array_equal(far.coef_, cls(tol=1e-12).fit(X, targets[cls]).coef_)


def test_curvatures_are_computed_again_where_they_were_not_kept(problem):
    """As on a worker that takes a portion over, or is asked for another point than the last."""
    X, targets, weights = problem
    signs = np.where(targets[LogisticRegression], 1.0, -1.0)
    program = RemotePortions([None], np.ascontiguousarray, P)
    w, elsewhere = np.linspace(-0.1, 0.1, P + 1), np.zeros(P + 1)
    s = expit(X @ w[:-1] + w[-1])
    A = np.column_stack([X, np.ones(N)])
    exact = A.T @ ((weights * s * (1 - s))[:, None] * A)
    for before in ((), (w,), (elsewhere,), (w, elsewhere)):
        state = program.load((X, [signs], weights))
        for point in before:
            program.gradient(0, state, (0,), LOGISTIC, point, True)
        _, found = program.second_order(0, state, (0,), "hessian", LOGISTIC, w)
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_blocks_at_odd_addresses_are_moved(form):
    """As they may come over a network: kernels would be compiled anew, and BLAS would copy them each time."""
    X = form(np.arange(12.0).reshape(4, 3))
    read = row_places.reader(LogisticRegression(), X)

    def shifted(array):
        moved = np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:].view(array.dtype).reshape(array.shape)
        assert not moved.flags.aligned
        return moved

    if form is np.asarray:
        odd = shifted(X)
    else:
        odd = X.copy()
        odd.data, odd.indices, odd.indptr = map(shifted, (X.data, X.indices, X.indptr))
    found = read((0, 0, 4, odd))
    parts = [found] if form is np.asarray else [found.data, found.indices, found.indptr]
    assert all(part.flags.aligned for part in parts)
    np.testing.assert_array_equal(
        found.toarray() if form is sparse.csr_array else found, np.arange(12.0).reshape(4, 3)
    )
    same = read((0, 0, 4, X))
    assert np.shares_memory(same if form is np.asarray else same.data, X if form is np.asarray else X.data)


def test_the_page_runs(capsys):
    page = (Path(__file__).parents[4] / "docs" / "optimize.md").read_text(encoding="utf-8")
    local, cluster, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(local + cluster, {})
    assert capsys.readouterr().out.count("newton") == 2


# --- hard data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", MODELS)
def test_columns_that_say_nothing_and_rows_of_zeros(problem, cls):
    """One partition is all zeros; columns are constant, empty, and of tiny scale."""
    X, targets, weights = problem
    X = np.column_stack([X, np.full(N, 7.0), np.zeros(N), np.full(N, 1e-30)])
    X[100:200] = 0
    y = targets[cls]
    near, far = (cls(tol=1e-12).fit(rows, y, weights) for rows in (X, da.from_array(X, (100, 4))))
    close(far, near, rtol=1e-9)
    np.testing.assert_allclose(far.predict(X), near.predict(X), rtol=1e-5, atol=1e-6)
    X[:, 0] *= 1e100
    huge = cls(tol=1e-6).fit(da.from_array(X, (100, 4)), y, weights)
    assert np.isfinite(huge.coef_).all()


def test_classes_that_a_plane_separates(problem):
    X, _, _ = problem
    y = X[:, 1] > 0.3
    near, far = (LogisticRegression(1e4, tol=1e-10).fit(rows, y) for rows in (X, da.from_array(X, (200, -1))))
    assert far.history_["objective"][-1] == pytest.approx(near.history_["objective"][-1], rel=1e-8)
    assert far.score(X, y) == near.score(X, y) == 1
    assert np.isfinite(far.coef_).all()


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_nan_in_a_late_partition_is_named(problem, cls, bad):
    X, targets, _ = problem
    X = X.copy()
    X[333, 2] = bad
    word = "NaN" if bad != bad else "infinity"
    said = rf"in partition 3 of X, which begins at row 300: X contains {word} in row 33, column 2"
    with pytest.raises(DataError, match=said):
        cls().fit(da.from_array(X, (100, 3)), targets[cls])


@pytest.mark.parametrize("cls", MODELS)
def test_input_that_is_refused(problem, cls):
    X, targets, _ = problem
    y, lazily = targets[cls], da.from_array(X, (100, -1))
    with pytest.raises(DataError, match="X has 400 rows, but y or a weight vector has 390"):
        cls().fit(lazily, da.from_array(y[:390], 90))
    with pytest.raises(DataError, match="y has 390 rows, but X has 400"):
        cls().fit(lazily, y[:390])
    with pytest.raises(DataError, match="sample_weight has the shape"):
        cls().fit(lazily, y, np.ones(30))
    with pytest.raises(DataError, match="chunks of unknown size"):
        cls().fit(lazily[lazily[:, 0] > 0], y)
    with pytest.raises(DataError, match="two dimensions"):
        cls().fit(lazily[:, 0], y)
    with pytest.raises(DataError, match="engine='nowhere' is unknown"):
        cls(engine="nowhere").fit(X, y)
    wrong = da.concatenate([lazily, da.from_delayed(dask.delayed(np.ones)((7, P)), (9, P), float)])
    longer = np.append(y, y[:9])
    with pytest.raises(
        DataError, match=r"partition 4 .* row 400: it has the shape \(7, 6\), but X says \(9, 6\)"
    ):
        cls().fit(wrong, longer)
    before = cls().fit(X, y)
    with pytest.raises(DataError):
        before.set_params(engine="dask").fit(X * np.nan, y)
    np.testing.assert_array_equal(before.coef_, cls().fit(X, y).coef_)


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (LogisticRegression(np.inf), [0.0, 2.0, 2.0, 1.0, 3.0, 4.0], [0, 1, 0, 0, 1, 1]),
        (PoissonRegressor(0.0), [0.0, 0.0, 1.0, 1.0], [0, 0, 1, 2]),
    ],
)
def test_without_a_penalty_what_a_plane_separates_is_told(model, x, y):
    """Also where only some rows can be told apart, the others lying on the plane."""
    with pytest.warns(ConvergenceWarning, match="separates the rows"):
        model.fit(da.from_array(np.array(x)[:, None], (2, 1)), y)


def test_one_class_in_all_partitions(problem):
    X, _, _ = problem
    with pytest.raises(DataError, match="y holds 1 class, 1"):
        LogisticRegression().fit(da.from_array(X, (100, -1)), da.ones(N, chunks=100, dtype=int))
    with pytest.raises(DataError, match="y is 0 in every row"):
        PoissonRegressor().fit(da.from_array(X, (100, -1)), da.zeros(N, chunks=100))


# --- lost workers -----------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.parametrize(("cls", "form"), [(LogisticRegression, "array"), (PoissonRegressor, "dask")])
def test_a_worker_killed_in_mid_fit_changes_no_bit(problem, killing, cls, form):
    X, targets, weights = problem
    y = targets[cls]
    if form == "dask":
        X, y, weights = da.from_array(X, (40, -1)), da.from_array(y, 70), da.from_array(weights, N)
    model = cls(solver="sandblaster", tol=1e-10, engine="dask")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        whole = model.fit(X, y, weights).coef_
        objectives = model.history_["objective"]
        victim = min(client.run(os.getpid).values())
        model.fit(X, y, weights, callback=killing(1, victim, delay=0.0))
        assert victim not in client.run(os.getpid).values()
    np.testing.assert_array_equal(model.coef_, whole)
    np.testing.assert_array_equal(model.history_["objective"], objectives)


# --- Downpour ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, pytest.param(sparse.csr_array, marks=pytest.mark.slow)])
def test_replicas_on_dask_are_those_of_threads(problem, form):
    """With no staleness the bits are the same; every n-th chunk of a Dask array is a replica's."""
    X, targets, weights = problem
    model = LogisticRegression(solver="downpour", max_iter=60, random_state=0, tol=1e-3)
    y = targets[LogisticRegression]
    near = clone(model).fit(form(X), y, weights)
    far = clone(model).set_params(engine="dask").fit(form(X), y, weights)
    np.testing.assert_array_equal(far.coef_, near.coef_)
    blocks = clone(model).fit(da.from_array(X, (90, 4)).map_blocks(form), y, weights)
    least = LogisticRegression().fit(X, y, weights).history_["objective"][-1]
    Z = X @ blocks.coef_[0] + blocks.intercept_[0]
    loss = weights @ np.logaddexp(0, np.where(y, -Z, Z)) + blocks.coef_[0] @ blocks.coef_[0] / 2
    assert loss < 1.05 * least
    bad = X.copy()
    bad[200, 1] = np.nan
    with pytest.raises(
        DataError, match="partition 2 of X, which begins at row 180: X contains NaN in row 20"
    ):
        model.fit(da.from_array(bad, (90, -1)), y)
