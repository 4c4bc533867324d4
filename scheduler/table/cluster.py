"""Tables on Dask: shards are on workers, replicas are tasks there, messages go straight to the shards.

A plugin with handlers of its own keeps the shards. If a worker is lost with its rows, a new epoch begins on
the other workers, from the newest state, and messages of the old epoch are refused.
"""

import asyncio
import contextlib
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import Any, NamedTuple

import distributed
import numpy as np

from ..._version import __version__
from ...errors import WorkerLost
from ..sessions.answers import failure, not_here, refused, wired
from ..sessions.clients import scheduler_named
from ..sessions.keep_alive import SeatKeeper, end_presences, presence_key, show_presence
from ..sessions.membership import Membership
from ..sessions.placement import ShardData, place
from ..sessions.worker_state import Parcel
from .places import Host, call_replica
from .table import ParameterTable

NAME = "stradask-tables"
_PREFIX = "stradask-replica"
_PATIENCE = 0.05  # seconds between two looks at who is still there


# On the workers -------------------------------------------------------------------------------------


class TablePlugin(SeatKeeper):
    """The shards of all tables on one worker, and their handlers."""

    name = NAME

    answers_to = ("table_open", "table_deliver", "table_drop")

    async def table_open(self, session, epoch, presence, version, body):
        """Begin an epoch: take a shard of the table."""
        if (answer := refused(version)) is not None:
            return answer
        try:  # this imports the rule's module, which may take a while
            opened_body = await self.loop.run_in_executor(None, Parcel(body).open)
        except Exception as error:
            return failure(error)
        seat = self.seats.get(session)
        if seat is not None and seat.epoch >= epoch:  # the message came twice, or late
            return {"ok": []} if seat.epoch == epoch else not_here(epoch)
        self.drop_seat(session)
        self.seats[session] = Seat(epoch, presence, *opened_body)
        self.expect_presence(session, epoch)
        return {"ok": []}

    async def table_deliver(self, session, epoch, shard, body):
        """Give a message to a shard; answer when the shard does."""
        seat = self.seats.get(session)
        if seat is None or seat.epoch != epoch or shard != seat.number:
            return not_here(epoch)
        try:
            answer = await self.loop.run_in_executor(seat.thread, seat.deliver, Parcel(body))
            return {"ok": wired(await asyncio.wrap_future(answer))}
        except Exception as error:
            return failure(error)

    async def table_drop(self, session):
        """End a table here."""
        self.drop_seat(session)
        return {"ok": []}

    def sender(self, session, seat):
        """Make the function with which a replica's thread gives messages to shards, here or elsewhere."""

        def send(shard, message):
            if shard == seat.number:
                return seat.host.deliver(shard, message)
            ask = {"session": session, "epoch": seat.epoch, "shard": shard, "body": wired(message)}
            hop = self.reach(seat.holders[shard], "table_deliver", **ask)
            try:
                return asyncio.run_coroutine_threadsafe(hop, self.loop)
            except RuntimeError as error:  # the loop is closed: this process ends
                hop.close()
                raise WorkerLost(f"the worker is closing: {error}") from error

        return send


class Seat:
    """One table on one worker, in one epoch: a shard and what replicas here must know."""

    def __init__(self, epoch, presence, design, number, holders, cells, clock):
        self.epoch, self.presence, self.gone = epoch, presence, asyncio.Event()
        self.design, self.number, self.holders, self.clock = design, number, holders, clock
        self.starts = design.starts(len(holders))
        cells = np.require(
            cells, requirements=["ALIGNED", "WRITEABLE", "OWNDATA"]
        )  # in one process the caller's
        self.host = Host({number: design.shard(cells, self.starts[number], clock)})
        self.thread = ThreadPoolExecutor(1, "stradask-shard")  # numerics; the event loop stays free

    def deliver(self, parcel):
        """Unpack a message and give it to the shard."""
        return self.host.deliver(self.number, parcel.open())

    def end(self):
        """Wake whoever waits, and let go of everything."""
        self.host.close(WorkerLost("the table went on without this member, or was closed"))
        self.thread.shutdown(wait=False)
        self.gone.set()


def run_replica(session, epoch, number, address, function, task):
    """Run a replica; a Dask task, so that its data come to the worker."""
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(NAME)
    seat = plugin and plugin.seats.get(session)
    if worker.address != address or seat is None or seat.epoch != epoch:
        return _Lost(f"replica {number} was moved here after its own worker went")
    distributed.secede()  # its slot is free: replicas that others wait for must be able to begin
    state = seat.design.replica(number, seat.starts, seat.clock)
    view = ParameterTable(state, seat.design.n_replicas, plugin.sender(session, seat))
    try:
        return call_replica(function, view, task)
    except WorkerLost as error:  # another worker's end is no failure of this task, and not to be logged so
        return _Lost(str(error))


class _Lost(NamedTuple):
    """The reason why a replica ended without a result."""

    reason: str


# At the client --------------------------------------------------------------------------------------


class _Workers(Membership):
    """Workers with the plugin for tables."""

    async def _install(self, lent, *, anew=False):
        await super()._install(lent, anew=anew)
        await self._install_one(lent, TablePlugin(), anew=anew)

    async def _leave(self, lent):
        members, self._members = self._members, {}  # they have no rooms
        await self._drop(members, "table_drop")
        await super()._leave(lent)


class ClusterTable:
    """Shards and replicas on the workers of a Dask cluster; see `places.TableRunner`.

    A shard is on each worker that has replicas; a keep-alive task shows the scheduler that it is in use.
    `scheduler` is an address, or a client, which is not closed.
    """

    remote = True

    def __init__(self, scheduler):
        self._workers: Any = _Workers(scheduler)
        self._holders: list[str] = []
        self._homes: list[str] = []
        self._tasks: list[Any] = []  # Dask's futures
        self._calls: list[Future] = []
        self._data: Any = None

    def open(self, design, cells, clock):
        """Begin an epoch on the workers that there are."""
        self._workers._connect()
        self._client = self._workers._client
        self._design, self._clock = design, clock
        with scheduler_named(self._client):
            self._client.sync(self._open, cells)
        self._workers._tell()

    async def _open(self, cells):
        workers, design = self._workers, self._design
        workers._epoch += 1
        epoch = workers._epoch
        members = await workers._find_members()
        workers._members = dict.fromkeys(members, 1)
        self._homes = place(design.n_replicas, members)
        self._holders = list(dict.fromkeys(self._homes))
        starts = design.starts(len(self._holders))

        async def give(number, member):
            part = cells[starts[number] : starts[number + 1]].copy()
            body = wired((design, number, self._holders, part, self._clock))
            key = presence_key(workers._id, member, epoch)
            message = {"epoch": epoch, "presence": key, "version": __version__, "body": body}
            await workers._ask(member, "table_open", **message)
            workers._presences[member] = show_presence(self._client, NAME, workers._id, member, epoch)

        await workers._all([give(*pair) for pair in enumerate(self._holders)], self._holders)

    def start(self, function, tasks):
        """Submit the replicas, each to its worker."""
        workers = self._workers
        if self._data is None:
            self._data = ShardData(tasks, workers._scheduler, self._client)
            self._data.want(range(len(tasks)))
        self._tasks, self._calls = [], []
        for number, home in enumerate(self._homes):
            held = number in self._data.futures
            client = self._data.client if held else self._client
            entry = self._data.entries[number] if held else tasks[number]
            key = f"{_PREFIX}-{workers._id}-{workers._epoch}-{number}"
            arguments = run_replica, workers._id, workers._epoch, number, home, function, entry
            where = {"workers": [home], "allow_other_workers": True}  # or it waits for a lost one for ever
            self._tasks.append(client.submit(*arguments, key=key, pure=False, **where))
            self._calls.append(Future())
            self._tasks[-1].add_done_callback(_passed_to(self._calls[-1]))
        self._watching = asyncio.run_coroutine_threadsafe(
            self._watch(self._holders, self._calls), self._client.loop.asyncio_loop
        )
        return self._calls

    async def _watch(self, members, calls):
        """Fail the calls when a worker leaves or falls silent: others may wait for its replicas."""
        workers = self._workers
        guards = [asyncio.ensure_future(workers._guard(member)) for member in members]
        try:
            while not all(call.done() for call in calls):
                await asyncio.sleep(_PATIENCE)
                if gone := [m for m in members if m in workers._dead | workers._leaving]:
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
        workers = self._workers
        ask = {"epoch": workers._epoch, "shard": shard, "body": wired(message)}
        asking = workers._ask(self._holders[shard], "table_deliver", **ask)
        return asyncio.run_coroutine_threadsafe(asking, self._client.loop.asyncio_loop)

    def n_shards(self):
        """Count the shards."""
        return len(self._holders)

    def stop(self, error):
        """End the replicas of this epoch; kernels that run go on, and their results are discarded."""
        for call in self._calls:
            _fail(call, error)
        end_presences(self._workers._presences)  # with them the shards go, and whoever waits for these wakes
        if self._tasks:
            with contextlib.suppress(OSError, TimeoutError):
                self._client.cancel(self._tasks, force=True)

    def close(self):
        """Release the workers; the caller's client stays open."""
        self._workers.close()
        self._tasks = []


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
