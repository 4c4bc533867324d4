"""States that `saved` forgets are named at the first snapshot, wherever the shard lies and whatever it is."""

import collections
import dataclasses

import numpy as np
import pytest

from stradask.errors import DataError
from stradask.scheduler import Program, RotationSchedule, StaticSchedule, run


def smoothing(kind, saved=(), travels=False):
    """Make a program whose shards remember what they gave, in a state of some kind.

    Classes are made here, inside a function, because workers cannot import a test module.
    """

    @dataclasses.dataclass
    class Data:
        weight: np.ndarray
        memory: np.ndarray

    class Plain:
        def __init__(self, weight, memory):
            self.weight, self.memory = weight, memory

    class Slots:
        __slots__ = ("memory", "weight")

        def __init__(self, weight, memory):
            self.weight, self.memory = weight, memory

    makers = {
        "dict": lambda weight, memory: {"weight": weight, "memory": memory},
        "dataclass": Data,
        "object": Plain,
        "slots": Slots,
        "tuple": lambda weight, memory: (weight, memory),
        "list": lambda weight, memory: [weight, memory],
        "array": lambda weight, memory: memory,
        "generator": lambda weight, memory: {"memory": np.random.default_rng(3)},
    }

    class Smoothing(Program):
        shards = tuple(np.full(4, 1.0 + s) for s in range(2))
        n_blocks = 2
        barrier = "step"  # so that there are snapshots

        def __init__(self):
            self.saved, self.travels, self.coef = saved, travels, 0.0

        def load(self, data):
            return makers[kind](data, np.zeros(4))

        def block(self, block):
            return np.full(4, 1.0 + block)

        def memory(self, state):
            if isinstance(state, dict):
                return state["memory"]
            if isinstance(state, (tuple, list)):
                return state[1]
            return getattr(state, "memory", state)

        def update(self, state, task):
            memory = self.memory(state)
            if isinstance(memory, np.random.Generator):
                return memory.standard_normal()
            memory += 1.0
            if task.value is not None:
                task.value += memory
            return float(memory.sum())

        def aggregate(self, tasks, partials):
            self.coef += sum(partials)

        def arrays(self):
            return {"coef": np.array(self.coef)}

        def restore(self, arrays):
            self.coef = float(arrays["coef"])

    return Smoothing()


NAMED = {
    "dict": r"'memory'",
    "dataclass": r"\.memory",
    "object": r"\.memory",
    "slots": r"\.memory",
    "tuple": r"\[1\]",
    "list": r"\[1\]",
    "array": r"the ndarray",
    "generator": r"'memory'",
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_state_of_any_kind_that_is_forgotten_is_named(engine, tmp_path, kind):
    with pytest.raises(DataError, match=rf"saved = \(\) forgets .* differs in {NAMED[kind]}, and"):
        run(
            smoothing(kind), StaticSchedule(), max_rounds=4, engine=engine, checkpoint=tmp_path,
            checkpoint_every=2,
        )  # fmt: skip


@pytest.mark.parametrize("travels", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_what_is_saved_is_found_equal(engine, tmp_path, travels, shared):
    place = f"file://{tmp_path}/fit" if shared else tmp_path
    schedule = RotationSchedule(2, 2) if travels else StaticSchedule()
    options = {"max_rounds": 4, "engine": engine, "checkpoint": place, "checkpoint_every": 2}
    program, whole = smoothing("dict", ("memory",), travels), smoothing("dict", ("memory",), travels)
    run(program, schedule, **options)
    run(whole, schedule, max_rounds=4)
    assert program.coef == whole.coef
    options["checkpoint"] = f"{place}-other"
    with pytest.raises(DataError, match="forgets"):
        run(smoothing("dict", (), travels), schedule, **options)


def test_the_snapshots_against_losses_are_tried_too(one_process, monkeypatch):
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SECONDS", 0.0)
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SHARE", 0.0)
    address = one_process.scheduler_address
    with pytest.raises(DataError, match="forgets"):
        run(smoothing("object"), StaticSchedule(), max_rounds=4, engine=address)
    run(smoothing("dict", ("memory",)), StaticSchedule(), max_rounds=4, engine=address)


def test_a_shard_is_read_again_once_at_most(one_process, monkeypatch, tmp_path):
    from stradask.scheduler.sessions.worker_state import WorkerState

    tried, differing = collections.Counter(), WorkerState.differing

    def noting(worker, shard, *args):
        tried[shard] += 1
        return differing(worker, shard, *args)

    monkeypatch.setattr(WorkerState, "differing", noting)
    options = {"engine": one_process.scheduler_address, "checkpoint": tmp_path, "checkpoint_every": 1}
    run(smoothing("dict", ("memory",)), StaticSchedule(), max_rounds=4, **options)
    assert tried == {0: 1}
    tried.clear()
    monkeypatch.setattr("stradask.scheduler.stores.saved.MOST_TRIED", 8)  # of 64: its entry is not sent
    options["checkpoint"] = tmp_path / "other"
    run(smoothing("object"), StaticSchedule(), max_rounds=4, **options)
    assert not tried


def test_what_dask_would_compute_again_is_not_tried(one_process, tmp_path):
    import dask

    program = smoothing("object")
    program.shards = [dask.delayed(np.full)(4, 1.0 + s) for s in range(2)]
    options = {"engine": one_process.scheduler_address, "checkpoint": tmp_path, "checkpoint_every": 1}
    run(program, StaticSchedule(), max_rounds=3, **options)
    assert program.coef == 2 * 4 * (1 + 2 + 3)


@pytest.mark.parametrize("twins", [[0], [1, 0], [1, 1, 1], [0, 2]])
def test_twins_that_would_not_be_saved_are_refused(twins):
    program = smoothing("dict", ("memory",))
    program.twins = twins
    with pytest.raises(DataError, match=r"twins of .* must name, for each of 2 shards"):
        run(program, StaticSchedule(), max_rounds=1)
