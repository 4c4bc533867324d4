"""All-reduce of gradients over two worker processes: seconds, bytes, and what fusion saves.

Stages that compute nothing are trained on one place, whose micro-batches are summed there, and on two, which
sum by messages. The difference is the all-reduce. There are no peers here.
"""

import time
from typing import Any

import numpy as np

from ...algorithms.neural.training.optimizers import SGD
from ...algorithms.neural.training.program import Training
from ...errors import DataError
from ...scheduler import run
from ...scheduler.schedules.pipeline import Layout, PipelineSchedule
from ..engines import worker_processes
from ..pages.page import Page, where
from ..pages.tables import Table
from ..run import about_run

_DEFAULTS: dict[str, Any] = {"megabytes": (64.0, 8.0, 0.25), "parts": 64}


class Nothing:
    """A stage with parameters that computes nothing."""

    def __init__(self, n):
        self.n = n

    def start(self, seed):
        """Return zeros."""
        return np.zeros(self.n, np.float32)

    def forward(self, params, x, key):
        """Return a number for each row."""
        return np.zeros((len(x), 1), np.float32), None

    def backward(self, context, dy, grads):
        """Leave the gradient."""


def step(n, replicas, engine, *, n_rounds=4):
    """Return the least seconds of a mini-batch with n parameters, and the bytes that it sent."""
    n_steps = 4 if n > 2**20 else 32
    layout = Layout((replicas,), 2, n_steps)
    rows = np.zeros((4 * n_steps, 1), np.float32), np.zeros((4 * n_steps, 1), np.float32)
    program = Training([Nothing(n)], layout, rows, loss="squared", optimizer=SGD(1e-3))
    marks: list[float] = []

    def watch(info):
        marks.append(time.perf_counter())

    done = run(program, PipelineSchedule(layout), max_rounds=n_rounds + 1, engine=engine, callback=watch)
    sent = float(np.median(done.history.as_dict()["bytes_sent"]))
    return float(min(np.diff(marks))) / n_steps, sent / n_steps


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench allreduce`` ask for."""
    if args.against:
        raise DataError("--against: allreduce compares sizes and has no peers")
    if args.dataset is not None:
        raise DataError("--dataset: allreduce has no data; its gradients are zeros")
    settings = _DEFAULTS | dict(args.param)
    if settings.keys() != _DEFAULTS.keys():
        raise DataError(f"--param: allreduce has the parameters {', '.join(_DEFAULTS)}")
    sizes, parts = np.atleast_1d(settings["megabytes"]).tolist(), settings["parts"]
    if not all(type(mb) in (int, float) and 2**-10 <= mb < 2**12 for mb in sizes):
        raise DataError(f"--param: megabytes={settings['megabytes']}: give numbers from 0.001 to 4096")
    if type(parts) is not int or parts < 2:
        raise DataError(f"--param: parts={parts}: give how many parts are sent apart, 2 or more")
    n_rounds = args.repeats or (2 if args.quick else 6)
    common = about_run("allreduce") | {"settings": {"parts": parts, "repeats": n_rounds}}
    with worker_processes(2) as engine:
        step(1024, 2, engine, n_rounds=1)  # imports
        for megabytes in sizes:
            n = int(megabytes * 2**18)
            (one, _), (two, sent) = (step(n, k, engine, n_rounds=n_rounds) for k in (1, 2))
            (small, _), (apart, _) = (step(max(n // parts, 1), k, engine, n_rounds=n_rounds) for k in (1, 2))
            record = {"megabytes": megabytes, "seconds": max(two - one, 1e-9), "step": two}
            record |= {"bytes": sent / 2 / (4 * n), "apart": parts * max(apart - small, 1e-9)}
            on_record(common | record)
            tell(
                f"{megabytes:g} MB: {1e3 * record['seconds']:.1f} ms, {_speed(record):.0f} MB/s; in {parts} "
                f"parts {1e3 * record['apart']:.0f} ms"
            )


def _speed(record):
    return record["megabytes"] * 2**20 / 1e6 / record["seconds"]


def made_table(records):
    """Return the table of the records."""
    return Table.of(
        [(f"{r['megabytes']:g} MB", r) for r in records],
        {
            "all-reduce, ms": lambda r: f"{1e3 * r['seconds']:.1f}",
            "MB/s": lambda r: f"{_speed(r):.0f}",
            "whole step, ms": lambda r: f"{1e3 * r['step']:.1f}",
            "sent by a place, of the gradient": lambda r: f"{r['bytes']:.3f}",
            "in parts, ms": lambda r: f"{1e3 * r['apart']:.0f}",
            "parts over fused": lambda r: f"{r['apart'] / r['seconds']:.1f}",
        },
        caption="All-reduce over two processes",
    )


def table(records):
    """Return the table as text."""
    return made_table(records).text()


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench allreduce: gradients of two workers").text(setting(first))
    return whole.table(*made_table(records)).add_facts(first, "settings", "machine")


def setting(record):
    """Say what was run, and how to read the table."""
    settings = record["settings"]
    return (
        f"Gradients of all layers are one vector, summed in one exchange. Two worker processes on "
        f"{where(record)}; a step on two less one on one, the best of {settings['repeats']} rounds, wall "
        f'time; "in parts" are the same gradients in {settings["parts"]} exchanges, one after another. N '
        "workers must each send 2 (N - 1) / N of the gradient: 1.0 for two."
    )
