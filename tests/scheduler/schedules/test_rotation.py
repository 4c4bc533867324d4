"""Who works on what when, and how items are spread."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stradask.errors import DataError
from stradask.scheduler.schedules.rotation import RotationSchedule, balance

sizes = st.integers(1, 12)


@given(n_shards=sizes, n_blocks=st.none() | sizes, rotate=st.booleans(), r=st.integers(0, 10**6))
def test_a_round_meets_every_pair_once_and_a_step_shares_nothing(n_shards, n_blocks, rotate, r):
    schedule = RotationSchedule(n_shards, n_blocks, rotate=rotate)
    steps = schedule.plan(r, {})
    n_blocks = n_shards if n_blocks is None else n_blocks
    assert len(steps) == max(n_shards, n_blocks)  # fewer steps cannot do it
    for step in steps:
        shards, blocks = zip(*step, strict=True)
        assert len(step) == min(n_shards, n_blocks)
        assert len(set(shards)) == len(set(blocks)) == len(step)
    met = [pair for step in steps for pair in step]
    assert sorted(met) == list(itertools.product(range(n_shards), range(n_blocks)))
    assert steps == RotationSchedule(n_shards, n_blocks, rotate=rotate).plan(r, {})


def test_rotate_begins_each_round_elsewhere():
    fixed, rotated = RotationSchedule(3), RotationSchedule(3, rotate=True)
    assert fixed.plan(0, {}) == fixed.plan(1, {}) == rotated.plan(0, {}) == rotated.plan(3, {})
    assert rotated.plan(1, {}) == [*fixed.plan(0, {})[1:], fixed.plan(0, {})[0]]


@pytest.mark.parametrize(
    ("numbers", "name"), [((0,), "n_shards"), ((2, 0), "n_blocks"), ((-1, 2), "n_shards")]
)
def test_a_schedule_of_nothing_is_an_error(numbers, name):
    with pytest.raises(DataError, match=f"{name} must be at least 1"):
        RotationSchedule(*numbers)


def loads(weights, group, n_groups):
    return np.bincount(group, weights=np.asarray(weights, dtype=float), minlength=n_groups)


def longest_first(weights, n_groups):
    """The textbook form."""
    totals, group = [0] * n_groups, [0] * len(weights)
    for item in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        group[item] = min(range(n_groups), key=lambda k: (totals[k], k))
        totals[group[item]] += weights[item]
    return group


@given(weights=st.lists(st.integers(0, 50), max_size=40), n_groups=st.integers(1, 8))
def test_few_items_go_longest_first(weights, n_groups):
    group = balance(weights, n_groups)
    assert group.dtype == np.int32
    assert group.tolist() == longest_first(weights, n_groups)


@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=7), n_groups=st.integers(1, 3))
@settings(max_examples=40)
def test_the_heaviest_group_keeps_to_grahams_bound(weights, n_groups):
    best = min(
        loads(weights, assignment, n_groups).max()
        for assignment in itertools.product(range(n_groups), repeat=len(weights))
    )
    got = loads(weights, balance(weights, n_groups), n_groups).max()
    assert got <= best * (4 / 3 - 1 / (3 * n_groups)) + 1e-9


shapes = st.sampled_from(["equal", "zipf", "lognormal", "one giant", "many zeros", "steps"])


@given(shape=shapes, n_groups=st.sampled_from([1, 2, 3, 8, 64, 300]), seed=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_many_items_are_spread_evenly(shape, n_groups, seed):
    n = 20_000
    rng = np.random.default_rng(seed)
    ranks = rng.permutation(n) + 1
    weights = {
        "equal": np.ones(n),
        "zipf": np.ceil(1e6 / ranks),
        "lognormal": np.ceil(rng.lognormal(4, 1.5, n)),
        "one giant": np.where(ranks == 1, 1e9, 1.0),
        "many zeros": np.where(ranks < 30, 5.0, 0.0),
        "steps": 10.0 ** (ranks % 4),
    }[shape]
    group = balance(weights, n_groups)
    assert group.min() >= 0
    assert group.max() < n_groups
    load = loads(weights, group, n_groups)
    level = weights.sum() / n_groups
    assert load.max() <= level + weights.max()
    # A group that was given light items, on top of heavy ones, is among the lowest.
    light = np.argsort(-weights, kind="stable")[max(4096, 16 * n_groups) :]
    given_light = np.bincount(group[light], minlength=n_groups) > 0
    if weights[light].max() > 0:
        assert load[given_light].max() <= load.min() + 2 * weights[light].max() + 1e-6
    np.testing.assert_array_equal(group, balance(weights, n_groups))


def test_a_giant_item_has_its_group_alone():
    weights = np.ones(50_000)
    weights[123] = 1e6
    group = balance(weights, 4)
    assert np.flatnonzero(group == group[123]).tolist() == [123]


def test_light_items_are_mixed_so_that_groups_hold_equally_many():
    weights = np.ceil(1e6 / np.arange(1, 50_001))
    sizes = np.bincount(balance(weights, 8)[10_000:])
    assert np.ptp(sizes) < 0.03 * sizes.mean()


def test_items_of_no_weight_are_spread_too():
    assert np.ptp(np.bincount(balance(np.zeros(100_000), 7)[10_000:], minlength=7)) <= 2


@given(
    weights=st.lists(st.integers(0, 9), min_size=60, max_size=90),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_groups_of_other_shares_are_filled_up_to_them(weights, shares):
    """None ends beyond its part of what there is by more than an item, and none is left behind by more."""
    shares = np.array(shares) * (sum(weights) / sum(shares))
    load = loads(weights, balance(weights, len(shares), shares), len(shares))
    heaviest = max(weights)
    assert (load <= shares + heaviest + 1e-9).all()
    assert (load - shares).max() - (load - shares).min() <= heaviest + 1e-9 or heaviest == 0


@pytest.mark.parametrize("shares", [[1], [1, np.nan, 1], [[1, 2, 3]], [1, 2, np.inf]])
def test_shares_that_are_no_shares(shares):
    with pytest.raises(DataError, match="shares must be finite numbers, one for each of 3 groups"):
        balance([1, 2, 3], 3, shares)


@pytest.mark.parametrize("weights", [[1, -1], [np.nan], [np.inf], [[1, 2]]])
def test_weights_that_are_no_weights(weights):
    with pytest.raises(DataError, match="weights must be"):
        balance(weights, 2)


def test_no_groups():
    with pytest.raises(DataError, match="n_groups must be at least 1, got 0"):
        balance([1], 0)
