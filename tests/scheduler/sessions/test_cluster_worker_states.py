"""Rooms without a network: plans of any shape on any number of threads, over ways that delay and repeat."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stradask.errors import StradaskError, WorkerLost
from stradask.scheduler import Program
from stradask.scheduler.sessions import call_tasks
from stradask.scheduler.sessions.cluster import ClusterSession
from stradask.scheduler.sessions.local import LocalSession
from stradask.scheduler.sessions.payloads import Frames, payload_bytes
from stradask.scheduler.sessions.placement import place
from stradask.scheduler.sessions.worker_state import StaleEpoch, WorkerState
from stradask.scheduler.sessions.workers import Workers


class Tracing(Program):
    """A block remembers who had it, in a way that depends on the order."""

    travels, saved = True, ("total",)

    def __init__(self, n_shards, n_blocks):
        self.shards, self.n_blocks = list(range(n_shards)), n_blocks

    def load(self, data):
        return {"number": data + 1, "total": np.zeros(2)}

    def block(self, block):
        return np.array([1.0 + block, 0.5])

    def sync(self, state, message):
        state["total"] *= message

    def update(self, state, task):
        task.value *= 1.01
        task.value += state["number"] * (task.step + 1)
        state["total"] = 0.9 * state["total"] + task.value
        return float(task.value[0])


class Network:
    """Rooms that send blocks to one another late, in any order, and sometimes twice."""

    def __init__(self, program, n_workers, n_threads, seed=0):
        self.random, self.pool = random.Random(seed), ThreadPoolExecutor(8)
        self.workers = {f"m{i}": WorkerState(program, n_threads, self.send) for i in range(n_workers)}
        # The coordinator's half, which knows where everything lies.
        self.session = ClusterSession(Workers("tcp://nowhere:1"))
        threads = dict.fromkeys(self.workers, n_threads)
        self.session.shard_at = place(len(program.shards), threads)
        self.session.block_at = place(program.n_blocks, threads)
        self.session.stamps = [0] * program.n_blocks
        for shard, name in enumerate(self.session.shard_at):
            self.workers[name].load(shard, program.shards[shard], 0, {})
        for block, name in enumerate(self.session.block_at):
            self.workers[name].make_block(block)

    def send(self, to, blocks):
        return [self.send_one(to, *block) for block in blocks]

    def send_one(self, to, block, stamp, value):
        value, delays = (
            value.copy(),
            [self.random.uniform(0, 0.004) for _ in range(self.random.choice((1, 2)))],
        )

        def deliver():
            for delay in delays:
                time.sleep(delay)
                self.workers[to].receive(block, stamp, value.copy())

        return self.pool.submit(deliver)

    def run(self, round_, steps, messages):
        plans, moves, self.session.block_at, self.session.stamps = self.session._plan_routes(0, steps)
        partials, calls = {}, {}
        with ThreadPoolExecutor(2 * len(self.workers)) as callers:
            for name, worker in self.workers.items():
                own = moves.get(name, []), plans.get(name, [])
                arguments = round_, worker.run, round_, *own, None, messages
                calls[name] = [callers.submit(worker.once, *arguments) for _ in range(2)]  # asked twice
        for first, second in calls.values():
            assert first.result()[0] == second.result()[0]
            partials.update(first.result()[0])
        return [partials[position] for position in range(len(partials))]


@st.composite
def situations(draw):
    n_shards, n_blocks = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    step = st.tuples(
        st.permutations(range(n_shards)), st.permutations(range(n_blocks)), st.integers(0, n_shards)
    )
    rounds = draw(st.lists(st.lists(step, max_size=5), min_size=1, max_size=3))
    plans = [[list(zip(s[:n], b[:n], strict=False)) for s, b, n in steps] for steps in rounds]
    return (
        n_shards,
        n_blocks,
        plans,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 99)),
    )


@given(situations())
@settings(max_examples=60, deadline=None)
def test_any_plan_gives_what_one_thread_gives(situation):
    n_shards, n_blocks, plans, n_workers, n_threads, seed = situation
    local, program = LocalSession(), Tracing(n_shards, n_blocks)
    local.open(program)
    network = Network(program, n_workers, n_threads, seed)
    for r, steps in enumerate(plans):
        assert network.run(r, steps, [0.5]) == local.run(r, 0, steps, [0.5])
    found = {}
    for worker in network.workers.values():
        found |= worker.snapshot([])
    want = local.snapshot([])
    assert found.keys() == want.keys()
    assert all(found[name].tobytes() == want[name].tobytes() for name in want)


def test_a_block_that_is_not_newer_is_dropped():
    worker = WorkerState(Tracing(1, 1), 1, None)
    worker.put(0, 3, np.array([3.0]))
    worker.put(0, 3, np.array([33.0]))
    worker.put(0, 2, np.array([2.0]))
    assert worker.blocks[0][0] == 3
    worker.put(0, 4, np.array([4.0]))
    assert worker.blocks[0][0] == 4


def test_a_call_is_carried_out_once_and_the_next_again():
    worker, calls = WorkerState(Tracing(1, 1), 1, None), []
    for serial in (1, 1, 2, 2, 2):
        worker.once(serial, calls.append, serial)
    assert calls == [1, 2]


@pytest.mark.parametrize("how", ["close", "hop", "update"])
def test_whoever_waits_in_a_worker_is_woken(how):
    sent: list[Future] = []

    def send(*message):
        sent.append(Future())
        return sent[-1:]

    class Failing(Tracing):
        def update(self, state, task):
            if how == "update" and task.blocks == 1:
                time.sleep(0.2)  # until the other thread waits
                raise ZeroDivisionError("in the update")
            return 0.0

    program = Failing(2, 3)
    worker = WorkerState(program, 2, send)
    for shard in range(2):
        worker.load(shard, shard, 0, {})
    for block in range(2):
        worker.make_block(block)
    from stradask.scheduler.sessions.routes import Assignment

    steps = [Assignment(0, 0, 0, 0, 0, "other"), Assignment(1, 0, 1, 1, 0), Assignment(2, 1, 0, 2, 5)]
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(worker.once, 1, worker.run, 0, [], steps, None, [])  # block 2 will not come
        if how == "update":
            kind = ZeroDivisionError
        else:
            end = time.monotonic() + 60
            while not sent and time.monotonic() < end:
                time.sleep(0.01)
            kind = {"close": StaleEpoch, "hop": WorkerLost}[how]
            worker.close() if how == "close" else sent[0].set_exception(WorkerLost("the way is cut"))
        with pytest.raises(kind):
            call.result(60)
    if how == "close":
        assert sent[0].cancelled()
        with pytest.raises(StaleEpoch):  # what was on its way from another name is not taken in
            worker.adopt(0, {})
        assert worker.states[0] != {}  # what is here the next worker may take over
        worker.clear()
        assert worker.states == {}


@pytest.mark.parametrize(("n_threads", "sizes"), [(1, [1, 1, 1, 1]), (3, [3, 1]), (4, [4]), (8, [4])])
def test_blocks_of_a_step_go_together_as_many_as_there_are_threads(n_threads, sizes):
    from stradask.scheduler.sessions.routes import Assignment

    sent, arrived = [], Future()
    arrived.set_result(None)
    worker = WorkerState(
        Tracing(4, 4), n_threads, lambda to, blocks: sent.append((to, len(blocks))) or [arrived] * len(blocks)
    )
    for number in range(4):
        worker.load(number, number, 0, {})
        worker.make_block(number)
    steps = [Assignment(number, 0, number, number, 0, "other") for number in range(4)]
    worker.once(1, worker.run, 0, [], steps, None, [])
    assert sorted(sent, reverse=True) == [("other", size) for size in sizes]


def test_a_call_ends_when_all_that_it_sent_has_arrived():
    arrived, begun = Future(), threading.Event()
    worker = WorkerState(Tracing(1, 1), 1, lambda *message: begun.set() or [arrived])
    worker.make_block(0)
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(worker.once, 1, worker.run, 0, [(0, 0, "other")], [], None, [])
        assert begun.wait(60)
        time.sleep(0.05)
        assert not call.done()
        arrived.set_result(None)
        partials, effort, _ = call.result(60)
    assert (partials, effort["bytes"]) == ({}, 16)
    assert effort["sending"] >= 0.05


@pytest.mark.parametrize(
    ("block", "stamp", "value"),
    [
        (1, 0, np.zeros(2)),
        (-1, 0, np.zeros(2)),
        ("0", 0, np.zeros(2)),
        (True, 0, np.zeros(2)),
        (0, -1, np.zeros(2)),
        (0, 0.5, np.zeros(2)),
        (0, 5, [0.0, 0.0]),
        (0, 5, np.array([None])),
        (0, 5, b"12345678"),
    ],
)
def test_what_is_no_block_is_refused_and_harms_nothing(block, stamp, value):
    worker = WorkerState(Tracing(1, 1), 1, None)
    with pytest.raises(StradaskError, match="not one that travels here"):
        worker.receive(block, stamp, value)
    assert (worker.blocks, worker.stamps, worker.failure) == ({}, {}, None)
    worker.receive(0, 0, np.zeros(2))
    assert worker.stamps == {0: 0}


def test_waiting_is_counted_while_no_thread_works(monkeypatch):
    worker = WorkerState(Tracing(1, 2), 2, None)
    worker.load(0, 0, 0, {})
    worker.make_block(0)
    from stradask.scheduler.sessions.routes import Assignment

    plan = [Assignment(0, 0, 0, 0, 0), Assignment(1, 1, 0, 1, 7)]
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(call_tasks, "time", clock)
    waits, wait = [], worker.changed.wait

    def comes_while_the_thread_waits():
        if not waits:
            clock.now += 5.0
            threading.Thread(target=worker.put, args=(1, 7, np.zeros(2))).start()
        waits.append(worker)
        return wait()

    monkeypatch.setattr(worker.changed, "wait", comes_while_the_thread_waits)
    _, effort, _ = worker.once(1, worker.run, 0, [], plan, None, [])
    assert effort["waiting"] == 5.0
    assert effort["working"] == {0: 0.0}


def test_payloads_are_counted_by_their_arrays():
    from scipy import sparse

    matrix = sparse.csr_array((np.ones(3, np.float32), [0, 1, 2], [0, 3]), shape=(1, 3))
    index = matrix.indices.itemsize
    assert payload_bytes([None, "text", {"a": (np.zeros((2, 3)), np.float32(1))}]) == 52
    assert payload_bytes(matrix) == 12 + 5 * index


def test_buffers_at_odd_addresses_are_moved():
    array = np.arange(1000.0)
    parcel = Frames.of(array)
    raw = np.zeros(8001, np.uint8)
    odd = raw[1:] if raw.ctypes.data % 2 == 0 else raw[:8000]
    odd[:] = parcel.frames[1]
    moved = Frames([parcel.frames[0], odd]).open()
    assert moved.flags.aligned
    np.testing.assert_array_equal(moved, array)
    assert np.shares_memory(parcel.open(), array)  # in one process nothing is copied


def test_every_message_may_come_twice(one_process, fit):
    """The connection breaks after each answer, of calls and of hops."""
    from distributed.comm import CommClosedError

    from stradask.scheduler.workers import open_session

    class Breaking:
        def __init__(self, pool):
            self.pool, self.broken = pool, []

        def __call__(self, address):
            breaking = self

            class Caller:
                def __getattr__(self, handler):
                    async def call(**message):
                        answer = await getattr(breaking.pool(address), handler)(**message)
                        message = next(
                            (message[k] for k in ("args", "value", "program") if k in message), None
                        )
                        if message is not None and not any(message is before for before in breaking.broken):
                            breaking.broken.append(message)
                            raise CommClosedError("the connection broke after the answer")
                        return answer

                    return call

            return Caller()

        async def connect(self, address):
            comm = await self.pool.connect(address)
            if not hasattr(comm, "breaks"):
                comm.breaks, write = self, comm.write

                async def write_and_break(message, **options):
                    written = await write(message, **options)
                    number = isinstance(message, dict) and message.get("number")
                    if type(number) is int and (address, number) not in self.broken:
                        self.broken.append((address, number))
                        comm.abort()
                    return written

                comm.write = write_and_break
            return comm

        def __getattr__(self, name):
            return getattr(self.pool, name)

    session = open_session(one_process.scheduler_address)
    session._join()
    plugins = [w.plugins["stradask-sessions"] for w in one_process.workers.values()]
    kept = [plugin.pool for plugin in plugins]
    session.workers.pool = Breaking(session.workers.pool)
    try:
        breaking = []
        for plugin in plugins:
            plugin.pool = Breaking(plugin.pool)
            breaking.append(plugin.pool)
        got, done = fit(session)
    finally:
        for plugin, pool in zip(plugins, kept, strict=True):
            plugin.pool = pool
    assert len(session.workers.pool.broken) > 20
    assert sum(len(pool.broken) for pool in breaking) > 20
    assert got == fit("local")[0]
    assert done.n_recoveries == 0
