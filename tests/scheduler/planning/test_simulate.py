"""The simulator against closed forms and a recurrence, and timelines."""

import itertools

import numpy as np
import pytest

from stradask.errors import DataError
from stradask.scheduler.planning import Link, Profile, Timeline, simulate
from stradask.scheduler.planning.memory import held
from stradask.scheduler.planning.simulate import seconds_of_a_step

FREE = Link(0, float("inf"))


def stages(*replicas):
    return tuple((k, k + 1, n) for k, n in enumerate(replicas))


def equal(n_layers, rows=1, **options):
    return Profile(np.ones(n_layers), 2 * np.ones(n_layers), *np.zeros((2, n_layers)), rows=rows, **options)


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("K", "M"), [(1, 1), (2, 4), (4, 4), (4, 16), (8, 32), (3, 7)])
def test_bubbles_are_those_of_the_paper(order, K, M):
    options = {"batch_size": M, "micro_batches": M, "order": order}
    timeline = simulate(equal(K), stages(*[1] * K), FREE, **options)
    assert timeline.idle == pytest.approx((K - 1) / (M + K - 1), abs=1e-12)
    assert timeline.seconds == pytest.approx(3 * (M + K - 1))
    assert timeline.busy == pytest.approx(M / (M + K - 1))
    again = simulate(equal(K), stages(*[1] * K), FREE, recompute=True, **options)
    assert again.seconds == pytest.approx(4 * (M + K - 1))


@pytest.mark.parametrize("K", [1, 2, 4])
def test_pipedream_has_no_bubble_once_it_is_full(K):
    step = seconds_of_a_step(
        equal(K), stages(*[1] * K), FREE, batch_size=1, micro_batches=1, order="pipedream", recompute=False
    )
    assert step == pytest.approx(3.0)


def longest_path(K, M, order, forward, backward, hop):
    """End of the last operation: each after the one before it at its place, and after its input."""
    lists = []
    for k in range(K):
        ahead = M if order == "gpipe" else min(2 * (K - k - 1), M)
        turns = [("F", m) for m in range(ahead)]
        for n, m in enumerate(range(ahead, M)):
            turns += [("F", m), ("B", n)]
        lists.append(turns + [("B", m) for m in range(M - ahead, M)])
    end = {}
    for _ in range(2 * K * M):  # as often as there are operations: then nothing changes any more
        for k, turns in enumerate(lists):
            clock = 0.0
            for kind, m in turns:
                source = k - 1 if kind == "F" else k + 1
                ready = end.get((kind, source, m), 0.0) + hop if 0 <= source < K else 0.0
                clock = end[kind, k, m] = max(clock, ready) + (forward[k] if kind == "F" else backward[k])
    return max(end.values())


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_unequal_stages_and_slow_links_take_the_longest_path(order):
    rng = np.random.default_rng(0)
    for K, M in itertools.product((1, 2, 3, 5), (1, 2, 5)):
        forward, backward = rng.uniform(0.5, 2, (2, K))
        profile = Profile(forward, backward, *np.zeros((2, K)))
        options = {"batch_size": M, "micro_batches": M, "order": order}
        found = simulate(profile, stages(*[1] * K), Link(0.3, 1e9), **options)
        assert found.seconds == pytest.approx(longest_path(K, M, order, forward, backward, 0.3))


def test_messages_share_the_bandwidth_of_a_place():
    # Two micro-batches of one second each way; computing takes no time.
    profile = Profile([0, 0], [0, 0], [5, 0], [0, 0])
    options = {"batch_size": 2, "micro_batches": 2, "order": "gpipe"}
    assert simulate(profile, stages(1, 1), Link(0, 5.0), **options).seconds == 0  # no place works
    busy = Profile([1e-9, 1e-9], [1e-9, 1e-9], [5, 0], [0, 0])
    both = simulate(busy, stages(1, 1), Link(0, 5.0), **options).seconds
    one = simulate(busy, stages(1, 1), Link(0, 5.0, duplex=False), **options).seconds
    assert both == pytest.approx(4, rel=1e-6)
    assert one == pytest.approx(4, rel=1e-6)  # all forward, then all backward
    cpu = simulate(equal(2, 2), stages(1, 1), Link(0, 1e9, cpu=0.25), **options)
    assert cpu.seconds == pytest.approx(3 * (0.75 + 1.25))  # three turns, a message in each


def test_gradients_of_replicas_are_summed_before_the_update():
    profile = Profile([1.0], [2.0], [0], [12.0], update=[0.5])
    timeline = simulate(profile, [(0, 1, 4)], Link(0, 1.0), batch_size=8, micro_batches=8)
    assert timeline.seconds == 2 * 3 + 18 + 0.5
    assert [event.kind for event in timeline.events[:6]] == [
        "forward", "backward", "forward", "backward", "all-reduce", "update",
    ]  # fmt: skip


def test_what_a_place_holds():
    assert held(3, 1, 8, "gpipe") == (8, 1, 3)
    assert held(3, 1, 8, "1f1b") == (7, 1, 3)
    assert held(0, 1, 8, "1f1b") == (1, 1, 3)
    assert held(0, 4, 8, "1f1b") == (1, 1, 1)
    assert held(3, 1, 1, "pipedream") == (4, 4, 1)
    assert held(0, 1, 1, "pipedream") == (1, 1, 1)


EVENT = (0, "forward", 0, 0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([(0, "forward")], "events must be tuples"),
        ([(0, "sleep", 0, 0, 0.0, 1.0)], "a kind of forward"),
        ([(0, "forward", 0, 0, 2.0, 1.0)], "start <= end"),
        ([EVENT, (0, "backward", 0, 0, 0.5, 2.0)], "two events of place 0 overlap"),
    ],
)
def test_timelines_that_cannot_be(events, said):
    with pytest.raises(DataError, match=said):
        Timeline(events)
    with pytest.raises(DataError, match="n_places must be at least 1"):
        Timeline([EVENT], 0)


def test_measured_events_may_be_a_structured_array():
    fields = [("place", int), ("kind", "U8"), ("step", int), ("micro", int), ("start", float), ("end", float)]
    rows = [(0, "forward", 0, 0, 5.0, 6.0), (0, "send", 0, -1, 6.0, 6.5), (1, "add", 0, -1, 6.5, 7.0)]
    timeline = Timeline(np.array(rows, fields))
    assert [event.kind for event in timeline.events] == ["forward", "all-reduce", "all-reduce"]
    assert timeline.seconds == 2.0
    assert timeline.busy.tolist() == [0.75, 0.25]


def test_a_timeline_is_drawn_beside_a_measured_one():
    plt = pytest.importorskip("matplotlib.pyplot")
    simulated = simulate(equal(2, 4), stages(1, 1), FREE, batch_size=8, micro_batches=2)
    late = [event._replace(start=event.start + 5, end=event.end + 5) for event in simulated.events]
    measured = Timeline(late)
    assert measured.seconds == simulated.seconds
    upper, lower = simulated.plot(measured)
    try:
        assert len(upper.patches) == len(lower.patches) == len(simulated.events)
        assert sorted(bar.get_x() for bar in lower.patches) == sorted(bar.get_x() for bar in upper.patches)
        assert "simulated" in upper.get_title("left")
        assert "measured" in lower.get_title("left")
        with pytest.raises(DataError, match="axes must be 2"):
            simulated.plot(measured, axes=upper)
    finally:
        plt.close("all")
    assert Timeline([]).idle == 0
