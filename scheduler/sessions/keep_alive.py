"""Keep-alive tasks: how workers learn that a client is gone.

When a client closes, dies or is cut off, the scheduler releases its tasks. One task for each worker session,
a *keep-alive*, is therefore all that a worker must watch; it also keeps the worker from being retired as
idle.
"""

import asyncio
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta
from distributed import WorkerPlugin
from distributed.core import ConnectionPool, Status
from distributed.worker_state_machine import SecedeEvent

from ...errors import WorkerLost
from .answers import opened
from .clients import connect_timeout


class SeatKeeper(WorkerPlugin):
    """A plugin with one worker session for each session, which ends with its keep-alive.

    A worker session has its `epoch`, `presence` (the key of the task), `gone` (an event, set by `end`) and
    `end()`. All of this happens on the worker's event loop.
    """

    idempotent = True  # without it a second registration tears down the sessions that run

    answers_to: tuple[str, ...]  # names of handlers, methods that return what `answers` packs

    async def setup(self, worker):
        """Register the handlers."""
        self.worker, self.loop = worker, asyncio.get_running_loop()
        self.seats: dict[str, Any] = {}
        self.pool = ConnectionPool(
            timeout=connect_timeout(), connection_args=worker.connection_args, server=worker
        )
        await self.pool.start()
        for name in self.answers_to:
            worker.handlers[f"stradask_{name}"] = getattr(self, name)

    async def teardown(self, worker):
        """End all worker sessions, and remove the handlers."""
        for session in list(self.seats):
            self.drop_seat(session)
        for name in self.answers_to:
            worker.handlers.pop(f"stradask_{name}", None)
        await self.pool.close()

    async def reach(self, to, handler, **message):
        """Call another worker, a second time if the connection breaks: handlers recognise repeats."""
        for again in (True, False):
            try:
                answer = await getattr(self.pool(to), f"stradask_{handler}")(**message)
            except (OSError, RuntimeError) as error:  # RuntimeError: our pool is closed
                if isinstance(error, RuntimeError) or not again:
                    raise WorkerLost(f"{to} cannot be reached: {error}") from error
            else:
                return opened(answer, to)

    def transition(self, key, start, finish, **kwargs):
        """End the worker session whose keep-alive was released with its client.

        Only its own keep-alive counts (a dead worker's may have been moved here), and only while the worker
        runs: one that retires loses it too, and its shards are still wanted.
        """
        if finish in ("cancelled", "released", "forgotten", "error") and self.worker.status is Status.running:
            for session, seat in self.seats.items():
                if seat.presence == key:
                    self.loop.call_soon(self.drop_seat, session, seat)

    def expect_presence(self, session, epoch):
        """End the worker session unless its keep-alive comes in time."""
        patience = parse_timedelta(dask.config.get("stradask.timeout", "30s"))
        self.loop.call_later(patience, self._give_up, session, epoch)

    def _give_up(self, session, epoch):
        seat = self.seats.get(session)
        if seat is not None and seat.epoch == epoch and seat.presence not in self.worker.state.tasks:
            self.drop_seat(session)

    def drop_seat(self, session, only=None):
        """End a worker session; with `only`, only if it is still this one."""
        seat = self.seats.get(session)
        if seat is not None and only in (None, seat):
            del self.seats[session]
            seat.end()


def show_presence(client, plugin, session, member, epoch):
    """Submit the keep-alive of a worker session; return its key and its future, to be held.

    At once, and not when all worker sessions are there: the first would be given up.
    """
    key = presence_key(session, member, epoch)
    where = {"workers": [member], "allow_other_workers": True}  # or it waits for a lost one for ever
    return key, client.submit(presence, plugin, session, key, member, key=key, pure=False, **where)


def end_presences(shown):
    """Release the keep-alives of a dict ``{worker: (key, future)}``, and empty it.

    At once: a cycle of references may keep the futures until the garbage collector comes.
    """
    for _, task in shown.values():
        task.release()
    shown.clear()


def presence_key(session, member, epoch):
    """Return the key of a worker's keep-alive in an epoch."""
    return f"stradask-presence-{session}-{member}-{epoch}"


async def presence(plugin_name, session, key, address):
    """Keep a worker busy as long as its worker session lasts; the keep-alive task.

    A coroutine needs no thread, and one that secedes no slot. Its release ends the worker session (see
    `SeatKeeper.transition`).
    """
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(plugin_name)
    seat = plugin and plugin.seats.get(session)
    if worker.address != address or seat is None or seat.presence != key:
        return  # moved here after its own worker went
    worker.handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"secede-{key}"))
    await seat.gone.wait()
