"""Plain Dask tasks on the workers that have this stradask, and on no others."""

import asyncio
import contextlib
from concurrent.futures import CancelledError
from typing import Any

from .clients import scheduler_named, take_exception
from .membership import Membership
from .session import open_session

_LOOK = 0.1  # seconds between looks at whether the scheduler is there


class TaskWorkers(Membership):
    """Submits tasks to the workers that may take part; which ones these are, `Membership` decides.

    Workers that join later take part as soon as they answer, those of another version never. A task all of
    whose workers are lost would wait for them for ever: it is cancelled, and can be submitted again. All
    tasks are cancelled when the connection to the scheduler breaks: Dask forgets those that are submitted
    while its client tries to connect again.

    Parameters
    ----------
    scheduler : str or distributed.Client
        An address, or a client, which is not closed.

    Attributes
    ----------
    n_orphaned : int
        Tasks that were cancelled because all their workers were lost.
    """

    def __init__(self, scheduler):
        super().__init__(scheduler)
        self.n_orphaned = 0
        self._stack = contextlib.ExitStack()
        self._watched: dict[Any, set[str]] = {}  # futures, and where each may run
        self._tasks: Any = None  # the client through which tasks go

    def open(self):
        """Find the workers that may take part; wait for a first one.

        Returns
        -------
        distributed.Client
            The one through which tasks go.
        """
        try:
            self._tasks = self._stack.enter_context(self.client())
            self._connect()
            self.where()
        except BaseException:
            self.close()
            raise
        return self._tasks

    def close(self):
        """Let go of all tasks."""
        self.cancel(self._watched)
        try:
            super().close()
        finally:
            self._stack.close()
        self._tell()

    def where(self):
        """Return Dask's arguments that keep tasks on these workers; wait for one if all were lost.

        Raises
        ------
        StradaskError
            If none comes within the timeout, or all that run have another version.
        """
        if not self._members or self._client.status != "running":
            with scheduler_named(self._client):
                self._client.sync(self._find)
        self._tell()
        return {"workers": sorted(self._members), "allow_other_workers": False}

    def submit(self, function, *args):
        """Submit a task; see `distributed.Client.submit`."""
        where = self.where()
        return self.watch(self._tasks.submit(function, *args, pure=False, **where), where)

    def watch(self, future, where):
        """Care for a task that was submitted with what `where` returned."""
        self._watched[future] = set(where["workers"])
        self._client.loop.add_callback(self._cancel_orphans)  # its workers may have been lost meanwhile
        return future

    def gather(self, futures):
        """Fetch results; see `distributed.Client.gather`.

        Raises
        ------
        CancelledError
            If the connection to the scheduler breaks meanwhile; `where` then waits for it, or says that it is
            gone. Dask itself would try for half a minute.
        """
        return self._tasks.sync(self._while_connected, self._tasks.gather, futures)

    def scatter(self, data, **where):
        """Send data to workers; see `distributed.Client.scatter`, and `gather` for what it raises."""
        return self._tasks.sync(self._while_connected, self._tasks.scatter, data, **where)

    def cancel(self, futures):
        """Cancel tasks that nobody needs any more."""
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

    async def _begin(self, lent):
        await super()._begin(lent)
        self._in_background(self._cancel_unheard())

    async def _cancel_unheard(self):
        """Cancel tasks that no scheduler may have heard of, as Dask does with those submitted before."""
        while True:
            if self._tasks.status != "running":
                for future in list(self._watched):
                    self._watched.pop(future, None)
                    self._tasks.loop.add_callback(future._state.cancel)
            await asyncio.sleep(_LOOK)

    async def _find(self):
        self._members = await self._find_members()
        self._epoch = 0

    def _hear(self, event):
        super()._hear(event)
        _, news = event
        if not isinstance(news, dict):
            return
        if news.get("action") == "add-worker":
            self._in_background(self._admit(news["worker"]))
        elif news.get("action") == "remove-worker" and self._members.pop(news["worker"], None):
            self._cancel_orphans()

    async def _admit(self, member):
        """Let a worker that joined take part if it may."""
        if await self._joined(member) != "ready" or member in self._dead | self._leaving:
            return
        self._cancel_orphans()
        self._members[member] = 1
        for places in self._watched.values():
            places.add(member)
        await self._widen()

    async def _widen(self):
        """Let the scheduler know where tasks may run by now, those too that are on the way to it."""
        late = list(self._watched)
        while late := [f for f in late if f.status == "pending" and f in self._watched]:
            found = await self._client.scheduler.get_task_status(keys=[f.key for f in late])
            known = {f.key: sorted(self._watched[f]) for f in late if found.get(f.key) and f in self._watched}
            if known:
                await self._client.scheduler.set_restrictions(worker=known)
            late = [f for f in late if f.key not in known]
            await asyncio.sleep(0.1)

    def _cancel_orphans(self):
        orphans = [f for f, places in list(self._watched.items()) if not places & self._members.keys()]
        for future in orphans:
            del self._watched[future]
        self.n_orphaned += len(orphans)
        if orphans:
            self._in_background(asyncio.to_thread(self._tasks.cancel, orphans, force=True))


def task_workers(engine):
    """Make the `TaskWorkers` of an `engine` other than "local"."""
    return TaskWorkers(open_session(engine)._scheduler)
