"""Downpour SGD: against one replica by hand, the optimum of a convex problem, and simulated time."""

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from stradask.algorithms.optimize.downpour import FINISHED, NOT_FINITE, STILL, minimize_downpour
from stradask.errors import CheckpointMismatch, DataError
from stradask.scheduler.table.places import SimulatedClock


def make_loss():
    """A logistic loss with a small penalty, as a function that travels."""

    def loss(rows, w):
        X, y = rows
        margin = y * (X @ w)
        value = np.logaddexp(0, -margin).sum() + len(y) * 5e-3 * (w @ w)
        return value, -X.T @ (y / (1 + np.exp(margin))) + len(y) * 1e-2 * w

    return loss


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 5)) * np.array([1.0, 3.0, 0.3, 1.0, 1.0])
    y = np.sign(X @ np.array([1.0, -0.5, 2.0, 0.0, 0.3]) + rng.logistic(size=1200))
    return X, y


@pytest.fixture(scope="module")
def least(data):
    """The optimum, by scipy."""
    X, y = data
    found = minimize(lambda w: [v / len(y) for v in make_loss()((X, y), w)], np.zeros(5), jac=True, tol=1e-12)
    return found.fun


def portions_of(data, n):
    return [tuple(part[r::n] for part in data) for r in range(n)]


def excess(result, data, least):
    return make_loss()(data, result.x)[0] / len(data[1]) - least


@pytest.mark.parametrize(
    ("n_replicas", "staleness", "simulated"),
    [
        (1, 0, False),
        (2, 0, True),
        (3, 1, True),
        (3, np.inf, False),
        pytest.param(1, 0, True, marks=pytest.mark.slow),
        pytest.param(2, 0, False, marks=pytest.mark.slow),
        pytest.param(3, 1, False, marks=pytest.mark.slow),
        pytest.param(3, np.inf, True, marks=pytest.mark.slow),
    ],
)
def test_it_comes_to_the_optimum(data, least, n_replicas, staleness, simulated):
    result = minimize_downpour(
        make_loss(),
        np.zeros(5),
        portions_of(data, n_replicas),
        staleness=staleness,
        batch_size=40,
        max_epochs=30,
        n_iter_no_change=30,
        engine=SimulatedClock([1.0, 1.3, 0.7][:n_replicas]) if simulated else "local",
        random_state=1,
    )
    # A replica that is still at work when others have ended goes on with its own rows alone.
    assert -1e-9 < excess(result, data, least) < (3e-3 if staleness == 0 else 1e-2 if simulated else 3e-2)
    assert result.samples == result.nfev * 40


def test_one_replica_is_adagrad_on_its_minibatches(data):
    """By hand, from the batches that the loss is shown."""
    seen, loss = [], make_loss()

    def watched(rows, w):
        seen.append(rows)
        return loss(rows, w)

    result = minimize_downpour(
        watched,
        np.zeros(5),
        [data],
        learning_rate=0.3,
        warm_steps=7,
        batch_size=100,
        max_epochs=2,
        random_state=0,
    )
    w, squares = np.zeros(5), np.zeros(5)
    assert len(seen) == 1 + 7 + 24  # the first is a look at x0
    for rows in seen[1:]:
        gradient = loss(rows, w)[1] / 100
        squares += gradient**2
        w = w - 0.3 * (gradient / np.sqrt(squares))
    assert result.x == pytest.approx(w, rel=1e-12)
    assert result.nfev == 31
    passed = np.sort(np.concatenate([rows[0][:, 0] for rows in seen[1:13]]))
    assert np.array_equal(passed, np.sort(data[0][:, 0]))  # a pass has every row once


def test_accrued_gradients_are_pushed_together(data):
    """Of two replicas in step, with n_push=3, a clock makes one Adagrad step each, of three gradients."""
    seen, loss = {0: [], 1: []}, make_loss()
    portions = portions_of(data, 2)

    def watched(rows, w):
        number = int(not np.isin(rows[0][0, 0], portions[0][0][:, 0]))
        gradient = loss(rows, w)[1]
        seen[number].append((w.copy(), gradient / 100))
        return loss(rows, w)

    options = {"learning_rate": 0.3, "warm_steps": 0, "batch_size": 100, "max_epochs": 1, "random_state": 0}
    engine = SimulatedClock([1.0, 1.0])
    result = minimize_downpour(watched, np.zeros(5), portions, n_push=3, n_fetch=3, engine=engine, **options)
    w, squares = np.zeros(5), np.zeros(5)
    for clock in range(2):
        start = w
        for number in (0, 1):
            assert seen[number][3 * clock][0] == pytest.approx(start, rel=1e-12)
            gradient = sum(g for _, g in seen[number][3 * clock : 3 * clock + 3])
            squares += gradient**2
            w = w - 0.3 * (gradient / np.sqrt(np.where(squares, squares, 1)))
    assert result.x == pytest.approx(w, rel=1e-10)
    assert result.nit == 2


@pytest.mark.parametrize("n_fetch", [1, 4])
def test_parameters_are_fetched_every_few_steps(n_fetch):
    """The first replica has no gradient of its own: its parameters change when it fetches, and only then."""
    seen = []

    def loss(rows, w):
        if not rows.any():
            seen.append(w.copy())
        return 1.0, rows.sum(axis=0)

    minimize_downpour(
        loss,
        np.zeros(2),
        [np.zeros((90, 2)), np.ones((90, 2))],
        n_fetch=n_fetch,
        staleness=10,
        learning_rate=0.1,
        warm_steps=0,
        batch_size=10,
        max_epochs=1,
        engine=SimulatedClock([1.0, 0.9]),
        random_state=0,
    )
    changes = [i for i in range(1, 9) if (seen[i] != seen[i - 1]).any()]
    assert changes == [i for i in range(1, 9) if i % n_fetch == 0]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_learning_rate_fits_the_scale_of_the_data(data, least, scale):
    X, y = data

    def loss(rows, w):
        value, gradient = make_loss()((rows[0] / scale, rows[1]), w)
        return value, gradient

    result = minimize_downpour(
        loss, np.zeros(5), [(X * scale, y)], batch_size=40, max_epochs=30, random_state=0
    )
    assert excess(result, data, least) < 3e-3


def test_without_staleness_threads_and_simulated_time_give_the_same_bits(data):
    def fit(engine, seed=5):
        options = {"batch_size": 60, "max_epochs": 3, "random_state": seed, "engine": engine}
        return minimize_downpour(make_loss(), np.zeros(5), portions_of(data, 3), **options).x.tolist()

    want = fit("local")
    assert fit("local") == want
    assert fit(SimulatedClock([1.0, 5.0, 0.2])) == want
    assert fit("local", 6) != want


@pytest.mark.parametrize("place", ["one_process", pytest.param("processes", marks=pytest.mark.cluster)])
def test_dask_gives_the_same_model(data, place):
    from distributed import LocalCluster

    # The last bits of products by BLAS depend on where an array begins in memory.
    options = {"batch_size": 60, "max_epochs": 3, "random_state": 5}
    want = minimize_downpour(make_loss(), np.zeros(5), portions_of(data, 2), **options).x
    cluster = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(processes=place == "processes", **cluster) as workers:
        engine = workers.scheduler_address
        got = minimize_downpour(make_loss(), np.zeros(5), portions_of(data, 2), engine=engine, **options)
    assert got.x == pytest.approx(want, rel=1e-9)
    assert got.success == (got.status == FINISHED)


def test_samples_are_counted_over_all_replicas_at_the_time_of_each_look(data):
    engine = SimulatedClock([1.0, 0.25])
    result = minimize_downpour(
        make_loss(),
        np.zeros(5),
        portions_of(data, 2),
        staleness=np.inf,
        batch_size=60,
        max_epochs=4,
        evaluate_every=2,
        warm_steps=5,
        engine=engine,
        random_state=0,
    )
    # The first replica takes 40 steps of 1 s; the other is through with its 40 after 10 s.
    assert result.history["seconds"].tolist() == list(range(2, 41, 2))
    want = [60 * (5 + n + min(4 * n, 40)) for n in range(2, 41, 2)]
    assert result.history["samples"].tolist() == want
    assert result.samples == want[-1]
    assert result.status == STILL
    assert "max_epochs=4" in result.message


def test_two_replicas_need_hardly_more_rows_than_one():
    """To a hundredth above the minimum, over ten problems: single ones vary by half, up and down."""
    loss, clocks = make_loss(), {(1, 0): [1.0], (2, 0): [1.0, 1.0], (2, math.inf): [1.0, 0.7]}
    samples = dict.fromkeys(clocks, 0)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2000, 10))
        y = np.sign(X @ rng.standard_normal(10) + rng.logistic(size=2000))
        best = minimize(lambda w, rows=(X, y): loss(rows, w), np.zeros(10), jac=True).fun / 2000
        for (n_replicas, staleness), seconds in clocks.items():
            result = minimize_downpour(
                loss,
                np.zeros(10),
                portions_of((X, y), n_replicas),
                validation=(X, y),
                target=1.01 * best,
                evaluate_every=10 // n_replicas,
                n_iter_no_change=1000,
                learning_rate=0.2,
                warm_steps=0,
                batch_size=20,
                staleness=staleness,
                engine=SimulatedClock(seconds),
                random_state=seed,
            )
            assert result.fun <= 1.01 * best
            samples[n_replicas, staleness] += result.samples
    assert samples[2, 0] <= 1.2 * samples[1, 0]
    assert samples[2, math.inf] <= 1.2 * samples[1, 0]


def test_sparse_rows_and_float32(data):
    X, y = sparse.csr_array(data[0].astype(np.float32)), data[1].astype(np.float32)
    kinds = set()

    def loss(rows, w):
        kinds.add((type(rows[0]), rows[0].dtype, w.dtype))
        return make_loss()(rows, w)

    result = minimize_downpour(loss, np.zeros(5, np.float32), [(X, y)], max_epochs=2, random_state=0)
    assert kinds == {(sparse.csr_array, np.dtype(np.float32), np.dtype(np.float32))}
    assert result.x.dtype == np.float32


# Stopping ------------------------------------------------------------------------------------------------


def test_held_out_rows_stop_it_and_the_best_is_returned(data):
    calls = []

    def evaluate(rows, w):
        calls.append(w.copy())
        return [5.0, 3.0, 1.0, 2.0, 2.0, 2.0, 2.0][len(calls) - 1]

    result = minimize_downpour(
        make_loss(),
        np.zeros(5),
        portions_of(data, 2),
        validation=data,
        evaluate=evaluate,
        batch_size=60,
        n_iter_no_change=3,
        random_state=0,
    )
    assert result.history["objective"].tolist() == [5.0, 3.0, 1.0, 2.0, 2.0, 2.0]
    assert result.x.tolist() == calls[2].tolist()
    assert result.fun == 1.0
    assert result.success
    assert result.status == FINISHED


def test_the_mean_of_the_loss_on_held_out_rows_is_the_default(data):
    X, y = data
    options = {"batch_size": 100, "max_epochs": 2, "random_state": 0}
    result = minimize_downpour(
        make_loss(), np.zeros(5), [(X[:900], y[:900])], validation=(X[900:], y[900:]), **options
    )
    assert result.fun == pytest.approx(make_loss()((X[900:], y[900:]), result.x)[0] / 300)


def test_all_stop_at_a_target(data):
    result = minimize_downpour(
        make_loss(),
        np.zeros(5),
        portions_of(data, 3),
        target=0.6,
        batch_size=20,
        evaluate_every=1,
        warm_steps=0,
        max_epochs=1000,
        staleness=2,
        random_state=0,
    )
    assert result.fun <= 0.6 < min(result.history["objective"][:-1], default=math.inf)
    assert result.nfev < 1000
    assert result.success


@pytest.mark.parametrize("when", ["at x0", "alone", "later"])
def test_what_is_not_finite_stops_it_at_the_last_good_point(data, when):
    calls = []

    def loss(rows, w):
        calls.append(0)
        value, gradient = make_loss()(rows, w)
        broken = len(calls) > {"at x0": 0, "alone": 4, "later": 30}[when]
        return (np.nan if broken else value), gradient

    result = minimize_downpour(
        loss,
        np.zeros(5),
        portions_of(data, 2),
        learning_rate=0.1,
        warm_steps=10,
        batch_size=60,
        random_state=0,
    )
    assert result.status == NOT_FINITE
    assert not result.success
    assert {"at x0": "at x0", "alone": "at step 3 of the first", "later": "in portion"}[
        when
    ] in result.message
    assert np.isfinite(result.x).all()
    assert (result.x == 0).all() == (when == "at x0")


def test_gradients_whose_squares_overflow_are_not_taken_for_small_steps(data):
    def loss(rows, w):
        return 1.0, np.full(5, 1e25, np.float32)

    result = minimize_downpour(loss, np.zeros(5, np.float32), [data], learning_rate=0.1, random_state=0)
    assert result.status == NOT_FINITE


# Bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x0": np.zeros((2, 2))}, "x0 must be a vector of finite numbers"),
        ({"x0": [np.nan]}, "x0 must be a vector of finite numbers"),
        ({"portions": []}, "portions is empty"),
        ({"portions": [(np.ones((3, 5)), np.ones(2))]}, "equally many rows"),
        ({"portions": [(np.ones((0, 5)), np.ones(0))]}, "at least one"),
        ({"portions": ["file"]}, "a portion must be an array"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"n_push": 1.5}, "n_push must be an integer"),
        ({"tol": -1.0}, "tol must be a number of 0 or more"),
        ({"staleness": -2}, "staleness must be at least 0"),
        ({"evaluate": len}, "evaluate needs validation"),
        ({"fun_and_grad": lambda rows, w: (1.0, np.zeros(3))}, r"a gradient of shape \(5,\), got \(3,\)"),
    ],
)
def test_what_it_refuses(data, change, message):
    arguments = {"fun_and_grad": make_loss(), "x0": np.zeros(5), "portions": [data]} | change
    with pytest.raises(DataError, match=message):
        minimize_downpour(**arguments, max_epochs=1)


def test_it_goes_on_from_a_checkpoint(data, tmp_path):
    """Broken off in the midst, and bitwise the model of a run that was not."""
    loss, calls = make_loss(), []
    options = {"max_epochs": 20, "n_iter_no_change": 99, "random_state": 1, "batch_size": 20}
    whole = minimize_downpour(loss, np.zeros(5), portions_of(data, 2), **options)

    def failing(rows, w):
        calls.append(1)
        if len(calls) == 900:
            raise OSError("power cut")
        return loss(rows, w)

    kept = {"checkpoint": tmp_path, "checkpoint_every": 5}
    with pytest.raises(OSError, match="power cut"):
        minimize_downpour(failing, np.zeros(5), portions_of(data, 2), **options, **kept)
    done = len(calls)
    calls.clear()

    def counted(rows, w):
        calls.append(1)
        return loss(rows, w)

    again = minimize_downpour(counted, np.zeros(5), portions_of(data, 2), **options, **kept)
    np.testing.assert_array_equal(again.x, whole.x)
    # A rate is looked for again, and the first steps made; how many steps are saved hangs on the threads.
    assert len(calls) < whole.nfev + 500 - done / 4
    for other in ({"random_state": 2}, {"batch_size": 50}):
        with pytest.raises(CheckpointMismatch):
            minimize_downpour(loss, np.zeros(5), portions_of(data, 2), **(options | other), **kept)


def test_the_callback_sees_every_look(data):
    seen = []

    def watch(look):
        seen.append((look.nit, look.fun))
        return look.nit == 3

    result = minimize_downpour(make_loss(), np.zeros(5), portions_of(data, 2), random_state=0, callback=watch)
    assert [nit for nit, _ in seen] == [1, 2, 3]
    np.testing.assert_array_equal(result.history["objective"], [fun for _, fun in seen])
    assert result.success
    with pytest.raises(DataError, match="callback is called on threads only, but engine is 'dask'"):
        minimize_downpour(make_loss(), np.zeros(5), portions_of(data, 2), engine="dask", callback=watch)
