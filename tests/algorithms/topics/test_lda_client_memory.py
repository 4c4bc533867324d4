"""What the process that calls fit holds of a corpus that lies in files: nothing that grows with it."""

import logging
import tracemalloc

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse

import stradask as sd
from stradask.datasets import save_uci_bow

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]
N_WORDS, K, LENGTH = 1000, 10, 100


def corpus(n_documents, folder):
    """A file of documents of 100 tokens."""
    rng = np.random.default_rng(0)
    words = (N_WORDS * rng.random(n_documents * LENGTH) ** 2).astype(int)
    rows = np.repeat(np.arange(n_documents), LENGTH)
    X = sparse.coo_array((np.ones(len(words), int), (rows, words)), shape=(n_documents, N_WORDS)).tocsr()
    save_uci_bow(X, folder / f"docword.{n_documents}.txt")
    return folder / f"docword.{n_documents}.txt"


def test_memory_of_the_client_does_not_grow_with_the_documents(tmp_path):
    peaks = {}
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, threads_per_worker=1, **quiet) as cluster, Client(cluster):
        for n_documents in (500, 2_000, 10_000):  # the first brings in what is there only once
            path = corpus(n_documents, tmp_path)
            options = {"engine": "dask", "max_iter": 3, "n_groups": 4, "sampler": "gibbs", "random_state": 0}
            options["checkpoint"] = f"file://{tmp_path}/states-{n_documents}"
            tracemalloc.start()
            model = sd.LatentDirichletAllocation(K, **options).fit(path)
            peaks[n_documents] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert model.word_topic_counts_.sum() == n_documents * LENGTH
    growth = (peaks[10_000] - peaks[2_000]) / (8_000 * LENGTH)
    assert growth < 0.25, (growth, peaks)  # topics alone would be 2, a CSR matrix 8 an entry
