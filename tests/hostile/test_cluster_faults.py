"""Workers killed and paused, and schedulers gone, at random moments of every distributed fit.

A lost worker costs time and no bit of the model. A paused one is waited for as long as
``dask.config stradask.timeout`` says, and then lost; where plain tasks do the work, as long as Dask's own
``worker-ttl`` says.
"""

import contextlib
import functools
import logging
import os
import random
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.errors import StradaskError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

N, D = 1500, 40
_RNG = np.random.default_rng(0)
COUNTS = sparse.csr_array(_RNG.poisson(0.4, (N, D)))
X = _RNG.standard_normal((N, D))
Y = X @ np.linspace(-1, 1, D) + _RNG.standard_normal(N)
CLASSES = Y > 0
MCMC = {"n_samples": 200, "n_warmup": 200, "n_chains": 2, "n_shards": 2, "random_state": 0}


def minimize(engine):
    cut = [(X[a : a + 300], Y[a : a + 300]) for a in range(0, N, 300)]

    def of_portion(portion, w):  # in a function, since workers cannot import this module
        A, b = portion
        residual = A @ w - b
        return 0.5 * float(residual @ residual), A.T @ residual

    return sd.minimize(of_portion, np.zeros(D), cut, tol=1e-10, engine=engine, deterministic=True).x


def topics(engine, **options):
    model = sd.LatentDirichletAllocation(5, max_iter=30, engine=engine, random_state=0, **options)
    return model.fit(COUNTS).components_


def factors(engine, **options):
    model = sd.MatrixFactorization(4, max_iter=10, engine=engine, random_state=0, **options)
    return model.fit(COUNTS.astype(float)).item_factors_


def draws(engine):
    return sd.BayesianLogisticRegression(**MCMC, engine=engine).fit(X[:, :4], CLASSES).posterior_.draws


def network(engine):
    model = sd.MLPRegressor((8,), solver="sandblaster", max_iter=30, engine=engine, random_state=0)
    return np.concatenate([W.ravel() for W in model.fit(X, Y).coefs_])


def coefficients(cls, y, engine, **options):
    return cls(engine=engine, **options).fit(X, y).coef_


FITS = {
    "topics, gibbs": topics,
    "topics, warp": functools.partial(topics, sampler="warp"),
    "lasso": functools.partial(coefficients, sd.Lasso, Y, alpha=0.001, tol=1e-10),
    "elastic net": functools.partial(coefficients, sd.ElasticNet, Y, alpha=0.001, tol=1e-10),
    "sparse logistic": functools.partial(coefficients, sd.SparseLogisticRegression, CLASSES, alpha=1e-3),
    "logistic": functools.partial(
        coefficients, sd.LogisticRegression, CLASSES, solver="sandblaster", tol=1e-10
    ),
    "ridge": functools.partial(coefficients, sd.Ridge, Y, solver="sandblaster", tol=1e-10),
    "poisson": functools.partial(
        coefficients, sd.PoissonRegressor, np.abs(Y).round(), solver="sandblaster", tol=1e-8
    ),
    "network": network,
    "minimize": minimize,
    "factors, als": functools.partial(factors, solver="als"),
    "factors, descent": functools.partial(factors, solver="sgd"),
    "draws": draws,
    "folds": functools.partial(coefficients, sd.LassoCV, Y, alphas=20, cv=4),
}


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"stradask.timeout": "5s", "distributed.scheduler.worker-ttl": "8s"}),
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def living(client, n=3):
    """Process numbers of n workers that answer; new ones, where a nanny gave up on its worker."""
    for _ in range(3):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pids = client.run(os.getpid, on_error="ignore")
            if len(pids) >= n:
                return list(pids.values())
            time.sleep(0.2)
        client.cluster.scale(0)
        client.cluster.scale(n)
    raise AssertionError("workers have not come back")


@pytest.fixture(scope="module")
def calm(cluster):
    """What an undisturbed fit gives, and how long it takes."""

    @functools.cache
    def of(name):
        living(cluster)  # not all may be back from the test before
        quiet(name)  # kernels are compiled
        began = time.monotonic()
        return quiet(name), time.monotonic() - began

    return of


def send(victim, number):
    """Send a signal to a process that somebody may have ended before."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, number)


def quiet(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FITS[name]("dask")


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("fault", ["killed", "paused", "stopped for good"])
def test_a_fault_at_a_random_moment_changes_no_bit(cluster, calm, name, fault):
    expected, seconds = calm(name)
    rng = random.Random(f"{name} {fault}")
    for _ in range(2):
        victim = rng.choice(living(cluster))
        signals = {"killed": signal.SIGKILL}.get(fault, signal.SIGSTOP)
        start = threading.Timer(rng.uniform(0, seconds), send, (victim, signals))
        end = threading.Timer(seconds + 1, send, (victim, signal.SIGCONT))
        start.start()
        if fault == "paused":
            end.start()
        try:
            began = time.monotonic()
            found = quiet(name)
            assert time.monotonic() - began < 20 * seconds + 60
        finally:
            start.join()
            if fault == "paused":
                end.join()
            if fault == "stopped for good":
                send(victim, signal.SIGKILL)  # the nanny brings another
        # X is cut into as many blocks as there are workers, of which a fit may find one less at its start;
        # sums over other blocks differ in the last bits. All others are cut alike whoever works.
        last_bits = 1e-13 if name in ("lasso", "elastic net") else 0.0
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=last_bits)


def test_two_fits_at_once_on_one_cluster(cluster, calm):
    pairs = list(zip(list(FITS)[::2], list(FITS)[1::2], strict=False))
    for pair in pairs:
        expected = [calm(name)[0] for name in pair]
        found = [None, None]

        def fit(n, name, found=found):
            found[n] = FITS[name]("dask")

        threads = [threading.Thread(target=fit, args=(n, name)) for n, name in enumerate(pair)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
        for got, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("name", FITS)
def test_a_scheduler_that_goes_in_mid_fit_ends_it_with_a_message(calm, name):
    _, seconds = calm(name)
    rng = random.Random(name)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"stradask.timeout": "1s"}),
        distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as doomed,
    ):
        address = doomed.scheduler_address
        closing = threading.Timer(rng.uniform(0.05, seconds / 2), doomed.close)
        closing.start()
        began = time.monotonic()
        with warnings.catch_warnings(), contextlib.suppress(StradaskError):  # or it was done before
            warnings.simplefilter("ignore")
            FITS[name](address)
        closing.join()
        assert time.monotonic() - began < 20 * seconds + 90
