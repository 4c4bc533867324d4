"""Clients of Dask clusters: the caller's, which sessions share, and our own."""

import asyncio
import concurrent.futures
import contextlib
import logging
import weakref
from dataclasses import dataclass, field
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta
from distributed.core import PooledRPCCall
from distributed.utils import LoopRunner

from ...errors import DataError, StradaskError, shortened

_TOPIC = "all"  # of the scheduler's news: workers that come and go
_ECHO = "stradask-echo"  # a topic on which we hear ourselves
_AGAIN, _SLOWEST = 0.002, 0.05  # seconds until we call again, the first time and at most


def connect_timeout():
    """Return the seconds to wait for a worker's connection: ``stradask.connect-timeout``, "5s" by default.

    Dask's own default waits 30 for the address of a worker that was lost.
    """
    return parse_timedelta(dask.config.get("stradask.connect-timeout", "5s"))


def scheduler_timeout():
    """Return the seconds to wait for the scheduler: ``stradask.scheduler-timeout``, "9s" by default."""
    return parse_timedelta(dask.config.get("stradask.scheduler-timeout", "9s"))


def open_client(scheduler, timeout=None):
    """Make a client of our own, which its maker closes.

    `scheduler` is an address, or a client whose scheduler and certificates are taken. DataError if no
    scheduler answers in time (`scheduler_timeout` by default), or the certificates for ``tls://`` are
    missing.
    """
    timeout = scheduler_timeout() if timeout is None else timeout
    address, security = scheduler, distributed.Security()
    if not isinstance(address, str):
        address, security = scheduler.scheduler.address, scheduler.security
    try:  # what can be seen beforehand: a client that fails for it takes a minute to close
        distributed.comm.resolve_address(address)
        if address.startswith("tls://") and not security.get_connection_args("client").get("ssl_context"):
            raise ValueError("there are no certificates")
        return distributed.Client(
            address, security=security, set_as_default=False, name="stradask", timeout=timeout
        )
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"engine={shortened(address)}: no Dask scheduler answers there within {timeout:g} s (dask.config "
            f"stradask.scheduler-timeout; {error}); is it running, is the address right, and for tls:// are "
            "the certificates in dask.config under distributed.comm.tls?"
        ) from error


def close_client(client):
    """Close a client of `open_client`, without the traceback of one that tries to reconnect."""
    log = logging.getLogger("distributed.client")
    with contextlib.ExitStack() as stack:
        if client.status != "running":
            log.addFilter(_tells_more)
            stack.callback(log.removeFilter, _tells_more)
        client.close()


def _tells_more(record):
    """Return whether a log record is more than the cancelling of a task."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, asyncio.CancelledError)


def take_exception(task):
    """Retrieve the exception of a task that is awaited no more: asyncio would print it."""
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())


@contextlib.contextmanager
def scheduler_named(client):
    """Turn a broken connection to the scheduler, and tasks lost with it, into a StradaskError."""
    try:
        yield
    except StradaskError:
        raise
    except Exception as error:
        lost = (distributed.comm.CommClosedError, concurrent.futures.CancelledError)
        if client.status == "running" and not isinstance(error, lost):
            raise
        raise StradaskError(
            f"the scheduler went away in mid-fit, or took the fit's tasks away ({error}): is it running, and "
            "the client open? The same call finds what was written to a checkpoint"
        ) from error


@dataclass(eq=False)
class _Shared:
    """State that the sessions of one client share."""

    connection: Any = None  # to the scheduler that knows of the plugins
    plugins: set = field(default_factory=set)  # names of those that its workers have
    listeners: list = field(default_factory=list)
    waiting: set = field(default_factory=set)  # for an echo

    def __post_init__(self):
        self.notify = self._notify  # the same object each time: what the client is known to listen with

    def echo(self, event):
        """Wake those that wait for an echo."""
        for waiting in self.waiting:
            waiting.set()

    def _notify(self, event):
        for listener in tuple(self.listeners):
            listener(event)


_shared_of_clients: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by client


def _shared_by(client):
    return _shared_of_clients.setdefault(client, _Shared())


class BorrowedClient:
    """A client that a session borrows, its connections and the scheduler's events.

    The caller's client is used where possible, and not closed. An
    address, an asynchronous client (its event loop waits for the caller) and one that subscribes to the
    scheduler's events itself get a second client, which `close` closes.
    """

    def __init__(self, scheduler):
        self.ours = not _can_be_shared(scheduler)
        self.client: Any = open_client(scheduler) if self.ours else scheduler
        self._loop = LoopRunner(loop=self.client.loop)  # goes on if the caller closes the client meanwhile
        self._loop.start()
        self.pool = Connections(self.client)

    async def install(self, plugin, *, anew=False):
        """Register a plugin on the workers, unless an earlier session of this client has done so."""
        shared, connection = _shared_by(self.client), self.client.scheduler_comm
        if shared.connection is not connection:  # perhaps to another scheduler than before
            shared.connection = connection
            shared.plugins.clear()
        if anew or plugin.name not in shared.plugins:
            await asyncio.wait_for(self.client.register_plugin(plugin), connect_timeout())
            shared.plugins.add(plugin.name)

    def listen(self, listener):
        """Subscribe to the scheduler's events; on the client's event loop."""
        shared = _shared_by(self.client)
        self.client.subscribe_topic(_TOPIC, shared.notify)  # anew: a scheduler that came back has forgotten
        if listener not in shared.listeners:
            shared.listeners.append(listener)

    async def confirm(self):
        """Wait until the scheduler has the subscription, or `connect_timeout` is over; return whether it has.

        It goes another way than calls do: of a worker that comes or goes before it arrives no news comes.
        A later subscription, on the same way, that brings back a call shows that it has arrived.
        """
        shared, heard = _shared_by(self.client), asyncio.Event()
        shared.waiting.add(heard)
        end, pause = asyncio.get_running_loop().time() + connect_timeout(), _AGAIN
        try:
            self.client.subscribe_topic(_ECHO, shared.echo)
            while not heard.is_set() and asyncio.get_running_loop().time() < end:
                await self.client.scheduler.log_event(topic=_ECHO, msg="listening")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), pause)
                pause = min(2 * pause, _SLOWEST)
        finally:
            shared.waiting.discard(heard)
        return heard.is_set()

    def ignore(self, listener):
        """End a subscription; on the client's event loop."""
        shared, client = _shared_by(self.client), self.client
        if listener not in shared.listeners:
            return
        shared.listeners.remove(listener)
        last = not shared.listeners and client._event_handlers.get(_TOPIC) is shared.notify
        if last and client.status == "running":  # or the scheduler logs a traceback when we are gone
            for topic in {_TOPIC, _ECHO} & client._event_handlers.keys():
                client.unsubscribe_topic(topic)

    def close(self):
        """Close the client if it is ours."""
        if self.ours:
            close_client(self.client)
        self._loop.stop()


def _can_be_shared(client):
    if isinstance(client, str) or client.asynchronous or client.status != "running":
        return False
    heard = client._event_handlers.get(_TOPIC)
    return heard is None or heard is _shared_by(client).notify


class Connections:
    """The connections of a client, with a short timeout for addresses that are gone."""

    def __init__(self, client):
        self._pool = client.rpc
        self.reuse, self.remove = self._pool.reuse, self._pool.remove

    def __call__(self, address):
        """Return an object whose methods are the handlers of a worker."""
        return PooledRPCCall(address, self, self._pool.serializers, self._pool.deserializers)

    async def connect(self, address):
        """Open a connection, which `reuse` takes back."""
        return await self._pool.connect(address, timeout=connect_timeout())

    async def close(self):
        """Close them all."""
        await self._pool.close()
