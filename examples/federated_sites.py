"""A logistic regression over four hospitals whose rows stay in their own houses.

Each hospital runs one Dask worker, which alone reads its file: `dask.annotate(workers=...)` binds the file
to the worker's name. One hospital is ten times as large as another, and in one nobody had the event. The
script counts the messages and their bytes, compares the posterior with that of all rows in one place, which
only a made-up example has, and fits again after a hospital has left.
"""

import argparse
import logging
import tempfile
from collections import Counter
from pathlib import Path

import dask
import numpy as np
from dask.distributed import Client, Nanny, Scheduler, SpecCluster, get_worker
from distributed.diagnostics.plugin import SchedulerPlugin

import stradask as sd

TRUTH = np.array([0.8, -0.5, 0.3])
SITES = {"north": 2_000, "east": 500, "south": 200, "west": 800}  # rows
WITHOUT_EVENTS = "south"
KINDS = {"run_chunk": "draws", "_apart": "checks and densities"}  # by the task's name; its rows a site keeps


def write_site(path, n_rows, seed, events=True):
    """Make the file of a hospital."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, len(TRUTH)))
    y = rng.random(n_rows) < 1 / (1 + np.exp(2.5 - X @ TRUTH))
    np.savez(path, X=X, y=y & events)


def read_site(path, site):
    """Read the rows of a hospital, where they are."""
    if get_worker().name != site:
        raise PermissionError(f"{path} is not for {get_worker().name}")
    with np.load(path) as file:
        return dict(file)


class Messages(SchedulerPlugin):
    """Counts the answers that each site sends, and their bytes, by kind."""

    def __init__(self, scheduler):
        self.scheduler, self.counts, self.bytes = scheduler, Counter(), Counter()

    def transition(self, key, start, finish, *args, worker=None, nbytes=0, **rest):
        """Take note of a result."""
        kind = KINDS.get(str(key).split("-")[0])
        if kind and (start, finish) == ("processing", "memory"):
            site = self.scheduler.workers[worker].name
            self.counts[site, kind] += 1
            self.bytes[site, kind] += nbytes


def main(n_samples=500, out=Path(), worker_class=Nanny):
    """Run the story.

    Parameters
    ----------
    n_samples : int
        Draws of each chain.
    out : Path
        Folder of the picture.
    worker_class : type
        Nanny makes each worker a process.
    """
    settings = {"n_samples": n_samples, "n_chains": 2, "prior_scale": 1.0, "random_state": 0}
    worker = {"cls": worker_class, "options": {"nthreads": 1}}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0"}}
    with (
        tempfile.TemporaryDirectory() as folder,
        SpecCluster(
            dict.fromkeys(SITES, worker), scheduler=scheduler, silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        messages, shards, paths = Messages(cluster.scheduler), {}, {}
        cluster.scheduler.add_plugin(messages)
        for seed, (site, n_rows) in enumerate(SITES.items()):
            paths[site] = Path(folder, f"{site}.npz")
            write_site(paths[site], n_rows, seed, site != WITHOUT_EVENTS)
            with dask.annotate(workers=site):
                shards[site] = dask.delayed(read_site)(str(paths[site]), site)
        model = sd.BayesianLogisticRegression(engine="dask", n_shards="auto", **settings).fit(
            [*shards.values()]
        )
        counts, sizes = messages.counts.copy(), messages.bytes.copy()
        received = client.run(lambda dask_worker: dask_worker.state.transfer_incoming_count_total)
        del shards["west"]
        without = sd.BayesianLogisticRegression(engine="dask", n_shards="auto", **settings)
        without.fit([*shards.values()])
        files = [dict(np.load(path)) for path in paths.values()]
    X, y = (np.concatenate([file[name] for file in files]) for name in ("X", "y"))
    pooled = sd.BayesianLogisticRegression(sampler="nuts", **settings | {"n_samples": 2000}).fit(X, y)

    for site, n_rows in SITES.items():
        kinds = (f"{kind} {counts[site, kind]} ({sizes[site, kind]:,} bytes)" for kind in KINDS.values())
        print(f"{site}, {n_rows} rows, answers: {', '.join(kinds)}")
    print(f"messages that sites received from one another: {sum(received.values())}")
    print(model.posterior_.diagnostics)
    off = np.abs(model.coef_ - pooled.coef_)[0] / pooled.posterior_.sd()["coef"]
    print(f"off the posterior of all rows by up to {off.max():.2f} posterior standard deviations")
    wider = without.posterior_.sd()["coef"] / model.posterior_.sd()["coef"]
    print(f"without west the posterior is {wider.mean():.2f} times as wide")
    axes = model.posterior_.plot(names=["intercept", "coef[0]", "coef[1]", "coef[2]"])
    axes[0].figure.savefig(out / "federated-story.png", dpi=100)
    print(f"sites and their combination in {out / 'federated-story.png'}")
    return model, off, counts, received


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the picture")
    main(out=parser.parse_args().out)
