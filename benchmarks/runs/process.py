"""One solver in a process of its own, which ends with all its child processes."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from ...errors import StradaskError
from .worker import MEGABYTE

WORKER = Path(__file__).with_name("worker.py")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")


class OverTime(StradaskError):
    """A solver that was stopped because it took too long."""


class WorkerProcess:
    """``worker.py`` in a process group of its own; leaving the context kills the whole group.

    `job` is what the worker is to do; where stradask is and the solver's file are added here. It reads the
    objective's arrays in `data`, leaves its files in `folder`, and every library in it has `n_jobs` threads.
    """

    def __init__(self, python, solver, job, *, data, folder, n_jobs):
        job = job | {
            "solver": str(solver.path.resolve()),
            "data": str(data),
            "path": [_where_stradask_is()] if solver.is_ours else [],
        }
        (folder / "job.json").write_text(json.dumps(job))
        self._errors = (folder / "stderr").open("w+")
        self._unread = b""
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [str(python), "-P", str(WORKER), str(folder)],
            stdin=requests,
            stdout=answers,
            stderr=self._errors,
            cwd=folder,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, str(n_jobs)),
            start_new_session=True,
        )
        os.close(requests)
        os.close(answers)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._requests)
        os.close(self._answers)
        self._errors.close()

    def fileno(self):
        """Where answers come from."""
        return self._answers

    def ended(self):
        """Return whether the worker has ended; its child processes may still hold the pipe open."""
        return self._process.poll() is not None

    def ask(self, request):
        """Send a request, one line of JSON."""
        with contextlib.suppress(BrokenPipeError):  # it is dead; `answer` says why
            os.write(self._requests, json.dumps(request).encode() + b"\n")

    def answer(self, limit, *, meanwhile=lambda: None):
        """Return the next answer within `limit` seconds; ``meanwhile`` is called a few times a second.

        OverTime if it did not come in time, or the worker has used up the CPU seconds that it allowed itself;
        StradaskError if the worker ended without one (the message is the exception of its stderr).
        """
        deadline = time.monotonic() + limit
        while b"\n" not in self._unread:
            # Asked first: what it wrote before it ended is still there to be read. The end of the pipe would
            # not tell, which processes that it has left behind hold open.
            ended = self.ended()
            ready = select.select([self._answers], [], [], 0.2)[0]
            read = os.read(self._answers, 65536) if ready else b""
            if read:
                self._unread += read
            elif ended:
                raise self._last_words()
            elif time.monotonic() > deadline:
                raise OverTime(f"stopped after {limit:.0f} s")
            elif ready:
                time.sleep(0.05)  # the pipe is closed: it is about to end
            else:
                meanwhile()
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def memory_of_children(self):
        """Return the resident memory in MB of the processes that the worker has started."""
        return _memory_of_children(self._process.pid)

    def _last_words(self):
        status = self._process.wait()
        if status == -signal.SIGXCPU:
            return OverTime("stopped by its limit of CPU seconds")
        if status < 0:
            return StradaskError(f"killed by {signal.Signals(-status).name}")
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        if status == 0 or not lines:
            return StradaskError(f"ended with status {status}")
        # An exception's own line; what it says may go on over more of them.
        said = next((line for line in reversed(lines) if EXCEPTION.match(line)), lines[-1])
        return StradaskError(said)


def _where_stradask_is():
    """Folder that holds the package, which a worker needs when stradask runs from a checkout."""
    return str(Path(str(sys.modules[__name__.split(".")[0]].__file__)).parents[1])


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
