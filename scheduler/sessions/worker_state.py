"""A worker's part of a session: shards and blocks that lie there, and the tasks done with them.

Knows no transport: who calls a `Room`, and how it reaches others, is the matter of `members` and `cluster`.
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
from ..stores.saved import laid_over
from ..stores.shared_store import StoredPart, write_part
from ..threads import run_tasks
from .shards import Shards, StaleEpoch

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_SPARSE = ("csr", "csc", "coo", "bsr", "dia")


def payload_bytes(value):
    """Count the bytes of the arrays in a message or a partial result.

    Parameters
    ----------
    value : object
        Arrays, plain values, scipy sparse matrices, and tuples, lists and dicts of them.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If there is anything else in it: it would be pickled, and differ from machine to machine.

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
class Parcel:
    """An object on its way: its pickle, and the buffers of its arrays beside it, which are not copied.

    Attributes
    ----------
    frames : list of bytes or ndarray of uint8
        The pickle first.
    """

    frames: list

    @classmethod
    def of(cls, value):
        """Pack anything that pickles; classes of ``__main__`` and notebooks go by value."""
        buffers: list[pickle.PickleBuffer] = []
        head = dumps(value, buffer_callback=buffers.append)
        return cls([np.frombuffer(frame, np.uint8) for frame in (head, *(b.raw() for b in buffers))])

    def open(self):
        """Unpack; what cannot be written, or begins at an odd address, is moved: kernels want neither."""
        head, *buffers = self.frames
        return pickle.loads(head, buffers=[_usable(frame) for frame in buffers])


def _usable(frame):
    if isinstance(frame, bytes):
        return bytearray(frame)
    return frame if frame.ctypes.data % 16 == 0 else frame.copy()


class Assignment(NamedTuple):
    """One task of a call, as it is told to the member that does it.

    Attributes
    ----------
    position : int
        Among all tasks of the call, on all members: in the order of steps.
    step, shard, blocks
        See `Task`.
    stamp : int
        Updates and hops of the travelling block so far; -1 where blocks do not travel.
    to : str
        Member that the block goes on to; "" if it stays.
    """

    position: int
    step: int
    shard: int
    blocks: Any
    stamp: int = -1
    to: str = ""


class Room(Shards):
    """Shards and blocks of one session, in one epoch, on one member.

    A new epoch is a new room: numerics that cannot be interrupted end in the old one, where nobody hears
    of them.

    Parameters
    ----------
    program : Program
        Without its shards.
    n_threads : int
        On which tasks run; those of one shard in order, those of several at the same time.
    send : callable
        ``send(to, block, stamp, value)`` hands a block on and returns a `concurrent.futures.Future`.
    fetch : callable, optional
        ``fetch(member, name, first, last)`` returns a part of what another member keeps under a name.

    Attributes
    ----------
    kept : dict
        What the program keeps here beside shards and blocks: arrays, by name.
    told : tuple
        Number and value of what `tell` last brought.
    spare : dict
        As `kept`, and still there in the room of the next epoch.
    """

    def __init__(self, program, n_threads, send, fetch=None, spare=None):
        super().__init__(program, n_threads)
        self._send, self.fetch = send, fetch
        self.kept: dict[Any, Any] = {}
        self.told: tuple[int, Any] = (-1, None)
        self.spare = {} if spare is None else spare
        self.blocks: dict[int, np.ndarray] = {}
        self.stamps: dict[int, int] = {}
        self._delivered = threading.Condition(self._lock)  # hops
        self._hops: dict[Any, float] = {}  # when they set out
        self._effort: dict[str, Any] = {"sending": 0.0}  # of the present `run`
        self._answering = threading.Lock()
        self._answer: tuple[int, Any] = (-1, None)

    # Coming and going -------------------------------------------------------------------------------

    def close(self):
        """End the room: whoever waits in it wakes with `StaleEpoch`. Its shards are left to the next one."""
        self.fail(StaleEpoch("the session went on without this member"))
        with self.changed:
            hops, self.blocks, self.brought = list(self._hops), {}, {}
            self.kept, self.told = {}, (self.told[0], None)
        for hop in hops:
            hop.cancel()

    def fail(self, error):
        """Wake whoever waits, with an error; the first one counts."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()
            self._delivered.notify_all()

    def make_block(self, block, saved=None):
        """Make a travelling block, or take its saved value."""
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
        """Take in a block; one that is not newer than what was here has been sent twice."""
        with self.changed:
            self.check()
            if stamp > self.stamps.get(block, -1):
                self.stamps[block], self.blocks[block] = stamp, value
                self.changed.notify_all()

    def receive(self, block, stamp, packed):
        """Take in a block that comes from another member; who uses it unpacks it."""
        fits = type(block) is int and 0 <= block < self.program.n_blocks and type(stamp) is int and stamp >= 0
        if not fits or type(packed) is not np.ndarray or packed.dtype.hasobject:
            came = f"block {shortened(block, 40)}, stamp {shortened(stamp, 40)}, {type(packed).__name__}"
            raise StradaskError(f"{came} is not one that travels here, of {self.program.n_blocks}")
        self.put(block, stamp, _Packed(packed))

    def pass_on(self, block, stamp, value, to):
        """Put a block down here, or send it to another member; return the bytes that were sent."""
        if not to:
            self.put(block, stamp, value)
            return 0
        began = time.monotonic()
        packed = value.array if type(value) is _Packed else self._packed(block, value)
        hop = self._send(to, block, stamp, packed)
        with self.changed:
            self._hops[hop] = began
        hop.add_done_callback(self._arrived)
        return packed.nbytes

    def _arrived(self, hop):
        with self.changed:
            began = self._hops.pop(hop, None)
            if began is not None:
                self._effort["sending"] += time.monotonic() - began
            self._delivered.notify_all()
        if not hop.cancelled() and hop.exception() is not None:
            self.fail(hop.exception())

    # Requests of programs that need no rounds ---------------------------------------------------------

    def tell(self, number, value):
        """Take in what all members are told; of numbers the greatest counts."""
        with self.changed:
            if number > self.told[0]:
                self.told = number, value

    def ask(self, name, *args):
        """Call a method of the program with this room."""
        self.begin()
        return getattr(self.program, name)(self, *args)

    # Calls: each ends when all that it sent has arrived -----------------------------------------------

    def once(self, serial, function, *args):
        """Answer a call; one that comes twice is not carried out twice."""
        with self._answering:
            if self._answer[0] != serial:
                self.check()
                answer = function(*args)
                with self._delivered:
                    while self._hops and self.failure is None:
                        self._delivered.wait()
                    self.check()
                self._answer = serial, answer
            return self._answer[1]

    def run(self, round_, moves, assignments, messages):
        """Do tasks; return their partial results by position, and what it took.

        That is a dict: the seconds of ``working`` on each shard, of ``waiting`` for a block, and for which
        blocks were on their way to others, summed over blocks (``sending``); and the ``bytes`` of these.
        """
        effort: dict[str, Any] = {"sending": 0.0}
        self._effort = effort  # it grows until the last block has arrived, see `once`
        moved = 0
        for block, stamp, to in moves:
            moved += self.pass_on(block, stamp + 1, self._taken(block, stamp), to)
        self._sync(messages)
        work = _Itinerary(self, round_, assignments)
        work.carry_out()
        effort |= {"working": work.seconds, "waiting": work.waited, "bytes": moved + work.sent}
        return work.partials, effort

    def _taken(self, block, stamp):
        with self.changed:
            if self.stamps.get(block) != stamp or block not in self.blocks:
                raise StaleEpoch(f"block {block} is not here as it was {stamp} steps after its beginning")
            return self.blocks.pop(block)

    def measure(self, method, messages):
        """Return what a method of the program says of each shard."""
        self._sync(messages)
        shards, asked = sorted(self.states), getattr(self.program, method)
        parts = self._on_threads([(asked, (self.states[s],)) for s in shards])
        for part in parts:
            payload_bytes(part)
        return dict(zip(shards, parts, strict=True))

    def snapshot(self, blocks_only, messages):
        """Return copies of what `Program.saved` names and of the blocks here."""
        self._sync(messages)
        arrays = {
            f"shard-{s}/{name}": state[name].copy()
            for s, state in self.states.items()
            for name in self.program.saved
            if not blocks_only
        }
        for block, value in self.blocks.items():
            packed = value.array if type(value) is _Packed else self._packed(block, value)
            arrays[f"block-{block}"] = packed.copy()
        return arrays

    def store(self, url, folder, messages):
        """Write what `snapshot` would copy to a shared place; return the sizes of the files."""
        self._sync(messages)
        parts = {
            f"shard-{s}.npz": {name: state[name] for name in self.program.saved}
            for s, state in self.states.items()
            if self.program.saved
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
        """Make a shard again from its entry, by the program as it is at the coordinator now."""
        return differing(program, self.states[shard], entry, trial)

    def _sync(self, messages):
        self.begin()
        for message in messages:
            self._on_threads([(self.program.sync, (state, message)) for state in self.states.values()])

    def _on_threads(self, tasks):
        return run_tasks(tasks, self.n_threads)


@dataclass(frozen=True)
class _Packed:
    """A block as it came from another member."""

    array: np.ndarray


class _Itinerary:
    """The tasks of one call, worked off by a room's threads as shards and blocks come free.

    A thread takes the first task, in the order of steps, whose shard is idle and whose block is here. No
    thread waits while there is such a task, so any number of threads gets through any plan.
    """

    def __init__(self, room, round_, assignments):
        self.room, self.round = room, round_
        self.chains: dict[int, deque] = defaultdict(
            deque
        )  # of each idle or working shard: what is left to do
        for assignment in sorted(assignments, key=lambda a: a.position):
            if assignment.shard not in room.states:
                raise StaleEpoch(f"shard {assignment.shard} is not here")
            self.chains[assignment.shard].append(assignment)
        self.busy: set[int] = set()
        self.partials: dict[int, Any] = {}
        self.seconds: dict[int, float] = dict.fromkeys(self.chains, 0.0)
        self.sent, self.waited, self._idle_since = 0, 0.0, None

    def carry_out(self):
        n_threads = min(self.room.n_threads, len(self.chains))
        run_tasks([self._work] * n_threads, max(n_threads, 1))
        self.room.check()

    def _work(self):
        try:
            while (found := self._next()) is not None:
                self._do(*found)
        except BaseException as error:
            self.room.fail(error)  # the other threads may be waiting for what this one will not send
            raise

    def _next(self):
        """Wait for a task that can be done; return it and its block, or None if all are taken."""
        room = self.room
        with room.changed:
            while room.failure is None:
                ready = [
                    c[0] for shard, c in self.chains.items() if shard not in self.busy and self._here(c[0])
                ]
                if ready:
                    return self._taken(min(ready, key=lambda a: a.position))
                if not self.chains:
                    return None
                if not self.busy and self._idle_since is None:
                    self._idle_since = time.monotonic()
                room.changed.wait()
            return None

    def _here(self, a):
        return a.stamp < 0 or (self.room.stamps.get(a.blocks) == a.stamp and a.blocks in self.room.blocks)

    def _taken(self, a):
        if self._idle_since is not None:
            self.waited += time.monotonic() - self._idle_since
            self._idle_since = None
        chain = self.chains[a.shard]
        chain.popleft()
        if not chain:
            del self.chains[a.shard]
        self.busy.add(a.shard)
        return a, None if a.stamp < 0 else self.room.blocks.pop(a.blocks)

    def _do(self, a, value):
        room, began = self.room, time.monotonic()
        if type(value) is _Packed:  # it may begin anywhere, and kernels want it aligned
            array = np.require(value.array, requirements=["ALIGNED", "WRITEABLE"])
            value = room.program.unpack(a.blocks, array)
        partial = room.program.update(
            room.states[a.shard], Task(self.round, a.step, a.shard, a.blocks, value)
        )
        payload_bytes(partial)
        worked = time.monotonic() - began
        sent = 0 if a.stamp < 0 else room.pass_on(a.blocks, a.stamp + 1, value, a.to)
        with room.changed:
            self.partials[a.position] = partial
            self.seconds[a.shard] += worked
            self.sent += sent
            self.busy.discard(a.shard)
            room.changed.notify_all()
