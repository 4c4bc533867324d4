"""Workers with another version of stradask take no part in any way of running, and the caller is told."""

import re
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import stradask as sd
from stradask.errors import StradaskError

pytest.importorskip("distributed")
pytestmark = pytest.mark.cluster

_RNG = np.random.default_rng(0)
X = _RNG.standard_normal((60, 8))
Y = X[:, 0] - X[:, 1] + 0.1 * _RNG.standard_normal(60)
TOLD = r"gets no work: stradask 99\.0 is installed there and .* here; install the same version"


def folds(engine):
    return sd.LassoCV(alphas=4, cv=3, engine=engine).fit(X, Y).coef_


def lasso(engine):
    return sd.Lasso(alpha=0.01, tol=1e-12, engine=engine).fit(X, Y).coef_


def draws(engine):
    options = {"n_samples": 200, "n_warmup": 200, "n_chains": 2, "n_shards": 2, "random_state": 0}
    return sd.BayesianLogisticRegression(engine=engine, **options).fit(X[:, :2], X[:, 2] > 0).posterior_.draws


def topics(engine):
    counts = np.abs(X).round().astype(int)
    return (
        sd.LatentDirichletAllocation(2, n_groups=2, max_iter=3, engine=engine, random_state=0)
        .fit(counts)
        .components_
    )


FITS = {"plain tasks: folds": folds, "plain tasks: draws": draws, "session": lasso, "topics": topics}


@pytest.fixture(scope="module")
def another_worker(tmp_path_factory):
    """Start a worker process whose stradask says that it is 99.0."""
    preload = tmp_path_factory.mktemp("another") / "another_version.py"
    preload.write_text("import stradask._version\n\nstradask._version.__version__ = '99.0'\n")
    processes = []

    def start(client):
        there = set(client.scheduler_info(n_workers=-1)["workers"])
        command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address]
        command += ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--preload", str(preload)]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        client.wait_for_workers(len(there) + 1, timeout=120)
        (new,) = set(client.scheduler_info(n_workers=-1)["workers"]) - there
        return new

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def mixed(start_cluster, another_worker):
    """One worker like us in this process, and one of another version."""
    with start_cluster(1, processes=False, protocol="tcp://", client=True) as (_, client):
        yield client, another_worker(client)


def test_one_of_our_version_that_joins_takes_part(start_cluster):
    from stradask.scheduler.workers import open_workers

    def meets(first):
        """Wait, on the one thread of the first worker, until another one has a task."""
        import distributed

        here = distributed.get_worker().address
        if here != first:
            distributed.Event("another").set()
        distributed.Event("another").wait(60)
        return here

    with start_cluster(1, processes=False, protocol="tcp://", client=True) as (cluster, client):
        workers = open_workers("dask").task_workers()
        workers.open()
        (first,) = workers.where()["workers"]
        asked = [workers.submit(meets, first) for _ in range(12)]
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        assert len({future.result(60) for future in asked}) == 2
        workers.close()


def test_a_worker_that_joins_at_once_is_heard_of(start_cluster):
    """The subscription takes another way than calls do, and may still be under way when they are answered.

    In the second cluster of a process nothing is imported any more, and it was.
    """
    from stradask.scheduler.workers import open_workers

    for _ in range(2):
        with start_cluster(1, processes=False, protocol="tcp://", client=True) as (cluster, client):
            workers = open_workers("dask").task_workers()
            workers.open()
            cluster.scale(2)
            client.wait_for_workers(2, timeout=60)
            end = time.monotonic() + 60
            while len(workers.where()["workers"]) < 2 and time.monotonic() < end:
                time.sleep(0.02)
            assert len(workers.where()["workers"]) == 2
            workers.close()


@pytest.mark.parametrize("name", FITS)
def test_a_worker_of_another_version_gets_no_work_in_any_fit(mixed, name):
    client, other = mixed
    expected = FITS[name]("local")
    before = client.run(lambda dask_worker: len(dask_worker.state.log), workers=[other])[other]
    for _ in range(2):  # a later fit on this cluster is no other
        with pytest.warns(UserWarning, match=TOLD) as told:
            got = FITS[name]("dask")
        assert sum("gets no work" in str(w.message) for w in told) >= 1
        np.testing.assert_allclose(got, expected, rtol=1e-9)
    after = client.run(lambda dask_worker: len(dask_worker.state.log), workers=[other])[other]
    assert after == before  # no task has come there


@pytest.mark.filterwarnings("always")
def test_one_that_joins_in_mid_search_gets_no_work(start_cluster, another_worker):
    from stradask.scheduler.workers import open_workers

    def slow(seconds):
        import time

        time.sleep(seconds)
        return "done"

    with start_cluster(1, processes=False, protocol="tcp://", client=True) as (_, client):
        workers = open_workers("dask").task_workers()
        workers.open()
        first = workers.submit(slow, 0.1)
        other = another_worker(client)
        with warnings.catch_warnings(record=True) as told:
            late = [workers.submit(slow, 0.05) for _ in range(6)]
            assert [f.result(60) for f in (first, *late)] == ["done"] * 7
            end = time.monotonic() + 30
            while not workers.workers.unfit and time.monotonic() < end:
                time.sleep(0.02)
            workers.close()  # tells what has not been told
        assert sum(re.search(TOLD, str(w.message)) is not None for w in told) == 1
        assert client.run(lambda dask_worker: len(dask_worker.state.log), workers=[other])[other] == 0


def test_tasks_go_on_where_all_accepted_workers_were_lost(start_cluster):
    """Dask alone would have them wait for ever for the workers they were given to."""
    with start_cluster(1, client=True) as (_, client), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = draws("local")
        from stradask.scheduler.cluster_tasks import ClusterTasks

        submitted = ClusterTasks._attempt

        def kill_first(self, *args, killed=[]):  # noqa: B006   the list is its memory
            if not killed:
                killed.append(True)
                client.run(_exit, on_error="ignore", wait=False)
            return submitted(self, *args)

        def _exit():
            import os

            os._exit(1)

        ClusterTasks._attempt = kill_first
        try:
            np.testing.assert_array_equal(draws("dask"), expected)
        finally:
            ClusterTasks._attempt = submitted


@pytest.mark.parametrize("name", FITS)
@pytest.mark.usefixtures("mixed")
def test_if_all_are_of_another_version_the_error_names_both(name, monkeypatch):
    from stradask.scheduler.sessions import workers

    monkeypatch.setattr(workers, "__version__", "98.0")
    with pytest.raises(StradaskError, match=r"all workers of .* and 98\.0 here; install the same version"):
        FITS[name]("dask")
