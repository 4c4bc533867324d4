"""Joining: who gives what to whom, and rounds of one call beside rounds whose barriers the engine keeps."""

import os
import time

import numpy as np
import pytest

from stradask.errors import WorkerLost
from stradask.scheduler.engine import run
from stradask.scheduler.schedules.rotation import RotationSchedule
from stradask.scheduler.sessions import cluster
from stradask.scheduler.sessions.routes import Barriers, joined_by_all, partners


@pytest.mark.parametrize("n", range(1, 34))
def test_every_worker_has_the_values_of_all(n):
    """By hand: a value can be taken once it was given, and each gives to another at most once."""
    given, results, waits = {}, {}, {}

    def steps(rank):
        value, number = {rank}, 0
        for kind, other in partners(rank, n):
            if kind != "from":
                assert (rank, other) not in given
                given[rank, other] = frozenset(value)
            if kind != "to":
                number += 1
                while (other, rank) not in given:
                    yield
                there = given[other, rank]
                assert not there & value or (kind == "from" and rank > other)
                value |= there
        results[rank], waits[rank] = value, number

    running = [steps(rank) for rank in range(n)]
    for _ in range(4 * n):
        running = [one for one in running if next(one, "done") != "done"]
    assert not running
    assert all(value == set(range(n)) for value in results.values())
    assert max(waits.values()) <= np.ceil(np.log2(n)) + 1
    assert len(given) <= n * max(np.ceil(np.log2(n)), 1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_all_have_the_same_bits_of_sums_that_round(n):
    from concurrent.futures import Future, ThreadPoolExecutor

    values = np.random.default_rng(0).standard_normal((n, 50)) * 10.0 ** np.arange(n)[:, None]
    ways = {(a, b): Future() for a in range(n) for b in range(n)}

    def of(rank):
        def give(to, value):
            ways[rank, to].set_result(value)

        def take(other):
            return ways[other, rank].result(60)

        nothing = None if rank == n - 1 and n > 1 else values[rank]
        return joined_by_all(sum, nothing, Barriers([0], list(range(n)), rank), give, take)

    with ThreadPoolExecutor(n) as pool:
        found = list(pool.map(of, range(n)))
    assert all((one == found[0]).all() for one in found)
    np.testing.assert_allclose(found[0], values[: max(n - 1, 1)].sum(axis=0), rtol=1e-12)


def joining_program(joins, n_shards=4, barrier="step", seconds=0.0):
    """Make a program whose shards hear of all at each barrier; it may leave the joining to the engine."""
    from stradask.scheduler import Outcome, Program

    class Told(Program):
        travels, saved, unit = True, ("memory",), "update"
        n_blocks = n_shards

        def __init__(self):
            self.shards, self.joins, self.barrier = list(range(1, n_shards + 1)), joins, barrier
            self.sum, self.kept, self.heard = 0, [], 0

        def load(self, number):
            return {"number": number, "memory": np.zeros(3, np.int64), "sum": None}

        def block(self, block):
            return np.array([block, 1], np.int64)

        def update(self, state, task):
            if seconds:
                time.sleep(seconds)  # so long that things can happen in a round
            noise = int(task.rng(3).integers(1000))
            task.value += state["number"] * state["sum"] % 97 + noise
            state["memory"] += task.value.sum() + state["sum"] % 1009
            partial = {"change": int(task.value[0] % 13)} if noise % 5 else {}
            if task.step == self.n_blocks - 1 and noise % 2:
                partial["left"] = state["memory"].copy()
            return partial

        def join(self, partials):
            parts = [p.pop("change", None) if type(p) is dict else p for p in partials]
            parts = [part for part in parts if part is not None]
            return sum(parts) if parts else None

        def message_of(self, state, joined):
            return {"sum": state["sum"] + joined}

        def sync(self, state, message):
            state["sum"] = message["sum"]

        def hear(self, joined):
            self.heard += 1
            self.sum += joined or 0

        def aggregate(self, tasks, partials):
            if not self.joins:
                self.sum += self.join(partials) or 0
            for task, partial in zip(tasks, partials, strict=True):
                if "left" in partial:
                    self.kept.append([task.round, task.step, task.shard, *partial["left"].tolist()])
            return Outcome(None if self.joins else {"sum": self.sum}, updates=len(tasks))

        def publish(self):
            return {"sum": self.sum}

        def measure(self, state):
            return float(state["memory"].sum() + state["sum"])

        def objective(self, parts):
            return -sum(parts)

        def arrays(self):
            rows = np.array(self.kept, np.int64).reshape(-1, 6)
            return {"sum": np.array(self.sum), "kept": rows}

        def restore(self, arrays):
            self.sum, self.kept = int(arrays["sum"]), arrays["kept"].tolist()

    return Told()


def result(program, **options):
    """Run the program; return all that must be equal."""
    schedule = RotationSchedule(len(program.shards), len(program.shards))
    done = run(program, schedule, max_rounds=5, **options)
    return program.sum, program.kept, done.history.as_dict()["objective"].tolist()


@pytest.mark.parametrize("barrier", ["step", 3, "round"])
def test_workers_that_join_give_the_bits_of_a_coordinator_that_does(engine, barrier):
    want = result(joining_program(False, barrier=barrier))
    program = joining_program(True, barrier=barrier)
    assert result(program, engine=engine) == want
    assert program.heard == 5
    assert len(want[1]) > 3


@pytest.mark.parametrize("n_shards", [1, 2, 3, 7])
def test_any_number_of_shards(one_process, n_shards):
    want = result(joining_program(False, n_shards))
    assert result(joining_program(True, n_shards), engine=one_process.scheduler_address) == want


def test_a_round_is_one_call_of_each_worker(one_process, monkeypatch):
    calls, ask = [], cluster.ClusterSession._call

    async def counted(self, worker, method, *args, **rest):
        calls.append(method)
        return await ask(self, worker, method, *args, **rest)

    monkeypatch.setattr(cluster.ClusterSession, "_call", counted)
    for n_shards in (4, 12):
        calls.clear()
        program = joining_program(True, n_shards)
        program.measure_every = 0
        result(program, engine=one_process.scheduler_address)
        assert calls.count("run") == 5 * 2


def test_an_error_at_a_barrier_is_the_callers(one_process):
    program = joining_program(True)

    def message_of(state, joined):
        raise ValueError("no such sum")

    program.message_of = message_of
    with pytest.raises(ValueError, match="no such sum"):
        result(program, engine=one_process.scheduler_address)


@pytest.mark.cluster
@pytest.mark.parametrize("n_workers", [1, 3])
def test_losses_cost_no_bit(start_cluster, killing, n_workers):
    """A worker process is killed in a round, while others wait for it at a barrier."""
    want = result(joining_program(False, 6))
    with start_cluster(n_workers, client=True) as (cluster_, client):
        before = set(client.run(os.getpid).values())
        program = joining_program(True, 6, seconds=0.02)
        kill = killing(2, min(before), delay=0.05)
        assert result(program, engine=cluster_.scheduler_address, callback=kill) == want
        assert set(client.run(os.getpid).values()) != before


def test_a_lost_value_ends_the_wait():
    def take(other):
        raise WorkerLost("gone")

    with pytest.raises(WorkerLost):
        joined_by_all(sum, 1, Barriers([0], ["a", "b"], 0), lambda to, value: None, take)
