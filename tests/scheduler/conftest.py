"""Clusters, and a program whose result tells every update from every other."""

import contextlib
import logging
import time

import numpy as np
import pytest


def rotation_program(n_shards=4, seconds=0.0, width=30):
    """Make a program with all that a session must carry: travelling blocks, saved state, messages, measures.

    Classes are made here, inside a function, because workers cannot import a test module.
    """
    from stradask.scheduler import Outcome, Program

    class Rotating(Program):
        travels = True
        saved = ("total",)
        n_blocks = 2 * n_shards

        def __init__(self):
            self.shards = [np.linspace(0, 1 + s, width) for s in range(n_shards)]
            self.trace, self.sum, self.seconds = [], 0.0, seconds

        def load(self, data):
            return {"X": data, "total": np.zeros(width), "shift": 0.0}

        def block(self, block):
            return np.full(width, 1.0 + block)

        def sync(self, state, message):
            state["shift"] = message["shift"][0]

        def update(self, state, task):
            if self.seconds:
                time.sleep(self.seconds)  # so long that things can happen in a round
            noise = task.rng(7).standard_normal(width)
            task.value += 0.1 * noise * state["X"] + state["shift"]
            state["total"] *= 0.9
            state["total"] += task.value
            return task.value.sum(), state["total"][:2].copy()

        def measure(self, state):
            return float(state["total"] @ state["total"])

        def aggregate(self, tasks, partials):
            self.trace.append([(t.round, t.step, t.shard, t.blocks) for t in tasks])
            for number, pair in partials:
                self.sum = 0.99 * self.sum + number + pair[1]
            return Outcome(self.publish(), updates=len(tasks))

        def publish(self):
            return {"shift": np.array([1e-3 * self.sum])}

        def objective(self, parts):
            return -sum(parts)  # which grow without bound

        def arrays(self):
            return {"sum": np.array(self.sum)}

        def restore(self, arrays):
            self.sum = float(arrays["sum"])

    return Rotating()


def fit_rotation(engine, rounds=6, n_jobs=None, callback=None, n_shards=4, **options):
    """Run the program; return what must be equal wherever it ran, and the `Run`."""
    from stradask.scheduler import RotationSchedule, run

    program = rotation_program(n_shards, **options)
    schedule = RotationSchedule(n_shards, 2 * n_shards)
    done = run(program, schedule, max_rounds=rounds, engine=engine, n_jobs=n_jobs, callback=callback)
    return (program.sum, done.history.as_dict()["objective"].tolist()), done


@pytest.fixture(scope="session")
def make_rotation():
    return rotation_program


@pytest.fixture(scope="session")
def fit():
    return fit_rotation


@contextlib.contextmanager
def running_cluster(n_workers=2, threads_per_worker=1, client=False, **options):
    """Run a cluster without a dashboard whose logs do not speak of the workers that a test kills."""
    from distributed import Client, LocalCluster

    options = {"processes": True, "dashboard_address": ":0", "silence_logs": logging.CRITICAL} | options
    with LocalCluster(n_workers=n_workers, threads_per_worker=threads_per_worker, **options) as cluster:
        if not client:
            yield cluster
            return
        with Client(cluster) as client:
            yield cluster, client


@pytest.fixture(scope="session")
def start_cluster():
    import distributed.config  # noqa: F401   brings its defaults, before a test sets some of them

    return running_cluster


@pytest.fixture(scope="session")
def processes(start_cluster):
    """Two worker processes of one thread each, for all tests that do them no harm."""
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def one_process(start_cluster):
    """Two workers of two threads each in this process."""
    with start_cluster(threads_per_worker=2, processes=False) as cluster:
        yield cluster


@pytest.fixture(params=["local", "one process", pytest.param("processes", marks=pytest.mark.cluster)])
def engine(request):
    """Each of the three forms of a session, as the value of an estimator's parameter."""
    if request.param == "local":
        return "local"
    return request.getfixturevalue(request.param.replace(" ", "_")).scheduler_address
