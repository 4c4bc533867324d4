"""How the cost of a fit grows: ``python -m stradask.benchmarks.growth``.

One size at a time is doubled while all else stays, and the CPU seconds and the memory of a fit beyond its
input are measured on one thread. The slope of the last points on log axes is the exponent; beside it stands
the one that the documentation promises, and one that is larger by more than 0.2 is marked.
"""

import argparse
import gc
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import datasets
from .run import append_record, describe_machine

TOLERATED = 0.2  # beyond the promised exponent
_LAST = 4  # points for the slope: smaller sizes tell of fixed costs
_ENOUGH = 0.5  # seconds of repeated fits


@dataclass(frozen=True)
class Sweep:
    """One size that grows.

    Parameters
    ----------
    family, size : str
    sizes : sequence of int
    make : callable
        ``make(size)`` returns a function without arguments that fits once, its input made already.
    promised, promised_memory : float
        Largest exponents of seconds and of bytes.
    """

    family: str
    size: str
    sizes: tuple[int, ...]
    make: Callable
    promised: float
    promised_memory: float


def sweeps(quick=False):
    """Return all sweeps; quick ones have two doublings of small sizes."""

    def sizes(first, n=6):
        return tuple(first * 2**i for i in range(3 if quick else n))

    def lda(documents, topics, sampler):
        import stradask as sd

        X, _, _ = datasets.make_lda_corpus(documents, 2000, 50, mean_length=100, random_state=0)
        settings = {"sampler": sampler, "max_iter": 5, "random_state": 0}
        return lambda: sd.LatentDirichletAllocation(topics, **settings).fit(X)

    def lasso(rows, columns):
        import stradask as sd

        rng = np.random.default_rng(0)
        X = np.asfortranarray(rng.standard_normal((rows, columns)))
        y = X[:, :10].sum(axis=1) + rng.standard_normal(rows)
        alpha = np.abs(X.T @ y).max() / rows / 20
        return lambda: sd.Lasso(alpha, tol=1e-6).fit(X, y)

    def logistic(rows, columns):
        import stradask as sd

        rng = np.random.default_rng(0)
        X = rng.standard_normal((rows, columns))
        y = X[:, 0] + rng.logistic(size=rows) > 0
        return lambda: sd.LogisticRegression().fit(X, y)

    def factors(ratings, n_components, solver):
        import stradask as sd

        rows = max(50, ratings // 40)
        R, _ = datasets.make_ratings(rows, 1000, 8, density=ratings / rows / 1000, random_state=0)
        settings = {"solver": solver, "max_iter": 3, "random_state": 0}
        return lambda: sd.MatrixFactorization(n_components, **settings).fit(R)

    def posterior(rows, draws):
        import stradask as sd

        rng = np.random.default_rng(0)
        X = rng.standard_normal((rows, 10))
        y = X[:, 0] + rng.logistic(size=rows) > 0
        settings = {"sampler": "nuts", "n_chains": 1, "n_warmup": 200, "random_state": 0}
        return lambda: sd.BayesianLogisticRegression(n_samples=draws, **settings).fit(X, y)

    return [
        Sweep("lda, gibbs", "documents", sizes(500), lambda n: lda(n, 50, "gibbs"), 1.0, 1.0),
        Sweep("lda, gibbs", "topics", sizes(16), lambda n: lda(2000, n, "gibbs"), 1.0, 1.0),
        Sweep("lda, warp", "topics", sizes(16, 9), lambda n: lda(2000, n, "warp"), 0.5, 1.0),
        Sweep("lasso", "columns", sizes(500), lambda n: lasso(500, n), 1.1, 1.0),
        Sweep("lasso", "rows", sizes(500), lambda n: lasso(n, 1000), 1.1, 1.0),
        Sweep("logistic", "rows", sizes(5000), lambda n: logistic(n, 50), 1.0, 1.0),
        Sweep("logistic", "columns", sizes(16), lambda n: logistic(20_000, n), 2.0, 2.0),
        Sweep("factorization, sgd", "ratings", sizes(20_000), lambda n: factors(n, 16, "sgd"), 1.0, 1.0),
        Sweep("factorization, als", "factors", sizes(8), lambda n: factors(100_000, n, "als"), 2.0, 1.0),
        Sweep("mcmc, nuts", "rows", sizes(500), lambda n: posterior(n, 200), 1.0, 1.0),
        Sweep("mcmc, nuts", "draws", sizes(200), lambda n: posterior(1000, n), 1.0, 1.0),
    ]


def measure(sweep, tell=lambda line: None):
    """Measure one sweep.

    Returns
    -------
    dict
        ``family``, ``size``, ``sizes``, ``seconds``, ``bytes``, the exponents and the promised ones.
    """
    seconds, memory = [], []
    for size in sweep.sizes:
        fit = sweep.make(size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit()  # compiled, and in the cache
            seconds.append(_seconds(fit))
            memory.append(_peak(fit))
        tell(f"{sweep.family}, {size:,} {sweep.size}: {seconds[-1]:.4f} s, {memory[-1] / 2**20:.2f} MB")
    return {
        "family": sweep.family,
        "size": sweep.size,
        "sizes": list(sweep.sizes),
        "seconds": seconds,
        "bytes": memory,
        "exponent": exponent(sweep.sizes, seconds),
        "promised": sweep.promised,
        "bytes_exponent": exponent(sweep.sizes, memory),
        "bytes_promised": sweep.promised_memory,
    }


def exponent(sizes, costs):
    """Return the slope of the last points on log axes.

    Examples
    --------
    >>> from stradask.benchmarks.growth import exponent
    >>> round(exponent([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]), 6)
    2.0
    """
    x, y = np.log(sizes[-_LAST:]), np.log(np.maximum(costs[-_LAST:], 1e-9))
    return float(np.polyfit(x, y, 1)[0])


def too_steep(record):
    """Return whether seconds or bytes grow faster than is promised."""
    return (
        record["exponent"] > record["promised"] + TOLERATED
        or record["bytes_exponent"] > record["bytes_promised"] + TOLERATED
    )


def _seconds(fit):
    """Return the fewest CPU seconds of several fits."""
    spent: list[float] = []
    while len(spent) < 2 or (sum(spent) < _ENOUGH and len(spent) < 20):
        gc.collect()
        started = time.process_time()
        fit()
        spent.append(time.process_time() - started)
    return min(spent)


def _peak(fit):
    """Return the most bytes that Python and NumPy held beyond those of before."""
    gc.collect()
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def table(records):
    """Return the figures as lines of text."""
    lines = [
        f"{'family':<20} {'size':<10} {'from':>9} {'to':>9} {'seconds':>19} {'exponent':>9} {'promised':>9} "
        f"{'MB':>17} {'exponent':>9} {'promised':>9}"
    ]
    for r in records:
        times, megabytes = r["seconds"], [value / 2**20 for value in r["bytes"]]
        mark = "  grows faster than promised" if too_steep(r) else ""
        lines.append(
            f"{r['family']:<20} {r['size']:<10} {r['sizes'][0]:>9,} {r['sizes'][-1]:>9,} "
            f"{times[0]:>9.4f} {times[-1]:>9.4f} {r['exponent']:>9.2f} {r['promised']:>9.1f} "
            f"{megabytes[0]:>8.2f} {megabytes[-1]:>8.2f} {r['bytes_exponent']:>9.2f} "
            f"{r['bytes_promised']:>9.1f}{mark}"
        )
    return "\n".join(lines)


def picture(records):
    """Return a figure of seconds and bytes over sizes, both relative to the first point, on log axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    for axes, key, title in zip(
        figure.subplots(1, 2), ("seconds", "bytes"), ("CPU seconds", "memory beyond the input"), strict=True
    ):
        for i, record in enumerate(records):
            sizes, costs = np.array(record["sizes"], float), np.array(record[key], float)
            name = f"{record['family']}: {record['size']}"
            axes.plot(
                sizes / sizes[0], costs / costs[0], marker="o", markersize=3, label=name, color=f"C{i % 10}"
            )
        most = max(record["sizes"][-1] / record["sizes"][0] for record in records)
        axes.plot([1, most], [1, most], color="0.6", linestyle=":", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlabel("size, relative to the smallest")
        axes.set_ylabel(f"{title}, relative to the smallest")
        axes.grid(alpha=0.25)
    axes.legend(fontsize=7, frameon=False)
    return figure


def main(arguments=None):
    """Run the command; return 1 where something grows faster than promised."""
    parser = argparse.ArgumentParser(prog="python -m stradask.benchmarks.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three small sizes: does it run?")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="sweeps whose family and size contain this"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("stradask-bench"))
    args = parser.parse_args(arguments)
    chosen = [sweep for sweep in sweeps(args.quick) if args.only in f"{sweep.family} {sweep.size}"]
    if not chosen:
        parser.error(f"--only {args.only!r}: no sweep of that name")
    args.out.mkdir(parents=True, exist_ok=True)
    records = []
    for sweep in chosen:
        records.append(measure(sweep, lambda line: print(line, file=sys.stderr, flush=True)))
        record = {
            "family": "growth",
            "machine": describe_machine(),
            "quick": args.quick,
            "sweep": records[-1],
        }
        append_record(args.out / "growth.jsonl", record)
    print(table(records))
    try:
        picture(records).savefig(args.out / "growth.png", dpi=120)
    except ModuleNotFoundError:
        print("no picture: matplotlib is not installed (pip install 'stradask[plot]')", file=sys.stderr)
    return int(any(map(too_steep, records)))


if __name__ == "__main__":
    sys.exit(main())
