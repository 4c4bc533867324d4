"""Fits on 8 and 16 worker processes, also with a slow network: the same bits, a call a worker and sweep."""

import os
import signal
import threading
import time
from multiprocessing.connection import Client as Connection
from multiprocessing.connection import Listener

import numpy as np
import pytest

import stradask as sd
from stradask.benchmarks.scheduling.slow_network import Link, cluster, cpu_seconds
from stradask.scheduler.sessions import workers

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SLOW = {"latency": 1e-3, "bandwidth": 1.25e8}
N_GROUPS, SWEEPS = 16, 6


@pytest.fixture(scope="module")
def corpus():
    return sd.datasets.make_lda_corpus(400, n_features=300, n_components=5, random_state=0)[0]


def model(corpus, engine, callback=None, sampler="gibbs"):
    options = {"n_groups": N_GROUPS, "max_iter": SWEEPS, "random_state": 0, "sampler": sampler}
    return sd.LatentDirichletAllocation(8, engine=engine, **options).fit(corpus, callback=callback)


@pytest.fixture
def calls(monkeypatch):
    """How often this process called workers to do something."""
    ask, made = workers.Workers.call, []

    async def counted(self, worker, handler, **message):
        made.append((message.get("method", handler), worker))
        return await ask(self, worker, handler, **message)

    monkeypatch.setattr(workers.Workers, "call", counted)
    return made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("network", [{}, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("n_workers", [8, 16])
def test_many_workers_fit_the_model_of_one_process_with_a_call_each_a_sweep(
    n_workers, network, corpus, calls
):
    from distributed import Client

    seen = []

    def look(info):
        seen.append(sum(name == "run" for name, _ in calls))

    with (
        cluster(n_workers, **network) as there,
        Client(scheduler_file=str(there.scheduler_file)) as client,
    ):
        client.wait_for_workers(n_workers, timeout=300)
        workers = client.scheduler_info(n_workers=-1)["workers"]
        assert len({about["id"] for about in workers.values()}) == n_workers
        far = model(corpus, "dask", look)
        assert np.diff(seen).tolist() == [n_workers] * (SWEEPS - 1)
        assert bool(there.proxies) == bool(network)
        if network:  # all that workers received has passed the proxy
            assert cpu_seconds(there.proxies[0]) > 0
    near = model(corpus, "local")
    np.testing.assert_array_equal(far.components_, near.components_)
    assert far.history_["bytes_sent"][2:].max() < 200 * N_GROUPS * corpus.shape[1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("n_lost", [1, 2])
def test_killed_workers_of_sixteen_cost_their_own_shards(n_lost, corpus, calls):
    from distributed import Client

    with cluster(16, **SLOW) as there, Client(scheduler_file=str(there.scheduler_file)) as client:
        client.wait_for_workers(16, timeout=300)
        before = []

        def kill(info):
            if info.round == 3:
                before.append(sum(name == "load" for name, _ in calls))
                for pid in there.workers[:n_lost]:
                    os.kill(pid, signal.SIGKILL)
            return False

        far = model(corpus, "dask", kill)
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 16 - n_lost
    np.testing.assert_array_equal(far.components_, model(corpus, "local").components_)
    assert before == [N_GROUPS]
    assert sum(name == "load" for name, _ in calls) - N_GROUPS == n_lost  # of 16 shards, one a worker


@pytest.mark.timeout(900)
def test_rows_on_eight_workers_with_a_slow_network_have_the_optimum_of_one_process():
    from distributed import Client

    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20))
    y = X @ rng.standard_normal(20) + rng.standard_normal(2000) > 0
    with cluster(8, **SLOW) as there, Client(scheduler_file=str(there.scheduler_file)) as client:
        client.wait_for_workers(8, timeout=300)
        far = sd.LogisticRegression(tol=1e-10, engine="dask").fit(X, y)
    near = sd.LogisticRegression(tol=1e-10).fit(X, y)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-5, atol=1e-8)


def test_bytes_arrive_in_order_after_the_latency_and_at_the_bandwidth():
    import subprocess
    import sys

    from stradask.benchmarks.scheduling.slow_network import _free_ports

    outer, inner = _free_ports(2)
    name = "stradask.benchmarks.scheduling.slow_network"
    command = [sys.executable, "-m", name, "0.05", "1e7", str(outer), str(inner)]
    sent = np.random.default_rng(0).bytes(2_000_000)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as proxy,
        Listener(("127.0.0.1", inner)) as listener,
    ):
        try:
            assert proxy.stdout.readline() == b"ready\n"
            echo = threading.Thread(target=lambda: answer(listener))
            echo.start()
            with Connection(("127.0.0.1", outer)) as connection:
                began = time.perf_counter()
                connection.send_bytes(sent)
                assert connection.recv_bytes() == sent
                taken = time.perf_counter() - began
            echo.join()
        finally:
            proxy.kill()
    assert taken >= 2 * (0.05 + 0.2) - 0.01  # both ways; a busy machine takes longer


def answer(listener):
    with listener.accept() as connection:
        connection.send_bytes(connection.recv_bytes())


def test_a_link_passes_bytes_one_after_the_other():
    link = Link(0.5, 100.0)
    assert [link.due(0.0, 100), link.due(0.0, 50), link.due(9.0, 100)] == [1.5, 2.0, 10.5]
