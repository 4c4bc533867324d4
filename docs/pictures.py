"""Draw the guide's pictures: ``python docs/pictures.py [NAME ...]``, five minutes for all of them.

Pictures of measurements come from records (`python -m stradask.benchmarks.experiments.readme`), those
of the stories from `examples`, topic-sweep.png from the command ``stradask sweep`` that stands above it in
topics.md, item-map.png from ``stradask recommend --map``.
"""

import argparse
import functools
import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from scipy.special import digamma, polygamma

import stradask as sd
from stradask.algorithms.bayes.combine import combine
from stradask.benchmarks.pages.page import COLOURS

HERE = Path(__file__).parent


def axes_of(figure, **settings):
    """Axes with two spines and a light grid."""
    axes = figure.subplots()
    axes.set(**settings)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return axes


def rotation(n=3):
    """Which block of words each shard of documents has in each step of a sweep."""
    figure = Figure(figsize=(7.5, 2.6), layout="constrained")
    for step, axes in enumerate(figure.subplots(1, n)):
        grid = np.zeros((n, n))
        for shard in range(n):
            block = (shard + step) % n
            grid[shard, block] = shard + 1
            axes.text(block, shard, f"worker {shard}", ha="center", va="center", color="white", fontsize=8)
        colours = ["#eeeeee", *COLOURS[:n]]
        axes.imshow(grid, cmap=ListedColormap(colours), vmin=0, vmax=n)
        axes.set_title(f"step {step + 1}")
        axes.set_xlabel("blocks of words")
        axes.set_xticks(range(n), [str(i) for i in range(n)])
        axes.set_yticks(range(n), [str(i) for i in range(n)])
        if step == 0:
            axes.set_ylabel("shards of documents")
    return figure


def gpu_sweeps(documents=2000, max_iter=100):
    """Joint log-likelihood a sweep of the samplers that run on a GPU, and of Gibbs sampling."""
    X, *_ = sd.datasets.make_lda_corpus(documents, 2000, 50, mean_length=150, random_state=0)
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = axes_of(figure, xlabel="sweeps", ylabel="joint log-likelihood per token", xscale="log")
    for colour, sampler in zip(COLOURS, ("gibbs", "light", "saber"), strict=False):
        lda = sd.LatentDirichletAllocation(50, sampler=sampler, max_iter=max_iter, random_state=0).fit(X)
        likelihoods = lda.history_["objective"]
        known = np.isfinite(likelihoods)  # it is measured now and then
        sweeps = np.arange(1, len(likelihoods) + 1)
        axes.plot(sweeps[known], likelihoods[known], "o-", color=colour, label=f'"{sampler}"', markersize=3)
    axes.legend(frameon=False)
    return figure


def shards(rows=8_000, n_samples=1000):
    """A rare event: the posterior of all the rows, and three combinations of ten shards."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 4))
    y = rng.random(rows) < 1 / (1 + np.exp(4.2 - X @ [0.8, -0.5, 0.3, 0.0]))
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = axes_of(figure, xlabel="intercept", ylabel="density")
    for colour, (label, settings) in zip(
        COLOURS,
        {
            "all rows": {},
            'combine="auto"': {"n_shards": 10},
            'combine="consensus"': {"n_shards": 10, "combine": "consensus"},
            'combine="average"': {"n_shards": 10, "combine": "average"},
        }.items(),
        strict=False,
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what speaks against a combination is what the picture shows
            model = sd.BayesianLogisticRegression(
                sampler="nuts", n_samples=n_samples, random_state=0, **settings
            )
            draws = model.fit(X, y).posterior_.draws[:, -1]
        heights, edges = np.histogram(draws, bins=40, density=True)
        axes.stairs(heights, edges, color=colour, label=label, linewidth=1.8)
    axes.legend(frameon=False)
    return figure


def combiners(dimensions=(1, 2, 5, 10, 20, 50, 100), numbers=(2, 4, 8, 16, 32, 64), n_seeds=3):
    """Errors of combinations of skewed shards, whose product is known, by parameters and by shards."""
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    sweeps = ("parameters", [(8, d) for d in dimensions]), ("shards", [(M, 5) for M in numbers])
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (label, cases) in zip(panels, sweeps, strict=True):
        ticks = dimensions if label == "parameters" else numbers
        title = "8 shards" if label == "parameters" else "5 parameters"
        axes.set(xlabel=label, xscale="log", yscale="log", title=title)
        methods = ("parametric", "nonparametric", "semiparametric", "auto")
        for colour, method in zip(COLOURS, methods, strict=False):
            errors = [_error_of_product(method, *case, n_seeds) for case in cases]
            axes.plot(ticks, errors, "o-", color=colour, label=f'"{method}"', markersize=4)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("error of means, in posterior sd")
    panels[0].legend(frameon=False, loc=(0.45, 0.3))
    return figure


def _error_of_product(method, M, d, n_seeds, T=300, k=4):
    """Root mean square error of the means of M shards of d logarithms of Gamma(k) variables, T draws each."""
    squares = []
    for seed in range(n_seeds):
        draws = np.log(np.random.default_rng(seed).gamma(k, 1, (M, T, d)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what speaks against a combination is what the picture shows
            found = combine(
                draws,
                method=method,
                gradients=k - np.exp(draws),
                value_and_grad=lambda u: (M * (k * u - np.exp(u)).sum(axis=1), M * (k - np.exp(u))),
                random_state=seed,
            )
        weights = None if found.log_weights is None else np.exp(found.log_weights)
        mean = np.average(found.draws, axis=0, weights=weights)
        squares.append((mean - digamma(M * k) + np.log(M)) ** 2 / polygamma(1, M * k))
    return np.sqrt(np.mean(squares))


def factorization(ratings=60_000, most=16):
    """Held-out error after more and more iterations of three solvers."""
    users = ratings // 60
    noise = 0.5
    R, _ = sd.datasets.make_ratings(users, 600, 8, density=ratings / users / 600, noise=noise, random_state=0)
    observed, held_out = sd.datasets.rating_split(R, random_state=0)
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = axes_of(figure, xlabel="iterations", ylabel="held-out root mean square error", xscale="log")
    iterations = [n for n in (2, 4, 8, 16, 32) if n <= most]
    for colour, (solver, settings) in zip(
        COLOURS, {"als": {"reg": 0.1}, "sgd": {"reg": 0.03}, "gibbs": {}}.items(), strict=False
    ):
        errors = []
        for n in iterations:
            model = sd.MatrixFactorization(8, solver=solver, max_iter=n, random_state=0, **settings)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that so few iterations are not enough
                errors.append(-model.fit(observed).score(held_out))
        axes.plot(iterations, errors, "o-", color=colour, label=f'solver="{solver}"', markersize=4)
    axes.axhline(noise, color="0.5", linestyle=":", linewidth=1)
    axes.set_xticks(iterations, [str(n) for n in iterations])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure


def optimizers(rows=20_000, columns=50):
    """Excess against steps of four ways to fit one badly scaled logistic regression."""
    rng = np.random.default_rng(0)
    scales = np.geomspace(0.01, 100, columns)
    X = rng.standard_normal((rows, columns)) * scales
    y = X @ (rng.standard_normal(columns) / scales) / 4 + rng.logistic(size=rows) > 0

    def loss(portion, w):
        X, y = portion
        margin = y * (X @ w)
        return np.logaddexp(0, -margin).sum(), -X.T @ (y / (1 + np.exp(margin)))

    signs = np.where(y, 1.0, -1.0)
    found = {}
    for solver in ("auto", "newton", "sandblaster"):
        history = sd.LogisticRegression(solver=solver, C=1e6, fit_intercept=False).fit(X, y).history_
        found[f'solver="{solver}"'] = history["objective"] / 1e6
    portions = [(X[part], signs[part]) for part in np.array_split(np.arange(rows), 16)]
    plain = sd.minimize(loss, np.zeros(columns), portions, max_iter=200).history
    found["minimize: L-BFGS alone"] = plain["objective"][1:]
    best = min(np.min(objective) for objective in found.values())
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = axes_of(figure, xlabel="steps", ylabel="excess over the minimum", xscale="log", yscale="log")
    for colour, (label, objective) in zip(COLOURS, found.items(), strict=False):
        excess = np.maximum(objective / best - 1, 1e-9)
        axes.plot(
            np.arange(1, len(excess) + 1),
            excess,
            "o-",
            color=colour,
            label=label,
            linewidth=1.5,
            markersize=3,
        )
    axes.legend(frameon=False)
    return figure


def which_plan():
    """The simulated step of the plan of which-plan.md."""
    from stradask.scheduler.planning import Link, Profile

    profile = Profile(
        forward=[[0.006, 0.040], [0.005, 0.034], [0.004, 0.030], [0.003, 0.020]],
        backward=[[0.012, 0.081], [0.010, 0.070], [0.008, 0.060], [0.006, 0.041]],
        rows=[32, 256],
        activation_bytes=[65536, 32768, 16384, 4000],
        parameter_bytes=[2e6, 5e6, 20e6, 400e6],
        update=[0.001, 0.001, 0.002, 0.03],
    )
    plan = sd.scheduler.plan_pipeline(profile, 2, Link(1e-3, 1.25e9), batch_size=256)
    figure = Figure(figsize=(8, 2.0), layout="constrained")
    plan.timeline().plot(axes=figure.subplots())
    return figure


def topic_effects(max_iter=800):
    """Effects of a package on the topics of docstrings; the code is on topics-covariates.md."""
    corpus = sd.datasets.load_docstrings()
    package = np.array([name.partition(".")[0] for name in corpus.names])
    few = np.isin(package, ["numpy", "scipy", "sklearn"])
    X, package = corpus.X[few], package[few]
    length = np.log1p(np.asarray(X.sum(axis=1)).ravel())
    dmr = sd.DMRTopicModel(12, max_iter=max_iter, random_state=0)
    dmr.fit(X, covariates={"package": package, "log_length": length}, vocabulary=corpus.vocabulary)
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    names = [" ".join(words) for words in dmr.topics(n_words=3)]
    dmr.effects().plot("package=sklearn", names=names, ax=figure.subplots())
    return figure


def topic_responses(max_iter=300):
    """Coefficients of the topics of docstrings for their packages; the code is on topics-responses.md."""
    corpus = sd.datasets.load_docstrings()
    package = np.array([name.partition(".")[0] for name in corpus.names])
    few = np.isin(package, ["numpy", "scipy", "sklearn"])
    X, package = corpus.X[few], package[few]
    test = np.arange(len(package)) % 4 == 0
    slda = sd.SupervisedLDA(12, response="class", max_iter=max_iter, random_state=0)
    slda.fit(X[~test], package[~test], vocabulary=corpus.vocabulary)
    seen = np.asarray(X[~test].sum(axis=0)).ravel() > 0  # other words say nothing, with a warning
    score = slda.score(X[test].multiply(seen).tocsr(), package[test])
    print(slda.topics(n_words=6), score, slda.coef_.round(1), sep="\n")
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.subplots()
    order = np.argsort(slda.coef_[2] - slda.coef_[0])
    for number, (label, mark) in enumerate(zip(slda.classes_, "os^", strict=True)):
        axes.plot(slda.coef_[number, order], np.arange(12), mark, label=label)
    names = [" ".join(words) for words in slda.topics(n_words=3)]
    axes.set_yticks(np.arange(12), [names[k] for k in order])
    axes.set_xlabel("coefficient of the topic's share")
    axes.axvline(0, color="0.7", linewidth=0.8)
    axes.legend(frameon=False)
    return figure


def topic_stability(max_iter=200, n_seeds=5):
    """Which topics of docstrings come back from other seeds."""
    corpus = sd.datasets.load_docstrings()
    lda = sd.LatentDirichletAllocation(20, max_iter=max_iter, random_state=0)
    lda.fit(corpus.X, vocabulary=corpus.vocabulary)
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    found = lda.stability(corpus.X, n_seeds)
    print(found)
    found.plot(names=[" ".join(words) for words in lda.topics(n_words=3)], ax=figure.subplots())
    return figure


def residuals(rows=1_000):
    """Residuals of overdispersed counts: of a Poisson model, and of a negative binomial one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 2))
    y = rng.poisson(rng.gamma(2.0, np.exp(X @ [0.5, 0.0] + 0.5) / 2.0))
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    axes = figure.subplots(1, 4)
    for pair, family in zip((axes[:2], axes[2:]), ("poisson", "negative-binomial"), strict=True):
        sd.plot_residuals(sd.GLM(family).fit(X, y), X, y, random_state=0, axes=pair)
        pair[0].set_title(family)
    return figure


PICTURES = {
    "topic-stability": topic_stability,
    "topic-effects": topic_effects,
    "topic-responses": topic_responses,
    "rotation": rotation,
    "gpu-sweeps": gpu_sweeps,
    "shards": shards,
    "combiners": combiners,
    "factorization": factorization,
    "optimizers": optimizers,
    "which-plan": which_plan,
    "residuals": residuals,
}
# The same with little data, to see that it runs.
SMALL = {
    "topic-stability": functools.partial(topic_stability, 10, 2),
    "topic-effects": functools.partial(topic_effects, 800),
    "topic-responses": functools.partial(topic_responses, 10),
    "gpu-sweeps": functools.partial(gpu_sweeps, 60, 4),
    "shards": functools.partial(shards, 4_000, 60),
    "combiners": functools.partial(combiners, (1, 2), (2, 4), 1),
    "factorization": functools.partial(factorization, 6_000, 2),
    "optimizers": functools.partial(optimizers, 500, 5),
}


def main(arguments=None):
    """Draw pictures into this folder, or into --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)} (all)")
    parser.add_argument("--small", action="store_true", help="little data: does it run?")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - PICTURES.keys():
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(PICTURES)}")
    for name in args.names or PICTURES:
        draw = SMALL.get(name, PICTURES[name]) if args.small else PICTURES[name]
        draw().savefig(args.out / f"{name}.png", dpi=100)
        print(args.out / f"{name}.png", flush=True)


if __name__ == "__main__":
    sys.exit(main())
