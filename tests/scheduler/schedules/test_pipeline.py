"""Plans of pipelines: each block one way, each place one list, sums over replicas in one order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stradask.errors import DataError
from stradask.scheduler.schedules.pipeline import Layout, PipelineSchedule, exchanges, levels, operations

layouts = st.builds(
    lambda replicas, factor, steps, order: Layout(
        tuple(replicas),
        factor * int(np.lcm.reduce(replicas)),
        steps,
        order,
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(["1f1b", "gpipe", "pipedream"]),
)


@settings(max_examples=60, deadline=None)
@given(layouts)
def test_a_plan_does_each_pass_once_and_in_order(layout):
    done, updates = {}, np.zeros(layout.n_places, int)
    for number, step in enumerate(levels(layout)):
        assert len({op.place for op in step}) == len({op.block for op in step}) == len(step)
        for op in step:
            updates[op.place] += op.updates
            if op.kind in ("forward", "backward"):
                stage, _ = layout.stage_of(op.place)
                key = (op.kind, op.step, op.micro, stage)
                assert key not in done
                assert op.place == layout.place(stage, op.micro)
                done[key] = number
    K = len(layout.replicas)
    assert len(done) == 2 * layout.n_steps * layout.n_micro * K
    for (kind, t, m, k), number in done.items():
        if kind == "forward" and k:
            assert done["forward", t, m, k - 1] < number
        if kind == "backward":
            before = ("backward", t, m, k + 1) if k + 1 < K else ("forward", t, m, k)
            assert done[before] < number
    assert (updates == layout.n_steps).all()
    plan = PipelineSchedule(layout).plan(0, {})
    assert {pair for step in plan for pair in step} <= {
        (p, b) for p in range(layout.n_places) for b in range(layout.n_blocks)
    }


@pytest.mark.parametrize("n", range(1, 10))
def test_replicas_sum_all_parts_once_in_the_order_of_a_counter(n):
    """Played symbolically: sums are nested pairs, to be those that one place makes of n micro-batches."""
    counter = []
    for r in range(n):
        level, sum_ = 0, frozenset([r])
        while counter and counter[-1][0] == level:
            sum_, level = frozenset([counter.pop()[1], sum_]), level + 1
        counter.append((level, sum_))
    while len(counter) > 1:
        (_, one), (level, two) = counter.pop(), counter.pop()
        counter.append((level + 1, frozenset([two, one])))
    parts = n if not n & (n - 1) else 1
    held = [[frozenset([r])] * parts for r in range(n)]
    blocks = {}
    ops = operations(Layout((n,), n))
    at = [sum(op.kind in ("forward", "backward") for op in place) for place in ops]
    while any(i < len(place) for i, place in zip(at, ops, strict=True)):
        moved = False
        for p, place in enumerate(ops):
            if at[p] == len(place):
                continue
            op = place[at[p]]
            state, values = blocks.get(op.block, ("", None))
            if {"send": "", "add": "send", "fill": "add", "take": "fill"}[op.kind] != state:
                continue
            first, last, of = op.span
            assert of == parts
            if op.kind in ("send", "fill"):
                values = held[p][first:last]
            elif op.kind == "add":
                held[p][first:last] = [
                    frozenset(pair) for pair in zip(held[p][first:last], values, strict=True)
                ]
            else:
                held[p][first:last] = values
            blocks[op.block] = op.kind, values
            at[p], moved = at[p] + 1, True
        assert moved
    assert all(part == counter[0][1] for place in held for part in place)
    if parts == n and n > 1:  # as many bytes as a ring: 2 (n - 1) / n of the vector each way and place
        for r in range(n):
            sent = sum((last - first) / of for _, sender, _, (first, last, of) in exchanges(n) if sender == r)
            assert sent == (n - 1) / n


def test_one_forward_one_backward_holds_few_micro_batches():
    for order, most in (("gpipe", 8), ("1f1b", 3)):
        held = peak = 0
        for op in operations(Layout((1, 1), 8, 1, order))[0]:
            held += 1 if op.kind == "forward" else -1
            peak = max(peak, held)
        assert peak == most


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (((2,), 3), "3 micro-batches cannot be shared by 2 replicas"),
        (((), 1), "replicas is empty"),
        (((1,), 0), "n_micro must be at least 1"),
        (((1,), 1, 1, "zigzag"), "order must be one of"),
        (((2, 1), 3, 1, "pipedream"), "3 micro-batches cannot be shared by 2 replicas"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(arguments, said):
    with pytest.raises(DataError, match=said):
        Layout(*arguments)
