"""The plugin that makes a Dask worker part of sessions, with handlers of its own.

An actor dies for good with its worker, and a task for every update costs milliseconds in the scheduler; a
plugin is put on every worker that joins, and its handlers cost one round trip. They only look things up:
arithmetic runs on other threads, so that a worker always answers.
"""

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import distributed

from ..._version import __version__
from ...errors import StradaskError, shortened
from ..stores.shared_store import answer_word
from ..threads import effective_n_jobs
from .keep_alive import KeepAlivePlugin
from .payloads import Frames, answered, bytes_of, failure, not_here, refused, wired
from .streams import Streams
from .worker_state import WorkerState, copies_in, forget_copies, hold_copy

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
    "measure_blocks",
    "snapshot",
    "saved_bytes",
    "copy",
    "store",
    "can_be_tried",
    "differing",
    "fault",
)


class SessionPlugin(KeepAlivePlugin):
    """The worker sessions of one worker, and their handlers."""

    name = NAME

    answers_to = (
        "ping",
        "probe",
        "open",
        "load",
        "call",
        "put",
        "look",
        "hold",
        "held",
        "forget",
        "hand_on",
        "drop",
    )

    async def teardown(self, worker):
        """Wait, while the worker still answers, until the coordinator has moved the shards away.

        A worker state without shards is no sign: its last block may still be on the way.
        """
        end = time.monotonic() + _LINGER
        while self.worker_sessions and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await super().teardown(worker)

    # Handlers -------------------------------------------------------------------------------------

    async def ping(self):
        """Answer with the version of stradask."""
        return {"ok": wired(__version__)}

    async def probe(self, session, url, word, number):
        """Check that a place for checkpoints is the same here as where the word was written."""
        answering = answer_word, url, word, self.worker.address, number
        return await asyncio.get_running_loop().run_in_executor(None, answered, *answering)

    async def open(self, session, version, **message):
        """Begin an epoch; answer with the shards of the last one that need not be read again."""
        return refused(version) or await self._open(session, **message)

    async def _open(self, session, epoch, keep_alive, program, n_jobs, same):
        local = self.worker_sessions.setdefault(session, WorkerSession())
        if epoch < local.epoch:
            return not_here(epoch)
        if epoch > local.epoch:  # else the message came twice
            local.begin(epoch, keep_alive)
        try:  # this imports the program's module, which may take a while
            program = await local.loop.run_in_executor(None, Frames(program).open)
            if program.on_disk:
                program.arrive(self.worker.local_directory)
        except Exception as error:
            return failure(error)
        finally:
            self.expect_keep_alive(session, epoch)
        n_threads = self.worker.state.nthreads if n_jobs is None else effective_n_jobs(n_jobs)
        async with local.filling:
            if local.epoch == epoch and local.state is None:
                about = {"session": session, "epoch": epoch, "sender": self.worker.address}
                local.streams = Streams(self.pool, self.loop, **about)
                ways = local.streams.send, self._fetcher(session, epoch)
                reach = self._reacher(session)
                state = WorkerState(program, n_threads, *ways, local.spare, local.streams.confirm, reach)
                try:
                    await local.fill(epoch, state, *same)
                except Exception as error:  # of the program's
                    return failure(error)
            if local.epoch != epoch:
                return not_here(epoch)
            return {"ok": wired(sorted(local.state.left))}

    async def call(self, session, epoch, method, args, shared=None, serial=None, needs=-1, broadcast=None):
        """Call a method of the worker state on its threads; with a serial number, once.

        Its arguments are `args` and, last, `shared`: the same for several workers, packed once. The call
        waits, on no thread, until the worker state has a message numbered `needs` (or later): the `broadcast`
        of this call, or of another one that may be on its way.
        """
        if broadcast is not None and (local := self._local(session, epoch)) is not None:
            local.state.set_message(needs, Frames(broadcast).open())
            local.wake()
        while (local := self._local(session, epoch)) is not None and local.state.message[0] < needs:
            await local.message_came.wait()
        return not_here(epoch) if local is None else await local.answer(_call, method, args, shared, serial)

    def put(self, session, epoch, sender, number, blocks):
        """Take in a message of blocks; mostly no caller waits for the answer (see `streams`)."""
        local = self._local(session, epoch)
        return not_here(epoch) if local is None else answered(local.state.take_in, sender, number, blocks)

    async def look(self, session, epoch, name, first, last):
        """Return a part of an array that the program keeps here under a name."""
        local = self._local(session, epoch)
        if local is None or name not in local.state.kept:
            return not_here(epoch)
        return {"ok": wired(local.state.kept[name][first:last])}

    async def hold(self, session, number, name, arrays):
        """Keep a part of a snapshot for another worker."""
        if (local := self.worker_sessions.get(session)) is None:
            return not_here(number)
        files = None if local.state is None else local.state.program.files
        holding = answered, hold_copy, local.spare, number, name, Frames(arrays), files
        return await local.loop.run_in_executor(None, *holding)

    async def held(self, session, number, name):
        """Return a part of a snapshot that is kept here, in whatever epoch."""
        local = self.worker_sessions.get(session)
        arrays = None if local is None else copies_in(local.spare, number).get(name)
        return not_here(number) if arrays is None else {"ok": wired(arrays)}

    async def forget(self, session, before):
        """Let go of snapshots that newer ones have replaced."""
        if (local := self.worker_sessions.get(session)) is not None:
            forget_copies(local.spare, before)
        return {"ok": []}

    async def hand_on(self, session, epoch, shard, to):
        """Send a shard's state to another worker and release it; answer with its bytes."""
        local = self._local(session, epoch)
        if local is None or shard not in local.state.states:
            return not_here(epoch)
        state = local.state  # another one may be there when the shard has arrived
        packed = await local.answer(WorkerState.state, shard)
        if "ok" not in packed:
            return packed
        message = {"session": session, "epoch": epoch, "method": "adopt", "args": wired((shard,))}
        try:
            await self.reach(to, "call", shared=packed["ok"] or wired(None), **message)
        except Exception as error:
            return failure(error)
        state.states.pop(shard, None)
        return {"ok": wired(sum(map(bytes_of, packed["ok"])))}

    async def drop(self, session):
        """End a session here."""
        self.end_session(session)
        return {"ok": []}

    async def load(self, session, epoch, shard, keys, args):
        """Load a shard whose Dask values are here under these keys; answer False if one is not."""
        local, data = self._local(session, epoch), self.worker.data
        if local is not None:
            if not all(key in data for key in keys):
                return {"ok": wired(False)}
            if shard not in local.state.states:  # else the message came twice
                local.state.dask_values[shard] = [data[key] for key in keys]
        return await self.call(session, epoch, "load", args)

    def _local(self, session, epoch):
        local = self.worker_sessions.get(session)
        return None if local is None or local.epoch != epoch or local.state is None else local

    # Other workers ------------------------------------------------------------------------------------

    def _reacher(self, session):
        """Make the function that calls other workers for this session; `arrays` are packed."""

        def reach(to, handler, **message):
            if "arrays" in message:
                message["arrays"] = wired(message["arrays"])
            return self.reach_from_thread(to, handler, session=session, **message)

        return reach

    def _fetcher(self, session, epoch):
        """Make the function that reads, on a thread, what another worker keeps."""

        def fetch(to, name, first, last):
            message = {"session": session, "epoch": epoch, "name": name, "first": first, "last": last}
            return self.reach_from_thread(to, "look", **message).result()

        return fetch


class _Before(NamedTuple):
    """The worker state of an epoch that is over."""

    epoch: int
    state: WorkerState
    calls: set[Future]  # that may still run in it


class WorkerSession:
    """One session on one worker: epoch, worker state, threads. Changed on the event loop only."""

    def __init__(self):
        self.before: _Before | None = None
        self.filling = asyncio.Lock()
        self.calls: set[Future] = set()  # that run in the worker state
        self.epoch, self.keep_alive = -1, ""
        self.spare: dict[str, Any] = {}
        self.state: WorkerState | None = None
        self.threads: Any = None
        self.streams: Streams | None = None
        self.gone, self.loop = asyncio.Event(), asyncio.get_running_loop()
        self.message_came = asyncio.Event()  # set, and replaced, when a call that waits should look again

    def wake(self):
        """Let waiting calls look again."""
        self.message_came.set()
        self.message_came = asyncio.Event()

    def begin(self, epoch, keep_alive):
        """Leave the last epoch's worker state; results of running kernels are discarded."""
        if self.streams is not None:
            self.streams.close()
        if self.state is not None and self.threads is not None:
            self.state.close()
            self.threads.shutdown(wait=False)
            self.before = _Before(self.epoch, self.state, self.calls)
        self.epoch, self.keep_alive, self.state, self.threads = epoch, keep_alive, None, None
        self.calls = set()
        self.wake()

    async def fill(self, epoch, state, program_since, opening_since):
        """Give an epoch its worker state, with shards of the last one that need not be read again.

        These are of epochs with the same program. Calls that still work on them are waited for, but not
        longer than it would take to read them again.
        """
        before, self.before = self.before, None
        if before is not None and before.epoch >= program_since:
            patience = _PATIENCE + before.state.seconds
            _, late = await self.loop.run_in_executor(None, wait, list(before.calls), patience)
            if not late:
                as_they_are = before.epoch >= opening_since
                await self.loop.run_in_executor(None, state.take_over, before.state, as_they_are)
        if epoch == self.epoch:
            self.state, self.threads = state, ThreadPoolExecutor(state.n_threads, "stradask-session")
        elif self.epoch < _OVER:
            self.before = _Before(epoch, state, set())

    async def answer(self, function, *args):
        """Call ``function(state, *args)`` on a thread; return the packed answer."""
        call = self.threads.submit(answered, function, self.state, *args)
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)
        return await asyncio.wrap_future(call)

    def end(self):
        """Release everything."""
        self.begin(_OVER, "")
        if self.before is not None:
            self.before.state.clear()
            self.before = None
        self.gone.set()


def _call(state, method, args, shared, serial):
    if method not in _METHODS:
        raise StradaskError(f"a worker state has no method {shortened(method)} for others to call")
    function = getattr(state, method)
    args = Frames(args).open() + (() if shared is None else (Frames(shared).open(),))
    return function(*args) if serial is None else state.once(serial, function, *args)


def deliver_values(session, epoch, address, shard, values):
    """Put Dask's values into a worker state; a task, so that Dask finds or computes them again."""
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(NAME)
    local = plugin and plugin._local(session, epoch)
    if worker.address == address and local is not None:
        local.state.dask_values[shard] = values
