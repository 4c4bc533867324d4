"""The planner against a clock: six networks, every kind of plan, predicted and measured on two worker
processes.

Layers wait instead of computing, as a host does for its device, so that the cores do not matter; parameters,
activations, sums of gradients and messages are real. The link and the optimizer are measured first. There are
no peers here: the planner's choice is compared with the best plan that was measured.
"""

import itertools
import time
from typing import Any

import numpy as np

from ...algorithms.neural.training.optimizers import SGD
from ...algorithms.neural.training.program import Training
from ...errors import DataError
from ...scheduler import run
from ...scheduler.planning import Link, Profile, plan_pipeline
from ...scheduler.schedules.pipeline import Layout, PipelineSchedule
from ..engines import engines_of
from ..pages.page import COLOURS, Page, plain, where
from ..pages.tables import Table
from ..run import about_run

BATCH, N_PLACES = 128, 2
PLACE = "two processes"
MICRO_BATCHES = (2, 4, 8, 16)
_NEAR = 0.15  # predictions this near are counted


def networks(summing, update):
    """Return the profiles by name.

    `summing` and `update` are seconds a byte of parameters: of the gradient of each micro-batch, which is
    cleared and added, and of a step of the optimizer.
    """

    def make(seconds, row_bytes, parameter_bytes):
        total = np.asarray(seconds, float)
        row_bytes, size = (
            np.broadcast_to(v, total.shape).astype(float) for v in (row_bytes, parameter_bytes)
        )
        shares = np.array([1, BATCH]) / BATCH
        forward = total[:, None] / 3 * shares
        backward = 2 * forward + (summing * size)[:, None]
        return Profile(
            forward, backward, row_bytes, size, rows=[1, BATCH], update=update * size, state_copies=0
        )

    return {
        "even": make([0.05] * 8, 1024, 4e4),
        "uneven": make([0.02, 0.03, 0.15, 0.02, 0.08, 0.05, 0.03, 0.04], 1024, 4e4),
        "three layers": make([0.1, 0.2, 0.1], 1024, 4e4),
        "large activations": make([0.05] * 8, 65536, 4e4),
        "many parameters at the end": make([0.06] * 6 + [0.04], 1024, [4e4] * 6 + [6e7]),
        "many parameters": make([0.05] * 8, 1024, 1.2e7),
    }


class Waiting:
    """A stage of layers that wait."""

    def __init__(self, profile, first, last):
        self.profile, self.span = profile, slice(first, last)
        self.width = int(profile.activation_bytes[last - 1]) // 4

    def start(self, seed):
        """Return as many parameters as the layers have."""
        return np.zeros(int(self.profile.parameter_bytes[self.span].sum()) // 4, np.float32)

    def _wait(self, work, n_rows):
        time.sleep(float(self.profile.forward[self.span, -1].sum()) * work * n_rows / BATCH)

    def forward(self, params, x, key):
        """Wait; give an output of the right size."""
        self._wait(1, len(x))
        return np.zeros((len(x), self.width), np.float32), x.shape

    def backward(self, context, dy, grads):
        """Wait; give a gradient of the right size."""
        self._wait(2, context[0])
        return np.zeros(context, np.float32)


def measure(profile, stages, micro_batches, engine, *, n_steps=3, n_rounds=3, order="1f1b", of=np.median):
    """Return the median seconds (or another statistic) of a mini-batch, of rounds after a first one."""
    layout = Layout(tuple(n for *_, n in stages), micro_batches, n_steps, order)
    X = np.zeros((BATCH * n_steps, 16), np.float32)
    y = np.zeros((BATCH * n_steps, int(profile.activation_bytes[-1]) // 4), np.float32)
    program = Training(
        [Waiting(profile, first, last) for first, last, _ in stages],
        layout,
        (X, y),
        loss="squared",
        optimizer=SGD(1e-3),
    )
    marks: list[float] = []

    def watch(info):
        marks.append(time.perf_counter())

    run(program, PipelineSchedule(layout), max_rounds=n_rounds + 1, engine=engine, callback=watch)
    return float(of(np.diff(marks))) / n_steps


def measured_costs(engine):
    """Return the link, and seconds a byte of parameters for a gradient and for a step of the optimizer.

    Of steps without work: one micro-batch takes the latency twice, and four times what a message costs a
    place; many side by side take the cost of two messages each. Sums and steps are of 64 MB, and sums of two
    places that make them at the same time, as those of a plan do. Sixteen micro-batches of a place clear and
    add seven vectors more than two; half of both is counted for each.
    """

    def step(row_bytes, size, replicas, micro_batches):
        n = len(replicas)
        profile = Profile([0] * n, [0] * n, [row_bytes] * (n - 1) + [64], [size] * n, rows=BATCH)
        stages = tuple((k, k + 1, r) for k, r in enumerate(replicas))
        return measure(profile, stages, micro_batches, engine, n_steps=4, n_rounds=5)

    few, many, both = step(64.0, 64, (1, 1), 1), step(65536.0, 64, (1, 1), 1), step(64.0, 64, (1, 1), 16)
    cpu = min(both / 32, few / 4)
    latency = few / 2 - 2 * cpu
    size = 2.0**26
    two, summed, most = (step(64.0, size, *how) for how in (((1,), 2), ((2,), 4), ((2,), 32)))
    gradient = max(most - summed, 0.0) / 14
    all_reduce = max(summed - two - 2 * (latency + 2 * cpu), 1e-9)
    link = Link(latency, 65472.0 * BATCH / max((many - few) / 2, 1e-9), cpu, size / all_reduce)
    return link, gradient / size, max(two - 2 * gradient, 0.0) / size


def plans(profile, link):
    """Return one plan of each kind, with what is predicted, and the planner's choice."""
    options: dict[str, Any] = {"batch_size": BATCH}
    found = [
        plan_pipeline(profile, 1, link, **options),
        plan_pipeline(profile, N_PLACES, link, plan="data", **options),
    ]
    for micro in MICRO_BATCHES:
        found.append(plan_pipeline(profile, N_PLACES, link, plan="pipeline", micro_batches=micro, **options))
    chosen = plan_pipeline(profile, N_PLACES, link, **options)
    by_key = {(plan.stages, plan.micro_batches): plan for plan in [*found, chosen]}
    return list(by_key.values()), chosen


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench plan`` ask for."""
    if args.against:
        raise DataError("--against: plan compares predictions with measurements and has no peers")
    if args.param:
        raise DataError("--param: plan has no parameters")
    names = tuple(networks(0.0, 0.0)) if args.dataset is None else tuple(args.dataset)
    for name in names:
        if name not in networks(0.0, 0.0):
            raise DataError(f"--dataset: plan has {', '.join(networks(0.0, 0.0))}, not {name!r}")
    common = about_run("plan") | {"seed": args.seed}
    with engines_of((PLACE,), {}, n_threads=1) as [(_, engine)]:
        measure(networks(0.0, 0.0)["three layers"], ((0, 1, 1), (1, 3, 1)), 2, engine, n_rounds=1)  # imports
        link, summing, update = measured_costs(engine)
        tell(
            f"a message takes {1e3 * link.latency:.2f} ms, {1e3 * link.cpu:.2f} ms of each place, and "
            f"{link.bandwidth / 1e6:.0f} MB a second, {link.sum_bandwidth / 1e6:.0f} in sums; a MB of "
            f"parameters {1e9 * summing:.2f} ms a micro-batch and {1e9 * update:.2f} a step"
        )
        for name in names:
            profile = networks(summing, update)[name]
            tried, chosen = plans(profile, link)
            for plan in tried:
                seconds = measure(
                    profile, plan.stages, plan.micro_batches, engine, n_rounds=2 if args.quick else 5
                )
                facts = {"latency": link.latency, "cpu": link.cpu, "bandwidth": link.bandwidth}
                facts |= {"sum_bandwidth": link.sum_bandwidth}
                facts |= {"summing": summing, "update": update}
                record = {
                    **common,
                    "problem": name,
                    "plan": f"{plan.kind} {'-'.join(map(str, plan.replicas))}, M = {plan.micro_batches}",
                    "stages": [list(stage) for stage in plan.stages],
                    "chosen": (plan.stages, plan.micro_batches) == (chosen.stages, chosen.micro_batches),
                    "predicted": plan.seconds,
                    "measured": seconds,
                    "data": facts,
                    "settings": {"batch_size": BATCH},
                }
                on_record(record)
                tell(
                    f"{name}, {record['plan']}: {1e3 * seconds:.0f} ms, predicted {1e3 * plan.seconds:.0f} "
                    f"({plan.seconds / seconds - 1:+.0%}){', chosen' if record['chosen'] else ''}"
                )


def all_tables(records):
    """Return a table of all plans, and one of the choices."""
    whole = Table.of(
        [(f"{r['problem']}, {r['plan']}{' (chosen)' if r['chosen'] else ''}", r) for r in records],
        {
            "measured, ms": lambda r: f"{1e3 * r['measured']:.0f}",
            "predicted, ms": lambda r: f"{1e3 * r['predicted']:.0f}",
            "error": lambda r: f"{r['predicted'] / r['measured'] - 1:+.0%}",
        },
        caption="A mini-batch of each plan",
    )
    groups = [(name, list(own)) for name, own in itertools.groupby(records, key=lambda r: r["problem"])]

    def best(own):
        return min(own, key=lambda r: r["measured"])

    def chosen(own):
        return next((r for r in own if r["chosen"]), best(own))

    choices = Table.of(
        groups,
        {
            "best measured": lambda own: best(own)["plan"],
            "chosen": lambda own: chosen(own)["plan"],
            "chosen over best": lambda own: f"{chosen(own)['measured'] / best(own)['measured']:.2f}",
            "over one place": lambda own: f"{own[0]['measured'] / chosen(own)['measured']:.2f}",
        },
        caption="The planner's choice, in measured seconds",
    )
    return [choices, whole]


def table(records):
    """Return the tables as text."""
    return "\n".join(line for made in all_tables(records) for line in (made.caption, made.text()))


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench plan: what the planner predicts, and the clock").text(setting(records))
    whole.figure(*_picture(records))
    for made in all_tables(records):
        whole.table(*made)
    return whole.add_facts(first, "data", "settings", "machine")


def setting(records):
    """Say what was run, and how near the predictions are."""
    first = records[0]
    near = sum(abs(r["predicted"] / r["measured"] - 1) <= _NEAR for r in records)
    return (
        f"Networks on two worker processes, on {where(first)}. Layers wait instead of computing, as a host "
        "does for its device; messages, sums of gradients and updates are real. The link and the optimizer "
        f"were measured first: {1e3 * first['data']['latency']:.2f} ms a message, and "
        f"{first['data']['bandwidth'] / 1e6:.0f} MB a second. {near} of {len(records)} predictions are "
        f"within {_NEAR:.0%} of the median measured time."
    )


def _picture(records):
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(5.0, 4.0), layout="constrained")
    axes = drawing.subplots()
    for colour, (name, own) in zip(
        COLOURS, itertools.groupby(records, key=lambda r: r["problem"]), strict=False
    ):
        runs = list(own)
        axes.plot(
            [r["measured"] for r in runs], [r["predicted"] for r in runs], "o", color=colour, label=name
        )
    ends = [min(r["measured"] for r in records), max(r["measured"] for r in records)]
    axes.plot(ends, ends, "-", color="#666666", linewidth=1, zorder=0)
    axes.set(xlabel="measured, s", ylabel="predicted, s", xscale="log", yscale="log")
    axes.legend(fontsize=8, frameon=False)
    plain(axes)
    said = "; ".join(
        f"{r['problem']}, {r['plan']}: {r['measured']:.3f}, {r['predicted']:.3f}" for r in records
    )
    return drawing, "Predicted against measured seconds of a mini-batch.", said
