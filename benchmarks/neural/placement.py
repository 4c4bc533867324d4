"""Placement of graphs on places: list scheduling and REINFORCE, over what cannot be beaten.

Graphs are of the kinds that Mirhoseini and others place: a language model of stacked recurrent layers,
unrolled; a translator with attention; a network of parallel convolutions; and random ones. Seconds are
computed, not measured: the same on every machine. There are no peers here.
"""

import time
from typing import Any

import numpy as np

from ...errors import DataError
from ...scheduler.planning import Link, place_graph
from ..pages.page import COLOURS, Page, plain, where
from ..pages.tables import Table
from ..run import about_run

METHODS = ("one place", "list", "reinforce")
LINK = Link(1e-4, 1e10)
_FLOPS = 1e12  # a second, of a place


def recurrent(rng, *, layers=4, steps=20, width=1024, rows=256):
    """Stacked recurrent layers, unrolled, with a softmax on each step."""
    graph = _Graph(rng, rows)
    state = [None] * layers
    for _ in range(steps):
        below = graph.add(0.0, [], width)
        for k in range(layers):
            below = state[k] = graph.add(16.0 * width**2, [below, state[k]], width)
        graph.add(2.0 * width * 8 * width, [below], 1)
    return graph


def translator(rng, *, layers=2, steps=12, width=1024, rows=256):
    """An encoder, and a decoder that attends to each of its steps."""
    graph = _Graph(rng, rows)
    state, encoded = [None] * layers, []
    for _ in range(steps):
        below = graph.add(0.0, [], width)
        for k in range(layers):
            below = state[k] = graph.add(16.0 * width**2, [below, state[k]], width)
        encoded.append(below)
    for _ in range(steps):
        context = graph.add(4.0 * steps * width, [*encoded, state[-1]], width)
        below = graph.add(0.0, [], width)
        for k in range(layers):
            below = state[k] = graph.add(16.0 * width**2, [below, state[k], context], width)
        graph.add(2.0 * width * 8 * width, [below], 1)
    return graph


def branches(rng, *, blocks=12, width=4096, rows=64):
    """Blocks of four parallel chains of convolutions, joined after each."""
    graph = _Graph(rng, rows)
    joined = graph.add(0.0, [], width)
    for _ in range(blocks):
        ends = []
        for length in (1, 2, 3, 2):
            end = joined
            for _ in range(length):
                end = graph.add(float(rng.uniform(0.3, 1.5)) * 1e7, [end], width // 4)
            ends.append(end)
        joined = graph.add(4.0 * width, ends, width)
    return graph


def scattered(rng, *, n=200, width=1024, rows=256):
    """Operations that take the outputs of one or two earlier ones."""
    graph = _Graph(rng, rows)
    for i in range(n):
        inputs = rng.choice(i, min(i, int(rng.integers(1, 3))), replace=False).tolist() if i else []
        graph.add(float(rng.uniform(0.2, 2)) * 1e7, inputs, float(rng.uniform(0, 2 * width)))
    return graph


class _Graph:
    """Operations in the order in which they are added: their seconds, forward and backward, and edges."""

    def __init__(self, rng, rows):
        self.rows, self.cost, self.width, self.edges = rows, [], [], []

    def add(self, operations, inputs, width):
        """Add an operation of so many floating-point operations a row; return its number."""
        number = len(self.cost)
        self.cost.append(3 * operations * self.rows / _FLOPS)
        self.width.append(width)
        for source in inputs:
            if source is not None:
                self.edges.append((source, number, 8.0 * self.rows * self.width[source]))  # there and back
        return number


GRAPHS: dict[str, Any] = {
    "recurrent": recurrent,
    "translator": translator,
    "branches": branches,
    "random": scattered,
}


def measure(graph, n_places, method, *, max_iter, seed):
    """Place a graph by one method; return its seconds, the lower bound, their ratio and the CPU time."""
    began = time.process_time()
    if method == "one place":
        found = place_graph(graph.cost, graph.edges, 1, LINK)
        bound = place_graph(graph.cost, graph.edges, n_places, LINK).lower_bound
    else:
        found = place_graph(
            graph.cost, graph.edges, n_places, LINK, method=method, max_iter=max_iter, random_state=seed
        )
        bound = found.lower_bound
    return {
        "seconds": found.seconds,
        "lower_bound": bound,
        "ratio": found.seconds / bound,
        "search_seconds": time.process_time() - began,
        "history": [float(f"{found.history[i]:.6g}") for i in _some(len(found.history))],
    }


def _some(n, most=100):
    return np.unique(np.geomspace(1, n, most).astype(int)) - 1


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench placement`` ask for."""
    if args.against:
        raise DataError("--against: placement compares methods with one another and has no peers")
    names = tuple(GRAPHS) if args.dataset is None else tuple(args.dataset)
    for name in names:
        if name not in GRAPHS:
            raise DataError(f"--dataset: placement has {', '.join(GRAPHS)}, not {name!r}")
    parameters: dict[str, Any] = {"places": (2, 4, 8), "max_iter": 300 if args.quick else 2000} | dict(
        args.param
    )
    if parameters.keys() != {"places", "max_iter"}:
        raise DataError("--param: placement has the parameters places and max_iter")
    common = about_run("placement") | {"seed": args.seed}
    place_graph([1.0], [], 1, method="reinforce", max_iter=1)  # compiles
    for name in names:
        graph = GRAPHS[name](np.random.default_rng(args.seed))
        facts = {"operations": len(graph.cost), "edges": len(graph.edges)}
        for n_places in np.atleast_1d(parameters["places"]).tolist():
            for method in METHODS:
                figures = measure(graph, n_places, method, max_iter=parameters["max_iter"], seed=args.seed)
                record = {**common, "problem": name, "places": n_places, "method": method, "data": facts}
                on_record(record | {"settings": {"max_iter": parameters["max_iter"]}} | figures)
                tell(f"{name}, {n_places} places, {method}: {figures['ratio']:.3f} times the lower bound")


def _tables(records):
    runs = {(r["problem"], r["places"], r["method"]): r for r in records}
    keys = dict.fromkeys((problem, places) for problem, places, _ in runs)
    rows = [(f"{problem}, {places} places", (problem, places)) for problem, places in keys]

    def column(figure, form):
        return {
            f"{method}{', search s' if figure != 'ratio' else ''}": lambda key, m=method: (
                format(runs[*key, m][figure], form) if (*key, m) in runs else ""
            )
            for method in METHODS
            if figure == "ratio" or method != "one place"
        }

    whole = column("ratio", ".3f") | column("search_seconds", ".3g")
    return [
        Table.of(rows, whole, caption="Seconds of a step over the lower bound, and CPU seconds of the search")
    ]


def table(records):
    """Return the table as text."""
    return "\n".join(line for made in _tables(records) for line in (made.caption, made.text()))


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench placement: which place runs which operation")
    whole.text(
        f"Graphs of operations on several places, on {where(first)}. Seconds of a step are computed "
        "from a cost model "
        f"({_FLOPS:.0e} operations a second, messages of {LINK.latency:g} s and {LINK.bandwidth:.0e} bytes a "
        "second), and are the same on every machine. The lower bound is the longest path without "
        "transfers, or all work shared evenly; the optimum lies between it and the best that was found."
    )
    whole.figure(*_picture(records))
    for made in _tables(records):
        whole.table(*made)
    return whole.add_facts(first, "data", "settings", "machine")


def _picture(records):
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(record["problem"] for record in records))
    places = sorted({record["places"] for record in records})
    drawing = Figure(figsize=(3.0 * len(problems), 3.0), layout="constrained")
    for axes, problem in zip(drawing.subplots(1, len(problems), squeeze=False)[0], problems, strict=True):
        for colour, method in zip(COLOURS, METHODS, strict=False):
            own = {
                r["places"]: r["ratio"] for r in records if (r["problem"], r["method"]) == (problem, method)
            }
            axes.plot([p for p in places if p in own], list(own.values()), "o-", color=colour, label=method)
        axes.set(title=problem, xlabel="places", xscale="log", yscale="log", xticks=places)
        axes.set_xticks(places, [str(p) for p in places])
        axes.minorticks_off()
        plain(axes)
    axes.legend(fontsize=8, frameon=False)
    said = "; ".join(
        f"{r['problem']}, {r['places']} places, {r['method']}: {r['ratio']:.2f}" for r in records
    )
    return drawing, "Seconds of a step over the lower bound.", said
