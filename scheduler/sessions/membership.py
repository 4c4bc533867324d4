"""Membership: the workers of a Dask cluster that take part in a session or table, and calls to them."""

import asyncio
import contextlib
import math
import time
import uuid
import warnings
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta

from ..._version import __version__
from ...errors import StradaskError, WorkerLost
from ..dashboard.reports import Reports
from ..threads import effective_n_jobs
from .clients import (
    BorrowedClient,
    connect_timeout,
    scheduler_named,
    scheduler_timeout,
    take_exception,
)
from .keep_alive import end_keep_alives
from .payloads import opened
from .worker import SessionPlugin

_WITHOUT = "stradask does not come up there; install it there"


_INSTALLATIONS = 5  # of a plugin, each but the last ended by the loss of a worker
_PROGRAMS = 200e6  # bytes that the programs of any fit take on a worker, at least
LOOK = 0.1  # seconds between looks at whether the scheduler is there
_GRACE = 0.25  # seconds for workers that have just joined to answer, when others have


class Membership:
    """Finds workers that answer, follows which join, fall silent or leave, and calls them.

    `scheduler` is an address, or a client, which is not closed; `n_jobs` the threads of each worker, as many
    as it has when None.
    """

    def __init__(self, scheduler, n_jobs=None):
        self._scheduler, self._n_jobs = scheduler, n_jobs
        effective_n_jobs(n_jobs)  # refuses what the workers would
        self._timeout = parse_timedelta(dask.config.get("stradask.timeout", "30s"))
        self._id, self._epoch = uuid.uuid4().hex, -1
        self._borrowed: Any = None  # the client that is talked through, while the session is open
        self._client: Any = None
        self._workers: dict[str, int] = {}  # address: threads
        self._leaving: set[str] = set()  # retired; they answer until their shards are handed on
        self._dead: set[str] = set()
        self._keep_alives: dict[str, tuple] = {}  # worker: key, future
        self._background: set[asyncio.Task] = set()
        self._newcomers: set[str] = set()  # workers that joined since the session was opened
        self._unfit: set[str] = set()  # workers that get no work
        self._others: dict[str, str] = {}  # those of them that answered with another version
        self._without_scheduler: float | None = None  # since when
        self._warnings: list[str] = []  # warnings for the caller

    def n_threads(self):
        """Count the threads of the workers that take part, or of all; at least 1."""
        self._connect()
        if self._workers or (self._n_jobs or 0) <= 0:
            return max(sum((self._workers or self._client.nthreads()).values()), 1)
        return max(effective_n_jobs(self._n_jobs) * len(self._client.nthreads()), 1)

    def close(self):
        """Release the workers; the caller's client stays open."""
        if self._client is None:
            return
        borrowed, self._borrowed, self._client = self._borrowed, None, None
        self._reports.close()
        try:
            borrowed.client.sync(self._leave, borrowed)
        finally:
            borrowed.close()

    def _warn(self):
        while self._warnings:
            warnings.warn(self._warnings.pop(0), stacklevel=2)

    # Coming and going -----------------------------------------------------------------------------------

    def _connect(self):
        """Borrow the caller's client, or make one, and subscribe to the scheduler's events."""
        if self._client is not None:
            return
        borrowed = BorrowedClient(self._scheduler)
        try:
            with scheduler_named(borrowed.client):
                borrowed.client.sync(self._begin, borrowed)
        except BaseException:
            borrowed.client.loop.add_callback(
                borrowed.ignore, self._hear
            )  # an interrupt may come when it listens
            borrowed.close()
            raise
        self._borrowed, self._client = borrowed, borrowed.client
        self._reports = Reports(borrowed.client)

    async def _begin(self, borrowed):
        self._address = borrowed.client.scheduler.address
        self._lock, self._pool = asyncio.Lock(), borrowed.pool
        self._in_background(self._watch_scheduler(borrowed.client))
        borrowed.listen(
            self._hear
        )  # from now on: a worker may be lost, and replaced, while the plugin is installed
        if await borrowed.confirm():
            await self._check_limits(borrowed.client.scheduler)
        await self._install(borrowed)

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

    async def _install(self, borrowed, *, anew=False):
        await self._install_one(borrowed, SessionPlugin(), anew=anew)

    async def _install_one(self, borrowed, plugin, *, anew):
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

    async def _leave(self, borrowed):
        for task in self._background:
            task.cancel()
        borrowed.ignore(self._hear)
        await self._reports.end()
        if (
            borrowed.client.status == "running"
        ):  # else workers end with the scheduler, or their keep-alives do
            await self._drop(self._workers)
        end_keep_alives(self._keep_alives)
        if borrowed.ours:
            with contextlib.suppress(TimeoutError):  # connections to a worker that hangs
                await asyncio.wait_for(self._pool.close(), 2)

    def _hear(self, event):
        """Handle an event of the scheduler: a worker joined, was lost (fail its calls) or retired."""
        _, news = event
        if not isinstance(news, dict):  # a user's own
            return
        if news.get("action") == "add-worker":  # perhaps under an address that another had
            self._leaving.discard(news["worker"])
            self._dead.discard(news["worker"])
            self._unfit.discard(news["worker"])
            self._others.pop(news["worker"], None)
            self._newcomers.add(news["worker"])
        if news.get("action") != "remove-worker":
            return
        worker = news["worker"]
        self._newcomers.discard(worker)
        if news.get("expected"):
            self._leaving.add(worker)
            if worker in self._workers:
                self._in_background(self._relieve())
            elif worker in self._keep_alives:  # it has a worker state, and no shards yet
                self._in_background(self._drop([worker]))
        else:
            self._dead.add(worker)
            self._pool.remove(worker, reason="the scheduler lost this worker")

    async def _relieve(self):
        """Hand over what leaving workers hold; overridden."""

    async def _drop(self, workers, handler="drop"):
        asked = [asyncio.ensure_future(self._ask(m, handler, once=True)) for m in workers]
        if asked:
            _, late = await asyncio.wait(asked, timeout=2)
            for task in late:
                task.cancel()
                take_exception(task)
            await asyncio.gather(*(a for a in asked if a not in late), return_exceptions=True)

    async def _find_workers(self):
        """Wait for workers that run and answer; return their threads by address.

        Those that joined since we listen are waited for only if there are no others: their imports may take
        longer than the fit.
        """
        began, wanted, installed = time.monotonic(), None, False
        while True:
            out = self._leaving | self._dead | self._unfit
            threads = {m: n for m, n in await self._running() if m not in out}
            pairs = await self._asked(list(threads))
            workers = {m: threads[m] for m, answer in pairs if answer == "ready"}
            answers = [answer for m, answer in pairs if m not in self._newcomers or not workers]
            if self._epoch <= 0 and pairs and {answer for _, answer in pairs} == {"other"}:
                first, version = pairs[0][0], self._others[pairs[0][0]]
                raise StradaskError(
                    f"all workers of {self._address} have another version of stradask: {version} is "
                    f"installed on {first} and {__version__} here; install the same version on both"
                )
            for worker, answer in pairs:
                if answer == "other":
                    self._turn_away_other(worker)
            if "coming" in answers and not installed:  # of another scheduler than last time, perhaps
                installed = True
                await self._install(self._borrowed, anew=True)
            waited = time.monotonic() - began
            if workers and ("coming" not in answers or waited > self._timeout):
                self._newcomers -= workers.keys()
                return workers
            self._check_scheduler()
            if not workers and waited > self._timeout:
                raise StradaskError(
                    f"no worker of {self._address} has answered for {self._timeout:g} s (dask.config "
                    f"stradask.timeout): {_why_silent(len(threads), await self._paused())}"
                )
            if not threads and wanted is None and self._client.status == "running":
                wanted = self._client.submit(_nothing, pure=False)  # makes an adaptive cluster bring workers
            await asyncio.sleep(0.05)

    async def _asked(self, workers):
        """Ask workers whether they are ready; return pairs of worker and answer, of those in time."""
        asked = {m: asyncio.ensure_future(self._answers(m)) for m in workers}
        began = time.monotonic()
        try:
            while waiting := [m for m, answer in asked.items() if not answer.done() and m not in self._dead]:
                ready = any(answer.done() and answer.result() == "ready" for answer in asked.values())
                in_grace = time.monotonic() - began < _GRACE
                if ready and not in_grace and self._newcomers.issuperset(waiting):
                    break
                futures = [asked[m] for m in waiting]
                await asyncio.wait(futures, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            return [
                (m, answer.result()) for m, answer in asked.items() if answer.done() and m not in self._dead
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

    def _check_scheduler(self):
        """Raise if the scheduler has been gone for longer than a reconnection may take."""
        waited = 0.0 if self._without_scheduler is None else time.monotonic() - self._without_scheduler
        if self._client.status in ("closing", "closed") or waited > scheduler_timeout():
            raise StradaskError(
                f"the scheduler {self._address} went away in mid-fit: it has not answered for {waited:.0f} s "
                "(dask.config stradask.scheduler-timeout), or the client was closed; is it running? The same "
                "call finds what was written to a checkpoint"
            )

    async def _joined(self, worker):
        """Wait until a worker that joined has the plugin; return its answer. Unfit ones are refused."""
        end = time.monotonic() + self._timeout
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
        if worker not in self._unfit:
            self._unfit.add(worker)
            self._warnings.append(f"the worker {worker} gets no work: {why}")

    async def _paused(self):
        """List the workers that Dask paused because their memory is nearly full, and their memory limits."""
        if self._client.scheduler is None:
            return []
        found = await asyncio.wait_for(self._client.scheduler.identity(), scheduler_timeout())
        workers = found["workers"].items()
        return [(m, info["memory_limit"]) for m, info in workers if info.get("status") == "paused"]

    async def _running(self):
        found = []
        if self._client.status == "running":  # else an answer is waited for in vain
            began = time.monotonic()
            try:
                asking = self._client.scheduler.ncores_running()
                found = sorted((await asyncio.wait_for(asking, scheduler_timeout())).items())
            except OSError:
                self._without_scheduler = self._without_scheduler or began
        # Shards go by the threads that work on them; of a negative n_jobs the worker alone knows how many.
        asked = effective_n_jobs(self._n_jobs) if (self._n_jobs or 0) > 0 else None
        return [(worker, n_threads if asked is None else asked) for worker, n_threads in found]

    async def _answers(self, worker):
        """Return whether a worker is "ready", of an "other" version, "coming" or "silent"."""
        try:
            ping = self._pool(worker).stradask_ping()
            answer = await asyncio.wait_for(ping, min(self._timeout, connect_timeout()))
        except OSError:
            return "silent"
        if answer is None:
            return "coming"
        version = opened(answer, worker)
        if version == __version__:
            return "ready"
        self._others[worker] = version
        return "other"

    def _in_background(self, work):
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._done_in_background)
        return task

    def _done_in_background(self, task):
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # seen: who needs to know asks the task

    # Calls ----------------------------------------------------------------------------------------------

    async def _ask(self, worker, handler, *, once=False, **message):
        """Call a worker, a second time if the connection breaks: handlers recognise repeats."""
        if handler != "ping":
            message["session"] = self._id
        while True:
            try:
                answer = await getattr(self._pool(worker), f"stradask_{handler}")(**message)
            except OSError as error:
                if once or worker in self._dead:
                    raise WorkerLost(f"{worker} cannot be reached: {error}") from error
                once = True
            else:
                return opened(answer, worker)  # which may raise the program's own OSError

    async def _all(self, calls, workers):
        """Await calls to workers. The first failure, or a worker that falls silent, ends the wait.

        The others may be waiting for a block that will not come.
        """
        tasks = [asyncio.ensure_future(call) for call in calls]
        guards = [asyncio.ensure_future(self._guard(worker)) for worker in workers]
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

    async def _guard(self, worker):
        """Raise once a worker has not answered pings for the timeout; its numerics do not delay them."""
        heard = time.monotonic()
        while time.monotonic() - heard < self._timeout:
            await asyncio.sleep(self._timeout / 4)
            with contextlib.suppress(TimeoutError, WorkerLost):
                await asyncio.wait_for(self._ask(worker, "ping"), self._timeout)
                heard = time.monotonic()
        self._pool.remove(worker, reason="it does not answer")
        raise WorkerLost(f"{worker} has not answered for {self._timeout:g} s (dask.config stradask.timeout)")


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
