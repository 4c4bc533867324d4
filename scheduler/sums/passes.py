"""Passes over the portions of a sum, on the threads of this process."""

import threading

import numpy as np

from ..threads import run_tasks
from .portions import TreeSum
from .summed import Trouble, raise_trouble


class LocalPasses:
    """Passes on threads of this process; the same bits on any number of them. Loads the portions."""

    n_taken_over = 0

    def __init__(self, session, program):
        self.session, self.program = session, program
        session.open(program)

    def run(self, x):
        """Return the sums of value and gradient at x; raises NonFiniteObjective."""
        states, portion, troubles = self.session.states, self.program.portion, list[Trouble]()
        if len(states) == 1:
            answer = portion(0, states[0], x)
            if isinstance(answer, Trouble):
                raise_trouble(answer)
            value, vector = answer
            return value, vector if type(vector) is list else np.array(vector, np.float64)
        total, lock = TreeSum(len(states)), threading.Lock()

        def work(number):
            answer = None if troubles else portion(number, states[number], x)
            if isinstance(answer, Trouble):
                troubles.append(answer)
            elif answer is not None:
                with lock:
                    total.add(number, 1, *answer)

        run_tasks([(work, (number,)) for number in range(len(states))], self.session.n_jobs)
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
