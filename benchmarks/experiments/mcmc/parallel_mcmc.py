"""Ways to run MCMC in parallel without communication, compared: error against seconds and bytes sent.

    python -m stradask.benchmarks.experiments.mcmc.parallel_mcmc [--quick] [--out FOLDER]
    python -m stradask.benchmarks.experiments.readme parallel-mcmc

Problems: a logistic regression (50,000 x 50), a mixture and a hierarchical Poisson-gamma model, the three
kinds of Neiswanger, Wang and Xing (2014); a rare event in 40,000 x 20, as in Scott et al. (2016); a
dose-response curve with a long shoulder, for which no normal density serves. Means and standard deviations
are known from quadrature or importance sampling (`mcmc_cases`). Each shard has two chains of several lengths,
the same for every method. A coreset (`coreset`; the logistic regressions) has no chains of shards but chains
of weighted rows, whose weights follow sums from the shards in several numbers of steps.

- "s" are CPU seconds of the slowest shard and of the combination, shards on cores of their own, warm-up
  counted and compiling not. A full chain has all rows on one core.
- "KB sent" is what one shard sends: draws, and where a method needs them gradients and log densities of
  proposals; "messages" counts its answers. What it receives are the proposals, of the size of draws. For a
  full chain a shard sends its rows.

One JSON line goes to ``FOLDER/records.jsonl``, the table and the picture to ``FOLDER/table.md`` and
``FOLDER/errors.png``; the second command rewrites the table and the picture of
docs/parallel-mcmc.md from the last one. Dotted in the picture: the error of 4,000 independent draws.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from ....algorithms.bayes.chains.sampling import sample_model
from ....algorithms.bayes.combine.combiners import COMBINERS, CombinationRefused, CombinationWarning, combine
from ....algorithms.bayes.models.density import user_model
from ....algorithms.bayes.models.model import Prior, regression
from ....scheduler.threads import single_threaded_blas
from ...mcmc_cases import PRIOR_SCALE, load, start, truth
from ...pages.page import COLOURS
from ...pages.tables import Table
from ...run import append_record, describe_machine
from ...solvers.mcmc.mcmc_stradask import DENSITIES
from ..readme import ROOT
from .coreset import coreset_draws

PROBLEMS = {"logistic": 10, "mixture": 10, "poisson-gamma": 10, "rare": 20, "saturation": 5}  # and shards
QUICK = {"logistic": 4}
METHODS = ("average", "consensus", "swiss", "parametric", "nonparametric", "semiparametric", "auto")
LENGTHS, QUICK_LENGTHS = (50, 150, 500, 1500), (200,)  # of each of two chains
STEPS, QUICK_STEPS = (3, 5, 10, 20), (5,)  # of a coreset
N_CHAINS, N_WARMUP, N_DRAWS = 2, 500, 4000
_NUMBER = 8  # bytes
_NAMES = (*METHODS, "coreset", "full chain")
_COLOURS = (*COLOURS, "#8C564B", "#7F7F7F")
_MARKERS = "ov^s<>oDs"
_REFUSED = "auto refused"
_EXACT = 1 / np.sqrt(N_DRAWS)  # error of as many independent draws of the posterior
_AXES = (("seconds", 1, "CPU seconds of the slowest core"), ("sent", 1000, "KB that a shard sends"))
_COLUMNS = ["problem", "method", "error of means, sd", "of log sd", "s", "messages", "KB sent", ""]


class Shards:
    """Models of all shards, whose work is timed and whose answers are counted."""

    def __init__(self, models):
        self.models = models
        self.messages = self.numbers = 0
        self.elsewhere = 0.0  # seconds that shards of their own cores would not have waited

    def sampled(self, length, seed):
        """Sample all shards; returns draws and gradients (M, chains, T, d) and seconds of the slowest."""
        made, seconds = [], []
        for shard, model in enumerate(self.models):
            begun = time.process_time()
            made.append(sampled(model, length, seed, shard))
            seconds.append(time.process_time() - begun)
        draws, gradients = (np.stack([s.stacked(*name) for s in made]) for name in ((), ("gradients",)))
        return draws, gradients, max(seconds)

    def log_density(self, points):
        """Sum of the log densities, one number a point."""
        return self._sum(lambda model: model.logp_batch(points), len(points))

    def value_and_grad(self, points):
        """The same and the gradients."""
        both = self._sum(lambda model: np.column_stack(model.logp_grads(points)), points.size + len(points))
        return both[:, 0], both[:, 1:]

    def _sum(self, function, numbers):
        self.messages, self.numbers = self.messages + 1, self.numbers + numbers
        total, seconds = 0.0, []
        for model in self.models:
            begun = time.process_time()
            total = total + function(model)
            seconds.append(time.process_time() - begun)
        self.elsewhere += sum(seconds) - max(seconds)
        return total


def sampled(model, length, seed, shard=0):
    """Two chains of a model by the sampler that "auto" takes, without weights."""
    counts = {"n_samples": length, "n_chains": N_CHAINS, "n_warmup": N_WARMUP, "n_jobs": 1}
    return sample_model(model, seed=seed, shard=shard, weighted=False, **counts)


def model_of(kind, arrays, rows, power):
    """The posterior of these rows, with this power of the prior."""
    if kind == "logistic":
        signs, prior = 2.0 * arrays["y"][rows] - 1, Prior("normal", PRIOR_SCALE)
        return regression("bernoulli", arrays["X"][rows], signs, prior=prior, power=power)
    columns = [arrays[name][rows] for name in ("x", "y", "s") if name in arrays]
    data = np.column_stack(columns) if len(columns) > 1 else columns[0]
    likelihood, prior_density = DENSITIES[kind]()
    return user_model(likelihood, prior_density, data, start(kind, arrays), power=power)


def errors(draws, log_weights, known):
    """Root mean square errors of means, in posterior standard deviations, and of log standard deviations."""
    weights = np.full(len(draws), 1 / len(draws)) if log_weights is None else np.exp(log_weights)
    mean = weights @ draws
    sd = np.sqrt(weights @ (draws - mean) ** 2)
    return {
        "mean_error": float(np.sqrt(np.mean(((mean - known.mean) / known.sd) ** 2))),
        "sd_error": float(np.sqrt(np.mean(np.log(sd / known.sd) ** 2))),
    }


def compared(problem, n_shards, lengths, steps, *, quick, seed, tell):
    """Records of one problem: every method at every length, and chains of all rows."""
    kind, arrays = load(problem, seed=seed, quick=quick)
    known, n = truth(kind, arrays, seed), len(arrays["y"])
    order = np.random.default_rng(seed).permutation(n)
    models = [model_of(kind, arrays, np.sort(part), 1 / n_shards) for part in np.array_split(order, n_shards)]
    draws, gradients, _ = Shards(models).sampled(lengths[0], seed)
    for method in METHODS:
        _combined(models, draws, gradients, method, known, seed)  # compiles, or loads what is compiled
    found = []
    for length in lengths:
        draws, gradients, slowest = Shards(models).sampled(length, seed)
        for method in METHODS:
            found.append(_combined(models, draws, gradients, method, known, seed))
            found[-1] |= {"problem": problem, "shards": n_shards, "length": length}
            found[-1]["seconds"] += slowest
            tell(f"{problem}, {length} draws a chain, {method}: {found[-1]}")
    for n_steps in steps if kind == "logistic" else ():
        found.append(_by_coreset(models, arrays, n_steps, known, seed))
        found[-1] |= {"problem": problem, "shards": n_shards, "length": n_steps}
        tell(f"{problem}, {n_steps} steps, coreset: {found[-1]}")
    whole = model_of(kind, arrays, slice(None), 1.0)
    for length in lengths:
        begun = time.process_time()
        chains = sampled(whole, length, seed).stacked()
        figures: dict = {"seconds": time.process_time() - begun, "messages": 1}
        width = sum(array.size for array in arrays.values()) / n
        figures |= {"sent": int(n / n_shards * width) * _NUMBER, "method": "full chain", "note": ""}
        figures |= errors(chains.reshape(-1, chains.shape[-1]), None, known)
        found.append(figures | {"problem": problem, "shards": 1, "length": length})
        tell(f"{problem}, {length} draws a chain, of all rows: {found[-1]}")
    return found


def _combined(models, draws, gradients, method, known, seed):
    """Combine by one method, with the densities of shards for "auto" alone."""
    shards = Shards(models)
    scored = method == "auto"
    given = {"log_density": shards.log_density, "value_and_grad": shards.value_and_grad} if scored else {}
    begun = time.process_time()
    result: dict = {"method": method, "note": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CombinationWarning)  # the errors are what is looked at
        try:
            made = combine(
                draws,
                gradients=gradients if scored or "gradients" in COMBINERS[method].needs else None,
                method=method,
                n_draws=N_DRAWS,
                random_state=seed,
                **given,
            )
        except CombinationRefused as error:
            result["note"] = f"refused: {error}"
        else:
            result |= errors(made.draws, made.log_weights, known)
            if scored:
                worth = f", k-hat {made.figures['k_hat']:.2f}" if "k_hat" in made.figures else ""
                result["note"] = f"{made.method}{worth}"
    result["seconds"] = time.process_time() - begun - shards.elsewhere
    result["messages"] = 1 + shards.messages
    result["sent"] = _NUMBER * (draws[0].size * (1 + scored) + shards.numbers)
    return result


def _by_coreset(models, arrays, n_steps, known, seed):
    """Draws from weighted rows; the shards answer with log likelihoods, which lack the prior."""
    shards, X = Shards(models), arrays["X"]

    def sums(points):
        return shards.log_density(points) + (points**2).sum(axis=1) / (2 * PRIOR_SCALE**2)

    begun = time.process_time()
    counts = {"n_steps": n_steps, "n_warmup": N_WARMUP, "n_draws": N_DRAWS}
    draws, m = coreset_draws(X, 2.0 * arrays["y"] - 1, sums, **counts, seed=seed)
    result: dict = {"method": "coreset", "note": f"{m} weighted rows"}
    result |= {"seconds": time.process_time() - begun - shards.elsewhere, "messages": 1 + shards.messages}
    rows_sent = m * (X.shape[1] + 1) // len(models)
    return result | {"sent": _NUMBER * (rows_sent + shards.numbers)} | errors(draws, None, known)


def table(record):
    """Return the table of the longest runs of each problem and method, in Markdown."""
    last: dict[tuple, dict] = {}
    for run in record["runs"]:
        last[run["problem"], run["method"]] = run
    lines = []
    for (problem, method), run in last.items():
        shown = [f"{run[name]:.3f}" if name in run else "" for name in ("mean_error", "sd_error")]
        note = run["note"].split(":")[0] if run["note"].startswith("refused") else run["note"]
        sent = f"{run['sent'] / 1000:,.0f}"
        lines.append([problem, method, *shown, f"{run['seconds']:.2f}", str(run["messages"]), sent, note])
    return Table(lines, _COLUMNS).markdown()


def picture(record):
    """Draw errors of means against seconds, and against what a shard sends, a column a problem."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    problems = list(dict.fromkeys(run["problem"] for run in record["runs"]))
    figure = Figure(figsize=(2.7 * len(problems) + 0.5, 6.2), layout="constrained")
    panels = figure.subplots(2, len(problems), sharey=True, squeeze=False)
    for column, problem in zip(panels.T, problems, strict=True):
        for axes, (name, unit, words) in zip(column, _AXES, strict=True):
            for method in _NAMES:
                runs = [r for r in record["runs"] if (r["problem"], r["method"]) == (problem, method)]
                _line(axes, [(run[name] / unit, run.get("mean_error")) for run in runs], method)
            axes.set(xscale="log", yscale="log", xlabel=words)
            axes.axhline(_EXACT, color="0.4", linewidth=0.8, linestyle=":")
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(alpha=0.25)
        column[0].set_title(problem)
    for axes in panels[:, 0]:
        axes.set_ylabel("error of means, in posterior sd")
    by_name = {line.get_label(): line for axes in panels.flat for line in axes.lines}
    shown = [name for name in (*_NAMES, _REFUSED) if name in by_name]
    columns = -(-len(shown) // 2)
    handles = [by_name[name] for name in shown]
    figure.legend(handles, shown, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _line(axes, places, method):
    """Draw one method's errors; where it refused, a cross at the top."""
    number = _NAMES.index(method)
    style = {"color": _COLOURS[number], "marker": _MARKERS[number], "linewidth": 1, "markersize": 4.5}
    if method in ("consensus", "swiss"):  # often where "parametric" is: seen around it
        style |= {"markerfacecolor": "none", "markersize": 9 if method == "consensus" else 7}
    if method == "full chain":
        style |= {"linestyle": "--"}
    if method == "auto":
        style |= {"linewidth": 2, "zorder": 4}
    kept = [(x, y) for x, y in places if y is not None]
    if kept:
        axes.plot(*zip(*kept, strict=True), label=method, **style)
    refused = [x for x, y in places if y is None]
    if refused:
        top = axes.get_xaxis_transform()  # x of the data, y from 0 to 1
        ends = {"transform": top, "linestyle": "", "marker": "x", "color": style["color"], "clip_on": False}
        axes.plot(refused, [1.0] * len(refused), label=_REFUSED, **ends)


def main(arguments=None):
    """Run all problems and keep a record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little data: does it run?")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks/results/parallel-mcmc", metavar="FOLDER"
    )
    args = parser.parse_args(arguments)
    problems = QUICK if args.quick else PROBLEMS
    lengths = (QUICK_LENGTHS, QUICK_STEPS) if args.quick else (LENGTHS, STEPS)

    def tell(line):
        print(line, file=sys.stderr, flush=True)

    record = {"quick": args.quick, "runs": []}
    for problem, n_shards in problems.items():
        with single_threaded_blas():  # for seconds of one core
            record["runs"] += compared(problem, n_shards, *lengths, quick=args.quick, seed=0, tell=tell)
    record["machine"] = describe_machine()
    args.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps(append_record(args.out / "records.jsonl", record)))
    (args.out / "table.md").write_text(table(record) + "\n", encoding="utf-8")
    picture(record).savefig(args.out / "errors.png", dpi=100)


if __name__ == "__main__":
    main()
