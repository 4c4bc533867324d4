"""Sessions through their interface: the same bits wherever shards lie, what travels, what is refused."""

import itertools
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from scipy import sparse

from stradask.errors import DataError, StradaskError, WorkerLost
from stradask.scheduler import Outcome, Program, RotationSchedule, StaticSchedule, run
from stradask.scheduler.sessions.local import LocalSession
from stradask.scheduler.sessions.workers import Workers
from stradask.scheduler.workers import open_session


@pytest.fixture
def session(engine):
    session = open_session(engine)
    yield session
    session.close()


@pytest.fixture
def distant(processes):
    """A session on two processes."""
    session = open_session(processes.scheduler_address)
    yield session
    session.close()


def plan(n_shards, round_=0):
    return RotationSchedule(n_shards, 2 * n_shards).plan(round_, {})


def drive(session, program, rounds, snapshot=None):
    """A short life: some rounds with messages, then all that the shards and blocks hold."""
    session.open(program, snapshot)
    n_shards, results = len(program.shards), []
    for r in rounds:
        messages = [{"shift": np.array([0.1 * r])}, {"shift": np.array([0.2 * r])}]
        results.append(session.run(r, 0, plan(n_shards), messages))
        results.append(session.measure([{"shift": np.array([1.0])}] if r % 2 else []))
    return results, session.snapshot([{"shift": np.array([2.0])}])


def flat(value):
    """Make a value comparable to the bit, its types included."""
    if isinstance(value, dict):
        return {name: flat(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(flat, value)]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes(), value.ndim > 1 and value.flags.f_contiguous
    if sparse.issparse(value):
        return type(value).__name__, value.shape, flat({k: v for k, v in vars(value).items() if k[0] != "_"})
    return type(value).__name__, value.tobytes() if isinstance(value, np.generic) else value


# The same bits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_shards", [1, 3, 4, 5])
def test_rounds_measures_and_snapshots_are_those_of_one_thread(session, make_rotation, n_shards):
    reference = LocalSession()
    want = drive(reference, make_rotation(n_shards), range(4))
    assert flat(drive(session, make_rotation(n_shards), range(4))) == flat(want)


def test_a_session_goes_on_from_a_snapshot(session, make_rotation):
    want, end = drive(session, make_rotation(), range(5))
    _, middle = drive(session, make_rotation(), range(3))
    kept = {name: array.copy() for name, array in middle.items()}
    for _ in range(2):  # the second time shows that the first left the snapshot as it was
        again, last = drive(session, make_rotation(), range(3, 5), middle)
        assert flat(again) == flat(want[6:])
        assert flat(last) == flat(end)
    assert flat(middle) == flat(kept)


def test_a_snapshot_that_does_not_fit_is_refused(session, make_rotation):
    from stradask.errors import ModelFileError

    _, snapshot = drive(session, make_rotation(), range(1))
    with pytest.raises(ModelFileError, match="shard-1/total"):
        session.open(make_rotation(), snapshot | {"shard-1/total": np.zeros(3)})
    for lost in ("shard-1/total", "block-0"):
        with pytest.raises(ModelFileError, match=f"other shards or blocks: {lost}"):
            session.open(make_rotation(), {name: a for name, a in snapshot.items() if name != lost})
    with pytest.raises(ModelFileError, match="other shards or blocks"):
        session.open(make_rotation(), {})


def test_the_engine_gives_the_same_run_on_every_session(engine, fit):
    (want, _), (got, done) = fit("local"), fit(engine)
    assert got == want
    assert done.n_rounds == 6
    assert done.n_recoveries == 0


@pytest.mark.parametrize(("n_workers", "n_threads"), [(1, 2), (3, 1), (3, 2), (4, 1)])
def test_workers_and_their_threads_change_no_bit(start_cluster, fit, n_workers, n_threads):
    with start_cluster(n_workers, n_threads, processes=False) as cluster:
        assert fit(cluster.scheduler_address)[0] == fit("local")[0]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_threads_that_are_asked_for_change_no_bit(one_process, fit, n_jobs):
    assert fit(one_process.scheduler_address, n_jobs=n_jobs)[0] == fit("local")[0]


def test_sets_of_blocks_and_a_barrier_after_each_step(engine):
    class Descent(Program):
        """min |y - X b|^2 by blocks of coefficients, residuals in shards of rows."""

        saved, barrier, n_blocks = ("residual",), "step", 12

        def __init__(self):
            rng = np.random.default_rng(0)
            X, self.coef = rng.standard_normal((40, 12)), np.zeros(12)
            self.shards = [(X[a : a + 10], X[a : a + 10].sum(axis=1)) for a in range(0, 40, 10)]
            self.norms, self.seen = (X**2).sum(axis=0), []

        def load(self, data):
            return {"X": data[0], "residual": data[1].copy()}

        def update(self, state, task):
            return state["X"][:, task.blocks].T @ state["residual"], (task.round, task.step, task.shard)

        def aggregate(self, tasks, partials):
            self.seen.append([where for _, where in partials])
            blocks = tasks[0].blocks
            change = 0.3 * sum(slope for slope, _ in partials) / self.norms[blocks]
            self.coef[blocks] += change
            return Outcome((blocks, change), updates=len(blocks))

        def sync(self, state, message):
            blocks, change = message
            state["residual"] -= state["X"][:, blocks] @ change

        def measure(self, state):
            return state["residual"] @ state["residual"]

        def objective(self, parts):
            return float(sum(parts))

        def arrays(self):
            return {"coef": self.coef}

        def restore(self, arrays):
            self.coef = arrays["coef"]

    programs = [Descent(), Descent()]
    schedule = StaticSchedule(12, size=5, n_shards=4)
    runs = [
        run(p, schedule, max_rounds=60, engine=e) for p, e in zip(programs, ("local", engine), strict=True)
    ]
    assert programs[0].coef.tobytes() == programs[1].coef.tobytes()
    assert programs[1].seen == [[(r, 0, s) for s in range(4)] for r in range(60)]
    objectives = [r.history.as_dict()["objective"] for r in runs]
    assert objectives[0].tobytes() == objectives[1].tobytes()
    assert objectives[0][-1] < 0.1 * objectives[0][0]


def test_several_shards_of_a_worker_are_updated_at_the_same_time(one_process):
    class Meeting(Program):
        shards = (0, 1, 2, 3)  # two a worker, and each has two threads

        def load(self, data):
            return {"pair": data // 2}

        def update(self, state, task):
            import threading

            barrier = vars(threading).setdefault(f"_meeting_{state['pair']}", threading.Barrier(2))
            return barrier.wait(timeout=60) in (0, 1)

    session = open_session(one_process.scheduler_address)
    session.open(Meeting())
    assert session.run(0, 0, [], []) == []
    try:
        assert session.run(0, 0, [[(s, 0) for s in range(4)]] * 3, []) == [True] * 12
    finally:
        session.close()
        for pair in range(2):
            vars(threading).pop(f"_meeting_{pair}", None)


# What travels ------------------------------------------------------------------------------------------

THINGS = {
    "plain": [None, True, 3, 10**30, -0.1, 2j, "text", b"bytes"],
    "nested": ({"a": [1, (2.0, "b")], 3: None}, (), [], {}),
    "scalars": [np.float32(0.1), np.int64(2**40), np.bool_(True), np.float64(-0.0)],
    "arrays": [np.arange(6.0).reshape(2, 3), np.arange(3, dtype=np.int16), np.zeros((0, 4)), np.array(1.5)],
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(20, dtype=np.float32)[::3],
    "text array": np.array(["a", "bcd"]),
    "structured": np.array([(1, 2.0)], dtype=[("i", "i4"), ("x", "f8")]),
    "csr": sparse.random(5, 7, 0.4, "csr", random_state=0),
    "csc array": sparse.csc_array(sparse.random(5, 7, 0.4, "csc", np.float32, random_state=1)),
    "coo": sparse.random(4, 4, 0.5, "coo", random_state=2),
    "large": np.arange(300_000.0),
}


@pytest.fixture(scope="session")
def make_echo():
    def make(result=None):
        class Echo(Program):
            """Gives back the last message, or a result of its own."""

            shards = (0, 1, 2)

            def load(self, data):
                return {}

            def sync(self, state, message):
                state["last"] = message

            def update(self, state, task):
                return state["last"] if result is None else result()

        return Echo()

    return make


@pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS)
def test_messages_and_results_come_as_they_were_sent(session, make_echo, thing):
    session.open(make_echo())
    got = session.run(0, 0, [[(0, 0), (1, 0), (2, 0)]], [0, thing])
    assert [flat(one) for one in got] == [flat(thing)] * 3


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("thing", "name"),
    [
        ({1, 2}, "builtins.set"),
        ([np.array([None, 1])], "dtype object"),
        ({"mask": np.ma.masked_array([1, 2], [0, 1])}, "MaskedArray"),
        (sparse.lil_array((2, 2)), "lil_array"),
        (range(3), "builtins.range"),
    ],
)
def test_other_types_are_refused_by_name(distant, make_echo, thing, name):
    distant.open(make_echo())
    with pytest.raises(TypeError, match=f"{name}.*does not travel"):
        distant.run(0, 0, [[(0, 0)]], [thing])
    distant.open(make_echo(lambda: thing))
    with pytest.raises(TypeError, match=f"{name}.*does not travel"):
        distant.run(0, 0, [[(0, 0)]], [])


def test_arrays_arrive_aligned_and_can_be_written(session):
    class Writing(Program):
        travels, n_blocks = True, 4

        def __init__(self):  # a text before the array, so that it does not begin at an even address
            self.shards = [(b"x" * k, np.ones(9 if k % 2 else 9000)) for k in range(4)]

        def block(self, block):
            return np.zeros(9 if block < 2 else 9000)

        def update(self, state, task):
            for array in (state[1], task.value):
                array += 1
            return [(a.flags.aligned, a.flags.writeable) for a in (state[1], task.value)]

    session.open(Writing())
    for r in range(4):
        got = session.run(r, 0, [[(s, (s + r) % 4) for s in range(4)]], [])
        assert got == [[(True, True), (True, True)]] * 4


def test_bytes_are_those_of_messages_results_and_hops(session, make_rotation):
    width, n_shards = 30, 4
    program = make_rotation(n_shards, width=width)
    session.open(program)
    begun = session.bytes_sent
    session.run(0, 0, plan(n_shards), [])
    first = session.bytes_sent - begun
    session.run(1, 0, plan(n_shards), [{"shift": np.zeros(5)}])
    second = session.bytes_sent - begun - first
    if not session.remote:
        assert first == second == 0
        return
    # Two workers hold two shards each, and at first four blocks each.
    results = 2 * n_shards * n_shards * (8 + 16)  # of each update a scalar and two numbers
    at, hops = [0, 0, 0, 0, 1, 1, 1, 1], []
    for r in range(2):
        hops.append(0)
        for shard, block in itertools.chain(*plan(n_shards, r)):
            hops[r] += at[block] != shard // 2
            at[block] = shard // 2
    assert first == results + hops[0] * width * 8
    assert second == results + hops[1] * width * 8 + 2 * 5 * 8  # the message goes to two workers


@pytest.mark.cluster
def test_waiting_is_the_time_of_the_slowest(processes):
    class Uneven(Program):
        shards = (0.0, 0.3)

        def load(self, data):
            return {"seconds": data}

        def update(self, state, task):

            time.sleep(state["seconds"])

    session = open_session(processes.scheduler_address)
    session.open(Uneven())
    session.run(0, 0, [[(0, 0), (1, 0)]], [])
    session.close()
    assert 0.15 < session.waiting < 60


# Errors of the program -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["load", "update", "sync", "measure", "block"])
def test_an_error_of_the_program_comes_to_the_caller(session, make_rotation, method):
    class Refused(Exception):
        """Does not unpickle: it wants two arguments and keeps one."""

        def __init__(self, why, where):
            super().__init__(f"{why} in {where}")

    def fail(self, *args):
        raise Refused("no luck", method) if method == "update" else KeyError(f"no luck in {method}")

    good = make_rotation()
    bad = type("Failing", (type(good),), {method: fail})()
    kind = KeyError if method != "update" else StradaskError if session.remote else Refused
    with pytest.raises(kind, match=f"no luck in {method}") as raised:
        drive(session, bad, range(2))
    if session.remote:
        (note,) = raised.value.__notes__
        assert "on worker" in note
        assert "in fail" in note  # the traceback
    assert flat(drive(session, make_rotation(), range(2))) == flat(drive(LocalSession(), good, range(2)))


@pytest.mark.cluster
def test_an_error_is_not_tried_again(processes, tmp_path, fit):
    class Once(Program):
        shards = (str(tmp_path),)

        def update(self, state, task):
            import tempfile

            tempfile.mkstemp(dir=state)
            raise ConnectionError("this always fails")  # which is not one of ours

    with pytest.raises(ConnectionError, match="this always fails"):
        run(Once(), StaticSchedule(1), max_rounds=3, engine=processes.scheduler_address)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.cluster
def test_calls_after_a_failure_ask_for_a_new_beginning(distant, make_echo):
    distant.open(make_echo())
    with pytest.raises(TypeError, match="does not travel"):
        distant.run(0, 0, [[(0, 0)]], [object()])
    distant.run(0, 0, [[(0, 0)]], [1])  # refused at the door: nothing has happened
    distant.open(make_echo(lambda: object()))
    with pytest.raises(TypeError, match="does not travel"):
        distant.run(0, 0, [[(0, 0)]], [])
    with pytest.raises(WorkerLost, match="opened again"):
        distant.run(0, 0, [[(0, 0)]], [])


# What is asked for, and what is not there ---------------------------------------------------------------


def test_without_a_client_dask_is_an_error(make_rotation):
    with pytest.raises(DataError, match=r"engine='dask'.*Client\(...\).*address"):
        open_session("dask")


@pytest.mark.cluster
def test_another_version_on_a_worker_is_refused(distant, make_rotation, monkeypatch):
    from stradask.scheduler.sessions import workers

    monkeypatch.setattr(workers, "__version__", "99.0")
    with pytest.raises(StradaskError, match=r"is installed on tcp://.* and 99\.0 here; install the same"):
        distant.open(make_rotation())


def test_the_module_of_sessions_imports_no_dask():
    code = (
        "import sys, stradask.scheduler.sessions.local; print(sys.modules.keys() & {'dask', 'distributed'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.cluster
def test_a_class_of_a_script_works(processes, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        from stradask.scheduler import Program, StaticSchedule, run
        FACTOR = 3
        class Mine(Program):
            shards = (1, 2)
            def update(self, state, task):
                return FACTOR * state
            def aggregate(self, tasks, partials):
                self.total = sum(partials)
        if __name__ == "__main__":
            mine = Mine()
            run(mine, StaticSchedule(1, n_shards=2), max_rounds=1, engine=sys.argv[1])
            print(mine.total)
        """)
    )
    command = [sys.executable, str(script), processes.scheduler_address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "9", done.stderr


# Placement ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [1, 2, 3, 7, 16])
def test_neighbours_lie_together_and_loads_are_even(n_items):
    from stradask.scheduler.sessions.placement import place

    homes = place(n_items, {"a": 1, "b": 2, "c": 1})
    assert homes == sorted(homes)
    for member, threads in (("a", 1), ("b", 2), ("c", 1)):
        assert abs(homes.count(member) - n_items * threads / 4) <= 1


def test_data_draw_shards_up_to_a_fair_share():
    from stradask.scheduler.sessions.placement import place

    held = [{"b": 9, "a": 1}, {"b": 9}, {"b": 9}, {}, {"gone": 5}]
    homes = place(5, {"a": 1, "b": 1}, held)
    assert homes == ["b", "b", "b", "a", "a"]
    homes = place(4, {"a": 1, "b": 1}, [{"b": 1}] * 4)
    assert homes == ["b", "b", "a", "a"]
    assert set(itertools.chain(homes)) == {"a", "b"}


def test_a_process_that_no_worker_answers_is_told_of_the_coordinator(one_process, make_rotation, monkeypatch):
    import dask

    async def silent(session, worker):
        return "silent"

    monkeypatch.setattr(Workers, "_answers", silent)
    with dask.config.set({"stradask.timeout": "300ms"}):
        session = open_session(one_process.scheduler_address)
        try:
            with pytest.raises(StradaskError, match=r"2 run and do not answer.*stradask\.coordinator"):
                session.open(make_rotation())
        finally:
            session.close()
