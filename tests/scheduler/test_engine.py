"""The engine over programs small enough to be followed by hand: order of calls, losses, checkpoints."""

import numpy as np
import pytest
from engine_programs import EveryBlock, Flaky, LeastSquares, Pass

from stradask.errors import CheckpointMismatch, DataError, ModelFileError, WorkerLost
from stradask.scheduler.engine import run
from stradask.scheduler.program import Outcome, Program
from stradask.scheduler.schedules.rotation import RotationSchedule
from stradask.scheduler.schedules.schedule import Schedule
from stradask.scheduler.workers import open_session


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    return rng.standard_normal((30, 6)), rng.standard_normal(30)


def _solve(problem, *, n_shards=3, lookahead=0, max_rounds=40, measure_every=1, **options):
    program = LeastSquares(*problem, n_shards, measure_every)
    options.setdefault("check", not isinstance(options.get("engine"), Flaky))  # whose calls are counted
    done = run(program, EveryBlock(6, n_shards, lookahead), max_rounds=max_rounds, **options)
    return program, done


@pytest.mark.parametrize("lookahead", [0, 1])
def test_a_scheduled_program_reaches_the_least_squares_solution(problem, lookahead):
    program, done = _solve(problem, lookahead=lookahead, max_rounds=300)
    expected, (rss,), *_ = np.linalg.lstsq(*problem, rcond=None)
    np.testing.assert_allclose(program.coef, expected, atol=1e-10)
    columns = done.history.as_dict()
    assert columns["objective"][-1] == pytest.approx(rss / 2)
    assert (np.diff(columns["objective"]) <= 1e-12).all()  # exact solves of two coordinates never rise
    assert columns["updates"].tolist() == [2] * 300
    assert set(columns["staleness"]) == {float(lookahead)}
    assert (done.n_rounds, done.reason) == (300, "finished")


def test_lookahead_plans_without_the_newest_event(problem):
    seen = []

    class Watching(EveryBlock):
        def plan(self, round, state):
            seen.append((round, int(state["seen"].sum()) // 2))
            return super().plan(round, state)

    for lookahead in (0, 1):
        seen.clear()
        run(LeastSquares(*problem, 2), Watching(6, 2, lookahead), max_rounds=4)
        assert [known for r, known in seen if r < 4] == ([0, 1, 2, 3] if not lookahead else [0, 0, 1, 2])


def test_the_result_is_that_of_any_number_of_threads(problem):
    coefs = [_solve(problem, n_jobs=n)[0].coef for n in (1, 2, 4)]
    assert (coefs[0] == coefs[1]).all()
    assert (coefs[0] == coefs[2]).all()


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("losses", [[1], [2], [5, 6], [3, 4, 20, 33], [37]])
def test_a_lost_worker_changes_no_bit(problem, monkeypatch, losses, lookahead):
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SECONDS", 0.0)  # a snapshot whenever it is cheap
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SHARE", 1.0)
    calm, rounds = _solve(problem, lookahead=lookahead)
    session = Flaky(losses)
    program, done = _solve(problem, lookahead=lookahead, engine=session)
    assert done.n_recoveries == len(losses)
    assert session.opened == 1 + len(losses)
    assert (program.coef == calm.coef).all()
    for name in ("round", "updates", "objective"):
        np.testing.assert_array_equal(done.history.as_dict()[name], rounds.history.as_dict()[name])


def test_without_a_snapshot_rounds_are_done_again_from_the_first(problem):
    calm, _ = _solve(problem)
    program, _ = _solve(problem, engine=Flaky([41]))
    assert (program.coef == calm.coef).all()
    assert program.calls == 40 + 20  # the twenty rounds before the one that was lost


class TwoSets(Schedule):
    """Every other block a round; planned ahead, the plan hangs on nothing but must be that of its round."""

    lookahead = 1

    def plan(self, round, state):
        return [[(shard, np.arange(round % 2, 4, 2)) for shard in range(2)]]


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("schedule", [RotationSchedule(), TwoSets()])
def test_a_program_whose_shards_hold_nothing_repeats_the_round_alone(measured, schedule):
    class Scores(Program):
        """Gradient descent on |y - Xb|^2 / 2, its coefficients sent out whole."""

        measure_every = int(measured)
        n_blocks = 4

        def __init__(self, X, y):
            self.shards, self.coef, self.calls = [(X[:9], y[:9]), (X[9:], y[9:])], np.zeros(X.shape[1]), 0

        def load(self, data):
            return {"data": data}

        def publish(self):
            return self.coef.copy()

        def sync(self, state, message):
            state["coef"] = message

        def update(self, state, task):
            X, y = state["data"]
            slopes = X.T @ (y - X @ state["coef"])
            return slopes * np.isin(np.arange(4), task.blocks) if np.ndim(task.blocks) else slopes

        def measure(self, state):
            X, y = state["data"]
            return np.sum((y - X @ state["coef"]) ** 2)

        def objective(self, parts):
            return sum(parts)

        def aggregate(self, tasks, partials):
            self.calls += 1
            self.coef = self.coef + 0.01 * sum(partials)
            return Outcome(self.publish())

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 4)), rng.standard_normal(20)
    expected, program = Scores(X, y), Scores(X, y)
    calm = run(expected, schedule, max_rounds=12)
    done = run(program, schedule, max_rounds=12, engine=Flaky([3, 4, 10]))
    assert done.n_recoveries == 3
    assert (program.coef == expected.coef).all()
    assert program.calls == 12
    objectives = [each.history.as_dict()["objective"] for each in (calm, done)]
    np.testing.assert_array_equal(*objectives)


def test_a_round_that_always_loses_workers_ends_with_the_loss(problem):
    with pytest.raises(WorkerLost, match="round 6 lost a worker 5 times"):
        _solve(problem, engine=Flaky(range(6, 200)), measure_every=0)


@pytest.mark.parametrize("barrier", ["round", "step", 3])
def test_blocks_travel_and_are_worked_on_in_the_order_of_the_plan(barrier):
    program = Pass(2, 4, barrier)
    done = run(program, RotationSchedule(2, 4), max_rounds=2, n_jobs=2)
    values, log = [10.0**b for b in range(4)], []
    for step in [step for r in range(2) for step in RotationSchedule(2, 4).plan(r, {})]:
        for shard, block in step:
            log.append(values[block])
            values[block] += shard + 1
    assert program.log == log
    assert program.messages == {"round": 2, "step": 8, 3: 4}[barrier]  # a round has four steps
    assert done.n_rounds == 2


def test_messages_come_once_and_before_the_next_update():
    told = []

    class Listening(Pass):
        def load(self, number):
            return super().load(number) | {"told": []}

        def sync(self, state, message):
            state["told"].append(message)

        def update(self, state, task):
            return *super().update(state, task), list(state["told"])

        def aggregate(self, tasks, partials):
            told.append([p[-1] for p in partials])
            return super().aggregate(tasks, partials)

    run(Listening(2, 2, "step"), RotationSchedule(2, 2), max_rounds=2)
    assert told == [[[], []], [[1], [1]], [[1, 2], [1, 2]], [[1, 2, 3], [1, 2, 3]]]


@pytest.mark.parametrize("barrier", ["round", "step", 3])
@pytest.mark.parametrize("losses", [[1], [6], [2, 3], [5, 11]])
def test_travelling_blocks_survive_losses(barrier, losses, monkeypatch):
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):  # a snapshot after every round, however long it takes
        monkeypatch.setattr(f"stradask.scheduler.engine.{name}", 0.0)
    calm, program = Pass(2, 4, barrier), Pass(2, 4, barrier)
    run(calm, RotationSchedule(2, 4), max_rounds=6)
    done = run(program, RotationSchedule(2, 4), max_rounds=6, engine=Flaky(losses))
    assert done.n_recoveries == len(losses)
    assert program.log == calm.log


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("remote", [False, True])
def test_a_run_goes_on_from_its_checkpoint_bitwise(problem, tmp_path, lookahead, remote):
    def engine():
        return Flaky([]) if remote else "local"

    whole, rounds = _solve(problem, lookahead=lookahead)
    options = {"checkpoint": tmp_path / "run", "fingerprint": {"seed": 1}, "checkpoint_every": 4}
    _solve(problem, lookahead=lookahead, max_rounds=17, engine=engine(), **options)
    program, done = _solve(problem, lookahead=lookahead, engine=engine(), **options)
    assert program.calls == 40 - 17
    assert (program.coef == whole.coef).all()
    assert done.n_rounds == len(done.history) == 40
    np.testing.assert_array_equal(done.history.as_dict()["objective"], rounds.history.as_dict()["objective"])
    with pytest.raises(CheckpointMismatch, match="seed: 1 in the checkpoint, 2 here"):
        _solve(problem, **{**options, "fingerprint": {"seed": 2}})


def test_a_checkpoint_that_does_not_fit_the_program_is_refused(problem, tmp_path):
    X, y = problem
    _solve(problem, max_rounds=2, checkpoint=tmp_path)
    with pytest.raises(ModelFileError, match="shard-0/residual"):
        _solve((X[:20], y[:20]), max_rounds=4, checkpoint=tmp_path)
    with pytest.raises(CheckpointMismatch, match="n_blocks: 6 in the checkpoint, 4 here"):
        run(LeastSquares(X[:, :4], y, 3), EveryBlock(4, 3), max_rounds=4, checkpoint=tmp_path)
    with pytest.raises(CheckpointMismatch, match="n_shards: 3 in the checkpoint, 2 here"):
        _solve(problem, n_shards=2, max_rounds=4, checkpoint=tmp_path)


def test_a_loss_while_a_checkpoint_is_taken_costs_that_state_alone(problem, tmp_path):
    calm, _ = _solve(problem, max_rounds=8)
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 4, "max_rounds": 8}
    program, done = _solve(problem, engine=Flaky([9]), **options)  # four rounds of two calls, then it
    assert done.n_recoveries == 1
    assert (program.coef == calm.coef).all()
    assert [path.name for path in (tmp_path / "run").glob("round-*")] == ["round-000000008.npz"]


def test_what_ends_a_run(problem):
    assert _solve(problem, tol=1e-12)[1].reason == "converged"
    assert _solve(problem, max_seconds=0)[1].reason == "time"
    assert _solve(problem, stop=lambda history: "enough" if len(history) == 3 else False)[1].n_rounds == 3
    assert _solve(problem, callback=lambda info: info.round == 2)[1].reason == "callback"

    class Stops(LeastSquares):
        def aggregate(self, tasks, partials):
            super().aggregate(tasks, partials)
            return Outcome(done="gap" if self.calls == 5 else False)

    done = run(Stops(*problem, 2), EveryBlock(6, 2), max_rounds=9)
    assert (done.n_rounds, done.reason) == (5, "gap")


def test_measuring_now_and_then(problem):
    _, done = _solve(problem, measure_every=3, max_rounds=7)
    assert np.isnan(done.history.as_dict()["objective"]).tolist() == [True, True, False] * 2 + [True]


def test_a_callback_gets_the_model_so_far(problem):
    lengths = []
    _solve(
        problem,
        max_rounds=3,
        snapshot=lambda history: len(history),
        callback=lambda info: lengths.append(info.snapshot()),
    )
    assert lengths == [1, 2, 3]


def test_an_error_in_an_update_is_the_users_own(problem):
    class Fails(LeastSquares):
        def update(self, state, task):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(Fails(*problem, 2), EveryBlock(6, 2), max_rounds=2)


@pytest.mark.parametrize("engine", ["spark", 3, None])
def test_an_unknown_engine_is_named(engine):
    with pytest.raises(DataError, match=r"engine.*'dask'"):
        open_session(engine)


def test_a_run_that_came_to_its_end_is_not_carried_on(problem, tmp_path):
    class Stops(LeastSquares):
        def aggregate(self, tasks, partials):
            super().aggregate(tasks, partials)
            return Outcome(done="gap" if self.calls == 5 else False)

    def again(path, **options):
        program = Stops(*problem, 2) if path == "done" else LeastSquares(*problem, 2)
        done = run(program, EveryBlock(6, 2), max_rounds=9, checkpoint=tmp_path / path, **options)
        return done.n_rounds, done.reason, program.calls

    assert again("done") == (5, "gap", 5)
    assert again("done") == (5, "gap", 0)

    def stop(history):
        return "enough" if len(history) >= 3 else False

    assert again("stop", stop=stop) == (3, "enough", 3)
    assert again("stop", stop=stop) == (3, "enough", 0)
    assert again("stop") == (9, "finished", 6)
    n_rounds, reason, _ = again("tol", tol=0.5)
    assert (n_rounds < 9, reason) == (True, "converged")
    assert again("tol", tol=0.5) == (n_rounds, "converged", 0)


def test_the_last_state_that_could_not_be_fetched_is_told(problem, tmp_path):
    with pytest.warns(UserWarning, match="a worker was lost while the last state was fetched"):
        _solve(problem, engine=Flaky([7]), max_rounds=3, checkpoint=tmp_path)


def test_programs_that_cannot_be_done_again_are_refused_where_workers_die(problem):
    class Forgets(LeastSquares):
        restore = Program.restore

    run(Forgets(*problem, 2), EveryBlock(6, 2), max_rounds=2)
    with pytest.raises(DataError, match=r"Forgets changes its coordinator.*"):
        run(Forgets(*problem, 2), EveryBlock(6, 2), max_rounds=2, engine=Flaky([]))

    class Misnames(LeastSquares):
        saved = ("residue",)

    with pytest.raises(DataError, match="saved names 'residue'"):
        run(Misnames(*problem, 2), EveryBlock(6, 2), max_rounds=2)
    with pytest.raises(DataError, match="lookahead must be 0 or 1, got 2"):
        _solve(problem, lookahead=2)
