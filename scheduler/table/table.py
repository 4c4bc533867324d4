"""A table of parameters that replicas read and change at the same time, with bounded staleness.

Replicas are calls of one function. Each counts its own clock; a read at clock c holds every update of all
replicas stamped ``c - s - 1`` or less, perhaps newer ones, and always the reader's own. With staleness
``s = 0`` the replicas work in step (bulk-synchronous, and bitwise repeatable), with ``s = inf`` none waits.

The protocol is in `state`, the run in `replicas`, the shards on threads (also in simulated time) in `places`
and on Dask in `cluster`.
"""

import time
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import DataError, in_brief, shortened
from ..compiling import CompileClock, compile_clock
from .state import Leave, Replica


class ParameterTable:
    """One replica's view of the table that `run_replicas` makes: the first argument of its function.

    It is not made by hand: ``run_replicas(function, tasks, values)`` makes the table of `values`, of shape
    (n_rows, width), and calls ``function(table, task)`` for each replica.

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
        Since the run began, without those in which numba compiled here; simulated if the run is.
    waited : float
        Seconds that this replica has waited for rows.

    Examples
    --------
    See `run_replicas`.
    """

    def __new__(cls, *arguments, **named):
        """Refuse to be made by hand."""
        if not (arguments and isinstance(arguments[0], Replica)):
            given = [repr(value) for value in arguments] + [
                f"{name}={shortened(value)}" for name, value in named.items()
            ]
            raise DataError(
                f"ParameterTable({', '.join(given)}): a table is not made by hand. Call "
                "run_replicas(function, tasks, values) with values of shape (n_rows, width): it makes the "
                "table and calls function(table, task) for each replica"
            )
        return super().__new__(cls)

    def __init__(self, state: Any, n_replicas: int, send: Any) -> None:
        self._state, self._send, self.n_replicas = state, send, n_replicas
        self._pushes: list[tuple] = []  # under way
        self._began, self._compiling = time.monotonic(), CompileClock()
        self.replica, self.waited = state.number, 0.0
        self.shape, self.dtype, self.staleness = state.shape, state.dtype, state.staleness

    @property
    def now(self) -> int:
        """The replica's clock."""
        return self._state.clock

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began - self._compiling.seconds

    @contextmanager
    def _timed(self):
        """Watch numba inside of the block, the replica's life."""
        with compile_clock() as self._compiling:
            yield

    def get(self, rows: Any = None, *, refresh: bool = False) -> Array:
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

    def inc(self, rows: Any, delta: Any) -> None:
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
                f"delta must broadcast to {len(rows)} rows of {self.shape[1]} numbers: {in_brief(error)}"
            ) from error
        if not np.isfinite(delta).all():
            row = rows[np.flatnonzero(~np.isfinite(delta).all(axis=1))[0]]
            raise DataError(
                f"delta is not finite in row {row} (replica {self.replica}, clock {self.now}): take smaller "
                "steps, or look at the data of that replica"
            )
        if (rows[1:] <= rows[:-1]).any():
            rows, where = np.unique(rows, return_inverse=True)
            summed = np.zeros((len(rows), self.shape[1]), self.dtype)
            np.add.at(summed, where, delta)
            delta = summed
        self._state.inc(rows, delta)

    def clock(self) -> None:
        """End a clock: send what was changed, without waiting for anybody."""
        self._flush()  # at most one clock's pushes are under way
        self._pushes = [(shard, self._send(shard, push)) for shard, push in self._state.tick().items()]

    def _flush(self):
        for shard, future in self._pushes:
            self._state.taken(shard, self._wait(future))
        self._pushes = []

    def _leave(self):
        """Send the last changes and a `Leave` to all shards."""
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
        """Check row numbers."""
        if rows is None:
            return np.arange(self.shape[0])
        found = np.atleast_1d(np.asarray(rows))
        if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
            raise DataError(f"rows must be an int or a vector of ints, got {shortened(rows, 60)}")
        wrong = found[(found < 0) | (found >= self.shape[0])]
        if len(wrong):
            raise DataError(f"rows holds {wrong[0]}, but the table has the rows 0 to {self.shape[0] - 1}")
        return found.astype(np.int64)
