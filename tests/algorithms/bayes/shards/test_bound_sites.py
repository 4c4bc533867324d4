"""Shards that are bound to Dask workers by name: read there alone, and lost with them."""

import logging
import pickle
from collections import Counter, defaultdict

import numpy as np
import pytest

from stradask import BayesianLinearRegression, BayesianLogisticRegression
from stradask.errors import DataError, WorkerLost

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

SITES = {"north": 900, "east": 300, "south": 500, "west": 400}
OPTIONS = {"prior_scale": 1.0, "n_samples": 150, "n_chains": 2, "random_state": 0, "n_shards": "auto"}


def rows_of(site, bound=True):
    """Make the rows of a site; refuse to on another worker."""
    if bound and distributed.get_worker().name != site:
        raise AssertionError(f"{site} was read on {distributed.get_worker().name}")
    number = list(SITES).index(site)
    rng = np.random.default_rng(number)
    X = rng.standard_normal((SITES[site], 2))
    return {"X": X, "y": rng.random(len(X)) < 1 / (1 + np.exp(-X[:, 0]))}


def bound(site):
    """The rows of a site, for its worker alone."""
    with dask.annotate(workers=site):
        return dask.delayed(rows_of)(site)


class Answers(distributed.SchedulerPlugin):
    """Counts results by site and name of the task, and keeps their bytes."""

    def __init__(self, scheduler):
        self.scheduler, self.counts, self.sizes = scheduler, Counter(), defaultdict(list)

    def transition(self, key, start, finish, *args, worker=None, nbytes=0, **rest):
        if (start, finish) == ("processing", "memory"):
            kind = self.scheduler.workers[worker].name, str(key).split("-")[0]
            self.counts[kind] += 1
            self.sizes[kind].append(nbytes)


@pytest.fixture
def cluster():
    """A worker for each site, in this process, and a client."""
    worker = {"cls": distributed.Worker, "options": {"nthreads": 1}}
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {"dashboard": False, "dashboard_address": ":0"},
    }
    options = {"scheduler": scheduler, "silence_logs": logging.CRITICAL}
    workers = dict.fromkeys(SITES, worker)
    with distributed.SpecCluster(workers, **options) as cluster, distributed.Client(cluster):
        yield cluster


def test_each_site_is_read_on_its_worker_alone(cluster):
    """The number of answers is that of docs/parallel-mcmc.md, and the draws those of threads."""
    answers = Answers(cluster.scheduler)
    cluster.scheduler.add_plugin(answers)
    shards = [bound(site) for site in SITES]
    model = BayesianLogisticRegression(engine="dask", **OPTIONS).fit(shards)
    for site in SITES:
        # Its rows, for a check and for chains, stay. Two chains of a warm-up and two chunks of draws; the
        # check, the model, densities at proposals and at draws of all sites.
        kinds = {kind: count for (name, kind), count in answers.counts.items() if name == site}
        assert kinds == {"load_shard": 2, "run_chunk": 2 * (1 + 2), "_apart": 4}
        # The bytes that the page says, whatever the number of rows: those of a state, and of 100 draws.
        d = 3  # two columns and the intercept
        state = 8 * (d * d + 3 * d + 4) + 4 * len("split_hmc")
        assert (
            sorted(answers.sizes[site, "run_chunk"])
            == [state] * 2 + [state + 100 * (8 * (2 * d + 9) + 4)] * 4
        )
        check, of_model, at_proposals, at_draws = answers.sizes[site, "_apart"]
        assert check + of_model < 500
        assert 0 <= at_proposals - 8 * 4000 < 200
        assert 0 <= at_draws - 8 * 1000 < 200
    for worker in cluster.workers.values():
        assert worker.state.transfer_incoming_count_total == 0
    apart = [dask.delayed(rows_of)(site, bound=False) for site in SITES]
    alone = BayesianLogisticRegression(**OPTIONS).fit(apart)
    assert (model.posterior_.draws == alone.posterior_.draws).all()
    with dask.annotate(workers="north"):
        few = dask.delayed(lambda: (np.eye(3, 2), np.ones(3)))()
    with pytest.raises(DataError, match=r"3 rows for the worker north alone.*combine='exact'"):
        BayesianLinearRegression(engine="dask", n_shards="auto", random_state=0).fit([few, few])
    with dask.annotate(workers="nowhere"):
        shards[0] = dask.delayed(rows_of)("north")
    nowhere = BayesianLogisticRegression(engine="dask", **OPTIONS)
    with (
        dask.config.set({"stradask.timeout": "0.3s"}),
        pytest.raises(WorkerLost, match="named nowhere takes"),
    ):
        nowhere.fit(shards)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_site_may_come_back(cluster):
    """The worker of a site dies in the fit, and another of its name goes on."""
    shards = [bound(site) for site in SITES]
    settings = {"engine": "dask", **OPTIONS, "n_samples": 1500}
    expected = BayesianLogisticRegression(**settings).fit(shards).posterior_.draws
    state = {}

    class Killer(Answers):
        def transition(self, *args, **rest):
            super().transition(*args, **rest)
            if self.counts["south", "run_chunk"] == 6 and "killed" not in state:
                state["killed"] = True
                self.scheduler.loop.add_callback(again)

    async def again():
        await cluster.workers["south"].close(reason="test", executor_wait=False)
        state["new"] = await distributed.Worker(cluster.scheduler_address, name="south", nthreads=1)
        cluster.workers["south"] = state["new"]

    cluster.scheduler.add_plugin(Killer(cluster.scheduler))
    found = BayesianLogisticRegression(**settings).fit(shards).posterior_.draws
    assert state["new"].status.name == "running"
    assert (found == expected).all()


def test_bound_rows_are_refused_where_they_would_move(tmp_path):
    north, east = bound("north"), bound("east")
    with pytest.raises(DataError, match=r"shard 0 is for the worker north alone .*take engine='dask'"):
        BayesianLogisticRegression(**OPTIONS).fit([north, east])
    with pytest.raises(DataError, match="one shard, which is for the worker north alone"):
        BayesianLogisticRegression(**OPTIONS | {"n_shards": 1}).fit([north])
    with dask.annotate(resources={"GPU": 1}):
        costly = dask.delayed(rows_of)("east")
    with pytest.raises(DataError, match=r"shard 1 has dask.annotate\(resources=.*workers=\.\.\."):
        BayesianLogisticRegression(**OPTIONS).fit([east, costly])
    with pytest.raises(DataError, match="shard 0 is for several workers"):
        BayesianLogisticRegression(**OPTIONS).fit([(north, east), east])
    with dask.annotate(workers="north"):
        X = da.ones((20, 2), chunks=10)
    with pytest.raises(DataError, match=r"X has dask\.annotate.*list of dask\.delayed"):
        BayesianLogisticRegression(**OPTIONS).fit(X, np.arange(20) % 2)


def test_bound_rows_cannot_be_sent():
    from stradask.algorithms.bayes.shards.chunks import load_shard

    with pytest.raises(DataError, match="do not leave it"):
        pickle.dumps(load_shard(lambda shard: np.ones(3), 0, False, is_kept=True))
    assert pickle.loads(pickle.dumps(load_shard(lambda shard: 1.0, 0, False))).data == 1.0
