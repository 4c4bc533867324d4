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
from .clients import scheduler_named, take_exception
from .keep_alive import start_waiting
from .worker import NAME
from .workers import LOOK, Background


class TaskWorkers:
    """Submits tasks to the workers that may take part; `Workers` decides which ones.

    Workers that join later take part as soon as they answer, those of another version never. A task whose
    workers are all lost would wait for them for ever: it is cancelled, counted in `n_orphaned`, and can be
    submitted again. All tasks are cancelled when the connection to the scheduler breaks: Dask forgets those
    that are submitted while its client tries to connect again.
    """

    def __init__(self, workers):
        self.workers, self.n_orphaned = workers, 0
        self.accepted: set[str] = set()  # workers that take part
        self._has_begun, self._background = False, Background()
        self._watched: dict[Any, set[str]] = {}  # futures, and where each may run
        self._scattered: weakref.WeakSet = weakref.WeakSet()  # data that were sent
        self._only: dict[Any, tuple] = {}  # of them those that may run on certain workers alone, and on which
        self._names: dict[str, str] = {}  # of workers, by address
        self.client: Any = None  # through which tasks go
        self._busy: Any = None  # the keep-alive

    def open(self):
        """Find the workers that may take part, and wait for a first one."""
        try:
            self.workers.join(self)
            self.client, self._loop = self.workers.task_client, self.workers.client.loop
            self._loop.add_callback(self._begin)
            self.where()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, *exc_info):
        self.close()

    def close(self):
        """Release all tasks and data; an error that somebody keeps may hold them for long."""
        self._end_keep_alive()
        if self.client is not None:
            self.cancel([*self._watched, *self._scattered])
            self._loop.add_callback(self._background.cancel)
        self.workers.leave(self)
        self.workers.warn()

    def keep_busy(self):
        """Have a worker show a task until this is closed, also between tasks; after a loss, too."""
        self._end_keep_alive()
        self._busy = start_waiting(self.client, NAME, self.where()["workers"])

    def _end_keep_alive(self):
        if self._busy is not None:
            self._busy.release()
            self._busy = None

    def where(self, only=()):
        """Return Dask's arguments that keep tasks on these workers; wait for one if all were lost.

        With `only`, names or addresses, on those of them alone. StradaskError if none comes within the
        timeout, or all that run have another version.
        """
        client = self.workers.client
        with scheduler_named(client):
            if not self.accepted or client.status != "running":
                client.sync(self._find)
            workers = client.sync(self._find_named, only) if only else sorted(self.accepted)
        self.workers.warn()
        return {"workers": workers, "allow_other_workers": False}

    def submit(self, function, *args, only=()):
        """Submit a task, which gets the values of Dask collections among `args`; for `only` see `where`."""
        where = self.where(only)
        if any(map(dask.is_dask_collection, args)):
            future = self.client.compute(dask.delayed(function)(*args), **where)
        else:
            future = self.client.submit(function, *args, pure=False, **where)
        if only:
            self._only[future] = only
        self._watched[future] = set(where["workers"])
        # The workers of the task may have been lost meanwhile.
        self.workers.client.loop.add_callback(self._cancel_orphans)
        return future

    def gather(self, futures):
        """Fetch results; see `distributed.Client.gather`.

        CancelledError if the connection to the scheduler breaks meanwhile; `where` then waits for it, or
        raises. Dask itself would try for half a minute.
        """
        return self.client.sync(self._while_connected, self.client.gather, futures)

    def scatter(self, data):
        """Send data to one of the workers; OSError if it is lost meanwhile, and what `gather` raises."""
        while True:
            workers = self.where()["workers"]  # some may be about to come
            options = {"workers": workers, "hash": False}
            try:
                sent = self.client.sync(self._while_connected, self.client.scatter, data, **options)
            except KeyError as error:  # the scheduler's, of a worker whose loss is not known here
                if error.args[0] not in workers:
                    raise
                self.workers.client.sync(self._note_loss, error.args[0])
            else:
                self._scattered.update(futures_of(sent))
                return sent

    def cancel(self, futures):
        """Cancel tasks that are no longer needed."""
        futures = list(futures)
        for future in futures:
            self._watched.pop(future, None)
            self._only.pop(future, None)
        if futures and self.client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):  # the scheduler has gone
                self.client.cancel(futures)

    # On the client's event loop -----------------------------------------------------------------------

    async def _while_connected(self, method, *args, **options):
        asked = asyncio.ensure_future(method(*args, asynchronous=True, **options))
        take_exception(asked)
        while not asked.done():
            if self.client.status != "running":
                asked.cancel()
                raise CancelledError("the connection to the scheduler broke")
            await asyncio.wait([asked], timeout=LOOK)
        return asked.result()

    def _begin(self):
        self._background.start(self._cancel_unheard())

    async def _cancel_unheard(self):
        """Cancel tasks that a lost scheduler may not have received, as Dask does with earlier ones."""
        while True:
            if self.client.status != "running":
                for future in list(self._watched):
                    self._watched.pop(future, None)
                    self.client.loop.add_callback(future._state.cancel)
            await asyncio.sleep(LOOK)

    async def _find(self):
        self.accepted = set(await self.workers.find(self._has_begun))
        self._has_begun = True

    async def _find_named(self, only):
        """Addresses of the workers that `only` names; wait until one of them takes part."""
        end = time.monotonic() + self.workers.timeout
        while True:
            await self._learn_names()
            if found := [worker for worker in sorted(self.accepted) if self._is_one(worker, only)]:
                return found
            if time.monotonic() > end:
                raise WorkerLost(
                    f"no worker named {' or '.join(only)} takes part, and none came in "
                    f"{self.workers.timeout:g} s (dask.config stradask.timeout); there are "
                    f"{sorted(self._names.values())}: start it, or leave out what only it may read"
                )
            await asyncio.sleep(LOOK)

    def _is_one(self, worker, only):
        return worker in only or self._names.get(worker) in only

    def worker_joined(self, worker):
        """Hear of a worker that has joined."""
        self._names.pop(worker, None)  # another process may have had this address
        self._background.start(self._admit(worker))

    def worker_left(self, worker, retires):
        """Hear of a worker that was lost, or retires."""
        if worker in self.accepted:
            self.accepted.remove(worker)
            self._cancel_orphans()

    async def _note_loss(self, worker):
        self.worker_left(worker, retires=False)

    async def _admit(self, worker):
        """Let a worker that joined take part if it may."""
        answer = await self.workers.admitted(worker)
        if answer != "ready" or worker in self.workers.dead | self.workers.leaving:
            return
        self._cancel_orphans()
        self.accepted.add(worker)
        if self._only:
            await self._learn_names()
        for future, places in self._watched.items():
            if future not in self._only or self._is_one(worker, self._only[future]):
                places.add(worker)
        await self._widen()

    async def _learn_names(self):
        """Learn by which names the workers were started."""
        if self.accepted - self._names.keys() and self.workers.client.scheduler is not None:
            found = await self.workers.client.scheduler.identity()
            self._names = {worker: str(one["name"]) for worker, one in found["workers"].items()}

    async def _widen(self):
        """Tell the scheduler the workers on which tasks may run by now, also for tasks on the way to it.

        Tasks that are done are among them: their results may be lost, and made again.
        """
        late = [f for f in self._watched if f.status not in ("error", "cancelled")]
        while late:
            found = await self.workers.client.scheduler.get_task_status(keys=[f.key for f in late])
            known = {f.key: sorted(self._watched[f]) for f in late if found.get(f.key) and f in self._watched}
            if known:
                await self.workers.client.scheduler.set_restrictions(worker=known)
                # Its workers are lost, and Dask looks at it again only when another one joins.
                found = await self.workers.client.scheduler.get_task_status(keys=list(known))
                self._cancel_orphaned([f for f in late if found.get(f.key) == "no-worker"])
            await asyncio.sleep(0.1)
            late = [f for f in late if f.key not in known and f.status == "pending" and f in self._watched]

    def _cancel_orphans(self):
        watched = list(self._watched.items())
        self._cancel_orphaned([f for f, workers in watched if not workers & self.accepted])

    def _cancel_orphaned(self, orphans):
        orphans = [future for future in orphans if self._watched.pop(future, None) is not None]
        for future in orphans:
            self._only.pop(future, None)
        self.n_orphaned += len(orphans)
        if orphans:
            self._background.start(asyncio.to_thread(self.client.cancel, orphans, force=True))
