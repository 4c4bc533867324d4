"""Passes over portions, and `minimize` with them, on workers: equal to threads."""

import tracemalloc

import numpy as np
import pytest

from stradask.algorithms.optimize.minimize import minimize
from stradask.algorithms.optimize.sandblaster import Sandblaster
from stradask.errors import DataError
from stradask.scheduler.sums.summed import NonFiniteObjective

N_PARAMETERS = 120


def make_loss(seconds=0.0):
    """Logistic loss; made in a function, because workers cannot import a test module."""

    def loss(portion, w):
        import time

        import numpy as np

        time.sleep(seconds)
        X, y = portion
        margin = y * (X @ w)
        return (
            np.logaddexp(0, -margin).sum() + 0.5 * (w @ w),
            w - X.T @ (y / (1 + np.exp(margin))),
        )

    return loss


@pytest.fixture(scope="module")
def portions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, N_PARAMETERS)) * np.geomspace(0.5, 2, N_PARAMETERS)
    y = np.sign(X @ rng.standard_normal(N_PARAMETERS) + 2 * rng.logistic(size=400))
    return [(X[rows], y[rows]) for rows in np.array_split(np.arange(400), 11)]


@pytest.fixture(scope="module")
def answers(portions):
    """What threads give, smooth and with l1."""
    start = np.zeros(N_PARAMETERS)
    return {l1: minimize(make_loss(), start, portions, l1=l1, tol=1e-9) for l1 in (0.0, 1.0)}


# Passes -----------------------------------------------------------------------------------------------------


def test_sums_are_those_of_threads(engine, portions):
    x = np.random.default_rng(1).standard_normal(N_PARAMETERS)
    with Sandblaster(make_loss(), portions) as objective:
        want = objective(x)
    for deterministic in (True, False):
        with Sandblaster(make_loss(), portions, engine=engine, deterministic=deterministic) as objective:
            for _ in range(5):
                value, gradient = objective(x)
                if deterministic:
                    assert value == want[0]
                    assert gradient.tobytes() == want[1].tobytes()
                assert value == pytest.approx(want[0], rel=1e-13)
                np.testing.assert_allclose(gradient, want[1], atol=1e-11)


def test_x_goes_to_each_worker_once_and_portions_stay(one_process, portions, monkeypatch):
    """As long as no worker is late or has much more to do than another, as on a busy machine."""
    from stradask.scheduler.sums import portions as machine
    from stradask.scheduler.workers import open_session

    monkeypatch.setattr(machine, "_WORTH", len(portions))
    monkeypatch.setattr(machine, "_LATE", 1000.0)
    session = open_session(one_process.scheduler_address)
    with Sandblaster(make_loss(), portions, engine=session) as objective:
        n_workers = len(session.threads)
        x = np.zeros(N_PARAMETERS)
        for _ in range(3):
            sent = session.bytes_sent
            objective(x)
            vectors = (session.bytes_sent - sent) / x.nbytes
            assert n_workers + n_workers <= vectors <= n_workers + len(portions)
        assert objective._passes._extra == {}


def test_what_is_wrong_in_a_portion_is_told(one_process, portions):
    def failing(portion, w):
        import numpy as np

        if portion[0] == 7:
            if w[0] == 1:
                raise KeyError("a key of portion 7")
            return (np.nan, w) if w[0] == 2 else (1.0, w * np.inf)
        return 1.0, w

    data = [(k,) for k in range(11)]
    with Sandblaster(failing, data, engine=one_process.scheduler_address) as objective:
        with pytest.raises(KeyError) as caught:
            objective(np.ones(3))
        assert any("portion 7" in note for note in caught.value.__notes__)
        with pytest.raises(NonFiniteObjective, match="the objective is nan in portion 7"):
            objective(np.full(3, 2.0))
        with pytest.raises(NonFiniteObjective, match="the gradient is not finite in portion 7"):
            objective(np.full(3, 3.0))


def test_an_answer_of_another_form_is_told(one_process):
    address = one_process.scheduler_address
    with pytest.raises(DataError, match=r"gradient of shape \(3,\) in portion 0"):
        minimize(lambda portion, x: (0.0, [1, 2, 3]), np.zeros(2), [0], engine=address)


def test_dasks_data_are_used_where_they_lie(one_process):
    import dask.array
    from distributed import Client

    def squared(block, x):
        residual = block - x
        return (residual**2).sum() / 2, -residual.sum(0)

    X = np.random.default_rng(0).standard_normal((60, 4))
    with Client(one_process):
        lazy = dask.array.from_array(X, chunks=(15, 4))
        result = minimize(squared, np.zeros(4), lazy, engine="dask", tol=1e-12)
    np.testing.assert_allclose(result.x, X.mean(0), atol=1e-10)
    assert result.bytes_sent < X.nbytes * result.nfev


# Minimisers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_minimize_is_bitwise_that_of_threads(engine, portions, answers, l1):
    options = {"l1": l1, "tol": 1e-9, "deterministic": True}
    result = minimize(make_loss(), np.zeros(N_PARAMETERS), portions, engine=engine, **options)
    assert result.x.tobytes() == answers[l1].x.tobytes()
    assert result.nfev == answers[l1].nfev


@pytest.mark.parametrize(
    ("l1", "deterministic"),
    [
        (0.0, True),
        (1.0, False),
        pytest.param(0.0, False, marks=pytest.mark.slow),
        pytest.param(1.0, True, marks=pytest.mark.slow),
    ],
)
def test_sharded_equals_local(one_process, portions, answers, l1, deterministic):
    options = {"l1": l1, "tol": 1e-9, "deterministic": deterministic, "shard_from": 100}
    address = one_process.scheduler_address
    result = minimize(make_loss(), np.zeros(N_PARAMETERS), portions, engine=address, **options)
    assert result.success
    assert result.fun == pytest.approx(answers[l1].fun, rel=1e-12)
    np.testing.assert_allclose(result.x, answers[l1].x, atol=1e-5)
    np.testing.assert_array_equal(result.x == 0, answers[l1].x == 0)


def test_sharded_weights_and_start(one_process, portions):
    """l1 as a vector and x0 as a Dask array; the result's vectors outlive the session."""
    import dask.array
    from distributed import Client

    weights = np.where(np.arange(N_PARAMETERS) < 50, 0.0, 3.0)
    start = np.linspace(-0.1, 0.1, N_PARAMETERS)
    want = minimize(make_loss(), start, portions, l1=weights, tol=1e-9)
    with Client(one_process):
        start = dask.array.from_array(start, chunks=17)
        options = {"l1": weights, "tol": 1e-9, "engine": "dask", "shard_from": 100}
        result = minimize(make_loss(), start, portions, **options)
        assert isinstance(result.x, dask.array.Array)
        np.testing.assert_allclose(result.x.compute(), want.x, atol=1e-5)
        np.testing.assert_allclose(result.jac.compute(), want.jac, atol=1e-4)
    assert result.fun == pytest.approx(want.fun, rel=1e-12)


def test_a_sharded_checkpoint_goes_on_from_its_point(one_process, portions, answers, tmp_path):
    address, start = one_process.scheduler_address, np.zeros(N_PARAMETERS)
    options = {
        "tol": 1e-9,
        "engine": address,
        "shard_from": 100,
        "checkpoint": tmp_path,
        "checkpoint_every": 3,
    }
    part = minimize(make_loss(), start, portions, max_iter=7, **options)
    assert sorted(path.name[:15] for path in tmp_path.glob("point-*-000000.npz")) == [
        "point-000000006",
        "point-000000007",
    ]
    result = minimize(make_loss(), start, portions, **options)
    assert result.history["objective"][:8].tolist() == part.history["objective"].tolist()
    assert result.fun == pytest.approx(answers[0.0].fun, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_parameters_may_be_sharded_over_many_workers(one_process, n):
    def bowl(portion, x):
        return (x - portion) @ (x - portion) / 2, x - portion

    options = {"engine": one_process.scheduler_address, "shard_from": 1, "tol": 1e-10}
    result = minimize(bowl, [0.5] * n, [1.0, 2.0, 6.0], **options)
    np.testing.assert_allclose(result.x, 3, atol=1e-8)


def test_a_sharded_start_is_checked(one_process):
    start = np.zeros(N_PARAMETERS)
    start[77] = np.nan
    with pytest.raises(DataError, match=r"x0\[77\] is nan"):
        minimize(make_loss(), start, [0], engine=one_process.scheduler_address, shard_from=100)


@pytest.mark.parametrize("shard_from", [100, 10_000])
def test_objectives_that_are_not_finite(one_process, shard_from):
    """The last good point is kept, and the portion is named, whole or in slices."""

    def failing(portion, w):
        import numpy as np

        beyond = portion == 1 and abs(w).max() > 0.5
        return (np.nan if beyond else (w - 1) @ (w - 1)), 2 * (w - 1)

    options = {"engine": one_process.scheduler_address, "shard_from": shard_from}
    result = minimize(failing, np.zeros(N_PARAMETERS), [0, 1, 2], **options)
    assert (result.status, result.success) == (4, False)
    assert "the objective is nan in portion 1" in result.message
    assert 0 < abs(result.x).max() <= 0.5
    assert result.fun == pytest.approx(3 * (result.x - 1) @ (result.x - 1), rel=1e-12)


@pytest.mark.cluster
def test_the_coordinator_never_holds_a_sharded_vector(processes):
    """Neither x0, nor x, nor anything else of that length, until the result is asked for."""
    import dask.array
    from distributed import Client

    n = 1_500_000

    def bowl(portion, x):
        import numpy as np

        scale = np.linspace(1, 2 + portion, len(x))
        return scale @ (x - 1) ** 2 / 2, scale * (x - 1)

    with Client(processes):
        start = dask.array.zeros(n, chunks=500_000)
        options = {"engine": "dask", "tol": 1e-5, "memory": 3, "max_iter": 4}
        tracemalloc.start()
        try:
            result = minimize(bowl, start, [0, 1], **options)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 * n / 2  # not even a slice
        assert result.bytes_sent < 9 * n  # x0 once, piece by piece
        assert result.nit >= 3
        assert abs(result.x - 1).max().compute() < 0.2
        assert result.x.numblocks == (2,)


def test_an_order_that_hangs_is_computed_elsewhere_and_counted_once(one_process, tmp_path):
    """The first call for portion 0 waits until the test has the sum; the second one is the backup."""
    folder = str(tmp_path)

    def hanging(portion, x):
        import os
        import time

        time.sleep(0.002)
        if portion == 0 and not os.path.exists(f"{folder}/begun"):
            open(f"{folder}/begun", "w").close()
            end = time.monotonic() + 60
            while not os.path.exists(f"{folder}/go"):
                if time.monotonic() > end:
                    raise TimeoutError("no backup came")
                time.sleep(0.01)
        return float(portion), x + portion

    with Sandblaster(hanging, list(range(8)), engine=one_process.scheduler_address) as objective:
        assert objective(np.zeros(2))[0] == 28
        assert not (tmp_path / "go").exists()
        assert objective(np.ones(2))[1].tolist() == [36, 36]  # while the first still hangs
        (tmp_path / "go").touch()
        for _ in range(3):
            value, gradient = objective(np.zeros(2))
            assert (value, gradient.tolist()) == (28, [28, 28])
