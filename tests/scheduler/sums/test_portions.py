"""The coordination of portions: any interleaving of answers, losses, newcomers and time; and its sums."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stradask.scheduler.sums.portions import (
    Answered,
    Begin,
    Count,
    Failed,
    Joined,
    Lost,
    Portions,
    Tick,
    TreeSum,
    Work,
)


class World:
    """Members of any speed that answer, fail and come in any order; counts for itself what was counted."""

    def __init__(self, n, slots, seed, **options):
        self.machine, self.n = Portions(n, **options), n
        self.random, self.now = random.Random(seed), 0.0
        self.there = {}
        self.running = []  # orders that somebody may still answer
        for k, number in enumerate(slots):
            self.there[f"m{k}"] = number, set()
        self.names = len(slots)
        for portion in range(n):
            for name in self.random.sample(
                sorted(self.there), self.random.choice((1, 1, 2)) if len(slots) > 1 else 1
            ):
                self.there[name][1].add(portion)
        self.counted = []

    def send(self, event):
        counted_before = set(self.counted)
        for instruction in self.machine.handle(event):
            order = instruction.order
            if isinstance(instruction, Count):
                assert isinstance(event, Answered)
                assert order.number == event.number
                self.counted += range(order.first, order.last)
                continue
            assert order.worker in self.there, "an order for somebody who is not there"
            assert order.round == self.machine.round
            assert order.size & (order.size - 1) == 0
            assert order.first % order.size == 0, "not a node of the tree"
            assert order.last == min(order.first + order.size, self.n)
            assert not counted_before & set(range(order.first, order.last)), "already counted"
            mine = [o for o in self.running if o.worker == order.worker]
            assert all((o.round, o.first) != (order.round, order.first) for o in mine), "a copy to itself"
            assert len(mine) < 2 * self.there[order.worker][0]
            self.running.append(order)
        assert len(self.counted) == len(set(self.counted)), "counted twice"
        assert self.machine.left == self.n - len(self.counted)

    def begin(self):
        self.counted = []
        self.send(Begin(self.now, self.there))

    def answer(self, order):
        self.running.remove(order)
        self.send(Answered(self.now, order.number, self.random.choice((1e-4, 0.01, 1.0, math.nan))))

    def lose(self, name):
        late = [o for o in self.running if o.worker == name]
        del self.there[name]
        self.running = [o for o in self.running if o.worker != name]
        self.send(Lost(self.now, name))
        for order in late:  # an answer that was on its way counts for nothing
            if self.random.random() < 0.5:
                assert not [
                    i
                    for i in self.machine.handle(Answered(self.now, order.number, 1.0))
                    if isinstance(i, Count)
                ]

    def join(self):
        name, self.names = f"m{self.names}", self.names + 1
        held = {p for p in range(self.n) if self.random.random() < 0.1}
        self.there[name] = self.random.randint(1, 3), held
        self.send(Joined(self.now, self.there))

    def step(self, may_lose):
        self.now += self.random.choice((0.0, 0.001, 0.1, 10.0))
        what = self.random.random()
        if may_lose and what < 0.05 and self.there:
            self.lose(self.random.choice(sorted(self.there)))
        elif not self.there or (may_lose and what < 0.08):
            self.join()
        elif what < 0.3:
            self.send(Tick(self.now))
        else:
            assert self.running, "nobody does what is left"
            self.answer(self.random.choice(self.running))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.integers(0, 10**6),
    st.sampled_from([{}, {"ahead": False}, {"backup": math.inf}, {"backup": 0.1}]),
)
def test_every_portion_is_counted_once_in_any_interleaving(n, slots, seed, options):
    world = World(n, slots, seed, **options)
    for _ in range(3):  # orders of one pass may be answered in the next
        world.begin()
        for step in range(60 * n + 200):
            if world.machine.finished:
                break
            world.step(may_lose=step < 30 * n)
        assert world.machine.finished
        assert sorted(world.counted) == list(range(n))


def fast(machine, work, now, seconds=1e-3):
    """Answer orders one after another until nobody has any; return who did what."""
    done, queue = [], [i.order for i in work]
    while queue:
        order = queue.pop(0)
        done.append(order)
        answer = Answered(now, order.number, seconds * (order.last - order.first))
        queue += [i.order for i in machine.handle(answer) if isinstance(i, Work)]
    return done


def test_data_stay_where_they_lie():
    machine = Portions(64)
    workers = {"a": (1, range(32)), "b": (1, range(32, 64))}
    for _ in range(3):
        done = fast(machine, machine.handle(Begin(0.0, workers)), 0.0)
        assert machine.finished
        assert all((o.worker == "a") == (o.first < 32) for o in done)
        for name in workers:  # consecutive ones in a row
            firsts = [o.first for o in done if o.worker == name]
            assert firsts == sorted(firsts)


def test_small_portions_go_out_in_few_orders_and_large_ones_singly():
    workers = {"a": (1, range(32)), "b": (1, range(32, 64))}
    for seconds, orders in ((1e-6, 2), (1.0, 64)):
        machine = Portions(64)
        fast(machine, machine.handle(Begin(0.0, workers)), 0.0, seconds)
        done = fast(machine, machine.handle(Begin(0.0, workers)), 0.0, seconds)
        assert len(done) == orders


def test_who_has_much_left_is_helped():
    """b does nothing at all for a while; a takes over what lies there."""
    machine = Portions(8, ahead=False, backup=math.inf)
    work = machine.handle(Begin(0.0, {"a": (1, range(4)), "b": (1, range(4, 8))}))
    held = next(i.order for i in work if i.order.worker == "b")
    done = fast(machine, [i for i in work if i.order.worker == "a"], 1.0)
    assert {o.worker for o in done} == {"a"}
    helped = {p for o in done for p in range(o.first, o.last)} - set(range(4))
    assert helped
    assert not helped & set(range(held.first, held.last))


def test_what_lies_with_somebody_stuck_in_the_last_pass_is_taken_over():
    machine = Portions(2, ahead=False)
    workers = {"a": (1, [0]), "b": (1, [1])}
    first = {i.order.worker: i.order for i in machine.handle(Begin(0.0, workers))}
    machine.handle(Answered(1.0, first["a"].number, 1.0))
    work = machine.handle(Begin(1.1, workers))  # b is still at its order of the first pass
    assert [(i.order.worker, i.order.first) for i in work] == [("a", 0)]
    assert machine.handle(Answered(1.5, work[0].order.number, 1.0))[1:] == []
    assert 2.0 <= machine.wake < 2.1
    assert [(i.order.worker, i.order.first) for i in machine.handle(Tick(2.1))] == [("a", 1)]


def test_a_pass_of_another_kind_is_not_late_by_what_the_last_one_took():
    machine = Portions(2, ahead=False)
    machine.late = 0.5
    workers = {"a": (1, [0]), "b": (1, [1])}

    def a_pass(kind, now, seconds):
        orders = {i.order.worker: i.order for i in machine.handle(Begin(now, workers, kind))}
        machine.handle(Answered(now + seconds, orders["a"].number, seconds))
        wake = machine.wake
        machine.handle(Answered(now + seconds, orders["b"].number, seconds))
        return wake - now

    assert a_pass("gradient", 0.0, 0.125) == 0.75
    assert a_pass("hessian", 1.0, 8.0) == 16.5
    assert a_pass("gradient", 10.0, 0.125) == 0.75
    slow = {i.order.worker: i.order for i in machine.handle(Begin(20.0, workers, "hessian"))}
    assert machine.handle(Tick(36.0)) == []
    machine.handle(Answered(21.0, slow["a"].number, 1.0))
    assert machine.handle(Begin(40.0, workers, "gradient"))[0].order.worker == "a"
    machine.handle(Answered(50.0, slow["b"].number, 30.0))  # says nothing of gradients
    assert machine.workers["b"].pace == 0.125


def test_a_slow_order_is_started_again_once_and_the_first_answer_counts():
    machine = Portions(4, backup=2.0)
    everywhere = {name: (1, range(4)) for name in "abc"}
    orders = [i.order for i in machine.handle(Begin(0.0, everywhere))]
    slow = next(o for o in orders if o.worker == "a")
    for order in fast(machine, [Work(o) for o in orders if o is not slow], 1.0, 1.0):
        assert order.worker != "a"
    assert machine.left == slow.last - slow.first
    due = 2.0 * (slow.last - slow.first)  # twice what it should take
    assert due <= machine.wake < due + 0.1
    assert machine.handle(Tick(due - 0.1)) == []
    copies = [i.order for i in machine.handle(Tick(due + 0.1))]
    assert [(o.first, o.last) for o in copies] == [(slow.first, slow.last)]
    assert copies[0].worker != "a"
    assert machine.handle(Tick(99.0)) == []
    assert math.isinf(machine.wake)
    assert machine.handle(Answered(100.0, copies[0].number, 1.0)) == [Count(copies[0])]
    assert machine.finished
    assert machine.handle(Answered(101.0, slow.number, 101.0)) == []


def test_an_order_with_a_copy_is_not_opened_when_one_of_them_is_lost():
    machine = Portions(1, backup=0.5)
    first = machine.handle(Begin(0.0, {"a": (1, [0]), "b": (1, [0])}))[0].order
    other = "b" if first.worker == "a" else "a"
    machine.handle(Answered(1.0, first.number, 1.0))
    first = machine.handle(Begin(1.0, {"a": (1, [0]), "b": (1, [0])}))[0].order
    other = "b" if first.worker == "a" else "a"
    copy = machine.handle(Tick(50.0))[0].order
    assert copy.worker == other
    assert machine.handle(Lost(51.0, first.worker)) == []
    assert not machine.open.any()
    assert machine.handle(Lost(52.0, other)) == []
    assert machine.open.all()
    again = machine.handle(Joined(53.0, {"c": (1, ())}))
    assert [i.order.worker for i in again] == ["c"]


def test_without_anybody_portions_wait():
    machine = Portions(3)
    assert machine.handle(Begin(0.0, {})) == []
    assert machine.left == 3
    assert math.isinf(machine.wake)
    done = fast(machine, machine.handle(Joined(1.0, {"a": (2, ())})), 1.0)
    assert machine.finished
    assert sum(o.last - o.first for o in done) == 3


def test_a_late_answer_of_the_last_pass_frees_its_member_only():
    machine = Portions(2, ahead=False)
    workers = {"a": (1, [0]), "b": (1, [1])}
    old = machine.handle(Begin(0.0, workers))
    new = machine.handle(Begin(1.0, workers))
    assert new == []  # both are at work
    for instruction in old:
        got = machine.handle(Answered(2.0, instruction.order.number, 2.0))
        assert [type(i) for i in got] == [Work]
        assert got[0].order.round == 1
    assert machine.left == 2


def test_a_failure_ends_the_pass_and_frees_the_member():
    machine = Portions(3, ahead=False)
    workers = {"a": (1, range(3)), "b": (1, range(3))}
    first, second = [i.order for i in machine.handle(Begin(0.0, workers))]
    assert machine.handle(Failed(1.0, first.number)) == []
    assert machine.finished
    again = machine.handle(Begin(2.0, workers))
    assert [i.order.worker for i in again] == [first.worker]
    assert machine.left == 3
    work = machine.handle(Failed(3.0, second.number))  # of the last pass: this one goes on
    assert [i.order.worker for i in work] == [second.worker]
    assert machine.left == 3


# Sums -----------------------------------------------------------------------------------------------------


def recursive(values, first, size):
    """The definition: halves of a power of two."""
    part = values[first : first + size]
    if len(part) <= 1:
        return part[0] if part else None
    left, right = recursive(values, first, size // 2), recursive(values, first + size // 2, size // 2)
    return left if right is None else left + right


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 70), st.integers(0, 10**6))
def test_a_tree_sum_has_the_same_bits_in_any_order_and_any_nodes(n, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, 3)) * 10.0 ** rng.integers(-8, 8, (n, 1))
    top = 1 << (n - 1).bit_length()
    want = recursive(list(values), 0, top)
    shuffled, total = random.Random(seed), TreeSum(n)
    nodes = [(first, 1) for first in range(n)]
    size = 1
    while size < top:  # join some neighbours beforehand, as an order does
        for first in range(0, n, 2 * size):
            pair = {(first, size), (first + size, size)}
            if shuffled.random() < 0.5 and pair <= {*nodes} | (
                {(first + size, size)} if first + size >= n else set()
            ):
                nodes = [*(node for node in nodes if node not in pair), (first, 2 * size)]
        size *= 2
    shuffled.shuffle(nodes)
    for first, size in nodes:
        last = min(first + size, n)
        part = TreeSum(last - first)
        order = list(range(first, last))
        shuffled.shuffle(order)
        for portion in order:
            part.add(portion - first, 1, values[portion, 0], values[portion])
        total.add(first, size, part.value, part.vector, owned=True)
    assert total.vector.tobytes() == np.asarray(want).tobytes()
    assert total.value == want[0]
    loose = TreeSum(n, ordered=False)
    for row in values:
        loose.add(0, 1, row[0], row)
    np.testing.assert_allclose(loose.vector, values.sum(0), atol=1e-12 * abs(values).sum())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_sum_leaves_its_terms_alone(n, ordered):
    """Also a function's own buffer, which it fills anew for each portion."""
    buffer, kept = np.zeros(2), []
    total = TreeSum(n, ordered=ordered)
    for portion in range(n):
        buffer[:] = portion + 1
        total.add(portion, 1, 1.0, buffer)
        kept.append(buffer.copy())
        assert (buffer == portion + 1).all()
    np.testing.assert_array_equal(total.vector, np.sum(kept, axis=0))
    assert total.value == n
