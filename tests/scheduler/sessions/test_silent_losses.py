"""Runs that would lose data, diverge or forget in silence: schedules of other numbers, objectives, states."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from stradask.errors import DataError
from stradask.scheduler import DynamicSchedule, Outcome, Program, RotationSchedule, StaticSchedule, run
from stradask.scheduler.schedules.schedule import Schedule
from stradask.scheduler.schedules.switching import PassesSchedule, SwitchSchedule

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 8)), RNG.standard_normal(60)
EXACT = np.linalg.lstsq(X, Y, rcond=None)[0]


class LeastSquares(Program):
    """Coordinate descent on rows in shards; `rate` above 1 overshoots."""

    saved = ("residual",)

    def __init__(self, X, y, n_shards, rate=1.0):
        self.shards = [(X[i::n_shards], y[i::n_shards]) for i in range(n_shards)]
        self.n_blocks, self.rate = X.shape[1], rate
        self.norms, self.coef = (X**2).sum(axis=0), np.zeros(X.shape[1])

    def load(self, data):
        return {"X": data[0], "residual": data[1].copy()}

    def update(self, state, task):
        return state["X"][:, task.blocks].T @ state["residual"]

    def aggregate(self, tasks, partials):
        blocks = tasks[0].blocks
        change = self.rate * sum(partials) / self.norms[blocks]
        self.coef[blocks] += change
        return Outcome((blocks, change), priorities=abs(change))

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
        self.coef = arrays["coef"]


# Numbers of shards and blocks ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_shards", [1, 2, 3])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda: StaticSchedule(size=1),
        lambda: StaticSchedule(8, size=1),
        lambda: StaticSchedule(order="permutation", random_state=0),
        lambda: StaticSchedule(order="balanced", weights=np.arange(8.0)),
        lambda: DynamicSchedule(size=1, random_state=0),
        lambda: DynamicSchedule(8, size=1, random_state=0),
        lambda: DynamicSchedule(
            size=2, conflicts=~np.eye(8, dtype=bool), loads=np.ones(8), lookahead=1, random_state=0
        ),
    ],
)
def test_a_schedule_takes_its_numbers_from_the_program(schedule, n_shards):
    program, made = LeastSquares(X, Y, n_shards), schedule()
    run(program, made, max_rounds=1000)
    np.testing.assert_allclose(program.coef, EXACT, atol=1e-8)
    other = LeastSquares(X[:, :8], Y, 4 - n_shards)  # the schedule itself has learnt nothing
    run(other, made, max_rounds=1000)
    np.testing.assert_allclose(other.coef, EXACT, atol=1e-8)


def test_a_rotation_takes_its_numbers_from_the_program():
    class Meetings(Program):
        shards, n_blocks, met = (0, 1), 5, ()

        def update(self, state, task):
            return task.shard, task.blocks

        def aggregate(self, tasks, partials):
            self.met = partials

    program = Meetings()
    run(program, RotationSchedule(), max_rounds=1)
    assert sorted(program.met) == [(shard, block) for shard in range(2) for block in range(5)]
    run(program, RotationSchedule(2), max_rounds=1)
    assert len(program.met) == 10
    run(program, SwitchSchedule(PassesSchedule(2, 1), RotationSchedule()), max_rounds=1)
    assert sorted(program.met) == [(0, 0), (1, 0)]
    with pytest.raises(DataError, match="RotationSchedule was made for n_blocks=4, but the program has 5 bl"):
        run(program, RotationSchedule(2, 4), max_rounds=1)


@pytest.mark.parametrize("make", [StaticSchedule, lambda *args, **kw: DynamicSchedule(*args, size=1, **kw)])
def test_a_schedule_for_other_numbers_is_refused(make):
    for n_blocks, n_shards, name in [
        (7, 2, "n_blocks=7"),
        (9, None, "n_blocks=9"),
        (8, 1, "n_shards=1"),
        (8, 3, "n_shards=3"),
    ]:
        with pytest.raises(DataError, match=f"made for {name}, but the program has"):
            run(LeastSquares(X, Y, 2), make(n_blocks, n_shards=n_shards), max_rounds=1)


def test_what_hangs_on_the_number_of_blocks_is_checked_when_it_is_known():
    for schedule, words in [
        (StaticSchedule(order="size", weights=np.ones(7)), "weights must be 8"),
        (DynamicSchedule(size=1, loads=np.ones(7)), "loads must be 8"),
        (DynamicSchedule(size=1, n_schedulers=9), "n_schedulers=9 ranges cannot be cut from 8"),
        (DynamicSchedule(size=1, conflicts=np.eye(7, dtype=bool)), r"shape \(8, 8\)"),
    ]:
        with pytest.raises(DataError, match=words):
            run(LeastSquares(X, Y, 2), schedule, max_rounds=1)
    for schedule in (StaticSchedule(), DynamicSchedule(size=1), RotationSchedule()):
        with pytest.raises(DataError, match="has no n_blocks yet"):
            schedule.plan(0, schedule.start())


@pytest.mark.parametrize("pair", [(2, 0), (-1, 0), (0, 8), (0, np.array([0, 8])), (1, np.array([-1]))])
def test_plans_of_ones_own_stay_inside_the_program(pair):
    class Outside(Schedule):
        def plan(self, round, state):
            return [[pair]]

    with pytest.raises(DataError, match=r"Outside plans blocks .* but the program has 2 shards and 8 blocks"):
        run(LeastSquares(X, Y, 2), Outside(), max_rounds=1)


# Objectives without bound ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "max_rounds"), [(2.2, 60), (2.2, 1000), (30.0, 3000)])
def test_a_run_that_diverges_says_so(rate, max_rounds):
    program = LeastSquares(X, Y, 2, rate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with np.errstate(all="ignore"):
            done = run(program, StaticSchedule(), max_rounds=max_rounds)
    assert done.reason == "diverged"
    assert [w.category for w in caught if "LeastSquares diverged" in str(w.message)] == [ConvergenceWarning]
    if rate > 10:
        assert done.n_rounds < max_rounds  # it stops soon after the objective is no number


class Tells(Program):
    """Reports the objectives that it is given."""

    def __init__(self, values, measured=True):
        self.values, self.round = list(values), 0
        if not measured:
            self.measure_every = 0

    def update(self, state, task):
        return task.round

    def aggregate(self, tasks, partials):
        self.round = partials[0]
        return Outcome(objective=np.nan if self.measure_every else self.values[self.round])

    def measure(self, state):
        return 0

    def objective(self, parts):
        return self.values[self.round]


T = np.arange(60.0)
CONVERGING = {
    "falls": 0.9**T,
    "rises first": 1 + 1e6 * T * 0.6**T,
    "far above its start": 1e-9 + 1 - 0.8**T,
    "swings": 5 + 100 * np.cos(T) * 0.9**T,
    "starts outside": np.r_[[np.inf] * 10, 0.9 ** T[10:]],
    "infinite for a moment": np.r_[0.9 ** T[:20], np.inf, np.inf, 0.9 ** T[22:]],
    "log-likelihood": -1 - 9 * 0.9**T,
    "log-likelihood that speeds up": -10 + 9 / (1 + np.exp(40 - T)),
    "noise": 1 + 0.01 * np.sin(1e4 * T),
    "constant": np.ones(60),
    "slows": np.log1p(T),
}
DIVERGING = {
    "grows": 1.1**T,
    "grows evenly": 1 + T,
    "falls first": np.r_[10 * 0.9**T, 0.02 * 1.2**T],
    "to infinity": np.r_[1.1**T, np.inf],
    "no number": np.r_[0.9**T, np.nan],
}


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("name", CONVERGING)
def test_no_converging_run_is_said_to_diverge(name, measured):
    values = CONVERGING[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(Tells(values, measured), StaticSchedule(), max_rounds=len(values)).reason == "finished"


@pytest.mark.parametrize("name", DIVERGING)
def test_objectives_without_bound_are_named(name):
    values = DIVERGING[name]
    with pytest.warns(ConvergenceWarning, match=r"Tells diverged: its objective (rose|is no finite)"):
        assert run(Tells(values), StaticSchedule(), max_rounds=len(values)).reason == "diverged"


def test_a_missing_measurement_is_no_divergence():
    program = Tells(np.where(T % 3 == 2, 0.9**T, np.nan))
    program.measure_every = 3
    assert run(program, StaticSchedule(), max_rounds=60).reason == "finished"
    program = Tells([1.0] + [np.nan] * 59)
    with pytest.warns(ConvergenceWarning):
        done = run(program, StaticSchedule(), max_rounds=60)
    assert (done.reason, done.n_rounds) == ("diverged", 4)


# States that `saved` forgets -------------------------------------------------------------------------------


class Momentum(LeastSquares):
    """A shard remembers the slope that it gave last."""

    saved = ("residual", "slope")

    def load(self, data):
        return super().load(data) | {"slope": np.zeros(8), "room": np.zeros(8)}

    def update(self, state, task):
        slope = super().update(state, task)
        state["room"][task.blocks] = slope  # work space
        state.setdefault("squares", (state["X"] ** 2).sum(axis=0))  # made again when needed
        state["slope"][task.blocks] = 0.1 * state["slope"][task.blocks] + slope
        return state["slope"][task.blocks].copy()


@pytest.mark.parametrize(
    ("saved", "named"),
    [(("slope",), "'residual'"), (("residual",), "'slope'"), ((), "'residual', .*'slope'")],
)
def test_a_state_that_saved_forgets_is_named(tmp_path, saved, named):
    program = Momentum(X, Y, 2)
    program.saved = saved
    run(program, StaticSchedule(), max_rounds=12)  # nothing is restored, nothing is lost
    program = Momentum(X, Y, 2)
    program.saved = saved
    with pytest.raises(DataError, match=f"saved = .* forgets .* differs in .*{named}"):
        run(program, StaticSchedule(), max_rounds=12, checkpoint=tmp_path)


def test_work_space_and_what_is_saved_are_not_named(tmp_path):
    whole, program = Momentum(X, Y, 2), Momentum(X, Y, 2)
    run(whole, StaticSchedule(), max_rounds=30)
    run(program, StaticSchedule(), max_rounds=17, checkpoint=tmp_path, checkpoint_every=5)
    program = Momentum(X, Y, 2)
    run(program, StaticSchedule(), max_rounds=30, checkpoint=tmp_path)
    assert (program.coef == whole.coef).all()
