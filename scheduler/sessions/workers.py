"""The workers of a Dask cluster: which answer, join, fall silent or leave, and calls to them."""

import asyncio
import contextlib
import math
import time
import warnings
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta

from ..._version import __version__
from ...errors import StradaskError, WorkerLost
from .clients import (
    BorrowedClient,
    connect_timeout,
    scheduler_named,
    scheduler_timeout,
    take_exception,
)
from .payloads import opened
from .worker import SessionPlugin

_WITHOUT = "stradask does not come up there; install it there"


_INSTALLATIONS = 5  # of a plugin, each but the last ended by the loss of a worker
_PROGRAMS = 200e6  # bytes that the programs of any fit take on a worker, at least
LOOK = 0.1  # seconds between looks at whether the scheduler is there
_GRACE = 0.25  # seconds for workers that have just joined to answer, when others have


class Background(set):
    """Coroutines that run beside calls, on the event loop of a client."""

    def start(self, work):
        """Run a coroutine; return its task."""
        task = asyncio.ensure_future(work)
        self.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task):
        self.discard(task)
        if not task.cancelled():
            task.exception()  # seen: who needs to know asks the task

    def cancel(self):
        """End them all."""
        for task in tuple(self):
            task.cancel()


class Workers:
    """Finds workers that answer, follows which join, fall silent or leave, and calls them.

    Sessions, tables and tasks of a fit share one, and with it a connection, a subscription and what is known
    of each worker. `scheduler` is an address, or a client, which is not closed.

    Parameters
    ----------
    scheduler : str or distributed.Client
    shared : bool
        Whether it stays connected when nobody uses it, until `close`.

    Attributes
    ----------
    client : distributed.Client or None
        Through which the scheduler is talked to, once it is connected.
    leaving, dead : set of str
        Workers that retire, which answer until their shards are handed on, and workers that were lost.
    unfit : set of str
        Workers that get no work.
    newcomers : set of str
        Workers that joined since it was connected, and have not answered yet.
    warnings : list of str
        For the caller.
    """

    def __init__(self, scheduler, *, shared=False):
        self.scheduler, self._shared = scheduler, shared
        self.timeout = parse_timedelta(dask.config.get("stradask.timeout", "30s"))
        self._borrowed: Any = None  # the client that is talked through
        self.client: Any = None
        self.pool: Any = None
        self.leaving: set[str] = set()
        self.dead: set[str] = set()
        self.unfit: set[str] = set()
        self.newcomers: set[str] = set()
        self.warnings: list[str] = []
        self._others: dict[str, str] = {}  # unfit workers that answered with another version
        self._users: list = []  # sessions, tables and tasks, which hear of workers that join and leave
        self._subscribed: Any = None  # the connection by which the scheduler has the subscription
        self._background = Background()
        self._without_scheduler: float | None = None  # since when

    def warn(self):
        """Give the caller the warnings."""
        while self.warnings:
            warnings.warn(self.warnings.pop(0), stacklevel=3)

    # Coming and going -----------------------------------------------------------------------------------

    def connect(self):
        """Borrow the caller's client, or make one; return it."""
        if self.client is None:
            self._borrowed = BorrowedClient(self.scheduler)
            self.client, self.pool = self._borrowed.client, self._borrowed.pool
        return self.client

    @property
    def task_client(self):
        """The caller's client where this thread can wait for it, else ours: for tasks, and questions."""
        is_callers = not isinstance(self.scheduler, str) and not self.scheduler.asynchronous
        return self.scheduler if is_callers else self.connect()

    def is_lost(self):
        """Whether the connection has broken."""
        return self.client is not None and self.client.status != "running"

    def join(self, user):
        """Have a session, table or tasks hear of workers, by its `worker_joined` and `worker_left`."""
        if user in self._users:
            return
        client = self.connect()
        try:
            with scheduler_named(client):
                client.sync(self._join, user)
        except BaseException:
            self.leave(user)
            raise

    def leave(self, user=None):
        """End what `join` began; disconnect unless others use it."""
        if user in self._users:
            self._users.remove(user)
        if not self._users and not self._shared:
            self.close()

    def close(self):
        """Disconnect; the caller's client stays open."""
        self._shared = False
        if self.client is None:
            return
        borrowed, self._borrowed, self.client, self._subscribed = self._borrowed, None, None, None
        try:
            borrowed.client.sync(self._close, borrowed)
        finally:
            borrowed.close()

    async def _close(self, borrowed):
        self._background.cancel()
        borrowed.ignore(self._hear)
        if borrowed.ours:
            with contextlib.suppress(TimeoutError):  # connections to a worker that hangs
                await asyncio.wait_for(self.pool.close(), 2)

    async def _join(self, user):
        # From now on: a worker may be lost, and replaced, while the plugin is installed.
        self._users.append(user)
        connection = self.client.scheduler_comm
        if self._subscribed is not connection:
            if not self._background:
                self._background.start(self._watch_scheduler(self.client))
            self.address = self.client.scheduler.address
            self.leaving.clear()  # what was missed while the connection was broken
            self.dead.clear()
            self._borrowed.listen(self._hear)
            if await self._borrowed.confirm():
                self._subscribed = connection
            await self._check_limits(self.client.scheduler)
        await self.install(SessionPlugin())

    async def _check_limits(self, scheduler):
        """Refuse workers that their nannies would end, and start again, while they import what fits need."""
        found = await asyncio.wait_for(scheduler.identity(), scheduler_timeout())
        for worker, info in found["workers"].items():
            least = _PROGRAMS / (dask.config.get("distributed.worker.memory.terminate", 0.95) or math.inf)
            if info.get("nanny") and 0 < (info["memory_limit"] or 0) < least:
                raise StradaskError(
                    f"the worker {worker} has a memory limit of {info['memory_limit'] / 1e6:,.0f} MB, and "
                    f"the programs of a fit alone take {_PROGRAMS / 1e6:,.0f} MB or more: give workers "
                    f"{2 * least / 1e6:,.0f} MB and what the data take"
                )

    async def install(self, plugin, *, anew=False):
        """Register a plugin on all workers, unless an earlier session of the client has done so."""
        borrowed = self._borrowed
        try:
            for _ in range(_INSTALLATIONS - 1):
                with contextlib.suppress(distributed.comm.CommClosedError):  # a worker was lost meanwhile
                    return await borrowed.install(plugin, anew=anew)
                await asyncio.sleep(0.02)
            await borrowed.install(plugin, anew=anew)
        except TimeoutError:  # a worker hangs; it takes no part, and the others have the plugin
            pass
        except ImportError as error:
            raise StradaskError(f"the workers cannot import stradask ({error}): install it there") from error

    def _hear(self, event):
        """Handle an event of the scheduler: a worker joined, was lost (fail its calls) or retired."""
        _, news = event
        if not isinstance(news, dict):  # a user's own
            return
        if news.get("action") == "add-worker":  # perhaps under an address that another had
            worker = news["worker"]
            for workers in (self.leaving, self.dead, self.unfit):
                workers.discard(worker)
            self._others.pop(worker, None)
            self.newcomers.add(worker)
            for user in tuple(self._users):
                user.worker_joined(worker)
        elif news.get("action") == "remove-worker":
            worker, retires = news["worker"], bool(news.get("expected"))
            self.newcomers.discard(worker)
            (self.leaving if retires else self.dead).add(worker)
            if not retires:
                self.pool.remove(worker, reason="the scheduler lost this worker")
            for user in tuple(self._users):
                user.worker_left(worker, retires)

    async def drop(self, workers, handler="drop", **message):
        """End what a session or table has on workers, as far as these answer soon."""
        asked = [asyncio.ensure_future(self.call(m, handler, once=True, **message)) for m in workers]
        if asked:
            _, late = await asyncio.wait(asked, timeout=2)
            for task in late:
                task.cancel()
                take_exception(task)
            await asyncio.gather(*(a for a in asked if a not in late), return_exceptions=True)

    async def find(self, begun=False):
        """Wait for workers that run and answer; return their threads by address.

        Those that joined since we listen are waited for only if there are no others: their imports may take
        longer than the fit. If all have another version that is an error, unless work has `begun`.
        """
        began, wanted, installed = time.monotonic(), None, False
        while True:
            out = self.leaving | self.dead | self.unfit
            threads = {m: n for m, n in await self.running() if m not in out}
            pairs = await self._asked(list(threads))
            workers = {m: threads[m] for m, answer in pairs if answer == "ready"}
            answers = [answer for m, answer in pairs if m not in self.newcomers or not workers]
            if not begun and pairs and {answer for _, answer in pairs} == {"other"}:
                first, version = pairs[0][0], self._others[pairs[0][0]]
                raise StradaskError(
                    f"all workers of {self.address} have another version of stradask: {version} is "
                    f"installed on {first} and {__version__} here; install the same version on both"
                )
            for worker, answer in pairs:
                if answer == "other":
                    self._turn_away_other(worker)
            if "coming" in answers and not installed:  # of another scheduler than last time, perhaps
                installed = True
                await self.install(SessionPlugin(), anew=True)
            waited = time.monotonic() - began
            if workers and ("coming" not in answers or waited > self.timeout):
                self.newcomers -= workers.keys()
                return workers
            self.check_scheduler()
            if not workers and waited > self.timeout:
                raise StradaskError(
                    f"no worker of {self.address} has answered for {self.timeout:g} s (dask.config "
                    f"stradask.timeout): {_why_silent(len(threads), await self._paused())}"
                )
            if not threads and wanted is None and self.client.status == "running":
                wanted = self.client.submit(_nothing, pure=False)  # makes an adaptive cluster bring workers
            await asyncio.sleep(0.05)

    async def _asked(self, workers):
        """Ask workers whether they are ready; return pairs of worker and answer, of those in time."""
        asked = {m: asyncio.ensure_future(self._answers(m)) for m in workers}
        began = time.monotonic()
        try:
            while waiting := [m for m, answer in asked.items() if not answer.done() and m not in self.dead]:
                ready = any(answer.done() and answer.result() == "ready" for answer in asked.values())
                in_grace = time.monotonic() - began < _GRACE
                if ready and not in_grace and self.newcomers.issuperset(waiting):
                    break
                futures = [asked[m] for m in waiting]
                await asyncio.wait(futures, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            return [
                (m, answer.result()) for m, answer in asked.items() if answer.done() and m not in self.dead
            ]
        finally:
            for answer in asked.values():
                answer.cancel()
                take_exception(answer)

    async def _watch_scheduler(self, client):
        """Note since when the connection to the scheduler is broken."""
        while True:
            if client.status == "running":
                self._without_scheduler = None
            elif self._without_scheduler is None:
                self._without_scheduler = time.monotonic()
            await asyncio.sleep(LOOK)

    def check_scheduler(self):
        """Raise if the scheduler has been gone for longer than a reconnection may take."""
        waited = 0.0 if self._without_scheduler is None else time.monotonic() - self._without_scheduler
        if self.client.status in ("closing", "closed") or waited > scheduler_timeout():
            raise StradaskError(
                f"the scheduler {self.address} went away in mid-fit: it has not answered for {waited:.0f} s "
                "(dask.config stradask.scheduler-timeout), or the client was closed; is it running? The same "
                "call finds what was written to a checkpoint"
            )

    async def admitted(self, worker):
        """Wait until a worker that joined has the plugin; return its answer. Unfit ones are refused."""
        end = time.monotonic() + self.timeout
        while (answer := await self._answers(worker)) == "coming" and time.monotonic() < end:
            await asyncio.sleep(0.1)
        if answer == "coming":
            self._turn_away(worker, _WITHOUT)
        if answer == "other":
            self._turn_away_other(worker)
        return answer

    def _turn_away_other(self, worker):
        there = self._others.get(worker, "another version")
        self._turn_away(
            worker,
            f"stradask {there} is installed there and {__version__} here; install the same version on both",
        )

    def _turn_away(self, worker, why):
        """Give no work to a worker, and warn the caller once a fit."""
        if worker not in self.unfit:
            self.unfit.add(worker)
            self.warnings.append(f"the worker {worker} gets no work: {why}")

    async def _paused(self):
        """List the workers that Dask paused because their memory is nearly full, and their memory limits."""
        if self.client.scheduler is None:
            return []
        found = await asyncio.wait_for(self.client.scheduler.identity(), scheduler_timeout())
        workers = found["workers"].items()
        return [(m, info["memory_limit"]) for m, info in workers if info.get("status") == "paused"]

    async def running(self):
        """List the workers that run, as the scheduler says, with their threads."""
        found = []
        if self.client.status == "running":  # else an answer is waited for in vain
            began = time.monotonic()
            try:
                asking = self.client.scheduler.ncores_running()
                found = sorted((await asyncio.wait_for(asking, scheduler_timeout())).items())
            except OSError:
                self._without_scheduler = self._without_scheduler or began
        return found

    async def _answers(self, worker):
        """Return whether a worker is "ready", of an "other" version, "coming" or "silent"."""
        try:
            ping = self.pool(worker).stradask_ping()
            answer = await asyncio.wait_for(ping, min(self.timeout, connect_timeout()))
        except OSError:
            return "silent"
        if answer is None:
            return "coming"
        version = opened(answer, worker)
        if version == __version__:
            return "ready"
        self._others[worker] = version
        return "other"

    # Calls ----------------------------------------------------------------------------------------------

    async def call(self, worker, handler, *, once=False, **message):
        """Call a worker, a second time if the connection breaks: handlers recognise repeats."""
        while True:
            try:
                answer = await getattr(self.pool(worker), f"stradask_{handler}")(**message)
            except OSError as error:
                if once or worker in self.dead:
                    raise WorkerLost(f"{worker} cannot be reached: {error}") from error
                once = True
            else:
                return opened(answer, worker)  # which may raise the program's own OSError

    async def gather(self, calls, workers):
        """Await calls to workers. The first failure, or a worker that falls silent, ends the wait.

        The others may be waiting for a block that will not come.
        """
        tasks = [asyncio.ensure_future(call) for call in calls]
        guards = [asyncio.ensure_future(self.watch(worker)) for worker in workers]
        everything = [*tasks, *guards]
        try:
            while not all(task.done() for task in tasks):
                pending = [task for task in everything if not task.done()]
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in everything:
                    if task.done():
                        task.result()  # raises
            return [task.result() for task in tasks]
        finally:
            for task in everything:
                task.cancel()
                take_exception(task)  # the first one counts
            await asyncio.wait(everything, timeout=1)  # closing a connection to a worker that hangs may hang

    async def watch(self, worker):
        """Raise once a worker has not answered pings for the timeout; its numerics do not delay them."""
        heard = time.monotonic()
        while time.monotonic() - heard < self.timeout:
            await asyncio.sleep(self.timeout / 4)
            with contextlib.suppress(TimeoutError, WorkerLost):
                await asyncio.wait_for(self.call(worker, "ping"), self.timeout)
                heard = time.monotonic()
        self.pool.remove(worker, reason="it does not answer")
        raise WorkerLost(f"{worker} has not answered for {self.timeout:g} s (dask.config stradask.timeout)")


def _why_silent(n_running, paused):
    """What to do where no worker answers; the scheduler says how many run, and which are paused."""
    if paused:
        worker, limit = paused[0]
        return (
            f"{len(paused)} of them are paused, as {worker}, which uses most of its memory limit of "
            f"{(limit or 0) / 1e6:,.0f} MB: give workers more, or restart them"
        )
    if not n_running:
        return "is the scheduler there, do workers run?"
    return (
        f"{n_running} run and do not answer this process. If it cannot reach them, as from outside of "
        "Kubernetes, dask.config.set({'stradask.coordinator': 'cluster'}) runs the loop of a fit on one of "
        "them"
    )


def _nothing():
    pass
