"""What every schedule promises, checked on plans alone: no threads, no program."""

import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from stradask.errors import DataError, ModelFileError
from stradask.kernels import scheduling
from stradask.scheduler import DynamicSchedule, RotationSchedule, StaticSchedule

ORDERS = ("cyclic", "permutation", "size", "balanced")
seeds = st.integers(0, 2**31 - 1)


def blocks_of(plan):
    """The one set of a plan that gives every shard the same."""
    (step,) = plan
    assert [shard for shard, _ in step] == list(range(len(step)))
    first = step[0][1]
    assert all(np.array_equal(blocks, first) for _, blocks in step)
    return first


def drive(schedule, n_rounds, changes, first=0, state=None):
    """Plan as the engine does, ahead if the schedule wants it; `changes(r, blocks)` are the events."""
    state = schedule.start() if state is None else state
    plans = []
    prepared = None
    for r in range(first, first + n_rounds):
        plan = schedule.plan(r, state) if prepared is None else prepared
        prepared = schedule.plan(r + 1, state) if schedule.lookahead else None
        blocks = blocks_of(plan)
        schedule.observe(state, r, blocks, changes(r, blocks))
        plans.append(blocks)
    return plans, state


def through_npz(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


# Static --------------------------------------------------------------------------------------------


@st.composite
def statics(draw):
    n_blocks = draw(st.integers(1, 40))
    weights = draw(st.lists(st.integers(0, 9), min_size=n_blocks, max_size=n_blocks))
    return {
        "n_blocks": n_blocks,
        "size": draw(st.integers(1, 50)),
        "n_shards": draw(st.integers(1, 4)),
        "order": draw(st.sampled_from(ORDERS)),
        "weights": weights,
        "random_state": draw(seeds),
    }


@given(parameters=statics(), epoch=st.integers(0, 10**9))
@settings(deadline=None)  # the first call imports scikit-learn
def test_static_meets_every_block_once_an_epoch_and_no_more_than_size_a_round(parameters, epoch):
    schedule = StaticSchedule(**parameters)
    state = schedule.start()
    per_epoch = -(-schedule.n_blocks // schedule.size)
    plans = [schedule.plan(r, state) for r in range(epoch * per_epoch, (epoch + 1) * per_epoch)]
    assert all(len(plan[0]) == schedule.n_shards for plan in plans)
    sets = [blocks_of(plan) for plan in plans]
    assert all(1 <= len(blocks) <= schedule.size for blocks in sets)
    assert sorted(np.concatenate(sets)) == list(range(schedule.n_blocks))
    # In any order of asking, and from another object of the same seed.
    again = StaticSchedule(**parameters)
    for place in reversed(range(per_epoch)):
        assert np.array_equal(blocks_of(again.plan(epoch * per_epoch + place, {})), sets[place])
    assert state == {}


def test_static_orders():
    weights = [3, 1, 4, 1, 5, 9, 2]
    epochs = {
        order: [
            blocks_of(StaticSchedule(7, size=2, order=order, weights=weights).plan(r, {})).tolist()
            for r in range(4)
        ]
        for order in ("cyclic", "size", "balanced")
    }
    assert epochs["cyclic"] == [[0, 1], [2, 3], [4, 5], [6]]
    assert epochs["size"] == [[5, 4], [2, 0], [6, 1], [3]]
    assert epochs["balanced"] == [[5], [4, 3], [2, 1], [0, 6]]


@given(n_sets=st.integers(1, 6), size=st.integers(1, 8), seed=seeds)
def test_balanced_sets_differ_by_less_than_the_heaviest_block(n_sets, size, seed):
    weights = np.random.default_rng(seed).pareto(1, n_sets * size)
    schedule = StaticSchedule(n_sets * size, size=size, order="balanced", weights=weights)
    loads = [weights[blocks_of(schedule.plan(r, {}))].sum() for r in range(n_sets)]
    assert max(loads) - min(loads) <= weights.max() * (1 + 1e-9)


def test_permutations_are_new_each_epoch_and_for_each_seed():
    def epoch(seed, number):
        schedule = StaticSchedule(50, size=50, order="permutation", random_state=seed)
        return blocks_of(schedule.plan(number, {})).tolist()

    assert len({tuple(epoch(seed, number)) for seed in (0, 1) for number in (0, 1, 2)}) == 6
    assert epoch(0, 7) == epoch(0, 7)


# Rotation ------------------------------------------------------------------------------------------


@given(n_shards=st.integers(1, 8), per_shard=st.integers(2, 4), extra=st.integers(0, 7), r=st.integers(0, 99))
def test_a_block_travels_while_its_next_shard_works(n_shards, per_shard, extra, r):
    n_blocks = per_shard * n_shards + min(extra, n_shards - 1)
    steps = RotationSchedule(n_shards, n_blocks, rotate=True).plan(r, {})
    busy = {}
    for s, step in enumerate(steps):
        for shard, block in step:
            busy.setdefault(block, []).append((s, shard))
    for stops in busy.values():
        for (s, shard), (later, following) in itertools.pairwise(stops):
            assert later - s >= per_shard  # at least one whole step lies between
            assert following != shard


# Dynamic -------------------------------------------------------------------------------------------


@st.composite
def dynamics(draw):
    n_blocks = draw(st.integers(1, 30))
    n_schedulers = draw(st.integers(1, min(4, n_blocks)))
    rng = np.random.default_rng(draw(seeds))
    conflict = rng.random((n_blocks, n_blocks)) < draw(st.sampled_from([0, 0.1, 0.5, 1]))
    conflict |= conflict.T
    form = draw(st.sampled_from(["matrix", "sparse", "callable", "none"]))
    if form == "none":
        conflict[:] = False
    given_as = {
        "matrix": conflict,
        "sparse": sparse.csr_array(conflict),
        "callable": lambda left, right: conflict[np.ix_(left, right)],
        "none": None,
    }[form]
    parameters = {
        "n_blocks": n_blocks,
        "size": draw(st.integers(1, 40)),
        "n_shards": draw(st.integers(1, 3)),
        "eta": draw(st.sampled_from([0.05, 1.0, 20.0])),
        "conflicts": given_as,
        "oversample": draw(st.integers(1, 5)),
        "n_schedulers": n_schedulers,
        "loads": draw(st.none() | st.just(rng.integers(0, 5, n_blocks))),
        "lookahead": draw(st.integers(0, 1)),
        "random_state": draw(seeds),
    }
    return parameters, conflict


def sparse_changes(seed):
    """Changes as of a sparse model: most are 0, a few huge or tiny."""

    def changes(r, blocks):
        rng = np.random.default_rng([seed, r])
        return rng.choice([0, 0, 0, 1e-300, 1, 1e300], len(blocks))

    return changes


@given(case=dynamics(), seed=seeds)
@settings(deadline=None)
def test_a_dynamic_set_is_small_distinct_independent_and_of_one_range(case, seed):
    parameters, conflict = case
    schedule = DynamicSchedule(**parameters)
    n_schedulers = schedule.n_schedulers
    plans, _ = drive(schedule, 4 * n_schedulers + 6, sparse_changes(seed))
    for r, blocks in enumerate(plans):
        assert blocks.dtype == np.int64
        assert 1 <= len(blocks) <= schedule.size
        assert len(set(blocks.tolist())) == len(blocks)
        assert not conflict[np.ix_(blocks, blocks)][~np.eye(len(blocks), dtype=bool)].any()
        k = r % n_schedulers
        low, high = (j * schedule.n_blocks // n_schedulers for j in (k, k + 1))
        assert low <= blocks.min() <= blocks.max() < high
        if parameters["loads"] is not None:
            assert (np.diff(np.asarray(parameters["loads"])[blocks]) <= 0).all()


@given(case=dynamics(), seed=seeds)
@settings(deadline=None)
def test_dynamic_updates_every_block_in_time_and_again_later(case, seed):
    parameters, _ = case
    schedule = DynamicSchedule(**parameters)
    # With one round of lookahead a set may be planned twice; a range has its turn every n_schedulers rounds.
    longest = -(-schedule.n_blocks // schedule.n_schedulers)
    n_rounds = longest * schedule.n_schedulers * (1 + schedule.lookahead) + 1

    def one_is_all(r, blocks):
        return np.where(blocks == 0, 1e300, 0.0)

    plans, state = drive(schedule, n_rounds, one_is_all)
    assert set(np.concatenate(plans)) == set(range(schedule.n_blocks))
    assert not state["fresh"].any()


def test_dynamic_comes_back_to_blocks_that_did_not_change():
    schedule = DynamicSchedule(20, size=2, eta=0.05, random_state=3)
    plans, state = drive(schedule, 12, lambda r, blocks: (blocks == 0) * 1e300)
    assert not state["fresh"].any()
    plans, _ = drive(schedule, 3000, lambda r, blocks: (blocks == 0) * 1e300, 12, state)
    visits = np.bincount(np.concatenate(plans), minlength=20)
    # Of 8 draws a round a share of 0.05 / 1.05 is uniform, and the first two distinct ones are taken.
    assert visits.min() > 20
    assert visits[0] > 2900


@given(case=dynamics(), seed=seeds)
@settings(deadline=None)
def test_dynamic_is_a_function_of_seed_and_events_and_leaves_its_state_alone(case, seed):
    parameters, _ = case
    schedule, other = DynamicSchedule(**parameters), DynamicSchedule(**parameters)
    plans, state = drive(schedule, 9, sparse_changes(seed))
    again, state_again = drive(other, 9, sparse_changes(seed))
    assert all(map(np.array_equal, plans, again))
    before = {name: array.copy() for name, array in state.items()}
    for r in (9, 3, 9):
        schedule.plan(r, state)
    assert state.keys() == before.keys() == state_again.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(state[name], array)
        np.testing.assert_array_equal(state_again[name], array)
    # And it goes on in the same way from a file, on an object that has seen nothing.
    resumed, _ = drive(DynamicSchedule(**parameters), 5, sparse_changes(seed), 9, through_npz(state))
    went_on, _ = drive(schedule, 5, sparse_changes(seed), 9, state)
    assert all(map(np.array_equal, resumed, went_on))


def test_another_seed_gives_other_sets():
    sets = {
        seed: tuple(
            map(tuple, drive(DynamicSchedule(100, size=5, random_state=seed), 4, sparse_changes(0))[0])
        )
        for seed in range(5)
    }
    assert len(set(sets.values())) == 5


@pytest.mark.parametrize("oversample", [1, 6])
def test_candidates_come_in_proportion_to_change_plus_eta_times_the_mean(oversample):
    change = np.array([0, 0, 1.0, 2.0, 0, 7.0, 0, 0, 0, 0])
    eta = 0.5
    schedule = DynamicSchedule(10, size=1, eta=eta, oversample=oversample, random_state=0)
    state = schedule.start()
    schedule.observe(state, 0, np.arange(10), change)
    drawn = np.concatenate([blocks_of(schedule.plan(r, state)) for r in range(8_000)])
    expected = change + eta * change.mean()
    expected *= len(drawn) / expected.sum()
    squares = (np.bincount(drawn, minlength=10) - expected) ** 2 / expected
    assert squares.sum() < 40  # chi-square with 9 degrees of freedom: exceeded once in 10**5


def test_the_unit_of_the_priorities_does_not_matter():
    def plans(scale):
        schedule = DynamicSchedule(30, size=4, random_state=1)
        return drive(schedule, 40, lambda r, blocks: scale * ((blocks * 7 + r) % 5))[0]

    assert all(map(np.array_equal, plans(1.0), plans(2.0**-200)))


def test_lookahead_plans_without_the_last_event():
    schedule = DynamicSchedule(50, size=3, lookahead=1, random_state=0)
    state = schedule.start()
    prepared = schedule.plan(1, state)
    schedule.observe(state, 0, np.arange(50), np.arange(50.0))
    late = schedule.plan(1, state)
    assert not np.array_equal(blocks_of(prepared), blocks_of(late))


def test_dependent_candidates_give_way_to_later_ones():
    # One clique of heavy blocks: only one of them may come, and light ones fill the set.
    clique = np.zeros((40, 40), dtype=bool)
    clique[:8, :8] = True
    schedule = DynamicSchedule(40, size=4, eta=1.0, conflicts=clique, oversample=8, random_state=0)
    state = schedule.start()
    schedule.observe(state, 0, np.arange(40), np.where(np.arange(40) < 8, 1.0, 0.0))
    sets = [blocks_of(schedule.plan(r, state)) for r in range(200)]
    assert max((blocks < 8).sum() for blocks in sets) == 1
    assert np.mean([len(blocks) for blocks in sets]) > 3.9


def test_a_million_blocks_cost_what_a_thousand_cost():
    # Counted, not timed: what a plan and an event allocate does not grow with the number of blocks.
    import tracemalloc

    def allocated(n_blocks):
        schedule = DynamicSchedule(n_blocks, size=32, random_state=0)
        state = schedule.start()
        schedule.observe(state, 0, np.arange(n_blocks), np.ones(n_blocks))
        tracemalloc.start()
        for r in range(1, 4):
            blocks = blocks_of(schedule.plan(r, state))
            schedule.observe(state, r, blocks, np.ones(len(blocks)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    allocated(100)
    # The least of some runs: other threads of the process allocate, too.
    few, many = (min(allocated(n_blocks) for _ in range(4)) for n_blocks in (1_000, 1_000_000))
    assert many < 3 * few + 20_000


# The tree of sums ------------------------------------------------------------------------------------


@given(n=st.integers(1, 70), seed=seeds)
@settings(deadline=None)
def test_the_tree_sums_and_draws_as_cumulative_weights_do(n, seed):
    rng = np.random.default_rng(seed)
    tree = np.ones(2 * n)
    scheduling.build(tree)
    leaves = rng.integers(0, n, 3 * n)
    weights = rng.integers(0, 4, 3 * n).astype(float)
    scheduling.change(tree, leaves, weights)
    expected = np.ones(n)
    for leaf, weight in zip(leaves, weights, strict=True):
        expected[leaf] = weight
    np.testing.assert_array_equal(tree[n:], expected)
    assert tree[1] == expected.sum()
    # A fine grid of points meets each leaf as often as its weight says.
    total = int(expected.sum())
    if total:
        points = (np.arange(8 * total) + 0.5) / (8 * total)
        out = np.empty(len(points), np.int64)
        scheduling.draw(tree, np.ones(len(points)), points, 0.5, out)
        np.testing.assert_array_equal(np.bincount(out, minlength=n), 8 * expected)


@given(n=st.integers(1, 50))
@settings(deadline=None)
def test_points_at_the_very_end_never_draw_a_leaf_of_no_weight(n):
    tree = np.zeros(2 * n)
    tree[n] = 0.1
    scheduling.build(tree)
    out = np.empty(3, np.int64)
    scheduling.draw(tree, np.ones(3), np.array([0.0, 0.5, 1 - 2.0**-53]), 0.5, out)
    assert out.tolist() == [0, 0, 0]
    tree[:] = 0
    scheduling.draw(tree, np.ones(3), np.array([0.0, 0.5, 1 - 2.0**-53]), 0.5, out)
    assert out.tolist() == [0, n // 2, n - 1]


# What is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_blocks": 0}, "n_blocks must be at least 1, got 0"),
        ({"n_blocks": 2.5}, "n_blocks must be an integer, got 2.5"),
        ({"size": 0}, "size must be at least 1"),
        ({"size": True}, "size must be an integer"),
        ({"n_shards": 0}, "n_shards must be at least 1"),
    ],
)
@pytest.mark.parametrize("kind", [StaticSchedule, DynamicSchedule])
def test_numbers_that_make_no_schedule(kind, parameters, message):
    with pytest.raises(DataError, match=message):
        kind(**{"n_blocks": 5, "size": 2, **parameters})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"order": "random"}, "order must be one of cyclic, permutation, size, balanced, got 'random'"),
        ({"order": "size"}, "needs weights"),
        ({"order": "balanced", "weights": [1, 2]}, "weights must be 5 finite numbers"),
        ({"order": "size", "weights": [1, 2, 3, 4, -1]}, "weights must be 5 finite numbers"),
    ],
)
def test_orders_that_are_none(parameters, message):
    with pytest.raises(DataError, match=message):
        StaticSchedule(5, **parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"eta": 0}, "eta must be a finite number above 0"),
        ({"eta": np.nan}, "eta must be a finite number above 0"),
        ({"oversample": 0}, "oversample must be at least 1"),
        ({"n_schedulers": 6}, "n_schedulers=6 ranges cannot be cut from 5 blocks"),
        ({"lookahead": 2}, "lookahead must be 0 or 1, got 2"),
        ({"lookahead": -1}, "lookahead must be at least 0"),
        ({"loads": [1, 2]}, "loads must be 5 finite numbers"),
        ({"conflicts": np.eye(4, dtype=bool)}, r"boolean matrix of shape \(5, 5\)"),
        ({"conflicts": np.eye(5)}, "boolean matrix"),
        ({"conflicts": np.triu(np.ones((5, 5), bool))}, "conflicts must be symmetric"),
        ({"conflicts": sparse.csr_array(np.triu(np.ones((5, 5), bool)))}, "conflicts must be symmetric"),
    ],
)
def test_dynamic_parameters_that_cannot_be_used(parameters, message):
    with pytest.raises(DataError, match=message):
        DynamicSchedule(5, size=2, **parameters)


@pytest.mark.parametrize(
    ("blocks", "priorities", "message"),
    [
        ([0, 5], [1, 1], "blocks must be numbers from 0 to 4"),
        ([-1], [1], "blocks must be numbers from 0 to 4"),
        ([0, 1], [1], "one number for each block"),
        ([0.5], [1], "one number for each block"),
        ([0, 3], [1, np.nan], "that of block 3 is nan"),
        ([0, 3], [np.inf, 0], "that of block 0 is inf"),
        ([2], [-1e-9], "that of block 2 is -1e-09"),
    ],
)
def test_events_that_cannot_be(blocks, priorities, message):
    schedule = DynamicSchedule(5, size=2, random_state=0)
    state = schedule.start()
    with pytest.raises(DataError, match=message):
        schedule.observe(state, 0, np.array(blocks), np.array(priorities))


def test_a_state_of_another_schedule():
    schedule = DynamicSchedule(5, size=2, random_state=0)
    for state in (
        DynamicSchedule(4, size=2).start(),
        {},
        schedule.start() | {"tree": np.ones(10, np.float32)},
    ):
        with pytest.raises(ModelFileError, match="belongs to another schedule"):
            schedule.plan(0, state)
        with pytest.raises(ModelFileError, match="belongs to another schedule"):
            schedule.observe(state, 0, np.array([0]), np.array([1.0]))


def test_conflicts_that_return_something_else():
    for answer in (np.zeros((1, 1), bool), np.zeros((2, 2))):
        schedule = DynamicSchedule(9, size=2, conflicts=lambda left, right, a=answer: a, random_state=0)
        with pytest.raises(DataError, match="conflicts must return booleans of shape"):
            schedule.plan(0, schedule.start())
