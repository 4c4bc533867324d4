"""Bounds of staleness: Downpour SGD over a stale-synchronous table, one replica slowed on purpose.

Objective against time for staleness 0, 1, 3, 10 and inf, where the same replica is slow all the time and
where at each clock another one is; in simulated time, which is the same on every machine, on threads that
sleep, and on two worker processes. There are no peers here: the bounds are compared with one another.
"""

import functools
import math
import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from ...errors import DataError
from ...scheduler.table.places import SimulatedClock
from ...scheduler.table.replicas import run_replicas
from ...scheduler.table.state import Adagrad
from ..engines import engines_of
from ..pages.page import COLOURS, Page, plain, where
from ..pages.tables import Table
from ..run import about_run

STALENESS = (0, 1, 3, 10, math.inf)
SLOWNESS = ("one replica", "in turns")
PLACES = ("simulated", "threads", "two processes")
N_REPLICAS, FACTOR = 4, 5.0  # a slow clock takes so many times as long
RATE, BATCH = 0.1, 20
TARGET = 1e-2
UNIT = 0.004  # seconds of a clock that is not slow, where time is real
WHOLE, QUICK = {"n": 8000, "p": 30, "clocks": 400}, {"n": 2000, "p": 10, "clocks": 150}


class Problem(NamedTuple):
    """A logistic regression, its rows in as many portions as there are replicas, and its least objective."""

    portions: list
    optimum: float

    def excess(self, w):
        """Objective over its minimum."""
        parts = [_loss(X, y, w)[0] for X, y in self.portions]
        return sum(parts) / sum(len(y) for _, y in self.portions) - self.optimum


def _loss(X, y, w):
    margin = y * (X @ w)
    return np.logaddexp(0, -margin).sum(), -X.T @ (y / (1 + np.exp(margin)))


def make_problem(*, n, p, seed):
    """Draw rows and labels, and find the minimum with scipy."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = np.sign(X @ rng.standard_normal(p) + rng.logistic(size=n))

    def mean(w):
        value, gradient = _loss(X, y, w)
        return value / n, gradient / n

    found: Any = minimize(mean, np.zeros(p), jac=True, tol=1e-10)
    return Problem([(X[r::N_REPLICAS], y[r::N_REPLICAS]) for r in range(N_REPLICAS)], float(found.fun))


def slow_clocks(slowness, n_clocks, seed):
    """How long each clock of each replica takes, shape (n_replicas, n_clocks), in units."""
    units = np.ones((N_REPLICAS, n_clocks))
    rng = np.random.default_rng(seed)
    which = N_REPLICAS - 1 if slowness == "one replica" else rng.integers(N_REPLICAS, size=n_clocks)
    units[which, np.arange(n_clocks)] = FACTOR
    return units


def work(units, unit, table, task):
    """Be a replica; return when it had which parameters, and how long it waited."""
    (X, y), seed = task
    rng, trace = np.random.default_rng(seed), []
    for clock in range(units.shape[1]):
        w = table.get()[0]
        trace.append((table.seconds, w))
        rows = rng.integers(len(y), size=BATCH)
        table.inc(0, _loss(X[rows], y[rows], w)[1] / BATCH)
        if unit:
            time.sleep(unit * units[table.replica, clock])
        table.clock()
    return trace, table.waited, table.seconds


def measure(problem, staleness, slowness, *, n_clocks, engine="simulated", seed=0):
    """Run one bound.

    ``curve`` has ``seconds`` (of `UNIT`, or simulated) and ``excess`` of the first replica's parameters;
    ``reached`` is seconds to `TARGET`, or None; ``units`` seconds in all; ``waiting`` the share of its time
    that the first replica waited for rows; ``apart`` the clocks between the fastest and the slowest when the
    slowest began the second half of its clocks.
    """
    units = slow_clocks(slowness, n_clocks, seed)
    simulated = engine == "simulated"
    place: Any = SimulatedClock(lambda replica, clock: units[replica, clock]) if simulated else engine
    done = run_replicas(
        functools.partial(work, units, 0.0 if simulated else UNIT),
        [(portion, seed + r) for r, portion in enumerate(problem.portions)],
        np.zeros((1, problem.portions[0][0].shape[1])),
        staleness=staleness,
        rule=Adagrad(RATE),
        engine=place,
    )
    trace, waited, lasted = done.results[0]
    scale = 1.0 if simulated else UNIT
    curve = {
        "seconds": [float(f"{(seconds - trace[0][0]) / scale:.6g}") for seconds, _ in trace],
        "excess": [float(f"{problem.excess(w):.4g}") for _, w in trace],
    }
    reached = _reached(curve)
    half = max(trace[n_clocks // 2][0] for trace, *_ in done.results)
    begun = max(sum(seconds <= half for seconds, _ in trace) for trace, *_ in done.results)
    return {
        "curve": curve,
        "reached": reached,
        "units": round(curve["seconds"][-1], 3),
        "waiting": round(waited / lasted, 3),
        "apart": int(begun - 1 - n_clocks // 2),
    }


def _reached(curve):
    """Time from which on the excess, its mean over ten clocks, is at most `TARGET`."""
    excess = np.convolve(curve["excess"], np.full(10, 0.1), "valid")
    below = np.flatnonzero(excess <= TARGET)
    return curve["seconds"][below[0] + 9] if len(below) else None


def engines(places):
    """Return pairs of a place and its engine, as a context."""
    return engines_of(places, {"simulated": "simulated", "threads": "local"}, n_threads=2)


def bench(*, places, quick, seed, on_record, tell):
    """Run everything: one record for each place, slowness and bound."""
    shape = QUICK if quick else WHOLE
    data = shape | {"n_replicas": N_REPLICAS, "factor": FACTOR, "batch": BATCH, "unit": UNIT}
    common = about_run("ssp") | {"seed": seed, "data": data}
    problem = make_problem(n=shape["n"], p=shape["p"], seed=seed)
    with engines(places) as where:
        for place, engine in where:
            for slowness in SLOWNESS:
                for staleness in STALENESS:
                    options = {"n_clocks": shape["clocks"], "engine": engine, "seed": seed}
                    figures = measure(problem, staleness, slowness, **options)
                    record = {"place": place, "slowness": slowness, "staleness": str(staleness)}
                    on_record({**common, **record, **figures})
                    tell(f"{place}, slow: {slowness}, s={staleness}: {figures['units']:,.0f} clocks' time")


# Tables and pictures ------------------------------------------------------------------------------------


def times_table(records):
    """Return the table of the time to the target: one row a place and slowness, one column a bound."""
    runs = {(r["place"], r["slowness"], r["staleness"]): r for r in records}
    kinds = dict.fromkeys((place, slowness) for place, slowness, _ in runs)

    def column(name):
        return lambda kind: _cell(runs[*kind, name]) if (*kind, name) in runs else ""

    caption = f"Time to an excess of {TARGET:g} (share of the time spent waiting for rows)"
    rows = [(f"{place}, slow: {slowness}", (place, slowness)) for place, slowness in kinds]
    return Table.of(rows, {f"s = {name}": column(str(name)) for name in STALENESS}, caption=caption)


def _cell(record):
    reached = "not reached" if record["reached"] is None else f"{record['reached']:,.0f}"
    return f"{reached} ({record['waiting']:.0%})"


def table(records):
    """Return the table as text."""
    unit = "in clocks that are not slow (in brackets: share waiting for rows)"
    return f"Time to an excess of {TARGET:g}, {unit}\n{times_table(records).text()}"


def picture(records):
    """Draw excess against time: a row of panels for each slowness, a column for each place."""
    from matplotlib.figure import Figure

    places = list(dict.fromkeys(record["place"] for record in records))
    drawing = Figure(figsize=(4.2 * len(places), 3.2 * len(SLOWNESS)), layout="constrained")
    grid = drawing.subplots(len(SLOWNESS), len(places), sharey=True, squeeze=False)
    for record in records:
        axes = grid[SLOWNESS.index(record["slowness"]), places.index(record["place"])]
        number = [str(s) for s in STALENESS].index(record["staleness"])
        axes.plot(
            record["curve"]["seconds"],
            np.maximum(record["curve"]["excess"], 1e-6),
            color=COLOURS[number],
            label=f"s = {record['staleness']}",
            linewidth=1.5,
        )
    for slowness, axes_row in zip(SLOWNESS, grid, strict=True):
        for place, axes in zip(places, axes_row, strict=True):
            axes.set(
                yscale="log", title=f"{place}, slow: {slowness}", xlabel="time in clocks that are not slow"
            )
            plain(axes)
        axes_row[0].set_ylabel("excess over the minimum")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 3 * len(places)))
    return drawing


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    data = first["data"]
    whole = Page("stradask bench ssp: what staleness buys")
    whole.text(
        f"A logistic regression of {data['n']:,} rows and {data['p']} columns by Downpour SGD with "
        f"{data['n_replicas']} replicas over one table, on {where(first)}. A slow clock takes "
        f"{data['factor']:g} times as long as others: those of one replica, or at each clock that of a "
        "replica that is drawn. With staleness s a replica at clock c waits until all have done c - s clocks."
    )
    caption = "Excess of the first replica's parameters against time."
    whole.figure(picture(records), caption, f"Curves of excess against time. {table(records)}")
    whole.table(*times_table(records))
    whole.text(
        "Where the same replica is slow all the time, a finite bound only puts off the moment from which the "
        "others wait for it; where slow clocks fall on one and another, it takes them up."
    )
    return whole.add_facts(first, "data", "machine")


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench ssp`` ask for."""
    if args.against:
        raise DataError("--against: ssp compares bounds of staleness with one another and has no peers")
    if args.dataset is not None:
        raise DataError("--dataset: ssp draws its own data")
    parameters: dict[str, Any] = {"cluster": True, "threads": True} | dict(args.param)
    if parameters.keys() != {"cluster", "threads"}:
        raise DataError("--param: ssp has the parameters cluster and threads")
    wanted = {"simulated": True, "threads": parameters["threads"], "two processes": parameters["cluster"]}
    places = tuple(place for place in PLACES if wanted[place])
    bench(places=places, quick=args.quick, seed=args.seed, on_record=on_record, tell=tell)
