"""A rare event in 40,000 rows: the posterior from shards that do not communicate, and that of all rows.

A shard of 4,000 rows has some fifty events, and its posterior is wide and skewed. What `combine="auto"` takes
is checked by the shards' densities, and nearest to the posterior; consensus and the mean of the shards'
draws, asked for by name, are farther off.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

import stradask as sd


def main(rows=40_000, n_samples=2000, out=Path()):
    """Run the story.

    Parameters
    ----------
    rows : int
    n_samples : int
        Draws of each chain.
    out : Path
        Folder of the picture.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 5))
    truth = np.array([0.8, -0.5, 0.3, 0.0, 0.0])
    y = rng.random(rows) < 1 / (1 + np.exp(4.8 - X @ truth))
    print(f"{y.sum()} events in {len(y):,} rows")

    common = {"n_samples": n_samples, "n_jobs": -1, "random_state": 0}
    whole = sd.BayesianLogisticRegression(sampler="nuts", **common).fit(X, y)
    scale = whole.posterior_.sd()["coef"]
    found = {}
    for combine in ("auto", "consensus", "average"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what speaks against a combination asked for by name: seen below
            model = sd.BayesianLogisticRegression(n_shards=10, combine=combine, **common).fit(X, y)
        misses = (model.posterior_.mean()["coef"] - whole.posterior_.mean()["coef"]) / scale
        found[combine] = float(np.sqrt((misses**2).mean()))
        print(f"{combine:<10} error of the means {found[combine]:.3f} posterior standard deviations")
        if combine == "auto":
            print(model.posterior_.diagnostics)
            axes = model.posterior_.plot()
            axes[0].figure.savefig(out / "shards-story.png", dpi=100)
    print(f"shards and posterior in {out / 'shards-story.png'}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the picture")
    main(out=parser.parse_args().out)
