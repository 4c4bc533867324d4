"""The planner against all plans, its rules and its refusals."""

import itertools

import numpy as np
import pytest

from stradask.errors import DataError
from stradask.scheduler import plan_pipeline
from stradask.scheduler.planning import Link, Profile
from stradask.scheduler.planning.arguments import given_stages
from stradask.scheduler.planning.memory import held, stage_bytes
from stradask.scheduler.planning.simulate import seconds_of_a_step

LINK = Link(1e-3, 1e9)


def all_stages(n_layers, n_places):
    for k in range(1, min(n_layers, n_places) + 1):
        for inner in itertools.combinations(range(1, n_layers), k - 1):
            ends = [0, *inner, n_layers]
            for replicas in itertools.product(range(1, n_places + 1), repeat=k):
                if sum(replicas) <= n_places:
                    yield tuple(zip(ends[:-1], ends[1:], replicas, strict=True))


def draw(rng, n_layers):
    work = rng.exponential(1e-2, n_layers)
    weights = rng.exponential(10 ** rng.uniform(5, 7.5), n_layers)
    return Profile(work, 2 * work, rng.exponential(2e4, n_layers), weights, rows=64)


def memory_of(profile, stages, micro_batches, recompute):
    found = []
    for k, (first, last, n) in enumerate(stages):
        counts = held(len(stages) - k - 1, n, micro_batches, "1f1b")
        found.append(stage_bytes(profile, 64 / micro_batches, recompute, *counts)[first, last])
    return max(found)


@pytest.mark.parametrize("seed", range(6))
def test_hardly_any_plan_is_faster(seed):
    rng = np.random.default_rng(seed)
    profile, link = draw(rng, int(rng.integers(2, 6))), Link(1e-3, 10 ** rng.uniform(8, 9.5))
    chosen = plan_pipeline(profile, 3, link, batch_size=64)
    options = {"batch_size": 64, "order": "1f1b", "recompute": False}
    seconds = {
        (stages, micro): seconds_of_a_step(profile, stages, link, micro_batches=micro, **options)
        for stages in all_stages(profile.n_layers, 3)
        for micro in (1, 2, 4, 8, 16, 32, 64)
        if all(micro % n == 0 for _, _, n in stages)
    }
    assert chosen.seconds == pytest.approx(seconds[chosen.stages, chosen.micro_batches])
    assert chosen.seconds <= 1.07 * min(seconds.values())  # 5 % of it for a plan without a cut
    alone = [
        found for (stages, _), found in seconds.items() if stages[0][2] == sum(n for *_, n in stages) == 1
    ]
    assert any(found.seconds == pytest.approx(min(alone)) for found in chosen.considered)


def test_one_stage_is_taken_unless_a_cut_gains_more_than_five_per_cent():
    even = Profile([0.1] * 2, [0.2] * 2, [0] * 2, [0] * 2, rows=64)
    fast = Link(0, 1e12)
    assert plan_pipeline(even, 2, fast, batch_size=64).stages == ((0, 2, 2),)
    # The all-reduce of so many bytes takes a share of the step; the pipeline's bubble of 64 micro-batches 1.6
    # %.
    for share, kind in ((0.02, "data"), (0.06, "data"), (0.09, "pipeline")):
        heavy = Profile([0.1] * 2, [0.2] * 2, [0] * 2, [0, share * 0.3 * 1e12], rows=64)
        assert plan_pipeline(heavy, 2, fast, batch_size=64).kind == kind


@pytest.mark.parametrize("seed", range(4))
def test_what_is_taken_fits_and_is_the_fastest_that_does(seed):
    rng = np.random.default_rng(seed)
    profile = draw(rng, 4)
    free = plan_pipeline(profile, 3, LINK, batch_size=64)
    limits = np.linspace(0.4, 1.0, 7) * memory_of(profile, ((0, 4, 1),), 1, False)
    seconds = {
        (stages, micro, again): (
            memory_of(profile, stages, micro, again),
            seconds_of_a_step(
                profile, stages, LINK, batch_size=64, micro_batches=micro, order="1f1b", recompute=again
            ),
        )
        for stages in all_stages(4, 3)
        for micro in (1, 2, 4, 8, 16, 32, 64)
        if all(micro % n == 0 for _, _, n in stages)
        for again in (False, True)
    }
    for limit in limits:
        fitting = [taken for held_bytes, taken in seconds.values() if held_bytes <= limit]
        if not fitting:
            with pytest.raises(DataError, match=r"no plan for 3 places fits memory_limit="):
                plan_pipeline(profile, 3, LINK, batch_size=64, memory_limit=limit)
            continue
        plan = plan_pipeline(profile, 3, LINK, batch_size=64, memory_limit=limit)
        need, took = seconds[plan.stages, plan.micro_batches, plan.recompute]
        assert max(plan.memory) == pytest.approx(need)
        assert need <= limit
        assert plan.fits
        assert plan.seconds == pytest.approx(took)
        assert took <= 1.07 * min(fitting)
        assert plan.seconds >= free.seconds / 1.07


def test_a_plan_of_the_callers():
    rng = np.random.default_rng(0)
    profile = draw(rng, 5)
    plan = plan_pipeline(profile, 3, LINK, batch_size=64, plan=[("0:3", 2), ("3:", 1)], recompute=True)
    assert (plan.stages, plan.kind, plan.recompute) == (((0, 3, 2), (3, 5, 1)), "hybrid", True)
    assert plan.micro_batches % 2 == 0
    text = plan.table()
    assert f"{1e3 * plan.seconds:.2f} ms a step" in text
    assert "with re-materialisation" in text
    assert plan.timeline().n_places == 3
    assert plan_pipeline(profile, 3, LINK, batch_size=64, plan="data").kind in ("data", "one place")
    assert len(plan_pipeline(profile, 3, LINK, batch_size=64, plan="pipeline").stages) > 1
    asynchronous = plan_pipeline(
        profile, 3, LINK, batch_size=64, plan="pipeline", orders=["1f1b", "pipedream"]
    )
    assert asynchronous.order == "pipedream"
    assert (asynchronous.micro_batches, max(asynchronous.replicas)) == (1, 1)
    assert given_stages([(":1", 1), ("1:5", 2)], 5, 3) == ((0, 1, 1), (1, 5, 2))


def test_the_table_has_each_stage_and_each_kind_of_plan():
    heavy = Profile([0.1] * 4, [0.2] * 4, [0] * 4, [0, 0, 0, 1e9], rows=64)
    plan = plan_pipeline(heavy, 2, LINK, batch_size=64)
    lines = plan.table().splitlines()
    assert [line.split()[1:3] for line in lines[2:4]] == [["0:2", "1"], ["2:4", "1"]]
    kinds = [line for line in lines if line.startswith(("pipeline 1-1", "one place", "data  "))]
    assert len(kinds) == 3
    assert [line.endswith("chosen") for line in kinds] == [True, False, False]
    tight = plan_pipeline(heavy, 4, LINK, batch_size=64, memory_limit=3.001e9)
    assert "does not fit" not in tight.table()
    half = Profile([0.1] * 4, [0.2] * 4, [0] * 4, [5e8] * 4, rows=64)
    assert (
        "does not fit" in plan_pipeline(half, 2, LINK, batch_size=64, memory_limit=5e9, plan="auto").table()
    )


PROFILE = Profile([1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_places": 0}, "n_places must be at least 1"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"micro_batches": 7}, "micro_batches=7 does not divide batch_size=64; take a divisor"),
        ({"plan": "fast"}, "plan must be 'auto', 'data', 'pipeline' or a list of stages, got 'fast'"),
        ({"plan": [("0:2", 1)]}, "plan must cut layers 0 to 3 into stages that follow one another"),
        ({"plan": [("0:2", 1), ("1:3", 1)]}, "plan must cut layers 0 to 3"),
        ({"plan": [("0:0", 1), ("0:3", 1)]}, "plan must cut layers 0 to 3"),
        ({"plan": [("0:2", 2), ("2:", 1)]}, "plan needs 3 places, and n_places=2"),
        ({"plan": [("0:2", 0), ("2:", 1)]}, "plan must be a list such as"),
        ({"plan": [(0, 2)]}, "plan must be a list such as"),
        ({"plan": "pipeline", "n_places": 1}, "needs 2 layers and 2 places at least, got 3 and 1"),
        (
            {"plan": [("0:1", 1), ("1:", 2)], "n_places": 3, "micro_batches": 1},
            "must have 1, 2, 4... micro",
        ),
        ({"orders": "fast"}, "orders must be of 'gpipe', '1f1b', 'pipedream', got 'fast'"),
        ({"orders": []}, "orders must be of"),
        ({"recompute": "yes"}, "recompute must be True, False or 'auto'"),
        ({"memory_limit": -1}, "memory_limit must be a number of bytes above 0"),
        (
            {"memory_limit": 10},
            "no plan for 2 places fits memory_limit=10: the smallest that was found needs",
        ),
        ({"profile": [1, 2]}, "profile must be a Profile"),
        ({"link": 1e9}, "link must be a Link"),
    ],
)
def test_refusals(options, said):
    given = {"profile": PROFILE, "n_places": 2, "batch_size": 64} | options
    with pytest.raises(DataError, match=said):
        plan_pipeline(**given)


@pytest.mark.parametrize("micro", [1, 3, 6, 8, 12])
def test_replicas_have_a_power_of_two_of_micro_batches(micro):
    """Sums of other numbers have other last bits, which timings would choose."""
    profile = Profile([0.01] * 3, [0.02] * 3, [100] * 3, [1e3] * 3, rows=120)
    for n_places in range(1, 13):
        plan = plan_pipeline(profile, n_places, batch_size=120, micro_batches=micro, plan="data")
        ((_, _, n),) = plan.stages
        fine = [m for m in range(1, n_places + 1) if micro % m == 0 and (micro // m).bit_count() == 1]
        assert n == max(fine, default=1)


def test_a_plan_prints_in_a_line():
    chosen = plan_pipeline(draw(np.random.default_rng(0), 4), 2, LINK, batch_size=64, plan="pipeline")
    (a, b, n), (c, d, m) = chosen.stages
    assert repr(chosen).startswith(f"PipelinePlan(pipeline, layers {a}:{b} on {n}, {c}:{d} on {m}, ")
    assert repr(chosen).endswith(" ms a step)")
    assert len(repr(chosen)) < 120
