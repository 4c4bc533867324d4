"""Chains of shards: the same draws on any engine, resumed, extended, with a worker killed; and refusals."""

import functools
import os
import pickle
import shutil
import signal
import threading
import warnings

import numba as nb
import numpy as np
import pytest
from dask.base import tokenize

import stradask as sd
from stradask.algorithms.bayes.combine.combiners import CombinationRefused
from stradask.algorithms.bayes.models.density import user_model
from stradask.algorithms.bayes.models.fingerprint import fingerprint
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.algorithms.bayes.shards import chains as shard_chains
from stradask.algorithms.bayes.shards.rows import Part, cut_rows
from stradask.errors import DataError, StradaskError

ROWS = np.random.default_rng(0).normal(2, 1, 600)
OPTIONS = {"n_samples": 200, "n_warmup": 100, "n_chains": 2, "random_state": 0}


@functools.cache
def normal(compiled):
    """Log likelihood and log prior of a mean and a log sd; made here, for workers cannot import a test."""

    def log_likelihood(q, x):
        return -len(x) * q[1] - 0.5 * ((x - q[0]) ** 2).sum() * np.exp(-2 * q[1])

    def log_prior(q):
        return -0.5 * (q[0] ** 2 / 100 + q[1] ** 2)

    return (nb.njit(log_likelihood), nb.njit(log_prior)) if compiled else (log_likelihood, log_prior)


def draw(compiled=True, data=ROWS, **options):
    return sd.sample(*normal(compiled), data, [1.0, 0.0], **OPTIONS | options)


def logistic(**options):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((900, 2))
    y = rng.random(900) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    return sd.BayesianLogisticRegression(**OPTIONS | options).fit(X, y)


def same(one, other):
    np.testing.assert_array_equal(one.draws, other.draws)
    np.testing.assert_array_equal(one.weights, other.weights)
    if one.shard_draws is not None:
        np.testing.assert_array_equal(one.shard_draws, other.shard_draws)
    return True


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


@pytest.fixture(scope="module")
def reference():
    return draw(n_shards=3)


def test_dask_needs_a_client():
    with pytest.raises(DataError, match="current Dask client, and there is none"):
        draw(n_shards=2, engine="dask")


# The same draws --------------------------------------------------------------------------------------


def test_dask_gives_the_same_draws(in_one_process, reference):
    assert same(draw(n_shards=3, engine="dask"), reference)
    assert same(draw(n_shards=3, n_jobs=2), reference)
    address = in_one_process.scheduler.address
    whole = logistic(n_shards=3)
    assert same(logistic(n_shards=3, engine=address).posterior_, whole.posterior_)
    assert whole.posterior_.shard_draws.shape == (3, 2, 200, 3)


@pytest.mark.filterwarnings("ignore:.* ESS::")  # of few draws, as the table says
@pytest.mark.parametrize("sampler", ["auto", "nuts", "laplace"])
def test_one_piece_is_the_same_everywhere(in_one_process, sampler, tmp_path):
    local = draw(sampler=sampler)
    assert local.method.startswith("laplace" if sampler == "auto" else sampler)
    assert same(draw(sampler=sampler, engine="dask"), local)
    assert same(draw(sampler=sampler, checkpoint=tmp_path), local)
    assert repr(draw(sampler=sampler, checkpoint=tmp_path).diagnostics) == repr(local.diagnostics)
    assert bool(os.listdir(tmp_path)) == (sampler == "nuts")


@pytest.mark.slow
def test_python_densities_on_dask(in_one_process):
    data = (ROWS[:60], ROWS[60:120])  # two arrays, cut alike

    def both():  # its functions are shipped
        likelihood, prior = normal(False)
        return lambda q, data: likelihood(q, data[0]) + likelihood(q, data[1]), prior

    options = OPTIONS | {"n_samples": 150, "n_shards": 2, "sampler": "nuts"}
    local = sd.sample(*both(), data, [1.0, 0.0], **options)
    assert same(sd.sample(*both(), data, [1.0, 0.0], engine="dask", **options), local)
    assert abs(local.mean()["theta"][0] - ROWS[:120].mean()) < 4 * local.sd()["theta"][0] / np.sqrt(100)


def test_a_part_travels_alone():
    part = Part(np.arange(1e6), np.array([3, 5]))
    travelled = pickle.dumps(part)
    assert len(travelled) < 1000
    np.testing.assert_array_equal(pickle.loads(travelled).take(), [3, 5])


# Files -----------------------------------------------------------------------------------------------


def _steps(monkeypatch):
    """Count the chunks that are done, and not found."""
    done, step = [], shard_chains._step

    def counting(*arguments):
        done.append(arguments[-1])
        return step(*arguments)

    monkeypatch.setattr(shard_chains, "_step", counting)
    return done


def test_a_run_is_resumed_and_extended(reference, tmp_path, monkeypatch):
    done = _steps(monkeypatch)
    first = draw(n_shards=3, checkpoint=tmp_path)
    assert same(first, reference)
    assert len(done) == 3 * 2 * 3  # warm-up and two hundreds of each chain
    assert same(draw(n_shards=3, checkpoint=tmp_path), reference)
    assert len(done) == 18
    longer = draw(n_shards=3, checkpoint=tmp_path, n_samples=350)
    assert len(done) == 18 + 3 * 2 * 2
    assert same(longer, draw(n_shards=3, n_samples=350))
    np.testing.assert_array_equal(longer.shard_draws[:, :, :200], reference.shard_draws)
    shorter = draw(n_shards=3, checkpoint=tmp_path, n_samples=120)
    np.testing.assert_array_equal(shorter.shard_draws, reference.shard_draws[:, :, :120])


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    done = _steps(monkeypatch)

    def stop(info):
        seen.append((info.round, info.total))
        return len(seen) == 2

    seen: list = []
    options = {"n_shards": 3, "checkpoint": str(tmp_path)}
    with pytest.raises(StradaskError, match="stopped after 2 of 3 shards"):
        draw(callback=stop, **options)
    assert seen == [(1, 3), (2, 3)]
    before = len(done)
    assert 0 < before < 18
    assert same(draw(**options), draw(n_shards=3))
    assert len(done) == 18 + 18  # the second of these without files
    seen.clear()
    draw(callback=lambda info: seen.append(info.round), n_shards=3)
    assert seen == [1, 2, 3]


def test_ctrl_c_leaves_files_to_go_on_with(tmp_path, monkeypatch):
    done = _steps(monkeypatch)

    def press(info):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        draw(n_shards=3, checkpoint=tmp_path, callback=press)
    before = len(done)
    assert 6 <= before < 18
    assert same(draw(n_shards=3, checkpoint=tmp_path), draw(n_shards=3))
    assert len(done) == 18 + 18


def _briefly(folder, scale=1.0):
    """Arguments of short chains of a simple sampler; `scale` is in the closure of their density."""
    likelihood, prior = normal(False)

    def scaled(q, x):
        return scale * likelihood(q, x)

    given = {"log_likelihood": scaled, "log_prior": prior, "data": ROWS, "start": [1.0, 0.0], "n_shards": 2}
    given |= {"sampler": "random_walk", "n_samples": 100, "checkpoint": folder, "combine": "average"}
    return OPTIONS | given


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The files of such chains."""
    folder = tmp_path_factory.mktemp("drawn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sd.sample(**_briefly(folder))
    return folder


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.filterwarnings("ignore:.*the combination misses the posterior")
@pytest.mark.filterwarnings("ignore:Do not use these draws")
@pytest.mark.parametrize(
    ("changed", "new"),
    [
        ("nothing", 0),
        ("density", 8),
        ("log_prior", 8),
        ("data", 8),
        ("random_state", 8),
        ("n_warmup", 8),
        ("sampler", 8),
        ("n_shards", 12),
    ],
)
def test_files_of_another_run_are_not_taken(changed, new, drawn, tmp_path, monkeypatch):
    folder, done = shutil.copytree(drawn, tmp_path / "files"), _steps(monkeypatch)
    given, prior = _briefly(folder, scale=1.0 + 1e-12 if changed == "density" else 1.0), normal(False)[1]
    others = {
        "log_prior": lambda q: 2 * prior(q),
        "data": ROWS + 1e-9,
        "random_state": 1,
        "n_warmup": 101,
        "sampler": "slice",
        "n_shards": 3,
    }
    sd.sample(**given | {changed: others[changed]} if changed in others else given)
    assert len(done) == new


def test_every_regression_has_an_identity_of_its_own():
    X, y = np.random.default_rng(0).standard_normal((20, 2)), np.tile([1.0, -1.0], 10)
    models = [regression("bernoulli", X, y), regression("bernoulli", X, -y), regression("normal", X, y)]
    models += [regression("student_t", X, y), regression("student_t", X, y, freedom=5.0)]
    models += [regression("bernoulli", X.astype(np.float32), y), regression("bernoulli", X, y, power=0.5)]
    models += [regression("bernoulli", X, y, prior=Prior(kind)) for kind in ("laplace", "student_t")]
    digests = {tokenize(model.identity(), ensure_deterministic=True) for model in models}
    assert len(digests) == len(models)
    again = regression("bernoulli", X, y).identity()
    assert tokenize(again, ensure_deterministic=True) in digests


FACTOR = 2.0


def test_fingerprints_follow_what_functions_refer_to(monkeypatch):
    def helper(x):
        return FACTOR * x

    def outer(q):
        return helper(q) + np.sum(q)

    before = tokenize(fingerprint(outer), ensure_deterministic=True)
    assert before == tokenize(fingerprint(nb.njit(outer)), ensure_deterministic=True)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert before != tokenize(fingerprint(outer), ensure_deterministic=True)

    def recursive(n):
        return n and recursive(n - 1)

    assert tokenize(fingerprint(recursive), ensure_deterministic=True)

    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def density(self, q):
            return self.scale * q

    assert fingerprint(Scaled(1.0).density)[0] == "method"


# Refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_shards", [1, 2])
@pytest.mark.parametrize("which", ["log_likelihood", "log_prior"])
def test_a_density_that_cannot_be_shipped_says_why(in_one_process, which, n_shards):
    lock = threading.Lock()
    calls = []

    def locked(*arguments):
        calls.append(1)
        with lock:
            return 0.0

    functions = dict(zip(("log_likelihood", "log_prior"), normal(False), strict=True)) | {which: locked}
    with pytest.raises(DataError, match=f"{which} cannot be shipped to workers: .*lock"):
        sd.sample(**functions, data=ROWS, start=[1.0, 0.0], engine="dask", n_shards=n_shards, **OPTIONS)
    assert not calls


def test_data_that_cannot_be_shipped_say_why(in_one_process):
    with pytest.raises(DataError, match=r"load cannot be shipped to workers: .*lock"):
        sd.sample(
            lambda q, data: -0.5 * len(data) * (q**2).sum(),
            None,
            [threading.Lock()] * 4,
            [0.0],
            engine="dask",
            n_shards=2,
            **OPTIONS,
        )


def test_a_shard_that_did_not_converge_is_named():
    """The row 99 has two modes, so far apart that no chain finds the other; the other rows say little."""

    def log_likelihood(q, x):
        wells = -50.0 * (q[0] ** 2 - 1) ** 2 if (x == 99).any() else 0.0
        return wells - 0.5e-4 * (q[0] ** 2) * (x != 99).sum()

    data = np.zeros(100)
    data[17] = 99
    seed = np.random.RandomState(OPTIONS["random_state"]).randint(2**31)
    (where,) = [m for m, rows in enumerate(cut_rows(100, 4, int(seed))) if 17 in rows]
    options = OPTIONS | {"n_chains": 4, "n_shards": 4}
    with pytest.raises(CombinationRefused, match=f"shard {where} did not converge: R-hat is"):
        sd.sample(log_likelihood, lambda q: -0.5 * q[0] ** 2, data, [0.0], sampler="nuts", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "spark"}, "engine='spark' is unknown"),
        ({"engine": None}, "engine=None is unknown"),
        ({"checkpoint": "/nowhere", "random_state": None}, "needs random_state to be an integer.*got None"),
        ({"checkpoint": "s3://bucket/run"}, "is a URL"),
    ],
)
@pytest.mark.parametrize("n_shards", [1, 2])
def test_bad_input(options, message, n_shards):
    with pytest.raises(DataError, match=message):
        draw(n_shards=n_shards, sampler="nuts", **options)
    if options.get("engine", "") is not None:
        with pytest.raises(DataError, match=message):
            logistic(n_shards=n_shards, sampler="nuts", **options)


def test_data_that_have_no_digest(tmp_path):
    rows = [threading.Lock() for _ in range(10)]
    with pytest.raises(DataError, match="the data of shard 0 cannot be told from others"):
        sd.sample(
            lambda q, x: -0.5 * len(x) * (q**2).sum(),
            None,
            rows,
            [0.0],
            n_shards=2,
            checkpoint=tmp_path,
            **OPTIONS,
        )


def test_errors_of_a_shard_come_out():
    def log_likelihood(q, x):
        return np.nan if (x == 99).any() else -0.5 * ((x - q[0]) ** 2).sum()

    data = np.zeros(40)
    data[7] = 99
    with pytest.raises(DataError, match="log density is nan"):
        sd.sample(log_likelihood, None, data, [0.0], n_shards=4, **OPTIONS)


def test_models_of_users_travel():
    for compiled in (True, False):
        model = user_model(*normal(compiled), ROWS, [1.0, 0.0])
        identity = tokenize(model.identity(), ensure_deterministic=True)
        other = user_model(*normal(compiled), ROWS, [1.0, 0.0], power=0.5)
        assert identity != tokenize(other.identity(), ensure_deterministic=True)


# Processes -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.cluster
def test_a_killed_worker_changes_nothing(reference, tmp_path):
    import logging

    from distributed import Client, LocalCluster

    python = OPTIONS | {"n_shards": 2, "sampler": "nuts", "n_samples": 3000}
    slow = draw(compiled=False, data=ROWS[:40], **python)
    heavy = {"prior": "student_t", "n_shards": 2, "sampler": "nuts"}
    regressions = [logistic(n_shards=3), logistic(**heavy)]
    options = {"processes": True, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        assert same(draw(n_shards=3, engine="dask", checkpoint=str(tmp_path)), reference)
        for there, given in zip(regressions, ({"n_shards": 3}, heavy), strict=True):
            assert same(logistic(engine="dask", **given).posterior_, there.posterior_)
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(2.0, os.kill, (victim, signal.SIGKILL))
        killer.start()
        survived = draw(compiled=False, data=ROWS[:40], engine="dask", **python)
        assert not killer.is_alive()  # it died while chains ran
        client.wait_for_workers(2, timeout=60)
        assert victim not in client.run(os.getpid).values()
        assert same(survived, slow)
    # What workers wrote, this process finds.
    files = set(os.listdir(tmp_path))
    assert same(draw(n_shards=3, checkpoint=str(tmp_path)), reference)
    assert set(os.listdir(tmp_path)) == files
