"""Tables as state machines: events by hand, and random interleavings of messages that are lost and repeated.

In the random tests every (replica, clock) has a column of its own, so that a row tells how often each single
update is in it.
"""

import itertools

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from stradask.scheduler.table.state import (
    OVER,
    Adagrad,
    Add,
    Cells,
    Keep,
    Kept,
    Leave,
    Push,
    Read,
    Replica,
    Shard,
    Taken,
)

FLOAT = np.dtype(np.float64)


def make_shard(n_replicas=2, *, n_rows=3, width=1, rule_=None, ordered=False, clock=0):
    rule_ = rule_ or Add()
    return Shard(
        np.zeros((n_rows, 1 + rule_.n_slots, width)), 0, n_replicas, rule_, ordered=ordered, clock=clock
    )


def push(replica, stamp, value=1.0, rows=(0,)):
    return Push(replica, stamp, np.array(rows), np.full((len(rows), 1), value))


def read(replica, clock, rows=(0,)):
    return Read(replica, np.array(rows), clock)


# Events by hand: the shard ------------------------------------------------------------------------------


def test_a_read_is_parked_until_the_slowest_has_ticked():
    shard = make_shard()
    assert shard.receive("a", push(0, 0)) == [("a", Taken(1))]
    assert shard.receive("b", read(0, 1)) == []
    (b, cells), (c, taken) = shard.receive("c", push(1, 0, 10.0))
    assert (b, c, taken) == ("b", "c", Taken(1))
    assert cells.cells.ravel() == [11.0]
    assert (cells.clock, cells.applied) == (1, 1)


def test_a_read_wakes_when_the_slowest_leaves():
    shard = make_shard()
    shard.receive("a", push(0, 0))
    shard.receive("b", read(0, 1))
    answers = dict(shard.receive("c", Leave(1)))
    assert answers["b"].cells.ravel() == [1.0]
    assert answers["c"] == Taken(0)
    assert shard.receive("d", Leave(1)) == [("d", Taken(0))]  # twice


def test_a_push_counts_once_and_in_any_order():
    shard = make_shard(1)
    assert shard.receive(0, push(0, 1, 10.0)) == [(0, Taken(0))]
    assert shard.clock == 0
    assert shard.receive(1, push(0, 1, 10.0)) == [(1, Taken(0))]
    assert shard.receive(2, push(0, 0)) == [(2, Taken(2))]
    assert shard.receive(3, push(0, 0)) == [(3, Taken(2))]
    assert shard.cells[0, 0, 0] == 11.0
    assert shard.clock == 2


def test_updates_of_one_stamp_are_made_together_and_in_order_without_staleness():
    shard = make_shard(3, ordered=True, rule_=Adagrad(1.0))
    for replica in (2, 0):
        shard.receive(replica, push(replica, 0, 1.0 + replica))
        assert not shard.cells.any()
    shard.receive(1, push(1, 0, 2.0))
    value, squares = 0.0, 0.0
    for gradient in (1.0, 2.0, 3.0):
        squares += gradient**2
        value -= gradient / np.sqrt(squares)
    assert shard.cells[0].ravel().tolist() == [value, squares]


def test_updates_come_at_once_with_staleness():
    shard = make_shard(3)
    shard.receive("a", push(2, 0, 5.0))
    assert shard.cells[0, 0, 0] == 5.0
    ((_, cells),) = shard.receive("b", read(0, 0))
    assert cells.cells.ravel() == [5.0]
    assert (cells.clock, cells.applied) == (0, 0)


def test_what_is_kept_has_exactly_the_updates_before_its_clock():
    shard = make_shard()
    assert shard.receive("k", Keep(1)) == []
    shard.receive(0, push(0, 0, 1.0))
    shard.receive(1, push(0, 1, 10.0))  # of a later clock
    (k, kept), _ = shard.receive(2, push(1, 0, 100.0))
    assert k == "k"
    assert kept.clock == 1
    assert kept.cells.ravel().tolist() == [101.0, 0.0, 0.0]
    assert shard.cells[0, 0, 0] == 111.0


def test_a_wish_that_comes_too_late_is_told_the_least_clock():
    shard = make_shard()
    shard.receive(0, push(0, 0))
    shard.receive(1, push(0, 1))
    assert shard.receive("k", Keep(1)) == [("k", Kept(None, 2))]
    assert shard.receive("l", Keep(2)) == []
    assert shard.receive("m", Keep(5)) == [("l", Kept(None, 5))]  # a newer wish ends the one before
    for stamp in (0, 1):
        assert len(shard.receive(stamp, push(1, stamp))) == 1
    answers = dict(shard.receive("n", Leave(1))) | dict(shard.receive("o", Leave(0)))
    assert answers["m"].cells[0, 0, 0] == 4.0
    assert shard.clock == OVER


def test_adagrad_leaves_what_has_no_gradient():
    cells = np.array([[[1.0, 2.0], [0.0, 0.0]]], np.float32)
    Adagrad(0.5).apply(cells, np.array([[0.0, 3.0]], np.float32))
    assert cells.tolist() == [[[1.0, 1.5], [0.0, 9.0]]]
    Adagrad(0.5).apply(cells, np.array([[1e-30, 0.0]], np.float32))  # its square is 0
    assert abs(cells[0, 0, 0] - 1.0) < 0.5


# Events by hand: the replica ------------------------------------------------------------------------------


def make_replica(staleness=1, n_rows=4, starts=(0, 2, 4), clock=0, rule_=None):
    return Replica(0, starts, 1, FLOAT, rule_ or Add(), staleness, clock)


ROWS = np.arange(4)


def answer(value, clock=0, applied=0, n=2):
    return Cells(np.full((n, 1, 1), float(value)), clock, applied)


def test_reads_go_to_the_shards_of_their_rows_and_to_the_cache_while_it_is_fresh():
    replica = make_replica(staleness=1)
    reads = replica.ask(ROWS)
    assert {s: r.rows.tolist() for s, r in reads.items()} == {0: [0, 1], 1: [2, 3]}
    for s, r in reads.items():
        replica.take(s, r, answer(s))
    assert replica.values(ROWS).ravel().tolist() == [0, 0, 1, 1]
    assert replica.ask(ROWS) == {}
    assert set(replica.ask(ROWS, refresh=True)) == {0, 1}
    replica.tick()
    assert replica.ask(ROWS) == {}
    replica.tick()
    assert {r.clock for r in replica.ask(ROWS).values()} == {1}


def test_without_bound_a_row_is_read_once_a_clock_and_never_waited_for():
    replica = make_replica(staleness=np.inf)
    for clock in range(3):
        reads = replica.ask(ROWS)
        assert {r.clock for r in reads.values()} == {0}
        for s, r in reads.items():
            replica.take(s, r, answer(clock))
        assert replica.ask(ROWS) == {}
        replica.tick()


def test_own_updates_are_seen_at_once_whatever_the_shard_has_made():
    replica = make_replica(staleness=0)
    for s, r in replica.ask(ROWS).items():
        replica.take(s, r, answer(0))
    replica.inc(np.array([1, 2]), np.array([[1.0], [2.0]]))
    assert replica.values(ROWS).ravel().tolist() == [0, 1, 2, 0]
    pushes = replica.tick()
    assert [p.rows.tolist() for p in pushes.values()] == [[1], [2]]
    replica.inc(np.array([1]), np.array([[10.0]]))
    reads = replica.ask(ROWS)
    replica.take(0, reads[0], answer(100, clock=1, applied=0))  # without the own push
    replica.take(1, reads[1], answer(100, clock=1, applied=1))  # with it
    assert replica.values(ROWS).ravel().tolist() == [100, 111, 100, 100]


def test_a_push_that_was_made_between_question_and_answer_is_not_forgotten():
    replica = make_replica(staleness=0)
    replica.inc(ROWS, np.ones((4, 1)))
    replica.tick()
    reads = replica.ask(ROWS)
    replica.taken(0, Taken(1))  # overtakes the answer, which was made before
    replica.take(0, reads[0], answer(5, clock=1, applied=0))
    assert replica.values(ROWS[:2]).ravel().tolist() == [6, 6]


def test_a_replica_that_only_writes_remembers_what_is_under_way():
    replica = make_replica()
    for clock in range(50):
        replica.inc(ROWS, np.ones((4, 1)))
        replica.tick()
        for shard in range(2):
            replica.taken(shard, Taken(clock))  # all but the last
    assert [len(log) for log in replica._log] == [2, 2]


def test_updates_of_a_clock_go_out_together():
    """One message a shard, whose rows are summed, however often they were added to."""
    replica = make_replica()
    for rows in ([1, 2], [0, 1], [1]):
        replica.inc(np.array(rows), np.ones((len(rows), 1)))
    pushes = replica.tick()
    assert {s: (p.rows.tolist(), p.delta.ravel().tolist()) for s, p in pushes.items()} == {
        0: ([0, 1], [1.0, 3.0]),
        1: ([2], [1.0]),
    }


def test_every_shard_hears_of_every_tick():
    replica = make_replica()
    assert [len(p.rows) for p in replica.tick().values()] == [0, 0]


# Any interleaving -----------------------------------------------------------------------------------------

N_REPLICAS, N_ROWS, N_CLOCKS = 3, 3, 6
STARTS = (0, 2, 3)
ALL = np.arange(N_ROWS)


class Interleavings(RuleBasedStateMachine):
    """Replicas and shards in a network that delays, repeats and loses; what is not answered is sent again."""

    requests = Bundle("requests")

    @initialize(staleness=st.sampled_from([0, 1, 2, np.inf]), clock=st.sampled_from([0, 2]))
    def start(self, staleness, clock):
        self.staleness, self.first = staleness, clock
        width = N_REPLICAS * N_CLOCKS
        self.shards = [
            Shard(np.zeros((b - a, 1, width)), a, N_REPLICAS, Add(), ordered=staleness == 0, clock=clock)
            for a, b in itertools.pairwise(STARTS)
        ]
        self.replicas = [Replica(r, STARTS, width, FLOAT, Add(), staleness, clock) for r in range(N_REPLICAS)]
        self.counts = np.zeros((N_REPLICAS, N_CLOCKS, N_ROWS))  # increments made
        self.gone, self.dead = set(), set()
        self.open = {}  # ticket: (sender, shard, message) that wait for an answer
        self.network = []  # (ticket, shard, message) and (ticket, None, answer)
        self.reading = [{} for _ in range(N_REPLICAS)]  # shard: ticket
        self.kept, self.n_tickets = {}, 0

    # What replicas do

    def can_act(self, replica):
        return replica not in self.gone and not self.reading[replica]

    def clock_of(self, replica):
        return self.replicas[replica].clock - self.first

    @rule(replica=st.integers(0, N_REPLICAS - 1), rows=st.sets(st.integers(0, N_ROWS - 1), min_size=1))
    def increments(self, replica, rows):
        if self.can_act(replica) and self.clock_of(replica) < N_CLOCKS:
            rows, clock = np.array(sorted(rows)), self.clock_of(replica)
            delta = np.zeros((len(rows), N_REPLICAS * N_CLOCKS))
            delta[:, replica * N_CLOCKS + clock] = 1
            self.replicas[replica].inc(rows, delta)
            self.counts[replica, clock, rows] += 1

    @rule(replica=st.integers(0, N_REPLICAS - 1))
    def ticks(self, replica):
        if self.can_act(replica) and self.clock_of(replica) < N_CLOCKS:
            for shard, push_ in self.replicas[replica].tick().items():
                self.send(replica, shard, push_)

    @rule(replica=st.integers(0, N_REPLICAS - 1), refresh=st.booleans())
    def reads(self, replica, refresh):
        if self.can_act(replica):
            for shard, message in self.replicas[replica].ask(ALL, refresh).items():
                self.reading[replica][shard] = self.send(replica, shard, message)
            if not self.reading[replica]:
                self.look(replica)

    @rule(replicas=st.lists(st.integers(0, N_REPLICAS - 1), min_size=3, max_size=12), n=st.integers(0, 9))
    def work(self, replicas, n):
        """Several of all this at once, so that runs come far; n deliveries between two."""
        for at, replica in enumerate(replicas):
            self.increments(replica, {at % N_ROWS, n % N_ROWS})
            self.ticks(replica)
            self.reads(replica, at % 2 == 0)
            for i in range(n):
                self.delivers(7 * at + 3 * i, i % 4 == 0)

    @rule(replica=st.integers(0, N_REPLICAS - 1), dies=st.booleans())
    def goes(self, replica, dies):
        """An end comes when all is answered; a death at any moment, and what was sent may still arrive."""
        waits = self.reading[replica] or any(sender == replica for sender, *_ in self.open.values())
        unsent = self.counts[replica, self.clock_of(replica) :].any()
        if replica in self.gone or ((waits or unsent) and not dies):
            return
        self.gone.add(replica)
        if dies:
            self.dead.add(replica)
            self.open = {t: entry for t, entry in self.open.items() if entry[0] != replica}
            self.reading[replica] = {}
        for shard in range(len(self.shards)):
            self.send("coordinator", shard, Leave(replica))

    @precondition(lambda self: not self.kept and not any(isinstance(m, Keep) for *_, m in self.open.values()))
    @rule(ahead=st.integers(0, 3))
    def keeps(self, ahead):
        boundary = max(max(shard.applied) for shard in self.shards) + ahead
        for shard in range(len(self.shards)):
            self.send("coordinator", shard, Keep(boundary))

    # What the network does

    def send(self, sender, shard, message):
        self.n_tickets += 1
        self.open[self.n_tickets] = sender, shard, message
        self.network.append((self.n_tickets, shard, message))
        return self.n_tickets

    @rule(at=st.integers(0, 10**6), again=st.booleans())
    def delivers(self, at, again):
        if self.network:
            at %= len(self.network)
            entry = self.network[at]
            once = isinstance(entry[2], Keep)  # the coordinator's wishes are not repeated
            if not again or once:
                del self.network[at]
            self.deliver(*entry)

    @rule(at=st.integers(0, 10**6))
    def loses(self, at):
        lossy = [i for i, e in enumerate(self.network) if isinstance(e[2], Push | Read | Taken | Cells)]
        if lossy:
            del self.network[lossy[at % len(lossy)]]

    @rule(at=st.integers(0, 10**6))
    def repeats(self, at):
        tickets = [t for t, (_, _, m) in self.open.items() if not isinstance(m, Keep)]
        if tickets:
            ticket = tickets[at % len(tickets)]
            self.network.append((ticket, *self.open[ticket][1:]))

    def deliver(self, ticket, shard, message):
        if shard is not None:
            for to, answer_ in self.shards[shard].receive((ticket, len(self.network)), message):
                self.network.append((to[0], None, answer_))
            return
        if ticket not in self.open:  # answered before
            return
        sender, shard, asked = self.open.pop(ticket)
        if isinstance(asked, Push):
            self.replicas[sender].taken(shard, message)
        elif isinstance(asked, Keep):
            self.kept[shard] = message
            self.check_kept(shard, message, asked.clock)
        elif isinstance(asked, Read):
            self.replicas[sender].take(shard, asked, message)
            del self.reading[sender][shard]
            if not self.reading[sender]:
                self.look(sender)

    # What must hold

    def look(self, replica):
        """A read has come to its end: hold every single update against the guarantee."""
        seen = self.replicas[replica].values(ALL).T.reshape(N_REPLICAS, N_CLOCKS, N_ROWS)
        clock, made = self.clock_of(replica), self.counts
        assert np.array_equal(seen[replica], made[replica])  # its own, all and at once
        assert ((seen == 0) | (seen == made)).all()  # each whole or not at all, and never twice
        due = clock if self.staleness == 0 else max(0, clock - min(self.staleness, N_CLOCKS + 1))
        for other in set(range(N_REPLICAS)) - self.dead - {replica}:
            assert np.array_equal(seen[other, :due], made[other, :due])
            if self.staleness == 0:
                assert not seen[other, due:].any()

    def check_kept(self, shard, kept, boundary):
        if kept.cells is None:
            assert kept.clock > boundary
            return
        n, rows = max(boundary - self.first, 0), slice(STARTS[shard], STARTS[shard + 1])
        seen = kept.cells[:, 0].T.reshape(N_REPLICAS, N_CLOCKS, -1)
        assert not seen[:, n:].any()
        for replica in range(N_REPLICAS):
            want = self.counts[replica, :n, rows]
            if replica in self.dead:
                assert ((seen[replica, :n] == 0) | (seen[replica, :n] == want)).all()
            else:
                assert np.array_equal(seen[replica, :n], want)

    @invariant()
    def a_shard_never_goes_back(self):
        for shard in getattr(self, "shards", ()):
            assert min(shard.received) >= self.first
            assert all(a <= r for a, r in zip(shard.applied, shard.received, strict=True))

    def settle(self):
        """Deliver and send again until nothing changes."""
        for _ in range(3):
            for ticket, (_, shard, message) in list(self.open.items()):
                if not isinstance(message, Keep):
                    self.network.append((ticket, shard, message))
            while self.network:
                self.deliver(*self.network.pop(0))

    def teardown(self):
        if not hasattr(self, "shards"):
            return
        self.settle()
        for _ in range(N_REPLICAS * (N_CLOCKS + 1)):  # no deadlock: the slowest can always go on, to the end
            live = [r for r in range(N_REPLICAS) if r not in self.gone]
            if not live:
                break
            slowest = min(live, key=self.clock_of)
            assert not self.reading[slowest], "the slowest replica waits"
            self.reads(slowest, True)
            self.settle()
            assert not self.reading[slowest], "the slowest replica waits"
            if self.clock_of(slowest) < N_CLOCKS:
                self.ticks(slowest)
            else:
                self.goes(slowest, False)
            self.settle()
        assert not any(self.reading)
        for shard, (a, b) in zip(self.shards, itertools.pairwise(STARTS), strict=True):
            cells = shard.cells[:, 0].T.reshape(N_REPLICAS, N_CLOCKS, b - a)
            for replica in range(N_REPLICAS):
                want = self.counts[replica, :, a:b]
                if replica in self.dead:
                    assert ((cells[replica] == 0) | (cells[replica] == want)).all()
                else:
                    assert np.array_equal(cells[replica], want)  # no update lost, none made twice


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
