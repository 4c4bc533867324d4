"""A scheduler that dies in mid-fit is told as such, soon, and nothing else comes to the user's screen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CLUSTER = """
import time, distributed
if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "protocol": "tcp://"}
    cluster = distributed.LocalCluster(dashboard_address=":0", **options)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""
FIT = """
import os, signal, sys, threading, time, warnings
import dask, distributed
from test_cluster_faults import FITS
name, address, victim = sys.argv[1], sys.argv[2], int(sys.argv[3])
warnings.simplefilter("ignore")
dask.config.set({"stradask.scheduler-timeout": "2s"})
FITS[name](address)
began = []
def kill():
    began.append(time.monotonic())
    os.kill(victim, signal.SIGKILL)
threading.Timer(0.2, kill).start()
try:
    while True:
        FITS[name](address)
except Exception as error:
    print(f"{time.monotonic() - began[0]:.1f} s", [kind.__name__ for kind in type(error).__mro__], error)
"""


@pytest.mark.parametrize(
    "name", ["lasso", "folds", "draws", "logistic", "minimize", "factors, als", "topics, gibbs"]
)
def test_a_dead_scheduler_is_named_and_nothing_else_is_printed(name):
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    options = {"stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], stderr=subprocess.DEVNULL, **options) as cluster:
        try:
            address = cluster.stdout.readline().strip()
            command = [sys.executable, "-c", FIT, name, address, str(cluster.pid)]
            done = subprocess.run(command, stderr=subprocess.PIPE, timeout=120, check=False, **options)
        finally:
            cluster.kill()
    assert "the scheduler" in done.stdout or "no Dask scheduler answers" in done.stdout
    assert "StradaskError" in done.stdout
    told = [line for line in done.stderr.splitlines() if "Failed to reconnect to scheduler" not in line]
    assert told == []  # that line is Dask's own, and true


CALLERS = """
import os, signal, sys, threading, time, warnings
import dask, distributed
from test_cluster_faults import FITS
from stradask.scheduler.sessions.task_workers import TaskWorkers
name, address, victim, at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
warnings.simplefilter("ignore")
dask.config.set({"stradask.scheduler-timeout": "2s"})
client = distributed.Client(address)
FITS[name]("dask")
began, calls, where = [], [], TaskWorkers.where
def kill():
    began.append(time.monotonic())
    os.kill(victim, signal.SIGKILL)
def late(self, *only):
    found = where(self, *only)
    calls.append(self)
    if len(calls) == at:  # Dask keeps what is submitted now for a connection that does not come
        kill()
        while client.status == "running":
            time.sleep(0.01)
    return found
TaskWorkers.where = late
if not at:
    threading.Timer(0.2, kill).start()
try:
    while True:
        FITS[name]("dask")
except Exception as error:
    print(f"{time.monotonic() - began[0]:.1f}", type(error).__name__, error)
os._exit(0)  # the caller's own client is not ours to close
"""


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4], ids=["timer", "open", "send", "first task", "second task"])
@pytest.mark.parametrize("name", ["folds", "draws"])
def test_the_callers_own_client_is_not_waited_for(name, at):
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], **options) as cluster:
        try:
            address = cluster.stdout.readline().strip()
            command = [sys.executable, "-c", CALLERS, name, address, str(cluster.pid), str(at)]
            done = subprocess.run(command, timeout=100, check=False, **options)
        finally:
            cluster.kill()
    seconds, kind, message = done.stdout.split(maxsplit=2)
    assert kind == "StradaskError"
    assert "the scheduler" in message
    assert float(seconds) < 12  # twice the timeout, and what a busy machine takes
