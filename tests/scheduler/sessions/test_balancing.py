"""Shards that move to faster workers: where to, when, and that no bit of the result changes."""

import asyncio
import itertools
import time

import numpy as np
import pytest

from stradask.scheduler import RotationSchedule, run
from stradask.scheduler.sessions.balancing import Balance, contiguous, slowest
from stradask.scheduler.sessions.cluster import ClusterSession
from stradask.scheduler.sessions.workers import Workers
from stradask.scheduler.workers import open_session


def all_contiguous(n_shards, workers):
    """Every way to give each worker, in order, neighbouring shards."""
    for cuts in itertools.combinations_with_replacement(range(n_shards + 1), len(workers) - 1):
        sizes = np.diff([0, *cuts, n_shards])
        yield [worker for worker, size in zip(workers, sizes, strict=True) for _ in range(size)]


def test_many_shards_are_placed_in_no_time():
    workers, places = {f"m{n}": 2 for n in range(8)}, [f"m{s // 1000}" for s in range(8000)]
    balance = Balance(np.ones(8000))
    for _ in range(2):
        balance.observe({s: 9.0 if s < 1000 else 1.0 for s in range(8000)}, places, workers)
    better = balance.better(places, workers)
    assert better.count("m0") < 130
    assert better.count("m7") == pytest.approx(8000 / (7 + 1 / 9), abs=10)


def test_places_are_the_best_of_all_contiguous_ones():
    rng = np.random.default_rng(0)
    for _ in range(60):
        workers = {name: int(rng.integers(1, 4)) for name in "abc"[: rng.integers(1, 4)]}
        pace = {name: float(rng.choice([1, 1.5, 10])) for name in workers}
        weights = rng.uniform(0.5, 2, rng.integers(1, 9))
        places = sorted(rng.choice(list(workers), len(weights)))
        found = contiguous(weights, pace, workers, places)
        order = list(dict.fromkeys([*places, *workers]))
        best = min(slowest(weights, p, pace, workers) for p in all_contiguous(len(weights), order))
        assert slowest(weights, found, pace, workers) == pytest.approx(best, rel=2e-3)
        assert len(list(itertools.groupby(found))) == len(set(found))


class Machine:
    """A clock: how long rounds last with the shards where a `Balance` puts them."""

    def __init__(self, n_shards, speed, price):
        self.speed, self.price, self.n_moves, self.clock = speed, price, 0, 0.0
        self.workers = dict.fromkeys(speed, 1)
        names = list(speed)
        self.places = [names[s * len(names) // n_shards] for s in range(n_shards)]
        self.balance = Balance(np.ones(n_shards))

    def round(self):
        seconds = {shard: 1 / self.speed[place] for shard, place in enumerate(self.places)}
        lasted = {
            name: sum(seconds[s] for s, p in enumerate(self.places) if p == name) for name in self.speed
        }
        self.clock += max(lasted.values())
        self.balance.observe(seconds, self.places, self.workers)
        if (better := self.balance.better(self.places, self.workers)) is not None:
            self.places, self.n_moves = better, self.n_moves + 1
            self.clock += self.price
            self.balance.moved(self.price)
        return max(lasted.values())


@pytest.mark.parametrize("n_workers", [2, 4, 8])
def test_a_worker_ten_times_slower_stalls_the_others_for_a_round_only(n_workers):
    machine = Machine(16, {f"m{i}": 0.1 if i == 1 else 1.0 for i in range(n_workers)}, price=3.0)
    rounds = [machine.round() for _ in range(20)]
    assert rounds[0] == pytest.approx(10 * 16 / n_workers)
    least = 16 / (n_workers - 0.9)  # if shards could be cut anywhere
    assert rounds[-1] <= least + 1.0 + 1e-9
    assert rounds[2] == rounds[-1]
    assert machine.n_moves == 1


def test_one_that_recovers_is_tried_again_and_one_that_does_not_costs_little():
    speed = {"a": 1.0, "b": 1.0, "c": 0.01}
    machine = Machine(12, speed, price=0.5)
    for _ in range(3):
        machine.round()
    assert "c" not in machine.places
    speed["c"] = 1.0
    for _ in range(900):
        machine.round()
    assert [machine.places.count(name) for name in speed] == [4, 4, 4]


def test_what_moves_nothing():
    machine = Machine(8, {"a": 1.0, "b": 0.85}, price=1.0)  # less than a fifth to be won
    for _ in range(50):
        machine.round()
    assert machine.n_moves == 0
    balance, workers, places = Balance([1, 1]), {"a": 1, "b": 1}, ["a", "b"]
    assert balance.better(places, workers) is None  # nothing was seen
    for _ in range(5):  # short a trouble: less time is lost than moving costs
        for seconds in (0.02, 0.001, 0.001, 0.001):
            balance.observe({0: 0.001, 1: seconds}, places, workers)
            assert balance.better(places, workers) is None
    # Nor does a single round, however bad.
    balance = Balance([1, 1])
    for seconds in (1.0, 1.0, 500.0, 1.0, 1.0):
        balance.observe({0: 1.0, 1: seconds}, places, workers)
        assert balance.better(places, workers) is None
    # By weight nobody is slow here, though one works longer.
    balance = Balance([9, 1])
    for _ in range(2):
        balance.observe({0: 9.0, 1: 1.0}, places, workers)
    assert balance.pace["a"] == balance.pace["b"]


def test_a_newcomer_that_compiles_in_its_first_round_keeps_its_shards():
    balance, workers = Balance([1.0] * 4), {"a": 1}
    for _ in range(3):
        balance.observe(dict.fromkeys(range(4), 1.0), ["a"] * 4, workers)
    workers, places = {"a": 1, "b": 1}, ["a"] * 4
    places = balance.better(places, workers)
    assert places == ["a", "a", "b", "b"]
    for compiling in (60.0, 0.0, 0.0):
        balance.observe({0: 1.0, 1: 1.0, 2: 1.0 + compiling, 3: 1.0}, places, workers)
        assert balance.better(places, workers) is None
    assert balance.pace["b"] == 1.0


def test_a_shard_without_work_does_not_tell_of_its_member():
    balance, workers, places = Balance([1.0, 1.0, 0.0]), {"a": 1, "b": 1, "c": 1}, ["a", "b", "c"]
    for _ in range(3):
        balance.observe({0: 1.0, 1: 1.0, 2: 1e-4}, places, workers)
    assert balance.pace["c"] < 1.0
    assert Balance([0.0, 0.0]).weights.tolist() == [1.0, 1.0]


def test_a_price_that_was_high_is_not_paid_for_little():
    balance, workers, places = Balance([1, 1, 1, 1]), {"a": 1, "b": 1}, ["a", "a", "b", "b"]
    balance.moved(25.0)
    seconds = {0: 1.0, 1: 1.0, 2: 10.0, 3: 10.0}  # 16 a round are lost
    wishes = []
    for _ in range(4):
        balance.observe(seconds, places, workers)
        wishes.append(balance.better(places, workers))
    assert wishes == [None, None, ["a"] * 4, ["a"] * 4]


# On a cluster ----------------------------------------------------------------------------------------------


@pytest.fixture
def paced(monkeypatch):
    """Let each worker take so many seconds for a shard; a clock would tell of other work, too."""
    observe, moved = Balance.observe, Balance.moved

    def pace(seconds, usual):
        def told(balance, measured, places, workers):
            observe(balance, {s: seconds.get(places[s], usual) for s in measured}, places, workers)

        monkeypatch.setattr(Balance, "observe", told)
        monkeypatch.setattr(Balance, "moved", lambda balance, measured: moved(balance, 1.0))

    return pace


def watched(session, places):
    def look(info):
        places.append(list(session.shard_at))

    return look


@pytest.fixture(scope="module")
def reference(make_rotation):
    program = make_rotation(8)
    run(program, RotationSchedule(8, 16), max_rounds=10)
    return program


@pytest.mark.cluster
def test_shards_leave_a_worker_that_is_far_slower(processes, make_rotation, reference, paced):
    slow, quick = sorted(processes.scheduler_info["workers"])
    session, places = open_session(processes.scheduler_address), []
    paced({slow: 1.0}, 0.01)
    program = weighted(make_rotation(8))
    run(program, RotationSchedule(8, 16), max_rounds=10, engine=session, callback=watched(session, places))
    assert places[0].count(slow) == 4
    assert places[-1].count(slow) <= 2
    assert program.sum == reference.sum
    rows = session.activity.as_dict()
    assert set(rows["worker"]) == {slow, quick}
    first = rows["round"] == 1
    assert rows["working"][first & (rows["worker"] == slow)].sum() > 0


def weighted(program, **attributes):
    """Make shards move as a program's do that tells their weights."""
    program.__class__ = type("Weighted", (type(program),), {"shard_weights": (1.0,) * 8} | attributes)
    return program


@pytest.fixture
def swaps(monkeypatch):
    """Have all shards change their workers before the third round."""
    calls = itertools.count()
    monkeypatch.setattr(
        Balance, "better", lambda balance, places, workers: places[::-1] if next(calls) == 2 else None
    )


@pytest.mark.parametrize("fault", ["answer", "way", "state"])
def test_a_move_that_breaks_half_way_costs_no_bit(
    start_cluster, make_rotation, reference, swaps, monkeypatch, caplog, fault
):
    from stradask.scheduler.sessions.worker import SessionPlugin

    program, moved = weighted(make_rotation(8)), []
    hand_on, reach = SessionPlugin.hand_on, SessionPlugin.reach

    async def unheard(plugin, **message):  # the shard has arrived, and who sent it dies before it says so
        answer = await hand_on(plugin, **message)
        moved.append(message["shard"])
        return {"lost": "it is gone"} if len(moved) == 3 else answer

    async def blocked(plugin, to, handler, **message):
        if message.get("method") == "adopt":
            moved.append(to)
            if len(moved) == 3:
                raise OSError("no way")
        return await reach(plugin, to, handler, **message)

    if fault == "answer":
        monkeypatch.setattr(SessionPlugin, "hand_on", unheard)
    elif fault == "way":
        monkeypatch.setattr(SessionPlugin, "reach", blocked)
    else:
        load = type(program).load
        program = weighted(
            program, load=lambda self, data: load(self, data) | {"never pickled": (n for n in ())}
        )
    with start_cluster(2, processes=False) as cluster:
        session, places = open_session(cluster.scheduler_address), []
        done = run(
            program, RotationSchedule(8, 16), max_rounds=10, engine=session, callback=watched(session, places)
        )
    assert program.sum == reference.sum
    assert done.n_recoveries == (fault == "answer")
    if fault == "answer":
        assert len(moved) == 3
    else:  # it is no loss, and every shard is where it was when the move broke
        assert "shards cannot be moved to faster workers" in caplog.text
        n_there = sum(before != after for before, after in zip(places[0], places[-1], strict=True))
        assert n_there == (2 if fault == "way" else 0)


def test_shards_go_by_the_threads_that_work_on_them(start_cluster, make_rotation):
    with start_cluster(1, processes=False, client=True) as (cluster, client):
        cluster.new_spec["options"]["nthreads"] = 3
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        for n_jobs, sizes in ((None, [2, 6]), (1, [4, 4])):
            session = open_session(cluster.scheduler_address, n_jobs)
            session.open(make_rotation(8))
            assert sorted(map(session.shard_at.count, session.threads)) == sizes
            session.close()


def test_a_newcomer_that_retires_before_it_has_shards_is_let_go(start_cluster, make_rotation, monkeypatch):
    monkeypatch.setattr("stradask.scheduler.sessions.worker._LINGER", 600.0)
    with start_cluster(1, processes=False, client=True) as (cluster, client):
        session, program = open_session(cluster.scheduler_address), weighted(make_rotation(8))
        old = set(client.scheduler_info(n_workers=-1)["workers"])

        def come_and_go(info):
            if info.round == 2:
                cluster.scale(2)
                client.wait_for_workers(2, timeout=60)
            if info.round == 3:
                wait_until(lambda: session.moves.ready)
                client.retire_workers(list(session.moves.ready))
                wait_until(lambda: set(client.scheduler_info(n_workers=-1)["workers"]) == old)

        done = run(program, RotationSchedule(8, 16), max_rounds=4, engine=session, callback=come_and_go)
    assert done.n_recoveries == 0


@pytest.mark.parametrize(("what", "remedy"), [("other", "install the same"), ("coming", "install it there")])
def test_a_newcomer_that_does_not_fit_is_told_of_once(what, remedy):
    class Asked(Workers):
        async def _answers(self, worker):
            return what

    session = ClusterSession(Asked("tcp://nowhere:1"))
    session.workers.timeout, session.epoch = 0.0, 0
    for _ in range(2):
        asyncio.run(session.moves.prepare("tcp://new", 0, 1))
    assert session.workers.unfit == {"tcp://new"}
    assert len(session.workers.warnings) == 1
    assert session.workers.warnings[0].startswith("the worker tcp://new gets no work: ")
    assert remedy in session.workers.warnings[0]


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["by pace", "by number"])
def test_a_worker_that_joins_gets_shards(start_cluster, make_rotation, reference, paced, how):
    with start_cluster(1, processes=False, client=True) as (cluster, client):
        session, places = open_session(cluster.scheduler_address), []
        look = watched(session, places)

        def join(info):
            look(info)
            if info.round == 2:
                cluster.scale(2)
                client.wait_for_workers(2, timeout=60)
            if info.round == 5:
                wait_until(
                    lambda: session.moves.ready or len(session.threads) == 2
                )  # its room is made meanwhile

        paced({}, 1.0)
        program = weighted(make_rotation(8))
        if how == "by number":
            program.__class__ = type("Spread", (type(program),), {"shard_weights": None, "spreads": True})
        done = run(program, RotationSchedule(8, 16), max_rounds=10, engine=session, callback=join)
    assert len(set(places[1])) == 1
    shared = next(
        homes for homes in places if len(set(homes)) == 2
    )  # later ones go by the pace that was seen
    assert sorted(map(shared.count, set(shared))) == [4, 4]
    assert program.sum == reference.sum
    assert done.n_recoveries == 0
