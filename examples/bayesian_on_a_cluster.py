"""A Bayesian logistic regression on a cluster: rows in files that only the workers read.

Eight files, two workers. Each file's posterior is sampled where it is read, and nothing passes between them
meanwhile; then the draws are combined, checked by the files' own densities, and the diagnostics say whether
to trust the result. The picture has the eight shards' posteriors, thin, beside their combination, thick, and
what averaging the draws would have made of them.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from dask.distributed import Client, LocalCluster

import stradask as sd

N_SHARDS, N_ROWS, TRUTH = 8, 5_000, np.array([0.8, -0.5, 0.3, 0.0])


def write_shard(path, seed):
    """Make the rows of a file: an event in about one row of eighty."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_ROWS, len(TRUTH)))
    np.savez(path, X=X, y=rng.random(N_ROWS) < 1 / (1 + np.exp(4.8 - X @ TRUTH)))


def main():
    """Write the files, fit them on two workers, and draw the picture."""
    settings = {"n_shards": "auto", "n_samples": 500, "n_chains": 2, "random_state": 0}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"part-{shard}.npz") for shard in range(N_SHARDS)]
        for shard, path in enumerate(paths):
            write_shard(path, shard)
        with (
            LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster),
        ):
            model = sd.BayesianLogisticRegression(engine="dask", **settings).fit(paths)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that this is not to be trusted: it is what is shown
                average = sd.BayesianLogisticRegression(engine="dask", combine="average", **settings)
                average.fit(paths)
    print(model.posterior_.summary())
    print(model.posterior_.diagnostics)
    inside = [low < b < high for b, low, high in zip(TRUTH, *limits(model.posterior_), strict=True)]
    print(f"{sum(inside)} of {len(TRUTH)} true coefficients lie in their 90 % intervals")
    off = (average.coef_[0] - model.coef_[0]) / model.posterior_.sd()["coef"]
    print(f"the average of the draws is off by up to {np.abs(off).max():.1f} posterior standard deviations")
    axes = model.posterior_.plot(names=["intercept", "coef[0]", "coef[1]", "coef[2]"])
    for ax, value in zip(axes, [average.intercept_[0], *average.coef_[0, :3]], strict=True):
        ax.axvline(value, color="0.4", linestyle=":", label="mean of the average")
    axes[0].legend(fontsize="small")
    axes[0].figure.savefig("bayesian_on_a_cluster.png", dpi=120)
    print("shards, combination and average in bayesian_on_a_cluster.png")


def limits(posterior):
    """The ends of 90 % intervals of the coefficients."""
    return posterior.quantile(0.05)["coef"], posterior.quantile(0.95)["coef"]


if __name__ == "__main__":
    main()
