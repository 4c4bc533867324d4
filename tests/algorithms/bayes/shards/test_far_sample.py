"""Samples of rows that lie in portions elsewhere: the same rows as of a matrix that lies here."""

import contextlib
import itertools
import logging
import os
import signal

import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import sparse

from stradask.algorithms.linear.glm import remote as far
from stradask.algorithms.linear.glm import sketch
from stradask.algorithms.linear.glm.choose import method_for
from stradask.algorithms.linear.glm.objective import LinearObjective
from stradask.algorithms.linear.glm.remote import RemotePortions, RemoteRows, objective_over
from stradask.algorithms.linear.glm.rows import LOGISTIC, SQUARED, DenseRows, make_rows
from stradask.algorithms.linear.glm.sketch import sample_of
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.scheduler.sums.cluster_passes import ClusterPasses
from stradask.scheduler.sums.passes import open_passes
from stradask.scheduler.workers import open_session

EDGES = [0, 700, 708, 4000, 4001, 9000]


@contextlib.contextmanager
def portions_of(X, targets, weights, edges=EDGES):
    """`RemoteRows` over portions on threads of this process."""
    shards = [
        (X[a:b], [y[a:b] for y in targets], None if weights is None else weights[a:b])
        for a, b in itertools.pairwise(edges)
    ]
    passes = open_passes(open_session("local", 2), RemotePortions(shards, lambda part: part, X.shape[1]))
    with contextlib.closing(passes):
        yield [RemoteRows(passes, X.dtype, target) for target in range(len(targets))]


def data(form, dtype=np.float64):
    """Rows with a rare column and a last portion that is dense; targets and weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9000, 8)).astype(dtype)
    if form == "sparse":
        X[rng.random(X.shape) < 0.6] = 0
        X[:, 3] *= rng.random(9000) < 0.003
        X[4000] = 1.0  # a portion of its own, which is read as dense rows
    y, z = np.where(rng.random(9000) < 0.4, 1.0, -1.0), rng.standard_normal(9000)
    return X if form == "dense" else sparse.csr_array(X), [y, z], rng.uniform(0.5, 2, 9000)


def same(found, expected, weights_within=0.0):
    assert type(found) is type(expected)
    names = ("X", "y", "weights") if isinstance(found, DenseRows) else ("data", "indices", "y", "weights")
    for name in names:
        apart = weights_within if name == "weights" else 0.0
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=apart, atol=0)
        assert getattr(found, name).dtype == getattr(expected, name).dtype
    assert found.shape == expected.shape


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_taken_are_those_of_the_matrix(form, weighted, dtype):
    X, targets, weights = data(form, dtype)
    weights = weights if weighted else None
    rng = np.random.default_rng(1)
    with portions_of(X, targets, weights) as sets:
        for there, y in zip(sets, targets, strict=True):
            here = make_rows(X, y, weights)
            for rows in (
                np.arange(9000),
                rng.permutation(9000)[:500],
                np.array([8999, 0, 704, 4000]),
                np.arange(5000, 5020),
            ):
                same(there.take(rows), here.take(rows))
            assert there.weight_sums == pytest.approx(here.weight_sums, rel=1e-12)
            for below, most in ((50, 9000), (4000, 9000), (4000, 30), (1, 9000)):
                found = there.rows_of_rare_columns(below, most)
                np.testing.assert_array_equal(found, here.rows_of_rare_columns(below, most))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_sample_is_that_of_a_local_objective(form):
    X, targets, weights = data(form)
    here = LinearObjective(make_rows(X, targets[0], weights), LOGISTIC, scale=1e-3, l2=0.1)
    with portions_of(X, targets, weights) as sets:
        there = objective_over(sets[0], LinearObjective, LOGISTIC, scale=1e-3, l2=0.1)
        for seed, n in ((0, 1000), (1, 4000)):
            near, away = sample_of(here, n, seed), sample_of(there, n, seed)
            same(away.rows, near.rows, weights_within=4e-16)  # of two sums, grouped otherwise
            assert away.scale == pytest.approx(near.scale, rel=1e-12)
            assert (form == "dense") == (near.n_rows == n)


def test_the_rule_is_that_of_local_rows_unless_the_sample_is_too_large(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40_000, 30)), np.sign(rng.standard_normal(40_000))
    with portions_of(X, [y], None, [0, 100, 20_000, 40_000]) as [rows]:
        for loss in (LOGISTIC, SQUARED):
            near = LinearObjective(make_rows(X, y), loss, l2=1.0)
            assert method_for(objective_over(rows, LinearObjective, loss, l2=1.0)) == method_for(near)
        assert method_for(objective_over(rows, LinearObjective, LOGISTIC, l2=1.0)) == "sketch"
        monkeypatch.setattr(far, "_SAMPLE_ENTRIES", 3999 * 30)
        assert method_for(objective_over(rows, LinearObjective, LOGISTIC, l2=1.0)) == "newton"


# --- on a cluster -----------------------------------------------------------------------------------


@contextlib.contextmanager
def workers(n, **options):
    with (
        distributed.LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
            **options,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def tall():
    """Correlated columns of different scales: the sketch is what `solver="auto"` takes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 30)) @ np.triu(np.full((30, 30), 0.3)) * np.geomspace(0.01, 10, 30)
    z = X @ (rng.standard_normal(30) / np.geomspace(0.01, 10, 30)) / 8
    return X, {
        LogisticRegression: z + rng.logistic(size=len(z)) > 0,
        PoissonRegressor: rng.poisson(np.exp(z)),
    }


def test_fits_from_a_sample_are_those_of_threads_on_any_workers():
    X, targets = tall()
    found = {}
    for n in (1, 2):
        with workers(n, processes=False):
            for cls, y in targets.items():
                model = cls(tol=1e-13).fit(da.from_array(X, (9_000, -1)), y)
                assert model.solver_ == "sketch"
                found[cls, n] = model
    for cls, y in targets.items():
        near = cls(tol=1e-13).fit(X, y)
        np.testing.assert_array_equal(found[cls, 1].coef_, found[cls, 2].coef_)
        np.testing.assert_allclose(found[cls, 1].coef_, near.coef_, rtol=1e-8, atol=0)
        assert len(found[cls, 1].history_["objective"]) == len(near.history_["objective"])


def test_a_fit_asks_for_nothing_but_samples_and_gradients(monkeypatch):
    """What else is to be known came when the rows were loaded; the larger sample comes meanwhile."""
    X, targets = tall()
    asked, begun, run, begin = [], [], ClusterPasses._run, ClusterPasses.begin

    def noted(passes, request):
        asked.append(request[0])
        return run(passes, request)

    def noted_beginning(passes, request):
        begun.append(request[0])
        return begin(passes, request)

    monkeypatch.setattr(ClusterPasses, "_run", noted)
    monkeypatch.setattr(ClusterPasses, "begin", noted_beginning)
    monkeypatch.setattr(sketch, "_ADDED", 100.0)  # for a larger sample from so few rows
    y = targets[LogisticRegression]
    with workers(2, processes=False):
        model = LogisticRegression().fit(da.from_array(X, (9_000, -1)), da.from_array(y, 9_000))
    assert model.solver_ == "sketch"
    assert asked[:2] == ["take", "take"]
    assert begun == ["take"]
    assert set(asked[2:]) == {"gradient"}
    near = LogisticRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_, near.coef_, rtol=1e-6)


def test_what_went_wrong_with_rows_that_were_expected_is_told(monkeypatch):
    X, targets = tall()

    def take(self, number, state, target, wanted, edges):
        if len(wanted) > 4_000:
            raise ZeroDivisionError("of the larger sample")
        return real(self, number, state, target, wanted, edges)

    real = RemotePortions.take
    monkeypatch.setattr(RemotePortions, "take", take)
    monkeypatch.setattr(sketch, "_ADDED", 100.0)
    with workers(1, processes=False), pytest.raises(ZeroDivisionError, match="larger sample"):
        LogisticRegression().fit(da.from_array(X, (9_000, -1)), targets[LogisticRegression])


@pytest.mark.cluster
def test_a_worker_killed_while_the_sample_is_drawn_changes_no_bit(monkeypatch):
    X, targets = tall()
    lazily, y = da.from_array(X, (2_500, -1)), targets[LogisticRegression]
    take, victims = RemoteRows.take, []

    def deadly(rows, numbers):
        if victims:
            os.kill(victims.pop(), signal.SIGKILL)
        return take(rows, numbers)

    monkeypatch.setattr(RemoteRows, "take", deadly)
    with workers(2) as client:
        whole = LogisticRegression(tol=1e-10).fit(lazily, y)
        assert whole.solver_ == "sketch"
        victim = min(client.run(os.getpid).values())
        victims.append(victim)
        hurt = LogisticRegression(tol=1e-10).fit(lazily, y)
        assert not victims
        assert victim not in client.run(os.getpid).values()
    np.testing.assert_array_equal(hurt.coef_, whole.coef_)
    np.testing.assert_array_equal(hurt.history_["objective"], whole.history_["objective"])
