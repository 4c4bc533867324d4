"""A convolutional network of torch on two worker processes: plans, plain loops and DistributedDataParallel.

All begin with the same parameters and have the same mini-batch, optimizer and threads. Steps a second are
compared with one process. Two loops on halves of each mini-batch, which send no messages, are the ceiling of
data parallelism. The CPU seconds of the busiest process say what other work on the machine hides. Time to an
accuracy on rows held out leaves out the judging.
"""

import time
from typing import Any

import numpy as np

from ...algorithms.neural.torch_models import TorchClassifier
from ...algorithms.neural.training.torch_stage import import_torch
from ...errors import DataError
from ..engines import worker_processes
from ..pages.page import Page, where
from ..pages.tables import Table
from ..run import about_run
from .torch_loops import Clock, accuracy, train

N_TRAINED, BATCH = 1536, 256
MICRO_BATCHES = 4
PLANS: dict[str, dict[str, Any]] = {
    "one place": {"plan": [("0:9", 1)]},
    "data": {"plan": [("0:9", 2)]},
    "1f1b": {"plan": [("0:4", 1), ("4:", 1)]},
    "gpipe": {"plan": [("0:4", 1), ("4:", 1)], "order": "gpipe"},
    "gpipe, recompute": {"plan": [("0:4", 1), ("4:", 1)], "order": "gpipe", "recompute": True},
}
LOOPS: dict[str, dict[str, Any]] = {
    "torch loop": {},
    "two loops on halves": {"n": 2, "sums": False},
    "torch DDP": {"n": 2},
}
_DEFAULTS: dict[str, Any] = {"accuracy": 0.95, "epochs": 15, "width": 48}


def network(width, seed):
    """Return a network of three convolutions, whose halves before and after layer 4 take as long."""
    torch = import_torch()
    nn = torch.nn
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * width, 10),
        )


def digits(seed):
    """Return rows to train on, whole mini-batches of them, and rows that judge: scikit-learn's digits."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X = (X[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = y[order].astype(np.int64)
    return (X[:N_TRAINED], y[:N_TRAINED]), (X[N_TRAINED:], y[N_TRAINED:])


def fit(module, rows, judged_on, options, engine, plan):
    """Return the course of a fit by a plan on worker processes, and the parameters."""
    model = TorchClassifier(
        module,
        **plan,
        learning_rate=options["learning_rate"],
        momentum=options["momentum"],
        batch_size=options["batch_size"],
        max_iter=options["n_epochs"],
        random_state=options["seed"],
        micro_batches=MICRO_BATCHES,
        engine=engine,
    )
    from distributed import Client

    with Client(engine, set_as_default=False) as client:
        clock = Clock(
            lambda info: accuracy(info.snapshot().module_, judged_on),
            lambda: list(client.run(time.process_time).values()),
        )
        model.fit(*rows, callback=clock.epoch)
    return clock.course, model.weights_


def steps_a_second(courses, n_steps):
    """Return the mini-batches a second of the slowest course, of the median epoch after the first."""
    return float(min(n_steps / np.median(np.diff(course.seconds)) for course in courses))


def busiest(courses, n_steps):
    """Return the CPU seconds a mini-batch of the busiest process, of the median epoch after the first."""
    return float(max(np.median(np.diff(course.cpu)) / n_steps for course in courses))


def time_to(course, level):
    """Return the epochs and seconds to an accuracy; None where it was not reached.

    Examples
    --------
    >>> from stradask.benchmarks.neural.networks import time_to
    >>> from stradask.benchmarks.neural.torch_loops import Course
    >>> time_to(Course([1.0, 2.0, 3.0], [0.5, 0.9, 0.8], [1.0, 2.0, 3.0]), 0.9)
    (2, 2.0)
    """
    for number, (seconds, found) in enumerate(zip(course.seconds, course.accuracy, strict=True), 1):
        if found >= level:
            return number, seconds
    return None, None


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench networks`` ask for."""
    if args.against:
        raise DataError("--against: networks has the plain torch loop and torch's DDP as its peers, always")
    if args.dataset is not None:
        raise DataError("--dataset: networks trains on scikit-learn's digits only")
    settings = _DEFAULTS | dict(args.param)
    if settings.keys() != _DEFAULTS.keys():
        raise DataError(f"--param: networks has the parameters {', '.join(_DEFAULTS)}")
    for name, least in (("epochs", 2), ("width", 1)):
        if type(settings[name]) is not int or settings[name] < least:
            raise DataError(f"--param: {name}={settings[name]}: give an integer of {least} or more")
    if type(settings["accuracy"]) not in (int, float) or not 0 < settings["accuracy"] <= 1:
        raise DataError(f"--param: accuracy={settings['accuracy']}: give a share above 0, at most 1")
    import_torch()
    n_rounds = args.repeats or (1 if args.quick else 3)
    options = {"learning_rate": 0.1, "momentum": 0.9, "batch_size": BATCH, "seed": args.seed}
    options["n_epochs"] = settings["epochs"]
    common = about_run("networks") | {"settings": settings | options | {"repeats": n_rounds}}
    rows, judged_on = digits(args.seed)
    given = network(settings["width"], args.seed), rows, judged_on
    with worker_processes(2) as engine:
        fit(*given, options | {"n_epochs": 1}, engine, PLANS["data"])  # imports
        for number in range(n_rounds):
            weights: dict[str, np.ndarray] = {}
            for name in [*PLANS, *LOOPS]:
                if name in PLANS:
                    course, weights[name] = fit(*given, options, engine, PLANS[name])
                    courses, same = [course], np.array_equal(weights[name], weights["one place"])
                else:
                    courses, same = train(*given, options, **LOOPS[name]), None
                epochs, seconds = time_to(courses[0], settings["accuracy"])
                record = {"method": name, "round": number, "same_parameters": same}
                record |= {"steps_per_second": steps_a_second(courses, N_TRAINED // BATCH)}
                record |= {"cpu": (cpu := busiest(courses, N_TRAINED // BATCH))}
                record |= {"epochs": epochs, "seconds": seconds, "course": courses[0]._asdict()}
                on_record(common | record)
                reached = "not reached" if seconds is None else f"{seconds:.1f} s, {epochs} epochs"
                tell(
                    f"{name}: {record['steps_per_second']:.2f} steps a second, {1e3 * cpu:.0f} ms "
                    f"CPU of the busiest process; to an accuracy of {settings['accuracy']:g}: {reached}"
                )


def made_table(records):
    """Return the table of the records: medians of the rounds."""
    groups: dict[str, list] = {}
    for record in records:
        groups.setdefault(record["method"], []).append(record)

    def of(name, key):
        return float(np.median([r[key] for r in groups[name]]))

    def over_one(own, key, sign):
        name = own[0]["method"]
        one = "one place" if name in PLANS else "torch loop"
        if one not in groups:  # an interrupted run has no loop
            return "-"
        return f"{(of(name, key) / of(one, key)) ** sign:.2f}"

    def median(own, key, form):
        return (
            "not reached"
            if any(r[key] is None for r in own)
            else f"{np.median([r[key] for r in own]):{form}}"
        )

    return Table.of(
        list(groups.items()),
        {
            "steps/s": lambda own: f"{of(own[0]['method'], 'steps_per_second'):.2f}",
            "over one process": lambda own: over_one(own, "steps_per_second", 1),
            "CPU ms": lambda own: f"{1e3 * of(own[0]['method'], 'cpu'):.1f}",
            "over one by CPU": lambda own: over_one(own, "cpu", -1),
            "epochs to accuracy": lambda own: median(own, "epochs", "g"),
            "seconds to accuracy": lambda own: median(own, "seconds", ".1f"),
            "parameters of one place": lambda own: {True: "equal", False: "differ", None: ""}[
                None if own[0]["same_parameters"] is None else all(r["same_parameters"] for r in own)
            ],
        },
        caption="A convolutional network on two processes",
    )


def table(records):
    """Return the table as text."""
    return made_table(records).text()


def page(records):
    """Return the page of a run of the benchmark."""
    first = records[0]
    whole = Page("stradask bench networks: a convolutional network on two processes")
    whole.text(setting(first))
    return whole.table(*made_table(records)).add_facts(first, "settings", "machine")


def setting(record):
    """Say what was run, and how to read the table."""
    settings = record["settings"]
    return (
        f"Three convolutions of width {settings['width']} on scikit-learn's digits, {N_TRAINED} rows to "
        f"train on, mini-batches of {BATCH}, SGD with momentum, on worker processes of one thread of "
        f"{where(record)}; wall time, medians of {settings['repeats']} rounds in which all take turns. Plans "
        "of stradask are divided by its one place, loops of torch by one loop. Two loops on halves train two "
        "networks, each on its half of every mini-batch, without messages: the ceiling of data parallelism. "
        "CPU is that of the busiest process for a mini-batch, which other work hardly changes: what one "
        "process takes, over that, is the speed-up without waiting. "
        "Seconds are of training to an accuracy of "
        f"{settings['accuracy']:g} on {1797 - N_TRAINED} other rows, without the judging; those of stradask "
        "have the start of the fit in them."
    )
