"""Stale-synchronous parallel tables as two state machines: messages in, messages out.

A `Shard` keeps some rows of a table and a vector clock, a `Replica` one reader's cache and the log of its own
updates. They use no threads or network; messages may arrive twice and in any order.

References
----------
Ho, Cipar, Cui, Lee, Kim, Gibbons, Gibson, Ganger, Xing, "More effective distributed ML via a stale
synchronous parallel parameter server", NIPS 2013. Dean et al., "Large scale distributed deep networks", NIPS
2012 (Adagrad on the shards).
"""

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import DataError, shortened

OVER = 2**62  # the clock of a shard when all replicas have left


# What an update does --------------------------------------------------------------------------------


class Rule(Protocol):
    """How an update changes the cells of its rows; a shard keeps `n_slots` numbers for each value."""

    n_slots: int

    def apply(self, cells: np.ndarray, delta: np.ndarray):
        """Change `cells`, shape (n, 1 + n_slots, width), the values first, by `delta`, shape (n, width)."""


@dataclass(frozen=True)
class Add:
    """Adds an update to the values.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.table.state import Add
    >>> cells = np.zeros((1, 1, 2))
    >>> Add().apply(cells, np.array([[1.0, 2.0]]))
    >>> cells[:, 0]
    array([[1., 2.]])
    """

    n_slots = 0

    def apply(self, cells, delta):
        """Add."""
        cells[:, 0] += delta


@dataclass(frozen=True)
class Adagrad:
    r"""An update is a gradient g, and each value takes a step of its own length against it.

    .. math:: h_j \leftarrow h_j + g_j^2, \qquad w_j \leftarrow w_j - \gamma g_j / \sqrt{h_j}

    The sums h lie on the shard, with the values, and count the gradients of all replicas.

    Parameters
    ----------
    rate : float
        gamma, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.table.state import Adagrad
    >>> cells = np.zeros((1, 2, 2))
    >>> for _ in range(2):
    ...     Adagrad(0.5).apply(cells, np.array([[4.0, 0.0]]))
    >>> cells[0]
    array([[-0.85355339,  0.        ],
           [32.        ,  0.        ]])
    """

    rate: float
    n_slots = 1

    def __post_init__(self):
        if not 0 < self.rate < math.inf:
            raise DataError(f"rate must be a number above 0, got {shortened(self.rate)}")

    def apply(self, cells: Any, delta: Any) -> None:
        """Step."""
        squares = cells[:, 1]
        squares += delta * delta
        step = np.sqrt(squares)
        np.maximum(step, math.sqrt(np.finfo(step.dtype).tiny), out=step)  # where no gradient has come: 0 / 0
        np.divide(delta, step, out=step)
        step *= step.dtype.type(self.rate)
        cells[:, 0] -= step


# Messages -------------------------------------------------------------------------------------------


class Push(NamedTuple):
    """A replica's changes between two ticks of its clock; (replica, stamp) identifies a repeat."""

    replica: int
    stamp: int
    rows: np.ndarray  # ascending, of the whole table
    delta: np.ndarray


class Read(NamedTuple):
    """Requests rows once the shard's clock has reached `clock`."""

    replica: int
    rows: np.ndarray
    clock: int


class Leave(NamedTuple):
    """The replica has ended or died, and no replica waits for it any more."""

    replica: int


class Keep(NamedTuple):
    """Requests all cells with exactly the updates stamped below `clock`."""

    clock: int


class Taken(NamedTuple):
    """Answers `Push` and `Leave`: how many of the replica's pushes the cells hold."""

    applied: int


class Cells(NamedTuple):
    """Answers `Read`: the cells hold all updates stamped below `clock`, and `applied` of the reader's own."""

    cells: np.ndarray
    clock: int
    applied: int


class Kept(NamedTuple):
    """Answers `Keep`; no cells if updates stamped from `clock` on had been made already."""

    cells: np.ndarray | None
    clock: int  # that was asked for, or the least that could be


# The shard ------------------------------------------------------------------------------------------


class Shard:
    """Some rows of a table, and the clocks of all replicas.

    `cells`, of shape (n_rows, 1 + n_slots, width), are changed in place; `first` is the number of the first
    row in the table. The shard's clock is the least number of pushes received from a replica that is still
    there. An update is applied when it arrives; with `ordered` (staleness 0) those of one stamp are applied
    together, in the order of replicas, once all are there, so that sums do not depend on a race.
    """

    def __init__(self, cells, first, n_replicas, rule, *, ordered, clock=0):
        self.cells, self.first, self.rule, self.ordered = cells, first, rule, ordered
        self.live = set(range(n_replicas))
        self.received = [clock] * n_replicas  # pushes without a gap
        self.applied = [clock] * n_replicas  # of these, those that the cells hold
        self.clock = clock
        self._inbox: dict[tuple[int, int], Push] = {}  # (stamp, replica): not applied yet
        self._parked: dict[Any, Read] = {}
        self._keep: tuple[Any, int] | None = None
        self._shadow: np.ndarray | None = None  # the cells without the updates from the wanted clock on

    def receive(self, ticket, message):
        """Handle a message; return the answers that are due, as (ticket, answer) pairs."""
        if isinstance(message, Push):
            return self._push(ticket, message)
        if isinstance(message, Leave):
            self.live.discard(message.replica)
            return [*self._settle(), (ticket, Taken(self.applied[message.replica]))]
        if isinstance(message, Read):
            self._parked[ticket] = message
            return self._answers()
        return self._kept_at(ticket, message.clock)

    def _push(self, ticket, push):
        replica = push.replica
        if push.stamp >= self.received[replica]:  # else it came twice
            self._inbox.setdefault((push.stamp, replica), push)
        while (self.received[replica], replica) in self._inbox:
            self.received[replica] += 1
        return [*self._settle(), (ticket, Taken(self.applied[replica]))]

    def _settle(self):
        """Apply the updates that are due; return the answers that waited for them."""
        clock = min((self.received[replica] for replica in self.live), default=OVER)
        for stamp, replica in sorted(self._inbox):
            due = self.received[replica] if not self.ordered else min(clock, self.received[replica])
            if stamp < due:
                self._apply(self._inbox.pop((stamp, replica)))
                self.applied[replica] = stamp + 1
        self.clock = clock
        return self._answers()

    def _apply(self, push):
        _, boundary = self._keep or (None, OVER)
        if push.stamp >= boundary and self._shadow is None:
            self._shadow = self.cells.copy()
        self._write(self.cells, push)
        if self._shadow is not None and push.stamp < boundary:
            self._write(self._shadow, push)

    def _write(self, cells, push):
        if len(push.rows):
            rows = push.rows - self.first
            changed = cells[rows]
            self.rule.apply(changed, push.delta)
            cells[rows] = changed

    def _answers(self):
        answers: list[tuple[Any, Any]] = []
        if self._keep is not None and self.clock >= self._keep[1]:
            (ticket, boundary), shadow = self._keep, self._shadow
            if self.clock == OVER:
                boundary = min(boundary, max(self.applied))
            answers.append((ticket, Kept(self.cells.copy() if shadow is None else shadow, boundary)))
            self._keep = self._shadow = None
        for ticket, read in list(self._parked.items()):
            if self.clock >= read.clock:
                del self._parked[ticket]
                cells = self.cells[read.rows - self.first]
                answers.append((ticket, Cells(cells, self.clock, self.applied[read.replica])))
        return answers

    def _kept_at(self, ticket, boundary):
        answers = []
        if self._keep is not None:  # a newer wish ends the one before
            answers.append((self._keep[0], Kept(None, boundary)))
        self._keep = self._shadow = None
        least = max(self.applied)
        if least > boundary:
            return [*answers, (ticket, Kept(None, least))]
        self._keep = ticket, boundary
        return answers + self._answers()


# The replica ----------------------------------------------------------------------------------------


class Replica:
    """One reader's view of a table: its cache, its clock, and its own changes.

    `starts` has the first row of each shard, and the number of rows at the end. With staleness s a row must
    hold, at clock c, all updates stamped below ``c - s``. A row that was never read or changed takes no
    memory: its pages are never touched.
    """

    def __init__(self, number, starts: Sequence[int], width, dtype, rule, staleness, clock=0):
        self.number, self.rule, self.staleness, self.clock = number, rule, staleness, clock
        self.starts = np.asarray(starts)
        n_rows, n_shards = int(self.starts[-1]), len(self.starts) - 1
        self.shape, self.dtype, self.n_shards = (n_rows, width), np.dtype(dtype), n_shards
        self._cells = np.zeros((n_rows, 1 + rule.n_slots, width), dtype)
        self._fresh = np.full(n_rows, -1, np.int64)  # up to which clock a cached row is whole; -1: not here
        self._delta = np.zeros((n_rows, width), dtype)  # of the running clock
        self._changed = np.zeros(n_rows, bool)
        self._log: list[deque[Push]] = [deque() for _ in range(n_shards)]  # perhaps not on the shard yet
        self._applied = [clock] * n_shards

    @property
    def changed(self):
        """Whether there are updates of the running clock."""
        return bool(self._changed.any())

    @property
    def wanted(self):
        """Clock that a shard must have reached for this replica to read on."""
        return 0 if self.staleness == np.inf else max(0, self.clock - self.staleness)

    def ask(self, rows, refresh=False):
        """Return the reads, by shard, that must be answered and taken before `values` of these rows.

        `rows` are ascending int64; with `refresh` also rows whose cached values are fresh enough are
        requested.
        """
        self._forget()
        if not refresh:
            least = self.clock if self.staleness == np.inf else self.wanted
            rows = rows[self._fresh[rows] < least]
        return {s: Read(self.number, part, self.wanted) for s, part in self._split(rows) if len(part)}

    def _forget(self):
        """Drop pushes that shards have applied; never while a read is open, whose answer may be older."""
        for shard, log in enumerate(self._log):
            while log and log[0].stamp < self._applied[shard]:
                log.popleft()

    def take(self, shard, read, answer):
        """Put rows into the cache, and apply the own updates that the shard lacked when it answered."""
        rows = read.rows
        cells = answer.cells.copy()
        for push in self._log[shard]:
            if push.stamp >= answer.applied:
                self._replay(cells, rows, push.rows, push.delta)
        mine = rows[self._changed[rows]]
        self._replay(cells, rows, mine, self._delta[mine])
        self._cells[rows] = cells
        self._fresh[rows] = self.clock if self.staleness == np.inf else answer.clock
        self._applied[shard] = max(self._applied[shard], answer.applied)

    def _replay(self, cells, rows, changed, delta):
        both, at, of = np.intersect1d(rows, changed, assume_unique=True, return_indices=True)
        if len(both):
            part = cells[at]
            self.rule.apply(part, delta[of])
            cells[at] = part

    def values(self, rows):
        """Copy the values of rows that were asked for."""
        return self._cells[rows, 0]

    def inc(self, rows, delta):
        """Change rows, ascending and none twice; the cache shows it at once."""
        self._delta[rows] += delta
        self._changed[rows] = True
        here = self._fresh[rows] >= 0
        cached = rows[here]
        if len(cached):
            cells = self._cells[cached]
            self.rule.apply(cells, np.asarray(delta[here], self._delta.dtype))
            self._cells[cached] = cells

    def tick(self):
        """End the clock; return a push for each shard, empty ones included, since shards count them.

        Not while a read is open.
        """
        self._forget()
        rows = np.flatnonzero(self._changed)
        pushes = {}
        for shard, part in self._split(rows):
            pushes[shard] = Push(self.number, self.clock, part, self._delta[part])
            self._log[shard].append(pushes[shard])
        self._delta[rows] = 0
        self._changed[rows] = False
        self.clock += 1
        return pushes

    def taken(self, shard, answer):
        """Note how many of the own pushes a shard has applied."""
        self._applied[shard] = max(self._applied[shard], answer.applied)

    def _split(self, rows):
        ends = np.searchsorted(rows, self.starts)
        return [(shard, rows[a:b]) for shard, (a, b) in enumerate(itertools.pairwise(ends))]


# Both -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableForm:
    """The form of a table, which all shards and replicas share."""

    n_rows: int
    width: int
    dtype: np.dtype
    n_replicas: int
    staleness: float
    rule: Rule

    def starts(self, n_shards):
        """Return the first rows of equal shards, and the number of rows at the end."""
        return [self.n_rows * shard // n_shards for shard in range(n_shards + 1)]

    def shard(self, cells, first, clock):
        """Make a shard of some rows."""
        return Shard(cells, first, self.n_replicas, self.rule, ordered=self.staleness == 0, clock=clock)

    def replica(self, number, starts, clock):
        """Make a replica's state."""
        return Replica(number, starts, self.width, self.dtype, self.rule, self.staleness, clock)
