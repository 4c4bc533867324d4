"""Tables through `run_replicas`: the guarantee, the same on threads and on Dask; checkpoints; bad input."""

import contextlib
import functools
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from stradask.errors import CheckpointMismatch, DataError
from stradask.scheduler.table.places import LocalTable, SimulatedClock
from stradask.scheduler.table.replicas import run_replicas
from stradask.scheduler.table.state import Adagrad
from stradask.scheduler.table.table import ParameterTable


@pytest.fixture(params=["three shards", "simulated"])
def place(request):
    """Other forms that run in this process."""
    return LocalTable(3) if request.param == "three shards" else SimulatedClock([1.0, 1.5, 0.3])


def counting(staleness, n_clocks=12):
    """Make a function in which each update is of one (replica, clock): what is read tells which are in."""

    def work(table, task):
        rng = np.random.default_rng(table.replica)
        width, me = table.shape[1] // table.n_replicas, table.replica
        for clock in range(table.now, n_clocks):
            rows = rng.permutation(table.shape[0])[: rng.integers(1, table.shape[0] + 1)]
            for when in ("before", "after"):
                seen = table.get(rows, refresh=bool(rng.integers(2)))
                seen = seen.reshape(len(rows), table.n_replicas, width)
                assert ((seen == 0) | (seen == 1)).all()
                assert (seen[:, me, :clock] == 1).all()  # its own, at once
                assert (seen[:, me, clock] == (when == "after")).all()
                due = max(0, clock - staleness) if staleness < n_clocks else 0
                assert (seen[:, :, :due] == 1).all()
                if when == "before":
                    delta = np.zeros((table.n_replicas, width))
                    delta[me, clock] = 1
                    table.inc(None, delta.ravel())
            table.clock()
        return clock, table.waited >= 0

    return work


def check_counting(engine, staleness):
    n_clocks, n_replicas = 12, 3
    done = run_replicas(
        counting(staleness, n_clocks),
        [None] * n_replicas,
        np.zeros((5, 36)),
        staleness=staleness,
        engine=engine,
    )
    assert (done.values == 1).all()
    assert done.results == [(n_clocks - 1, True)] * n_replicas
    assert done.n_recoveries == 0


@pytest.mark.parametrize("staleness", [0, 1, 3, np.inf])
def test_the_guarantee_holds_and_no_update_is_lost(engine, staleness):
    check_counting(engine, staleness)


@pytest.mark.parametrize("staleness", [0, 2, np.inf])
def test_the_guarantee_holds_over_shards_and_in_simulated_time(place, staleness):
    check_counting(place, staleness)


def make_slope():
    """X^T (X w - y) in one order of sums: that of BLAS depends on where an array begins."""

    def slope(X, y, w):
        residual = -y
        for x, value in zip(X.T, w, strict=True):
            residual = residual + x * value
        return np.array([sum((x * residual).tolist()) for x in X.T])

    return slope


def descent(n_clocks):
    """Make a replica of gradient descent whose sums depend on their order in the last bits."""
    slope = make_slope()

    def work(table, data):
        X, y = data
        for clock in range(table.now, n_clocks):
            w = table.get().ravel()
            gradient = slope(X, y, w)
            table.inc(None, (gradient * (0.01 + 1e-3 * clock)).reshape(table.shape))
            table.clock()

    return work


def data_of(n):
    rng = np.random.default_rng(3)
    return [(rng.standard_normal((20, 6)), rng.standard_normal(20)) for _ in range(n)]


def in_step(data, n_clocks):
    """The same without a table: Adagrad on the gradients in the order of replicas."""
    slope, w, squares = make_slope(), np.zeros(6), np.zeros(6)
    for clock in range(n_clocks):
        for gradient in [slope(X, y, w) * (0.01 + 1e-3 * clock) for X, y in data]:
            squares += gradient**2
            w = w - 0.1 * (gradient / np.sqrt(squares))
    return w, squares


def fit_descent(engine, n_clocks=15, data=None, **options):
    data = data_of(3) if data is None else data
    options = {"rule": Adagrad(0.1)} | options
    return run_replicas(descent(n_clocks), data, np.zeros((3, 2)), engine=engine, **options)


def test_without_staleness_every_form_gives_the_bits_of_one_after_the_other(engine):
    w, squares = in_step(data_of(3), 15)
    done = fit_descent(engine)
    assert done.values.ravel().tolist() == w.tolist()
    assert done.slots[:, 0].ravel().tolist() == squares.tolist()


def test_shards_and_simulated_time_change_no_bit(place):
    assert fit_descent(place).values.ravel().tolist() == in_step(data_of(3), 15)[0].tolist()


def test_float32_is_kept(engine):
    def work(table, task):
        assert table.get().dtype == np.float32
        table.inc(0, [0.1, 0.2])
        table.clock()

    done = run_replicas(work, [None], np.zeros((1, 2), np.float32), engine=engine)
    assert done.values.dtype == np.float32
    assert done.values[0].tolist() == np.array([0.1, 0.2], np.float32).tolist()


def test_one_that_ends_early_is_not_waited_for(engine):
    def work(table, n_clocks):
        for _ in range(n_clocks):
            table.get(0)
            table.inc(0, 1.0)
            table.clock()
        table.inc(0, 100.0)  # after the last tick: sent all the same

    assert run_replicas(work, [2, 30], np.zeros((1, 1)), engine=engine).values == 232


def test_the_first_failure_ends_all_and_is_raised(engine):
    def work(table, fails):
        while True:
            table.get(0)
            if fails and table.now == 3:
                raise KeyError("mine")
            table.clock()

    with pytest.raises(KeyError, match="mine"):
        run_replicas(work, [False, True, False], np.zeros((2, 1)), engine=engine)


def test_simulated_time_is_that_of_the_slowest_where_one_must_wait():
    def work(table, task):
        for _ in range(10):
            table.get(0, refresh=True)
            table.clock()
        return table.seconds, table.waited

    def ends(staleness, latency=0.0):
        engine = SimulatedClock(lambda replica, clock: 5.0 if replica == clock == 0 else 1.0, latency)
        done = run_replicas(work, [None] * 2, np.zeros((1, 1)), staleness=staleness, engine=engine)
        return done.results

    assert ends(0) == [(14.0, 0.0), (14.0, 4.0)]
    assert ends(3) == [(14.0, 0.0), (11.0, 1.0)]
    assert ends(np.inf) == [(14.0, 0.0), (10.0, 0.0)]
    assert ends(np.inf, latency=0.5) == [(19.0, 5.0), (15.0, 5.0)]


def test_simulated_time_is_repeatable():
    def work(table, task):
        rng, seen = np.random.default_rng(table.replica), []
        for _ in range(30):
            seen.append(table.get(refresh=True).tobytes())
            table.inc(None, rng.standard_normal(table.shape))
            table.clock()
        return seen

    def go():
        rng = np.random.default_rng(0)
        cost = rng.exponential(1.0, (4, 30))
        engine = SimulatedClock(lambda replica, clock: cost[replica, clock])
        done = run_replicas(work, [None] * 4, np.zeros((3, 2)), staleness=2, engine=engine)
        return done.results, done.values.tobytes()

    assert go() == go()


# Checkpoints ---------------------------------------------------------------------------------------------


def stopping(n_clocks, stops_at):
    inner = descent(n_clocks)

    def work(table, data):
        if stops_at is not None:
            descent(stops_at)(table, data)
            if table.replica == 1:
                raise TimeoutError
        inner(table, data)

    return work


def test_a_run_that_goes_on_is_the_one_that_never_stopped(tmp_path):
    options = {"rule": Adagrad(0.1), "checkpoint": tmp_path, "checkpoint_every": 3}
    with pytest.raises(TimeoutError):
        run_replicas(stopping(15, 8), data_of(3), np.zeros((3, 2)), **options)
    # Between two clocks the coordinator may not have been quick enough to take every one of them.
    starts = []

    def work(table, data):
        starts.append(table.now)
        descent(15)(table, data)

    done = run_replicas(work, data_of(3), np.zeros((3, 2)), **options)
    assert len(set(starts)) == 1
    assert starts[0] in (0, 3, 6)
    assert done.values.ravel().tolist() == in_step(data_of(3), 15)[0].tolist()
    again = fit_descent("local", checkpoint=tmp_path)  # at its end: nothing is left to do
    assert again.values.tolist() == done.values.tolist()
    longer = fit_descent("local", 25, checkpoint=tmp_path)
    assert longer.values.ravel().tolist() == in_step(data_of(3), 25)[0].tolist()


@pytest.mark.parametrize("staleness", [1, np.inf])
def test_a_state_has_exactly_the_updates_before_its_clock(staleness, tmp_path):
    from stradask.scheduler.stores.store import Checkpoint

    states, save = [], Checkpoint.save

    def work(table, pause):
        for clock in range(40):
            table.get(0)
            table.inc([0, 1], float(2**clock))
            table.clock()
            time.sleep(pause)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Checkpoint,
            "save",
            lambda self, clock, arrays, *rest: (
                states.append((clock, arrays["cells"].copy())),
                save(self, clock, arrays, *rest),
            ),
        )
        run_replicas(
            work,
            [0.0, 2e-3],
            np.zeros((2, 1)),
            staleness=staleness,
            checkpoint=tmp_path,
            checkpoint_every=2,
            engine=LocalTable(2),
        )
    assert states[-1][0] == 40
    for clock, cells in states:
        assert cells.ravel().tolist() == [2 * (2.0**clock - 1)] * 2


def test_a_checkpoint_of_another_table_is_refused(tmp_path):
    fit_descent("local", checkpoint=tmp_path)
    with pytest.raises(CheckpointMismatch, match="staleness"):
        fit_descent("local", checkpoint=tmp_path, staleness=1)
    with pytest.raises(CheckpointMismatch, match="mine"):
        fit_descent("local", checkpoint=tmp_path, fingerprint={"mine": 1})
    with pytest.raises(CheckpointMismatch, match="beginning"):
        run_replicas(descent(2), data_of(3), np.ones((3, 2)), rule=Adagrad(0.1), checkpoint=tmp_path)


# Bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.zeros(3)}, "values must be a matrix"),
        ({"values": np.zeros((0, 3))}, "values must be a matrix"),
        ({"values": [[np.nan]]}, "values holds nan"),
        ({"values": [["a"]]}, "values must be a matrix of real numbers"),
        ({"values": [[1j]]}, "values must be a matrix of real numbers"),
        ({"slots": np.zeros((2, 1, 2))}, r"slots must be finite, of shape \(3, 1, 2\)"),
        ({"staleness": -1}, "staleness must be at least 0, got -1"),
        ({"staleness": 0.5}, "staleness must be an integer or float"),
        ({"tasks": []}, "tasks is empty"),
        ({"engine": "cluster"}, "engine='cluster' is unknown"),
        ({"engine": 3}, "engine=3 is unknown"),
        ({"engine": SimulatedClock([1.0])}, "seconds has 1 entries, but there are 3 tasks"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
    ],
)
def test_what_a_run_refuses(change, message):
    arguments = {"tasks": data_of(3), "values": np.zeros((3, 2)), "rule": Adagrad(0.1)} | change
    with pytest.raises(DataError, match=message):
        run_replicas(descent(2), **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table: table.get(3), "rows holds 3, but the table has the rows 0 to 2"),
        (lambda table: table.get([0, -1]), "rows holds -1"),
        (lambda table: table.get([0.5]), "rows must be an int or a vector of ints"),
        (lambda table: table.get([[0]]), "rows must be an int or a vector of ints"),
        (lambda table: table.inc([0, 1], np.ones((3, 2))), "delta must broadcast to 2 rows of 2 numbers"),
        (lambda table: table.inc([2, 1], [[0, 1], [np.inf, 0]]), "delta is not finite in row 1"),
        (lambda table: SimulatedClock([0.0]), "seconds must be above 0, got 0.0"),
        (lambda table: Adagrad(np.nan), "rate must be a number above 0, got nan"),
    ],
)
def test_what_a_table_refuses(call, message):
    with pytest.raises(DataError, match=message):
        run_replicas(lambda table, task: call(table), [None], np.zeros((3, 2)))


def test_rows_may_come_in_any_order_and_twice():
    def work(table, task):
        table.inc([2, 0, 2], [[1.0], [10.0], [100.0]])
        assert table.get([2, 0, 2, 1]).ravel().tolist() == [101, 10, 101, 0]
        assert table.get(2).tolist() == [101]
        assert table.get([]).shape == (0, 1)
        table.inc([], np.zeros((0, 1)))
        table.get(0)[:] = 7  # a copy
        assert table.get(0) == 10

    assert run_replicas(work, [None], np.zeros((3, 1))).values.ravel().tolist() == [10, 0, 101]


def test_threads_need_no_dask():
    code = """
import sys, numpy as np
from stradask.scheduler.table.replicas import run_replicas
from stradask.scheduler.table.table import ParameterTable
def work(table, task):
    table.inc(0, 1.0); table.clock()
assert run_replicas(work, [0, 1], np.zeros((1, 1)), staleness=1).values == 2
assert not {"dask", "distributed", "numba"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_no_thread_is_left():
    check_counting("local", 1)
    assert not [t for t in threading.enumerate() if t.name.startswith("stradask-replica")]


# On Dask ---------------------------------------------------------------------------------------------------


def test_there_may_be_more_replicas_than_threads(one_process):
    def work(table, task):
        for _ in range(3):
            table.get(0)
            table.inc(0, 1.0)
            table.clock()

    done = run_replicas(work, [None] * 9, np.zeros((1, 1)), engine=one_process.scheduler_address)
    assert done.values == 27


def test_inside_a_dask_task_replicas_are_its_own_threads(one_process):
    from distributed import Client

    def fit():
        with pytest.warns(UserWarning, match="inside a Dask task"):
            done = run_replicas(
                lambda table, task: table.inc(0, task), [1, 2], np.zeros((1, 1)), engine="dask"
            )
        return float(done.values[0, 0])

    with Client(one_process) as client:
        assert client.submit(fit, pure=False).result(120) == 3.0


@pytest.mark.cluster
def test_data_of_dask_come_as_their_values(processes):
    import dask
    from distributed import Client

    with Client(processes) as client:
        here = client.submit(lambda: np.full(2, 3.0), pure=False)
        lazy = dask.delayed(lambda: np.full(2, 4.0))()

        def work(table, task):
            table.inc(0, task["x"])
            table.clock()

        for engine in ("dask", client):
            done = run_replicas(work, [{"x": here}, {"x": lazy}], np.zeros((1, 2)), engine=engine)
            assert done.values.tolist() == [[7.0, 7.0]]


def test_an_answer_that_is_lost_makes_no_update_twice(one_process):
    from distributed.comm import CommClosedError

    calls = [0]

    def forgetful(deliver):
        @functools.wraps(deliver)
        async def handler(**message):
            answer = await deliver(**message)  # the shard has made the update
            calls[0] += 1
            if calls[0] % 15 == 0:  # so seldom that no message is lost twice
                raise CommClosedError("lost on the way back")
            return answer

        return handler

    with deliveries(one_process, forgetful):
        check_counting(one_process.scheduler_address, 1)
    assert calls[0] > 30


@contextlib.contextmanager
def deliveries(cluster, wrapper):
    """Wrap the handler of the workers of this process."""
    run_replicas(lambda table, task: None, [None] * 4, np.zeros((1, 1)), engine=cluster.scheduler_address)
    handlers = [worker.handlers for worker in cluster.workers.values()]
    before = [own["stradask_table_deliver"] for own in handlers]
    for own, old in zip(handlers, before, strict=True):
        own["stradask_table_deliver"] = wrapper(old)
    yield
    for own, old in zip(handlers, before, strict=True):
        own["stradask_table_deliver"] = old


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((), {}, r"ParameterTable\(\)"),
        ((10, 3), {}, r"ParameterTable\(10, 3\)"),
        ((), {"n_rows": 10}, r"ParameterTable\(n_rows=10\)"),
    ],
)
def test_a_table_made_by_hand_says_how_one_is_made(arguments, named, said):
    with pytest.raises(DataError, match=said + r".*run_replicas\(function, tasks, values\)"):
        ParameterTable(*arguments, **named)
