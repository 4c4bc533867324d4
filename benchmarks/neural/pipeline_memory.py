"""Peak memory of a worker that trains a network: on one place, and as one of four stages.

Dense layers compute. What a place holds is counted after each operation: parameters and the optimizer's
slots, vectors of gradients, and what waits for its backward pass. The next column is the peak of its
process, which has temporaries and messages in it, too.
"""

import itertools

import numpy as np

from ...algorithms.neural.training.optimizers import SGD
from ...algorithms.neural.training.program import Training
from ...algorithms.neural.training.stage import DenseStage
from ...scheduler import run
from ...scheduler.schedules.pipeline import Layout, PipelineSchedule
from ..runs.worker import memory_now, peak_memory, reset_peak_memory

ROWS, WIDTH, N_LAYERS, N_STEPS = 4096, 512, 16, 2
MICRO_BATCHES, PLACES = 32, 4
PLANS = {  # places, micro-batches, order, re-materialisation
    "one place": (1, 1, "1f1b", False),
    "one place, micro-batches": (1, MICRO_BATCHES, "1f1b", False),
    "gpipe": (PLACES, MICRO_BATCHES, "gpipe", False),
    "gpipe, recompute": (PLACES, MICRO_BATCHES, "gpipe", True),
    "1f1b": (PLACES, MICRO_BATCHES, "1f1b", False),
}
KINDS = ("peak", "activations", "gradients", "weights")


class Weighed(Training):
    """Training whose places note the most bytes that they hold of each kind."""

    def load(self, data):
        """Begin a new peak of the process."""
        reset_peak_memory()
        before = memory_now() * 2**20
        state = super().load(data)
        state["most"] = {"before": before} | dict.fromkeys(KINDS, 0.0)
        return state

    def update(self, state, task):
        """Note what there is after each operation."""
        found = super().update(state, task)
        most, params = state["most"], state["params"]
        now = {
            "peak": peak_memory() * 2**20 - most["before"],
            "activations": sum(a.nbytes for a in _arrays(list(state["kept"].values()), params).values()),
            "gradients": sum(g.nbytes for g in (*state["spare"], *(g for _, g in state["sums"]))),
            "weights": params.nbytes + state["slots"].nbytes,
        }
        most.update({kind: max(most[kind], nbytes) for kind, nbytes in now.items()})
        return found

    def weighed(self, state):
        """Return what was noted."""
        return state["most"]

    def collect(self, ask):
        """Take in what the places noted."""
        self.most = ask(lambda session, messages: session.measure(messages, "weighed"))
        super().collect(ask)


def _arrays(value, params):
    """Return the arrays in tuples and lists by their address, without views of the parameters."""
    if isinstance(value, np.ndarray):
        own = not np.may_share_memory(value, params)
        return {value.__array_interface__["data"][0]: value} if own else {}
    found: dict[int, np.ndarray] = {}
    if isinstance(value, tuple | list):
        for part in value:
            found |= _arrays(part, params)
    return found


def weigh(plan, engine, *, width=WIDTH, rows=ROWS, n_rounds=1):
    """Train by a plan; return for each place the most bytes of each kind.

    The place of the most is not the same for all kinds: the first stage has more activations than the last.
    """
    n, n_micro, order, recompute = plan
    layout = Layout((1,) * n, n_micro, N_STEPS, order)
    sizes = (64, *[width] * (N_LAYERS - 1), 10)
    edges = [N_LAYERS * k // n for k in range(n + 1)]
    stages = [
        DenseStage(sizes[a : b + 1], "relu", a, begins=not a, ends=b == N_LAYERS)
        for a, b in itertools.pairwise(edges)
    ]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows * N_STEPS, sizes[0]), np.float32)
    y = rng.integers(0, sizes[-1], len(X))
    program = Weighed(stages, layout, (X, y), loss="softmax", optimizer=SGD(1e-3, 0.9), recompute=recompute)
    run(program, PipelineSchedule(layout), max_rounds=n_rounds, engine=engine)
    return program.most
