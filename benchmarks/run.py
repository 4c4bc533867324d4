"""Run solvers of one family in turn and write records as JSON lines.

Every run is a process of its own with the same number of threads; the systems take turns (A B C, A B
C, ...), so that a slow minute of the machine falls on all of them. A process leaves models, and they are
judged outside it by the objective of the family: the states of one long run (`runs.training`), the
solutions of many short ones (`runs.solving`), or draws (`runs.sampling`). One line is appended
to ``records.jsonl`` as soon as a run is judged; the modules of `pages` make tables and pages of them.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import sys
import tempfile
import uuid
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from .._version import __version__
from ..algorithms.inputs.memory import machine_memory
from ..errors import DataError, StradaskError
from ..kernels.cuda.device import cuda_device, why_no_device
from ..scheduler.threads import effective_n_jobs
from .objectives import families, find_objective
from .plan import Plan
from .runs.environments import PeerUnavailable, interpreter_for
from .runs.requested import SideBySide, SolverWorker
from .runs.sampling import draw_and_judge
from .runs.solving import time_to_gaps
from .runs.training import train_and_judge
from .runs.turn import Turn

# What has no peers: shares of the machine, bounds and schedules compared with one another; and the modules.
COMPARISONS = {
    "allreduce": "neural.allreduce",
    "ceilings": "kernel_shares",
    "everyday": "comparisons.everyday",
    "lda-large": "comparisons.lda_large",
    "networks": "neural.networks",
    "pipeline": "neural.pipeline",
    "placement": "neural.placement",
    "plan": "neural.planned",
    "recommend": "comparisons.recommend",
    "rotation": "scheduling.rotation",
    "ssp": "scheduling.ssp",
    "strads": "scheduling.strads",
    "topics-models": "comparisons.topics_models",
}
PROCEDURES = {"training": train_and_judge, "solving": time_to_gaps, "sampling": draw_and_judge}


def run(plan, *, on_record=None, tell=lambda line: None):
    """Run a plan and return its records, in the order of running: one a run, or a run and problem.

    ``on_record`` is called with each record as soon as it is there, so that what it has seen survives an
    interrupt; ``tell`` with a line of text on each event.
    """
    return run_all([plan], on_record=on_record, tell=tell)


def run_all(plans, *, on_record=None, tell=lambda line: None):
    """Run plans one after another, see `run`.

    Where they are quick, their systems import and compile first, as many side by side as there are cores;
    then they are timed one after another, while the others wait.
    """
    if sys.platform == "win32":
        raise StradaskError(
            "comparisons with other libraries run each in a process of its own and count its CPU seconds, "
            "which takes Linux or macOS; on Windows, run them in WSL"
        )
    common = {
        plan.family: about_run(plan.family)
        | {"procedure": plan.objective.procedure, "machine": describe_machine() | _gpu(plan)}
        for plan in plans
    }
    pairs = [(plan, dataset) for plan in plans for dataset in plan.names]
    quick = all(plan.quick and plan.rounds == 1 for plan in plans)  # more would be many processes that wait
    records = []
    for part in [pairs] if quick else [[pair] for pair in pairs]:
        for plan, record in _run_part(part, tell, side_by_side=quick):
            records.append(common[plan.family] | record)
            tell(one_line(records[-1], plan.rounds))
            if on_record is not None:
                on_record(records[-1])
    return records


def _run_part(pairs, tell, *, side_by_side):
    """Yield plans and the records of their data sets: the systems of each take turns."""
    with contextlib.ExitStack() as places:
        n_jobs = max(plan.n_jobs for plan, _ in pairs)
        warming = SideBySide(max(1, effective_n_jobs(-1) // n_jobs))
        runs = []
        for plan, dataset in pairs:
            folder = places.enter_context(tempfile.TemporaryDirectory(prefix="stradask-bench-"))
            for about, turn in _turns(plan, dataset, Path(folder), tell):
                worker = None if isinstance(turn, dict) else places.enter_context(SolverWorker(turn))
                runs.append((plan, about, turn, worker))
                if side_by_side and worker is not None:
                    warming.add(worker)
        if side_by_side:
            seconds = warming.wait()
            tell(f"{len(runs)} systems have imported and compiled, side by side: {seconds:.0f} s")
        for plan, about, turn, worker in runs:
            for outcome in [turn] if worker is None else _outcomes(turn, worker):
                yield plan, about | outcome


def _turns(plan, dataset, folder, tell):
    """Yield the facts of each run on a data set, and its `Turn`, or the outcome if it cannot run."""
    tell(f"loading {dataset}")
    objective = plan.objective(dataset, seed=plan.seed, parameters=plan.all_parameters(), quick=plan.quick)
    common = {
        "data": objective.describe(),
        "settings": objective.settings() | {"max_seconds": plan.seconds, "n_jobs": plan.n_jobs},
    }
    if plan.objective.procedure == "training":
        common |= {"work_unit": objective.work, "metrics": [asdict(metric) for metric in objective.metrics]}
    np.savez(folder / "data.npz", **objective.arrays())
    np.savez(folder / "sample.npz", **objective.sample())
    pythons: dict[str, Path] = {}
    unavailable = set()
    for repeat in range(plan.rounds):
        for solver in plan.solvers():
            if solver.name in unavailable:
                continue
            own = {"solver": solver.name, "method": solver.method, "ours": solver.is_ours}
            own |= {"repeat": repeat, "seed": plan.seed + repeat}
            try:
                python = pythons.get(solver.name) or _python_of(solver, plan, tell)
            except PeerUnavailable as error:
                unavailable.add(solver.name)
                yield common | own, {"status": "unavailable", "error": str(error)}
            else:
                pythons[solver.name] = python
                yield common | own, Turn(plan, objective, solver, repeat, python, folder)


def _python_of(solver, plan, tell):
    """Return a solver's interpreter; PeerUnavailable where there is none, or not its device."""
    why = why_no_device() if solver.device == "cuda" else None
    if why is not None:
        raise PeerUnavailable(why)
    if not (solver.is_ours or solver.is_installed()):
        tell(f"finding or making the environment of {solver.name}")
    return interpreter_for(solver, plan.environments)


def _outcomes(turn, worker):
    """Run one solver once; an error is part of the outcome, not an exception."""
    load = {"load_before": os.getloadavg()[0]}
    with worker:
        outcomes = PROCEDURES[turn.objective.procedure](turn, worker)
    for outcome in outcomes:
        if turn.solver.is_ours and "versions" in outcome:
            outcome["versions"]["stradask"] = __version__
    return [load | outcome for outcome in outcomes]


def one_line(record, rounds):
    """Say in a line how one record came out."""
    head = f"round {record['repeat'] + 1} of {rounds}, {record['solver']}"
    if record["procedure"] != "training":
        head += f", {record['data']['name']} {record.get('problem', '')}"
    if record["status"] not in ("ok", "refused"):
        return f"{head} {record['status']}: {record['error']}"
    return f"{head}: {view_of(record['family']).result_of(record)}"


def _gpu(plan):
    """The name of the GPU that takes part, if one does."""
    takes_part = plan.device == "cuda" and why_no_device() is None
    return {"gpu": cuda_device().name} if takes_part else {}


def about_run(family):
    """Return the facts that all records of one run of a family share: id, time and machine."""
    return {
        "run": uuid.uuid4().hex[:12],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "family": family,
        "machine": describe_machine(),
    }


def describe_machine():
    """Return processor, cores, memory and system of this machine, and our version."""
    memory = machine_memory()
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1) if math.isfinite(memory) else None,
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

    Returns the record as it was written, with fewer digits.
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
        help="peers to run as well; one that is not installed gets an environment of its own "
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
    collect_all([args], on_record, tell)


def collect_all(several, on_record, tell):
    """Run the systems of families that have peers, see `run_all`."""
    plans = [_plan_of(args) for args in several]
    for plan in plans:
        absent = plan.not_installed()
        if absent:
            names = ", ".join(absent)
            tell(f"{plan.family}: left out, since not installed: {names} (--against installs them)")
    run_all(plans, on_record=on_record, tell=tell)


def _plan_of(args):
    return Plan(
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


def view_of(family):
    """Return the module with ``table``, ``page`` and ``result_of`` for the records of a family with peers."""
    from .pages import sampling, solving, training

    views = {"training": training, "solving": solving, "sampling": sampling}
    return views[find_objective(family).procedure]
