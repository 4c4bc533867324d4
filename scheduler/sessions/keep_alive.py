"""Keep-alive tasks: how workers learn that a client is gone.

When a client closes, dies or is cut off, the scheduler releases its tasks. One task for each worker session,
a *keep-alive*, is therefore all that a worker must watch; it also keeps the worker from being retired as
idle.
"""

import asyncio
import atexit
import gc
import uuid
from concurrent.futures import Future
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta
from distributed import WorkerPlugin
from distributed.core import ConnectionPool, Status
from distributed.worker_state_machine import SecedeEvent

from ...errors import WorkerLost
from .clients import connect_timeout
from .payloads import opened

_RELEASED = ("cancelled", "released", "forgotten", "error")  # states of a task that is no longer wanted
_RETIRING = (Status.closing_gracefully, Status.closing)


class KeepAlivePlugin(WorkerPlugin):
    """A plugin with one worker session for each session, which ends with its keep-alive.

    A worker session has its `epoch`, `keep_alive` (the key of the task), `gone` (an event, set by `end`) and
    `end()`. All of this happens on the worker's event loop.
    """

    idempotent = True  # without it a second registration tears down the sessions that run

    answers_to: tuple[str, ...]  # names of handlers, methods that return what `payloads.answered` packs

    async def setup(self, worker):
        """Register the handlers."""
        self.worker, self.loop = worker, asyncio.get_running_loop()
        self.worker_sessions: dict[str, Any] = {}
        self.waiting: dict[str, asyncio.Event] = {}  # keep-alives of no worker session, by key
        self.pool = ConnectionPool(
            timeout=connect_timeout(), connection_args=worker.connection_args, server=worker
        )
        await self.pool.start()
        for name in self.answers_to:
            worker.handlers[f"stradask_{name}"] = getattr(self, name)
        if worker.nanny:
            # This process is the worker's alone. At its end the garbage collector would look for cycles among
            # all that was imported: .4 of the .5 CPU seconds that a process with our kernels takes to end.
            atexit.register(gc.freeze)

    async def teardown(self, worker):
        """End all worker sessions, and remove the handlers."""
        for session in list(self.worker_sessions):
            self.end_session(session)
        for gone in self.waiting.values():
            gone.set()
        for name in self.answers_to:
            worker.handlers.pop(f"stradask_{name}", None)
        await self.pool.close()

    def reach_from_thread(self, to, handler, **message):
        """Call another worker from any thread; return a `concurrent.futures.Future`."""
        call = self.reach(to, handler, **message)
        try:
            return asyncio.run_coroutine_threadsafe(call, self.loop)
        except RuntimeError as error:  # the loop is closed: this process ends
            call.close()
            failed: Future = Future()
            failed.set_exception(WorkerLost(f"the worker is closing: {error}"))
            return failed

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
        """End the worker session whose keep-alive was released with its client, and `waiting` ones.

        Only its own keep-alive counts (a dead worker's may have been moved here). A worker that retires loses
        it too, and its shards are still wanted; one that Dask has paused needs their memory.
        """
        if finish not in _RELEASED:
            return
        if gone := self.waiting.pop(key, None):
            self.loop.call_soon(gone.set)
        if self.worker.status not in _RETIRING:
            for session, local in self.worker_sessions.items():
                if local.keep_alive == key:
                    self.loop.call_soon(self.end_session, session, local)

    def expect_keep_alive(self, session, epoch, missed=False):
        """End the worker session if its keep-alive does not come in time, or goes unseen later."""
        patience = parse_timedelta(dask.config.get("stradask.timeout", "30s"))
        self.loop.call_later(patience, self._look_for_keep_alive, session, epoch, missed)

    def _look_for_keep_alive(self, session, epoch, missed):
        """A worker that retires is looked at twice: it may stay after all, or close when it is empty."""
        local = self.worker_sessions.get(session)
        if local is None or local.epoch != epoch:
            return
        task = self.worker.state.tasks.get(local.keep_alive)
        is_gone = task is None or task.state in _RELEASED
        if is_gone and (missed or self.worker.status not in _RETIRING):
            self.end_session(session, local)
        else:
            self.expect_keep_alive(session, epoch, missed=is_gone)

    def end_session(self, session, only=None):
        """End a worker session; with `only`, only if it is still this one."""
        local = self.worker_sessions.get(session)
        if local is not None and only in (None, local):
            del self.worker_sessions[session]
            local.end()


def start_keep_alive(client, plugin, session, worker, epoch):
    """Submit the keep-alive of a worker session; return its key and its future, to be held.

    At once, and not when all worker sessions are there: the first would be given up.
    """
    key = keep_alive_key(session, worker, epoch)
    return key, _submit(client, key, [worker], keep_alive, plugin, session, key, worker)


def end_keep_alives(shown):
    """Release the keep-alives of a dict ``{worker: (key, future)}``, and empty it.

    At once: a cycle of references may keep the futures until the garbage collector comes.
    """
    for _, task in shown.values():
        task.release()
    shown.clear()


def keep_alive_key(session, worker, epoch):
    """Return the key of a worker's keep-alive in an epoch."""
    return f"stradask-keep-alive-{session}-{worker}-{epoch}"


def start_waiting(client, plugin, workers):
    """Submit a keep-alive of no worker session to one of the workers; return its future, to be held.

    With it the scheduler has work, and does not stop for `idle-timeout`, while no other task runs.
    """
    key = f"stradask-keep-alive-{uuid.uuid4().hex}"
    return _submit(client, key, workers, _wait, plugin, key)


def _submit(client, key, workers, function, *args):
    where = {"workers": workers, "allow_other_workers": True}  # or it waits for lost ones for ever
    return client.submit(function, *args, key=key, pure=False, **where)


async def _wait(plugin_name, key):
    """Keep a worker busy until the task is released; without a thread or a slot, as `keep_alive`."""
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(plugin_name)
    if plugin is None:
        return  # a worker without this version of stradask
    plugin.waiting[key] = gone = asyncio.Event()
    _secede(worker, key)
    await gone.wait()


def _secede(worker, key):
    worker.handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"secede-{key}"))


async def keep_alive(plugin_name, session, key, address):
    """Keep a worker busy as long as its worker session lasts; the keep-alive task.

    A coroutine needs no thread, and one that secedes no slot. Its release ends the worker session (see
    `KeepAlivePlugin.transition`).
    """
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(plugin_name)
    local = plugin and plugin.worker_sessions.get(session)
    if worker.address != address or local is None or local.keep_alive != key:
        return  # moved here after its own worker went
    _secede(worker, key)
    await local.gone.wait()
