"""Run solvers of one family in turn and write what they did as JSON lines.

Every run is a process of its own with the same number of threads; the systems take turns (A B C, A B
C, ...), so that a slow minute of the machine falls on all of them. A process leaves snapshots of its
model, and they are judged here, after it has ended, by the objective of the family. One line is
appended to ``records.jsonl`` as soon as a run is judged; `stradask.benchmarks.summary` makes the
table and `stradask.benchmarks.report` the page.
"""

import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .._version import __version__
from ..errors import DataError, StradaskError
from .environments import PeerUnavailable, interpreter_for
from .objectives import families, find_objective
from .solvers import find_solvers
from .worker import MEGABYTE

WORKER = Path(__file__).with_name("worker.py")
N_CHECKPOINTS = 12
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Plan:
    """What to run.

    Parameters
    ----------
    family : str
    against : sequence of str or None
        Peers by name; None stands for those that are installed in this environment.
    dataset : str or None
        None stands for the family's default.
    n_components, doc_topic_prior, topic_word_prior
        Size and priors, the same for all systems.
    max_seconds : float
        Training seconds of each run.
    repeats : int
        Runs of each system; run r has the seed ``seed + r``.
    n_jobs : int
        Threads or processes of each system.
    seed : int
        Also fixes the split of the data.
    out : Path
        Folder of the records and the report.
    environments : Path or None
        Folder of the peers' environments; None is one in the user's cache folder.
    solver_folders : sequence of Path
        Folders with more solver files.
    time_limit : float or None
        Wall seconds after which a run is stopped; None is a minute and five times `max_seconds`.
    """

    family: str
    against: tuple[str, ...] | None = None
    dataset: str | None = None
    n_components: int = 50
    doc_topic_prior: float = 0.1
    topic_word_prior: float = 0.01
    max_seconds: float = 8.0
    repeats: int = 3
    n_jobs: int = 1
    seed: int = 0
    out: Path = Path("stradask-bench")
    environments: Path | None = None
    solver_folders: tuple[Path, ...] = ()
    time_limit: float | None = None

    def __post_init__(self):
        for name in (
            "n_components",
            "repeats",
            "n_jobs",
            "max_seconds",
            "doc_topic_prior",
            "topic_word_prior",
        ):
            if not getattr(self, name) > 0:
                option = "--" + name.replace("_", "-")
                raise DataError(f"{option} is {getattr(self, name)}; a number above 0 is needed")
        if self.seed < 0:
            raise DataError(f"--seed is {self.seed}; a number of 0 or more is needed")

    @property
    def checkpoints(self):
        """Training seconds at which models are judged: from a fiftieth of the time, in equal ratios."""
        return np.geomspace(self.max_seconds / 50, self.max_seconds, N_CHECKPOINTS).tolist()

    def parameters(self):
        """Size and priors."""
        names = ("n_components", "doc_topic_prior", "topic_word_prior")
        return {name: getattr(self, name) for name in names}

    def solvers(self):
        """Return the solver files to run, ours first; an unknown name raises."""
        known = find_solvers(self.family, self.solver_folders)
        peers = [name for name, solver in known.items() if not solver.is_ours]
        if self.against is None:
            return [solver for solver in known.values() if solver.is_ours or solver.is_installed()]
        for name in self.against:
            if name not in peers:
                raise DataError(
                    f"--against: unknown peer {name!r} of {self.family}; there are: {', '.join(peers)}"
                )
        return [solver for name, solver in known.items() if solver.is_ours or name in self.against]


def run(plan, *, on_record=None, tell=lambda line: None):
    """Run a plan and return its records, one a run, in the order of running.

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
    objective_class = find_objective(plan.family)
    solvers = plan.solvers()
    dataset = plan.dataset or objective_class.default_dataset
    tell(f"loading {dataset}")
    objective = objective_class(dataset, seed=plan.seed, parameters=plan.parameters())
    common = {
        "run": uuid.uuid4().hex[:12],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "family": plan.family,
        "work_unit": objective.work,
        "metrics": [asdict(metric) for metric in objective.metrics],
        "machine": describe_machine(),
        "data": objective.describe(),
        "settings": objective.settings() | {"max_seconds": plan.max_seconds, "n_jobs": plan.n_jobs},
    }
    records = []
    skipped = set()
    for repeat in range(plan.repeats):
        for solver in solvers:
            if solver.name in skipped:
                continue
            outcome = _outcome(plan, objective, solver, repeat, tell)
            if outcome["status"] == "unavailable":
                skipped.add(solver.name)
            records.append(
                common
                | {"solver": solver.name, "method": solver.method, "ours": solver.is_ours, "repeat": repeat}
                | {"seed": plan.seed + repeat}
                | outcome
            )
            tell(f"round {repeat + 1} of {plan.repeats}, {_one_line(records[-1], objective.metrics[0])}")
            if on_record is not None:
                on_record(records[-1])
    return records


def _one_line(record, metric):
    if record["status"] != "ok":
        return f"{record['solver']} {record['status']}: {record['error']}"
    last = record["snapshots"][-1]
    return (
        f"{record['solver']}: {metric.label} {last[metric.key]:.2f} after {last['seconds']:.1f} s of training"
    )


def _outcome(plan, objective, solver, repeat, tell):
    """Run one solver once and judge it; what goes wrong is part of the record, not an exception."""
    with tempfile.TemporaryDirectory(prefix="stradask-bench-") as folder:
        try:
            if not (solver.is_ours or solver.is_installed()):
                tell(f"finding or making the environment of {solver.name}")
            python = interpreter_for(solver, plan.environments)
            load = os.getloadavg()[0]
            result = run_in_process(plan, objective, solver, repeat, python, Path(folder))
            for snapshot in result["snapshots"]:
                with np.load(Path(folder) / snapshot.pop("file"), allow_pickle=False) as arrays:
                    snapshot.update(objective.evaluate(arrays))
        except PeerUnavailable as error:
            return {"status": "unavailable", "error": str(error)}
        except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays that cannot be judged
            return {"status": "failed", "error": str(error)}
    return {"status": "ok", "load_before": load} | result


def run_in_process(plan, objective, solver, repeat, python, folder):
    """Run the worker on one solver; return its result, with the memory of its child processes."""
    np.savez(folder / "data.npz", **objective.arrays())
    np.savez(folder / "sample.npz", **objective.sample())
    job = {
        "solver": str(solver.path.resolve()),
        "settings": objective.settings() | {"n_jobs": plan.n_jobs, "seed": plan.seed + repeat},
        "checkpoints": plan.checkpoints,
        "path": [_where_stradask_is()] if solver.is_ours else [],
    }
    (folder / "job.json").write_text(json.dumps(job))
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(plan.n_jobs))
    limit = plan.time_limit or 60 + 5 * plan.max_seconds
    with (folder / "stderr").open("w+") as stderr:
        process = subprocess.Popen(
            [str(python), "-P", str(WORKER), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            children_mb = _wait(process, limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        stderr.seek(0)
        lines = stderr.read().strip().splitlines()
    if children_mb is None:
        raise StradaskError(f"stopped after {limit:.0f} s; {plan.max_seconds:g} s of training were asked for")
    if process.returncode < 0:
        raise StradaskError(f"killed by {signal.Signals(-process.returncode).name}")
    if process.returncode or not (folder / "result.json").exists():
        raise StradaskError(lines[-1] if lines else f"ended with status {process.returncode}")
    result = json.loads((folder / "result.json").read_text())
    result["peak_mb"] += children_mb
    if solver.is_ours:
        result["versions"]["stradask"] = __version__
    return result


def _where_stradask_is():
    """Folder that holds the package, which a worker needs when stradask runs from a checkout."""
    return str(Path(str(sys.modules[__name__.split(".")[0]].__file__)).parents[1])


def _wait(process, limit):
    """Wait for a process; return the peak memory of its children in MB, or None when over the limit."""
    peak = 0.0
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            peak = max(peak, _memory_of_children(process.pid))
        else:
            return peak
    return None


def _memory_of_children(group):
    """Resident memory in MB of all processes of a group but its leader (0 where there is no /proc)."""
    pages = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process may end while it is looked at
            pid = int(status.parent.name)
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and pid != group:
                pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


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


def append_record(path, record):
    """Append one JSON line in one write, so that readers and an interrupt see whole lines only."""
    line = (json.dumps(record, allow_nan=False) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


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
    parser.add_argument("family", metavar="FAMILY", help=f"one of: {', '.join(families())}")
    parser.add_argument("--dataset", metavar="D", help="docstrings (default), synthetic, or a docword file")
    parser.add_argument(
        "--against",
        nargs="+",
        metavar="PEER",
        help="peers to run beside stradask; one that is not installed gets an environment of its own "
        "(default: the peers that are installed)",
    )
    parser.add_argument(
        "--n-components", type=int, default=Plan.n_components, metavar="K", help="topics (%(default)s)"
    )
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=Plan.max_seconds,
        metavar="S",
        help="training seconds of a run (%(default)s)",
    )
    parser.add_argument(
        "--repeats", type=int, default=Plan.repeats, metavar="R", help="runs of each system (%(default)s)"
    )
    parser.add_argument(
        "--n-jobs", type=int, default=Plan.n_jobs, metavar="N", help="threads of each system (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=Plan.seed, help="of split and runs (%(default)s)")
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


def main(args):
    """Run ``stradask bench``; return the exit status.

    1 when a system failed (one without an environment is only reported), 130 when interrupted.
    """
    from .summary import table

    plan = Plan(
        family=args.family,
        against=None if args.against is None else tuple(args.against),
        dataset=args.dataset,
        n_components=args.n_components,
        max_seconds=args.max_seconds,
        repeats=args.repeats,
        n_jobs=args.n_jobs,
        seed=args.seed,
        out=args.out,
        environments=args.envs,
        solver_folders=tuple(args.solvers),
    )
    records = []

    def keep(record):
        plan.out.mkdir(parents=True, exist_ok=True)
        append_record(plan.out / "records.jsonl", record)
        records.append(record)

    interrupted = False
    try:
        run(plan, on_record=keep, tell=lambda line: print(line, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        interrupted = True
        print(
            f"interrupted; {len(records)} finished runs are in {plan.out / 'records.jsonl'}", file=sys.stderr
        )
    if args.json:
        print(json.dumps(records))
    elif records:
        print(table(records))
        _write_report(records, plan.out / "report.html")
    if interrupted:
        return 130
    return int(any(record["status"] == "failed" for record in records))


def _write_report(records, path):
    """Write the page; matplotlib is an extra, and without it there are the table and the records."""
    try:
        from .report import bench_report

        bench_report(records).write(path)
    except ModuleNotFoundError as error:
        print(f"no report: {error.name} is not installed (pip install 'stradask[plot]')", file=sys.stderr)
    else:
        print(f"records: {path.parent / 'records.jsonl'}\nreport:  {path}")
