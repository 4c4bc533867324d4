"""Tables on Dask when a client or a worker is killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import dask
import numpy as np
import pytest

from stradask.scheduler.table.replicas import run_replicas

pytestmark = pytest.mark.cluster


def until(client, wanted):
    """Wait until each worker has so many tables, and threads of their shards."""

    def tables(dask_worker):  # in here, since workers cannot import a test module
        plugin = dask_worker.plugins.get("stradask-tables")
        shards = [t.name for t in threading.enumerate() if t.name.startswith("stradask-shard")]
        return None if plugin is None else (len(plugin.worker_sessions), len(shards))

    end = time.monotonic() + 120
    while (found := set(client.run(tables).values())) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_a_client_that_is_killed_leaves_nothing_on_the_workers(start_cluster, monkeypatch):
    # A client killed before its keep-alives arrive is given up after this time.
    monkeypatch.setenv("DASK_STRADASK__TIMEOUT", "5s")
    code = """
import sys, numpy as np
from stradask.scheduler.table.replicas import run_replicas
def work(table, task):
    while True:
        table.get(0)
        table.clock()
run_replicas(work, [None] * 2, np.zeros((1, 1)), engine=sys.argv[1])
"""

    with start_cluster(2, client=True) as (cluster, client):
        other = subprocess.Popen([sys.executable, "-c", code, cluster.scheduler_address])
        until(client, {(1, 1)})
        other.kill()
        other.wait()
        until(client, {(0, 0)})


def test_a_killed_worker_changes_nothing_that_is_promised(start_cluster, tmp_path):
    def work(table, flag):
        for clock in range(table.now, 10):
            row = table.get(0)
            assert row[table.replica] == clock
            assert row.min() >= clock - table.staleness
            table.inc(0, np.eye(3)[table.replica])
            table.clock()
            if table.replica == 1 and clock == 5 and not os.path.exists(flag):
                open(flag, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return table.now

    with start_cluster(2) as cluster:
        for staleness in (0, 1):
            flag = tmp_path / f"killed-{staleness}"
            done = run_replicas(
                work,
                [str(flag)] * 3,
                np.zeros((4, 3)),
                staleness=staleness,
                engine=cluster.scheduler_address,
                checkpoint=tmp_path / f"states-{staleness}",
                checkpoint_every=2,
            )
            assert flag.exists()
            assert done.n_recoveries >= 1  # more where the scheduler learns of the loss after we do
            assert done.results == [10] * 3
            assert done.values[0].tolist() == [10.0] * 3


def test_a_client_that_dies_between_shards_and_replicas_leaves_nothing(start_cluster):
    """Before the task that shows a shard's use is there, and before a replica's is."""
    code = """
import os, sys, numpy as np
import stradask.scheduler.table.cluster as there
def vanish(*args, **options):
    os._exit(77)
if sys.argv[2] == "keep-alive":
    there.start_keep_alive = vanish
else:
    there.ClusterTable.start = vanish
from stradask.scheduler.table.replicas import run_replicas
run_replicas(print, [None], np.zeros((1, 1)), engine=sys.argv[1])
"""
    with dask.config.set({"stradask.timeout": "3s"}), start_cluster(1, client=True) as (cluster, client):
        for last in ("keep_alive", "replicas"):
            other = subprocess.Popen([sys.executable, "-c", code, cluster.scheduler_address, last])
            assert other.wait(60) == 77
            until(client, {(0, 0)})
