"""Pipelines of places that wait: how near to the ideal schedules, messages and wake-ups come; and memory.

Each of K equal stages waits instead of computing, as a host does for its device, so that two cores are
enough for many places. With M micro-batches K places are at most K M / (M + K - 1) times as fast as one.
There are no peers: the ideal is a bound. Stages that compute then show the peak memory of a worker.
"""

from typing import Any

import numpy as np

from ...errors import DataError
from ...scheduler.planning import Profile
from ..engines import worker_processes
from ..pages.page import Page, where
from ..pages.tables import Table
from ..run import about_run
from .pipeline_memory import KINDS, MICRO_BATCHES, N_LAYERS, PLACES, PLANS, ROWS, WIDTH, weigh
from .planned import BATCH, measure

ORDERS = ("1f1b", "gpipe")
STEP = 0.96  # seconds of a mini-batch at one place
_DEFAULTS: dict[str, Any] = {"places": (2, 4), "micro_batches": (4, 32), "memory": True}


def equal_stages(n_places):
    """Return the profile of a network of equal layers, one a place."""
    one_row = np.full((n_places, 1), STEP / 3 / n_places) * np.array([1, BATCH]) / BATCH
    return Profile(one_row, 2 * one_row, [1024.0] * n_places, [4e4] * n_places, rows=[1, BATCH])


def ideal(n_places, micro_batches):
    """Return how many times as fast as one the places can be.

    Examples
    --------
    >>> from stradask.benchmarks.neural.pipeline import ideal
    >>> ideal(2, 4)
    1.6
    """
    return n_places * micro_batches / (micro_batches + n_places - 1)


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench pipeline`` ask for."""
    if args.against:
        raise DataError("--against: pipeline compares with a bound and has no peers")
    if args.dataset is not None:
        raise DataError("--dataset: pipeline has no data; its layers wait")
    settings = _DEFAULTS | dict(args.param)
    if settings.keys() != _DEFAULTS.keys():
        raise DataError(f"--param: pipeline has the parameters {', '.join(_DEFAULTS)}")
    if type(settings["memory"]) is not bool:
        raise DataError(f"--param: memory={settings['memory']}: give True or False")
    settings |= {name: tuple(np.atleast_1d(settings[name]).tolist()) for name in ("places", "micro_batches")}
    for name in ("places", "micro_batches"):
        if not all(type(n) is int and n > 0 for n in settings[name]):
            raise DataError(f"--param: {name}={settings[name]}: give numbers of 1 or more")
    if odd := [m for m in settings["micro_batches"] if BATCH % m]:
        raise DataError(
            f"--param: micro_batches={odd[0]}: give divisors of {BATCH}, the rows of a mini-batch"
        )
    n_rounds = args.repeats or (2 if args.quick else 5)
    common = about_run("pipeline") | {"settings": settings | {"step": STEP, "repeats": n_rounds}}
    with worker_processes(max(settings["places"])) as engine:
        for n in settings["places"]:
            stages = tuple((k, k + 1, 1) for k in range(n))
            measure(equal_stages(n), stages, 1, engine, n_steps=1, n_rounds=1)  # imports
            for order in ORDERS:
                for M in settings["micro_batches"]:
                    options: dict[str, Any] = {"n_steps": 1, "n_rounds": n_rounds, "order": order, "of": min}
                    seconds = measure(equal_stages(n), stages, M, engine, **options)
                    record = {"places": n, "micro_batches": M, "order": order, "seconds": seconds}
                    record |= {"speedup": STEP / seconds, "ideal": ideal(n, M)}
                    on_record(common | record)
                    ratio, share = record["speedup"], record["speedup"] / record["ideal"]
                    tell(f"{n} places, {order}, M = {M}: {ratio:.2f} times one, {share:.0%} of ideal")
    for name, plan in PLANS.items() if settings["memory"] else ():
        with worker_processes(plan[0]) as engine:  # each plan in new processes
            weigh(plan, engine, width=16, rows=64)  # imports
            most = weigh(plan, engine)
        record = {"plan": name, **{kind: [place[kind] for place in most] for kind in KINDS}}
        on_record(common | record)
        tell(f"{name}: a worker's peak is {max(record['peak']) / 1e6:.0f} MB")


def memory_table(records):
    """Return the table of what workers held."""
    own = [r for r in records if "plan" in r]
    one = next((max(r["peak"]) for r in own if r["plan"] == "one place"), np.nan)
    columns = {
        "peak, MB": lambda r: f"{max(r['peak']) / 1e6:.0f}",
        "of one place": lambda r: f"{max(r['peak']) / one:.2f}",
    } | {f"{kind}, MB": lambda r, kind=kind: f"{max(r[kind]) / 1e6:.0f}" for kind in KINDS[1:]}
    return Table.of([(r["plan"], r) for r in own], columns, caption="Peak memory of a worker")


def made_table(records):
    """Return the table of speeds."""
    return Table.of(
        [
            (f"{r['places']} places, {r['order']}, M = {r['micro_batches']}", r)
            for r in records
            if "places" in r
        ],
        {
            "ms a step": lambda r: f"{1e3 * r['seconds']:.0f}",
            "times one": lambda r: f"{r['speedup']:.2f}",
            "ideal": lambda r: f"{r['ideal']:.2f}",
            "share": lambda r: f"{r['speedup'] / r['ideal']:.1%}",
        },
        caption="Pipelines of places that wait",
    )


def table(records):
    """Return the tables as text."""
    return "\n".join(line for made in _tables(records) for line in (f"{made.caption}:", made.text()))


def _tables(records):
    return [made for made in (made_table(records), memory_table(records)) if made.rows]


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench pipeline: places that wait, and the ideal")
    whole.text(
        f"Stages that wait instead of computing, {1e3 * STEP:.0f} ms a mini-batch on one place, on worker "
        f"processes of {where(first)}. The best of {first['settings']['repeats']} steps, wall time. "
        + memory_setting()
    )
    for made in _tables(records):
        whole.table(*made)
    return whole.add_facts(first, "settings", "machine")


def memory_setting():
    """Say what the memory is of."""
    return (
        f"Memory is of {N_LAYERS} dense layers of {WIDTH} units, mini-batches of {ROWS} rows, SGD with "
        f"momentum; {PLACES} places have {MICRO_BATCHES} micro-batches. The peak is that of a worker's "
        "process beyond what it has before; activations, gradients and weights (with momentum) are counted. "
        "Each figure is of the worker with the most."
    )
