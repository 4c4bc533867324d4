"""What workers answer to the process that calls fit: nothing that grows with the tokens, by any sampler."""

import logging
import os

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse

import stradask as sd
from stradask.datasets import save_uci_bow
from stradask.scheduler import engine
from stradask.scheduler.sessions import cluster, workers
from stradask.scheduler.sessions.payloads import bytes_of

N_WORDS, K, LENGTH = 60, 5, 50


@pytest.fixture(scope="module")
def client():
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": False}
    with LocalCluster(n_workers=3, threads_per_worker=1, **quiet) as three, Client(three) as client:
        yield client


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Names of files of 400 and of 1,600 documents; nearly all words have all topics."""
    rng, folder, found = np.random.default_rng(0), tmp_path_factory.mktemp("corpora"), {}
    for n_documents in (400, 1_600):
        words = rng.integers(N_WORDS, size=n_documents * LENGTH)
        rows = np.repeat(np.arange(n_documents), LENGTH)
        shape = (n_documents, N_WORDS)
        X = sparse.coo_array((np.ones(len(words), int), (rows, words)), shape=shape).tocsr()
        save_uci_bow(X, folder / f"docword.{n_documents}.txt")
        found[n_documents] = folder / f"docword.{n_documents}.txt"
    return found


@pytest.fixture
def answered(monkeypatch):
    """Bytes of all answers of workers so far, in a list of one entry."""
    opened, found = workers.opened, [0]

    def counted(answer, worker):
        if answer and answer.get("ok"):
            found[0] += sum(map(bytes_of, answer["ok"]))
        return opened(answer, worker)

    monkeypatch.setattr(workers, "opened", counted)
    return found


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n_lost", [1, 2])
@pytest.mark.parametrize("sampler", ["gibbs", "light", "warp", "auto"])
def test_losses_cost_no_bit_where_workers_keep_snapshots(files, sampler, n_lost, monkeypatch, killing):
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):
        monkeypatch.setattr(engine, name, 0.0)
    monkeypatch.setattr(cluster, "SMALL", 0)
    options = {"sampler": sampler, "n_groups": 6, "max_iter": 14, "random_state": 0}
    local = sd.LatentDirichletAllocation(K, **options).fit(files[1_600])
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=3, threads_per_worker=1, **quiet) as three, Client(three) as client:
        before = sorted(client.run(os.getpid).values())
        model = sd.LatentDirichletAllocation(K, engine="dask", **options)
        model.fit(files[1_600], callback=killing(6, *before[:n_lost]))
        assert len(set(client.run(os.getpid).values()) & set(before)) == 3 - n_lost
    assert (model.word_topic_counts_ != local.word_topic_counts_).nnz == 0
    assert model.log_likelihood_[-1] == local.log_likelihood_[-1]


@pytest.mark.parametrize("sampler", ["gibbs", "light", "warp", "auto"])
def test_answers_do_not_grow_with_the_tokens(client, files, answered, sampler, monkeypatch):
    """Snapshots after every sweep are among them: workers keep these."""
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):
        monkeypatch.setattr(engine, name, 0.0)
    monkeypatch.setattr(cluster, "SMALL", 0)
    seen = {}
    for n_documents, path in files.items():
        before = answered[0]
        options = {"sampler": sampler, "n_groups": 6, "max_iter": 6, "random_state": 0}
        model = sd.LatentDirichletAllocation(K, engine="dask", **options).fit(path)
        seen[n_documents] = answered[0] - before
        local = sd.LatentDirichletAllocation(K, **options).fit(path)
        assert (model.word_topic_counts_ != local.word_topic_counts_).nnz == 0
        assert model.log_likelihood_[-1] == local.log_likelihood_[-1]
    n_tokens = 1_200 * LENGTH  # more; the topic of each takes two bytes
    assert seen[1_600] - seen[400] < 0.05 * n_tokens, seen
