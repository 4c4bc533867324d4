"""Sandblaster's coordination: which worker computes which portion of a sum next, and which answers count.

A pass sums a value and a vector over portions, many more than there are workers. Portions are assigned in
*orders*: nodes of a binary tree over the portions' numbers, so consecutive ones, large at first and single
near the end. An idle worker gets the next order, of portions that it holds as long as there are any. The
orders of a lost worker are assigned again in the same pass; a late order is started once more elsewhere, and
the first answer counts. This is a state machine without clock, threads or network: events in, instructions
out.

Reference: Dean, Corrado, Monga, Chen, Devin, Le, Mao, Ranzato, Senior, Tucker, Yang, Ng, "Large scale
distributed deep networks", NIPS 2012.
"""

import heapq
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

_LATE = 0.02  # seconds beyond what is expected before an order is started again
_WORTH = 2  # rounds of work that another must have left before data are moved to an idle worker


@dataclass(frozen=True)
class Order:
    """Consecutive portions for one worker.

    `first` and `size` are a node of the tree: `size` is a power of two that divides `first`; the last node
    may have fewer portions. `last` is one past the last portion.
    """

    number: int
    round: int
    worker: str
    first: int
    size: int
    last: int

    @property
    def node(self):
        """Its portions, in its pass."""
        return self.round, self.first, self.size


@dataclass(frozen=True)
class Joined:
    """The workers that take part: for each its number of slots, and the portions that it holds."""

    now: float
    workers: Mapping[str, tuple]


@dataclass(frozen=True)
class Begin(Joined):
    """A pass over all portions begins, and the last one is over. Passes of one kind take equally long."""

    kind: str = ""


@dataclass(frozen=True)
class Answered:
    """An order was carried out in `seconds` of work; NaN if it was broken off."""

    now: float
    number: int
    seconds: float


@dataclass(frozen=True)
class Failed:
    """An order cannot be carried out by any worker: the pass ends without a sum."""

    now: float
    number: int


@dataclass(frozen=True)
class Lost:
    """A worker is lost; its answers do not count any more."""

    now: float
    worker: str


@dataclass(frozen=True)
class Tick:
    """Time has passed: see `Portions.wake`."""

    now: float


@dataclass(frozen=True)
class Work:
    """Instruction: send this order to its worker (and first the portions that it lacks)."""

    order: Order


@dataclass(frozen=True)
class Count:
    """Instruction: this answer counts; no other answer for its portions ever will."""

    order: Order


@dataclass(eq=False)
class _Worker:
    slots: int
    holds: np.ndarray
    start: int = 0
    orders: list = field(default_factory=list)  # numbers, the first `slots` of them running
    pace: float = math.nan  # seconds a portion


class Portions:
    """The state machine.

    An order that takes `backup` times as long as expected is started again; infinity never does it. With
    `ahead` a worker gets its next order before it has finished the last.

    Attributes
    ----------
    grain : float
        Most seconds that an order of several portions should last: more where an answer is slow to send.
    late : float
        Seconds beyond the expected before an order is started again: more where a portion is slow to load.

    Examples
    --------
    >>> from stradask.scheduler.sums.portions import Answered, Begin, Portions
    >>> machine = Portions(4, ahead=False)
    >>> work = machine.handle(Begin(0.0, {"a": (1, range(2)), "b": (1, range(2, 4))}))
    >>> [(instruction.order.worker, instruction.order.first) for instruction in work]
    [('a', 0), ('b', 2)]
    >>> machine.handle(Answered(1.0, 1, 1.0))[0].order.last, machine.left
    (3, 3)
    """

    def __init__(self, n_portions, *, backup=2.0, ahead=True):
        self.n, self.backup, self.ahead, self.grain, self.late = n_portions, backup, ahead, 0.005, _LATE
        self.workers: dict[str, _Worker] = {}
        self.round, self.left = -1, 0
        self.open = np.zeros(n_portions, bool)  # no worker works on them
        self.counted = np.ones(n_portions, bool)
        self._orders: dict[int, tuple[Order, float]] = {}  # given out, and when
        self._copies: Counter = Counter()  # of a node in a pass: orders given out
        self._pace = math.nan  # of the worker in the middle
        self._kind, self._since = "", 0  # of this pass and of those before it, back to that round
        self._paces: dict[str, dict] = {}  # of the workers in passes of other kinds
        self._n_slots = self._n_open = 0
        self._spare: list | None = None  # what an idle worker may take, while it is known
        self._next_number = 0

    @property
    def finished(self):
        """Whether every portion has been counted, or one has failed."""
        return self.left == 0

    @property
    def wake(self):
        """When a `Tick` may bring an instruction if nothing else happens; infinity if never."""
        idle = {name for name, m in self.workers.items() if len(m.orders) < m.slots}
        if not idle:
            return math.inf
        times = [due for order, due in self._overdue() if idle - {order.worker}]
        times += [self._stuck(name) for name, m in self.workers.items() if (self.open & m.holds).any()]
        return min(times, default=math.inf)

    def handle(self, event):
        """Take in an event; return a list of `Work` and `Count`."""
        done = getattr(self, f"_on_{type(event).__name__.lower()}")(event)
        names = [name for name, m in self.workers.items() if len(m.orders) < self._room(m)]
        return [*done, *self._assign(event.now, names)]

    # Events -----------------------------------------------------------------------------------------

    def _on_begin(self, event):
        self.round += 1
        self.left = self.n
        self.open[:], self.counted[:] = True, False
        self._n_open = self.n
        instructions = self._on_joined(event)
        if event.kind != self._kind:
            self._change_kind(event.kind)
        return instructions

    def _on_joined(self, event):
        for name in self.workers.keys() - event.workers.keys():
            self._lose(name)
        for rank, (name, (slots, held)) in enumerate(event.workers.items()):
            holds = np.zeros(self.n, bool)
            holds[list(held)] = True
            worker = self.workers.setdefault(name, _Worker(slots, holds))
            worker.slots, worker.holds = slots, holds
            worker.start = rank * self.n // len(event.workers)
        self._n_slots = sum(worker.slots for worker in self.workers.values())
        return []

    def _on_answered(self, event):
        if event.number not in self._orders:  # of a worker that was given up
            return []
        order = self._take_back(event.number)
        worker = self.workers[order.worker]
        worker.orders.remove(order.number)
        worker.holds[order.first : order.last] = True
        pace = event.seconds / (order.last - order.first)
        if order.round >= self._since and not math.isnan(pace):
            worker.pace = pace if math.isnan(worker.pace) else 0.5 * (worker.pace + pace)
            self._find_pace()
        portions = slice(order.first, order.last)
        if order.round != self.round or self.counted[portions].any():
            return []
        self.counted[portions] = True
        self.left -= order.last - order.first
        return [Count(order)]

    def _change_kind(self, kind):
        """Take up the paces of the last pass of this kind."""
        self._paces[self._kind] = {name: worker.pace for name, worker in self.workers.items()}
        known, self._kind, self._since = self._paces.get(kind, {}), kind, self.round
        for name, worker in self.workers.items():
            worker.pace = known.get(name, math.nan)
        self._find_pace()

    def _find_pace(self):
        paces = [m.pace for m in self.workers.values() if not math.isnan(m.pace)]
        self._pace = statistics.median_low(paces) if paces else math.nan

    def _on_failed(self, event):
        if event.number in self._orders:
            order = self._take_back(event.number)
            self.workers[order.worker].orders.remove(order.number)
            if order.round == self.round:
                self.left = 0
        return []

    def _on_lost(self, event):
        if event.worker in self.workers:
            self._lose(event.worker)
        return []

    def _on_tick(self, event):
        return []

    def _lose(self, name):
        """Reopen the portions of a lost worker that no other worker works on."""
        lost = self.workers.pop(name)
        self._n_slots -= lost.slots
        for number in lost.orders:
            order = self._take_back(number)
            portions = slice(order.first, order.last)
            counted = self.counted[portions].any()
            if order.round == self.round and not counted and order.node not in self._copies:
                self.open[portions] = True
                self._n_open += order.last - order.first

    def _take_back(self, number):
        order, _ = self._orders.pop(number)
        self._copies[order.node] -= 1
        if not self._copies[order.node]:
            del self._copies[order.node]
        return order

    # Assignment -------------------------------------------------------------------------------------

    def _assign(self, now, names):
        """Assign orders until no worker can take one; the worker with the fewest comes first."""
        given: list[Work] = []
        waiting = [(len(self.workers[name].orders), rank, name) for rank, name in enumerate(names)]
        heapq.heapify(waiting)
        self._spare = None
        while waiting and not self.finished:
            n_orders, rank, name = heapq.heappop(waiting)
            order = self._order_for(name, now)
            if order is not None:
                given.append(Work(order))
                heapq.heappush(waiting, (n_orders + 1, rank, name))
        return given

    def _room(self, worker):
        """How many orders a worker may have: near the end none that wait, for others could take them."""
        return worker.slots * (2 if self.ahead and self._n_open > self._n_slots else 1)

    def _order_for(self, name, now):
        worker = self.workers[name]
        n_orders = len(worker.orders)
        if n_orders >= self._room(worker):
            return None
        here = self.open & worker.holds
        if here.any():
            return self._given(name, now, *self._block(worker, here))
        if n_orders >= worker.slots:
            return None
        if self._spare is None:
            self._spare = self._work_of_others(now)
        for owner, first, size in self._spare:
            if owner != name:
                self._spare = None  # it changes with this order
                return self._given(name, now, first, size)
        return None

    def _work_of_others(self, now):
        """Return what an idle worker may take: open portions elsewhere, else late orders."""
        moved = self._worth_moving(now)
        if moved is not None:
            return [("", moved, 1)]
        return [(order.worker, order.first, order.size) for order, due in self._overdue() if due <= now]

    def _block(self, worker, here):
        """Choose an open node that the worker holds wholly, from its own part of the range."""
        places = np.flatnonzero(here)
        first = int(places[np.searchsorted(places, worker.start) % len(places)])
        if worker.pace > 0:
            most = min(int(self.grain / worker.pace), -(-len(places) // worker.slots))
        else:
            most = len(places) // (2 * worker.slots)
        size = 1
        while 2 * size <= most and first % (2 * size) == 0 and here[first : first + 2 * size].all():
            size *= 2
        return first, size

    def _worth_moving(self, now):
        """Find an open portion whose holders are lost, have much to do, or are stuck."""
        if not self._n_open:
            return None
        orphans = self.open.copy()
        for worker in self.workers.values():
            orphans &= ~worker.holds
        if orphans.any():
            return int(orphans.argmax())
        waits = {}
        for name, worker in self.workers.items():
            mine = self.open & worker.holds
            left = mine.sum()
            if left and (left >= _WORTH * worker.slots or self._stuck(name) <= now):
                waits[left / worker.slots * (1.0 if math.isnan(worker.pace) else worker.pace)] = mine
        return int(np.flatnonzero(waits[max(waits)])[-1]) if waits else None

    def _stuck(self, name):
        """When a working worker should have answered; infinity if that is unknown."""
        dues = [self._due(*self._orders[number], 0) for number in self.workers[name].orders]
        return min(dues, default=math.inf)

    def _overdue(self):
        """Yield orders of this pass with a single copy, and when each should be started again."""
        for worker in self.workers.values():
            for place, number in enumerate(worker.orders):
                order, given = self._orders[number]
                fresh = order.round == self.round and not self.counted[order.first]
                if fresh and self._copies[order.node] == 1:
                    yield order, self._due(order, given, place // worker.slots)

    def _due(self, order, given, before):
        """When an order is late, `before` others of its size going first."""
        if math.isnan(self._pace) or math.isinf(self.backup):
            return math.inf
        return given + self.backup * self._pace * (order.last - order.first) * (1 + before) + self.late

    def _given(self, name, now, first, size):
        last = min(first + size, self.n)
        order = Order(self._next_number, self.round, name, first, size, last)
        self._next_number += 1
        self._orders[order.number] = order, now
        self._copies[order.node] += 1
        self._n_open -= int(self.open[first:last].sum())  # none if it is a copy
        self.open[first:last] = False
        self.workers[name].orders.append(order.number)
        self.workers[name].start = last
        return order


class TreeSum:
    """The sum of numbers and vectors over `n` portions, added along a binary tree over their numbers.

    It has the same bits in whatever order and in whatever nodes the portions come; with ``ordered=False``
    they are added to one vector as they come, with less memory. Instead of vectors there may be lists, which
    are joined in the order of the portions.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.sums.portions import TreeSum
    >>> total = TreeSum(3)
    >>> for portion in (2, 0, 1):
    ...     total.add(portion, 1, float(portion), np.array([1.0]))
    >>> total.value, total.vector
    (3.0, array([3.]))
    """

    def __init__(self, n, *, ordered=True):
        self.n, self.ordered = n, ordered
        self.nodes: dict[tuple, list] = {}  # (first, size): number, vector
        self._top = 1 << (n - 1).bit_length()

    def add(self, first, size, value, vector, *, owned=False):
        """Add a node; its vector is copied unless it is `owned`."""
        if not self.ordered:
            first, size = 0, self._top
            if (first, size) in self.nodes:
                _add(self.nodes[first, size], value, vector)
                return
        while size < self._top:
            sibling = first ^ size
            if sibling < self.n:
                if (sibling, size) not in self.nodes:
                    break
                node = self.nodes.pop((sibling, size))
                if type(vector) is list and first < sibling:
                    node[1], vector = vector, node[1]  # lists are joined in the order of their portions
                value, vector = _add(node, value, vector)
                owned = True
            first, size = min(first, sibling), 2 * size
        owned = owned or type(vector) is list
        self.nodes[first, size] = [value, vector if owned else np.array(vector, np.float64)]

    @property
    def value(self):
        """The number, once all portions are there."""
        return self.nodes[0, self._top][0]

    @property
    def vector(self):
        """The vector, once all portions are there."""
        return self.nodes[0, self._top][1]


def _add(node, value, vector):
    with np.errstate(over="ignore", invalid="ignore"):  # finite parts may have a sum that is not
        node[0] += value
        node[1] += vector
    return node
