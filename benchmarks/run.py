"""Run solvers of one family in turn and write what they did as JSON lines.

Every run is a process of its own with the same number of threads; the systems take turns (A B C, A B
C, ...), so that a slow minute of the machine falls on all of them. A process leaves models, and they are
judged outside it by the objective of the family: the states of one long run (`stradask.benchmarks.training`),
the solutions of many short ones (`stradask.benchmarks.solving`), or draws (`stradask.benchmarks.sampling`).
One line is appended to ``records.jsonl`` as soon as a run is judged; `summary`, `gap_summary` and
`sampling_summary` make the tables, `report`, `gap_report` and `sampling_report` the pages.
"""

import argparse
import datetime
import json
import os
import platform
import tempfile
import uuid
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from .._version import __version__
from ..errors import DataError
from ..kernels.device import cuda_device, why_no_device
from .environments import PeerUnavailable, interpreter_for
from .objectives import families, find_objective
from .sampling import draw_and_judge
from .solvers import find_solvers
from .solving import time_to_gaps
from .summary import quality
from .training import train_and_judge
from .turn import Turn

# What has no peers: shares of the machine, bounds and schedules compared with one another; and the modules.
COMPARISONS = {"ceilings": "kernel_shares", "rotation": "rotation", "ssp": "ssp", "strads": "strads"}
PROCEDURES = {"training": train_and_judge, "solving": time_to_gaps, "sampling": draw_and_judge}


@dataclass(frozen=True)
class Plan:
    """What to run.

    Parameters
    ----------
    family : str
    against : sequence of str or None
        Peers by name; None stands for those that are installed in this environment.
    datasets : sequence of str or None
        None stands for the family's defaults.
    parameters : mapping
        Parameters of the family, the same for all systems; those left out have the family's defaults.
    max_seconds : float or None
        Training seconds of each run, or the most CPU seconds of one solve and thread; None stands for the
        family's default.
    repeats : int or None
        Runs of each system; run r has the seed ``seed + r``. None is 3, and 1 when quick.
    n_jobs : int
        Threads or processes of each system.
    device : {"cpu", "cuda"}
        "cuda" adds our solvers that run on a GPU.
    seed : int
        Also fixes the split of the data.
    quick : bool
        A look within a minute: smaller data or less time, one run.
    out : Path
        Folder of the records and the report.
    environments : Path or None
        Folder of the peers' environments; None is one in the user's cache folder.
    solver_folders : sequence of Path
        Folders with more solver files.
    time_limit : float or None
        Wall seconds after which a training run is stopped; None is a minute and five times `max_seconds`.
    """

    family: str
    against: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    parameters: Mapping = field(default_factory=dict)
    max_seconds: float | None = None
    repeats: int | None = None
    n_jobs: int = 1
    device: str = "cpu"
    seed: int = 0
    quick: bool = False
    out: Path = Path("stradask-bench")
    environments: Path | None = None
    solver_folders: tuple[Path, ...] = ()
    time_limit: float | None = None

    def __post_init__(self):
        objective = self.objective
        for name in ("repeats", "n_jobs", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                option = "--" + name.replace("_", "-")
                raise DataError(f"{option} is {value}; a number above 0 is needed")
        if self.seed < 0:
            raise DataError(f"--seed is {self.seed}; a number of 0 or more is needed")
        for name in self.parameters:
            if name not in objective.defaults:
                known = ", ".join(objective.defaults)
                raise DataError(f"--param: {self.family} has no parameter {name!r}; it has {known}")
        if self.device == "cuda" and not any(s.device == "cuda" for s in self._known().values()):
            raise DataError(f"--device: {self.family} has no solver that runs on a GPU; leave it out")
        if objective.procedure == "training" and len(self.names) > 1:
            raise DataError(f"--dataset: {self.family} runs on one data set at a time, not {len(self.names)}")

    @property
    def objective(self):
        """The class `Objective` of the family."""
        return find_objective(self.family)

    @property
    def names(self):
        """The data sets to run on."""
        return self.datasets or self.objective.default_datasets

    @property
    def seconds(self):
        """Training seconds of each run, or the most seconds of one solve."""
        default = self.objective.quick_max_seconds if self.quick else self.objective.max_seconds
        return default if self.max_seconds is None else self.max_seconds

    @property
    def rounds(self):
        """How often each system runs."""
        return self.repeats or (1 if self.quick else 3)

    def checkpoints(self, n_states):
        """Training seconds at which models are judged: from a fiftieth of the time, in equal ratios."""
        return np.geomspace(self.seconds / 50, self.seconds, n_states).tolist()

    def all_parameters(self):
        """Parameters of the family with their defaults."""
        quick = self.objective.quick_defaults if self.quick else {}
        return {**self.objective.defaults, **quick, **self.parameters}

    def _known(self):
        return find_solvers(self.family, self.solver_folders)

    def solvers(self):
        """Return the solver files to run, ours first; an unknown name raises."""
        known = self._known()
        if self.device == "cpu":
            known = {name: solver for name, solver in known.items() if solver.device == "cpu"}
        peers = [name for name, solver in known.items() if not solver.is_ours]
        if self.against is None:
            return [solver for solver in known.values() if solver.is_ours or solver.is_installed()]
        for name in self.against:
            if name not in peers:
                raise DataError(
                    f"--against: unknown peer {name!r} of {self.family}; there are: {', '.join(peers)}"
                )
        return [solver for name, solver in known.items() if solver.is_ours or name in self.against]

    def not_installed(self):
        """Return the peers that are left out because nobody asked for them and they are not there."""
        known = find_solvers(self.family, self.solver_folders) if self.against is None else {}
        return [name for name, solver in known.items() if not (solver.is_ours or solver.is_installed())]


def run(plan, *, on_record=None, tell=lambda line: None):
    """Run a plan and return its records, in the order of running: one a run, or a run and problem.

    Parameters
    ----------
    plan : Plan
    on_record : callable, optional
        Called with each record as soon as it is there; what it has seen survives an interrupt.
    tell : callable
        Called with a line of text on each event.

    Returns
    -------
    list of dict
    """
    solvers = plan.solvers()
    common = {
        "run": uuid.uuid4().hex[:12],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "family": plan.family,
        "procedure": plan.objective.procedure,
        "machine": describe_machine() | _gpu(plan),
    }
    records = []
    for dataset in plan.names:
        tell(f"loading {dataset}")
        objective = plan.objective(
            dataset, seed=plan.seed, parameters=plan.all_parameters(), quick=plan.quick
        )
        for record in _run_on(plan, objective, solvers, tell):
            records.append(common | record)
            tell(one_line(records[-1], plan.rounds))
            if on_record is not None:
                on_record(records[-1])
    return records


def _run_on(plan, objective, solvers, tell):
    """Yield the records of one data set: the systems take turns."""
    common = {
        "data": objective.describe(),
        "settings": objective.settings() | {"max_seconds": plan.seconds, "n_jobs": plan.n_jobs},
    }
    if plan.objective.procedure == "training":
        common |= {"work_unit": objective.work, "metrics": [asdict(metric) for metric in objective.metrics]}
    skipped = set()
    with tempfile.TemporaryDirectory(prefix="stradask-bench-") as data:
        np.savez(Path(data) / "data.npz", **objective.arrays())
        np.savez(Path(data) / "sample.npz", **objective.sample())
        for repeat in range(plan.rounds):
            for solver in solvers:
                if solver.name in skipped:
                    continue
                own = {"solver": solver.name, "method": solver.method, "ours": solver.is_ours}
                own |= {"repeat": repeat, "seed": plan.seed + repeat}
                for outcome in _outcomes(plan, objective, solver, repeat, Path(data), tell):
                    if outcome["status"] == "unavailable":
                        skipped.add(solver.name)
                    yield common | own | outcome


def _outcomes(plan, objective, solver, repeat, data, tell):
    """Run one solver once; what goes wrong is part of the outcome, not an exception."""
    why = why_no_device() if solver.device == "cuda" else None
    if why is not None:
        return [{"status": "unavailable", "error": why}]
    try:
        if not (solver.is_ours or solver.is_installed()):
            tell(f"finding or making the environment of {solver.name}")
        python = interpreter_for(solver, plan.environments)
    except PeerUnavailable as error:
        return [{"status": "unavailable", "error": str(error)}]
    load = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="stradask-bench-") as folder:
        run_once = PROCEDURES[plan.objective.procedure]
        outcomes = run_once(Turn(plan, objective, solver, repeat, python, data, Path(folder)))
    for outcome in outcomes:
        if solver.is_ours and "versions" in outcome:
            outcome["versions"]["stradask"] = __version__
    return [load | outcome for outcome in outcomes]


def one_line(record, rounds):
    """Say in a line how one record came out."""
    head = f"round {record['repeat'] + 1} of {rounds}, {record['solver']}"
    if record["procedure"] != "training":
        head += f", {record['data']['name']} {record.get('problem', '')}"
    if record["status"] not in ("ok", "refused"):
        return f"{head} {record['status']}: {record['error']}"
    if record["procedure"] != "training":
        return f"{head}: {summary_of(record['family']).result_of(record)}"
    last, metric = record["snapshots"][-1], record["metrics"][0]
    reached = f"{metric['label']} {quality(last[metric['key']])}"
    return f"{head}: {reached} after {last['seconds']:.1f} s of training"


def _gpu(plan):
    """The name of the GPU that takes part, if one does."""
    is_asked = plan.device == "cuda" and why_no_device() is None
    return {"gpu": cuda_device().name} if is_asked else {}


def describe_machine():
    """Return processor, cores, memory and system of this machine, and our version."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "stradask": __version__,
    }


def _processor():
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def shortened(value):
    """Round all numbers to six digits, which is more than any measurement has; objectives stay as they are.

    Examples
    --------
    >>> from stradask.benchmarks.run import shortened
    >>> shortened({"seconds": [0.123456789], "objective": 1.23456789012})
    {'seconds': [0.123457], 'objective': 1.23456789012}
    """
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: part if name == "objective" else shortened(part) for name, part in value.items()}
    return [shortened(part) for part in value] if isinstance(value, list | tuple) else value


def append_record(path, record):
    """Append one JSON line in one write, so that readers and an interrupt see whole lines only.

    Returns
    -------
    dict
        The record as it was written, with fewer digits.
    """
    record = shortened(record)
    line = (json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    return record


def read_records(path):
    """Return the records of a file of JSON lines; a line that is none is an error with its number."""
    records = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise DataError(f"{path}, line {number}: not JSON ({error.msg})") from error
    return records


def add_arguments(parser):
    """Add the options of ``stradask bench`` to an argparse parser."""
    parser.add_argument(
        "family",
        metavar="FAMILY",
        nargs="?",
        help=f"one of: {', '.join([*families(), *COMPARISONS])}; left out with --quick: all of them",
    )
    parser.add_argument(
        "--dataset",
        nargs="+",
        metavar="D",
        help="lda: docstrings, synthetic, or a docword file; mf, implicit: generated (2 million), "
        "generated-10m, movielens-1m, or a file of ratings; lasso: a, b, c, d, path, or svmlight files; "
        "sparse-logistic: a, c, or svmlight files; logistic: dense, dense64, scaled, wide, words, c, or "
        "svmlight files; mcmc: logistic, rare, credit, covtype, eight-schools, poisson-gamma, mixture",
    )
    parser.add_argument(
        "--against",
        nargs="*",
        metavar="PEER",
        help="peers to run beside stradask; one that is not installed gets an environment of its own "
        "(default: the peers that are installed; no name: none)",
    )
    parser.add_argument(
        "--param",
        type=_assignment,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of the family, such as n_components=100, or divisor=10,100 intercept=True",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a look: less data or time, one run; all families: 3 minutes"
    )
    parser.add_argument(
        "--full", action="store_true", help="what the documentation's tables of FAMILY are made of"
    )
    parser.add_argument(
        "--data", type=Path, default=Path(), metavar="DIR", help="with --full: where its data files are (.)"
    )
    parser.add_argument(
        "--max-seconds",
        type=float,
        metavar="S",
        help="training seconds of a run (lda: 8), or the most CPU seconds of a solve (lasso: 10, mcmc: 300)",
    )
    parser.add_argument("--repeats", type=int, metavar="R", help="runs of each system (3; quick: 1)")
    parser.add_argument(
        "--n-jobs", type=int, default=Plan.n_jobs, metavar="N", help="threads of each system (%(default)s)"
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default=Plan.device,
        help="cuda: also the samplers of lda on this machine's GPU (%(default)s)",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="rotation, lda: show what the workers of this Dask scheduler do in a fit of a topic model",
    )
    parser.add_argument("--seed", type=int, default=Plan.seed, help="of data and runs (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Plan.out, metavar="DIR", help="records and report (%(default)s)"
    )
    parser.add_argument(
        "--envs", type=Path, metavar="DIR", help="peers' environments (default: in the cache folder)"
    )
    parser.add_argument(
        "--solvers", type=Path, nargs="+", default=(), metavar="DIR", help="more solver files"
    )
    parser.add_argument("--json", action="store_true", help="print the records instead of the table")


def _assignment(text):
    """Read NAME=VALUE; a value is a literal of Python."""
    name, equals, value = text.partition("=")
    try:
        if not (equals and name.isidentifier()):
            raise ValueError
        return name, literal_eval(value)
    except (ValueError, SyntaxError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=VALUE with a number or True or False"
        ) from None


def collect(args, on_record, tell):
    """Run the systems of a family that has peers."""
    plan = Plan(
        family=args.family,
        against=None if args.against is None else tuple(args.against),
        datasets=None if args.dataset is None else tuple(args.dataset),
        parameters=dict(args.param),
        max_seconds=args.max_seconds,
        repeats=args.repeats,
        n_jobs=args.n_jobs,
        device=args.device,
        seed=args.seed,
        quick=args.quick,
        out=args.out,
        environments=args.envs,
        solver_folders=tuple(args.solvers),
    )
    absent = plan.not_installed()
    if absent:
        tell(f"{args.family}: left out, since not installed: {', '.join(absent)} (--against installs them)")
    run(plan, on_record=on_record, tell=tell)


def summary_of(family):
    """Return the module that makes the table of a family's records."""
    from . import gap_summary, sampling_summary, summary

    by_procedure = {"training": summary, "solving": gap_summary, "sampling": sampling_summary}
    return by_procedure[find_objective(family).procedure]


def page_of(family):
    """Return the function that makes the page of a family's records."""
    from .gap_report import gap_report
    from .report import bench_report
    from .sampling_report import sampling_report

    by_procedure = {"training": bench_report, "solving": gap_report, "sampling": sampling_report}
    return by_procedure[find_objective(family).procedure]
