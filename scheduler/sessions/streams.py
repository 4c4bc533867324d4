"""Streams of blocks from a worker to others: messages one way, confirmed now and then."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError

from ...errors import WorkerLost
from .payloads import opened, payload_bytes, wired

_SMALL = 2**18  # bytes: a larger message is confirmed at once, which adds little to its time
_ON_THE_WAY = 2**26  # bytes that are not confirmed, besides one message
_CONFIRMED, _KEPT = 64, 2**20  # small messages, and their bytes, of which the last is confirmed: all are kept


class Transfer(Future):
    """A block, or what is joined, on its way; done when it has arrived.

    Attributes
    ----------
    nbytes : int
        Of its arrays.
    written : float or None
        When it was handed to the network, by `time.monotonic`, if no caller waits for an answer then.
    """

    written: float | None = None

    def __init__(self, nbytes):
        super().__init__()
        self.nbytes = nbytes


class _Message:
    """Blocks that go together: (block, stamp, value, transfer) of each."""

    def __init__(self, number, parts, asks):
        self.number, self.parts = number, parts
        self.nbytes = sum(transfer.nbytes for *_, transfer in parts)
        self.asks = asks or self.nbytes > _SMALL or not (number + 1) % _CONFIRMED


class _Stream:
    """The way to one worker. What threads send while a message is written goes together in the next one.

    No caller waits for an answer: the receiver counts the messages, which come in order, and an answer to one
    confirms all before it. If the connection breaks, messages that are not confirmed are written again, and
    the receiver recognises repeats by the stamps of blocks.
    """

    def __init__(self, pool, loop, to, about):
        self._pool, self._loop, self._to, self._about = pool, loop, to, about
        self._queue: deque = deque()  # parts of messages; None asks for an answer
        self._awake = False  # whether the event loop will look at the queue
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._unconfirmed: deque[_Message] = deque()
        self._n_sent = self._n_written = 0  # messages: made, and written once or more
        self._nbytes = self._unasked = 0  # of unconfirmed messages; of those since the last that asks
        self._task: asyncio.Task | None = None
        self._failure: Exception | None = None

    def put(self, *parts):
        """Send parts of one message, or ask for an answer by None; on any thread."""
        self._queue.extend(parts)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._wake)

    # On the event loop ------------------------------------------------------------------------------

    def _wake(self):
        self._awake = False
        self._news.set()
        if self._failure is not None:
            self.fail(self._failure)
        elif self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def fail(self, error):
        """End the stream: all that has not arrived gets this error."""
        self._failure = error
        parts = [part for message in self._unconfirmed for part in message.parts]
        while self._queue:
            part = self._queue.popleft()
            parts += [] if part is None else [part]
        self._unconfirmed.clear()
        for *_, transfer in parts:
            with contextlib.suppress(InvalidStateError):  # cancelled
                transfer.set_exception(error)

    def close(self):
        """End the stream and its connection."""
        self.fail(WorkerLost("the session went on without this worker"))
        if self._task is not None:
            self._task.cancel()

    async def _run(self):
        """Write what comes; a second time if the connection breaks."""
        attempts = 2
        while self._failure is None:
            before = self._progress()
            try:
                await self._connect_and_write()
            except (OSError, RuntimeError) as error:  # RuntimeError: our pool is closed
                if not self._unconfirmed and not self._queue:  # it broke when nothing was sent
                    break
                attempts = attempts - 1 if before == self._progress() else 1
                if isinstance(error, RuntimeError) or not attempts:
                    self.fail(WorkerLost(f"{self._to} cannot be reached: {error}"))
        self._task = None

    def _progress(self):
        """Return how many messages were written, and how many confirmed."""
        return self._n_written, self._n_sent - len(self._unconfirmed)

    async def _connect_and_write(self):
        comm = await self._pool.connect(self._to)
        reading, writing = (asyncio.ensure_future(way(comm)) for way in (self._read, self._write_all))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):
                if task.done():
                    task.result()
        finally:
            for task in (reading, writing):
                task.cancel()
                task.add_done_callback(_look_at)
            comm.abort()
            self._pool.reuse(self._to, comm)

    async def _write_all(self, comm):
        for message in tuple(self._unconfirmed):  # of a connection that broke
            await self._write(comm, message)
        while True:
            while self._queue:
                if self._nbytes > _ON_THE_WAY:
                    self._room.clear()
                    await self._room.wait()
                message = self._next_message()
                if message.parts or (self._unconfirmed and not self._unconfirmed[-1].asks):
                    self._n_sent += 1
                    self._nbytes += message.nbytes
                    self._unconfirmed.append(message)
                    await self._write(comm, message)
            self._news.clear()
            if not self._queue:
                await self._news.wait()

    def _next_message(self):
        parts, asks, nbytes = [], False, 0
        while self._queue and nbytes <= _SMALL:
            part = self._queue.popleft()
            if part is None:
                asks = True
            else:
                parts.append(part)
                nbytes += part[3].nbytes
        message = _Message(self._n_sent, parts, asks or self._unasked + nbytes > _KEPT)
        self._unasked = 0 if message.asks else self._unasked + nbytes
        return message

    async def _write(self, comm, message):
        blocks = wired([part[:3] for part in message.parts])
        call = {"op": "stradask_put", "reply": message.asks, "number": message.number, "blocks": blocks}
        await comm.write(call | self._about)
        self._n_written = max(self._n_written, message.number + 1)
        if not message.asks:
            for *_, transfer in message.parts:
                transfer.written = time.monotonic()

    async def _read(self, comm):
        while True:
            answer = await comm.read()
            try:
                (number,) = opened(answer, self._to)
            except Exception as error:  # the receiver's
                self.fail(error)
                return
            while self._unconfirmed and self._unconfirmed[0].number <= number:
                message = self._unconfirmed.popleft()
                self._nbytes -= message.nbytes
                for *_, transfer in message.parts:
                    with contextlib.suppress(InvalidStateError):  # cancelled
                        transfer.set_result(None)
            self._room.set()


class Streams:
    """The streams from a worker, to any others, in one epoch of a session.

    Parameters
    ----------
    pool : ConnectionPool
    loop : event loop
    about : dict
        What the receiver's handler gets with each message.
    """

    def __init__(self, pool, loop, **about):
        self._pool, self._loop, self._about = pool, loop, about
        self._lock, self._closed = threading.Lock(), False
        self._streams: dict[str, _Stream] = {}

    def send(self, to, blocks):
        """Send (block, stamp, value) of several blocks, from any thread; return a `Transfer` of each.

        Instead of a block's number there may be a name, of another value. They go in one message, unless
        they are large.
        """
        transfers = [Transfer(payload_bytes(value)) for _, _, value in blocks]
        parts = [
            (block if type(block) is str else int(block), stamp, value, transfer)
            for (block, stamp, value), transfer in zip(blocks, transfers, strict=True)
        ]
        try:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the session went on")
                if to not in self._streams:
                    self._streams[to] = _Stream(self._pool, self._loop, to, self._about)
            self._streams[to].put(*parts)
        except RuntimeError as error:  # or the loop is closed: this process ends
            for transfer in transfers:
                with contextlib.suppress(InvalidStateError):
                    transfer.set_exception(WorkerLost(f"the worker is closing: {error}"))
        return transfers

    def confirm(self):
        """Ask the receivers to confirm what was sent; on any thread."""
        with self._lock, contextlib.suppress(RuntimeError):  # as in `send`, where the transfers fail
            for stream in self._streams.values():
                stream.put(None)

    def close(self):
        """End all streams; on the event loop."""
        with self._lock:
            self._closed = True
        for stream in self._streams.values():
            stream.close()


def _look_at(task):
    """Retrieve the exception of a task that is over: asyncio would print it."""
    if not task.cancelled():
        task.exception()
