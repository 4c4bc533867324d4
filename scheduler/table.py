"""A table of parameters that replicas read and change at the same time, with bounded staleness.

Replicas are calls of one function. Each counts its own clock; what a replica reads at clock c holds every
update of all replicas stamped ``c - s - 1`` or less, perhaps newer ones, and always its own. With staleness
``s = 0`` the replicas work in step (bulk-synchronous, and bitwise repeatable), with ``s = inf`` nobody waits.

The protocol is in `table_state`; here are the user's view and the run. Shards and replicas lie in threads of
this process (`table_places`), also in simulated time, or on Dask (`table_cluster`).
"""

import itertools
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ..errors import DataError, ModelFileError, StradaskError, WorkerLost
from .parameters import check_count
from .store import Checkpoint
from .table_state import OVER, Add, Design, Keep, Leave, Read

_ATTEMPTS = 5  # to go on from one state, each ended by a lost worker
_KEEP_SECONDS, _KEEP_RATE = 5.0, 5e6  # states kept against losses: seconds between two, bytes a second


class ParameterTable:
    """One replica's view of the table that `run_replicas` makes: the first argument of its function.

    Attributes
    ----------
    replica, n_replicas : int
    shape : tuple of int
        Rows, and numbers in a row.
    dtype : dtype
    staleness : int or inf
    now : int
        The replica's clock. A function that goes on from a checkpoint, or after a lost worker, finds it above
        0 at its start.
    seconds : float
        Since the run began, simulated if the run is.
    waited : float
        Seconds that this replica has waited for rows.

    Examples
    --------
    See `run_replicas`.
    """

    def __init__(self, state, n_replicas, send):
        self._state, self._send, self.n_replicas = state, send, n_replicas
        self._pushes: list[tuple] = []  # under way
        self._began = time.monotonic()
        self.replica, self.waited = state.number, 0.0
        self.shape, self.dtype, self.staleness = state.shape, state.dtype, state.staleness

    @property
    def now(self):
        """The replica's clock."""
        return self._state.clock

    @property
    def seconds(self):
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def get(self, rows=None, *, refresh=False):
        """Read rows; waits where a replica is more than the staleness behind.

        Parameters
        ----------
        rows : int or array-like of int, optional
            Row numbers, in any order; all rows by default.
        refresh : bool, default=False
            Ask the shards also for rows whose cached values are fresh enough. It makes values newer, and
            never waits for more than the staleness demands.

        Returns
        -------
        ndarray of shape (len(rows), width), or (width,) for one int
            A copy.

        Raises
        ------
        DataError
            For a row that there is not.
        WorkerLost
            If the table is gone: let it pass, `run_replicas` sees to it.
        """
        wanted = self._rows(rows)
        ascending = wanted if (wanted[1:] > wanted[:-1]).all() else np.unique(wanted)
        asked = self._state.ask(ascending, refresh)
        if asked:
            began = self.seconds
            for shard, answer in self._answers(asked).items():
                self._state.take(shard, asked[shard], answer)
            self.waited += self.seconds - began
        values = self._state.values(wanted)
        return values[0] if isinstance(rows, Integral) else values

    def inc(self, rows, delta):
        """Change rows; others see it after `clock`, this replica at once.

        Parameters
        ----------
        rows : int, array-like of int or None
            Row numbers; one may stand there several times, None is all rows.
        delta : array-like that broadcasts to shape (len(rows), width)
            Added to the rows, or the gradient if the rule is `Adagrad`.

        Raises
        ------
        DataError
            For a row that there is not, another shape, and what is not finite.
        """
        rows = self._rows(rows)
        try:
            delta = np.broadcast_to(np.asarray(delta, self.dtype), (len(rows), self.shape[1]))
        except ValueError as error:
            raise DataError(
                f"delta must broadcast to {len(rows)} rows of {self.shape[1]} numbers: {error}"
            ) from error
        if not np.isfinite(delta).all():
            row = rows[np.flatnonzero(~np.isfinite(delta).all(axis=1))[0]]
            raise DataError(f"delta is not finite in row {row} (replica {self.replica}, clock {self.now})")
        if (rows[1:] <= rows[:-1]).any():
            rows, where = np.unique(rows, return_inverse=True)
            summed = np.zeros((len(rows), self.shape[1]), self.dtype)
            np.add.at(summed, where, delta)
            delta = summed
        self._state.inc(rows, delta)

    def clock(self):
        """End a clock: send what was changed, without waiting for anybody."""
        self._flush()  # at most one clock's pushes are under way
        self._pushes = [(shard, self._send(shard, push)) for shard, push in self._state.tick().items()]

    def _flush(self):
        for shard, future in self._pushes:
            self._state.taken(shard, self._wait(future))
        self._pushes = []

    def _leave(self):
        """Send what is left and tell the shards that nobody need wait for this replica."""
        if self._state.changed:
            self.clock()
        self._flush()
        for future in [self._send(shard, Leave(self.replica)) for shard in range(self._state.n_shards)]:
            self._wait(future)

    def _answers(self, asked):
        futures = {shard: self._send(shard, message) for shard, message in asked.items()}
        return {shard: self._wait(future) for shard, future in futures.items()}

    def _wait(self, future):
        return future.result()

    def _rows(self, rows):
        """Check row numbers; nothing after this looks at them again."""
        if rows is None:
            return np.arange(self.shape[0])
        found = np.atleast_1d(np.asarray(rows))
        if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
            raise DataError(f"rows must be an int or a vector of ints, got {rows!r:.60}")
        wrong = found[(found < 0) | (found >= self.shape[0])]
        if len(wrong):
            raise DataError(f"rows holds {wrong[0]}, but the table has the rows 0 to {self.shape[0] - 1}")
        return found.astype(np.int64)


# The run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableRun:
    """What `run_replicas` did.

    Attributes
    ----------
    values : ndarray of shape (n_rows, width)
        The table at the end.
    slots : ndarray of shape (n_rows, n_slots, width)
        What the rule keeps beside the values: Adagrad's sums of squares.
    results : list
        What the function returned for each replica.
    n_recoveries : int
        How often workers were lost.
    """

    values: np.ndarray
    slots: np.ndarray
    results: list
    n_recoveries: int = 0


def run_replicas(
    function,
    tasks,
    values,
    *,
    slots=None,
    staleness=0,
    rule=None,
    engine="local",
    checkpoint=None,
    checkpoint_every=100,
    fingerprint=None,
):
    """Run a function once for every task, at the same time, over one table.

    Parameters
    ----------
    function : callable
        ``function(table, task)`` with a `ParameterTable`. It loops over clocks from ``table.now`` on, which
        is above 0 where the run goes on from a state. On Dask it is pickled.
    tasks : sequence
        One for each replica: its data, for instance. On Dask an entry may hold futures, delayed values and
        collections; they arrive as their values.
    values : array-like of shape (n_rows, width)
        The table at the beginning; float32 and float64 are kept. Not changed.
    slots : array-like of shape (n_rows, n_slots, width), optional
        What the rule keeps beside the values, from the run before; zeros by default.
    staleness : int or float("inf"), default=0
        s: how many clocks the replicas may be apart when they read.
    rule : Rule, optional
        What an update does: `Add`, the default, or `Adagrad`.
    engine : str, SimulatedClock or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; the address of a Dask
        scheduler; or a `SimulatedClock`.
    checkpoint : path-like, optional
        Folder of states; the run goes on from the newest. A state has exactly the updates stamped below
        its clock.
    checkpoint_every : int, default=100
        States are taken at multiples of this clock, as soon as the one before is written.
    fingerprint : dict, optional
        What a checkpoint belongs to, as JSON can hold it.

    Returns
    -------
    TableRun

    Raises
    ------
    DataError
        For values that are not finite or no matrix, a staleness below 0, no tasks.
    WorkerLost
        If five attempts to go on from one state each lost a worker.
    Exception
        The first that a replica raised; the others are ended.

    Examples
    --------
    Two replicas count in one row; each sees at least what the other did two clocks ago.

    >>> import numpy as np
    >>> from stradask.scheduler.table import run_replicas
    >>> def work(table, step):
    ...     for clock in range(table.now, 10):
    ...         row = table.get(0)
    ...         assert row[table.replica] == clock * step  # its own updates are always there
    ...         assert row.sum() >= max(0, clock - 1) * 3
    ...         table.inc(0, step * np.eye(2)[table.replica])
    ...         table.clock()
    >>> run_replicas(work, [1.0, 2.0], np.zeros((1, 2)), staleness=1).values
    array([[10., 20.]])
    """
    rule = rule or Add()
    tasks = list(tasks)
    cells = _cells(values, slots, rule)
    n_rows, _, width = cells.shape
    design = Design(n_rows, width, cells.dtype, len(tasks), _check_staleness(staleness), rule)
    if not tasks:
        raise DataError("tasks is empty: there is one replica for each of them")
    check_count("checkpoint_every", checkpoint_every)
    run = _Run(design, function, tasks, _place(engine), checkpoint_every)
    store = None if checkpoint is None else Checkpoint(checkpoint)
    return run.to_end(cells, store, {**(fingerprint or {}), **_identity(design)})


def _place(engine):
    from .table_places import LocalPlace

    if isinstance(engine, str) and engine == "local":
        return LocalPlace()
    if hasattr(engine, "deliver"):
        return engine
    if isinstance(engine, str) and engine != "dask" and "://" not in engine:
        raise DataError(
            f"engine={engine!r} is unknown: take 'local', 'dask' or an address such as 'tcp://host:8786'"
        )
    from .table_cluster import cluster_place

    return cluster_place(engine)


def _cells(values, slots, rule):
    values = np.asarray(values)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if values.ndim != 2 or not values.size:
        raise DataError(f"values must be a matrix, rows of parameters, got an array of shape {values.shape}")
    if not np.isfinite(values).all():
        raise DataError(f"values holds {values[~np.isfinite(values)][0]} in the table's beginning")
    cells = np.zeros((len(values), 1 + rule.n_slots, values.shape[1]), values.dtype)
    cells[:, 0] = values
    if slots is not None:
        slots = np.asarray(slots)
        if slots.shape != cells[:, 1:].shape or not np.isfinite(slots).all():
            raise DataError(f"slots must be finite, of shape {cells[:, 1:].shape}, got {slots.shape}")
        cells[:, 1:] = slots
    return cells


def _check_staleness(staleness):
    if staleness == np.inf:
        return np.inf
    if isinstance(staleness, float):
        raise DataError(f"staleness must be an integer or float('inf'), got {staleness!r}")
    return check_count("staleness", staleness, 0)


def _identity(design):
    return {
        "table": [design.n_rows, design.width, design.dtype.str],
        "rule": repr(design.rule),
        "staleness": str(design.staleness),
        "n_replicas": design.n_replicas,
    }


class _Run:
    """Starts replicas, takes states meanwhile, and begins again from the newest when a worker is lost."""

    def __init__(self, design, function, tasks, place, every):
        self.design, self.function, self.tasks, self.place = design, function, tasks, place
        self.every = every
        self.n_recoveries = 0

    def to_end(self, cells, store, fingerprint):
        self.store, self.fingerprint, self.state = store, fingerprint, (0, cells)
        found = None if store is None else store.load(fingerprint)
        if found is not None:
            clock, arrays, _ = found
            self.state = clock, _same_form(arrays.get("cells"), cells)
        failures = 0
        try:
            while True:
                began_from = self.state[0]
                try:
                    return self._attempt()
                except WorkerLost as error:
                    self.place.stop(error)
                    failures = failures + 1 if self.state[0] == began_from else 0
                    if failures >= _ATTEMPTS:
                        text = f"{_ATTEMPTS} attempts to go on from clock {began_from} each lost a worker"
                        raise WorkerLost(f"{text}: {error}") from error
                    self.n_recoveries += 1
        except BaseException as error:
            self.place.stop(_ended(error))
            raise
        finally:
            self.place.close()

    def _attempt(self):
        clock, cells = self.state
        self.place.open(self.design, cells, clock)
        keeper = _Keeper(self, clock) if self.store is not None or self.place.remote else None
        if keeper:
            keeper.ask()
        calls = self.place.start(self.function, self.tasks)
        pending = set(calls)
        while pending:
            waiting = pending | keeper.futures if keeper else pending
            done, _ = wait(waiting, timeout=keeper.pause if keeper else None, return_when=FIRST_COMPLETED)
            if errors := [call.exception() for call in calls if call in done and call.exception()]:
                raise next((e for e in errors if not isinstance(e, WorkerLost)), errors[0])
            pending -= done
            if keeper:
                keeper.look()
        if keeper:
            keeper.end()
        values = self._everything()
        return TableRun(
            values[:, 0].copy(), values[:, 1:].copy(), [call.result() for call in calls], self.n_recoveries
        )

    def _everything(self):
        starts = self.design.starts(self.place.n_shards())
        spans = list(enumerate(itertools.pairwise(starts)))
        futures = [self.place.deliver(n, Read(0, np.arange(a, b), 0)) for n, (a, b) in spans]
        return np.concatenate([future.result().cells for future in futures])


class _Keeper:
    """Takes states while replicas run: asks all shards for the cells of one clock, again and again."""

    def __init__(self, run, clock):
        self.run, self.newest = run, clock
        self.futures: set[Future] = set()
        self._order: list[Future] = []
        self._due, self._least = 0.0, 0
        self.pause: float | None = None

    def ask(self):
        """Ask all shards for the next clock at which a state is wanted."""
        every = self.run.every if self.run.store is not None else 1
        self._ask((max(self.newest, self._least - 1) // every + 1) * every)

    def _ask(self, boundary):
        n_shards = self.run.place.n_shards()
        self._order = [self.run.place.deliver(shard, Keep(boundary)) for shard in range(n_shards)]
        self.futures, self.pause = set(self._order), None

    def look(self):
        """Take what has come; ask for the next state when it is time."""
        if self._order and all(future.done() for future in self._order):
            self._take([future.result() for future in self._order])
        if not self._order and time.monotonic() >= self._due:
            self.ask()
        elif not self._order:
            self.pause = max(self._due - time.monotonic(), 0.01)

    def _take(self, answers):
        self._order, self.futures = [], set()
        self._least = max(answer.clock for answer in answers)
        if any(answer.cells is None for answer in answers):
            self._due = 0.0
            return
        if self._least == self.newest:  # all have ended: nothing has come since
            self._due = time.monotonic() + 0.05
            return
        self.newest = self._least
        self.run.state = self.newest, np.concatenate([answer.cells for answer in answers])
        if self.run.store is not None:
            self.run.store.save(self.newest, {"cells": self.run.state[1]}, {}, self.run.fingerprint)
            self._due = 0.0
        else:
            self._due = time.monotonic() + max(_KEEP_SECONDS, self.run.state[1].nbytes / _KEEP_RATE)

    def end(self):
        """Write the last state, with all updates of all replicas."""
        if self.run.store is not None:
            self._ask(OVER)
            self._take([future.result() for future in self._order])


def _same_form(there, here):
    if there is None or there.shape != here.shape or there.dtype != here.dtype:
        found = "missing" if there is None else f"{there.dtype}{there.shape}"
        raise ModelFileError(
            f"the checkpoint's cells are {found}, but the table has "
            f"{here.dtype}{here.shape}; remove the folder to start anew"
        )
    return there


def _ended(error):
    if isinstance(error, StradaskError) and not isinstance(error, DataError):
        return error
    ended = WorkerLost("the table was closed: another replica failed, or the run was interrupted")
    ended.__cause__ = error
    return ended


def __getattr__(name):
    """Lend the simulated engine, which stands beside the other places."""
    if name == "SimulatedClock":
        from .table_places import SimulatedClock

        return SimulatedClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
