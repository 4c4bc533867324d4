"""Fits at the same time, in children of a process, a thousand in a row, and many on one cluster."""

import functools
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.scheduler import threads

N, D = 60, 4
_RNG = np.random.default_rng(0)
COUNTS = sparse.csr_array(1 + _RNG.integers(3, size=(N, D)))
X = _RNG.standard_normal((N, D))
Y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.5 * _RNG.standard_normal(N)
R = COUNTS.astype(np.float64)


def least_squares(portion, w):
    A, b = portion
    residual = A @ w - b
    return 0.5 * float(residual @ residual), A.T @ residual


def log_likelihood(q, data):
    return -0.5 * float(np.sum((data - q) ** 2))


def log_prior(q):
    return -0.5 * float(q @ q)


MCMC = {"n_samples": 10, "n_warmup": 10, "n_chains": 2, "random_state": 0, "n_jobs": 2}
BRIEF = {"max_iter": 3, "random_state": 0, "n_jobs": 2}
FITS = {
    "topics": lambda: sd.LatentDirichletAllocation(3, **BRIEF).fit(COUNTS).components_,
    "topics, warp": lambda: sd.LatentDirichletAllocation(3, sampler="warp", **BRIEF).fit(COUNTS).components_,
    "lasso": lambda: sd.Lasso(0.01, n_jobs=2).fit(X, Y).coef_,
    "paths": lambda: sd.ElasticNetCV(alphas=3, cv=2, n_jobs=2).fit(X, Y).coef_,
    "sparse logistic": lambda: sd.SparseLogisticRegression(0.01, n_jobs=2).fit(X, Y > 0).coef_,
    "logistic": lambda: sd.LogisticRegression(n_jobs=2).fit(X, Y > 0).coef_,
    "ridge": lambda: sd.Ridge(n_jobs=2).fit(X, Y).coef_,
    "poisson": lambda: sd.PoissonRegressor(n_jobs=2).fit(X, np.abs(Y).round()).coef_,
    "network": lambda: sd.MLPRegressor((3,), **BRIEF).fit(X, Y).coefs_[0],
    "factors": lambda: sd.MatrixFactorization(2, **BRIEF).fit(R).item_factors_,
    "factors, descent": lambda: sd.MatrixFactorization(2, solver="sgd", **BRIEF).fit(R).item_factors_,
    "draws": lambda: sd.BayesianLogisticRegression(**MCMC).fit(X, Y > 0).posterior_.draws,
    "any density": lambda: (
        sd.sample(log_likelihood, log_prior, Y, np.zeros(1), sampler="slice", **MCMC).draws
    ),
    "minimum": lambda: sd.minimize(least_squares, np.zeros(D), [(X, Y), (X, -Y)], max_iter=5, n_jobs=2).x,
}


def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rounds and draws
        return FITS[name]()


@functools.cache
def alone(name):
    return fitted(name)


def test_threads_that_fit_at_the_same_time_get_what_they_get_alone():
    expected = {name: alone(name) for name in FITS}
    names = [*FITS, *FITS]
    found = [None] * len(names)
    start = threading.Barrier(len(names))

    def fit(n):
        start.wait(60)
        found[n] = FITS[names[n]]()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # once for all threads: the filters are the process's
        fits = [threading.Thread(target=fit, args=(n,)) for n in range(len(names))]
        for thread in fits:
            thread.start()
        for thread in fits:
            thread.join(200)
    for name, got in zip(names, found, strict=True):
        np.testing.assert_array_equal(got, expected[name], err_msg=name)


CHILDREN = """
import importlib.util, multiprocessing, os, sys, threading, warnings
warnings.simplefilter("ignore")

def module():
    spec = importlib.util.spec_from_file_location("many_fits", sys.argv[1])
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made

def child(path, names, answers):
    sys.argv[1:] = [path]
    warnings.simplefilter("ignore")
    made = module()
    answers.put({name: made.fitted(name) for name in names})

if __name__ == "__main__":
    made = module()
    names = list(made.FITS)
    expected = {name: made.fitted(name) for name in names}
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            for name in names:
                made.fitted(name)
    if sys.argv[3] == "busy":
        threading.Thread(target=busy, daemon=True).start()
    context = multiprocessing.get_context(sys.argv[2])
    for _ in range(int(sys.argv[4])):
        answers = context.Queue()
        process = context.Process(target=child, args=(sys.argv[1], names, answers))
        process.start()
        found = answers.get(timeout=600)
        process.join(600)
        assert process.exitcode == 0, process.exitcode
        for name in names:
            made.np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    stop.set()
    print("same")
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.slow
@pytest.mark.timeout(1600)
@pytest.mark.parametrize(
    ("method", "parent", "times"), [("fork", "idle", 3), ("fork", "busy", 5), ("spawn", "idle", 1)]
)
def test_children_of_a_process_that_has_fitted(tmp_path, method, parent, times):
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    done = subprocess.run(
        [sys.executable, script, __file__, method, parent, str(times)],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def standing():
    """Kilobytes of memory, open files and threads of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_a_thousand_fits_leave_nothing_behind(name):
    expected = alone(name)
    n = 1 + threads._get_pool()._max_workers
    # All threads of the pool start; else only a busy machine starts them, some time or other.
    threads.run_tasks([threading.Barrier(n).wait] * n, n)
    for _ in range(200):  # caches fill
        fitted(name)
    memory, files, n_threads = standing()
    for _ in range(1000):
        found = fitted(name)
    np.testing.assert_array_equal(found, expected)
    memory_after, files_after, n_threads_after = standing()
    assert files_after <= files
    assert n_threads_after <= n_threads
    assert memory_after - memory < 2000  # 2 kB a fit


SHARDS = {
    "n_samples": 100,
    "n_warmup": 100,
    "n_chains": 1,
    "random_state": 0,
    "n_shards": 2,
    "combine": "consensus",
}
ON_DASK = {
    "topics": lambda: sd.LatentDirichletAllocation(3, max_iter=2, engine="dask", random_state=0).fit(COUNTS),
    "lasso": lambda: sd.Lasso(0.01, engine="dask").fit(X, Y),
    "minimum": lambda: sd.minimize(least_squares, np.zeros(D), [(X, Y), (X, -Y)], max_iter=3, engine="dask"),
    "paths": lambda: sd.ElasticNetCV(alphas=3, cv=2, engine="dask").fit(X, Y),
    "draws": lambda: sd.BayesianLogisticRegression(**SHARDS, engine="dask").fit(X, Y > 0),
}
# Dask's logs for its dashboard, which fill with hundreds of fits.
SHORT_LOGS = {"distributed.admin.log-length": 10, "distributed.admin.low-level-log-length": 10}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("name", ON_DASK)
def test_many_fits_leave_nothing_behind_on_a_cluster(name):
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")

    def left(cluster, client):
        worker_sessions = client.run(
            lambda dask_worker: sum(
                len(getattr(p, "worker_sessions", ())) for p in dask_worker.plugins.values()
            )
        )
        tasks = [len(worker.state.tasks) for worker in cluster.workers.values()]
        return len(cluster.scheduler.tasks), len(client.futures), tasks, list(worker_sessions.values())

    def fit(times):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few rounds and draws
            for _ in range(times):
                ON_DASK[name]()

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        dask.config.set(SHORT_LOGS),
        distributed.LocalCluster(**options) as cluster,  # all in this process
        distributed.Client(cluster) as client,
    ):
        fit(20)
        memory, files, n_threads = standing()
        fit(60)
        end = time.monotonic() + 60
        while left(cluster, client) != (0, 0, [0, 0], [0, 0]):  # the last fit's
            assert time.monotonic() < end, left(cluster, client)
            time.sleep(0.1)
        memory_after, files_after, n_threads_after = standing()
    assert files_after <= files + 2  # of connections that are being opened
    assert n_threads_after <= n_threads
    assert memory_after - memory < 60 * 100  # kB: the scheduler keeps a record of each computation
