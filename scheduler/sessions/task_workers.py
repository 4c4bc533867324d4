"""Plain Dask tasks on the workers that have this version of stradask, and on no others."""

import asyncio
import contextlib
import time
import weakref
from concurrent.futures import CancelledError
from typing import Any

import dask
from distributed import futures_of

from ...errors import WorkerLost
from .clients import client_for, scheduler_named, take_exception
from .keep_alive import start_waiting
from .membership import LOOK, Membership
from .worker import NAME


class TaskWorkers(Membership):
    """Submits tasks to the workers that may take part; `Membership` decides which ones.

    Workers that join later take part as soon as they answer, those of another version never. A task whose
    workers are all lost would wait for them for ever: it is cancelled, counted in `n_orphaned`, and can be
    submitted again. All tasks are cancelled when the connection to the scheduler breaks: Dask forgets those
    that are submitted while its client tries to connect again.
    """

    def __init__(self, scheduler):
        super().__init__(scheduler)
        self.n_orphaned = 0
        self._stack = contextlib.ExitStack()
        self._watched: dict[Any, set[str]] = {}  # futures, and where each may run
        self._scattered: weakref.WeakSet = weakref.WeakSet()  # data that were sent
        self._only: dict[Any, tuple] = {}  # of them those that may run on certain workers alone, and on which
        self._names: dict[str, str] = {}  # of workers, by address
        self._tasks: Any = None  # the client through which tasks go
        self._busy: Any = None  # the keep-alive

    def open(self):
        """Find the workers that may take part, wait for a first one; return the client for tasks."""
        try:
            self._tasks = self._stack.enter_context(client_for(self._scheduler))
            self._connect()
            self.where()
        except BaseException:
            self.close()
            raise
        return self._tasks

    def close(self):
        """Release all tasks and data; an error that somebody keeps may hold them for long."""
        self._end_keep_alive()
        self.cancel([*self._watched, *self._scattered])
        try:
            super().close()
        finally:
            self._stack.close()
        self._warn()

    def keep_busy(self):
        """Have a worker show a task until this is closed, also between tasks; after a loss, too."""
        self._end_keep_alive()
        self._busy = start_waiting(self._tasks, NAME, self.where()["workers"])

    def _end_keep_alive(self):
        if self._busy is not None:
            self._busy.release()
            self._busy = None

    def where(self, only=()):
        """Return Dask's arguments that keep tasks on these workers; wait for one if all were lost.

        With `only`, names or addresses, on those of them alone. StradaskError if none comes within the
        timeout, or all that run have another version.
        """
        with scheduler_named(self._client):
            if not self._workers or self._client.status != "running":
                self._client.sync(self._find)
            workers = self._client.sync(self._find_named, only) if only else sorted(self._workers)
        self._warn()
        return {"workers": workers, "allow_other_workers": False}

    def submit(self, function, *args, only=()):
        """Submit a task, which gets the values of Dask collections among `args`; for `only` see `where`."""
        where = self.where(only)
        if any(map(dask.is_dask_collection, args)):
            future = self._tasks.compute(dask.delayed(function)(*args), **where)
        else:
            future = self._tasks.submit(function, *args, pure=False, **where)
        if only:
            self._only[future] = only
        self._watched[future] = set(where["workers"])
        self._client.loop.add_callback(self._cancel_orphans)  # its workers may have been lost meanwhile
        return future

    def gather(self, futures):
        """Fetch results; see `distributed.Client.gather`.

        CancelledError if the connection to the scheduler breaks meanwhile; `where` then waits for it, or
        raises. Dask itself would try for half a minute.
        """
        return self._tasks.sync(self._while_connected, self._tasks.gather, futures)

    def scatter(self, data):
        """Send data to one of the workers; OSError if it is lost meanwhile, and what `gather` raises."""
        while True:
            workers = self.where()["workers"]  # some may be about to come
            options = {"workers": workers, "hash": False}
            try:
                sent = self._tasks.sync(self._while_connected, self._tasks.scatter, data, **options)
            except KeyError as error:  # the scheduler's, of a worker whose loss is not known here
                if error.args[0] not in workers:
                    raise
                self._client.sync(self._note_loss, error.args[0])
            else:
                self._scattered.update(futures_of(sent))
                return sent

    def cancel(self, futures):
        """Cancel tasks that are no longer needed."""
        futures = list(futures)
        for future in futures:
            self._watched.pop(future, None)
            self._only.pop(future, None)
        if futures and self._tasks.status == "running":
            with contextlib.suppress(OSError, TimeoutError):  # the scheduler has gone
                self._tasks.cancel(futures)

    # On the client's event loop -----------------------------------------------------------------------

    async def _while_connected(self, method, *args, **options):
        asked = asyncio.ensure_future(method(*args, asynchronous=True, **options))
        take_exception(asked)
        while not asked.done():
            if self._tasks.status != "running":
                asked.cancel()
                raise CancelledError("the connection to the scheduler broke")
            await asyncio.wait([asked], timeout=LOOK)
        return asked.result()

    async def _begin(self, borrowed):
        await super()._begin(borrowed)
        self._in_background(self._cancel_unheard())

    async def _cancel_unheard(self):
        """Cancel tasks that a lost scheduler may not have received, as Dask does with earlier ones."""
        while True:
            if self._tasks.status != "running":
                for future in list(self._watched):
                    self._watched.pop(future, None)
                    self._tasks.loop.add_callback(future._state.cancel)
            await asyncio.sleep(LOOK)

    async def _find(self):
        self._workers = await self._find_workers()
        self._epoch = 0

    async def _find_named(self, only):
        """Addresses of the workers that `only` names; wait until one of them takes part."""
        end = time.monotonic() + self._timeout
        while True:
            await self._learn_names()
            if found := [worker for worker in sorted(self._workers) if self._is_one(worker, only)]:
                return found
            if time.monotonic() > end:
                raise WorkerLost(
                    f"no worker named {' or '.join(only)} takes part, and none came in {self._timeout:g} s "
                    f"(dask.config stradask.timeout); there are {sorted(self._names.values())}: start it, or "
                    "leave out what only it may read"
                )
            await asyncio.sleep(LOOK)

    def _is_one(self, worker, only):
        return worker in only or self._names.get(worker) in only

    def _hear(self, event):
        super()._hear(event)
        _, news = event
        if not isinstance(news, dict):
            return
        if news.get("action") == "add-worker":
            self._names.pop(news["worker"], None)  # another process may have had this address
            self._in_background(self._admit(news["worker"]))
        elif news.get("action") == "remove-worker":
            self._take_out(news["worker"])

    async def _note_loss(self, worker):
        self._take_out(worker)

    def _take_out(self, worker):
        if self._workers.pop(worker, None):
            self._cancel_orphans()

    async def _admit(self, worker):
        """Let a worker that joined take part if it may."""
        if await self._joined(worker) != "ready" or worker in self._dead | self._leaving:
            return
        self._cancel_orphans()
        self._workers[worker] = 1
        if self._only:
            await self._learn_names()
        for future, places in self._watched.items():
            if future not in self._only or self._is_one(worker, self._only[future]):
                places.add(worker)
        await self._widen()

    async def _learn_names(self):
        """Learn by which names the workers were started."""
        if self._workers.keys() - self._names.keys() and self._client.scheduler is not None:
            found = await self._client.scheduler.identity()
            self._names = {worker: str(one["name"]) for worker, one in found["workers"].items()}

    async def _widen(self):
        """Tell the scheduler the workers on which tasks may run by now, also for tasks on the way to it.

        Tasks that are done are among them: their results may be lost, and made again.
        """
        late = [f for f in self._watched if f.status not in ("error", "cancelled")]
        while late:
            found = await self._client.scheduler.get_task_status(keys=[f.key for f in late])
            known = {f.key: sorted(self._watched[f]) for f in late if found.get(f.key) and f in self._watched}
            if known:
                await self._client.scheduler.set_restrictions(worker=known)
                # Its workers are lost, and Dask looks at it again only when another one joins.
                found = await self._client.scheduler.get_task_status(keys=list(known))
                self._cancel_orphaned([f for f in late if found.get(f.key) == "no-worker"])
            await asyncio.sleep(0.1)
            late = [f for f in late if f.key not in known and f.status == "pending" and f in self._watched]

    def _cancel_orphans(self):
        watched = list(self._watched.items())
        self._cancel_orphaned([f for f, workers in watched if not workers & self._workers.keys()])

    def _cancel_orphaned(self, orphans):
        orphans = [future for future in orphans if self._watched.pop(future, None) is not None]
        for future in orphans:
            self._only.pop(future, None)
        self.n_orphaned += len(orphans)
        if orphans:
            self._in_background(asyncio.to_thread(self._tasks.cancel, orphans, force=True))
