"""Two layers split over places: closed forms, and the planner's choice against all plans."""

import numpy as np
import pytest

from stradask.errors import DataError
from stradask.scheduler import plan_pipeline
from stradask.scheduler.planning import LayerPair, Link, Profile
from stradask.scheduler.planning.splits import play_split, split_bytes

FORWARD, UPDATE = np.array([1.0, 6.0, 0.0, 12.0, 3.0]), np.array([0.1, 0.6, 0.0, 1.2, 0.3])
WIDTHS = (2, 50, 4)


def profile_of(first, **changes):
    pair = LayerPair(first, first + 2, WIDTHS)
    n = len(FORWARD)
    settings = {"rows": 8, "update": UPDATE, "pair": pair, "state_copies": 1}
    sizes = [8.0] * (first + 2) + [16.0] * (n - first - 2)  # 4 bytes a number after the pair
    return Profile(FORWARD, 2 * FORWARD, sizes, [1000.0] * n, **settings | changes)


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    ("first", "n_parts", "micro"), [(1, 2, 1), (1, 2, 4), (0, 2, 2), (1, 3, 2), (1, 5, 1)]
)
def test_a_step_takes_what_is_on_its_longest_way(first, n_parts, micro, order):
    link, rows = Link(0.25, 1000.0), 8 // micro
    events = play_split(profile_of(first), n_parts, link, batch_size=8, micro_batches=micro, order=order)
    pair = slice(first, first + 3)
    elsewhere = 3 * (FORWARD.sum() - FORWARD[pair].sum()) * rows / 8
    into, out = 4 * rows * WIDTHS[0] / 1000, 4 * rows * WIDTHS[1 + 1] / 1000
    forward = (n_parts - 1) * into + 2 * 0.25 + FORWARD[pair].sum() * rows / 8 / n_parts + out
    back = (n_parts - 1) * out + 2 * 0.25 + 2 * FORWARD[pair].sum() * rows / 8 / n_parts + into * bool(first)
    # The outputs of the others come one after another, apart by the time in which their inputs left.
    waits = (n_parts - 2) * max(out - into, 0.0), (n_parts - 2) * max(into * bool(first) - out, 0.0)
    # The other places make their step before they send the last message.
    update = UPDATE.sum() - UPDATE[pair].sum() * (1 - 2 / n_parts)
    end = max(event.end for event in events if event.place == 0)
    assert end == pytest.approx(micro * (elsewhere + forward + back + sum(waits)) + update)
    busy = sum(e.end - e.start for e in events if e.place == n_parts - 1 and e.kind != "update")
    assert busy == pytest.approx(3 * FORWARD[pair].sum() / n_parts)


def test_what_the_first_place_holds():
    found = split_bytes(profile_of(1), 2, batch_size=8, micro_batches=4, order="1f1b")
    numbers = (2 + 3 / 2) * 1000
    contexts = (8.0 + 16.0 + (8.0 + 8.0 + 16.0) / 2) * 2
    assert found == numbers * (1 + 2 + 1) + contexts


def draw(rng):
    """Layers of which the middle two have most of the numbers, or not."""
    widths = tuple(int(n) for n in 10 ** rng.uniform(1.5, 4, 3))
    pair = LayerPair(1, 2, widths)
    work = rng.exponential(1e-3, 4)
    work[1:3] *= 10 ** rng.uniform(0, 2)
    numbers = np.array([1e4, widths[0] * widths[1], widths[1] * widths[2], 1e4])
    sizes = 4.0 * np.array([widths[0], widths[1], widths[2], 10])
    return Profile(work, 2 * work, sizes, 4 * numbers, rows=64, pair=pair, update=1e-10 * numbers)


def test_the_choice_is_that_among_all_plans():
    chosen = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        profile, link = draw(rng), Link(1e-4, 10 ** rng.uniform(7.5, 9.5))
        plan = plan_pipeline(profile, 3, link, batch_size=64, micro_batches=4)
        without = plan_pipeline(
            Profile(
                *(getattr(profile, name) for name in ("forward", "backward", "activation_bytes")),
                profile.parameter_bytes,
                rows=profile.rows,
                update=profile.update,
            ),
            3,
            link,
            batch_size=64,
            micro_batches=4,
        )
        splits = {
            n: max(e.end for e in play_split(profile, n, link, batch_size=64, micro_batches=4, order="1f1b"))
            for n in (2, 3)
        }
        fastest = min(splits, key=splits.get)
        if splits[fastest] < 0.8 * without.seconds:
            assert (plan.kind, plan.n_places) == ("split", fastest)
            assert plan.seconds == pytest.approx(splits[fastest])
        else:
            assert plan.stages == without.stages
            assert plan.seconds == without.seconds
            assert not any(plan.splits)
        shown = next(one for one in plan.considered if one.kind == "split")
        assert shown.seconds == pytest.approx(splits[fastest])
        assert f"{1e3 * shown.seconds:.2f}" in plan.table()
        chosen.append(plan.kind)
    assert 3 <= chosen.count("split") <= 9


def test_a_split_is_for_auto_alone():
    heavy = Profile(
        [1e-4, 1.0, 1.0, 1e-4],
        [1e-4, 1.0, 1.0, 1e-4],
        [400, 4000, 400, 40],
        [1e3, 1e9, 1e9, 1e3],
        rows=64,
        pair=LayerPair(1, 2, (100, 1000, 100)),
        update=[0, 1e-3, 1e-3, 0],
    )
    slow = Link(1e-4, 1e8)
    found = {
        plan: plan_pipeline(heavy, 4, slow, batch_size=64, micro_batches=1, plan=plan)
        for plan in ("auto", "data", "pipeline")
    }
    assert found["auto"].kind == "split"
    assert found["auto"].table().startswith("split, order '1f1b', 1 micro-batches of 64 rows")
    assert "split 4" in found["auto"].table()
    assert (found["data"].kind, found["pipeline"].kind) == ("one place", "pipeline")
    assert plan_pipeline(heavy, 4, slow, batch_size=64, micro_batches=2, orders="pipedream").kind != "split"
    recomputed = plan_pipeline(heavy, 4, slow, batch_size=64, micro_batches=1, recompute=True)
    assert recomputed.kind != "split"
    timeline = found["auto"].timeline()
    assert timeline.seconds == pytest.approx(found["auto"].seconds)
    few = plan_pipeline(heavy, 4, slow, batch_size=64, micro_batches=1, memory_limit=2.5e9)
    assert few.kind == "split"
    assert max(few.memory) <= 2.5e9


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ((1, 1, (2, 3, 4)), "two layers"),
        ((1, 9, (2, 3, 4)), "two layers"),
        ((1, 3, (2, 0, 4)), "widths"),
        ("ab", "pair must be"),
    ],
)
def test_pairs_that_cannot_be(pair, said):
    with pytest.raises(DataError, match=said):
        profile_of(1, pair=pair)
