"""Tables on Dask: shards are on workers, replicas are tasks there, messages go straight to the shards.

A plugin with handlers of its own keeps the shards. If a worker is lost with its rows, a new epoch begins on
the other workers, from the newest state, and messages of the old epoch are refused.
"""

import asyncio
import contextlib
import uuid
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import Any, NamedTuple

import distributed
import numpy as np

from ..._version import __version__
from ...errors import WorkerLost
from ..sessions.clients import scheduler_named
from ..sessions.keep_alive import KeepAlivePlugin, end_keep_alives, keep_alive_key, start_keep_alive
from ..sessions.payloads import Frames, failure, not_here, refused, wired
from ..sessions.placement import ShardData, place
from .places import Host, call_replica
from .table import ParameterTable

NAME = "stradask-tables"
_PREFIX = "stradask-replica"
_PATIENCE = 0.05  # seconds between two looks at who is still there


# On the workers -------------------------------------------------------------------------------------


class TablePlugin(KeepAlivePlugin):
    """The shards of all tables on one worker, and their handlers."""

    name = NAME

    answers_to = ("table_open", "table_deliver", "table_drop")

    async def table_open(self, session, epoch, keep_alive, version, body):
        """Begin an epoch: take a shard of the table."""
        if (answer := refused(version)) is not None:
            return answer
        try:  # this imports the rule's module, which may take a while
            opened_body = await self.loop.run_in_executor(None, Frames(body).open)
        except Exception as error:
            return failure(error)
        table = self.worker_sessions.get(session)
        if table is not None and table.epoch >= epoch:  # the message came twice, or late
            return {"ok": []} if table.epoch == epoch else not_here(epoch)
        self.end_session(session)
        self.worker_sessions[session] = WorkerTable(epoch, keep_alive, *opened_body)
        self.expect_keep_alive(session, epoch)
        return {"ok": []}

    async def table_deliver(self, session, epoch, shard, body):
        """Give a message to a shard; answer when the shard does."""
        table = self.worker_sessions.get(session)
        if table is None or table.epoch != epoch or shard != table.number:
            return not_here(epoch)
        try:
            answer = await self.loop.run_in_executor(table.thread, table.deliver, Frames(body))
            return {"ok": wired(await asyncio.wrap_future(answer))}
        except Exception as error:
            return failure(error)

    async def table_drop(self, session):
        """End a table here."""
        self.end_session(session)
        return {"ok": []}

    def sender(self, session, table):
        """Make the function with which a replica's thread gives messages to shards, here or elsewhere."""

        def send(shard, message):
            if shard == table.number:
                return table.host.deliver(shard, message)
            ask = {"session": session, "epoch": table.epoch, "shard": shard, "body": wired(message)}
            return self.reach_from_thread(table.holders[shard], "table_deliver", **ask)

        return send


class WorkerTable:
    """One table on one worker, in one epoch: a shard, and the numbers that replicas here need."""

    def __init__(self, epoch, keep_alive, design, number, holders, cells, clock):
        self.epoch, self.keep_alive, self.gone = epoch, keep_alive, asyncio.Event()
        self.design, self.number, self.holders, self.clock = design, number, holders, clock
        self.starts = design.starts(len(holders))
        cells = np.require(
            cells, requirements=["ALIGNED", "WRITEABLE", "OWNDATA"]
        )  # in one process the caller's
        self.host = Host({number: design.shard(cells, self.starts[number], clock)})
        self.thread = ThreadPoolExecutor(1, "stradask-shard")  # numerics; the event loop stays free

    def deliver(self, frames):
        """Unpack a message and give it to the shard."""
        return self.host.deliver(self.number, frames.open())

    def end(self):
        """Wake all waiting threads, and release everything."""
        self.host.close(WorkerLost("the table went on without this worker, or was closed"))
        self.thread.shutdown(wait=False)
        self.gone.set()


def run_replica(session, epoch, number, address, function, task):
    """Run a replica; a Dask task, so that its data come to the worker."""
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(NAME)
    table = plugin and plugin.worker_sessions.get(session)
    if worker.address != address or table is None or table.epoch != epoch:
        return _Lost(f"replica {number} was moved here after its own worker went")
    distributed.secede()  # its slot is free: replicas that others wait for must be able to begin
    state = table.design.replica(number, table.starts, table.clock)
    view = ParameterTable(state, table.design.n_replicas, plugin.sender(session, table))
    try:
        return call_replica(function, view, task)
    except WorkerLost as error:  # another worker's end is no failure of this task, and not to be logged so
        return _Lost(str(error))


class _Lost(NamedTuple):
    """The reason why a replica ended without a result."""

    reason: str


# At the client --------------------------------------------------------------------------------------


class ClusterTable:
    """Shards and replicas on the workers of a Dask cluster; see `places.LocalTable`.

    A shard is on each worker that has replicas; a keep-alive task shows the scheduler that it is in use.
    """

    remote = True

    def __init__(self, workers):
        self.workers, self._id, self._epoch = workers, uuid.uuid4().hex, -1
        self._client: Any = None
        self._keep_alives: dict[str, tuple] = {}
        self._holders: list[str] = []
        self._homes: list[str] = []
        self._tasks: list[Any] = []  # Dask's futures
        self._calls: list[Future] = []
        self._data: Any = None

    def open(self, design, cells, clock):
        """Begin an epoch on the workers that there are."""
        self.workers.join(self)
        self._client, self._design, self._clock = self.workers.client, design, clock
        with scheduler_named(self._client):
            self._client.sync(self._open, cells)
        self.workers.warn()

    async def _open(self, cells):
        design, epoch = self._design, self._epoch + 1
        await self.workers.install(TablePlugin(), anew=epoch > 0)
        workers, self._epoch = await self.workers.find(epoch > 0), epoch
        self._homes = place(design.n_replicas, workers)
        self._holders = list(dict.fromkeys(self._homes))
        starts = design.starts(len(self._holders))

        async def give(number, worker):
            part = cells[starts[number] : starts[number + 1]].copy()
            body = wired((design, number, self._holders, part, self._clock))
            key = keep_alive_key(self._id, worker, epoch)
            message = {"epoch": epoch, "keep_alive": key, "version": __version__, "body": body}
            await self._ask(worker, "table_open", **message)
            self._keep_alives[worker] = start_keep_alive(self._client, NAME, self._id, worker, epoch)

        await self.workers.gather([give(*pair) for pair in enumerate(self._holders)], self._holders)

    def start(self, function, tasks):
        """Submit the replicas, each to its worker."""
        if self._data is None:
            self._data = ShardData(tasks, self.workers.scheduler, self._client)
            self._data.want(range(len(tasks)))
        self._tasks, self._calls = [], []
        for number, home in enumerate(self._homes):
            held = number in self._data.futures
            client = self._data.client if held else self._client
            entry = self._data.entries[number] if held else tasks[number]
            key = f"{_PREFIX}-{self._id}-{self._epoch}-{number}"
            arguments = run_replica, self._id, self._epoch, number, home, function, entry
            where = {"workers": [home], "allow_other_workers": True}  # or it waits for a lost one for ever
            self._tasks.append(client.submit(*arguments, key=key, pure=False, **where))
            self._calls.append(Future())
            self._tasks[-1].add_done_callback(_passed_to(self._calls[-1]))
        self._watching = asyncio.run_coroutine_threadsafe(
            self._watch(self._holders, self._calls), self._client.loop.asyncio_loop
        )
        return self._calls

    async def _watch(self, workers, calls):
        """Fail the calls when a worker leaves or falls silent: others may wait for its replicas."""
        guards = [asyncio.ensure_future(self.workers.watch(worker)) for worker in workers]
        try:
            while not all(call.done() for call in calls):
                await asyncio.sleep(_PATIENCE)
                if gone := [m for m in workers if m in self.workers.dead | self.workers.leaving]:
                    raise WorkerLost(f"{gone[0]} has left")
                for guard in guards:
                    if guard.done():
                        guard.result()  # raises
        except WorkerLost as error:
            for call in calls:
                _fail(call, error)
        finally:
            for guard in guards:
                guard.cancel()

    def deliver(self, shard, message):
        """Give a message to a shard."""
        ask = {"epoch": self._epoch, "shard": shard, "body": wired(message)}
        asking = self._ask(self._holders[shard], "table_deliver", **ask)
        return asyncio.run_coroutine_threadsafe(asking, self._client.loop.asyncio_loop)

    def n_shards(self):
        """Count the shards."""
        return len(self._holders)

    def stop(self, error):
        """End the replicas of this epoch; kernels that run go on, and their results are discarded."""
        for call in self._calls:
            _fail(call, error)
        # With them the shards go, and threads that wait for these wake.
        end_keep_alives(self._keep_alives)
        if self._tasks:
            with contextlib.suppress(OSError, TimeoutError):
                self._client.cancel(self._tasks, force=True)

    def close(self):
        """Release the workers; the caller's client stays open."""
        if self._client is None:
            return
        client, self._client, self._tasks = self._client, None, []
        try:
            client.sync(self._leave)
        finally:
            self.workers.leave(self)

    async def _leave(self):
        if self.workers.client.status == "running":
            await self.workers.drop(self._holders, "table_drop", session=self._id)
        end_keep_alives(self._keep_alives)

    async def _ask(self, worker, handler, **message):
        return await self.workers.call(worker, handler, session=self._id, **message)

    def worker_joined(self, worker):
        """A worker that joins takes part after a loss."""

    def worker_left(self, worker, retires):
        """Workers that have left are looked for by `_watch`."""


def _passed_to(call):
    def pass_on(task):
        if task.status == "finished":
            try:
                result = task.result()
            except BaseException as error:  # the worker that held it is gone
                _fail(call, WorkerLost(f"a replica's result was lost: {error}"))
            else:
                if isinstance(result, _Lost):
                    _fail(call, WorkerLost(result.reason))
                _settle(call, call.set_result, result)
        elif task.status == "error":
            _fail(call, task.exception())
        else:
            _fail(call, WorkerLost("a replica's task was cancelled: is the client still connected?"))

    return pass_on


def _fail(call, error):
    _settle(call, call.set_exception, error)


def _settle(call, how, value):
    with contextlib.suppress(InvalidStateError):  # the watch or the task was first
        how(value)
