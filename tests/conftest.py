"""For the whole suite: slow tests on demand, the same examples in every run, workers that start fast."""

import functools
import importlib.util
import multiprocessing
import os
import signal
import threading

import pytest

# Neither is there where nothing but the tests of a GPU is run (`benchmarks/gpu_check.py`).
try:
    import dask
except ModuleNotFoundError:
    dask = None
try:
    import hypothesis
except ModuleNotFoundError:
    hypothesis = None

# No test fails for the examples that were drawn today, or for the time that it takes to draw them on a busy
# machine. `pytest --hypothesis-profile exploring` draws others each time.
if hypothesis:
    settings = hypothesis.settings
    unhurried = settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    settings.register_profile("exploring", unhurried)
    settings.register_profile("same", unhurried, derandomize=True, database=None)
    settings.load_profile("same")

# Worker processes of clusters that a test itself starts are forked from one that has imported all they need,
# which takes seconds. Those of scripts, which tests run in processes of their own, start as usual.
if dask:
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    # Dask's profiler calls `sys._current_frames`, which locks up the process before CPython 3.11.9 where the
    # garbage collector meanwhile frees a `threading.local` (python/cpython#106883).
    dask.config.set({"distributed.worker.profile.enabled": False})


# Shells start what they put into the background deaf to Ctrl-C, and tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run also the tests marked slow")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--runslow") or "slow" in config.getoption("markexpr"):
        return
    skip = pytest.mark.skip(reason="slow: runs with --runslow or -m slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


@pytest.fixture
def address():
    """Address of a scheduler with two workers, all threads of this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, processes=False, threads_per_worker=1, dashboard_address=":0", protocol="tcp://"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def started(monkeypatch):
    """The threads that the test's own thread starts; those of clusters beside it come and go."""
    threads, own, start = [], threading.current_thread(), threading.Thread.start

    def watched(thread):
        if threading.current_thread() is own:
            threads.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", watched)
    return threads


@pytest.fixture
def killing():
    """Make a callback that kills processes some time after a round, and no later than after the next but one.

    A timer alone may fire when the fit is over, where the machine is busy.
    """

    def make(after, *victims, delay=0.02):
        timer = threading.Timer(delay, lambda: [os.kill(pid, signal.SIGKILL) for pid in victims])

        def callback(info):
            if info.round == after:
                timer.start()
            elif info.round == after + 2:
                timer.join()

        return callback

    return make


def pytest_runtest_setup(item):
    if item.get_closest_marker("cluster"):
        preload()


@functools.cache
def preload():
    """Say what the process imports from which workers are forked."""
    from distributed.utils import get_mp_context

    modules = [
        f"stradask.{module}"
        for module in (
            "scheduler.sessions.cluster",
            "algorithms.bayes.logistic",
            "algorithms.factorization.matrix_factorization",
            "algorithms.linear.cv",
            "algorithms.linear.sparse.distributed",
            "algorithms.neural.mlp",
            "algorithms.optimize.sandblaster",
            "algorithms.topics.lda",
        )
    ]
    # The process from which workers are forked passes over a name that is not there without a word.
    gone = [module for module in modules if importlib.util.find_spec(module) is None]
    assert not gone, f"Workers start slowly, because these modules have moved: {gone}"
    get_mp_context()  # says it too, once, with less
    multiprocessing.get_context("forkserver").set_forkserver_preload(["distributed", *modules])
