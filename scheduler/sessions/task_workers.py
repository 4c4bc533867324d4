"""Plain Dask tasks on the workers that have this version of stradask, and on no others."""

import asyncio
import contextlib
from concurrent.futures import CancelledError
from typing import Any

import dask

from .clients import scheduler_named, take_exception
from .membership import Membership

_LOOK = 0.1  # seconds between looks at whether the scheduler is there


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
        self._tasks: Any = None  # the client through which tasks go

    def open(self):
        """Find the workers that may take part, wait for a first one; return the client for tasks."""
        try:
            self._tasks = self._stack.enter_context(self.client())
            self._connect()
            self.where()
        except BaseException:
            self.close()
            raise
        return self._tasks

    def close(self):
        """Release all tasks."""
        self.cancel(self._watched)
        try:
            super().close()
        finally:
            self._stack.close()
        self._warn()

    def where(self):
        """Return Dask's arguments that keep tasks on these workers; wait for one if all were lost.

        StradaskError if none comes within the timeout, or all that run have another version.
        """
        if not self._workers or self._client.status != "running":
            with scheduler_named(self._client):
                self._client.sync(self._find)
        self._warn()
        return {"workers": sorted(self._workers), "allow_other_workers": False}

    def submit(self, function, *args):
        """Submit a task; of Dask collections among `args` it gets the computed values."""
        where = self.where()
        if any(map(dask.is_dask_collection, args)):
            future = self._tasks.compute(dask.delayed(function)(*args), **where)
        else:
            future = self._tasks.submit(function, *args, pure=False, **where)
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
                return self._tasks.sync(self._while_connected, self._tasks.scatter, data, **options)
            except KeyError as error:  # the scheduler's, of a worker whose loss has not been heard of here
                if error.args[0] not in workers:
                    raise
                self._client.sync(self._hear_of_loss, error.args[0])

    def cancel(self, futures):
        """Cancel tasks that are no longer needed."""
        futures = list(futures)
        for future in futures:
            self._watched.pop(future, None)
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
            await asyncio.wait([asked], timeout=_LOOK)
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
            await asyncio.sleep(_LOOK)

    async def _find(self):
        self._workers = await self._find_workers()
        self._epoch = 0

    def _hear(self, event):
        super()._hear(event)
        _, news = event
        if not isinstance(news, dict):
            return
        if news.get("action") == "add-worker":
            self._in_background(self._admit(news["worker"]))
        elif news.get("action") == "remove-worker":
            self._take_out(news["worker"])

    async def _hear_of_loss(self, worker):
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
        for places in self._watched.values():
            places.add(worker)
        await self._widen()

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
        self.n_orphaned += len(orphans)
        if orphans:
            self._in_background(asyncio.to_thread(self._tasks.cancel, orphans, force=True))
