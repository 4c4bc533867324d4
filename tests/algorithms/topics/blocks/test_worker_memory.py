"""Corpora beyond the memory of workers are refused before tokens are laid out, with the remedies."""

import math

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks import worker_memory
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.datasets import save_uci_bow
from stradask.errors import DataError
from stradask.scheduler.allocation import WorkerMemory
from stradask.scheduler.place import ClusterPlace

NOWHERE = "tcp://127.0.0.1:1"


def corpus(n_documents, mean, n_words=100):
    X = np.random.default_rng(0).poisson(mean / n_words, (n_documents, n_words)).astype(np.int32)
    return corpus_of_matrix(sparse.csr_array(X), 2)


def program(name, n_topics, *sizes):
    priors = np.full(n_topics, 0.1), np.full(100, 0.1)
    return program_of(name)(corpus(*sizes), n_topics, *priors, 0)


@pytest.mark.parametrize(
    ("name", "n_topics", "sizes"),
    [("gibbs", 40, (400, 150)), ("gibbs", 40, (50, 900)), ("warp", 40, (400, 150)),
     ("light", 300, (100, 400)), ("both", 40, (400, 150)), ("gibbs", 900, (80_000, 4))],
)  # fmt: skip
def test_a_shard_takes_what_is_counted_or_a_little_more(name, n_topics, sizes):
    made = program(name, n_topics, *sizes)
    part = made.parts[1] if name == "both" else made
    state = part.load(made.shards[0])
    arrays = {
        id(a): a.nbytes for a in [*state.values(), *vars(state["documents"]).values()] if hasattr(a, "nbytes")
    }
    counted = worker_memory.bytes_of_shards(made)[0]
    assert counted <= sum(arrays.values()) <= 1.7 * counted + 16 * sizes[0]


@pytest.fixture
def workers(monkeypatch):
    """Workers of a cluster that is not there: their memory, and how often they were asked for it."""
    asked, found = [], []
    monkeypatch.setattr(ClusterPlace, "memory", lambda self: [(w.limit, w.used, w.n_threads) for w in found])
    monkeypatch.setattr(ClusterPlace, "memory_after", lambda self, prepare: asked.append(prepare) or found)
    return found, asked


def test_workers_with_too_little_memory_are_refused_with_the_remedies(workers):
    found, asked = workers
    made = program("gibbs", 40, 400, 150)
    shard = max(worker_memory.bytes_of_shards(made))
    limit = 3 * shard

    def with_memory_for(shards):
        return WorkerMemory(limit, 0.95 * limit - shards * shard, 1, True)

    found += [with_memory_for(2), with_memory_for(0.5)]
    with pytest.raises(
        DataError, match=r"beyond the workers' memory: of 60,\d+ tokens .* of 1 MB, which leaves"
    ):
        worker_memory.check_worker_memory(made, NOWHERE)
    assert isinstance(asked[0], worker_memory.WarmUp)
    found[1] = found[0]
    worker_memory.check_worker_memory(made, NOWHERE)
    found[1] = with_memory_for(0.1)._replace(enforced=False)  # no nanny ends it
    worker_memory.check_worker_memory(made, NOWHERE)
    found[1] = with_memory_for(2)
    many = program("gibbs", 40, 40_000, 15)
    with pytest.raises(DataError, match=r"fewer topics than n_components=40, or fit files on one machine"):
        worker_memory.check_worker_memory(many, NOWHERE)


def test_a_worker_that_would_be_paused_is_refused(workers):
    found, _ = workers
    found += [WorkerMemory(300e6, 241e6, 1, True)] * 2  # above 80 %, where Dask gives it no work
    with pytest.raises(DataError, match="give workers 332 MB or more, or fit files"):
        worker_memory.check_worker_memory(program("warp", 40, 400, 150), NOWHERE)


def test_workers_with_plenty_of_memory_are_not_kept_waiting(workers):
    found, asked = workers
    found += [WorkerMemory(4e9, 1e8, 2, True), WorkerMemory(math.inf, 1e8, 2, False)]
    worker_memory.check_worker_memory(program("warp", 40, 400, 150), NOWHERE)
    assert not asked
    worker_memory.WarmUp()()


@pytest.mark.slow
def test_a_fit_on_small_workers_ends_before_they_do(start_processes, tmp_path):
    X = np.random.default_rng(0).poisson(0.4, (6_000, 300)).astype(np.int32)
    save_uci_bow(sparse.csr_array(X), tmp_path / "docword.txt")
    with start_processes("330MB") as client:
        before = set(client.scheduler_info()["workers"])
        with pytest.raises(DataError, match="give workers 3"):
            sd.LatentDirichletAllocation(100, engine="dask", max_iter=3).fit(tmp_path / "docword.txt")
        assert set(client.scheduler_info()["workers"]) == before


@pytest.fixture
def start_processes():
    """Start two worker processes of a memory limit; return a client."""
    distributed = pytest.importorskip("distributed")

    def start(limit):
        cluster = distributed.LocalCluster(
            2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        )
        started.append(cluster)
        return distributed.Client(cluster)

    started: list = []
    yield start
    for cluster in started:
        cluster.close()
