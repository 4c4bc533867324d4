"""Programs that do other things on workers than on threads are refused by name, and no others are."""

import collections
import copy
import random

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from stradask.errors import DataError
from stradask.scheduler import DynamicSchedule, Outcome, Program, RotationSchedule, StaticSchedule, run
from stradask.scheduler.stores.saved import n_bytes

X = np.random.default_rng(0).standard_normal((24, 6))
Y = X @ np.arange(6.0)


def least_squares(**changes):
    """Make least squares by coordinates with other methods or attributes; classes here go by value."""

    class LeastSquares(Program):
        saved = ("residual",)
        n_blocks = 6
        rate = 1.0

        def __init__(self):
            self.shards = [(X[:12], Y[:12]), (X[12:], Y[12:])]
            self.norms, self.coef = (X**2).sum(axis=0), np.zeros(6)

        def load(self, data):
            return {"X": data[0], "residual": data[1].copy()}

        def update(self, state, task):
            return state["X"][:, task.blocks].T @ state["residual"]

        def sync(self, state, message):
            blocks, change = message
            state["residual"] -= state["X"][:, blocks] @ change

        def measure(self, state):
            return state["residual"] @ state["residual"] / 2

        def aggregate(self, tasks, partials):
            blocks = tasks[0].blocks
            change = self.rate * sum(partials) / self.norms[blocks]
            self.coef[blocks] += change
            return Outcome((blocks, change), priorities=abs(change), updates=len(blocks))

        def objective(self, parts):
            return sum(parts)

        def arrays(self):
            return {"coef": self.coef}

        def restore(self, arrays):
            self.coef = arrays["coef"]

    start = {
        name: value if name in ("lock", "large") else copy.deepcopy(value)
        for name, value in changes.pop("start", {}).items()
    }
    program = type("LeastSquares", (LeastSquares,), changes | {"__module__": __name__})()
    for name, value in start.items():
        setattr(program, name, value)
    return program


def slope(state, task):
    return state["X"][:, task.blocks].T @ state["residual"]


def counts(self, state, task):
    self.n_calls += 1
    return slope(state, task)


def sums(self, state, task):
    self.slopes[task.blocks] += slope(state, task)
    return slope(state, task)


def puts_into_an_array(self, state, task):
    self.slopes[task.blocks] = 1.0  # the same each time
    return slope(state, task)


def puts_into_a_dict(self, state, task):
    self.results[task.shard] = slope(state, task)
    return slope(state, task)


def appends(self, state, task):
    self.log.append(task.shard)
    return slope(state, task)


def sets_a_flag(self, state, task):
    self.is_done = True
    return slope(state, task)


def counts_in_an_object(self, state, task):
    self.stats.n_calls += 1
    return slope(state, task)


def draws(self, state, task):
    return slope(state, task) + 0.01 * self.rng.normal()


def draws_plain(self, state, task):
    return slope(state, task) + 0.01 * self.rng.gauss(0, 1)


def adds_to_a_set(self, state, message):
    self.seen |= {len(self.seen)}


def measures_into_self(self, state):
    self.loss = state["residual"] @ state["residual"] / 2
    return self.loss


class Stats:
    n_calls = 0


WRITES = {
    "a count": ("n_calls", {"update": counts, "start": {"n_calls": 0}}),
    "a sum in place": ("slopes", {"update": sums, "start": {"slopes": np.zeros(6)}}),
    "equal values in place": ("slopes", {"update": puts_into_an_array, "start": {"slopes": np.zeros(6)}}),
    "an entry": ("results", {"update": puts_into_a_dict, "start": {"results": {}}}),
    "a list": ("log", {"update": appends, "start": {"log": []}}),
    "a flag": ("is_done", {"update": sets_a_flag, "start": {"is_done": False}}),
    "an object": ("stats", {"update": counts_in_an_object, "start": {"stats": Stats()}}),
    "a set in sync": ("seen", {"sync": adds_to_a_set, "start": {"seen": set()}}),
    "a measure": ("loss", {"measure": measures_into_self}),
    "a generator": ("rng", {"update": draws, "start": {"rng": np.random.default_rng(0)}}),
    "an old generator": ("rng", {"update": draws, "start": {"rng": np.random.RandomState(0)}}),
    "a plain generator": ("rng", {"update": draws_plain, "start": {"rng": random.Random(0)}}),
}


@pytest.mark.parametrize("case", WRITES)
def test_an_attribute_that_shards_write_is_named(one_process, case):
    name, changes = WRITES[case]
    for engine in ("local", one_process.scheduler_address):
        schedule = StaticSchedule(size=2)
        message = rf"LeastSquares: its update, sync or measure writes self\.{name}\. .*check=False"
        with pytest.raises(DataError, match=message) as caught:
            run(least_squares(**changes), schedule, max_rounds=3, engine=engine)
        assert ("task.rng(seed)" in str(caught.value)) == (name == "rng")
    run(least_squares(**changes), StaticSchedule(size=2), max_rounds=3, check=False)


def slope_at_own_coef(self, state, task):
    return state["X"][:, task.blocks].T @ (state["X"] @ (np.arange(6.0) - self.coef))


def takes_own_coef(self, state, message):
    state["residual"] -= state["X"] @ self.coef


def measures_own_coef(self, state):
    return state["residual"] @ state["residual"] / 2 + self.coef @ self.coef


@pytest.mark.parametrize(
    "changes", [{"update": slope_at_own_coef}, {"sync": takes_own_coef}, {"measure": measures_own_coef}]
)
def test_what_the_coordinator_changes_and_shards_read_is_named(one_process, changes):
    for engine in ("local", one_process.scheduler_address):
        message = r"LeastSquares: .* depends on self\.coef, which workers have as it was when the run began"
        with pytest.raises(DataError, match=message):
            run(least_squares(**changes), StaticSchedule(size=2), max_rounds=3, engine=engine)
    run(least_squares(**changes), StaticSchedule(size=2), max_rounds=3, check=False)


def test_shards_that_an_update_reads_are_named():
    def update(self, state, task):
        return self.shards[task.shard][0][:, task.blocks].T @ state["residual"]

    with pytest.raises(DataError, match=r"reads self\.shards, which workers have not: let load put"):
        run(least_squares(update=update), StaticSchedule(size=2), max_rounds=3)


# Programs that are right ----------------------------------------------------------------------------------


def cached(self, state, task):
    if self._gram is None:
        self._gram = X.T @ X
    if task.blocks[0] not in self._columns:
        self._columns[task.blocks[0]] = np.sqrt(self.norms[task.blocks])
    return slope(state, task)


def filled(self, state, task):
    for block in task.blocks:
        if not self._has[block]:
            self._roots[block], self._has[block] = np.sqrt(self.norms[block]), True
    return slope(state, task)


def refilled(self, state, task):
    if self._cache[0] != task.round:  # of this round only
        self._cache = (task.round, np.sqrt(self.norms))
    return slope(state, task)


def drawn(self, state, task):
    return slope(state, task) + 0.0 * task.rng(3).standard_normal(len(task.blocks))


def drawn_from_the_state(self, state, task):
    state["draws"] = state.get("draws", 0) + task.rng(3).standard_normal()
    return slope(state, task)


def drawn_from_nowhere(self, state, task):
    return slope(state, task) + 1e-3 * np.random.default_rng().standard_normal(len(task.blocks))


def loads_sparse(self, data):
    return {"X": sparse.csc_matrix(data[0]), "residual": data[1].copy()}


def in_place(self, state, task):
    state["residual"] += 0.0
    state.setdefault("log", []).append(task.round)
    np.matmul(state["X"].T, state["residual"], out=state.setdefault("work", np.empty(6)))
    return state["work"][task.blocks]


def counts_at_the_coordinator(self, parts):
    self.n_objectives = getattr(self, "n_objectives", 0) + 1
    self.rng.normal()
    return sum(parts)


def sometimes_reads_coef(self, state, task):
    return slope(state, task) + 0 * self.coef[task.blocks]  # no result depends on it


def returns_the_state(self, state, task):
    return [state["residual"], state["X"][:, task.blocks]]


def adds_in_place(self, tasks, partials):
    total = partials[0]
    for partial in partials[1:]:
        total = [np.r_[total[0], partial[0]], np.r_[total[1], partial[1]]]
    partials[0][0] *= 0  # its own copy
    blocks = tasks[0].blocks
    change = total[1].T @ np.r_[partials[0][0], total[0][12:]] * 0
    self.coef[blocks] += change
    return Outcome((blocks, change), updates=len(blocks))


class Locked:
    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


def looked_up(self, state, task):
    self.pairs.get_loc((1, 3))
    return slope(state, task)


RIGHT = {
    "plain": {},
    "a cache of pandas": {
        "update": looked_up, "start": {"pairs": pd.MultiIndex.from_product([[1, 2], [3, 4]])}},
    "caches": {"update": cached, "start": {"_gram": None, "_columns": {}}},
    "cache in arrays": {"update": filled, "start": {"_roots": np.zeros(6), "_has": np.zeros(6, bool)}},
    "cache of a round": {"update": refilled, "start": {"_cache": (-1, None)}},
    "a task's draws": {"update": drawn},
    "draws in the state": {"update": drawn_from_the_state},
    "draws from nowhere": {"update": drawn_from_nowhere},
    "sparse": {"load": loads_sparse},
    "sparse attributes": {"start": {"table": sparse.csr_matrix(X), "names": collections.deque("abc")}},
    "states in place": {"update": in_place},
    "a count of objectives": {
        "objective": counts_at_the_coordinator, "start": {"rng": np.random.default_rng(0)}},
    "no result depends": {"update": sometimes_reads_coef},
    "parts of the state": {"update": returns_the_state, "aggregate": adds_in_place},
    "an attribute that cannot be copied": {"start": {"lock": Locked()}},
    "a large one": {"start": {"large": np.zeros(2**24)}},
    "frozen": {"start": {"norms": np.broadcast_to(24.0, 6)}},
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_programs_that_are_right_run(one_process, case):
    local, remote = least_squares(**RIGHT[case]), least_squares(**RIGHT[case])
    run(local, DynamicSchedule(size=2, random_state=0), max_rounds=4, n_jobs=2)
    schedule, address = DynamicSchedule(size=2, random_state=0), one_process.scheduler_address
    run(remote, schedule, max_rounds=4, engine=address)
    if case != "draws from nowhere":
        np.testing.assert_array_equal(local.coef, remote.coef)


def test_the_copies_of_a_trial_leave_the_run_as_it_is():
    tried, untried = least_squares(), least_squares()
    for program, check in ((tried, True), (untried, False)):
        run(program, DynamicSchedule(size=2, random_state=0), max_rounds=9, check=check)
    np.testing.assert_array_equal(tried.coef, untried.coef)


@pytest.mark.parametrize(
    "large", [sparse.eye_array(300, format="csr"), pd.DataFrame({"x": np.ones(300)}), [{"x": np.ones(300)}]]
)
def test_sizes_of_states_count_matrices_tables_and_containers(large):
    assert 2400 <= n_bytes({"large": large}) < 9000


def test_large_states_are_not_tried(monkeypatch):
    monkeypatch.setattr("stradask.scheduler.stores.saved.MOST_TRIED", 2000)
    calls = collections.Counter()

    def update(self, state, task):
        calls[task.shard] += 1
        return slope(state, task)

    def load(self, data):
        return {"X": data[0], "residual": data[1].copy(), "table": pd.DataFrame({"x": np.ones(300)})}

    run(least_squares(update=update, load=load), StaticSchedule(size=2), max_rounds=3)
    assert calls == {0: 3, 1: 3}


def test_what_cannot_be_copied_goes_to_the_coordinator_as_it_is():
    def update(self, state, task):
        return Locked(), slope(state, task)

    def aggregate(self, tasks, partials):
        return type(self).__mro__[1].aggregate(self, tasks, [partial for _, partial in partials])

    program, plain = least_squares(update=update, aggregate=aggregate), least_squares()
    for each in program, plain:
        run(each, StaticSchedule(size=2), max_rounds=3)
    np.testing.assert_array_equal(program.coef, plain.coef)


def test_a_trial_is_made_once_and_is_cheap():
    calls = collections.Counter()

    def update(self, state, task):
        calls[task.shard] += 1
        return slope(state, task)

    run(least_squares(update=update), StaticSchedule(size=2), max_rounds=5)
    assert calls == {0: 5 + 2, 1: 5}


# Values and messages --------------------------------------------------------------------------------------


def rotating(**changes):
    class Rotating(Program):
        travels = True
        n_blocks = 4

        def __init__(self):
            self.shards, self.total = [np.ones(3), 2 * np.ones(3)], 0.0

        def block(self, block):
            return np.full(3, float(block))

        def update(self, state, task):
            task.value += state
            return float(task.value.sum())

        def aggregate(self, tasks, partials):
            self.total += sum(partials)

        def arrays(self):
            return {"total": np.array(self.total)}

        def restore(self, arrays):
            self.total = float(arrays["total"])

    return type("Rotating", (Rotating,), changes | {"__module__": __name__})()


def test_a_value_may_be_replaced(engine):
    def replaces(self, state, task):
        task.value = task.value + state
        return float(task.value.sum())

    program, in_place = rotating(update=replaces), rotating()
    run(program, RotationSchedule(2, 4), max_rounds=3, engine=engine)
    run(in_place, RotationSchedule(2, 4), max_rounds=3)
    assert program.total == in_place.total


def test_blocks_may_be_drawn_by_the_program_and_depend_on_what_changes_later():
    def block(self, block):
        self.n_made = getattr(self, "n_made", 0) + 1
        return self.total + self.rng.normal(size=3)

    run(rotating(block=block, rng=np.random.default_rng(0)), RotationSchedule(2, 4), max_rounds=3)


@pytest.mark.parametrize(
    "update", [lambda self, state, task: task.value + state, lambda self, state, task: state @ task.value]
)
def test_forgotten_travels_is_named(one_process, update):
    for engine in ("local", one_process.scheduler_address):
        with pytest.raises(
            DataError, match=r"Rotating\.update reads task\.value, .* set travels = True"
        ) as e:
            run(rotating(update=update, travels=False), StaticSchedule(), max_rounds=2, engine=engine)
        assert "\n" not in str(e.value)


def test_sets_of_blocks_that_travel_are_refused(one_process):
    for engine in ("local", one_process.scheduler_address):
        with pytest.raises(DataError, match=r"StaticSchedule plans sets .* Rotating travel one at a time"):
            run(rotating(), StaticSchedule(), max_rounds=2, engine=engine)


def test_other_errors_of_an_update_stay_as_they_are():
    def update(self, state, task):
        if task.value is None:
            return {}["missing"]
        return 1.0

    with pytest.raises(KeyError, match="missing"):
        run(rotating(update=update, travels=False), StaticSchedule(), max_rounds=2)
    with pytest.raises(TypeError, match="unsupported"):
        run(rotating(update=lambda self, state, task: 1 + "1", travels=False), StaticSchedule(), max_rounds=2)


def test_a_message_is_what_it_was_when_it_was_made(one_process):
    def sync(self, state, message):
        state["residual"] = state["residual"] - state["X"] @ (message - state.get("coef", 0))
        state["coef"] = message  # on threads the coordinator's own array, if it were not copied

    def aggregate(self, tasks, partials):
        blocks = tasks[0].blocks
        self.coef[blocks] += sum(partials) / self.norms[blocks] / 2
        return Outcome(self.coef, updates=len(blocks))

    results = []
    for engine in ("local", one_process.scheduler_address):
        program = least_squares(sync=sync, aggregate=aggregate)
        run(program, StaticSchedule(size=2), max_rounds=90, engine=engine)
        results.append(program.coef)
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], np.arange(6.0), atol=1e-3)


def test_an_aggregate_of_another_kind_is_named():
    with pytest.raises(DataError, match=r"LeastSquares\.aggregate must return an Outcome or None, got"):
        run(least_squares(aggregate=lambda self, tasks, partials: partials), StaticSchedule(), max_rounds=1)
