"""Gradients a second of a logistic regression: one chain, and two or four that share each pass over the rows.

``python -m stradask.benchmarks.experiments.mcmc.shared_passes`` takes turns: one, two and four vectors a pass
on one thread, four in a pass that a team of two threads shares, two threads with a single chain each, and
numpy's reading of the same memory. It prints the best and the median of the turns in wall-clock time:
gradients a second, of reading passes a second.
"""

import argparse
import statistics
import time

import numpy as np

from ....algorithms.bayes.chains.sampling import Team
from ....algorithms.bayes.models.model import regression
from ....scheduler.threads import run_tasks
from ...pages.tables import Table


def measure(n, d, dtype, turns, length):
    """Return seconds a gradient of each way, for n rows and d columns: a dict of lists, one entry a turn.

    `length` is about the seconds that one chain alone takes in a turn.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    model = regression("bernoulli", X, np.where(rng.random(n) < 0.5, 1.0, -1.0))
    team = Team(model, 2)
    points = 0.01 * rng.standard_normal((4, d))
    n_evaluations = max(1, int(length / _seconds(model, points[:1], 3)))
    found: dict[str, list[float]] = {}
    for turn in range(turns + 1):
        for name, seconds in _ways(model, team, points, n_evaluations):
            if turn:  # the first warms up
                found.setdefault(name, []).append(seconds)
    return found


def _ways(model, team, points, n):
    for many in (1, 2, 4):
        yield f"{many} a pass, 1 thread", _seconds(model, points[:many], n // many + 1)
    yield "4 a pass, team of 2", team.run(lambda: _seconds(team.model, points, n // 2 + 1))
    tasks = [(_seconds, (model, points[:1], n))] * 2
    yield "1 a pass, 2 threads", max(run_tasks(tasks, 2)) / 2
    rows = model.data.view(np.uint64)
    started = time.perf_counter()
    np.bitwise_or.reduce(rows)
    yield "reading alone, 1 thread", time.perf_counter() - started


def _seconds(model, points, n):
    """Wall time of a gradient, in n evaluations of all points together."""
    gradients, logps = np.empty_like(points), np.empty(len(points))
    started = time.perf_counter()
    for _ in range(n):
        model.together(len(points), points, gradients, logps, model.data, model.meta)
    return (time.perf_counter() - started) / (n * len(points))


def _rate(seconds):
    return f"{1 / seconds:,.0f}"


def main(arguments=None):
    """Measure, and print a table for each precision."""
    parser = argparse.ArgumentParser(
        prog="python -m stradask.benchmarks.experiments.mcmc.shared_passes", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a turn")
    options = parser.parse_args(arguments)
    for dtype in ("float64", "float32"):
        found = measure(options.rows, options.columns, dtype, options.turns, options.seconds)
        one = statistics.median(found["1 a pass, 1 thread"])
        body = [
            [name, _rate(min(own)), _rate(statistics.median(own)), f"{one / statistics.median(own):.2f}"]
            for name, own in found.items()
        ]
        header = [f"{options.rows:,} x {options.columns}, {dtype}", "best", "median", "of one alone"]
        print(Table(body, header).text(), end="\n\n")


if __name__ == "__main__":
    main()
