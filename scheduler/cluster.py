"""Sessions on Dask: shards lie in the workers, calls go to them directly, blocks travel from worker to worker.

A session is a worker plugin with handlers of its own, as Dask's own shuffle is. An actor dies for good
with its worker, and a task for every update costs milliseconds in the scheduler; a plugin is put on every
worker that ever joins, and its handlers cost one round trip. They only look things up; arithmetic
runs on the room's threads.
"""

import asyncio
import contextlib
import copy
import pickle
import time
import traceback
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import dask
import distributed
from dask.utils import parse_timedelta
from distributed import WorkerPlugin
from distributed.core import ConnectionPool, Status
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps
from distributed.worker_state_machine import SecedeEvent

from .._version import __version__
from ..errors import DataError, StradaskError, WorkerLost
from .rooms import Assignment, Parcel, Room, StaleEpoch, payload_bytes
from .session import LocalSession
from .threads import effective_n_jobs

_NAME = "stradask-sessions"
_CONNECT = 5.0  # seconds; Dask's own default waits 30 for an address where nobody is any more
_LINGER = 8.0  # seconds that a closing worker waits for its shards to be handed on
_ATTEMPTS = 5  # to open a session while workers come and go


def cluster_session(engine, n_jobs=None):
    """Make the session for an `engine` that is not "local"; see `stradask.scheduler.session.open_session`."""
    try:
        worker = distributed.get_worker()
    except ValueError:
        worker = None
    if worker is not None and engine in ("dask", worker.scheduler.address):
        warnings.warn(
            f"engine={engine!r} inside a Dask task: this fit runs on the threads of its worker alone, because tasks "
            "that wait for other workers can block a cluster; engine='local' there says so without a warning",
            stacklevel=3,
        )
        return LocalSession(worker.state.nthreads if n_jobs is None else n_jobs)
    if engine != "dask":
        return ClusterSession(engine, n_jobs)
    try:
        return ClusterSession(distributed.default_client(), n_jobs)
    except ValueError as error:
        raise DataError(
            "engine='dask' means the current Dask client, and there is none: make one with "
            "distributed.Client(...) before the fit, or give the scheduler's address as engine"
        ) from error


# On the worker ------------------------------------------------------------------------------------------


class SessionPlugin(WorkerPlugin):
    """The rooms of all sessions on one worker, and the handlers through which they are reached."""

    name = _NAME
    idempotent = True  # without it a second registration tears down the sessions that run

    async def setup(self, worker):
        """Begin to answer."""
        self.worker, self.loop = worker, asyncio.get_running_loop()
        self.seats: dict[str, _Seat] = {}
        self.pool = ConnectionPool(timeout=_CONNECT, connection_args=worker.connection_args, server=worker)
        for name in ("ping", "open", "call", "put", "adopt", "hand_on", "drop"):
            worker.handlers[f"stradask_{name}"] = getattr(self, name)
        await self.pool.start()

    async def teardown(self, worker):
        """Wait, while the worker still answers, until the coordinator took the shards and dropped the rooms."""
        end = time.monotonic() + _LINGER
        while self.seats and time.monotonic() < end:
            await asyncio.sleep(0.02)
        for session in list(self.seats):
            self._drop(session)
        for name in ("ping", "open", "call", "put", "adopt", "hand_on", "drop"):
            worker.handlers.pop(f"stradask_{name}", None)
        await self.pool.close()

    def transition(self, key, start, finish, **kwargs):
        """End the session whose presence task was released: its client closed, died, or was cut off.

        Only a room's own presence counts (that of a dead worker may have been moved here), and only while
        the worker runs: one that retires loses it too, and its rooms are still wanted.
        """
        if finish in ("cancelled", "released", "forgotten", "error") and self.worker.status is Status.running:
            for session, seat in self.seats.items():
                if seat.presence == key:
                    self.loop.call_soon(self._drop, session)

    # Handlers. Each looks things up; what takes longer runs on the room's threads.

    async def ping(self):
        """Answer from the event loop: the worker is alive, however long its numerics take."""
        return {"ok": __version__}

    async def open(self, session, version, epoch, presence, program, n_jobs):
        """Begin an epoch with an empty room."""
        if version != __version__:
            text = f"stradask {__version__} is installed there, {version} here; install the same version on all machines"
            return {"refused": text}
        seat = self.seats.setdefault(session, _Seat(presence))
        if epoch < seat.epoch:
            return {"lost": f"a session of epoch {seat.epoch} is not opened again at {epoch}"}
        if epoch > seat.epoch:  # else the message came twice
            seat.leave()
            seat.epoch, seat.presence = epoch, presence
        return await seat.answer(self._furnish, session, seat, epoch, program, n_jobs)

    def _furnish(self, session, seat, epoch, program, n_jobs):
        program = pickle.loads(program)  # may import the program's module, which may be slow
        n_threads = self.worker.state.nthreads if n_jobs is None else effective_n_jobs(n_jobs)

        def send(to, block, stamp, value):
            return self._send(to, session, epoch, block, stamp, value)

        with seat.furnishing:
            if seat.epoch != epoch:
                raise StaleEpoch(f"epoch {epoch} is over")
            if seat.room is None:
                seat.room = Room(program, n_threads, send)

    async def call(self, session, epoch, serial, method, args):
        """Carry out one of a room's calls, once."""
        if (seat := self._seat(session, epoch)) is None:
            return _not_here(epoch)
        return await seat.answer(self._numerics, seat.room, serial, method, args)

    def _numerics(self, room, serial, method, args):
        function = {"load": self._load, "make_block": Room.make_block}.get(method)
        if function is not None:
            return function(room, *Parcel(args).open())
        function = {"run": room.run, "measure": room.measure, "snapshot": room.snapshot}[method]
        return room.once(serial, function, *Parcel(args).open())

    def _load(self, room, shard, brought, data, saved):
        room.load(shard, room.brought.pop(shard) if brought else data, saved)
