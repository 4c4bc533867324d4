"""The state of a session on one worker: shards, blocks, and the tasks done with them.

It knows no transport: `worker` and `cluster` call a `WorkerState` and carry its blocks.
"""

import pickle
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from distributed.protocol.pickle import dumps
from scipy import sparse

from ...errors import StradaskError, shortened
from ..program import Task
from ..stores.restoring import can_be_tried, differing
from ..stores.saved import is_saved, laid_over
from ..stores.shared_store import StoredPart, write_part
from ..threads import run_tasks
from .shards import Shards, StaleEpoch

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_SPARSE = ("csr", "csc", "coo", "bsr", "dia")


def payload_bytes(value):
    """Count the bytes of the arrays in a message or a partial result.

    That is arrays, plain values, scipy sparse matrices, and tuples, lists and dicts of them; TypeError for
    anything else, which would be pickled and differ from machine to machine.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.sessions.worker_state import payload_bytes
    >>> payload_bytes({"slope": np.zeros(10), "size": 10})
    80
    """
    kind = type(value)
    if kind in _PLAIN:
        return 0
    if isinstance(value, np.generic) or kind is np.ndarray:
        if value.dtype.hasobject:
            raise TypeError("an array of dtype object does not travel: give it a dtype of numbers or text")
        return value.nbytes
    if kind in (tuple, list):
        return sum(map(payload_bytes, value))
    if kind is dict:
        return sum(map(payload_bytes, value)) + sum(map(payload_bytes, value.values()))
    if sparse.issparse(value) and getattr(value, "format", "") in _SPARSE:
        return sum(part.nbytes for part in vars(value).values() if isinstance(part, np.ndarray))
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} does not travel: messages and partial results are arrays, "
        "plain values, scipy sparse matrices (csr, csc, coo, bsr, dia), and tuples, lists and dicts of them"
    )


@dataclass(frozen=True)
class Frames:
    """A packed object: the frames of its pickle and of its arrays' buffers, which are not copied."""

    frames: list

    @classmethod
    def of(cls, value):
        """Pack any object that pickles; classes of ``__main__`` and notebooks go by value."""
        buffers: list[pickle.PickleBuffer] = []
        head = dumps(value, buffer_callback=buffers.append)
        return cls([np.frombuffer(frame, np.uint8) for frame in (head, *(b.raw() for b in buffers))])

    def open(self):
        """Unpack; buffers that are read-only or misaligned are copied, for the kernels."""
        head, *buffers = self.frames
        return pickle.loads(head, buffers=[_usable(frame) for frame in buffers])


def _usable(frame):
    if isinstance(frame, bytes):
        return bytearray(frame)
    return frame if frame.ctypes.data % 16 == 0 else frame.copy()


class Assignment(NamedTuple):
    """One task of a call, for the worker that does it.

    Attributes
    ----------
    position : int
        Among all tasks of the call, on all workers: in the order of steps.
    step, shard, blocks
        See `Task`.
    stamp : int
        Transfers of the travelling block so far; -1 where blocks do not travel.
    to : str
        Worker that the block goes on to; "" if it stays.
    """

    position: int
    step: int
    shard: int
    blocks: Any
    stamp: int = -1
    to: str = ""


class WorkerState(Shards):
    """Shards and blocks of one session, in one epoch, on one worker.

    A new epoch has a new worker state: kernels that cannot be interrupted end in the old one, and their
    results are discarded. Tasks run on `n_threads`, those of one shard in order, those of several at the same
    time. ``send(to, block, stamp, value)`` hands a block on and returns a `concurrent.futures.Future`;
    ``fetch(worker, name, first, last)`` returns a part of an array that another worker keeps under a name;
    ``confirm()`` asks for the end of all sends, where they end late.

    Attributes
    ----------
    kept : dict
        Arrays that the program keeps here beside shards and blocks, by name.
    message : tuple
        Number and value of the newest `set_message`.
    spare : dict
        As `kept`, and passed on to the worker state of the next epoch.
    """

    def __init__(self, program, n_threads, send, fetch=None, spare=None, confirm=None):
        super().__init__(program, n_threads)
        self._send, self.fetch, self._confirm = send, fetch, confirm
        self._heard: dict[str, int] = {}  # the last message of each worker
        self.kept: dict[Any, Any] = {}
        self.message: tuple[int, Any] = (-1, None)
        self.spare = {} if spare is None else spare
        self.blocks: dict[int, np.ndarray] = {}
        self.stamps: dict[int, int] = {}
        self._delivered = threading.Condition(self._lock)  # transfers
        self._transfers: dict[Any, float] = {}  # when they set out
        self._effort: dict[str, Any] = {"sending": 0.0}  # of the present `run`
        self._answering = threading.Lock()
        self._answer: tuple[int, Any] = (-1, None)

    # Coming and going -------------------------------------------------------------------------------

    def close(self):
        """End the epoch: waiting calls raise `StaleEpoch`. Its shards are left to the next one."""
        self.fail(StaleEpoch("the session went on without this member"))
        with self.changed:
            transfers, self.blocks, self.dask_values = list(self._transfers), {}, {}
            self.kept, self.message = {}, (self.message[0], None)
        for transfer in transfers:
            transfer.cancel()

    def fail(self, error):
        """Wake all that wait, with an error; the first one counts."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()
            self._delivered.notify_all()

    def make_block(self, block, saved=None):
        """Make a travelling block, or restore its saved value."""
        value = self.program.block(block)
        if isinstance(saved, StoredPart):
            saved = saved.value()
        if saved is not None:
            value = laid_over(self.program, block, saved, value)
        else:
            self._packed(block, value)  # checks it
        self.put(block, 0, value)

    def _packed(self, block, value):
        packed = self.program.pack(block, value)
        if type(packed) is not np.ndarray or packed.dtype.hasobject:
            raise TypeError(
                f"a block that travels is an array of numbers, got {shortened(packed, 100)} for block {block}"
            )
        return packed

    def put(self, block, stamp, value):
        """Take a block; one that is not newer than the block here was sent twice."""
        with self.changed:
            self.check()
            if stamp > self.stamps.get(block, -1):
                self.stamps[block], self.blocks[block] = stamp, value
                self.changed.notify_all()

    def receive(self, block, stamp, packed):
        """Take a block from another worker; it is unpacked when it is used."""
        fits = type(block) is int and 0 <= block < self.program.n_blocks and type(stamp) is int and stamp >= 0
        if not fits or type(packed) is not np.ndarray or packed.dtype.hasobject:
            came = f"block {shortened(block, 40)}, stamp {shortened(stamp, 40)}, {type(packed).__name__}"
            raise StradaskError(f"{came} is not one that travels here, of {self.program.n_blocks}")
        self.put(block, stamp, _Packed(packed))

    def take_in(self, sender, number, blocks):
        """Take a message of blocks from another worker; return its number.

        Messages come in order, some twice. An error ends the epoch here: the sender may not wait for it.
        """
        try:
            if number > self._heard.get(sender, -1) + 1:
                raise StaleEpoch(f"a message of {sender} before number {number} did not come")
            for block, stamp, packed in Frames(blocks).open():
                self.receive(block, stamp, packed)
            self._heard[sender] = max(number, self._heard.get(sender, -1))
        except BaseException as error:
            self.fail(error)
            raise
        return (number,)

    def pass_on(self, block, stamp, value, to):
        """Put a block down here, or send it to another worker; return the bytes that were sent."""
        if not to:
            self.put(block, stamp, value)
            return 0
        began = time.monotonic()
        packed = value.array if type(value) is _Packed else self._packed(block, value)
        transfer = self._send(to, block, stamp, packed)
        with self.changed:
            self._transfers[transfer] = began
        transfer.add_done_callback(self._arrived)
        return packed.nbytes

    def _arrived(self, transfer):
        with self.changed:
            began = self._transfers.pop(transfer, None)
            if began is not None:
                ended = getattr(transfer, "written", None) or time.monotonic()
                self._effort["sending"] += ended - began
            self._delivered.notify_all()
        if not transfer.cancelled() and transfer.exception() is not None:
            self.fail(transfer.exception())

    # Requests of programs that need no rounds ---------------------------------------------------------

    def set_message(self, number, value):
        """Take a message to all workers; the one of the greatest number counts."""
        with self.changed:
            if number > self.message[0]:
                self.message = number, value

    def ask(self, name, *args):
        """Call a method of the program with this worker state."""
        self.begin()
        return getattr(self.program, name)(self, *args)

    # Calls: each ends when all that it sent has arrived -----------------------------------------------

    def once(self, serial, function, *args):
        """Answer a call, once: a repeat gets the same answer, when all blocks have arrived."""
        with self._answering:
            if self._answer[0] != serial:
                self.check()
                self._answer = -1, None  # it came, or there were no new call: a snapshot is large
                answer = function(*args)
                if self._transfers and self._confirm is not None:
                    self._confirm()
                with self._delivered:
                    while self._transfers and self.failure is None:
                        self._delivered.wait()
                    self.check()
                self._answer = serial, answer
            return self._answer[1]

    def run(self, round_, moves, assignments, messages):
        """Do tasks; return their partial results by position, and the effort.

        That is a dict: the seconds of ``working`` on each shard, of ``waiting`` for a block, and for which
        blocks were on their way to others, summed over blocks (``sending``); and the ``bytes`` of these.
        """
        effort: dict[str, Any] = {"sending": 0.0}
        self._effort = effort  # it grows until the last block has arrived, see `once`
        moved = 0
        for block, stamp, to in moves:
            moved += self.pass_on(block, stamp + 1, self._taken(block, stamp), to)
        self._sync(messages)
        work = _CallTasks(self, round_, assignments)
        work.carry_out()
        effort |= {"working": work.seconds, "waiting": work.waited, "bytes": moved + work.sent}
        return work.partials, effort

    def _taken(self, block, stamp):
        with self.changed:
            if self.stamps.get(block) != stamp or block not in self.blocks:
                raise StaleEpoch(f"block {block} is not here as it was {stamp} steps after its beginning")
            return self.blocks.pop(block)

    def measure(self, method, messages):
        """Call a method of the program for each shard; return results by shard."""
        self._sync(messages)
        shards, asked = sorted(self.states), getattr(self.program, method)
        parts = self._on_threads([(asked, (self.states[s],)) for s in shards])
        for part in parts:
            payload_bytes(part)
        return dict(zip(shards, parts, strict=True))

    def snapshot(self, blocks_only, messages):
        """Return copies of the saved arrays and of the blocks here."""
        self._sync(messages)
        arrays = {
            f"shard-{s}/{name}": state[name].copy()
            for s, state in self.states.items()
            for name in self.program.saved
            if not blocks_only and is_saved(self.program, s)
        }
        for block, value in self.blocks.items():
            packed = value.array if type(value) is _Packed else self._packed(block, value)
            arrays[f"block-{block}"] = packed.copy()
        return arrays

    def store(self, url, folder, messages):
        """Write the content of `snapshot` to a shared place; return the sizes of the files."""
        self._sync(messages)
        parts = {
            f"shard-{s}.npz": {name: state[name] for name in self.program.saved}
            for s, state in self.states.items()
            if is_saved(self.program, s)
        }
        for block, value in self.blocks.items():
            packed = value.array if type(value) is _Packed else self._packed(block, value)
            parts[f"block-{block}.npz"] = {"value": packed}
        tasks = [(write_part, (url, folder, name, arrays)) for name, arrays in parts.items()]
        return dict(zip(parts, self._on_threads(tasks), strict=True))

    def can_be_tried(self, shard):
        """Whether a shard's state is small enough for `differing`."""
        return can_be_tried(self.states[shard])

    def differing(self, shard, program, entry, trial):
        """Make a shard again from its entry, by the coordinator's present program."""
        return differing(program, self.states[shard], entry, trial)

    def _sync(self, messages):
        self.begin()
        for message in messages:
            self._on_threads([(self.program.sync, (state, message)) for state in self.states.values()])

    def _on_threads(self, tasks):
        return run_tasks(tasks, self.n_threads)


@dataclass(frozen=True)
class _Packed:
    """A block as it came from another worker."""

    array: np.ndarray


class _CallTasks:
    """The tasks of one call, done by the worker's threads as shards and blocks become free.

    A thread takes the first task, in the order of steps, whose shard is idle and whose block is here. No
    thread waits while there is such a task, so any number of threads completes any plan.
    """

    def __init__(self, worker_state, round_, assignments):
        self.worker_state, self.round = worker_state, round_
        self.chains: dict[int, deque] = defaultdict(
            deque
        )  # of each idle or working shard: what is left to do
        for assignment in sorted(assignments, key=lambda a: a.position):
            if assignment.shard not in worker_state.states:
                raise StaleEpoch(f"shard {assignment.shard} is not here")
            self.chains[assignment.shard].append(assignment)
        self.busy: set[int] = set()
        self.partials: dict[int, Any] = {}
        self.seconds: dict[int, float] = dict.fromkeys(self.chains, 0.0)
        self.sent, self.waited, self._idle_since = 0, 0.0, None

    def carry_out(self):
        n_threads = min(self.worker_state.n_threads, len(self.chains))
        run_tasks([self._work] * n_threads, max(n_threads, 1))
        self.worker_state.check()

    def _work(self):
        try:
            while (found := self._next()) is not None:
                self._do(*found)
        except BaseException as error:
            self.worker_state.fail(error)  # the other threads may be waiting for what this one will not send
            raise

    def _next(self):
        """Wait for a task that can be done; return it and its block, or None if all are taken."""
        worker_state = self.worker_state
        with worker_state.changed:
            while worker_state.failure is None:
                ready = [
                    c[0] for shard, c in self.chains.items() if shard not in self.busy and self._here(c[0])
                ]
                if ready:
                    return self._taken(min(ready, key=lambda a: a.position))
                if not self.chains:
                    return None
                if not self.busy and self._idle_since is None:
                    self._idle_since = time.monotonic()
                worker_state.changed.wait()
            return None

    def _here(self, a):
        return a.stamp < 0 or (
            self.worker_state.stamps.get(a.blocks) == a.stamp and a.blocks in self.worker_state.blocks
        )

    def _taken(self, a):
        if self._idle_since is not None:
            self.waited += time.monotonic() - self._idle_since
            self._idle_since = None
        chain = self.chains[a.shard]
        chain.popleft()
        if not chain:
            del self.chains[a.shard]
        self.busy.add(a.shard)
        return a, None if a.stamp < 0 else self.worker_state.blocks.pop(a.blocks)

    def _do(self, a, value):
        worker_state, began = self.worker_state, time.monotonic()
        if type(value) is _Packed:  # it may begin anywhere, and kernels want it aligned
            array = np.require(value.array, requirements=["ALIGNED", "WRITEABLE"])
            value = worker_state.program.unpack(a.blocks, array)
        partial = worker_state.program.update(
            worker_state.states[a.shard], Task(self.round, a.step, a.shard, a.blocks, value)
        )
        payload_bytes(partial)
        worked = time.monotonic() - began
        sent = 0 if a.stamp < 0 else worker_state.pass_on(a.blocks, a.stamp + 1, value, a.to)
        with worker_state.changed:
            self.partials[a.position] = partial
            self.seconds[a.shard] += worked
            self.sent += sent
            self.busy.discard(a.shard)
            worker_state.changed.notify_all()
