"""Memory limits that the programs of a fit alone exceed are refused, before nannies end workers."""

import contextlib
import os

import dask
import numpy as np
import pytest

import stradask as sd
from stradask.errors import DataError, StradaskError
from stradask.scheduler.workers import open_workers

pytestmark = pytest.mark.cluster


@pytest.fixture
def start_bare(start_cluster):
    """Start processes that have imported nothing yet."""

    @contextlib.contextmanager
    def start(limit):
        with (
            dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),
            start_cluster(2, client=True, memory_limit=limit) as (_, client),
        ):
            yield client

    return start


def test_a_limit_below_the_bare_programs_is_refused_at_once(start_bare):
    with start_bare("150MB") as client:
        before = client.run(os.getpid)
        for model in (sd.Ridge(engine="dask"), sd.LatentDirichletAllocation(3, engine="dask")):
            with pytest.raises(StradaskError, match=r"a memory limit of 150 MB, and the programs .* 200 MB"):
                model.fit(np.eye(4, dtype=int), np.ones(4))
        assert client.run(os.getpid) == before


@pytest.mark.slow
def test_a_limit_below_the_compiled_programs_is_refused_when_they_end_a_worker(start_bare):
    with start_bare("250MB"), pytest.raises(DataError, match=r"250 MB is too low for the programs alone"):
        sd.LatentDirichletAllocation(3, engine="dask").fit(np.eye(4, dtype=int))


def test_a_worker_that_ends_while_it_imports_is_named_by_its_limit(start_cluster, monkeypatch):
    import distributed

    run = distributed.Client.run

    def run_and_lose_one(self, *args, **options):
        answers = run(self, *args, **options)
        return answers | {next(iter(answers)): distributed.comm.CommClosedError("the worker ended")}

    for limit in ("300MB", "3GB"):  # the latter ended for another reason
        with (
            dask.config.set({"distributed.worker.memory.pause": False}),  # this process takes more
            start_cluster(2, client=True, processes=False, memory_limit=limit) as (_, client),
        ):
            workers = open_workers(client)
            assert len(workers.memory_after(int)) == 2
            with monkeypatch.context() as patch:
                patch.setattr(distributed.Client, "run", run_and_lose_one)
                if limit == "3GB":
                    assert len(workers.memory_after(int)) == 1
                    continue
                with pytest.raises(DataError, match="limit of 300 MB is too low for the programs alone"):
                    workers.memory_after(int)
