"""Of topic models only the lost shards are read again, by 8 and 16 worker processes, with the same bits."""

import logging

import numpy as np
import pytest
from distributed import Client, LocalCluster

import stradask as sd
from stradask.benchmarks.experiments.topics.topic_losses import measure
from stradask.datasets import make_lda_corpus, save_uci_bow


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n_workers", [8, 16])
@pytest.mark.parametrize("given", [False, True])
def test_the_others_keep_their_shards(tmp_path, n_workers, given):
    X, *_ = make_lda_corpus(600, n_features=300, n_components=5, random_state=0)
    path = tmp_path / "docword.txt"
    save_uci_bow(X, path)
    options = {"n_components": 10, "sampler": "gibbs", "n_groups": 2 * n_workers, "max_iter": 16}
    options["random_state"] = 0
    topics = np.random.default_rng(0).random((10, 300)) if given else None
    local = sd.LatentDirichletAllocation(**options).fit(path, topics=topics)
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "threads_per_worker": 1}
    with LocalCluster(n_workers=n_workers, **quiet) as cluster, Client(cluster) as client:
        client.wait_for_workers(n_workers, timeout=300)
        model, (n_shards, n_bytes), seconds = measure(client, path, options, topics, 8)
    assert (model.word_topic_counts_ != local.word_topic_counts_).nnz == 0
    assert n_shards == 2, "the lost worker had two"
    assert 0 < n_bytes < path.stat().st_size / (n_workers - 1)
    assert len(seconds) == 3
