"""Programs small enough to be followed by hand, and a session that loses their shards."""

import numpy as np

from stradask.errors import ModelFileError, WorkerLost
from stradask.scheduler.program import Outcome, Program
from stradask.scheduler.schedules.schedule import Schedule
from stradask.scheduler.sessions.local import LocalSession


class EveryBlock(Schedule):
    """Two blocks a round: those seen least, and among them those of the largest last change."""

    def __init__(self, n_blocks, n_shards, lookahead=0):
        self.n_blocks, self.n_shards, self.lookahead = n_blocks, n_shards, lookahead

    def start(self):
        return {"last": np.full(self.n_blocks, np.inf), "seen": np.zeros(self.n_blocks)}

    def plan(self, round, state):
        blocks = np.lexsort((-state["last"], state["seen"]))[:2]
        return [[(shard, blocks) for shard in range(self.n_shards)]]

    def observe(self, state, round, blocks, priorities):
        state["last"][blocks] = priorities
        state["seen"][blocks] += 1


class LeastSquares(Program):
    """min |y - X b|^2 / 2 by coordinate descent on rows in shards, two coordinates a round."""

    saved = ("residual",)
    unit = "visit"

    def __init__(self, X, y, n_shards, measure_every=1):
        self.shards = [(X[i::n_shards], y[i::n_shards]) for i in range(n_shards)]
        self.n_blocks, self.measure_every = X.shape[1], measure_every
        self.hessian, self.coef, self.calls = X.T @ X, np.zeros(X.shape[1]), 0

    def load(self, data):
        return {"X": data[0], "residual": data[1].copy()}

    def update(self, state, task):
        return state["X"][:, task.blocks].T @ state["residual"]

    def aggregate(self, tasks, partials):
        self.calls += 1
        blocks = tasks[0].blocks
        change = np.linalg.solve(self.hessian[np.ix_(blocks, blocks)], sum(partials))
        self.coef[blocks] += change
        return Outcome((blocks, change), updates=len(blocks), priorities=abs(change))

    def sync(self, state, message):
        blocks, change = message
        state["residual"] -= state["X"][:, blocks] @ change

    def measure(self, state):
        return state["residual"] @ state["residual"] / 2

    def objective(self, parts):
        return sum(parts)

    def arrays(self):
        return {"coef": self.coef}

    def restore(self, arrays):
        if arrays["coef"].shape != self.coef.shape:
            raise ModelFileError("coef does not fit")
        self.coef = arrays["coef"]


class Pass(Program):
    """Blocks travel; every update writes down who met whom, where and when."""

    travels = True
    saved = ("total",)

    def __init__(self, n_shards, n_blocks, barrier="round"):
        self.shards, self.n_blocks, self.barrier = range(1, n_shards + 1), n_blocks, barrier
        self.log, self.messages = [], 0

    def load(self, number):
        return {"number": float(number), "total": np.zeros(1)}

    def block(self, block):
        return np.array([10.0**block])

    def update(self, state, task):
        value = task.value[0]
        state["total"] += value
        task.value += state["number"]
        return value, task.round, task.step, task.shard, task.blocks

    def aggregate(self, tasks, partials):
        assert [(t.round, t.step, t.shard, t.blocks) for t in tasks] == [p[1:5] for p in partials]
        self.log += [p[0] for p in partials]
        self.messages += 1
        return Outcome(self.messages)

    def arrays(self):
        return {"log": np.array(self.log), "messages": np.array(self.messages)}

    def restore(self, arrays):
        self.log, self.messages = arrays["log"].tolist(), int(arrays["messages"])


class Flaky(LocalSession):
    """A local session that loses its shards when told to, in the calls given by number."""

    remote = True

    def __init__(self, losses):
        super().__init__(2)
        self.losses, self.calls, self.opened = set(losses), 0, 0

    def open(self, program, snapshot=None):
        self.opened += 1
        super().open(program, snapshot)

    def _perhaps_lose(self):
        self.calls += 1
        if self.calls in self.losses:
            self.states = self.blocks = None
            raise WorkerLost("gone")

    def run(self, *args):
        if self.states is None:
            raise WorkerLost("still gone")
        done = super().run(*args)
        self._perhaps_lose()
        return done

    def measure(self, messages):
        parts = super().measure(messages)
        self._perhaps_lose()
        return parts

    def snapshot(self, messages):
        arrays = super().snapshot(messages)
        self._perhaps_lose()
        return arrays
