"""Workers that die or leave in the midst of a pass over portions."""

import os
import signal
import subprocess
import sys
import threading
import time

import dask
import numpy as np
import pytest

from stradask.algorithms.optimize.minimize import minimize
from stradask.algorithms.optimize.sandblaster import Sandblaster
from stradask.scheduler.workers import open_session

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
def eight_steps(portions):
    """What threads give."""
    return minimize(make_loss(), np.zeros(N_PARAMETERS), portions, max_iter=8)


def pids(client):
    return sorted(client.run(os.getpid).values())


def worker_sessions(client):
    def count(dask_worker):
        plugin = dask_worker.plugins.get("stradask-sessions")
        return len(plugin.worker_sessions) if plugin else 0

    return sum(client.run(count).values())


def killing(victim, after, delay):
    """A callback that kills a process some time after a step, and no later than after the next but one."""
    kill = threading.Timer(delay, os.kill, (victim, signal.SIGKILL))

    def callback(iterate):
        if iterate.nit == after:
            kill.start()
        elif iterate.nit == after + 2:
            kill.join()

    return callback


@pytest.mark.cluster
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_worker_killed_in_mid_pass_changes_nothing(start_cluster, portions, eight_steps, deterministic):
    """Its portions are computed by the other one in the same pass: no step and no pass is done again."""
    with start_cluster(client=True) as (cluster, client):
        kill = killing(pids(client)[0], after=2, delay=0.02)
        result = minimize(
            make_loss(0.01),
            np.zeros(N_PARAMETERS),
            portions,
            max_iter=8,
            engine=cluster.scheduler_address,
            deterministic=deterministic,
            callback=kill,
        )
        assert worker_sessions(client) == 0
    assert result.n_recoveries == 1
    if deterministic:
        assert result.x.tobytes() == eight_steps.x.tobytes()
        assert result.nfev == eight_steps.nfev
    assert result.fun == pytest.approx(eight_steps.fun, rel=1e-10)


@pytest.mark.cluster
def test_portions_that_were_taken_over_stay_with_their_new_worker(start_cluster, portions):
    with start_cluster(client=True) as (cluster, client):
        session = open_session(cluster.scheduler_address)
        with Sandblaster(make_loss(), portions, engine=session) as objective:
            x, loads = np.zeros(N_PARAMETERS), []
            want = objective(x)
            os.kill(pids(client)[0], signal.SIGKILL)
            for _ in range(200):  # a pass that backups complete may be over before the loss is noticed
                assert objective(x)[0] == pytest.approx(want[0], rel=1e-13)
                if objective.n_taken_over:
                    break
            assert objective.n_taken_over == 1
            load = session.load
            session.load = lambda *args: loads.append(args) or load(*args)
            for _ in range(3):
                assert objective(x)[0] == pytest.approx(want[0], rel=1e-13)
            assert loads == []


@pytest.mark.cluster
def test_the_only_worker_killed_in_mid_pass(start_cluster, portions, eight_steps):
    with start_cluster(1, client=True) as (cluster, client):
        kill = killing(pids(client)[0], after=2, delay=0.02)
        result = minimize(
            make_loss(0.01),
            np.zeros(N_PARAMETERS),
            portions,
            max_iter=8,
            engine=cluster.scheduler_address,
            deterministic=True,
            callback=kill,
        )
    assert result.n_recoveries >= 1
    assert result.x.tobytes() == eight_steps.x.tobytes()


@pytest.mark.cluster
def test_a_sharded_run_survives_a_killed_worker(start_cluster, portions):
    with start_cluster(client=True) as (cluster, client):
        kill = killing(pids(client)[0], after=10, delay=0.02)
        result = minimize(
            make_loss(0.002),
            np.zeros(N_PARAMETERS),
            portions,
            tol=1e-9,
            engine=cluster.scheduler_address,
            shard_from=100,
            callback=kill,
        )
    assert result.n_recoveries >= 1
    want = minimize(make_loss(), np.zeros(N_PARAMETERS), portions, tol=1e-9)
    assert result.fun == pytest.approx(want.fun, rel=1e-10)
    falls = np.diff(result.history["objective"])
    assert (falls < 1e-9).all()  # nothing was begun anew from x0
    assert len(result.history["objective"]) == result.nit + 1


def test_a_worker_that_retires_hands_its_portions_on(start_cluster, portions, eight_steps):
    with start_cluster(2, processes=False, client=True) as (cluster, client):
        address = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]
        left = threading.Event()

        def retire(iterate):
            if iterate.nit == 2:
                threading.Thread(
                    target=lambda: (client.retire_workers([address]), left.set()), daemon=True
                ).start()

        result = minimize(
            make_loss(0.002),
            np.zeros(N_PARAMETERS),
            portions,
            max_iter=8,
            engine=cluster.scheduler_address,
            deterministic=True,
            callback=retire,
        )
        assert left.wait(60)
    assert result.x.tobytes() == eight_steps.x.tobytes()


@pytest.mark.cluster
def test_a_worker_that_hangs_holds_nobody_up(start_cluster, portions, eight_steps):
    """Its orders are computed by the other one long before it counts as lost."""
    with start_cluster(client=True) as (cluster, client), dask.config.set({"stradask.timeout": "4s"}):
        victim = pids(client)[0]

        def stop(iterate):
            if iterate.nit == 2:
                os.kill(victim, signal.SIGSTOP)

        try:
            result = minimize(
                make_loss(0.002),
                np.zeros(N_PARAMETERS),
                portions,
                max_iter=8,
                engine=cluster.scheduler_address,
                deterministic=True,
                callback=stop,
            )
        finally:
            os.kill(victim, signal.SIGCONT)
    assert result.x.tobytes() == eight_steps.x.tobytes()


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.cluster
def test_a_client_that_is_killed_in_mid_pass_leaves_nothing_on_the_workers(start_cluster, tmp_path):
    code = """
import pathlib, sys, time, numpy as np
from stradask.algorithms.optimize.minimize import minimize
def loss(portion, w):
    pathlib.Path(sys_argv[2]).touch()
    time.sleep(0.5)
    return float((w - portion) @ (w - portion)), 2 * (w - portion)
sys_argv = sys.argv  # the workers' own are others
minimize(loss, np.zeros(3), list(np.ones((200, 3))), tol=0.0, engine=sys_argv[1])
"""
    begun = tmp_path / "begun"
    with start_cluster(2, client=True) as (cluster, client):
        other = subprocess.Popen([sys.executable, "-c", code, cluster.scheduler_address, str(begun)])
        until(begun.exists)
        assert worker_sessions(client) == 2
        other.kill()
        other.wait()
        until(lambda: worker_sessions(client) == 0)
        result = minimize(
            make_loss(),
            np.zeros(2),
            [(np.eye(2), np.array([1.0, -1.0]))] * 3,
            max_iter=2,
            engine=cluster.scheduler_address,
        )  # the workers serve the next one
        assert result.nit > 0


@pytest.mark.cluster
def test_a_client_that_dies_while_worker_states_are_made_leaves_nothing_on_the_workers(start_cluster):
    """No task of its own is there yet whose release would tell the workers."""
    code = """
import os, sys, distributed, numpy as np
from stradask.scheduler.workers import open_session
from stradask.scheduler.sums.summed import Summed
session = open_session(sys.argv[1])
distributed.Client.submit = lambda *args, **options: os._exit(77)
session.open(Summed(lambda portion, x: (0.0, x), list(np.ones((4, 3)))))
"""
    with (
        dask.config.set({"stradask.timeout": "3s"}),
        start_cluster(1, client=True) as (cluster, client),
    ):
        other = subprocess.Popen([sys.executable, "-c", code, cluster.scheduler_address])
        assert other.wait(60) == 77  # at the first task, which comes after the worker state
        until(lambda: worker_sessions(client) == 0)
