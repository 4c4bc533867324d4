"""Threads that share each evaluation of several chains: for a logistic regression of many rows.

With a thread for some of the chains, each thread reads all rows for its own, and waits for the memory;
together they read them once for all chains. See ``kernels.bayes_team``.
"""

from dataclasses import replace

import numpy as np

from ....kernels.bayes import logistic as bayes_logistic
from ....kernels.bayes.address import ADDRESS, INTEGERS, VECTOR
from ....kernels.bayes.team import BLOCKS, LINE, ROUND
from ....scheduler.threads import run_tasks
from ..models.model import aligned

_HELPS = {
    bayes_logistic.logistic64: bayes_logistic.logistic64_help,
    bayes_logistic.logistic32: bayes_logistic.logistic32_help,
}
_CLOSED = -1
_LEAST = 3  # blocks a thread, or it would wait too long for the last


class Team:
    """Threads that evaluate the density of one model together.

    Parameters
    ----------
    model : Model
    n_threads : int
        Each takes about a 200th of the memory of the rows.

    Attributes
    ----------
    model : Model
        Evaluated by the team while it runs, and else by who asks; always with the same bits.
    """

    def __init__(self, model, n_threads):
        n_blocks, size = _sizes(model, n_threads)
        self._control = aligned(8 * LINE * (BLOCKS + n_blocks)).view(np.int64)
        self._control[ROUND] = _CLOSED
        self._floats = aligned(8 * size)
        places = [self._control.ctypes.data, self._floats.ctypes.data, size]
        self.model = replace(model, meta=np.append(model.meta, places))
        vars(self.model)["_team"] = self._control, self._floats  # which it has the addresses of
        self._n_threads = n_threads
        self._help = _HELPS[model.density]
        self._help.compile((ADDRESS, VECTOR, INTEGERS))  # here, and not on several threads at a time

    def run(self, work):
        """Run ``work()`` on one thread, which the others help with evaluations."""
        self._control[ROUND] = 0
        self._control[BLOCKS * LINE :] = 0

        def lead():
            try:
                return work()
            finally:
                self._control[ROUND] = _CLOSED

        others = [(self._help, (who, self.model.data, self.model.meta)) for who in range(1, self._n_threads)]
        return run_tasks([lead, *others], self._n_threads)[0]


def team_for(model, n_threads):
    """Return a `Team`, or None where threads do better on their own."""
    if n_threads < 2 or model.density not in _HELPS or _sizes(model, 1)[0] < _LEAST * n_threads:
        return None
    return Team(model, n_threads)


def _sizes(model, n_threads):
    return bayes_logistic.team_sizes(n_threads, model.density is bayes_logistic.logistic32, model.meta)
