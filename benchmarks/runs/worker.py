"""One solver, in a process of its own.

``python -P worker.py JOB`` is started by the runner, perhaps with the interpreter of an
environment that holds one peer and nothing else, so this file needs the standard library and
NumPy only (SciPy where the data are sparse). The folder JOB holds ``job.json``: the solver's file and its
settings, the procedure, and the folder with ``data.npz`` and ``sample.npz`` (the arrays of the objective,
whole and a small part for the warm-up). States are left as npz files and nothing is judged here: the runner
does that. Answers go to stdout as lines of JSON, whatever a library prints goes to stderr.
"""

import contextlib
import ctypes
import importlib.metadata
import json
import math
import os
import platform
import re
import signal
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

if sys.platform != "win32":
    import resource

PR_SET_PDEATHSIG = 1  # of Linux: what to get when the parent ends
MEGABYTE = 2**20


class Stopwatch:
    """Training time of a solver; it stands still while a snapshot is taken.

    A solver calls `tick` after each step that could be its last. The first tick at or after each of the
    `checkpoints` (increasing training seconds) saves a snapshot in `folder`, or with None (the warm-up)
    throws it away; the tick at or after the last one, or the one of number `max_ticks`, ends the run.
    """

    def __init__(self, checkpoints, folder, max_ticks=None):
        self.checkpoints = list(checkpoints)
        self.next_checkpoint = self.checkpoints[0]
        self.folder = folder
        self.max_ticks = max_ticks
        self.ticks = self.work = 0
        self.seconds = 0.0
        self.peak_mb = 0.0
        self.over = False
        self.snapshots = []
        self.cpu_before = cpu_seconds()
        self._started = time.perf_counter()

    def restart(self):
        """Forget time and work so far, for a solver that cannot go on and begins anew with more steps."""
        self.seconds, self.work = 0.0, 0
        self.cpu_before = cpu_seconds()
        self._started = time.perf_counter()

    def tick(self, work, snapshot):
        """Count `work` units (for topic models: tokens) of a step; return True while the run should go on.

        ``snapshot()`` returns the state to be judged, a dict of arrays; it is called only at a checkpoint.
        """
        self.seconds += time.perf_counter() - self._started
        self.ticks += 1
        self.work += int(work)
        self.over = self.seconds >= self.checkpoints[-1] or self.ticks == self.max_ticks
        if self.over or self.seconds >= self.next_checkpoint:
            self._take(snapshot)
        self._started = time.perf_counter()
        return not self.over

    def _take(self, snapshot):
        self.peak_mb = max(self.peak_mb, peak_memory())
        arrays = snapshot()
        name = f"snapshot-{len(self.snapshots):03d}.npz"
        if self.folder is not None:
            np.savez(self.folder / name, **arrays)
        self.snapshots.append({"file": name, "seconds": self.seconds, "work": self.work, "steps": self.ticks})
        # A slow step may have passed several checkpoints: the next one is the first still ahead.
        self.next_checkpoint = next((t for t in self.checkpoints if t > self.seconds), np.inf)
        reset_peak_memory()


def memory_now():
    """Resident memory of this process in MB."""
    status = Path("/proc/self/status")
    if not status.exists():
        return peak_memory()
    return _kilobytes(status, "VmRSS") * 1024 / MEGABYTE


def peak_memory():
    """Largest resident memory of this process in MB since the last reset, or since its start."""
    status = Path("/proc/self/status")
    if status.exists():
        return _kilobytes(status, "VmHWM") * 1024 / MEGABYTE
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def _kilobytes(status, field):
    return int(re.findall(rf"^{field}:\s+(\d+) kB", status.read_text(), re.MULTILINE)[0])


def reset_peak_memory():
    """Start the peak afresh at the memory of now; False where the system cannot do it.

    First what the heap holds without need is given back, or the next peak would tell of the last snapshot.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def cpu_seconds():
    """User and system time of this process, all its threads; not of its child processes."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def read_arrays(path):
    """Return the arrays of an npz file as attributes."""
    with np.load(path, allow_pickle=False) as archive:
        return SimpleNamespace(**{name: archive[name] for name in archive.files})


def read_design(path):
    """Return the arrays of an npz file as attributes, a matrix in CSC form put together as ``X``."""
    data = read_arrays(path)
    if not hasattr(data, "X"):
        from scipy.sparse import csc_matrix

        data.X = csc_matrix((data.values, data.indices, data.indptr), shape=tuple(data.shape))
    return data


def load_solver(path):
    """Return the class `Solver` of the file at `path`."""
    name = Path(path).stem
    module = ModuleType(name)
    SourceFileLoader(name, str(path)).exec_module(module)
    return module.Solver


def installed_versions(requires):
    """Versions of the distributions that the requirements name; a missing one raises."""
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in requires]
    return {name: importlib.metadata.version(name) for name in names}


def prepared(job, load, warm_up):
    """Return the solver with its data, and the cost of importing, compiling and converting."""
    data, sample = (load(Path(job["data"]) / name) for name in ("data.npz", "sample.npz"))
    settings = SimpleNamespace(**job["settings"])
    started = time.perf_counter()
    solver_class = load_solver(job["solver"])
    warm_up(solver_class(settings), sample)
    warm_up_seconds = time.perf_counter() - started

    resettable = reset_peak_memory()
    memory_before = memory_now()
    started = time.perf_counter()
    solver = solver_class(settings)
    solver.set_data(data)
    return solver, {
        "versions": {"python": platform.python_version(), "numpy": np.__version__}
        | installed_versions([*solver_class.requires, *getattr(solver_class, "libraries", ())]),
        "warm_up_seconds": warm_up_seconds,
        "setup_seconds": time.perf_counter() - started,
        "memory_before_mb": memory_before,
        "peak_without_snapshots": resettable,
    }


def train(job, folder, answer):
    """Train once, when a line of stdin asks for it, and leave snapshots at the checkpoints."""

    def warm_up(solver, sample):
        """Take two steps on a small part of the data: what is compiled here is not training."""
        solver.set_data(sample)
        solver.run(Stopwatch([np.inf], folder=None, max_ticks=2))

    solver, figures = prepared(job, read_arrays, warm_up)
    answer(figures)
    watch = Stopwatch(json.loads(sys.stdin.readline())["checkpoints"], folder)
    solver.run(watch)
    if not watch.over:
        raise RuntimeError("the solver stopped before the watch did")
    training = {
        "training_seconds": watch.seconds,
        "cpu_seconds": cpu_seconds() - watch.cpu_before,
        "work": watch.work,
        "steps": watch.ticks,
        "peak_mb": watch.peak_mb,
        "snapshots": watch.snapshots,
    }
    answer(training)


def solve(job, folder, answer):
    """Solve the requests on stdin, one a line."""

    def warm_up(solver, sample):
        """Solve a few columns loosely and tightly: that calls most of what is compiled or loaded late."""
        solver.set_data(sample)
        call: Any = getattr(
            solver, getattr(solver.settings, "call", "solve"), None
        )  # None: it is not offered
        for alpha in sample.alphas.tolist() if call else ():
            for tolerance in (1e-3, 1e-8):
                call(alpha, tolerance)

    solver, figures = prepared(job, read_design, warm_up)
    answer(figures | {"tolerances": solver.tolerances})
    answer_requests(solver, folder, answer)


def sample(job, folder, answer):
    """Draw for the requests on stdin, one a line."""

    def warm_up(solver, sample):
        """A few draws of a small part of the data, in one piece and in shards."""
        solver.settings = SimpleNamespace(**vars(solver.settings) | {"n_samples": 20, "n_warmup": 20})
        solver.set_data(sample)
        solver.sample()
        if hasattr(solver, "automatic"):
            solver.automatic()
        if hasattr(solver, "combine") and str(sample.kind) == "logistic":
            solver.combine(n_shards=2, method="auto")

    solver, figures = prepared(job, read_arrays, warm_up)
    answer(figures)
    answer_requests(solver, folder, answer)


def answer_requests(solver, folder, answer):
    """Call the solver's methods as long as lines of stdin ask for it."""
    for line in sys.stdin:
        request = json.loads(line)
        figures, arrays = timed(getattr(solver, request["call"]), request)
        np.savez(folder / "solution.npz", **arrays)
        answer(figures)


def allow_cpu_seconds(seconds):
    """Let the system end this process (by SIGXCPU) after this many more CPU seconds."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_seconds() + seconds), most))


def timed(call, request):
    """Call with the request's arguments, again while that is cheap; return the least times and the result.

    The memory is what the first call took beyond that of before, its result included. Beyond the CPU seconds
    of the request the system ends the process.
    """
    allow_cpu_seconds(request["limit"])
    reset_peak_memory()
    memory, beyond = memory_now(), None
    spent: list[tuple[float, float]] = []
    enough = False
    while not enough:
        started, cpu_before = time.perf_counter(), cpu_seconds()
        arrays = call(**request["arguments"])
        spent.append((cpu_seconds() - cpu_before, time.perf_counter() - started))
        beyond = peak_memory() - memory if beyond is None else beyond
        enough = len(spent) == request["max_calls"] or sum(wall for _, wall in spent) > request["budget"]
    cpu, wall = (min(times) for times in zip(*spent, strict=True))
    return {"cpu_seconds": cpu, "seconds": wall, "beyond_mb": beyond}, arrays


def end_with_parent():
    """Let the system kill this process when the runner is gone, which may have had no time to do it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(folder):
    """Run the job in `folder`."""
    end_with_parent()
    folder = Path(folder)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # from here on a print of some library is no answer

    def answer(figures):
        answers.write(json.dumps(figures) + "\n")
        answers.flush()

    job = json.loads((folder / "job.json").read_text())
    sys.path.extend([*job["path"], str(Path(job["solver"]).parent)])  # the latter for what solvers share
    {"training": train, "solving": solve, "sampling": sample}[job["procedure"]](job, folder, answer)


if __name__ == "__main__":
    main(sys.argv[1])
