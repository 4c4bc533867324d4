"""Freed memory is kept in workers of a nanny's, and in no other process."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from stradask.scheduler import allocation
from stradask.scheduler.allocation import free_memory

CODE = """
import os, resource, numpy as np
from stradask.scheduler.allocation import keep_freed_memory
assert keep_freed_memory() is {said}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(250_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_large_temporaries_are_not_faulted_in_again():
    found = {}
    for said, setting in (("True", {}), ("False", {"DASK_STRADASK__KEEP_FREED_MEMORY": "False"})):
        environment = {"MALLOC_TRIM_THRESHOLD_": "65536", "PATH": "", **setting}
        done = subprocess.run(
            [sys.executable, "-c", CODE.format(said=said)], env=environment, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr
        found[said] = int(done.stdout)
    assert found["True"] < 500  # 50 temporaries of 488 pages
    assert found["False"] > 10_000


class _Monitor:
    def get_process_memory(self):
        return 400 * 2**20


@pytest.mark.parametrize(
    ("limit", "nanny", "free"),
    [(None, "tcp", None), (1000, None, 500), (1000, "tcp", 0.9 * 211), (300, "tcp", 0)],
)
def test_workers_may_take_what_their_nannies_leave(limit, nanny, free, monkeypatch):
    monkeypatch.setattr(allocation, "keep_freed_memory", lambda: False)
    worker, called = SimpleNamespace(), []
    worker.memory_manager, worker.state = SimpleNamespace(), SimpleNamespace(nthreads=2)
    worker.memory_manager.memory_limit = limit and limit * 2**20
    worker.nanny, worker.monitor = nanny, _Monitor()
    found = free_memory(lambda: called.append(1), worker)
    assert found is None if free is None else found == pytest.approx(free * 2**20)
    assert bool(called) == (limit is not None and nanny is not None)
