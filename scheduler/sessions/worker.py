"""A Dask worker as a member of sessions: a plugin with handlers of its own.

An actor dies for good with its worker, and a task for every update costs milliseconds in the scheduler; a
plugin is put on every worker that ever joins, and its handlers cost one round trip. They only look things up:
arithmetic runs on other threads, so that a worker answers however long its numerics take.
"""

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import distributed
from distributed.protocol import to_serialize

from ..._version import __version__
from ...errors import StradaskError, WorkerLost, shortened
from ..stores.shared_store import answer_word
from ..threads import effective_n_jobs
from .answers import answered, bytes_of, failure, not_here, refused, wired
from .keep_alive import SeatKeeper
from .worker_state import Parcel, Room

NAME = "stradask-sessions"
_OVER = float("inf")  # the epoch of a session that has ended here
_PATIENCE = 1.0  # seconds, besides those of reading again, for work on shards to end when a worker was lost
_LINGER = 8.0  # seconds that a closing worker waits for its shards to be handed on
_METHODS = (
    "load",
    "keep",
    "make_block",
    "adopt",
    "ask",
    "run",
    "measure",
    "snapshot",
    "store",
    "can_be_tried",
    "differing",
)


class SessionPlugin(SeatKeeper):
    """The rooms of all sessions on one worker, and the handlers through which they are reached."""

    name = NAME

    answers_to = ("ping", "probe", "open", "load", "call", "put", "look", "hand_on", "drop")

    async def teardown(self, worker):
        """Wait, while the worker still answers, until the coordinator has taken the shards and drops rooms.

        An empty room is no sign: its last block may still be on the way.
        """
        end = time.monotonic() + _LINGER
        while self.seats and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await super().teardown(worker)

    # Handlers -------------------------------------------------------------------------------------

    async def ping(self):
        """Show that the worker is alive, and which stradask it has."""
        return {"ok": wired(__version__)}

    async def probe(self, session, url, word, number):
        """See whether a place for checkpoints is the same here and where the word was written."""
        answering = answer_word, url, word, self.worker.address, number
        return await asyncio.get_running_loop().run_in_executor(None, answered, *answering)

    async def open(self, session, version, **message):
        """Begin an epoch with a new room; answer which shards of the last one need not be read again."""
        return refused(version) or await self._open(session, **message)

    async def _open(self, session, epoch, presence, program, n_jobs, same):
        seat = self.seats.setdefault(session, Seat())
        if epoch < seat.epoch:
            return not_here(epoch)
        if epoch > seat.epoch:  # else the message came twice
            seat.begin(epoch, presence)
        try:  # this imports the program's module, which may take a while
            program = await seat.loop.run_in_executor(None, Parcel(program).open)
        except Exception as error:
            return failure(error)
        finally:
            self.expect_presence(session, epoch)
        n_threads = self.worker.state.nthreads if n_jobs is None else effective_n_jobs(n_jobs)
        ways = self._sender(session, epoch, seat.loop), self._fetcher(session, epoch, seat.loop)
        async with seat.furnishing:
            if seat.epoch == epoch and seat.room is None:
                try:
                    await seat.furnish(epoch, Room(program, n_threads, *ways, seat.spare), *same)
                except Exception as error:  # of the program's
                    return failure(error)
            if seat.epoch != epoch:
                return not_here(epoch)
            return {"ok": wired(sorted(seat.room.left))}

    async def call(self, session, epoch, method, args, shared=None, serial=None, needs=-1, news=None):
        """Carry out a method of the room on its threads; with a serial number, once.

        Its arguments are `args` and, last, `shared`: what many members are told, packed once. It waits, on
        no thread, until the room has been told something numbered `needs` (or later): the `news` of this
        call, or of another one that may be on its way.
        """
        if news is not None and (seat := self._seat(session, epoch)) is not None:
            seat.room.tell(needs, Parcel(news).open())
            seat.wake()
        while (seat := self._seat(session, epoch)) is not None and seat.room.told[0] < needs:
            await seat.news.wait()
        return not_here(epoch) if seat is None else await seat.answer(_call, method, args, shared, serial)

    async def put(self, session, epoch, block, stamp, value):
        """Take in a block."""
        seat = self._seat(session, epoch)
        return not_here(epoch) if seat is None else answered(seat.room.receive, block, stamp, value)

    async def look(self, session, epoch, name, first, last):
        """Show a part of what the program keeps here under a name."""
        seat = self._seat(session, epoch)
        if seat is None or name not in seat.room.kept:
            return not_here(epoch)
        return {"ok": wired(seat.room.kept[name][first:last])}

    async def hand_on(self, session, epoch, shard, to):
        """Send a shard's whole state to another member and forget it; answer how many bytes that were."""
        seat = self._seat(session, epoch)
        if seat is None or shard not in seat.room.states:
            return not_here(epoch)
        room = seat.room  # another one may be there when the shard has arrived
        packed = await seat.answer(Room.state, shard)
        if "ok" not in packed:
            return packed
        message = {"session": session, "epoch": epoch, "method": "adopt", "args": wired((shard,))}
        try:
            await self.reach(to, "call", shared=packed["ok"] or wired(None), **message)
        except Exception as error:
            return failure(error)
        room.states.pop(shard, None)
        return {"ok": wired(sum(map(bytes_of, packed["ok"])))}

    async def drop(self, session):
        """End a session here."""
        self.drop_seat(session)
        return {"ok": []}

    async def load(self, session, epoch, shard, keys, args):
        """Load a shard, whose data of Dask's lie here under these keys; answer False if one does not."""
        seat, data = self._seat(session, epoch), self.worker.data
        if seat is not None:
            if not all(key in data for key in keys):
                return {"ok": wired(False)}
            if shard not in seat.room.states:  # else the message came twice
                seat.room.brought[shard] = [data[key] for key in keys]
        return await self.call(session, epoch, "load", args)

    def _seat(self, session, epoch):
        seat = self.seats.get(session)
        return None if seat is None or seat.epoch != epoch or seat.room is None else seat

    # Blocks on their way ------------------------------------------------------------------------------

    def _sender(self, session, epoch, loop):
        """Make the function with which a room sends blocks, from any of its threads."""

        def send(to, block, stamp, value):
            message = {"session": session, "epoch": epoch, "block": int(block), "stamp": stamp}
            hop = self.reach(to, "put", value=to_serialize(value), **message)
            try:
                return asyncio.run_coroutine_threadsafe(hop, loop)
            except RuntimeError as error:  # the loop is closed: this process ends
                hop.close()
                failed: Future = Future()
                failed.set_exception(WorkerLost(f"the worker is closing: {error}"))
                return failed

        return send

    def _fetcher(self, session, epoch, loop):
        """Make the function with which a room's threads read what another member keeps."""

        def fetch(to, name, first, last):
            message = {"session": session, "epoch": epoch, "name": name, "first": first, "last": last}
            looking = self.reach(to, "look", **message)
            try:
                return asyncio.run_coroutine_threadsafe(looking, loop).result()
            except RuntimeError as error:  # the loop is closed: this process ends
                looking.close()
                raise WorkerLost(f"the worker is closing: {error}") from error

        return fetch


class _Before(NamedTuple):
    """A room of an epoch that is over."""

    epoch: int
    room: Room
    calls: set[Future]  # that may still run in it


class Seat:
    """One session on one worker: its epoch, room and threads. Changed on the event loop only."""

    def __init__(self):
        self.before: _Before | None = None
        self.furnishing = asyncio.Lock()
        self.calls: set[Future] = set()  # that run in the room
        self.epoch, self.presence = -1, ""
        self.spare: dict[str, Any] = {}
        self.room: Room | None = None
        self.threads: Any = None
        self.gone, self.loop = asyncio.Event(), asyncio.get_running_loop()
        self.news = asyncio.Event()  # set, and replaced, when a call that waits should look again

    def wake(self):
        """Let the calls look that wait for news."""
        self.news.set()
        self.news = asyncio.Event()

    def begin(self, epoch, presence):
        """Leave the last epoch's room; numerics under way end there, and nobody hears of them."""
        if self.room is not None and self.threads is not None:
            self.room.close()
            self.threads.shutdown(wait=False)
            self.before = _Before(self.epoch, self.room, self.calls)
        self.epoch, self.presence, self.room, self.threads = epoch, presence, None, None
        self.calls = set()
        self.wake()

    async def furnish(self, epoch, room, program_since, opening_since):
        """Give an epoch its room, with shards of the last one that need not be read again.

        These are of epochs with the same program. What still works on them is waited for, but not longer than
        it would take to read them again.
        """
        before, self.before = self.before, None
        if before is not None and before.epoch >= program_since:
            patience = _PATIENCE + before.room.seconds
            _, late = await self.loop.run_in_executor(None, wait, list(before.calls), patience)
            if not late:
                as_they_are = before.epoch >= opening_since
                await self.loop.run_in_executor(None, room.take_over, before.room, as_they_are)
        if epoch == self.epoch:
            self.room, self.threads = room, ThreadPoolExecutor(room.n_threads, "stradask-room")
        elif self.epoch < _OVER:
            self.before = _Before(epoch, room, set())

    async def answer(self, function, *args):
        """Call ``function(room, *args)`` on a thread of the room; return what goes back to the caller."""
        call = self.threads.submit(answered, function, self.room, *args)
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)
        return await asyncio.wrap_future(call)

    def end(self):
        """Let go of everything."""
        self.begin(_OVER, "")
        if self.before is not None:
            self.before.room.clear()
            self.before = None
        self.gone.set()


def _call(room, method, args, shared, serial):
    if method not in _METHODS:
        raise StradaskError(f"a room has no method {shortened(method)} for others to call")
    function = getattr(room, method)
    args = Parcel(args).open() + (() if shared is None else (Parcel(shared).open(),))
    return function(*args) if serial is None else room.once(serial, function, *args)


def bring(session, epoch, address, shard, values):
    """Put what Dask holds into the room that wants it; a task, so that Dask finds or computes it again."""
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(NAME)
    seat = plugin and plugin._seat(session, epoch)
    if worker.address == address and seat is not None:
        seat.room.brought[shard] = values
