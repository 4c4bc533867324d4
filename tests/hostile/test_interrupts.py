"""Ctrl-C at random moments, and disks that fill while checkpoints are written.

A fit that is interrupted returns the model so far or raises KeyboardInterrupt; it never hangs, and what it
leaves behind, in the process and in its checkpoint, is whole.
"""

import subprocess
import sys

import pytest

COMMON = """
import functools, os, random, resource, signal, sys, threading, time, warnings
import numpy as np
from scipy import sparse
import stradask as sd
from stradask.errors import StradaskError

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
N, D = 300, 20
COUNTS = sparse.csr_array(rng.poisson(0.5, (N, D)))
X = rng.standard_normal((N, D))
Y = X @ np.linspace(-1, 1, D) + rng.standard_normal(N)

def loss(portion, w):
    A, b = portion
    residual = A @ w - b
    return 0.5 * float(residual @ residual), A.T @ residual

def topics(folder, callback=None, **options):
    options |= {"checkpoint": folder, "random_state": 0, "n_jobs": 2}
    model = sd.LatentDirichletAllocation(4, max_iter=60, **options)
    return model.fit(COUNTS, callback=callback).components_

def factors(folder, callback=None, **options):
    options |= {"checkpoint": folder, "random_state": 0, "n_jobs": 2}
    model = sd.MatrixFactorization(3, max_iter=40, tol=0, **options)
    return model.fit(COUNTS.astype(float), callback=callback).item_factors_

def minimum(folder, callback=None, **options):
    cut = [(X[a : a + 100], Y[a : a + 100]) for a in range(0, N, 100)]
    options |= {"checkpoint": folder, "checkpoint_every": 2, "deterministic": True, "callback": callback}
    return sd.minimize(loss, np.zeros(D), cut, max_iter=60, tol=0.0, **options).x

def draws(folder, callback=None):
    model = sd.BayesianLogisticRegression(
        **{"n_samples": 500, "n_warmup": 100, "n_chains": 2, "n_shards": 2, "sampler": "nuts"},
        checkpoint=folder,
        random_state=0,
    )
    return model.fit(X[:, :3], Y > 0, callback=callback).posterior_.draws

def coefficients(model, y, folder=None):
    return model.fit(X, y).coef_

def network(model, y, folder=None):
    return np.concatenate([W.ravel() for W in model.fit(X, y).coefs_])

KEPT = {
    "topics": topics,
    "topics, warp": functools.partial(topics, sampler="warp"),
    "topics, priors": functools.partial(topics, optimize_priors=True),
    "factors": functools.partial(factors, solver="als"),
    "factors, descent": functools.partial(factors, solver="sgd"),
    "minimize": minimum,
    "draws": draws,
}
UNKEPT = {
    "lasso": functools.partial(coefficients, sd.Lasso(1e-4, tol=1e-12), Y),
    "paths": functools.partial(coefficients, sd.ElasticNetCV(l1_ratio=[0.5, 0.9], cv=3), Y),
    "sparse logistic": functools.partial(coefficients, sd.SparseLogisticRegression(1e-4, tol=1e-10), Y > 0),
    "logistic": functools.partial(coefficients, sd.LogisticRegression(C=100.0, tol=1e-12), Y > 0),
    "ridge": functools.partial(coefficients, sd.Ridge(tol=1e-12, solver="sandblaster"), Y),
    "poisson": functools.partial(coefficients, sd.PoissonRegressor(tol=1e-10), np.abs(Y).round()),
    "network": functools.partial(network, sd.MLPRegressor((8,), max_iter=60, random_state=0), Y),
    "chains": functools.partial(
        coefficients,
        sd.BayesianLinearRegression(n_samples=100, n_warmup=100, sampler="nuts", random_state=0),
        Y,
    ),
    "ccd": lambda folder=None: factors(None, solver="ccd"),
}
"""

INTERRUPTED = """
def deaf():
    "Ignore SIGINT from now on; returns what it was handled by before."
    handlers = []
    while True:
        try:
            handlers.append(signal.getsignal(signal.SIGINT))
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return handlers[0]
        except KeyboardInterrupt:
            pass  # it came after the fit

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins deaf
name, times, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
kept = name in KEPT
fit = (KEPT | UNKEPT)[name]
whole = fit(f"{folder}/whole" if kept else None)
began = time.monotonic()
fit(f"{folder}/again" if kept else None)
seconds = time.monotonic() - began
dice = random.Random(name)
stopped = 0
for n in range(times):
    where = f"{folder}/{n}" if kept else None
    presses = [dice.uniform(0, seconds) for _ in range(dice.choice([1, 1, 2, 3]))]
    timers = [threading.Timer(at, os.kill, (os.getpid(), signal.SIGINT)) for at in presses]
    began = time.monotonic()
    raised = False
    try:
        for timer in timers:
            timer.start()
        found = fit(where)
        assert np.isfinite(found).all()
    except KeyboardInterrupt:
        raised = True
    took = time.monotonic() - began
    assert deaf() is signal.default_int_handler
    for timer in timers:
        timer.cancel()  # one that was to press later, or that was interrupted while it was started
    for timer in timers:
        if timer.ident is not None:
            timer.join()
    stopped += raised
    assert took < 20 * seconds + 30
    np.testing.assert_array_equal(fit(where), whole)  # goes on, or begins anew
    signal.signal(signal.SIGINT, signal.default_int_handler)
print("raised", stopped, "of", times)
"""

FULL = """
folder = sys.argv[1]
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for name, fit in KEPT.items():
    where = f"{folder}/{name}"
    whole = fit(f"{folder}/whole {name}")
    calls = iter(range(100))
    try:
        # of two shards the first is enough; of rounds it is three
        fit(where, lambda info: next(calls) >= (0 if name == "draws" else 2))
    except StradaskError as error:
        assert name == "draws", error  # of which there are none yet
    else:
        assert name != "draws"
    before = {f: open(os.path.join(where, f), "rb").read() for f in sorted(os.listdir(where))}
    sizes = [len(content) for f, content in before.items() if f.endswith("npz")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(sizes) // 2, hard))
    try:
        fit(where)
    except OSError as error:
        assert "could not write" in str(error) and "raise the limit on file sizes" in str(error), error
    else:
        raise AssertionError(f"{name}: no error")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = {f: open(os.path.join(where, f), "rb").read() for f in sorted(os.listdir(where))}
    assert all(after[f] == content for f, content in before.items()), name
    np.testing.assert_array_equal(fit(where), whole)
    print(name)
"""


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", COMMON + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


NAMES = [
    *(
        "topics",
        "topics, warp",
        "topics, priors",
        "factors",
        "factors, descent",
        "minimize",
        "draws",
        "lasso",
    ),
    *("paths", "sparse logistic", "logistic", "ridge", "poisson", "network", "chains", "ccd"),
]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_interrupts_at_random_moments(name, tmp_path):
    assert run(INTERRUPTED, name, 25, tmp_path).startswith("raised ")


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
@pytest.mark.slow
def test_a_disk_that_fills_leaves_the_checkpoint_whole(tmp_path):
    assert len(run(FULL, tmp_path).splitlines()) == 7
