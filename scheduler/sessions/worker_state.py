"""The state of a session on one worker: shards, blocks, and the tasks done with them.

It knows no transport: `worker` and `cluster` call a `WorkerState` and carry its blocks.
"""

import contextlib
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np

from ...errors import StradaskError, WorkerLost, shortened
from ..stores.copies import CopiedPart, CopiesLost, narrowed
from ..stores.saved import can_be_tried, differing, is_saved, laid_over
from ..stores.shared_store import StoredPart, write_part
from ..stores.trial import fault
from ..threads import run_tasks
from .call_tasks import CallTasks, Packed
from .payloads import Frames, payload_bytes
from .routes import Barriers, joined_by_all
from .shards import Shards, StaleEpoch

_COPIES = "copies"  # begins the keys of kept snapshots in `WorkerState.spare`; their numbers follow
_LARGE = 2**18  # bytes of a block that waits, from which on it does so in a file where there are any
_JOINED = "joined"  # the name of what workers give one another at barriers, in place of a block's number


def copies_in(spare, number):
    """Return the parts of a kept snapshot that are here, by name."""
    return spare.get((_COPIES, number), ({}, None))[0]


def hold_copy(spare, number, name, arrays, files=None):
    """Keep a part of a snapshot, `Frames` of another worker's; in files if `Program.files` makes some."""
    arrays = arrays.open() if type(arrays) is Frames else arrays
    copies, storage = spare.setdefault((_COPIES, number), ({}, files and files()))
    if storage is not None:
        arrays = {key: (storage.put(array), dtype) for key, (array, dtype) in arrays.items()}
    copies[name] = arrays


def forget_copies(spare, before):
    """Let go of kept snapshots of lower numbers."""
    for key in [key for key in spare if type(key) is tuple and key[0] == _COPIES and key[1] < before]:
        del spare[key]


class WorkerState(Shards):
    """Shards and blocks of one session, in one epoch, on one worker.

    A new epoch has a new worker state: kernels that cannot be interrupted end in the old one, and their
    results are discarded. Tasks run on `n_threads`, those of one shard in order, those of several at the same
    time. ``send(to, [(block, stamp, value), ...])`` hands blocks on and returns a `concurrent.futures.Future`
    of each;
    ``fetch(worker, name, first, last)`` returns a part of an array that another worker keeps under a name;
    ``confirm()`` asks for the end of all sends, where they end late; ``reach(worker, handler, **message)``
    calls a handler of another worker, and returns a `Future`.

    Attributes
    ----------
    kept : dict
        Arrays that the program keeps here in addition to shards and blocks, by name.
    message : tuple
        Number and value of the newest `set_message`.
    spare : dict
        As `kept`, and passed on to the worker state of the next epoch.
    """

    def __init__(self, program, n_threads, send, fetch=None, spare=None, confirm=None, reach=None):
        super().__init__(program, n_threads)
        self._send, self.fetch, self._confirm, self._reach = send, fetch, confirm, reach
        self._heard: dict[str, int] = {}  # the last message of each worker
        self.kept: dict[Any, Any] = {}
        self.message: tuple[int, Any] = (-1, None)
        self.spare = {} if spare is None else spare
        self.blocks: dict[int, np.ndarray] = {}
        self.stamps: dict[int, int] = {}
        self._came: dict[tuple, Any] = {}  # what others gave for a barrier, by sender and barrier
        self._delivered = threading.Condition(self._lock)  # transfers
        self._transfers: dict[Any, float | None] = {}  # when they set out, of blocks
        self._effort: dict[str, Any] = {"sending": 0.0}  # of the present `run`
        self._answering = threading.Lock()
        self._answer: tuple[int, Any] = (-1, None)

    # Coming and going -------------------------------------------------------------------------------

    def close(self):
        """End the epoch: waiting calls raise `StaleEpoch`. Its shards are left to the next one."""
        self.fail(StaleEpoch("the session went on without this worker"))
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
        if isinstance(saved, CopiedPart):
            saved = self.read(saved)["value"]
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
        files = self.program.files() if packed.nbytes > _LARGE else None
        self.put(block, stamp, Packed(packed if files is None else files.put(packed)))

    def take_in(self, sender, number, blocks):
        """Take a message of blocks from another worker; return its number.

        Messages come in order, some twice. An error ends the epoch here: the sender may not wait for it.
        """
        try:
            if number > self._heard.get(sender, -1) + 1:
                raise StaleEpoch(f"a message of {sender} before number {number} did not come")
            for block, stamp, packed in Frames(blocks).open():
                if block == _JOINED:
                    self._take_joined(sender, stamp, packed)
                else:
                    self.receive(block, stamp, packed)
            self._heard[sender] = max(number, self._heard.get(sender, -1))
        except BaseException as error:
            self.fail(error)
            raise
        return (number,)

    def packed(self, block, value):
        """Return a block as it travels."""
        return value.array if type(value) is Packed else self._packed(block, value)

    def send_off(self, to, blocks, began=None):
        """Send blocks, (number, stamp, packed) of each, to another worker; they set out at `began`."""
        transfers = self._send(to, blocks)
        with self.changed:
            self._transfers.update(dict.fromkeys(transfers, began))
        for transfer in transfers:
            transfer.add_done_callback(self._arrived)

    def _arrived(self, transfer):
        with self.changed:
            began = self._transfers.pop(transfer, None)
            if began is not None:
                ended = getattr(transfer, "written", None) or time.monotonic()
                self._effort["sending"] += ended - began
            self._delivered.notify_all()
        if not transfer.cancelled() and transfer.exception() is not None:
            self.fail(transfer.exception())

    # What workers put together at barriers ------------------------------------------------------------

    def _take_joined(self, sender, barrier, value):
        with self.changed:
            self._came[sender, barrier] = value
            self.changed.notify_all()

    def join(self, own, barriers, barrier):
        """Join a value with those of all workers; return it, and the bytes that were sent."""
        sent = 0

        def give(to, value):
            nonlocal sent
            sent += payload_bytes(value)
            self.send_off(barriers.workers[to], [(_JOINED, barrier, value)])

        def take(other):
            key = barriers.workers[other], barrier
            with self.changed:
                while key not in self._came:
                    self.check()
                    self.changed.wait()
                return self._came.pop(key)

        return joined_by_all(self.program.join, own, barriers, give, take), sent

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

    def run(self, round_, moves, assignments, barriers, messages):
        """Do tasks; return their partial results by position, the effort, and what was joined.

        That is a dict: the seconds of ``working`` on each shard, of ``waiting`` for a block, and for which
        blocks were on their way to others, summed over blocks (``sending``); and the ``bytes`` of these.
        """
        effort: dict[str, Any] = {"sending": 0.0}
        self._effort = effort  # it grows until the last block has arrived, see `once`
        moved, leaving, began = 0, defaultdict(list), time.monotonic()
        for block, stamp, to in moves:
            leaving[to].append((block, stamp + 1, self.packed(block, self._taken(block, stamp))))
            moved += leaving[to][-1][2].nbytes
        for to, blocks in leaving.items():
            self.send_off(to, blocks, began)
        self._sync(messages)
        with self.changed:  # others may be at this round; what is left of earlier ones came twice
            self._came = {key: value for key, value in self._came.items() if key[1][0] >= round_}
        joins = None if barriers is None else Barriers(*barriers)
        work = CallTasks(self, round_, assignments, joins)
        work.carry_out()
        effort |= {"working": work.seconds, "waiting": work.waited, "bytes": moved + work.sent}
        tells = joins is not None and not joins.rank  # all have the same
        return work.partials, effort, work.joined if tells else None

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

    def measure_blocks(self, method, args, messages):
        """Call a method of the program for each block here; return results by block."""
        self._sync(messages)
        asked = getattr(self.program, method)

        def measured(block, value):
            value = self.program.unpack(block, value.usable()) if type(value) is Packed else value
            return asked(block, value, *args)

        with self.changed:
            here = sorted(self.blocks.items())
        parts = self._on_threads([(measured, one) for one in here])
        for part in parts:
            payload_bytes(part)
        return {block: part for (block, _), part in zip(here, parts, strict=True)}

    def snapshot(self, messages):
        """Return copies of the saved arrays and of the blocks here."""
        self._sync(messages)
        arrays = {
            f"shard-{s}/{name}": state[name].copy()
            for s, state in self.states.items()
            for name in self.program.saved
            if is_saved(self.program, s)
        }
        arrays.update((f"block-{block}", packed.copy()) for block, packed in self._packed_blocks())
        return arrays

    def _packed_blocks(self):
        for block, value in self.blocks.items():
            yield block, value.array if type(value) is Packed else self._packed(block, value)

    # Snapshots that workers keep ----------------------------------------------------------------------

    def saved_bytes(self):
        """Count the bytes of saved arrays, and of blocks that are arrays or packed."""
        arrays = [state[name] for state in self.states.values() for name in self.program.saved]
        arrays += [value.array if type(value) is Packed else value for value in self.blocks.values()]
        return (sum(getattr(array, "nbytes", 0) for array in arrays),)

    def copy(self, number, to, messages):
        """Keep the content of `snapshot` here and on another worker, if any; return the bytes of parts."""
        self._sync(messages)
        sizes = {}
        for name, arrays in self._parts():
            arrays = {key: narrowed(array) for key, array in arrays.items()}
            hold_copy(self.spare, number, name, arrays, self.program.files)
            if to:
                self._reach(to, "hold", number=number, name=name, arrays=arrays).result()
            sizes[name] = payload_bytes(arrays)
        return sizes

    def _parts(self):
        for shard, state in self.states.items():
            if is_saved(self.program, shard):
                yield f"shard-{shard}", {name: state[name] for name in self.program.saved}
                self.program.put_away(state)
        for block, packed in self._packed_blocks():
            yield f"block-{block}", {"value": packed}

    def read(self, saved):
        """Return the arrays of a `CopiedPart`, from here or from one of its holders; others as they are."""
        if not isinstance(saved, CopiedPart):
            return saved
        found = copies_in(self.spare, saved.number).get(saved.name)
        for worker in saved.holders:
            if found is None:
                with contextlib.suppress(WorkerLost):
                    found = self._reach(worker, "held", number=saved.number, name=saved.name).result()
        if found is None:
            raise CopiesLost(f"{saved.name} was kept by {' and '.join(saved.holders)}, which are gone")
        return {key: array.astype(dtype) for key, (array, dtype) in found.items()}

    def store(self, url, folder, messages):
        """Write the content of `snapshot` to a shared place; return the sizes of the files."""
        self._sync(messages)
        parts = {
            f"shard-{s}.npz": {name: state[name] for name in self.program.saved}
            for s, state in self.states.items()
            if is_saved(self.program, s)
        }
        for block, packed in self._packed_blocks():
            parts[f"block-{block}.npz"] = {"value": packed}
        tasks = [(write_part, (url, folder, name, arrays)) for name, arrays in parts.items()]
        sizes = self._on_threads(tasks)
        for state in self.states.values():
            self.program.put_away(state)
        return dict(zip(parts, sizes, strict=True))

    def can_be_tried(self, shard):
        """Whether a shard's state is small enough for `differing`."""
        return not self.program.on_disk and can_be_tried(self.states[shard])

    def differing(self, shard, program, entry, trial):
        """Make a shard again from its entry, by the coordinator's present program."""
        packed = trial.packed
        packed = self.read(packed)["value"] if isinstance(packed, CopiedPart) else packed
        trial = trial._replace(saved=self.read(trial.saved), packed=packed)
        return differing(program, self.states[shard], entry, trial)

    def fault(self, shard, program, messages, task):
        """Try the coordinator's program, and the one that is here, on copies."""
        return fault(program, self.program, self.states[shard], messages, task)

    def _sync(self, messages):
        self.begin()
        for message in messages:
            self._on_threads([(self.program.sync, (state, message)) for state in self.states.values()])

    def _on_threads(self, tasks):
        return run_tasks(tasks, self.n_threads)
