"""The shards of a session on one worker: loaded, kept from one epoch to the next, handed on."""

import threading
import time
from dataclasses import dataclass
from typing import Any

from ...errors import ModelFileError, StradaskError
from ..stores.saved import check_same_form, check_saved
from ..threads import run_tasks


class StaleEpoch(StradaskError):
    """A message of an earlier epoch: its sender is not part of the session any more."""


@dataclass(frozen=True)
class DaskValue:
    """A placeholder in a shard's entry: the value of this number among those that Dask holds."""

    number: int


def _filled(entry, values):
    """Replace each `DaskValue` by its value."""
    if type(entry) is DaskValue:
        return values[entry.number]
    if type(entry) in (tuple, list):
        return type(entry)(_filled(value, values) for value in entry)
    if type(entry) is dict:
        return {name: _filled(value, values) for name, value in entry.items()}
    return entry


class Shards:
    """A worker's shards of a program (which is without its shards), in one epoch.

    Attributes
    ----------
    states : dict
        By shard.
    left : dict
        States from the epoch before, as `Program.load` would make them, until `keep` takes them.
    fresh : bool
        Whether nothing has been done with the shards since they were loaded.
    seconds : float
        That loading took, summed over shards.
    """

    def __init__(self, program, n_threads):
        self.program, self.n_threads = program, n_threads
        self.states: dict[int, Any] = {}
        self.left: dict[int, Any] = {}
        self.fresh, self.seconds = True, 0.0
        self.dask_values: dict[int, list] = {}  # values of Dask's for `load`, by shard
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)  # shards, blocks
        self.failure: BaseException | None = None

    def check(self):
        """Raise the error that ended this epoch, if any."""
        if self.failure is not None:
            raise self.failure

    def load(self, shard, entry, n_values, saved):
        """Make a shard's state and lay saved arrays over it, once; return its report, in a tuple."""
        self.check()
        if shard in self.states:
            return (self.program.report(self.states[shard]),)
        values = self.dask_values.get(shard, ())
        if len(values) != n_values:
            raise StaleEpoch(f"Dask did not bring the data of shard {shard}")
        began = time.monotonic()
        state = self.program.load(_filled(entry, values))
        with self.changed:
            self.seconds += time.monotonic() - began
        check_saved(self.program, state)
        return self._laid_over(shard, state, saved)

    def keep(self, shard, saved):
        """Take a state from the epoch before; otherwise as `load`."""
        self.check()
        if shard in self.states:
            return (self.program.report(self.states[shard]),)
        if shard not in self.left:
            raise StaleEpoch(f"shard {shard} is not here any more")
        return self._laid_over(shard, self.left[shard], saved)

    def read(self, saved):
        """Return the arrays that something refers to, if it must be asked for them here."""
        return saved

    def _laid_over(self, shard, state, saved):
        arrays = dict(self.read(saved).items())  # a `StoredPart` is read here
        if saved and arrays.keys() != set(self.program.saved):
            raise ModelFileError(f"the checkpoint's shard {shard} has other arrays; remove the folder")
        files = self.program.files() if arrays else None
        for name, array in arrays.items():
            check_same_form(f"shard-{shard}/{name}", array, state[name])
            # In one process it is the caller's.
            state[name] = array.copy() if files is None else files.put(array)
        with self.changed:  # also if the epoch has ended meanwhile: the next one need not read it again
            self.states.setdefault(shard, state)
            self.dask_values.pop(shard, None)
            self.left.pop(shard, None)
        self.check()
        return (self.program.report(state),)

    def adopt(self, shard, state):
        """Take a shard from another worker, unless it is here."""
        with self.changed:
            self.check()
            self.fresh = False
            self.states.setdefault(shard, self.program.adopt(state))

    def state(self, shard):
        """Return a shard's whole state, to be handed on."""
        return self.states[shard]

    def begin(self):
        """Begin to work with the shards; states that were left and not kept are released."""
        self.check()
        self.fresh, self.left = False, {}

    def take_over(self, before, as_they_are):
        """Take the shards of the epoch before, in which nothing runs any more, instead of reading them.

        With `as_they_are` its program was this one too, so that fresh shards are as `load` would make them.
        All others go through `Program.renew`.
        """
        states = before.left | before.states
        if not (as_they_are and before.fresh):
            renewed = run_tasks([(self.program.renew, (state,)) for state in states.values()], self.n_threads)
            states = {s: state for s, state in zip(states, renewed, strict=True) if state is not None}
        self.left, self.seconds = states, before.seconds
        before.clear()

    def clear(self):
        """Release all shards."""
        with self.changed:
            self.states, self.left, self.dask_values = {}, {}, {}
