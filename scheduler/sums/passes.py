"""Passes over the portions of a sum, on the threads of this process."""

import math
import threading
import time
from collections import deque

from ..threads import run_tasks
from .portions import Answered, Begin, Lost, Portions, TreeSum, Work
from .summed import Trouble, raise_trouble


class LocalPasses:
    """Passes on threads of this process; the same bits on any number of them. Loads the portions."""

    n_taken_over = 0

    def __init__(self, session, program):
        self.session, self.program = session, program
        session.open(program)
        n = len(program.shards)
        self.machine = Portions(n, backup=math.inf, ahead=False)
        self.workers = {str(k): (1, range(n)) for k in range(session.n_jobs)}

    def run(self, x):
        """Return the sums of value and gradient at x; raises NonFiniteObjective."""
        machine, lock = self.machine, threading.Lock()
        total = TreeSum(machine.n)
        waiting: dict[str, deque] = {name: deque() for name in self.workers}
        troubles: list[Trouble] = []

        def take(instructions):
            for order in (i.order for i in instructions if isinstance(i, Work)):
                waiting[order.worker].append(order)

        def work(name):
            while waiting[name] and not troubles:
                order = waiting[name].popleft()
                began = time.perf_counter()
                found = self.program.partial(
                    self.session.states, x, order.first, order.last, lambda: not troubles
                )
                ended = time.perf_counter()
                if isinstance(found, Trouble):
                    troubles.append(found)
                if found is None or troubles:
                    return
                with lock:
                    total.add(order.first, order.size, *found, owned=True)
                    take(machine.handle(Answered(ended, order.number, ended - began)))

        take(machine.handle(Begin(time.perf_counter(), self.workers)))
        try:
            run_tasks([(work, (name,)) for name in waiting], self.session.n_jobs)
        finally:
            if not machine.finished:  # broken off: there are orders that no worker will answer
                for name in waiting:
                    machine.handle(Lost(0.0, name))
        if troubles:
            raise_trouble(min(troubles))
        return total.value, total.vector

    def close(self):
        """Let go of the portions."""
        self.session.close()


def open_passes(session, program, *, ordered=False):
    """Load a program's portions in a session, which is closed if that fails; return what runs passes.

    With `ordered` the sums of a cluster have the same bits whichever worker computes; locally always.
    """
    try:
        if not session.remote:
            return LocalPasses(session, program)
        from .cluster_passes import ClusterPasses

        return ClusterPasses(session, program, ordered=ordered)
    except BaseException:
        session.close()
        raise
