"""A Bayesian logistic regression on a cluster: rows in files that only the workers read.

Eight files, two workers. Each file's posterior is sampled where it is read, and nothing passes between them
meanwhile; then the draws are combined, checked by the files' own densities, and the diagnostics say whether
to trust the result. The picture has the eight shards' posteriors, thin, and their combination, thick, and
what averaging the draws would have made of them.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
from dask.distributed import Client, LocalCluster

import stradask as sd

TRUTH = np.array([0.8, -0.5, 0.3, 0.0])


def write_shard(path, n_rows, seed):
    """Make the rows of a file: an event in about one row of eighty."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, len(TRUTH)))
    np.savez(path, X=X, y=rng.random(n_rows) < 1 / (1 + np.exp(4.8 - X @ TRUTH)))


def main(n_shards=8, n_rows=5_000, n_samples=500, out=Path()):
    """Run the story.

    Parameters
    ----------
    n_shards : int
        Files.
    n_rows : int
        Of each file.
    n_samples : int
        Draws of each chain.
    out : Path
        Folder of the picture.
    """
    settings = {"n_shards": "auto", "n_samples": n_samples, "n_chains": 2, "random_state": 0}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        paths = [Path(folder, f"part-{shard}.npz") for shard in range(n_shards)]
        for shard, path in enumerate(paths):
            write_shard(path, n_rows, shard)
        model = sd.BayesianLogisticRegression(engine="dask", **settings).fit(paths)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this is not to be trusted: it is what is shown
            average = sd.BayesianLogisticRegression(engine="dask", combine="average", **settings).fit(paths)
    posterior = model.posterior_
    print(posterior.summary())
    print(posterior.diagnostics)
    low, high = (posterior.quantile(q)["coef"] for q in (0.05, 0.95))
    inside = int(((low < TRUTH) & (high > TRUTH)).sum())
    print(f"{inside} of {len(TRUTH)} true coefficients lie in their 90 % intervals")
    mean, scale, shifted = posterior.mean(), posterior.sd(), average.posterior_.mean()
    off = {name: np.abs((shifted[name] - mean[name]) / scale[name]).max() for name in ("intercept", "coef")}
    for name, shift in off.items():
        print(f"{name}: the average of the draws is off by up to {shift:.1f} posterior standard deviations")

    axes = posterior.plot(names=["intercept", "coef[0]", "coef[1]", "coef[2]"])
    for ax, value in zip(axes, [average.intercept_[0], *average.coef_[0, :3]], strict=True):
        ax.axvline(value, color="0.4", linestyle=":", label="mean of the average")
    axes[0].legend(fontsize="small")
    axes[0].figure.savefig(out / "cluster-story.png", dpi=100)
    print(f"shards, combination and average in {out / 'cluster-story.png'}")
    return model, average, off


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the picture")
    main(out=parser.parse_args().out)
