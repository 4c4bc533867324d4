"""The pictures of the demo of Bayesian models."""

import numpy as np

from .drawing import OURS, QUIET, THEIRS, make_axes

GRID = 300


def add_bayes(page, document, shard_draws, draws, truth):
    """Add the part of the Bayesian models to the page; draws are those of the exposure's effect."""
    data, seconds, shards = document["data"], document["seconds"], document["shards"]
    page.heading(f"Bayesian models: a rare event in {shards} shards")
    page.text(
        f"Of {data['rows']:,} rows {data['positives']:,} are positive, and one in twenty is exposed to a "
        "possible cause. What is the exposure's effect, and how certain is it? The rows are divided "
        f"among {shards} shards that do not communicate while they are sampled. Each shard has few positive "
        "rows, so its own posterior is wide and skewed; averages of such posteriors are wrong. stradask also "
        "uses the shards' gradients, makes proposals from them, and weighs each proposal on every shard."
    )
    page.code(CODE.format(shards=shards, draws=document["sampling"]["n_samples"]))
    page.figure(*overlay(shard_draws, draws, truth))
    rows = [(way, f"{found['mean']:.2f}", f"{found['sd']:.2f}") for way, found in document["errors"].items()]
    header = ["", "error of the mean", "spread (1 is right)"]
    page.table(rows, header, "In standard deviations of the true posterior, the worst of all coefficients")
    same = document["sampling"]
    page.text(
        f"By the same sampler ({same['sampler'].upper()}) and as many draws, {same['n_chains']} chains of "
        f"{same['n_samples']}, all the data in one piece took {seconds['all_data']:.1f} seconds, all shards "
        f"and their combination {seconds['shards']:.1f} on the same cores; on a cluster shards run side by "
        "side. The long chain that errors are measured by is in neither."
    )
    page.subheading("A posterior that is refused")
    page.text(
        "Two components of a mixture may change places: every shard has two modes, and its chains do not "
        "agree on which is which. No combination of such draws is the posterior, so stradask raises an "
        f"error: “{document['refused']}”"
    )


CODE = """
model = sd.BayesianLogisticRegression(n_shards={shards}, n_samples={draws}, n_jobs=-1).fit(X, y)
model.posterior_.diagnostics  # says in words whether to trust the draws
"""


def overlay(shard_draws, draws, truth):
    """Return marginals of the exposure's effect, shards and ways and truth: figure, caption, description."""
    from scipy.stats import gaussian_kde

    axes = make_axes("effect of the exposure on the log odds", width=6.0, height=3.8)
    # A shard in which no exposed row is positive has a tail that would take the whole picture.
    width = 3 * np.median(shard_draws.std(axis=(1, 2)))
    grid = np.linspace(-width, width, GRID) + truth.mean()
    for i, shard in enumerate(shard_draws.reshape(len(shard_draws), -1)):
        label = None if i else f"each of {len(shard_draws)} shards"
        axes.plot(grid, gaussian_kde(shard)(grid), color="#999999", linewidth=0.8, label=label)
    for (way, found), colour in zip(draws.items(), (THEIRS, OURS), strict=True):
        axes.plot(grid, gaussian_kde(found)(grid), color=colour, linewidth=2.2, label=way)
    curve = gaussian_kde(truth)(grid)
    axes.plot(grid, curve, color="black", linewidth=1.4, linestyle="--", label="all the data")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=10, labelcolor="linecolor")
    axes.axvline(0, color=QUIET, linewidth=0.8, linestyle=":")
    caption = (
        "Posterior of one coefficient: of each shard, of two ways to combine them, and of a long chain of "
        "all the data (dashed)."
    )
    places = ", ".join(f"{way} at {found.mean():.2f}" for way, found in draws.items())
    said = (
        f"Wide and flat curves of the shards, and narrow ones: {places}, all the data at {truth.mean():.2f}."
    )
    return axes.figure, caption, said
