"""Chunks of shards: the same bytes on threads and on Dask, resumed, extended, and with a worker killed."""

import os
import signal
import threading
import time
import warnings

import dask
import numpy as np
import pytest

from stradask.algorithms.bayes.shards.tasks import ShardPool
from stradask.errors import DataError, StradaskError


def walk(seconds=0.0, draws=20):
    """Make a load and a step: a random walk about the data's mean, whose state is all that counts.

    The functions are made here, inside a function, because workers cannot import a test module.
    """

    def load(shard):
        return {"y": np.linspace(0, 1 + shard, 50), "shard": shard}

    def step(data, state, key):
        if seconds:
            time.sleep(seconds)
        rng = np.random.Generator(
            np.random.Philox(key=key.seed, counter=[0, key.shard, key.chain, key.chunk])
        )
        if state is None:
            return {"x": rng.standard_normal(2), "width": np.array(0.5)}, {}
        x, kept = state["x"], np.empty((draws, 2))
        for t in range(draws):
            new = x + state["width"] * rng.standard_normal(2)
            gain = ((x - data["y"].mean()) ** 2 - (new - data["y"].mean()) ** 2).sum() / 2
            x = new if np.log(rng.random()) < gain else x
            kept[t] = x
        return {"x": x, "width": state["width"]}, {"draws": kept, "logp": -(kept**2).sum(axis=1)}

    return load, step


def run_shards(load, step, n_shards, *, engine="local", n_jobs=None, checkpoint=None, **arguments):
    with ShardPool(load, n_shards, engine=engine, n_jobs=n_jobs, checkpoint=checkpoint) as pool:
        return pool.run(step, **arguments)


ARGUMENTS = {"n_chunks": 4, "n_chains": 2, "seed": 11}


@pytest.fixture(scope="module")
def reference():
    return run_shards(*walk(), 3, **ARGUMENTS)


def assert_same(runs, reference):
    assert runs.arrays.keys() == reference.arrays.keys()
    for name, array in reference.arrays.items():
        np.testing.assert_array_equal(runs.arrays[name], array)
    for row, there in zip(runs.last, reference.last, strict=True):
        for chunk, other in zip(row, there, strict=True):
            np.testing.assert_array_equal(chunk.state["x"], other.state["x"])


def test_shapes_and_order(reference):
    assert reference.arrays["draws"].shape == (3, 2, 80, 2)
    assert reference.arrays["logp"].shape == (3, 2, 80)
    np.testing.assert_array_equal(reference.arrays["draws"][1, 0, -1], reference.last[1][0].state["x"])
    # By hand: chain 1 of shard 2.
    load, step = walk()
    from stradask.algorithms.bayes.shards.chunks import Key

    state, _ = step(load(2), None, Key(11, 2, 1, 0))
    parts = []
    for number in range(1, 5):
        state, arrays = step(load(2), state, Key(11, 2, 1, number))
        parts.append(arrays["draws"])
    np.testing.assert_array_equal(reference.arrays["draws"][2, 1], np.concatenate(parts))


def test_threads_change_nothing(reference):
    assert_same(run_shards(*walk(), 3, n_jobs=4, **ARGUMENTS), reference)
    other = run_shards(*walk(), 3, n_chunks=4, n_chains=2, seed=12)
    assert not np.array_equal(other.arrays["draws"], reference.arrays["draws"])


def test_data_are_loaded_once_a_shard():
    load, step = walk()
    loaded, lock = [], threading.Lock()

    def counting(shard):
        with lock:
            loaded.append(shard)
        return load(shard)

    with ShardPool(counting, 3, n_jobs=4) as pool:
        pool.run(step, **ARGUMENTS)
        pool.sum(lambda data, points: np.zeros(len(points)), np.zeros((2, 1)))
    assert sorted(loaded) == [0, 1, 2]


def test_a_run_is_resumed_and_extended(reference, tmp_path):
    folder = tmp_path / "run"
    given = {"checkpoint": folder, "identity": {"draws": 20}}
    first = run_shards(*walk(), 3, n_chunks=2, n_chains=2, seed=11, **given)
    assert first.n_found == 0
    files = sorted(os.listdir(folder))
    assert len(files) == 3 * 2 * 3
    whole = run_shards(*walk(), 3, **ARGUMENTS, **given)
    assert whole.n_found == 18  # and the step was done for the others only
    assert_same(whole, reference)
    assert set(files) < set(os.listdir(folder))
    again = run_shards(*walk(), 3, **ARGUMENTS, **given)
    assert again.n_found == 30
    assert_same(again, reference)


def test_what_was_found_is_not_done_again(tmp_path):
    load, step = walk()
    given = {"checkpoint": tmp_path, "identity": {}}
    run_shards(load, step, 3, **ARGUMENTS, **given)

    def never(data, state, key):
        raise AssertionError("done again")

    assert run_shards(load, never, 3, **ARGUMENTS, **given).n_found == 30


@pytest.mark.parametrize("changed", ["seed", "identity", "data"])
def test_files_of_other_runs_are_left_alone(changed, tmp_path):
    load, step = walk()
    given = {"checkpoint": tmp_path, "identity": {"draws": 20}} | ARGUMENTS
    run_shards(load, step, 3, **given)
    other = load
    if changed == "data":
        other = lambda shard: {"y": load(shard)["y"] + 1e-9, "shard": shard}  # noqa: E731
    elif changed == "seed":
        given["seed"] = 12
    else:
        given["identity"] = {"draws": 21}
    found = run_shards(other, step, 3, **given)
    assert found.n_found == 0
    assert len(os.listdir(tmp_path)) == 60


def test_damaged_files_are_made_anew(reference, tmp_path):
    given = {"checkpoint": tmp_path, "identity": {"draws": 20}}
    run_shards(*walk(), 3, **ARGUMENTS, **given)
    files = sorted(tmp_path.iterdir())
    files[5].write_bytes(files[5].read_bytes()[:200])
    files[7].write_bytes(b"")
    files[9].write_bytes(files[8].read_bytes())  # whole, but of another chunk
    mended = run_shards(*walk(), 3, **ARGUMENTS, **given)
    assert mended.n_found == 27
    assert_same(mended, reference)
    assert run_shards(*walk(), 3, **ARGUMENTS, **given).n_found == 30


def test_a_run_is_extended_without_files(reference):
    load, step = walk()
    with ShardPool(load, 3) as pool:
        first = pool.run(step, n_chunks=1, n_chains=2, seed=11)
        assert first.arrays["draws"].shape[2] == 20
        whole = pool.run(step, after=first, **ARGUMENTS)
        assert_same(whole, reference)
        assert_same(pool.run(step, after=whole, **ARGUMENTS), reference)
        for wrong in ({"n_chunks": 3}, {"n_chains": 1}):
            with pytest.raises(DataError, match="after has 3 shards, 2 chains and 4 chunks"):
                pool.run(step, after=whole, **(ARGUMENTS | wrong))


def test_files_are_of_what_went_before(tmp_path):
    load, step = walk()
    given = {"n_chains": 1, "identity": {}}
    with ShardPool(load, 2, checkpoint=tmp_path) as pool:
        pool.run(step, n_chunks=2, seed=11, **given)
        other = pool.run(step, n_chunks=1, seed=12, **given)
        assert pool.run(step, n_chunks=2, seed=11, after=other, **given).n_found == 0


def test_sum_is_in_the_order_of_shards():
    load, _ = walk()
    points = np.random.default_rng(0).standard_normal((7, 2))

    def value(data, points):
        return (points @ [1.0, 0.1]) ** (data["shard"] + 1)

    with ShardPool(load, 5) as pool:
        one = pool.sum(value, points)
    with ShardPool(load, 5, n_jobs=3) as pool:
        np.testing.assert_array_equal(one, pool.sum(value, points))
        with pytest.raises(DataError, match=r"shard 0 returned the shape \(2,\) for 7 points"):
            pool.sum(lambda data, points: np.zeros(2), points)
    base = points @ [1.0, 0.1]
    np.testing.assert_allclose(one, sum(base**k for k in range(1, 6)), rtol=1e-12)


def test_errors_name_the_shard():
    load, step = walk()

    def failing(data, state, key):
        if key[1:] == (1, 0, 2):
            raise ZeroDivisionError("no")
        return step(data, state, key)

    with pytest.raises(ZeroDivisionError) as error:
        run_shards(load, failing, 3, **ARGUMENTS)
    assert error.value.__notes__ == ["in shard 1, chain 0, chunk 2"]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (([], {}), "state as a dict of arrays, got a list"),
        (({}, np.zeros(3)), "arrays as a dict of arrays, got a ndarray"),
        (({"f": print}, {}), "state with 'f'"),
    ],
)
def test_steps_that_return_what_cannot_be_kept(returned, words):
    with pytest.raises(DataError, match=words):
        run_shards(lambda shard: None, lambda *_: returned, 1, n_chunks=1)


def test_chunks_that_do_not_fit_together():
    def step(data, state, key):
        return {}, {"draws": np.zeros((2, 1 + key.chunk))}

    with pytest.raises(DataError, match="do not fit together"):
        run_shards(lambda shard: None, step, 1, n_chunks=2)


@pytest.mark.parametrize(
    ("pool", "run", "words"),
    [
        ({"n_shards": 0}, {}, "n_shards must be at least 1, got 0"),
        ({"n_shards": 2.5}, {}, "n_shards must be an integer"),
        ({"engine": "spark"}, {}, "engine='spark' is unknown"),
        ({"engine": 5}, {}, "engine=5 is unknown"),
        ({"checkpoint": "s3://bucket/x"}, {}, "is a URL"),
        ({}, {"n_chunks": 0}, "n_chunks must be at least 1"),
        ({}, {"n_chains": True}, "n_chains must be an integer"),
        ({"checkpoint": "/nowhere"}, {}, "identity must say"),
        ({}, {"identity": {"f": print}}, "identity must be what JSON can hold"),
    ],
)
def test_bad_input(pool, run, words):
    load, step = walk()
    with pytest.raises(DataError, match=words):
        run_shards(load, step, **({"n_shards": 2} | pool), **({"n_chunks": 1} | run))


def test_data_that_cannot_be_told_apart(tmp_path):
    with pytest.raises(DataError, match="the data of shard 0 cannot be told from others"):
        run_shards(lambda s: object(), walk()[1], 1, n_chunks=1, checkpoint=tmp_path, identity={})


@pytest.mark.parametrize("engine", ["tcp://127.0.0.1:9", "gpu://somewhere:1"])
def test_a_scheduler_that_is_not_there_is_named(engine):
    with (
        dask.config.set({"stradask.scheduler-timeout": "1s"}),
        pytest.raises(DataError, match="no Dask scheduler answers there"),
        ShardPool([None], 1, engine=engine),
    ):
        pass


def test_dask_needs_a_client():
    with pytest.raises(DataError, match="current Dask client, and there is none"):
        run_shards(*walk(), 2, n_chunks=1, engine="dask")


def test_progress_counts_chunks(capsys):
    run_shards(*walk(), 3, verbose=1, **ARGUMENTS)
    assert "shards: 30/30" in capsys.readouterr().err


# On Dask ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_one_process():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_dask_gives_the_same_bytes(in_one_process, reference, tmp_path):
    assert_same(run_shards(*walk(), 3, engine="dask", **ARGUMENTS), reference)
    address = in_one_process.scheduler.address
    given = {"engine": address, "checkpoint": tmp_path, "identity": {"draws": 20}}
    first = run_shards(*walk(), 3, **(ARGUMENTS | {"n_chunks": 1}), **given)
    assert first.n_found == 0
    whole = run_shards(*walk(), 3, **ARGUMENTS, **given)
    assert whole.n_found == 12
    assert_same(whole, reference)
    # What Dask wrote, threads find.
    local = run_shards(*walk(), 3, **ARGUMENTS, checkpoint=tmp_path, identity={"draws": 20})
    assert local.n_found == 30


def test_pool_on_dask_is_extended_and_summed(in_one_process, reference):
    load, step = walk()
    points = np.random.default_rng(0).standard_normal((7, 2))

    def value(data, points):
        return (points @ [1.0, 0.1]) ** (data["shard"] + 1)

    with ShardPool(load, 3, engine="dask") as pool, ShardPool(load, 3) as local:
        first = pool.run(step, n_chunks=2, n_chains=2, seed=11)
        assert_same(pool.run(step, after=first, **ARGUMENTS), reference)
        np.testing.assert_array_equal(pool.sum(value, points), local.sum(value, points))
    assert in_one_process.status == "running"


def test_errors_come_back_from_dask(in_one_process):
    load, _ = walk()

    def failing(data, state, key):
        raise DataError("this density is improper")

    with pytest.raises(DataError, match="improper"):
        run_shards(load, failing, 3, engine="dask", **ARGUMENTS)


def test_a_scheduler_that_goes_away_is_named(in_one_process, monkeypatch):
    from concurrent.futures import CancelledError

    def gather(self, futures, *, asynchronous):
        raise CancelledError("scheduler-connection-lost")

    monkeypatch.setattr(type(in_one_process), "gather", gather)
    for ask in (
        lambda pool: pool.run(walk()[1], **ARGUMENTS),
        lambda pool: pool.sum(lambda data, points: points[:, 0], np.zeros((2, 2))),
    ):
        with (
            ShardPool(walk()[0], 3, engine="dask") as pool,
            pytest.raises(StradaskError, match="the scheduler went away"),
        ):
            ask(pool)


@pytest.mark.parametrize("what", ["load", "step"])
def test_functions_that_cannot_be_shipped(in_one_process, what):
    load, step = walk()
    lock = threading.Lock()

    def holding(*arguments):
        with lock:
            return load(*arguments) if what == "load" else step(*arguments)

    functions = (holding, step) if what == "load" else (load, holding)
    with pytest.raises(DataError, match=f"{what} cannot be shipped to workers"):
        run_shards(*functions, 2, n_chunks=1, engine="dask")


def test_inside_a_task_everything_is_local(in_one_process, reference):
    def task():
        load, step = walk()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            draws = run_shards(load, step, 3, engine="dask", **ARGUMENTS).arrays["draws"]
        return draws, [str(warning.message) for warning in told]

    draws, told = in_one_process.submit(task, pure=False).result(timeout=300)
    assert len(told) == 1
    assert "inside a Dask task: the fit runs on this one worker alone" in told[0]
    np.testing.assert_array_equal(draws, reference.arrays["draws"])


@pytest.mark.cluster
def test_a_killed_worker_changes_nothing(reference, tmp_path):
    import logging

    from distributed import Client, LocalCluster

    options = {"processes": True, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    load, step = walk(seconds=0.08)
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        for files in (None, tmp_path):
            victim = next(iter(client.run(os.getpid).values()))
            with ShardPool(load, 3, engine="dask", checkpoint=files) as pool:
                # 30 chunks of 0.08 s on two workers take 1.2 seconds: it dies while they run.
                killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
                killer.start()
                runs = pool.run(step, identity={"draws": 20}, **ARGUMENTS)
                killer.join()
                values = pool.sum(lambda data, points: points[:, 0] * data["shard"], np.ones((2, 1)))
            client.wait_for_workers(2, timeout=60)
            assert victim not in client.run(os.getpid).values()
            assert_same(runs, reference)
            np.testing.assert_array_equal(values, [3, 3])
