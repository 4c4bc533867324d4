"""The run of replicas over a parameter table: starts them, saves states, recovers from losses."""

import hashlib
import itertools
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._typing import FileName
from ...errors import DataError, ModelFileError, StradaskError, WorkerLost, in_brief, shortened
from ..parameters import ATTEMPTS, check_count
from ..stores.store import Checkpoint
from ..workers import open_workers
from .state import OVER, Add, Keep, Read, TableForm

_KEEP_SECONDS, _KEEP_RATE = 5.0, 5e6  # states kept against losses: seconds between two, bytes a second


@dataclass(frozen=True)
class TableRun:
    """The result of `run_replicas`.

    Attributes
    ----------
    values : ndarray of shape (n_rows, width)
        The table at the end.
    slots : ndarray of shape (n_rows, n_slots, width)
        Numbers that the rule keeps with the values: Adagrad's sums of squares.
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
    function: Any,
    tasks: Any,
    values: Any,
    *,
    slots: Any = None,
    staleness: float = 0,
    rule: Any = None,
    engine: Any = "local",
    checkpoint: FileName | None = None,
    checkpoint_every: int = 100,
    fingerprint: Any = None,
) -> TableRun:
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
        What the rule keeps with the values, from the run before; zeros by default.
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
        What a checkpoint belongs to, as JSON can hold it; by default the table's beginning.

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
    >>> from stradask.scheduler import run_replicas
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
    design = TableForm(n_rows, width, cells.dtype, len(tasks), _check_staleness(staleness), rule)
    if not tasks:
        raise DataError("tasks is empty: there is one replica for each of them")
    check_count("checkpoint_every", checkpoint_every)
    run = _ReplicaRun(design, function, tasks, _runner(engine), checkpoint_every)
    store = None if checkpoint is None else Checkpoint(checkpoint)
    if fingerprint is None:
        fingerprint = {"beginning": hashlib.blake2b(cells.tobytes(), digest_size=16).hexdigest()}
    return run.to_end(cells, store, {**fingerprint, **_identity(design)})


def _runner(engine):
    return engine if hasattr(engine, "deliver") else open_workers(engine).table()


def _cells(values, slots, rule):
    try:
        values = np.asarray(values)
        if values.dtype not in (np.float32, np.float64):
            values = values.astype(np.float64, casting="unsafe" if values.dtype.kind in "biufO" else "safe")
    except (TypeError, ValueError) as error:
        raise DataError(f"values must be a matrix of real numbers: {in_brief(error)}") from error
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
        raise DataError(f"staleness must be an integer or float('inf'), got {shortened(staleness)}")
    return check_count("staleness", staleness, 0)


def _identity(design):
    return {
        "table": [design.n_rows, design.width, design.dtype.str],
        "rule": repr(design.rule),
        "staleness": str(design.staleness),
        "n_replicas": design.n_replicas,
    }


class _ReplicaRun:
    """Starts replicas, takes states meanwhile, and starts again from the newest when a worker is lost."""

    def __init__(self, design, function, tasks, table, every):
        self.design, self.function, self.tasks, self.table = design, function, tasks, table
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
                    self.table.stop(error)
                    failures = failures + 1 if self.state[0] == began_from else 0
                    if failures >= ATTEMPTS:
                        text = f"{ATTEMPTS} attempts to go on from clock {began_from} each lost a worker"
                        raise WorkerLost(f"{text}: {error}") from error
                    self.n_recoveries += 1
        except BaseException as error:
            self.table.stop(_ended(error))
            raise
        finally:
            self.table.close()

    def _attempt(self):
        clock, cells = self.state
        self.table.open(self.design, cells, clock)
        keeper = _Keeper(self, clock) if self.store is not None or self.table.remote else None
        if keeper:
            keeper.ask()
        calls = self.table.start(self.function, self.tasks)
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
        starts = self.design.starts(self.table.n_shards())
        spans = list(enumerate(itertools.pairwise(starts)))
        futures = [self.table.deliver(n, Read(0, np.arange(a, b), 0)) for n, (a, b) in spans]
        return np.concatenate([future.result().cells for future in futures])


class _Keeper:
    """Takes states while replicas run: requests the cells of one clock from all shards, repeatedly."""

    def __init__(self, run, clock):
        self.run, self.newest = run, clock
        self.futures: set[Future] = set()
        self._order: list[Future] = []
        self._due, self._least = 0.0, 0
        self.pause: float | None = None

    def ask(self):
        """Request the next clock at which a state is wanted from all shards."""
        every = self.run.every if self.run.store is not None else 1
        self._ask((max(self.newest, self._least - 1) // every + 1) * every)

    def _ask(self, boundary):
        n_shards = self.run.table.n_shards()
        self._order = [self.run.table.deliver(shard, Keep(boundary)) for shard in range(n_shards)]
        self.futures, self.pause = set(self._order), None

    def look(self):
        """Take the answers; request the next state when it is time."""
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
