"""Topic models on Dask for a long time, with workers that are killed over and over."""

import logging
import os
import random
import signal
import threading
import time

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.core import Status

import stradask as sd
from stradask.datasets.generators import make_lda_corpus

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(3600)]
KILLS = 20


class Murderer(threading.Thread):
    """Kills a random worker process some time after the fit has come a little further, again and again.

    Every fifth victim is soon followed by another, so that a loss also falls into the mending of the last.
    """

    def __init__(self, cluster, seed):
        super().__init__(daemon=True)
        self.cluster, self.rng = cluster, random.Random(seed)
        self.killed: list[int] = []
        self.round, self.came_further = 0, threading.Condition()

    def __call__(self, info):
        with self.came_further:
            self.round = info.round
            self.came_further.notify_all()

    def run(self):
        while len(self.killed) < KILLS:
            with self.came_further:
                self.came_further.wait_for(lambda after=self.round: self.round > after, timeout=60)
            for again in range(2 if len(self.killed) % 5 == 4 else 1):
                time.sleep(self.rng.uniform(0, 1 if again else 0.3))
                self._kill()

    def _kill(self):
        # One that is killed while it comes up, which takes long on a busy machine, may not be started again.
        up = [n for n in self.cluster.workers.values() if n.process and n.process.status == Status.running]
        alive = [n.pid for n in up if n.pid and n.pid not in self.killed]
        if alive and len(self.killed) < KILLS:
            self.killed.append(self.rng.choice(alive))
            os.kill(self.killed[-1], signal.SIGKILL)


QUIET = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "threads_per_worker": 1}


def undisturbed(X, options):
    """The local fit; of "auto", whose passes of warp are those of shards, the one on threads of a cluster."""
    if options["sampler"] != "auto":
        return sd.LatentDirichletAllocation(300, **options).fit(X)
    with LocalCluster(n_workers=1, processes=False, **QUIET) as cluster:
        return sd.LatentDirichletAllocation(300, engine=cluster.scheduler_address, **options).fit(X)


@pytest.mark.parametrize("sampler", ["gibbs", "light", "auto"])
def test_twenty_kills_cost_no_bit(sampler):
    X = make_lda_corpus(700, n_features=400, n_components=10, mean_length=200, random_state=0)[0]
    options = {"sampler": sampler, "n_groups": 8, "random_state": 3, "max_iter": 120, "optimize_priors": True}
    local = undisturbed(X, options)
    patience = {"stradask.timeout": "120s"}  # on a busy machine those that come back may be silent for long
    with (
        dask.config.set(patience),
        LocalCluster(n_workers=3, **QUIET) as cluster,
        Client(cluster),
    ):
        murderer = Murderer(cluster, seed=0)
        murderer.start()
        distant = sd.LatentDirichletAllocation(300, engine="dask", **options).fit(X, callback=murderer)
        still_wanted = murderer.is_alive()
    assert not still_wanted, f"the fit ended after {len(murderer.killed)} kills"
    assert len(set(murderer.killed)) == KILLS
    for name in ("word_topic_counts_", "doc_topic_counts_"):
        assert (getattr(local, name) != getattr(distant, name)).nnz == 0
    assert local.sampler_ == distant.sampler_
    np.testing.assert_array_equal(local.doc_topic_prior_, distant.doc_topic_prior_)
    np.testing.assert_array_equal(local.topic_word_prior_, distant.topic_word_prior_)
    np.testing.assert_allclose(local.log_likelihood_, distant.log_likelihood_, rtol=1e-12)
