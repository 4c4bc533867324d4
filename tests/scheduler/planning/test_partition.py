"""PipeDream's dynamic program against all partitions, and against the plans published for VGG-16."""

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stradask.errors import DataError
from stradask.scheduler.planning import Link, Profile, partition

INF = float("inf")


def all_partitions(n_layers, n_stages, n_places):
    """All cuts into stages, with all numbers of replicas that make so many places."""
    for inner in itertools.combinations(range(1, n_layers), n_stages - 1):
        ends = [0, *inner, n_layers]
        for replicas in itertools.product(range(1, n_places + 1), repeat=n_stages):
            if sum(replicas) == n_places:
                yield tuple(zip(ends[:-1], ends[1:], replicas, strict=True))


def published_cost(profile, stages, bandwidth):
    """The formula of the paper, stage by stage."""
    worst = 0.0
    for first, last, m in stages:
        work = (profile.forward + profile.backward)[first:last].sum()
        weights = profile.parameter_bytes[first:last].sum()
        worst = max(worst, (work + 4 * (m - 1) * weights / (bandwidth * m)) / m)
        if first:
            worst = max(worst, 2 * profile.activation_bytes[first - 1] / (bandwidth * m))
    return worst


positive = st.floats(0, 10, allow_subnormal=False)


@st.composite
def profiles(draw, most=6):
    n = draw(st.integers(1, most))
    vector = st.lists(positive, min_size=n, max_size=n)
    return Profile(*(draw(vector) for _ in range(4)))


@settings(max_examples=60, deadline=None)
@given(profiles(), st.integers(1, 5), st.floats(0.1, 10))
def test_it_is_the_best_of_all_partitions(profile, n_places, bandwidth):
    found = partition(profile, n_places, Link(0, bandwidth, duplex=False), rows=1)
    for k, m in itertools.product(range(1, profile.n_layers + 1), range(1, n_places + 1)):
        costs = {s: published_cost(profile, s, bandwidth) for s in all_partitions(profile.n_layers, k, m)}
        assert ((k, m) in found) == bool(costs)
        if costs:
            cut = found[k, m]
            assert cut.seconds == pytest.approx(min(costs.values()), rel=1e-9, abs=1e-12)
            assert costs[cut.stages] == pytest.approx(cut.seconds, rel=1e-9, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(profiles(5), st.integers(1, 4), st.integers(1, 8), st.floats(0.1, 10))
def test_with_a_flush_it_is_the_shortest_step(profile, n_places, micro_batches, bandwidth):
    link = Link(0.5, bandwidth)

    def step(stages):
        before = total = 0.0
        for first, last, m in stages:
            work = (profile.forward + profile.backward)[first:last].sum()
            summed = link.all_reduce(profile.parameter_bytes[first:last].sum(), m)
            travel = profile.activation_bytes[first - 1] * micro_batches / (m * bandwidth) if first else 0.0
            total = max(total, before + max(work * micro_batches / m + summed, travel))
            hop = 2 * link.seconds(profile.activation_bytes[last - 1]) if last < profile.n_layers else 0.0
            before += work + hop
        return max(total, before)

    options = {"rows": 1, "micro_batches": micro_batches, "flush": True}
    for (k, m), cut in partition(profile, n_places, link, **options).items():
        least = min(step(stages) for stages in all_partitions(profile.n_layers, k, m))
        assert cut.seconds * micro_batches == pytest.approx(least, rel=1e-9, abs=1e-9)
        assert step(cut.stages) == pytest.approx(least, rel=1e-9, abs=1e-9)


def test_of_the_stages_that_fit_it_takes_the_best():
    rng = np.random.default_rng(0)
    profile = Profile(*rng.uniform(1, 2, (4, 6)))
    allowed = rng.random((4, 6, 7, 5)) < 0.7  # by the number of stages from here on
    allowed[:, :, 0] = False
    found = partition(profile, 4, Link(0, 1.0, duplex=False), rows=1, fits=lambda k: allowed[k - 1])
    for k, m in itertools.product(range(1, 5), range(1, 5)):
        costs = [
            published_cost(profile, stages, 1.0)
            for stages in all_partitions(6, k, m)
            if all(allowed[k - 1 - i, first, last, n] for i, (first, last, n) in enumerate(stages))
        ]
        assert found[k, m].seconds == pytest.approx(min(costs)) if costs else (k, m) not in found


# Profile and plans of PipeDream's release (github.com/msr-fiddle/pipedream), profiled in mini-batches of 64:
# what its optimizer gives for so many machines and 10 Gbit/s. The plan for four is that of its README.
PUBLISHED = {
    4: (((0, 17, 3), (17, 39, 1)), 3.8136556909403665, 2.8363721095124594),
    8: (((0, 24, 7), (24, 39, 1)), 6.669235494623278, 2.754498200722997),
    16: (((0, 24, 13), (24, 31, 2), (31, 39, 1)), 12.273680808619268, 2.6608611366760377),
}


@pytest.fixture(scope="module")
def vgg16():
    with open(Path(__file__).with_name("vgg16_profile.csv")) as file:
        rows = list(csv.DictReader(file))
    ms = [[float(row[f"{way}_ms"]) / 1e3 for row in rows] for way in ("forward", "backward")]
    sizes = [[float(row[f"{what}_bytes"]) for row in rows] for what in ("activation", "parameter")]
    return Profile(*ms, *sizes)


@pytest.mark.parametrize("n_places", PUBLISHED)
def test_the_published_plans_of_vgg16(vgg16, n_places):
    stages, speedup, over_data = PUBLISHED[n_places]
    found = partition(vgg16, n_places, Link(0, 1.25e9, duplex=False), rows=1)
    best = min((cut for (_, m), cut in found.items() if m == n_places), key=lambda cut: cut.seconds)
    assert best.stages == stages
    assert sum(sum(vgg16.seconds(1))) / best.seconds == pytest.approx(speedup, rel=1e-9)
    assert found[1, n_places].seconds / best.seconds == pytest.approx(over_data, rel=1e-9)


def test_seconds_between_and_beyond_the_rows_that_were_measured():
    profile = Profile([[1, 2, 4]], [[0, 1, 5]], [0], [0], rows=[10, 20, 40])
    assert [profile.seconds(rows)[0][0] for rows in (5, 10, 15, 30, 80)] == [0.5, 1, 1.5, 3, 8]
    assert [profile.seconds(rows)[1][0] for rows in (5, 40, 80)] == [0, 5, 13]


GOOD = {"forward": [1, 2], "backward": [1, 2], "activation_bytes": [1, 2], "parameter_bytes": [1, 2]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"forward": [1, -2]}, "forward must be finite and not negative"),
        ({"forward": [], "backward": []}, "forward has no layers"),
        ({"backward": [1]}, "backward must be seconds of 2 layers"),
        ({"backward": "slow"}, "backward must be numbers"),
        ({"activation_bytes": [1, 2, 3]}, "activation_bytes must be 2 numbers"),
        ({"parameter_bytes": [1, INF]}, "parameter_bytes must be finite"),
        ({"rows": [64, 32]}, "rows must be rising"),
        ({"rows": 1.5}, "rows must be an integer"),
        ({"names": ["one"]}, "names must be 2"),
        ({"state_copies": -1}, "state_copies must be a finite number from 0"),
    ],
)
def test_profiles_that_cannot_be(wrong, said):
    with pytest.raises(DataError, match=said):
        Profile(**GOOD | wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"latency": -1}, "latency must be a finite number of seconds"),
        ({"cpu": INF}, "cpu must be a finite number of seconds"),
        ({"bandwidth": 0}, "bandwidth must be a number above 0"),
        ({"bandwidth": "fast"}, "bandwidth must be a number above 0"),
        ({"sum_bandwidth": 0}, "sum_bandwidth must be a number above 0"),
    ],
)
def test_links_that_cannot_be(wrong, said):
    with pytest.raises(DataError, match=said):
        Link(**wrong)


def test_sums_over_places_move_what_their_algorithm_moves():
    link = Link(0, 1.0)
    assert [link.ring(12.0, n) for n in (2, 3, 4)] == [12, 16, 18]
    assert [link.all_reduce(12.0, n) for n in (1, 2, 3, 4, 5, 8)] == [0, 12, 48, 18, 72, 21]
    assert Link(1.0, INF, cpu=0.25).all_reduce(1e9, 8) == 6 * 1.5
    assert Link(0, 1.0, duplex=False).ring(12.0, 4) == 36
    slow = Link(0, 2.0, sum_bandwidth=1.0)
    assert (slow.seconds(12.0), slow.ring(12.0, 2), slow.all_reduce(12.0, 4)) == (6, 12, 18)
